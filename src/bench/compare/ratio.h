/* SPDX-License-Identifier: BSD-2-Clause */
/* Ratio of the medians of two sets of runs, with its confidence interval. */
#ifndef PL_BENCH_COMPARE_RATIO_H
#define PL_BENCH_COMPARE_RATIO_H

#include <stdbool.h>
#include <stdint.h>

/* With fewer runs, a bootstrap says nothing about values outside those seen. */
#define RATIO_RUNS_MIN 5u

struct ratio {
	double before, after; /* medians */
	double ratio;         /* after / before */
	double low, high;     /* 95 % confidence interval of the ratio */
	bool bootstrap;       /* false: too few runs, and low and high are the extreme ratios of any two runs */
};

/*
 * Computes the ratio of two sorted, non-empty sets.  Percentile bootstrap of the ratio of medians: both sets are
 * resampled with replacement, as often as 4 million values allow (1,000 to 10,000 times); low and high are the 2.5th
 * and 97.5th percentile of the ratios.  The seed is fixed, so that the same runs give the same interval.
 */
void ratio_compute(const double *before, uint32_t before_count, const double *after, uint32_t after_count,
		   struct ratio *ratio);

#endif
