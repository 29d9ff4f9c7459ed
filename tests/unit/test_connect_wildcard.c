/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A host whose kernel has sockets of IPv6, but no address: the address of a listener of all addresses is the wildcard of IPv6, and
 * leads to the listener all the same.
 */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "support/cases.h"
#include "support/environment.h"

static const struct setting settings[] = {
	{ .name = "tcp", .fabric = "tcp", .host = "[::]", .progress = PL_PROGRESS_THREAD, .lanes = 1 },
	{ .name = "local", .fabric = "local", .host = "[::]", .progress = PL_PROGRESS_MANUAL, .lanes = 1 },
};

/* Replaces that of the C library. */
int connect(int fd, const struct sockaddr *address, socklen_t length)
{
	if (address->sa_family == AF_INET6) {
		errno = EADDRNOTAVAIL;
		return -1;
	}
	return (int)syscall(SYS_connect, fd, address, length);
}

static void wildcard_is_reached(void *argument)
{
	struct scenario_environment environment;
	struct pl_peer_info info;

	environment_open(&environment, argument);
	check(!strncmp(environment.address, "[::]:", 5));
	info = peer_information_of(environment.near_peer);
	check(!strncmp(info.address, "127.0.0.1:", 10));
	environment_close(&environment);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "tcp", wildcard_is_reached, (void *)&settings[0], 60 },
		{ "local", wildcard_is_reached, (void *)&settings[1], 60 },
	};
	int fd = socket(AF_INET6, SOCK_STREAM, 0);

	if (fd < 0) {
		printf("the kernel has no sockets of IPv6\n");
		return SKIPPED;
	}
	close(fd);
	return cases_run("connect-wildcard", cases, PL_ARRAY_SIZE(cases));
}
