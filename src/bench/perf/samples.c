/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/perf/samples.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/cli.h"

int bench_samples_open(struct bench_samples *samples, uint64_t interval)
{
	samples->interval = interval;
	samples->counts = calloc(BENCH_SAMPLES_MAX + 1, sizeof(*samples->counts));
	return samples->counts ? 0 : -ENOMEM;
}

void bench_samples_close(struct bench_samples *samples)
{
	free(samples->counts);
	samples->counts = NULL;
}

void bench_samples_begin(struct bench_samples *samples)
{
	memset(samples->counts, 0, samples->used * sizeof(*samples->counts));
	samples->used = 0;
	bench_samples_turn(samples, 0);
}

void bench_samples_turn(struct bench_samples *samples, uint64_t since)
{
	uint64_t interval = since / samples->interval;
	uint32_t at = (uint32_t)CLI_MIN(interval, (uint64_t)BENCH_SAMPLES_MAX);

	samples->from = interval * samples->interval;
	samples->count = &samples->counts[at];
	if (at < BENCH_SAMPLES_MAX && at >= samples->used)
		samples->used = at + 1;
}
