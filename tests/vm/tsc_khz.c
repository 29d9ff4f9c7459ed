/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints the frequency of this processor's time stamp counter in kHz; 0 if it has none.
 *
 * An emulated processor has the host's counter.  The guest's kernel would measure the frequency with an emulated
 * timer.  On a busy host the result, and with it the guest's clock, would be wrong by a factor.
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

/* Reads both clocks at the same time.  Takes the shortest of several reads: an interrupt makes the others longer. */
static void read_clocks(uint64_t *time, uint64_t *ticks)
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

	read_clocks(&time[0], &ticks[0]);
	nanosleep(&pause, NULL);
	read_clocks(&time[1], &ticks[1]);
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
