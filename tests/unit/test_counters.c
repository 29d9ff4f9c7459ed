/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters: buckets of times, more threads than have counters of their own, more errors than are counted one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/thread_state.h"
#include "support/check.h"

#define THREADS (PL_THREADS_MAX + 16u)
#define OPERATIONS 500u

static struct pl_context context;
static struct pl_engine engine;

static void open_counters(void)
{
	memset(&context, 0, sizeof(context));
	context.allocator = pl_system_allocator;
	context.engines[0] = &engine;
	pl_counters_open(&context.counters, &pl_system_allocator);
}

static void buckets(void **state)
{
	(void)state;
	check_number(pl_time_bucket(0), 0);
	check_number(pl_time_bucket(UINT64_MAX), PL_TIME_BUCKETS - 1);
	for (unsigned i = 0; i + 1 < PL_TIME_BUCKETS; i++) {
		check_number(pl_time_bucket(PL_TIME_BUCKET_END(i) - 1), i);
		check_number(pl_time_bucket(PL_TIME_BUCKET_END(i)), i + 1);
	}
}

static pthread_barrier_t begun;

static void *count_often(void *argument)
{
	const struct pl_completion completion = {
		.kind = PL_KIND_WRITE, .bytes = 3, .posted = 1000, .completed = 1000 + (uintptr_t)argument
	};

	pthread_barrier_wait(&begun);
	for (unsigned i = 0; i < OPERATIONS; i++)
		pl_thread_count(&context, pl_thread_state_of(&context), 1, &completion);
	pthread_barrier_wait(&begun);
	return NULL;
}

static void many_threads(void **state)
{
	pthread_t threads[THREADS];
	uint64_t bytes = 0, time = 0, expected = 0, done = 0;
	unsigned own = 0;

	(void)state;
	open_counters();
	pthread_barrier_init(&begun, NULL, THREADS);
	for (unsigned i = 0; i < THREADS; i++) {
		check_number(pthread_create(&threads[i], NULL, count_often, (void *)(uintptr_t)i), 0);
		expected += (uint64_t)i * OPERATIONS;
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&begun);
	for (unsigned i = 0; i <= PL_THREADS_MAX; i++) {
		struct pl_thread_state *thread = i < PL_THREADS_MAX ? context.threads[i] : NULL;
		struct pl_counts *counts = thread ? &thread->counts : &context.counters.shared;
		struct pl_count *count = &counts->counts[1][PL_KIND_WRITE];

		own += thread && count->direct;
		bytes += count->direct;
		time += count->time;
		for (unsigned bucket = 0; bucket < PL_TIME_BUCKETS; bucket++)
			done += count->times[bucket];
	}
	check_number(own, PL_THREADS_MAX);
	check(context.counters.shared.counts[1][PL_KIND_WRITE].direct > 0);
	check_number(done, THREADS * OPERATIONS);
	check_number(bytes, THREADS * OPERATIONS * 3);
	check_number(time, expected);
	pl_thread_states_close(&context);
	pl_counters_close(&context.counters);
}

static struct pl_error_count error_count(unsigned number)
{
	struct pl_error_count count = PL_ERROR_COUNT_INIT;

	check_number(pl_context_error_count(&context, number, &count, NULL), 0);
	return count;
}

static void many_errors(void **state)
{
	struct pl_error_count count = PL_ERROR_COUNT_INIT;
	struct pl_error error = { .code = -EIO };

	(void)state;
	open_counters();
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < PL_ERROR_COUNTS + 3; i++) {
			snprintf(error.id, sizeof(error.id), "ERROR-%u", i);
			pl_count_error(&context.counters, &error);
		}
		pl_count_error(&context.counters, NULL);
	}
	check_text(error_count(0).id, "ERROR-0");
	check_text(error_count(PL_ERROR_COUNTS - 1).id, "ERROR-63");
	check_number(error_count(PL_ERROR_COUNTS - 1).count, 2);
	check_text(error_count(PL_ERROR_COUNTS).id, "");
	check_number(error_count(PL_ERROR_COUNTS).count, 2 * (3 + 1));
	check_number(pl_context_error_count(&context, PL_ERROR_COUNTS + 1, &count, NULL), -ENOENT);
	check_number(pl_counters_errors(&context.counters), 2 * (PL_ERROR_COUNTS + 4));
	pl_counters_close(&context.counters);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buckets),
		cmocka_unit_test(many_threads),
		cmocka_unit_test(many_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
