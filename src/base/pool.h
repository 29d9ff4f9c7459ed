/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of one size that was freed and will be wanted again soon.  Any thread may take and give;
 * nobody waits: who finds another at it uses the allocator instead.  Who holds the latch for something else, too, takes
 * and gives in the same go.
 */
#ifndef PL_POOL_H
#define PL_POOL_H

#include "base/base.h"
#include "base/lock.h"

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
	struct pl_latch latch;
	int count;    /* signed, as the most may be none */
	void **first; /* each begins with the address of the next */
};

/* By who holds the latch.  NULL: there is none. */
PL_ALWAYS_INLINE void *pl_pool_first(struct pl_pool *pool)
{
	void **first = pool->first;

	if (first) {
		pool->first = *first;
		pool->count--;
	}
	return first;
}

/* Not zeroed; NULL if there is no memory. */
PL_ALWAYS_INLINE void *pl_pool_take(struct pl_pool *pool, const struct pl_allocator *allocator, size_t size)
{
	void *taken = NULL;

	if (pl_latch_try(&pool->latch)) {
		taken = pl_pool_first(pool);
		pl_latch_release(&pool->latch);
	}
	return taken ? taken : pl_alloc(allocator, size);
}

/* By who holds the latch.  False: there are enough. */
PL_ALWAYS_INLINE bool pl_pool_keep(struct pl_pool *pool, void *memory)
{
	void **kept = memory;

	if (pool->count >= PL_POOL_MAX)
		return false;
	*kept = pool->first;
	pool->first = kept;
	pool->count++;
	return true;
}

PL_ALWAYS_INLINE void pl_pool_give(struct pl_pool *pool, const struct pl_allocator *allocator, void *memory)
{
	bool kept = false;

	if (pl_latch_try(&pool->latch)) {
		kept = pl_pool_keep(pool, memory);
		pl_latch_release(&pool->latch);
	}
	if (!kept)
		pl_free(allocator, memory);
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
