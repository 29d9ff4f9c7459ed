/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The other end answers no more, which the socket shows by an error after `keepalive`: the error of the lost peer names that
 * option. The other end reads nothing and its buffers are full, so that the kernel ends the connection. The time begins only
 * when the socket is full, however long that takes.
 */
#include <netinet/tcp.h>
#include <string.h>

#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/full_channel.h"
#include "support/pair.h"

#define LENGTH ((size_t)32 << 20)

static const struct setting setting = {
	.name = "silent-host", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

/* The far end reads nothing from here on. */
static void pair_open_silent(struct pair *pair)
{
	struct scenario_environment *environment = &pair->environment;
	struct pl_options options = setting_options(&setting);

	*environment = (struct scenario_environment){ .setting = &setting };
	options.keepalive = 3600 * SECOND;
	environment->near = context_open_with(&options);
	environment->far = context_open_with(&options);
	drive(environment, environment->near);
	drive(environment, environment->far);
	environment->listener = listener_open(&setting, environment->far, environment->address);
	connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
		     &environment->far_peer);
	buffer_open(&pair->near, environment->near, LENGTH, PL_ACCESS_LOCAL);
	buffer_open(&pair->far, environment->far, LENGTH, PL_ACCESS_ALL);
	pair->remote = share(environment, pair->far.region, environment->near_peer, NULL);
	drive_no_more(environment, environment->far);
}

/* The kernel ends the connection soon, as after `keepalive`. */
static void end_patience(int fd)
{
	unsigned milliseconds = 1;

	check_number(setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds)), 0);
}

static void check_loss(const struct pl_error *error)
{
	check_text(error->id, "PEER-LOST");
	check(strstr(error->message, "the time of keepalive"));
	check(strstr(error->hint, "keepalive"));
}

/* A data socket is full. */
static void silent_lane(void *unused)
{
	struct pl_operation *operation;
	struct tcp_lane *lane;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	pair_open_silent(&pair);
	check_ok(pl_write(pair.environment.near_peer,
			  &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, LENGTH }, NULL, &operation,
			  &error),
		 &error);
	lane = tcp_endpoint_of(pair.environment.near_peer->endpoint)->lanes[0];
	progress_until(&pair.environment, lane->blocked);
	end_patience(lane->stream.fd);
	check_number(await(&pair.environment, operation, NULL, &error), -ECONNRESET);
	check_loss(&error);
	pair_close(&pair);
}

/* The control channel is full. */
static void silent_channel(void *unused)
{
	struct pl_completion completion;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	pair_open_silent(&pair);
	pl_engine_lock(pair.environment.near_peer->home);
	full_channel_fill(pair.environment.near_peer);
	pl_engine_unlock(pair.environment.near_peer->home);
	end_patience(pair.environment.near_peer->channel.stream.fd);
	collect(&pair.environment, pair.environment.near, &completion, 1);
	check_number(completion.kind, PL_KIND_LOST);
	check_number(pl_completion_error(pair.environment.near, &completion, &error), -ECONNRESET);
	check_loss(&error);
	pair_close(&pair);
}

static const struct test_case cases[] = {
	{ "lane", silent_lane, NULL, 60 },
	{ "channel", silent_channel, NULL, 60 },
};

int main(void)
{
	return cases_run("silent-host", cases, PL_ARRAY_SIZE(cases));
}
