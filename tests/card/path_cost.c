/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * path_cost [PATH [OPERATIONS]]: the cost of operations, both ends in this process, in nanoseconds: the lowest and the
 * median elapsed time of 101 short rounds, and the median of their processor times. The lowest time is that of a round
 * which nothing else disturbed; the processor time depends least on other load of the machine. PATH is one path, or "all". With OPERATIONS it runs one round, in
 * path_measured(), whose instructions tools/path-cost counts. `--list` lists the paths, `--built-with` names the compiler
 * and the C library. No test: a benchmark.
 *
 * benchmarks/guard compares the processor times of two commits. The verbs paths use the stand-in card. The plain paths are perftest's loop over the same card, without Peerlane.
 */
#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "card/plain_loop.h"
#include "card/process_fd.h"
#include <peerlane/stream.h>

#include "card/virtual_time.h"
#include "support/pair.h"

#ifdef __clang__
#define COMPILER "clang"
#else
#define COMPILER "gcc"
#endif
#define LENGTH 8u
#define LARGE 65536u
#define ELEMENTS_MAX 16u
#define DEPTH_MAX 64u
#define POLL_MAX 64
#define ROUNDS 101u
#define OPERATIONS 2048u
#define OPERATIONS_SLOW 128u /* with calls of the kernel, or long copies */
/* Slots of the ring of a stream. Each frame has one until the subscriber reports it. */
#define SLOTS 16u
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
	unsigned length;   /* bytes of an operation or element; 0: LENGTH */
	unsigned elements; /* of a prepared vector; 0: none */
};

#define PLAIN(name, list, every) \
	{ \
		name, list, every, DEPTH_MAX, NULL, PL_KIND_WRITE, false, false, PL_PROGRESS_MANUAL, 0, 0, 0 \
	}
#define MANUAL(name, depth, fabric, kind, drives_far) \
	{ \
		name, 0, 0, depth, fabric, kind, drives_far, false, PL_PROGRESS_MANUAL, 0, 0, 0 \
	}
#define WAITING(name, fabric) \
	{ \
		name, 0, 0, 1, fabric, PL_KIND_WRITE, false, true, PL_PROGRESS_MANUAL, 0, 0, 0 \
	}
#define LONG(name, fabric, kind, drives_far) \
	{ \
		name, 0, 0, 1, fabric, kind, drives_far, false, PL_PROGRESS_MANUAL, 0, LARGE, 0 \
	}
#define THREADS(name, depth, poll_time) \
	{ \
		name, 0, 0, depth, "verbs", PL_KIND_WRITE, false, true, PL_PROGRESS_THREAD, poll_time, 0, 0 \
	}

static const struct path paths[] = {
	PLAIN("plain-write", 1, 1),
	PLAIN("plain-write-signal-16", 1, 16),
	PLAIN("plain-write-list-16", 16, 16),
	MANUAL("verbs-write-1", 1, "verbs", PL_KIND_WRITE, false),
	MANUAL("verbs-write-16", 16, "verbs", PL_KIND_WRITE, false),
	MANUAL("verbs-write-64", 64, "verbs", PL_KIND_WRITE, false),
	WAITING("verbs-write-wait-1", "verbs"),
	MANUAL("verbs-read-16", 16, "verbs", PL_KIND_READ, false),
	MANUAL("verbs-fetch-add-16", 16, "verbs", PL_KIND_FETCH_ADD, false),
	MANUAL("verbs-send-1", 1, "verbs", PL_KIND_SEND, true),
	MANUAL("verbs-send-16", 16, "verbs", PL_KIND_SEND, true),
	MANUAL("tcp-write-1", 1, "tcp", PL_KIND_WRITE, true),
	MANUAL("tcp-send-1", 1, "tcp", PL_KIND_SEND, true),
	LONG("tcp-write-64K", "tcp", PL_KIND_WRITE, true),
	LONG("tcp-send-64K", "tcp", PL_KIND_SEND, true),
	MANUAL("local-write-1", 1, "local", PL_KIND_WRITE, false),
	MANUAL("local-read-1", 1, "local", PL_KIND_READ, false),
	WAITING("local-write-wait-1", "local"),
	{ "local-vector-16", 0, 0, 1, "local", PL_KIND_WRITE, false, true, PL_PROGRESS_MANUAL, 0, 0, ELEMENTS_MAX },
	LONG("local-write-64K", "local", PL_KIND_WRITE, false),
	/* A frame: published at the far end, and taken and released at the near end. */
	MANUAL("verbs-stream-1", 1, "verbs", PL_KIND_FRAME, true),
	MANUAL("tcp-stream-1", 1, "tcp", PL_KIND_FRAME, true),
	LONG("tcp-stream-64K", "tcp", PL_KIND_FRAME, true),
	MANUAL("local-stream-1", 1, "local", PL_KIND_FRAME, true),
	THREADS("verbs-write-threads-1", 1, PL_NO_POLLING),
	THREADS("verbs-write-threads-64", 64, PL_NO_POLLING),
	THREADS("verbs-write-polling-64", 64, 20000),
};

/* A path that is open. */
struct run {
	const struct path *path;
	struct setting setting;
	struct pair pair;
	struct pl_vector *vector;
	struct plain_loop plain;
	struct pl_publisher *publisher; /* at the far end */
	struct pl_subscriber *subscriber;
};

static unsigned length_of(const struct path *path)
{
	return path->length ? path->length : LENGTH;
}

static void prepare_vector(struct run *run)
{
	const unsigned length = length_of(run->path), count = run->path->elements;
	struct pl_transfer transfers[ELEMENTS_MAX];
	struct pl_error error;

	for (unsigned i = 0; i < count; i++)
		transfers[i] =
			(struct pl_transfer){ run->pair.remote, i * length, run->pair.near.region, i * length, length };
	check_ok(pl_vector_prepare(run->pair.environment.near_peer, run->path->kind, transfers, count, &run->vector,
				   &error),
		 &error);
}

/* Opens a stream whose subscriber loses no frame. */
static void open_stream(struct run *run)
{
	struct pl_subscriber_options subscriber_options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct scenario_environment *environment = &run->pair.environment;
	struct pl_error error;
	struct pump pump;

	options.slot_bytes = length_of(run->path);
	options.slots = SLOTS;
	options.allow_block = true;
	check_ok(pl_publisher_open(environment->far, "frames", &options, &run->publisher, &error), &error);
	subscriber_options.overflow = PL_OVERFLOW_BLOCK;
	pump_start(environment, &pump, environment->far);
	check_ok(pl_subscriber_open(environment->near_peer, "frames", &subscriber_options, AMPLE_TIME, &run->subscriber,
				    &error),
		 &error);
	pump_stop(&pump);
}

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
	/* The near end maps memory of the library, and copies by itself. */
	buffers_allocated = !strcmp(path->fabric, "local");
	pair_open(&run->pair, &run->setting, length_of(path) * (path->elements ? path->elements : 1));
	if (path->elements)
		prepare_vector(run);
	if (path->kind == PL_KIND_FRAME)
		open_stream(run);
}

static void run_close(struct run *run)
{
	pl_vector_free(run->vector);
	pl_subscriber_close(run->subscriber);
	pl_publisher_close(run->publisher);
	if (run->path->list)
		plain_loop_close(&run->plain);
	else
		pair_close(&run->pair);
}

static int start_operation(struct run *run, struct pl_operation **handle, struct pl_error *error)
{
	const unsigned length = length_of(run->path);
	const struct pl_transfer transfer = { run->pair.remote, 0, run->pair.near.region, 0, length };
	const struct pl_atomic atomic = { .remote = run->pair.remote, .operand = 1 };
	const struct pl_buffer buffer = { run->pair.near.region, 0, length };
	struct pl_peer *peer = run->pair.environment.near_peer;

	if (run->vector)
		return pl_vector_post(run->vector, 0, 0, NULL, handle, error);
	switch (run->path->kind) {
	case PL_KIND_READ:
		return pl_read(peer, &transfer, NULL, handle, error);
	case PL_KIND_FETCH_ADD:
		return pl_fetch_add(peer, &atomic, NULL, handle, error);
	case PL_KIND_SEND:
		return pl_send(peer, 7, &buffer, NULL, handle, error);
	default:
		return pl_write(peer, &transfer, NULL, handle, error);
	}
}

static void post_operation(struct run *run, struct pl_operation **handle)
{
	struct pl_error error;
	int rc = start_operation(run, handle, &error);

	if (rc < 0)
		check_ok(rc, &error);
}

static void post_receive(struct run *run)
{
	const struct pl_buffer buffer = { run->pair.far.region, 0, length_of(run->path) };
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

static void publish_frame(struct run *run)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_completion completions[POLL_MAX];
	struct pl_stream_frame *frame;
	struct pl_error error;

	options.length = length_of(run->path);
	while (pl_publisher_loan(run->publisher, 0, &frame, NULL) < 0) {
		collect_good(run->pair.environment.near, completions);
		collect_good(run->pair.environment.far, completions);
	}
	check_ok(pl_frame_publish(frame, &options, &error), &error);
}

static void run_frames(struct run *run, unsigned count)
{
	struct pl_completion completions[POLL_MAX];
	struct pl_stream_frame *frame;

	while (count--) {
		publish_frame(run);
		while (pl_subscriber_take(run->subscriber, &frame, 1, 0, NULL) < 1) {
			collect_good(run->pair.environment.far, completions);
			collect_good(run->pair.environment.near, completions);
		}
		pl_frame_release(frame);
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
	else if (run->publisher)
		run_frames(run, count);
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
	const unsigned operations = path->length || path->drives_far ? OPERATIONS_SLOW : OPERATIONS;
	double elapsed[ROUNDS], used[ROUNDS];
	struct run run;

	run_open(&run, path);
	run_operations(&run, WARM_UP);
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t began = clock_now(), busy = processor_now();

		run_operations(&run, operations);
		used[round] = (double)(processor_now() - busy) / operations;
		elapsed[round] = (double)(clock_now() - began) / operations;
	}
	run_close(&run);
	qsort(elapsed, ROUNDS, sizeof(elapsed[0]), compare_numbers);
	qsort(used, ROUNDS, sizeof(used[0]), compare_numbers);
	printf("%-24s%10.1f%10.1f%12.1f\n", path->name, elapsed[0], elapsed[ROUNDS / 2], used[ROUNDS / 2]);
	fflush(stdout);
}

static void count_path(const struct path *path, unsigned operations)
{
	struct run run;

	virtual_time_begin();
	process_fd_begin();
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
