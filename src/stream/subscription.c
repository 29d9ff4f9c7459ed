/* SPDX-License-Identifier: BSD-2-Clause */
/* Subscriptions at the publisher's end. All functions run under the lock of the home engine of the subscription's peer. */
#include "stream/push.h"

#include <stdio.h>

/* SUBSCRIBEs of a connection: this many at once, and then one in this time, in nanoseconds. */
#define SUBSCRIBES_MAX 1024u
#define SUBSCRIBE_INTERVAL PL_NS_PER_MS

struct pl_subscription *pl_subscription_find(struct pl_peer *peer, uint32_t number)
{
	pl_list_for_each(at, &peer->subscriptions) {
		struct pl_subscription *subscription = pl_list_entry(at, struct pl_subscription, peer_link);

		if (subscription->number == number)
			return subscription;
	}
	return NULL;
}

/* -- SUBSCRIBE -------------------------------------------------------------------------------------------------- */

/* True if the subscriber had frames of this instance before. */
static bool continues_instance(const struct pl_publisher *publisher, const struct pl_stream_message *message)
{
	return !memcmp(message->subscribe.instance, publisher->header.instance, sizeof(message->subscribe.instance));
}

/* Returns the first sequence that the subscriber gets. publisher->lock is held. */
static uint64_t first_sequence(const struct pl_publisher *publisher, const struct pl_stream_message *message)
{
	static const uint8_t any[16];
	uint64_t oldest = pl_publisher_oldest(publisher);
	uint64_t published = publisher->published, from = message->subscribe.from;

	/* A subscriber of an earlier instance continues with all that there is. */
	if (memcmp(message->subscribe.instance, any, sizeof(any)) && !continues_instance(publisher, message))
		return PL_MIN(oldest, published);
	switch (message->subscribe.start) {
	case PL_START_LATEST:
		return published > oldest ? published - 1 : published;
	case PL_START_HISTORY:
		return PL_MIN(PL_MAX(published - PL_MIN(from, published), oldest), published);
	case PL_START_SEQUENCE:
		return PL_MAX(from, PL_MIN(oldest, published));
	default:
		return published;
	}
}

static unsigned count_places_of_peer(const struct pl_list *subscriptions, const struct pl_peer *peer)
{
	unsigned count = 0;

	pl_list_for_each(at, subscriptions)
		count += pl_list_entry(at, struct pl_subscription, link)->peer == peer;
	return count;
}

/* True if the peer has its most subscriptions: a quarter of the publisher's are for others. publisher->lock is held. */
static bool peer_has_its_places(const struct pl_publisher *publisher, const struct pl_peer *peer)
{
	return count_places_of_peer(&publisher->subscriptions, peer) +
		       count_places_of_peer(&publisher->prepared, peer) >=
	       publisher->subscriber_limit - publisher->subscriber_limit / 4;
}

/* Returns the reason for which the publisher has no place for the subscription. publisher->lock is held. */
static enum pl_subscribe_status refusal_of_place(const struct pl_publisher *publisher, const struct pl_peer *peer)
{
	if (publisher->subscription_count + publisher->prepared_count >= publisher->subscriber_limit)
		return PL_SUBSCRIBE_FULL;
	return peer_has_its_places(publisher, peer) ? PL_SUBSCRIBE_PLACES : PL_SUBSCRIBE_OK;
}

/* Returns the reason for which the subscription cannot begin. publisher->lock is held. */
static enum pl_subscribe_status refusal_to_begin(const struct pl_publisher *publisher,
						 const struct pl_stream_message *message, uint64_t first)
{
	if (message->subscribe.overflow == PL_OVERFLOW_BLOCK && !publisher->allow_block)
		return PL_SUBSCRIBE_NO_BLOCK;
	if (publisher->state != PL_STREAM_LIVE && first >= publisher->published)
		return PL_SUBSCRIBE_ENDED;
	return PL_SUBSCRIBE_OK;
}

/* Begins the subscription: its publisher holds slots back from now on if the subscriber blocks. publisher->lock is held. */
static void begin_subscription(struct pl_subscription *subscription, const struct pl_stream_message *message,
			       uint64_t first)
{
	struct pl_publisher *publisher = subscription->publisher;

	subscription->first = subscription->taken = first;
	subscription->history_end = publisher->published;
	subscription->told = subscription->announced = first;
	subscription->told_state = PL_STREAM_LIVE;
	subscription->accounts.first = subscription->accounts.next = first;
	subscription->every = message->subscribe.every;
	subscription->base = continues_instance(publisher, message) ? PL_MIN(message->subscribe.base, first) : first;
	subscription->blocks = message->subscribe.overflow == PL_OVERFLOW_BLOCK;
	if (subscription->blocks && pl_publisher_has_demoted(publisher, subscription->peer)) {
		subscription->demoted = true;
		subscription->blocks = false;
	}
	subscription->drop_newest = message->subscribe.overflow == PL_OVERFLOW_DROP_NEWEST;
	subscription->quiet = subscription->in_place && subscription->peer->quiet_frames;
	/* A loan that waits may have to wait for this one. */
	subscription->awaited =
		publisher->blocked_since && (subscription->quiet || pl_subscription_must_ask(subscription));
	pl_list_append(&publisher->subscriptions, &subscription->link);
	publisher->subscription_count++;
	pl_publisher_set_gate(publisher);
}

/* Gives the subscription a place at its publisher, and begins it unless its subscriber prepares. */
static enum pl_subscribe_status admit_subscription(struct pl_subscription *subscription,
						   const struct pl_stream_message *message)
{
	struct pl_publisher *publisher = subscription->publisher;
	enum pl_subscribe_status status, place;
	uint64_t first;

	pl_lock_take(&publisher->lock);
	first = first_sequence(publisher, message);
	status = refusal_to_begin(publisher, message, first);
	place = refusal_of_place(publisher, subscription->peer);
	/* The end of the stream is the least of all reasons. */
	if (place != PL_SUBSCRIBE_OK && status != PL_SUBSCRIBE_NO_BLOCK)
		status = place;
	if (status == PL_SUBSCRIBE_OK) {
		subscription->in_place = message->subscribe.in_place;
		subscription->pushed = message->subscribe.push;
		subscription->prepared = message->subscribe.prepare;
		subscription->first = first;
		if (subscription->prepared) {
			pl_list_append(&publisher->prepared, &subscription->link);
			publisher->prepared_count++;
		} else {
			begin_subscription(subscription, message, first);
		}
	}
	pl_lock_release(&publisher->lock);
	return status;
}

/* Begins a subscription whose subscriber is ready. It has its place. */
static enum pl_subscribe_status begin_prepared(struct pl_subscription *subscription,
					       const struct pl_stream_message *message)
{
	struct pl_publisher *publisher = subscription->publisher;
	enum pl_subscribe_status status;
	uint64_t first;

	pl_lock_take(&publisher->lock);
	first = first_sequence(publisher, message);
	status = refusal_to_begin(publisher, message, first);
	if (status == PL_SUBSCRIBE_OK) {
		pl_list_remove(&subscription->link);
		publisher->prepared_count--;
		subscription->prepared = false;
		begin_subscription(subscription, message, first);
	}
	pl_lock_release(&publisher->lock);
	if (status != PL_SUBSCRIBE_OK)
		return status;
	pl_timer_clear(subscription->peer->home, &subscription->end_timer);
	atomic_store(&pl_announcer_of(publisher, subscription->peer->home)->silent, false);
	return status;
}

/* The subscriber has not begun, and its place is for others; or it has revoked its slots, and gets no frames. */
static void end_timer_expired(struct pl_timer *timer)
{
	struct pl_subscription *subscription = pl_container_of(timer, struct pl_subscription, end_timer);

	if (subscription->push)
		pl_peer_note_key(subscription->peer, PL_EVENT_REVOKED_THERE,
				 pl_remote_key_id(subscription->push->remote), 0,
				 "subscription: ended, as the subscriber revoked its slots");
	else
		pl_peer_note(subscription->peer, PL_EVENT_LIMIT_REACHED, "subscription: prepared for too long");
	pl_subscription_dismiss(subscription);
}

/* Makes the keys of the ring, which allow reads. `claimed` is the trailing word of the slots, for the lap rule. */
static int bind_ring(struct pl_subscription *subscription)
{
	const struct pl_publisher *publisher = subscription->publisher;
	const struct pl_peer *peer = subscription->peer;
	int rc = pl_grant_bind(publisher->control, PL_ACCESS_READ, peer, NULL, subscription->control);

	return rc < 0 ? rc
		      : pl_grant_bind(publisher->payload, PL_ACCESS_READ, peer, pl_ring_claimed(&publisher->ring),
				      subscription->payload);
}

static enum pl_subscribe_status create_subscription(struct pl_peer *peer, const struct pl_stream_message *message,
						    struct pl_subscription **result)
{
	struct pl_context *context = peer->context;
	struct pl_subscription *subscription;
	struct pl_publisher *publisher;
	struct pl_stream_pass pass = { 0 };
	enum pl_subscribe_status status;

	pthread_mutex_lock(&context->lock);
	publisher = pl_publisher_find(context, message->subscribe.name);
	pthread_mutex_unlock(&context->lock);
	/* A publisher that is being closed takes this engine's lock first. */
	if (!publisher)
		return PL_SUBSCRIBE_UNKNOWN;
	status = pl_stream_token_admit(peer, publisher, &message->token, &pass);
	if (status != PL_SUBSCRIBE_OK)
		return status;
	if (peer->subscription_count >= PL_SUBSCRIBERS_MAX)
		return PL_SUBSCRIBE_FULL;
	subscription = pl_zalloc(&context->allocator, sizeof(*subscription));
	if (!subscription)
		return PL_SUBSCRIBE_INTERNAL;
	subscription->publisher = publisher;
	subscription->peer = peer;
	subscription->number = message->number;
	subscription->pass = pass;
	snprintf(subscription->fingerprint, sizeof(subscription->fingerprint), "%s", pl_peer_fingerprint(peer));
	pl_timer_init(&subscription->end_timer, end_timer_expired);
	status = PL_SUBSCRIBE_INTERNAL;
	if (message->subscribe.push || bind_ring(subscription) == 0)
		status = admit_subscription(subscription, message);
	if (status != PL_SUBSCRIBE_OK) {
		pl_grant_revoke(context, NULL, subscription->control);
		pl_grant_revoke(context, NULL, subscription->payload);
		pl_free(&context->allocator, subscription);
		return status;
	}
	pl_list_append(&peer->subscriptions, &subscription->peer_link);
	peer->subscription_count++;
	pl_list_append(&pl_announcer_of(publisher, peer->home)->subscriptions, &subscription->home_link);
	atomic_store(&pl_announcer_of(publisher, peer->home)->silent, false);
	atomic_fetch_add(&pl_announcer_of(publisher, peer->home)->count, 1);
	pl_stream_token_watch(subscription);
	if (subscription->prepared)
		pl_timer_set(peer->home, &subscription->end_timer, pl_now() + PL_PREPARE_TIME);
	*result = subscription;
	return status;
}

/* Counts a SUBSCRIBE. Returns true if the connection sends too many. */
static bool subscribes_too_often(struct pl_peer *peer)
{
	uint64_t now = pl_now(), saved = PL_MIN(now, (uint64_t)SUBSCRIBES_MAX * SUBSCRIBE_INTERVAL);
	uint64_t until = PL_MAX(peer->subscribes_until, now - saved) + SUBSCRIBE_INTERVAL;

	if (until > now)
		return true;
	peer->subscribes_until = until;
	return false;
}

/* Answers SUBSCRIBE. `subscription`: NULL if it was refused. */
static void answer_subscribe(struct pl_peer *peer, struct pl_subscription *subscription,
			     struct pl_stream_message *answer)
{
	if (answer->subscribed.status >= PL_SUBSCRIBE_PLACES && !peer->stream_limits)
		answer->subscribed.status = PL_SUBSCRIBE_FULL;
	if (subscription) {
		pl_lock_take(&subscription->publisher->lock);
		pl_publisher_describe(subscription->publisher, &answer->subscribed.entry);
		answer->subscribed.skipped = subscription->skipped;
		if (subscription->pushed)
			subscription->told = subscription->publisher->published;
		pl_lock_release(&subscription->publisher->lock);
		answer->subscribed.first = subscription->first;
		memcpy(answer->subscribed.control, subscription->control, PL_TOKEN_SIZE);
		memcpy(answer->subscribed.payload, subscription->payload, PL_TOKEN_SIZE);
	}
	pl_stream_send(peer, answer);
	if (subscription && subscription->peer)
		pl_subscription_announce(subscription);
}

/* True if the message begins the subscription that its subscriber has prepared. */
static bool begins_prepared(const struct pl_subscription *subscription, const struct pl_stream_message *message)
{
	return subscription->prepared && !message->subscribe.prepare &&
	       subscription->pushed == message->subscribe.push &&
	       subscription->in_place == message->subscribe.in_place &&
	       !strcmp(subscription->publisher->header.name, message->subscribe.name);
}

int pl_subscription_open(struct pl_peer *peer, const struct pl_stream_message *message)
{
	struct pl_stream_message answer = { .type = PL_STREAM_SUBSCRIBED, .number = message->number };
	struct pl_subscription *subscription = pl_subscription_find(peer, message->number);

	if ((subscription && !begins_prepared(subscription, message)) ||
	    message->subscribe.from > PL_RING_SEQUENCE_MAX || message->subscribe.base > message->subscribe.from)
		return -EPROTO;
	if (subscription) {
		answer.subscribed.status = begin_prepared(subscription, message);
		if (answer.subscribed.status) {
			pl_subscription_end(subscription);
			subscription = NULL;
		}
	} else if (subscribes_too_often(peer)) {
		pl_peer_note_key(peer, PL_EVENT_LIMIT_REACHED, 0, -EBUSY,
				 "subscribe: too many subscriptions in a short time");
		answer.subscribed.status = PL_SUBSCRIBE_OFTEN;
	} else {
		answer.subscribed.status = create_subscription(peer, message, &subscription);
	}
	answer_subscribe(peer, subscription, &answer);
	return 0;
}

/* -- TAKEN, UNSUBSCRIBE ------------------------------------------------------------------------------------------ */

/* Takes over what the subscriber reports. Returns -EPROTO for a report that cannot be. */
static int subscription_report(struct pl_subscription *subscription, const struct pl_stream_message *message)
{
	struct pl_publisher *publisher = subscription->publisher;
	const struct pl_accounts *accounts = &message->taken.accounts;
	uint32_t answered = message->taken.answered - subscription->answered;
	uint64_t most;
	bool right;

	if (answered > subscription->sent - subscription->answered)
		return -EPROTO;
	pl_lock_take(&publisher->lock);
	/*
	 * `first` may lie before, if the subscriber has continued over this connection. The cursors can tell the subscriber
	 * more than the announcements did.
	 */
	most = PL_MAX(publisher->published, subscription->first);
	right = message->taken.taken >= subscription->taken && message->taken.taken <= most &&
		accounts->first <= subscription->first && accounts->next >= subscription->accounts.next &&
		accounts->next <= most && accounts->delivered >= subscription->accounts.delivered;
	if (right) {
		subscription->taken = message->taken.taken;
		subscription->accounts = *accounts;
		/* The subscriber has frozen its frames in place. */
		if (subscription->told_demoted && (int32_t)(message->taken.answered - subscription->demotion) >= 0)
			subscription->blocks = false;
		pl_publisher_set_gate(publisher);
		/* Asks again if the reported slots are not enough. */
		subscription->awaited |= subscription->quiet && publisher->blocked_since &&
					 pl_subscription_holds(subscription, publisher->awaited);
	}
	pl_lock_release(&publisher->lock);
	subscription->answered += answered;
	pl_turn_next(publisher->context, &publisher->turn);
	return right ? 0 : -EPROTO;
}

int pl_push_report(struct pl_subscription *subscription, const struct pl_accounts *accounts)
{
	struct pl_publisher *publisher = subscription->publisher;
	bool right;

	pl_lock_take(&publisher->lock);
	right = accounts->first <= subscription->first && accounts->next >= subscription->accounts.next &&
		accounts->next <= subscription->announced && accounts->delivered >= subscription->accounts.delivered;
	if (right)
		subscription->accounts = *accounts;
	pl_lock_release(&publisher->lock);
	pl_turn_next(publisher->context, &publisher->turn);
	return right ? 0 : -EPROTO;
}

int pl_subscription_taken(struct pl_peer *peer, const struct pl_stream_message *message)
{
	struct pl_subscription *subscription = pl_subscription_find(peer, message->number);
	int rc;

	/* The publisher may have been closed before the message arrived. */
	if (!subscription)
		return 0;
	if (subscription->pushed || subscription->prepared)
		return -EPROTO;
	rc = subscription_report(subscription, message);
	atomic_store(&pl_announcer_of(subscription->publisher, peer->home)->silent, false);
	if (rc == 0)
		pl_subscription_announce(subscription);
	return rc;
}

int pl_subscription_close(struct pl_peer *peer, const struct pl_stream_message *message)
{
	struct pl_subscription *subscription = pl_subscription_find(peer, message->number);
	int rc = 0;

	if (!subscription)
		return 0;
	/* A subscriber that gave up before it had an answer knows no sequences. */
	if (message->taken.accounts.next && !subscription->prepared)
		rc = subscription->pushed ? pl_push_report(subscription, &message->taken.accounts)
					  : subscription_report(subscription, message);
	pl_push_end(pl_push_detach(subscription), false, true);
	pl_subscription_end(subscription);
	return rc;
}

/* -- the end ----------------------------------------------------------------------------------------------------- */

/* Moves the subscription to those that have ended, and forgets the oldest of these. publisher->lock is held. */
static struct pl_subscription *keep_ended(struct pl_publisher *publisher, struct pl_subscription *subscription)
{
	struct pl_subscription *oldest = NULL;

	pl_list_remove(&subscription->link);
	publisher->subscription_count--;
	pl_list_append(&publisher->ended, &subscription->link);
	if (++publisher->ended_count > PL_ENDED_MAX) {
		oldest = pl_list_first(&publisher->ended, struct pl_subscription, link);
		pl_list_remove(&oldest->link);
		publisher->ended_count--;
	}
	return oldest;
}

/* Keeps the accounts of a subscription that has ended. Returns one to free, or NULL. publisher->lock is held. */
static struct pl_subscription *account_ended(struct pl_publisher *publisher, struct pl_subscription *subscription)
{
	struct pl_accounts *accounts = &subscription->accounts;

	subscription->peer = NULL;
	subscription->blocks = false;
	subscription->ended = true;
	/* The subscriber looked at the ring itself. */
	if (subscription->quiet)
		subscription->announced = PL_MAX(publisher->published, subscription->first);
	/* PUSHED told what is published, and not only the fates. */
	if (subscription->pushed)
		subscription->announced = PL_MAX(subscription->announced, subscription->told);
	/* Nobody reports the fates of these any more. */
	accounts->missed += accounts->pending;
	accounts->pending = 0;
	pl_accounts_miss(accounts, PL_MAX(subscription->announced, accounts->next), subscription->base,
			 subscription->every);
	return keep_ended(publisher, subscription);
}

/* `answer`: CLOSED tells the subscriber when the pushed writes have ended. */
static void end_subscription(struct pl_subscription *subscription, bool answer)
{
	struct pl_publisher *publisher = subscription->publisher;
	struct pl_context *context = publisher->context;
	struct pl_peer *peer = subscription->peer;
	struct pl_subscription *forgotten = subscription;
	struct pl_push *push = pl_push_detach(subscription);
	bool prepared = subscription->prepared;

	pl_timer_clear(peer->home, &subscription->end_timer);
	pl_list_remove(&subscription->peer_link);
	peer->subscription_count--;
	pl_list_remove(&subscription->home_link);
	atomic_fetch_sub(&pl_announcer_of(publisher, peer->home)->count, 1);
	pl_grant_end(context, subscription->control);
	pl_grant_end(context, subscription->payload);
	pl_lock_take(&publisher->lock);
	if (prepared) {
		/* A subscription that has not begun has no accounts. */
		pl_list_remove(&subscription->link);
		publisher->prepared_count--;
	} else {
		forgotten = account_ended(publisher, subscription);
	}
	pl_publisher_set_gate(publisher);
	pl_lock_release(&publisher->lock);
	/* From here on, ends of other subscriptions may forget this one, also on other engines. */
	pl_free(&context->allocator, forgotten);
	if (prepared)
		return;
	/* Last: a write that is stopped may lose the peer. */
	pl_push_end(push, true, answer);
	pl_turn_next(context, &publisher->turn);
}

void pl_subscription_end(struct pl_subscription *subscription)
{
	end_subscription(subscription, false);
}

void pl_subscription_dismiss(struct pl_subscription *subscription)
{
	enum pl_closed_reason reason = subscription->closed;
	struct pl_peer *peer = subscription->peer;
	uint32_t number = subscription->number;
	bool pushes = subscription->push;

	/* The subscriber counts the frames that it knows, as this end does. */
	if (pushes)
		pl_push_tell_last(subscription);
	else
		pl_subscription_tell_last(subscription);
	end_subscription(subscription, true);
	if (!pushes)
		pl_stream_send_closed(peer, number, reason);
}
