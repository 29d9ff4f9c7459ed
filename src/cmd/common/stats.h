/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Histogram for percentiles of many values in a fixed amount of memory.  The width of a bucket grows with its value, so
 * a percentile is within 1/64 (1.6 %) of the exact value.  Minimum, maximum and mean are exact.  Recording never
 * allocates.
 */
#ifndef PL_CMD_COMMON_STATS_H
#define PL_CMD_COMMON_STATS_H

#include <stdint.h>

#define STATS_BITS 6
#define STATS_PER_POWER (1u << STATS_BITS) /* buckets for each power of two */
#define STATS_BUCKETS ((64 - STATS_BITS + 1) * STATS_PER_POWER)

struct stats {
	uint64_t count, minimum, maximum, sum;
	uint64_t buckets[STATS_BUCKETS];
};

void stats_reset(struct stats *stats);

/*
 * Returns the bucket of a value.  Each value below 2 x STATS_PER_POWER has its own bucket; larger values share a bucket
 * by their leading STATS_BITS + 1 bits.  Setting the low bits before counting zeros makes the shift 0 for small values
 * without a branch.
 */
static inline unsigned stats_bucket(uint64_t value)
{
	unsigned shift = 63 - STATS_BITS - (unsigned)__builtin_clzll(value | (2 * STATS_PER_POWER - 1));

	return (shift << STATS_BITS) + (unsigned)(value >> shift);
}

static inline void stats_record(struct stats *stats, uint64_t value)
{
	stats->buckets[stats_bucket(value)]++;
	stats->count++;
	stats->sum += value;
	if (value < stats->minimum)
		stats->minimum = value;
	if (value > stats->maximum)
		stats->maximum = value;
}

/* Returns the value that `percent` (0 to 100) of all values do not exceed; 0 if the histogram is empty. */
uint64_t stats_percentile(const struct stats *stats, double percent);

/* Returns the arithmetic mean; 0 if the histogram is empty. */
double stats_mean(const struct stats *stats);

/* Returns the standard deviation, computed from the buckets and thus exact to some percent; 0 if the histogram is empty. */
double stats_deviation(const struct stats *stats);

#endif
