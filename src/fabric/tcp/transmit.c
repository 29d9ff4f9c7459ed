/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Transmission of pieces: queued, gathered into one system call, advanced by the number of bytes that the socket took.
 * Only headers and tiny payloads are copied.
 */
#include "fabric/tcp/landing.h"
#include "fabric/tcp/turns.h"

/* Payloads up to this size are cheaper to copy next to their header than to point to. Bytes. */
#define GATHER_COPY_MAX 256
#define GATHER_SPACE 16384
#define GATHER_VECTORS 256
/*
 * A lane that has sent this many bytes looks for answers, and lets its engine look at other sockets, before it sends more. Where engines
 * do not poll, processors are few, and each further round costs more than the other end waits: there only an end that takes bytes as
 * fast as this one sends has a limit, as it would have the engine for itself.
 */
#define FLUSH_BYTES (512u << 10)
#define FLUSH_BYTES_MOST (16u << 20)
/* Most freed pieces that a lane keeps for reuse. */
#define SPARE_MAX 256

static const uint8_t zeros[64 << 10];

static void sweep_queue(struct tcp_lane *lane, bool all);

struct tcp_piece *tcp_piece_new(struct tcp_lane *lane, const struct pl_frame *frame)
{
	struct tcp_piece *piece;

	if (lane->spare_count) {
		piece = pl_list_first(&lane->spare, struct tcp_piece, link);
		pl_list_remove(&piece->link);
		lane->spare_count--;
	} else {
		piece = pl_alloc(lane->engine->allocator, sizeof(*piece));
		if (!piece)
			return NULL;
		pl_list_init(&piece->link);
	}
	piece->operation = NULL;
	piece->key = NULL;
	piece->trailer = NULL;
	piece->slot = NULL;
	piece->payload = NULL;
	piece->payload_copy = NULL;
	piece->length = piece->sent = 0;
	piece->header_final = piece->fragile = piece->late = piece->trailing = false;
	piece->data_status = PL_WIRE_OK;
	piece->frame = *frame;
	return piece;
}

void tcp_piece_free(struct tcp_lane *lane, struct tcp_piece *piece)
{
	pl_list_remove(&piece->link);
	if (piece == lane->last_refusal)
		lane->last_refusal = NULL;
	if (piece == lane->last_trailer)
		lane->last_trailer = NULL;
	tcp_piece_return_slot(lane, piece);
	pl_free(lane->engine->allocator, piece->payload_copy);
	if (piece->key)
		pl_key_release(piece->key);
	if (lane->spare_count < SPARE_MAX) {
		pl_list_prepend(&lane->spare, &piece->link);
		lane->spare_count++;
	} else {
		pl_free(lane->engine->allocator, piece);
	}
}

void tcp_lane_queue_piece(struct tcp_lane *lane, struct tcp_piece *piece)
{
	pl_list_append(&lane->queue, &piece->link);
	lane->queued += tcp_piece_size(piece);
}

/* -- after sending ------------------------------------------------------------------------------ */

/*
 * True if the operation ends with this frame, which is sent: it is the only one, and has the right bytes. An operation of several
 * frames may fail yet. It must not end then before those that are sent are placed.
 */
static bool piece_ends_on_wire(const struct tcp_piece *piece)
{
	struct pl_operation *operation = piece->operation;

	return operation && operation->attributes.visible == PL_VISIBLE_ON_WIRE && operation->segment_count == 1 &&
	       operation->total == piece->length && !atomic_load(&operation->status);
}

static void piece_sent(struct tcp_lane *lane, struct tcp_piece *piece)
{
	struct pl_operation *operation = piece->operation;

	switch (piece->frame.type) {
	case PL_FRAME_WRITE:
		pl_list_remove(&piece->link);
		tcp_piece_return_slot(lane, piece);
		pl_list_append(&lane->unacked, &piece->link);
		if (lane->flight.limited)
			tcp_flight_add(&lane->flight, piece->length, piece->sequence, lane->engine);
		if (piece_ends_on_wire(piece)) {
			piece->operation = NULL;
			pl_operation_pending_done(operation);
		}
		break;
	case PL_FRAME_DATA:
		tcp_serve_data_sent(lane, piece);
		break;
	case PL_FRAME_READ:
	case PL_FRAME_ATOMIC:
		lane->requests_sent++;
		tcp_piece_free(lane, piece);
		break;
	case PL_FRAME_VALUE:
	case PL_FRAME_FAIL:
		if (tcp_piece_refuses_write(piece))
			tcp_lane_refusal_sent(lane);
		else
			lane->serving--;
		tcp_piece_free(lane, piece);
		break;
	default:
		/* Frames of lane 0 keep their order. On another lane, the receiver must have listed a write's notification. */
		if (piece->frame.type == PL_FRAME_NOTIFY && lane->index) {
			pl_list_remove(&piece->link);
			pl_list_append(&lane->unacked, &piece->link);
			break;
		}
		tcp_piece_free(lane, piece);
		if (operation)
			pl_operation_pending_done(operation);
	}
}

/* -- sending ------------------------------------------------------------------------------------ */

/* Replaces the payload by zeros. Its header was sent, but its memory must not be read. */
static void piece_send_zeros(struct tcp_piece *piece, enum pl_wire_status reason)
{
	piece->payload = NULL;
	piece->data_status = reason;
	if (piece->trailer)
		tcp_trailer_fail(piece->trailer, reason);
	if (piece->key)
		pl_key_release(piece->key);
	piece->key = NULL;
}

/* Turns DATA that cannot be sent into a refusal, if no byte of it was sent. */
static void piece_withdraw_data(struct tcp_lane *lane, struct tcp_piece *piece)
{
	piece_send_zeros(piece, PL_WIRE_UNKNOWN_KEY);
	if (piece->header_final)
		return;
	lane->queued -= piece->length;
	piece->length = 0;
	piece->frame = (struct pl_frame){ .type = PL_FRAME_FAIL,
					  .flags = PL_FRAME_READ,
					  .cookie = piece->frame.cookie,
					  .offset = PL_WIRE_UNKNOWN_KEY };
}

PL_ALWAYS_INLINE void piece_finalize_header(struct tcp_lane *lane, struct tcp_piece *piece)
{
	if (piece->header_final)
		return;
	piece->header_final = true;
	/* A refusal acknowledges its own WRITE. An earlier acknowledgement would report the WRITE as placed. */
	piece->frame.ack = tcp_piece_refuses_write(piece) ? piece->frame.cookie : lane->placed;
	lane->placed_told = piece->frame.ack;
	lane->unacked_bytes = 0;
	if (!tcp_frame_is_counted(piece->frame.type))
		return;
	piece->sequence = ++lane->sequence;
	/* An engine that polls sends large messages at the end of each batch, and waits for no acknowledgement before the next one. */
	if (piece->frame.type != PL_FRAME_RENDEZVOUS || !lane->engine->poll_time)
		lane->awaited = lane->sequence;
}

struct gather {
	struct iovec vectors[GATHER_VECTORS];
	int count;
	size_t bytes, most, space_used; /* takes no more pieces from `most` bytes on */
	bool fragile; /* a vector is memory that may disappear */
	uint8_t space[GATHER_SPACE];
};

static void gather_add_vector(struct gather *gather, const void *base, size_t length)
{
	struct iovec *last = gather->count ? &gather->vectors[gather->count - 1] : NULL;

	gather->bytes += length;
	if (last && (uint8_t *)last->iov_base + last->iov_len == base)
		last->iov_len += length;
	else
		gather->vectors[gather->count++] = (struct iovec){ .iov_base = (void *)base, .iov_len = length };
}

static uint8_t *gather_reserve_space(struct gather *gather, size_t length)
{
	uint8_t *at = gather->space + gather->space_used;

	gather->space_used += length;
	return at;
}

PL_ALWAYS_INLINE void gather_add_header(struct gather *gather, const struct tcp_piece *piece)
{
	uint8_t *header = gather_reserve_space(gather, PL_FRAME_HEADER);

	pl_frame_encode(&piece->frame, header);
	gather_add_vector(gather, header + piece->sent, PL_FRAME_HEADER - piece->sent);
}

/* Adds the unsent bytes of a piece. Returns false if there is no room for all of them. */
static bool gather_add_piece(struct tcp_lane *lane, struct gather *gather, struct tcp_piece *piece)
{
	uint32_t skip = piece->sent;
	uint32_t at, left;

	if (gather->count + 4 > GATHER_VECTORS || gather->bytes >= gather->most ||
	    gather->space_used + PL_FRAME_HEADER + GATHER_COPY_MAX > GATHER_SPACE)
		return false;
	if (piece->key && atomic_load(&piece->key->revoked))
		piece_withdraw_data(lane, piece);
	piece_finalize_header(lane, piece);
	if (skip < PL_FRAME_HEADER) {
		gather_add_header(gather, piece);
		skip = PL_FRAME_HEADER;
	}
	at = skip - PL_FRAME_HEADER;
	left = piece->length - at;
	if (left == 0)
		return true;
	if (!piece->payload) {
		uint32_t filler = PL_MIN(left, (uint32_t)sizeof(zeros));

		gather_add_vector(gather, zeros, filler);
		return filler == left;
	}
	if (left <= GATHER_COPY_MAX && !piece->key && !piece->fragile) {
		uint8_t *copy = gather_reserve_space(gather, left);

		memcpy(copy, piece->payload + at, left);
		gather_add_vector(gather, copy, left);
	} else {
		gather_add_vector(gather, piece->payload + at, left);
		gather->fragile |= piece->fragile;
	}
	return true;
}

static void advance_sent_pieces(struct tcp_lane *lane, size_t sent)
{
	size_t behind = SIZE_MAX; /* bytes of the write behind its last message */

	while (sent) {
		struct tcp_piece *piece = pl_list_first(&lane->queue, struct tcp_piece, link);
		uint32_t count = (uint32_t)PL_MIN(sent, (size_t)(tcp_piece_size(piece) - piece->sent));

		piece->sent += count;
		lane->queued -= count;
		sent -= count;
		if (piece->sent != tcp_piece_size(piece))
			break;
		if (tcp_piece_is_of_message(piece))
			behind = sent;
		piece_sent(lane, piece);
	}
	if (behind != SIZE_MAX)
		lane->message_end = pl_stream_position(&lane->stream, behind);
}

/* Fails the first piece, whose memory cannot be read: a truncated file, or a removed mapping. */
static void fail_unreadable_piece(struct tcp_lane *lane)
{
	struct tcp_piece *piece = pl_list_first(&lane->queue, struct tcp_piece, link);
	struct pl_operation *operation = piece->operation;
	struct pl_error error;

	if (operation) {
		pl_fail(&error, -EFAULT, "MEMORY-UNREADABLE", "sendmsg", NULL,
			"keep the region mapped, and files behind it whole, while it is used",
			"the region's memory cannot be read");
		pl_operation_fail(operation, -EFAULT, &error);
		tcp_void_notification_of(lane, operation);
	}
	/*
	 * The operation keeps its pending count until the zeros are placed: work posted after its completion must not
	 * be overwritten.
	 */
	piece_send_zeros(piece, PL_WIRE_MEMORY);
	/* A message cannot be withdrawn, and the receiver would take zeros for its bytes. */
	if (piece->frame.type != PL_FRAME_WRITE && piece->frame.type != PL_FRAME_DATA)
		tcp_lane_fail(lane, -EFAULT);
}

/* Drops bytes from the end until `most` are left. */
static void gather_trim(struct gather *gather, size_t most)
{
	for (size_t over; gather->bytes > most; gather->bytes -= over) {
		struct iovec *last = &gather->vectors[gather->count - 1];

		over = PL_MIN(gather->bytes - most, last->iov_len);
		last->iov_len -= over;
		gather->count -= !last->iov_len;
	}
}

/*
 * Adds the trailer of DATA, the only piece, if its last byte is gathered. Further DATA would wait for the frames between: then they
 * follow all of it. Not inline: most calls send no DATA.
 */
__attribute__((noinline)) static void gather_add_trailer(struct tcp_lane *lane, struct gather *gather,
							 struct tcp_piece *piece)
{
	if (gather->bytes != tcp_piece_size(piece) - piece->sent)
		return;
	tcp_serve_trail_data(lane, piece);
	if (piece->trailer) {
		piece_finalize_header(lane, piece->trailer);
		gather_add_header(gather, piece->trailer);
	}
}

/* Sends queued pieces by one system call. Returns bytes, 0 if the peer's rate allows none now, or a negative errno. */
static ssize_t tcp_lane_send_batch(struct tcp_lane *lane, bool single)
{
	size_t most = tcp_lane_has_rate(lane) ? tcp_lane_take_allowance(lane, &lane->sending) : SIZE_MAX;
	struct tcp_piece *first = pl_list_first(&lane->queue, struct tcp_piece, link);
	struct gather gather;
	ssize_t sent;

	if (!most)
		return 0;
	gather.count = 0;
	gather.bytes = gather.space_used = 0;
	gather.most = tcp_lane_gather_limit(lane);
	gather.fragile = false;
	pl_list_for_each(at, &lane->queue) {
		if (!gather_add_piece(lane, &gather, pl_list_entry(at, struct tcp_piece, link)) || single ||
		    gather.bytes >= most)
			break;
	}
	if (first->frame.type == PL_FRAME_DATA && lane->queue.next == lane->queue.prev)
		gather_add_trailer(lane, &gather, first);
	gather_trim(&gather, most);
	if (gather.bytes == 0)
		return 0;
	lane->stream.fragile = gather.fragile;
	sent = pl_stream_write(&lane->stream, gather.vectors, gather.count);
	tcp_allowance_use(&lane->sending, sent);
	return sent;
}

void tcp_lane_flush(struct tcp_lane *lane)
{
	bool single = false;
	size_t total = 0;

	if (lane->flushing || lane->blocked || lane->state != TCP_LANE_UP)
		return;
	lane->flushing = true;
	lane->answered = 0;
	while (lane->state == TCP_LANE_UP) {
		ssize_t sent = pl_stream_unsent(&lane->stream) ? pl_stream_flush(&lane->stream) : 0;

		if (!pl_list_empty(&lane->waiting))
			tcp_lane_start_copies(lane);
		if (pl_list_empty(&lane->queue) || lane->queued < TCP_HOLD_BACK_BYTES)
			tcp_lane_take_work(lane);
		if (sent == 0 && pl_list_empty(&lane->queue))
			tcp_lane_finish_copies(lane);
		if (sent == 0 && pl_list_empty(&lane->queue)) {
			if (tcp_lane_rests(lane))
				break;
			continue;
		}
		if (sent == 0 && total >= FLUSH_BYTES && (lane->engine->poll_time || total >= FLUSH_BYTES_MOST)) {
			lane->paused = true;
			pl_source_hand_over(&lane->source);
			break;
		}
		if (sent == 0 && lane->unswept) {
			sweep_queue(lane, false);
			continue;
		}
		if (sent == 0)
			sent = tcp_lane_send_batch(lane, single);
		if (sent > 0) {
			advance_sent_pieces(lane, (size_t)sent);
			total += (size_t)sent;
			/* The other end answers soon. */
			if (lane->state == TCP_LANE_UP)
				pl_engine_heat(lane->engine, &lane->source);
			single = false;
		} else if (sent == -EFAULT && !single) {
			single = true;
		} else if (sent == -EFAULT) {
			fail_unreadable_piece(lane);
			single = false;
		} else if (sent == -EAGAIN || sent == 0) {
			if (sent < 0)
				tcp_lane_block(lane);
			break;
		} else {
			tcp_lane_send_failed(lane, (int)sent);
			break;
		}
	}
	lane->flushing = false;
	tcp_lane_asked(lane);
	if (lane->state != TCP_LANE_UP)
		return;
	pl_source_watch(&lane->source, tcp_lane_events(lane) | (lane->blocked ? EPOLLOUT : 0));
}

/* -- cancellation ------------------------------------------------------------------------------- */

/* Detaches an operation that ends. Its sent bytes may still arrive, even after later work on another lane. */
static void piece_detach_operation(struct tcp_lane *lane, struct tcp_piece *piece)
{
	piece->operation = NULL;
	if (piece->frame.type != PL_FRAME_WRITE)
		return;
	piece->late = true;
	atomic_fetch_add(&lane->endpoint->late, 1);
}

/* Copies the payload of a message that is partly sent: the receiver delivers it, so its bytes must stay right. */
static void piece_copy_message(struct tcp_lane *lane, struct tcp_piece *piece)
{
	if (piece->length == 0 || piece->payload == piece->copy)
		return;
	piece->payload_copy = pl_alloc(lane->engine->allocator, piece->length);
	if (!piece->payload_copy) {
		piece->payload = NULL;
		tcp_lane_fail(lane, -ENOMEM);
		return;
	}
	memcpy(piece->payload_copy, piece->payload, piece->length);
	piece->payload = piece->payload_copy;
}

static void sweep_piece(struct tcp_lane *lane, struct tcp_piece *piece, bool all)
{
	struct pl_operation *operation = piece->operation;
	bool drop = operation && (all || atomic_load(&operation->canceled));

	if (piece->key && (all || atomic_load(&piece->key->revoked)))
		piece_withdraw_data(lane, piece);
	if (!drop)
		return;
	if (!all && tcp_piece_make_void(lane, piece)) {
		; /* goes in place of the message, or of the notification of a cancelled write */
	} else if (piece->header_final) {
		piece_detach_operation(lane, piece);
		if (all || piece->frame.type == PL_FRAME_WRITE)
			piece_send_zeros(piece, PL_WIRE_CANCELED);
		else
			piece_copy_message(lane, piece);
	} else {
		uint8_t type = piece->frame.type;

		lane->queued -= tcp_piece_size(piece);
		tcp_piece_free(lane, piece);
		if (!all)
			pl_message_dropped(lane->endpoint->base.peer, type);
	}
	pl_operation_pending_done(operation);
}

/* The lane is flushing: an operation that completes here may post and send at once, which would free the pieces walked here. */
static void sweep_queue(struct tcp_lane *lane, bool all)
{
	lane->unswept = false;
	pl_list_for_each_safe(at, next, &lane->queue)
		sweep_piece(lane, pl_list_entry(at, struct tcp_piece, link), all);
}

void tcp_lane_sweep_pieces(struct tcp_lane *lane, bool all)
{
	bool flushing = lane->flushing;

	lane->flushing = true;
	sweep_queue(lane, all);
	pl_list_for_each_safe(at, next, &lane->unacked) {
		struct tcp_piece *piece = pl_list_entry(at, struct tcp_piece, link);
		struct pl_operation *operation = piece->operation;

		if (!operation || !(all || atomic_load(&operation->canceled)))
			continue;
		piece_detach_operation(lane, piece);
		pl_operation_pending_done(operation);
	}
	lane->flushing = flushing;
}
