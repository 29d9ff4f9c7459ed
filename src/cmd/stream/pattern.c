/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/pattern.h"

#include <endian.h>
#include <string.h>

/* Words that are compared at a time, without a branch for each. */
#define PATTERN_BLOCK 512

void pattern_fill(void *data, uint64_t length, uint64_t sequence)
{
	uint64_t base = sequence * PATTERN_STEP, words = length / 8, last;
	uint64_t *to = data;

	for (uint64_t i = 0; i < words; i++)
		to[i] = htole64(base + i);
	last = htole64(base + words);
	memcpy(to + words, &last, length % 8);
}

uint64_t pattern_check(const void *data, uint64_t length, uint64_t sequence)
{
	uint64_t base = sequence * PATTERN_STEP, words = length / 8, last;
	const uint64_t *from = data;

	for (uint64_t at = 0; at < words; at += PATTERN_BLOCK) {
		uint64_t end = at + PATTERN_BLOCK < words ? at + PATTERN_BLOCK : words, difference = 0;

		for (uint64_t i = at; i < end; i++)
			difference |= from[i] ^ htole64(base + i);
		for (uint64_t i = at; difference && i < end; i++)
			if (from[i] != htole64(base + i))
				return i * 8;
	}
	last = htole64(base + words);
	return memcmp(from + words, &last, length % 8) ? words * 8 : UINT64_MAX;
}
