/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations that run one after the other, timed by the client's clock: memory registered and used for the first time,
 * and connections.
 */
#include "bench/perf/sequential.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/perf/control.h"
#include "bench/perf/progress.h"
#include "bench/perf/run.h"

/* Connections that the server keeps until the client closes them. */
#define KEPT_MAX 64u

/* Times of a registration beside the cold one. */
struct registration_times {
	struct stats cached, operation;
};

static int write_from_region(struct bench_endpoint *ep, struct pl_region *region)
{
	struct pl_operation *operation;
	struct pl_error error;
	int rc = pl_write(ep->peer->control,
			  &(struct pl_transfer){ ep->connections[0].remote, 0, region, 0, ep->plan.size }, NULL,
			  &operation, &error);

	if (rc == 0)
		rc = pl_wait(operation, UINT64_MAX, &ep->sample, &error);
	return rc < 0 ? bench_fail_with(ep, &error) : 0;
}

/* Registers memory and writes from it; *time is that of both together.  The region stays registered. */
static int register_and_write(struct bench_endpoint *ep, void *memory, struct pl_region **region, uint64_t *time)
{
	uint64_t before = cli_now();
	struct pl_error error;
	int rc = pl_region_register(ep->context, memory, ep->plan.size, PL_ACCESS_LOCAL, region, &error);

	if (rc < 0)
		return bench_fail_with(ep, &error);
	rc = write_from_region(ep, *region);
	*time = cli_now() - before;
	return rc;
}

static int measure_registration(struct bench_endpoint *ep, void *memory, struct stats *cold,
				struct registration_times *times)
{
	struct pl_region *region = NULL;
	uint64_t time;
	int rc = register_and_write(ep, memory, &region, &time);

	pl_region_deregister(region);
	region = NULL;
	if (rc == 0 && cold)
		stats_record(cold, time);
	if (rc == 0)
		rc = register_and_write(ep, memory, &region, &time);
	if (rc == 0 && cold) {
		uint64_t before = cli_now();

		stats_record(&times->cached, time);
		rc = write_from_region(ep, region);
		stats_record(&times->operation, cli_now() - before);
	}
	pl_region_deregister(region);
	return rc;
}

/* Measures one registration of memory that the library has not seen, with all its pages present. */
int bench_register_once(struct bench_endpoint *ep, struct stats *cold, struct registration_times *times)
{
	size_t length = ep->plan.size;
	void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int rc;

	if (memory == MAP_FAILED)
		return bench_fail(ep, -ENOMEM, "NO-MEMORY", NULL, "use smaller messages", "out of memory: %zu bytes",
				  length);
	memset(memory, 0x5a, length);
	rc = measure_registration(ep, memory, cold, times);
	pl_memory_freed(ep->context, memory, length);
	munmap(memory, length);
	return rc;
}

int bench_connect_once(struct bench_endpoint *ep, struct stats *stats, struct registration_times *times)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	uint64_t before = cli_now();
	struct pl_error error;
	struct pl_peer *peer;
	int rc = pl_connect(ep->context, ep->peer->address, ep->timeout, &peer, &error);

	(void)times;
	if (rc < 0)
		return bench_fail_with(ep, &error);
	if (stats)
		stats_record(stats, cli_now() - before);
	pl_peer_query(peer, &info);
	ep->sample.lanes = info.lanes;
	pl_peer_close(peer);
	return 0;
}

static int run_sequential_operations(struct bench_endpoint *ep, struct registration_times *times)
{
	const struct bench_run_settings *settings = &ep->settings;
	uint64_t count = ep->plan.operation->default_count;
	uint64_t begin = cli_now();

	if (settings->iterations)
		count = settings->iterations;
	/* Without --iterations a run ends after the default count, or the duration if that ends earlier. */
	for (uint64_t i = 0; i < count && (settings->iterations || cli_now() - begin < settings->duration); i++) {
		int rc = ep->plan.operation->measure_once(ep, &ep->stats, times);

		if (rc == 0)
			rc = bench_check_signals(ep);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int bench_sequential_client(struct bench_endpoint *ep, struct bench_result *result)
{
	struct registration_times *times = calloc(1, sizeof(*times));
	int rc = times ? 0 : bench_fail(ep, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for the times");

	if (rc == 0) {
		stats_reset(&times->cached);
		stats_reset(&times->operation);
		rc = ep->plan.operation->measure_once(ep, NULL, times);
	}
	stats_reset(&ep->stats);
	bench_usage_begin(ep);
	if (rc == 0)
		rc = bench_control_send_type(ep, BENCH_GO);
	if (rc == 0)
		rc = run_sequential_operations(ep, times);
	bench_usage_end(ep, result);
	result->operations = ep->stats.count;
	result->elapsed = ep->stats.sum;
	if (rc == 0 && ep->plan.operation->registers) {
		result->cached = (double)stats_percentile(&times->cached, 50);
		result->operation = (double)stats_percentile(&times->operation, 50);
	}
	free(times);
	return rc;
}

/* Keeps a connection in place of one that the client closed; without one, in place of any other. */
static void keep_connection(struct pl_peer **kept, struct pl_peer *peer)
{
	unsigned index = 0;

	for (unsigned i = 0; i < KEPT_MAX; i++) {
		struct pl_peer_info info = PL_PEER_INFO_INIT;

		if (kept[i])
			pl_peer_query(kept[i], &info);
		if (!info.connected)
			index = i;
	}
	pl_peer_close(kept[index]);
	kept[index] = peer;
}

/* Accepts connections as soon as they arrive; the client closes them. */
int bench_sequential_server(struct bench_endpoint *ep)
{
	struct pl_peer *kept[KEPT_MAX] = { NULL }, *peer;
	int rc = 0;

	while (rc == 0 && !ep->finished) {
		rc = bench_progress(ep);
		if (rc == 0)
			rc = bench_idle(ep, 0);
		if (rc >= 0 && ep->plan.operation->connects && pl_accept(ep->listener, 0, &peer, NULL) == 0)
			keep_connection(kept, peer);
		rc = CLI_MIN(rc, 0);
	}
	for (unsigned i = 0; i < KEPT_MAX; i++)
		pl_peer_close(kept[i]);
	return rc;
}
