/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * path_cost [PATH [OPERATIONS]]: the cost of small operations, both ends in this process, in nanoseconds: the lowest
 * and the median elapsed time of 101 short rounds, and the processor time of all of them. The lowest time is that of a
 * round which nothing else disturbed. PATH is one path, or "all". With OPERATIONS it runs one round, in
 * path_measured(), whose instructions tools/path-cost counts. `--list` lists the paths, `--built-with` names the compiler
 * and the C library. No test: a benchmark.
 *
 * The verbs paths use the stand-in card. The plain paths are perftest's loop over the same card, without Peerlane.
 */
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "card/plain_loop.h"
#include "card/virtual_time.h"
#include "support/pair.h"

#ifdef __clang__
#define COMPILER "clang"
#else
#define COMPILER "gcc"
#endif
#define LENGTH 8u
#define DEPTH_MAX 64u
#define POLL_MAX 64
#define ROUNDS 101u
#define OPERATIONS 2048u
/* Multiple of all depths; enough for connections, registrations and lists of spare memory. */
#define WARM_UP 1024u

struct path {
	const char *name;
	/* plain paths only: requests of a list; requests of which one is signaled */
	unsigned list, every;
	unsigned depth; /* operations under way */
	const char *fabric;
	enum pl_kind kind;
	bool drives_far; /* the far end takes part in each operation */
	bool waits;      /* collects with pl_wait(), not with pl_poll() */
	enum pl_progress progress;
	uint64_t poll_time;
};

#define PLAIN(name, list, every) \
	{ \
		name, list, every, DEPTH_MAX, NULL, PL_KIND_WRITE, false, false, PL_PROGRESS_MANUAL, 0 \
	}
#define MANUAL(name, depth, fabric, kind, drives_far) \
	{ \
		name, 0, 0, depth, fabric, kind, drives_far, false, PL_PROGRESS_MANUAL, 0 \
	}
#define THREADS(name, depth, poll_time) \
	{ \
		name, 0, 0, depth, "verbs", PL_KIND_WRITE, false, true, PL_PROGRESS_THREAD, poll_time \
	}

static const struct path paths[] = {
	PLAIN("plain-write", 1, 1),
	PLAIN("plain-write-signal-16", 1, 16),
	PLAIN("plain-write-list-16", 16, 16),
	MANUAL("verbs-write-1", 1, "verbs", PL_KIND_WRITE, false),
	MANUAL("verbs-write-16", 16, "verbs", PL_KIND_WRITE, false),
	MANUAL("verbs-write-64", 64, "verbs", PL_KIND_WRITE, false),
	{ "verbs-write-wait-1", 0, 0, 1, "verbs", PL_KIND_WRITE, false, true, PL_PROGRESS_MANUAL, 0 },
	MANUAL("verbs-read-16", 16, "verbs", PL_KIND_READ, false),
	MANUAL("verbs-fetch-add-16", 16, "verbs", PL_KIND_FETCH_ADD, false),
	MANUAL("verbs-send-1", 1, "verbs", PL_KIND_SEND, true),
	MANUAL("verbs-send-16", 16, "verbs", PL_KIND_SEND, true),
	MANUAL("tcp-write-1", 1, "tcp", PL_KIND_WRITE, true),
	MANUAL("tcp-send-1", 1, "tcp", PL_KIND_SEND, true),
	THREADS("verbs-write-threads-1", 1, PL_NO_POLLING),
	THREADS("verbs-write-threads-64", 64, PL_NO_POLLING),
	THREADS("verbs-write-polling-64", 64, 20000),
};

/* A path that is open. */
struct run {
	const struct path *path;
	struct setting setting;
	struct pair pair;
	struct plain_loop plain;
};

static void run_open(struct run *run, const struct path *path)
{
	*run = (struct run){ .path = path };
	if (path->list) {
		plain_loop_open(&run->plain);
		return;
	}
	run->setting = (struct setting){ .name = path->name,
					 .fabric = path->fabric,
					 .host = "127.0.0.1",
					 .progress = path->progress,
					 .lanes = 1,
					 .one_sided = true };
	poll_time = path->poll_time;
	pair_open(&run->pair, &run->setting, LENGTH);
}

static void run_close(struct run *run)
{
	if (run->path->list)
		plain_loop_close(&run->plain);
	else
		pair_close(&run->pair);
}

static void post_operation(struct run *run, struct pl_operation **handle)
{
	const struct pl_transfer transfer = { run->pair.remote, 0, run->pair.near.region, 0, LENGTH };
	const struct pl_atomic atomic = { .remote = run->pair.remote, .operand = 1 };
	const struct pl_buffer buffer = { run->pair.near.region, 0, LENGTH };
	struct pl_peer *peer = run->pair.environment.near_peer;
	struct pl_error error;
	int rc;

	switch (run->path->kind) {
	case PL_KIND_READ:
		rc = pl_read(peer, &transfer, NULL, handle, &error);
		break;
	case PL_KIND_FETCH_ADD:
		rc = pl_fetch_add(peer, &atomic, NULL, handle, &error);
		break;
	case PL_KIND_SEND:
		rc = pl_send(peer, 7, &buffer, NULL, handle, &error);
		break;
	default:
		rc = pl_write(peer, &transfer, NULL, handle, &error);
		break;
	}
	if (rc < 0)
		check_ok(rc, &error);
}

static void post_receive(struct run *run)
{
	const struct pl_buffer buffer = { run->pair.far.region, 0, LENGTH };
	struct pl_error error;

	check_ok(pl_receive(run->pair.environment.far_peer, 7, UINT64_MAX, &buffer, NULL, NULL, &error), &error);
}

/* Collects completions, which must be good. Returns their number. */
static unsigned collect_good(struct pl_context *context, struct pl_completion *completions)
{
	int got = pl_poll(context, completions, POLL_MAX);

	check(got >= 0);
	for (int i = 0; i < got; i++)
		if (completions[i].status)
			check_number(completions[i].status, 0);
	return (unsigned)got;
}

/* Receives count as operations of the far end. */
static void run_polling(struct run *run, unsigned count)
{
	unsigned receives = run->path->kind == PL_KIND_SEND ? count : 0, given = 0, received = 0;
	const unsigned depth = run->path->depth;
	struct pl_completion completions[POLL_MAX];
	unsigned posted = 0, done = 0;

	while (done < count || received < receives) {
		for (; given < receives && given - received < depth; given++)
			post_receive(run);
		for (; posted < count && posted - done < depth && (!receives || posted < given); posted++)
			post_operation(run, NULL);
		if (run->path->drives_far)
			received += collect_good(run->pair.environment.far, completions);
		done += collect_good(run->pair.environment.near, completions);
	}
}

static void run_waiting(struct run *run, unsigned count)
{
	struct pl_operation *operations[DEPTH_MAX] = { NULL };
	const unsigned depth = run->path->depth;

	for (unsigned i = 0; i < count + depth; i++) {
		struct pl_operation **slot = &operations[i % depth];

		if (*slot)
			complete(&run->pair.environment, *slot, NULL);
		*slot = NULL;
		if (i < count)
			post_operation(run, slot);
	}
}

static void run_operations(struct run *run, unsigned count)
{
	if (run->path->list)
		plain_loop_run(&run->plain, count, run->path->depth, run->path->list, run->path->every);
	else if (run->path->waits)
		run_waiting(run, count);
	else
		run_polling(run, count);
}

/* The name by which callgrind finds the measured part. */
void path_measured(struct run *run, unsigned count);

__attribute__((noinline)) void path_measured(struct run *run, unsigned count)
{
	run_operations(run, count);
}

static uint64_t processor_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static int compare_numbers(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure_path(const struct path *path)
{
	double elapsed[ROUNDS];
	struct run run;
	uint64_t used;

	run_open(&run, path);
	run_operations(&run, WARM_UP);
	used = processor_now();
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t began = clock_now();

		run_operations(&run, OPERATIONS);
		elapsed[round] = (double)(clock_now() - began) / OPERATIONS;
	}
	used = processor_now() - used;
	run_close(&run);
	qsort(elapsed, ROUNDS, sizeof(elapsed[0]), compare_numbers);
	printf("%-24s%10.1f%10.1f%12.1f\n", path->name, elapsed[0], elapsed[ROUNDS / 2],
	       (double)used / OPERATIONS / ROUNDS);
	fflush(stdout);
}

static void count_path(const struct path *path, unsigned operations)
{
	struct run run;

	virtual_time_begin();
	run_open(&run, path);
	run_operations(&run, WARM_UP);
	path_measured(&run, operations);
	run_close(&run);
}

static int refuse(const char *why)
{
	fprintf(stderr, "path_cost: %s\n", why);
	return 2;
}

int main(int argc, char **argv)
{
	unsigned operations = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	bool all = argc < 2 || !strcmp(argv[1], "all"), list = argc > 1 && !strcmp(argv[1], "--list"), any = false;

	if (argc > 1 && !strcmp(argv[1], "--built-with")) {
		printf("%s %s\n%s\n", COMPILER, __VERSION__, gnu_get_libc_version());
		return 0;
	}
	if (argc > 2 && (!operations || operations % WARM_UP))
		return refuse("OPERATIONS must be a multiple of 1024 above 0");
	if (argc > 2 && all)
		return refuse("OPERATIONS needs one PATH");
	if (!list && !operations)
		printf("%-24s%10s%10s%12s\n", "ns an operation", "lowest", "median", "processor");
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		if (list)
			printf("%s\n", paths[i].name);
		if (list || (!all && strcmp(argv[1], paths[i].name)))
			continue;
		any = true;
		if (operations)
			count_path(&paths[i], operations);
		else
			measure_path(&paths[i]);
	}
	return any || list ? 0 : refuse("no such path; see --list");
}
