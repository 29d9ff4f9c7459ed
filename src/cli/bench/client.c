/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measuring.  Bandwidth is size x operations over the time from the first post to the last completion,
 * as perftest reckons; latency is a round trip halved, or an operation's own time for reads and atomics.
 */
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cli/bench/bench.h"

#define WARM_UP_OPERATIONS 200
#define WARM_UP_TIME (100 * CLI_NS_PER_MS)
/* More bytes in flight gain nothing. */
#define WINDOW_BYTES (64ull << 20)
#define ANSWER_TIME (60 * CLI_NS_PER_S)
/* Writes up to this size arrive in one piece, so that their last byte tells of all of them. */
#define LAST_BYTE_TELLS 32768

/* One run over one size. */
struct run {
	struct bench_link *link;
	const struct bench_options *options;
	uint64_t size;
	unsigned depth, vector;
	uint64_t begin, end; /* when the first was posted, when the last was done */
	uint64_t count;
};

static unsigned depth_for(const struct bench_options *options, uint64_t size)
{
	uint64_t most = CLI_MAX(WINDOW_BYTES / CLI_MAX(size * options->vector, (uint64_t)1), (uint64_t)2);

	return (unsigned)CLI_MIN((uint64_t)options->depth, most);
}

static int take_failure(const struct bench_link *link, struct pl_error *error)
{
	*error = link->error;
	return link->failure;
}

/* -- bandwidth ------------------------------------------------------------------------------------- */

/* Keeps `depth` under way until `count` are posted, or `duration` is over; then waits for all. */
static int stream(struct run *run, uint64_t count, uint64_t duration, struct pl_error *error)
{
	struct bench_link *link = run->link;
	uint64_t first = link->posted, now = cli_now();
	uint64_t stop = duration ? now + duration : UINT64_MAX;
	int rc = 0;

	run->begin = now;
	while (rc == 0 && !link->failure && link->posted - first < count && now < stop) {
		while (rc == 0 && link->posted - link->done < run->depth && link->posted - first < count)
			rc = bench_link_post(link, run->options->operation, run->size, run->vector, false, error);
		bench_link_pump(link, false);
		if (rc == 0 && run->options->both_ways && run->options->operation == BENCH_SEND)
			rc = bench_link_receive(link, run->depth, error);
		/* A receipt has the time already; only without one the clock is read. */
		now = link->last.completed > now ? link->last.completed : cli_now();
	}
	while (rc == 0 && !link->failure && link->done < link->posted)
		bench_link_pump(link, false);
	run->end = link->last.completed;
	run->count = link->posted - first;
	return rc == 0 && link->failure ? take_failure(link, error) : rc;
}

/* -- latency --------------------------------------------------------------------------------------- */

/* What the peer answers a write with: the same mark at the end of our target area, or a notification. */
static bool answered(const struct run *run, uint8_t mark, uint64_t notified)
{
	if (run->size > LAST_BYTE_TELLS)
		return run->link->notified != notified;
	return *(volatile uint8_t *)(run->link->target + run->size - 1) == mark;
}

static int ping_write(struct run *run, struct pl_error *error)
{
	struct bench_link *link = run->link;
	uint64_t notified = link->notified;
	uint8_t mark = (uint8_t)(link->posted % 255 + 1);
	int rc;

	link->source[run->size - 1] = mark;
	rc = bench_link_post(link, BENCH_WRITE, run->size, 1, run->size > LAST_BYTE_TELLS, error);
	while (rc == 0 && !link->failure && !answered(run, mark, notified))
		bench_link_pump(link, true);
	return rc;
}

static int ping_send(struct run *run, struct pl_error *error)
{
	struct bench_link *link = run->link;
	uint64_t received = link->received;
	int rc = bench_link_receive(link, 1, error);

	if (rc == 0)
		rc = bench_link_post(link, BENCH_SEND, run->size, 1, false, error);
	while (rc == 0 && !link->failure && link->received == received)
		bench_link_pump(link, false);
	return rc;
}

static int one_operation(struct run *run, struct pl_error *error)
{
	struct bench_link *link = run->link;
	int rc = bench_link_post(link, run->options->operation, run->size, run->vector, false, error);

	while (rc == 0 && !link->failure && link->done < link->posted)
		bench_link_pump(link, false);
	return rc;
}

static int ping_pong(struct run *run, uint64_t count, uint64_t duration, struct stats *stats, struct pl_error *error)
{
	enum bench_operation operation = run->options->operation;
	struct bench_link *link = run->link;
	uint64_t before = cli_now();
	uint64_t stop = duration ? before + duration : UINT64_MAX;
	int rc = 0;

	run->begin = before;
	for (run->count = 0; rc == 0 && !link->failure && run->count < count && before < stop; run->count++) {
		uint64_t now, time;

		if (operation == BENCH_WRITE)
			rc = ping_write(run, error);
		else if (operation == BENCH_SEND)
			rc = ping_send(run, error);
		else
			rc = one_operation(run, error);
		now = cli_now();
		time = now - before;
		stats_add(stats, operation == BENCH_WRITE || operation == BENCH_SEND ? time / 2 : time);
		before = now;
	}
	run->end = before;
	while (rc == 0 && !link->failure && link->done < link->posted)
		bench_link_pump(link, false);
	return rc == 0 && link->failure ? take_failure(link, error) : rc;
}

/* -- one size -------------------------------------------------------------------------------------- */

static void fill_pattern(uint8_t *bytes, uint64_t length, uint64_t seed)
{
	for (uint64_t i = 0; i < length; i++) {
		if (i % 8 == 0)
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		bytes[i] = (uint8_t)(seed >> (8 + i % 8 * 6));
	}
}

static int begin(struct run *run, struct pl_error *error)
{
	const struct bench_options *options = run->options;
	struct bench_link *link = run->link;
	struct bench_message message = { .type = BENCH_START, .operation = options->operation,
					 .latency = options->latency, .both_ways = options->both_ways,
					 .depth = run->depth, .size = run->size };
	int rc = 0;

	fill_pattern(link->source, run->size, run->size);
	memset(link->target, 0, CLI_MIN(link->area, run->size));
	link->posted = link->done = 0;
	link->last = (struct pl_receipt){ 0 };
	if (options->operation == BENCH_SEND && options->both_ways)
		rc = bench_link_receive(link, run->depth, error);
	if (rc == 0)
		rc = bench_link_say(link, &message, error);
	if (rc == 0)
		rc = bench_link_hear(link, ANSWER_TIME, error);
	return rc;
}

static bool verify(const struct run *run, const struct bench_message *answer)
{
	const struct bench_link *link = run->link;

	if (run->options->operation == BENCH_FETCH_ADD || run->options->operation == BENCH_COMPARE_SWAP)
		return answer->count == link->posted;
	return answer->hash == XXH3_64bits(link->source, run->size);
}

static void reckon(const struct run *run, const struct stats *stats, struct bench_result *result)
{
	const struct bench_link *link = run->link;
	double seconds = (double)(run->end - run->begin) / (double)CLI_NS_PER_S;

	result->operation = run->options->operation;
	result->size = run->size;
	result->count = run->count;
	result->bytes = run->size * run->vector * run->count;
	result->nanoseconds = run->end - run->begin;
	result->p50 = stats_percentile(stats, 0.5);
	result->p99 = stats_percentile(stats, 0.99);
	result->p999 = stats_percentile(stats, 0.999);
	result->max = stats->max;
	result->bytes_per_second = seconds > 0 ? (double)result->bytes / seconds : 0;
	result->operations_per_second = seconds > 0 ? (double)run->count / seconds : 0;
	if (run->options->latency && run->options->operation <= BENCH_SEND && run->options->operation != BENCH_READ) {
		/* Each round trip carried it twice. */
		result->bytes_per_second *= 2;
		result->operations_per_second *= 2;
	}
	result->depth = run->options->latency ? 1 : run->depth;
	result->streams = CLI_MAX(link->last.streams, 1u);
	result->fabric = link->last.fabric;
	result->reason = link->last.reason;
	result->route = link->last.route;
}

static int finish(struct run *run, struct bench_result *result, struct pl_error *error)
{
	struct bench_message message = { .type = BENCH_STOP, .operation = run->options->operation, .size = run->size };
	struct bench_link *link = run->link;
	const struct bench_message *answer = &link->message;
	int rc = bench_link_say(link, &message, error);

	if (rc == 0)
		rc = bench_link_hear(link, ANSWER_TIME, error);
	if (rc < 0)
		return rc;
	result->verified = verify(run, answer);
	result->peer_cpu = answer->time ? 100.0 * (double)answer->cpu / (double)answer->time : 0;
	if (run->options->both_ways && answer->time) {
		double seconds = (double)answer->time / (double)CLI_NS_PER_S;

		result->bytes_per_second += (double)(answer->count * run->size) / seconds;
		result->operations_per_second += (double)answer->count / seconds;
	}
	return 0;
}

static int measure_once(struct bench_link *link, const struct bench_options *options, uint64_t size,
			struct stats *stats, struct bench_result *result, struct pl_error *error)
{
	struct run run = { .link = link, .options = options, .size = size, .vector = options->vector };
	uint64_t count = options->iterations ? options->iterations : UINT64_MAX;
	uint64_t duration = options->iterations ? 0 : options->duration;
	uint64_t cpu;
	int rc;

	run.depth = depth_for(options, size);
	rc = begin(&run, error);
	if (rc < 0)
		return rc;
	stats_clear(stats);
	if (options->latency)
		rc = ping_pong(&run, WARM_UP_OPERATIONS, WARM_UP_TIME, stats, error);
	else
		rc = stream(&run, WARM_UP_OPERATIONS, WARM_UP_TIME, error);
	if (rc < 0)
		return rc;
	stats_clear(stats);
	cpu = bench_cpu_time();
	if (options->latency) {
		rc = ping_pong(&run, count, duration, stats, error);
	} else {
		link->stats = stats;
		rc = stream(&run, count, duration, error);
		link->stats = NULL;
	}
	if (rc < 0)
		return rc;
	cpu = bench_cpu_time() - cpu;
	reckon(&run, stats, result);
	result->cpu = result->nanoseconds ? 100.0 * (double)cpu / (double)result->nanoseconds : 0;
	return finish(&run, result, error);
}

static int compare(const void *a, const void *b)
{
	const struct bench_result *left = a, *right = b;

	return (left->bytes_per_second > right->bytes_per_second) - (left->bytes_per_second < right->bytes_per_second);
}

int bench_measure(struct bench_link *link, const struct bench_options *options, uint64_t size,
		  struct bench_result *result, struct pl_error *error)
{
	struct bench_result *all = calloc(options->repeat, sizeof(*all));
	struct stats *stats = malloc(sizeof(*stats));
	bool verified = true;
	int rc = all && stats ? 0 : cli_fail_errno(error, -ENOMEM, "malloc", NULL);

	for (unsigned i = 0; rc == 0 && i < options->repeat; i++) {
		rc = measure_once(link, options, size, stats, &all[i], error);
		verified = verified && rc == 0 && all[i].verified;
	}
	if (rc == 0) {
		qsort(all, options->repeat, sizeof(*all), compare);
		*result = all[options->repeat / 2];
		result->verified = verified;
	}
	free(stats);
	free(all);
	return rc;
}

/* -- meeting --------------------------------------------------------------------------------------- */

static uint64_t largest(const struct bench_options *options)
{
	uint64_t size = 8;

	for (unsigned i = 0; i < options->size_count; i++)
		size = CLI_MAX(size, options->sizes[i]);
	return size;
}

int bench_client_open(struct bench_link *link, const struct bench_options *options, struct pl_error *error)
{
	struct bench_message offer = { .type = BENCH_SETUP, .operation = options->operation };
	struct pl_context *context;
	struct pl_peer *peer;
	char address[300];
	int rc = cli_address(options->address, address, sizeof(address), error);

	if (rc == 0)
		rc = cli_open(&context, &options->common,
			      options->manual ? PL_PROGRESS_MANUAL : PL_PROGRESS_THREAD, error);
	if (rc < 0)
		return rc;
	memset(link, 0, sizeof(*link));
	rc = pl_connect(context, address, options->common.timeout, &peer, error);
	if (rc == 0)
		rc = bench_link_open(link, context, peer, options->manual, options->common.timeout, error);
	if (rc == 0)
		rc = bench_link_room(link, largest(options), &offer, error);
	offer.size = link->area;
	if (rc == 0)
		rc = bench_link_say(link, &offer, error);
	if (rc == 0)
		rc = bench_link_hear(link, ANSWER_TIME, error);
	if (rc == 0)
		rc = bench_link_import(link, &link->message, error);
	if (rc < 0)
		pl_close(context);
	return rc;
}
