/* SPDX-License-Identifier: BSD-2-Clause */
/* Life cycle of an operation: created, submitted to its home engine, run in chunks, completed once. */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/fastpath.h"
#include "core/operation_index.h"

static void stop_late_operation(struct pl_operation *operation, const char *id, const char *call, uint64_t time)
{
	const struct pl_peer *opening = operation->connecting, *peer = opening ? opening : operation->peer;
	char address[PL_ADDRESS_FORMAT_MAX] = "";
	struct pl_error error;

	if (peer)
		pl_peer_format_address(peer, address, sizeof(address));
	/* The object of a transfer is left to the caller, who knows a better name, such as that of a file. */
	pl_fail(&error, -ETIMEDOUT, id, opening && !call ? "connect" : call, opening ? address : NULL,
		"check that the other end runs and is reachable, or allow more time", "not done within %.3f s%s%s",
		(double)time / (double)PL_NS_PER_S, peer && !opening ? "; the peer is " : "", opening ? "" : address);
	pl_operation_stop(operation, -ETIMEDOUT, &error);
}

static void out_of_time(struct pl_operation *operation)
{
	stop_late_operation(operation, "OPERATION-TIMEOUT", NULL, operation->deadline - operation->completion.posted);
}

static void expire_operation(struct pl_timer *timer)
{
	out_of_time(pl_container_of(timer, struct pl_operation, timer));
}

void pl_operations_expire(struct pl_timer *timer)
{
	struct pl_peer *peer = pl_container_of(timer, struct pl_peer, deadline);
	uint64_t now = pl_now();
	struct pl_operation *operation;
	struct pl_list all;

	/* Operations that end here may begin others, which enter the peer's list and set the timer themselves. */
	pl_list_init(&all);
	pl_operations_take(peer, &all);
	pl_peer_begin_stopping(peer);
	while ((operation = pl_peer_operation_next(peer, &all))) {
		if (atomic_load(&operation->canceled))
			continue;
		/* The peer was lost meanwhile; that loss did not see the operations in the local list. */
		if (atomic_load(&peer->state) == PL_PEER_LOST)
			pl_operation_stop(operation, peer->loss.code, &peer->loss);
		else if (operation->deadline > now)
			pl_fast_watch(peer, operation->deadline);
		else
			out_of_time(operation);
	}
	pl_peer_end_stopping(peer);
}

static void cancel_run(struct pl_task *task)
{
	struct pl_operation *operation = pl_container_of(task, struct pl_operation, cancel_task);
	struct pl_peer *peer = operation->peer;

	if (atomic_load(&operation->state) == PL_DONE)
		return;
	if (peer)
		pl_peer_begin_stopping(peer);
	if (operation->wait_over)
		stop_late_operation(operation, "WAIT-TIMEOUT", "pl_wait", operation->wait_time);
	else
		pl_operation_stop(operation, -ECANCELED, NULL);
	if (peer)
		pl_peer_end_stopping_one(peer);
}

struct pl_operation *pl_operation_new(struct pl_context *context, struct pl_peer *peer, enum pl_kind kind,
				      const struct pl_attributes *attributes, struct pl_error *error)
{
	const struct pl_attributes usual = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation = pl_fast_new(context, peer, kind, attributes ? attributes : &usual);

	if (!operation) {
		pl_fail_memory(error, "operation");
		return NULL;
	}
	if (!peer)
		pl_timer_init(&operation->timer, expire_operation);
	return operation;
}

void pl_operation_unhold(struct pl_engine *home, struct pl_operation *operation)
{
	struct pl_pool *spare = &home->operations.pool;
	bool kept;

	if (operation->of_thread) {
		atomic_store_explicit(&operation->state, PL_SPARE, memory_order_release);
		return;
	}
	pl_latch_take(&spare->latch);
	pl_list_remove(&operation->handle_link);
	kept = pl_pool_keep(spare, operation);
	pl_latch_release(&spare->latch);
	if (!kept)
		pl_free(home->allocator, operation);
}

void pl_operation_free(struct pl_operation *operation)
{
	/* A late cancellation may still be queued or running. */
	if (operation->cancel_requested) {
		pl_engine_lock(operation->home);
		pl_engine_unlock(operation->home);
	}
	if (!operation->has_handle) {
		pl_fast_free(operation);
		return;
	}
	pl_fast_strip(operation);
	pl_operation_unhold(operation->home, operation);
}

void pl_operation_discard(struct pl_operation *operation)
{
	pl_fast_release(operation);
	pl_operation_free(operation);
}

int pl_operation_take_attributes(struct pl_operation *operation, const char *call, struct pl_error *error)
{
	struct pl_attributes *attributes = &operation->attributes;

	operation->notifies = operation->completion.kind == PL_KIND_NOTIFY || (attributes->flags & PL_NOTIFY);
	/* Usual attributes are not cleaned: without PL_NOTIFY their notification data is neither checked nor used. */
	if (operation->notifies && attributes->notify_length) {
		operation->copy = pl_alloc(&operation->context->allocator, attributes->notify_length);
		if (!operation->copy)
			return pl_fail_memory(error, call);
		memcpy(operation->copy, attributes->notify_data, attributes->notify_length);
		attributes->notify_data = operation->copy;
	}
	if (attributes->flags & PL_AFTER_STREAM)
		return pl_stream_mark_new(attributes->stream, &operation->after, error);
	return 0;
}

void pl_operation_hold(struct pl_operation *operation, struct pl_operation **handle)
{
	struct pl_operation_store *store = &operation->home->operations;

	operation->has_handle = true;
	pl_task_init(&operation->cancel_task, cancel_run);
	pl_latch_take(&store->pool.latch);
	pl_list_append(&store->handles, &operation->handle_link);
	pl_latch_release(&store->pool.latch);
	*handle = operation;
}

static void announce_operation(struct pl_operation *operation, struct pl_operation **handle)
{
	if (handle)
		pl_operation_hold(operation, handle);
	if (operation->attributes.flags & PL_FENCE)
		atomic_fetch_add(&operation->peer->fences, 1);
}

void pl_operation_submit_held(struct pl_operation *operation, struct pl_operation **handle)
{
	announce_operation(operation, handle);
	pl_operation_run(operation);
}

static void prepare_submission(struct pl_operation *operation, void (*run)(struct pl_task *),
			       struct pl_operation **handle)
{
	operation->completion.posted = pl_now();
	pl_fast_prepare(operation);
	announce_operation(operation, handle);
	pl_task_init(&operation->task, run);
}

void pl_operation_submit(struct pl_operation *operation, void (*run)(struct pl_task *), struct pl_operation **handle)
{
	prepare_submission(operation, run, handle);
	/* The end of a connect takes its task back, and imports are in order with releases. */
	if (operation->completion.kind < PL_COUNTED_KINDS)
		pl_engine_submit(operation->home, &operation->task);
	else
		pl_engine_post(operation->home, &operation->task);
}

void pl_operation_leave(struct pl_operation *operation, void (*run)(struct pl_task *), struct pl_operation **handle)
{
	prepare_submission(operation, run, handle);
	pl_engine_submit_to_thread(operation->home, &operation->task);
}

bool pl_operation_begin(struct pl_operation *operation)
{
	if (operation->peer)
		return pl_fast_begin(operation->peer, operation);
	pl_timer_set(operation->home, &operation->timer, operation->deadline);
	return true;
}

void pl_operation_run(struct pl_operation *operation)
{
	pl_fast_prefetch_submitted(operation->home);
	if (pl_operation_begin(operation))
		pl_peer_start(operation->peer, operation);
}

void pl_operation_lost(struct pl_operation *operation)
{
	const struct pl_error *loss = &operation->peer->loss;

	pl_operation_fail(operation, loss->code, loss);
	pl_operation_pending_done(operation);
}

void pl_operation_fail(struct pl_operation *operation, int status, const struct pl_error *error)
{
	struct pl_error *copy = NULL;
	int none = 0;

	if (atomic_load(&operation->status))
		return;
	if (error)
		copy = pl_alloc(&operation->context->allocator, sizeof(*copy));
	if (copy)
		*copy = *error;
	if (!atomic_compare_exchange_strong(&operation->status, &none, status)) {
		pl_free(&operation->context->allocator, copy);
		return;
	}
	operation->error = copy;
	/* A loss is no operation. */
	if (!operation->parent && operation->completion.kind != PL_KIND_LOST)
		pl_count_error(&operation->context->counters, error);
}

void pl_operation_not_direct(struct pl_operation *operation, const char *why)
{
	struct pl_error error;

	pl_fail(&error, -ENOTSUP, "NOT-DIRECT", "post", NULL,
		"allow staging: leave PL_REQUIRE_DIRECT out; or use RDMA cards", "%s", why);
	pl_operation_fail(operation, -ENOTSUP, &error);
}

/* Loads what a completion reads and other threads have written. */
static void prefetch_ended(const struct pl_operation *operation)
{
	__builtin_prefetch(&operation->pending, 1);
	__builtin_prefetch(&operation->fetch_end, 1);
	__builtin_prefetch(&operation->completion.completed, 1);
	__builtin_prefetch(&operation->state, 1);
	__builtin_prefetch(&operation->peer_link, 1);
	__builtin_prefetch(&operation->single, 1);
}

/* Takes all finished operations. Returns the one that finished first. */
static struct pl_operation *take_finished(struct pl_engine *home)
{
	struct pl_operation *at = atomic_exchange(&home->finished, NULL), *first = NULL;

	while (at) {
		struct pl_operation *before = at->finished_before;

		prefetch_ended(at);
		at->finished_before = first;
		first = at;
		at = before;
	}
	return first;
}

void pl_operations_finish_run(struct pl_task *task)
{
	struct pl_engine *home = pl_container_of(task, struct pl_engine, finish_task);
	struct pl_operation *operation = take_finished(home), *next;
	bool outer = pl_engine_begin_batch(home);

	for (; operation; operation = next) {
		next = operation->finished_before;
		pl_operation_complete(operation);
	}
	pl_engine_end_batch(home, outer);
}

void pl_operation_finish(struct pl_operation *operation)
{
	struct pl_engine *home = operation->home;
	struct pl_operation *before = atomic_load_explicit(&home->finished, memory_order_relaxed);

	do
		operation->finished_before = before;
	while (!atomic_compare_exchange_weak(&home->finished, &before, operation));
	/*
	 * One task completes many. A thread that found the list empty may not have posted the task yet, and a task that this
	 * thread posts later must run after the completion.
	 */
	if (before && atomic_load(&home->finish_task.queued))
		return;
	pl_engine_post_end(home, &home->finish_task);
}

void pl_operation_stop(struct pl_operation *operation, int status, const struct pl_error *error)
{
	struct pl_error canceled;

	if (pl_message_has_arrived(operation))
		return;
	if (!error && status == -ECANCELED) {
		pl_fail(&canceled, status, "OPERATION-CANCELED", NULL, NULL, NULL, "the operation was cancelled");
		error = &canceled;
	}
	pl_operation_fail(operation, status, error);
	atomic_store(&operation->canceled, true);
	if (operation->connecting) {
		pl_peer_open_failed(operation->connecting, error);
		return;
	}
	if (operation->source_key) {
		/* A large send: the peer may not read it any longer. sweep() ends reads that are under way. */
		uint64_t key = operation->source_key;

		operation->source_key = 0;
		atomic_fetch_add(&operation->pending, 1);
		pl_key_destroy(operation->peer, key);
		pl_peer_sweep(operation->peer);
		pl_operation_pending_done(operation);
		/* No return: the operation is in peer->rendezvous, unless its rendezvous frame was not sent yet. */
	}
	/* The end of the copy checks `canceled`. */
	if (operation->leaving)
		return;
	if (operation->child) {
		pl_operation_stop(operation->child, status, error);
	} else if (operation->listener) {
		if (pl_listener_withdraw(operation->listener, &operation->queue_link))
			pl_operation_pending_done(operation);
	} else if (!pl_list_empty(&operation->queue_link)) {
		pl_list_remove(&operation->queue_link);
		if (operation->held_back && atomic_load(&operation->peer->state) == PL_PEER_UP)
			pl_message_resume(operation->peer);
		pl_operation_pending_done(operation);
	} else if (operation->peer && operation->peer->endpoint) {
		pl_peer_sweep(operation->peer);
	}
}

/* -- completion --------------------------------------------------------------------------------- */

void pl_operation_deliver(struct pl_operation *operation)
{
	if (operation->internal) {
		operation->finished(operation);
		return;
	}
	if (operation->has_handle) {
		struct pl_engine *home = operation->home;
		bool manual = pl_context_manual(operation->context);

		/* Whoever waits for this one may look for earlier ones then. */
		pl_completions_publish(home);
		/* After the exchange the owner may free the operation at any time. */
		if (atomic_exchange(&operation->state, PL_DONE) != PL_AWAITED)
			return;
		if (manual)
			pl_engine_wake(home);
		else
			syscall(SYS_futex, &operation->state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
		return;
	}
	if (operation->completion.status >= 0) {
		pl_fast_deliver(operation);
		return;
	}
	atomic_store_explicit(&operation->state, PL_DONE, memory_order_release);
	pl_completion_push(operation->context, operation);
}

static void fill_route(struct pl_operation *operation)
{
	struct pl_completion *completion = &operation->completion;
	unsigned rails = atomic_load(&operation->rails);

	if (completion->status < 0)
		return;
	if (completion->kind == PL_KIND_WRITE || completion->kind == PL_KIND_READ)
		completion->bytes = operation->total;
	if (completion->kind == PL_KIND_FETCH_ADD || completion->kind == PL_KIND_COMPARE_SWAP)
		completion->bytes = sizeof(completion->value);
	for (; rails; rails &= rails - 1) {
		if (completion->lanes++ == 0)
			completion->rail = (unsigned)__builtin_ctz(rails);
	}
	if (completion->bytes) {
		completion->bytes_staged = PL_MIN((uint64_t)atomic_load(&operation->staged), completion->bytes);
		completion->route = completion->bytes_staged ? PL_ROUTE_STAGED : PL_ROUTE_DIRECT;
		completion->reason =
			completion->bytes_staged ? atomic_load(&operation->staged_reason) : operation->peer->reason;
		if (operation->route_reason && !completion->bytes_staged)
			completion->reason = operation->route_reason;
		if (completion->bytes_staged)
			pl_peer_note(operation->peer, PL_EVENT_STAGED, completion->reason);
	}
	pl_fast_visible(operation);
}

/* Returns true if the fabric makes the bytes as visible as asked first; the operation completes later. */
static bool settle_operation(struct pl_operation *operation)
{
	struct pl_peer *peer = operation->peer;
	bool more = pl_visible_more(operation->attributes.visible) || (operation->attributes.flags & PL_NOTIFY);

	if (!more || operation->settled || !operation->segment_count || atomic_load(&operation->status) ||
	    !peer->ops->settle || operation->completion.kind == PL_KIND_SEND ||
	    operation->completion.kind == PL_KIND_RECEIVE)
		return false;
	operation->settled = true;
	return peer->ops->settle(peer->endpoint, operation);
}

static void count_operation(const struct pl_operation *operation)
{
	const struct pl_completion *completion = &operation->completion;
	const struct pl_peer *peer = operation->peer;
	struct pl_count *count;

	/* The operation that this one serves is counted. */
	if (operation->parent || !peer || !peer->counts || completion->kind >= PL_COUNTED_KINDS)
		return;
	count = &peer->counts[completion->kind];
	if (completion->status < 0) {
		pl_count_add(&count->failed, 1);
	} else {
		pl_count_done(count, completion->bytes - completion->bytes_staged,
			      completion->completed - completion->posted);
		pl_count_add(&count->staged, completion->bytes_staged);
	}
}

/*
 * True if an accept has got its peer. Then it succeeds, although a cancellation has failed it meanwhile: the peer's engine ends it,
 * not its home. Without the peer in its completion, the program could not close that peer.
 */
static bool operation_has_accepted(const struct pl_completion *completion)
{
	return completion->kind == PL_KIND_ACCEPT && completion->peer;
}

void pl_operation_complete(struct pl_operation *operation)
{
	struct pl_peer *peer = operation->peer;
	struct pl_completion *completion = &operation->completion;

	if (settle_operation(operation))
		return;
	if ((operation->attributes.flags & PL_NOTIFY) && atomic_load(&operation->status) == 0) {
		/* The bytes are placed: sends the notification. */
		operation->attributes.flags &= ~(unsigned)(PL_NOTIFY | PL_MORE);
		atomic_store(&operation->pending, 1);
		pl_message_send(operation);
		return;
	}
	if (operation->has_turn && atomic_load(&peer->state) == PL_PEER_UP)
		pl_message_dropped(peer, PL_FRAME_NOTIFY);
	if (operation->attributes.flags & PL_FENCE)
		atomic_fetch_sub(&peer->fences, 1);
	if (!peer)
		pl_timer_clear(operation->home, &operation->timer);
	pl_list_remove(&operation->peer_link);
	completion->status = operation_has_accepted(completion) ? 0 : atomic_load(&operation->status);
	completion->completed = pl_engine_now(operation->home);
	/* A synchronous operation took its time as well. */
	if (completion->completed <= completion->posted) {
		pl_engine_tick(operation->home);
		completion->completed = PL_MAX(pl_engine_now(operation->home), completion->posted);
	}
	fill_route(operation);
	if (completion->status == -EACCES)
		pl_peer_note_refused_operation(operation);
	if (operation->old && completion->status == 0)
		*operation->old = completion->value;
	pl_fast_release(operation);
	if (operation->counted)
		pl_fast_ended(peer, operation);
	count_operation(operation);
	if (operation->deliver)
		operation->deliver(operation);
	else
		pl_operation_deliver(operation);
}
