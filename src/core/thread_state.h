/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * State of the threads that complete operations themselves: each has its own, so that threads which use one context share no
 * cache line that any of them writes.
 */
#ifndef PL_CORE_THREAD_STATE_H
#define PL_CORE_THREAD_STATE_H

#include "base/clock.h"
#include "core/context.h"
#include "core/operation.h"

struct pl_thread_state {
	unsigned long thread; /* pl_thread_self() */
	struct pl_clock clock;
	/*
	 * Operation with a handle. It becomes spare by a release store: an atomic instruction would wait until the copied bytes
	 * have left the processor's store buffers. So it is not in the list of handles, in which other threads look at operations.
	 */
	struct pl_operation spare;
	struct pl_counts counts;
};

static inline unsigned pl_thread_slot(unsigned long thread, unsigned attempt)
{
	/* Threads lie a few MiB apart. */
	return ((unsigned)((uint64_t)thread * 0x9e3779b97f4a7c15u >> 58) + attempt) % PL_THREADS_MAX;
}

/* pl_thread_state_of() for a thread whose state is not in its first slot, or does not exist yet. */
struct pl_thread_state *pl_thread_state_find(struct pl_context *context, unsigned long self);
/* Frees all states. Called before uncollected operations are freed; no thread uses the context any more. */
void pl_thread_states_close(struct pl_context *context);

/* Returns the state of the calling thread, and makes it on first use. NULL: none is left, or no memory. */
PL_ALWAYS_INLINE struct pl_thread_state *pl_thread_state_of(struct pl_context *context)
{
	unsigned long self = pl_thread_self();
	struct pl_thread_state *own =
		atomic_load_explicit(&context->threads[pl_thread_slot(self, 0)], memory_order_acquire);

	return own && own->thread == self ? own : pl_thread_state_find(context, self);
}

/* Counts an operation that succeeded, and that the calling thread completed. `own` is this thread's state, or NULL. */
PL_ALWAYS_INLINE void pl_thread_count(struct pl_context *context, struct pl_thread_state *own, unsigned fabric,
				      const struct pl_completion *completion)
{
	if (own)
		pl_count_done(&own->counts.counts[fabric][completion->kind], completion->bytes,
			      completion->completed - completion->posted);
	else
		pl_count_shared(&context->counters, fabric, completion);
}

#endif
