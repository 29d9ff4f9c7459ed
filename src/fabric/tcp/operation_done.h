/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * End of a lane's part of an operation. The caller holds the lock of the lane's engine, so it holds home's lock if that engine is home.
 * pl_operation_all_done() asks for the owner of home's lock instead, which home writes each time it takes and releases the lock.
 */
#ifndef PL_TCP_OPERATION_DONE_H
#define PL_TCP_OPERATION_DONE_H

#include "fabric/tcp/tcp.h"

/* Finishes an operation whose last pending count has ended. */
static inline void tcp_lane_operation_all_done(const struct tcp_lane *lane, struct pl_operation *operation)
{
	if (lane->engine == operation->home)
		pl_operation_complete(operation);
	else
		pl_operation_finish(operation);
}

/* Ends a pending count. The last one finishes the operation. */
static inline void tcp_lane_operation_done(const struct tcp_lane *lane, struct pl_operation *operation)
{
	if (pl_operation_pending_last(operation))
		tcp_lane_operation_all_done(lane, operation);
}

#endif
