/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reads of a part of one frame into memory of the program. Descriptor and payload are read side by side. The cursors are
 * read once both reads have ended, and the lap rule judges all that was read.
 */
#include <endian.h>

#include "core/call.h"
#include "core/fastpath.h"
#include "stream/subscriber.h"

/* Offsets in the memory of a read: of the cursors, and of the descriptor. */
#define PART_CURSORS 0
#define PART_DESCRIPTOR PL_RING_CURSORS
#define PART_MEMORY (PL_RING_CURSORS + PL_RING_DESCRIPTOR)

/* Reads of the ring that serve one call. */
enum part_read {
	PART_READ_DESCRIPTOR, /* later the cursors */
	PART_READ_PAYLOAD,
	PART_READS,
};

/* One call. subscriber->lock protects `pending`, `status` and `checking`. */
struct pl_part {
	struct pl_list link; /* subscriber->parts (home) while reads are under way; else subscriber->spare_parts */
	struct pl_subscriber *subscriber;
	struct pl_region *memory; /* PART_MEMORY bytes */
	struct pl_part_range range;
	uint64_t deadline;
	uint64_t subscription;                       /* that the part is read in */
	struct pl_ring_geometry geometry;            /* of its ring */
	struct pl_operation *operations[PART_READS]; /* under way; home */
	unsigned pending;
	int status;    /* of the first read that failed; else 0 */
	bool checking; /* the cursors are being read, or have been */
	bool known;    /* the frame was known as published before it was read */
};

/* -- memory ------------------------------------------------------------------------------------------------------- */

/* Returns a part that no call uses, or NULL without memory. */
static struct pl_part *part_take(struct pl_subscriber *subscriber, struct pl_error *error)
{
	struct pl_context *context = subscriber->context;
	struct pl_part *part = NULL;

	pl_lock_take(&subscriber->lock);
	if (!pl_list_empty(&subscriber->spare_parts)) {
		part = pl_list_first(&subscriber->spare_parts, struct pl_part, link);
		pl_list_remove(&part->link);
	}
	pl_lock_release(&subscriber->lock);
	if (part)
		return part;
	part = pl_zalloc(&context->allocator, sizeof(*part));
	if (!part) {
		pl_fail_memory(error, "pl_subscriber_read");
		return NULL;
	}
	if (pl_region_allocate(context, PART_MEMORY, PL_ACCESS_LOCAL, &part->memory, error) < 0) {
		pl_free(&context->allocator, part);
		return NULL;
	}
	pl_list_init(&part->link);
	part->subscriber = subscriber;
	return part;
}

static void part_put(struct pl_part *part)
{
	struct pl_subscriber *subscriber = part->subscriber;

	pl_lock_take(&subscriber->lock);
	pl_list_append(&subscriber->spare_parts, &part->link);
	pl_lock_release(&subscriber->lock);
}

void pl_parts_close(struct pl_subscriber *subscriber)
{
	while (!pl_list_empty(&subscriber->spare_parts)) {
		struct pl_part *part = pl_list_first(&subscriber->spare_parts, struct pl_part, link);

		pl_list_remove(&part->link);
		pl_region_deregister(part->memory);
		pl_free(&subscriber->context->allocator, part);
	}
}

/* -- reads ------------------------------------------------------------------------------------------------------- */

static void part_read_finished(struct pl_operation *operation);

/* Begins a read, which ends by part_read_finished(). Returns -ENOMEM without it. Home. */
static int part_post(struct pl_part *part, struct pl_peer *peer, enum part_read index, const struct pl_segment *segment)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;

	attributes.user_data = (uint64_t)(uintptr_t)part;
	if (pl_memory_staged(&segment->region->memory))
		attributes.visible = PL_VISIBLE_GPU_VISIBLE;
	operation = pl_operation_new(peer->context, peer, PL_KIND_READ, &attributes, NULL);
	if (!operation)
		return -ENOMEM;
	pl_fast_segment(operation, segment);
	operation->internal = true;
	operation->finished = part_read_finished;
	operation->completion.posted = pl_engine_now(peer->home);
	operation->deadline = part->deadline;
	part->operations[index] = operation;
	if (pl_operation_begin(operation))
		pl_peer_start(peer, operation);
	return 0;
}

/* Begins the read of the cursors, if the subscriber still has the connection of the other reads. Home. */
static int part_post_check(struct pl_part *part, struct pl_peer *peer)
{
	struct pl_subscriber *subscriber = part->subscriber;
	struct pl_segment cursors = { NULL, part->memory, PL_RING_HEADER, PART_CURSORS, PL_RING_CURSORS };

	pl_lock_take(&subscriber->lock);
	if (subscriber->peer == peer && subscriber->phase == PL_SUBSCRIBER_LIVE &&
	    subscriber->subscription == part->subscription)
		cursors.remote = subscriber->control;
	pl_lock_release(&subscriber->lock);
	return cursors.remote ? part_post(part, peer, PART_READ_DESCRIPTOR, &cursors) : -ECONNRESET;
}

/* Counts the end of a read. The end of the last one begins the check, or ends the call. Home. */
static void part_count_read(struct pl_part *part, struct pl_peer *peer, int status)
{
	struct pl_subscriber *subscriber = part->subscriber;
	bool last, check;

	pl_lock_take(&subscriber->lock);
	if (part->status == 0)
		part->status = status;
	last = part->pending == 1;
	check = last && part->status == 0 && !part->checking;
	part->checking |= check;
	/* The read of the cursors takes over the count of the last one. */
	part->pending -= !check;
	if (part->pending == 0)
		pl_list_remove(&part->link);
	pl_lock_release(&subscriber->lock);
	if (check) {
		status = part_post_check(part, peer);
		if (status < 0)
			part_count_read(part, peer, status);
	} else if (last) {
		/* The call may have returned by now: only its subscriber is sure to be there. */
		pl_turn_next(subscriber->context, &subscriber->turn);
	}
}

static void part_read_finished(struct pl_operation *operation)
{
	struct pl_part *part = (struct pl_part *)(uintptr_t)operation->attributes.user_data;
	struct pl_peer *peer = operation->peer;
	int status = operation->completion.status;

	for (unsigned i = 0; i < PART_READS; i++)
		if (part->operations[i] == operation)
			part->operations[i] = NULL;
	pl_operation_free(operation);
	part_count_read(part, peer, status);
}

void pl_parts_cancel(struct pl_subscriber *subscriber)
{
	pl_list_for_each_safe(at, next, &subscriber->parts) {
		struct pl_part *part = pl_list_entry(at, struct pl_part, link);

		for (unsigned i = 0; i < PART_READS; i++)
			if (part->operations[i])
				pl_operation_stop(part->operations[i], -ECANCELED, NULL);
	}
}

/* -- the call ----------------------------------------------------------------------------------------------------- */

static int fail_disconnected(const struct pl_subscriber *subscriber, struct pl_error *error)
{
	return pl_fail(error, -ENOTCONN, "PEER-LOST", "pl_subscriber_read", subscriber->name,
		       "connect again, and call pl_subscriber_attach()",
		       "the connection is lost, or the publisher was closed");
}

/* Returns the reason why nothing can be read now, or 0. subscriber->lock is held. */
int pl_part_refuse(const struct pl_subscriber *subscriber, struct pl_error *error)
{
	if (subscriber->phase == PL_SUBSCRIBER_OVER && subscriber->failure.code)
		return pl_subscriber_fail_take(subscriber, "pl_subscriber_read", subscriber->failure.code, error);
	if (subscriber->phase != PL_SUBSCRIBER_LIVE)
		return fail_disconnected(subscriber, error);
	if (subscriber->restarted)
		return pl_subscriber_fail_take(subscriber, "pl_subscriber_read", -ESTALE, error);
	return 0;
}

/* Checks the bytes that the program asks for, and begins to read them. Home. */
static int part_begin(struct pl_part *part, struct pl_error *error)
{
	struct pl_subscriber *subscriber = part->subscriber;
	const struct pl_ring_geometry *geometry = &part->geometry;
	struct pl_segment segments[PART_READS];
	struct pl_peer *peer;
	unsigned reads = part->range.length ? 2 : 1;
	int rc;

	pl_lock_take(&subscriber->lock);
	peer = subscriber->peer;
	part->geometry = subscriber->geometry;
	rc = pl_part_refuse(subscriber, error);
	if (rc == 0 && part->range.length)
		rc = pl_call_check_local(peer->context, part->range.region, part->range.region_offset,
					 part->range.length, "pl_subscriber_read", error);
	if (rc == 0 && (pl_outside(part->range.offset, part->range.length, geometry->slot_bytes) ||
			part->range.sequence > PL_RING_SEQUENCE_MAX))
		rc = pl_fail(error, -ERANGE, "FRAME-RANGE", "pl_subscriber_read", subscriber->name,
			     "stay within the frame", "%llu bytes at %llu of a slot of %llu",
			     (unsigned long long)part->range.length, (unsigned long long)part->range.offset,
			     (unsigned long long)geometry->slot_bytes);
	if (rc == 0) {
		part->subscription = subscriber->subscription;
		part->known = part->range.sequence < subscriber->published ||
			      (part->subscription == subscriber->part_subscription &&
			       part->range.sequence < subscriber->part_published);
		part->pending = reads;
		pl_list_append(&subscriber->parts, &part->link);
		segments[PART_READ_DESCRIPTOR] =
			(struct pl_segment){ subscriber->control, part->memory,
					     pl_ring_descriptor_offset(geometry, part->range.sequence), PART_DESCRIPTOR,
					     PL_RING_DESCRIPTOR };
		segments[PART_READ_PAYLOAD] =
			(struct pl_segment){ subscriber->payload, part->range.region,
					     pl_ring_slot_offset(geometry, part->range.sequence) + part->range.offset,
					     part->range.region_offset, part->range.length };
	}
	pl_lock_release(&subscriber->lock);
	for (unsigned i = 0; rc == 0 && i < reads; i++) {
		int posted = part_post(part, peer, i, &segments[i]);

		if (posted < 0)
			part_count_read(part, peer, posted);
	}
	return rc;
}

/* Begins at home, which another thread may change meanwhile, and waits for the end. */
static int part_run(struct pl_part *part, struct pl_error *error)
{
	struct pl_subscriber *subscriber = part->subscriber;
	struct pl_engine *engine;
	bool home, ended = false;
	int rc = 0;

	do {
		pl_lock_take(&subscriber->lock);
		engine = subscriber->engine;
		pl_lock_release(&subscriber->lock);
		pl_engine_lock(engine);
		home = pl_subscriber_at_home(subscriber);
		if (home)
			rc = part_begin(part, error);
		pl_engine_unlock(engine);
	} while (!home);
	while (rc == 0 && !ended) {
		unsigned seen = pl_turn_read(&subscriber->turn);

		pl_lock_take(&subscriber->lock);
		ended = part->pending == 0;
		pl_lock_release(&subscriber->lock);
		if (!ended)
			pl_turn_wait(subscriber->context, &subscriber->turn, seen, UINT64_MAX);
	}
	return rc;
}

/* Returns 0 if all reads have succeeded. */
static int part_status(const struct pl_part *part, struct pl_error *error)
{
	const char *call = "pl_subscriber_read", *name = part->subscriber->name;

	switch (part->status) {
	case 0:
		return 0;
	case -ENOMEM:
		return pl_fail_memory(error, call);
	case -ETIMEDOUT:
		return pl_fail(error, -ETIMEDOUT, "WAIT-TIMEOUT", call, name,
			       "allow more time, and check that the other end makes progress",
			       "the ring was not read in time");
	case -ECANCELED:
	case -ECONNRESET:
	case -EACCES:
		return fail_disconnected(part->subscriber, error);
	default:
		return pl_fail(error, part->status, "STREAM-READ", call, name, "see pl_subscriber_read(3)",
			       "a read of the ring failed");
	}
}

static int fail_part(const struct pl_part *part, int code, const char *id, const char *fact, struct pl_error *error)
{
	return pl_fail(error, code, id, "pl_subscriber_read", part->subscriber->name,
		       "see pl_subscriber_query(3) for the frames of the ring", "frame %llu: %s",
		       (unsigned long long)part->range.sequence, fact);
}

/* Judges what was read. Fills the descriptor. Returns 0, 1 if all must be read again, or a negative errno. */
static int part_judge(const struct pl_part *part, struct pl_ring_descriptor *descriptor, struct pl_error *error)
{
	const struct pl_ring_geometry *geometry = &part->geometry;
	const uint8_t *memory = pl_region_address(part->memory);
	struct pl_ring_cursors cursors;
	uint64_t stamp;
	int rc = pl_ring_cursors_decode(memory + PART_CURSORS, &cursors);

	if (rc < 0)
		return fail_part(part, rc, "STREAM-PROTOCOL", "the publisher wrote cursors that cannot be", error);
	if (!pl_ring_whole(cursors.claimed, part->range.sequence, geometry->slots))
		return fail_part(part, -ENOENT, "FRAME-GONE", "the publisher has claimed its slot again", error);
	if (part->range.sequence >= cursors.published)
		return fail_part(part, -EAGAIN, "FRAME-UNPUBLISHED", "the publisher has not published it yet", error);
	/* What was read before the frame was published may be half of it. */
	if (!part->known)
		return 1;
	memcpy(&stamp, memory + PART_DESCRIPTOR, sizeof(stamp));
	/* A publisher that began with a later sequence never wrote this one. */
	if (le64toh(stamp) != part->range.sequence + 1)
		return fail_part(part, -ENOENT, "FRAME-GONE", "the ring does not hold it", error);
	rc = pl_ring_descriptor_decode(memory + PART_DESCRIPTOR, geometry, part->range.sequence, descriptor);
	if (rc < 0)
		return fail_part(part, rc, "STREAM-PROTOCOL", "the publisher described it by values that cannot be",
				 error);
	if (descriptor->flags & PL_DESCRIPTOR_ABORTED)
		return fail_part(part, -ECANCELED, "FRAME-ABORTED", "the publisher discarded it", error);
	if (pl_outside(part->range.offset, part->range.length, descriptor->length))
		return fail_part(part, -ERANGE, "FRAME-RANGE", "it is shorter than offset and length", error);
	return 0;
}

void pl_part_describe(uint64_t sequence, const struct pl_ring_descriptor *descriptor, const struct pl_layout *own,
		      struct pl_frame_info *info)
{
	struct pl_frame_info full = PL_FRAME_INFO_INIT;
	size_t size = info->size;

	full.sequence = sequence;
	full.length = descriptor->length;
	full.captured = descriptor->captured;
	full.published = descriptor->published;
	full.taken = pl_wall_clock();
	full.flags = descriptor->flags & PL_DESCRIPTOR_REPLAY ? PL_FRAME_REPLAY : 0;
	full.layout = *pl_frame_layout(descriptor, own, pl_layout_bytes(own));
	memcpy(info, &full, size);
	info->size = size;
}

/* Notes that the frame is published: a read that begins now is whole if the lap rule says so. */
static void part_note_published(const struct pl_part *part)
{
	struct pl_subscriber *subscriber = part->subscriber;

	pl_lock_take(&subscriber->lock);
	if (subscriber->part_subscription != part->subscription)
		subscriber->part_published = 0;
	subscriber->part_subscription = part->subscription;
	subscriber->part_published = PL_MAX(subscriber->part_published, part->range.sequence + 1);
	pl_lock_release(&subscriber->lock);
}

/* Reads the part from the publisher's ring. */
static int part_pull(struct pl_subscriber *subscriber, const struct pl_part_range *range, uint64_t timeout,
		     struct pl_frame_info *info, struct pl_error *error)
{
	struct pl_ring_descriptor descriptor;
	struct pl_part *part = part_take(subscriber, error);
	struct pl_layout own;
	int rc;

	if (!part)
		return -ENOMEM;
	part->range = *range;
	part->deadline = pl_deadline(pl_now(), timeout ? timeout : subscriber->context->options.operation_timeout);
	part->status = 0;
	do {
		part->checking = false;
		rc = part_run(part, error);
		if (rc == 0)
			rc = part_status(part, error);
		if (rc == 0)
			rc = part_judge(part, &descriptor, error);
		if (rc == 1)
			part_note_published(part);
	} while (rc == 1);
	if (rc == 0 && info) {
		pl_lock_take(&subscriber->lock);
		own = subscriber->entry.layout;
		pl_lock_release(&subscriber->lock);
		pl_part_describe(range->sequence, &descriptor, &own, info);
	}
	part_put(part);
	return rc;
}

int pl_subscriber_read(struct pl_subscriber *subscriber, uint64_t sequence, uint64_t offset, uint64_t length,
		       struct pl_region *region, uint64_t region_offset, uint64_t timeout, struct pl_frame_info *info,
		       struct pl_error *error)
{
	const struct pl_part_range range = { sequence, offset, length, region, region_offset };

	if (info && (info->size < sizeof(info->size) || info->size > sizeof(*info)))
		return pl_fail(error, -EINVAL, "OPTION", "pl_subscriber_read", "size", "use PL_FRAME_INFO_INIT",
			       "information of a newer library, or not initialised");
	if (subscriber->push)
		return pl_pushed_read(subscriber, &range, info, error);
	return part_pull(subscriber, &range, timeout, info, error);
}
