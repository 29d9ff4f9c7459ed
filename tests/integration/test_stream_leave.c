/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Subscribers of pushed frames leave a publisher that does not answer, because nothing drives it. Each wait takes 1 s, and all of
 * them together hardly more. The limits lie far between that and the sum of all.
 */
#include <stdlib.h>
#include <string.h>

#include <peerlane/stream.h>

#include "support/cases.h"
#include "support/environment.h"

#define SUBSCRIBERS 40u
#define S 1000000000ull
#define LIMIT (SUBSCRIBERS / 2 * S)

static const struct setting tcp_manual = {
	.name = "manual", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};
static const struct setting local_manual_setting = {
	.name = "manual", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

struct rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct pl_subscriber *subscribers[SUBSCRIBERS];
	struct pump pump; /* drives the publisher */
};

/* Subscribes over one connection, or over one for each subscriber. */
static void rig_open(struct rig *rig, const struct setting *setting, bool connections)
{
	struct pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_error error;

	memset(rig, 0, sizeof(*rig));
	environment_open(&rig->environment, setting);
	publisher.slot_bytes = 100;
	check_ok(pl_publisher_open(rig->environment.far, "cam0", &publisher, &rig->publisher, &error), &error);
	options.push = true;
	for (unsigned i = 0; i < SUBSCRIBERS; i++) {
		struct pl_peer *peer = rig->environment.near_peer, *far_peer;

		if (connections)
			connect_pair(&rig->environment, rig->environment.near, rig->environment.listener, &peer, &far_peer);
		pump_start(&rig->environment, &rig->pump, rig->environment.far);
		check_ok(pl_subscriber_open(peer, "cam0", &options, AMPLE_TIME, &rig->subscribers[i], &error), &error);
		pump_stop(&rig->pump);
	}
}

static void test_one_connection(void *argument)
{
	uint64_t begin;
	struct rig rig;

	rig_open(&rig, argument, false);
	begin = clock_now();
	for (unsigned i = 0; i < SUBSCRIBERS; i++)
		pl_subscriber_close(rig.subscribers[i]);
	check(clock_now() - begin < LIMIT);
	environment_close(&rig.environment);
}

static void test_context(void *argument)
{
	uint64_t begin;
	struct rig rig;

	rig_open(&rig, argument, true);
	begin = clock_now();
	pl_close(rig.environment.near);
	check(clock_now() - begin < LIMIT);
	rig.environment.near = NULL;
	rig.environment.near_peer = NULL;
	environment_close(&rig.environment);
}

#define BOTH(name, function) \
	{ name " tcp", function, &tcp_manual, 60 }, \
	{ \
		name " local", function, &local_manual_setting, 60 \
	}

int main(void)
{
	static const struct test_case cases[] = {
		BOTH("one connection", test_one_connection),
		BOTH("context", test_context),
	};

	return cases_run("stream leave", cases, sizeof(cases) / sizeof(cases[0]));
}
