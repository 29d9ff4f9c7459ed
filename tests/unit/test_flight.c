/* SPDX-License-Identifier: BSD-2-Clause */
/* The shortest round trip of a lane, the limit of its bytes in flight, and the bytes that it takes ahead of the other end. */
#include "fabric/tcp/flight.h"
#include "fabric/tcp/lane_share.h"
#include "support/cases.h"
#include "support/check.h"

/* The least share of a lane, in bytes. */
#define SHARE ((uint32_t)512 << 10)
/* Round trips that the library looks at. */
#define TRIPS 64u

/* Ends a round trip of at least so many seconds; the test's own time is far less than one of them. */
static void make_trip(struct tcp_flight *flight, struct pl_engine *engine, uint64_t seconds)
{
	tcp_flight_add(flight, 1, 7, engine);
	tcp_flight_add(flight, 2, 8, engine);
	check_number(flight->bytes, 3);
	flight->began -= seconds * PL_NS_PER_S;
	pl_engine_tick(engine);
	tcp_flight_remove(flight, 1, 7, engine);
	tcp_flight_remove(flight, 2, 8, engine);
	check_number(flight->bytes, 0);
	check_number(flight->began, 0);
}

static bool shortest_is(const struct tcp_flight *flight, uint64_t seconds)
{
	return flight->shortest >= seconds * PL_NS_PER_S && flight->shortest < 2 * seconds * PL_NS_PER_S;
}

static void keeps_shortest(void *unused)
{
	struct tcp_flight flight = { .limited = true, .shortest_next = UINT64_MAX };
	struct pl_engine *engine;
	struct pl_error error;

	(void)unused;
	check_ok(pl_engine_open(&pl_system_allocator, false, 0, &engine, &error), &error);
	check_number(tcp_flight_limit(&flight, SHARE), SHARE);
	make_trip(&flight, engine, 4000);
	check(shortest_is(&flight, 4000));
	check_number(tcp_flight_limit(&flight, SHARE), 2 * flight.shortest);
	make_trip(&flight, engine, 1000);
	check(shortest_is(&flight, 1000));
	for (unsigned i = 2; i < TRIPS; i++)
		make_trip(&flight, engine, 8000);
	check(shortest_is(&flight, 1000));
	for (unsigned i = 0; i < TRIPS; i++)
		make_trip(&flight, engine, 8000);
	check(shortest_is(&flight, 8000));
	pl_engine_close(engine);
}

static void has_no_limit_without_socket(void *unused)
{
	struct tcp_flight flight = { 0 };

	(void)unused;
	tcp_flight_start(&flight, -1, true);
	check(!flight.limited);
}

/* An endpoint with so many lanes, for each of which so many bytes wait; all lanes of its context that carry bulk data. */
static uint32_t ahead_of(unsigned lanes, uint64_t waiting, unsigned all, struct tcp_work work)
{
	static struct pl_context context;
	static struct tcp_endpoint endpoint;

	context.processors = 16;
	context.bulk_lane_count = all;
	endpoint.context = &context;
	endpoint.lanes_up = lanes;
	endpoint.waiting = lanes * waiting;
	work.lane_share_max = SHARE;
	return tcp_lane_ahead(&endpoint, &work);
}

static void takes_ahead(void *unused)
{
	const struct tcp_work large = { .chunk = TCP_CHUNK_MIN, .total = 1u << 20 };
	const struct tcp_work whole = { .chunk = TCP_CHUNK_MIN, .total = TCP_CHUNK_MIN, .whole = true };
	const struct tcp_work staged = { .chunk = TCP_CHUNK_MIN, .total = 1u << 20, .staged = true, .joint_max = 1 };
	const uint64_t plenty = 64u << 20, some = 1u << 20;

	(void)unused;
	/* Threads of both ends have processors of their own: as much as waits, and no more than the limit of all reads. */
	check_number(ahead_of(9, some, 8, large), some);
	check_number(ahead_of(9, plenty, 8, large), TCP_LANE_READ_AHEAD);
	check_number(ahead_of(9, SHARE / 2, 8, large), SHARE);
	/* They share processors: a part of what stays in the caches. */
	check_number(ahead_of(9, plenty, 9, large), TCP_LANES_AHEAD / 9);
	check_number(ahead_of(17, plenty, 16, large), TCP_LANES_AHEAD / 16);
	check_number(ahead_of(5, plenty, 40, large), SHARE);
	check_number(ahead_of(9, plenty, 8, whole), SHARE);
	check_number(ahead_of(9, plenty, 8, staged), SHARE);
}

static const struct test_case cases[] = {
	{ "takes-ahead", takes_ahead, NULL, 60 },
	{ "keeps-shortest", keeps_shortest, NULL, 60 },
	{ "has-no-limit-without-socket", has_no_limit_without_socket, NULL, 60 },
};

int main(void)
{
	return cases_run("flight", cases, PL_ARRAY_SIZE(cases));
}
