/* SPDX-License-Identifier: BSD-2-Clause */
/* Life cycle of an operation: created, submitted to its home engine, run in chunks, completed once. */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/fastpath.h"

/* Rounds without progress after which a waiter sleeps. */
#define ROUNDS_BEFORE_SLEEP 2000

static void out_of_time(struct pl_operation *operation)
{
	struct pl_error error;

	pl_fail(&error, -ETIMEDOUT, "OPERATION-TIMEOUT", NULL, NULL,
		"check that the other end runs and is reachable, or allow more time", "not done within %.3f s",
		(double)(operation->deadline - operation->receipt.posted) / (double)PL_NS_PER_S);
	pl_operation_stop(operation, -ETIMEDOUT, &error);
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
	pl_list_splice(&all, &peer->operations);
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
}

static void cancel_run(struct pl_task *task)
{
	struct pl_operation *operation = pl_container_of(task, struct pl_operation, cancel_task);

	if (atomic_load(&operation->state) != PL_DONE)
		pl_operation_stop(operation, -ECANCELED, NULL);
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

void pl_operation_unhold(struct pl_context *context, struct pl_operation *operation)
{
	struct pl_pool *spare = &context->spare_operations;
	bool kept;

	if (operation == context->instant) {
		atomic_store_explicit(&operation->state, PL_SPARE, memory_order_release);
		return;
	}
	pl_latch_take(&spare->latch);
	pl_list_remove(&operation->handle_link);
	kept = pl_pool_keep(spare, operation);
	pl_latch_release(&spare->latch);
	if (!kept)
		pl_free(&context->allocator, operation);
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
	pl_operation_unhold(operation->context, operation);
}

void pl_operation_discard(struct pl_operation *operation)
{
	pl_fast_release(operation);
	pl_operation_free(operation);
}

void pl_operation_hold(struct pl_operation *operation, struct pl_operation **handle)
{
	struct pl_context *context = operation->context;

	operation->has_handle = true;
	pl_task_init(&operation->cancel_task, cancel_run);
	pl_latch_take(&context->spare_operations.latch);
	pl_list_append(&context->handles, &operation->handle_link);
	pl_latch_release(&context->spare_operations.latch);
	*handle = operation;
}

void pl_operation_submit(struct pl_operation *operation, void (*run)(struct pl_task *), struct pl_operation **handle)
{
	pl_fast_prepare(operation, pl_now(), handle);
	pl_task_init(&operation->task, run);
	pl_engine_post(operation->home, &operation->task);
}

bool pl_operation_begin(struct pl_operation *operation)
{
	if (operation->peer)
		return pl_fast_begin(operation->peer, operation);
	pl_timer_set(operation->home, &operation->timer, operation->deadline);
	return true;
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
	if (atomic_compare_exchange_strong(&operation->status, &none, status))
		operation->error = copy;
	else
		pl_free(&operation->context->allocator, copy);
}

void pl_operation_not_direct(struct pl_operation *operation, const char *why)
{
	struct pl_error error;

	pl_fail(&error, -ENOTSUP, "NOT-DIRECT", "post", NULL,
		"allow staging: leave PL_REQUIRE_DIRECT out; or use RDMA cards", "%s", why);
	pl_operation_fail(operation, -ENOTSUP, &error);
}

static void finish_run(struct pl_task *task)
{
	pl_operation_complete(pl_operation_of_task(task));
}

void pl_operation_finish(struct pl_operation *operation)
{
	pl_task_init(&operation->task, finish_run);
	pl_engine_post(operation->home, &operation->task);
}

void pl_operation_stop(struct pl_operation *operation, int status, const struct pl_error *error)
{
	struct pl_error canceled;

	/* The message has arrived: only its copy is pending. */
	if (operation->landing)
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
		operation->peer->ops->sweep(operation->peer->endpoint);
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
		pl_operation_pending_done(operation);
	} else if (operation->peer && operation->peer->endpoint) {
		operation->peer->ops->sweep(operation->peer->endpoint);
	}
}

/* -- completion --------------------------------------------------------------------------------- */

static void deliver_operation(struct pl_operation *operation)
{
	if (operation->internal) {
		operation->finished(operation);
		return;
	}
	if (operation->has_handle) {
		struct pl_engine *home = operation->home;
		bool manual = pl_context_manual(operation->context);

		/* After the exchange the owner may free the operation at any time. */
		if (atomic_exchange(&operation->state, PL_DONE) != PL_AWAITED)
			return;
		if (manual)
			pl_engine_wake(home);
		else
			syscall(SYS_futex, &operation->state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
		return;
	}
	if (operation->receipt.status >= 0) {
		pl_fast_deliver(operation);
		return;
	}
	atomic_store_explicit(&operation->state, PL_DONE, memory_order_release);
	pl_completion_push(operation->context, operation);
}

static void fill_route(struct pl_operation *operation)
{
	struct pl_receipt *receipt = &operation->receipt;
	unsigned rails = atomic_load(&operation->rails);

	if (receipt->status < 0)
		return;
	if (receipt->kind == PL_KIND_WRITE || receipt->kind == PL_KIND_READ)
		receipt->bytes = operation->total;
	if (receipt->kind == PL_KIND_FETCH_ADD || receipt->kind == PL_KIND_COMPARE_SWAP)
		receipt->bytes = sizeof(receipt->value);
	for (; rails; rails &= rails - 1) {
		if (receipt->streams++ == 0)
			receipt->rail = (unsigned)__builtin_ctz(rails);
	}
	if (receipt->bytes) {
		receipt->bytes_staged = PL_MIN((uint64_t)atomic_load(&operation->staged), receipt->bytes);
		receipt->bytes_direct = receipt->bytes - receipt->bytes_staged;
		receipt->route = receipt->bytes_staged ? PL_ROUTE_STAGED : PL_ROUTE_DIRECT;
		receipt->reason =
			receipt->bytes_staged ? atomic_load(&operation->staged_reason) : operation->peer->reason;
		if (operation->route_reason && !receipt->bytes_staged)
			receipt->reason = operation->route_reason;
	}
	pl_fast_visible(operation);
}

/* Returns true if the fabric makes the bytes as visible as asked first; the operation completes later. */
static bool settle_operation(struct pl_operation *operation)
{
	struct pl_peer *peer = operation->peer;
	bool more = pl_visible_more(operation->attributes.visible) || (operation->attributes.flags & PL_NOTIFY);

	if (!more || operation->settled || !operation->segment_count || atomic_load(&operation->status) ||
	    !peer->ops->settle || operation->receipt.kind == PL_KIND_SEND || operation->receipt.kind == PL_KIND_RECEIVE)
		return false;
	operation->settled = true;
	return peer->ops->settle(peer->endpoint, operation);
}

void pl_operation_complete(struct pl_operation *operation)
{
	struct pl_peer *peer = operation->peer;
	struct pl_receipt *receipt = &operation->receipt;

	if (settle_operation(operation))
		return;
	if ((operation->attributes.flags & PL_NOTIFY) && atomic_load(&operation->status) == 0) {
		/* The bytes are placed: sends the notification. */
		operation->attributes.flags &= ~(unsigned)(PL_NOTIFY | PL_MORE);
		atomic_store(&operation->pending, 1);
		pl_message_send(operation);
		return;
	}
	if (operation->attributes.flags & PL_FENCE)
		atomic_fetch_sub(&peer->fences, 1);
	if (!peer)
		pl_timer_clear(operation->home, &operation->timer);
	pl_list_remove(&operation->peer_link);
	receipt->status = atomic_load(&operation->status);
	receipt->completed = pl_engine_now(operation->home);
	/* A synchronous operation took its time as well. */
	if (receipt->completed <= receipt->posted) {
		pl_engine_tick(operation->home);
		receipt->completed = PL_MAX(pl_engine_now(operation->home), receipt->posted);
	}
	fill_route(operation);
	if (operation->old && receipt->status == 0)
		*operation->old = receipt->value;
	pl_fast_release(operation);
	if (operation->counted)
		pl_fast_ended(peer, operation);
	if (operation->before_delivery)
		operation->before_delivery(operation);
	deliver_operation(operation);
}

/* Copies a completion, except that `peer` is read atomically: another thread may close the peer. */
static void copy_receipt(struct pl_receipt *to, const struct pl_receipt *from)
{
	const size_t rest = offsetof(struct pl_receipt, remote);

	memcpy(to, from, offsetof(struct pl_receipt, peer));
	to->peer = __atomic_load_n(&from->peer, __ATOMIC_RELAXED);
	memcpy((uint8_t *)to + rest, (const uint8_t *)from + rest, sizeof(*to) - rest);
}

static void fill_result(struct pl_operation *operation, struct pl_receipt *receipt, struct pl_error *error)
{
	int status = operation->receipt.status;

	if (receipt)
		copy_receipt(receipt, &operation->receipt);
	if (status >= 0 || !error)
		return;
	if (operation->error)
		*error = *operation->error;
	else
		pl_fail_errno(error, status, "OPERATION-FAILED", NULL, NULL);
}

static int collect_handle(struct pl_operation *operation, struct pl_receipt *receipt, struct pl_error *error)
{
	int status = operation->receipt.status;

	fill_result(operation, receipt, error);
	pl_operation_free(operation);
	return status;
}

int pl_test(struct pl_operation *operation, struct pl_receipt *receipt, struct pl_error *error)
{
	if (pl_context_manual(operation->context) && atomic_load(&operation->state) != PL_DONE)
		pl_context_progress(operation->context);
	if (atomic_load(&operation->state) != PL_DONE)
		return -EINPROGRESS;
	return collect_handle(operation, receipt, error);
}

void pl_cancel(struct pl_operation *operation)
{
	if (atomic_load(&operation->state) == PL_DONE)
		return;
	operation->cancel_requested = true;
	pl_engine_post(operation->home, &operation->cancel_task);
}

/* Returns when the operation is done, or at the deadline (time of pl_now()). */
static bool wait_by_progress(struct pl_operation *operation, uint64_t deadline)
{
	unsigned idle = 0;

	while (atomic_load_explicit(&operation->state, memory_order_acquire) != PL_DONE) {
		int running = PL_RUNNING;
		unsigned turn;

		if (pl_context_progress(operation->context)) {
			idle = 0;
			continue;
		}
		if (++idle < ROUNDS_BEFORE_SLEEP)
			continue;
		if (pl_now() >= deadline)
			return false;
		/* Another thread's progress may complete the operation; that begins a new turn. */
		turn = atomic_load(&operation->home->turn);
		if (atomic_compare_exchange_strong(&operation->state, &running, PL_AWAITED) || running == PL_AWAITED)
			pl_engine_sleep(operation->home, turn, deadline);
		idle = 0;
	}
	return true;
}

static bool wait_by_futex(struct pl_operation *operation, uint64_t deadline)
{
	for (;;) {
		struct timespec timeout;
		int running = PL_RUNNING;
		uint64_t now;

		if (!atomic_compare_exchange_strong(&operation->state, &running, PL_AWAITED) && running == PL_DONE)
			return true;
		now = pl_now();
		if (now >= deadline)
			return false;
		timeout.tv_sec = (time_t)((deadline - now) / PL_NS_PER_S);
		timeout.tv_nsec = (long)((deadline - now) % PL_NS_PER_S);
		syscall(SYS_futex, &operation->state, FUTEX_WAIT_PRIVATE, PL_AWAITED,
			deadline == UINT64_MAX ? NULL : &timeout, NULL, 0);
	}
}

static bool wait_until(struct pl_operation *operation, uint64_t deadline)
{
	if (pl_context_manual(operation->context))
		return wait_by_progress(operation, deadline);
	return wait_by_futex(operation, deadline);
}

int pl_wait(struct pl_operation *operation, uint64_t timeout, struct pl_receipt *receipt, struct pl_error *error)
{
	struct pl_error late;

	if (atomic_load_explicit(&operation->state, memory_order_acquire) == PL_DONE)
		return collect_handle(operation, receipt, error);
	if (!wait_until(operation, pl_deadline(pl_now(), timeout))) {
		pl_fail(&late, -ETIMEDOUT, "WAIT-TIMEOUT", "pl_wait", NULL,
			"check that the other end runs and is reachable, or allow more time", "not done within %.3f s",
			(double)timeout / (double)PL_NS_PER_S);
		pl_operation_fail(operation, -ETIMEDOUT, &late);
		pl_cancel(operation);
		wait_until(operation, UINT64_MAX);
	}
	return collect_handle(operation, receipt, error);
}
