/* SPDX-License-Identifier: BSD-2-Clause */
/* Leaving bytes to a device, which reads them after this processor core wrote them. */
#ifndef PL_CACHE_DEMOTE_H
#define PL_CACHE_DEMOTE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Moves bytes from the caches of this core to the one that all cores share, and from which a device reads them faster. The content
 * does not change. Does nothing where the processor has no such instruction.
 */
static inline void pl_cache_demote(const void *bytes, size_t length)
{
#if defined(__x86_64__)
	enum { LINE = 64 };
	uintptr_t end = (uintptr_t)bytes + length;

	/* CLDEMOTE, which processors without it run as a no-op. Assemblers refuse its name unless they are told of it. */
	for (uintptr_t at = (uintptr_t)bytes & ~(uintptr_t)(LINE - 1); at < end; at += LINE)
		__asm__ volatile(".byte 0x0f, 0x1c, 0x00" : : "a"(at) : "memory");
#else
	(void)bytes;
	(void)length;
#endif
}

#endif
