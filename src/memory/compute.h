/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device that computes on frames, for measurements.  A lane does what it is given in order: bring a frame to the
 * device, run the kernel on it, bring the result back.  Lanes work side by side as far as the device can.
 */
#ifndef PL_COMPUTE_H
#define PL_COMPUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <peerlane/peerlane.h>

enum pl_compute_step { PL_STEP_TO_DEVICE, PL_STEP_KERNEL, PL_STEP_TO_HOST, PL_STEPS };

/* The same function of words of 32 bits, out of place, for a GPU and for the processor. */
struct pl_compute_kernel {
	const char *ptx, *entry; /* arguments: to, from, count of words */
	void (*host)(uint32_t *to, const uint32_t *from, size_t words);
};

struct pl_work {
	unsigned steps;       /* 1u << enum pl_compute_step */
	size_t length;        /* bytes; a multiple of 4 */
	const void *received; /* host memory, for PL_STEP_TO_DEVICE */
	void *in, *out;       /* the device's memory */
	void *result;         /* host memory, for PL_STEP_TO_HOST */
};

struct pl_compute;

struct pl_compute_ops {
	/* Begins what a lane is to do; it must have nothing to do yet.  `work` is copied. */
	int (*begin)(struct pl_compute *compute, unsigned lane, const struct pl_work *work, struct pl_error *error);
	/* Waits until a lane has done it; how long each step took, 0 for those that were none. */
	int (*wait)(struct pl_compute *compute, unsigned lane, uint64_t nanoseconds[PL_STEPS], struct pl_error *error);
	/* Locks host memory, so that the device's copies need no other; NULL where there is no difference. */
	int (*pin)(struct pl_compute *compute, void *address, size_t length, struct pl_error *error);
	void (*unpin)(struct pl_compute *compute, void *address);
	/* All lanes must be idle. */
	void (*close)(struct pl_compute *compute);
};

/* Implementations embed it. */
struct pl_compute {
	const struct pl_compute_ops *ops;
	char name[64];   /* "NVIDIA H200" */
	char memory[16]; /* for pl_region_allocate_in() */
};

/* A GPU of this host, as CUDA counts them. */
int cuda_compute_open(unsigned device, unsigned lanes, const struct pl_compute_kernel *kernel,
		      struct pl_compute **result, struct pl_error *error);

#endif
