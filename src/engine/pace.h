/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pace of polling: whether threads poll before they sleep. Polling saves a wake-up while cores are idle. While threads with work wait
 * for cores, it takes a core from one of them.
 *
 * A thread that polls looks at the scheduler now and then. If the core went to another thread since the look before, polling rests,
 * and threads sleep at once. The next rest is twice as long if the look after this one finds the same, else half as long.
 *
 * The pace reads no clock and no scheduler: its callers do. One thread looks; all threads may ask whether polling rests.
 */
#ifndef PL_PACE_H
#define PL_PACE_H

#include <stdatomic.h>

#include "base/base.h"

/* Time between two looks. A look takes about a microsecond. */
#define PL_PACE_LOOK_TIME (PL_NS_PER_MS / 2)
/* Shortest rest, and how often it doubles at most. */
#define PL_PACE_REST_LEAST (2 * PL_NS_PER_MS)
#define PL_PACE_DOUBLINGS 5u

struct pl_pace {
	_Atomic uint64_t rest_end; /* threads sleep at once until then */
	atomic_bool adapts;        /* false: no thread looks, and polling never rests */
	uint64_t look_at;          /* time of the next look */
	unsigned doublings;        /* of the next rest */
};

static inline bool pl_pace_rests(const struct pl_pace *pace, uint64_t now)
{
	return now < atomic_load_explicit(&pace->rest_end, memory_order_relaxed);
}

/* True if it is time to look at the scheduler. */
static inline bool pl_pace_is_due(const struct pl_pace *pace, uint64_t now)
{
	return atomic_load_explicit(&pace->adapts, memory_order_relaxed) && now >= pace->look_at;
}

/* True if a rest ended, and no look came after it. */
static inline bool pl_pace_rested(const struct pl_pace *pace)
{
	return pace->look_at == atomic_load_explicit(&pace->rest_end, memory_order_relaxed);
}

/* Notes a look. taken: the core went to another thread since the look before, or since the end of the rest. */
void pl_pace_note(struct pl_pace *pace, uint64_t now, bool taken);

#endif
