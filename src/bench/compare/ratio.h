/* SPDX-License-Identifier: BSD-2-Clause */
/* How much one set of runs differs from another, and how sure that is. */
#ifndef PL_CLI_BENCH_RATIO_H
#define PL_CLI_BENCH_RATIO_H

#include <stdbool.h>
#include <stdint.h>

/* With fewer runs than that, nothing can be said of what lies outside of those seen. */
#define RATIO_RUNS_MIN 5u

struct ratio {
	double before, after; /* medians */
	double ratio;         /* after / before */
	double low, high;     /* what the ratio lies between, with 95 % confidence */
	bool bootstrap;       /* false: too few runs; low and high are the extremes that any two runs have */
};

/*
 * Both sorted, each at least one.  The percentile bootstrap of the ratio of medians: both sets are drawn again from
 * themselves, with replacement, as often as 4 million values allow (1,000 to 10,000 times); low and high are the 2.5th
 * and 97.5th percentile of the ratios.  The seed is fixed, so that the same runs have the same interval.
 */
void ratio_of(const double *before, uint32_t before_count, const double *after, uint32_t after_count,
	      struct ratio *ratio);

#endif
