/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long a cache line takes from one core to another and back, in nanoseconds: the median of many
 * rounds.  In a virtual machine this changes as the host moves virtual processors about, and with it
 * every latency between two processes, so figures are comparable only where it was the same.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 2001u

static _Alignas(128) atomic_uint word;

static unsigned long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (unsigned long)time.tv_sec * 1000000000ul + (unsigned long)time.tv_nsec;
}

static void go_to(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0) {
		perror("core_distance: sched_setaffinity");
		exit(1);
	}
}

static void pass(unsigned expected)
{
	while (atomic_load_explicit(&word, memory_order_acquire) != expected)
		;
	atomic_store_explicit(&word, expected + 1, memory_order_release);
}

static void *answer(void *core)
{
	go_to(*(int *)core);
	for (unsigned i = 0; i < ROUNDS; i++)
		pass(2 * i + 1);
	return NULL;
}

static int compare(const void *a, const void *b)
{
	unsigned long first = *(const unsigned long *)a, second = *(const unsigned long *)b;

	return first < second ? -1 : first > second;
}

int main(int argc, char **argv)
{
	static unsigned long times[ROUNDS];
	pthread_t thread;
	int other;

	if (argc != 3) {
		fprintf(stderr, "usage: core_distance CORE CORE\n");
		return 2;
	}
	other = atoi(argv[2]);
	go_to(atoi(argv[1]));
	if (pthread_create(&thread, NULL, answer, &other))
		return 1;
	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned long before = now();

		pass(2 * i);
		while (atomic_load_explicit(&word, memory_order_acquire) != 2 * i + 2)
			;
		times[i] = now() - before;
	}
	pthread_join(thread, NULL);
	qsort(times, ROUNDS, sizeof(times[0]), compare);
	printf("%lu\n", times[ROUNDS / 2]);
	return 0;
}
