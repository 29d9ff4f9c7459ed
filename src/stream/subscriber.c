/* SPDX-License-Identifier: BSD-2-Clause */
/* Life of a subscriber, and messages of its publisher. */
#include <stdio.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "stream/connect.h"

#define QUEUE_DEFAULT 4
#define HELD_DEFAULT 2
#define FRAMES_MAX 4096
#define MEMORY_DEFAULT ((size_t)1 << 30)

static int bad_subscriber_option(struct pl_error *error, const char *object, const char *fact)
{
	return pl_fail(error, -EINVAL, "OPTION", "pl_subscriber_open", object, "see pl_subscriber_open(3)", "%s", fact);
}

static int subscriber_configure(struct pl_subscriber *subscriber, const char *name,
				const struct pl_subscriber_options *options, struct pl_error *error)
{
	if (!pl_stream_name_valid(name))
		return pl_fail(error, -EINVAL, "STREAM-NAME", "pl_subscriber_open", NULL,
			       "use 1 to 63 characters of A-Z a-z 0-9 . _ -", "the name of the stream is not valid");
	if (options->start > PL_START_SEQUENCE || options->overflow > PL_OVERFLOW_BLOCK)
		return bad_subscriber_option(error, "start", "unknown start or overflow");
	if (options->queue > FRAMES_MAX || options->held > FRAMES_MAX)
		return bad_subscriber_option(error, "queue", "queue and held are at most 4,096");
	if (options->from > PL_RING_SEQUENCE_MAX)
		return bad_subscriber_option(error, "from", "sequences end at 2^62");
	if (options->memory && strlen(options->memory) >= sizeof(subscriber->memory_kind))
		return bad_subscriber_option(error, "memory", "kinds of memory are \"host\", \"cuda\", \"cuda:1\"");
	if (options->in_place &&
	    (options->overflow == PL_OVERFLOW_DROP_NEWEST || (options->memory && strcmp(options->memory, "host"))))
		return bad_subscriber_option(error, "in_place", "frames in place block, and are in host memory");
	if (options->in_place && options->push)
		return bad_subscriber_option(error, "push", "frames in place are not pushed");
	snprintf(subscriber->name, sizeof(subscriber->name), "%s", name);
	snprintf(subscriber->memory_kind, sizeof(subscriber->memory_kind), "%s",
		 options->memory ? options->memory : "host");
	subscriber->start = options->start;
	subscriber->from = options->from;
	subscriber->overflow = options->in_place ? PL_OVERFLOW_BLOCK : options->overflow;
	subscriber->queue = options->queue ? options->queue : QUEUE_DEFAULT;
	subscriber->held_limit = options->held ? options->held : HELD_DEFAULT;
	subscriber->every = options->every ? options->every : 1;
	subscriber->memory_bytes = options->memory_bytes ? options->memory_bytes : MEMORY_DEFAULT;
	subscriber->in_place = options->in_place;
	subscriber->push = options->push;
	subscriber->events = options->events;
	subscriber->user_data = options->user_data;
	return pl_presented_token_read(&subscriber->presented, options->token, options->token_length, error);
}

static struct pl_subscriber *subscriber_new(struct pl_context *context)
{
	struct pl_subscriber *subscriber = pl_zalloc(&context->allocator, sizeof(*subscriber));

	if (!subscriber)
		return NULL;
	subscriber->context = context;
	subscriber->event_fd = -1;
	subscriber->state = PL_STREAM_LIVE;
	pl_list_init(&subscriber->link);
	pl_list_init(&subscriber->peer_link);
	pl_list_init(&subscriber->window);
	pl_list_init(&subscriber->spare);
	pl_list_init(&subscriber->placed);
	pl_list_init(&subscriber->parts);
	pl_list_init(&subscriber->spare_parts);
	pl_task_init(&subscriber->task, pl_subscriber_task);
	pl_lock_init(&subscriber->lock);
	pl_promises_init(subscriber);
	pl_checks_init(subscriber);
	pl_pushed_init(subscriber);
	return subscriber;
}

static void subscriber_free(struct pl_subscriber *subscriber)
{
	struct pl_context *context = subscriber->context;

	for (unsigned i = 0; i < subscriber->memory.count; i++)
		pl_frame_unplace(&subscriber->memory.frames[i]);
	pl_frame_memory_close(&subscriber->memory, context);
	pl_parts_close(subscriber);
	if (subscriber->event_fd >= 0)
		close(subscriber->event_fd);
	OPENSSL_cleanse(&subscriber->presented, sizeof(subscriber->presented));
	pl_free(&context->allocator, subscriber);
}

int pl_subscriber_open(struct pl_peer *peer, const char *name, const struct pl_subscriber_options *given,
		       uint64_t timeout, struct pl_subscriber **result, struct pl_error *error)
{
	uint64_t deadline = pl_deadline(pl_now(), timeout);
	struct pl_context *context = peer->context;
	struct pl_subscriber_options options;
	struct pl_subscriber *subscriber;
	int rc;

	*result = NULL;
	if (pl_copy_versioned(&options, sizeof(options), given) < 0)
		return bad_subscriber_option(error, "size", "options of a newer library, or not initialised");
	subscriber = subscriber_new(context);
	if (!subscriber)
		return pl_fail_memory(error, "pl_subscriber_open");
	rc = subscriber_configure(subscriber, name, &options, error);
	if (rc == 0)
		rc = pl_subscriber_connect(subscriber, peer, deadline, error);
	if (rc < 0) {
		subscriber_free(subscriber);
		return rc;
	}
	pthread_mutex_lock(&context->lock);
	pl_list_append(&context->subscribers, &subscriber->link);
	pthread_mutex_unlock(&context->lock);
	*result = subscriber;
	return 0;
}

/* Stops the reads under way. Home. */
static void cancel_reads(struct pl_subscriber *subscriber)
{
	for (unsigned i = 0; i < subscriber->memory.count; i++)
		if (subscriber->memory.frames[i].operation)
			pl_operation_stop(subscriber->memory.frames[i].operation, -ECANCELED, NULL);
	pl_checks_cancel(subscriber);
	pl_parts_cancel(subscriber);
}

/*
 * Ends tasks that are still queued at engines of earlier peers: a thread in pl_subscriber_take() read the engine before another
 * one attached the subscriber, and posted the task afterwards. Such an engine may also be running it.
 */
static void end_late_tasks(struct pl_subscriber *subscriber)
{
	for (uint64_t rest = subscriber->earlier_homes; rest; rest &= rest - 1) {
		struct pl_engine *engine = subscriber->context->engines[__builtin_ctzll(rest)];

		pl_engine_lock(engine);
		pl_engine_withdraw(engine, &subscriber->task);
		pl_engine_withdraw(engine, &subscriber->promise_task);
		pl_engine_unlock(engine);
	}
}

void pl_subscriber_detach(struct pl_subscriber *subscriber)
{
	struct pl_engine *engine = subscriber->engine;
	bool reading;

	if (!engine)
		return;
	end_late_tasks(subscriber);
	pl_pushed_unsubscribe(subscriber, engine);
	pl_engine_lock(engine);
	if (subscriber->peer) {
		if (!subscriber->leaving)
			pl_subscriber_unsubscribe(subscriber, subscriber->peer);
		pl_subscriber_leave(subscriber);
	}
	cancel_reads(subscriber);
	pl_engine_withdraw(engine, &subscriber->task);
	pl_promises_forget(subscriber, engine);
	pl_timer_clear(engine, &subscriber->credit_timer);
	pl_engine_unlock(engine);
	do {
		unsigned seen = pl_turn_read(&subscriber->turn);

		pl_lock_take(&subscriber->lock);
		reading = subscriber->reading || !pl_list_empty(&subscriber->parts);
		pl_lock_release(&subscriber->lock);
		if (reading)
			pl_turn_wait(subscriber->context, &subscriber->turn, seen, UINT64_MAX);
	} while (reading);
	/* The callback of the last read has returned once its engine's lock is free. */
	pl_engine_lock(engine);
	pl_engine_withdraw(engine, &subscriber->task);
	pl_promises_forget(subscriber, engine);
	pl_timer_clear(engine, &subscriber->credit_timer);
	pl_engine_unlock(engine);
	pl_pushed_recall(subscriber);
}

void pl_subscriber_close(struct pl_subscriber *subscriber)
{
	struct pl_context *context;

	if (!subscriber || pl_context_forked(subscriber->context))
		return;
	context = subscriber->context;
	pthread_mutex_lock(&context->lock);
	pl_list_remove(&subscriber->link);
	pthread_mutex_unlock(&context->lock);
	pl_lock_take(&subscriber->lock);
	subscriber->closing = true;
	pl_lock_release(&subscriber->lock);
	pl_subscriber_detach(subscriber);
	pl_promises_cancel(subscriber);
	pl_frame_marks_close(&subscriber->marks);
	subscriber_free(subscriber);
}

void pl_subscriber_close_all(struct pl_context *context)
{
	/* All publishers end their writes at the same time. No other call uses a context that is being closed. */
	pl_list_for_each(at, &context->subscribers) {
		struct pl_subscriber *subscriber = pl_list_entry(at, struct pl_subscriber, link);

		pl_pushed_begin_leave(subscriber, subscriber->engine);
	}
	for (;;) {
		struct pl_subscriber *subscriber = NULL;

		pthread_mutex_lock(&context->lock);
		if (!pl_list_empty(&context->subscribers))
			subscriber = pl_list_first(&context->subscribers, struct pl_subscriber, link);
		pthread_mutex_unlock(&context->lock);
		if (!subscriber)
			return;
		pl_subscriber_close(subscriber);
	}
}

void pl_subscriber_leave(struct pl_subscriber *subscriber)
{
	pl_list_remove(&subscriber->peer_link);
	pl_lock_take(&subscriber->lock);
	/* Announcements may have told of fewer frames. */
	pl_subscriber_follow_ring(subscriber);
	subscriber->peer = NULL;
	if (subscriber->phase != PL_SUBSCRIBER_OVER)
		subscriber->phase = PL_SUBSCRIBER_AWAY;
	pl_subscriber_freeze(subscriber);
	pl_subscriber_stop_reading(subscriber);
	pl_subscriber_wake(subscriber);
	pl_lock_release(&subscriber->lock);
	pl_remote_release(subscriber->control);
	pl_remote_release(subscriber->payload);
	subscriber->control = subscriber->payload = NULL;
	pl_pushed_revoke(subscriber);
}

void pl_subscriber_fail(struct pl_subscriber *subscriber, int code, const char *id, const char *fact)
{
	if (subscriber->phase == PL_SUBSCRIBER_OVER)
		return;
	subscriber->phase = PL_SUBSCRIBER_OVER;
	subscriber->state = PL_STREAM_FAILED;
	pl_fail(&subscriber->failure, code, id, "pl_subscriber_take", subscriber->name, "see pl_subscriber_take(3)",
		"%s", fact);
	pl_subscriber_wake(subscriber);
}

void pl_subscriber_fail_protocol(struct pl_subscriber *subscriber)
{
	pl_subscriber_fail(subscriber, -EPROTO, "STREAM-PROTOCOL", "the publisher wrote values that cannot be");
}

/* -- messages ----------------------------------------------------------------------------------------------------- */

struct pl_subscriber *pl_subscriber_find(struct pl_peer *peer, uint32_t number)
{
	pl_list_for_each(at, &peer->subscribers) {
		struct pl_subscriber *subscriber = pl_list_entry(at, struct pl_subscriber, peer_link);

		if (subscriber->number == number)
			return subscriber;
	}
	return NULL;
}

/*
 * Ends a subscription whose subscriber is gone. The request may have crossed CLOSED: a publisher that was opened anew under the name
 * takes a request to begin for a new subscription.
 */
static void leave_unowned_subscription(struct pl_peer *peer, const struct pl_stream_message *message)
{
	const struct pl_stream_message leave = { .type = PL_STREAM_UNSUBSCRIBE, .number = message->number };

	/* This end has not asked for later numbers. */
	if (message->subscribed.status == PL_SUBSCRIBE_OK && message->number <= peer->next_stream)
		pl_stream_send(peer, &leave);
}

int pl_subscriber_subscribed(struct pl_peer *peer, const struct pl_stream_message *message)
{
	struct pl_subscriber *subscriber = pl_subscriber_find(peer, message->number);
	int rc = 0;

	if (!subscriber) {
		leave_unowned_subscription(peer, message);
		return 0;
	}
	pl_lock_take(&subscriber->lock);
	if (subscriber->phase == PL_SUBSCRIBER_ASKED) {
		*subscriber->answer = *message;
		subscriber->phase = PL_SUBSCRIBER_ANSWERED;
		subscriber->announced_claimed = message->subscribed.entry.claimed;
		subscriber->announced_published = message->subscribed.entry.published;
		subscriber->announced_skipped = message->subscribed.skipped;
		subscriber->counted_skipped = 0;
		subscriber->announced_state = PL_STREAM_LIVE;
		pl_subscriber_wake(subscriber);
	} else {
		rc = -EPROTO;
	}
	pl_lock_release(&subscriber->lock);
	return rc;
}

void pl_subscriber_follow(struct pl_subscriber *subscriber)
{
	subscriber->published = PL_MAX(subscriber->published, subscriber->announced_published);
	subscriber->claimed = PL_MAX(subscriber->claimed, subscriber->announced_claimed);
	subscriber->state = subscriber->announced_state;
	if (subscriber->state != PL_STREAM_LIVE)
		pl_subscriber_wake(subscriber);
}

/* Takes over the cursors of an announcement. subscriber->lock is held. */
static void take_announcement(struct pl_subscriber *subscriber, const struct pl_stream_message *message)
{
	if (message->announce.published < subscriber->announced_published ||
	    message->announce.claimed > PL_RING_SEQUENCE_MAX ||
	    message->announce.claimed - message->announce.published >= PL_STREAM_SLOTS_MAX ||
	    message->announce.state < subscriber->announced_state ||
	    message->announce.skipped < subscriber->announced_skipped) {
		pl_subscriber_fail(subscriber, -EPROTO, "STREAM-PROTOCOL",
				   "the publisher announced values that cannot be");
		return;
	}
	subscriber->announced_claimed = message->announce.claimed;
	subscriber->announced_published = message->announce.published;
	subscriber->announced_skipped = message->announce.skipped;
	subscriber->announced_state = message->announce.state;
	/* A quiet subscriber reports once for each question, others until an announcement asks no more. */
	subscriber->awaited = message->announce.waits || (subscriber->awaited && subscriber->in_place);
	subscriber->arrived++;
	if (message->announce.demoted && !subscriber->demoted) {
		subscriber->blocks = false;
		subscriber->demoted = true;
		subscriber->report_due = subscriber->in_place;
		pl_subscriber_freeze(subscriber);
	}
	if (subscriber->phase == PL_SUBSCRIBER_LIVE)
		pl_subscriber_follow(subscriber);
}

int pl_subscriber_announced(struct pl_peer *peer, const struct pl_stream_message *message)
{
	struct pl_subscriber *subscriber = pl_subscriber_find(peer, message->number);
	bool right;

	if (!subscriber)
		return 0;
	pl_lock_take(&subscriber->lock);
	/* Frames that are pushed come with PUSHED alone. */
	right = subscriber->phase != PL_SUBSCRIBER_ASKED && !subscriber->push;
	if (right && (subscriber->phase == PL_SUBSCRIBER_ANSWERED || subscriber->phase == PL_SUBSCRIBER_LIVE))
		take_announcement(subscriber, message);
	pl_lock_release(&subscriber->lock);
	if (!right)
		return -EPROTO;
	subscriber->announcement = message;
	pl_subscriber_pump(subscriber);
	subscriber->announcement = NULL;
	return 0;
}

int pl_subscriber_closed(struct pl_peer *peer, const struct pl_stream_message *message)
{
	struct pl_subscriber *subscriber = pl_subscriber_find(peer, message->number);
	struct pl_accounts *accounts;

	peer->leave_end = 0;
	if (!subscriber)
		return 0;
	accounts = &subscriber->accounts;
	pl_lock_take(&subscriber->lock);
	if (subscriber->leaving) {
		subscriber->written = true;
		pl_lock_release(&subscriber->lock);
		pl_subscriber_leave(subscriber);
		return 0;
	}
	pl_subscriber_follow_ring(subscriber);
	subscriber->phase = PL_SUBSCRIBER_OVER;
	if (subscriber->state == PL_STREAM_LIVE || accounts->next < subscriber->published) {
		subscriber->state = PL_STREAM_FAILED;
		pl_subscriber_note_closed(subscriber, message->closed);
	}
	if (!subscriber->restarted && accounts->next < subscriber->published)
		pl_subscriber_miss(subscriber, subscriber->published);
	pl_subscriber_stop_reading(subscriber);
	pl_subscriber_wake(subscriber);
	pl_lock_release(&subscriber->lock);
	pl_subscriber_leave(subscriber);
	return 0;
}

/* -- query ---------------------------------------------------------------------------------------------------------- */

int pl_subscriber_query(struct pl_subscriber *subscriber, struct pl_subscriber_info *info)
{
	struct pl_subscriber_info full = PL_SUBSCRIBER_INFO_INIT;
	struct pl_accounts *accounts = &full.accounts;
	struct pl_engine *engine;
	size_t size = info->size;
	bool failed;

	if (size < sizeof(size) || size > sizeof(full))
		return -EINVAL;
	pl_lock_take(&subscriber->lock);
	failed = !pl_subscriber_follow_ring(subscriber);
	engine = subscriber->engine;
	pl_stream_entry_info(&subscriber->entry, &full.stream);
	full.stream.claimed = subscriber->claimed;
	full.stream.published = subscriber->published;
	full.stream.state = subscriber->state;
	full.stream.subscribers = full.stream.blocking = 0;
	*accounts = subscriber->accounts;
	full.connected = subscriber->phase == PL_SUBSCRIBER_LIVE;
	full.paused = subscriber->paused;
	full.blocks = subscriber->blocks && full.connected;
	full.demoted = subscriber->demoted;
	full.in_place = subscriber->view != NULL;
	full.checks = subscriber->check_count;
	full.route = subscriber->route;
	full.reason = subscriber->reason;
	/* Frames that are known and were not read are missed, unless the program attaches in time. */
	if (!full.connected)
		pl_subscriber_miss_known(subscriber, accounts);
	pl_lock_release(&subscriber->lock);
	if (failed)
		pl_engine_post(engine, &subscriber->task);
	memcpy(info, &full, size);
	info->size = size;
	return 0;
}
