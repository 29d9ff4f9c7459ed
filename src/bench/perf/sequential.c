/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is done one at a time, with the clock in hand: memory registered and used for the first time, and
 * connections.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/perf/endpoint.h"

#define REGISTRATIONS 50u
#define CONNECTIONS 200u
/* At the server, until the client closed them. */
#define HELD_MAX 64u

/* The three times of a registration, as far as there is one. */
struct registration_times {
	struct stats cached, operation;
};

static int write_from(struct bench_end *end, struct pl_region *region)
{
	struct pl_operation *operation;
	struct pl_error error;
	int rc = pl_write(end->far->peer, end->links[0].remote, 0, region, 0, end->plan.size, NULL, &operation, &error);

	if (rc == 0)
		rc = pl_wait(operation, UINT64_MAX, &end->sample, &error);
	return rc < 0 ? bench_fail_as(end, &error) : 0;
}

/* A region of this memory, and a write from it: how long both take together.  The region stays. */
static int register_and_write(struct bench_end *end, void *memory, struct pl_region **region, uint64_t *time)
{
	uint64_t before = cli_now();
	struct pl_error error;
	int rc = pl_region_register(end->context, memory, end->plan.size, PL_ACCESS_LOCAL, region, &error);

	if (rc < 0)
		return bench_fail_as(end, &error);
	rc = write_from(end, *region);
	*time = cli_now() - before;
	return rc;
}

static int register_turn(struct bench_end *end, void *memory, struct stats *cold, struct registration_times *times)
{
	struct pl_region *region = NULL;
	uint64_t time;
	int rc = register_and_write(end, memory, &region, &time);

	pl_region_deregister(region);
	region = NULL;
	if (rc == 0 && cold)
		stats_record(cold, time);
	if (rc == 0)
		rc = register_and_write(end, memory, &region, &time);
	if (rc == 0 && cold) {
		uint64_t before = cli_now();

		stats_record(&times->cached, time);
		rc = write_from(end, region);
		stats_record(&times->operation, cli_now() - before);
	}
	pl_region_deregister(region);
	return rc;
}

/* Memory that the library has not seen, with all its pages. */
static int register_once(struct bench_end *end, struct stats *cold, struct registration_times *times)
{
	size_t length = end->plan.size;
	void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int rc;

	if (memory == MAP_FAILED)
		return bench_fail(end, -ENOMEM, "NO-MEMORY", NULL, "measure smaller messages", "no %zu bytes of memory",
				  length);
	memset(memory, 0x5a, length);
	rc = register_turn(end, memory, cold, times);
	pl_memory_freed(end->context, memory, length);
	munmap(memory, length);
	return rc;
}

static int connect_once(struct bench_end *end, struct stats *stats)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	uint64_t before = cli_now();
	struct pl_error error;
	struct pl_peer *peer;
	int rc = pl_connect(end->context, end->far->address, end->timeout, &peer, &error);

	if (rc < 0)
		return bench_fail_as(end, &error);
	if (stats)
		stats_record(stats, cli_now() - before);
	pl_peer_query(peer, &info);
	end->sample.streams = info.streams;
	pl_peer_close(peer);
	return 0;
}

static int once(struct bench_end *end, struct stats *stats, struct registration_times *times)
{
	return end->plan.op == BENCH_REGISTER ? register_once(end, stats, times) : connect_once(end, stats);
}

static int run(struct bench_end *end, struct registration_times *times)
{
	const struct bench_length *length = &end->length;
	uint64_t wanted = end->plan.op == BENCH_REGISTER ? REGISTRATIONS : CONNECTIONS;
	uint64_t begin = cli_now();

	if (length->iterations)
		wanted = length->iterations;
	/* By default not for the whole duration, which is for rates, but for no longer either. */
	for (uint64_t i = 0; i < wanted && (length->iterations || cli_now() - begin < length->duration); i++) {
		int rc = once(end, &end->stats, times);

		if (rc == 0)
			rc = bench_signals(end);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int bench_single_lead(struct bench_end *end, struct bench_result *result)
{
	struct registration_times *times = calloc(1, sizeof(*times));
	int rc = times ? 0 : bench_fail(end, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for what is measured");

	if (rc == 0) {
		stats_reset(&times->cached);
		stats_reset(&times->operation);
		rc = once(end, NULL, times);
	}
	stats_reset(&end->stats);
	bench_usage_begin(end);
	if (rc == 0)
		rc = bench_send_type(end, BENCH_GO);
	if (rc == 0)
		rc = run(end, times);
	bench_usage_end(end, result);
	result->operations = end->stats.count;
	result->elapsed = end->stats.sum;
	if (rc == 0 && end->plan.op == BENCH_REGISTER) {
		result->cached = (double)stats_percentile(&times->cached, 50);
		result->operation = (double)stats_percentile(&times->operation, 50);
	}
	free(times);
	return rc;
}

/* Takes the place of one that the client closed; else, where there are too many, of any. */
static void hold(struct pl_peer **held, struct pl_peer *peer)
{
	unsigned place = 0;

	for (unsigned i = 0; i < HELD_MAX; i++) {
		struct pl_peer_info info = PL_PEER_INFO_INIT;

		if (held[i])
			pl_peer_query(held[i], &info);
		if (!info.connected)
			place = i;
	}
	pl_peer_close(held[place]);
	held[place] = peer;
}

/* Connections are accepted as soon as they come; the client is who closes them. */
int bench_single_follow(struct bench_end *end)
{
	struct pl_peer *held[HELD_MAX] = { NULL }, *peer;
	int rc = 0;

	while (rc == 0 && !end->finished) {
		rc = bench_pump(end);
		if (rc == 0)
			rc = bench_idle(end, 0);
		if (rc >= 0 && end->plan.op == BENCH_CONNECT && pl_accept(end->listener, 0, &peer, NULL) == 0)
			hold(held, peer);
		rc = CLI_MIN(rc, 0);
	}
	for (unsigned i = 0; i < HELD_MAX; i++)
		pl_peer_close(held[i]);
	return rc;
}
