/* SPDX-License-Identifier: BSD-2-Clause */
/* Libraries that are looked for when they are needed, so that programs start without them. */
#ifndef PL_BASE_DYNAMIC_LIBRARY_H
#define PL_BASE_DYNAMIC_LIBRARY_H

#include <stddef.h>

struct pl_symbol {
	const char *name;
	size_t offset; /* of the pointer to it, in the table */
};

/*
 * Fills a table of pointers to functions.  The library stays: NULL, or what is the matter with it ("is not here", "is too
 * old here").
 */
const char *pl_library_load(const char *file, const struct pl_symbol *symbols, size_t count, void *table);

#endif
