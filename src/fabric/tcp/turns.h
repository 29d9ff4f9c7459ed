/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Overlap of requests and answers. A lane with few bytes under way would send all of them, and then wait for requests, while the other
 * end receives them all, and then asks for more. So answers leave in parts, and the other end asks for more after half of them. Where
 * engines do not poll, processors are few, and both ends run in turn anyway: fewer system calls are better there.
 */
#ifndef PL_TCP_TURNS_H
#define PL_TCP_TURNS_H

#include "fabric/tcp/tcp.h"

/* Bytes from which on one system call takes no further piece. */
#define TCP_GATHER_BYTES (2u << 20)
/* The same of answers, if half of what waits is not more. The frames that end them follow the call. */
#define TCP_GATHER_ANSWERS (256u << 10)
/* Answers after which a visit sends further requests, so that the peer still has some to answer. */
#define TCP_ASK_ANSWERS (TCP_REQUESTS_MAX / 4)
/* The same in bytes, if half of what was requested is not more. */
#define TCP_ASK_BYTES (128u << 10)

/* Returns the bytes from which on the lane's next system call takes no further piece. */
static inline size_t tcp_lane_gather_limit(const struct tcp_lane *lane)
{
	if (!lane->serving || !lane->engine->poll_time)
		return TCP_GATHER_BYTES;
	return PL_MIN(PL_MAX(lane->queued / 2, TCP_GATHER_ANSWERS), TCP_GATHER_BYTES);
}

/* Notes what is requested, after the lane took work. */
static inline void tcp_lane_asked(struct tcp_lane *lane)
{
	lane->asked = lane->requested;
}

/* True if a visit must send further requests before it goes on to receive. */
static inline bool tcp_lane_must_ask(const struct tcp_lane *lane)
{
	if (lane->answered >= TCP_ASK_ANSWERS)
		return true;
	return lane->engine->poll_time && lane->requested + PL_MAX(lane->asked / 2, TCP_ASK_BYTES) <= lane->asked &&
	       tcp_has_work(lane->endpoint);
}

#endif
