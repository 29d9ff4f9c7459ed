/* SPDX-License-Identifier: BSD-2-Clause */
/* Mappings of this process. */
#ifndef PL_MEMORY_MAPPINGS_H
#define PL_MEMORY_MAPPINGS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Each returns 1 if access to some byte from `first` to `last` may raise a signal although the byte is mapped: a file is
 * behind it, or it is read-only; 0 if not; a negative errno if that cannot be found out. pl_mappings_query() needs Linux 6.11
 * (-ENOTTY before), and costs the same with any number of mappings. pl_mappings_read() reads all mappings below the bytes.
 */
int pl_mappings_query(int fd, uintptr_t first, uintptr_t last);
int pl_mappings_read(int fd, uintptr_t first, uintptr_t last);

/* Returns the same by the faster way that works. Also true if it cannot be found out. */
bool pl_mappings_fragile(uintptr_t first, uintptr_t last);

#endif
