/* SPDX-License-Identifier: BSD-2-Clause */
/* pl_context_reload() and pl_cancel_posted() while a connection opens. */
#include <pthread.h>
#include <unistd.h>

#include "core/peer.h"
#include "support/cases.h"
#include "support/environment.h"

static const struct setting setting = {
	.name = "reload-opening",
	.fabric = "tcp",
	.host = "127.0.0.1",
	.progress = PL_PROGRESS_MANUAL,
	.lanes = 1,
	.key = true,
};

/* Call of a thread that visits all peers of a context. */
struct visit {
	struct pl_context *context;
	atomic_bool done;
};

static void *run_reload(void *argument)
{
	struct pl_credentials credentials = PL_CREDENTIALS_INIT;
	struct visit *reload = argument;
	struct pl_error error;

	credentials.key = test_key;
	credentials.key_length = sizeof(test_key);
	check_ok(pl_context_reload(reload->context, &credentials, &error), &error);
	atomic_store(&reload->done, true);
	return NULL;
}

static void *run_cancel(void *argument)
{
	struct visit *cancel = argument;

	check_number(pl_cancel_posted(cancel->context, 1), 0);
	atomic_store(&cancel->done, true);
	return NULL;
}

/*
 * The opening of a peer fails, and other engines still use it, while a thread begins to visit all peers: neither waits for the
 * other.
 */
static void visit_while_opening_ends(void *argument)
{
	void *(*const *run)(void *) = argument;
	struct pl_options options = setting_options(&setting);
	struct pl_context *server = context_open_with(&options);
	struct visit visit = { .context = context_open_with(&options) };
	struct pl_engine *engine = visit.context->engines[0];
	struct pl_operation *operation;
	struct pl_error error, failure;
	struct pl_peer *peer;
	pthread_t thread;
	char address[96];

	listener_open(&setting, server, address);
	check_ok(pl_connect_start(visit.context, address, AMPLE_TIME, 0, &operation, &error), &error);
	peer = operation->connecting;
	while (!peer->endpoint) {
		pl_engine_progress(server->engines[0]);
		pl_engine_progress(engine);
	}
	check_number(atomic_load(&peer->state), PL_PEER_OPENING);
	pl_engine_lock(engine);
	pl_fail(&failure, -ECONNRESET, "CONNECT-FAILED", "connect", NULL, NULL, "the test ends the connection");
	pl_peer_open_failed(peer, &failure);
	/* Gives up the endpoint. The task that ends its socket follows, and then the one that frees the peer. */
	check(pl_engine_run_tasks(engine, peer->task.run));
	check_number(atomic_load(&engine->task_count), 1);
	check_number(pthread_create(&thread, NULL, *run, &visit), 0);
	while (!atomic_load(&visit.done) && !atomic_load(&peer->pins))
		usleep(100);
	pl_engine_unlock(engine);
	check_number(pthread_join(thread, NULL), 0);
	check_status(pl_wait(operation, AMPLE_TIME, NULL, &error), -ECONNRESET, &error);
	pl_close(visit.context);
	pl_close(server);
}

/* Decisions of the end that connects. */
struct decision {
	unsigned calls;
	int result;
};

static int authorize(void *user, const struct pl_identity *identity, struct pl_rights *rights)
{
	struct decision *decision = user;

	(void)identity;
	(void)rights;
	decision->calls++;
	return decision->result;
}

/* A reload leaves out a peer that is exchanging proofs of the key: it is judged again before its channel opens. */
static void reload_while_proving(void *argument)
{
	struct pl_options options = setting_options(&setting);
	struct pl_credentials credentials = PL_CREDENTIALS_INIT;
	struct decision server_decision = { 0 }, decision = { 0 };
	struct pl_context *server, *client;
	struct pl_operation *operation;
	struct pl_error error;
	char address[96];

	(void)argument;
	options.authorize = authorize;
	options.authorize_user = &server_decision;
	server = context_open_with(&options);
	options.authorize_user = &decision;
	client = context_open_with(&options);
	listener_open(&setting, server, address);
	check_ok(pl_connect_start(client, address, AMPLE_TIME, 0, &operation, &error), &error);
	while (operation->connecting->proving != PL_PROOF_READ) {
		pl_engine_progress(server->engines[0]);
		pl_engine_progress(client->engines[0]);
	}
	check_number(decision.calls, 1);
	decision.result = -EACCES;
	credentials.key = test_key;
	credentials.key_length = sizeof(test_key);
	check_ok(pl_context_reload(client, &credentials, &error), &error);
	check_number(decision.calls, 1);
	while (atomic_load(&operation->state) != PL_DONE) {
		pl_engine_progress(server->engines[0]);
		pl_engine_progress(client->engines[0]);
	}
	check_status(pl_wait(operation, AMPLE_TIME, NULL, &error), -EACCES, &error);
	check_number(decision.calls, 2);
	pl_close(client);
	pl_close(server);
}

static void *(*const reload_visit)(void *) = run_reload;
static void *(*const cancel_visit)(void *) = run_cancel;

static const struct test_case cases[] = {
	{ "reload-while-opening-ends", visit_while_opening_ends, (void *)&reload_visit, 30 },
	{ "cancel-while-opening-ends", visit_while_opening_ends, (void *)&cancel_visit, 30 },
	{ "reload-while-proving", reload_while_proving, NULL, 30 },
};

int main(void)
{
	return cases_run("reload-opening", cases, PL_ARRAY_SIZE(cases));
}
