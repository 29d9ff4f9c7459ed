/* SPDX-License-Identifier: BSD-2-Clause */
/* Content of messages, so that each byte that arrives can be verified. */
#include "bench/perf/pattern.h"

#include <string.h>

#include "bench/common/numbers.h"
#include "cmd/common/cli.h"

/* Returns a word that depends on its position, so that misplaced bytes are noticed (splitmix64). */
static uint64_t pattern_word(uint64_t seed, uint64_t index)
{
	return bench_splitmix(seed + (index + 1) * BENCH_SPLITMIX_STEP);
}

static uint64_t pattern_first_index(const struct bench_pattern *pattern, uint64_t message)
{
	return pattern->same ? 0 : message * (pattern->stride / 8);
}

static uint64_t pattern_offset(const struct bench_pattern *pattern, uint64_t message)
{
	return (pattern->order ? pattern->order[message] : message) * pattern->stride;
}

void bench_pattern_fill(const struct bench_pattern *pattern, void *memory)
{
	for (uint64_t number = 0; number < pattern->slots; number++) {
		uint8_t *message = (uint8_t *)memory + pattern_offset(pattern, number);
		uint64_t first = pattern_first_index(pattern, number);

		for (uint64_t at = 0; at < pattern->size; at += 8) {
			uint64_t word = pattern_word(pattern->seed, first + at / 8);

			memcpy(message + at, &word, CLI_MIN(8, pattern->size - at));
		}
	}
}

/* Returns how many bytes of a block are compared, from its beginning. */
static uint64_t compared_length(const struct bench_pattern *pattern, uint64_t block)
{
	uint64_t length = CLI_MIN(BENCH_BLOCK, pattern->size - block);

	if (!pattern->markers)
		return length;
	return length < 8 ? 0 : length - 8;
}

static bool pattern_block_equal(const struct bench_pattern *pattern, const uint8_t *message, uint64_t first,
				uint64_t block)
{
	uint64_t end = block + compared_length(pattern, block);

	/* The marker at the message's end can reach into the block before its own. */
	if (pattern->markers && end > pattern->size - 8)
		end = pattern->size - 8;
	for (uint64_t at = block; at < end; at += 8) {
		uint64_t word = pattern_word(pattern->seed, first + at / 8);

		if (memcmp(message + at, &word, CLI_MIN(8, end - at)))
			return false;
	}
	return true;
}

bool bench_pattern_equal(const struct bench_pattern *pattern, const void *memory)
{
	for (uint64_t number = 0; number < pattern->slots; number++) {
		const uint8_t *message = (const uint8_t *)memory + pattern_offset(pattern, number);
		uint64_t first = pattern_first_index(pattern, number);

		for (uint64_t block = 0; block < pattern->size; block += BENCH_BLOCK)
			if (!pattern_block_equal(pattern, message, first, block))
				return false;
	}
	return true;
}

bool bench_markers_equal(const void *message, uint64_t size, uint64_t value)
{
	/* The last marker may overlap the one before, which is then not compared. */
	for (uint64_t end = BENCH_BLOCK; end + 8 <= size; end += BENCH_BLOCK)
		if (*bench_marker_before(message, end) != value)
			return false;
	return *bench_marker_before(message, size) == value;
}
