/* SPDX-License-Identifier: BSD-2-Clause */
/* Credits of a publisher that pushes: slots of the subscriber that it may write into. */
#ifndef PL_STREAM_PUSH_CREDIT_H
#define PL_STREAM_PUSH_CREDIT_H

#include "base/base.h"

/* A slot belongs to the subscriber, is free here, or is written into. */
struct pl_push_credits {
	uint32_t slots;
	uint32_t *free; /* ring: free slots, in the order in which they came */
	bool *owned;    /* of each slot: free here, or written into */
	uint32_t first, count;
};

/* `free` and `owned` have `slots` elements, and are zero. */
static inline void pl_push_credits_init(struct pl_push_credits *credits, uint32_t slots, uint32_t *free, bool *owned)
{
	*credits = (struct pl_push_credits){ .slots = slots, .free = free, .owned = owned };
}

static inline void pl_push_credit_free(struct pl_push_credits *credits, uint32_t slot)
{
	credits->free[(credits->first + credits->count++) % credits->slots] = slot;
}

/* Takes over a slot of the subscriber. Returns -EPROTO for a slot that does not exist, or that was taken over before. */
static inline int pl_push_credit_add(struct pl_push_credits *credits, uint32_t slot)
{
	if (slot >= credits->slots || credits->owned[slot])
		return -EPROTO;
	credits->owned[slot] = true;
	pl_push_credit_free(credits, slot);
	return 0;
}

/* Takes the oldest free slot to write into it. Returns false if none is free. */
static inline bool pl_push_credit_take(struct pl_push_credits *credits, uint32_t *slot)
{
	if (credits->count == 0)
		return false;
	*slot = credits->free[credits->first];
	credits->first = (credits->first + 1) % credits->slots;
	credits->count--;
	return true;
}

/* Gives a slot with a frame to the subscriber. */
static inline void pl_push_credit_give(struct pl_push_credits *credits, uint32_t slot)
{
	credits->owned[slot] = false;
}

#endif
