/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pushes: the publisher writes frames into slots of a subscriber, and tells of each once its bytes are in their memory.
 *
 * The ring is the source of a write, and a write holds no slot of the ring back. The lap rule judges the write after its end:
 * if the slot was claimed meanwhile, the subscriber is not told of the frame, and the credit serves a later one.
 */
#include "stream/push.h"

#include "core/fastpath.h"

/* Most writes of a push at a time. */
#define WRITES_MOST 64u
/* Time for the UNSUBSCRIBE of a subscriber that has revoked its slots. */
#define UNSUBSCRIBE_TIME PL_NS_PER_S

static void push_pump(struct pl_push *push);

/* -- life --------------------------------------------------------------------------------------------------------- */

/* Frees the push if nothing uses it. */
static void push_put(struct pl_push *push)
{
	if (push->subscription || push->holds || push->writing || push->import)
		return;
	if (push->counts)
		push->peer->subscription_count--;
	pl_free(&push->context->allocator, push->credits.free);
	pl_free(&push->context->allocator, push->credits.owned);
	pl_free(&push->context->allocator, push->writes);
	pl_free(&push->context->allocator, push);
}

/* `ring`: slots of the publisher. More writes at a time than these would only be lapped. */
static struct pl_push *push_new(struct pl_context *context, uint32_t slots, uint32_t ring)
{
	struct pl_push *push = pl_zalloc(&context->allocator, sizeof(*push));
	uint32_t *free_slots;
	bool *owned;

	if (!push)
		return NULL;
	push->context = context;
	free_slots = pl_zalloc(&context->allocator, slots * sizeof(*free_slots));
	owned = pl_zalloc(&context->allocator, slots * sizeof(*owned));
	pl_push_credits_init(&push->credits, slots, free_slots, owned);
	push->write_limit = PL_MIN(PL_MIN(slots, ring), WRITES_MOST);
	push->writes = pl_zalloc(&context->allocator, push->write_limit * sizeof(*push->writes));
	if (!free_slots || !owned || !push->writes) {
		push_put(push);
		return NULL;
	}
	for (unsigned i = 0; i < push->write_limit; i++)
		push->writes[i].push = push;
	return push;
}

/* Tells the subscriber that it can free its slots, once no write into them is under way. */
static void push_answer(struct pl_push *push)
{
	if (!push->answers || push->writing)
		return;
	push->answers = false;
	pl_stream_send_closed(push->peer, push->number, push->closed);
}

struct pl_push *pl_push_detach(struct pl_subscription *subscription)
{
	struct pl_push *push = subscription->push;

	if (!push)
		return NULL;
	push->holds++;
	push->closed = subscription->closed;
	subscription->push = NULL;
	push->subscription = NULL;
	pl_remote_release(push->remote);
	push->remote = NULL;
	return push;
}

void pl_push_end(struct pl_push *push, bool stop, bool answer)
{
	if (!push)
		return;
	/* The peer cannot subscribe more often by ending subscriptions whose writes go on. */
	push->counts = true;
	push->peer->subscription_count++;
	push->answers = answer;
	for (unsigned i = 0; i < push->write_limit && stop; i++)
		if (push->writes[i].operation)
			pl_operation_stop(push->writes[i].operation, -ECANCELED, NULL);
	push_answer(push);
	push->holds--;
	push_put(push);
}

/* -- SLOTS, CREDIT ------------------------------------------------------------------------------------------------- */

static void slots_imported(struct pl_operation *operation)
{
	struct pl_push *push = (struct pl_push *)(uintptr_t)operation->attributes.user_data;
	struct pl_remote *remote = operation->completion.remote;
	int status = operation->completion.status;

	push->import = NULL;
	pl_operation_free(operation);
	/* A path to memory that may only be read would fault. */
	if (status == 0 && (remote->length / push->stride < push->credits.slots || !(remote->rights & PL_ACCESS_WRITE)))
		status = -EPROTO;
	if (status == 0)
		remote->internal = true;
	if (push->subscription && status == 0)
		push->remote = remote;
	else
		pl_remote_release(remote);
	push->status = status < 0 ? -EPROTO : 0;
	push_pump(push);
}

int pl_push_slots(struct pl_peer *peer, const struct pl_stream_message *message)
{
	struct pl_subscription *subscription = pl_subscription_find(peer, message->number);
	struct pl_push *push;
	int status;

	/* The publisher may have been closed before the message arrived. */
	if (!subscription)
		return 0;
	if (!subscription->pushed || subscription->prepared || subscription->push ||
	    message->slots.stride != subscription->publisher->header.geometry.slot_stride)
		return -EPROTO;
	push = push_new(peer->context, message->slots.count, subscription->publisher->header.geometry.slots);
	if (!push) {
		pl_subscription_dismiss(subscription);
		return 0;
	}
	push->peer = peer;
	push->publisher = subscription->publisher;
	push->number = subscription->number;
	push->stride = message->slots.stride;
	push->gpu = message->slots.gpu;
	push->next = push->told_next = subscription->first;
	push->subscription = subscription;
	subscription->push = push;
	push->import = pl_import_begin(peer, message->slots.token, (uint64_t)(uintptr_t)push, slots_imported, &status);
	if (!push->import)
		pl_subscription_dismiss(subscription);
	return 0;
}

int pl_push_credit(struct pl_peer *peer, const struct pl_stream_message *message)
{
	struct pl_subscription *subscription = pl_subscription_find(peer, message->number);
	int rc;

	if (!subscription)
		return 0;
	if (!subscription->push)
		return -EPROTO;
	rc = pl_push_report(subscription, &message->credit.accounts);
	subscription->push->paused = message->credit.paused;
	for (uint32_t i = 0; rc == 0 && i < message->credit.count; i++)
		rc = pl_push_credit_add(&subscription->push->credits, message->credit.slots[i]);
	if (rc == 0)
		push_pump(subscription->push);
	return rc;
}

/* -- fates: publisher->lock is held --------------------------------------------------------------------------------- */

static void fates_add(struct pl_push_fates *to, const struct pl_push_fates *fates)
{
	to->lapped += fates->lapped;
	to->aborted += fates->aborted;
	to->unwanted += fates->unwanted;
	to->rejected += fates->rejected;
}

/* Gives all sequences before `end` their fates: the ring does not hold them any more. */
static void push_lap(struct pl_push *push, uint64_t end)
{
	const struct pl_subscription *subscription = push->subscription;
	uint64_t base = subscription->base;
	uint64_t wanted = push->paused ? 0
				       : pl_stream_wanted(end - base, subscription->every) -
						 pl_stream_wanted(push->next - base, subscription->every);
	uint64_t skipped = PL_MIN(subscription->skipped - push->skipped, wanted);

	push->skipped = subscription->skipped;
	push->waiting.aborted += skipped;
	push->waiting.lapped += wanted - skipped;
	push->waiting.unwanted += end - push->next - wanted;
	push->next = end;
}

/* Begins the write of the next frame, or rejects the frame. Returns false if the frame must wait. */
static bool push_begin_write(struct pl_push *push, uint64_t length, struct pl_push_write **result)
{
	const struct pl_subscription *subscription = push->subscription;
	struct pl_push_write *write;
	uint32_t slot;

	if (push->write_count == push->write_limit)
		return false;
	if (!pl_push_credit_take(&push->credits, &slot)) {
		if (!subscription->drop_newest || push->next < subscription->history_end)
			return false;
		push->waiting.rejected++;
		push->next++;
		return true;
	}
	write = &push->writes[(push->first_write + push->write_count++) % push->write_limit];
	write->sequence = push->next++;
	write->length = length;
	write->slot = slot;
	write->ended = false;
	write->before = push->waiting;
	push->waiting = (struct pl_push_fates){ 0 };
	*result = write;
	return true;
}

/* Gives the next sequence a fate, or a write. Returns false if it must wait. */
static bool push_admit(struct pl_push *push, struct pl_push_write **write)
{
	const struct pl_subscription *subscription = push->subscription;
	const struct pl_publisher *publisher = subscription->publisher;
	const struct pl_ring_geometry *geometry = &publisher->header.geometry;
	uint64_t oldest = pl_push_oldest(push);
	struct pl_ring_descriptor descriptor;

	if (push->next >= publisher->published || publisher->closing)
		return false;
	if (push->laps.left && push->write_count)
		return false;
	if (push->next < oldest) {
		push_lap(push, oldest);
		return true;
	}
	if (push->paused || (push->next - subscription->base) % subscription->every) {
		push->waiting.unwanted++;
		push->next++;
		return true;
	}
	/* The publisher has written it, so it is right. */
	pl_ring_descriptor_decode(publisher->ring.control + pl_ring_descriptor_offset(geometry, push->next), geometry,
				  push->next, &descriptor);
	if (descriptor.flags & PL_DESCRIPTOR_ABORTED) {
		/* PUSHED has no count of lost frames. Lapped ones are lost, too. */
		*(pl_ring_descriptor_lost(&descriptor) ? &push->waiting.lapped : &push->waiting.aborted) += 1;
		push->next++;
		return true;
	}
	return push_begin_write(push, descriptor.length, write);
}

/* Ends the oldest write. Returns the bytes of the frame's descriptor at `buffer`; 0 if the frame was lapped meanwhile. */
static size_t push_end_write(struct pl_push *push, uint8_t *buffer, uint32_t *slot)
{
	const struct pl_publisher *publisher = push->subscription->publisher;
	const struct pl_ring_geometry *geometry = &publisher->header.geometry;
	const struct pl_push_write *write = &push->writes[push->first_write];
	const uint8_t *at = publisher->ring.control + pl_ring_descriptor_offset(geometry, write->sequence);
	size_t bytes;
	bool whole;

	push->first_write = (push->first_write + 1) % push->write_limit;
	push->write_count--;
	fates_add(&push->told, &write->before);
	push->told_next = write->sequence + 1;
	whole = pl_ring_whole(publisher->claimed, write->sequence, geometry->slots);
	pl_laps_count(&push->laps, whole, PL_MIN(push->write_limit, geometry->slots / 2));
	if (!whole) {
		push->told.lapped++;
		pl_push_credit_free(&push->credits, write->slot);
		return 0;
	}
	bytes = pl_stream_frame_bytes(at, geometry->descriptor_stride);
	memcpy(buffer, at, bytes);
	*slot = write->slot;
	pl_push_credit_give(&push->credits, write->slot);
	return bytes;
}

/* Frees slots of the ring that no write needs any more. Returns true if a loan may have waited for them. */
static bool push_move_taken(struct pl_push *push)
{
	struct pl_subscription *subscription = push->subscription;
	uint64_t taken = push->write_count ? push->writes[push->first_write].sequence : push->next;
	bool moved = taken > subscription->taken && subscription->blocks;

	subscription->taken = taken;
	if (moved)
		pl_publisher_set_gate(subscription->publisher);
	return moved;
}

/* -- messages -------------------------------------------------------------------------------------------------------- */

/* Fills a message with all that is told at present. publisher->lock is held. */
static void push_describe(const struct pl_push *push, struct pl_stream_message *message)
{
	const struct pl_subscription *subscription = push->subscription;
	const struct pl_publisher *publisher = subscription->publisher;

	message->number = push->number;
	message->pushed.next = push->told_next;
	message->pushed.published = publisher->published;
	/* The end is told once all sequences have a fate. */
	message->pushed.state = push->told_next >= publisher->published ? publisher->state : PL_STREAM_LIVE;
	message->pushed.demoted = subscription->demoted;
	message->pushed.fates = push->told;
}

void pl_push_tell_last(struct pl_subscription *subscription)
{
	struct pl_stream_message message = { .type = PL_STREAM_PUSHED };
	struct pl_publisher *publisher = subscription->publisher;
	bool news;

	pl_lock_take(&publisher->lock);
	news = subscription->told < publisher->published;
	push_describe(subscription->push, &message);
	if (news)
		subscription->told = subscription->announced = publisher->published;
	pl_lock_release(&publisher->lock);
	if (news)
		pl_stream_send(subscription->peer, &message);
}

/* Builds a message if there is news. `buffer` receives the frame's descriptor. Takes publisher->lock. */
static bool push_build(struct pl_push *push, struct pl_stream_message *message, uint8_t *buffer)
{
	struct pl_subscription *subscription = push->subscription;
	struct pl_publisher *publisher = subscription->publisher;
	bool news;

	pl_lock_take(&publisher->lock);
	while (push->write_count && push->writes[push->first_write].ended && !message->pushed.frame) {
		message->pushed.frame_length = push_end_write(push, buffer, &message->pushed.slot);
		message->pushed.frame = message->pushed.frame_length ? buffer : NULL;
	}
	if (push->write_count == 0 && !message->pushed.frame) {
		fates_add(&push->told, &push->waiting);
		push->waiting = (struct pl_push_fates){ 0 };
		push->told_next = push->next;
	}
	push_describe(push, message);
	news = push->told_next > subscription->announced || message->pushed.state != subscription->told_state ||
	       message->pushed.demoted != subscription->told_demoted;
	/* Before the message leaves: its answer may arrive at once. */
	if (news) {
		subscription->announced = push->told_next;
		subscription->told = publisher->published;
	}
	pl_lock_release(&publisher->lock);
	subscription->told_state = message->pushed.state;
	subscription->told_demoted = message->pushed.demoted;
	return news;
}

/* -- writes ----------------------------------------------------------------------------------------------------------- */

/* The publisher may be freed then, unless it has the subscription still. */
static void count_write_end(struct pl_publisher *publisher)
{
	pl_lock_take(&publisher->lock);
	if (--publisher->writing == 0 && publisher->closing)
		pl_turn_next(publisher->context, &publisher->turn);
	pl_lock_release(&publisher->lock);
}

static void push_write_finished(struct pl_operation *operation)
{
	struct pl_push_write *write = (struct pl_push_write *)(uintptr_t)operation->attributes.user_data;
	struct pl_push *push = write->push;

	if (operation->completion.status < 0 && push->status == 0)
		push->status = operation->completion.status;
	write->operation = NULL;
	write->ended = true;
	push->writing--;
	pl_operation_free(operation);
	push->holds++;
	push_answer(push);
	push->holds--;
	count_write_end(push->publisher);
	push_pump(push);
}

static void push_post(struct pl_push *push, struct pl_push_write *write)
{
	const struct pl_publisher *publisher = push->subscription->publisher;
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_peer *peer = push->subscription->peer;
	const struct pl_segment segment = { push->remote, publisher->payload, write->slot * push->stride,
					    pl_ring_slot_offset(&publisher->header.geometry, write->sequence),
					    pl_ring_bytes_to_move(push->gpu, write->length) };
	struct pl_operation *operation;

	attributes.user_data = (uint64_t)(uintptr_t)write;
	attributes.visible = push->gpu ? PL_VISIBLE_GPU_VISIBLE : PL_VISIBLE_PLACED;
	operation = write->length ? pl_operation_new(peer->context, peer, PL_KIND_WRITE, &attributes, NULL) : NULL;
	if (!operation) {
		if (write->length)
			push->status = -ENOMEM;
		write->ended = true;
		return;
	}
	pl_fast_segment(operation, &segment);
	operation->internal = true;
	operation->finished = push_write_finished;
	operation->completion.posted = pl_engine_now(peer->home);
	operation->deadline = pl_deadline(operation->completion.posted, operation->attributes.timeout);
	write->operation = operation;
	push->writing++;
	pl_lock_take(&push->publisher->lock);
	push->publisher->writing++;
	pl_lock_release(&push->publisher->lock);
	if (pl_operation_begin(operation))
		pl_peer_start(peer, operation);
}

/* -- steps ------------------------------------------------------------------------------------------------------------ */

/* Does one step. Returns false if nothing can be done now. */
static bool push_step(struct pl_push *push)
{
	struct pl_stream_message message = { .type = PL_STREAM_PUSHED };
	struct pl_subscription *subscription = push->subscription;
	struct pl_publisher *publisher = subscription->publisher;
	struct pl_push_write *write = NULL;
	uint8_t buffer[PL_STREAM_ANNOUNCE_MAX];
	bool admitted, moved;

	if (push->status < 0 || pl_subscription_must_wait(subscription))
		return false;
	pl_lock_take(&publisher->lock);
	admitted = push->remote && push_admit(push, &write);
	moved = push_move_taken(push);
	pl_lock_release(&publisher->lock);
	if (moved)
		pl_turn_next(publisher->context, &publisher->turn);
	if (write)
		push_post(push, write);
	if (admitted)
		return true;
	if (!push_build(push, &message, buffer))
		return false;
	/* Unlike an announcement, the message cannot be left out. */
	if (pl_channel_left_out(pl_stream_send(subscription->peer, &message)) && push->status == 0)
		push->status = -ENOMEM;
	return true;
}

/* The subscriber has revoked its slots. UNSUBSCRIBE with its last accounts may be under way; without it the subscription ends. */
static void push_await_unsubscribe(struct pl_push *push)
{
	struct pl_subscription *subscription = push->subscription;

	if (pl_list_empty(&subscription->end_timer.link))
		pl_timer_set(push->peer->home, &subscription->end_timer, pl_now() + UNSUBSCRIBE_TIME);
}

/* Does what can be done now. Frees the push if nothing uses it any more. */
static void push_pump(struct pl_push *push)
{
	push->pump_again = true;
	if (push->holds)
		return;
	push->holds++;
	while (push->pump_again) {
		push->pump_again = false;
		while (push->subscription && push_step(push))
			;
	}
	push->holds--;
	if (push->subscription && push->status == -EACCES)
		push_await_unsubscribe(push);
	else if (push->subscription && push->status < 0 && push->status != -ECONNRESET)
		pl_subscription_dismiss(push->subscription);
	else /* if the connection is being lost, the loss follows */
		push_put(push);
}

void pl_push_continue(struct pl_subscription *subscription)
{
	if (subscription->push)
		push_pump(subscription->push);
}
