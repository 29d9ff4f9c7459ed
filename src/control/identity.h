/* SPDX-License-Identifier: BSD-2-Clause */
/* Private keys, certificates and fingerprints. Every function leaves OpenSSL's error queue empty. */
#ifndef PL_CONTROL_IDENTITY_H
#define PL_CONTROL_IDENTITY_H

#include <openssl/safestack.h>
#include <openssl/types.h>

#include "base/base.h"

/* Bytes of a fingerprint: SHA-256 of the SubjectPublicKeyInfo in DER. */
#define PL_FINGERPRINT 32

STACK_OF(X509);

bool pl_fingerprint_of(const X509 *certificate, uint8_t fingerprint[PL_FINGERPRINT]);
void pl_fingerprint_format(const uint8_t fingerprint[PL_FINGERPRINT], char text[PL_FINGERPRINT_MAX]);
/* Parses "SHA256:" and 43 characters of base64. Returns false for any other text. */
bool pl_fingerprint_parse(const char *text, size_t length, uint8_t fingerprint[PL_FINGERPRINT]);

/*
 * Reads the certificate chain of a PEM file, the own one first, and the private key unless `key` is NULL. The caller
 * frees both. "IDENTITY-FILE" with -EINVAL if one is missing, or if they do not belong together.
 */
int pl_identity_read(const struct pl_allocator *allocator, const char *path, EVP_PKEY **key, STACK_OF(X509) **chain,
		     struct pl_error *error);

/* Reads the certificates of authorities. The caller frees the store with X509_STORE_free(). */
int pl_authority_read(const struct pl_allocator *allocator, const char *path, X509_STORE **store,
		      struct pl_error *error);

/*
 * True if an authority certified the certificate, which may be used at both ends of TLS. `name` receives its SPIFFE ID
 * (only URI of the subject's alternative names), or else its first DNS name, or "".
 */
bool pl_authority_certified(X509_STORE *store, X509 *certificate, STACK_OF(X509) *chain, char *name, size_t size);

#endif
