/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Byte stream over a connected, non-blocking socket: in the clear, or TLS 1.3 with a pre-shared key. Not thread-safe:
 * one thread at a time uses a stream. Hides OpenSSL from its users. Every function leaves OpenSSL's error queue empty.
 */
#ifndef PL_STREAM_H
#define PL_STREAM_H

#include <sys/types.h>
#include <sys/uio.h>

#include "base/base.h"

/*
 * TLS settings of a context, made from its key: thread-safe, shared by all streams. TLS 1.3 only, external PSK with
 * (EC)DHE (psk_dhe_ke), no certificates, no tickets, no renegotiation, no compression, no session cache. The PSK is
 * derived from the key bytes (HKDF with SHA-256 and a label of Peerlane); its identity is "peerlane". One object serves
 * both roles.
 */
struct pl_tls;

int pl_tls_open(const struct pl_allocator *allocator, const void *key, size_t length, struct pl_tls **tls,
		struct pl_error *error); /* -EINVAL for length outside 16..1024, -ENOMEM, -EIO (OpenSSL) */
void pl_tls_close(struct pl_tls *tls);   /* accepts NULL; after the last stream that uses it */

/* Derives the pre-shared key of TLS from a key. Returns 0 or -EIO. For tests with other TLS programs. */
int pl_tls_derive_key(const void *key, size_t length, uint8_t out[32]);

struct pl_stream {
	int fd;        /* owned */
	void *ssl;     /* SSL *, NULL: in the clear */
	uint32_t want; /* EPOLLIN or EPOLLOUT: awaited by the call that returned -EAGAIN */
};

/* Takes over fd; closes it on failure. tls NULL: in the clear. */
int pl_stream_open(struct pl_stream *stream, int fd, struct pl_tls *tls, bool server, struct pl_error *error);

/*
 * Continues the TLS handshake. 0: done (at once in the clear); -EAGAIN: see want; -EACCES "AUTH-KEY-MISMATCH": the keys
 * differ; -EPROTO "AUTH-NO-TLS": the other end does not speak TLS, so has no key; -ECONNRESET "PEER-LOST": the other
 * end closed; -EPROTO "TLS-FAILED" with OpenSSL's reason otherwise.
 */
int pl_stream_handshake(struct pl_stream *stream, const char *object, struct pl_error *error);

/*
 * Reads or writes as much as possible now. Returns bytes (>= 1); -EAGAIN: nothing now, see want; -EPIPE: the other end
 * closed (read: orderly end of stream); another negative errno: broken. Elements of length 0 are allowed; if there are
 * no others, nothing is done and the result is 0. Write never raises SIGPIPE.
 *
 * After -EAGAIN or a short count a TLS record may be under way. Of the offered bytes that were not taken, the next
 * write must offer the first 16 KiB (all, if fewer) again, followed by any others. They may lie in other buffers and be
 * divided otherwise. An orderly end of TLS is -EPIPE; one without its close_notify is -ECONNRESET.
 */
ssize_t pl_stream_read(struct pl_stream *stream, const struct iovec *vector, int count);
ssize_t pl_stream_write(struct pl_stream *stream, const struct iovec *vector, int count);

/* True if decrypted bytes wait, of which epoll(7) cannot know. */
bool pl_stream_pending(const struct pl_stream *stream);

/* Sends close_notify if that needs no waiting, and closes the socket. Accepts a stream with fd -1. */
void pl_stream_close(struct pl_stream *stream);

#endif
