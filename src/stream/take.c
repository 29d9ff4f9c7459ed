/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames at the program's side of a subscriber. */
#include <sys/eventfd.h>
#include <unistd.h>

#include "stream/publisher.h"
#include "stream/subscriber.h"

int pl_subscriber_end_of_frames(const struct pl_subscriber *subscriber)
{
	if (subscriber->restarted)
		return -ESTALE;
	if (subscriber->phase == PL_SUBSCRIBER_OVER)
		return subscriber->failure.code ? subscriber->failure.code : -ENODATA;
	if (subscriber->state != PL_STREAM_LIVE && subscriber->accounts.next >= subscriber->published)
		return -ENODATA;
	return subscriber->phase == PL_SUBSCRIBER_AWAY ? -ENOTCONN : 0;
}

/* Returns 0 if a frame may still come, or the result of a take. */
static int end_of_frames(const struct pl_subscriber *subscriber)
{
	return pl_list_empty(&subscriber->window) ? pl_subscriber_end_of_frames(subscriber) : 0;
}

/* Delivers PL_KIND_FRAME. Returns false without memory: then the next change tries again. */
static bool deliver_event(const struct pl_subscriber *subscriber)
{
	struct pl_operation *event = pl_operation_new(subscriber->context, NULL, PL_KIND_FRAME, NULL, NULL);

	if (!event)
		return false;
	event->home = subscriber->engine;
	event->completion.user_data = subscriber->user_data;
	event->completion.posted = event->completion.completed = pl_now();
	atomic_store_explicit(&event->state, PL_DONE, memory_order_release);
	pl_completion_push(subscriber->context, event);
	return true;
}

/* Tells the program if a take would return something. */
static void tell_program(struct pl_subscriber *subscriber)
{
	bool set = pl_subscriber_first_ready(subscriber) || end_of_frames(subscriber);
	uint64_t one = 1;

	if (subscriber->events && set != subscriber->told)
		subscriber->told = set && deliver_event(subscriber);
	if (subscriber->event_fd < 0 || set == subscriber->event_set)
		return;
	subscriber->event_set = set;
	if (set)
		(void)!write(subscriber->event_fd, &one, sizeof(one));
	else
		(void)!read(subscriber->event_fd, &one, sizeof(one));
}

void pl_subscriber_tell(struct pl_subscriber *subscriber)
{
	pl_promises_keep(subscriber);
	tell_program(subscriber);
}

void pl_subscriber_wake(struct pl_subscriber *subscriber)
{
	pl_subscriber_tell(subscriber);
	pl_turn_next(subscriber->context, &subscriber->turn);
}

void pl_subscriber_leave_turn(struct pl_subscriber *subscriber)
{
	pl_lock_release(&subscriber->lock);
	pl_turn_next(subscriber->context, &subscriber->turn);
}

int pl_subscriber_fail_take(const struct pl_subscriber *subscriber, const char *call, int rc, struct pl_error *error)
{
	const char *name = subscriber->name;

	switch (rc) {
	case -EMLINK:
		return pl_fail(error, rc, "FRAME-LIMIT", call, name,
			       "release frames first, or raise pl_subscriber_options.held",
			       "the program holds %u frames", subscriber->held_limit);
	case -ESTALE:
		return pl_fail(error, rc, "STREAM-RESTARTED", call, name, NULL,
			       "the publisher is another instance of the stream, with sequences of its own");
	case -ENOTCONN:
		return pl_fail(error, rc, "PEER-LOST", call, name, "connect again, and call pl_subscriber_attach()",
			       "the connection is lost");
	case -ENODATA:
		return pl_fail(error, rc, "STREAM-ENDED", call, name, NULL,
			       subscriber->state == PL_STREAM_ENDED
				       ? "the stream has ended"
				       : "the publisher was closed before the stream ended");
	case -EAGAIN:
		return pl_fail(error, rc, "STREAM-EMPTY", call, name, NULL, "no frame is ready");
	case -ETIMEDOUT:
		return pl_fail(error, rc, "WAIT-TIMEOUT", call, name, "allow more time", "no frame came in time");
	default:
		if (error)
			*error = subscriber->failure;
		return rc;
	}
}

struct pl_accounts pl_subscriber_restart_accounts(const struct pl_subscriber *subscriber)
{
	struct pl_accounts accounts = { .first = subscriber->restart_first, .next = subscriber->restart_first };

	pl_accounts_miss(&accounts, subscriber->restart_next, accounts.first, subscriber->every);
	return accounts;
}

void pl_subscriber_begin_instance(struct pl_subscriber *subscriber)
{
	subscriber->restarted = false;
	subscriber->accounts = pl_subscriber_restart_accounts(subscriber);
	subscriber->absent = subscriber->accounts.unwanted;
	subscriber->last_delivered = subscriber->restart_first;
	/* The new instance may use the sequences of frames that the program still holds. */
	for (unsigned i = 0; i < subscriber->memory.count; i++)
		subscriber->memory.frames[i].stale |= subscriber->memory.frames[i].state == PL_FRAME_HELD;
}

void pl_subscriber_hold(struct pl_subscriber *subscriber, struct pl_stream_frame *frame, uint64_t now)
{
	pl_list_remove(&frame->link);
	subscriber->window_count--;
	subscriber->held += !frame->promised;
	subscriber->accounts.pending--;
	subscriber->accounts.delivered++;
	frame->state = PL_FRAME_HELD;
	frame->taken = now;
	if (frame->view)
		pl_list_append(&subscriber->placed, &frame->link);
	frame->lost_before = frame->sequence - subscriber->last_delivered;
	subscriber->last_delivered = frame->sequence + 1;
}

/*
 * Takes ready frames. Returns their number, the reason that no frame will come, or 0. `room`: set if the window has room
 * then. subscriber->lock is held.
 */
static int try_take(struct pl_subscriber *subscriber, struct pl_stream_frame **frames, unsigned n, bool *room)
{
	struct pl_ring_look look = { 0 };
	struct pl_stream_frame *frame;
	unsigned count = 0;
	uint64_t now = 0;
	int rc;

	while (count < n && subscriber->held < subscriber->held_limit &&
	       (frame = pl_subscriber_first_ready(subscriber))) {
		if (!pl_frame_unchanged_at(frame, &look)) {
			pl_subscriber_free_frame(subscriber, frame);
			subscriber->accounts.lapped++;
			*room = true;
			continue;
		}
		now = now ? now : pl_wall_clock();
		pl_subscriber_hold(subscriber, frame, now);
		frames[count++] = frame;
	}
	*room |= count;
	if (count)
		return (int)count;
	if (pl_subscriber_first_ready(subscriber))
		return -EMLINK;
	rc = end_of_frames(subscriber);
	if (rc == -ESTALE) {
		pl_subscriber_begin_instance(subscriber);
		*room = true;
	}
	return rc;
}

int pl_subscriber_take(struct pl_subscriber *subscriber, struct pl_stream_frame **frames, unsigned n, uint64_t timeout,
		       struct pl_error *error)
{
	bool waited = true, began = false, room, work;
	struct pl_engine *engine;
	uint64_t deadline = 0;
	int rc;

	if (n == 0)
		return pl_fail(error, -EINVAL, "OPTION", "pl_subscriber_take", "n", "take at least one frame",
			       "no room for a frame");
	for (;;) {
		unsigned seen = pl_turn_read(&subscriber->turn);

		pl_lock_take(&subscriber->lock);
		room = false;
		work = pl_subscriber_poll_ring(subscriber);
		rc = try_take(subscriber, frames, n, &room);
		/* The window has room, or a new instance begins. The next take of a quiet subscriber finds frames itself. */
		work |= room && (rc < 0 || !pl_subscriber_is_quiet(subscriber));
		if (rc == 0 && !waited)
			rc = timeout ? -ETIMEDOUT : -EAGAIN;
		if (rc)
			tell_program(subscriber);
		if (rc < 0)
			pl_subscriber_fail_take(subscriber, "pl_subscriber_take", rc, error);
		engine = subscriber->engine;
		pl_lock_release(&subscriber->lock);
		if (work)
			pl_engine_post(engine, &subscriber->task);
		if (rc)
			break;
		if (!began)
			deadline = pl_deadline(pl_now(), timeout);
		began = true;
		waited = pl_subscriber_await(subscriber, seen, deadline);
	}
	return rc;
}

void pl_subscriber_unhold(struct pl_subscriber *subscriber, struct pl_stream_frame *frame)
{
	if (frame->view)
		pl_list_remove(&frame->link);
	pl_frame_unplace(frame);
	frame->state = PL_FRAME_FREE;
	frame->on_stream = frame->abandoned = false;
	pl_subscriber_add_spare(subscriber, frame);
	subscriber->held--;
}

void pl_subscriber_pause(struct pl_subscriber *subscriber, bool paused)
{
	struct pl_engine *engine;

	pl_lock_take(&subscriber->lock);
	subscriber->paused = paused;
	engine = subscriber->engine;
	pl_lock_release(&subscriber->lock);
	/* Threads that poll look into the ring only while there is no pause. */
	pl_turn_next(subscriber->context, &subscriber->turn);
	/* Sequences that wait for room have a fate now. Announcements tell of later ones, and are answered. */
	pl_engine_post(engine, &subscriber->task);
}

int pl_subscriber_fd(struct pl_subscriber *subscriber)
{
	struct pl_engine *engine;
	bool quiet;
	int fd;

	pl_lock_take(&subscriber->lock);
	quiet = pl_subscriber_is_quiet(subscriber);
	engine = subscriber->engine;
	if (subscriber->event_fd < 0) {
		subscriber->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		fd = subscriber->event_fd < 0 ? -errno : subscriber->event_fd;
		tell_program(subscriber);
	} else {
		fd = subscriber->event_fd;
	}
	pl_lock_release(&subscriber->lock);
	/* Answers announcements, which set the descriptor from now on. */
	if (quiet)
		pl_engine_post(engine, &subscriber->task);
	return fd;
}

/* -- description of a frame ------------------------------------------------------------------------------------ */

static void describe_taken(const struct pl_stream_frame *frame, struct pl_frame_info *info)
{
	const struct pl_subscriber *subscriber = frame->subscriber;
	const struct pl_ring_descriptor *descriptor = &frame->descriptor;

	info->length = descriptor->length;
	info->captured = descriptor->captured;
	info->published = descriptor->published;
	info->taken = frame->taken;
	info->lost_before = frame->lost_before;
	info->absent_before = frame->absent_before;
	info->layout = *pl_frame_layout(descriptor, &frame->stream_layout, frame->stream_layout_bytes);
	info->metadata_length = descriptor->metadata_length;
	info->flags = descriptor->flags & PL_DESCRIPTOR_REPLAY ? PL_FRAME_REPLAY : 0;
	if (atomic_load(&frame->place) == PL_PLACE_RING)
		info->flags |= PL_FRAME_IN_PLACE;
	if (!pl_frame_unchanged(frame))
		info->flags |= PL_FRAME_OVERWRITTEN;
	if (info->metadata_length)
		info->metadata = (uint8_t *)pl_region_address(subscriber->memory.control) + frame->descriptor_offset +
				 PL_RING_DESCRIPTOR;
}

int pl_frame_query(const struct pl_stream_frame *frame, struct pl_frame_info *info)
{
	struct pl_frame_info full = PL_FRAME_INFO_INIT;
	size_t size = info->size;
	bool waits;

	if (size < sizeof(size) || size > sizeof(full))
		return -EINVAL;
	full.data = frame->data;
	if (frame->subscriber && frame->on_stream)
		full.status = frame->status;
	/* Before that, an engine may be writing the rest. */
	waits = full.status && pl_promise_result(frame) != PL_TAKE_FRAME;
	if (!waits)
		full.sequence = frame->sequence;
	if (frame->subscriber && !waits) {
		describe_taken(frame, &full);
	} else if (!frame->subscriber) {
		full.length = frame->publisher->header.geometry.slot_bytes;
		full.layout = frame->publisher->header.layout;
	}
	memcpy(info, &full, size);
	info->size = size;
	return 0;
}
