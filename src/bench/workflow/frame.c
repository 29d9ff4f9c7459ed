/* SPDX-License-Identifier: BSD-2-Clause */
/* Content of frames, and the check of the results of the kernel. */
#include "bench/workflow/workflow.h"

/* Returns the start of a frame in a sequence of 2^32 different words; it depends on slot and run. */
static uint32_t frame_start(uint64_t seed, uint32_t slot)
{
	uint64_t mixed = (seed + slot) * 0x9e3779b97f4a7c15u;

	mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9u;
	return (uint32_t)(mixed >> 32);
}

static inline uint32_t frame_word(uint32_t start, uint32_t index)
{
	return (start + index) * 0x9e3779b1u;
}

void workflow_frame_fill(uint32_t *words, uint64_t size, uint64_t seed, uint32_t slot)
{
	uint32_t start = frame_start(seed, slot), count = (uint32_t)(size / sizeof(*words));

	for (uint32_t i = 0; i < count; i++)
		words[i] = frame_word(start, i);
}

void workflow_frame_damage(uint32_t *words, uint64_t size, uint64_t seed)
{
	/* The damaged word is neither the first of a sample nor the last of the frame: inspections would find those. */
	uint64_t sample = seed % (size / WORKFLOW_SAMPLE);
	uint64_t word =
		sample * (WORKFLOW_SAMPLE / sizeof(*words)) + 1 + seed / 7 % (WORKFLOW_SAMPLE / sizeof(*words) - 2);

	words[word] ^= 1u << seed % 32;
}

static bool result_word_equal(const uint32_t *words, uint32_t start, uint32_t index,
			      struct workflow_difference *difference)
{
	uint32_t wanted = pl_word_kernel_result(frame_word(start, index), index), found = words[index];

	if (found == wanted)
		return true;
	difference->word = index;
	difference->found = found;
	difference->wanted = wanted;
	return false;
}

bool workflow_result_equal(const uint32_t *words, uint64_t size, uint64_t seed, uint32_t slot, bool all,
			   struct workflow_difference *difference)
{
	uint32_t start = frame_start(seed, slot), count = (uint32_t)(size / sizeof(*words));
	uint32_t step = all ? 1 : WORKFLOW_SAMPLE / sizeof(*words);

	for (uint32_t i = 0; i < count; i += step)
		if (!result_word_equal(words, start, i, difference))
			return false;
	return result_word_equal(words, start, count - 1, difference);
}
