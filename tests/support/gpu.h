/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU memory for tests, from the real driver or from the stand-in (tests/libcuda): the loader picks libcuda.so.1.
 * A GPU buffer has a mirror in host memory.  A test reads and changes the mirror by the functions of buffer.h.  These
 * functions fetch the bytes from the GPU before a look and write them to the GPU after a change.
 */
#ifndef TEST_GPU_H
#define TEST_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory/cuda/driver.h"

/*
 * Places all later buffers in GPU memory of a kind.
 * "alloc": cuMemAlloc.  "pool": cuMemAllocAsync.  "mapped": several handles, mapped.  "pool-shared": a pool that other
 * processes can share.  "private": handles that other processes cannot share.
 * Returns false if there is no driver or no such GPU.
 */
bool gpu_open(const char *kind);
bool gpu_open_on(const char *kind, int number);
/* Kind of GPU memory; NULL: buffers are in host memory. */
extern const char *gpu_kind;

void *gpu_allocate(size_t length);
void gpu_free(void *memory);
/* Lock host memory, so that copies of it are asynchronous; the second one such that GPUs may only read it. */
void gpu_pin(void *host, size_t length);
void gpu_pin_read_only(void *host, size_t length);
void gpu_unpin(void *host);
/* Allocates locked, write-combined host memory, and frees it. */
void *gpu_allocate_write_combined(size_t length);
void gpu_free_write_combined(void *host);
void gpu_copy_in(void *memory, const void *from, size_t length);
void gpu_copy_out(const void *memory, void *to, size_t length);

/* Declare host bytes as the mirror of GPU memory, or end the declaration. */
void mirror_add(const void *host, size_t length, void *memory);
void mirror_remove(const void *host);
/*
 * Copy GPU memory to its mirror (fetch), or the mirror to GPU memory (bring).  Bytes without a mirror stay as they are.
 */
void mirror_fetch(const void *host, size_t length);
void mirror_bring(const void *host, size_t length);

#endif
