/* SPDX-License-Identifier: BSD-2-Clause */
/* How many operations completed in each interval of a run. */
#ifndef PL_CLI_BENCH_SAMPLES_H
#define PL_CLI_BENCH_SAMPLES_H

#include <stdint.h>

#define BENCH_SAMPLES_MAX 100000u

struct bench_samples {
	uint64_t interval; /* nanoseconds; 0: none are taken */
	uint64_t from;     /* beginning of the interval that was counted last */
	uint32_t *count;   /* of that one */
	uint32_t *counts;  /* of all, and one for whatever comes later still */
	uint32_t used;     /* so many of them, the first ones */
};

/* 0, or -ENOMEM. */
int bench_samples_open(struct bench_samples *samples, uint64_t interval);
void bench_samples_close(struct bench_samples *samples);

void bench_samples_begin(struct bench_samples *samples);
void bench_samples_turn(struct bench_samples *samples, uint64_t since);

/* One more, so long after the beginning.  Most belong to the same interval as the one before. */
static inline void bench_sample(struct bench_samples *samples, uint64_t since)
{
	if (since - samples->from >= samples->interval)
		bench_samples_turn(samples, since);
	++*samples->count;
}

#endif
