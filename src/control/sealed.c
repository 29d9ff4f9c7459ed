/* SPDX-License-Identifier: BSD-2-Clause */
#include "control/sealed.h"

#include <sys/uio.h>
#include <unistd.h>

#include "base/memcheck.h"
#include "base/ordered_copy.h"
#include "control/socket_io.h"
#include "control/vector_position.h"

/*
 * Records under one key: half of the 2^24.5 that RFC 8446, section 5.5, allows for AES-GCM, rounded down. A new key
 * costs as much as some records, so the other end may not ask for it much more often.
 */
#define UPDATE_AT (1u << 23)
#define UPDATE_FROM (1u << 10)
/* Sizes of buffers for received bytes: one record, or many. */
#define BUFFER_SMALL (PL_RECORD_MAX + 64)
#define BUFFER_BULK (8 * PL_RECORD_MAX)
/*
 * Most bytes of the first batch of a write, and size of a buffer for a batch: the records that one system call sends. A send costs as
 * much as sealing many records, because it delivers to another end on the same host and wakes it, so later batches are large. The
 * first one is small, so that an idle end begins early: a frame of 64 KiB with its header.
 */
#define BATCH_FIRST (5 * PL_RECORD_MAX)
#define BATCH_BULK (16 * PL_RECORD_MAX)

/* Messages: the handshake message KeyUpdate, and the alert close_notify (RFC 8446, sections 4.6.3 and 6.1). */
static const uint8_t key_update[] = { 24, 0, 0, 1, 0 };
static const uint8_t close_notify[] = { 1, 0 };

int pl_sealed_open(const struct pl_allocator *allocator, int fd, const uint8_t send[PL_RECORD_SECRET],
		   const uint8_t receive[PL_RECORD_SECRET], struct pl_sealed **result)
{
	struct pl_sealed *sealed = pl_zalloc(allocator, sizeof(*sealed));
	int rc;

	if (!sealed)
		return -ENOMEM;
	sealed->allocator = allocator;
	sealed->fd = fd;
	sealed->update_from = UPDATE_FROM;
	sealed->update_at = UPDATE_AT;
	rc = pl_record_key_open(&sealed->out, send, true);
	if (rc == 0)
		rc = pl_record_key_open(&sealed->in, receive, false);
	if (rc < 0)
		pl_sealed_close(sealed);
	else
		*result = sealed;
	return rc;
}

static void end_keeping(struct pl_sealed *sealed, bool *keeps)
{
	if (*keeps)
		sealed->spare->kept--;
	*keeps = false;
}

void pl_sealed_close(struct pl_sealed *sealed)
{
	if (!sealed)
		return;
	pl_record_key_close(&sealed->in);
	pl_record_key_close(&sealed->out);
	end_keeping(sealed, &sealed->keeps_buffer);
	end_keeping(sealed, &sealed->keeps_unsent);
	pl_free(sealed->allocator, sealed->buffer);
	pl_free(sealed->allocator, sealed->unsent);
	pl_free(sealed->allocator, sealed);
}

/* -- copying ---------------------------------------------------------------------------------------------------- */

static void copy_directly(const struct iovec *parts, int count, uint8_t *bytes, bool to_parts)
{
	for (int i = 0; i < count; i++) {
		/* A reader may poll the destination of received bytes. */
		if (to_parts)
			pl_copy_ordered(parts[i].iov_base, bytes, parts[i].iov_len);
		else
			memcpy(bytes, parts[i].iov_base, parts[i].iov_len);
		bytes += parts[i].iov_len;
	}
}

/*
 * Copies between memory that may disappear, such as a mapping of a file that is truncated, and a buffer. Access by this
 * process would raise a signal, so the kernel copies, and returns -EFAULT for bytes that are not there. Where that call
 * is forbidden (some containers), this process copies.
 */
static ssize_t copy_fragile(const struct iovec *parts, int count, uint8_t *bytes, size_t length, bool to_parts)
{
	struct iovec own = { .iov_base = bytes, .iov_len = length };
	ssize_t copied = to_parts ? process_vm_writev(getpid(), &own, 1, parts, (unsigned long)count, 0)
				  : process_vm_readv(getpid(), &own, 1, parts, (unsigned long)count, 0);

	for (int i = 0; i < count && to_parts && copied == (ssize_t)length; i++)
		pl_mark_written(parts[i].iov_base, parts[i].iov_len);
	if (copied >= 0)
		return copied;
	if (errno == EFAULT)
		return -EFAULT;
	copy_directly(parts, count, bytes, to_parts);
	return (ssize_t)length;
}

/* -- writing -------------------------------------------------------------------------------------------------------- */

static void release_unsent(struct pl_sealed *sealed)
{
	if (sealed->unsent_size == BUFFER_SMALL || sealed->unsent_size == BATCH_BULK)
		pl_spare_give(sealed->spare, sealed->allocator, sealed->unsent, sealed->unsent_size);
	else
		pl_free(sealed->allocator, sealed->unsent);
	sealed->unsent = NULL;
	end_keeping(sealed, &sealed->keeps_unsent);
}

/* Keeps the bytes that the socket did not take until it has room, perhaps in memory of their size. */
static void keep_unsent(struct pl_sealed *sealed)
{
	size_t length = pl_sealed_unsent(sealed);
	uint8_t *copy;

	if (!length || sealed->unsent_size != BATCH_BULK || sealed->keeps_unsent)
		return;
	sealed->keeps_unsent = pl_spare_keep(sealed->spare);
	copy = sealed->keeps_unsent ? NULL : pl_alloc(sealed->allocator, length);
	if (!copy)
		return;
	memcpy(copy, sealed->unsent + sealed->unsent_at, length);
	release_unsent(sealed);
	sealed->unsent = copy;
	sealed->unsent_size = sealed->unsent_length = length;
	sealed->unsent_at = 0;
}

int pl_sealed_flush(struct pl_sealed *sealed)
{
	while (sealed->unsent) {
		const struct iovec vector = { .iov_base = sealed->unsent + sealed->unsent_at,
					      .iov_len = sealed->unsent_length - sealed->unsent_at };
		ssize_t sent = pl_socket_write(sealed->fd, &vector, 1);

		if (sent < 0)
			return (int)sent;
		sealed->unsent_at += (size_t)sent;
		if (sealed->unsent_at == sealed->unsent_length)
			release_unsent(sealed);
	}
	return 0;
}

/* Writes a KeyUpdate record and replaces the key, if it is time. Returns the record's length, 0, or -EIO. */
static ssize_t seal_key_update(struct pl_sealed *sealed, uint8_t *record)
{
	const struct iovec part = { .iov_base = (void *)key_update, .iov_len = sizeof(key_update) };
	ssize_t length;
	int rc;

	if (!sealed->update_wanted && sealed->out.sequence < sealed->update_at)
		return 0;
	sealed->update_wanted = false;
	length = pl_record_seal(&sealed->out, PL_RECORD_HANDSHAKE, &part, 1, record);
	if (length < 0)
		return length;
	rc = pl_record_key_update(&sealed->out);
	return rc < 0 ? rc : length;
}

/*
 * Seals the next bytes of a vector and advances the position. Returns the record's length, -EFAULT for memory that is
 * not there, or -EIO.
 */
static ssize_t seal_next(struct pl_sealed *sealed, struct pl_position *at, bool fragile, uint8_t *record)
{
	struct iovec parts[PL_POSITION_PARTS];
	size_t length;
	int count = pl_position_slice(*at, parts, PL_RECORD_CONTENT, &length);

	if (fragile) {
		ssize_t copied = copy_fragile(parts, count, record + PL_RECORD_HEADER, length, false);

		if (copied <= 0)
			return -EFAULT;
		length = (size_t)copied;
		count = 1;
		parts[0] = (struct iovec){ record + PL_RECORD_HEADER, length };
	}
	pl_position_advance(at, length);
	sealed->full_records = sealed->last_record == PL_RECORD_CONTENT ? sealed->full_records + 1 : 0;
	sealed->last_record = length;
	return pl_record_seal(&sealed->out, PL_RECORD_DATA, parts, count, record);
}

/* Takes a buffer for the records of the next `length` bytes. Few sizes, so that a later buffer can take the memory. */
static int take_batch_buffer(struct pl_sealed *sealed, size_t length)
{
	sealed->unsent_size = length <= PL_RECORD_CONTENT ? BUFFER_SMALL : BATCH_BULK;
	sealed->unsent = pl_spare_take(sealed->spare, sealed->allocator, sealed->unsent_size);
	sealed->unsent_length = sealed->unsent_at = 0;
	return sealed->unsent ? 0 : -ENOMEM;
}

/*
 * Seals the next bytes of a vector into the buffer, as records of at most `most` bytes together, and advances the position. Returns 0,
 * or the negative errno of bytes that it could not seal, which stops it. Releases a buffer that stays empty.
 */
static int seal_batch(struct pl_sealed *sealed, struct pl_position *at, size_t most, bool fragile)
{
	ssize_t length = seal_key_update(sealed, sealed->unsent);

	most = PL_MIN(most, sealed->unsent_size);
	while (length >= 0) {
		sealed->unsent_length += (size_t)length;
		sealed->written += (uint64_t)length;
		if (!at->count || most - sealed->unsent_length < PL_RECORD_MAX)
			return 0;
		length = seal_next(sealed, at, fragile, sealed->unsent + sealed->unsent_length);
	}
	if (!sealed->unsent_length)
		release_unsent(sealed);
	return (int)length;
}

ssize_t pl_sealed_write(struct pl_sealed *sealed, const struct iovec *vector, int count, bool fragile)
{
	struct pl_position at = { vector, count, 0, 0 };
	/* Each stream keeps fewer bytes that it could not send where many do. */
	size_t length = 0, most = BATCH_FIRST, limit = pl_spare_all_kept(sealed->spare) ? BATCH_FIRST : BATCH_BULK;
	int rc = pl_sealed_flush(sealed);

	for (int i = 0; i < count; i++)
		length += vector[i].iov_len;
	pl_position_advance(&at, 0);
	sealed->last_record = 0;
	for (; rc == 0 && at.count; most = PL_MIN(2 * most, limit)) {
		int sealing = take_batch_buffer(sealed, length - at.total);

		if (sealing == 0)
			sealing = seal_batch(sealed, &at, most, fragile);
		rc = pl_sealed_flush(sealed);
		if (rc == 0 || sealing == -EIO)
			rc = sealing;
	}
	keep_unsent(sealed);
	/* Sealed bytes are written: this object keeps those for which the socket has no room. */
	return at.total && (rc == 0 || rc == -EAGAIN || rc == -EFAULT) ? (ssize_t)at.total : rc;
}

uint64_t pl_sealed_position(const struct pl_sealed *sealed, size_t behind)
{
	size_t records;

	/* The other end decrypts whole records. */
	if (behind < sealed->last_record)
		return sealed->written;
	records = PL_MIN((behind - sealed->last_record) / PL_RECORD_CONTENT, sealed->full_records);
	return sealed->written - (sealed->last_record + PL_RECORD_OVERHEAD) - records * PL_RECORD_MAX;
}

void pl_sealed_end(struct pl_sealed *sealed)
{
	const struct iovec part = { .iov_base = (void *)close_notify, .iov_len = sizeof(close_notify) };
	uint8_t record[sizeof(close_notify) + PL_RECORD_OVERHEAD];
	struct iovec whole = { .iov_base = record };
	ssize_t length;

	if (sealed->unsent)
		return;
	length = pl_record_seal(&sealed->out, PL_RECORD_ALERT, &part, 1, record);
	whole.iov_len = (size_t)PL_MAX(length, 0);
	if (length > 0)
		pl_socket_write(sealed->fd, &whole, 1);
}

/* -- reading -------------------------------------------------------------------------------------------------------- */

/* Takes a KeyUpdate. One that comes too early would let the other end waste this end's time. */
static int take_key_update(struct pl_sealed *sealed, const uint8_t *content, size_t length)
{
	if (length != sizeof(key_update) || memcmp(content, key_update, sizeof(key_update) - 1) || content[4] > 1 ||
	    sealed->in.sequence <= sealed->update_from)
		return -EPROTO;
	sealed->update_wanted |= content[4] == 1;
	return pl_record_key_update(&sealed->in);
}

/* Takes the content of a record. An empty one would let the other end waste this end's time, too. */
static int take_content(struct pl_sealed *sealed, uint8_t type, uint8_t *content, size_t length)
{
	switch (type) {
	case PL_RECORD_DATA:
		sealed->plain_at = (size_t)(content - sealed->buffer);
		sealed->plain_length = length;
		return length ? 0 : -EPROTO;
	case PL_RECORD_HANDSHAKE:
		return take_key_update(sealed, content, length);
	case PL_RECORD_ALERT:
		return length == 2 && content[1] == close_notify[1] ? -EPIPE : -EPROTO;
	default:
		return -EPROTO;
	}
}

/* Returns the length of the next record, 0 if it is not complete, or -EPROTO. */
static ssize_t next_record(const struct pl_sealed *sealed)
{
	size_t have = sealed->end - sealed->sealed_at;
	ssize_t length;

	if (have < PL_RECORD_HEADER)
		return 0;
	length = pl_record_length(sealed->buffer + sealed->sealed_at);
	return length > (ssize_t)have ? 0 : length;
}

/* Opens the next record, for which `room` waits. Returns 0, -EAGAIN if it is not complete, or another negative errno. */
static int open_next(struct pl_sealed *sealed, struct iovec room)
{
	ssize_t length = next_record(sealed), content;
	uint8_t *record, type;

	if (length <= 0)
		return length < 0 ? (int)length : -EAGAIN;
	if (sealed->in.sequence >= 2ull * sealed->update_at)
		return -EPROTO;
	record = sealed->buffer + sealed->sealed_at;
	sealed->sealed_at += (size_t)length;
	content = pl_record_open(&sealed->in, record, (size_t)length, room, &type);
	return content < 0 ? (int)content : take_content(sealed, type, record + PL_RECORD_HEADER, (size_t)content);
}

/* Moves the bytes from `first` on, the first ones in use, to the beginning of the buffer, or of another one that replaces it. */
static void move_received(struct pl_sealed *sealed, uint8_t *buffer, size_t size, size_t first)
{
	if (sealed->end != first)
		memmove(buffer, sealed->buffer + first, sealed->end - first);
	sealed->plain_at = 0;
	sealed->sealed_at -= first;
	sealed->end -= first;
	if (buffer == sealed->buffer)
		return;
	pl_spare_give(sealed->spare, sealed->allocator, sealed->buffer, sealed->size);
	end_keeping(sealed, &sealed->keeps_buffer);
	sealed->buffer = buffer;
	sealed->size = size;
}

/* Makes room for more bytes behind those of an incomplete record. */
static int prepare_buffer(struct pl_sealed *sealed)
{
	size_t size = sealed->bulk ? BUFFER_BULK : BUFFER_SMALL;
	uint8_t *buffer = sealed->buffer;

	if (!buffer || sealed->size < size) {
		buffer = pl_spare_take(sealed->spare, sealed->allocator, size);
		if (!buffer)
			return -ENOMEM;
	}
	move_received(sealed, buffer, size, sealed->sealed_at);
	return 0;
}

/* Receives bytes by one system call. */
static int receive_sealed(struct pl_sealed *sealed)
{
	struct iovec room;
	ssize_t got;
	int rc = prepare_buffer(sealed);

	if (rc < 0)
		return rc;
	room = (struct iovec){ .iov_base = sealed->buffer + sealed->end, .iov_len = sealed->size - sealed->end };
	got = pl_socket_read(sealed->fd, &room, 1);
	sealed->bulk = got >= PL_RECORD_CONTENT;
	/* An end without close_notify: any host on the path may have cut the connection. */
	if (got < 0)
		return got == -EPIPE ? -ECONNRESET : (int)got;
	sealed->end += (size_t)got;
	return 0;
}

/* Gives the buffer back if no bytes are left, or keeps it until more bytes come. Few bytes may move to a small one. */
static void keep_buffer(struct pl_sealed *sealed)
{
	size_t first = sealed->plain_length ? sealed->plain_at : sealed->sealed_at;
	uint8_t *small;

	if (first == sealed->end)
		move_received(sealed, NULL, 0, first);
	else if (sealed->size == BUFFER_BULK && !sealed->keeps_buffer)
		sealed->keeps_buffer = pl_spare_keep(sealed->spare);
	if (sealed->size != BUFFER_BULK || sealed->keeps_buffer || sealed->end - first > BUFFER_SMALL)
		return;
	small = pl_spare_take(sealed->spare, sealed->allocator, BUFFER_SMALL);
	if (small)
		move_received(sealed, small, BUFFER_SMALL, first);
}

/*
 * Gets the next decrypted bytes, by at most one system call a read, as other streams wait. They go to `room` later. Returns 0 or an
 * errno.
 */
static int get_plain(struct pl_sealed *sealed, struct iovec room, bool *received)
{
	int rc = sealed->failure;

	while (rc == 0 && !sealed->plain_length) {
		rc = open_next(sealed, room);
		if (rc != -EAGAIN || *received)
			continue;
		*received = true;
		rc = receive_sealed(sealed);
	}
	if (rc != -EAGAIN)
		sealed->failure = rc;
	return rc;
}

/* Moves decrypted bytes to a vector. Returns 0, or -EFAULT: they stay, as with a socket. */
static int deliver_plain(struct pl_sealed *sealed, struct pl_position *at, bool fragile)
{
	struct iovec parts[PL_POSITION_PARTS];
	size_t length;
	int count = pl_position_slice(*at, parts, sealed->plain_length, &length);
	ssize_t moved = (ssize_t)length;

	if (fragile)
		moved = copy_fragile(parts, count, sealed->buffer + sealed->plain_at, length, true);
	else
		copy_directly(parts, count, sealed->buffer + sealed->plain_at, true);
	if (moved <= 0)
		return -EFAULT;
	sealed->plain_at += (size_t)moved;
	sealed->plain_length -= (size_t)moved;
	pl_position_advance(at, (size_t)moved);
	return 0;
}

ssize_t pl_sealed_read(struct pl_sealed *sealed, const struct iovec *vector, int count, bool fragile)
{
	struct pl_position at = { vector, count, 0, 0 };
	const struct iovec none = { NULL, 0 };
	bool received = false;
	int rc = 0;

	pl_position_advance(&at, 0);
	while (rc == 0 && at.count) {
		rc = get_plain(sealed, fragile ? none : pl_position_rest(&at), &received);
		if (rc == 0)
			rc = deliver_plain(sealed, &at, fragile);
	}
	keep_buffer(sealed);
	return at.total ? (ssize_t)at.total : rc;
}

bool pl_sealed_pending(const struct pl_sealed *sealed)
{
	return sealed->plain_length || (!sealed->failure && next_record(sealed) != 0);
}
