/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests of a lane with a long path. The share of a lane, which lets several lanes work on one operation, brings little in a long
 * round trip. There each lane requests its part of all bytes that reads wait for, up to what one lane brings in a round trip.
 */
#ifndef PL_TCP_READ_AHEAD_H
#define PL_TCP_READ_AHEAD_H

#include "fabric/tcp/tcp.h"

/* True if the lane, with this many bytes requested, may request more than its share. The caller holds endpoint->lock. */
bool tcp_lane_reads_ahead(const struct tcp_lane *lane, uint64_t requested);

/* Counts bytes of READs that are queued, or answered: a negative number. Lanes of short paths share no number. */
static inline void tcp_lane_count_requested(struct tcp_lane *lane, int64_t bytes)
{
	lane->requested += (uint32_t)bytes;
	if (lane->flight.path)
		atomic_fetch_add_explicit(&lane->endpoint->requested, (uint64_t)bytes, memory_order_relaxed);
}

#endif
