/* SPDX-License-Identifier: BSD-2-Clause */
/* Load: many threads, many wake-ups, and no wake-up of an idle context. */
#include <poll.h>
#include <stdlib.h>

#include "scenarios/scenario.h"

/* Checks that each of many small operations wakes a thread that polls pl_fd(). */
static void descriptor_wakeups(struct scenario_environment *environment)
{
	const unsigned count = environment->setting->slow ? 500 : 3000;
	struct pollfd poll_fd = { pl_fd(environment->near), POLLIN, 0 };
	struct pl_completion completions[4];
	struct pl_remote *remote;
	struct buffer near, far;
	struct pl_error error;
	struct pump pump;
	unsigned done = 0;

	check(poll_fd.fd >= 0);
	check_number(pl_fd(environment->near), poll_fd.fd);
	buffer_open(&near, environment->near, 64, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, 64, PL_ACCESS_ALL);
	remote = share(environment, far.region, environment->near_peer, NULL);
	pump_start(environment, &pump, environment->far);
	while (done < count) {
		unsigned posted = 1 + done % 3;

		for (unsigned i = 0; i < posted; i++)
			check_ok(pl_write(environment->near_peer,
					  &(struct pl_transfer){ remote, 8 * i, near.region, 8 * i, 8 }, NULL, NULL,
					  &error),
				 &error);
		while (posted) {
			int got = pl_poll(environment->near, completions, 4);

			check(got >= 0 && (unsigned)got <= posted);
			for (int i = 0; i < got; i++)
				check_completion(environment->near, &completions[i], 0);
			posted -= (unsigned)got;
			done += (unsigned)got;
			if (posted && got < 4)
				check(poll(&poll_fd, 1, (int)AMPLE_MS) == 1);
		}
	}
	pump_stop(&pump);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
}

/* Checks that a notification without data wakes the receiving program, too. */
static void descriptor_notified(struct scenario_environment *environment)
{
	struct pollfd poll_fd = { pl_fd(environment->far), POLLIN, 0 };
	struct pl_completion completion;
	struct pl_error error;

	for (uint64_t i = 0; i < 500; i++) {
		struct pl_operation *operation;

		check_ok(pl_notify(environment->near_peer, i, NULL, 0, NULL, &operation, &error), &error);
		if (environment_manual(environment))
			check_number(pl_poll(environment->near, NULL, 0), 0);
		while (!pl_poll(environment->far, &completion, 1))
			check(poll(&poll_fd, 1, (int)AMPLE_MS) == 1);
		check_number(completion.kind, PL_KIND_NOTIFIED);
		check_number(completion.value, i);
		complete(environment, operation, NULL);
	}
}

/* Returns the processor time of 400 ms. Nothing completes meanwhile. */
static uint64_t time_of_idleness(struct scenario_environment *environment)
{
	struct pollfd poll_fd = { pl_fd(environment->near), POLLIN, 0 };
	struct pl_completion completion;
	uint64_t before = cpu_time();

	for (unsigned i = 0; i < 4; i++) {
		if (poll(&poll_fd, 1, 100) > 0)
			check_number(pl_poll(environment->near, &completion, 1), 0);
	}
	return cpu_time() - before;
}

/* Checks that an idle connection uses no processor time and its descriptor stays quiet. */
static void idle_connection(struct scenario_environment *environment)
{
	struct pl_completion completion;
	unsigned tries = 20;

	while (pl_poll(environment->near, &completion, 1))
		;
	/*
	 * On a busy machine, work of the opening may go on for a while, or pause and go on. A thread that polls with
	 * pauses has no two quiet times in a row.
	 */
	while (time_of_idleness(environment) >= 60 * MS || time_of_idleness(environment) >= 60 * MS) {
		progress(environment);
		check(--tries);
	}
}

struct worker {
	struct pl_peer *peer;
	struct pl_remote *remote;
	struct pl_region *region;
	uint8_t *bytes;
	unsigned number;
	pthread_t thread;
};

#define WORKERS 8
#define WORKER_ROUNDS 40
#define WORKER_SLOT 70000

static void wait_for_success(struct pl_operation *operation)
{
	struct pl_error error;

	check_ok(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
}

/* Writes and reads back the worker's own slot, and sends a message. */
static void *worker_run(void *argument)
{
	struct worker *worker = argument;
	uint64_t slot = worker->number * (uint64_t)WORKER_SLOT;
	uint8_t *bytes = worker->bytes + slot;
	struct pl_operation *operation;
	struct pl_error error;

	for (uint64_t i = 0; i < WORKER_ROUNDS; i++) {
		size_t length = i * 1777 % WORKER_SLOT;
		uint64_t seed = worker->number * 1000u + i;

		pattern_fill(bytes, length, seed, 0);
		check_ok(pl_write(worker->peer,
				  &(struct pl_transfer){ worker->remote, slot, worker->region, slot, length }, NULL,
				  &operation, &error),
			 &error);
		wait_for_success(operation);
		bytes_set(bytes, 0, length);
		check_ok(pl_read(worker->peer,
				 &(struct pl_transfer){ worker->remote, slot, worker->region, slot, length }, NULL,
				 &operation, &error),
			 &error);
		wait_for_success(operation);
		pattern_check(bytes, length, seed, 0);
		check_ok(pl_send_copy(worker->peer, worker->number, &seed, 8, NULL, &operation, &error), &error);
		wait_for_success(operation);
	}
	return NULL;
}

static void receive_worker_messages(struct scenario_environment *environment, struct pl_peer *peer, unsigned number)
{
	struct pl_operation *operation;
	struct pl_error error;
	struct buffer to;

	buffer_open(&to, environment->far, 8, PL_ACCESS_LOCAL);
	for (uint64_t i = 0; i < WORKER_ROUNDS; i++) {
		uint64_t value;

		check_ok(pl_receive(peer, number, UINT64_MAX, &(struct pl_buffer){ to.region, 0, 8 }, NULL, &operation,
				    &error),
			 &error);
		complete(environment, operation, NULL);
		bytes_get(to.bytes, &value, 8);
		check_number(value, number * 1000u + i);
	}
	buffer_close(&to);
}

static void threads_one_peer(struct scenario_environment *environment)
{
	struct worker workers[WORKERS];
	struct buffer near, far;
	struct pl_remote *remote;
	struct pump pump;

	buffer_open(&near, environment->near, WORKERS * WORKER_SLOT, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, WORKERS * WORKER_SLOT, PL_ACCESS_ALL);
	remote = share(environment, far.region, environment->near_peer, NULL);
	pump_start(environment, &pump, environment->far);
	for (unsigned i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){ environment->near_peer, remote, near.region, near.bytes, i, 0 };
		check_number(pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]), 0);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		receive_worker_messages(environment, environment->far_peer, i);
	for (unsigned i = 0; i < WORKERS; i++)
		pthread_join(workers[i].thread, NULL);
	pump_stop(&pump);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
}

#define CONNECTORS 4
#define CONNECTIONS 5

/* Connector thread, which imports the token of a shared region of `far`. */
struct connector {
	struct scenario_environment *environment;
	uint8_t token[PL_TOKEN_MAX];
	size_t token_length;
	unsigned number;
	pthread_t thread;
};

/* Makes, uses and closes connections in one context that all connector threads share. */
static void *connector_run(void *argument)
{
	struct connector *connector = argument;
	struct scenario_environment *environment = connector->environment;
	uint64_t slot = connector->number * (uint64_t)WORKER_SLOT;
	struct pl_error error;

	for (unsigned round = 0; round < CONNECTIONS; round++) {
		struct pl_operation *operation;
		struct pl_remote *remote;
		struct pl_peer *peer;
		struct buffer near;

		buffer_open(&near, environment->near, WORKER_SLOT, PL_ACCESS_LOCAL);
		pattern_fill(near.bytes, WORKER_SLOT, connector->number, 0);
		check_ok(pl_connect(environment->near, environment->address, 0, &peer, &error), &error);
		check_ok(pl_remote_import(peer, connector->token, connector->token_length, 0, &remote, &error), &error);
		check_ok(pl_write(peer, &(struct pl_transfer){ remote, slot, near.region, 0, WORKER_SLOT }, NULL,
				  &operation, &error),
			 &error);
		wait_for_success(operation);
		bytes_set(near.bytes, 0, WORKER_SLOT);
		check_ok(pl_read(peer, &(struct pl_transfer){ remote, slot, near.region, 0, WORKER_SLOT }, NULL,
				 &operation, &error),
			 &error);
		wait_for_success(operation);
		pattern_check(near.bytes, WORKER_SLOT, connector->number, 0);
		pl_remote_release(remote);
		pl_peer_close(peer);
		buffer_close(&near);
	}
	return NULL;
}

static void threads_own_peers(struct scenario_environment *environment)
{
	struct connector connectors[CONNECTORS];
	struct pl_peer *accepted[CONNECTORS * CONNECTIONS];
	struct pl_error error;
	struct buffer far;
	struct pump pump;

	buffer_open(&far, environment->far, CONNECTORS * WORKER_SLOT, PL_ACCESS_ALL);
	pump_start(environment, &pump, environment->far);
	for (unsigned i = 0; i < CONNECTORS; i++) {
		struct connector *connector = &connectors[i];

		*connector =
			(struct connector){ .environment = environment, .number = i, .token_length = PL_TOKEN_MAX };
		check_ok(pl_region_share(far.region, NULL, connector->token, &connector->token_length, &error), &error);
		check_number(pthread_create(&connector->thread, NULL, connector_run, connector), 0);
	}
	for (unsigned i = 0; i < CONNECTORS * CONNECTIONS; i++)
		check_ok(pl_accept(environment->listener, AMPLE_TIME, &accepted[i], &error), &error);
	for (unsigned i = 0; i < CONNECTORS; i++)
		pthread_join(connectors[i].thread, NULL);
	pump_stop(&pump);
	for (unsigned i = 0; i < CONNECTORS * CONNECTIONS; i++)
		pl_peer_close(accepted[i]);
	for (unsigned i = 0; i < CONNECTORS; i++)
		pattern_check(far.bytes + i * (size_t)WORKER_SLOT, WORKER_SLOT, i, 0);
	buffer_close(&far);
}

const struct scenario load_scenarios[] = {
	{ "descriptor-wakeups", descriptor_wakeups, 0 },
	{ "descriptor-notified", descriptor_notified, SCENARIO_SETTING },
	{ "idle", idle_connection, 0 },
	{ "threads-one-peer", threads_one_peer, 0 },
	{ "threads-own-peers", threads_own_peers, 0 },
	{ NULL, NULL, 0 },
};
