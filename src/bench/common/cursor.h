/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Position in a message between processes of a measurement: little-endian numbers, texts and errors, each length
 * checked.
 */
#ifndef PL_BENCH_COMMON_CURSOR_H
#define PL_BENCH_COMMON_CURSOR_H

#include "bench/common/result_head.h"

struct cursor {
	uint8_t *to;               /* writing: the buffer must have room */
	const uint8_t *from, *end; /* reading */
	bool failed;               /* reading: the message was too short; values read since are meaningless */
};

void cursor_put(struct cursor *cursor, uint64_t value, unsigned bytes);
void cursor_put_bytes(struct cursor *cursor, const void *bytes, size_t length);
void cursor_put_text(struct cursor *cursor, const char *text);
void cursor_put_machine(struct cursor *cursor, const struct machine *machine);
void cursor_put_error(struct cursor *cursor, const struct pl_error *error);

uint64_t cursor_get(struct cursor *cursor, unsigned bytes);
/* Reads at most `room` bytes and returns their number. */
size_t cursor_get_bytes(struct cursor *cursor, void *bytes, size_t room);
/* Reads a text without control characters.  `lines`: newlines are kept. */
void cursor_get_text(struct cursor *cursor, char *text, size_t size, bool lines);
void cursor_get_machine(struct cursor *cursor, struct machine *machine);
void cursor_get_error(struct cursor *cursor, struct pl_error *error);

#endif
