/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Synchronous operations: done before the call returns, on the program's thread. If the fabric reaches the peer's
 * memory itself, posting the operation to an engine would cost more than doing it.
 */
#include "core/fastpath.h"
#include "core/thread_state.h"

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
static void add_running_handle(struct pl_operation_store *store, struct pl_operation *operation)
{
	atomic_store_explicit(&operation->state, PL_RUNNING, memory_order_relaxed);
	pl_list_append(&store->handles, &operation->handle_link);
}

/* State that is needed before the bytes move. */
struct start {
	struct pl_thread_state *own;    /* of this thread; NULL: none is left */
	struct pl_operation *operation; /* its memory; NULL: none available */
	struct pl_moment posted;
	bool of_thread; /* the operation is the thread's own */
};

static struct pl_operation *allocate_operation(struct pl_engine *home, bool held)
{
	struct pl_operation *operation = pl_alloc(home->allocator, sizeof(*operation));

	if (held && operation) {
		pl_latch_take(&home->operations.pool.latch);
		add_running_handle(&home->operations, operation);
		pl_latch_release(&home->operations.pool.latch);
	}
	return operation;
}

/* Takes the operation from the home's pool, and the time too if this thread has no clock. Takes the latch only once. */
static void start_shared(struct start *start, struct pl_engine *home, bool held, uint64_t ticks)
{
	struct pl_operation_store *store = &home->operations;

	pl_latch_take(&store->pool.latch);
	if (!start->own)
		start->posted = pl_clock_moment(&store->clock, ticks);
	start->operation = pl_pool_first(&store->pool);
	if (held && start->operation)
		add_running_handle(store, start->operation);
	pl_latch_release(&store->pool.latch);
	if (!start->operation)
		start->operation = allocate_operation(home, held);
}

static void start_sync_op(struct start *start, struct pl_peer *peer, bool held)
{
	/* Reads the counter first: after an atomic instruction it took 20 ns more. */
	uint64_t ticks = pl_clock_ticks();
	struct pl_thread_state *own = pl_thread_state_of(peer->context);

	start->own = own;
	start->of_thread = own && held && atomic_load_explicit(&own->spare.state, memory_order_acquire) == PL_SPARE;
	if (own)
		start->posted = pl_clock_moment(&own->clock, ticks);
	if (!start->of_thread) {
		start_shared(start, peer->home, held, ticks);
		return;
	}
	start->operation = &own->spare;
	atomic_store_explicit(&own->spare.state, PL_RUNNING, memory_order_relaxed);
}

static void return_operation(struct pl_engine *home, const struct start *start, bool held)
{
	start->operation->of_thread = start->of_thread;
	if (held)
		pl_operation_unhold(home, start->operation);
	else
		pl_pool_give(&home->operations.pool, home->allocator, start->operation);
}

struct pl_peer *pl_sync_peer(const struct pl_operation *operation)
{
	struct pl_context *context = operation->context;
	struct pl_peer *peer = NULL;

	if (atomic_load(&context->closed_peers) == operation->closed_before)
		return operation->completion.peer;
	pthread_mutex_lock(&context->lock);
	pl_list_for_each(at, &context->peers)
		if (pl_list_entry(at, struct pl_peer, link) == operation->completion.peer)
			peer = operation->completion.peer;
	/* A later peer may have the memory of the closed one. */
	if (peer && (int)(peer->closed_before - operation->closed_before) > 0)
		peer = NULL;
	pthread_mutex_unlock(&context->lock);
	return peer;
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
	instant->no_wait = attributes->flags & PL_NO_WAIT;
	start_sync_op(&at, peer, handle);
	operation = at.operation;
	if (!operation)
		return false;
	if (!peer->ops->sync_try(peer->endpoint, instant)) {
		return_operation(peer->home, &at, handle);
		return false;
	}
	pl_fast_init(operation, context, peer, instant->kind, attributes);
	fill_completion(&operation->completion, instant, &at);
	if (instant->old)
		*instant->old = instant->value;
	operation->has_handle = handle;
	operation->of_thread = at.of_thread;
	operation->closed_before = atomic_load_explicit(&context->closed_peers, memory_order_relaxed);
	pl_thread_count(context, at.own, peer->fabric, &operation->completion);
	/* Before the delivery: the thread that gets the completion may close the peer. */
	poll_sockets_sometimes(peer);
	atomic_store_explicit(&operation->state, PL_DONE, memory_order_release);
	if (handle)
		*handle = operation;
	else
		pl_completion_push(context, operation);
	return true;
}
