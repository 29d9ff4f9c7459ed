/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints the time, in nanoseconds, that a cache line takes from one core to another and back: the median of many
 * rounds.  In a virtual machine it changes when the host moves virtual processors, and so does every latency between
 * two processes.  Latencies are comparable only if this time was the same.
 */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>

#define ROUNDS 2001u

static _Alignas(128) atomic_uint word;

static void pass_cache_line(unsigned expected)
{
	while (atomic_load_explicit(&word, memory_order_acquire) != expected)
		;
	atomic_store_explicit(&word, expected + 1, memory_order_release);
}

static void *answer_rounds(void *core)
{
	stay_on_core(*(int *)core);
	for (unsigned i = 0; i < ROUNDS; i++)
		pass_cache_line(2 * i + 1);
	return NULL;
}

int main(int argc, char **argv)
{
	static uint64_t times[ROUNDS];
	pthread_t thread;
	int other;

	if (argc != 3) {
		fprintf(stderr, "usage: core_distance CORE CORE\n");
		return 2;
	}
	other = atoi(argv[2]);
	stay_on_core(atoi(argv[1]));
	if (pthread_create(&thread, NULL, answer_rounds, &other))
		return 1;
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t before = now_ns();

		pass_cache_line(2 * i);
		while (atomic_load_explicit(&word, memory_order_acquire) != 2 * i + 2)
			;
		times[i] = now_ns() - before;
	}
	pthread_join(thread, NULL);
	sort_times(times, ROUNDS);
	printf("%llu\n", (unsigned long long)times[ROUNDS / 2]);
	return 0;
}
