/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Control messages between client and server: little-endian, of one version, each length checked.  A message is a
 * header (magic, version, type) and a body that depends on the type; BENCH_FAILED has the same form in all versions.
 */
#include "bench/perf/message.h"

#include <string.h>

#include "bench/common/cursor.h"

#define BENCH_MAGIC 0x484e4250u /* "PBNH" */

#define PLAN_LATENCY 1u
#define PLAN_BOTH_WAYS 2u
#define PLAN_VALIDATE 4u
#define PLAN_TOUCH 8u
#define PLAN_PREPARED 16u
#define PLAN_WORKING_SET 32u /* its size follows; older versions refuse it */

static void put_bench_setup(struct cursor *cursor, const struct bench_message *message)
{
	const struct bench_plan *plan = &message->plan;

	cursor_put(cursor, plan->operation ? plan->operation->code : 0, 1);
	cursor_put(cursor,
		   (plan->latency ? PLAN_LATENCY : 0) | (plan->both_ways ? PLAN_BOTH_WAYS : 0) |
			   (plan->validate ? PLAN_VALIDATE : 0) | (plan->touch ? PLAN_TOUCH : 0) |
			   (plan->prepared ? PLAN_PREPARED : 0) | (plan->working_set ? PLAN_WORKING_SET : 0),
		   1);
	cursor_put(cursor, plan->size, 8);
	cursor_put(cursor, plan->depth, 4);
	cursor_put(cursor, plan->vector, 4);
	cursor_put(cursor, plan->post_list, 4);
	cursor_put(cursor, plan->connections, 4);
	if (plan->working_set)
		cursor_put(cursor, plan->working_set, 8);
	cursor_put_bytes(cursor, message->token, message->token_length);
}

static void get_bench_setup(struct cursor *cursor, struct bench_message *message)
{
	struct bench_plan *plan = &message->plan;
	unsigned flags;

	plan->operation = bench_operation_by_code((unsigned)cursor_get(cursor, 1));
	flags = (unsigned)cursor_get(cursor, 1);
	plan->latency = flags & PLAN_LATENCY;
	plan->both_ways = flags & PLAN_BOTH_WAYS;
	plan->validate = flags & PLAN_VALIDATE;
	plan->touch = flags & PLAN_TOUCH;
	plan->prepared = flags & PLAN_PREPARED;
	plan->size = cursor_get(cursor, 8);
	plan->depth = (uint32_t)cursor_get(cursor, 4);
	plan->vector = (uint32_t)cursor_get(cursor, 4);
	plan->post_list = (uint32_t)cursor_get(cursor, 4);
	plan->connections = (uint32_t)cursor_get(cursor, 4);
	if (flags & PLAN_WORKING_SET)
		plan->working_set = cursor_get(cursor, 8);
	message->token_length = (uint16_t)cursor_get_bytes(cursor, message->token, sizeof(message->token));
}

size_t bench_message_encode(const struct bench_message *message, uint8_t *buffer)
{
	struct cursor cursor = { .to = buffer };
	const struct bench_run_settings *settings = &message->settings;
	const struct bench_result *result = &message->result;

	cursor_put(&cursor, BENCH_MAGIC, 4);
	cursor_put(&cursor, BENCH_VERSION, 2);
	cursor_put(&cursor, message->type, 2);
	switch (message->type) {
	case BENCH_SETUP:
		put_bench_setup(&cursor, message);
		break;
	case BENCH_PREPARE:
		cursor_put(&cursor, settings->iterations, 8);
		cursor_put(&cursor, settings->duration, 8);
		cursor_put(&cursor, settings->warmup, 8);
		cursor_put(&cursor, settings->seed, 8);
		cursor_put(&cursor, settings->rate, 8);
		break;
	case BENCH_FINISH:
		cursor_put(&cursor, result->operations, 8);
		cursor_put(&cursor, result->elapsed, 8);
		cursor_put(&cursor, result->cpu, 8);
		cursor_put(&cursor, result->wall, 8);
		cursor_put(&cursor, result->slots_covered, 8);
		cursor_put(&cursor, result->verified, 1);
		break;
	case BENCH_FAILED:
		cursor_put_error(&cursor, &message->error);
		break;
	case BENCH_HELLO:
		cursor_put_text(&cursor, message->memory);
		cursor_put_machine(&cursor, &message->machine);
		break;
	case BENCH_GO:
	case BENCH_BYE:
		break;
	}
	return (size_t)(cursor.to - buffer);
}

static int get_bench_body(struct cursor *cursor, struct bench_message *message)
{
	struct bench_run_settings *settings = &message->settings;
	struct bench_result *result = &message->result;

	switch (message->type) {
	case BENCH_SETUP:
		get_bench_setup(cursor, message);
		return 0;
	case BENCH_PREPARE:
		settings->iterations = cursor_get(cursor, 8);
		settings->duration = cursor_get(cursor, 8);
		settings->warmup = cursor_get(cursor, 8);
		settings->seed = cursor_get(cursor, 8);
		settings->rate = cursor_get(cursor, 8);
		return 0;
	case BENCH_FINISH:
		result->operations = cursor_get(cursor, 8);
		result->elapsed = cursor_get(cursor, 8);
		result->cpu = cursor_get(cursor, 8);
		result->wall = cursor_get(cursor, 8);
		result->slots_covered = cursor_get(cursor, 8);
		result->verified = cursor_get(cursor, 1) != 0;
		return 0;
	case BENCH_FAILED:
		cursor_get_error(cursor, &message->error);
		return 0;
	case BENCH_HELLO:
		cursor_get_text(cursor, message->memory, sizeof(message->memory), false);
		cursor_get_machine(cursor, &message->machine);
		return 0;
	case BENCH_GO:
	case BENCH_BYE:
		return 0;
	}
	return -EPROTO;
}

int bench_message_decode(const uint8_t *buffer, size_t length, struct bench_message *message)
{
	struct cursor cursor = { .from = buffer, .end = buffer + length };
	uint64_t magic = cursor_get(&cursor, 4), version = cursor_get(&cursor, 2);

	memset(message, 0, sizeof(*message));
	message->type = (enum bench_message_type)cursor_get(&cursor, 2);
	if (cursor.failed || magic != BENCH_MAGIC)
		return -EPROTO;
	if (version != BENCH_VERSION && message->type != BENCH_FAILED)
		return -EPROTONOSUPPORT;
	if (get_bench_body(&cursor, message) < 0 || cursor.failed || cursor.from != cursor.end)
		return -EPROTO;
	return 0;
}
