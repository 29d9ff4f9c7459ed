/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pool of freed memory of one size, for reuse. Any thread may take and give, and none waits: a thread that finds the
 * latch taken uses the allocator. A thread that holds the latch for another purpose can use the pool meanwhile.
 */
#ifndef PL_POOL_H
#define PL_POOL_H

#include "base/base.h"
#include "base/lock.h"

/* AddressSanitizer must see freed memory, so the pool keeps none. */
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
	int count;    /* signed, because the limit may be 0 */
	void **first; /* each begins with the address of the next */
};

/* The caller holds the latch. Returns NULL if the pool is empty. */
PL_ALWAYS_INLINE void *pl_pool_first(struct pl_pool *pool)
{
	void **first = pool->first;

	if (first) {
		pool->first = *first;
		pool->count--;
	}
	return first;
}

/* Returns memory that is not zeroed; NULL: no memory. */
PL_ALWAYS_INLINE void *pl_pool_take(struct pl_pool *pool, const struct pl_allocator *allocator, size_t size)
{
	void *taken = NULL;

	if (pl_latch_try(&pool->latch)) {
		taken = pl_pool_first(pool);
		pl_latch_release(&pool->latch);
	}
	return taken ? taken : pl_alloc(allocator, size);
}

/* The caller holds the latch. Returns false if the pool is full. */
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

/*
 * Returns memory of a pool that another lock protects, which the caller holds. An empty pool takes all memory of `other`.
 */
PL_ALWAYS_INLINE void *pl_pool_take_held(struct pl_pool *pool, struct pl_pool *other,
					 const struct pl_allocator *allocator, size_t size)
{
	void *taken;

	if (!pool->first && pl_latch_try(&other->latch)) {
		pool->first = other->first;
		pool->count = other->count;
		other->first = NULL;
		other->count = 0;
		pl_latch_release(&other->latch);
	}
	taken = pl_pool_first(pool);
	return taken ? taken : pl_alloc(allocator, size);
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

/* Frees all memory. The pool has no users any more. */
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
