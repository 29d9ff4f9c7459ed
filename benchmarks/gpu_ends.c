/* SPDX-License-Identifier: BSD-2-Clause */
#include "gpu_ends.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE (600 * NS_PER_S) /* other shapes of the program may be measured first */

static void allocate_region(struct pl_context *context, int gpu, size_t bytes, unsigned access,
			    struct pl_region **region)
{
	struct pl_error error;
	char kind[24];

	snprintf(kind, sizeof(kind), gpu < 0 ? "host" : "cuda:%d", gpu);
	MUST(pl_region_allocate_in(context, kind, bytes, access, region, &error), &error);
}

static _Noreturn void serve(int fd, int gpu, void *(*allocate)(int gpu), size_t bytes, unsigned peers)
{
	struct gpu_server server = { .token_length = PL_TOKEN_MAX };
	struct pl_listener *listener;
	struct pl_context *context;
	struct pl_region *region;
	struct pl_error error;
	struct pl_peer *peer;
	char byte;

	MUST(pl_open(&context, NULL, &error), &error);
	if (allocate)
		MUST(pl_region_register(context, allocate(gpu), bytes, PL_ACCESS_ALL, &region, &error), &error);
	else
		allocate_region(context, gpu, bytes, PL_ACCESS_ALL, &region);
	MUST(pl_listen(context, "127.0.0.1:0", &listener, &error), &error);
	pl_listener_address(listener, server.address, sizeof(server.address));
	MUST(pl_region_share(region, NULL, server.token, &server.token_length, &error), &error);
	put(fd, &server, sizeof(server));
	for (unsigned i = 0; i < peers; i++)
		MUST(pl_accept(listener, PATIENCE, &peer, &error), &error);
	get(fd, &byte, 1);
	pl_close(context);
	exit(0);
}

void gpu_server_start(struct gpu_server *server, int gpu, void *(*allocate)(int gpu), size_t bytes, unsigned peers)
{
	int pair[2];
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		give_up("socketpair", -errno, NULL);
	child = fork();
	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Each process keeps one end only, so that it notices the exit of the other process. */
	close(pair[child != 0]);
	if (child == 0)
		serve(pair[1], gpu, allocate, bytes, peers);
	get(pair[0], server, sizeof(*server));
	server->fd = pair[0];
	server->process = child;
}

void gpu_server_end(const struct gpu_server *server)
{
	put(server->fd, "", 1);
	waitpid(server->process, NULL, 0);
}

void gpu_session_open(struct gpu_session *session, const struct gpu_server *server, const struct pl_options *options,
		      int gpu, size_t bytes)
{
	struct pl_error error;

	MUST(pl_open(&session->context, options, &error), &error);
	allocate_region(session->context, gpu, bytes, PL_ACCESS_LOCAL, &session->region);
	MUST(pl_connect(session->context, server->address, PATIENCE, &session->peer, &error), &error);
	MUST(pl_remote_import(session->peer, server->token, server->token_length, PATIENCE, &session->remote, &error),
	     &error);
}
