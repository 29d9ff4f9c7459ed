/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/compare/ratio.h"

#include <stdlib.h>
#include <string.h>

#include "bench/compare/document.h"

#define DRAWS_MAX 10000u
#define DRAWS_MIN 1000u
#define VALUES 4000000u
#define SEED 0x7065657261e5ull

/* splitmix64 */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static double median(const double *sorted, uint32_t count)
{
	return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* The median of as many values drawn.  The values are sorted, so it is enough to count how often each was. */
static double drawn_median(const double *sorted, uint32_t count, uint64_t *state)
{
	uint16_t drawn[DOCUMENT_RUNS_MAX];
	uint32_t seen = 0, at = 0;
	double lower;

	memset(drawn, 0, count * sizeof(*drawn));
	for (uint32_t i = 0; i < count; i++)
		drawn[(next_random(state) >> 32) * count >> 32]++;
	while (seen + drawn[at] <= (count - 1) / 2)
		seen += drawn[at++];
	lower = sorted[at];
	if (count % 2)
		return lower;
	while (seen + drawn[at] <= count / 2)
		seen += drawn[at++];
	return (lower + sorted[at]) / 2;
}

static int compare_numbers(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return left < right ? -1 : left > right;
}

void ratio_of(const double *before, uint32_t before_count, const double *after, uint32_t after_count,
	      struct ratio *ratio)
{
	uint32_t draws = CLI_MIN(CLI_MAX(VALUES / (before_count + after_count), DRAWS_MIN), DRAWS_MAX);
	double ratios[DRAWS_MAX];
	uint64_t state = SEED;

	ratio->before = median(before, before_count);
	ratio->after = median(after, after_count);
	ratio->ratio = ratio->after / ratio->before;
	ratio->low = after[0] / before[before_count - 1];
	ratio->high = after[after_count - 1] / before[0];
	ratio->bootstrap = before_count >= RATIO_RUNS_MIN && after_count >= RATIO_RUNS_MIN;
	if (!ratio->bootstrap)
		return;
	for (uint32_t i = 0; i < draws; i++) {
		double divisor = drawn_median(before, before_count, &state);

		ratios[i] = drawn_median(after, after_count, &state) / divisor;
	}
	qsort(ratios, draws, sizeof(*ratios), compare_numbers);
	ratio->low = ratios[draws / 40];
	ratio->high = ratios[draws - 1 - draws / 40];
}
