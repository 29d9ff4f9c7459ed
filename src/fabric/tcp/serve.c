/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests of the peer for memory of this end. Each request is checked against its key. */
#include <endian.h>

#include "core/kept_key.h"
#include "fabric/tcp/landing.h"

/* Looks up the key of a frame that accesses `length` bytes. NULL: refused for the reason *status. */
static struct pl_key *tcp_lane_acquire_key(struct tcp_lane *lane, const struct pl_frame *frame, uint64_t length,
					   unsigned right, enum pl_wire_status *status)
{
	return pl_key_acquire_kept(&lane->kept_key, lane->endpoint->base.peer, frame->key, frame->offset, length, right,
				   status);
}

int tcp_lane_refuse_request(struct tcp_lane *lane, uint8_t type, uint32_t cookie, enum pl_wire_status status)
{
	struct pl_frame frame = { .type = PL_FRAME_FAIL, .flags = type, .cookie = cookie, .offset = status };
	struct tcp_piece *piece = tcp_piece_new(lane, &frame);

	if (!piece)
		return -ENOMEM;
	/* The refusal of a WRITE must be sent before a later header acknowledges it. */
	if (type == PL_FRAME_WRITE)
		tcp_lane_queue_refusal(lane, piece);
	else
		tcp_lane_queue_piece(lane, piece);
	return 0;
}

/* Counts a READ or ATOMIC, whose answer ends the count. A peer has few of them under way, see tcp_request_new(). */
static bool may_serve(struct tcp_lane *lane)
{
	return lane->serving++ < TCP_REQUESTS_MAX;
}

int tcp_serve_write(struct tcp_lane *lane, const struct pl_frame *frame, bool whole)
{
	struct pl_memory *memory;
	size_t offset;

	lane->key = tcp_lane_acquire_key(lane, frame, frame->length, PL_ACCESS_WRITE, &lane->refusal);
	lane->destination = NULL;
	if (!lane->key)
		return 0;
	memory = lane->key->memory;
	offset = lane->key->offset + frame->offset;
	if (!pl_memory_staged(memory))
		lane->destination = pl_memory_host_pointer(memory, offset);
	else if (frame->length > PL_SLOT_SIZE)
		lane->refusal = PL_WIRE_UNSUPPORTED;
	else if (frame->length && tcp_land_begin(lane, memory, offset, whole) < 0)
		lane->refusal = PL_WIRE_BUSY;
	return 0;
}

void tcp_serve_written(struct tcp_lane *lane)
{
	struct pl_key *key = lane->key;

	lane->key = NULL;
	lane->writes++;
	if (tcp_land_end(lane, key, NULL)) {
		lane->last_landed = lane->writes;
		return;
	}
	if (lane->refusal != PL_WIRE_OK)
		lane->last_refused = lane->writes;
	pl_key_release(key);
	tcp_lane_count_received(lane, lane->refusal);
}

/* Records staging of a large send, which may forbid it. Returns false if the bytes must not be staged. */
static bool note_served_staging(const struct pl_key *key, uint32_t length)
{
	struct pl_operation *send = key->operation;

	if (!send)
		return true;
	pl_operation_staged(send, length, pl_tcp_fabric.staging_reason);
	if (!(send->attributes.flags & PL_REQUIRE_DIRECT))
		return true;
	pl_operation_not_direct(send, pl_tcp_fabric.staging_reason);
	return false;
}

int tcp_serve_read(struct tcp_lane *lane, const struct pl_frame *frame)
{
	struct pl_frame answer = { .type = PL_FRAME_DATA, .cookie = frame->cookie, .length = frame->length };
	enum pl_wire_status status;
	struct tcp_piece *piece;
	struct pl_memory *memory;
	struct pl_key *key;

	if (!may_serve(lane))
		return -EPROTO;
	key = tcp_lane_acquire_key(lane, frame, frame->length, PL_ACCESS_READ, &status);
	if (!key)
		return tcp_lane_refuse_request(lane, PL_FRAME_READ, frame->cookie, status);
	memory = key->memory;
	if (pl_memory_staged(memory) && frame->length > PL_SLOT_SIZE) {
		pl_key_release(key);
		return tcp_lane_refuse_request(lane, PL_FRAME_READ, frame->cookie, PL_WIRE_UNSUPPORTED);
	}
	if (pl_memory_staged(memory) && !note_served_staging(key, frame->length)) {
		pl_key_release(key);
		return tcp_lane_refuse_request(lane, PL_FRAME_READ, frame->cookie, PL_WIRE_UNSUPPORTED);
	}
	piece = tcp_piece_new(lane, &answer);
	if (!piece) {
		pl_key_release(key);
		return -ENOMEM;
	}
	piece->length = frame->length;
	piece->trailing = frame->flags & PL_READ_TRAILING;
	/*
	 * Copies a short answer now. The kernel reads the memory of a longer answer while it sends. That may fail after
	 * some bytes, so a frame with a status follows the bytes.
	 */
	if (frame->length <= sizeof(piece->copy)) {
		int rc = frame->length
				 ? pl_memory_copy_out(memory, key->offset + frame->offset, piece->copy, frame->length)
				 : 0;

		if (rc < 0) {
			piece->length = 0;
			pl_key_release(key);
			tcp_piece_free(lane, piece);
			return tcp_lane_refuse_request(lane, PL_FRAME_READ, frame->cookie, PL_WIRE_MEMORY);
		}
		piece->payload = piece->copy;
		if (piece->trailing) {
			piece->key = key;
		} else {
			piece->frame.flags = TCP_DATA_LAST;
			pl_key_release(key);
		}
	} else {
		piece->key = key;
		piece->fragile = memory->fragile;
		if (pl_memory_staged(memory)) {
			tcp_piece_stage(lane, piece, memory, key->offset + frame->offset);
			return 0;
		}
		piece->payload = pl_memory_host_pointer(memory, key->offset + frame->offset);
	}
	tcp_lane_queue_piece(lane, piece);
	return 0;
}

/*
 * Queues the frame that ends an answer, behind other such frames, before all pieces whose header is not final: the peer
 * sends a further request only after it. Refusals stay first, because every header acknowledges.
 */
static void queue_trailer(struct tcp_lane *lane, struct tcp_piece *trailer)
{
	const struct tcp_piece *last = lane->last_refusal ? lane->last_refusal : lane->last_trailer;

	pl_list_append(tcp_lane_open_pieces(lane, last), &trailer->link);
	lane->queued += tcp_piece_size(trailer);
	lane->last_trailer = trailer;
}

/*
 * Loads the trailing word of a piece whose bytes were all copied by this thread. The word of a revoked key may be gone: the answer
 * fails then.
 */
static uint64_t load_trailing_word(struct tcp_piece *piece)
{
	const uint64_t *word = piece->trailing && piece->key ? piece->key->trailing_word : NULL;

	if (!word)
		return 0;
	if (atomic_load(&piece->key->revoked)) {
		piece->data_status = PL_WIRE_UNKNOWN_KEY;
		return 0;
	}
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return le64toh(__atomic_load_n(word, __ATOMIC_ACQUIRE));
}

void tcp_trailer_fail(struct tcp_piece *trailer, enum pl_wire_status status)
{
	trailer->frame.type = PL_FRAME_FAIL;
	trailer->frame.flags = PL_FRAME_READ;
	trailer->frame.offset = status;
}

static struct tcp_piece *trailer_new(struct tcp_lane *lane, uint32_t cookie, enum pl_wire_status status, uint64_t word)
{
	const struct pl_frame frame = { .type = PL_FRAME_VALUE, .cookie = cookie, .offset = word };
	struct tcp_piece *trailer = tcp_piece_new(lane, &frame);

	if (trailer && status != PL_WIRE_OK)
		tcp_trailer_fail(trailer, status);
	return trailer;
}

void tcp_serve_trail_data(struct tcp_lane *lane, struct tcp_piece *piece)
{
	/* A trailing word is loaded after the bytes. */
	if (piece->frame.flags & TCP_DATA_LAST || piece->trailing)
		return;
	piece->trailer = trailer_new(lane, piece->frame.cookie, piece->data_status, 0);
	/* Without memory the frame is queued when the bytes are sent. */
	if (!piece->trailer)
		return;
	pl_list_prepend(&piece->link, &piece->trailer->link);
	lane->queued += tcp_piece_size(piece->trailer);
}

void tcp_serve_data_sent(struct tcp_lane *lane, struct tcp_piece *piece)
{
	uint64_t word = load_trailing_word(piece);
	uint32_t cookie = piece->frame.cookie;
	enum pl_wire_status data_status = piece->data_status;
	bool last = piece->frame.flags & TCP_DATA_LAST, trailed = piece->trailer;
	struct tcp_piece *trailer;

	tcp_piece_free(lane, piece);
	if (last)
		lane->serving--;
	if (last || trailed)
		return;
	trailer = trailer_new(lane, cookie, data_status, word);
	if (!trailer) {
		tcp_lane_fail(lane, -ENOMEM);
		return;
	}
	queue_trailer(lane, trailer);
}

/* Does an atomic: with an instruction of the processor if the processor reaches the word. */
static enum pl_wire_status serve_atomic_now(struct pl_memory *memory, size_t offset, uint8_t kind,
					    const uint64_t words[2], uint64_t *old)
{
	uint64_t *word = pl_memory_host_pointer(memory, offset);
	uint64_t operand = le64toh(words[0]), compare = le64toh(words[1]);

	if (!word) {
		int rc = pl_memory_atomic(memory, offset, kind == PL_ATOMIC_ADD, operand, compare, old);

		return rc == -ENOTSUP ? PL_WIRE_UNSUPPORTED : rc < 0 ? PL_WIRE_MEMORY : PL_WIRE_OK;
	}
	*old = compare;
	if (kind == PL_ATOMIC_ADD)
		*old = __atomic_fetch_add(word, operand, __ATOMIC_SEQ_CST);
	else
		__atomic_compare_exchange_n(word, old, operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return PL_WIRE_OK;
}

int tcp_serve_atomic(struct tcp_lane *lane, const struct pl_frame *frame, const uint8_t *payload)
{
	struct pl_frame answer = { .type = PL_FRAME_VALUE, .cookie = frame->cookie };
	enum pl_wire_status status;
	struct tcp_piece *piece;
	struct pl_key *key;
	uint64_t words[2], probe, old = 0;
	size_t offset;

	if ((frame->flags != PL_ATOMIC_ADD && frame->flags != PL_ATOMIC_SWAP) || !may_serve(lane))
		return -EPROTO;
	key = tcp_lane_acquire_key(lane, frame, 8, PL_ACCESS_ATOMIC, &status);
	if (key) {
		offset = key->offset + frame->offset;
		memcpy(words, payload, sizeof(words));
		if (atomic_load(&key->revoked))
			status = PL_WIRE_UNKNOWN_KEY;
		else if (((uintptr_t)key->memory->address + offset) % 8)
			status = PL_WIRE_MISALIGNED;
		else if (key->memory->fragile && pl_memory_copy_out(key->memory, offset, &probe, sizeof(probe)) < 0)
			status = PL_WIRE_MEMORY;
		else
			status = serve_atomic_now(key->memory, offset, frame->flags, words, &old);
	}
	if (status != PL_WIRE_OK) {
		pl_key_release(key);
		return tcp_lane_refuse_request(lane, PL_FRAME_ATOMIC, frame->cookie, status);
	}
	piece = tcp_piece_new(lane, &answer);
	if (piece) {
		piece->frame.offset = old;
		tcp_lane_queue_piece(lane, piece);
	}
	pl_key_release(key);
	return piece ? 0 : -ENOMEM;
}

/* A final header has told the other end's frames as placed, so an acknowledgement goes in its place. */
static void make_acknowledgement(struct tcp_piece *piece)
{
	piece->frame = (struct pl_frame){ .type = PL_FRAME_ACK, .ack = piece->frame.ack };
	piece->payload = NULL;
	piece->length = 0;
}

static void drop_answer(struct tcp_lane *lane, struct tcp_piece *piece)
{
	if (!piece->header_final) {
		lane->queued -= tcp_piece_size(piece);
		tcp_piece_free(lane, piece);
		return;
	}
	lane->queued -= piece->length;
	pl_key_release(piece->key);
	piece->key = NULL;
	make_acknowledgement(piece);
	if (piece->trailer)
		make_acknowledgement(piece->trailer);
	piece->trailer = NULL;
}

void tcp_lane_drop_answers(struct tcp_lane *lane)
{
	pl_list_for_each_safe(at, next, &lane->waiting) {
		struct tcp_piece *piece = pl_list_entry(at, struct tcp_piece, link);

		if (piece->frame.type != PL_FRAME_DATA)
			continue;
		lane->staging -= piece->length;
		tcp_piece_free(lane, piece);
	}
	pl_list_for_each_safe(at, next, &lane->queue) {
		struct tcp_piece *piece = pl_list_entry(at, struct tcp_piece, link);

		if (piece->frame.type == PL_FRAME_DATA && !piece->sent)
			drop_answer(lane, piece);
	}
}
