/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Byte stream over a connected, non-blocking socket: in the clear, or TLS 1.3, with a pre-shared key or without proof of
 * the other end. Not thread-safe: one thread at a time uses a stream. Hides OpenSSL from its users. Every function
 * leaves OpenSSL's error queue empty.
 */
#ifndef PL_STREAM_H
#define PL_STREAM_H

#include <sys/types.h>
#include <sys/uio.h>

#include "base/base.h"

/* Bytes of pre-shared keys and of secrets that a stream exports. */
#define PL_SECRET 32

/*
 * TLS settings of a context: thread-safe, shared by all streams. TLS 1.3 only, no tickets, no renegotiation, no
 * compression, no session cache. One object serves both roles.
 *
 * With a key: external PSK with (EC)DHE (psk_dhe_ke), no certificates. The PSK is derived from the key bytes (HKDF with
 * SHA-256 and a label of Peerlane); its identity is "peerlane". Without a key: a server has a certificate of its own
 * making, and clients accept any. That hides the bytes from listeners, and proves nothing.
 */
struct pl_tls;

/*
 * `key` NULL: no key. -EINVAL for length outside 16..1024, -ENOMEM, -EIO (OpenSSL).
 */
int pl_tls_open(const struct pl_allocator *allocator, const void *key, size_t length, struct pl_tls **tls,
		struct pl_error *error);
void pl_tls_close(struct pl_tls *tls);         /* accepts NULL; after the last stream that uses it */
bool pl_tls_has_key(const struct pl_tls *tls); /* accepts NULL */

/* Derives the pre-shared key of TLS from a key. Returns 0 or -EIO. For tests with other TLS programs. */
int pl_tls_derive_key(const void *key, size_t length, uint8_t out[32]);

struct pl_stream {
	int fd;        /* owned */
	void *ssl;     /* SSL *, NULL: in the clear */
	uint32_t want; /* EPOLLIN or EPOLLOUT: awaited by the call that returned -EAGAIN */
	/* TLS records written under one key, and the number from which on a new key is used. */
	uint32_t records, records_max;
	bool starved;  /* the last read took all bytes that could be decrypted */
	uint8_t *held; /* decrypted bytes that could not be written to their memory; NULL: none */
	size_t held_length;
};

/*
 * Takes over fd; closes it on failure. `tls` NULL: in the clear. `psk`: secret of PL_SECRET bytes that both ends prove to
 * have; NULL: the key of `tls`, or no proof if that has none.
 */
int pl_stream_open(struct pl_stream *stream, int fd, struct pl_tls *tls, const uint8_t *psk, bool server,
		   struct pl_error *error);

/*
 * Continues the TLS handshake. 0: done (at once in the clear); -EAGAIN: see want; -EACCES "AUTH-KEY-MISMATCH": the keys
 * differ; -EACCES "AUTH-NEEDS-KEY" or "AUTH-NO-KEY": only the other end, or only this end, has a key; -EPROTO
 * "AUTH-NO-TLS": the other end does not speak TLS; -EPROTO "PROTOCOL-VERSION": the other end is an older release;
 * -ECONNRESET "PEER-LOST": the other end closed; -EPROTO "TLS-FAILED" with OpenSSL's reason otherwise.
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

/*
 * Derives a secret from a TLS stream whose handshake is done (RFC 8446, section 7.5): both ends get the same one for the
 * same context. Returns 0 or -EPROTO.
 */
int pl_stream_export(const struct pl_stream *stream, const uint8_t context[PL_SECRET], uint8_t secret[PL_SECRET]);

/* True if received bytes wait, of which epoll(7) cannot know. */
bool pl_stream_pending(const struct pl_stream *stream);

/*
 * For a stream of much data, after its handshake: fewer system calls, and more memory while bytes arrive. The caller must
 * read until pl_stream_pending() is false, as epoll(7) does not report bytes that were received.
 */
void pl_stream_expect_bulk(struct pl_stream *stream);

/* Sends close_notify if that needs no waiting, and closes the socket. Accepts a stream with fd -1. */
void pl_stream_close(struct pl_stream *stream);

#endif
