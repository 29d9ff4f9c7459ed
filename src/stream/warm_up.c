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

/* A failure concerns no frame. The first read of a frame meets it again, or the connection is lost. */
static void end_warm_up_read(struct pl_subscriber *subscriber, struct pl_stream_frame *frame)
{
	pl_lock_take(&subscriber->lock);
	frame->operation = NULL;
	subscriber->reading--;
	pl_turn_next(subscriber->context, &subscriber->turn);
	pl_lock_release(&subscriber->lock);
}

static void warm_up_read_finished(struct pl_operation *operation)
{
	struct pl_stream_frame *frame = (struct pl_stream_frame *)(uintptr_t)operation->attributes.user_data;

	end_warm_up_read(frame->subscriber, frame);
	pl_operation_free(operation);
}

/* Returns the free frames, at most WARM_UP_READS, as frames that are being read. */
static unsigned choose_free_frames(struct pl_subscriber *subscriber, struct pl_stream_frame **frames)
{
	unsigned count = 0;

	pl_lock_take(&subscriber->lock);
	pl_list_for_each(at, &subscriber->spare) {
		if (count == WARM_UP_READS)
			break;
		frames[count++] = pl_list_entry(at, struct pl_stream_frame, link);
	}
	subscriber->reading += count;
	pl_lock_release(&subscriber->lock);
	return count;
}

/* Copies on this thread if the fabric does so with reads of this size. Returns false if the fabric must be asked. */
static bool copy_on_this_thread(struct pl_peer *peer, const struct pl_segment *segment)
{
	struct pl_sync_op copy = { .kind = PL_KIND_READ,
				   .segment = *segment,
				   .no_wait = pl_subscriber_reads_without_wait(segment) };

	return peer->ops->sync_try && atomic_load(&peer->state) == PL_PEER_UP &&
	       peer->ops->sync_try(peer->endpoint, &copy);
}

static void post_warm_up_read(struct pl_subscriber *subscriber, struct pl_peer *peer, struct pl_stream_frame *frame,
			      const struct pl_segment *segment)
{
	struct pl_operation *operation = NULL;

	pl_engine_lock(peer->home);
	if (atomic_load(&peer->state) == PL_PEER_UP)
		operation = pl_subscriber_new_read(peer, segment, frame, warm_up_read_finished);
	if (operation) {
		frame->operation = operation;
		pl_subscriber_post_read(peer, operation);
	} else {
		end_warm_up_read(subscriber, frame);
	}
	pl_engine_unlock(peer->home);
}

/*
 * Reads the beginnings of slots into all free frames, by the way that their payloads will take. The engine's lock is not held during
 * copies of this thread: the driver may take long, and other peers of the engine go on.
 */
static void make_warm_up_reads(struct pl_subscriber *subscriber, struct pl_peer *peer, struct pl_remote *payload,
			       const struct pl_ring_geometry *geometry)
{
	uint64_t most = peer->ops->lock_mapping ? WARM_UP_BYTES : WARM_UP_BYTES_REMOTE;
	struct pl_region *region = subscriber->memory.payloads;
	struct pl_stream_frame *frames[WARM_UP_READS];
	unsigned count = choose_free_frames(subscriber, frames);

	for (unsigned i = 0; i < count; i++) {
		const struct pl_segment segment = { payload, region, pl_ring_slot_offset(geometry, i),
						    frames[i]->offset, PL_MIN(geometry->slot_bytes, most) };

		if (copy_on_this_thread(peer, &segment))
			end_warm_up_read(subscriber, frames[i]);
		else
			post_warm_up_read(subscriber, peer, frames[i], &segment);
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
	pl_engine_unlock(peer->home);
	if (rc < 0)
		return rc;
	if (peer->ops->lock_mapping)
		peer->ops->lock_mapping(payload, memory);
	make_warm_up_reads(subscriber, peer, payload, geometry);
	rc = await_warm_up_reads(subscriber, deadline, error);
	if (rc == 0 && pl_memory_staged(memory))
		warm_up_copy_out(subscriber, geometry);
	return rc;
}
