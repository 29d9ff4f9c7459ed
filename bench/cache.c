/* SPDX-License-Identifier: BSD-2-Clause */
/* cache [REGIONS]: what finding one of so many registrations costs; 100000 unless told. */
#include <stdio.h>
#include <stdlib.h>

#include "memory/cache.h"

#define LOOKUPS 20000000u

static void release(struct pl_cached *cached)
{
	(void)cached;
}

static uint32_t next(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/* One after the other, or in any order; each is found, used and given back. */
static double measure(struct pl_cache *cache, uint32_t regions, bool any_order)
{
	uint32_t state = 1, at = 0;
	uint64_t start = pl_now();

	for (uint32_t i = 0; i < LOOKUPS; i++) {
		struct pl_cached *found;

		at = any_order ? next(&state) % regions : at + 1 == regions ? 0 : at + 1;
		found = pl_cache_take(cache, (void *)(0x10000 + (uintptr_t)at * 0x3000 + 64), 4096, 1);
		if (!found)
			abort();
		pl_cache_give(cache, found);
	}
	return (double)(pl_now() - start) / LOOKUPS;
}

int main(int argc, char **argv)
{
	uint32_t regions = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 100000;
	struct pl_cache *cache = pl_cache_new(&pl_system_allocator, SIZE_MAX, release);
	struct pl_cached *entries = calloc(regions ? regions : 1, sizeof(*entries));

	if (!cache || !entries || !regions)
		return 1;
	for (uint32_t i = 0; i < regions; i++)
		if (pl_cache_add(cache, &entries[i], (void *)(0x10000 + (uintptr_t)i * 0x3000), 0x2000, 1) < 0)
			return 1;
	/* They stay in use, as those of regions that a program works with do. */
	printf("%u regions, found and given back: in order %.1f ns, in any order %.1f ns\n", regions,
	       measure(cache, regions, false), measure(cache, regions, true));
	for (uint32_t i = 0; i < regions; i++)
		pl_cache_give(cache, &entries[i]);
	pl_cache_close(cache);
	free(entries);
	return 0;
}
