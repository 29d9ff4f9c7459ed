/* SPDX-License-Identifier: BSD-2-Clause */
/* Imports whose connection breaks at the answer, at either end, and releases without memory. */
#include <sys/socket.h>

#include "core/fabric.h"
#include "fabric/local/local.h"
#include "support/cases.h"
#include "support/local.h"

/* Checks that an import which fails because the answer's descriptor socket is broken leaves no remote region. */
static void answer_breaks_peer(void *argument)
{
	struct pl_imported answer = { .status = PL_WIRE_OK, .length = 8, .rights = PL_ACCESS_READ, .key_length = 8 };
	struct scenario_environment environment;
	struct pl_operation *operation;
	struct pl_completion completion;
	struct pl_region *region;
	struct pl_error error;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	bool none;

	(void)argument;
	environment_open(&environment, &local_manual);
	check_ok(pl_region_allocate(environment.far, 4096, PL_ACCESS_ALL, &region, &error), &error);
	check_ok(pl_region_share(region, NULL, token, &length, &error), &error);
	check_ok(pl_remote_import_start(environment.near_peer, token, length, 0, &operation, &error), &error);
	/* Sends the request. The answer comes while the other end does nothing. */
	pl_engine_lock(environment.near_peer->home);
	pl_engine_unlock(environment.near_peer->home);
	pl_engine_lock(environment.near_peer->home);
	check_number(send(local_endpoint_of(environment.far_peer->endpoint)->fd_socket.fd, "x", 1, MSG_NOSIGNAL), 1);
	answer.request = operation->request;
	pl_imported_arrived(environment.near_peer, &answer);
	check_number(atomic_load(&environment.near_peer->state), PL_PEER_LOST);
	pl_engine_unlock(environment.near_peer->home);
	check_status(pl_wait(operation, AMPLE_TIME, &completion, &error), -EPROTO, &error);
	check(!completion.remote);
	pthread_mutex_lock(&environment.near->lock);
	none = pl_list_empty(&environment.near->remotes);
	pthread_mutex_unlock(&environment.near->lock);
	check(none);
	environment_close(&environment);
}

/* Checks that an answer which cannot be sent names the connection, and not memory. */
static void answer_unsent(void *argument)
{
	static const struct setting setting = {
		.name = "answer-unsent", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
	};
	const struct pl_imported answer = { .request = 1, .status = PL_WIRE_UNKNOWN_KEY };
	struct scenario_environment environment;
	struct pl_peer *peer;

	(void)argument;
	environment_open(&environment, &setting);
	peer = environment.far_peer;
	pl_engine_lock(peer->home);
	check(!shutdown(peer->channel.stream.fd, SHUT_RDWR));
	pl_import_answer(peer, &answer);
	check_number(atomic_load(&peer->state), PL_PEER_LOST);
	check_text(peer->loss.id, "PEER-LOST");
	pl_engine_unlock(peer->home);
	environment_close(&environment);
}

/* -- releases without memory: the test drives both ends ------------------------------------------- */

static void *fail_to_allocate(size_t size, void *user)
{
	(void)size;
	(void)user;
	return NULL;
}

static void *fail_to_reallocate(void *pointer, size_t size, void *user)
{
	(void)pointer;
	return fail_to_allocate(size, user);
}

/* An end whose messages need memory that is missing. */
struct poor_end {
	struct pl_engine *engine;
	struct pl_allocator *allocator, before;
};

/* The engine's memory for messages is another channel's. `all`: other allocations fail, too. */
static void poor_end_begin(struct poor_end *poor, struct pl_peer *peer, bool all)
{
	poor->engine = peer->home;
	poor->allocator = &peer->context->allocator;
	poor->before = *poor->allocator;
	check(!poor->engine->messages_owner);
	poor->engine->messages_owner = poor;
	poor->allocator->reallocate = fail_to_reallocate;
	if (all)
		poor->allocator->allocate = fail_to_allocate;
}

static void poor_end_finish(struct poor_end *poor)
{
	*poor->allocator = poor->before;
	poor->engine->messages_owner = NULL;
}

static bool has_keys(struct pl_peer *peer)
{
	return pl_index_table_used(&peer->keys) != 0;
}

/* Checks that the owner learns of the release of a remote region once there is memory. */
static void release_without_memory(void *argument)
{
	struct scenario_environment environment;
	struct poor_end poor;
	struct pl_remote *remote;
	struct buffer far;

	environment_open(&environment, argument);
	buffer_open(&far, environment.far, 4096, PL_ACCESS_ALL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	poor_end_begin(&poor, environment.near_peer, true);
	pl_remote_release(remote);
	poor_end_finish(&poor);
	check(has_keys(environment.far_peer));
	progress_until(&environment, !has_keys(environment.far_peer));
	buffer_close(&far);
	environment_close(&environment);
}

/* Begins an import and cancels it, before the owner has answered it. */
static void cancel_import(struct scenario_environment *environment, struct pl_region *region)
{
	struct pl_operation *operation;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;

	check_ok(pl_region_share(region, NULL, token, &length, &error), &error);
	check_ok(pl_remote_import_start(environment->near_peer, token, length, 0, &operation, &error), &error);
	pl_cancel(operation);
	check_status(pl_wait(operation, AMPLE_TIME, NULL, &error), -ECANCELED, &error);
}

/* Makes the far end answer, and hands the answer to the near end, which has no memory. */
static void answer_canceled_import(struct scenario_environment *environment, bool all)
{
	struct poor_end poor;

	while (!has_keys(environment->far_peer))
		pl_poll(environment->far, NULL, 0);
	poor_end_begin(&poor, environment->near_peer, all);
	while (environment->near_peer->imports_under_way)
		pl_engine_progress(environment->near_peer->home);
	poor_end_finish(&poor);
}

/* Checks the release of a key whose import was cancelled: it is kept. */
static void canceled_import_without_memory(void *argument)
{
	struct scenario_environment environment;
	struct buffer far;

	environment_open(&environment, argument);
	buffer_open(&far, environment.far, 4096, PL_ACCESS_ALL);
	cancel_import(&environment, far.region);
	answer_canceled_import(&environment, false);
	check(has_keys(environment.far_peer));
	progress_until(&environment, !has_keys(environment.far_peer));
	buffer_close(&far);
	environment_close(&environment);
}

/* The same without any memory: the connection ends. */
static void canceled_import_without_any_memory(void *argument)
{
	struct scenario_environment environment;
	struct buffer far;

	environment_open(&environment, argument);
	buffer_open(&far, environment.far, 4096, PL_ACCESS_ALL);
	cancel_import(&environment, far.region);
	answer_canceled_import(&environment, true);
	progress_until(&environment, atomic_load(&environment.near_peer->state) == PL_PEER_LOST &&
					     atomic_load(&environment.far_peer->state) == PL_PEER_LOST);
	buffer_close(&far);
	environment_close(&environment);
}

int main(void)
{
	static const struct setting manual = {
		.name = "manual", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
	};
	static const struct test_case cases[] = {
		{ "answer breaks peer", answer_breaks_peer, NULL, 60 },
		{ "answer unsent", answer_unsent, NULL, 60 },
		{ "release without memory", release_without_memory, (void *)&manual, 60 },
		{ "canceled import without memory", canceled_import_without_memory, (void *)&manual, 60 },
		{ "canceled import without any memory", canceled_import_without_any_memory, (void *)&manual, 60 },
	};

	return cases_run("import-answer", cases, PL_ARRAY_SIZE(cases));
}
