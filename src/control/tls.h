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
	bool older;         /* they are a message of a release without TLS */
	bool proven;        /* both ends must prove that they have `psk` */
	uint8_t recognised; /* bytes at the beginning that look like TLS so far, at most 2 */
	uint8_t psk[PL_SECRET];
};

/*
 * Creates a TLS connection over fd, before its handshake. Both ends prove that they have `psk`; NULL: the key of `tls`,
 * or no proof if that has none. Returns NULL without memory.
 */
SSL *pl_tls_connection(struct pl_tls *tls, int fd, const uint8_t *psk, bool server);

const struct pl_tls_socket *pl_tls_socket(const SSL *ssl);

/* certificate.c: gives the context a new key and a certificate signed by itself, of which no end checks anything. */
bool pl_tls_use_throwaway(SSL_CTX *context);

#endif
