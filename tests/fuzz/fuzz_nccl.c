/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: value (8 bytes, little-endian) and data of a notification between two ends of the NCCL plugin. */
#include "fuzz.h"

#include <endian.h>

#include "message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t again[PL_NOTIFY_DATA_MAX];
	struct message message;
	uint64_t value, encoded;
	size_t length = size - sizeof(value);

	if (size < sizeof(value) || length > PL_NOTIFY_DATA_MAX)
		return 0;
	memcpy(&value, data, sizeof(value));
	value = le64toh(value);
	if (message_decode(value, data + sizeof(value), length, &message) < 0)
		return 0;
	REQUIRE(message.comm < COMM_IDS && message.slot < SLOTS && message.type < MESSAGE_TYPE_END);
	if (message.type == MESSAGE_DELIVERED) {
		REQUIRE(message_delivery(message.comm, message.slot, message.size) == value);
		return 0;
	}
	REQUIRE(message.length <= MESSAGE_PAYLOAD_MAX);
	REQUIRE(message_encode(&message, again, &encoded) == length && encoded == value);
	REQUIRE(memcmp(again, data + sizeof(value), length) == 0);
	return 0;
}
