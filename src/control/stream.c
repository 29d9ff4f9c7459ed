/* SPDX-License-Identifier: BSD-2-Clause */
#include "control/stream.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/sealed.h"
#include "control/socket_io.h"
#include "control/tls.h"
#include "wire/wire.h"

/* Most bytes of a TLS record. */
#define RECORD_MAX 16384
/*
 * Records under one key: half of the 2^24.5 that RFC 8446, section 5.5, allows for AES-GCM, rounded down. OpenSSL counts
 * none and would go on.
 */
#define RECORDS_MAX (1u << 23)

int pl_stream_open(struct pl_stream *stream, int fd, struct pl_tls *tls, bool server, struct pl_error *error)
{
	stream->fd = fd;
	stream->ssl = NULL;
	stream->want = server ? EPOLLIN : EPOLLOUT;
	stream->records = 0;
	stream->records_max = RECORDS_MAX;
	stream->sealed = NULL;
	stream->written = 0;
	stream->dry = stream->fragile = false;
	if (!tls)
		return 0;
	ERR_clear_error();
	stream->ssl = pl_tls_connection(tls, fd, server);
	ERR_clear_error();
	return stream->ssl ? 0 : pl_fail_memory(error, "SSL_new");
}

/* -- handshake -------------------------------------------------------------------------------------------------- */

/* Returns -EAGAIN if the call must be repeated. */
static int examine(struct pl_stream *stream, int result)
{
	switch (SSL_get_error(stream->ssl, result)) {
	case SSL_ERROR_WANT_READ:
		stream->want = EPOLLIN;
		return -EAGAIN;
	case SSL_ERROR_WANT_WRITE:
		stream->want = EPOLLOUT;
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		return -EPIPE;
	default:
		return -EPROTO;
	}
}

int pl_stream_handshake(struct pl_stream *stream, const char *object, struct pl_error *error)
{
	int rc;

	if (!stream->ssl)
		return 0;
	ERR_clear_error();
	rc = SSL_do_handshake(stream->ssl);
	if (rc == 1 && (SSL_session_reused(stream->ssl) || !pl_tls_socket(stream->ssl)->proven)) {
		pl_tls_forget_key(stream->ssl);
		rc = 0;
	} else if (rc == 1) { /* defence in depth: the key is the only authentication */
		rc = pl_fail(error, -EACCES, "AUTH-KEY-MISMATCH", NULL, object, "give both ends the same --key file",
			     "the other end did not prove that it has the key");
	} else {
		rc = examine(stream, rc);
		if (rc != -EAGAIN)
			rc = pl_tls_explain(stream->ssl, object, error);
	}
	ERR_clear_error();
	return rc;
}

/* -- in the clear ------------------------------------------------------------------------------------------------ */

/* Skips empty elements at the beginning. Returns the bytes of the rest, as far as one call takes them. */
static size_t trim(const struct iovec **vector, int *count)
{
	size_t total = 0;

	while (*count > 0 && (*vector)->iov_len == 0) {
		(*vector)++;
		(*count)--;
	}
	*count = PL_MIN(*count, IOV_MAX);
	for (int i = 0; i < *count; i++)
		total += (*vector)[i].iov_len;
	return total;
}

/* -- TLS ----------------------------------------------------------------------------------------------------------- */

/* Empties OpenSSL's error queue, which is empty but after failures: a look at it costs less than ERR_clear_error(). */
static void clear_rare_errors(void)
{
	if (ERR_peek_error())
		ERR_clear_error();
}

/*
 * Returns the error of a failed read or write; `broken` is the error for a broken socket. A repeated call returns the
 * same.
 */
static int tls_failure(struct pl_stream *stream, int result, int broken)
{
	const struct pl_tls_socket *socket = pl_tls_socket(stream->ssl);
	int rc = examine(stream, result);

	if (rc == -EPROTO && broken)
		rc = -broken;
	/* cut off: without close_notify any host on the path may have done it */
	else if (rc == -EPROTO && socket->ended)
		rc = -ECONNRESET;
	clear_rare_errors();
	return rc;
}

static ssize_t tls_read(struct pl_stream *stream, const struct iovec *vector, int count)
{
	size_t total = 0, done = 0, got;
	int rc = 1;

	while (count > 0) {
		rc = SSL_read_ex(stream->ssl, (char *)vector->iov_base + done, vector->iov_len - done, &got);
		if (rc <= 0)
			break;
		total += got;
		done += got;
		for (; count > 0 && done == vector->iov_len; done = 0, count--)
			vector++;
	}
	if (rc <= 0)
		rc = tls_failure(stream, rc, pl_tls_socket(stream->ssl)->read_error);
	stream->dry = rc == -EAGAIN;
	return total ? (ssize_t)total : rc;
}

/* A record was written. Its key is replaced in time; the next write sends the message that says so. */
static void count_record(struct pl_stream *stream)
{
	if (++stream->records >= stream->records_max && SSL_key_update(stream->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1)
		stream->records = 0;
}

/*
 * Encrypts and sends bytes, at most a record at a time. Returns their number, or the error of a stream that takes none.
 * Always offers a full record if there is one, so that a repeated write has at least the bytes of the first attempt, as
 * OpenSSL requires.
 */
static ssize_t send_encrypted(struct pl_stream *stream, const char *bytes, size_t length)
{
	size_t total = 0, sent;

	while (total < length) {
		int rc = SSL_write_ex(stream->ssl, bytes + total, PL_MIN(length - total, RECORD_MAX), &sent);

		if (rc <= 0) {
			rc = tls_failure(stream, rc, pl_tls_socket(stream->ssl)->write_error);
			return total ? (ssize_t)total : rc;
		}
		total += sent;
		count_record(stream);
	}
	return (ssize_t)total;
}

/* Collects elements into one record. */
static ssize_t tls_write(struct pl_stream *stream, const struct iovec *vector, int count)
{
	char record[RECORD_MAX];
	size_t length = 0;

	if (count == 1)
		return send_encrypted(stream, vector->iov_base, vector->iov_len);
	for (int i = 0; i < count && length < sizeof(record); i++) {
		size_t part = PL_MIN(vector[i].iov_len, sizeof(record) - length);

		if (part > 0) // the base of an empty element may be NULL
			memcpy(record + length, vector[i].iov_base, part);
		length += part;
	}
	return send_encrypted(stream, record, length);
}

/* -- both ------------------------------------------------------------------------------------------------------- */

/* Notes what a stream waits for. */
static ssize_t note_want(struct pl_stream *stream, ssize_t result, uint32_t want)
{
	if (result == -EAGAIN)
		stream->want = want;
	return result;
}

static ssize_t write_in_clear(struct pl_stream *stream, const struct iovec *vector, int count)
{
	ssize_t written = pl_socket_write(stream->fd, vector, count);

	stream->written += (uint64_t)PL_MAX(written, 0);
	return note_want(stream, written, EPOLLOUT);
}

ssize_t pl_stream_read(struct pl_stream *stream, const struct iovec *vector, int count)
{
	if (trim(&vector, &count) == 0)
		return 0;
	if (stream->sealed)
		return note_want(stream, pl_sealed_read(stream->sealed, vector, count, stream->fragile), EPOLLIN);
	if (!stream->ssl)
		return note_want(stream, pl_socket_read(stream->fd, vector, count), EPOLLIN);
	clear_rare_errors();
	return tls_read(stream, vector, count);
}

ssize_t pl_stream_write(struct pl_stream *stream, const struct iovec *vector, int count)
{
	if (trim(&vector, &count) == 0)
		return 0;
	if (stream->sealed)
		return note_want(stream, pl_sealed_write(stream->sealed, vector, count, stream->fragile), EPOLLOUT);
	if (!stream->ssl)
		return write_in_clear(stream, vector, count);
	clear_rare_errors();
	return tls_write(stream, vector, count);
}

bool pl_stream_pending(const struct pl_stream *stream)
{
	if (stream->sealed)
		return pl_sealed_pending(stream->sealed);
	return stream->ssl && SSL_pending(stream->ssl) > 0;
}

int pl_stream_seal(struct pl_stream *stream, const struct pl_allocator *allocator, const uint8_t send[PL_SECRET],
		   const uint8_t receive[PL_SECRET])
{
	return pl_sealed_open(allocator, stream->fd, send, receive, &stream->sealed);
}

void pl_stream_use_spare(struct pl_stream *stream, struct pl_spare_buffers *spare)
{
	if (stream->sealed)
		stream->sealed->spare = spare;
}

bool pl_stream_unsent(const struct pl_stream *stream)
{
	return stream->sealed && pl_sealed_unsent(stream->sealed);
}

int pl_stream_flush(struct pl_stream *stream)
{
	return stream->sealed ? (int)note_want(stream, pl_sealed_flush(stream->sealed), EPOLLOUT) : 0;
}

uint64_t pl_stream_position(const struct pl_stream *stream, size_t behind)
{
	return stream->sealed ? pl_sealed_position(stream->sealed, behind) : stream->written - behind;
}

bool pl_stream_is_acknowledged(const struct pl_stream *stream, uint64_t position)
{
	uint64_t written = stream->sealed ? stream->sealed->written : stream->written;
	size_t unsent = stream->sealed ? pl_sealed_unsent(stream->sealed) : 0;

	return pl_socket_unacknowledged(stream->fd) + unsent <= written - position;
}

void pl_stream_end(struct pl_stream *stream)
{
	ERR_clear_error();
	if (stream->sealed)
		pl_sealed_end(stream->sealed);
	else if (stream->ssl && SSL_is_init_finished(stream->ssl))
		SSL_shutdown(stream->ssl);
	ERR_clear_error();
	shutdown(stream->fd, SHUT_WR);
}

void pl_stream_close(struct pl_stream *stream)
{
	if (stream->sealed)
		pl_sealed_end(stream->sealed);
	pl_sealed_close(stream->sealed);
	stream->sealed = NULL;
	if (stream->ssl) {
		ERR_clear_error();
		if (SSL_is_init_finished(stream->ssl))
			SSL_shutdown(stream->ssl);
		SSL_free(stream->ssl);
		ERR_clear_error();
		stream->ssl = NULL;
	}
	if (stream->fd >= 0)
		close(stream->fd);
	stream->fd = -1;
}
