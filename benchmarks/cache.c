/* SPDX-License-Identifier: BSD-2-Clause */
/* cache [REGIONS [THREADS]]: what finding one of so many registrations costs; 100000, by one thread, unless told. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "memory/registration_cache.h"

#define LOOKUPS 2000000u
#define ROUNDS 9u
#define THREADS 64u

struct looker {
	struct pl_cache *cache;
	uint32_t regions, seed;
	bool any_order;
	double each; /* nanoseconds */
};

static void release(void *owner)
{
	(void)owner;
}

static uint32_t next(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/* One after the other, or in any order; each is found, used and given back. */
static void *look(void *argument)
{
	struct looker *looker = argument;
	uint32_t state = looker->seed, at = 0;
	uint64_t start = pl_now();

	for (uint32_t i = 0; i < LOOKUPS; i++) {
		uint32_t found;

		at = looker->any_order ? next(&state) % looker->regions : at + 1 == looker->regions ? 0 : at + 1;
		found = pl_cache_take(looker->cache, (void *)(0x10000 + (uintptr_t)at * 0x3000 + 64), 4096, 0);
		if (!found)
			abort();
		pl_cache_give(looker->cache, found);
	}
	looker->each = (double)(pl_now() - start) / LOOKUPS;
	return NULL;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median of a few rounds, after one that is not counted; of the slowest thread. */
static double measure(struct pl_cache *cache, uint32_t regions, unsigned threads, bool any_order)
{
	double rounds[ROUNDS + 1];

	for (unsigned round = 0; round <= ROUNDS; round++) {
		struct looker lookers[THREADS];
		pthread_t ids[THREADS];

		rounds[round] = 0;
		for (unsigned i = 0; i < threads; i++) {
			lookers[i] = (struct looker){ cache, regions, round * THREADS + i + 1, any_order, 0 };
			if (pthread_create(&ids[i], NULL, look, &lookers[i]))
				abort();
		}
		for (unsigned i = 0; i < threads; i++) {
			pthread_join(ids[i], NULL);
			rounds[round] = PL_MAX(rounds[round], lookers[i].each);
		}
	}
	qsort(rounds + 1, ROUNDS, sizeof(*rounds), by_size);
	return rounds[1 + ROUNDS / 2];
}

int main(int argc, char **argv)
{
	uint32_t regions = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 100000;
	unsigned threads = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1;
	struct pl_cache *cache = pl_cache_new(&pl_system_allocator, SIZE_MAX, release);
	uint32_t *entries = calloc(regions ? regions : 1, sizeof(*entries));

	if (!cache || !entries || !regions || !threads || threads > THREADS)
		return 1;
	for (uint32_t i = 0; i < regions; i++) {
		entries[i] = pl_cache_add(cache, cache, (void *)(0x10000 + (uintptr_t)i * 0x3000), 0x2000, 0);
		if (!entries[i])
			return 1;
	}
	/* They stay in use, as those of regions that a program works with do. */
	printf("%u regions, %u threads, found and given back: in order %.1f ns, in any order %.1f ns\n", regions,
	       threads, measure(cache, regions, threads, false), measure(cache, regions, threads, true));
	for (uint32_t i = 0; i < regions; i++)
		pl_cache_give(cache, entries[i]);
	pl_cache_close(cache);
	free(entries);
	return 0;
}
