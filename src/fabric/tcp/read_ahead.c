/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabric/tcp/read_ahead.h"

/*
 * Nanoseconds of the shortest request that allow a lane one byte. A lane of a short path is faster. So the time that requests wait for
 * those before them allows no more than the share.
 */
#define TIME_OF_BYTE 2u

/* Returns the most bytes that the lane may request beyond its share. */
static uint64_t most_ahead(const struct tcp_lane *lane)
{
	uint64_t bytes = lane->flight.path;

	if (!bytes && tcp_lane_times_requests(lane))
		bytes = lane->flight.shortest / TIME_OF_BYTE;
	return PL_MIN(bytes, (uint64_t)TCP_LANE_READ_AHEAD);
}

bool tcp_lane_reads_ahead(const struct tcp_lane *lane, uint64_t requested)
{
	const struct tcp_endpoint *endpoint = lane->endpoint;
	unsigned lanes = PL_MAX((unsigned)__builtin_popcount(atomic_load(&endpoint->bulk_lanes)), 1u);
	uint64_t most = most_ahead(lane), part;

	if (requested >= most)
		return false;
	part = (endpoint->waiting + atomic_load_explicit(&endpoint->requested, memory_order_relaxed)) / lanes;
	return requested < part;
}
