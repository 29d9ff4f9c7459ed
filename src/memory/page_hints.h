/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Guesses: numbers by the page that they were noted for.  Read without a lock, so a guess can be wrong in any way but
 * one: it is a number that was noted once.
 */
#ifndef PL_RECENT_H
#define PL_RECENT_H

#include <stdatomic.h>

#include "base/base.h"

#define PL_LINE 64

#define PL_RECENT_NUMBERS 12u

/* One line: a byte for each number tells it from most others. */
struct pl_recent_bucket {
	_Alignas(PL_LINE) atomic_uint_fast64_t tags[2];
	_Atomic uint32_t numbers[PL_RECENT_NUMBERS];
};
_Static_assert(sizeof(struct pl_recent_bucket) == PL_LINE, "one line");

struct pl_recent_table;

/* Zeros: empty. */
struct pl_recent {
	struct pl_recent_table *_Atomic table;
	unsigned turn;
};

struct pl_recent_search {
	const struct pl_recent_bucket *bucket;
	uint64_t tags, matches[2];
	unsigned left; /* buckets to look at */
};

/* Memory at the beginning of a pair of lines, in large pages if there is so much; *all is what to free.  NULL: there is none. */
void *pl_room_new(const struct pl_allocator *allocator, size_t size, void **all);

void pl_recent_search(struct pl_recent *recent, uintptr_t address, struct pl_recent_search *search);
/* The next guess, or 0. */
uint32_t pl_recent_next(struct pl_recent_search *search);

/* -- one caller at a time -------------------------------------------------------------------------------- */

/* Notes a number, in place of one that is not good any more, or of any. */
void pl_recent_note(struct pl_recent *recent, uintptr_t address, uint32_t number,
		    bool (*is_good)(void *user, uint32_t number), void *user);
/* Makes room for so many numbers.  True: the table is empty now, note them again. */
bool pl_recent_grow(struct pl_recent *recent, const struct pl_allocator *allocator, size_t count);
/* Nobody reads it any more. */
void pl_recent_close(struct pl_recent *recent, const struct pl_allocator *allocator);

#endif
