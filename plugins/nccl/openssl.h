/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * OpenSSL, loaded at run time. The build includes this file before every file of the library that calls OpenSSL, and
 * each call then goes through a table. So the plugin has no dependency that could keep NCCL from loading it.
 */
#ifndef PLUGIN_OPENSSL_H
#define PLUGIN_OPENSSL_H

/* All headers that the library uses come before the macros below, which would change their declarations. */
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

/* Functions that the library calls, in both of OpenSSL's libraries. The link fails if one is missing here. */
#define PLUGIN_OPENSSL_FUNCTIONS(FUNCTION) \
	FUNCTION(ASN1_INTEGER_set) \
	FUNCTION(ASN1_STRING_get0_data) \
	FUNCTION(ASN1_STRING_length) \
	FUNCTION(BIO_clear_flags) \
	FUNCTION(BIO_free) \
	FUNCTION(BIO_get_data) \
	FUNCTION(BIO_meth_free) \
	FUNCTION(BIO_meth_new) \
	FUNCTION(BIO_meth_set_ctrl) \
	FUNCTION(BIO_meth_set_destroy) \
	FUNCTION(BIO_meth_set_read) \
	FUNCTION(BIO_meth_set_write) \
	FUNCTION(BIO_new) \
	FUNCTION(BIO_new_mem_buf) \
	FUNCTION(BIO_set_data) \
	FUNCTION(BIO_set_flags) \
	FUNCTION(BIO_set_init) \
	FUNCTION(CRYPTO_free) \
	FUNCTION(CRYPTO_memcmp) \
	FUNCTION(ERR_clear_error) \
	FUNCTION(ERR_peek_error) \
	FUNCTION(ERR_reason_error_string) \
	FUNCTION(EVP_CIPHER_CTX_ctrl) \
	FUNCTION(EVP_CIPHER_CTX_free) \
	FUNCTION(EVP_CIPHER_CTX_is_encrypting) \
	FUNCTION(EVP_CIPHER_CTX_new) \
	FUNCTION(EVP_CIPHER_CTX_set_params) \
	FUNCTION(EVP_CipherFinal_ex) \
	FUNCTION(EVP_CipherInit_ex) \
	FUNCTION(EVP_CipherUpdate) \
	FUNCTION(EVP_DecodeBlock) \
	FUNCTION(EVP_Digest) \
	FUNCTION(EVP_EncodeBlock) \
	FUNCTION(EVP_KDF_CTX_free) \
	FUNCTION(EVP_KDF_CTX_new) \
	FUNCTION(EVP_KDF_derive) \
	FUNCTION(EVP_KDF_fetch) \
	FUNCTION(EVP_KDF_free) \
	FUNCTION(EVP_MD_is_a) \
	FUNCTION(EVP_PKEY_Q_keygen) \
	FUNCTION(EVP_PKEY_free) \
	FUNCTION(EVP_aes_128_gcm) \
	FUNCTION(EVP_sha256) \
	FUNCTION(GENERAL_NAMES_free) \
	FUNCTION(HMAC) \
	FUNCTION(OPENSSL_cleanse) \
	FUNCTION(OPENSSL_sk_new_null) \
	FUNCTION(OPENSSL_sk_num) \
	FUNCTION(OPENSSL_sk_pop_free) \
	FUNCTION(OPENSSL_sk_push) \
	FUNCTION(OPENSSL_sk_shift) \
	FUNCTION(OPENSSL_sk_value) \
	FUNCTION(OSSL_PARAM_construct_end) \
	FUNCTION(OSSL_PARAM_construct_octet_string) \
	FUNCTION(OSSL_PARAM_construct_utf8_string) \
	FUNCTION(PEM_read_bio_PrivateKey) \
	FUNCTION(PEM_read_bio_X509) \
	FUNCTION(SHA256) \
	FUNCTION(SSL_CIPHER_find) \
	FUNCTION(SSL_CTX_clear_options) \
	FUNCTION(SSL_CTX_ctrl) \
	FUNCTION(SSL_CTX_free) \
	FUNCTION(SSL_CTX_new) \
	FUNCTION(SSL_CTX_set_cert_verify_callback) \
	FUNCTION(SSL_CTX_set_ciphersuites) \
	FUNCTION(SSL_CTX_set_client_hello_cb) \
	FUNCTION(SSL_CTX_set_max_early_data) \
	FUNCTION(SSL_CTX_set_num_tickets) \
	FUNCTION(SSL_CTX_set_options) \
	FUNCTION(SSL_CTX_set_psk_find_session_callback) \
	FUNCTION(SSL_CTX_set_psk_use_session_callback) \
	FUNCTION(SSL_CTX_set_verify) \
	FUNCTION(SSL_CTX_up_ref) \
	FUNCTION(SSL_CTX_use_PrivateKey) \
	FUNCTION(SSL_CTX_use_cert_and_key) \
	FUNCTION(SSL_CTX_use_certificate) \
	FUNCTION(SSL_SESSION_free) \
	FUNCTION(SSL_SESSION_new) \
	FUNCTION(SSL_SESSION_set1_master_key) \
	FUNCTION(SSL_SESSION_set_cipher) \
	FUNCTION(SSL_SESSION_set_protocol_version) \
	FUNCTION(SSL_certs_clear) \
	FUNCTION(SSL_client_hello_get0_ext) \
	FUNCTION(SSL_ctrl) \
	FUNCTION(SSL_do_handshake) \
	FUNCTION(SSL_export_keying_material) \
	FUNCTION(SSL_free) \
	FUNCTION(SSL_get0_peer_certificate) \
	FUNCTION(SSL_get_error) \
	FUNCTION(SSL_get_peer_cert_chain) \
	FUNCTION(SSL_get_rbio) \
	FUNCTION(SSL_get_session) \
	FUNCTION(SSL_is_init_finished) \
	FUNCTION(SSL_is_server) \
	FUNCTION(SSL_key_update) \
	FUNCTION(SSL_new) \
	FUNCTION(SSL_pending) \
	FUNCTION(SSL_read_ex) \
	FUNCTION(SSL_session_reused) \
	FUNCTION(SSL_set_accept_state) \
	FUNCTION(SSL_set_bio) \
	FUNCTION(SSL_set_connect_state) \
	FUNCTION(SSL_set_verify) \
	FUNCTION(SSL_shutdown) \
	FUNCTION(SSL_write_ex) \
	FUNCTION(TLS_method) \
	FUNCTION(X509_NAME_add_entry_by_NID) \
	FUNCTION(X509_NAME_get_text_by_NID) \
	FUNCTION(X509_STORE_CTX_free) \
	FUNCTION(X509_STORE_CTX_init) \
	FUNCTION(X509_STORE_CTX_new) \
	FUNCTION(X509_STORE_CTX_set_error) \
	FUNCTION(X509_STORE_add_cert) \
	FUNCTION(X509_STORE_free) \
	FUNCTION(X509_STORE_new) \
	FUNCTION(X509_STORE_up_ref) \
	FUNCTION(X509_check_host) \
	FUNCTION(X509_check_ip_asc) \
	FUNCTION(X509_check_private_key) \
	FUNCTION(X509_free) \
	FUNCTION(X509_get_X509_PUBKEY) \
	FUNCTION(X509_get_ext_d2i) \
	FUNCTION(X509_get_extension_flags) \
	FUNCTION(X509_get_key_usage) \
	FUNCTION(X509_get_serialNumber) \
	FUNCTION(X509_get_subject_name) \
	FUNCTION(X509_getm_notAfter) \
	FUNCTION(X509_getm_notBefore) \
	FUNCTION(X509_gmtime_adj) \
	FUNCTION(X509_new) \
	FUNCTION(X509_set_pubkey) \
	FUNCTION(X509_set_version) \
	FUNCTION(X509_sign) \
	FUNCTION(X509_verify_cert) \
	FUNCTION(i2d_X509_PUBKEY)

struct plugin_openssl {
#define PLUGIN_OPENSSL_MEMBER(name) __typeof__(name) *name;
	PLUGIN_OPENSSL_FUNCTIONS(PLUGIN_OPENSSL_MEMBER)
#undef PLUGIN_OPENSSL_MEMBER
};

extern struct plugin_openssl plugin_openssl __attribute__((visibility("hidden")));

/* Loads OpenSSL once for the process. Returns NULL, or the reason of the failure. Thread-safe. */
const char *plugin_openssl_load(void) __attribute__((visibility("hidden")));

#ifndef PLUGIN_OPENSSL_TABLE
#define ASN1_INTEGER_set plugin_openssl.ASN1_INTEGER_set
#define ASN1_STRING_get0_data plugin_openssl.ASN1_STRING_get0_data
#define ASN1_STRING_length plugin_openssl.ASN1_STRING_length
#define BIO_clear_flags plugin_openssl.BIO_clear_flags
#define BIO_free plugin_openssl.BIO_free
#define BIO_get_data plugin_openssl.BIO_get_data
#define BIO_meth_free plugin_openssl.BIO_meth_free
#define BIO_meth_new plugin_openssl.BIO_meth_new
#define BIO_meth_set_ctrl plugin_openssl.BIO_meth_set_ctrl
#define BIO_meth_set_destroy plugin_openssl.BIO_meth_set_destroy
#define BIO_meth_set_read plugin_openssl.BIO_meth_set_read
#define BIO_meth_set_write plugin_openssl.BIO_meth_set_write
#define BIO_new plugin_openssl.BIO_new
#define BIO_new_mem_buf plugin_openssl.BIO_new_mem_buf
#define BIO_set_data plugin_openssl.BIO_set_data
#define BIO_set_flags plugin_openssl.BIO_set_flags
#define BIO_set_init plugin_openssl.BIO_set_init
#define CRYPTO_free plugin_openssl.CRYPTO_free
#define CRYPTO_memcmp plugin_openssl.CRYPTO_memcmp
#define ERR_clear_error plugin_openssl.ERR_clear_error
#define ERR_peek_error plugin_openssl.ERR_peek_error
#define ERR_reason_error_string plugin_openssl.ERR_reason_error_string
#define EVP_CIPHER_CTX_ctrl plugin_openssl.EVP_CIPHER_CTX_ctrl
#define EVP_CIPHER_CTX_free plugin_openssl.EVP_CIPHER_CTX_free
#define EVP_CIPHER_CTX_is_encrypting plugin_openssl.EVP_CIPHER_CTX_is_encrypting
#define EVP_CIPHER_CTX_new plugin_openssl.EVP_CIPHER_CTX_new
#define EVP_CIPHER_CTX_set_params plugin_openssl.EVP_CIPHER_CTX_set_params
#define EVP_CipherFinal_ex plugin_openssl.EVP_CipherFinal_ex
#define EVP_CipherInit_ex plugin_openssl.EVP_CipherInit_ex
#define EVP_CipherUpdate plugin_openssl.EVP_CipherUpdate
#define EVP_DecodeBlock plugin_openssl.EVP_DecodeBlock
#define EVP_Digest plugin_openssl.EVP_Digest
#define EVP_EncodeBlock plugin_openssl.EVP_EncodeBlock
#define EVP_KDF_CTX_free plugin_openssl.EVP_KDF_CTX_free
#define EVP_KDF_CTX_new plugin_openssl.EVP_KDF_CTX_new
#define EVP_KDF_derive plugin_openssl.EVP_KDF_derive
#define EVP_KDF_fetch plugin_openssl.EVP_KDF_fetch
#define EVP_KDF_free plugin_openssl.EVP_KDF_free
#define EVP_MD_is_a plugin_openssl.EVP_MD_is_a
#define EVP_PKEY_Q_keygen plugin_openssl.EVP_PKEY_Q_keygen
#define EVP_PKEY_free plugin_openssl.EVP_PKEY_free
#define EVP_aes_128_gcm plugin_openssl.EVP_aes_128_gcm
#define EVP_sha256 plugin_openssl.EVP_sha256
#define GENERAL_NAMES_free plugin_openssl.GENERAL_NAMES_free
#define HMAC plugin_openssl.HMAC
#define OPENSSL_cleanse plugin_openssl.OPENSSL_cleanse
#define OPENSSL_sk_new_null plugin_openssl.OPENSSL_sk_new_null
#define OPENSSL_sk_num plugin_openssl.OPENSSL_sk_num
#define OPENSSL_sk_pop_free plugin_openssl.OPENSSL_sk_pop_free
#define OPENSSL_sk_push plugin_openssl.OPENSSL_sk_push
#define OPENSSL_sk_shift plugin_openssl.OPENSSL_sk_shift
#define OPENSSL_sk_value plugin_openssl.OPENSSL_sk_value
#define OSSL_PARAM_construct_end plugin_openssl.OSSL_PARAM_construct_end
#define OSSL_PARAM_construct_octet_string plugin_openssl.OSSL_PARAM_construct_octet_string
#define OSSL_PARAM_construct_utf8_string plugin_openssl.OSSL_PARAM_construct_utf8_string
#define PEM_read_bio_PrivateKey plugin_openssl.PEM_read_bio_PrivateKey
#define PEM_read_bio_X509 plugin_openssl.PEM_read_bio_X509
#define SHA256 plugin_openssl.SHA256
#define SSL_CIPHER_find plugin_openssl.SSL_CIPHER_find
#define SSL_CTX_clear_options plugin_openssl.SSL_CTX_clear_options
#define SSL_CTX_ctrl plugin_openssl.SSL_CTX_ctrl
#define SSL_CTX_free plugin_openssl.SSL_CTX_free
#define SSL_CTX_new plugin_openssl.SSL_CTX_new
#define SSL_CTX_set_cert_verify_callback plugin_openssl.SSL_CTX_set_cert_verify_callback
#define SSL_CTX_set_ciphersuites plugin_openssl.SSL_CTX_set_ciphersuites
#define SSL_CTX_set_client_hello_cb plugin_openssl.SSL_CTX_set_client_hello_cb
#define SSL_CTX_set_max_early_data plugin_openssl.SSL_CTX_set_max_early_data
#define SSL_CTX_set_num_tickets plugin_openssl.SSL_CTX_set_num_tickets
#define SSL_CTX_set_options plugin_openssl.SSL_CTX_set_options
#define SSL_CTX_set_psk_find_session_callback plugin_openssl.SSL_CTX_set_psk_find_session_callback
#define SSL_CTX_set_psk_use_session_callback plugin_openssl.SSL_CTX_set_psk_use_session_callback
#define SSL_CTX_set_verify plugin_openssl.SSL_CTX_set_verify
#define SSL_CTX_up_ref plugin_openssl.SSL_CTX_up_ref
#define SSL_CTX_use_PrivateKey plugin_openssl.SSL_CTX_use_PrivateKey
#define SSL_CTX_use_cert_and_key plugin_openssl.SSL_CTX_use_cert_and_key
#define SSL_CTX_use_certificate plugin_openssl.SSL_CTX_use_certificate
#define SSL_SESSION_free plugin_openssl.SSL_SESSION_free
#define SSL_SESSION_new plugin_openssl.SSL_SESSION_new
#define SSL_SESSION_set1_master_key plugin_openssl.SSL_SESSION_set1_master_key
#define SSL_SESSION_set_cipher plugin_openssl.SSL_SESSION_set_cipher
#define SSL_SESSION_set_protocol_version plugin_openssl.SSL_SESSION_set_protocol_version
#define SSL_certs_clear plugin_openssl.SSL_certs_clear
#define SSL_client_hello_get0_ext plugin_openssl.SSL_client_hello_get0_ext
#define SSL_ctrl plugin_openssl.SSL_ctrl
#define SSL_do_handshake plugin_openssl.SSL_do_handshake
#define SSL_export_keying_material plugin_openssl.SSL_export_keying_material
#define SSL_free plugin_openssl.SSL_free
#define SSL_get0_peer_certificate plugin_openssl.SSL_get0_peer_certificate
#define SSL_get_error plugin_openssl.SSL_get_error
#define SSL_get_peer_cert_chain plugin_openssl.SSL_get_peer_cert_chain
#define SSL_get_rbio plugin_openssl.SSL_get_rbio
#define SSL_get_session plugin_openssl.SSL_get_session
#define SSL_is_init_finished plugin_openssl.SSL_is_init_finished
#define SSL_is_server plugin_openssl.SSL_is_server
#define SSL_key_update plugin_openssl.SSL_key_update
#define SSL_new plugin_openssl.SSL_new
#define SSL_pending plugin_openssl.SSL_pending
#define SSL_read_ex plugin_openssl.SSL_read_ex
#define SSL_session_reused plugin_openssl.SSL_session_reused
#define SSL_set_accept_state plugin_openssl.SSL_set_accept_state
#define SSL_set_bio plugin_openssl.SSL_set_bio
#define SSL_set_connect_state plugin_openssl.SSL_set_connect_state
#define SSL_set_verify plugin_openssl.SSL_set_verify
#define SSL_shutdown plugin_openssl.SSL_shutdown
#define SSL_write_ex plugin_openssl.SSL_write_ex
#define TLS_method plugin_openssl.TLS_method
#define X509_NAME_add_entry_by_NID plugin_openssl.X509_NAME_add_entry_by_NID
#define X509_NAME_get_text_by_NID plugin_openssl.X509_NAME_get_text_by_NID
#define X509_STORE_CTX_free plugin_openssl.X509_STORE_CTX_free
#define X509_STORE_CTX_init plugin_openssl.X509_STORE_CTX_init
#define X509_STORE_CTX_new plugin_openssl.X509_STORE_CTX_new
#define X509_STORE_CTX_set_error plugin_openssl.X509_STORE_CTX_set_error
#define X509_STORE_add_cert plugin_openssl.X509_STORE_add_cert
#define X509_STORE_free plugin_openssl.X509_STORE_free
#define X509_STORE_new plugin_openssl.X509_STORE_new
#define X509_STORE_up_ref plugin_openssl.X509_STORE_up_ref
#define X509_check_host plugin_openssl.X509_check_host
#define X509_check_ip_asc plugin_openssl.X509_check_ip_asc
#define X509_check_private_key plugin_openssl.X509_check_private_key
#define X509_free plugin_openssl.X509_free
#define X509_get_X509_PUBKEY plugin_openssl.X509_get_X509_PUBKEY
#define X509_get_ext_d2i plugin_openssl.X509_get_ext_d2i
#define X509_get_extension_flags plugin_openssl.X509_get_extension_flags
#define X509_get_key_usage plugin_openssl.X509_get_key_usage
#define X509_get_serialNumber plugin_openssl.X509_get_serialNumber
#define X509_get_subject_name plugin_openssl.X509_get_subject_name
#define X509_getm_notAfter plugin_openssl.X509_getm_notAfter
#define X509_getm_notBefore plugin_openssl.X509_getm_notBefore
#define X509_gmtime_adj plugin_openssl.X509_gmtime_adj
#define X509_new plugin_openssl.X509_new
#define X509_set_pubkey plugin_openssl.X509_set_pubkey
#define X509_set_version plugin_openssl.X509_set_version
#define X509_sign plugin_openssl.X509_sign
#define X509_verify_cert plugin_openssl.X509_verify_cert
#define i2d_X509_PUBKEY plugin_openssl.i2d_X509_PUBKEY
#endif

#endif
