/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/wall.h"

/* Time for which a measured distance is used; longest time that a measurement may take; attempts. */
#define VALID PL_NS_PER_MS
#define EXACT 1000
#define ATTEMPTS 3

void pl_wall_open(struct pl_wall *wall)
{
	pl_clock_open(&wall->clock);
	wall->distance = wall->end = 0;
}

uint64_t pl_wall_measure(struct pl_wall *wall)
{
	uint64_t real = 0;

	/* Each look at the counter would ask the kernel. */
	if (!wall->clock.steady)
		return pl_wall_clock();
	for (unsigned i = 0; i < ATTEMPTS; i++) {
		uint64_t before = pl_clock_now(&wall->clock), after;

		real = pl_wall_clock();
		after = pl_clock_now(&wall->clock);
		if (after - before >= EXACT)
			continue;
		/* The wall clock was read before `after`, so the distance is not too large. */
		wall->distance = real - after;
		wall->end = after + VALID;
		break;
	}
	return real;
}
