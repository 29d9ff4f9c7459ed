/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The host has no port for a data socket: the connect fails at once, and says so. A local socket would try again. Other failures of the
 * socket have no such hint.
 */
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "support/cases.h"
#include "support/environment.h"

static const struct setting settings[] = {
	{ .name = "thread", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1 },
	{ .name = "manual", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1 },
};

/* Connections until the one that fails, and its error. */
static atomic_int connections_left, failure;

/* Replaces that of the C library. */
int connect(int fd, const struct sockaddr *address, socklen_t length)
{
	if (address->sa_family != AF_UNIX && atomic_fetch_sub(&connections_left, 1) == 1) {
		errno = atomic_load(&failure);
		return -1;
	}
	return (int)syscall(SYS_connect, fd, address, length);
}

/* The control channel connects, and the first lane fails. Another attempt would succeed. */
static void fail_lane(const struct setting *setting, int reason, int status, const char *id)
{
	struct scenario_environment environment;
	struct pl_operation *connect;
	struct pl_error error;

	environment_listen(&environment, setting);
	atomic_store(&failure, reason);
	atomic_store(&connections_left, 2);
	check_ok(pl_connect_start(environment.near, environment.address, AMPLE_TIME, 0, &connect, &error), &error);
	check_status(await(&environment, connect, NULL, &error), status, &error);
	check_text(error.id, id);
	check(atomic_load(&connections_left) <= 0);
	environment_close(&environment);
}

static void lane_without_port(void *argument)
{
	fail_lane(argument, EAGAIN, -EADDRNOTAVAIL, "CONNECT-PORTS");
}

static void lane_without_route(void *argument)
{
	fail_lane(argument, ENETUNREACH, -ECONNRESET, "PEER-LOST");
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "thread", lane_without_port, (void *)&settings[0], 60 },
		{ "manual", lane_without_port, (void *)&settings[1], 60 },
		{ "no route", lane_without_route, (void *)&settings[1], 60 },
	};

	return cases_run("connect-ports", cases, PL_ARRAY_SIZE(cases));
}
