/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers of results: as text, in JSON, sorted; and pseudo-random ones. */
#ifndef PL_BENCH_COMMON_NUMBERS_H
#define PL_BENCH_COMMON_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

struct json_object;

/* Formats a size: "8", "64K", "1M", "1000".  Returns buffer. */
const char *bench_size_text(char *buffer, size_t size, uint64_t bytes);

/* Returns a number with a fixed count of decimals, so that documents are readable; NULL for NAN. */
struct json_object *bench_json_number(double value, int decimals);

/* Orders doubles, for qsort(3). */
static inline int bench_compare_doubles(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

#define BENCH_SPLITMIX_STEP 0x9e3779b97f4a7c15ull

/* Returns the pseudo-random number of a state that grows by BENCH_SPLITMIX_STEP (splitmix64). */
static inline uint64_t bench_splitmix(uint64_t state)
{
	state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ull;
	state = (state ^ (state >> 27)) * 0x94d049bb133111ebull;
	return state ^ (state >> 31);
}

#endif
