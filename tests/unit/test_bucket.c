/* SPDX-License-Identifier: BSD-2-Clause */
/* Token bucket of a peer's rate, with simulated times: portions, burst, changes of the rate, numbers that nearly overflow. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bucket.h"

#define MIB (1ull << 20)
#define BEGIN (1000 * PL_NS_PER_S)

/* Takes portions until they add up to `bytes`, each when the one before may be used. Returns the time of the last. */
static uint64_t take_all(struct pl_bucket *bucket, uint64_t bytes, uint64_t now)
{
	uint64_t rate = atomic_load(&bucket->rate);

	for (uint64_t taken = 0; taken < bytes; taken += pl_bucket_portion(rate)) {
		uint64_t from = pl_bucket_take(bucket, pl_bucket_portion(rate), now);

		assert_true(from <= UINT64_MAX - PL_NS_PER_S);
		now = PL_MAX(now, from);
	}
	return now;
}

static void check_rate(uint64_t rate)
{
	struct pl_bucket bucket = { 0 };
	uint64_t took;

	pl_bucket_set_rate(&bucket, rate, BEGIN);
	took = take_all(&bucket, 4 * rate, BEGIN) - BEGIN;
	assert_true(took >= 39 * PL_NS_PER_S / 10);
	assert_true(took <= 41 * PL_NS_PER_S / 10);
}

static void test_rates(void **state)
{
	(void)state;
	check_rate(65536);
	check_rate(100000);
	check_rate(7 * MIB + 13);
	check_rate(3ull << 30);
}

/* A bucket keeps the units of 100 ms, not those of a longer idle time. */
static void test_burst(void **state)
{
	struct pl_bucket bucket = { 0 };
	uint64_t now = BEGIN + 3600 * PL_NS_PER_S;

	(void)state;
	pl_bucket_set_rate(&bucket, 10 * MIB, BEGIN);
	assert_true(pl_bucket_take(&bucket, MIB, now) <= now);
	assert_int_equal(pl_bucket_take(&bucket, MIB, now), now + 100 * PL_NS_PER_MS);
	assert_int_equal(pl_bucket_take(&bucket, MIB, now), now + 200 * PL_NS_PER_MS);
}

/* Each portion is shorter than the time that a bucket keeps: a taker that is late by a tick of the wheel loses nothing. */
static void test_portions(void **state)
{
	(void)state;
	for (uint64_t rate = PL_BUCKET_RATE_MIN; rate < 1ull << 50; rate = rate * 3 / 2) {
		uint64_t portion = pl_bucket_portion(rate);

		assert_true(portion >= 4096 && portion <= 256 * 1024);
		assert_true(portion * 10 <= rate);
	}
	assert_int_equal(pl_bucket_portion(UINT64_MAX), 256 * 1024);
}

static void test_changes(void **state)
{
	struct pl_bucket bucket = { 0 };

	(void)state;
	assert_int_equal(pl_bucket_take(&bucket, UINT64_MAX, BEGIN), BEGIN); /* no limit */
	pl_bucket_set_rate(&bucket, 1, BEGIN);
	assert_int_equal(atomic_load(&bucket.rate), PL_BUCKET_RATE_MIN);
	assert_int_equal(pl_bucket_take(&bucket, 3600 * PL_BUCKET_RATE_MIN, BEGIN), BEGIN + 3600 * PL_NS_PER_S);
	/* No taker waits for units that were taken at the old rate. */
	pl_bucket_set_rate(&bucket, MIB, BEGIN + PL_NS_PER_S);
	assert_int_equal(pl_bucket_take(&bucket, MIB, BEGIN + PL_NS_PER_S), BEGIN + 2 * PL_NS_PER_S);
	pl_bucket_set_rate(&bucket, 0, BEGIN);
	assert_int_equal(pl_bucket_take(&bucket, 1, BEGIN), BEGIN);
}

static void test_large_numbers(void **state)
{
	struct pl_bucket bucket = { 0 };

	(void)state;
	/* Times near the start of the clock do not wrap. */
	pl_bucket_set_rate(&bucket, 1 << 20, 0);
	assert_int_equal(pl_bucket_take(&bucket, MIB, 0), PL_NS_PER_S);
	/* Times that do not fit become "never". */
	assert_int_equal(pl_bucket_take(&bucket, UINT64_MAX, BEGIN), UINT64_MAX);
	assert_int_equal(pl_bucket_take(&bucket, UINT64_MAX, BEGIN), UINT64_MAX);
	pl_bucket_set_rate(&bucket, UINT64_MAX, BEGIN);
	assert_in_range(pl_bucket_take(&bucket, 1, BEGIN), BEGIN, BEGIN + 1);
	assert_in_range(pl_bucket_take(&bucket, UINT64_MAX - 1, BEGIN), BEGIN + PL_NS_PER_S - 1000, BEGIN + PL_NS_PER_S + 1000);
	/* A product of units and nanoseconds just below and above 64 bits. */
	for (uint64_t rest = UINT64_MAX / PL_NS_PER_S - 2; rest < UINT64_MAX / PL_NS_PER_S + 3; rest++) {
		pl_bucket_set_rate(&bucket, 2 * rest, BEGIN);
		assert_in_range(pl_bucket_take(&bucket, rest, BEGIN), BEGIN + PL_NS_PER_S / 2 - 1,
				BEGIN + PL_NS_PER_S / 2 + 30000000);
	}
}

#define THREADS 4
#define PORTIONS 20000

static void *take_portions(void *bucket)
{
	for (int i = 0; i < PORTIONS; i++)
		pl_bucket_take(bucket, 4096, BEGIN);
	return NULL;
}

/* Threads that take at the same time get different units. */
static void test_threads(void **state)
{
	struct pl_bucket bucket = { 0 };
	pthread_t threads[THREADS];

	(void)state;
	pl_bucket_set_rate(&bucket, 4096000, BEGIN);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_portions, &bucket), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&bucket.taken), BEGIN + THREADS * PORTIONS * PL_NS_PER_MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rates),   cmocka_unit_test(test_burst),         cmocka_unit_test(test_portions),
		cmocka_unit_test(test_changes), cmocka_unit_test(test_large_numbers), cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
