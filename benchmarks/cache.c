/* SPDX-License-Identifier: BSD-2-Clause */
/* cache [REGIONS [THREADS]]: time of a lookup in the registration cache.  Default: 100000 registrations, 1 thread. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "memory/registration_cache.h"

#define LOOKUPS 2000000u
#define ROUNDS 9u
#define THREADS 64u

struct lookup_thread {
	struct pl_registration_cache *cache;
	uint32_t regions, seed;
	bool random_order;
	double nanoseconds; /* of a lookup */
};

static void release(void *owner)
{
	(void)owner;
}

static uint32_t next_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/* Finds, uses and returns registrations, in order or in random order. */
static void *run_lookups(void *argument)
{
	struct lookup_thread *lookup_thread = argument;
	uint32_t state = lookup_thread->seed, at = 0;
	uint64_t start = pl_now();

	for (uint32_t i = 0; i < LOOKUPS; i++) {
		uint32_t found;

		at = lookup_thread->random_order        ? next_random(&state) % lookup_thread->regions
		     : at + 1 == lookup_thread->regions ? 0
							: at + 1;
		found = pl_registration_cache_take(lookup_thread->cache,
						   (void *)(0x10000 + (uintptr_t)at * 0x3000 + 64), 4096, 0);
		if (!found)
			abort();
		pl_registration_cache_give(lookup_thread->cache, found);
	}
	lookup_thread->nanoseconds = (double)(pl_now() - start) / LOOKUPS;
	return NULL;
}

static int compare_times(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Returns the median of ROUNDS rounds after a warm-up round; each round counts its slowest thread. */
static double measure(struct pl_registration_cache *cache, uint32_t regions, unsigned threads, bool random_order)
{
	double rounds[ROUNDS + 1];

	for (unsigned round = 0; round <= ROUNDS; round++) {
		struct lookup_thread lookups[THREADS];
		pthread_t ids[THREADS];

		rounds[round] = 0;
		for (unsigned i = 0; i < threads; i++) {
			lookups[i] = (struct lookup_thread){ cache, regions, round * THREADS + i + 1, random_order, 0 };
			if (pthread_create(&ids[i], NULL, run_lookups, &lookups[i]))
				abort();
		}
		for (unsigned i = 0; i < threads; i++) {
			pthread_join(ids[i], NULL);
			rounds[round] = PL_MAX(rounds[round], lookups[i].nanoseconds);
		}
	}
	qsort(rounds + 1, ROUNDS, sizeof(*rounds), compare_times);
	return rounds[1 + ROUNDS / 2];
}

int main(int argc, char **argv)
{
	uint32_t regions = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 100000;
	unsigned threads = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 1;
	struct pl_registration_cache *cache = pl_registration_cache_new(&pl_system_allocator, SIZE_MAX, release);
	uint32_t *entries = calloc(regions ? regions : 1, sizeof(*entries));

	if (!cache || !entries || !regions || !threads || threads > THREADS)
		return 1;
	for (uint32_t i = 0; i < regions; i++) {
		entries[i] =
			pl_registration_cache_add(cache, cache, (void *)(0x10000 + (uintptr_t)i * 0x3000), 0x2000, 0);
		if (!entries[i])
			return 1;
	}
	/* All registrations stay in use, as those of a program's regions do. */
	printf("%u regions, %u threads, lookup and release: in order %.1f ns, in random order %.1f ns\n", regions,
	       threads, measure(cache, regions, threads, false), measure(cache, regions, threads, true));
	for (uint32_t i = 0; i < regions; i++)
		pl_registration_cache_give(cache, entries[i]);
	pl_registration_cache_close(cache);
	free(entries);
	return 0;
}
