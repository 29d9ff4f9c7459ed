/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long a cache line takes from one core to another and back, in nanoseconds: the median of many
 * rounds.  In a virtual machine this changes as the host moves virtual processors about, and with it
 * every latency between two processes, so figures are comparable only where it was the same.
 */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>

#define ROUNDS 2001u

static _Alignas(128) atomic_uint word;

static void pass(unsigned expected)
{
	while (atomic_load_explicit(&word, memory_order_acquire) != expected)
		;
	atomic_store_explicit(&word, expected + 1, memory_order_release);
}

static void *answer(void *core)
{
	stay_on_core(*(int *)core);
	for (unsigned i = 0; i < ROUNDS; i++)
		pass(2 * i + 1);
	return NULL;
}

static int compare(const void *a, const void *b)
{
	uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;

	return first < second ? -1 : first > second;
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
	if (pthread_create(&thread, NULL, answer, &other))
		return 1;
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t before = now_ns();

		pass(2 * i);
		while (atomic_load_explicit(&word, memory_order_acquire) != 2 * i + 2)
			;
		times[i] = now_ns() - before;
	}
	pthread_join(thread, NULL);
	qsort(times, ROUNDS, sizeof(times[0]), compare);
	printf("%llu\n", (unsigned long long)times[ROUNDS / 2]);
	return 0;
}
