/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames in place that the program's threads find in the ring, without a message.
 *
 * A thread in pl_subscriber_take() reads `published` in the view, and admits frames itself. While no thread sleeps, the
 * subscriber is quiet: it does not answer announcements, so that the publisher stops to send them, and reports free slots in
 * quarters of the ring, or when the publisher asks for a report. Before a thread sleeps, it makes the subscriber answer again. If
 * frames were published meanwhile, the publisher announces them at once; if not, the next one. So no frame is slept through.
 */
#include <endian.h>

#include "stream/subscriber.h"

bool pl_subscriber_is_quiet(const struct pl_subscriber *subscriber)
{
	return subscriber->polls && subscriber->view && subscriber->sleeping == 0 && subscriber->event_fd < 0 &&
	       !subscriber->paused && subscriber->phase == PL_SUBSCRIBER_LIVE && subscriber->state == PL_STREAM_LIVE;
}

void pl_subscriber_begin_polling(struct pl_subscriber *subscriber)
{
	const struct pl_context *context = subscriber->context;

	subscriber->may_be_quiet = subscriber->peer->quiet_frames && !subscriber->events &&
				   !pl_context_manual(context) && context->options.poll_time != PL_NO_POLLING;
	subscriber->polls = false;
	subscriber->released = 0;
	subscriber->view_claimed = subscriber->view_published = 0;
}

bool pl_subscriber_follow_ring(struct pl_subscriber *subscriber)
{
	uint64_t claimed, published;

	if (!subscriber->view || subscriber->phase != PL_SUBSCRIBER_LIVE)
		return true;
	pl_ring_view_cursors(subscriber->view, &claimed, &published);
	if (claimed < subscriber->view_claimed || published < subscriber->view_published ||
	    PL_MAX(claimed, published) > PL_RING_SEQUENCE_MAX) {
		pl_subscriber_fail(subscriber, -EPROTO, "STREAM-PROTOCOL",
				   "the publisher wrote cursors that cannot be");
		return false;
	}
	subscriber->view_claimed = claimed;
	subscriber->view_published = published;
	subscriber->published = PL_MAX(subscriber->published, published);
	/* `claimed` was read first, so a later `published` may be larger. */
	subscriber->claimed = PL_MAX(subscriber->claimed, PL_MAX(claimed, published));
	return true;
}

/* True if the last frame of the window has not been read: the lap rule refused it in the ring. */
static bool newest_must_be_read(const struct pl_subscriber *subscriber)
{
	const struct pl_list *last = subscriber->window.prev;

	return !pl_list_empty(&subscriber->window) &&
	       pl_list_entry(last, struct pl_stream_frame, link)->state == PL_FRAME_WANT_DESCRIPTOR;
}

bool pl_subscriber_poll_ring(struct pl_subscriber *subscriber)
{
	bool work = false;

	if (!subscriber->view || subscriber->phase != PL_SUBSCRIBER_LIVE)
		return false;
	subscriber->polls = subscriber->may_be_quiet;
	if (subscriber->paused)
		return false;
	if (!pl_subscriber_follow_ring(subscriber))
		return true;
	while (pl_subscriber_admit(subscriber, NULL))
		work |= newest_must_be_read(subscriber);
	return work;
}

/* Sleeps until a turn after `seen`. Announcements begin it. */
static bool sleep_in_take(struct pl_subscriber *subscriber, unsigned seen, uint64_t deadline)
{
	struct pl_engine *engine;
	bool quiet, changed;

	pl_lock_take(&subscriber->lock);
	/* Another thread may have left a frame, and wakes only threads that sleep. */
	if (pl_subscriber_first_ready(subscriber)) {
		pl_lock_release(&subscriber->lock);
		return true;
	}
	quiet = pl_subscriber_is_quiet(subscriber);
	subscriber->sleeping++;
	engine = subscriber->engine;
	pl_lock_release(&subscriber->lock);
	if (quiet)
		pl_engine_post(engine, &subscriber->task);
	changed = pl_turn_wait(subscriber->context, &subscriber->turn, seen, deadline);
	pl_lock_take(&subscriber->lock);
	subscriber->sleeping--;
	pl_lock_release(&subscriber->lock);
	return changed;
}

bool pl_subscriber_await(struct pl_subscriber *subscriber, unsigned seen, uint64_t deadline)
{
	struct pl_ring_view *view = NULL;
	bool polls, changed, ready;
	uint64_t published;

	pl_lock_take(&subscriber->lock);
	ready = pl_subscriber_first_ready(subscriber) != NULL;
	polls = subscriber->polls;
	if (polls && !ready && !subscriber->paused && subscriber->phase == PL_SUBSCRIBER_LIVE)
		view = pl_ring_view_get(subscriber->view);
	published = subscriber->view_published;
	pl_lock_release(&subscriber->lock);
	/* Another thread has left a frame. */
	if (polls && ready)
		return true;
	/* A new subscription wakes these threads. */
	if (!polls)
		return pl_turn_wait(subscriber->context, &subscriber->turn, seen, deadline);
	changed = pl_turn_poll(subscriber->context, &subscriber->turn, seen,
			       view ? pl_ring_view_published(view) : NULL, htole64(published), deadline);
	pl_ring_view_put(view);
	/* A program that polls by calls without time to wait does not sleep between them. */
	if (changed || deadline <= pl_now())
		return changed;
	return sleep_in_take(subscriber, seen, deadline);
}
