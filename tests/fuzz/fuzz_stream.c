/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: the body of a message about streams; also a ring's header, cursors and descriptor. */
#include "fuzz.h"

#include "stream/ring.h"
#include "wire/stream_message.h"

static void message_round_trip(const uint8_t *data, size_t size)
{
	uint8_t again[8192];
	struct pl_stream_message message;
	int rc = pl_stream_message_decode(data, size, &message);

	REQUIRE(rc == 0 || rc == -EPROTO);
	if (rc)
		return;
	rc = pl_stream_message_encode(&message, again, sizeof(again));
	REQUIRE(rc == (int)size && memcmp(again, data, size) == 0);
}

static void header_round_trip(const uint8_t *data)
{
	uint8_t again[PL_RING_HEADER];
	struct pl_ring_header header;
	int rc = pl_ring_header_decode(data, &header);

	REQUIRE(rc == 0 || rc == -EPROTO);
	if (rc)
		return;
	REQUIRE(pl_ring_payload_size(&header.geometry) <= PL_STREAM_SLOTS_MAX * (PL_RING_SLOT_MAX + PL_RING_PAGE));
	pl_ring_header_encode(&header, again);
	REQUIRE(memcmp(again, data, sizeof(again)) == 0);
}

static void read_ring(const uint8_t *data)
{
	struct pl_ring_geometry geometry = { .slots = 4, .metadata_bytes = 100, .slot_bytes = 5000 };
	struct pl_ring_descriptor descriptor;
	struct pl_ring_cursors cursors;
	uint8_t again[PL_RING_DESCRIPTOR];
	uint64_t stamp;

	REQUIRE(pl_ring_geometry_init(&geometry) == 0);
	if (pl_ring_cursors_decode(data, &cursors) == 0)
		REQUIRE(cursors.published <= cursors.claimed && cursors.claimed <= PL_RING_SEQUENCE_MAX);
	memcpy(&stamp, data, sizeof(stamp));
	if (pl_ring_descriptor_decode(data, &geometry, le64toh(stamp) - 1, &descriptor) < 0)
		return;
	REQUIRE(descriptor.length <= geometry.slot_bytes && descriptor.metadata_length <= geometry.metadata_bytes);
	pl_ring_descriptor_encode(&descriptor, &geometry, again);
	REQUIRE(memcmp(again, data, sizeof(again)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	message_round_trip(data, size);
	if (size >= PL_RING_DESCRIPTOR)
		read_ring(data);
	if (size >= PL_RING_HEADER)
		header_round_trip(data);
	return 0;
}
