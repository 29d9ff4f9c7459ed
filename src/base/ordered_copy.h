/* SPDX-License-Identifier: BSD-2-Clause */
/* Copying for readers that look at the destination meanwhile. */
#ifndef PL_ORDERED_COPY_H
#define PL_ORDERED_COPY_H

#include <stddef.h>

/*
 * Copies bytes in ascending order, as seen by other processors and by devices: they see the last 8 bytes of an aligned
 * line of 128 bytes after all bytes before, and no aligned word of 2, 4 or 8 bytes in parts, unless the copy begins or
 * ends within it. memcpy(3) may store the first bytes last. The areas must not overlap.
 */
void pl_copy_ordered(void *to, const void *from, size_t length);

#endif
