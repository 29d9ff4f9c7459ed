/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of one size that was freed and will be wanted again soon.  Any thread may take and give;
 * nobody waits: who finds another at it uses the allocator instead.
 */
#ifndef PL_POOL_H
#define PL_POOL_H

#include <stdatomic.h>

#include "base/base.h"

/* Under AddressSanitizer memory that was freed has to stay so. */
#if defined(__SANITIZE_ADDRESS__)
#define PL_POOL_MAX 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PL_POOL_MAX 0
#endif
#endif
#ifndef PL_POOL_MAX
#define PL_POOL_MAX 512
#endif

struct pl_pool {
	atomic_bool busy;
	int count;    /* signed, as the most may be none */
	void **first; /* each begins with the address of the next */
};

PL_ALWAYS_INLINE bool pl_pool_enter(struct pl_pool *pool)
{
	return !atomic_exchange_explicit(&pool->busy, true, memory_order_acquire);
}

PL_ALWAYS_INLINE void pl_pool_leave(struct pl_pool *pool)
{
	atomic_store_explicit(&pool->busy, false, memory_order_release);
}

/* Not zeroed; NULL if there is no memory. */
PL_ALWAYS_INLINE void *pl_pool_take(struct pl_pool *pool, const struct pl_allocator *allocator, size_t size)
{
	void **taken = NULL;

	if (pl_pool_enter(pool)) {
		taken = pool->first;
		if (taken) {
			pool->first = *taken;
			pool->count--;
		}
		pl_pool_leave(pool);
	}
	return taken ? taken : pl_alloc(allocator, size);
}

PL_ALWAYS_INLINE void pl_pool_give(struct pl_pool *pool, const struct pl_allocator *allocator, void *memory)
{
	void **given = memory;

	if (pl_pool_enter(pool)) {
		if (pool->count < PL_POOL_MAX) {
			*given = pool->first;
			pool->first = given;
			pool->count++;
			given = NULL;
		}
		pl_pool_leave(pool);
	}
	pl_free(allocator, given);
}

/* Nobody uses the pool any more. */
static inline void pl_pool_drain(struct pl_pool *pool, const struct pl_allocator *allocator)
{
	while (pool->first) {
		void **memory = pool->first;

		pool->first = *memory;
		pl_free(allocator, memory);
	}
	pool->count = 0;
}

#endif
