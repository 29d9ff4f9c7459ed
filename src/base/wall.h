/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * CLOCK_REALTIME for frequent callers: the monotonic clock and its distance to the wall clock, which is measured 1,000 times a
 * second. A step of the wall clock appears within 1 ms. The time differs from the kernel's by less than 2 us. One thread at a time.
 */
#ifndef PL_WALL_H
#define PL_WALL_H

#include "base/clock.h"

struct pl_wall {
	struct pl_clock clock;
	uint64_t distance; /* from the monotonic clock to the wall clock, modulo 2^64 */
	uint64_t end;      /* monotonic time from which on the distance is measured again */
};

void pl_wall_open(struct pl_wall *wall);
/* Measures the distance, if no interruption prevents that. Returns the time now. */
uint64_t pl_wall_measure(struct pl_wall *wall);

/* Returns the time now, in nanoseconds since 1970. */
PL_ALWAYS_INLINE uint64_t pl_wall_now(struct pl_wall *wall)
{
	uint64_t now = pl_clock_now(&wall->clock);

	return now < wall->end ? now + wall->distance : pl_wall_measure(wall);
}

#endif
