/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints how fast this processor's time stamp counter runs, in kHz; 0 if it has none.
 *
 * An emulated processor's counter is that of the host.  The guest's kernel would measure it against an
 * emulated timer, and on a busy host get a value that is wrong by a factor, and so a clock that is.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#if defined(__x86_64__) || defined(__i386__)

#include <x86intrin.h>

#define TRIES 50

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Both clocks at the same time: the pair that took the least of a few, as others may have been interrupted. */
static void look(uint64_t *time, uint64_t *ticks)
{
	uint64_t least = UINT64_MAX;

	for (unsigned i = 0; i < TRIES; i++) {
		uint64_t before = now(), between = __rdtsc(), took = now() - before;

		if (took >= least)
			continue;
		least = took;
		*time = before + took / 2;
		*ticks = between;
	}
}

int main(void)
{
	const struct timespec pause = { .tv_nsec = 100000000 };
	uint64_t time[2], ticks[2];

	look(&time[0], &ticks[0]);
	nanosleep(&pause, NULL);
	look(&time[1], &ticks[1]);
	printf("%.0f\n", (double)(ticks[1] - ticks[0]) * 1e6 / (double)(time[1] - time[0]));
	return 0;
}

#else

int main(void)
{
	puts("0");
	return 0;
}

#endif
