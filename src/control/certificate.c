/* SPDX-License-Identifier: BSD-2-Clause */
/* Certificate of contexts without a key: TLS 1.3 has no handshake without a certificate or a pre-shared key. */
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "control/tls.h"

/* The other end checks no dates. */
#define LIFE_SECONDS 86400

/* Common name of such certificates: they are no identity. */
static const unsigned char name[] = "peerlane throw-away";

static bool set_name(X509 *certificate)
{
	return X509_NAME_add_entry_by_NID(X509_get_subject_name(certificate), NID_commonName, MBSTRING_ASC, name, -1, -1,
					  0) == 1;
}

static X509 *make_certificate(EVP_PKEY *key)
{
	X509 *certificate = X509_new();

	/* Version 3, which OpenSSL counts from 0. */
	if (certificate && X509_set_version(certificate, 2) && set_name(certificate) &&
	    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1) &&
	    X509_gmtime_adj(X509_getm_notBefore(certificate), 0) &&
	    X509_gmtime_adj(X509_getm_notAfter(certificate), LIFE_SECONDS) && X509_set_pubkey(certificate, key) &&
	    X509_sign(certificate, key, EVP_sha256()))
		return certificate;
	X509_free(certificate);
	return NULL;
}

bool pl_tls_use_throwaway(SSL_CTX *context)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = key ? make_certificate(key) : NULL;
	bool done = certificate && SSL_CTX_use_certificate(context, certificate) == 1 &&
		    SSL_CTX_use_PrivateKey(context, key) == 1;

	X509_free(certificate);
	EVP_PKEY_free(key);
	return done;
}

bool pl_tls_is_throwaway(const X509 *certificate)
{
	char text[sizeof(name) + 1];

	return X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, text, sizeof(text)) ==
		       (int)sizeof(name) - 1 &&
	       !strcmp(text, (const char *)name);
}
