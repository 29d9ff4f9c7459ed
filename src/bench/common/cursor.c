/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/common/cursor.h"

#include <string.h>

void cursor_put(struct cursor *cursor, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		*cursor->to++ = (uint8_t)(value >> 8 * i);
}

void cursor_put_bytes(struct cursor *cursor, const void *bytes, size_t length)
{
	cursor_put(cursor, length, 2);
	if (length)
		memcpy(cursor->to, bytes, length);
	cursor->to += length;
}

void cursor_put_text(struct cursor *cursor, const char *text)
{
	cursor_put_bytes(cursor, text, strlen(text));
}

void cursor_put_error(struct cursor *cursor, const struct pl_error *error)
{
	cursor_put(cursor, (uint32_t)-error->code, 4);
	cursor_put_text(cursor, error->id);
	cursor_put_text(cursor, error->call);
	cursor_put_text(cursor, error->object);
	cursor_put_text(cursor, error->message);
	cursor_put_text(cursor, error->hint);
}

uint64_t cursor_get(struct cursor *cursor, unsigned bytes)
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

size_t cursor_get_bytes(struct cursor *cursor, void *bytes, size_t room)
{
	size_t length = cursor_get(cursor, 2);

	if (length > room || length > (size_t)(cursor->end - cursor->from)) {
		cursor->failed = true;
		return 0;
	}
	if (length)
		memcpy(bytes, cursor->from, length);
	cursor->from += length;
	return length;
}

/* Replaces control characters, as texts are printed on a terminal. */
void cursor_get_text(struct cursor *cursor, char *text, size_t size, bool lines)
{
	text[cursor_get_bytes(cursor, text, size - 1)] = '\0';
	cli_printable(text, lines);
}

void cursor_get_error(struct cursor *cursor, struct pl_error *error)
{
	uint64_t code = cursor_get(cursor, 4);

	/* Errno values end at 4095. */
	error->code = code && code <= 4095 ? -(int)code : -EPROTO;
	cursor_get_text(cursor, error->id, sizeof(error->id), false);
	cursor_get_text(cursor, error->call, sizeof(error->call), false);
	cursor_get_text(cursor, error->object, sizeof(error->object), false);
	cursor_get_text(cursor, error->message, sizeof(error->message), false);
	cursor_get_text(cursor, error->hint, sizeof(error->hint), false);
}

void cursor_put_machine(struct cursor *cursor, const struct machine *machine)
{
	cursor_put_text(cursor, machine->host);
	cursor_put_text(cursor, machine->kernel);
	cursor_put_text(cursor, machine->processor);
	cursor_put_text(cursor, machine->gpus);
	cursor_put_text(cursor, machine->cards);
	cursor_put(cursor, machine->cores, 4);
	cursor_put(cursor, machine->memory, 8);
}

void cursor_get_machine(struct cursor *cursor, struct machine *machine)
{
	cursor_get_text(cursor, machine->host, sizeof(machine->host), false);
	cursor_get_text(cursor, machine->kernel, sizeof(machine->kernel), false);
	cursor_get_text(cursor, machine->processor, sizeof(machine->processor), false);
	cursor_get_text(cursor, machine->gpus, sizeof(machine->gpus), true);
	cursor_get_text(cursor, machine->cards, sizeof(machine->cards), true);
	machine->cores = (uint32_t)cursor_get(cursor, 4);
	machine->memory = cursor_get(cursor, 8);
}
