/* SPDX-License-Identifier: BSD-2-Clause */
/* Fetching of cache lines before their use. No prefetch changes memory, or faults. */
#ifndef PL_PREFETCH_H
#define PL_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

/*
 * Fetches the cache line of an address that this core will write, and takes it from other cores. Without an option for newer
 * processors, compilers turn __builtin_prefetch() for a write into one for a read, which leaves the line shared. Older processors run
 * the instruction as a no-op.
 */
static inline void pl_prefetch_write(const void *at)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
	__builtin_prefetch(at, 1);
#endif
}

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
