/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * idle_peers [PEERS [KEY [HOST]]]: cost of idle connected peers: time to connect all, resident memory of each end,
 * processor time while idle.  KEY is a pre-shared key for TLS, "" for none.  HOST is an address of this host (default:
 * 127.0.0.1); that of an RDMA device gives queue pairs.  Prints one JSON object.
 */
#include "support.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEERS 1000
#define PEERS_MAX 10000
#define IDLE_SECONDS 5
#define TIMEOUT (30 * NS_PER_S)

/* Cost at one end. */
struct cost {
	long memory;        /* bytes for each peer */
	uint64_t processor; /* nanoseconds, while idle */
	uint64_t close;     /* nanoseconds to close all */
};

struct run {
	unsigned peers;
	const char *key, *host;
	int socket; /* to the other process */
};

static struct pl_context *open_context(const struct run *run)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *context;
	struct pl_error error;

	options.insecure = true;
	/* Both processes are on this host; the local fabric is not measured. */
	options.fabric = strncmp(run->host, "127.", 4) ? "verbs" : "tcp";
	options.key = run->key;
	options.key_length = run->key ? strlen(run->key) : 0;
	MUST(pl_open(&context, &options, &error), &error);
	return context;
}

/* Measures both processes while both are idle; they synchronise by a socket. */
static void measure_idle(const struct run *run, struct pl_context *context, long before, struct cost *cost)
{
	char ready = 0;
	uint64_t used, began;

	cost->memory = (resident_bytes() - before) / (long)run->peers;
	put(run->socket, &ready, 1);
	get(run->socket, &ready, 1);
	/* Work that remains from connecting ends within a second. */
	sleep(1);
	used = processor_ns();
	sleep(IDLE_SECONDS);
	cost->processor = processor_ns() - used;
	put(run->socket, &ready, 1);
	get(run->socket, &ready, 1);
	began = now_ns();
	pl_close(context);
	cost->close = now_ns() - began;
}

static void accept_peers(const struct run *run)
{
	struct pl_context *context = open_context(run);
	long before = resident_bytes();
	struct pl_listener *listener;
	struct pl_error error;
	struct pl_peer *peer;
	struct cost cost;
	char address[80] = "";

	snprintf(address, sizeof(address), "%s:0", run->host);
	MUST(pl_listen(context, address, &listener, &error), &error);
	pl_listener_address(listener, address, sizeof(address));
	put(run->socket, address, sizeof(address));
	for (unsigned i = 0; i < run->peers; i++)
		MUST(pl_accept(listener, TIMEOUT, &peer, &error), &error);
	measure_idle(run, context, before, &cost);
	put(run->socket, &cost, sizeof(cost));
}

static uint64_t connect_all(const struct run *run, struct pl_context *context, const char *address,
			    struct pl_peer_info *info)
{
	struct pl_operation **operations = calloc(run->peers, sizeof(struct pl_operation *));
	uint64_t began = now_ns();
	struct pl_completion receipt = { 0 };
	struct pl_error error;

	for (unsigned i = 0; operations && i < run->peers; i++)
		MUST(pl_connect_start(context, address, TIMEOUT, i, &operations[i], &error), &error);
	for (unsigned i = 0; operations && i < run->peers; i++)
		MUST(pl_wait(operations[i], TIMEOUT, &receipt, &error), &error);
	began = now_ns() - began;
	pl_peer_query(receipt.peer, info);
	free(operations);
	return began;
}

static void print_cost(const char *end, const struct cost *cost)
{
	printf("\"%s\": {\"bytes_per_peer\": %ld, \"idle_cpu_seconds\": %.4f, \"close_seconds\": %.3f}", end,
	       cost->memory, (double)cost->processor / NS_PER_S, (double)cost->close / NS_PER_S);
}

static void measure_client(const struct run *run)
{
	struct pl_context *context = open_context(run);
	long before = resident_bytes();
	struct cost ours, theirs;
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	uint64_t connect_time;
	char address[80];

	get(run->socket, address, sizeof(address));
	connect_time = connect_all(run, context, address, &info);
	measure_idle(run, context, before, &ours);
	get(run->socket, &theirs, sizeof(theirs));
	printf("{\"peers\": %u, \"fabric\": \"%s\", \"key\": %s, \"connect_seconds\": %.3f, \"idle_seconds\": %d, ",
	       run->peers, info.fabric, run->key ? "true" : "false", (double)connect_time / NS_PER_S, IDLE_SECONDS);
	print_cost("client", &ours);
	printf(", ");
	print_cost("server", &theirs);
	printf("}\n");
}

int main(int argc, char **argv)
{
	struct run run = { .peers = argc > 1 ? (unsigned)atoi(argv[1]) : PEERS,
			   .key = argc > 2 && *argv[2] ? argv[2] : NULL,
			   .host = argc > 3 ? argv[3] : "127.0.0.1" };
	struct rlimit limit;
	int sockets[2], status;
	pid_t server;

	if (argc > 4 || run.peers < 1 || run.peers > PEERS_MAX) {
		fprintf(stderr, "usage: idle_peers [PEERS [KEY [HOST]]], PEERS is 1 to %d\n", PEERS_MAX);
		return 2;
	}
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0) {
		perror("socketpair");
		return 1;
	}
	server = fork();
	run.socket = sockets[server == 0];
	close(sockets[server != 0]);
	if (server == 0) {
		accept_peers(&run);
		return 0;
	}
	measure_client(&run);
	return waitpid(server, &status, 0) == server && status == 0 ? 0 : 1;
}
