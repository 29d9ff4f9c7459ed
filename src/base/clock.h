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

/* The counter; 0: there is none. */
PL_ALWAYS_INLINE uint64_t pl_clock_ticks(void)
{
#ifdef PL_CLOCK_COUNTER
	return __rdtsc();
#else
	return 0;
#endif
}

/* The time at a reading of the counter that is valid. */
static inline uint64_t pl_clock_at(const struct pl_clock *clock, uint64_t past)
{
	return clock->time + (past * clock->rate >> 32);
}

PL_ALWAYS_INLINE uint64_t pl_clock_now(struct pl_clock *clock)
{
	uint64_t past = pl_clock_ticks() - clock->ticks;

	return past < clock->valid ? pl_clock_at(clock, past) : pl_clock_ask(clock);
}

/* A moment by a clock, from which any thread goes on without it. */
struct pl_moment {
	uint64_t time, ticks, rate, valid;
};

/* The moment when the counter was read, or a later one. */
PL_ALWAYS_INLINE struct pl_moment pl_clock_moment(struct pl_clock *clock, uint64_t ticks)
{
	uint64_t past = ticks - clock->ticks;

	if (past < clock->valid)
		return (struct pl_moment){ pl_clock_at(clock, past), ticks, clock->rate, clock->valid - past };
	return (struct pl_moment){ .time = pl_clock_ask(clock) };
}

/* The time now, which is not before that moment. */
PL_ALWAYS_INLINE uint64_t pl_moment_now(const struct pl_moment *moment)
{
	uint64_t past = pl_clock_ticks() - moment->ticks;

	if (past < moment->valid)
		return moment->time + (past * moment->rate >> 32);
	return PL_MAX(pl_now(), moment->time);
}

#endif
