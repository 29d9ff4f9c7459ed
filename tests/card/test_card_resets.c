/* SPDX-License-Identifier: BSD-2-Clause */
/* A card that its driver resets: the driver lets calls wait meanwhile. Transfers over another card go on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card/card.h"
#include "card/settings.h"
#include "fabric/verbs/verbs.h"
#include "support/cases.h"
#include "support/pair.h"

#define LIMIT 60 /* seconds, times slowness() */
#define LENGTH 4096u
#define WRITES 100u

/* Both ends lose the device of a rail. */
static void lose_device(const struct pair *pair, unsigned rail)
{
	struct pl_peer *const peers[] = { pair->environment.near_peer, pair->environment.far_peer };

	for (unsigned i = 0; i < 2; i++) {
		struct verbs_endpoint *endpoint = verbs_endpoint_of(peers[i]->endpoint);

		check(endpoint->rails[0].device != endpoint->rails[1].device);
		verbs_device_lost(endpoint->state, endpoint->rails[rail].device);
	}
}

static void writes_during_reset(void *argument)
{
	struct pl_operation *operation;
	struct pl_error error;
	struct pair pair;

	setenv("STANDIN_CARDS", "2", 1);
	rail_limit = 2;
	pair_open(&pair, argument, LENGTH);
	await_lanes(&pair.environment, 2);
	const struct pl_transfer transfer = { pair.remote, 0, pair.near.region, 0, LENGTH };

	card_hold_looks(true);
	lose_device(&pair, 1);
	progress_until(&pair.environment, card_looks_held() == 2);
	for (unsigned i = 0; i < WRITES; i++) {
		check_ok(pl_write(pair.environment.near_peer, &transfer, NULL, &operation, &error), &error);
		complete(&pair.environment, operation, NULL);
	}
	check_number(card_looks_held(), 2);
	/* The other device goes, too. Its driver may wait until both ends have closed it. */
	lose_device(&pair, 0);
	progress_until(&pair.environment, !card_counts_now().contexts);
	check_number(card_looks_held(), 2);
	card_hold_looks(false);
	/* The devices are back. */
	await_lanes(&pair.environment, 2);
	pair_close(&pair);
}

/* A rail breaks while the driver lets looks wait. It connects again with the ports that are known. */
static void connect_during_look(void *argument)
{
	struct pl_peer *peers[2];
	struct pair pair;

	rail_limit = 2;
	pair_open(&pair, argument, LENGTH);
	await_lanes(&pair.environment, 2);
	peers[0] = pair.environment.near_peer;
	peers[1] = pair.environment.far_peer;
	card_hold_looks(true);
	for (unsigned i = 0; i < 2; i++)
		atomic_store(&verbs_endpoint_of(peers[i]->endpoint)->state->stale, true);
	pl_engine_lock(peers[0]->home);
	verbs_fail(&verbs_endpoint_of(peers[0]->endpoint)->rails[1], "a test");
	check_number(peer_information_of(peers[0]).lanes, 1);
	pl_engine_unlock(peers[0]->home);
	await_lanes(&pair.environment, 2);
	progress_until(&pair.environment, card_looks_held() == 2);
	card_hold_looks(false);
	pair_close(&pair);
}

/* -- drivers that hang ---------------------------------------------------------------------------- */

/* The only device is never opened: the error of a connection names it. */
static void open_hangs(void *argument)
{
	const uint64_t *timeout = argument;
	struct scenario_environment environment;
	struct pl_operation *connecting;
	struct pl_error error;

	/* The first look has a quarter of the context's time for connecting, or of the connection's. */
	connect_time = *timeout ? UINT64_MAX : AMPLE_TIME / 8;
	environment_listen(&environment, &card_manual);
	/* Loads the library. */
	check(verbs_state_get(environment.near, &error));
	card_hold_opens(1u << 0);
	check_ok(pl_connect_start(environment.near, environment.address, *timeout, 0, &connecting, &error), &error);
	check_number(await(&environment, connecting, NULL, &error), -ETIMEDOUT);
	check_text(error.id, "RDMA-DEVICE-SILENT");
	check_text(error.object, "mlx5_0");
	card_hold_opens(0);
	pl_listener_close(environment.listener);
	pl_close(environment.near);
	pl_close(environment.far);
}

/* One of two devices is not opened for long: the other one serves meanwhile, and then both. */
static void one_open_hangs(void *argument)
{
	const unsigned *hanging = argument;
	struct pl_options options = setting_options(&card_manual);
	struct verbs_state *state;
	struct pl_context *context;
	struct pl_error error;
	char other[8];

	setenv("STANDIN_CARDS", "2", 1);
	options.connect_timeout = MS;
	context = context_open_with(&options);
	state = verbs_state_get(context, &error);
	check(state);
	card_hold_opens(1u << *hanging);
	do
		verbs_ports_look_now(state);
	while (!atomic_load(&state->place_count));
	check_number(atomic_load(&state->place_count), 1);
	snprintf(other, sizeof(other), "mlx5_%u", 1 - *hanging);
	check_text(state->places[0]->name, other);
	snprintf(other, sizeof(other), "mlx5_%u", *hanging);
	check_text(state->silent, other);
	/* Its events are watched, too. */
	pl_context_progress(context);
	check(state->places[0]->device->async.engine);
	card_hold_opens(0);
	do
		verbs_ports_look_now(state);
	while (atomic_load(&state->place_count) != 2);
	check_text(state->silent, "");
	pl_close(context);
}

/* -- other names ---------------------------------------------------------------------------------- */

/* A device that is renamed while it is in use is not opened again. Reports have its new name. */
static void renamed(void *argument)
{
	struct pl_event_query query = PL_EVENT_QUERY_INIT;
	struct pl_event_record records[32];
	struct verbs_state *states[2];
	struct pl_peer *peers[2];
	unsigned named = 0;
	struct pair pair;
	int count;

	(void)argument;
	pair_open(&pair, &card_manual, LENGTH);
	peers[0] = pair.environment.near_peer;
	peers[1] = pair.environment.far_peer;
	card_rename(0);
	for (unsigned i = 0; i < 2; i++) {
		states[i] = verbs_endpoint_of(peers[i]->endpoint)->state;
		verbs_ports_look_now(states[i]);
		check_number(atomic_load(&states[i]->place_count), 1);
		check_text(verbs_device_name(states[i]->places[0]->device), "renamed0");
	}
	check_number(card_counts_now().contexts, 2);
	pl_engine_lock(peers[0]->home);
	verbs_fail(&verbs_endpoint_of(peers[0]->endpoint)->rails[0], "a test");
	pl_engine_unlock(peers[0]->home);
	progress_until(&pair.environment, card_counts_now().connects == 2);
	await_lanes(&pair.environment, 1);
	count = pl_peer_events(peers[0], &query, records, 32);
	for (int i = 0; i < count; i++)
		named += strstr(records[i].text, "renamed0:1") != NULL;
	check(named > 0);
	check_number(card_counts_now().contexts, 2);
	pair_close(&pair);
}

/* Two devices swap names, and the first one is removed: the other one keeps its port, and gets none of the first one's. */
static void swapped(void *argument)
{
	struct verbs_device *first, *second;
	struct pl_context *context;
	struct verbs_state *state;
	struct pl_error error;

	(void)argument;
	setenv("STANDIN_CARDS", "2", 1);
	context = context_open(&card_manual);
	state = verbs_state_get(context, &error);
	check(state);
	verbs_ports_look_now(state);
	check_number(atomic_load(&state->place_count), 2);
	first = state->places[0]->device;
	second = state->places[1]->device;
	check_text(verbs_device_name(first), "mlx5_0");
	card_rename(0);
	strcpy(second->verbs->device->name, "mlx5_0");
	verbs_ports_look_now(state);
	check_text(verbs_device_name(first), "renamed0");
	check_text(verbs_device_name(second), "mlx5_0");
	atomic_store(&first->gone, true);
	verbs_ports_look_now(state);
	check(state->places[0]->device == first);
	check(state->places[1]->device == second);
	check_number(atomic_load(&state->place_count), 2);
	atomic_store(&first->gone, false);
	pl_close(context);
}

int main(void)
{
	const uint64_t context_time = 0, connection_time = AMPLE_TIME / 8;
	const unsigned first = 0, second = 1;
	const struct test_case cases[] = {
		{ "manual", writes_during_reset, (void *)&card_manual, LIMIT },
		{ "threads", writes_during_reset, (void *)&card_threads, LIMIT },
		{ "connect", connect_during_look, (void *)&card_manual, LIMIT },
		{ "connect-threads", connect_during_look, (void *)&card_threads, LIMIT },
		{ "open-hangs", open_hangs, &context_time, LIMIT },
		{ "open-hangs-connection", open_hangs, &connection_time, LIMIT },
		{ "first-open-hangs", one_open_hangs, (void *)&first, LIMIT },
		{ "second-open-hangs", one_open_hangs, (void *)&second, LIMIT },
		{ "renamed", renamed, NULL, LIMIT },
		{ "swapped", swapped, NULL, LIMIT },
	};

	return cases_run("resets", cases, sizeof(cases) / sizeof(cases[0]));
}
