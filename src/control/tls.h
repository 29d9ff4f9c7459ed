/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the stream, the TLS settings and their parts only. */
#ifndef PL_TLS_H
#define PL_TLS_H

#include "base/secret_pool.h"
#include "control/identity.h"
#include "control/stream.h"

/* Name of a key: the first 8 bytes of a hash of it, in hexadecimal. */
#define PL_KEY_DIGITS 16

/* Pre-shared key of TLS. */
struct pl_psk {
	bool set;
	uint8_t secret[PL_SECRET];
	char name[PL_KEY_DIGITS + 1];
};

/* Bytes of a key and an old one: a slot of a pool. */
#define PL_PSK_PAIR (2 * sizeof(struct pl_psk))
_Static_assert(PL_PSK_PAIR <= PL_SECRET_SLOT, "two keys fit into a slot");

/* Socket under a TLS stream, and its state: OpenSSL does not tell an end of stream from an error. */
struct pl_tls_socket {
	struct pl_allocator allocator;
	int fd;         /* not owned */
	int read_error; /* errno that broke the socket, or 0 */
	int write_error;
	bool ended;           /* the other end sends no more */
	bool old_named;       /* server: the client names the second of `keys` */
	bool foreign;         /* the received bytes are not TLS */
	bool older;           /* they are a message of a release without TLS */
	bool proven;          /* both ends must prove that they have the first of `keys`, or a server one of them */
	bool keyed;           /* certificates are used, and the context has a key too */
	uint8_t recognised;   /* bytes at the beginning that look like TLS so far, at most 2 */
	struct pl_secret_pool *secrets; /* of the settings */
	struct pl_psk *keys;  /* the key, and for servers the old one; NULL if certificates are used */
	const struct pl_psk *used; /* the one of these in the handshake; NULL: none yet */
};

/* Creates a TLS connection over fd, before its handshake. Returns NULL without memory. */
SSL *pl_tls_connection(struct pl_tls *tls, int fd, bool server);

const struct pl_tls_socket *pl_tls_socket(const SSL *ssl);

/* tls_socket.c: the type of BIO; its data is a struct pl_tls_socket. */
struct bio_method_st *pl_tls_socket_method(void);

/* After a handshake: wipes OpenSSL's copy of the pre-shared key, which nothing uses any more. */
void pl_tls_forget_key(SSL *ssl);

/* Fills a key's name from its secret. */
void pl_psk_name(struct pl_psk *psk);

/* certificate.c: gives the context a new key and a certificate signed by itself, of which no end checks anything. */
bool pl_tls_use_throwaway(SSL_CTX *context);
/* True for such a certificate, which is no identity. */
bool pl_tls_is_throwaway(const X509 *certificate);

/* handshake_error.c: fills the error of a failed handshake, from OpenSSL's queue and the socket. Returns its code. */
int pl_tls_explain(const SSL *ssl, const char *object, struct pl_error *error);

/* Copies the pre-shared key, and the old one. */
void pl_tls_keys(struct pl_tls *tls, struct pl_psk keys[2]);
/* pl_authority_certified() with the authorities of the settings; false if there are none. */
bool pl_tls_certified(struct pl_tls *tls, X509 *certificate, STACK_OF(X509) *chain, char *name, size_t size);

#endif
