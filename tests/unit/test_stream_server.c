/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of a command that publishes, while it waits for room. */
#include <unistd.h>

#include "cmd/stream/stream_server.h"
#include "support/cases.h"
#include "support/check.h"

#define CONNECTIONS 20u

/* A command that waits for room looks once in a slice of time. Connections come and go faster, so one look must find many accepted. */
static void many_are_accepted_before_a_look(void *argument)
{
	struct pl_publisher_options stream = PL_PUBLISHER_OPTIONS_INIT;
	struct stream_share share = { 0 };
	struct cli_options options = { .quiet = true, .fabric = "tcp" };
	struct stream_server server = { .signals = -1 };
	struct pl_options client_options = PL_OPTIONS_INIT;
	struct pl_completion completions[CONNECTIONS];
	struct pl_peer *peers[CONNECTIONS];
	struct pl_context *client;
	struct pl_error error = { 0 };
	unsigned accepted = 0;
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
	/* Nothing starts further accepts here, as stream_server_wait() would. */
	while (accepted < CONNECTIONS) {
		int count = pl_poll(server.context, completions, CONNECTIONS);

		for (int i = 0; i < count; i++)
			accepted += completions[i].kind == PL_KIND_ACCEPT;
		usleep(1000);
	}
	for (unsigned i = 0; i < CONNECTIONS; i++)
		pl_peer_close(peers[i]);
	pl_close(client);
	stream_server_close(&server);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "many are accepted before a look", many_are_accepted_before_a_look, NULL, 120 },
	};

	return cases_run("stream server", cases, sizeof(cases) / sizeof(cases[0]));
}
