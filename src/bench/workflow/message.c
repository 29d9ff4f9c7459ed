/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages between the measuring process and its servers: little-endian, of one version, each length checked.  A
 * message is a header (magic, version, type) and a body that depends on the type; WORKFLOW_FAILED has the same form in
 * all versions.
 */
#include "bench/workflow/workflow.h"

#include <string.h>

#include "bench/common/cursor.h"

#define WORKFLOW_MAGIC 0x574c4650u /* "PFLW" */

static void put_totals(struct cursor *cursor, const struct workflow_totals *totals)
{
	cursor_put(cursor, totals->route, 1);
	cursor_put(cursor, totals->direct, 8);
	cursor_put(cursor, totals->staged, 8);
	cursor_put_text(cursor, totals->fabric);
	cursor_put_text(cursor, totals->reason);
}

static void get_totals(struct cursor *cursor, struct workflow_totals *totals)
{
	totals->route = (enum pl_route)cursor_get(cursor, 1);
	if (totals->route > PL_ROUTE_STAGED)
		cursor->failed = true;
	totals->direct = cursor_get(cursor, 8);
	totals->staged = cursor_get(cursor, 8);
	cursor_get_text(cursor, totals->fabric, sizeof(totals->fabric), false);
	cursor_get_text(cursor, totals->reason, sizeof(totals->reason), false);
}

static void put_check_body(struct cursor *cursor, const struct workflow_message *message)
{
	const struct workflow_difference *difference = &message->difference;

	cursor_put(cursor, message->frames, 8);
	cursor_put(cursor, message->checked, 8);
	cursor_put(cursor, message->right, 1);
	cursor_put(cursor, difference->frame, 8);
	cursor_put(cursor, difference->word, 8);
	cursor_put(cursor, difference->found, 4);
	cursor_put(cursor, difference->wanted, 4);
	put_totals(cursor, &message->totals);
}

static void get_check_body(struct cursor *cursor, struct workflow_message *message)
{
	struct workflow_difference *difference = &message->difference;

	message->frames = cursor_get(cursor, 8);
	message->checked = cursor_get(cursor, 8);
	message->right = cursor_get(cursor, 1) != 0;
	difference->frame = cursor_get(cursor, 8);
	difference->word = cursor_get(cursor, 8);
	difference->found = (uint32_t)cursor_get(cursor, 4);
	difference->wanted = (uint32_t)cursor_get(cursor, 4);
	get_totals(cursor, &message->totals);
}

size_t workflow_encode(const struct workflow_message *message, uint8_t *buffer)
{
	struct cursor cursor = { .to = buffer };

	cursor_put(&cursor, WORKFLOW_MAGIC, 4);
	cursor_put(&cursor, WORKFLOW_VERSION, 2);
	cursor_put(&cursor, message->type, 2);
	switch (message->type) {
	case WORKFLOW_SETUP:
		cursor_put(&cursor, message->sink, 1);
		cursor_put(&cursor, message->size, 8);
		cursor_put(&cursor, message->depth, 4);
		cursor_put_bytes(&cursor, message->token, message->token_length);
		cursor_put_machine(&cursor, &message->machine);
		break;
	case WORKFLOW_RUN:
		cursor_put(&cursor, message->seed, 8);
		cursor_put(&cursor, message->fault, 1);
		cursor_put(&cursor, message->stream, 1);
		cursor_put(&cursor, message->checked, 8);
		cursor_put(&cursor, message->depth, 4);
		cursor_put_bytes(&cursor, message->token, message->token_length);
		break;
	case WORKFLOW_CHECK:
		put_check_body(&cursor, message);
		break;
	case WORKFLOW_FAILED:
		cursor_put_error(&cursor, &message->error);
		break;
	case WORKFLOW_BYE:
		break;
	}
	return (size_t)(cursor.to - buffer);
}

static int get_workflow_body(struct cursor *cursor, struct workflow_message *message)
{
	switch (message->type) {
	case WORKFLOW_SETUP:
		message->sink = cursor_get(cursor, 1) != 0;
		message->size = cursor_get(cursor, 8);
		message->depth = (uint32_t)cursor_get(cursor, 4);
		message->token_length = (uint16_t)cursor_get_bytes(cursor, message->token, sizeof(message->token));
		cursor_get_machine(cursor, &message->machine);
		return 0;
	case WORKFLOW_RUN:
		message->seed = cursor_get(cursor, 8);
		message->fault = (enum workflow_fault)cursor_get(cursor, 1);
		message->stream = cursor_get(cursor, 1) != 0;
		message->checked = cursor_get(cursor, 8);
		message->depth = (uint32_t)cursor_get(cursor, 4);
		message->token_length = (uint16_t)cursor_get_bytes(cursor, message->token, sizeof(message->token));
		return 0;
	case WORKFLOW_CHECK:
		get_check_body(cursor, message);
		return 0;
	case WORKFLOW_FAILED:
		cursor_get_error(cursor, &message->error);
		return 0;
	case WORKFLOW_BYE:
		return 0;
	}
	return -EPROTO;
}

int workflow_decode(const uint8_t *buffer, size_t length, struct workflow_message *message)
{
	struct cursor cursor = { .from = buffer, .end = buffer + length };
	uint64_t magic = cursor_get(&cursor, 4), version = cursor_get(&cursor, 2);

	memset(message, 0, sizeof(*message));
	message->type = (enum workflow_type)cursor_get(&cursor, 2);
	if (cursor.failed || magic != WORKFLOW_MAGIC)
		return -EPROTO;
	if (version != WORKFLOW_VERSION && message->type != WORKFLOW_FAILED)
		return -EPROTONOSUPPORT;
	if (get_workflow_body(&cursor, message) < 0 || cursor.failed || cursor.from != cursor.end)
		return -EPROTO;
	return 0;
}

bool workflow_size_valid(uint64_t size)
{
	return size >= WORKFLOW_SIZE_MIN && size <= WORKFLOW_SIZE_MAX && size % sizeof(uint32_t) == 0;
}

void workflow_totals_add(struct workflow_totals *totals, const struct pl_completion *receipt)
{
	const char *reason = receipt->reason ? receipt->reason : "";

	/* The worst route is the one that is reported. */
	if (receipt->route >= totals->route) {
		totals->route = receipt->route;
		if (strcmp(totals->reason, reason))
			snprintf(totals->reason, sizeof(totals->reason), "%s", reason);
		snprintf(totals->fabric, sizeof(totals->fabric), "%s", receipt->fabric ? receipt->fabric : "");
	}
	totals->direct += receipt->bytes - receipt->bytes_staged;
	totals->staged += receipt->bytes_staged;
}
