/* SPDX-License-Identifier: BSD-2-Clause */
/* Imports whose connection breaks at the answer, at either end. */
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

int main(void)
{
	static const struct test_case cases[] = {
		{ "answer breaks peer", answer_breaks_peer, NULL, 60 },
		{ "answer unsent", answer_unsent, NULL, 60 },
	};

	return cases_run("import-answer", cases, PL_ARRAY_SIZE(cases));
}
