/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cache of registrations: a device's registrations of memory ranges, found again by any range within. An entry is
 * identified by its range and the number of its allocation, so that another allocation at the same address never
 * matches. Unused entries stay until their bytes exceed a limit; those not used since the last eviction round go first.
 *
 * All calls may come from any thread at any time. A repeated hit takes no lock. The caller decides whether to ask for
 * an identity: for GPU memory that is a call of the driver, longer than all of this; memory whose end is reported to
 * pl_registration_cache_invalidate() needs none.
 */
#ifndef PL_MEMORY_REGISTRATION_CACHE_H
#define PL_MEMORY_REGISTRATION_CACHE_H

#include "base/base.h"

struct pl_registration_cache;

/* Cached registration; constant while it is used. */
struct pl_cached {
	void *owner; /* the caller's object */
	uintptr_t begin, end;
	uint64_t identity;
	/* Private to the cache. */
	struct pl_list link;
	uint32_t number;
};

/* Counters. Some hits are not counted when several threads hit at once. */
struct pl_registration_cache_counts {
	uint64_t hits, misses, evictions, invalidations;
	size_t entries, bytes, idle_bytes;
};

/* `release` is called, without a lock, for the owner of each removed entry, which has no users then. */
struct pl_registration_cache *pl_registration_cache_new(const struct pl_allocator *allocator, size_t limit,
							void (*release)(void *owner));
/* No entry may be in use. */
void pl_registration_cache_close(struct pl_registration_cache *cache);
/*
 * Returns the number of an entry that holds the range, of that allocation, and takes it into use; 0: none. Entries of
 * other allocations in that range are removed.
 */
uint32_t pl_registration_cache_take(struct pl_registration_cache *cache, const void *address, size_t length,
				    uint64_t identity);
/* Adds a new registration, in use. Returns the number of its entry, which owns `owner` from now on; 0: no memory. */
uint32_t pl_registration_cache_add(struct pl_registration_cache *cache, void *owner, const void *address, size_t length,
				   uint64_t identity);
/* Returns the entry of a number in use. */
const struct pl_cached *pl_registration_cache_entry(struct pl_registration_cache *cache, uint32_t number);
/* Ends a use. */
void pl_registration_cache_give(struct pl_registration_cache *cache, uint32_t number);
/* Removes an entry that the caller uses; it is released after its last use. */
void pl_registration_cache_drop(struct pl_registration_cache *cache, uint32_t number);
/* A range is being freed: removes its registrations, which are released after their last use. */
void pl_registration_cache_invalidate(struct pl_registration_cache *cache, const void *address, size_t length);
void pl_registration_cache_count(struct pl_registration_cache *cache, struct pl_registration_cache_counts *counts);

#endif
