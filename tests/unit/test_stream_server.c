/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of a command that publishes, while it waits for room. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "cmd/stream/stream_server.h"
#include "core/listener.h"
#include "support/cases.h"
#include "support/check.h"

#define CONNECTIONS 60u

static atomic_bool held; /* no engine's thread leaves epoll_wait() */
static atomic_uint held_threads;

/* Function of the C library, replaced in this program. */
int epoll_wait(int fd, struct epoll_event *events, int count, int timeout)
{
	static int (*_Atomic next)(int, struct epoll_event *, int, int);
	int found;

	if (!next)
		next = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
	found = atomic_load(&next)(fd, events, count, timeout);
	for (bool counted = false; atomic_load(&held); counted = true) {
		atomic_fetch_add(&held_threads, !counted);
		usleep(1000);
	}
	return found;
}

/* Holds the threads of a context's engines. The calling thread then runs the tasks that it posts. */
static void hold_engines(struct pl_context *context)
{
	atomic_store(&held, true);
	for (unsigned i = 0; i < context->engine_count; i++)
		pl_engine_wake(context->engines[i]);
}

static unsigned count_unaccepted(struct stream_server *server)
{
	unsigned count = 0;

	pthread_mutex_lock(&server->listener->lock);
	pl_list_for_each(at, &server->listener->backlog)
		count++;
	pthread_mutex_unlock(&server->listener->lock);
	return count;
}

/* A command that waits for room looks once in a slice of time. Connections come and go faster than that. */
static void one_look_takes_many_connections(void *argument)
{
	struct pl_publisher_options stream = PL_PUBLISHER_OPTIONS_INIT;
	struct stream_share share = { 0 };
	struct cli_options options = { .quiet = true, .fabric = "tcp" };
	struct stream_server server = { .signals = -1 };
	struct pl_options client_options = PL_OPTIONS_INIT;
	struct pl_peer *peers[CONNECTIONS];
	struct pl_context *client;
	struct pl_error error = { 0 };
	unsigned looks = 0;
	char address[80];

	(void)argument;
	stream.slot_bytes = 64;
	check_ok(stream_server_open(&server, &options, "test", &error), &error);
	check_ok(stream_server_publish(&server, "cam0", &stream, &share, &error), &error);
	check_ok(stream_server_listen(&server, "127.0.0.1:0", &share, &error), &error);
	pl_listener_address(server.listener, address, sizeof(address));
	client_options.fabric = "tcp";
	check_ok(pl_open(&client, &client_options, &error), &error);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		check_ok(pl_connect(client, address, UINT64_MAX, &peers[i], &error), &error);
	/* The accept that stream_server_listen() started has taken the first one. */
	while (count_unaccepted(&server) < CONNECTIONS - 1)
		usleep(1000);
	/* An engine's thread that runs an accept may do so after the look. */
	hold_engines(server.context);
	hold_engines(client);
	while (atomic_load(&held_threads) < server.context->engine_count + client->engine_count)
		usleep(1000);
	for (; count_unaccepted(&server); looks++)
		stream_server_wait(&server, -1, CLI_NS_PER_S);
	check_number(looks, 1);
	atomic_store(&held, false);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		pl_peer_close(peers[i]);
	pl_close(client);
	stream_server_close(&server);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "one look takes many connections", one_look_takes_many_connections, NULL, 300 },
	};

	return cases_run("stream server", cases, sizeof(cases) / sizeof(cases[0]));
}
