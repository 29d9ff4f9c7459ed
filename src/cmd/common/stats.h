/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Percentiles of many values in little, fixed memory: counts in buckets whose width grows with the
 * value, so that a percentile is within 1/64 (1.6 %) of the exact one.  Minimum, maximum and mean
 * are exact.  Recording never allocates.
 */
#ifndef PL_CLI_STATS_H
#define PL_CLI_STATS_H

#include <stdint.h>

#define STATS_BITS 6
#define STATS_PART (1u << STATS_BITS) /* buckets for each power of two */
#define STATS_BUCKETS ((64 - STATS_BITS + 1) * STATS_PART)

struct stats {
	uint64_t count, minimum, maximum, sum;
	uint64_t buckets[STATS_BUCKETS];
};

void stats_reset(struct stats *stats);

/*
 * Values below 2 x STATS_PART have a bucket each; above, the leading STATS_BITS + 1 bits choose it.  The low bits that are
 * set make the shift of the former 0, without a branch.
 */
static inline unsigned stats_bucket(uint64_t value)
{
	unsigned shift = 63 - STATS_BITS - (unsigned)__builtin_clzll(value | (2 * STATS_PART - 1));

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

/* The value that `percent` (0 to 100) of all values do not exceed; 0 if there are none. */
uint64_t stats_percentile(const struct stats *stats, double percent);

/* The arithmetic mean; 0 if there are none. */
double stats_mean(const struct stats *stats);

/* The standard deviation, from the buckets, so within some percent; 0 if there are none. */
double stats_deviation(const struct stats *stats);

#endif
