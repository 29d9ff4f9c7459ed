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

void pl_rail_hello_encode(const struct pl_rail_hello *hello, uint8_t buffer[PL_RAIL_HELLO])
{
	struct pl_writer writer;

	pl_lane_hello_encode(&hello->lane, buffer);
	pl_writer_init(&writer, buffer + PL_LANE_HELLO, PL_RAIL_HELLO - PL_LANE_HELLO);
	pl_put_u8(&writer, hello->index);
	pl_put_u8(&writer, hello->count);
	pl_put_bytes(&writer, hello->addresses, PL_RAILS_MAX);
	pl_put_u16(&writer, hello->renewals);
}

int pl_rail_hello_decode(const uint8_t *buffer, size_t length, struct pl_rail_hello *hello)
{
	struct pl_reader reader;

	/* Networks append bytes to private data. */
	if (length < PL_RAIL_HELLO || pl_lane_hello_decode(buffer, &hello->lane) < 0)
		return -EPROTO;
	pl_reader_init(&reader, buffer + PL_LANE_HELLO, PL_RAIL_HELLO - PL_LANE_HELLO);
	hello->index = pl_get_u8(&reader);
	hello->count = pl_get_u8(&reader);
	pl_get_bytes(&reader, hello->addresses, PL_RAILS_MAX);
	hello->renewals = pl_get_u16(&reader);
	return hello->count > PL_RAILS_MAX || hello->index >= hello->count ? -EPROTO : 0;
}

void pl_rail_welcome_encode(const struct pl_rail_welcome *welcome, uint8_t buffer[PL_RAIL_WELCOME])
{
	struct pl_writer writer;

	pl_writer_init(&writer, buffer, PL_RAIL_WELCOME);
	pl_put_u16(&writer, welcome->renewals);
	pl_put_bytes(&writer, welcome->tag, sizeof(welcome->tag));
}

int pl_rail_welcome_decode(const uint8_t *buffer, size_t length, struct pl_rail_welcome *welcome)
{
	struct pl_reader reader;

	if (length < PL_RAIL_WELCOME)
		return -EPROTO;
	pl_reader_init(&reader, buffer, PL_RAIL_WELCOME);
	welcome->renewals = pl_get_u16(&reader);
	pl_get_bytes(&reader, welcome->tag, sizeof(welcome->tag));
	return 0;
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
