/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of the bench: of one size, little-endian, all fields present in every type. */
#include <endian.h>
#include <string.h>

#include "cli/bench/bench.h"

#define MAGIC 0x31424c50u /* "PLB1" */
#define FLAG_LATENCY 1u
#define FLAG_BOTH_WAYS 2u

enum {
	AT_MAGIC = 0, AT_TYPE = 4, AT_OPERATION = 5, AT_FLAGS = 6, AT_ZERO = 7, AT_DEPTH = 8, AT_TOKEN_LENGTH = 12,
	AT_SIZE = 16, AT_CPU = 24, AT_TIME = 32, AT_COUNT = 40, AT_HASH = 48, AT_TOKEN = 56, AT_END = 56 + PL_TOKEN_MAX,
};
_Static_assert(AT_END <= BENCH_MESSAGE_SIZE, "a message has room for all");

static void put(uint8_t *at, uint64_t value, size_t length)
{
	value = htole64(value);
	memcpy(at, &value, length);
}

static uint64_t get(const uint8_t *at, size_t length)
{
	uint64_t value = 0;

	memcpy(&value, at, length);
	return le64toh(value);
}

void bench_encode(const struct bench_message *message, uint8_t buffer[BENCH_MESSAGE_SIZE])
{
	unsigned flags = (message->latency ? FLAG_LATENCY : 0) | (message->both_ways ? FLAG_BOTH_WAYS : 0);

	memset(buffer, 0, BENCH_MESSAGE_SIZE);
	put(buffer + AT_MAGIC, MAGIC, 4);
	put(buffer + AT_TYPE, message->type, 1);
	put(buffer + AT_OPERATION, message->operation, 1);
	put(buffer + AT_FLAGS, flags, 1);
	put(buffer + AT_DEPTH, message->depth, 4);
	put(buffer + AT_TOKEN_LENGTH, message->token_length, 2);
	put(buffer + AT_SIZE, message->size, 8);
	put(buffer + AT_CPU, message->cpu, 8);
	put(buffer + AT_TIME, message->time, 8);
	put(buffer + AT_COUNT, message->count, 8);
	put(buffer + AT_HASH, message->hash, 8);
	memcpy(buffer + AT_TOKEN, message->token, PL_TOKEN_MAX);
}

int bench_decode(const void *data, size_t length, struct bench_message *message)
{
	const uint8_t *buffer = data;
	unsigned flags;

	if (length != BENCH_MESSAGE_SIZE || get(buffer + AT_MAGIC, 4) != MAGIC || buffer[AT_ZERO])
		return -EPROTO;
	memset(message, 0, sizeof(*message));
	message->type = buffer[AT_TYPE];
	message->operation = buffer[AT_OPERATION];
	flags = buffer[AT_FLAGS];
	message->latency = flags & FLAG_LATENCY;
	message->both_ways = flags & FLAG_BOTH_WAYS;
	message->depth = (uint32_t)get(buffer + AT_DEPTH, 4);
	message->token_length = (uint16_t)get(buffer + AT_TOKEN_LENGTH, 2);
	message->size = get(buffer + AT_SIZE, 8);
	message->cpu = get(buffer + AT_CPU, 8);
	message->time = get(buffer + AT_TIME, 8);
	message->count = get(buffer + AT_COUNT, 8);
	message->hash = get(buffer + AT_HASH, 8);
	memcpy(message->token, buffer + AT_TOKEN, PL_TOKEN_MAX);
	if (message->type < BENCH_SETUP || message->type >= BENCH_TYPES || flags & ~(FLAG_LATENCY | FLAG_BOTH_WAYS) ||
	    message->operation < BENCH_WRITE || message->operation >= BENCH_OPERATIONS ||
	    message->depth > BENCH_DEPTH_MAX || message->size > BENCH_SIZE_MAX || message->token_length > PL_TOKEN_MAX)
		return -EPROTO;
	return 0;
}
