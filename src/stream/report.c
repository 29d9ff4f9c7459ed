/* SPDX-License-Identifier: BSD-2-Clause */
/* Reports of a subscriber to its publisher. */
#include "stream/publisher.h"
#include "stream/subscriber.h"

/* Announcements after which the subscriber answers. The publisher stops at PL_UNANSWERED_MAX. */
#define ANSWER_AFTER (PL_UNANSWERED_MAX / 2)

/*
 * Returns the first sequence that is still read from the ring, or used in it. Frames that are fetched beyond the queue keep their
 * slots, so that the publisher gets as far ahead of the program as the queue allows, and no further. A paused subscriber keeps only
 * slots that it still reads, or whose frames are in place.
 */
static uint64_t first_unread(const struct pl_subscriber *subscriber)
{
	unsigned count = 0;

	pl_list_for_each(at, &subscriber->window) {
		const struct pl_stream_frame *frame = pl_list_entry(at, struct pl_stream_frame, link);

		if (frame->state != PL_FRAME_READY || (!subscriber->paused && ++count > subscriber->queue))
			return pl_subscriber_first_placed(subscriber, frame->sequence);
	}
	return pl_subscriber_first_placed(subscriber, subscriber->accounts.next);
}

bool pl_subscriber_is_complete(const struct pl_subscriber *subscriber)
{
	return subscriber->state != PL_STREAM_LIVE && subscriber->accounts.next >= subscriber->published &&
	       subscriber->accounts.pending == 0;
}

/*
 * True if the publisher must learn of free slots. While reads are under way, their ends bring another look, so that one
 * report frees a quarter of the slots. So it does until the publisher asks, if that does: one of this release does, and one with a
 * quiet subscriber.
 */
static bool slots_due(const struct pl_subscriber *subscriber, uint64_t taken)
{
	uint64_t freed = taken - subscriber->reported_taken;
	bool quiet = pl_subscriber_is_quiet(subscriber);
	bool asked = subscriber->awaited || !(quiet || (subscriber->peer->asked_reports && !subscriber->in_place));
	bool waits = !asked || (!quiet && subscriber->reading > 0);

	return subscriber->blocks && freed && (!waits || freed >= pl_slots_of_report(subscriber));
}

/* True if a report cannot wait. `taken`: first sequence that must be held back. subscriber->lock is held. */
static bool report_is_due(const struct pl_subscriber *subscriber, uint64_t taken)
{
	if (subscriber->phase != PL_SUBSCRIBER_LIVE || subscriber->restarted)
		return false;
	if (!pl_subscriber_is_quiet(subscriber) && subscriber->arrived - subscriber->reported_arrived >= ANSWER_AFTER)
		return true;
	return slots_due(subscriber, taken) || (pl_subscriber_is_complete(subscriber) && !subscriber->reported_end) ||
	       subscriber->report_due;
}

/* Builds a report. subscriber->lock is held. */
static void build_report(struct pl_subscriber *subscriber, uint64_t taken, struct pl_stream_message *message)
{
	*message = (struct pl_stream_message){ .type = PL_STREAM_TAKEN, .number = subscriber->number };
	if (!pl_subscriber_is_quiet(subscriber))
		subscriber->reported_arrived = subscriber->arrived;
	message->taken.answered = subscriber->reported_arrived;
	/* The publisher asks again if these slots are not enough. */
	if (taken > subscriber->reported_taken && subscriber->in_place)
		subscriber->awaited = false;
	subscriber->released = 0;
	message->taken.taken = subscriber->reported_taken = taken;
	message->taken.accounts = subscriber->accounts;
	subscriber->reported_end = pl_subscriber_is_complete(subscriber);
	subscriber->report_due = false;
}

bool pl_subscriber_report(struct pl_subscriber *subscriber)
{
	struct pl_stream_message message; /* of some KiB, and most calls have nothing to report */
	struct pl_peer *peer;
	uint64_t taken;
	bool due;

	pl_lock_take(&subscriber->lock);
	peer = subscriber->peer;
	taken = PL_MAX(first_unread(subscriber), subscriber->reported_taken);
	due = peer && report_is_due(subscriber, taken);
	if (due)
		build_report(subscriber, taken, &message);
	pl_lock_release(&subscriber->lock);
	if (due)
		pl_stream_send(peer, &message);
	return due;
}

void pl_subscriber_unsubscribe(struct pl_subscriber *subscriber, struct pl_peer *peer)
{
	struct pl_stream_message message = { .type = PL_STREAM_UNSUBSCRIBE, .number = subscriber->number };
	struct pl_accounts *accounts = &message.taken.accounts;

	pl_lock_take(&subscriber->lock);
	/* The publisher waits for nothing after this message. */
	pl_subscriber_freeze(subscriber);
	*accounts = subscriber->accounts;
	/* Accounts from before an answer that did not come, or was not accepted, may be of another instance. */
	if (subscriber->phase == PL_SUBSCRIBER_ASKED)
		*accounts = (struct pl_accounts){ 0 };
	else if (subscriber->phase == PL_SUBSCRIBER_ANSWERED)
		*accounts = (struct pl_accounts){ .first = subscriber->answer->subscribed.first,
						  .next = subscriber->answer->subscribed.first };
	/* The accounts of an earlier instance do not concern this publisher. */
	else if (subscriber->restarted)
		*accounts = pl_subscriber_restart_accounts(subscriber);
	accounts->dropped += accounts->pending;
	accounts->pending = 0;
	message.taken.answered = subscriber->arrived;
	message.taken.taken = PL_MAX(accounts->next, subscriber->reported_taken);
	pl_lock_release(&subscriber->lock);
	pl_stream_send(peer, &message);
}
