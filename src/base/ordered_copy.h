/* SPDX-License-Identifier: BSD-2-Clause */
/* Copying for readers that look at the destination meanwhile. */
#ifndef PL_ORDERED_COPY_H
#define PL_ORDERED_COPY_H

#include <stddef.h>
#include <stdint.h>

/*
 * Copies bytes in ascending order, as seen by other processors and by devices: they see the last 8 bytes of an aligned
 * line of 128 bytes after all bytes before, and no aligned word of 2, 4 or 8 bytes in parts, unless the copy begins or
 * ends within it. memcpy(3) may store the first bytes last. The areas must not overlap.
 */
void pl_copy_ordered(void *to, const void *from, size_t length);

/*
 * Begins to load memory that a copy fills soon, and does not wait for it. The copy does not wait for these lines then. An address
 * without memory is no error.
 */
static inline void pl_copy_prefetch(const void *to, size_t length)
{
	enum { CACHE_LINE = 64 };
	uintptr_t end = (uintptr_t)to + length;

	for (uintptr_t at = (uintptr_t)to & ~(uintptr_t)(CACHE_LINE - 1); at < end; at += CACHE_LINE)
		__builtin_prefetch((const void *)at, 1);
}

#endif
