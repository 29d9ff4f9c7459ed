/* SPDX-License-Identifier: BSD-2-Clause */
/* A set of ranges of addresses, which may overlap, each with something that it belongs to.  Locks nothing. */
#ifndef PL_MEMORY_RANGE_SET_H
#define PL_MEMORY_RANGE_SET_H

#include "base/base.h"

struct pl_range_set_chunk;

struct pl_range_set {
	struct pl_allocator allocator;
	size_t count;
	uintptr_t *firsts;  /* of each chunk: where its first range begins, */
	uintptr_t *reaches; /* and the highest end of a range in it or in a chunk before */
	struct pl_range_set_chunk **chunks;
	size_t chunk_count, chunk_room;
};

void pl_range_set_init(struct pl_range_set *ranges, const struct pl_allocator *allocator);
/* Forgets all. */
void pl_range_set_clear(struct pl_range_set *ranges);
int pl_range_set_insert(struct pl_range_set *ranges, uintptr_t begin, uintptr_t end, void *owner);
/* It must be there. */
void pl_range_set_remove(struct pl_range_set *ranges, uintptr_t begin, const void *owner);
/* The last, in order, that ends at `end` or after of those that begin up to `begin`; NULL: there is none. */
void *pl_range_set_find(const struct pl_range_set *ranges, uintptr_t begin, uintptr_t end);
/* Calls for each, in order. */
void pl_range_set_each(const struct pl_range_set *ranges, void (*call)(void *owner, void *user), void *user);

#endif
