/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages between the two ends: little-endian, of one version, each length checked.  A message is
 * a head (magic, version, type) and what its type has; BENCH_FAILED keeps its form in all versions.
 */
#include <endian.h>
#include <string.h>

#include "cli/bench/bench.h"

#define MAGIC 0x484e4250u /* "PBNH" */

#define PLAN_LATENCY 1u
#define PLAN_BOTH_WAYS 2u
#define PLAN_VALIDATE 4u
#define PLAN_TOUCH 8u

struct cursor {
	uint8_t *to;
	const uint8_t *from, *end;
	bool failed;
};

static void put(struct cursor *cursor, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		*cursor->to++ = (uint8_t)(value >> 8 * i);
}

static uint64_t get(struct cursor *cursor, unsigned bytes)
{
	uint64_t value = 0;

	if ((size_t)(cursor->end - cursor->from) < bytes) {
		cursor->failed = true;
		return 0;
	}
	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)*cursor->from++ << 8 * i;
	return value;
}

static void put_text(struct cursor *cursor, const char *text)
{
	size_t length = strlen(text);

	put(cursor, length, 2);
	memcpy(cursor->to, text, length);
	cursor->to += length;
}

static void get_text(struct cursor *cursor, char *text, size_t size, bool lines)
{
	size_t length = get(cursor, 2);

	if (length >= size || length > (size_t)(cursor->end - cursor->from)) {
		cursor->failed = true;
		return;
	}
	memcpy(text, cursor->from, length);
	text[length] = '\0';
	cursor->from += length;
	/* It ends up on a terminal. */
	cli_printable(text, lines);
}

static void put_setup(struct cursor *cursor, const struct bench_message *message)
{
	const struct bench_plan *plan = &message->plan;

	put(cursor, plan->op, 1);
	put(cursor,
	    (plan->latency ? PLAN_LATENCY : 0) | (plan->both_ways ? PLAN_BOTH_WAYS : 0) |
		    (plan->validate ? PLAN_VALIDATE : 0) | (plan->touch ? PLAN_TOUCH : 0),
	    1);
	put(cursor, plan->size, 8);
	put(cursor, plan->depth, 4);
	put(cursor, plan->vector, 4);
	put(cursor, plan->post_list, 4);
	put(cursor, plan->peers, 4);
	put(cursor, message->token_length, 2);
	memcpy(cursor->to, message->token, message->token_length);
	cursor->to += message->token_length;
}

static void get_setup(struct cursor *cursor, struct bench_message *message)
{
	struct bench_plan *plan = &message->plan;
	unsigned flags;

	plan->op = (enum bench_op)get(cursor, 1);
	flags = (unsigned)get(cursor, 1);
	plan->latency = flags & PLAN_LATENCY;
	plan->both_ways = flags & PLAN_BOTH_WAYS;
	plan->validate = flags & PLAN_VALIDATE;
	plan->touch = flags & PLAN_TOUCH;
	plan->size = get(cursor, 8);
	plan->depth = (uint32_t)get(cursor, 4);
	plan->vector = (uint32_t)get(cursor, 4);
	plan->post_list = (uint32_t)get(cursor, 4);
	plan->peers = (uint32_t)get(cursor, 4);
	message->token_length = (uint16_t)get(cursor, 2);
	if (message->token_length > sizeof(message->token) ||
	    message->token_length > (size_t)(cursor->end - cursor->from)) {
		cursor->failed = true;
		return;
	}
	memcpy(message->token, cursor->from, message->token_length);
	cursor->from += message->token_length;
}

static void put_hello(struct cursor *cursor, const struct bench_message *message)
{
	const struct machine *machine = &message->machine;

	put_text(cursor, message->memory);
	put_text(cursor, machine->host);
	put_text(cursor, machine->kernel);
	put_text(cursor, machine->processor);
	put_text(cursor, machine->gpus);
	put_text(cursor, machine->cards);
	put(cursor, machine->cores, 4);
	put(cursor, machine->memory, 8);
}

static void get_hello(struct cursor *cursor, struct bench_message *message)
{
	struct machine *machine = &message->machine;

	get_text(cursor, message->memory, sizeof(message->memory), false);
	get_text(cursor, machine->host, sizeof(machine->host), false);
	get_text(cursor, machine->kernel, sizeof(machine->kernel), false);
	get_text(cursor, machine->processor, sizeof(machine->processor), false);
	get_text(cursor, machine->gpus, sizeof(machine->gpus), true);
	get_text(cursor, machine->cards, sizeof(machine->cards), true);
	machine->cores = (uint32_t)get(cursor, 4);
	machine->memory = get(cursor, 8);
}

static void put_error(struct cursor *cursor, const struct pl_error *error)
{
	put(cursor, (uint32_t)-error->code, 4);
	put_text(cursor, error->id);
	put_text(cursor, error->call);
	put_text(cursor, error->object);
	put_text(cursor, error->message);
	put_text(cursor, error->hint);
}

static void get_error(struct cursor *cursor, struct pl_error *error)
{
	uint64_t code = get(cursor, 4);

	/* Errno values end at 4095. */
	error->code = code && code <= 4095 ? -(int)code : -EPROTO;
	get_text(cursor, error->id, sizeof(error->id), false);
	get_text(cursor, error->call, sizeof(error->call), false);
	get_text(cursor, error->object, sizeof(error->object), false);
	get_text(cursor, error->message, sizeof(error->message), false);
	get_text(cursor, error->hint, sizeof(error->hint), false);
}

size_t bench_encode(const struct bench_message *message, uint8_t *buffer)
{
	struct cursor cursor = { .to = buffer };
	const struct bench_length *length = &message->length;
	const struct bench_result *result = &message->result;

	put(&cursor, MAGIC, 4);
	put(&cursor, BENCH_VERSION, 2);
	put(&cursor, message->type, 2);
	switch (message->type) {
	case BENCH_SETUP:
		put_setup(&cursor, message);
		break;
	case BENCH_PREPARE:
		put(&cursor, length->iterations, 8);
		put(&cursor, length->duration, 8);
		put(&cursor, length->warmup, 8);
		put(&cursor, length->seed, 8);
		put(&cursor, length->rate, 8);
		break;
	case BENCH_FINISH:
		put(&cursor, result->operations, 8);
		put(&cursor, result->elapsed, 8);
		put(&cursor, result->cpu, 8);
		put(&cursor, result->wall, 8);
		put(&cursor, result->covered, 8);
		put(&cursor, result->verified, 1);
		break;
	case BENCH_FAILED:
		put_error(&cursor, &message->error);
		break;
	case BENCH_HELLO:
		put_hello(&cursor, message);
		break;
	case BENCH_GO:
	case BENCH_BYE:
		break;
	}
	return (size_t)(cursor.to - buffer);
}

static int get_body(struct cursor *cursor, struct bench_message *message)
{
	struct bench_length *length = &message->length;
	struct bench_result *result = &message->result;

	switch (message->type) {
	case BENCH_SETUP:
		get_setup(cursor, message);
		return 0;
	case BENCH_PREPARE:
		length->iterations = get(cursor, 8);
		length->duration = get(cursor, 8);
		length->warmup = get(cursor, 8);
		length->seed = get(cursor, 8);
		length->rate = get(cursor, 8);
		return 0;
	case BENCH_FINISH:
		result->operations = get(cursor, 8);
		result->elapsed = get(cursor, 8);
		result->cpu = get(cursor, 8);
		result->wall = get(cursor, 8);
		result->covered = get(cursor, 8);
		result->verified = get(cursor, 1) != 0;
		return 0;
	case BENCH_FAILED:
		get_error(cursor, &message->error);
		return 0;
	case BENCH_HELLO:
		get_hello(cursor, message);
		return 0;
	case BENCH_GO:
	case BENCH_BYE:
		return 0;
	}
	return -EPROTO;
}

int bench_decode(const uint8_t *buffer, size_t length, struct bench_message *message)
{
	struct cursor cursor = { .from = buffer, .end = buffer + length };
	uint64_t magic = get(&cursor, 4), version = get(&cursor, 2);

	memset(message, 0, sizeof(*message));
	message->type = (enum bench_type)get(&cursor, 2);
	if (cursor.failed || magic != MAGIC)
		return -EPROTO;
	if (version != BENCH_VERSION && message->type != BENCH_FAILED)
		return -EPROTONOSUPPORT;
	if (get_body(&cursor, message) < 0 || cursor.failed || cursor.from != cursor.end)
		return -EPROTO;
	return 0;
}
