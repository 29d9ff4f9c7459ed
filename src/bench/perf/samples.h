/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts of operations that completed in each interval of a run. */
#ifndef PL_BENCH_PERF_SAMPLES_H
#define PL_BENCH_PERF_SAMPLES_H

#include <stdint.h>

#define BENCH_SAMPLES_MAX 100000u

struct bench_samples {
	uint64_t interval; /* nanoseconds; 0: no samples are taken */
	uint64_t from;     /* start of the current interval */
	uint32_t *count;   /* counter of the current interval */
	uint32_t *counts;  /* counters of all intervals, and a last one for all later completions */
	uint32_t used;     /* count of counters in use, the first ones */
};

/* Returns 0 or -ENOMEM. */
int bench_samples_open(struct bench_samples *samples, uint64_t interval);
void bench_samples_close(struct bench_samples *samples);

void bench_samples_begin(struct bench_samples *samples);
void bench_samples_turn(struct bench_samples *samples, uint64_t since);

/* Counts one completion `since` nanoseconds after the start.  Most belong to the same interval as the one before. */
static inline void bench_sample(struct bench_samples *samples, uint64_t since)
{
	if (since - samples->from >= samples->interval)
		bench_samples_turn(samples, since);
	++*samples->count;
}

#endif
