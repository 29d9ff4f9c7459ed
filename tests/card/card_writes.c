/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * card_writes [WRITES]: nanoseconds of a write of 8 bytes over the stand-in card, both ends in this process, for threads
 * without polling, threads that poll, and manual progress. A value is the median of three rounds. No test: a benchmark.
 */
#include <stdio.h>
#include <stdlib.h>

#include "support/pair.h"

#define LENGTH 8u
#define ROUNDS 3u
#define DEPTH_MAX 64u

struct way {
	const char *name;
	uint64_t poll_time;
	struct setting setting;
};

static const struct way ways[] = {
	{ "threads",
	  PL_NO_POLLING,
	  { "thread", "verbs", "127.0.0.1", PL_PROGRESS_THREAD, 1, false, false, true, false } },
	{ "threads that poll",
	  20000,
	  { "thread", "verbs", "127.0.0.1", PL_PROGRESS_THREAD, 1, false, false, true, false } },
	{ "manual", 0, { "manual", "verbs", "127.0.0.1", PL_PROGRESS_MANUAL, 1, false, false, true, false } },
};

/* Returns the nanoseconds of a write, with `depth` under way. */
static double measure(struct pair *pair, unsigned depth, unsigned count)
{
	const struct pl_transfer transfer = { pair->remote, 0, pair->near.region, 0, LENGTH };
	struct pl_operation *operations[DEPTH_MAX] = { NULL };
	struct pl_error error;
	uint64_t begin = clock_now();

	for (unsigned i = 0; i < count + depth; i++) {
		struct pl_operation **slot = &operations[i % depth];

		if (*slot)
			complete(&pair->environment, *slot, NULL);
		*slot = NULL;
		if (i < count)
			check_ok(pl_write(pair->environment.near_peer, &transfer, NULL, slot, &error), &error);
	}
	return (double)(clock_now() - begin) / count;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure_way(const struct way *way, unsigned count)
{
	static const unsigned depths[] = { 1, 16, DEPTH_MAX };
	struct pair pair;

	poll_time = way->poll_time;
	pair_open(&pair, &way->setting, LENGTH);
	printf("%-18s", way->name);
	for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
		double rounds[ROUNDS];

		for (unsigned round = 0; round < ROUNDS; round++)
			rounds[round] = measure(&pair, depths[i], count);
		qsort(rounds, ROUNDS, sizeof(rounds[0]), compare);
		printf("%10.0f", rounds[ROUNDS / 2]);
	}
	printf("\n");
	pair_close(&pair);
}

int main(int argc, char **argv)
{
	unsigned count = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 200000;

	if (!count) {
		fprintf(stderr, "card_writes: WRITES must be a number above 0\n");
		return 2;
	}
	printf("ns for each write of 8 bytes\n%-18s%10s%10s%10s\n", "under way", "1", "16", "64");
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		measure_way(&ways[i], count);
	return 0;
}
