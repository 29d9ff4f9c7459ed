/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fast path of an operation that nothing delays: from the call to the fabric, and from there to its completion. Inline:
 * most of its steps take less time than a function call.
 */
#ifndef PL_CORE_FASTPATH_H
#define PL_CORE_FASTPATH_H

#include "base/vector_bytes.h"
#include "core/fabric.h"
#include "core/vector.h"

#define PL_VECTOR_BYTES 128u

_Static_assert(sizeof(struct pl_completion) == PL_VECTOR_BYTES, "completions are copied in vector registers");
_Static_assert(offsetof(struct pl_operation, completion) >= PL_VECTOR_BYTES, "so are members of operations cleared");

/* `attributes` have the size of this release. */
PL_ALWAYS_INLINE void pl_fast_init(struct pl_operation *operation, struct pl_context *context, struct pl_peer *peer,
				   enum pl_kind kind, const struct pl_attributes *attributes)
{
	pl_vectors_clear(operation, PL_VECTOR_BYTES);
	memset((uint8_t *)operation + PL_VECTOR_BYTES, 0, offsetof(struct pl_operation, completion) - PL_VECTOR_BYTES);
	operation->attributes = *attributes;
	if (attributes->timeout == 0)
		operation->attributes.timeout = context->options.operation_timeout;
	operation->context = context;
	operation->peer = peer;
	operation->home = peer ? peer->home : context->engines[0];
	operation->segments = &operation->single;
	atomic_store_explicit(&operation->state, PL_RUNNING, memory_order_relaxed);
	operation->old = NULL;
	pl_list_init(&operation->peer_link);
	pl_list_init(&operation->queue_link);
	atomic_init(&operation->pending, 1);
	pl_vectors_clear(&operation->completion, PL_VECTOR_BYTES);
	operation->completion.kind = kind;
	operation->completion.fabric = peer ? peer->ops->name : "";
	operation->completion.reason = "";
	operation->completion.user_data = attributes->user_data;
	operation->completion.peer = peer;
}

/* Returns NULL without memory. */
PL_ALWAYS_INLINE struct pl_operation *pl_fast_new(struct pl_context *context, struct pl_peer *peer, enum pl_kind kind,
						  const struct pl_attributes *attributes)
{
	struct pl_engine *home = peer ? peer->home : context->engines[0];
	struct pl_operation *operation = pl_pool_take(&home->operations.pool, &context->allocator, sizeof(*operation));

	if (operation)
		pl_fast_init(operation, context, peer, kind, attributes);
	return operation;
}

/*
 * The same for an operation of one segment, posted now at the peer's home. Everything that may call a function comes first:
 * behind a call the compiler no longer knows the members.
 */
PL_ALWAYS_INLINE struct pl_operation *pl_fast_new_held(struct pl_peer *peer, enum pl_kind kind,
						       const struct pl_attributes *attributes,
						       const struct pl_segment *segment)
{
	struct pl_context *context = peer->context;
	struct pl_engine *home = peer->home;
	uint64_t now = pl_clock_now(&home->clock);
	struct pl_operation *operation = pl_pool_take_held(&home->spare_operations, &home->operations.pool,
							   &context->allocator, sizeof(*operation));

	if (!operation)
		return NULL;
	if (segment->region)
		pl_region_use(segment->region, home);
	if (segment->remote)
		pl_remote_use(segment->remote);
	pl_fast_init(operation, context, peer, kind, attributes);
	operation->of_home = true;
	operation->completion.posted = now;
	operation->single = *segment;
	operation->segment_count = 1;
	operation->total = segment->length;
	operation->used_at_home = true;
	return operation;
}

PL_ALWAYS_INLINE void pl_fast_segment(struct pl_operation *operation, const struct pl_segment *segment)
{
	operation->segments[operation->segment_count++] = *segment;
	operation->total += segment->length;
	if (segment->region)
		atomic_fetch_add(&segment->region->busy, 1);
	if (segment->remote)
		atomic_fetch_add(&segment->remote->references, 1);
}

/* The operation's time is set. */
PL_ALWAYS_INLINE void pl_fast_prepare(struct pl_operation *operation)
{
	operation->deadline = pl_deadline(operation->completion.posted, operation->attributes.timeout);
	operation->plain = operation->segment_count == 1 && !(operation->attributes.flags & ~(unsigned)PL_MORE) &&
			   !pl_visible_more(operation->attributes.visible);
}

/* True if the peer's only timer for operations is not set, or later than this deadline. Home. */
PL_ALWAYS_INLINE bool pl_fast_is_unwatched(const struct pl_peer *peer, uint64_t deadline)
{
	return pl_list_empty(&peer->deadline.link) || deadline < peer->next_deadline;
}

/* Sets that timer, if this deadline is earlier than all before. Home. */
PL_ALWAYS_INLINE void pl_fast_watch(struct pl_peer *peer, uint64_t deadline)
{
	if (pl_fast_is_unwatched(peer, deadline)) {
		peer->next_deadline = deadline;
		pl_timer_set(peer->home, &peer->deadline, deadline);
	}
}

/*
 * Loads the operation that the engine begins next, which a thread of the program has written: the time until its bytes are there is
 * longer than that of most steps. Home.
 */
PL_ALWAYS_INLINE void pl_fast_prefetch_submitted(const struct pl_engine *home)
{
	const uint8_t *next;

	if (pl_list_empty(&home->taken))
		return;
	next = (const uint8_t *)pl_list_first(&home->taken, struct pl_operation, task.link);
	for (size_t at = 0; at < offsetof(struct pl_operation, cancel_task); at += 64)
		__builtin_prefetch(next + at, 1);
}

/* pl_operation_begin() for an operation with a peer. */
PL_ALWAYS_INLINE bool pl_fast_begin(struct pl_peer *peer, struct pl_operation *operation)
{
	pl_list_append(&peer->operations, &operation->peer_link);
	if (atomic_load_explicit(&peer->state, memory_order_relaxed) == PL_PEER_LOST) {
		pl_operation_lost(operation);
		return false;
	}
	pl_fast_watch(peer, operation->deadline);
	return true;
}

PL_ALWAYS_INLINE bool pl_fast_is_message(const struct pl_operation *operation)
{
	return operation->completion.kind == PL_KIND_SEND || operation->completion.kind == PL_KIND_NOTIFY;
}

/* True if earlier messages must arrive before anything that the operation sends to the peer's program. */
PL_ALWAYS_INLINE bool pl_fast_keeps_order(const struct pl_operation *operation)
{
	return pl_fast_is_message(operation) || (operation->attributes.flags & PL_NOTIFY);
}

/* Gives an operation to the fabric, or to the message layer.  Home. */
PL_ALWAYS_INLINE void pl_fast_carry(struct pl_peer *peer, struct pl_operation *operation)
{
	if (pl_fast_is_message(operation))
		pl_message_send(operation);
	else
		peer->ops->post(peer->endpoint, operation);
}

PL_ALWAYS_INLINE void pl_fast_count(struct pl_peer *peer, struct pl_operation *operation)
{
	operation->counted = true;
	peer->running++;
}

/* Carries an operation, now or when its stream has reached its mark. Home. */
PL_ALWAYS_INLINE void pl_fast_run(struct pl_peer *peer, struct pl_operation *operation)
{
	pl_fast_count(peer, operation);
	if (operation->after || (!pl_list_empty(&peer->after_stream) && pl_fast_keeps_order(operation)))
		pl_after_stream(peer, operation);
	else
		pl_fast_carry(peer, operation);
}

PL_ALWAYS_INLINE bool pl_fast_must_wait(const struct pl_peer *peer, const struct pl_operation *operation)
{
	return (operation->attributes.flags & PL_FENCE) && peer->running;
}

/* Runs an operation that began, or queues it behind a fence. Home. */
PL_ALWAYS_INLINE void pl_fast_start(struct pl_peer *peer, struct pl_operation *operation)
{
	if (!pl_list_empty(&peer->fenced) || pl_fast_must_wait(peer, operation))
		pl_list_append(&peer->fenced, &operation->queue_link);
	else
		pl_fast_run(peer, operation);
}

/* Takes the home engine's lock, if it is free and no task is queued, which came first. */
PL_ALWAYS_INLINE bool pl_fast_enter(struct pl_peer *peer)
{
	struct pl_engine *home = peer->home;

	if (pl_engine_held(home) || !pl_engine_try(home))
		return false;
	if (atomic_load_explicit(&home->task_count, memory_order_relaxed) == 0)
		return true;
	pl_engine_leave(home);
	return false;
}

/* Begins and starts an operation of pl_fast_new_held() after pl_fast_enter(), and unlocks. `kind` is the operation's. */
PL_ALWAYS_INLINE void pl_fast_submit(struct pl_peer *peer, struct pl_operation *operation, enum pl_kind kind,
				     struct pl_operation **handle)
{
	pl_fast_prepare(operation);
	if (handle || (operation->attributes.flags & PL_FENCE) || pl_fast_is_unwatched(peer, operation->deadline) ||
	    atomic_load_explicit(&peer->state, memory_order_relaxed) == PL_PEER_LOST) {
		pl_operation_submit_held(operation, handle);
	} else {
		pl_list_append(&peer->operations, &operation->peer_link);
		/* Only messages wait for streams here: no stream was marked for the operation. */
		if (kind == PL_KIND_SEND || !pl_list_empty(&peer->fenced)) {
			pl_fast_start(peer, operation);
		} else {
			pl_fast_count(peer, operation);
			peer->ops->post(peer->endpoint, operation);
		}
	}
	pl_engine_leave(peer->home);
}

/* Ends a running operation's count. Home. */
PL_ALWAYS_INLINE void pl_fast_ended(struct pl_peer *peer, struct pl_operation *operation)
{
	operation->counted = false;
	peer->running--;
	if (!pl_list_empty(&peer->fenced))
		pl_peer_fence_release(peer);
}

/* Releases the operation's regions and remote regions. */
PL_ALWAYS_INLINE void pl_fast_release(struct pl_operation *operation)
{
	if (operation->used_at_home) {
		if (operation->single.region)
			pl_region_unuse(operation->single.region, operation->home);
		if (operation->single.remote)
			pl_remote_unuse(operation->single.remote);
		operation->used_at_home = false;
		operation->segment_count = 0;
		return;
	}
	/* A prepared vector keeps its references. */
	for (unsigned i = 0; i < operation->segment_count; i++) {
		struct pl_segment *segment = &operation->segments[i];

		if (operation->vector)
			break;
		if (segment->region && pl_segment_changes_region(operation->segments, i))
			atomic_fetch_sub(&segment->region->busy, 1);
		if (segment->remote && pl_segment_changes_remote(operation->segments, i))
			pl_remote_put(segment->remote);
		if (operation->one_memory)
			break;
	}
	operation->segment_count = 0;
}

/* Frees all memory that the operation owns. */
PL_ALWAYS_INLINE void pl_fast_strip(struct pl_operation *operation)
{
	const struct pl_allocator *allocator = &operation->context->allocator;

	if (operation->vector)
		pl_vector_return(operation->vector, operation->segments);
	else if (operation->segments != &operation->single)
		pl_free(allocator, operation->segments);
	if (operation->copy)
		pl_free(allocator, operation->copy);
	if (operation->after)
		pl_stream_mark_free(operation->after);
	if (operation->error)
		pl_free(allocator, operation->error);
}

/* Frees an operation without a handle that was never cancelled. */
PL_ALWAYS_INLINE void pl_fast_free(struct pl_operation *operation)
{
	pl_fast_strip(operation);
	pl_pool_give(&operation->home->operations.pool, &operation->context->allocator, operation);
}

/* The same at home, of a successful operation. */
PL_ALWAYS_INLINE void pl_fast_free_held(struct pl_operation *operation)
{
	if (!operation->of_home) {
		pl_fast_free(operation);
		return;
	}
	if (operation->copy)
		pl_free(&operation->context->allocator, operation->copy);
	if (!pl_pool_keep(&operation->home->spare_operations, operation))
		pl_free(&operation->context->allocator, operation);
}

/*
 * Returns the pl_poll() call that takes completions now. NULL: there is none, it is full, or earlier completions wait.
 * Home.
 */
PL_ALWAYS_INLINE struct pl_sink *pl_fast_sink(const struct pl_context *context)
{
	struct pl_sink *sink = context->sink;

	if (!sink || sink->count == sink->most || atomic_load_explicit(&context->any_completed, memory_order_relaxed))
		return NULL;
	return sink;
}

/* Delivers a successful operation without a handle: to the running pl_poll() call, or to the queue. Home. */
PL_ALWAYS_INLINE void pl_fast_deliver(struct pl_operation *operation)
{
	struct pl_sink *sink = pl_fast_sink(operation->context);

	if (sink) {
		pl_vectors_copy(&sink->completions[sink->count++], &operation->completion, PL_VECTOR_BYTES);
		pl_fast_free_held(operation);
		return;
	}
	atomic_store_explicit(&operation->state, PL_DONE, memory_order_release);
	pl_completion_push(operation->context, operation);
}

/* Bytes copied by one end are in their memory when that end reports the copy, which completes the operation. */
PL_ALWAYS_INLINE void pl_fast_visible(struct pl_operation *operation)
{
	struct pl_completion *completion = &operation->completion;

	if (completion->visibility || !completion->bytes)
		return;
	if (completion->kind == PL_KIND_SEND ||
	    (operation->attributes.visible == PL_VISIBLE_ON_WIRE && completion->kind == PL_KIND_WRITE)) {
		completion->visible = PL_VISIBLE_ON_WIRE;
		completion->visibility = completion->kind == PL_KIND_SEND ? "the receive reports it" : "not asked for";
	} else if (completion->kind == PL_KIND_RECEIVE) {
		completion->visible = PL_VISIBLE_GPU_VISIBLE;
		completion->visibility = "copied to their destination by the processor or the GPU's own engine";
	} else {
		completion->visible = operation->peer->ops->visible;
		completion->visibility = operation->peer->ops->visibility;
	}
}

/* True if one rail carried all bytes of a plain operation, so that its completion has no special values. */
PL_ALWAYS_INLINE bool pl_fast_usual(struct pl_operation *operation, uint64_t now)
{
	unsigned rails = atomic_load_explicit(&operation->rails, memory_order_relaxed);

	return operation->plain && rails && !(rails & (rails - 1)) && !operation->route_reason &&
	       !atomic_load_explicit(&operation->status, memory_order_relaxed) &&
	       !atomic_load_explicit(&operation->staged, memory_order_relaxed) && now > operation->completion.posted;
}

/* pl_operation_complete() for the usual case. Home. */
PL_ALWAYS_INLINE void pl_fast_complete(struct pl_operation *operation)
{
	struct pl_completion *completion = &operation->completion;
	uint64_t now = pl_engine_now(operation->home);
	struct pl_peer *peer = operation->peer;

	if (!pl_fast_usual(operation, now)) {
		pl_operation_complete(operation);
		return;
	}
	pl_list_unlink(&operation->peer_link);
	completion->completed = now;
	/* Messages set their byte count earlier. */
	if (completion->kind != PL_KIND_SEND && completion->kind != PL_KIND_RECEIVE)
		completion->bytes = operation->total;
	completion->lanes = 1;
	completion->rail = (unsigned)__builtin_ctz(atomic_load_explicit(&operation->rails, memory_order_relaxed));
	if (completion->bytes) {
		completion->route = PL_ROUTE_DIRECT;
		completion->reason = peer->reason;
	}
	pl_fast_visible(operation);
	if (operation->old)
		*operation->old = completion->value;
	pl_fast_release(operation);
	if (operation->counted)
		pl_fast_ended(peer, operation);
	pl_count_done(&peer->counts[completion->kind], completion->bytes, now - completion->posted);
	if (operation->has_handle)
		pl_operation_deliver(operation);
	else
		pl_fast_deliver(operation);
}

/* Ends one pending count. The last one completes the operation at once. Home. */
PL_ALWAYS_INLINE void pl_fast_pending_done(struct pl_operation *operation)
{
	if (pl_operation_pending_last(operation))
		pl_fast_complete(operation);
}

#endif
