/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations that are kept: what a device made of ranges of memory, found again by any range within.  An entry is
 * known by its range and the number of the allocation that it was made of, so that another allocation at the same
 * address is never taken for it.  Those that nobody uses stay until their bytes exceed a limit; one that was not used
 * again since it was last considered goes first.
 *
 * All calls may come from any thread at any time.  What is found again where it was found before costs no lock.  Who
 * asks for an identity decides when that is worth it: for a GPU's memory it is a call of the driver, longer than all of
 * this; memory whose end is told to pl_registration_cache_invalidate() needs none.
 */
#ifndef PL_MEMORY_REGISTRATION_CACHE_H
#define PL_MEMORY_REGISTRATION_CACHE_H

#include "base/base.h"

struct pl_registration_cache;

/* What is known of an entry; constant while it is used. */
struct pl_cached {
	void *owner; /* what the caller keeps there */
	uintptr_t begin, end;
	uint64_t identity;
	/* The cache's own. */
	struct pl_list link;
	uint32_t number;
};

/* How often it was asked, and what there is.  Some hits are not counted when several threads hit at once. */
struct pl_registration_cache_counts {
	uint64_t hits, misses, evictions, invalidations;
	size_t entries, bytes, idle_bytes;
};

/* `release` is called, without a lock, for the owner of each entry that goes; nobody uses it then. */
struct pl_registration_cache *pl_registration_cache_new(const struct pl_allocator *allocator, size_t limit, void (*release)(void *owner));
/* Nothing may be in use. */
void pl_registration_cache_close(struct pl_registration_cache *cache);
/*
 * The number of an entry that holds the range, of that allocation, for use; 0 if there is none.  Entries of other
 * allocations that are found there go.
 */
uint32_t pl_registration_cache_take(struct pl_registration_cache *cache, const void *address, size_t length, uint64_t identity);
/* Enters what was just made, for use: the number of the entry, which has the owner from now on, or 0: no memory. */
uint32_t pl_registration_cache_add(struct pl_registration_cache *cache, void *owner, const void *address, size_t length, uint64_t identity);
/* One that is in use. */
const struct pl_cached *pl_registration_cache_entry(struct pl_registration_cache *cache, uint32_t number);
/* Ends a use. */
void pl_registration_cache_give(struct pl_registration_cache *cache, uint32_t number);
/* What the caller uses is found no more, and goes when it is not used. */
void pl_registration_cache_drop(struct pl_registration_cache *cache, uint32_t number);
/* The range is being freed: what was made of it is found no more, and goes when it is not used. */
void pl_registration_cache_invalidate(struct pl_registration_cache *cache, const void *address, size_t length);
void pl_registration_cache_count(struct pl_registration_cache *cache, struct pl_registration_cache_counts *counts);

#endif
