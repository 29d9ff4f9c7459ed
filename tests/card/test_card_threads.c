/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Progress threads over the stand-in card: which completions need an event, and which vector a queue gets. Threads of the program
 * that make progress: one of them sleeps.
 */
#include "card/card.h"
#include "card/settings.h"
#include "support/cases.h"
#include "support/leader.h"
#include "support/pair.h"

#define LENGTH 64u
#define WRITES 2000u

/* Returns the completion events of writes that follow one another. */
static unsigned events_of_writes(uint64_t poll)
{
	struct pl_error error;
	struct pair pair;
	unsigned before;

	poll_time = poll;
	pair_open(&pair, &card_threads, LENGTH);
	before = card_counts_now().completion_events;
	for (unsigned i = 0; i < WRITES; i++) {
		struct pl_transfer transfer = { pair.remote, 0, pair.near.region, 0, LENGTH };
		struct pl_operation *operation;

		check_ok(pl_write(pair.environment.near_peer, &transfer, NULL, &operation, &error), &error);
		complete(&pair.environment, operation, NULL);
	}
	before = card_counts_now().completion_events - before;
	pair_close(&pair);
	return before;
}

/* A thread that polls takes completions without an event. The queue stays hot as long as the writes last. */
static void polled(void *argument)
{
	unsigned events = events_of_writes(SECOND);

	(void)argument;
	if (events > WRITES / 100)
		check_failed(__FILE__, __LINE__, "%u events of %u writes", events, WRITES);
}

static void not_polled(void *argument)
{
	unsigned events = events_of_writes(PL_NO_POLLING);

	(void)argument;
	if (events < WRITES / 20)
		check_failed(__FILE__, __LINE__, "%u events of %u writes", events, WRITES);
}

/* Returns the processor time of half a second. */
static uint64_t idle_time(void)
{
	uint64_t before = cpu_time();

	sleep_ms(500);
	return cpu_time() - before;
}

/* The thread sleeps once nothing happened for the time that it polls. */
static void sleeps(void *argument)
{
	struct scenario_environment environment;
	unsigned tries = 20;
	uint64_t used;

	(void)argument;
	events_of_writes(MS);
	environment_open(&environment, &card_threads);
	/* On a busy machine, work of the opening may go on for a while. A thread that polls with pauses is busy in one of two. */
	while ((used = idle_time()) > 50 * MS || (used = idle_time()) > 50 * MS)
		if (!--tries)
			check_failed(__FILE__, __LINE__, "%.1f ms of processor time while idle", (double)used / MS);
	environment_close(&environment);
}

/* Each engine's queue has a vector of its own, as far as the device has some. */
static void vectors(void *argument)
{
	struct pl_options options = setting_options(&card_threads);
	struct scenario_environment environment = { .setting = &card_threads };
	struct pl_peer *near[4], *far[4];

	(void)argument;
	options.workers = 4;
	environment.near = context_open_with(&options);
	environment.far = context_open_with(&options);
	environment.listener = listener_open(&card_threads, environment.far, environment.address);
	for (unsigned i = 0; i < 4; i++)
		connect_pair(&environment, environment.near, environment.listener, &near[i], &far[i]);
	check_number(card_counts_now().vectors, 0xf);
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "polled", polled, NULL, 30 },
	{ "not polled", not_polled, NULL, 30 },
	{ "sleeps", sleeps, NULL, 30 },
	{ "vectors", vectors, NULL, 30 },
	{ "leader is woken", leader_is_woken, &card_manual, 30 },
};

int main(void)
{
	return cases_run("card threads", cases, sizeof(cases) / sizeof(cases[0]));
}
