/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting for operations, and cancelling them. */
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/bulk_sender.h"
#include "core/fabric.h"
#include "core/listener.h"
#include "core/operation_index.h"

/* Rounds without progress after which a waiter sleeps. */
#define ROUNDS_BEFORE_SLEEP 2000
/* Looks at an operation between two looks at the clock. */
#define LOOKS_AT_STATE 16
/* Rounds without progress between two looks at the clock. */
#define ROUNDS_PER_LOOK 64

/* Copies a completion, except that `peer` is read atomically: another thread may close the peer. */
static void copy_completion(struct pl_completion *to, const struct pl_completion *from)
{
	const size_t rest = offsetof(struct pl_completion, remote);

	memcpy(to, from, offsetof(struct pl_completion, peer));
	to->peer = __atomic_load_n(&from->peer, __ATOMIC_RELAXED);
	memcpy((uint8_t *)to + rest, (const uint8_t *)from + rest, sizeof(*to) - rest);
}

static void fill_result(struct pl_operation *operation, struct pl_completion *completion, struct pl_error *error)
{
	int status = operation->completion.status;

	if (completion) {
		copy_completion(completion, &operation->completion);
		if (operation->of_thread)
			completion->peer = pl_sync_peer(operation);
	}
	if (status >= 0 || !error)
		return;
	if (operation->error)
		*error = *operation->error;
	else
		pl_fail_errno(error, status, "OPERATION-FAILED", NULL, NULL);
}

static int collect_handle(struct pl_operation *operation, struct pl_completion *completion, struct pl_error *error)
{
	int status = operation->completion.status;

	fill_result(operation, completion, error);
	pl_operation_free(operation);
	return status;
}

int pl_test(struct pl_operation *operation, struct pl_completion *completion, struct pl_error *error)
{
	if (pl_context_manual(operation->context) && atomic_load(&operation->state) != PL_DONE)
		pl_context_progress(operation->context);
	if (atomic_load(&operation->state) != PL_DONE) {
		pl_bulk_sender_waits(operation->context);
		return -EINPROGRESS;
	}
	return collect_handle(operation, completion, error);
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
	unsigned idle = 0, rounds = 0;

	while (atomic_load_explicit(&operation->state, memory_order_acquire) != PL_DONE) {
		int running = PL_RUNNING;
		unsigned turn;

		idle = pl_context_progress(operation->context) ? 0 : idle + 1;
		/* Traffic of other peers is progress, too, and must not delay the end: one round may move many MiB. */
		if ((!idle || ++rounds % ROUNDS_PER_LOOK == 0) && deadline != UINT64_MAX && pl_now() >= deadline)
			return atomic_load(&operation->state) == PL_DONE;
		if (idle < ROUNDS_BEFORE_SLEEP)
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

/*
 * Polls for a while: an operation that ends meanwhile costs neither thread a system call. Returns true if it is done, and false at once
 * while polling rests.
 */
static bool poll_state(const struct pl_operation *operation, uint64_t deadline)
{
	uint64_t most = operation->context->options.poll_time, now, end;

	if (most == PL_NO_POLLING)
		return false;
	now = pl_now();
	if (pl_pace_rests(&operation->home->pace, now))
		return false;
	end = PL_MIN(now + most, deadline);
	do {
		for (unsigned i = 0; i < LOOKS_AT_STATE; i++) {
			if (atomic_load_explicit(&operation->state, memory_order_acquire) == PL_DONE)
				return true;
			pl_relax();
		}
	} while (pl_now() < end);
	return false;
}

static bool wait_by_futex(struct pl_operation *operation, uint64_t deadline)
{
	pl_bulk_sender_waits(operation->context);
	if (poll_state(operation, deadline))
		return true;
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

/*
 * Cancels an operation because of the waiter's time limit. Its home records the status, unless it ends before: a receive may just
 * take its message. An earlier pl_cancel() keeps its reason.
 */
static void cancel_late_operation(struct pl_operation *operation, uint64_t timeout)
{
	if (operation->cancel_requested)
		return;
	operation->wait_time = timeout;
	operation->wait_over = true;
	pl_cancel(operation);
}

int pl_wait(struct pl_operation *operation, uint64_t timeout, struct pl_completion *completion, struct pl_error *error)
{
	if (atomic_load_explicit(&operation->state, memory_order_acquire) == PL_DONE)
		return collect_handle(operation, completion, error);
	if (!wait_until(operation, pl_deadline(pl_now(), timeout))) {
		cancel_late_operation(operation, timeout);
		wait_until(operation, UINT64_MAX);
	}
	return collect_handle(operation, completion, error);
}

int pl_try_wait(struct pl_operation *operation, uint64_t timeout, struct pl_completion *completion,
		struct pl_error *error)
{
	if (atomic_load_explicit(&operation->state, memory_order_acquire) != PL_DONE &&
	    !wait_until(operation, pl_deadline(pl_now(), timeout)))
		return -EINPROGRESS;
	return collect_handle(operation, completion, error);
}

/* -- cancellation without handles ----------------------------------------------------------------- */

/* True for a running operation without a handle that is in the set. */
static bool is_posted_with(const struct pl_operation *operation, const struct pl_cancel_set *set)
{
	return !operation->has_handle && !operation->internal &&
	       pl_cancel_set_has(set, operation->attributes.user_data) && !atomic_load(&operation->canceled);
}

/* Stops the peer's operations that match. Returns their number. */
static int cancel_of_peer(struct pl_peer *peer, const struct pl_cancel_set *set)
{
	bool one = set && set->count == 1;
	struct pl_operation *operation;
	struct pl_list all;
	int count = 0;

	/* Unlocking runs queued tasks, so operations that were posted before are in the peer's list afterwards. */
	pl_engine_lock(peer->home);
	pl_engine_unlock(peer->home);
	pl_engine_lock(peer->home);
	/* Another thread may just be submitting a connect. */
	if (peer->opening_begun && peer->opening && is_posted_with(peer->opening, set)) {
		pl_operation_stop(peer->opening, -ECANCELED, NULL);
		count++;
	}
	pl_list_init(&all);
	if (one)
		pl_operations_take_of(peer, *set->values, &all);
	else
		pl_operations_take(peer, &all);
	/* One sweep ends all that run: each walks through the work of the peer. */
	pl_peer_begin_stopping(peer);
	while ((operation = pl_peer_operation_next(peer, &all))) {
		if (is_posted_with(operation, set)) {
			pl_operation_stop(operation, -ECANCELED, NULL);
			count++;
		} else if (atomic_load(&peer->state) == PL_PEER_LOST && !atomic_load(&operation->canceled)) {
			/* The peer was lost meanwhile; that loss did not see the operations in the local list. */
			pl_operation_stop(operation, peer->loss.code, &peer->loss);
		}
	}
	/* A program that cancels one value may go on with others. */
	if (one)
		pl_peer_end_stopping_one(peer);
	else
		pl_peer_end_stopping(peer);
	pl_engine_unlock(peer->home);
	return count;
}

/*
 * Pins the peer of an index. Returns NULL if there is none, or if its opening has failed: it has no operations then, and the
 * claimer waits for pins under the engine's lock, which a caller with a pin waits for.
 */
static struct pl_peer *pin_peer(struct pl_context *context, size_t index)
{
	struct pl_peer *peer;

	pthread_mutex_lock(&context->lock);
	peer = pl_index_table_get(&context->peer_table, index);
	if (peer && peer->claimed)
		peer = NULL;
	if (peer)
		atomic_fetch_add(&peer->pins, 1);
	pthread_mutex_unlock(&context->lock);
	return peer;
}

static int cancel_posted_operations(struct pl_context *context, const struct pl_cancel_set *set)
{
	size_t size;
	int count = pl_listeners_cancel(context, set);

	pthread_mutex_lock(&context->lock);
	size = context->peer_table.count;
	pthread_mutex_unlock(&context->lock);
	for (size_t i = 0; i < size; i++) {
		struct pl_peer *peer = pin_peer(context, i);

		if (!peer)
			continue;
		count += cancel_of_peer(peer, set);
		pl_peer_unpin(peer);
	}
	return count;
}

int pl_cancel_posted(struct pl_context *context, uint64_t user_data)
{
	return cancel_posted_operations(context, &(struct pl_cancel_set){ &user_data, 1 });
}

int pl_cancel_several_posted(struct pl_context *context, const uint64_t *user_data, size_t count)
{
	/* A search in values of another order misses some. */
	for (size_t i = 1; i < count; i++)
		if (user_data[i - 1] > user_data[i])
			return -EINVAL;
	return cancel_posted_operations(context, &(struct pl_cancel_set){ user_data, count });
}

int pl_cancel_all_posted(struct pl_context *context)
{
	return cancel_posted_operations(context, NULL);
}
