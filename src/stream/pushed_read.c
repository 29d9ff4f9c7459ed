/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads of a part of a pushed frame: copies from the slots of the subscriber, which nobody writes while a frame is in them. A
 * read keeps the slot from the publisher until its end, also if the frame is released or dropped meanwhile.
 */
#include "core/call.h"
#include "memory/memory.h"
#include "stream/subscriber.h"

#define CALL "pl_subscriber_read"

static int fail_pushed_part(const struct pl_subscriber *subscriber, int code, const char *id, uint64_t sequence,
			    const char *fact, struct pl_error *error)
{
	return pl_fail(error, code, id, CALL, subscriber->name,
		       "read frames that pl_subscriber_take() can return, or that the program holds", "frame %llu: %s",
		       (unsigned long long)sequence, fact);
}

/* Returns the frame of a sequence that is in a slot, or NULL. subscriber->lock is held. */
static struct pl_stream_frame *find_pushed(struct pl_subscriber *subscriber, uint64_t sequence)
{
	for (unsigned i = 0; i < subscriber->memory.count; i++) {
		struct pl_stream_frame *frame = &subscriber->memory.frames[i];

		if ((frame->state == PL_FRAME_READY || frame->state == PL_FRAME_HELD) && !frame->stale &&
		    frame->sequence == sequence)
			return frame;
	}
	return NULL;
}

/* Finds the frame, checks the bytes, and keeps the slot. subscriber->lock is held. */
static int begin_pushed_read(struct pl_subscriber *subscriber, const struct pl_part_range *range,
			     struct pl_stream_frame **result, struct pl_error *error)
{
	struct pl_stream_frame *frame;
	int rc;

	if (subscriber->restarted)
		return pl_subscriber_fail_take(subscriber, CALL, -ESTALE, error);
	rc = range->length ? pl_call_check_local(subscriber->context, range->region, range->region_offset,
						 range->length, CALL, error)
			   : 0;
	if (rc < 0)
		return rc;
	if (range->sequence > PL_RING_SEQUENCE_MAX)
		return fail_pushed_part(subscriber, -ERANGE, "FRAME-RANGE", range->sequence, "sequences end at 2^62",
					error);
	frame = find_pushed(subscriber, range->sequence);
	if (!frame && range->sequence >= subscriber->accounts.next) {
		rc = pl_part_refuse(subscriber, error);
		if (rc < 0)
			return rc;
		return fail_pushed_part(subscriber, -EAGAIN, "FRAME-UNPUBLISHED", range->sequence,
					"the publisher has not pushed it yet", error);
	}
	if (!frame)
		return fail_pushed_part(subscriber, -ENOENT, "FRAME-GONE", range->sequence,
					"no slot of the subscriber holds it", error);
	if (pl_outside(range->offset, range->length, frame->descriptor.length))
		return fail_pushed_part(subscriber, -ERANGE, "FRAME-RANGE", range->sequence,
					"it is shorter than offset and length", error);
	frame->reads++;
	/* Memory of frames is not exchanged while a read is under way. */
	subscriber->reading++;
	*result = frame;
	return 0;
}

/* Gives the slot back to the publisher if the program has no use of the frame any more. */
static void end_pushed_read(struct pl_subscriber *subscriber, struct pl_stream_frame *frame)
{
	struct pl_engine *engine;
	bool free;

	pl_lock_take(&subscriber->lock);
	frame->reads--;
	free = frame->reads == 0 && frame->state == PL_FRAME_FREE;
	if (free)
		pl_subscriber_add_spare(subscriber, frame);
	engine = subscriber->engine;
	pl_lock_release(&subscriber->lock);
	if (free)
		pl_engine_post(engine, &subscriber->task);
	pl_lock_take(&subscriber->lock);
	subscriber->reading--;
	pl_turn_next(subscriber->context, &subscriber->turn);
	pl_lock_release(&subscriber->lock);
}

static int copy_pushed(struct pl_memory *slots, uint64_t at, const struct pl_part_range *range)
{
	struct pl_memory *to = &range->region->memory;
	void *source = pl_memory_host_pointer(slots, at);
	void *target = pl_memory_host_pointer(to, range->region_offset);

	if (source && target)
		memcpy(target, source, range->length);
	else if (source)
		return pl_memory_copy_in(to, range->region_offset, source, range->length);
	else if (target)
		return pl_memory_copy_out(slots, at, target, range->length);
	else
		return pl_memory_copy_across(to, range->region_offset, slots, at, range->length);
	return 0;
}

int pl_pushed_read(struct pl_subscriber *subscriber, const struct pl_part_range *range, struct pl_frame_info *info,
		   struct pl_error *error)
{
	struct pl_stream_frame *frame = NULL;
	int rc;

	pl_lock_take(&subscriber->lock);
	rc = begin_pushed_read(subscriber, range, &frame, error);
	pl_lock_release(&subscriber->lock);
	if (rc < 0)
		return rc;
	if (range->length)
		rc = copy_pushed(&subscriber->memory.payloads->memory, frame->offset + range->offset, range);
	if (rc < 0)
		pl_fail(error, rc, "MEMORY-UNREADABLE", CALL, subscriber->name,
			"see whether the GPU still works: nvidia-smi", "the frame cannot be copied to the region");
	else if (info)
		pl_part_describe(range->sequence, &frame->descriptor, &frame->stream_layout, info);
	end_pushed_read(subscriber, frame);
	return rc;
}
