/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that this process may still take: of the host, and of its control groups (versions 1 and 2). */
#ifndef PL_MEMORY_ROOM_H
#define PL_MEMORY_ROOM_H

#include "base/base.h"

/*
 * Returns the bytes that the host and each control group of this process can still give without ending processes:
 * free memory and page cache, without swap. UINT64_MAX: no limit is known. `root` stands for "/"; "": this machine.
 */
uint64_t pl_memory_room(const char *root);

/*
 * Checks that an allocation of `size` bytes, of which `taken` bytes are taken, has room for the rest. Returns 0, or
 * -ENOMEM NO-MEMORY with both figures. Small allocations are not checked.
 */
int pl_memory_room_check(const char *root, size_t size, size_t taken, struct pl_error *error);

/*
 * Takes memory for all `size` bytes of an empty file in memory, after pl_memory_room_check(). Asks again during a large
 * allocation, because other processes take memory meanwhile. Returns 0, -ENOMEM, or another errno of fallocate(2) with its
 * reason and remedy; the caller then closes the file, which gives the memory back.
 */
int pl_memory_room_take(const char *root, int fd, size_t size, struct pl_error *error);

#endif
