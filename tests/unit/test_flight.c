/* SPDX-License-Identifier: BSD-2-Clause */
/* The shortest round trip of a lane, and the limit of its bytes in flight. */
#include "fabric/tcp/flight.h"
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

static const struct test_case cases[] = {
	{ "keeps-shortest", keeps_shortest, NULL, 60 },
	{ "has-no-limit-without-socket", has_no_limit_without_socket, NULL, 60 },
};

int main(void)
{
	return cases_run("flight", cases, PL_ARRAY_SIZE(cases));
}
