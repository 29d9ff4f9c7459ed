/* SPDX-License-Identifier: BSD-2-Clause */
#include "control/stream.h"

#include <limits.h>
#include <openssl/err.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/memcheck.h"
#include "control/tls.h"
#include "wire/wire.h"

/* Most bytes of a TLS record. */
#define RECORD_MAX 16384
/*
 * Records under one key: half of the 2^24.5 that RFC 8446, section 5.5, allows for AES-GCM, rounded down. OpenSSL counts
 * none and would go on.
 */
#define RECORDS_MAX (1u << 23)
/* Bytes that are copied at a time: some records. */
#define BATCH (4 * RECORD_MAX)
/* Bytes that a bulk stream receives at a time: so many records with their headers and tags. */
#define BULK_RECEIVE (BATCH + 4 * 64)
/* Most elements of a vector in one batch. */
#define PARTS_MAX 256

int pl_stream_open(struct pl_stream *stream, int fd, struct pl_tls *tls, const uint8_t *psk, bool server,
		   struct pl_error *error)
{
	stream->fd = fd;
	stream->ssl = NULL;
	stream->want = server ? EPOLLIN : EPOLLOUT;
	stream->records = 0;
	stream->records_max = RECORDS_MAX;
	stream->starved = false;
	stream->held = NULL;
	stream->held_length = 0;
	if (!tls)
		return 0;
	ERR_clear_error();
	stream->ssl = pl_tls_connection(tls, fd, psk, server);
	ERR_clear_error();
	if (stream->ssl)
		return 0;
	close(fd);
	stream->fd = -1;
	return pl_fail_memory(error, "SSL_new");
}

/* -- handshake -------------------------------------------------------------------------------------------------- */

/* Returns -EAGAIN if the call must be repeated. */
static int examine(struct pl_stream *stream, int result)
{
	switch (SSL_get_error(stream->ssl, result)) {
	case SSL_ERROR_WANT_READ:
		stream->want = EPOLLIN;
		stream->starved = true;
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

static ssize_t plain_result(struct pl_stream *stream, ssize_t result, uint32_t want)
{
	if (result >= 0)
		return result;
	if (errno != EAGAIN && errno != EWOULDBLOCK)
		return -errno;
	stream->want = want;
	return -EAGAIN;
}

/* Usually there is one buffer, which costs the kernel less without a vector. */
static ssize_t plain_read(struct pl_stream *stream, const struct iovec *vector, int count)
{
	struct msghdr message = { .msg_iov = (struct iovec *)vector, .msg_iovlen = (size_t)count };
	ssize_t got;

	do
		got = count == 1 ? recv(stream->fd, vector->iov_base, vector->iov_len, MSG_DONTWAIT)
				 : recvmsg(stream->fd, &message, MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	return got == 0 ? -EPIPE : plain_result(stream, got, EPOLLIN);
}

static ssize_t plain_write(struct pl_stream *stream, const struct iovec *vector, int count)
{
	struct msghdr message = { .msg_iov = (struct iovec *)vector, .msg_iovlen = (size_t)count };
	ssize_t sent;

	do
		sent = count == 1 ? send(stream->fd, vector->iov_base, vector->iov_len, MSG_DONTWAIT | MSG_NOSIGNAL)
				  : sendmsg(stream->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return plain_result(stream, sent, EPOLLOUT);
}

/* -- TLS ----------------------------------------------------------------------------------------------------------- */

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
	ERR_clear_error();
	return rc;
}

/* Position in a vector. */
struct position {
	const struct iovec *vector;
	int count;
	size_t offset; /* offset in the first element */
};

static void advance_position(struct position *at, size_t length)
{
	while (at->count && length >= at->vector->iov_len - at->offset) {
		length -= at->vector->iov_len - at->offset;
		at->offset = 0;
		at->vector++;
		at->count--;
	}
	at->offset += length;
}

/* Fills `parts` with the next bytes of a vector, at most BATCH. Returns the number of elements. */
static int slice(struct position at, struct iovec parts[PARTS_MAX], size_t *length)
{
	int count = 0;

	*length = 0;
	while (at.count && count < PARTS_MAX && *length < BATCH) {
		size_t part = PL_MIN(at.vector->iov_len - at.offset, BATCH - *length);

		if (part)
			parts[count++] = (struct iovec){ (char *)at.vector->iov_base + at.offset, part };
		*length += part;
		advance_position(&at, part);
	}
	return count;
}

/* Shortens the parts to a length. Returns the number left. */
static int trim_parts(struct iovec parts[PARTS_MAX], size_t length)
{
	int count = 0;

	while (length) {
		parts[count].iov_len = PL_MIN(parts[count].iov_len, length);
		length -= parts[count++].iov_len;
	}
	return count;
}

/*
 * OpenSSL accesses memory in this process, where a region over a truncated file, or a removed mapping, would raise a
 * signal. So the kernel copies between such memory and a record's buffer, as it does for a socket, and returns -EFAULT.
 * Where that call is forbidden (some containers), this process copies.
 */
static ssize_t copy_safely(struct iovec *parts, int count, char *record, size_t length, bool to_record)
{
	struct iovec own = { .iov_base = record, .iov_len = length };
	ssize_t copied = to_record ? process_vm_readv(getpid(), &own, 1, parts, (unsigned long)count, 0)
				   : process_vm_writev(getpid(), &own, 1, parts, (unsigned long)count, 0);

	for (int i = 0; i < count && !to_record && copied == (ssize_t)length; i++)
		pl_mark_written(parts[i].iov_base, parts[i].iov_len);
	if (copied >= 0 || errno == EFAULT)
		return copied >= 0 ? copied : -EFAULT;
	for (int i = 0; i < count; i++) {
		memcpy(to_record ? record : parts[i].iov_base, to_record ? parts[i].iov_base : record,
		       parts[i].iov_len);
		record += parts[i].iov_len;
	}
	return (ssize_t)length;
}

/* Keeps decrypted bytes that cannot be written to their memory: they stay in the stream, as with a socket. */
static int hold_bytes(struct pl_stream *stream, const char *bytes, size_t length)
{
	const struct pl_allocator *allocator = &pl_tls_socket(stream->ssl)->allocator;
	uint8_t *held = pl_alloc(allocator, length);

	if (!held)
		return -ENOMEM;
	memcpy(held, bytes, length);
	pl_free(allocator, stream->held);
	stream->held = held;
	stream->held_length = length;
	return 0;
}

/* Takes decrypted bytes, held ones first. Returns their number, or the error of a stream that has none. */
static ssize_t take_decrypted(struct pl_stream *stream, char *bytes, size_t length)
{
	size_t total = 0, got;
	int rc = 1;

	if (stream->held) {
		total = PL_MIN(length, stream->held_length);
		memcpy(bytes, stream->held, total);
		stream->held_length -= total;
		memmove(stream->held, stream->held + total, stream->held_length);
		if (!stream->held_length) {
			pl_free(&pl_tls_socket(stream->ssl)->allocator, stream->held);
			stream->held = NULL;
		}
		return (ssize_t)total;
	}
	while (total < length) {
		rc = SSL_read_ex(stream->ssl, bytes + total, length - total, &got);
		if (rc <= 0)
			break;
		total += got;
	}
	if (rc <= 0)
		rc = tls_failure(stream, rc, pl_tls_socket(stream->ssl)->read_error);
	return total ? (ssize_t)total : rc;
}

static ssize_t tls_read(struct pl_stream *stream, const struct iovec *vector, int count)
{
	struct position at = { vector, count, 0 };
	struct iovec parts[PARTS_MAX];
	char bytes[BATCH];
	size_t total = 0;

	stream->starved = false;
	advance_position(&at, 0);
	while (at.count && !stream->starved) {
		size_t length;
		ssize_t got, copied;
		int pieces, rc = 0;

		slice(at, parts, &length);
		got = take_decrypted(stream, bytes, length);
		if (got < 0)
			return total ? (ssize_t)total : got;
		pieces = trim_parts(parts, (size_t)got);
		copied = copy_safely(parts, pieces, bytes, (size_t)got, false);
		copied = PL_MAX(copied, 0);
		if (copied < got)
			rc = hold_bytes(stream, bytes + copied, (size_t)(got - copied));
		if (rc < 0)
			return rc;
		advance_position(&at, (size_t)copied);
		total += (size_t)copied;
		if (copied < got)
			return total ? (ssize_t)total : -EFAULT;
	}
	return (ssize_t)total;
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

static ssize_t tls_write(struct pl_stream *stream, const struct iovec *vector, int count)
{
	struct position at = { vector, count, 0 };
	struct iovec parts[PARTS_MAX];
	char bytes[BATCH];
	size_t total = 0;

	advance_position(&at, 0);
	while (at.count) {
		size_t length;
		int pieces = slice(at, parts, &length);
		ssize_t copied = copy_safely(parts, pieces, bytes, length, true);
		ssize_t sent = copied > 0 ? send_encrypted(stream, bytes, (size_t)copied) : -EFAULT;

		if (sent < 0)
			return total ? (ssize_t)total : sent;
		advance_position(&at, (size_t)sent);
		total += (size_t)sent;
		if (sent < copied)
			break;
	}
	return (ssize_t)total;
}

/* -- both ------------------------------------------------------------------------------------------------------- */

ssize_t pl_stream_read(struct pl_stream *stream, const struct iovec *vector, int count)
{
	if (trim(&vector, &count) == 0)
		return 0;
	if (!stream->ssl)
		return plain_read(stream, vector, count);
	ERR_clear_error();
	return tls_read(stream, vector, count);
}

ssize_t pl_stream_write(struct pl_stream *stream, const struct iovec *vector, int count)
{
	if (trim(&vector, &count) == 0)
		return 0;
	if (!stream->ssl)
		return plain_write(stream, vector, count);
	ERR_clear_error();
	return tls_write(stream, vector, count);
}

bool pl_stream_pending(const struct pl_stream *stream)
{
	if (!stream->ssl)
		return false;
	/* Bytes that a bulk stream received may be only the beginning of a record. */
	return stream->held || SSL_pending(stream->ssl) > 0 || (!stream->starved && SSL_has_pending(stream->ssl));
}

void pl_stream_expect_bulk(struct pl_stream *stream)
{
	if (!stream->ssl)
		return;
	SSL_set_default_read_buffer_len(stream->ssl, BULK_RECEIVE);
	SSL_set_read_ahead(stream->ssl, 1);
}

void pl_stream_close(struct pl_stream *stream)
{
	if (stream->ssl) {
		ERR_clear_error();
		pl_free(&pl_tls_socket(stream->ssl)->allocator, stream->held);
		stream->held = NULL;
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
