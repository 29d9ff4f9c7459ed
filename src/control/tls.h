/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the stream and the TLS settings only. */
#ifndef PL_TLS_H
#define PL_TLS_H

#include <openssl/ssl.h>

#include "control/stream.h"

/* Socket under a TLS stream, and its state: OpenSSL does not tell an end of stream from an error. */
struct pl_tls_socket {
	const struct pl_allocator *allocator;
	int fd;         /* not owned */
	int read_error; /* errno that broke the socket, or 0 */
	int write_error;
	bool ended;         /* the other end sends no more */
	bool foreign;       /* the received bytes are not TLS */
	uint8_t recognised; /* bytes at the beginning that look like TLS so far, at most 2 */
};

/* Creates a TLS connection over fd, before its handshake; NULL: no memory. */
SSL *pl_tls_connection(struct pl_tls *tls, int fd, bool server);

const struct pl_tls_socket *pl_tls_socket(const SSL *ssl);

#endif
