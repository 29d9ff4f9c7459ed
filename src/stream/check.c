/* SPDX-License-Identifier: BSD-2-Clause */
#include "stream/check.h"

#include "stream/subscriber.h"

static void wake_subscriber(struct pl_batch_end *end)
{
	struct pl_subscriber *subscriber = pl_container_of(end, struct pl_subscriber, wake);

	pl_lock_take(&subscriber->lock);
	pl_subscriber_tell(subscriber);
	pl_subscriber_leave_turn(subscriber);
}

void pl_checks_init(struct pl_subscriber *subscriber)
{
	for (unsigned i = 0; i < PL_ARRAY_SIZE(subscriber->checks); i++)
		subscriber->checks[i].subscriber = subscriber;
	pl_list_init(&subscriber->wake.link);
	subscriber->wake.run = wake_subscriber;
}

uint64_t pl_check_offset(const struct pl_stream_check *check)
{
	return (uint64_t)(check - check->subscriber->checks) * PL_RING_CURSORS;
}

static struct pl_stream_check *free_check(struct pl_subscriber *subscriber)
{
	for (unsigned i = 0; i < PL_CHECKS_MAX; i++)
		if (!subscriber->checks[i].busy)
			return &subscriber->checks[i];
	return NULL;
}

struct pl_stream_check *pl_check_begin(struct pl_subscriber *subscriber)
{
	struct pl_stream_check *check = free_check(subscriber);
	bool any = false;

	if (!check)
		return NULL;
	pl_list_for_each(at, &subscriber->window) {
		struct pl_stream_frame *frame = pl_list_entry(at, struct pl_stream_frame, link);

		if (frame->state != PL_FRAME_UNCHECKED)
			continue;
		frame->state = PL_FRAME_CHECKING;
		frame->check = check;
		any = true;
	}
	if (!any)
		return NULL;
	check->busy = true;
	check->claimed = subscriber->read_claimed;
	check->published = subscriber->read_published;
	subscriber->check_count++;
	return check;
}

/*
 * Judges a frame whose reads had ended before the check was posted. Returns 0, or -EPROTO: the caller fails the subscriber, but
 * not while it walks through the window, because the failure takes frames of promises out of it.
 */
static int judge_frame(struct pl_subscriber *subscriber, struct pl_stream_frame *frame, uint64_t claimed)
{
	const uint32_t slots = subscriber->geometry.slots;
	bool whole = pl_ring_whole(claimed, frame->sequence, slots);
	int rejected = 0;

	pl_laps_count(&subscriber->laps, whole, PL_MIN(pl_subscriber_window_limit(subscriber), slots / 2));
	if (!whole) {
		pl_subscriber_free_frame(subscriber, frame);
		subscriber->accounts.lapped++;
		return 0;
	}
	rejected = pl_subscriber_reject(subscriber, frame);
	if (!rejected)
		frame->state = PL_FRAME_READY;
	return PL_MIN(rejected, 0);
}

/* Takes over the cursors of a check. Returns false if they are wrong, or went back. */
static bool accept_cursors(struct pl_stream_check *check, struct pl_ring_cursors *cursors)
{
	struct pl_subscriber *subscriber = check->subscriber;
	const uint8_t *at = (uint8_t *)pl_region_address(subscriber->memory.control) + pl_check_offset(check);

	if (pl_ring_cursors_decode(at, cursors) < 0 || cursors->claimed < check->claimed ||
	    cursors->published < check->published)
		return false;
	/* A later check may have ended earlier. */
	subscriber->read_claimed = PL_MAX(subscriber->read_claimed, cursors->claimed);
	subscriber->read_published = PL_MAX(subscriber->read_published, cursors->published);
	subscriber->claimed = PL_MAX(subscriber->claimed, cursors->claimed);
	subscriber->published = PL_MAX(subscriber->published, cursors->published);
	return true;
}

void pl_check_end(struct pl_stream_check *check, int status)
{
	struct pl_subscriber *subscriber = check->subscriber;
	struct pl_ring_cursors cursors = { 0 };
	bool accepted = status == 0 && accept_cursors(check, &cursors), wrong = status == 0 && !accepted;

	check->operation = NULL;
	check->busy = false;
	if (status < 0)
		pl_subscriber_read_failed(subscriber, NULL, status);
	pl_list_for_each_safe(at, next, &subscriber->window) {
		struct pl_stream_frame *frame = pl_list_entry(at, struct pl_stream_frame, link);

		if (frame->state != PL_FRAME_CHECKING || frame->check != check)
			continue;
		if (!accepted)
			pl_subscriber_give_up(subscriber, frame);
		else if (judge_frame(subscriber, frame, cursors.claimed) < 0)
			wrong = true;
	}
	if (wrong)
		pl_subscriber_fail_protocol(subscriber);
	pl_subscriber_tell(subscriber);
}

/* Wakes the program once for all frames of a batch. */
static void wake_after_batch(struct pl_subscriber *subscriber, struct pl_engine *home)
{
	if (!home->batching)
		pl_subscriber_wake(subscriber);
	else if (pl_list_empty(&subscriber->wake.link))
		pl_list_append(&home->batch_ends, &subscriber->wake.link);
}

void pl_check_trailing(struct pl_stream_frame *frame, uint64_t claimed, struct pl_engine *home)
{
	struct pl_subscriber *subscriber = frame->subscriber;

	/* A frame that was published had been claimed. */
	if (claimed <= frame->sequence || claimed < frame->claimed || claimed > PL_RING_SEQUENCE_MAX) {
		pl_subscriber_give_up(subscriber, frame);
		pl_subscriber_fail_protocol(subscriber);
		return;
	}
	subscriber->read_claimed = PL_MAX(subscriber->read_claimed, claimed);
	subscriber->claimed = PL_MAX(subscriber->claimed, claimed);
	if (judge_frame(subscriber, frame, claimed) < 0)
		pl_subscriber_fail_protocol(subscriber);
	/* The pump comes before the end of the batch: it must not drop a frame for which a stream waits, and sees the room. */
	pl_promises_keep(subscriber);
	wake_after_batch(subscriber, home);
}

bool pl_checks_look(struct pl_subscriber *subscriber)
{
	struct pl_stream_check *look = &subscriber->checks[PL_CHECKS_MAX];
	struct pl_sync_op read = { .kind = PL_KIND_READ };
	struct pl_peer *peer = subscriber->peer;
	struct pl_ring_cursors cursors;
	bool news = false;

	if (!peer || !peer->endpoint || !subscriber->control || !peer->ops->sync_try)
		return false;
	read.segment = (struct pl_segment){ subscriber->control, subscriber->memory.control, PL_RING_HEADER,
					    pl_check_offset(look), PL_RING_CURSORS };
	/* No other thread moves these under the engine's lock. */
	look->claimed = subscriber->read_claimed;
	look->published = subscriber->read_published;
	if (!peer->ops->sync_try(peer->endpoint, &read))
		return false;
	pl_lock_take(&subscriber->lock);
	if (subscriber->phase == PL_SUBSCRIBER_LIVE) {
		uint64_t known = subscriber->published;

		if (!accept_cursors(look, &cursors))
			pl_subscriber_fail_protocol(subscriber);
		news = subscriber->phase != PL_SUBSCRIBER_LIVE || subscriber->published > known;
	}
	pl_lock_release(&subscriber->lock);
	return news;
}

void pl_checks_cancel(struct pl_subscriber *subscriber)
{
	for (unsigned i = 0; i < PL_CHECKS_MAX; i++)
		if (subscriber->checks[i].operation)
			pl_operation_stop(subscriber->checks[i].operation, -ECANCELED, NULL);
}
