/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/thread_state.h"

static struct pl_thread_state *new_state(struct pl_context *context, unsigned long self)
{
	struct pl_thread_state *made = pl_zalloc(&context->allocator, sizeof(*made));

	if (!made)
		return NULL;
	made->thread = self;
	/* Memory checkers must see freed operations, so there is no spare one for them. */
	atomic_init(&made->spare.state, PL_POOL_MAX ? PL_SPARE : PL_RUNNING);
	made->clock.steady = context->engines[0]->operations.clock.steady;
	return made;
}

struct pl_thread_state *pl_thread_state_find(struct pl_context *context, unsigned long self)
{
	struct pl_thread_state *made = NULL;

	for (unsigned i = 0; i < PL_THREADS_MAX; i++) {
		struct pl_thread_state *_Atomic *slot = &context->threads[pl_thread_slot(self, i)];
		struct pl_thread_state *there = atomic_load_explicit(slot, memory_order_acquire);

		if (!there && !made) {
			made = new_state(context, self);
			if (!made)
				return NULL;
		}
		if (!there && atomic_compare_exchange_strong(slot, &there, made))
			return made;
		if (there->thread == self)
			return there;
	}
	pl_free(&context->allocator, made);
	return NULL;
}

void pl_thread_states_close(struct pl_context *context)
{
	for (unsigned i = 0; i < PL_THREADS_MAX; i++) {
		pl_free(&context->allocator, atomic_load(&context->threads[i]));
		atomic_store(&context->threads[i], NULL);
	}
}
