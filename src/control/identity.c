/* SPDX-License-Identifier: BSD-2-Clause */
#include "control/identity.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>

#include "control/trusted_file.h"

#define PREFIX "SHA256:"
#define DIGITS 43
#define SPIFFE "spiffe://"

/* -- fingerprints ------------------------------------------------------------------------------------------------ */

bool pl_fingerprint_of(const X509 *certificate, uint8_t fingerprint[PL_FINGERPRINT])
{
	unsigned char *bytes = NULL;
	/* X509_pubkey_digest() would leave out the algorithm. */
	int length = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &bytes);
	bool done = length > 0 &&
		    EVP_Digest(bytes, (size_t)length, fingerprint, NULL, EVP_sha256(), NULL) == 1;

	OPENSSL_free(bytes);
	ERR_clear_error();
	return done;
}

void pl_fingerprint_format(const uint8_t fingerprint[PL_FINGERPRINT], char text[PL_FINGERPRINT_MAX])
{
	unsigned char digits[DIGITS + 2];

	EVP_EncodeBlock(digits, fingerprint, PL_FINGERPRINT);
	snprintf(text, PL_FINGERPRINT_MAX, PREFIX "%.*s", DIGITS, (const char *)digits);
}

bool pl_fingerprint_parse(const char *text, size_t length, uint8_t fingerprint[PL_FINGERPRINT])
{
	unsigned char padded[DIGITS + 1], bytes[PL_FINGERPRINT + 1];
	char again[PL_FINGERPRINT_MAX];

	if (length != strlen(PREFIX) + DIGITS || memcmp(text, PREFIX, strlen(PREFIX)))
		return false;
	memcpy(padded, text + strlen(PREFIX), DIGITS);
	padded[DIGITS] = '=';
	if (EVP_DecodeBlock(bytes, padded, sizeof(padded)) != sizeof(bytes))
		return false;
	memcpy(fingerprint, bytes, PL_FINGERPRINT);
	/* The decoder skips blanks, and ignores bits behind the last byte. */
	pl_fingerprint_format(fingerprint, again);
	return !memcmp(again, text, length);
}

/* -- files ----------------------------------------------------------------------------------------------------------- */

static int fail_identity_file(struct pl_error *error, const char *path, const char *fact)
{
	ERR_clear_error();
	return pl_fail(error, -EINVAL, "IDENTITY-FILE", "pl_open", path, "make one with: peerlane key generate FILE",
		       "%s", fact);
}

/* Keys with a passphrase are refused: a library must not ask for one. */
static int refuse_passphrase(char *buffer, int size, int writing, void *user)
{
	(void)buffer;
	(void)size;
	(void)writing;
	(void)user;
	return -1;
}

static STACK_OF(X509) *parse_chain(const char *text, size_t length)
{
	BIO *bio = BIO_new_mem_buf(text, (int)length);
	STACK_OF(X509) *chain = sk_X509_new_null();
	X509 *certificate;

	while (bio && chain && (certificate = PEM_read_bio_X509(bio, NULL, refuse_passphrase, NULL)))
		if (!sk_X509_push(chain, certificate)) {
			X509_free(certificate);
			break;
		}
	BIO_free(bio);
	ERR_clear_error();
	return chain;
}

static EVP_PKEY *parse_private_key(const char *text, size_t length)
{
	BIO *bio = BIO_new_mem_buf(text, (int)length);
	EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, refuse_passphrase, NULL) : NULL;

	BIO_free(bio);
	ERR_clear_error();
	return key;
}

int pl_identity_read(const struct pl_allocator *allocator, const char *path, EVP_PKEY **key, STACK_OF(X509) **chain,
		     struct pl_error *error)
{
	size_t length;
	char *text;
	int rc = pl_trusted_file_read(allocator, path, key != NULL, &text, &length, error);

	*chain = NULL;
	if (key)
		*key = NULL;
	if (rc < 0)
		return rc;
	*chain = parse_chain(text, length);
	if (key)
		*key = parse_private_key(text, length);
	explicit_bzero(text, length);
	pl_free(allocator, text);
	if (!*chain || sk_X509_num(*chain) < 1)
		rc = fail_identity_file(error, path, "the file has no certificate");
	else if (key && !*key)
		rc = fail_identity_file(error, path, "the file has no private key without a passphrase");
	else if (key && X509_check_private_key(sk_X509_value(*chain, 0), *key) != 1)
		rc = fail_identity_file(error, path, "the private key does not belong to the first certificate");
	if (rc < 0) {
		sk_X509_pop_free(*chain, X509_free);
		*chain = NULL;
		if (key) {
			EVP_PKEY_free(*key);
			*key = NULL;
		}
	}
	return rc;
}

int pl_identity_fingerprint(const char *path, char text[PL_FINGERPRINT_MAX], struct pl_error *error)
{
	uint8_t fingerprint[PL_FINGERPRINT];
	STACK_OF(X509) *chain;
	int rc = pl_identity_read(&pl_system_allocator, path, NULL, &chain, error);

	if (rc < 0)
		return rc;
	if (pl_fingerprint_of(sk_X509_value(chain, 0), fingerprint))
		pl_fingerprint_format(fingerprint, text);
	else
		rc = fail_identity_file(error, path, "the public key cannot be encoded");
	sk_X509_pop_free(chain, X509_free);
	return rc;
}

/* -- authorities ---------------------------------------------------------------------------------------------------- */

int pl_authority_read(const struct pl_allocator *allocator, const char *path, X509_STORE **store,
		      struct pl_error *error)
{
	size_t length;
	char *text;
	int rc = pl_trusted_file_read(allocator, path, false, &text, &length, error);
	STACK_OF(X509) *chain;

	*store = NULL;
	if (rc < 0)
		return rc;
	chain = parse_chain(text, length);
	pl_free(allocator, text);
	if (!chain || sk_X509_num(chain) < 1)
		rc = pl_fail(error, -EINVAL, "IDENTITY-FILE", "pl_open", path,
			     "name a file of certificates in PEM, of the authorities",
			     "the file has no certificate");
	*store = rc == 0 ? X509_STORE_new() : NULL;
	for (int i = 0; *store && i < sk_X509_num(chain); i++)
		if (X509_STORE_add_cert(*store, sk_X509_value(chain, i)) != 1)
			rc = pl_fail_memory(error, "X509_STORE_add_cert");
	if (rc == 0 && !*store)
		rc = pl_fail_memory(error, "X509_STORE_new");
	sk_X509_pop_free(chain, X509_free);
	ERR_clear_error();
	if (rc < 0) {
		X509_STORE_free(*store);
		*store = NULL;
	}
	return rc;
}

/* Copies a name unless it has bytes that do not belong into one. */
static bool copy_certified_name(const ASN1_STRING *from, char *name, size_t size)
{
	int length = ASN1_STRING_length(from);
	const unsigned char *text = ASN1_STRING_get0_data(from);

	if (length <= 0 || (size_t)length >= size)
		return false;
	for (int i = 0; i < length; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return false;
	memcpy(name, text, (size_t)length);
	name[length] = '\0';
	return true;
}

/* Rules for leaves of SPIFFE (X509-SVID, section 5.2). `uris`: number of URIs in the certificate. */
static bool is_spiffe_id(const char *name, int uris, const X509 *certificate)
{
	const char *path = strncmp(name, SPIFFE, strlen(SPIFFE)) ? NULL : strchr(name + strlen(SPIFFE), '/');
	uint32_t usage = X509_get_key_usage((X509 *)certificate);

	return uris == 1 && path && path[1] && path != name + strlen(SPIFFE) &&
	       !(X509_get_extension_flags((X509 *)certificate) & EXFLAG_CA) &&
	       (usage == UINT32_MAX || !(usage & (KU_KEY_CERT_SIGN | KU_CRL_SIGN)));
}

static void find_certified_name(const X509 *certificate, char *name, size_t size)
{
	GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
	char spiffe[256] = "";
	int uris = 0;

	for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
		const GENERAL_NAME *at = sk_GENERAL_NAME_value(names, i);

		if (at->type == GEN_URI) {
			uris++;
			copy_certified_name(at->d.uniformResourceIdentifier, spiffe, sizeof(spiffe));
		} else if (at->type == GEN_DNS && !name[0]) {
			copy_certified_name(at->d.dNSName, name, size);
		}
	}
	GENERAL_NAMES_free(names);
	if (uris && is_spiffe_id(spiffe, uris, certificate))
		snprintf(name, size, "%s", spiffe);
	else if (uris)
		name[0] = '\0';
}

bool pl_authority_certified(X509_STORE *store, X509 *certificate, STACK_OF(X509) *chain, char *name, size_t size)
{
	X509_STORE_CTX *context = X509_STORE_CTX_new();
	bool certified = context && X509_STORE_CTX_init(context, store, certificate, chain) == 1;

	name[0] = '\0';
	/* One certificate serves for both roles, so a purpose is not demanded; validity and basic constraints are. */
	certified = certified && X509_verify_cert(context) == 1;
	X509_STORE_CTX_free(context);
	if (certified)
		find_certified_name(certificate, name, size);
	ERR_clear_error();
	return certified;
}
