/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages between the process that measures and its servers: little-endian, of one version, each length checked.  A
 * message is a head (magic, version, type) and what its type has; FLOW_FAILED keeps its form in all versions.
 */
#include <string.h>

#include "bench/common/cursor.h"
#include "bench/workflow/workflow.h"

#define MAGIC 0x574c4650u /* "PFLW" */

static void put_tally(struct cursor *cursor, const struct flow_tally *tally)
{
	cursor_put(cursor, tally->route, 1);
	cursor_put(cursor, tally->direct, 8);
	cursor_put(cursor, tally->staged, 8);
	cursor_put_text(cursor, tally->fabric);
	cursor_put_text(cursor, tally->reason);
}

static void get_tally(struct cursor *cursor, struct flow_tally *tally)
{
	tally->route = (enum pl_route)cursor_get(cursor, 1);
	if (tally->route > PL_ROUTE_STAGED)
		cursor->failed = true;
	tally->direct = cursor_get(cursor, 8);
	tally->staged = cursor_get(cursor, 8);
	cursor_get_text(cursor, tally->fabric, sizeof(tally->fabric), false);
	cursor_get_text(cursor, tally->reason, sizeof(tally->reason), false);
}

static void put_check(struct cursor *cursor, const struct flow_message *message)
{
	const struct flow_difference *difference = &message->difference;

	cursor_put(cursor, message->frames, 8);
	cursor_put(cursor, message->checked, 8);
	cursor_put(cursor, message->right, 1);
	cursor_put(cursor, difference->frame, 8);
	cursor_put(cursor, difference->word, 8);
	cursor_put(cursor, difference->found, 4);
	cursor_put(cursor, difference->wanted, 4);
	put_tally(cursor, &message->tally);
}

static void get_check(struct cursor *cursor, struct flow_message *message)
{
	struct flow_difference *difference = &message->difference;

	message->frames = cursor_get(cursor, 8);
	message->checked = cursor_get(cursor, 8);
	message->right = cursor_get(cursor, 1) != 0;
	difference->frame = cursor_get(cursor, 8);
	difference->word = cursor_get(cursor, 8);
	difference->found = (uint32_t)cursor_get(cursor, 4);
	difference->wanted = (uint32_t)cursor_get(cursor, 4);
	get_tally(cursor, &message->tally);
}

size_t flow_encode(const struct flow_message *message, uint8_t *buffer)
{
	struct cursor cursor = { .to = buffer };

	cursor_put(&cursor, MAGIC, 4);
	cursor_put(&cursor, FLOW_VERSION, 2);
	cursor_put(&cursor, message->type, 2);
	switch (message->type) {
	case FLOW_SETUP:
		cursor_put(&cursor, message->sink, 1);
		cursor_put(&cursor, message->size, 8);
		cursor_put(&cursor, message->depth, 4);
		cursor_put_bytes(&cursor, message->token, message->token_length);
		cursor_put_machine(&cursor, &message->machine);
		break;
	case FLOW_RUN:
		cursor_put(&cursor, message->seed, 8);
		cursor_put(&cursor, message->fault, 1);
		cursor_put(&cursor, message->checked, 8);
		cursor_put(&cursor, message->depth, 4);
		cursor_put_bytes(&cursor, message->token, message->token_length);
		break;
	case FLOW_CHECK:
		put_check(&cursor, message);
		break;
	case FLOW_FAILED:
		cursor_put_error(&cursor, &message->error);
		break;
	case FLOW_BYE:
		break;
	}
	return (size_t)(cursor.to - buffer);
}

static int get_body(struct cursor *cursor, struct flow_message *message)
{
	switch (message->type) {
	case FLOW_SETUP:
		message->sink = cursor_get(cursor, 1) != 0;
		message->size = cursor_get(cursor, 8);
		message->depth = (uint32_t)cursor_get(cursor, 4);
		message->token_length = (uint16_t)cursor_get_bytes(cursor, message->token, sizeof(message->token));
		cursor_get_machine(cursor, &message->machine);
		return 0;
	case FLOW_RUN:
		message->seed = cursor_get(cursor, 8);
		message->fault = (enum flow_fault)cursor_get(cursor, 1);
		message->checked = cursor_get(cursor, 8);
		message->depth = (uint32_t)cursor_get(cursor, 4);
		message->token_length = (uint16_t)cursor_get_bytes(cursor, message->token, sizeof(message->token));
		return 0;
	case FLOW_CHECK:
		get_check(cursor, message);
		return 0;
	case FLOW_FAILED:
		cursor_get_error(cursor, &message->error);
		return 0;
	case FLOW_BYE:
		return 0;
	}
	return -EPROTO;
}

int flow_decode(const uint8_t *buffer, size_t length, struct flow_message *message)
{
	struct cursor cursor = { .from = buffer, .end = buffer + length };
	uint64_t magic = cursor_get(&cursor, 4), version = cursor_get(&cursor, 2);

	memset(message, 0, sizeof(*message));
	message->type = (enum flow_type)cursor_get(&cursor, 2);
	if (cursor.failed || magic != MAGIC)
		return -EPROTO;
	if (version != FLOW_VERSION && message->type != FLOW_FAILED)
		return -EPROTONOSUPPORT;
	if (get_body(&cursor, message) < 0 || cursor.failed || cursor.from != cursor.end)
		return -EPROTO;
	return 0;
}

bool flow_size_valid(uint64_t size)
{
	return size >= FLOW_SIZE_MIN && size <= FLOW_SIZE_MAX && size % sizeof(uint32_t) == 0;
}

void flow_tally_add(struct flow_tally *tally, const struct pl_receipt *receipt)
{
	const char *reason = receipt->reason ? receipt->reason : "";

	/* What is worse is what is told. */
	if (receipt->route >= tally->route) {
		tally->route = receipt->route;
		if (strcmp(tally->reason, reason))
			snprintf(tally->reason, sizeof(tally->reason), "%s", reason);
		snprintf(tally->fabric, sizeof(tally->fabric), "%s", receipt->fabric ? receipt->fabric : "");
	}
	tally->direct += receipt->bytes_direct;
	tally->staged += receipt->bytes_staged;
}
