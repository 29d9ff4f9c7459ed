/* SPDX-License-Identifier: BSD-2-Clause */
/* Values of messages: little-endian integers, and strings preceded by their length. */
#ifndef PL_CMD_TRANSFER_CURSOR_H
#define PL_CMD_TRANSFER_CURSOR_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Position in a buffer.  `bad` is set once a value does not fit between `at` and `end`, and stays set. */
struct cursor {
	uint8_t *at;
	const uint8_t *end;
	bool writing, bad;
};

/* The code_...() functions write a value if the cursor writes, else read it. */
static inline void code_bytes(struct cursor *cursor, void *bytes, size_t length)
{
	if (cursor->bad || length > (size_t)(cursor->end - cursor->at)) {
		cursor->bad = true;
		return;
	}
	if (length == 0)
		return;
	if (cursor->writing)
		memcpy(cursor->at, bytes, length);
	else
		memcpy(bytes, cursor->at, length);
	cursor->at += length;
}

static inline void code_u8(struct cursor *cursor, uint8_t *value)
{
	code_bytes(cursor, value, sizeof(*value));
}

static inline void code_u16(struct cursor *cursor, uint16_t *value)
{
	uint16_t raw = htole16(*value);

	code_bytes(cursor, &raw, sizeof(raw));
	if (!cursor->writing)
		*value = le16toh(raw);
}

static inline void code_u32(struct cursor *cursor, uint32_t *value)
{
	uint32_t raw = htole32(*value);

	code_bytes(cursor, &raw, sizeof(raw));
	if (!cursor->writing)
		*value = le32toh(raw);
}

static inline void code_u64(struct cursor *cursor, uint64_t *value)
{
	uint64_t raw = htole64(*value);

	code_bytes(cursor, &raw, sizeof(raw));
	if (!cursor->writing)
		*value = le64toh(raw);
}

/* Encodes or decodes a string without NUL bytes.  `size` is the size of `text` with the terminator. */
static inline void code_string(struct cursor *cursor, char *text, size_t size)
{
	uint16_t length = cursor->writing ? (uint16_t)strnlen(text, size - 1) : 0;

	code_u16(cursor, &length);
	if (length >= size)
		cursor->bad = true;
	if (cursor->bad)
		return;
	code_bytes(cursor, text, length);
	if (cursor->bad || cursor->writing)
		return;
	text[length] = '\0';
	if (strlen(text) != length)
		cursor->bad = true;
}

#endif
