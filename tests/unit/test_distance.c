/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lanes whose path is long, as the kernel says: they send small frames at once, and request more than their share. So do lanes whose
 * requests take long, where engines do not poll. The far end does nothing while the cases look, as if its answers were on their way.
 */
#include <dlfcn.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/socket.h"
#include "fabric/tcp/read_ahead.h"
#include "support/cases.h"
#include "support/pair.h"

/* Each operation, and all operations of a case. */
#define SMALL 8u
#define LARGE ((size_t)1 << 20)
#define LARGE_COUNT 16u
#define CHUNK ((uint32_t)128 << 10)
/* Bulk lanes, beside lane 0. */
#define LANES 2u
/* Without regard to the path, the lanes request less, and leave the rest in the list. */
#define SHARES ((size_t)12 << 20)
/* Microseconds of a long path that the kernel does not see. A lane requests all that it may then. */
#define HIDDEN_TRIP 20000

static uint32_t round_trip; /* microseconds that the kernel says */

/* Replaces that of the C library in this program. */
int getsockopt(int fd, int level, int option, void *value, socklen_t *length)
{
	static int (*_Atomic next)(int, int, int, void *, socklen_t *);
	int rc;

	if (!next)
		next = (int (*)(int, int, int, void *, socklen_t *))dlsym(RTLD_NEXT, "getsockopt");
	rc = atomic_load(&next)(fd, level, option, value, length);
	if (rc == 0 && level == IPPROTO_TCP && option == TCP_INFO && *length == sizeof(struct tcp_info))
		((struct tcp_info *)value)->tcpi_min_rtt = round_trip;
	return rc;
}

static struct setting setting_of(unsigned lanes)
{
	return (struct setting){
		.name = "distance", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = lanes
	};
}

static void stop_engines(struct pl_context *context)
{
	for (unsigned i = 0; i < context->engine_count; i++)
		pl_engine_lock(context->engines[i]);
}

static void start_engines(struct pl_context *context)
{
	for (unsigned i = 0; i < context->engine_count; i++)
		pl_engine_unlock(context->engines[i]);
}

static struct tcp_lane *near_lane(const struct pair *pair, unsigned index)
{
	return tcp_endpoint_of(pair->environment.near_peer->endpoint)->lanes[index];
}

/* Returns the frames that were sent and not acknowledged, and sets *queued to the bytes that wait. */
static uint32_t lane_sent_frames(struct tcp_lane *lane, uint32_t *queued)
{
	uint32_t sent;

	pl_engine_lock(lane->engine);
	sent = lane->sequence - lane->acked;
	*queued = lane->queued;
	pl_engine_unlock(lane->engine);
	return sent;
}

static uint32_t lane_requested(struct tcp_lane *lane)
{
	uint32_t requested;

	pl_engine_lock(lane->engine);
	requested = lane->requested;
	pl_engine_unlock(lane->engine);
	return requested;
}

/* -- cases ---------------------------------------------------------------------------------------- */

static void sends_small_frames_at_once(void *unused)
{
	const struct setting setting = setting_of(1);
	struct pl_operation *operations[2];
	struct pl_error error;
	struct pair pair;
	uint32_t queued;

	(void)unused;
	round_trip = 50000;
	pair_open(&pair, &setting, LARGE);
	check_number(near_lane(&pair, 0)->flight.path, 100000000);
	stop_engines(pair.environment.far);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(operations); i++) {
		const struct pl_transfer transfer = { pair.remote, 0, pair.near.region, 0, SMALL };

		check_ok(pl_write(pair.environment.near_peer, &transfer, NULL, &operations[i], &error), &error);
	}
	while (lane_sent_frames(near_lane(&pair, 0), &queued) < PL_ARRAY_SIZE(operations) || queued)
		usleep(1000);
	start_engines(pair.environment.far);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(operations); i++)
		complete(&pair.environment, operations[i], NULL);
	pair_close(&pair);
}

static void await_requests(const struct pair *pair)
{
	struct tcp_endpoint *endpoint = tcp_endpoint_of(pair->environment.near_peer->endpoint);

	while (atomic_load(&endpoint->requested) < SHARES)
		usleep(1000);
	for (unsigned i = 1; i <= LANES; i++)
		check(lane_requested(near_lane(pair, i)) <= LARGE * LARGE_COUNT / LANES + CHUNK);
}

/* Opens a pair whose bulk lanes are all up. */
static void open_lanes(struct pair *pair, const struct setting *setting)
{
	struct pl_error error;

	pair_open(pair, setting, LARGE * LARGE_COUNT);
	check_ok(pl_region_prepare(pair->environment.near_peer, pair->near.region, &error), &error);
	pair_spread(pair, LANES);
}

/* Reads all bytes. Looks at the requests before the far end answers. */
static void request_all(struct pair *pair)
{
	struct pl_operation *operations[LARGE_COUNT];
	struct pl_error error;

	stop_engines(pair->environment.far);
	for (unsigned i = 0; i < LARGE_COUNT; i++) {
		const struct pl_transfer transfer = { pair->remote, i * LARGE, pair->near.region, i * LARGE, LARGE };

		check_ok(pl_read(pair->environment.near_peer, &transfer, NULL, &operations[i], &error), &error);
	}
	await_requests(pair);
	start_engines(pair->environment.far);
	for (unsigned i = 0; i < LARGE_COUNT; i++)
		complete(&pair->environment, operations[i], NULL);
	for (unsigned i = 0; i <= LANES; i++)
		check_number(lane_requested(near_lane(pair, i)), 0);
	check_number(atomic_load(&tcp_endpoint_of(pair->environment.near_peer->endpoint)->requested), 0);
}

static void requests_more_than_shares(void *unused)
{
	const struct setting setting = setting_of(LANES);
	struct pair pair;

	(void)unused;
	round_trip = 50000;
	open_lanes(&pair, &setting);
	request_all(&pair);
	pair_close(&pair);
}

static uint64_t lane_shortest(struct tcp_lane *lane)
{
	uint64_t shortest;

	pl_engine_lock(lane->engine);
	shortest = lane->flight.shortest;
	pl_engine_unlock(lane->engine);
	return shortest;
}

/* Reads few bytes, all of which are requested at once, and whose answers the far end delays. */
static void request_slowly(struct pair *pair)
{
	const struct pl_transfer transfer = { pair->remote, 0, pair->near.region, 0, LARGE };
	const struct tcp_endpoint *endpoint = tcp_endpoint_of(pair->environment.near_peer->endpoint);
	struct pl_operation *operation;
	struct pl_error error;

	stop_engines(pair->environment.far);
	check_ok(pl_read(pair->environment.near_peer, &transfer, NULL, &operation, &error), &error);
	/* Lane 0, which takes the first chunk, measures nothing. */
	while (atomic_load(&endpoint->requested) < LARGE - CHUNK)
		usleep(1000);
	usleep(HIDDEN_TRIP);
	start_engines(pair->environment.far);
	complete(&pair->environment, operation, NULL);
}

/* The kernel says that the path is short, as to a proxy, and all requests take long. */
static void measures_requests(void *unused)
{
	const struct setting setting = setting_of(LANES);
	struct pair pair;

	(void)unused;
	round_trip = 10;
	poll_time = PL_NO_POLLING;
	open_lanes(&pair, &setting);
	for (unsigned i = 1; i <= LANES; i++) {
		while (lane_shortest(near_lane(&pair, i)) == 0)
			request_slowly(&pair);
		check(lane_shortest(near_lane(&pair, i)) >= (uint64_t)HIDDEN_TRIP * 1000);
	}
	request_all(&pair);
	pair_close(&pair);
	poll_time = 0;
}

/* A lane takes its part of all bytes, at most what its path holds, and never more than a lane may request. */
static void has_limits(void *unused)
{
	struct tcp_endpoint *endpoint = calloc(1, sizeof(*endpoint));
	struct pl_engine *engine = calloc(1, sizeof(*engine));
	struct tcp_lane *lane = calloc(1, sizeof(*lane));

	(void)unused;
	check(endpoint && lane && engine);
	lane->endpoint = endpoint;
	lane->engine = engine;
	lane->index = 1;
	atomic_store(&endpoint->bulk_lanes, 1u << 1 | 1u << 2);
	endpoint->waiting = 3 * LARGE;
	atomic_store(&endpoint->requested, LARGE);
	check(!tcp_lane_reads_ahead(lane, 0));
	lane->flight.path = UINT32_MAX;
	check(tcp_lane_reads_ahead(lane, 2 * LARGE - 1) && !tcp_lane_reads_ahead(lane, 2 * LARGE));
	lane->flight.path = LARGE;
	check(tcp_lane_reads_ahead(lane, LARGE - 1) && !tcp_lane_reads_ahead(lane, LARGE));
	lane->flight.path = UINT32_MAX;
	endpoint->waiting = 1000 * LARGE;
	check(tcp_lane_reads_ahead(lane, TCP_LANE_READ_AHEAD - 1) && !tcp_lane_reads_ahead(lane, TCP_LANE_READ_AHEAD));
	atomic_store(&endpoint->bulk_lanes, 0);
	check(tcp_lane_reads_ahead(lane, LARGE));
	free(lane);
	free(engine);
	free(endpoint);
}

/* Half a byte for each nanosecond of the shortest request, in lanes whose engine has a thread that does not poll. */
static void has_limit_by_time(void *unused)
{
	struct tcp_endpoint *endpoint = calloc(1, sizeof(*endpoint));
	struct pl_engine *engine = calloc(1, sizeof(*engine));
	struct tcp_lane *lane = calloc(1, sizeof(*lane));

	(void)unused;
	check(endpoint && lane && engine);
	lane->endpoint = endpoint;
	lane->engine = engine;
	lane->index = 1;
	endpoint->waiting = 1000 * LARGE;
	lane->flight.shortest = 2 * LARGE;
	check(!tcp_lane_reads_ahead(lane, 0));
	engine->threaded = true;
	check(tcp_lane_reads_ahead(lane, LARGE - 1) && !tcp_lane_reads_ahead(lane, LARGE));
	lane->flight.shortest = UINT64_MAX;
	check(tcp_lane_reads_ahead(lane, TCP_LANE_READ_AHEAD - 1) && !tcp_lane_reads_ahead(lane, TCP_LANE_READ_AHEAD));
	engine->poll_time = 1;
	check(!tcp_lane_reads_ahead(lane, 0));
	free(lane);
	free(engine);
	free(endpoint);
}

static void path_is_short(void *unused)
{
	const struct setting setting = setting_of(1);
	struct pair pair;
	int fds[2];

	(void)unused;
	/* No sample; a trip in which a lane's share brings enough; the shortest long trip. */
	for (unsigned i = 0; i < 3; i++) {
		round_trip = (const uint32_t[]){ UINT32_MAX, 249, 250 }[i];
		pair_open(&pair, &setting, LARGE);
		check_number(near_lane(&pair, 0)->flight.path, i == 2 ? 500000 : 0);
		pair_close(&pair);
	}
	check_number(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	check_number(pl_socket_round_trip(fds[0]), 0);
	close(fds[0]);
	close(fds[1]);
	check_number(pl_socket_round_trip(-1), 0);
}

static const struct test_case cases[] = {
	{ "sends-small-frames-at-once", sends_small_frames_at_once, NULL, 60 },
	{ "requests-more-than-shares", requests_more_than_shares, NULL, 60 },
	{ "measures-requests", measures_requests, NULL, 60 },
	{ "has-limits", has_limits, NULL, 60 },
	{ "has-limit-by-time", has_limit_by_time, NULL, 60 },
	{ "path-is-short", path_is_short, NULL, 60 },
};

int main(void)
{
	return cases_run("distance", cases, PL_ARRAY_SIZE(cases));
}
