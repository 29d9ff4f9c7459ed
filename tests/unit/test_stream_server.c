/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of a command that publishes, while it waits for room. */
#include <unistd.h>

#include "cmd/stream/stream_server.h"
#include "core/listener.h"
#include "support/cases.h"
#include "support/check.h"

#define CONNECTIONS 60u

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
	/* Now and then the engine's thread runs an accept, and the look ends before it. */
	for (; count_unaccepted(&server); looks++)
		stream_server_wait(&server, -1, CLI_NS_PER_S);
	check(looks < CONNECTIONS / 2);
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
