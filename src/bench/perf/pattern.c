/* SPDX-License-Identifier: BSD-2-Clause */
/* What the messages contain, so that every byte that arrives can be told right from wrong. */
#include <string.h>

#include "bench/perf/endpoint.h"

/* Each word follows from its place, so that bytes in the wrong place are wrong (splitmix64). */
static uint64_t word_at(uint64_t seed, uint64_t index)
{
	uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static uint64_t first_index(const struct bench_pattern *pattern, uint64_t slot)
{
	return pattern->same ? 0 : slot * (pattern->stride / 8);
}

void bench_pattern_fill(const struct bench_pattern *pattern, void *memory)
{
	for (uint64_t slot = 0; slot < pattern->slots; slot++) {
		uint8_t *message = (uint8_t *)memory + slot * pattern->stride;
		uint64_t first = first_index(pattern, slot);

		for (uint64_t at = 0; at < pattern->size; at += 8) {
			uint64_t word = word_at(pattern->seed, first + at / 8);

			memcpy(message + at, &word, CLI_MIN(8, pattern->size - at));
		}
	}
}

/* The block's bytes that are compared, from its beginning. */
static uint64_t compared(const struct bench_pattern *pattern, uint64_t block)
{
	uint64_t length = CLI_MIN(BENCH_BLOCK, pattern->size - block);

	if (!pattern->markers)
		return length;
	return length < 8 ? 0 : length - 8;
}

static bool block_equal(const struct bench_pattern *pattern, const uint8_t *message, uint64_t first, uint64_t block)
{
	uint64_t end = block + compared(pattern, block);

	/* The marker at the message's end can reach into the block before its own. */
	if (pattern->markers && end > pattern->size - 8)
		end = pattern->size - 8;
	for (uint64_t at = block; at < end; at += 8) {
		uint64_t word = word_at(pattern->seed, first + at / 8);

		if (memcmp(message + at, &word, CLI_MIN(8, end - at)))
			return false;
	}
	return true;
}

bool bench_pattern_equal(const struct bench_pattern *pattern, const void *memory)
{
	for (uint64_t slot = 0; slot < pattern->slots; slot++) {
		const uint8_t *message = (const uint8_t *)memory + slot * pattern->stride;
		uint64_t first = first_index(pattern, slot);

		for (uint64_t block = 0; block < pattern->size; block += BENCH_BLOCK)
			if (!block_equal(pattern, message, first, block))
				return false;
	}
	return true;
}

bool bench_marked(const void *message, uint64_t size, uint64_t value)
{
	/* The last one may overlap the one before, which then is not compared. */
	for (uint64_t end = BENCH_BLOCK; end + 8 <= size; end += BENCH_BLOCK)
		if (*bench_end_marker(message, end) != value)
			return false;
	return *bench_end_marker(message, size) == value;
}
