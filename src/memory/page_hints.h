/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hints: numbers by the page that they were noted for. Read without a lock, so a hint may be outdated or belong to
 * another page, but it is always a number that was noted once.
 */
#ifndef PL_MEMORY_PAGE_HINTS_H
#define PL_MEMORY_PAGE_HINTS_H

#include <stdatomic.h>

#include "base/base.h"

#define PL_LINE 64

#define PL_RECENT_NUMBERS 12u

/* One cache line. One byte for each number distinguishes it from most others. */
struct pl_page_hints_bucket {
	_Alignas(PL_LINE) atomic_uint_fast64_t tags[2];
	_Atomic uint32_t numbers[PL_RECENT_NUMBERS];
};
_Static_assert(sizeof(struct pl_page_hints_bucket) == PL_LINE, "one line");

struct pl_page_hints_table;

/* Initialised with zeros: empty. */
struct pl_page_hints {
	struct pl_page_hints_table *_Atomic table;
	unsigned turn;
};

struct pl_page_hints_search {
	const struct pl_page_hints_bucket *bucket;
	uint64_t tags, matches[2];
	unsigned left; /* buckets to look at */
};

/*
 * Allocates memory aligned to a pair of cache lines, in large pages for large sizes; *all is the pointer to free. NULL:
 * no memory.
 */
void *pl_room_new(const struct pl_allocator *allocator, size_t size, void **all);

void pl_page_hints_search(struct pl_page_hints *recent, uintptr_t address, struct pl_page_hints_search *search);
/* Returns the next hint, or 0. */
uint32_t pl_page_hints_next(struct pl_page_hints_search *search);

/* -- writers: one at a time ------------------------------------------------------------------------------ */

/* Notes a number; replaces an outdated one, or any. */
void pl_page_hints_note(struct pl_page_hints *recent, uintptr_t address, uint32_t number,
			bool (*is_good)(void *user, uint32_t number), void *user);
/* Makes room for this many numbers. Returns true if the table is empty now: note them again. */
bool pl_page_hints_grow(struct pl_page_hints *recent, const struct pl_allocator *allocator, size_t count);
/* Frees the tables. No thread reads them any more. */
void pl_page_hints_close(struct pl_page_hints *recent, const struct pl_allocator *allocator);

#endif
