/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests of a lane beyond its share. The share of a lane, which lets several lanes work on one operation, brings little in a long
 * round trip. There each lane requests its part of all bytes that reads wait for, up to what one lane brings in a round trip.
 *
 * The kernel sees no long path behind a proxy. Where engines do not poll, processors are few, and lanes measure the time of their
 * requests. The shortest of these times takes the place of the round trip.
 */
#ifndef PL_TCP_READ_AHEAD_H
#define PL_TCP_READ_AHEAD_H

#include "fabric/tcp/tcp.h"

/* True if the lane measures the time of its requests. The flight of writes then needs no measurement. */
static inline bool tcp_lane_times_requests(const struct tcp_lane *lane)
{
	return lane->index && !lane->flight.path && lane->engine->threaded && !lane->engine->poll_time;
}

/* True if the lane, with this many bytes requested, may request more than its share. The caller holds endpoint->lock. */
bool tcp_lane_reads_ahead(const struct tcp_lane *lane, uint64_t requested);

/* Counts bytes of READs that are queued, or answered: a negative number. Other lanes of short paths share no number. */
static inline void tcp_lane_count_requested(struct tcp_lane *lane, int64_t bytes)
{
	lane->requested += (uint32_t)bytes;
	if (lane->flight.path || tcp_lane_times_requests(lane))
		atomic_fetch_add_explicit(&lane->endpoint->requested, (uint64_t)bytes, memory_order_relaxed);
}

#endif
