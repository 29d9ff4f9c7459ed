/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages between the process that measures and its servers: little-endian, of one version, each length checked.  A
 * message is a head (magic, version, type) and what its type has; FLOW_FAILED keeps its form in all versions.
 */
#include <string.h>

#include "cli/bench/workflow.h"

#define MAGIC 0x574c4650u /* "PFLW" */

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

static void put_bytes(struct cursor *cursor, const void *bytes, size_t length)
{
	put(cursor, length, 2);
	if (length)
		memcpy(cursor->to, bytes, length);
	cursor->to += length;
}

/* Bytes, at most `room`; their number. */
static size_t get_bytes(struct cursor *cursor, void *bytes, size_t room)
{
	size_t length = get(cursor, 2);

	if (length > room || length > (size_t)(cursor->end - cursor->from)) {
		cursor->failed = true;
		return 0;
	}
	if (length)
		memcpy(bytes, cursor->from, length);
	cursor->from += length;
	return length;
}

static void put_text(struct cursor *cursor, const char *text)
{
	put_bytes(cursor, text, strlen(text));
}

/* It ends up on a terminal. */
static void get_text(struct cursor *cursor, char *text, size_t size)
{
	text[get_bytes(cursor, text, size - 1)] = '\0';
	cli_printable(text, false);
}

static void put_tally(struct cursor *cursor, const struct flow_tally *tally)
{
	put(cursor, tally->route, 1);
	put(cursor, tally->direct, 8);
	put(cursor, tally->staged, 8);
	put_text(cursor, tally->fabric);
	put_text(cursor, tally->reason);
}

static void get_tally(struct cursor *cursor, struct flow_tally *tally)
{
	tally->route = (enum pl_route)get(cursor, 1);
	if (tally->route > PL_ROUTE_STAGED)
		cursor->failed = true;
	tally->direct = get(cursor, 8);
	tally->staged = get(cursor, 8);
	get_text(cursor, tally->fabric, sizeof(tally->fabric));
	get_text(cursor, tally->reason, sizeof(tally->reason));
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
	get_text(cursor, error->id, sizeof(error->id));
	get_text(cursor, error->call, sizeof(error->call));
	get_text(cursor, error->object, sizeof(error->object));
	get_text(cursor, error->message, sizeof(error->message));
	get_text(cursor, error->hint, sizeof(error->hint));
}

static void put_check(struct cursor *cursor, const struct flow_message *message)
{
	const struct flow_difference *difference = &message->difference;

	put(cursor, message->frames, 8);
	put(cursor, message->checked, 8);
	put(cursor, message->right, 1);
	put(cursor, difference->frame, 8);
	put(cursor, difference->word, 8);
	put(cursor, difference->found, 4);
	put(cursor, difference->wanted, 4);
	put_tally(cursor, &message->tally);
}

static void get_check(struct cursor *cursor, struct flow_message *message)
{
	struct flow_difference *difference = &message->difference;

	message->frames = get(cursor, 8);
	message->checked = get(cursor, 8);
	message->right = get(cursor, 1) != 0;
	difference->frame = get(cursor, 8);
	difference->word = get(cursor, 8);
	difference->found = (uint32_t)get(cursor, 4);
	difference->wanted = (uint32_t)get(cursor, 4);
	get_tally(cursor, &message->tally);
}

size_t flow_encode(const struct flow_message *message, uint8_t *buffer)
{
	struct cursor cursor = { .to = buffer };

	put(&cursor, MAGIC, 4);
	put(&cursor, FLOW_VERSION, 2);
	put(&cursor, message->type, 2);
	switch (message->type) {
	case FLOW_SETUP:
		put(&cursor, message->sink, 1);
		put(&cursor, message->size, 8);
		put(&cursor, message->depth, 4);
		put_bytes(&cursor, message->token, message->token_length);
		break;
	case FLOW_RUN:
		put(&cursor, message->seed, 8);
		put(&cursor, message->fault, 1);
		put(&cursor, message->checked, 8);
		put(&cursor, message->depth, 4);
		put_bytes(&cursor, message->token, message->token_length);
		break;
	case FLOW_CHECK:
		put_check(&cursor, message);
		break;
	case FLOW_FAILED:
		put_error(&cursor, &message->error);
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
		message->sink = get(cursor, 1) != 0;
		message->size = get(cursor, 8);
		message->depth = (uint32_t)get(cursor, 4);
		message->token_length = (uint16_t)get_bytes(cursor, message->token, sizeof(message->token));
		return 0;
	case FLOW_RUN:
		message->seed = get(cursor, 8);
		message->fault = (enum flow_fault)get(cursor, 1);
		message->checked = get(cursor, 8);
		message->depth = (uint32_t)get(cursor, 4);
		message->token_length = (uint16_t)get_bytes(cursor, message->token, sizeof(message->token));
		return 0;
	case FLOW_CHECK:
		get_check(cursor, message);
		return 0;
	case FLOW_FAILED:
		get_error(cursor, &message->error);
		return 0;
	case FLOW_BYE:
		return 0;
	}
	return -EPROTO;
}

int flow_decode(const uint8_t *buffer, size_t length, struct flow_message *message)
{
	struct cursor cursor = { .from = buffer, .end = buffer + length };
	uint64_t magic = get(&cursor, 4), version = get(&cursor, 2);

	memset(message, 0, sizeof(*message));
	message->type = (enum flow_type)get(&cursor, 2);
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
