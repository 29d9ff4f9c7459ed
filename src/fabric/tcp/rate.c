/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rate of a peer. A lane takes bytes from the peer's bucket before it reads or sends, and pauses until they may be
 * used: it does not watch the socket then, and a timer ends the pause. Unused bytes stay for the next read or send.
 */
#include "fabric/tcp/tcp.h"

static void lane_pause_ends(struct pl_timer *timer)
{
	struct tcp_lane *lane = pl_container_of(timer, struct tcp_lane, rate_timer);

	lane->reading.waits = lane->sending.waits = false;
	if (lane->state == TCP_LANE_UP)
		tcp_lane_receive(lane);
	if (lane->state != TCP_LANE_UP)
		return;
	tcp_lane_flush(lane);
	/* The engine calls the source's idle() after events only, so this acknowledges at once. */
	tcp_lane_ack(lane);
	/* A lane that cannot send watches anew only when it can. */
	if (lane->state == TCP_LANE_UP && lane->blocked && !lane->stopped)
		pl_source_watch(&lane->source, tcp_lane_events(lane) | EPOLLOUT);
}

void tcp_lane_init_rate(struct tcp_lane *lane)
{
	pl_timer_init(&lane->rate_timer, lane_pause_ends);
}

static void set_rate_timer(struct tcp_lane *lane)
{
	uint64_t reading = lane->reading.waits ? lane->reading.from : UINT64_MAX;
	uint64_t sending = lane->sending.waits ? lane->sending.from : UINT64_MAX;

	pl_timer_set(lane->engine, &lane->rate_timer, PL_MIN(reading, sending));
}

size_t tcp_lane_take_allowance(struct tcp_lane *lane, struct tcp_allowance *allowance)
{
	struct pl_bucket *bucket = &lane->endpoint->base.peer->bucket;
	uint64_t now = pl_engine_now(lane->engine);

	if (lane->unlimited)
		return SIZE_MAX;
	if (!allowance->bytes) {
		allowance->bytes = pl_bucket_portion(atomic_load(&bucket->rate));
		allowance->from = pl_bucket_take(bucket, allowance->bytes, now);
	}
	if (now >= allowance->from) {
		allowance->waits = false;
		return allowance->bytes;
	}
	if (!allowance->waits) {
		allowance->waits = true;
		atomic_fetch_add(&bucket->waits, 1);
		set_rate_timer(lane);
	}
	return 0;
}

void tcp_lane_ignore_rate(struct tcp_lane *lane)
{
	lane->unlimited = true;
	lane->reading.waits = lane->sending.waits = false;
	pl_timer_clear(lane->engine, &lane->rate_timer);
}
