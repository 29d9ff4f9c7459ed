/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Synchronous operations: done before the call returns, on the program's thread. If the fabric reaches the peer's
 * memory itself, posting the operation to an engine would cost more than doing it.
 */
#include "core/fastpath.h"

/* Without threads and without waiting operations nothing else polls the sockets, so one operation in this many does. */
#define LOOK_EVERY 256

/* True if no earlier operation must be waited for, and nothing must follow the bytes. */
static bool sync_op_is_allowed(const struct pl_peer *peer, const struct pl_attributes *attributes)
{
	return !(attributes->flags & (PL_FENCE | PL_NOTIFY | PL_AFTER_STREAM)) && atomic_load(&peer->fences) == 0;
}

static void poll_sockets_sometimes(struct pl_peer *peer)
{
	unsigned done;

	if (!pl_context_manual(peer->context))
		return;
	/* Concurrent threads may lose some counts. */
	done = atomic_load_explicit(&peer->sync_count, memory_order_relaxed) + 1;
	atomic_store_explicit(&peer->sync_count, done, memory_order_relaxed);
	if (done % LOOK_EVERY == 0)
		pl_context_progress(peer->context);
}

/* A running operation: other threads look at no more than its state. */
static void add_running_handle(struct pl_context *context, struct pl_operation *operation)
{
	atomic_store_explicit(&operation->state, PL_RUNNING, memory_order_relaxed);
	pl_list_append(&context->handles, &operation->handle_link);
}

/* State that is needed before the bytes move. */
struct start {
	struct pl_operation *operation; /* its memory; NULL: none available */
	struct pl_moment posted;
};

/* Takes an operation that has no waiter. NULL: none is spare. The latch is held. */
static struct pl_operation *take_spare_operation(struct pl_context *context, bool held)
{
	struct pl_operation *operation = context->instant;

	if (held && operation && atomic_load_explicit(&operation->state, memory_order_acquire) == PL_SPARE) {
		atomic_store_explicit(&operation->state, PL_RUNNING, memory_order_relaxed);
		return operation;
	}
	operation = pl_pool_first(&context->spare_operations);
	if (held && operation)
		add_running_handle(context, operation);
	return operation;
}

static struct pl_operation *allocate_operation(struct pl_context *context, bool held)
{
	struct pl_operation *operation = pl_alloc(&context->allocator, sizeof(*operation));

	if (held && operation) {
		pl_latch_take(&context->spare_operations.latch);
		add_running_handle(context, operation);
		pl_latch_release(&context->spare_operations.latch);
	}
	return operation;
}

/* Takes the latch only once for the time and the memory. */
static void start_sync_op(struct start *start, struct pl_context *context, bool held)
{
	/* Reads the counter before the latch: after an atomic instruction it took 20 ns more. */
	uint64_t ticks = pl_clock_ticks();

	pl_latch_take(&context->spare_operations.latch);
	start->posted = pl_clock_moment(&context->clock, ticks);
	start->operation = take_spare_operation(context, held);
	pl_latch_release(&context->spare_operations.latch);
	if (!start->operation)
		start->operation = allocate_operation(context, held);
}

static void return_operation(struct pl_context *context, struct pl_operation *operation, bool held)
{
	if (held)
		pl_operation_unhold(context, operation);
	else
		pl_pool_give(&context->spare_operations, &context->allocator, operation);
}

int pl_sync_open(struct pl_context *context, struct pl_error *error)
{
	/* Memory checkers must see freed operations, so there is no spare one. */
	if (PL_POOL_MAX == 0)
		return 0;
	context->instant = pl_zalloc(&context->allocator, sizeof(*context->instant));
	if (!context->instant)
		return pl_fail_memory(error, "pl_open");
	add_running_handle(context, context->instant);
	atomic_store(&context->instant->state, PL_SPARE);
	return 0;
}

void pl_sync_close(struct pl_context *context)
{
	if (!context->instant)
		return;
	pl_list_remove(&context->instant->handle_link);
	pl_free(&context->allocator, context->instant);
	context->instant = NULL;
}

static void fill_completion(struct pl_completion *completion, const struct pl_sync_op *instant, struct start *start)
{
	completion->posted = start->posted.time;
	completion->completed = pl_moment_now(&start->posted);
	completion->value = instant->value;
	completion->bytes = instant->segment.length;
	if (completion->bytes) {
		completion->lanes = 1;
		completion->route = PL_ROUTE_DIRECT;
		completion->reason = instant->route_reason;
		completion->visible = completion->peer->ops->visible;
		completion->visibility = completion->peer->ops->visibility;
	}
}

/*
 * After a large copy the processor's nearest cache holds the copied bytes. Only the operation's memory must exist
 * before, so its members are written last.
 */
bool pl_sync_try(struct pl_peer *peer, struct pl_sync_op *instant, const struct pl_attributes *attributes,
		 struct pl_operation **handle)
{
	struct pl_context *context = peer->context;
	struct pl_operation *operation;
	struct start at;

	if (!sync_op_is_allowed(peer, attributes))
		return false;
	start_sync_op(&at, context, handle);
	operation = at.operation;
	if (!operation)
		return false;
	if (!peer->ops->sync_try(peer->endpoint, instant)) {
		return_operation(context, operation, handle);
		return false;
	}
	pl_fast_init(operation, context, peer, instant->kind, attributes);
	fill_completion(&operation->completion, instant, &at);
	if (instant->old)
		*instant->old = instant->value;
	operation->has_handle = handle;
	pl_count_sync(&context->counters, peer->fabric, &operation->completion);
	/* Before the delivery: the thread that gets the completion may close the peer. */
	poll_sockets_sometimes(peer);
	atomic_store_explicit(&operation->state, PL_DONE, memory_order_release);
	if (handle)
		*handle = operation;
	else
		pl_completion_push(context, operation);
	return true;
}
