/* SPDX-License-Identifier: BSD-2-Clause */
/* The target's side: what a peer asks of our memory, checked against its key each time. */
#include <endian.h>

#include "fabric/tcp/tcp.h"

static struct pl_peer *peer_of(const struct tcp_lane *lane)
{
	return lane->endpoint->base.peer;
}

int tcp_refuse(struct tcp_lane *lane, uint8_t type, uint32_t cookie, enum pl_wire_status status)
{
	struct pl_frame frame = { .type = PL_FRAME_FAIL, .flags = type, .cookie = cookie, .offset = status };
	struct tcp_piece *piece = tcp_piece_new(lane, &frame);

	if (!piece)
		return -ENOMEM;
	/* A refused WRITE must be told before a later header acknowledges it. */
	if (type == PL_FRAME_WRITE)
		tcp_queue_refusal(lane, piece);
	else
		tcp_queue(lane, piece);
	return 0;
}

int tcp_serve_write(struct tcp_lane *lane, const struct pl_frame *frame)
{
	lane->key = pl_key_acquire(peer_of(lane), frame->key, frame->offset, frame->length, PL_ACCESS_WRITE,
				   &lane->refusal);
	lane->destination = NULL;
	if (lane->key) {
		lane->destination = pl_memory_host_pointer(lane->key->memory, lane->key->offset + frame->offset);
		if (!lane->destination)
			lane->refusal = PL_WIRE_UNSUPPORTED;
	}
	return 0;
}

void tcp_serve_written(struct tcp_lane *lane)
{
	pl_key_release(peer_of(lane), lane->key);
	lane->key = NULL;
	lane->placed++;
	if (lane->refusal != PL_WIRE_OK && tcp_refuse(lane, PL_FRAME_WRITE, lane->placed, lane->refusal) < 0)
		tcp_lane_fail(lane, -ENOMEM);
}

int tcp_serve_read(struct tcp_lane *lane, const struct pl_frame *frame)
{
	struct pl_frame answer = { .type = PL_FRAME_DATA, .cookie = frame->cookie, .length = frame->length };
	enum pl_wire_status status;
	struct tcp_piece *piece;
	struct pl_key *key;
	uint8_t *from;

	if (lane->serving >= TCP_REQUESTS_MAX)
		return -EPROTO;
	key = pl_key_acquire(peer_of(lane), frame->key, frame->offset, frame->length, PL_ACCESS_READ, &status);
	if (!key)
		return tcp_refuse(lane, PL_FRAME_READ, frame->cookie, status);
	from = pl_memory_host_pointer(key->memory, key->offset + frame->offset);
	piece = from ? tcp_piece_new(lane, &answer) : NULL;
	if (!piece) {
		pl_key_release(peer_of(lane), key);
		return from ? -ENOMEM : tcp_refuse(lane, PL_FRAME_READ, frame->cookie, PL_WIRE_UNSUPPORTED);
	}
	lane->serving++;
	piece->length = frame->length;
	/*
	 * A few bytes are taken now.  Larger answers are read by the kernel as they are sent, which may
	 * fail half-way; so their end tells how it went.
	 */
	if (frame->length <= sizeof(piece->copy)) {
		int rc = pl_memory_copy_out(key->memory, key->offset + frame->offset, piece->copy, frame->length);

		if (rc < 0) {
			lane->serving--;
			piece->length = 0;
			pl_key_release(peer_of(lane), key);
			tcp_piece_free(lane, piece);
			return tcp_refuse(lane, PL_FRAME_READ, frame->cookie, PL_WIRE_MEMORY);
		}
		piece->payload = piece->copy;
		piece->frame.flags = TCP_DATA_LAST;
		pl_key_release(peer_of(lane), key);
	} else {
		piece->payload = from;
		piece->key = key;
	}
	tcp_queue(lane, piece);
	return 0;
}

static uint64_t do_atomic(uint64_t *word, uint8_t kind, uint64_t operand, uint64_t compare)
{
	if (kind == PL_ATOMIC_ADD)
		return __atomic_fetch_add(word, operand, __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(word, &compare, operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return compare;
}

int tcp_serve_atomic(struct tcp_lane *lane, const struct pl_frame *frame, const uint8_t *payload)
{
	struct pl_frame answer = { .type = PL_FRAME_VALUE, .cookie = frame->cookie };
	enum pl_wire_status status;
	struct tcp_piece *piece;
	struct pl_key *key;
	uint64_t words[2], probe;
	uint8_t *at = NULL;

	if (frame->flags != PL_ATOMIC_ADD && frame->flags != PL_ATOMIC_SWAP)
		return -EPROTO;
	key = pl_key_acquire(peer_of(lane), frame->key, frame->offset, 8, PL_ACCESS_ATOMIC, &status);
	if (key) {
		at = pl_memory_host_pointer(key->memory, key->offset + frame->offset);
		if (!at || atomic_load(&key->revoked))
			status = at ? PL_WIRE_UNKNOWN_KEY : PL_WIRE_UNSUPPORTED;
		else if ((uintptr_t)at % 8)
			status = PL_WIRE_MISALIGNED;
		else if (key->memory->fragile &&
			 pl_memory_copy_out(key->memory, key->offset + frame->offset, &probe, sizeof(probe)) < 0)
			status = PL_WIRE_MEMORY;
	}
	if (status != PL_WIRE_OK) {
		pl_key_release(peer_of(lane), key);
		return tcp_refuse(lane, PL_FRAME_ATOMIC, frame->cookie, status);
	}
	piece = tcp_piece_new(lane, &answer);
	if (piece) {
		memcpy(words, payload, sizeof(words));
		piece->frame.offset = do_atomic((uint64_t *)at, frame->flags, le64toh(words[0]), le64toh(words[1]));
		tcp_queue(lane, piece);
	}
	pl_key_release(peer_of(lane), key);
	return piece ? 0 : -ENOMEM;
}
