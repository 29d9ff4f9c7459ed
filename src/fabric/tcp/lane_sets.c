/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sets of an endpoint's lanes, as bits that all threads read without a lock: lanes that are up, that found no work, and whose
 * socket is full. Lane 0 is in none of them: the home engine always gives it work.
 */
#include "fabric/tcp/tcp.h"

static unsigned lane_bit(const struct tcp_lane *lane)
{
	return lane->index ? 1u << lane->index : 0;
}

/* Notes that the lane found no work. Returns false if that is new: work may have come since. */
static bool lane_hungers(struct tcp_lane *lane)
{
	struct tcp_endpoint *endpoint = lane->endpoint;
	unsigned bit = lane_bit(lane);

	if ((atomic_load(&endpoint->hungry) & bit) == bit)
		return true;
	atomic_fetch_or(&endpoint->hungry, bit);
	return false;
}

void tcp_lane_joins(struct tcp_lane *lane)
{
	atomic_fetch_or(&lane->endpoint->bulk_lanes, lane_bit(lane));
	atomic_fetch_add(&lane->endpoint->lanes_up, 1);
	atomic_fetch_add(&lane->endpoint->context->bulk_lane_count, lane->index != 0);
}

void tcp_lane_leaves(struct tcp_lane *lane)
{
	atomic_fetch_and(&lane->endpoint->bulk_lanes, ~lane_bit(lane));
	atomic_fetch_sub(&lane->endpoint->lanes_up, 1);
	atomic_fetch_sub(&lane->endpoint->context->bulk_lane_count, lane->index != 0);
}

uint64_t tcp_wake_lanes(struct tcp_endpoint *endpoint, unsigned set, bool asleep, uint64_t most)
{
	for (; set && most; set &= set - 1) {
		unsigned index = (unsigned)__builtin_ctz(set);
		struct tcp_lane *lane = endpoint->lanes[index];

		if (pl_engine_asleep(lane->engine) != asleep ||
		    !(atomic_fetch_and(&endpoint->hungry, ~(1u << index)) & 1u << index))
			continue;
		pl_engine_hand_over(lane->engine, &lane->task);
		most--;
	}
	return most;
}

/* The lane takes no work for a while. Work that was left to this lane wakes another one. */
static void lane_refuses_work(struct tcp_lane *lane)
{
	struct tcp_endpoint *endpoint = lane->endpoint;
	unsigned set;

	atomic_fetch_or(&endpoint->blocked, lane_bit(lane));
	set = atomic_load(&endpoint->bulk_lanes) & atomic_load(&endpoint->hungry) & ~atomic_load(&endpoint->blocked);
	if (!set || !tcp_has_work(endpoint))
		return;
	/* A closing thread withdraws the tasks of lanes after it has set `closed`, and frees the lanes. */
	pthread_mutex_lock(&endpoint->lock);
	if (!endpoint->closed && tcp_wake_lanes(endpoint, set, false, 1))
		tcp_wake_lanes(endpoint, set, true, 1);
	pthread_mutex_unlock(&endpoint->lock);
}

void tcp_lane_block(struct tcp_lane *lane)
{
	lane->blocked = true;
	lane_refuses_work(lane);
}

static void lane_accepts_work(struct tcp_lane *lane)
{
	atomic_fetch_and(&lane->endpoint->blocked, ~lane_bit(lane));
}

void tcp_lane_unblock(struct tcp_lane *lane)
{
	lane->blocked = false;
	lane_accepts_work(lane);
}

bool tcp_lane_rests(struct tcp_lane *lane)
{
	if (!lane->flight.full)
		return lane_hungers(lane);
	/* An acknowledgement makes room later. */
	lane_refuses_work(lane);
	return true;
}

void tcp_lane_look_for_room(struct tcp_lane *lane)
{
	lane->flight.full = false;
	if (!lane->blocked)
		lane_accepts_work(lane);
}

void tcp_lane_leave_work(struct tcp_lane *lane)
{
	struct tcp_endpoint *endpoint = lane->endpoint;
	struct tcp_lane *first;

	/* As in tcp_lane_block(). A stranger may open other lanes, and no lane 0. */
	pthread_mutex_lock(&endpoint->lock);
	first = endpoint->lanes[0];
	if (first && !endpoint->closed)
		pl_engine_hand_over(first->engine, &first->task);
	pthread_mutex_unlock(&endpoint->lock);
}
