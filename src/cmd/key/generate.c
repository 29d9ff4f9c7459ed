/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/key/generate.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <unistd.h>

#define SERIAL_BITS 127
#define GROUP_BYTES 32
/* Lists of fingerprints decide, not dates: RFC 5280, section 4.1.2.5, defines this time as "no expiration". */
#define NEVER "99991231235959Z"

static int fail_openssl_call(struct pl_error *error, const char *call)
{
	return cli_fail(error, -EIO, "TLS-FAILED", NULL, "look at the OpenSSL configuration of this host (openssl.cnf)",
			"OpenSSL failed: %s", call);
}

static bool add_extension(X509 *certificate, int nid, const char *value)
{
	X509V3_CTX context;
	X509_EXTENSION *extension;
	bool added;

	X509V3_set_ctx_nodb(&context);
	X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
	added = extension && X509_add_ext(certificate, extension, -1) == 1;
	X509_EXTENSION_free(extension);
	return added;
}

static bool set_random_serial(X509 *certificate)
{
	BIGNUM *number = BN_new();
	bool set = number && BN_rand(number, SERIAL_BITS, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
		   BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));

	BN_free(number);
	return set;
}

static bool set_names(X509 *certificate, const char *name)
{
	X509_NAME *subject = X509_get_subject_name(certificate);

	return X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_UTF8, (const unsigned char *)name, -1, -1,
					  0) == 1 &&
	       X509_set_issuer_name(certificate, subject) == 1;
}

static X509 *make_own_certificate(EVP_PKEY *key, const char *name, enum key_type type)
{
	X509 *certificate = X509_new();

	/* Version 3, which OpenSSL counts from 0. */
	if (certificate && X509_set_version(certificate, 2) && set_random_serial(certificate) &&
	    set_names(certificate, name) && X509_gmtime_adj(X509_getm_notBefore(certificate), 0) &&
	    ASN1_TIME_set_string(X509_getm_notAfter(certificate), NEVER) && X509_set_pubkey(certificate, key) &&
	    add_extension(certificate, NID_basic_constraints, "critical,CA:FALSE") &&
	    add_extension(certificate, NID_key_usage, "critical,digitalSignature") &&
	    add_extension(certificate, NID_ext_key_usage, "serverAuth,clientAuth") &&
	    X509_sign(certificate, key, type == KEY_ED25519 ? NULL : EVP_sha256()))
		return certificate;
	X509_free(certificate);
	return NULL;
}

/* Opens a new file. */
static int open_new_file(const char *path, struct pl_error *error)
{
	int rc = cli_make_settings_folders(path, error), fd;

	if (rc < 0)
		return rc;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		return fd;
	if (errno == EEXIST)
		return cli_fail(error, -EEXIST, "FILE-EXISTS", path,
				"choose another name, or delete the file if nothing uses its key any more",
				"the file exists, and is not replaced");
	return cli_fail_new_path(error, -errno, "open", path);
}

/* Writes a new file, or none. */
static int write_new_file(const char *path, const char *text, size_t length, struct pl_error *error)
{
	int fd = open_new_file(path, error), rc = 0;

	if (fd < 0)
		return fd;
	if (write(fd, text, length) != (ssize_t)length)
		rc = errno ? -errno : -EIO;
	if (rc == 0 && fsync(fd) < 0)
		rc = -errno;
	if (close(fd) < 0 && rc == 0)
		rc = -errno;
	if (rc == 0)
		return 0;
	unlink(path);
	return cli_fail_errno(error, rc, "write", path);
}

static int write_identity(const char *path, EVP_PKEY *key, X509 *certificate, struct pl_error *error)
{
	BIO *memory = BIO_new(BIO_s_secmem());
	char *text;
	long length;
	int rc;

	if (!memory || PEM_write_bio_PrivateKey(memory, key, NULL, NULL, 0, NULL, NULL) != 1 ||
	    PEM_write_bio_X509(memory, certificate) != 1) {
		BIO_free(memory);
		return fail_openssl_call(error, "PEM_write_bio_PrivateKey");
	}
	length = BIO_get_mem_data(memory, &text);
	rc = write_new_file(path, text, (size_t)length, error);
	explicit_bzero(text, (size_t)length);
	BIO_free(memory);
	return rc;
}

int key_generate_identity(const char *path, const char *name, enum key_type type, struct pl_error *error)
{
	EVP_PKEY *key = type == KEY_ED25519 ? EVP_PKEY_Q_keygen(NULL, NULL, "ED25519") : EVP_EC_gen("P-256");
	X509 *certificate = key ? make_own_certificate(key, name, type) : NULL;
	int rc = certificate ? write_identity(path, key, certificate, error) : fail_openssl_call(error, "X509_sign");

	X509_free(certificate);
	EVP_PKEY_free(key);
	return rc;
}

int key_generate_group(const char *path, struct pl_error *error)
{
	unsigned char bytes[GROUP_BYTES];
	char text[2 * GROUP_BYTES + 2];
	int rc;

	if (RAND_priv_bytes(bytes, sizeof(bytes)) != 1)
		return fail_openssl_call(error, "RAND_priv_bytes");
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	text[2 * GROUP_BYTES] = '\n';
	rc = write_new_file(path, text, 2 * GROUP_BYTES + 1, error);
	explicit_bzero(bytes, sizeof(bytes));
	explicit_bzero(text, sizeof(text));
	return rc;
}
