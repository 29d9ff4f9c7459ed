/* SPDX-License-Identifier: BSD-2-Clause */
/* Kernel that computes on the words of a frame. */
#include "compute/compute.h"

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

static void run_word_kernel_on_host(uint32_t *to, const uint32_t *from, size_t words)
{
	for (size_t i = 0; i < words; i++)
		to[i] = pl_word_kernel_result(from[i], (uint32_t)i);
}

const struct pl_compute_kernel pl_word_kernel = { kernel_ptx, "peerlane_workflow", run_word_kernel_on_host };
