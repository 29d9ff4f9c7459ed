/* SPDX-License-Identifier: BSD-2-Clause */
/* The host has no port for a data socket: the connect fails at once, and says so. A local socket would try again. */
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

/* Connections until the one that fails. */
static atomic_int connections_left;

/* Replaces that of the C library. */
int connect(int fd, const struct sockaddr *address, socklen_t length)
{
	if (address->sa_family != AF_UNIX && atomic_fetch_sub(&connections_left, 1) == 1) {
		errno = EAGAIN;
		return -1;
	}
	return (int)syscall(SYS_connect, fd, address, length);
}

static void lane_without_port(void *argument)
{
	struct scenario_environment environment;
	struct pl_operation *connect;
	struct pl_error error;

	environment_listen(&environment, argument);
	/* The control channel, then the first lane. Another attempt would succeed. */
	atomic_store(&connections_left, 2);
	check_ok(pl_connect_start(environment.near, environment.address, AMPLE_TIME, 0, &connect, &error), &error);
	check_status(await(&environment, connect, NULL, &error), -EADDRNOTAVAIL, &error);
	check_text(error.id, "CONNECT-PORTS");
	check(atomic_load(&connections_left) <= 0);
	environment_close(&environment);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "thread", lane_without_port, (void *)&settings[0], 60 },
		{ "manual", lane_without_port, (void *)&settings[1], 60 },
	};

	return cases_run("connect-ports", cases, PL_ARRAY_SIZE(cases));
}
