/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabric/tcp/read_ahead.h"

bool tcp_lane_reads_ahead(const struct tcp_lane *lane, uint64_t requested)
{
	const struct tcp_endpoint *endpoint = lane->endpoint;
	unsigned lanes = PL_MAX((unsigned)__builtin_popcount(atomic_load(&endpoint->bulk_lanes)), 1u);
	uint64_t part;

	if (!lane->flight.path)
		return false;
	part = (endpoint->waiting + atomic_load_explicit(&endpoint->requested, memory_order_relaxed)) / lanes;
	return requested < PL_MIN(part, PL_MIN((uint64_t)lane->flight.path, (uint64_t)TCP_LANE_READ_AHEAD));
}
