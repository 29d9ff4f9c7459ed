/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device that computes on frames, for measurements and the demonstration.  A stream executes its work in order: it
 * copies a frame to the device, runs the kernel, copies the result back.  Streams run concurrently as far as the device
 * can.
 */
#ifndef PL_COMPUTE_COMPUTE_H
#define PL_COMPUTE_COMPUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <peerlane/peerlane.h>

enum pl_compute_step { PL_STEP_TO_DEVICE, PL_STEP_KERNEL, PL_STEP_TO_HOST, PL_STEPS };

/* Function of 32-bit words, out of place, for a GPU and for the processor. */
struct pl_compute_kernel {
	const char *ptx, *entry; /* arguments of the entry: to, from, count of words */
	void (*host)(uint32_t *to, const uint32_t *from, size_t words);
};

/* Kernel y = 3x + i of word number i, modulo 2^32. */
extern const struct pl_compute_kernel pl_word_kernel;

static inline uint32_t pl_word_kernel_result(uint32_t word, uint32_t index)
{
	return 3 * word + index;
}

/* Work of a stream. */
struct pl_work {
	unsigned steps;       /* bits 1u << enum pl_compute_step */
	size_t length;        /* bytes; a multiple of 4 */
	const void *received; /* host memory, source of PL_STEP_TO_DEVICE */
	void *in, *out;       /* device memory */
	void *result;         /* host memory, destination of PL_STEP_TO_HOST */
};

struct pl_compute;

struct pl_compute_ops {
	/* Starts the work of an idle stream.  `work` is copied. */
	int (*begin)(struct pl_compute *compute, unsigned stream, const struct pl_work *work, struct pl_error *error);
	/* Waits for a stream; returns the time of each step, 0 for steps that were not part of the work. */
	int (*wait)(struct pl_compute *compute, unsigned stream, uint64_t nanoseconds[PL_STEPS],
		    struct pl_error *error);
	/* Pins host memory, so that the device's copies are direct; NULL if pinning makes no difference. */
	int (*pin)(struct pl_compute *compute, void *address, size_t length, struct pl_error *error);
	void (*unpin)(struct pl_compute *compute, void *address);
	/* Closes the device; all streams must be idle. */
	void (*close)(struct pl_compute *compute);
};

/* Device; implementations embed it as their first member. */
struct pl_compute {
	const struct pl_compute_ops *ops;
	char name[64];   /* such as "NVIDIA H200" */
	char memory[16]; /* kind of memory, for pl_region_allocate_in() */
};

/* Opens a GPU of this host by its CUDA number. */
int cuda_compute_open(unsigned device, unsigned streams, const struct pl_compute_kernel *kernel,
		      struct pl_compute **result, struct pl_error *error);

#endif
