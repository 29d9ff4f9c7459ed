/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU memory for tests: the real driver's, or the stand-in's (tests/libcuda), whichever libcuda.so.1 is found.
 * A buffer there has a mirror in host memory, which the test looks at and changes by the functions of buffer.h:
 * they fetch from the GPU what is looked at, and bring there what was changed.
 */
#ifndef TEST_GPU_H
#define TEST_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/cuda/driver.h"

/*
 * From now on buffers are in GPU memory: "alloc" (cuMemAlloc), "pool" (cuMemAllocAsync), "mapped" (several handles);
 * "pool-shared", "private": of a pool that can be shared with other processes, of handles that cannot.  False if there
 * is no driver or no such GPU.
 */
bool gpu_open(const char *kind);
bool gpu_open_on(const char *kind, int number);
/* The kind; NULL: buffers are in host memory. */
extern const char *gpu_kind;

void *gpu_allocate(size_t length);
void gpu_free(void *memory);
void gpu_copy_in(void *memory, const void *from, size_t length);
void gpu_copy_out(const void *memory, void *to, size_t length);

/* Declares bytes in host memory to be the mirror of GPU memory, or no longer. */
void mirror_add(const void *host, size_t length, void *memory);
void mirror_remove(const void *host);
/* Makes them equal, in one direction; nothing happens with bytes that mirror nothing. */
void mirror_fetch(const void *host, size_t length);
void mirror_bring(const void *host, size_t length);

#endif
