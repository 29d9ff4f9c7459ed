/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/common/stats.h"

#include <math.h>
#include <string.h>

void stats_reset(struct stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	stats->minimum = UINT64_MAX;
}

/* Returns the middle of a bucket, which differs from its values by at most half its width. */
static uint64_t bucket_middle(unsigned bucket)
{
	unsigned shift;
	uint64_t low;

	if (bucket < 2 * STATS_PER_POWER)
		return bucket;
	shift = (bucket >> STATS_BITS) - 1;
	low = (uint64_t)(bucket - (shift << STATS_BITS)) << shift;
	return low + (((uint64_t)1 << shift) - 1) / 2;
}

uint64_t stats_percentile(const struct stats *stats, double percent)
{
	double exact_rank = (double)stats->count * percent / 100;
	uint64_t rank = (uint64_t)exact_rank, seen = 0;

	if (!stats->count)
		return 0;
	if ((double)rank < exact_rank || rank == 0)
		rank++;
	if (rank >= stats->count)
		return stats->maximum;
	for (unsigned i = 0; i < STATS_BUCKETS; i++) {
		seen += stats->buckets[i];
		if (seen >= rank) {
			uint64_t value = bucket_middle(i);

			if (value < stats->minimum)
				return stats->minimum;
			return value > stats->maximum ? stats->maximum : value;
		}
	}
	return stats->maximum;
}

double stats_mean(const struct stats *stats)
{
	return stats->count ? (double)stats->sum / (double)stats->count : 0;
}

double stats_deviation(const struct stats *stats)
{
	double mean = stats_mean(stats), squares = 0;

	for (unsigned i = 0; stats->count && i < STATS_BUCKETS; i++) {
		double distance = (double)bucket_middle(i) - mean;

		squares += distance * distance * (double)stats->buckets[i];
	}
	return stats->count ? sqrt(squares / (double)stats->count) : 0;
}
