/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * card_peers [PEERS]: cost of connected peers over the stand-in card, both ends in this process: connections a second,
 * and resident memory of a peer at both ends together, with the idle queue pairs of the stand-in. No test: a benchmark.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "support/pair.h"

#define PEERS 1000u
/* Connections under way. */
#define TOGETHER 64u
#define TIMEOUT (60 * 1000000000ull)

static struct pl_context *open_end(void)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *context;
	struct pl_error error;

	options.fabric = "verbs";
	options.insecure = true;
	check_ok(pl_open(&context, &options, &error), &error);
	return context;
}

static void connect_some(struct pl_context *context, struct pl_listener *listener, const char *address, unsigned count)
{
	struct pl_operation *operations[TOGETHER];
	struct pl_error error;
	struct pl_peer *peer;

	for (unsigned i = 0; i < count; i++)
		check_ok(pl_connect_start(context, address, TIMEOUT, 0, &operations[i], &error), &error);
	for (unsigned i = 0; i < count; i++)
		check_ok(pl_accept(listener, TIMEOUT, &peer, &error), &error);
	for (unsigned i = 0; i < count; i++)
		check_ok(pl_wait(operations[i], TIMEOUT, NULL, &error), &error);
}

int main(int argc, char **argv)
{
	unsigned peers = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : PEERS;
	struct pl_context *server = open_end(), *client = open_end();
	struct pl_listener *listener;
	struct pl_error error;
	struct rlimit limit;
	char address[80];
	uint64_t began, before;
	double seconds;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (!peers || peers > limit.rlim_max / 2 - 200) {
		fprintf(stderr, "card_peers: PEERS is 1 to %lu, half of the limit of descriptors\n",
			(unsigned long)(limit.rlim_max / 2 - 200));
		return 2;
	}
	check_ok(pl_listen(server, "127.0.0.1:0", &listener, &error), &error);
	pl_listener_address(listener, address, sizeof(address));
	/* The first peers make queues and receives, which all share. */
	connect_some(client, listener, address, TOGETHER);
	before = resident_memory();
	began = clock_now();
	for (unsigned done = 0; done < peers; done += TOGETHER)
		connect_some(client, listener, address, peers - done < TOGETHER ? peers - done : TOGETHER);
	seconds = (double)(clock_now() - began) / 1e9;
	printf("%u peers: %.0f connections a second, %.1f KiB a peer at both ends\n", peers, peers / seconds,
	       (double)(resident_memory() - before) / peers / 1024);
	pl_close(client);
	pl_close(server);
	return 0;
}
