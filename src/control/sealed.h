/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Data as records (record.h) over a connected, non-blocking socket; for streams. One thread at a time.
 *
 * Received records are checked and decrypted in a buffer before their bytes reach the memory of the caller. No byte that
 * the other end did not seal ever does.
 */
#ifndef PL_SEALED_H
#define PL_SEALED_H

#include "base/spare_buffers.h"
#include "control/record.h"

struct pl_sealed {
	const struct pl_allocator *allocator;
	struct pl_spare_buffers *spare; /* buffers come from there, and go back there; NULL: allocator */
	int fd; /* not owned */
	struct pl_record_key in, out;
	uint32_t update_from, update_at; /* records under one key: fewest before its replacement, and most */
	bool update_wanted;              /* the other end asked for a new key */
	int failure;                     /* of reading: what all later calls return; 0: none */

	/* Received: `plain_length` decrypted bytes, then sealed ones from `sealed_at` to `end`. NULL: none of both. */
	uint8_t *buffer;
	size_t size, plain_at, plain_length, sealed_at, end;
	bool bulk;         /* the last buffer was filled: the next one is large */
	bool keeps_buffer; /* counted in spare->kept */

	uint8_t *unsent; /* sealed bytes that the socket did not take yet; NULL: none */
	size_t unsent_size, unsent_length, unsent_at;
	bool keeps_unsent; /* counted in spare->kept */

	uint64_t written; /* sealed bytes, also unsent ones */
	/* Bytes in the last record of the last write, and the full records side by side before it. */
	size_t last_record, full_records;
};

/* Returns 0, -ENOMEM or -EIO. The allocator must live as long as the object. */
int pl_sealed_open(const struct pl_allocator *allocator, int fd, const uint8_t send[PL_RECORD_SECRET],
		   const uint8_t receive[PL_RECORD_SECRET], struct pl_sealed **sealed);
void pl_sealed_close(struct pl_sealed *sealed); /* accepts NULL */

/* As pl_stream_read() and pl_stream_write(). `fragile`: the memory may disappear at any time. */
ssize_t pl_sealed_read(struct pl_sealed *sealed, const struct iovec *vector, int count, bool fragile);
ssize_t pl_sealed_write(struct pl_sealed *sealed, const struct iovec *vector, int count, bool fragile);
/* As pl_stream_flush(). */
int pl_sealed_flush(struct pl_sealed *sealed);
/* Returns the sealed bytes that the socket did not take yet. */
static inline size_t pl_sealed_unsent(const struct pl_sealed *sealed)
{
	return sealed->unsent ? sealed->unsent_length - sealed->unsent_at : 0;
}
/* As pl_stream_position(). */
uint64_t pl_sealed_position(const struct pl_sealed *sealed, size_t behind);
/* True if received bytes wait. */
bool pl_sealed_pending(const struct pl_sealed *sealed);
/* Sends close_notify if nothing is unsent. */
void pl_sealed_end(struct pl_sealed *sealed);

#endif
