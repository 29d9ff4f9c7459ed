/* SPDX-License-Identifier: BSD-2-Clause */
/* Refusals of WRITEs. A peer may cause thousands of them; a peer that does not take them is not served further. */
#include "fabric/tcp/tcp.h"

/* Unsent refusals at which a lane stops reading. It goes on below half of them. */
#define REFUSALS_MAX 1024u

static void stop_reading(struct tcp_lane *lane)
{
	lane->stopped = true;
	pl_peer_note_lane(lane->endpoint->base.peer, PL_EVENT_LIMIT_REACHED, lane->index, 0,
			  "1024 refusals are not sent: the lane reads nothing until the other end takes them");
	pl_source_watch(&lane->source, EPOLLOUT);
	pl_timer_set(lane->engine, &lane->patience,
		     pl_deadline(pl_now(), lane->endpoint->context->options.operation_timeout));
}

/* tcp_lane_flush() watches the socket again. */
static void continue_reading(struct tcp_lane *lane)
{
	lane->stopped = false;
	pl_timer_clear(lane->engine, &lane->patience);
}

struct pl_list *tcp_lane_open_pieces(struct tcp_lane *lane, const struct tcp_piece *last)
{
	struct pl_list *at = last ? last->link.next : lane->queue.next;

	while (at != &lane->queue && pl_list_entry(at, struct tcp_piece, link)->header_final)
		at = at->next;
	return at;
}

void tcp_lane_queue_refusal(struct tcp_lane *lane, struct tcp_piece *piece)
{
	pl_list_append(tcp_lane_open_pieces(lane, lane->last_refusal), &piece->link);
	lane->queued += tcp_piece_size(piece);
	lane->last_refusal = piece;
	if (++lane->refusals == REFUSALS_MAX)
		stop_reading(lane);
}

void tcp_lane_refusal_sent(struct tcp_lane *lane)
{
	if (--lane->refusals < REFUSALS_MAX / 2 && lane->stopped)
		continue_reading(lane);
}

uint32_t tcp_lane_events(const struct tcp_lane *lane)
{
	if (lane->stopped || lane->reading.waits)
		return 0;
	/* EPOLLOUT makes lane_ready() run for bytes that TLS has read already. */
	return pl_stream_pending(&lane->stream) ? EPOLLIN | EPOLLOUT : EPOLLIN;
}
