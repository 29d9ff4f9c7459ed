/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Byte stream over a connected, non-blocking socket: in the clear; TLS 1.3, with a pre-shared key or without proof of the
 * other end; or sealed, with secrets that both ends have. Not thread-safe: one thread at a time uses a stream. Hides
 * OpenSSL from its users. Every function leaves OpenSSL's error queue empty.
 */
#ifndef PL_STREAM_H
#define PL_STREAM_H

#include <sys/types.h>
#include <sys/uio.h>

#include "base/base.h"

struct pl_sealed;
struct pl_spare_buffers;

/* Bytes of pre-shared keys and of secrets that a stream exports. */
#define PL_SECRET 32

/*
 * TLS settings of a context: thread-safe, shared by all streams. TLS 1.3 only, no tickets, no renegotiation, no
 * compression, no session cache. One object serves both roles.
 *
 * With a key alone: external PSK with (EC)DHE (psk_dhe_ke), no certificates. The PSK is derived from the key bytes (HKDF
 * with SHA-256 and a label of Peerlane); a hash of it names it. Otherwise: certificates. A server without an identity has
 * one of its own making, which hides the bytes from listeners and proves nothing; a client without one shows none. TLS
 * 1.3 cannot combine both, so an end with certificates proves its key afterwards, by pl_key_proof_make().
 */
struct pl_tls;

struct pl_tls_settings {
	const void *key, *old_key; /* NULL: none. Servers accept the old one too */
	size_t key_length, old_key_length;
	const char *identity, *authority; /* files; NULL: none */
	bool certificates;                /* use certificates even if there is a key */
};

/* -EINVAL for a wrong length of a key or a wrong file, -EACCES for an unsafe one, -ENOMEM, -EIO (OpenSSL). */
int pl_tls_open_with(const struct pl_allocator *allocator, const struct pl_tls_settings *settings, struct pl_tls **tls,
		     struct pl_error *error);
/* With a key alone; `key` NULL: without. The lengths are 16 to 1024. */
int pl_tls_open(const struct pl_allocator *allocator, const void *key, size_t length, struct pl_tls **tls,
		struct pl_error *error);
/*
 * Replaces the settings for later streams, or fails as pl_tls_open_with() does and changes nothing. `key` NULL keeps both
 * keys; `certificates` is ignored. One thread at a time.
 */
int pl_tls_configure(struct pl_tls *tls, const struct pl_tls_settings *settings, struct pl_error *error);
void pl_tls_close(struct pl_tls *tls);         /* accepts NULL; after the last stream that uses it */
bool pl_tls_has_key(const struct pl_tls *tls); /* accepts NULL */
bool pl_tls_uses_certificates(const struct pl_tls *tls);
/* Memory for secrets of the streams' owners, until pl_tls_close(). */
struct pl_secret_pool *pl_tls_secrets(struct pl_tls *tls);

/* Derives the pre-shared key of TLS from a key. Returns 0 or -EIO. For tests with other TLS programs. */
int pl_tls_derive_key(const void *key, size_t length, uint8_t out[32]);

struct pl_stream {
	int fd;        /* owned */
	void *ssl;     /* SSL *, NULL: in the clear */
	uint32_t want; /* EPOLLIN or EPOLLOUT: awaited by the call that returned -EAGAIN */
	/* TLS records written under one key, and the number from which on a new key is used. */
	uint32_t records, records_max;
	struct pl_sealed *sealed; /* after pl_stream_seal(); NULL: not sealed */
	uint64_t written;         /* in the clear: bytes that the socket took */
	/* TLS: true if the last read took all bytes of the socket, so that another one now would find none. */
	bool dry;
	/*
	 * Set by the user for the next calls: their memory may disappear, for example a mapping of a file that is
	 * truncated. They return -EFAULT for it. A sealed stream then needs one more copy.
	 */
	bool fragile;
};

/*
 * Takes over fd, also on failure: the caller stops watching it, then calls pl_stream_close(). Another socket may have the
 * number of a closed descriptor at once. `tls` NULL: in the clear.
 */
int pl_stream_open(struct pl_stream *stream, int fd, struct pl_tls *tls, bool server, struct pl_error *error);

/*
 * Turns a stream in the clear into one that is encrypted and authenticated, without a handshake: both ends have the
 * secrets of both directions, PL_SECRET bytes each. Returns 0, -ENOMEM or -EIO. The allocator must live as long as the
 * stream.
 */
int pl_stream_seal(struct pl_stream *stream, const struct pl_allocator *allocator, const uint8_t send[PL_SECRET],
		   const uint8_t receive[PL_SECRET]);

/*
 * Makes a sealed stream use these buffers from now on. They live as long as the stream, and the caller's lock for them is
 * held in all calls of it. Does nothing for other streams.
 */
void pl_stream_use_spare(struct pl_stream *stream, struct pl_spare_buffers *spare);

/*
 * Continues the TLS handshake. 0: done (at once in the clear); -EAGAIN: see want; -EACCES "AUTH-KEY-MISMATCH": the keys
 * differ; -EACCES "AUTH-NEEDS-KEY", "AUTH-NO-KEY" or "IDENTITY-NONE": only the other end, or only this end,
 * has a key or an identity; -EPROTO
 * "AUTH-NO-TLS": the other end does not speak TLS; -EPROTO "PROTOCOL-VERSION": the other end is an older release;
 * -ECONNRESET "PEER-LOST": the other end closed; -EPROTO "TLS-FAILED" with OpenSSL's reason otherwise.
 */
int pl_stream_handshake(struct pl_stream *stream, const char *object, struct pl_error *error);

/*
 * Reads or writes as much as possible now. Returns bytes (>= 1); -EAGAIN: nothing now, see want; -EPIPE: the other end
 * closed (read: orderly end of stream); another negative errno: broken. Elements of length 0 are allowed; if there are
 * no others, nothing is done and the result is 0. Write never raises SIGPIPE.
 *
 * After -EAGAIN or a short count a record of TLS may be under way. Of the offered bytes that were not taken, the next
 * write must offer the first 16 KiB (all, if fewer) again, followed by any others. They may lie in other buffers and be
 * divided otherwise. A sealed stream does not require that. An orderly end of TLS, or of a sealed stream, is -EPIPE; one
 * without close_notify is -ECONNRESET.
 */
ssize_t pl_stream_read(struct pl_stream *stream, const struct iovec *vector, int count);
ssize_t pl_stream_write(struct pl_stream *stream, const struct iovec *vector, int count);

/* Labels of secrets, which RFC 8446, section 7.5 keeps apart. */
#define PL_EXPORT_LANES "EXPORTER-peerlane-lanes"
#define PL_EXPORT_KEY_PROOF "EXPORTER-peerlane-key-proof"

/*
 * Derives a secret from a TLS stream whose handshake is done (RFC 8446, section 7.5): both ends get the same one for the
 * same label and context. Returns 0 or -EPROTO.
 */
int pl_stream_export(const struct pl_stream *stream, const char *label, const uint8_t context[PL_SECRET],
		     uint8_t secret[PL_SECRET]);

/* After the handshake: the fingerprint of the other end's certificate. Returns false if it showed none. */
bool pl_stream_fingerprint(const struct pl_stream *stream, uint8_t fingerprint[PL_SECRET]);
/* True if an authority of `tls` certified the other end; `name` as for pl_authority_certified(). */
bool pl_stream_certified(const struct pl_stream *stream, struct pl_tls *tls, char *name, size_t size);
/* True if the other end's certificate is for this host: a name, or a numeric address. */
bool pl_stream_is_for_host(const struct pl_stream *stream, const char *host);
/* The name of the pre-shared key that the handshake proved, 16 digits; "": none. */
const char *pl_stream_key_id(const struct pl_stream *stream);

/* Message that proves a pre-shared key where the handshake used certificates: magic, name of the key, HMAC. */
#define PL_KEY_PROOF 52
/* Makes the message with the key of `tls`, or with `keys[index]` of it. Returns 0 or a negative errno. */
int pl_key_proof_make(const struct pl_stream *stream, struct pl_tls *tls, unsigned index, bool initiator,
		      uint8_t message[PL_KEY_PROOF]);
/*
 * Checks a message of the other end: `initiator` if that connected. Returns the index of the key, 0 or 1, or -EACCES.
 * `id` receives the name of the key, 16 digits and a NUL.
 */
int pl_key_proof_check(const struct pl_stream *stream, struct pl_tls *tls, bool initiator,
		       const uint8_t message[PL_KEY_PROOF], char id[17]);

/* True if received bytes wait, of which epoll(7) cannot know. */
bool pl_stream_pending(const struct pl_stream *stream);

/*
 * A sealed stream takes bytes for which the socket has no room, at most some records. True if there are such bytes. The
 * user must then call pl_stream_flush() when the socket is writable, until that returns 0, or write more, which does so.
 */
bool pl_stream_unsent(const struct pl_stream *stream);
/* Sends them. Returns 0, -EAGAIN (see want), or another negative errno. */
int pl_stream_flush(struct pl_stream *stream);

/*
 * Returns the position in the socket's bytes up to which the other end needs them for the bytes of the last write, without its last
 * `behind` ones: of a sealed stream, that of the end of their last record. Not for TLS.
 */
uint64_t pl_stream_position(const struct pl_stream *stream, size_t behind);
/* True if the other end's kernel has the bytes before that position. */
bool pl_stream_is_acknowledged(const struct pl_stream *stream, uint64_t position);

/* Ends the direction of sending: sends close_notify if that needs no waiting, and shuts the socket down for writing. */
void pl_stream_end(struct pl_stream *stream);
/* Sends close_notify if that needs no waiting, and closes the socket. Accepts a stream with fd -1. */
void pl_stream_close(struct pl_stream *stream);

#endif
