/* SPDX-License-Identifier: BSD-2-Clause */
#include "control/tls.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/sha.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>

#define IDENTITY "peerlane"
#define KEY_DOMAIN ".key.peerlane.invalid"
#define KEY_SERVER_NAME (PL_KEY_DIGITS + sizeof(KEY_DOMAIN))
#define KEY_LENGTH_MIN 16
#define KEY_LENGTH_MAX 1024

/* An external PSK belongs to one hash, and so to that hash's suites. One suite leaves nothing to negotiate. */
#define SUITE "TLS_AES_128_GCM_SHA256"
#define GROUPS "X25519:P-256"
#define SIGNATURES "ed25519:ECDSA+SHA256:ECDSA+SHA384:RSA-PSS+SHA256:RSA-PSS+SHA384"
#define CERTIFICATES_MAX (16 << 10)
static const unsigned char suite_id[] = { 0x13, 0x01 };

struct pl_tls {
	struct pl_allocator allocator;
	BIO_METHOD *method;
	SSL_CTX *keyed;    /* of streams that prove a pre-shared key; they have a context of their own */
	bool has_key;      /* constant */
	bool certificates; /* constant: control channels use certificates, also if there is a key */

	pthread_mutex_t lock; /* protects the members below, which pl_tls_configure() replaces */
	SSL_CTX *certified;
	bool has_identity;
	X509_STORE *authority; /* NULL: none */
	struct pl_psk *keys;   /* the key, and the old one */
	struct pl_secret_pool secrets;
};

int pl_tls_derive_key(const void *key, size_t length, uint8_t out[PL_SECRET])
{
	static const char label[] = "peerlane tls 1.3 external psk";
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, OSSL_KDF_NAME_HKDF, NULL);
	EVP_KDF_CTX *context = EVP_KDF_CTX_new(kdf);
	OSSL_PARAM parameters[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", 0),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)key, length),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)label, sizeof(label) - 1),
		OSSL_PARAM_construct_end(),
	};
	int rc = context && EVP_KDF_derive(context, out, PL_SECRET, parameters) == 1 ? 0 : -EIO;

	EVP_KDF_CTX_free(context);
	EVP_KDF_free(kdf);
	return rc;
}

/* -- the pre-shared key ----------------------------------------------------------------------------------------- */

void pl_psk_name(struct pl_psk *psk)
{
	static const char label[] = "peerlane key id";
	uint8_t bytes[sizeof(label) + PL_SECRET], digest[PL_SECRET];

	memcpy(bytes, label, sizeof(label));
	memcpy(bytes + sizeof(label), psk->secret, PL_SECRET);
	SHA256(bytes, sizeof(bytes), digest);
	OPENSSL_cleanse(bytes, sizeof(bytes));
	for (int i = 0; i < PL_KEY_DIGITS / 2; i++)
		snprintf(psk->name + 2 * i, 3, "%02x", digest[i]);
}

/* Creates a session for one handshake. OpenSSL writes into it, so handshakes of several threads cannot share one. */
static SSL_SESSION *make_session(SSL *ssl, const struct pl_psk *psk)
{
	const SSL_CIPHER *suite = SSL_CIPHER_find(ssl, suite_id);
	SSL_SESSION *session = SSL_SESSION_new();

	if (session && suite && SSL_SESSION_set1_master_key(session, psk->secret, PL_SECRET) &&
	    SSL_SESSION_set_cipher(session, suite) && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
		return session;
	SSL_SESSION_free(session);
	return NULL;
}

/* Name of a key as that of a server (SNI): releases of version 1 of the protocol know one PSK identity only. */
static void format_server_name(const struct pl_psk *psk, char text[KEY_SERVER_NAME])
{
	snprintf(text, KEY_SERVER_NAME, "%s" KEY_DOMAIN, psk->name);
}

/*
 * Server: notes whether the client names the old key. OpenSSL handles pre-shared keys before it parses the server name,
 * so this parses the extension (RFC 6066, section 3): lengths of the list and of a name, with its type between them.
 */
static int note_named_key(SSL *ssl, int *alert, void *user)
{
	enum { HEAD = 5 };
	struct pl_tls_socket *socket = BIO_get_data(SSL_get_rbio(ssl));
	const unsigned char *data;
	char name[KEY_SERVER_NAME];
	size_t length;

	(void)alert;
	(void)user;
	if (!socket->keys[1].set || !SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &data, &length))
		return SSL_CLIENT_HELLO_SUCCESS;
	format_server_name(&socket->keys[1], name);
	socket->old_named = length == HEAD + strlen(name) && !memcmp(data + HEAD, name, strlen(name));
	return SSL_CLIENT_HELLO_SUCCESS;
}

/* Server: a client has a key. */
static int find_session(SSL *ssl, const unsigned char *identity, size_t length, SSL_SESSION **session)
{
	struct pl_tls_socket *socket = BIO_get_data(SSL_get_rbio(ssl));

	*session = NULL;
	if (length != sizeof(IDENTITY) - 1 || memcmp(identity, IDENTITY, length) != 0)
		return 1; /* unknown; the handshake then fails without a certificate */
	socket->used = &socket->keys[socket->old_named];
	*session = make_session(ssl, socket->used);
	return *session != NULL;
}

/* Client: names this end's key. hash is set if only keys of that hash can still be used. */
static int use_session(SSL *ssl, const EVP_MD *hash, const unsigned char **identity, size_t *length,
		       SSL_SESSION **session)
{
	struct pl_tls_socket *socket = BIO_get_data(SSL_get_rbio(ssl));

	*session = NULL;
	if (hash && !EVP_MD_is_a(hash, "SHA256"))
		return 1;
	socket->used = &socket->keys[0];
	*identity = (const unsigned char *)IDENTITY;
	*length = sizeof(IDENTITY) - 1;
	*session = make_session(ssl, socket->used);
	return *session != NULL;
}

/* In a handshake with a key only that authenticates, even if this host trusts the authority of a certificate. */
static int refuse_certificate(X509_STORE_CTX *store, void *user)
{
	(void)user;
	X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
	return 0;
}

/* TLS proves the private key of a certificate. Whose it is is judged after the handshake, with errors that say more. */
static int take_certificate(X509_STORE_CTX *store, void *user)
{
	(void)user;
	X509_STORE_CTX_set_error(store, X509_V_OK);
	return 1;
}

/* -- settings --------------------------------------------------------------------------------------------------- */

/* Sets all options, also those with the right default: a system-wide configuration of OpenSSL may change it. */
static bool configure(SSL_CTX *context)
{
	if (!SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) ||
	    !SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) || !SSL_CTX_set_ciphersuites(context, SUITE) ||
	    !SSL_CTX_set1_groups_list(context, GROUPS) || !SSL_CTX_set_num_tickets(context, 0))
		return false;
	SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
	SSL_CTX_clear_options(context,
			      SSL_OP_ALLOW_NO_DHE_KEX | SSL_OP_ENABLE_MIDDLEBOX_COMPAT | SSL_OP_IGNORE_UNEXPECTED_EOF);
	SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
					  SSL_MODE_RELEASE_BUFFERS);
	/* A read ends with each KeyUpdate: a flood of them must not keep an engine in one call. epoll(7) reports further bytes. */
	SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
	SSL_CTX_set_read_ahead(context, 0);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_max_early_data(context, 0);
	SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
	return true;
}

static int fail_openssl(struct pl_error *error, const char *call)
{
	const char *reason = ERR_reason_error_string(ERR_peek_error());

	return pl_fail(error, -EIO, "TLS-FAILED", call, NULL,
		       "look at the OpenSSL configuration of this host (openssl.cnf)", "OpenSSL: %s",
		       reason ? reason : "no reason given");
}

/* Creates the context of handshakes with certificates. Without an identity a server has one that proves nothing. */
static int make_certified(struct pl_tls *tls, const char *identity, SSL_CTX **result, struct pl_error *error)
{
	SSL_CTX *context = SSL_CTX_new(TLS_method());
	STACK_OF(X509) *chain = NULL;
	EVP_PKEY *key = NULL;
	int rc = 0;

	if (!context || !configure(context) || !SSL_CTX_set1_sigalgs_list(context, SIGNATURES)) {
		SSL_CTX_free(context);
		return fail_openssl(error, "SSL_CTX_new");
	}
	SSL_CTX_set_cert_verify_callback(context, take_certificate, NULL);
	SSL_CTX_set_max_cert_list(context, CERTIFICATES_MAX);
	if (identity)
		rc = pl_identity_read(&tls->allocator, identity, &key, &chain, error);
	if (rc == 0 && identity) {
		X509 *own = sk_X509_shift(chain);

		if (SSL_CTX_use_cert_and_key(context, own, key, chain, 1) != 1)
			rc = fail_openssl(error, "SSL_CTX_use_cert_and_key");
		X509_free(own);
	} else if (rc == 0 && !pl_tls_use_throwaway(context)) {
		rc = fail_openssl(error, "SSL_CTX_use_certificate");
	}
	sk_X509_pop_free(chain, X509_free);
	EVP_PKEY_free(key);
	if (rc < 0)
		SSL_CTX_free(context);
	else
		*result = context;
	return rc;
}

static int make_psk(struct pl_psk *psk, const void *key, size_t length, const char *option, struct pl_error *error)
{
	memset(psk, 0, sizeof(*psk));
	if (!key)
		return 0;
	if (length < KEY_LENGTH_MIN || length > KEY_LENGTH_MAX)
		return pl_fail(error, -EINVAL, "OPTION", "pl_tls_open", option,
			       "make a key with: openssl rand -out FILE 32", "a key has %d to %d bytes, not %zu",
			       KEY_LENGTH_MIN, KEY_LENGTH_MAX, length);
	if (pl_tls_derive_key(key, length, psk->secret) < 0)
		return fail_openssl(error, "EVP_KDF_derive");
	psk->set = true;
	pl_psk_name(psk);
	return 0;
}

/* Settings that pl_tls_configure() has made and not yet put in place. */
struct new_settings {
	SSL_CTX *certified;
	X509_STORE *authority;
	struct pl_psk keys[2];
};

static int make_settings(struct pl_tls *tls, const struct pl_tls_settings *from, struct new_settings *to,
			 struct pl_error *error)
{
	int rc = make_psk(&to->keys[0], from->key, from->key_length, "key", error);

	if (rc == 0)
		rc = make_psk(&to->keys[1], from->old_key, from->old_key_length, "old_key", error);
	if (rc == 0 && tls->certificates)
		rc = make_certified(tls, from->identity, &to->certified, error);
	if (rc == 0 && from->authority)
		rc = pl_authority_read(&tls->allocator, from->authority, &to->authority, error);
	return rc;
}

int pl_tls_configure(struct pl_tls *tls, const struct pl_tls_settings *settings, struct pl_error *error)
{
	struct new_settings made = { 0 };
	int rc;

	ERR_clear_error();
	rc = make_settings(tls, settings, &made, error);
	ERR_clear_error();
	if (rc == 0) {
		struct new_settings old = { tls->certified, tls->authority, { { 0 } } };

		pthread_mutex_lock(&tls->lock);
		tls->certified = made.certified;
		tls->authority = made.authority;
		tls->has_identity = settings->identity;
		if (settings->key)
			memcpy(tls->keys, made.keys, PL_PSK_PAIR);
		pthread_mutex_unlock(&tls->lock);
		made.certified = old.certified;
		made.authority = old.authority;
	}
	SSL_CTX_free(made.certified);
	X509_STORE_free(made.authority);
	OPENSSL_cleanse(&made, sizeof(made));
	return rc;
}

int pl_tls_open_with(const struct pl_allocator *allocator, const struct pl_tls_settings *settings,
		     struct pl_tls **result, struct pl_error *error)
{
	struct pl_tls *tls = pl_zalloc(allocator, sizeof(*tls));
	int rc = 0;

	*result = NULL;
	if (!tls)
		return pl_fail_memory(error, "pl_tls_open");
	tls->allocator = *allocator;
	pthread_mutex_init(&tls->lock, NULL);
	pl_secret_pool_init(&tls->secrets);
	tls->keys = pl_secret_alloc(&tls->secrets);
	tls->has_key = settings->key;
	tls->certificates = settings->certificates || !settings->key;
	ERR_clear_error();
	tls->keyed = SSL_CTX_new(TLS_method());
	if (!tls->keys) {
		rc = pl_fail_memory(error, "mmap");
	} else if (!tls->keyed || !configure(tls->keyed)) {
		rc = fail_openssl(error, "SSL_CTX_new");
	} else {
		SSL_CTX_set_cert_verify_callback(tls->keyed, refuse_certificate, NULL);
		SSL_CTX_set_client_hello_cb(tls->keyed, note_named_key, NULL);
		SSL_CTX_set_psk_find_session_callback(tls->keyed, find_session);
		SSL_CTX_set_psk_use_session_callback(tls->keyed, use_session);
		tls->method = pl_tls_socket_method();
		rc = tls->method ? pl_tls_configure(tls, settings, error) : pl_fail_memory(error, "BIO_meth_new");
	}
	ERR_clear_error();
	if (rc < 0)
		pl_tls_close(tls);
	else
		*result = tls;
	return rc;
}

int pl_tls_open(const struct pl_allocator *allocator, const void *key, size_t length, struct pl_tls **tls,
		struct pl_error *error)
{
	return pl_tls_open_with(allocator, &(struct pl_tls_settings){ .key = key, .key_length = length }, tls, error);
}

void pl_tls_close(struct pl_tls *tls)
{
	struct pl_allocator allocator;

	if (!tls)
		return;
	allocator = tls->allocator;
	SSL_CTX_free(tls->keyed);
	SSL_CTX_free(tls->certified);
	X509_STORE_free(tls->authority);
	BIO_meth_free(tls->method);
	pthread_mutex_destroy(&tls->lock);
	pl_secret_pool_destroy(&tls->secrets);
	pl_free(&allocator, tls);
}

bool pl_tls_has_key(const struct pl_tls *tls)
{
	return tls && tls->has_key;
}

bool pl_tls_uses_certificates(const struct pl_tls *tls)
{
	return tls->certificates;
}

void pl_tls_keys(struct pl_tls *tls, struct pl_psk keys[2])
{
	pthread_mutex_lock(&tls->lock);
	memcpy(keys, tls->keys, PL_PSK_PAIR);
	pthread_mutex_unlock(&tls->lock);
}

struct pl_secret_pool *pl_tls_secrets(struct pl_tls *tls)
{
	return &tls->secrets;
}

bool pl_tls_certified(struct pl_tls *tls, X509 *certificate, STACK_OF(X509) *chain, char *name, size_t size)
{
	X509_STORE *store;
	bool certified;

	pthread_mutex_lock(&tls->lock);
	store = tls->authority;
	if (store)
		X509_STORE_up_ref(store);
	pthread_mutex_unlock(&tls->lock);
	name[0] = '\0';
	certified = store && pl_authority_certified(store, certificate, chain, name, size);
	X509_STORE_free(store);
	return certified;
}

void pl_tls_forget_key(SSL *ssl)
{
	static const unsigned char zeros[PL_SECRET];
	SSL_SESSION *session = SSL_get_session(ssl);

	if (session && pl_tls_socket(ssl)->proven)
		SSL_SESSION_set1_master_key(session, zeros, sizeof(zeros));
}

/* -- connections ------------------------------------------------------------------------------------------------ */

/* Takes the settings of one stream out of the shared ones: its keys, and its context, with a reference. */
static SSL_CTX *choose_context(struct pl_tls *tls, bool server, struct pl_tls_socket *socket, bool *anonymous)
{
	SSL_CTX *context = tls->keyed;

	*anonymous = false;
	socket->keyed = tls->certificates && tls->has_key;
	socket->proven = !tls->certificates;
	pthread_mutex_lock(&tls->lock);
	if (tls->certificates) {
		context = tls->certified;
		*anonymous = !server && !tls->has_identity;
	} else {
		memcpy(socket->keys, tls->keys, PL_PSK_PAIR);
	}
	SSL_CTX_up_ref(context);
	pthread_mutex_unlock(&tls->lock);
	return context;
}

SSL *pl_tls_connection(struct pl_tls *tls, int fd, bool server)
{
	struct pl_tls_socket *socket = pl_zalloc(&tls->allocator, sizeof(*socket));
	BIO *bio = socket ? BIO_new(tls->method) : NULL;
	SSL_CTX *context;
	bool anonymous;
	SSL *ssl;

	if (bio && !tls->certificates)
		socket->keys = pl_secret_alloc(&tls->secrets);
	if (!bio || (!tls->certificates && !socket->keys)) {
		BIO_free(bio);
		pl_free(&tls->allocator, socket);
		return NULL;
	}
	socket->secrets = &tls->secrets;
	socket->allocator = tls->allocator;
	socket->fd = fd;
	BIO_set_data(bio, socket);
	BIO_set_init(bio, 1);
	context = choose_context(tls, server, socket, &anonymous);
	ssl = SSL_new(context);
	SSL_CTX_free(context);
	if (!ssl) {
		BIO_free(bio);
		return NULL;
	}
	SSL_set_bio(ssl, bio, bio);
	if (!server && socket->proven) {
		char name[KEY_SERVER_NAME];

		format_server_name(&socket->keys[0], name);
		SSL_set_tlsext_host_name(ssl, name);
	}
	if (anonymous)
		SSL_certs_clear(ssl); /* no throw-away certificate: it would look like an identity */
	/* A certificate must not be ignored: it is refused where a key must be proven, and else judged afterwards. */
	if (!server || !socket->proven)
		SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL);
	if (server)
		SSL_set_accept_state(ssl);
	else
		SSL_set_connect_state(ssl);
	return ssl;
}
