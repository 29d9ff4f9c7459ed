/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared libraries loaded on first use, so that programs start without them. */
#ifndef PL_BASE_DYNAMIC_LIBRARY_H
#define PL_BASE_DYNAMIC_LIBRARY_H

#include <stddef.h>

struct pl_symbol {
	const char *name;
	size_t offset; /* offset of the function pointer in the table */
};

/*
 * Loads a library and fills a table of function pointers. The library stays loaded. Returns NULL, or the reason ("is
 * not here", "is too old here").
 */
const char *pl_library_load(const char *file, const struct pl_symbol *symbols, size_t count, void *table);

#endif
