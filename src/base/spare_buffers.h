/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Spare buffers: memory of buffers that their users have given back, for the next user of the same size. So users that
 * are idle keep no buffers, and busy ones allocate none. Users have few sizes. A lock of the owner protects the buffers.
 *
 * A user that must wait keeps bytes meanwhile. A few users may keep large buffers for them, which saves a copy; the others move
 * the bytes to buffers of about their size. So thousands of users that wait hold little memory.
 */
#ifndef PL_SPARE_BUFFERS_H
#define PL_SPARE_BUFFERS_H

#include "base/pool.h"

/* Most buffers of one size, and of all sizes. AddressSanitizer must see freed memory. */
#define PL_SPARE_EACH PL_MIN(2, PL_POOL_MAX)
#define PL_SPARE_MAX 6
/* Most large buffers that users of the same owner keep while they wait. */
#define PL_SPARE_KEPT 16

struct pl_spare_buffers {
	struct {
		void *memory; /* NULL: none */
		size_t size;
	} buffers[PL_SPARE_MAX];
	unsigned kept; /* large buffers that waiting users keep */
};

/* True if no more users may keep large buffers. Accepts `spare` NULL. */
static inline bool pl_spare_all_kept(const struct pl_spare_buffers *spare)
{
	return spare && spare->kept == PL_SPARE_KEPT;
}

/* Counts a user that keeps a large buffer. Returns false if it may not. Accepts `spare` NULL. */
static inline bool pl_spare_keep(struct pl_spare_buffers *spare)
{
	if (!spare || pl_spare_all_kept(spare))
		return false;
	spare->kept++;
	return true;
}

/* Returns memory that is not zeroed; NULL: no memory. Accepts `spare` NULL. */
static inline void *pl_spare_take(struct pl_spare_buffers *spare, const struct pl_allocator *allocator, size_t size)
{
	for (unsigned i = 0; spare && i < PL_SPARE_MAX; i++) {
		void *memory = spare->buffers[i].memory;

		if (!memory || spare->buffers[i].size != size)
			continue;
		spare->buffers[i].memory = NULL;
		return memory;
	}
	return pl_alloc(allocator, size);
}

/* Keeps memory of that size, or frees it if there is enough of the size. Accepts `spare` and `memory` NULL. */
static inline void pl_spare_give(struct pl_spare_buffers *spare, const struct pl_allocator *allocator, void *memory,
				 size_t size)
{
	int kept = 0, place = -1;

	for (int i = 0; spare && memory && i < PL_SPARE_MAX; i++) {
		if (!spare->buffers[i].memory)
			place = i;
		else
			kept += spare->buffers[i].size == size;
	}
	if (place < 0 || kept >= PL_SPARE_EACH) {
		pl_free(allocator, memory);
		return;
	}
	spare->buffers[place].memory = memory;
	spare->buffers[place].size = size;
}

/* Frees all memory. */
static inline void pl_spare_drain(struct pl_spare_buffers *spare, const struct pl_allocator *allocator)
{
	for (unsigned i = 0; i < PL_SPARE_MAX; i++)
		pl_free(allocator, spare->buffers[i].memory);
	*spare = (struct pl_spare_buffers){ 0 };
}

#endif
