/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Percentiles of many times in little memory: buckets that grow with the value, 64 to each power of
 * two, so that a percentile is off by at most 1.6 per cent.  Adding allocates nothing; the largest
 * value is kept as it is.
 */
#ifndef PL_CLI_BENCH_STATS_H
#define PL_CLI_BENCH_STATS_H

#include <stdint.h>

#define STATS_BITS 6
#define STATS_BUCKETS ((64 - STATS_BITS + 1) << STATS_BITS)

struct stats {
	uint64_t count, max;
	uint64_t buckets[STATS_BUCKETS];
};

void stats_clear(struct stats *stats);
void stats_add(struct stats *stats, uint64_t value);
/* The value that `fraction` (0 to 1) of all are not above; 0 if there are none. */
uint64_t stats_percentile(const struct stats *stats, double fraction);

#endif
