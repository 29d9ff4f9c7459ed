/* SPDX-License-Identifier: BSD-2-Clause */
/* How much of the listed work a lane takes before it has finished what it took. */
#ifndef PL_TCP_LANE_SHARE_H
#define PL_TCP_LANE_SHARE_H

#include "core/work_list.h"
#include "fabric/tcp/read_ahead.h"
#include "fabric/tcp/tcp.h"

/* Bytes of long operations, requested or in flight, of all lanes of a context together, if their threads share processors. */
#define TCP_LANES_AHEAD (16u << 20)

/*
 * State of an operation on the work list; in operation->fabric. Lanes read only this under the lock of all lanes: the rest of an
 * operation, which home has written, takes them longer than everything else there. After they released that lock, they read little of
 * the rest: each of its cache lines moves from home's processor to the lane's, and back.
 */
struct tcp_work {
	struct pl_work_item item;
	uint32_t chunk;
	bool small;              /* in `small_work`: not counted in endpoint->waiting */
	bool staged, is_write;
	bool whole; /* has one chunk, of `total` bytes */
	uint64_t total;
	uint32_t lane_share_max; /* a lane with this many unsent or requested bytes takes no chunk */
	uint32_t messages;       /* with a turn: messages given to lane 0 before */
	uint32_t joint_max; /* most bytes of chunks that one copy brings to GPU memory; 0: each has a copy of its own */
	bool is_atomic;
	bool is_fetch;           /* reads a large message: tcp_lane_end_fetch() ends it */
	bool takes_turn;         /* a notification may follow the data */
	bool trails;             /* `whole`: a read has a trailing word */
	struct tcp_joint *joint; /* that the next chunk belongs to; NULL: none, or a new one */
	/* `whole`: the segment, and the id of its remote key. */
	const struct pl_segment *segment;
	uint64_t key;
};
_Static_assert(sizeof(struct tcp_work) <= PL_OPERATION_FABRIC_SPACE, "fits into an operation");

static inline struct tcp_work *tcp_work_of(struct pl_operation *operation)
{
	return (struct tcp_work *)operation->fabric;
}

/*
 * Returns the bytes that the lane may have to send, or requested. A lane takes half its share while few small operations wait, so
 * that more lanes work. Chunks of staged data are large: while few wait for each lane, it requests two of them, one that comes and
 * one behind it.
 */
static inline uint32_t tcp_lane_share(const struct tcp_endpoint *endpoint, const struct tcp_work *work)
{
	unsigned lanes = PL_MAX(atomic_load(&endpoint->lanes_up), 1u);
	uint32_t share = work->lane_share_max;
	bool few = endpoint->waiting < (uint64_t)lanes * share / 4;

	if (lanes > 1 && work->staged && !work->joint_max)
		return (uint32_t)PL_MIN(PL_MAX(2 * endpoint->waiting / lanes, 2ull * work->chunk), (uint64_t)share);
	return lanes > 1 && few && work->total < share ? share / 2 : share;
}

/*
 * Returns the bytes that the lane may have requested, or in flight. Lanes take more than their share of operations of several chunks
 * while as much waits for each lane, so that no lane waits for the other end. If the threads of both ends of all lanes are more than
 * the processors, that wait costs nothing, as others run, and the bytes in the sockets are still in the caches when they are read.
 */
static inline uint32_t tcp_lane_ahead(const struct tcp_endpoint *endpoint, const struct tcp_work *work)
{
	unsigned lanes = PL_MAX(atomic_load(&endpoint->lanes_up), 1u);
	unsigned all = atomic_load(&endpoint->context->bulk_lane_count);
	uint32_t share = tcp_lane_share(endpoint, work);
	uint64_t most = TCP_LANE_READ_AHEAD;

	if (work->whole || work->staged)
		return share;
	if (2 * all > endpoint->context->processors)
		most = TCP_LANES_AHEAD / all;
	return (uint32_t)PL_MAX(PL_MIN(most, endpoint->waiting / lanes), (uint64_t)share);
}

/* True if the lane takes no more of that work with so many bytes to send, or requested. The caller holds endpoint->lock. */
static inline bool tcp_lane_has_share(const struct tcp_lane *lane, const struct tcp_work *work, uint64_t taken)
{
	if (work->is_write)
		return taken >= tcp_lane_share(lane->endpoint, work);
	return taken >= tcp_lane_ahead(lane->endpoint, work) && !tcp_lane_reads_ahead(lane, taken);
}

/*
 * Returns the limit of a lane's bytes to send, with those that are being copied into slots. The limit grows with the bytes that wait
 * for each lane. The caller holds endpoint->lock.
 */
static inline uint32_t tcp_lane_backlog(const struct tcp_endpoint *endpoint, bool staged)
{
	uint64_t part = endpoint->waiting / (4 * PL_MAX(atomic_load(&endpoint->lanes_up), 1u));

	if (!staged)
		return TCP_LANE_BACKLOG;
	return (uint32_t)PL_MIN(PL_MAX(part, TCP_LANE_STAGED_BACKLOG), (uint64_t)TCP_LANE_STAGED_BACKLOG_MAX);
}

/* True if the lane's bytes in flight, with `queued` ones, leave no room for a write. The caller holds endpoint->lock. */
static inline bool tcp_lane_flight_is_full(struct tcp_lane *lane, const struct tcp_work *work, uint64_t queued)
{
	lane->flight.full =
		lane->flight.bytes && work->is_write && !work->staged &&
		queued + lane->flight.bytes >= tcp_flight_limit(&lane->flight, tcp_lane_ahead(lane->endpoint, work));
	return lane->flight.full;
}

#endif
