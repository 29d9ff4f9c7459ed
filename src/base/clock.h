/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CLOCK_MONOTONIC for frequent callers: the processor's counter tells the time for 1 ms after each look at the kernel's
 * clock, if the kernel uses the same counter. The time never goes back, and is behind the kernel's by less than 0.1 us,
 * if that can be read undisturbed. One thread at a time.
 */
#ifndef PL_CLOCK_H
#define PL_CLOCK_H

#include "base/base.h"

/* PL_CLOCK_SOURCE: the kernel's name for the clock source that is this counter, as in sysfs. */
#if defined(__x86_64__)
#define PL_CLOCK_SOURCE "tsc\n"
#elif defined(__aarch64__)
#define PL_CLOCK_SOURCE "arch_sys_counter\n"
#endif

struct pl_clock {
	uint64_t ticks, time; /* one moment, in ticks of the counter and in the kernel's nanoseconds */
	uint64_t rate;        /* nanoseconds in 2^32 ticks, rounded down; 0: unknown */
	/* ticks after that moment for which the counter is used; 0: ask the kernel each time */
	uint64_t valid;
	uint64_t since_ticks, since_time; /* start of the measurement of the rate; 0: none yet */
	uint64_t since_unsure;            /* uncertainty of that start, in ticks */
	uint64_t candidate;               /* last measured rate; it counts if the next one agrees */
	bool steady;                      /* the kernel uses the counter itself */
};

void pl_clock_open(struct pl_clock *clock);
uint64_t pl_clock_ask(struct pl_clock *clock);
/* Learns from a time that the kernel told between two readings of the counter. Returns the present time. */
uint64_t pl_clock_learn(struct pl_clock *clock, uint64_t before, uint64_t time, uint64_t after);

/*
 * Returns the counter; 0: not available. No barrier orders the reading after earlier instructions, because a barrier
 * takes longer than the reading. So the counter may be read some instructions early.
 */
PL_ALWAYS_INLINE uint64_t pl_clock_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
#else
	return 0;
#endif
}

/* Returns the time at a valid reading of the counter. */
static inline uint64_t pl_clock_at(const struct pl_clock *clock, uint64_t past)
{
	return clock->time + (past * clock->rate >> 32);
}

PL_ALWAYS_INLINE uint64_t pl_clock_now(struct pl_clock *clock)
{
	uint64_t past = pl_clock_ticks() - clock->ticks;

	return past < clock->valid ? pl_clock_at(clock, past) : pl_clock_ask(clock);
}

/* A moment of a clock, from which any thread computes later times. */
struct pl_moment {
	uint64_t time, ticks, rate, valid;
};

/* Returns the moment of that reading of the counter, or a later one. */
PL_ALWAYS_INLINE struct pl_moment pl_clock_moment(struct pl_clock *clock, uint64_t ticks)
{
	uint64_t past = ticks - clock->ticks;

	if (past < clock->valid)
		return (struct pl_moment){ pl_clock_at(clock, past), ticks, clock->rate, clock->valid - past };
	return (struct pl_moment){ .time = pl_clock_ask(clock) };
}

/* Returns the time now, which is never before that moment. */
PL_ALWAYS_INLINE uint64_t pl_moment_now(const struct pl_moment *moment)
{
	uint64_t past = pl_clock_ticks() - moment->ticks;

	if (past < moment->valid)
		return moment->time + (past * moment->rate >> 32);
	return PL_MAX(pl_now(), moment->time);
}

#endif
