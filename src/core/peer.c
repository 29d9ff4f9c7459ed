/* SPDX-License-Identifier: BSD-2-Clause */
/* Life cycle of a peer: creation, table index, fences, loss, end. */
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "base/secret_pool.h"
#include "core/fastpath.h"
#include "core/operation_index.h"
#include "core/stream_ops.h"
#include "core/trust.h"

/* Time for reading the remaining bytes of other connections after one connection of a peer ended. */
#define GRACE (500 * PL_NS_PER_MS)
/* Time for the control channel to tell why a data socket ended. */
#define REASON_GRACE (200 * PL_NS_PER_MS)
/* Time between checks for pins of a failed peer. */
#define PIN_PAUSE (10 * PL_NS_PER_MS)

static int peer_table_insert(struct pl_context *context, struct pl_peer *peer)
{
	ssize_t index = pl_index_table_add(&context->allocator, &context->peer_table, peer);

	if (index < 0)
		return (int)index;
	peer->peer_index = (size_t)index;
	return 0;
}

static void lose_after_grace(struct pl_timer *timer)
{
	struct pl_peer *peer = pl_container_of(timer, struct pl_peer, timer);

	/* A late timer may come before the completions of messages that arrived long ago. */
	if (peer->ops->take_arrived)
		peer->ops->take_arrived(peer->endpoint);
	pl_peer_lose(peer, &peer->loss);
}

struct pl_peer *pl_peer_new(struct pl_context *context, struct pl_engine *home, bool initiator, struct pl_error *error)
{
	struct pl_peer *peer = pl_zalloc(&context->allocator, sizeof(*peer));
	int rc;

	if (!peer) {
		pl_fail_memory(error, "peer");
		return NULL;
	}
	peer->context = context;
	pl_event_log_init(&peer->events, &context->allocator);
	peer->initiator = initiator;
	peer->unaccepted = !initiator;
	peer->closed_before = atomic_load(&context->closed_peers);
	peer->home = home;
	/* Replaced when both ends agree on a fabric. */
	peer->ops = context->fabrics[0];
	peer->reason = peer->ops->reason;
	peer->dialing.fd = peer->incoming.fd = -1;
	pl_list_init(&peer->backlog_link);
	pl_list_init(&peer->held_events);
	pl_list_init(&peer->turn_link);
	pl_callback_wait_init(&peer->judging, NULL);
	pl_list_init(&peer->remotes);
	pl_list_init(&peer->operations);
	pl_list_init(&peer->fenced);
	pl_after_stream_init(peer);
	pl_messages_init(peer);
	pl_imports_init(peer);
	pl_keys_init(peer);
	pl_list_init(&peer->subscriptions);
	pl_list_init(&peer->subscribers);
	pl_list_init(&peer->listings);
	pl_timer_init(&peer->timer, lose_after_grace);
	pl_timer_init(&peer->deadline, pl_operations_expire);
	pl_task_init(&peer->task, NULL);
	pl_task_init(&peer->credit_task, pl_message_credit_run);
	pl_task_init(&peer->sweep_task, pl_peer_sweep_run);
	peer->loss_event = pl_operation_new(context, peer, PL_KIND_LOST, NULL, NULL);
	rc = peer->loss_event ? 0 : -ENOMEM;
	pthread_mutex_lock(&context->lock);
	if (rc == 0)
		rc = peer_table_insert(context, peer);
	if (rc == 0) {
		pl_list_append(&context->peers, &peer->link);
		pl_list_append(&context->home_peers[pl_context_engine_index(context, home)], &peer->home_link);
	}
	pthread_mutex_unlock(&context->lock);
	if (rc < 0) {
		pl_fail_memory(error, "peer");
		if (peer->loss_event)
			pl_operation_discard(peer->loss_event);
		pl_free(&context->allocator, peer);
		return NULL;
	}
	return peer;
}

struct pl_peer *pl_peer_by_index(struct pl_context *context, uint64_t peer_index)
{
	struct pl_peer *peer;

	pthread_mutex_lock(&context->lock);
	peer = pl_index_table_get(&context->peer_table, peer_index);
	if (peer && !peer->joinable)
		peer = NULL;
	if (peer)
		atomic_fetch_add(&peer->pins, 1);
	pthread_mutex_unlock(&context->lock);
	return peer;
}

void pl_peer_unpin(struct pl_peer *peer)
{
	atomic_fetch_sub(&peer->pins, 1);
}

/* -- fences ------------------------------------------------------------------------------------- */

void pl_peer_start(struct pl_peer *peer, struct pl_operation *operation)
{
	pl_fast_start(peer, operation);
}

void pl_peer_fence_release(struct pl_peer *peer)
{
	if (peer->releasing)
		return; /* a caller runs the loop below and continues it */
	peer->releasing = true;
	while (!pl_list_empty(&peer->fenced)) {
		struct pl_operation *next = pl_list_first(&peer->fenced, struct pl_operation, queue_link);

		if (pl_fast_must_wait(peer, next))
			break;
		pl_list_remove(&next->queue_link);
		pl_fast_run(peer, next);
	}
	peer->releasing = false;
}

/* -- loss --------------------------------------------------------------------------------------- */

static void stop_peer_operations(struct pl_peer *peer, int status, const struct pl_error *error)
{
	bool explains = peer->close_end && error;
	struct pl_operation *operation;
	struct pl_error unsent;
	struct pl_list all;

	if (explains)
		pl_peer_explain_unsent(&unsent);
	pl_stream_ops.peer_ended(peer);
	/* Operations with chunks on other engines stay in the list a little longer. */
	pl_list_init(&all);
	pl_operations_take(peer, &all);
	pl_peer_begin_stopping(peer);
	while ((operation = pl_peer_operation_next(peer, &all)))
		pl_operation_stop(operation, status,
				  explains && pl_operation_sends_message(operation) ? &unsent : error);
	pl_peer_end_stopping(peer);
}

/* Delivers PL_KIND_LOST through pl_poll().  Home. */
static void deliver_loss_event(struct pl_peer *peer)
{
	struct pl_operation *event = peer->loss_event;

	if (!event)
		return;
	peer->loss_event = NULL;
	event->home = peer->home;
	pl_operation_fail(event, peer->loss.code, &peer->loss);
	event->completion.status = peer->loss.code;
	event->completion.fabric = peer->ops->name;
	event->completion.posted = event->completion.completed = pl_now();
	atomic_store_explicit(&event->state, PL_DONE, memory_order_release);
	pl_completion_push_event(peer, event);
}

void pl_peer_lose(struct pl_peer *peer, const struct pl_error *error)
{
	if (atomic_load(&peer->state) == PL_PEER_LOST)
		return;
	if (atomic_load(&peer->state) == PL_PEER_OPENING) {
		pl_peer_open_failed(peer, error);
		return;
	}
	if (&peer->loss != error)
		peer->loss = *error;
	pl_address_format((struct sockaddr *)&peer->address, peer->loss.object, sizeof(peer->loss.object));
	if (peer->loss.code == 0)
		peer->loss.code = -ECONNRESET;
	/* Before the state changes, so that a program that sees the loss finds the event. */
	pl_peer_note_loss(peer);
	atomic_store(&peer->state, PL_PEER_LOST);
	pl_timer_clear(peer->home, &peer->timer);
	pl_channel_close(&peer->channel);
	pl_imports_drop(peer);
	if (peer->ops->lost)
		peer->ops->lost(peer->endpoint);
	stop_peer_operations(peer, peer->loss.code, &peer->loss);
	peer->ops->sweep(peer->endpoint);
	deliver_loss_event(peer);
}

/* The control channel tells no reason in time. */
static void end_without_reason(struct pl_timer *timer)
{
	struct pl_peer *peer = pl_container_of(timer, struct pl_peer, timer);

	pl_channel_close(&peer->channel);
	pl_peer_ending(peer);
}

void pl_peer_ending(struct pl_peer *peer)
{
	if (atomic_load(&peer->state) != PL_PEER_UP)
		return;
	atomic_store(&peer->ending, true);
	/* Data sockets can end before the other end's BYE, or the end of its process, arrives in the control channel. */
	if (peer->channel.open && !peer->leaving) {
		if (pl_list_empty(&peer->timer.link)) {
			peer->timer.expire = end_without_reason;
			pl_timer_set(peer->home, &peer->timer, pl_now() + REASON_GRACE);
		}
		return;
	}
	if (peer->timer.expire == end_without_reason)
		pl_timer_clear(peer->home, &peer->timer);
	if (peer->loss.code == 0) {
		if (peer->leaving)
			pl_fail(&peer->loss, -ECONNRESET, "PEER-CLOSED", "connection", NULL, NULL,
				"the other end closed the connection");
		else
			pl_fail(&peer->loss, -ECONNRESET, "PEER-LOST", "connection", NULL,
				"see whether the other process still runs, and the network between",
				"the connection broke without an orderly end");
	}
	if (peer->ops->drained(peer->endpoint)) {
		pl_peer_lose(peer, &peer->loss);
	} else if (pl_list_empty(&peer->timer.link)) {
		peer->timer.expire = lose_after_grace;
		pl_timer_set(peer->home, &peer->timer, pl_now() + GRACE);
	}
}

void pl_peer_channel_closed(struct pl_channel *channel, enum pl_channel_end end)
{
	struct pl_peer *peer = pl_container_of(channel, struct pl_peer, channel);
	struct pl_error error;

	pl_channel_explain_end(end, &error);
	/* The end of the other process is not explained here: pl_peer_ending() does that. */
	if (atomic_load(&peer->state) == PL_PEER_UP && peer->loss.code == 0 && end != PL_CHANNEL_BROKEN &&
	    !peer->leaving)
		peer->loss = error;
	pl_channel_close(channel);
	if (atomic_load(&peer->state) == PL_PEER_OPENING)
		pl_peer_open_failed(peer, &error);
	else if (end == PL_CHANNEL_MALFORMED)
		pl_peer_lose(peer, &error);
	else
		pl_peer_ending(peer);
}

/* -- the end ------------------------------------------------------------------------------------ */

static void await_pins(const struct pl_peer *peer)
{
	while (atomic_load(&peer->pins)) {
		if (!pl_engine_held(peer->home)) {
			pl_engine_lock(peer->home);
			pl_engine_unlock(peer->home);
		}
		sched_yield();
	}
}

static void peer_leave_context(struct pl_peer *peer)
{
	struct pl_context *context = peer->context;

	pthread_mutex_lock(&context->lock);
	pl_list_remove(&peer->link);
	pl_list_remove(&peer->home_link);
	pl_index_table_remove(&context->peer_table, peer->peer_index);
	while (!pl_list_empty(&peer->remotes)) {
		struct pl_remote *remote = pl_list_first(&peer->remotes, struct pl_remote, peer_link);

		pl_list_remove(&remote->peer_link);
		remote->peer = NULL;
	}
	pthread_mutex_unlock(&context->lock);
	/* No thread can find the peer from here on. Threads that found the peer earlier unpin it soon. */
	await_pins(peer);
}

/* Marks an open peer as lost.  Operations that the home engine has still queued fail with `peer->loss`. */
static void mark_peer_closed(struct pl_peer *peer, int status, const struct pl_error *error)
{
	if (atomic_load(&peer->state) != PL_PEER_UP)
		return;
	if (error)
		peer->loss = *error;
	else
		pl_fail(&peer->loss, status, "PEER-CLOSING", "pl_close", NULL, NULL, "the context was closed");
	atomic_store(&peer->state, PL_PEER_LOST);
}

static void close_peer_control(struct pl_peer *peer, int status, const struct pl_error *error)
{
	struct pl_control bye = { .type = PL_CONTROL_BYE };

	pl_timer_clear(peer->home, &peer->timer);
	pl_callback_turn_leave(&peer->judging);
	pl_source_remove(&peer->dialing);
	/* During the TLS handshake both have the same descriptor. */
	if (peer->incoming.fd >= 0)
		pl_stream_close(&peer->incoming);
	else if (peer->dialing.fd >= 0)
		close(peer->dialing.fd);
	peer->dialing.fd = -1;
	if (peer->channel.open && atomic_load(&peer->state) == PL_PEER_UP)
		pl_channel_send(&peer->channel, &bye);
	pl_channel_close(&peer->channel);
	mark_peer_closed(peer, status, error);
	pl_timer_clear(peer->home, &peer->deadline);
	pl_timer_clear(peer->home, &peer->release_timer);
	if (peer->held_hello)
		pl_timer_clear(peer->home, &peer->hello_timer);
	stop_peer_operations(peer, status, error);
}

/* Frees a peer without endpoint, pins and pending operations. */
static void peer_free(struct pl_peer *peer)
{
	struct pl_context *context = peer->context;

	pl_engine_withdraw(peer->home, &peer->task);
	/* Messages may have arrived until the endpoint was closed. */
	pl_messages_drop(peer);
	pl_imports_drop(peer);
	if (peer->loss_event)
		pl_operation_discard(peer->loss_event);
	pl_key_table_clear(peer);
	pl_completions_forget_peer(context, peer);
	/* pl_poll() may have pinned the peer for a credit until then. The task that posts the credit unpins it. */
	await_pins(peer);
	if (!peer->initiator)
		atomic_fetch_sub(&context->accepted, 1);
	pl_free(&context->allocator, peer->targets);
	pl_free(&context->allocator, peer->server_name);
	pl_free(&context->allocator, peer->admission);
	pl_free(&context->allocator, peer->held_hello);
	if (peer->secret)
		pl_secret_free(pl_tls_secrets(context->tls), peer->secret);
	pl_event_log_destroy(&peer->events);
	pl_operation_index_free(peer);
	pl_free(&context->allocator, peer);
}

/* Ends the connect, whose owner may free it then. It may still wait in the engine's queue. */
static void end_opening(struct pl_peer *peer, int status, const struct pl_error *error)
{
	struct pl_operation *opening = peer->opening;

	if (!opening)
		return;
	peer->opening = NULL;
	pl_engine_withdraw(peer->home, &opening->task);
	opening->connecting = NULL;
	pl_operation_fail(opening, status, error);
	pl_operation_pending_done(opening);
}

void pl_peer_destroy(struct pl_peer *peer, uint64_t until, int status, const struct pl_error *error)
{
	pl_peer_send_last(peer, until);
	peer_leave_context(peer);
	pl_engine_lock(peer->home);
	peer->close_end = until;
	pl_peer_sweep_before_end(peer);
	pl_peer_hold_messages(peer);
	pl_dial_turn_over(peer);
	end_opening(peer, status, error);
	if (peer->listener)
		pl_listener_withdraw(peer->listener, &peer->backlog_link);
	close_peer_control(peer, status, error);
	/* The endpoint is closed without the lock: what it reports meanwhile must not begin another end of the peer. */
	peer->dead = true;
	pl_engine_withdraw(peer->home, &peer->task);
	pl_engine_unlock(peer->home);
	if (peer->endpoint)
		peer->ops->close(peer->endpoint);
	pl_keys_await(peer);
	/* Runs tasks that the last chunks on other engines posted here, and ends copies of messages. */
	pl_engine_lock(peer->home);
	if (peer->home->poller)
		peer->home->poller->drain(peer->home->poller);
	pl_peer_release_messages(peer);
	peer->endpoint = NULL;
	pl_timer_clear(peer->home, &peer->key_timer);
	pl_watch_remove(&peer->stream_watch);
	pl_engine_unlock(peer->home);
	if (peer->listener)
		pl_listener_put(peer->listener);
	peer_free(peer);
}

/* Frees a peer whose opening failed. Never waits, since the home engine's lock is held: the peer has no users. */
static void free_unopened_peer(struct pl_task *task)
{
	struct pl_peer *peer = pl_container_of(task, struct pl_peer, task);

	peer_leave_context(peer);
	if (peer->endpoint)
		peer->ops->close(peer->endpoint);
	peer->endpoint = NULL;
	pl_engine_withdraw(peer->home, &peer->sweep_task);
	if (peer->listener)
		pl_listener_put(peer->listener);
	peer_free(peer);
}

static void end_unopened_peer(struct pl_task *task);

static void end_unopened_peer_later(struct pl_timer *timer)
{
	struct pl_peer *peer = pl_container_of(timer, struct pl_peer, timer);

	end_unopened_peer(&peer->task);
}

/* Waits until the peer has no pins, claims it, then ends its work on other engines. */
static void end_unopened_peer(struct pl_task *task)
{
	struct pl_peer *peer = pl_container_of(task, struct pl_peer, task);
	bool mine, pinned;

	/* No thread pins a claimed peer and waits for the engine's lock: free_unopened_peer() waits for pins under that lock. */
	pthread_mutex_lock(&peer->context->lock);
	mine = !peer->claimed;
	pinned = atomic_load(&peer->pins);
	peer->claimed |= !pinned;
	pthread_mutex_unlock(&peer->context->lock);
	if (!mine)
		return; /* pl_close() waits for the lock held here */
	if (pinned) {
		peer->timer.expire = end_unopened_peer_later;
		pl_timer_set(peer->home, &peer->timer, pl_now() + PIN_PAUSE);
		return;
	}
	peer->task.run = free_unopened_peer;
	if (peer->endpoint)
		peer->ops->abandon(peer->endpoint, &peer->task);
	else
		free_unopened_peer(&peer->task);
}

void pl_peer_open_failed(struct pl_peer *peer, const struct pl_error *error)
{
	struct pl_error none;

	if (peer->dead)
		return;
	if (!error) {
		pl_fail(&none, -ECANCELED, "OPERATION-CANCELED", "connect", NULL, NULL, "the attempt was cancelled");
		error = &none;
	}
	peer->dead = true;
	pl_dial_turn_over(peer);
	pl_peer_replace(peer, error);
	close_peer_control(peer, error->code, error);
	end_opening(peer, error->code, error);
	pthread_mutex_lock(&peer->context->lock);
	peer->joinable = false;
	pthread_mutex_unlock(&peer->context->lock);
	/* Queues the end, because callers of this function still use the peer. */
	pl_engine_withdraw(peer->home, &peer->task);
	peer->task.run = end_unopened_peer;
	pl_engine_post(peer->home, &peer->task);
}

void pl_peer_close(struct pl_peer *peer)
{
	struct pl_error error;

	if (!peer || pl_context_forked(peer->context))
		return;
	pl_fail(&error, -ECANCELED, "PEER-CLOSING", "pl_peer_close", NULL, NULL, "the connection was closed at this end");
	pl_peer_destroy(peer, pl_close_end(), -ECANCELED, &error);
}
