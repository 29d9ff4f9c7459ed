/* SPDX-License-Identifier: BSD-2-Clause */
#include "message.h"

#include <endian.h>

/* Values of messages with data begin above those of full deliveries. */
#define VALUE_BASE (1ull << 32)
/* Values of deliveries that do not fill the buffer: this bit, the size, and the value of a full delivery. */
#define VALUE_SHORT (1ull << 62)
#define VALUE_SIZE_SHIFT 22

static void put_u32(uint8_t *at, uint32_t value)
{
	value = htole32(value);
	memcpy(at, &value, sizeof(value));
}

static void put_u64(uint8_t *at, uint64_t value)
{
	value = htole64(value);
	memcpy(at, &value, sizeof(value));
}

static uint32_t get_u32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return le32toh(value);
}

static uint64_t get_u64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return le64toh(value);
}

uint64_t message_delivery(uint32_t comm, uint32_t slot, uint64_t size)
{
	uint64_t value = (uint64_t)comm * SLOTS + slot;

	return size == MESSAGE_SIZE_FULL ? value : value | VALUE_SHORT | size << VALUE_SIZE_SHIFT;
}

static void decode_delivery(uint64_t value, struct message *message)
{
	uint64_t full = value & ((uint64_t)COMM_IDS * SLOTS - 1);

	message->type = MESSAGE_DELIVERED;
	message->comm = (uint32_t)(full / SLOTS);
	message->slot = (uint32_t)(full % SLOTS);
	message->size = full == value ? MESSAGE_SIZE_FULL : (value & ~VALUE_SHORT) >> VALUE_SIZE_SHIFT;
}

size_t message_encode(const struct message *message, uint8_t data[PL_NOTIFY_DATA_MAX], uint64_t *value)
{
	*value = VALUE_BASE | message->type;
	put_u32(data, message->comm);
	put_u32(data + 4, message->index);
	put_u32(data + 8, message->slot);
	put_u32(data + 12, 0);
	put_u64(data + 16, message->offset);
	put_u64(data + 24, message->size);
	if (message->length)
		memcpy(data + MESSAGE_HEADER, message->payload, message->length);
	return MESSAGE_HEADER + message->length;
}

int message_decode(uint64_t value, const void *data, size_t length, struct message *message)
{
	const uint8_t *bytes = data;

	memset(message, 0, sizeof(*message));
	if (value < (uint64_t)COMM_IDS * SLOTS || (value & VALUE_SHORT)) {
		decode_delivery(value, message);
		return length == 0 && (message->size == MESSAGE_SIZE_FULL || message->size <= MESSAGE_SIZE_MAX)
			       ? 0
			       : -EPROTO;
	}
	if (value <= VALUE_BASE || value >= VALUE_BASE + MESSAGE_TYPE_END || value == VALUE_BASE + MESSAGE_DELIVERED ||
	    length < MESSAGE_HEADER)
		return -EPROTO;
	message->type = (enum message_type)(value - VALUE_BASE);
	message->comm = get_u32(bytes);
	message->index = get_u32(bytes + 4);
	message->slot = get_u32(bytes + 8);
	message->offset = get_u64(bytes + 16);
	message->size = get_u64(bytes + 24);
	message->payload = bytes + MESSAGE_HEADER;
	message->length = length - MESSAGE_HEADER;
	/* A reserved field, and bounds that all users of the message rely on. */
	if (get_u32(bytes + 12) != 0 || message->comm >= COMM_IDS || message->slot >= SLOTS)
		return -EPROTO;
	return 0;
}
