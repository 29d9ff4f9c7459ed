/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handshakes of many connections at once run on several engines of both ends. The callback that judges the other end runs
 * at the end of each handshake, on the thread of its engine.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "core/listener.h"
#include "peerlane/counters.h"
#include "support/cases.h"
#include "support/environment.h"

#define WORKERS 4
#define CONNECTIONS 24
#define PEERS_MAX 5

static const struct setting setting = { "handshakes", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 1, false,
					false,        false, false };

/* Threads that called the callback of a context, one at a time (tests/unit/test_callback_turns.c). */
struct witness {
	pthread_t threads[CONNECTIONS];
	unsigned count;
	unsigned calls;
	unsigned last_call;  /* this call returns only after the listener has begun to close; 0: none */
	atomic_bool reached; /* by that call */
	struct pl_listener *listener;
};

/* The closing thread cannot free the listener before the call returns: it waits for the lock of the engine that runs the call. */
static void await_close(struct pl_listener *listener)
{
	bool closed = false;

	while (!closed) {
		pthread_mutex_lock(&listener->lock);
		closed = listener->closed;
		pthread_mutex_unlock(&listener->lock);
		usleep(100);
	}
}

static int judge(void *user, const struct pl_identity *identity, struct pl_rights *rights)
{
	struct witness *witness = user;
	unsigned i = 0;

	(void)identity;
	(void)rights;
	while (i < witness->count && !pthread_equal(witness->threads[i], pthread_self()))
		i++;
	if (i == witness->count && i < CONNECTIONS)
		witness->threads[witness->count++] = pthread_self();
	if (++witness->calls == witness->last_call) {
		atomic_store(&witness->reached, true);
		await_close(witness->listener);
	}
	return 0;
}

struct rig {
	struct witness server_witness, client_witness;
	struct pl_context *server, *client;
	struct pl_listener *listener;
	char address[96];
};

static struct pl_context *open_witnessed(struct witness *witness, unsigned peers_max)
{
	struct pl_options options = setting_options(&setting);

	options.workers = WORKERS;
	options.peers_max = peers_max;
	options.authorize = judge;
	options.authorize_user = witness;
	return context_open_with(&options);
}

static void rig_open(struct rig *rig, unsigned peers_max)
{
	memset(rig, 0, sizeof(*rig));
	rig->server = open_witnessed(&rig->server_witness, peers_max);
	rig->client = open_witnessed(&rig->client_witness, 0);
	rig->listener = listener_open(&setting, rig->server, rig->address);
}

static void rig_close(struct rig *rig)
{
	pl_close(rig->client);
	pl_close(rig->server);
}

/* Connects CONNECTIONS times at once. Returns the number that succeeded. */
static unsigned connect_many(struct rig *rig, const char *refusal)
{
	struct pl_operation *operations[CONNECTIONS];
	struct pl_error error;
	unsigned succeeded = 0;

	for (unsigned i = 0; i < CONNECTIONS; i++)
		check_ok(pl_connect_start(rig->client, rig->address, AMPLE_TIME, i, &operations[i], &error), &error);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		if (pl_wait(operations[i], AMPLE_TIME, NULL, &error) == 0)
			succeeded++;
		else
			check_text(error.id, refusal);
	}
	return succeeded;
}

static void use_several_engines(void *argument)
{
	struct rig rig;

	(void)argument;
	rig_open(&rig, 0);
	check_number(connect_many(&rig, ""), CONNECTIONS);
	rig_close(&rig);
	check(rig.server_witness.count > 1);
	check(rig.client_witness.count > 1);
}

/* Engines that accept peers at the same time accept no more of them than the limit together. */
static void accept_as_many_as_the_limit(void *argument)
{
	struct rig rig;

	(void)argument;
	rig_open(&rig, PEERS_MAX);
	check_number(connect_many(&rig, "PEER-BUSY"), PEERS_MAX);
	rig_close(&rig);
}

static void expect_peers(struct pl_context *context, unsigned count)
{
	struct pl_context_info info = PL_CONTEXT_INFO_INIT;
	struct pl_queues queues = PL_QUEUES_INIT;
	struct pl_error error;

	check_ok(pl_context_query(context, &info, &error), &error);
	check_number(info.peers, count);
	check_ok(pl_context_queues(context, "tcp", &queues, &error), &error);
	check_number(queues.peers, count);
}

/* Each peer is counted by its home, of which there are several. */
static void count_peers_of_all_engines(void *argument)
{
	struct pl_peer *peers[2 * WORKERS];
	struct pl_error error;
	struct rig rig;

	(void)argument;
	rig_open(&rig, 0);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(peers); i++) {
		check_ok(pl_connect(rig.client, rig.address, AMPLE_TIME, &peers[i], &error), &error);
		expect_peers(rig.client, i + 1);
	}
	for (unsigned i = 0; i < PL_ARRAY_SIZE(peers); i++) {
		pl_peer_close(peers[i]);
		expect_peers(rig.client, 2 * WORKERS - i - 1);
	}
	rig_close(&rig);
}

/*
 * The listener, or the context, closes while engines shake hands: after some calls of the callback, during the next one. Later
 * handshakes wait for their calls meanwhile.
 */
static void close_during_handshakes(void *argument)
{
	(void)argument;
	for (unsigned round = 0; round < 10; round++) {
		struct pl_operation *operations[CONNECTIONS];
		struct pl_error error;
		struct rig rig;

		rig_open(&rig, 0);
		rig.server_witness.listener = rig.listener;
		rig.server_witness.last_call = round + 1;
		for (unsigned i = 0; i < CONNECTIONS; i++)
			check_ok(pl_connect_start(rig.client, rig.address, AMPLE_TIME, i, &operations[i], &error),
				 &error);
		while (!atomic_load(&rig.server_witness.reached))
			usleep(100);
		if (round % 2)
			pl_listener_close(rig.listener);
		pl_close(rig.server);
		for (unsigned i = 0; i < CONNECTIONS; i++)
			pl_wait(operations[i], AMPLE_TIME, NULL, &error);
		pl_close(rig.client);
	}
}

static const struct test_case cases[] = {
	{ "several engines", use_several_engines, NULL, 60 },
	{ "peers_max", accept_as_many_as_the_limit, NULL, 60 },
	{ "count", count_peers_of_all_engines, NULL, 60 },
	{ "close", close_during_handshakes, NULL, 60 },
};

int main(void)
{
	return cases_run("handshake-engines", cases, PL_ARRAY_SIZE(cases));
}
