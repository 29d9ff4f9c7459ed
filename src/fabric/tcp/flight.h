/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bytes in flight: written bytes that a lane has sent and the other end has not acknowledged. Between two processes of one host they
 * count in what a lane may have ahead of the other end (tcp_lane_ahead()). The kernel then copies bytes that are still in a processor's
 * cache, and the work goes to lanes whose other end reads. A connection of loopback may lead to another host, through a proxy: the lane
 * measures its round trip, and a longer one allows as many bytes as it needs. Lanes to other hosts have no such limit.
 *
 * A lane of a long path requests more than its share, and holds no small frames back. The kernel has measured the path's round trip.
 * It sees none behind a proxy: where engines do not poll, lanes measure their requests instead of writes (read_ahead.h).
 */
#ifndef PL_TCP_FLIGHT_H
#define PL_TCP_FLIGHT_H

#include "engine/engine.h"

/* Times in nanoseconds. */
struct tcp_flight {
	bool limited;           /* the lane may have only so many bytes in flight: the other end is on this host */
	uint32_t path;          /* bytes that one lane brings in a round trip of a long path; 0: the path is short */
	bool full;              /* true if the lane left work in the list because of them, until it looks again */
	uint32_t bytes;         /* in flight, without headers; 0 unless `limited` */
	uint32_t sequence;      /* frame, or cookie of the request, whose round trip is being measured */
	unsigned trips;         /* measured since `shortest` was replaced */
	uint64_t began;         /* time at which that frame was sent; 0: none is measured */
	uint64_t shortest;      /* of the last round trips; 0: none was measured */
	uint64_t shortest_next; /* of those since `shortest` was replaced */
};

/* Begins with no bytes. fd: the lane's socket. `limits`: the bytes count if it leads to this host. */
void tcp_flight_start(struct tcp_flight *flight, int fd, bool limits);
/*
 * Count the payload of a WRITE that is sent, and of one that is acknowledged, in a limited flight. With a length of 0 they only
 * measure a round trip.
 */
void tcp_flight_add(struct tcp_flight *flight, uint32_t length, uint32_t sequence, struct pl_engine *engine);
void tcp_flight_remove(struct tcp_flight *flight, uint32_t length, uint32_t sequence, struct pl_engine *engine);
/* Returns the bytes to send and in flight from which on a lane with that share takes no further work. */
uint64_t tcp_flight_limit(const struct tcp_flight *flight, uint32_t share);

#endif
