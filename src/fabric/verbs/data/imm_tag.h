/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Immediate data of a small message without a header: its tag, and the low bits of its number. Far fewer than half of
 * 65,536 frames are under way, so the receiver derives the other bits from the last number.
 */
#ifndef PL_FABRIC_VERBS_DATA_IMM_TAG_H
#define PL_FABRIC_VERBS_DATA_IMM_TAG_H

#include "wire/wire.h"

#define VERBS_BARE_TAGS 65536u

/* Returns false if the message needs its header. */
static inline bool verbs_bare_encode(const struct pl_frame *frame, uint32_t *immediate)
{
	*immediate = (uint32_t)(frame->key << 16) | (frame->ack & 0xffff);
	return frame->type == PL_FRAME_EAGER && frame->key < VERBS_BARE_TAGS;
}

/* Returns -EPROTO if the message is longer than allowed. */
static inline int verbs_bare_decode(uint32_t immediate, uint32_t received, uint32_t length, struct pl_frame *frame)
{
	*frame = (struct pl_frame){
		.type = PL_FRAME_EAGER,
		.ack = received + (uint32_t)(int32_t)(int16_t)(uint16_t)(immediate - received),
		.length = length,
		.key = immediate >> 16,
	};
	return length > pl_frame_limit(PL_FRAME_EAGER) ? -EPROTO : 0;
}

#endif
