/* SPDX-License-Identifier: BSD-2-Clause */
/* Pacing of congestion control: connections on this host have none, those to other hosts keep it. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/socket.h"
#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/pair.h"

#define PACED "bbr"
/* A write of this size opens all lanes. */
#define LARGE ((size_t)8 << 20)
#define LANES 2u

static int socket_open(const char *algorithm)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	check(fd >= 0);
	if (algorithm && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, algorithm, (socklen_t)strlen(algorithm)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static const char *algorithm_of(int fd)
{
	static char name[PL_CONGESTION_NAME];
	socklen_t length = sizeof(name) - 1;

	memset(name, 0, sizeof(name));
	check_number(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
	return name;
}

static void resume(int fd, const char *address, const char *paced)
{
	struct sockaddr_in other = { .sin_family = AF_INET };

	check_number(inet_pton(AF_INET, address, &other.sin_addr), 1);
	pl_socket_resume_pacing(fd, (struct sockaddr *)&other, paced);
}

static void sockets_that_pace(void *unused)
{
	char paced[PL_CONGESTION_NAME];
	int fd = socket_open(PACED);

	(void)unused;
	pl_socket_stop_pacing(fd, paced);
	check_text(paced, PACED);
	check_text(algorithm_of(fd), "reno");
	resume(fd, "127.0.0.1", paced);
	check_text(algorithm_of(fd), "reno");
	resume(fd, "192.0.2.1", paced);
	check_text(algorithm_of(fd), PACED);
	close(fd);
}

/* The algorithm that the administrator chose stays. */
static void sockets_that_do_not(void *unused)
{
	char paced[PL_CONGESTION_NAME];
	int fd = socket_open("reno");

	(void)unused;
	pl_socket_stop_pacing(fd, paced);
	check_text(paced, "");
	resume(fd, "192.0.2.1", paced);
	check_text(algorithm_of(fd), "reno");
	close(fd);
}

/* A service manager's socket outlives this process. */
static void listener_of_others(void *unused)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct pl_options options = PL_OPTIONS_INIT;
	int fd = socket_open(PACED), kept;
	struct pl_listener *listener;
	struct pl_context *context;
	struct pl_error error;

	(void)unused;
	check_number(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	check_number(listen(fd, 1), 0);
	kept = dup(fd);
	check(kept >= 0);
	options.fabric = "tcp";
	check_ok(pl_open(&context, &options, &error), &error);
	check_ok(pl_listen_socket(context, fd, &listener, &error), &error);
	check_text(algorithm_of(kept), PACED);
	pl_listener_close(listener);
	pl_close(context);
	close(kept);
}

static void check_lanes(struct pl_peer *peer)
{
	struct tcp_endpoint *endpoint = tcp_endpoint_of(peer->endpoint);

	while (atomic_load(&endpoint->lanes_up) != tcp_sockets(LANES))
		usleep(1000);
	for (unsigned i = 0; i < tcp_sockets(LANES); i++)
		check(strncmp(algorithm_of(endpoint->lanes[i]->source.fd), PACED, strlen(PACED)) != 0);
}

/* Data sockets of both ends. Where no socket paces, this shows nothing. */
static void lanes_on_this_host(void *unused)
{
	const struct setting setting = {
		.name = "pacing", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = LANES
	};
	struct pl_operation *operation;
	struct pl_transfer transfer;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	pair_open(&pair, &setting, LARGE);
	transfer = (struct pl_transfer){ pair.remote, 0, pair.near.region, 0, LARGE };
	check_ok(pl_write(pair.environment.near_peer, &transfer, NULL, &operation, &error), &error);
	complete(&pair.environment, operation, NULL);
	check_lanes(pair.environment.near_peer);
	check_lanes(pair.environment.far_peer);
	pair_close(&pair);
}

static const struct test_case cases[] = {
	{ "sockets-that-pace", sockets_that_pace, NULL, 60 },
	{ "sockets-that-do-not", sockets_that_do_not, NULL, 60 },
	{ "listener-of-others", listener_of_others, NULL, 60 },
	{ "lanes-on-this-host", lanes_on_this_host, NULL, 120 },
};

int main(void)
{
	int fd = socket_open(PACED);

	if (fd < 0) {
		printf("skipped: the kernel offers no algorithm that paces\n");
		return 77;
	}
	close(fd);
	return cases_run("pacing", cases, sizeof(cases) / sizeof(cases[0]));
}
