/* SPDX-License-Identifier: BSD-2-Clause */
/* Socket BIO under a TLS stream. OpenSSL's own BIO uses write(2), which can raise SIGPIPE. */
#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include "control/tls.h"

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

	struct pl_allocator allocator;

	if (socket) {
		allocator = socket->allocator;
		pl_secret_free(socket->secrets, socket->keys);
		pl_free(&allocator, socket);
	}
	return 1;
}

const struct pl_tls_socket *pl_tls_socket(const SSL *ssl)
{
	return BIO_get_data(SSL_get_rbio(ssl));
}

/* Uses the standard type number of sockets: a process has only a few numbers for own types. */
struct bio_method_st *pl_tls_socket_method(void)
{
	BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "peerlane socket");

	if (method && BIO_meth_set_read(method, socket_read) && BIO_meth_set_write(method, socket_write) &&
	    BIO_meth_set_ctrl(method, socket_control) && BIO_meth_set_destroy(method, socket_destroy))
		return method;
	BIO_meth_free(method);
	return NULL;
}
