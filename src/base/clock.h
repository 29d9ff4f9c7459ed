/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The time of CLOCK_MONOTONIC for who asks often: told by the processor's counter for a millisecond after each look at
 * the kernel's clock, where the kernel tells the time by that counter, too.  It never goes back, and is behind the
 * kernel's by less than a tenth of a microsecond, if that can be read undisturbed.  One thread at a time.
 */
#ifndef PL_CLOCK_H
#define PL_CLOCK_H

#include "base/base.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#define PL_CLOCK_COUNTER 1
#endif

struct pl_clock {
	uint64_t ticks, time;             /* one moment, by the counter and by the kernel */
	uint64_t rate;                    /* nanoseconds of 2^32 ticks, or a little less; 0: not known */
	uint64_t valid;                   /* for so many ticks after that moment; 0: the kernel is asked each time */
	uint64_t since_ticks, since_time; /* from where the rate is measured; 0: from nowhere yet */
	uint64_t since_unsure;            /* ticks between which that moment was */
	bool steady;                      /* the kernel itself goes by the counter */
};

void pl_clock_open(struct pl_clock *clock);
uint64_t pl_clock_ask(struct pl_clock *clock);
/* The kernel told the time between two readings of the counter.  Returns what the time is. */
uint64_t pl_clock_learn(struct pl_clock *clock, uint64_t before, uint64_t time, uint64_t after);

/* The time at a reading of the counter that is valid. */
static inline uint64_t pl_clock_at(const struct pl_clock *clock, uint64_t past)
{
	return clock->time + (past * clock->rate >> 32);
}

PL_ALWAYS_INLINE uint64_t pl_clock_now(struct pl_clock *clock)
{
#ifdef PL_CLOCK_COUNTER
	uint64_t past = __rdtsc() - clock->ticks;

	if (past < clock->valid)
		return pl_clock_at(clock, past);
#endif
	return pl_clock_ask(clock);
}

#endif
