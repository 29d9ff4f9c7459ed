/* SPDX-License-Identifier: BSD-2-Clause */
/* Content of frames, the kernel that computes on them, and the check of its results. */
#include "bench/workflow/workflow.h"

/*
 * Kernel: y = 3x + i for word number i, modulo 2^32.  As 3 is odd, no bit of x is lost, so each wrong bit changes the
 * result.  (Twice x would lose the highest bit.)  Runs on compute capability 5.0 and later.
 */
static const char kernel_ptx[] = ".version 5.0\n"
				 ".target sm_50\n"
				 ".address_size 64\n"
				 ".visible .entry peerlane_workflow(\n"
				 "	.param .u64 to,\n"
				 "	.param .u64 from,\n"
				 "	.param .u32 count\n"
				 ")\n"
				 "{\n"
				 "	.reg .pred %p<2>;\n"
				 "	.reg .b32 %r<8>;\n"
				 "	.reg .b64 %d<8>;\n"
				 "	ld.param.u64 %d1, [to];\n"
				 "	ld.param.u64 %d2, [from];\n"
				 "	ld.param.u32 %r1, [count];\n"
				 "	mov.u32 %r2, %ctaid.x;\n"
				 "	mov.u32 %r3, %ntid.x;\n"
				 "	mov.u32 %r4, %tid.x;\n"
				 "	mad.lo.u32 %r5, %r2, %r3, %r4;\n"
				 "	setp.ge.u32 %p1, %r5, %r1;\n"
				 "	@%p1 bra END;\n"
				 "	cvta.to.global.u64 %d3, %d1;\n"
				 "	cvta.to.global.u64 %d4, %d2;\n"
				 "	mul.wide.u32 %d5, %r5, 4;\n"
				 "	add.u64 %d6, %d4, %d5;\n"
				 "	add.u64 %d7, %d3, %d5;\n"
				 "	ld.global.u32 %r6, [%d6];\n"
				 "	mad.lo.u32 %r7, %r6, 3, %r5;\n"
				 "	st.global.u32 [%d7], %r7;\n"
				 "END:\n"
				 "	ret;\n"
				 "}\n";

static inline uint32_t kernel_result(uint32_t word, uint32_t index)
{
	return 3 * word + index;
}

static void run_kernel_on_host(uint32_t *to, const uint32_t *from, size_t words)
{
	for (size_t i = 0; i < words; i++)
		to[i] = kernel_result(from[i], (uint32_t)i);
}

const struct pl_compute_kernel workflow_kernel = { kernel_ptx, "peerlane_workflow", run_kernel_on_host };

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
	uint32_t wanted = kernel_result(frame_word(start, index), index), found = words[index];

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
