/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel that copies many ranges, and the memory that it shares with the host. */
#ifndef PL_CUDA_GATHER_KERNEL_H
#define PL_CUDA_GATHER_KERNEL_H

#include <stdatomic.h>

#include "memory/ops.h"

extern const char cuda_gather_kernel[];
#define CUDA_GATHER_ENTRY "peerlane_gather"
/* Threads of each block: a warp that takes ranges, and 16 warps that copy. */
#define CUDA_GATHER_THREADS 544u
/* Most ranges that a block takes at a time. */
#define CUDA_GATHER_BATCH 32u
/* Threads of a block that copy, and the fewest of them in a group, which copies one range. */
#define CUDA_GATHER_COPIERS 512u
#define CUDA_GATHER_GROUP_MIN 64u
/* Bytes that each thread has under way. */
#define CUDA_GATHER_UNDER_WAY 64u

/* Words in locked host memory that a launch of the kernel and the host share. */
struct gather_state {
	_Atomic uint32_t started;   /* by the kernel: a block runs */
	_Atomic uint32_t withdrawn; /* by the host: the kernel must touch no memory unless it has started */
	_Atomic uint32_t result;    /* by the kernel: enum gather_result */
	_Atomic uint32_t left;      /* by the kernel: all blocks have ended, and none reads the list or this */
};

enum gather_result {
	GATHER_UNKNOWN = 0,
	GATHER_COPIED = 1,
	GATHER_ABANDONED = 2,
};

_Static_assert(sizeof(struct gather_state) == 16, "the kernel has these offsets");
_Static_assert(sizeof(struct pl_gather_range) == 32, "the kernel has this size");

#endif
