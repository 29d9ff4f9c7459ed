/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames that the publisher writes into slots of the subscriber. A slot is the memory of one frame. The subscriber gives a
 * credit for a free slot, and has the slot back with PUSHED. It trusts no value of the publisher.
 */
#include "core/context.h"
#include "core/grant.h"
#include "stream/publisher.h"
#include "stream/subscriber.h"

/* Longest wait for the end of a publisher's writes. Then its key is revoked. */
#define LEAVE_TIME PL_NS_PER_S
/* Unsent bytes of a control channel from which on it gets no credits, and the pause before another look. */
#define CREDIT_ROOM (32u << 10)
#define CREDIT_PAUSE (5 * PL_NS_PER_MS)

/* -- PUSHED: subscriber->lock is held ------------------------------------------------------------------------------ */

static void fail_pushed(struct pl_subscriber *subscriber, const char *id, const char *fact)
{
	pl_subscriber_fail(subscriber, -EPROTO, id, fact);
}

/* Returns `now` - `before`; more than any span of sequences if a count went back. */
static uint64_t fate_growth(uint64_t before, uint64_t now)
{
	return now >= before ? now - before : UINT64_MAX;
}

/* Adds what grew to an account. Returns false if that is more than is left of the span of sequences. */
static bool count_fate(uint64_t before, uint64_t now, uint64_t *left, uint64_t *account)
{
	uint64_t growth = fate_growth(before, now);

	if (growth > *left)
		return false;
	*left -= growth;
	*account += growth;
	return true;
}

/* Counts the fates of all sequences below `next`. Returns false if they have not one fate each, or if nothing is new. */
static bool count_pushed(struct pl_subscriber *subscriber, const struct pl_stream_message *message)
{
	const struct pl_push_fates *before = &subscriber->pushed_fates, *now = &message->pushed.fates;
	struct pl_accounts accounts = subscriber->accounts;
	uint64_t left = message->pushed.next - accounts.next, frames = message->pushed.frame != NULL;
	bool news = left || message->pushed.published > subscriber->published ||
		    message->pushed.state != subscriber->announced_state ||
		    (message->pushed.demoted && !subscriber->demoted);

	if (message->pushed.next < accounts.next ||
	    message->pushed.next > PL_MAX(message->pushed.published, accounts.next) ||
	    message->pushed.published > PL_RING_SEQUENCE_MAX || message->pushed.published < subscriber->published ||
	    message->pushed.state < subscriber->announced_state || !news ||
	    !count_fate(before->lapped, now->lapped, &left, &accounts.lapped) ||
	    !count_fate(before->aborted, now->aborted, &left, &accounts.aborted) ||
	    !count_fate(before->unwanted, now->unwanted, &left, &accounts.unwanted) ||
	    !count_fate(before->rejected, now->rejected, &left, &accounts.rejected) || left != frames)
		return false;
	accounts.next = message->pushed.next;
	/* The caller gives the frame its fate. */
	accounts.pending += frames;
	subscriber->absent +=
		accounts.aborted - subscriber->accounts.aborted + accounts.unwanted - subscriber->accounts.unwanted;
	subscriber->accounts = accounts;
	subscriber->pushed_fates = *now;
	subscriber->published = message->pushed.published;
	subscriber->claimed = PL_MAX(subscriber->claimed, subscriber->published);
	subscriber->state = subscriber->announced_state = message->pushed.state;
	return true;
}

/* Returns the frame of the slot that was written, or NULL if the publisher has no credit for it. */
static struct pl_stream_frame *frame_of_slot(struct pl_subscriber *subscriber, uint32_t slot)
{
	struct pl_stream_frame *frame = slot < subscriber->memory.count ? &subscriber->memory.frames[slot] : NULL;

	return frame && frame->state == PL_FRAME_CREDITED ? frame : NULL;
}

/* Copies the descriptor of frame `next` - 1. Returns false if it cannot be. */
static bool describe_pushed(struct pl_subscriber *subscriber, struct pl_stream_frame *frame,
			    const struct pl_stream_message *message)
{
	uint8_t *to = (uint8_t *)pl_region_address(subscriber->memory.control) + frame->descriptor_offset;

	if (message->pushed.frame_length > subscriber->geometry.descriptor_stride)
		return false;
	memcpy(to, message->pushed.frame, message->pushed.frame_length);
	return pl_ring_descriptor_decode(to, &subscriber->geometry, message->pushed.next - 1, &frame->descriptor) ==
		       0 &&
	       !(frame->descriptor.flags & PL_DESCRIPTOR_ABORTED);
}

/* Puts a frame that was written into the window. */
static void queue_pushed(struct pl_subscriber *subscriber, struct pl_stream_frame *frame)
{
	frame->sequence = subscriber->accounts.next - 1;
	frame->described = true;
	frame->stale = false;
	frame->lost_before = 0;
	frame->absent_before = subscriber->absent;
	subscriber->absent = 0;
	frame->stream_layout = subscriber->entry.layout;
	frame->stream_layout_bytes = subscriber->layout_bytes;
	frame->state = PL_FRAME_READY;
	subscriber->credited--;
	subscriber->window_count++;
	pl_list_append(&subscriber->window, &frame->link);
	if (subscriber->paused) {
		frame->absent_before++;
		pl_subscriber_free_frame(subscriber, frame);
		subscriber->accounts.unwanted++;
	} else if (subscriber->window_count > subscriber->queue) {
		/* Only those that do not block give so many credits. */
		pl_subscriber_drop_oldest(subscriber);
	}
}

static void take_pushed(struct pl_subscriber *subscriber, const struct pl_stream_message *message)
{
	struct pl_stream_frame *frame = NULL;

	if (message->pushed.frame) {
		frame = frame_of_slot(subscriber, message->pushed.slot);
		if (!frame) {
			fail_pushed(subscriber, "PUSH-CREDIT",
				    "the publisher wrote a frame without a credit for its slot");
			return;
		}
		if (!describe_pushed(subscriber, frame, message)) {
			fail_pushed(subscriber, "PUSH-FRAME",
				    "the publisher described a frame by values that cannot be");
			return;
		}
	}
	if (!count_pushed(subscriber, message)) {
		fail_pushed(subscriber, "PUSH-SEQUENCE",
			    "the publisher's sequences went back, or have not one fate each");
		return;
	}
	if (message->pushed.demoted && !subscriber->demoted) {
		subscriber->blocks = false;
		subscriber->demoted = true;
	}
	if (frame)
		queue_pushed(subscriber, frame);
	pl_subscriber_wake(subscriber);
}

int pl_subscriber_pushed(struct pl_peer *peer, const struct pl_stream_message *message)
{
	struct pl_subscriber *subscriber = pl_subscriber_find(peer, message->number);

	if (!subscriber)
		return 0;
	if (!subscriber->shared)
		return -EPROTO;
	pl_lock_take(&subscriber->lock);
	/* The accounts that the publisher has go as far as UNSUBSCRIBE. */
	if (subscriber->phase == PL_SUBSCRIBER_LIVE && !subscriber->leaving)
		take_pushed(subscriber, message);
	pl_lock_release(&subscriber->lock);
	pl_subscriber_pump(subscriber);
	return 0;
}

/* -- SLOTS, CREDIT ------------------------------------------------------------------------------------------------ */

/* Sends a message that cannot be left out. */
static void send_kept(struct pl_subscriber *subscriber, struct pl_peer *peer, const struct pl_stream_message *message)
{
	if (!pl_channel_left_out(pl_stream_send(peer, message)))
		return;
	pl_lock_take(&subscriber->lock);
	pl_subscriber_fail(subscriber, -ENOMEM, "NO-MEMORY", "no memory for a message to the publisher");
	pl_lock_release(&subscriber->lock);
}

/* Gives the publisher a key of the slots. */
static void share_slots(struct pl_subscriber *subscriber, struct pl_peer *peer)
{
	struct pl_stream_message message = { .type = PL_STREAM_SLOTS, .number = subscriber->number };
	struct pl_region *slots = subscriber->memory.payloads;

	if (pl_grant_bind(slots, PL_ACCESS_WRITE, peer, NULL, subscriber->token) < 0) {
		pl_lock_take(&subscriber->lock);
		pl_subscriber_fail(subscriber, -ENOMEM, "NO-MEMORY", "no memory for the key of the slots");
		pl_lock_release(&subscriber->lock);
		return;
	}
	subscriber->shared = true;
	subscriber->told_paused = false;
	subscriber->pushed_fates = (struct pl_push_fates){ 0 };
	subscriber->maps_slots = !strcmp(peer->ops->name, "local");
	message.slots.count = subscriber->memory.count;
	message.slots.stride = subscriber->geometry.slot_stride;
	message.slots.gpu = pl_memory_staged(&slots->memory);
	memcpy(message.slots.token, subscriber->token, PL_TOKEN_SIZE);
	send_kept(subscriber, peer, &message);
}

/* True if the publisher may have a credit for one more slot. */
static bool may_credit(const struct pl_subscriber *subscriber)
{
	if (pl_list_empty(&subscriber->spare))
		return false;
	return pl_subscriber_drops_oldest(subscriber) ||
	       subscriber->window_count + subscriber->credited < subscriber->queue;
}

/* Builds CREDIT. Returns false without news. subscriber->lock is held. */
static bool build_credit(struct pl_subscriber *subscriber, struct pl_stream_message *message)
{
	bool complete = pl_subscriber_is_complete(subscriber);

	message->number = subscriber->number;
	while (message->credit.count < PL_STREAM_CREDIT_MAX && may_credit(subscriber)) {
		struct pl_stream_frame *frame = pl_list_first(&subscriber->spare, struct pl_stream_frame, link);

		pl_list_remove(&frame->link);
		frame->state = PL_FRAME_CREDITED;
		subscriber->credited++;
		message->credit.slots[message->credit.count++] = (uint32_t)(frame - subscriber->memory.frames);
	}
	message->credit.accounts = subscriber->accounts;
	message->credit.paused = subscriber->paused;
	if (message->credit.count == 0 && (!complete || subscriber->reported_end) &&
	    subscriber->paused == subscriber->told_paused)
		return false;
	subscriber->told_paused = subscriber->paused;
	subscriber->reported_end = complete;
	return true;
}

static void look_for_room(struct pl_timer *timer)
{
	struct pl_subscriber *subscriber = pl_container_of(timer, struct pl_subscriber, credit_timer);

	if (pl_subscriber_at_home(subscriber))
		pl_subscriber_pump(subscriber);
}

void pl_pushed_init(struct pl_subscriber *subscriber)
{
	pl_timer_init(&subscriber->credit_timer, look_for_room);
}

/* True if the control channel is so full that a credit would be lost. Looks again later then. Home. */
static bool must_wait_for_room(struct pl_subscriber *subscriber, struct pl_peer *peer)
{
	if (pl_channel_unsent(&peer->channel) <= CREDIT_ROOM)
		return false;
	if (pl_list_empty(&subscriber->credit_timer.link))
		pl_timer_set(peer->home, &subscriber->credit_timer, pl_now() + CREDIT_PAUSE);
	return true;
}

bool pl_pushed_step(struct pl_subscriber *subscriber)
{
	struct pl_stream_message message = { .type = PL_STREAM_CREDIT };
	struct pl_peer *peer;
	bool due;

	pl_lock_take(&subscriber->lock);
	peer = subscriber->peer;
	due = peer && subscriber->phase == PL_SUBSCRIBER_LIVE && !subscriber->restarted && !subscriber->leaving &&
	      !must_wait_for_room(subscriber, peer) && (!subscriber->shared || build_credit(subscriber, &message));
	pl_lock_release(&subscriber->lock);
	if (!due)
		return false;
	if (subscriber->shared)
		send_kept(subscriber, peer, &message);
	else
		share_slots(subscriber, peer);
	return true;
}

/* -- the end -------------------------------------------------------------------------------------------------------- */

void pl_pushed_begin_leave(struct pl_subscriber *subscriber, struct pl_engine *engine)
{
	struct pl_peer *peer;

	pl_engine_lock(engine);
	peer = subscriber->peer;
	if (peer && subscriber->shared && !subscriber->leaving) {
		pl_subscriber_unsubscribe(subscriber, peer);
		/* All subscriptions of the peer that leave together have 1 s. */
		if (!peer->leave_end)
			peer->leave_end = pl_now() + LEAVE_TIME;
		pl_lock_take(&subscriber->lock);
		subscriber->leaving = true;
		subscriber->leave_end = peer->leave_end;
		pl_lock_release(&subscriber->lock);
	}
	pl_engine_unlock(engine);
}

void pl_pushed_unsubscribe(struct pl_subscriber *subscriber, struct pl_engine *engine)
{
	bool waits;

	pl_pushed_begin_leave(subscriber, engine);
	do {
		unsigned seen = pl_turn_read(&subscriber->turn);
		uint64_t deadline;

		pl_lock_take(&subscriber->lock);
		waits = subscriber->peer && subscriber->leaving;
		deadline = subscriber->leave_end;
		pl_lock_release(&subscriber->lock);
		waits = waits && pl_turn_wait(subscriber->context, &subscriber->turn, seen, deadline);
	} while (waits);
}

void pl_pushed_revoke(struct pl_subscriber *subscriber)
{
	if (subscriber->shared)
		pl_grant_end(subscriber->context, subscriber->token);
	subscriber->shared = false;
}

void pl_pushed_recall(struct pl_subscriber *subscriber)
{
	if (!subscriber->push)
		return;
	/* Afterwards neither an engine nor the publisher writes for the revoked key. */
	pl_context_barrier(subscriber->context);
	if (subscriber->memory.payloads)
		pl_region_await_ended(subscriber->memory.payloads);
	pl_lock_take(&subscriber->lock);
	subscriber->unclean |= subscriber->credited && subscriber->maps_slots && !subscriber->written;
	for (unsigned i = 0; i < subscriber->memory.count; i++) {
		struct pl_stream_frame *frame = &subscriber->memory.frames[i];

		if (frame->state != PL_FRAME_CREDITED)
			continue;
		frame->state = PL_FRAME_FREE;
		pl_list_append(&subscriber->spare, &frame->link);
	}
	subscriber->credited = 0;
	subscriber->leaving = subscriber->written = false;
	pl_lock_release(&subscriber->lock);
}
