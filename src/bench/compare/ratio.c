/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/compare/ratio.h"

#include <stdlib.h>
#include <string.h>

#include "bench/common/numbers.h"
#include "bench/compare/document.h"

#define DRAWS_MAX 10000u
#define DRAWS_MIN 1000u
#define VALUES 4000000u
#define SEED 0x7065657261e5ull

static double sorted_median(const double *sorted, uint32_t count)
{
	return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/*
 * Returns the median of a sample with replacement, of the same size.  The values are sorted, so it is enough to count
 * how often each one is drawn.
 */
static double resampled_median(const double *sorted, uint32_t count, uint64_t *state)
{
	uint16_t drawn[DOCUMENT_RUNS_MAX];
	uint32_t seen = 0, at = 0;
	double lower;

	memset(drawn, 0, count * sizeof(*drawn));
	for (uint32_t i = 0; i < count; i++)
		drawn[(bench_splitmix(*state += BENCH_SPLITMIX_STEP) >> 32) * count >> 32]++;
	while (seen + drawn[at] <= (count - 1) / 2)
		seen += drawn[at++];
	lower = sorted[at];
	if (count % 2)
		return lower;
	while (seen + drawn[at] <= count / 2)
		seen += drawn[at++];
	return (lower + sorted[at]) / 2;
}

void ratio_compute(const double *before, uint32_t before_count, const double *after, uint32_t after_count,
		   struct ratio *ratio)
{
	uint32_t draws = CLI_MIN(CLI_MAX(VALUES / (before_count + after_count), DRAWS_MIN), DRAWS_MAX);
	double ratios[DRAWS_MAX];
	uint64_t state = SEED;

	ratio->before = sorted_median(before, before_count);
	ratio->after = sorted_median(after, after_count);
	ratio->ratio = ratio->after / ratio->before;
	ratio->low = after[0] / before[before_count - 1];
	ratio->high = after[after_count - 1] / before[0];
	ratio->bootstrap = before_count >= RATIO_RUNS_MIN && after_count >= RATIO_RUNS_MIN;
	if (!ratio->bootstrap)
		return;
	for (uint32_t i = 0; i < draws; i++) {
		double divisor = resampled_median(before, before_count, &state);

		ratios[i] = resampled_median(after, after_count, &state) / divisor;
	}
	qsort(ratios, draws, sizeof(*ratios), bench_compare_doubles);
	ratio->low = ratios[draws / 40];
	ratio->high = ratios[draws - 1 - draws / 40];
}
