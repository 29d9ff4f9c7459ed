/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * First copies of a subscriber, before its subscription begins. The driver of a GPU takes up to hundreds of milliseconds for first
 * copies: it loads code, and the library locks host memory. Frames that are published meanwhile would be lost.
 */
#include <stdlib.h>

#include "core/call.h"
#include "stream/connect.h"

/* Most reads, and most bytes of each. More would only move more bytes by the same calls. */
#define WARM_UP_READS 16u
#define WARM_UP_BYTES ((uint64_t)1 << 20)
/* The same if a network carries the bytes, which may be slow: enough for a slot of staging. */
#define WARM_UP_BYTES_REMOTE ((uint64_t)128 << 10)

static void warm_up_read_finished(struct pl_operation *operation)
{
	struct pl_stream_frame *frame = (struct pl_stream_frame *)(uintptr_t)operation->attributes.user_data;
	struct pl_subscriber *subscriber = frame->subscriber;

	/* A failure concerns no frame. The first read of a frame meets it again, or the connection is lost. */
	pl_lock_take(&subscriber->lock);
	frame->operation = NULL;
	subscriber->reading--;
	pl_turn_next(subscriber->context, &subscriber->turn);
	pl_lock_release(&subscriber->lock);
	pl_operation_free(operation);
}

/* Returns the free frames, at most WARM_UP_READS. subscriber->lock is held. */
static unsigned choose_free_frames(const struct pl_subscriber *subscriber, struct pl_stream_frame **frames)
{
	unsigned count = 0;

	pl_list_for_each(at, &subscriber->spare) {
		if (count == WARM_UP_READS)
			break;
		frames[count++] = pl_list_entry(at, struct pl_stream_frame, link);
	}
	return count;
}

/* Reads the beginnings of slots into all free frames, by the way that their payloads will take. Home. */
static void begin_warm_up_reads(struct pl_subscriber *subscriber, struct pl_peer *peer, struct pl_remote *payload,
				const struct pl_ring_geometry *geometry)
{
	uint64_t most = peer->ops->lock_mapping ? WARM_UP_BYTES : WARM_UP_BYTES_REMOTE;
	struct pl_region *region = subscriber->memory.payloads;
	struct pl_stream_frame *frames[WARM_UP_READS];
	unsigned count;

	pl_lock_take(&subscriber->lock);
	count = choose_free_frames(subscriber, frames);
	subscriber->reading += count;
	pl_lock_release(&subscriber->lock);
	for (unsigned i = 0; i < count; i++) {
		const struct pl_segment segment = { payload, region, pl_ring_slot_offset(geometry, i),
						    frames[i]->offset, PL_MIN(geometry->slot_bytes, most) };
		struct pl_operation *operation =
			pl_subscriber_new_read(peer, &segment, frames[i], warm_up_read_finished);

		if (operation) {
			frames[i]->operation = operation;
			pl_subscriber_post_read(peer, operation);
			continue;
		}
		pl_lock_take(&subscriber->lock);
		subscriber->reading--;
		pl_lock_release(&subscriber->lock);
	}
}

static int await_warm_up_reads(struct pl_subscriber *subscriber, uint64_t deadline, struct pl_error *error)
{
	bool waited = true;
	unsigned reading;

	for (;;) {
		unsigned seen = pl_turn_read(&subscriber->turn);

		pl_lock_take(&subscriber->lock);
		reading = subscriber->reading;
		pl_lock_release(&subscriber->lock);
		if (!reading || !waited)
			break;
		waited = pl_turn_wait(subscriber->context, &subscriber->turn, seen, deadline);
	}
	if (reading)
		return pl_fail(error, -ETIMEDOUT, "WAIT-TIMEOUT", "pl_subscriber_open", subscriber->name,
			       "allow more time", "the first copies into the frames' memory did not end in time");
	return 0;
}

/* Copies from a frame into memory that is not locked, as pl_frame_copy_out() will do. */
static void warm_up_copy_out(struct pl_subscriber *subscriber, const struct pl_ring_geometry *geometry)
{
	size_t length = (size_t)PL_MIN(geometry->slot_bytes, WARM_UP_BYTES);
	void *bytes = malloc(length);

	if (bytes)
		pl_memory_copy_out(&subscriber->memory.payloads->memory, 0, bytes, length);
	free(bytes);
}

int pl_subscriber_warm_up(struct pl_subscriber *subscriber, struct pl_peer *peer, struct pl_remote *payload,
			  const struct pl_ring_geometry *geometry, uint64_t deadline, struct pl_error *error)
{
	const struct pl_memory *memory = &subscriber->memory.payloads->memory;
	int rc;

	pl_engine_lock(peer->home);
	rc = pl_call_check_peer(peer, "pl_subscriber_open", error);
	if (rc == 0) {
		if (peer->ops->lock_mapping)
			peer->ops->lock_mapping(payload, memory);
		begin_warm_up_reads(subscriber, peer, payload, geometry);
	}
	pl_engine_unlock(peer->home);
	if (rc == 0)
		rc = await_warm_up_reads(subscriber, deadline, error);
	if (rc == 0 && pl_memory_staged(memory))
		warm_up_copy_out(subscriber, geometry);
	return rc;
}
