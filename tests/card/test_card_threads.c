/* SPDX-License-Identifier: BSD-2-Clause */
/* Progress threads over the stand-in card: which completions need an event, and which vector a queue gets. */
#include <dlfcn.h>
#include <unistd.h>

#include "card/card.h"
#include "support/cases.h"
#include "support/environment.h"

#define LENGTH 64u
#define WRITES 2000u

static const struct setting setting = {
	"thread", "verbs", "127.0.0.1", PL_PROGRESS_THREAD, 1, false, false, true, false
};

static struct card_counts counts_now(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
	struct card_counts (*read)(void);
	void *found = library ? dlsym(library, "standin_card_counts") : NULL;

	check(found);
	memcpy(&read, &found, sizeof(read));
	dlclose(library);
	return read();
}

/* Returns the completion events of writes that follow one another. */
static unsigned events_of_writes(uint64_t poll)
{
	struct scenario_environment environment;
	struct buffer near, far;
	struct pl_remote *remote;
	struct pl_error error;
	unsigned before;

	poll_time = poll;
	environment_open(&environment, &setting);
	buffer_open(&near, environment.near, LENGTH, PL_ACCESS_LOCAL);
	buffer_open(&far, environment.far, LENGTH, PL_ACCESS_ALL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	before = counts_now().completion_events;
	for (unsigned i = 0; i < WRITES; i++) {
		struct pl_transfer transfer = { remote, 0, near.region, 0, LENGTH };
		struct pl_operation *operation;

		check_ok(pl_write(environment.near_peer, &transfer, NULL, &operation, &error), &error);
		complete(&environment, operation, NULL);
	}
	before = counts_now().completion_events - before;
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
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

/* The thread sleeps once nothing happened for the time that it polls. */
static void sleeps(void *argument)
{
	struct scenario_environment environment;
	uint64_t used;

	(void)argument;
	events_of_writes(MS);
	environment_open(&environment, &setting);
	usleep(100000);
	used = cpu_time();
	usleep(500000);
	used = cpu_time() - used;
	if (used > 50 * MS)
		check_failed(__FILE__, __LINE__, "%.1f ms of processor time while idle", (double)used / MS);
	environment_close(&environment);
}

/* Each engine's queue has a vector of its own, as far as the device has some. */
static void vectors(void *argument)
{
	struct pl_options options = setting_options(&setting);
	struct scenario_environment environment = { .setting = &setting };
	struct pl_peer *near[4], *far[4];

	(void)argument;
	options.workers = 4;
	environment.near = context_open_with(&options);
	environment.far = context_open_with(&options);
	environment.listener = listener_open(&setting, environment.far, environment.address);
	for (unsigned i = 0; i < 4; i++)
		connect_pair(&environment, environment.near, environment.listener, &near[i], &far[i]);
	check_number(counts_now().vectors, 0xf);
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "polled", polled, NULL, 30 },
	{ "not polled", not_polled, NULL, 30 },
	{ "sleeps", sleeps, NULL, 30 },
	{ "vectors", vectors, NULL, 30 },
};

int main(void)
{
	return cases_run("card threads", cases, sizeof(cases) / sizeof(cases[0]));
}
