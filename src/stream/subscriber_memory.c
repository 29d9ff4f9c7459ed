/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of a subscriber's frames, which it allocates when the ring is known. Runs on the program's thread. */
#include "stream/connect.h"

/*
 * True if a call uses the memory, or the program holds frames or can take some. A read that began on a held frame keeps the memory
 * after the frame's release. subscriber->lock is held.
 */
static bool memory_is_used(const struct pl_subscriber *subscriber)
{
	return subscriber->memory_users || subscriber->held || subscriber->reading ||
	       !pl_list_empty(&subscriber->window);
}

/* Replaces the memory, and frees the old one. Returns false if that is used. */
static bool replace_memory(struct pl_subscriber *subscriber, const struct pl_frame_memory *memory, unsigned ahead)
{
	struct pl_frame_memory old;

	pl_lock_take(&subscriber->lock);
	if (memory_is_used(subscriber)) {
		pl_lock_release(&subscriber->lock);
		return false;
	}
	old = subscriber->memory;
	subscriber->memory = *memory;
	subscriber->ahead = ahead;
	subscriber->unclean = false;
	pl_list_init(&subscriber->window);
	pl_list_init(&subscriber->spare);
	for (unsigned i = 0; i < memory->count; i++) {
		memory->frames[i].subscriber = subscriber;
		pl_list_append(&subscriber->spare, &memory->frames[i].link);
	}
	pl_lock_release(&subscriber->lock);
	pl_frame_memory_close(&old, subscriber->context);
	return true;
}

static bool memory_is_used_now(struct pl_subscriber *subscriber)
{
	bool used;

	pl_lock_take(&subscriber->lock);
	used = memory_is_used(subscriber);
	pl_lock_release(&subscriber->lock);
	return used;
}

static int fail_held(const struct pl_subscriber *subscriber, struct pl_error *error)
{
	return pl_fail(error, -EBUSY, "STREAM-HELD", "pl_subscriber_attach", subscriber->name,
		       "take and release all frames, then attach",
		       subscriber->unclean ? "a lost publisher may still write, and frames beside its slots are in use"
					   : "the new instance has other slots, and frames of the old one are in use");
}

/*
 * Returns the frames that the subscriber may fetch beyond its queue, as far as `memory_bytes` allows. Only a
 * blocking subscriber fetches ahead: it loses no frame, so fetching ahead changes no account.
 */
static unsigned frames_ahead(const struct pl_subscriber *subscriber, const struct pl_ring_geometry *geometry,
			     unsigned least)
{
	uint64_t frame = geometry->slot_stride + geometry->descriptor_stride, ahead, most;

	if (subscriber->overflow != PL_OVERFLOW_BLOCK || subscriber->in_place || subscriber->push)
		return 0;
	ahead = PL_MIN(PL_AHEAD_BYTES / frame, (uint64_t)PL_MIN(geometry->slots, PL_AHEAD_FRAMES));
	most = subscriber->memory_bytes - PL_MIN(subscriber->memory_bytes, pl_frame_memory_size(geometry, least));
	return (unsigned)PL_MIN(ahead, (most > PL_RING_PAGE ? most - PL_RING_PAGE : 0) / frame);
}

int pl_subscriber_allocate(struct pl_subscriber *subscriber, const struct pl_ring_geometry *geometry,
			   struct pl_error *error)
{
	/* A further slot lets the publisher write a frame while the queue is full. */
	unsigned least = subscriber->queue + subscriber->held_limit + subscriber->push;
	unsigned ahead = frames_ahead(subscriber, geometry, least), count = least + ahead;
	unsigned access = subscriber->push ? PL_ACCESS_WRITE : PL_ACCESS_LOCAL;
	uint64_t size = pl_frame_memory_size(geometry, count);
	struct pl_frame_memory memory;
	int rc;

	/* The memory may be that of an answer whose subscription did not begin. */
	if (subscriber->memory.frames && subscriber->memory.slot_stride == geometry->slot_stride &&
	    subscriber->memory.descriptor_stride == geometry->descriptor_stride && !subscriber->unclean)
		return 0;
	if (memory_is_used_now(subscriber))
		return fail_held(subscriber, error);
	if (size > subscriber->memory_bytes)
		return pl_fail(error, -EMSGSIZE, "STREAM-MEMORY", "pl_subscriber_open", subscriber->name,
			       "raise pl_subscriber_options.memory_bytes, or lower queue and held",
			       "%u frames of up to %llu bytes need %llu bytes, and %zu are allowed", count,
			       (unsigned long long)geometry->slot_bytes, (unsigned long long)size,
			       subscriber->memory_bytes);
	rc = pl_frame_memory_open(&memory, subscriber->context, subscriber->memory_kind, geometry, count, access,
				  error);
	if (rc < 0 && ahead) {
		/* The queue alone may fit into the memory of a GPU, or into a limit of locked memory. */
		ahead = 0;
		rc = pl_frame_memory_open(&memory, subscriber->context, subscriber->memory_kind, geometry, least,
					  access, error);
	}
	if (rc < 0 || replace_memory(subscriber, &memory, ahead))
		return rc;
	/*
	 * Another thread has taken a frame for a CUDA stream meanwhile. The driver frees GPU memory only when the stream has stopped to
	 * wait for that frame, which it does without a connection.
	 */
	pl_subscriber_detach(subscriber);
	pl_frame_memory_close(&memory, subscriber->context);
	return fail_held(subscriber, error);
}
