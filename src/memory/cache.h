/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations that are kept: what a device made of ranges of memory, found again by any range within.  An entry is
 * known by its range and the number of the allocation that it was made of, so that another allocation at the same
 * address is never taken for it.  Those that nobody uses stay until their bytes exceed a limit; the one unused for
 * longest goes first.
 */
#ifndef PL_CACHE_H
#define PL_CACHE_H

#include <pthread.h>

#include "base/base.h"

struct pl_cache;

/* Embedded in its owner's registration. */
struct pl_cached {
	struct pl_list link; /* unused, by age */
	uintptr_t begin, end;
	uint64_t identity;
	unsigned users;
	bool present; /* to be found */
};

/* `release` is called, without a lock, for each entry that goes; nobody uses it then. */
struct pl_cache *pl_cache_new(const struct pl_allocator *allocator, size_t limit, void (*release)(struct pl_cached *));
/* Nothing may be in use. */
void pl_cache_close(struct pl_cache *cache);
/*
 * An entry that holds the range, of that allocation, for use; NULL if there is none.  Entries of other
 * allocations that are found there go.
 */
struct pl_cached *pl_cache_take(struct pl_cache *cache, const void *address, size_t length, uint64_t identity);
/* Enters what was just made, for use.  -ENOMEM: it is not in the cache, and goes when it is given back. */
int pl_cache_add(struct pl_cache *cache, struct pl_cached *cached, const void *address, size_t length,
		 uint64_t identity);
/* Ends a use. */
void pl_cache_give(struct pl_cache *cache, struct pl_cached *cached);
/* The range is being freed: what was made of it is found no more, and goes when it is not used. */
void pl_cache_invalidate(struct pl_cache *cache, const void *address, size_t length);
/* Entries, and bytes of those that are not used. */
size_t pl_cache_count(struct pl_cache *cache);
size_t pl_cache_idle_bytes(struct pl_cache *cache);

#endif
