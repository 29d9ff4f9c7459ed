/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/wire.h"

void pl_lane_hello_encode(const struct pl_lane_hello *hello, uint8_t buffer[PL_LANE_HELLO])
{
	struct pl_writer writer;

	pl_writer_init(&writer, buffer, PL_LANE_HELLO);
	pl_put_u32(&writer, PL_MAGIC_LANE);
	pl_put_u16(&writer, hello->version);
	pl_put_u16(&writer, hello->lane);
	pl_put_u64(&writer, hello->peer_index);
	pl_put_bytes(&writer, hello->nonce, sizeof(hello->nonce));
	pl_put_u64(&writer, 0);
}

int pl_lane_hello_decode(const uint8_t buffer[PL_LANE_HELLO], struct pl_lane_hello *hello)
{
	struct pl_reader reader;
	uint32_t magic;

	pl_reader_init(&reader, buffer, PL_LANE_HELLO);
	magic = pl_get_u32(&reader);
	hello->version = pl_get_u16(&reader);
	hello->lane = pl_get_u16(&reader);
	hello->peer_index = pl_get_u64(&reader);
	pl_get_bytes(&reader, hello->nonce, sizeof(hello->nonce));
	return magic != PL_MAGIC_LANE || pl_get_u64(&reader) != 0 ? -EPROTO : 0;
}

void pl_lane_challenge_encode(const struct pl_lane_challenge *challenge, uint8_t buffer[PL_LANE_CHALLENGE])
{
	struct pl_writer writer;

	pl_writer_init(&writer, buffer, PL_LANE_CHALLENGE);
	pl_put_u32(&writer, PL_MAGIC_LANE);
	pl_put_u32(&writer, challenge->status);
	pl_put_bytes(&writer, challenge->nonce, sizeof(challenge->nonce));
	pl_put_bytes(&writer, challenge->tag, sizeof(challenge->tag));
}

int pl_lane_challenge_decode(const uint8_t buffer[PL_LANE_CHALLENGE], struct pl_lane_challenge *challenge)
{
	struct pl_reader reader;
	uint32_t magic;

	pl_reader_init(&reader, buffer, PL_LANE_CHALLENGE);
	magic = pl_get_u32(&reader);
	challenge->status = pl_get_u32(&reader);
	pl_get_bytes(&reader, challenge->nonce, sizeof(challenge->nonce));
	pl_get_bytes(&reader, challenge->tag, sizeof(challenge->tag));
	return magic != PL_MAGIC_LANE ? -EPROTO : 0;
}

void pl_lane_welcome_encode(uint32_t status, uint8_t buffer[PL_LANE_WELCOME])
{
	struct pl_writer writer;

	pl_writer_init(&writer, buffer, PL_LANE_WELCOME);
	pl_put_u32(&writer, PL_MAGIC_LANE);
	pl_put_u32(&writer, status);
}

int pl_lane_welcome_decode(const uint8_t buffer[PL_LANE_WELCOME], uint32_t *status)
{
	struct pl_reader reader;
	uint32_t magic;

	pl_reader_init(&reader, buffer, PL_LANE_WELCOME);
	magic = pl_get_u32(&reader);
	*status = pl_get_u32(&reader);
	return magic != PL_MAGIC_LANE ? -EPROTO : 0;
}
