/* SPDX-License-Identifier: BSD-2-Clause */
#include "control/tls.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <sys/socket.h>

#define IDENTITY "peerlane"
#define KEY_LENGTH_MIN 16
#define KEY_LENGTH_MAX 1024

/* An external PSK belongs to one hash, and so to that hash's suites. One suite leaves nothing to negotiate. */
#define SUITE "TLS_AES_128_GCM_SHA256"
#define GROUPS "X25519:P-256"
static const unsigned char suite_id[] = { 0x13, 0x01 };

struct pl_tls {
	struct pl_allocator allocator;
	SSL_CTX *context;   /* of streams with a pre-shared key */
	SSL_CTX *throwaway; /* of streams without one, which have a context of their own; NULL: there is a key */
	BIO_METHOD *method;
	bool has_key;
	uint8_t psk[PL_SECRET];
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

/* -- socket BIO: OpenSSL's own uses write(2), which can raise SIGPIPE ----------------------------------------- */

/* True while the received bytes can be a TLS record: a handshake message or an alert, version 3.x. */
static bool recognise(struct pl_tls_socket *socket, const char *data, ssize_t length)
{
	static const unsigned char handshake = 22, alert = 21, major = 3;
	/* How releases without TLS refused a TLS handshake. */
	static const char refusal[] = "PLC1";

	if (socket->recognised == 0 && length >= 4)
		socket->older = !memcmp(data, refusal, 4);

	for (ssize_t i = 0; i < length && socket->recognised < 2; i++, socket->recognised++) {
		unsigned char byte = (unsigned char)data[i];

		if (socket->recognised == 0 ? byte != handshake && byte != alert : byte != major)
			return false;
	}
	return true;
}

static int socket_read(BIO *bio, char *data, int length)
{
	struct pl_tls_socket *socket = BIO_get_data(bio);
	ssize_t got;

	BIO_clear_retry_flags(bio);
	if (socket->foreign)
		return -1;
	do
		got = recv(socket->fd, data, (size_t)length, MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	if (got > 0) {
		socket->foreign = !recognise(socket, data, got);
		return socket->foreign ? -1 : (int)got;
	}
	if (got == 0)
		socket->ended = true;
	else if (errno == EAGAIN || errno == EWOULDBLOCK)
		BIO_set_retry_read(bio);
	else
		socket->read_error = errno;
	return (int)got;
}

static int socket_write(BIO *bio, const char *data, int length)
{
	struct pl_tls_socket *socket = BIO_get_data(bio);
	ssize_t sent;

	BIO_clear_retry_flags(bio);
	do
		sent = send(socket->fd, data, (size_t)length, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent >= 0)
		return (int)sent;
	if (errno == EAGAIN || errno == EWOULDBLOCK)
		BIO_set_retry_write(bio);
	else
		socket->write_error = errno;
	return -1;
}

static long socket_control(BIO *bio, int command, long number, void *pointer)
{
	(void)bio;
	(void)number;
	(void)pointer;
	return command == BIO_CTRL_FLUSH; /* nothing is buffered; other commands are not supported */
}

static int socket_destroy(BIO *bio)
{
	struct pl_tls_socket *socket = BIO_get_data(bio);

	if (socket) {
		OPENSSL_cleanse(socket->psk, sizeof(socket->psk));
		pl_free(socket->allocator, socket);
	}
	return 1;
}

const struct pl_tls_socket *pl_tls_socket(const SSL *ssl)
{
	return BIO_get_data(SSL_get_rbio(ssl));
}

/* Uses the standard type number of sockets: a process has only a few numbers for own types. */
static BIO_METHOD *make_method(void)
{
	BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "peerlane socket");

	if (method && BIO_meth_set_read(method, socket_read) && BIO_meth_set_write(method, socket_write) &&
	    BIO_meth_set_ctrl(method, socket_control) && BIO_meth_set_destroy(method, socket_destroy))
		return method;
	BIO_meth_free(method);
	return NULL;
}

/* -- the pre-shared key ----------------------------------------------------------------------------------------- */

/* Creates a session for one handshake. OpenSSL writes into it, so handshakes of several threads cannot share one. */
static SSL_SESSION *make_session(SSL *ssl)
{
	const uint8_t *psk = pl_tls_socket(ssl)->psk;
	const SSL_CIPHER *suite = SSL_CIPHER_find(ssl, suite_id);
	SSL_SESSION *session = SSL_SESSION_new();

	if (session && suite && SSL_SESSION_set1_master_key(session, psk, PL_SECRET) &&
	    SSL_SESSION_set_cipher(session, suite) && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
		return session;
	SSL_SESSION_free(session);
	return NULL;
}

/* Server: a client names its key. */
static int find_session(SSL *ssl, const unsigned char *identity, size_t length, SSL_SESSION **session)
{
	*session = NULL;
	if (length != sizeof(IDENTITY) - 1 || memcmp(identity, IDENTITY, length) != 0)
		return 1; /* unknown; the handshake then fails without a certificate */
	*session = make_session(ssl);
	return *session != NULL;
}

/* Client: names this end's key. hash is set if only keys of that hash can still be used. */
static int use_session(SSL *ssl, const EVP_MD *hash, const unsigned char **identity, size_t *length,
		       SSL_SESSION **session)
{
	*session = NULL;
	if (hash && !EVP_MD_is_a(hash, "SHA256"))
		return 1;
	*identity = (const unsigned char *)IDENTITY;
	*length = sizeof(IDENTITY) - 1;
	*session = make_session(ssl);
	return *session != NULL;
}

/* Only a key authenticates; certificates never do, even if this host trusts their authority. */
static int refuse_certificate(X509_STORE_CTX *store, void *user)
{
	(void)user;
	X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
	return 0;
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
	/* Only for streams of much data: see pl_stream_expect_bulk(). */
	SSL_CTX_set_read_ahead(context, 0);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_max_early_data(context, 0);
	SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
	SSL_CTX_set_cert_verify_callback(context, refuse_certificate, NULL);
	return true;
}

static int fail_openssl(struct pl_error *error, const char *call)
{
	const char *reason = ERR_reason_error_string(ERR_peek_error());

	return pl_fail(error, -EIO, "TLS-FAILED", call, NULL,
		       "look at the OpenSSL configuration of this host (openssl.cnf)", "OpenSSL: %s",
		       reason ? reason : "no reason given");
}

/*
 * A context has either pre-shared keys or a certificate: a server with both would accept clients without the key.
 */
static int prepare_contexts(struct pl_tls *tls, const void *key, size_t length, struct pl_error *error)
{
	if (key && pl_tls_derive_key(key, length, tls->psk) < 0)
		return fail_openssl(error, "EVP_KDF_derive");
	tls->has_key = key;
	tls->context = SSL_CTX_new(TLS_method());
	if (!tls->context || !configure(tls->context))
		return fail_openssl(error, "SSL_CTX_new");
	SSL_CTX_set_psk_find_session_callback(tls->context, find_session);
	SSL_CTX_set_psk_use_session_callback(tls->context, use_session);
	if (!key) {
		tls->throwaway = SSL_CTX_new(TLS_method());
		if (!tls->throwaway || !configure(tls->throwaway) || !pl_tls_use_throwaway(tls->throwaway))
			return fail_openssl(error, "SSL_CTX_use_certificate");
	}
	tls->method = make_method();
	return tls->method ? 0 : pl_fail_memory(error, "BIO_meth_new");
}

int pl_tls_open(const struct pl_allocator *allocator, const void *key, size_t length, struct pl_tls **result,
		struct pl_error *error)
{
	struct pl_tls *tls;
	int rc;

	*result = NULL;
	if (key && (length < KEY_LENGTH_MIN || length > KEY_LENGTH_MAX))
		return pl_fail(error, -EINVAL, "OPTION", "pl_tls_open", "key",
			       "make a key with: openssl rand -out FILE 32", "a key has %d to %d bytes, not %zu",
			       KEY_LENGTH_MIN, KEY_LENGTH_MAX, length);
	tls = pl_zalloc(allocator, sizeof(*tls));
	if (!tls)
		return pl_fail_memory(error, "pl_tls_open");
	tls->allocator = *allocator;
	ERR_clear_error();
	rc = prepare_contexts(tls, key, length, error);
	ERR_clear_error();
	if (rc < 0) {
		pl_tls_close(tls);
		return rc;
	}
	*result = tls;
	return 0;
}

void pl_tls_close(struct pl_tls *tls)
{
	struct pl_allocator allocator;

	if (!tls)
		return;
	allocator = tls->allocator;
	SSL_CTX_free(tls->context);
	SSL_CTX_free(tls->throwaway);
	BIO_meth_free(tls->method);
	OPENSSL_cleanse(tls->psk, sizeof(tls->psk));
	pl_free(&allocator, tls);
}

bool pl_tls_has_key(const struct pl_tls *tls)
{
	return tls && tls->has_key;
}

static BIO *make_bio(struct pl_tls *tls, int fd, const uint8_t *psk)
{
	struct pl_tls_socket *socket = pl_zalloc(&tls->allocator, sizeof(*socket));
	BIO *bio;

	if (!socket)
		return NULL;
	bio = BIO_new(tls->method);
	if (!bio) {
		pl_free(&tls->allocator, socket);
		return NULL;
	}
	socket->allocator = &tls->allocator;
	socket->fd = fd;
	socket->proven = psk;
	if (psk)
		memcpy(socket->psk, psk, sizeof(socket->psk));
	BIO_set_data(bio, socket);
	BIO_set_init(bio, 1);
	return bio;
}

SSL *pl_tls_connection(struct pl_tls *tls, int fd, const uint8_t *psk, bool server)
{
	SSL *ssl;
	BIO *bio;

	if (!psk && tls->has_key)
		psk = tls->psk;
	ssl = SSL_new(psk ? tls->context : tls->throwaway);
	bio = ssl ? make_bio(tls, fd, psk) : NULL;
	if (!bio) {
		SSL_free(ssl);
		return NULL;
	}
	SSL_set_bio(ssl, bio, bio);
	if (server) {
		SSL_set_accept_state(ssl);
	} else {
		if (psk)
			SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL); /* so that a certificate is refused, not ignored */
		SSL_set_connect_state(ssl);
	}
	return ssl;
}
