/* SPDX-License-Identifier: BSD-2-Clause */
/* Many handshakes at once: an engine takes a few steps of them in a batch of events, and serves its peers between. */
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "control/stream.h"
#include "core/context.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/socket.h"

#define STRANGERS 32 /* fit in one batch of events */

static const struct setting setting = {
	"rounds", "tcp", "127.0.0.1", PL_PROGRESS_MANUAL, 1, true, false, false, false
};

static unsigned count_readable(const int fds[STRANGERS])
{
	struct pollfd sockets[STRANGERS];
	unsigned count = 0;

	for (unsigned i = 0; i < STRANGERS; i++)
		sockets[i] = (struct pollfd){ fds[i], POLLIN, 0 };
	check(poll(sockets, STRANGERS, 0) >= 0);
	for (unsigned i = 0; i < STRANGERS; i++)
		count += sockets[i].revents & POLLIN;
	return count;
}

/* Drives a context round by round until all strangers have been sent bytes: to a few of them in a round. */
static void expect_few_a_round(struct pl_context *context, const int fds[STRANGERS])
{
	unsigned answered = count_readable(fds);

	while (answered < STRANGERS) {
		unsigned before = answered;

		pl_context_progress(context);
		answered = count_readable(fds);
		check(answered - before <= PL_ENGINE_COMPUTATIONS);
	}
}

/* Strangers send the first messages of handshakes, then a peer writes. */
static void accept_many(void *argument)
{
	struct scenario_environment environment;
	struct pl_stream streams[STRANGERS];
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct buffer near, far;
	struct pl_error error;
	int fds[STRANGERS];

	(void)argument;
	environment_open(&environment, &setting);
	buffer_open(&near, environment.near, 64, PL_ACCESS_ALL);
	buffer_open(&far, environment.far, 64, PL_ACCESS_ALL);
	pattern_fill(near.bytes, 64, 1, 0);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	for (unsigned i = 0; i < STRANGERS; i++) {
		fds[i] = socket_connect(environment.address);
		check(fds[i] >= 0);
	}
	progress_until(&environment, atomic_load(&environment.far->greetings[0]) == STRANGERS);
	for (unsigned i = 0; i < STRANGERS; i++) {
		check_ok(pl_stream_open(&streams[i], fds[i], environment.near->tls, false, &error), &error);
		check_number(pl_stream_handshake(&streams[i], "the far end", &error), -EAGAIN);
	}
	check_ok(pl_write(environment.near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, 64 }, NULL,
			  &operation, &error),
		 &error);
	while (!pattern_matches(far.bytes, 64, 1, 0)) {
		pl_context_progress(environment.near);
		pl_context_progress(environment.far);
		/* The batch before the peer's bytes were there, and the batch that brought them. */
		check(count_readable(fds) <= 2 * PL_ENGINE_COMPUTATIONS);
	}
	expect_few_a_round(environment.far, fds);
	complete(&environment, operation, NULL);
	for (unsigned i = 0; i < STRANGERS; i++)
		pl_stream_close(&streams[i]);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
}

/* A program connects to many listeners at once. */
static void connect_many(void *argument)
{
	struct pl_context *context = context_open(&setting);
	struct pl_operation *operations[STRANGERS];
	struct pl_error error;
	int listener, fds[STRANGERS];
	char address[32];

	(void)argument;
	listener = socket_listen(address);
	for (unsigned i = 0; i < STRANGERS; i++)
		check_ok(pl_connect_start(context, address, AMPLE_TIME, i, &operations[i], &error), &error);
	for (unsigned i = 0; i < STRANGERS; i++)
		fds[i] = socket_accept(listener);
	check_number(count_readable(fds), 0);
	expect_few_a_round(context, fds);
	for (unsigned i = 0; i < STRANGERS; i++) {
		pl_cancel(operations[i]);
		check_status(pl_wait(operations[i], AMPLE_TIME, NULL, &error), -ECANCELED, &error);
		close(fds[i]);
	}
	close(listener);
	pl_close(context);
}

static const struct test_case cases[] = {
	{ "accept", accept_many, NULL, 60 },
	{ "connect", connect_many, NULL, 60 },
};

int main(void)
{
	return cases_run("handshake-rounds", cases, PL_ARRAY_SIZE(cases));
}
