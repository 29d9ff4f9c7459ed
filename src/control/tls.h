/* SPDX-License-Identifier: BSD-2-Clause */
/* What the stream and the TLS settings know of each other; nobody else includes this. */
#ifndef PL_TLS_H
#define PL_TLS_H

#include <openssl/ssl.h>

#include "control/stream.h"

/* The socket under a TLS stream, and what became of it: OpenSSL does not tell an end of stream from an error. */
struct pl_tls_socket {
	const struct pl_allocator *allocator;
	int fd;         /* not owned */
	int read_error; /* errno that broke it, or 0 */
	int write_error;
	bool ended;         /* the other end sends no more */
	bool foreign;       /* what came is not TLS */
	uint8_t recognised; /* bytes at the begin that look like TLS so far, at most 2 */
};

/* A TLS connection over fd, before its handshake; NULL: no memory. */
SSL *pl_tls_connection(struct pl_tls *tls, int fd, bool server);

const struct pl_tls_socket *pl_tls_socket(const SSL *ssl);

#endif
