/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The immediate data of a small message without a header: its tag and, as many bits as are left for it, its
 * number.  Far fewer than half of 65,536 frames are under way, so that the rest of the number follows from
 * that of the last one that came.
 */
#ifndef PL_FABRIC_VERBS_DATA_IMM_TAG_H
#define PL_FABRIC_VERBS_DATA_IMM_TAG_H

#include "wire/wire.h"

#define VERBS_BARE_TAGS 65536u

/* False: it needs its header. */
static inline bool verbs_bare_encode(const struct pl_frame *frame, uint32_t *immediate)
{
	*immediate = (uint32_t)(frame->key << 16) | (frame->ack & 0xffff);
	return frame->type == PL_FRAME_EAGER && frame->key < VERBS_BARE_TAGS;
}

/* -EPROTO: longer than such a message may be. */
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
