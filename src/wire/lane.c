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
	pl_put_bytes(&writer, hello->secret, sizeof(hello->secret));
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
	pl_get_bytes(&reader, hello->secret, sizeof(hello->secret));
	return magic != PL_MAGIC_LANE || pl_get_u64(&reader) != 0 ? -EPROTO : 0;
}

void pl_rail_welcome_encode(uint16_t renewals, uint8_t buffer[PL_RAIL_WELCOME])
{
	struct pl_writer writer;

	pl_writer_init(&writer, buffer, PL_RAIL_WELCOME);
	pl_put_u16(&writer, renewals);
}

uint16_t pl_rail_welcome_decode(const uint8_t *buffer, size_t length)
{
	struct pl_reader reader;

	if (length < PL_RAIL_WELCOME)
		return 0;
	pl_reader_init(&reader, buffer, PL_RAIL_WELCOME);
	return pl_get_u16(&reader);
}

void pl_rail_hello_encode(const struct pl_rail_hello *hello, uint8_t buffer[PL_RAIL_HELLO])
{
	pl_lane_hello_encode(&hello->lane, buffer);
	buffer[PL_LANE_HELLO] = hello->index;
	buffer[PL_LANE_HELLO + 1] = hello->count;
	memcpy(buffer + PL_LANE_HELLO + 2, hello->addresses, PL_RAILS_MAX);
	pl_rail_welcome_encode(hello->renewals, buffer + PL_RAIL_HELLO_LEAST);
}

int pl_rail_hello_decode(const uint8_t *buffer, size_t length, struct pl_rail_hello *hello)
{
	/* Ignores bytes that a later release may append. */
	if (length < PL_RAIL_HELLO_LEAST || pl_lane_hello_decode(buffer, &hello->lane) < 0)
		return -EPROTO;
	hello->index = buffer[PL_LANE_HELLO];
	hello->count = buffer[PL_LANE_HELLO + 1];
	memcpy(hello->addresses, buffer + PL_LANE_HELLO + 2, PL_RAILS_MAX);
	hello->renewals = pl_rail_welcome_decode(buffer + PL_RAIL_HELLO_LEAST, length - PL_RAIL_HELLO_LEAST);
	return hello->count > PL_RAILS_MAX || hello->index >= hello->count ? -EPROTO : 0;
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
