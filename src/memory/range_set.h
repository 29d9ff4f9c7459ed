/* SPDX-License-Identifier: BSD-2-Clause */
/* Set of address ranges, which may overlap, each with its owner. Has no lock. */
#ifndef PL_MEMORY_RANGE_SET_H
#define PL_MEMORY_RANGE_SET_H

#include "base/base.h"

struct pl_range_set_chunk;

struct pl_range_set {
	struct pl_allocator allocator;
	size_t count;
	uintptr_t *firsts;  /* of each chunk: beginning of its first range, */
	uintptr_t *reaches; /* and highest end of a range in it or in an earlier chunk */
	struct pl_range_set_chunk **chunks;
	size_t chunk_count, chunk_room;
};

void pl_range_set_init(struct pl_range_set *ranges, const struct pl_allocator *allocator);
/* Removes all ranges. */
void pl_range_set_clear(struct pl_range_set *ranges);
int pl_range_set_insert(struct pl_range_set *ranges, uintptr_t begin, uintptr_t end, void *owner);
/* Removes a range, which must be in the set. */
void pl_range_set_remove(struct pl_range_set *ranges, uintptr_t begin, const void *owner);
/*
 * Returns the owner of the last range, in order, that begins at or before `begin` and ends at or after `end`; NULL:
 * none.
 */
void *pl_range_set_find(const struct pl_range_set *ranges, uintptr_t begin, uintptr_t end);
/* Calls the function for each range, in order. */
void pl_range_set_each(const struct pl_range_set *ranges, void (*call)(void *owner, void *user), void *user);

#endif
