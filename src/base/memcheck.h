/* SPDX-License-Identifier: BSD-2-Clause */
/* Tells valgrind of memory that was written in a way that valgrind does not see. */
#ifndef PL_BASE_MEMCHECK_H
#define PL_BASE_MEMCHECK_H

#include <stddef.h>

#ifdef PL_HAVE_VALGRIND
#include <valgrind/memcheck.h>
#endif

static inline void pl_mark_written(const void *address, size_t length)
{
#ifdef PL_HAVE_VALGRIND
	VALGRIND_MAKE_MEM_DEFINED(address, length);
#else
	(void)address;
	(void)length;
#endif
}

#endif
