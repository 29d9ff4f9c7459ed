/* SPDX-License-Identifier: BSD-2-Clause */
/* Lock and pool: the lock excludes threads and wakes sleepers; the pool gives memory to one thread at a time. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/lock.h"
#include "base/pool.h"

#define THREADS 4
#define ROUNDS 50000
#define HELD 8

struct shared {
	struct pl_lock lock;
	uint64_t count; /* not atomic, so that ThreadSanitizer reports a lock that does not guard it */
	struct pl_pool pool;
	atomic_int outstanding; /* number of live allocations */
};

static void *count_up(void *argument)
{
	struct shared *shared = argument;

	for (int i = 0; i < ROUNDS; i++) {
		pl_lock_take(&shared->lock);
		shared->count++;
		pl_lock_release(&shared->lock);
	}
	return NULL;
}

static void run_threads(void *(*run)(void *), struct shared *shared)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run, shared), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void test_lock_excludes(void **state)
{
	struct shared shared = { 0 };

	(void)state;
	pl_lock_init(&shared.lock);
	run_threads(count_up, &shared);
	assert_int_equal(shared.count, (uint64_t)THREADS * ROUNDS);
}

static void test_try_fails_while_taken(void **state)
{
	struct pl_lock lock;

	(void)state;
	pl_lock_init(&lock);
	assert_true(pl_lock_try(&lock));
	assert_false(pl_lock_try(&lock));
	pl_lock_release(&lock);
	assert_true(pl_lock_try(&lock));
}

/* Holds the lock until all threads sleep.  The release must wake each of them. */
static void test_sleepers_wake(void **state)
{
	const struct timespec pause = { .tv_nsec = 50000000 };
	struct shared shared = { 0 };
	pthread_t threads[THREADS];

	(void)state;
	pl_lock_init(&shared.lock);
	pl_lock_take(&shared.lock);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count_up, &shared), 0);
	nanosleep(&pause, NULL);
	assert_int_equal(shared.count, 0);
	pl_lock_release(&shared.lock);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(shared.count, (uint64_t)THREADS * ROUNDS);
}

static void *count_up_by_latch(void *argument)
{
	struct shared *shared = argument;

	for (int i = 0; i < ROUNDS; i++) {
		pl_latch_take(&shared->pool.latch);
		shared->count++;
		pl_latch_release(&shared->pool.latch);
	}
	return NULL;
}

static void test_latch_excludes(void **state)
{
	struct shared shared = { 0 };

	(void)state;
	run_threads(count_up_by_latch, &shared);
	assert_int_equal(shared.count, (uint64_t)THREADS * ROUNDS);
}

/* Holds the latch for 50 ms.  The waiting threads sleep now and then, and proceed after the release. */
static void test_latch_waits(void **state)
{
	const struct timespec pause = { .tv_nsec = 50000000 };
	struct shared shared = { 0 };
	pthread_t threads[THREADS];

	(void)state;
	pl_latch_take(&shared.pool.latch);
	assert_false(pl_latch_try(&shared.pool.latch));
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count_up_by_latch, &shared), 0);
	nanosleep(&pause, NULL);
	assert_int_equal(shared.count, 0);
	pl_latch_release(&shared.pool.latch);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(shared.count, (uint64_t)THREADS * ROUNDS);
}

/* -- pool --------------------------------------------------------------------------------------- */

static void *counting_allocate(size_t size, void *user)
{
	atomic_fetch_add((atomic_int *)user, 1);
	return pl_system_allocator.allocate(size, NULL);
}

static void counting_release(void *pointer, void *user)
{
	atomic_fetch_sub((atomic_int *)user, 1);
	pl_system_allocator.release(pointer, NULL);
}

static struct pl_allocator counting_allocator(struct shared *shared)
{
	return (struct pl_allocator){ .allocate = counting_allocate,
				      .release = counting_release,
				      .user = &shared->outstanding };
}

static void *take_and_give(void *argument)
{
	struct shared *shared = argument;
	struct pl_allocator allocator = counting_allocator(shared);
	uintptr_t *held[HELD];

	for (int i = 0; i < ROUNDS; i++) {
		for (int j = 0; j < HELD; j++) {
			held[j] = pl_pool_take(&shared->pool, &allocator, 2 * sizeof(uintptr_t));
			assert_non_null(held[j]);
			held[j][0] = held[j][1] = (uintptr_t)&held[j];
		}
		for (int j = 0; j < HELD; j++) {
			/* No other thread had the memory meanwhile. */
			assert_true(held[j][0] == (uintptr_t)&held[j] && held[j][1] == (uintptr_t)&held[j]);
			pl_pool_give(&shared->pool, &allocator, held[j]);
		}
	}
	return NULL;
}

static void test_pool_is_shared(void **state)
{
	struct shared shared = { 0 };
	struct pl_allocator allocator = counting_allocator(&shared);

	(void)state;
	run_threads(take_and_give, &shared);
	assert_int_equal(shared.pool.count, atomic_load(&shared.outstanding));
	pl_pool_drain(&shared.pool, &allocator);
	assert_int_equal(atomic_load(&shared.outstanding), 0);
}

static void test_pool_has_a_limit(void **state)
{
	static void *held[PL_POOL_MAX + 1];
	struct shared shared = { 0 };
	struct pl_allocator allocator = counting_allocator(&shared);

	(void)state;
	for (int i = 0; i <= PL_POOL_MAX; i++)
		held[i] = pl_pool_take(&shared.pool, &allocator, sizeof(void *));
	for (int i = 0; i <= PL_POOL_MAX; i++)
		pl_pool_give(&shared.pool, &allocator, held[i]);
	assert_int_equal(shared.pool.count, PL_POOL_MAX);
	assert_int_equal(atomic_load(&shared.outstanding), PL_POOL_MAX);
	pl_pool_drain(&shared.pool, &allocator);
	assert_int_equal(atomic_load(&shared.outstanding), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lock_excludes),    cmocka_unit_test(test_try_fails_while_taken),
		cmocka_unit_test(test_sleepers_wake),    cmocka_unit_test(test_latch_excludes),
		cmocka_unit_test(test_latch_waits),      cmocka_unit_test(test_pool_is_shared),
		cmocka_unit_test(test_pool_has_a_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
