/* SPDX-License-Identifier: BSD-2-Clause */
/* Decides when a lane's queued pieces are sent, and by which thread; acknowledgements, on which that depends. */
#include "core/bulk_sender.h"
#include "fabric/tcp/operation_done.h"

/* Most bytes that a thread of the program sends itself; the engine's thread sends the rest. */
#define INLINE_BYTES (64u << 10)
/*
 * Pieces of a batch wait for its end until this many bytes are queued: BATCH_BYTES in an engine's thread, BATCH_BYTES_INLINE in a
 * program's. In a program's thread a piece of up to that number that ends the wait, and those before it, are at most
 * INLINE_BYTES: that thread may still send them. Where engines do not poll, the limit is TCP_HOLD_BACK_BYTES.
 */
#define BATCH_BYTES (256u << 10)
#define BATCH_BYTES_INLINE (INLINE_BYTES / 2)

static bool in_engine_thread(const struct pl_engine *engine)
{
	return !engine->threaded || pthread_equal(engine->thread, pthread_self());
}

/*
 * True if the calling thread sends the queued bytes itself. A thread of the program that sent more bulk data itself would be the
 * only one that copies.
 */
static bool tcp_lane_sends_here(const struct tcp_lane *lane)
{
	struct pl_context *context = lane->endpoint->context;
	/* If nothing is under way, one write with its header is sent without waiting for another thread. */
	uint64_t most = INLINE_BYTES + (tcp_lane_is_under_way(lane) ? 0 : PL_FRAME_HEADER);

	if (lane->queued < TCP_SPREAD_FROM && lane->index == 0)
		return true;
	if (in_engine_thread(lane->engine))
		return true;
	if (lane->index || lane->queued > most || pl_bulk_sender_is_occupied(context))
		return false;
	pl_bulk_sender_sends(context);
	return true;
}

static uint32_t tcp_lane_batch_bytes(const struct tcp_lane *lane)
{
	if (!lane->engine->poll_time)
		return TCP_HOLD_BACK_BYTES;
	return in_engine_thread(lane->engine) ? BATCH_BYTES : BATCH_BYTES_INLINE;
}

/* The frames of a batch queue others, which are sent together. */
static bool tcp_lane_gathers(const struct tcp_lane *lane)
{
	return lane->engine->batching && !pl_list_empty(&lane->queue) && lane->queued < tcp_lane_batch_bytes(lane);
}

/* Sends queued pieces now, on this thread or on the engine's. */
static void tcp_lane_send(struct tcp_lane *lane)
{
	if (lane->state != TCP_LANE_UP)
		return;
	if (tcp_lane_sends_here(lane))
		tcp_lane_flush(lane);
	else if (!lane->blocked)
		pl_source_hand_over(&lane->source);
}

void tcp_lane_push(struct tcp_lane *lane)
{
	if (lane->state != TCP_LANE_UP)
		return;
	/*
	 * Holds small pieces back: the answer to earlier operations, or the next round, sends them together. That answer is far away
	 * on a long path, and a sleeping engine has no round before.
	 */
	if (lane->queued < TCP_HOLD_BACK_BYTES && tcp_lane_is_under_way(lane) && !pl_list_empty(&lane->queue) &&
	    !lane->flight.path)
		return;
	if (tcp_lane_gathers(lane)) {
		if (pl_list_empty(&lane->batch_end.link))
			pl_list_append(&lane->engine->batch_ends, &lane->batch_end.link);
		return;
	}
	tcp_lane_send(lane);
}

void tcp_lane_batch_ended(struct pl_batch_end *end)
{
	tcp_lane_send(pl_container_of(end, struct tcp_lane, batch_end));
}

void tcp_lane_ack(struct tcp_lane *lane)
{
	struct tcp_piece *piece;

	/* Every queued frame carries the acknowledgement. */
	if (lane->placed == lane->placed_told || !pl_list_empty(&lane->queue))
		return;
	piece = tcp_piece_new(lane, &(struct pl_frame){ .type = PL_FRAME_ACK });
	if (!piece) {
		tcp_lane_fail(lane, -ENOMEM);
		return;
	}
	tcp_lane_queue_piece(lane, piece);
	tcp_lane_flush(lane);
}

void tcp_lane_take_ack(struct tcp_lane *lane, uint32_t count)
{
	if (count == lane->acked)
		return;
	if (count - lane->acked > lane->sequence - lane->acked) {
		tcp_lane_fail(lane, -EPROTO);
		return;
	}
	lane->acked = count;
	if ((int32_t)(lane->awaited - count) < 0)
		lane->awaited = count;
	while (!pl_list_empty(&lane->unacked)) {
		struct tcp_piece *piece = pl_list_first(&lane->unacked, struct tcp_piece, link);
		struct pl_operation *operation = piece->operation;

		if ((int32_t)(piece->sequence - count) > 0)
			break;
		if (lane->flight.limited && piece->frame.type == PL_FRAME_WRITE)
			tcp_flight_remove(&lane->flight, piece->length, piece->sequence, lane->engine);
		if (piece->late)
			tcp_late_frame_placed(lane->endpoint);
		tcp_piece_free(lane, piece);
		if (operation)
			tcp_lane_operation_done(lane, operation);
	}
}

bool tcp_lane_has_sent_messages(const struct tcp_lane *lane)
{
	/* WRITEs and answers may never end. Their bytes behind the last message may stay in the socket. */
	pl_list_for_each(at, &lane->queue)
		if (tcp_piece_is_of_message(pl_list_entry(at, struct tcp_piece, link)))
			return false;
	return !lane->message_end || pl_stream_is_acknowledged(&lane->stream, lane->message_end);
}
