/* SPDX-License-Identifier: BSD-2-Clause */
/* Registration cache: compared with a plain list, and used by several threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#include "memory/registration_cache.h"
#include "support/buffer.h"

struct entry {
	uint32_t cached;
	uintptr_t begin, end;
	bool released;
};

static atomic_uint released;

static void entry_release(void *owner)
{
	struct entry *entry = owner;

	entry->released = true;
	atomic_fetch_add(&released, 1);
}

static struct pl_registration_cache *open_cache(size_t limit)
{
	struct pl_registration_cache *cache = pl_registration_cache_new(&pl_system_allocator, limit, entry_release);

	assert_non_null(cache);
	atomic_store(&released, 0);
	return cache;
}

static void cache_add(struct pl_registration_cache *cache, struct entry *entry, uintptr_t begin, size_t length,
		      uint64_t identity)
{
	entry->released = false;
	entry->begin = begin;
	entry->end = begin + length;
	entry->cached = pl_registration_cache_add(cache, entry, (void *)begin, length, identity);
	assert_int_not_equal(entry->cached, 0);
	assert_ptr_equal(pl_registration_cache_entry(cache, entry->cached)->owner, entry);
}

static void test_ranges(void **state)
{
	struct pl_registration_cache *cache = open_cache(SIZE_MAX);
	struct pl_registration_cache_counts counts;
	struct entry one, two;

	(void)state;
	assert_int_equal(pl_registration_cache_take(cache, (void *)0x1000, 1, 1), 0);
	cache_add(cache, &one, 0x1000, 0x1000, 1);
	cache_add(cache, &two, 0x3000, 0x1000, 1);
	assert_int_equal(pl_registration_cache_take(cache, (void *)0x1000, 0x1000, 1), one.cached);
	assert_int_equal(pl_registration_cache_take(cache, (void *)0x1fff, 1, 1), one.cached);
	assert_int_equal(pl_registration_cache_take(cache, (void *)0xfff, 2, 1), 0);
	assert_int_equal(pl_registration_cache_take(cache, (void *)0x1fff, 2, 1), 0);
	assert_int_equal(pl_registration_cache_take(cache, (void *)0x2fff, 2, 1), 0);
	assert_int_equal(pl_registration_cache_take(cache, (void *)0x3001, 0xfff, 1), two.cached);
	for (int i = 0; i < 3; i++)
		pl_registration_cache_give(cache, one.cached);
	for (int i = 0; i < 2; i++)
		pl_registration_cache_give(cache, two.cached);
	pl_registration_cache_count(cache, &counts);
	assert_int_equal(counts.idle_bytes, 0x2000);
	assert_int_equal(counts.bytes, 0x2000);
	assert_int_equal(counts.hits, 3);
	assert_int_equal(counts.misses, 4);
	pl_registration_cache_close(cache);
	assert_int_equal(atomic_load(&released), 2);
}

/* Checks that the cache does not return a registration for another allocation at the same address. */
static void test_identity(void **state)
{
	struct pl_registration_cache *cache = open_cache(SIZE_MAX);
	struct pl_registration_cache_counts counts;
	struct entry used, unused, fresh;

	(void)state;
	cache_add(cache, &used, 0x1000, 0x1000, 1);
	cache_add(cache, &unused, 0x1000, 0x800, 1);
	pl_registration_cache_give(cache, unused.cached);
	assert_int_equal(pl_registration_cache_take(cache, (void *)0x1000, 0x10, 2), 0);
	assert_true(unused.released);
	assert_false(used.released);
	pl_registration_cache_count(cache, &counts);
	assert_int_equal(counts.entries, 0);
	assert_int_equal(counts.invalidations, 2);
	cache_add(cache, &fresh, 0x1000, 0x1000, 2);
	assert_int_equal(pl_registration_cache_take(cache, (void *)0x1000, 0x10, 2), fresh.cached);
	pl_registration_cache_give(cache, used.cached);
	assert_true(used.released);
	pl_registration_cache_give(cache, fresh.cached);
	pl_registration_cache_give(cache, fresh.cached);
	assert_false(fresh.released);
	pl_registration_cache_close(cache);
}

static void test_limit(void **state)
{
	struct pl_registration_cache *cache = open_cache(0x3000);
	struct pl_registration_cache_counts counts;
	struct entry entries[5];

	(void)state;
	for (unsigned i = 0; i < 5; i++)
		cache_add(cache, &entries[i], (i + 1) * 0x10000, 0x1000, 1);
	for (unsigned i = 0; i < 3; i++)
		pl_registration_cache_give(cache, entries[i].cached);
	/* The lookup makes the first entry the newest and the second entry the oldest. */
	assert_int_not_equal(pl_registration_cache_take(cache, (void *)0x10000, 1, 1), 0);
	pl_registration_cache_give(cache, entries[0].cached);
	assert_int_equal(atomic_load(&released), 0);
	pl_registration_cache_give(cache, entries[3].cached);
	assert_true(entries[1].released);
	pl_registration_cache_give(cache, entries[4].cached);
	assert_true(entries[2].released);
	assert_false(entries[0].released);
	pl_registration_cache_count(cache, &counts);
	assert_int_equal(counts.idle_bytes, 0x3000);
	assert_int_equal(counts.evictions, 2);
	pl_registration_cache_invalidate(cache, (void *)0x10fff, 1);
	assert_true(entries[0].released);
	assert_false(entries[3].released);
	pl_registration_cache_close(cache);
}

#define MANY 3000u

/* Compares lookups in many overlapping ranges, small and very large, with a search of the whole list. */
static void test_against_list(void **state)
{
	struct pl_registration_cache *cache = open_cache(SIZE_MAX);
	struct entry *entries = calloc(MANY, sizeof(*entries));
	bool *present = calloc(MANY, sizeof(*present));
	uint64_t random = 7;

	(void)state;
	assert_non_null(entries);
	assert_non_null(present);
	for (unsigned round = 0; round < 20000; round++) {
		unsigned i = (unsigned)(random_next(&random) % MANY);
		uintptr_t begin = 1 + random_next(&random) % 1000000;
		size_t length = 1 + random_next(&random) % (round % 50 ? 300 : 400000);

		if (present[i] && random_next(&random) % 4 == 0) {
			pl_registration_cache_invalidate(cache, (void *)(entries[i].begin), 1);
			for (unsigned j = 0; j < MANY; j++)
				present[j] = present[j] && !entries[j].released;
		} else if (!present[i]) {
			cache_add(cache, &entries[i], begin, length, 1);
			pl_registration_cache_give(cache, entries[i].cached);
			present[i] = true;
		} else {
			uint32_t found = pl_registration_cache_take(cache, (void *)begin, length, 1);
			bool expected = false;

			for (unsigned j = 0; j < MANY && !expected; j++)
				expected = present[j] && entries[j].begin <= begin && entries[j].end >= begin + length;
			assert_int_equal(found != 0, expected);
			if (found) {
				const struct pl_cached *cached = pl_registration_cache_entry(cache, found);

				assert_true(cached->begin <= begin && cached->end >= begin + length);
				pl_registration_cache_give(cache, found);
			}
		}
	}
	pl_registration_cache_close(cache);
	for (unsigned i = 0; i < MANY; i++)
		assert_true(!present[i] || entries[i].released);
	free(present);
	free(entries);
}

#define THREADS 4u
#define OWN 64u

struct worker {
	struct pl_registration_cache *cache;
	unsigned number;
	struct entry *entries[2000];
	unsigned count;
};

static void *use_cache(void *argument)
{
	struct worker *worker = argument;
	uint64_t random = worker->number;

	for (unsigned i = 0; i < 2000; i++) {
		uintptr_t begin = (1 + random_next(&random) % OWN) * 0x1000;
		uint64_t identity = 1 + random_next(&random) % 3;
		uint32_t found = pl_registration_cache_take(worker->cache, (void *)begin, 0x1000, identity);
		const struct pl_cached *cached;

		if (!found) {
			struct entry *made = calloc(1, sizeof(*made));

			if (!made)
				break;
			worker->entries[worker->count++] = made;
			found = pl_registration_cache_add(worker->cache, made, (void *)begin, 0x1000, identity);
			if (!found)
				break;
		}
		cached = pl_registration_cache_entry(worker->cache, found);
		if (((struct entry *)cached->owner)->released || cached->identity != identity || cached->begin != begin)
			abort();
		if (i % 64 == 0)
			pl_registration_cache_invalidate(worker->cache, (void *)begin, 1);
		pl_registration_cache_give(worker->cache, found);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct pl_registration_cache *cache = open_cache(OWN * 0x1000 / 2);
	struct worker *workers = calloc(THREADS, sizeof(*workers));
	struct pl_registration_cache_counts counts;
	pthread_t threads[THREADS];
	unsigned made = 0;

	(void)state;
	assert_non_null(workers);
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i].cache = cache;
		workers[i].number = i + 1;
		assert_int_equal(pthread_create(&threads[i], NULL, use_cache, &workers[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pl_registration_cache_count(cache, &counts);
	assert_in_range(counts.idle_bytes, 0, OWN * 0x1000 / 2);
	assert_int_equal(counts.idle_bytes, counts.bytes);
	pl_registration_cache_close(cache);
	for (unsigned i = 0; i < THREADS; i++) {
		made += workers[i].count;
		for (unsigned j = 0; j < workers[i].count; j++)
			free(workers[i].entries[j]);
	}
	assert_int_equal(atomic_load(&released), made);
	free(workers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranges),       cmocka_unit_test(test_identity), cmocka_unit_test(test_limit),
		cmocka_unit_test(test_against_list), cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
