/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/bench/stats.h"

#include <math.h>
#include <string.h>

/* Values below 2^STATS_BITS have a bucket each; above, the leading bits choose it. */
static unsigned bucket_of(uint64_t value)
{
	unsigned shift;

	if (value < 1u << STATS_BITS)
		return (unsigned)value;
	shift = 63u - (unsigned)__builtin_clzll(value) - STATS_BITS;
	return ((shift + 1) << STATS_BITS) + (unsigned)((value >> shift) & ((1u << STATS_BITS) - 1));
}

/* The middle of a bucket. */
static uint64_t value_of(unsigned bucket)
{
	unsigned shift = bucket >> STATS_BITS;
	uint64_t low = bucket & ((1u << STATS_BITS) - 1);

	if (shift == 0)
		return low;
	shift--;
	return ((low | 1u << STATS_BITS) << shift) + ((1ull << shift) >> 1);
}

void stats_clear(struct stats *stats)
{
	memset(stats, 0, sizeof(*stats));
}

void stats_add(struct stats *stats, uint64_t value)
{
	stats->buckets[bucket_of(value)]++;
	stats->count++;
	if (value > stats->max)
		stats->max = value;
}

uint64_t stats_percentile(const struct stats *stats, double fraction)
{
	uint64_t wanted = (uint64_t)ceil(fraction * (double)stats->count), seen = 0;

	if (wanted == 0)
		wanted = stats->count ? 1 : 0;
	for (unsigned i = 0; wanted && i < STATS_BUCKETS; i++) {
		seen += stats->buckets[i];
		if (seen >= wanted) {
			uint64_t value = value_of(i);

			return value < stats->max ? value : stats->max;
		}
	}
	return 0;
}
