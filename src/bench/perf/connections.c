/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections to one server, which operations use in turn.  The first one also carries the control messages.  The
 * client posts on all of them; the server only keeps them open.
 */
#include "bench/perf/connections.h"

#include "bench/perf/progress.h"

#define ACCEPT_SLICE (200 * CLI_NS_PER_MS)

/* Returns the connections with ep->peer. */
static struct bench_connection *peer_connections(struct bench_endpoint *ep, uint32_t count)
{
	struct bench_connection *connections = &ep->connections[(ep->peer - ep->peers) * count];

	connections[0].peer = ep->peer->control;
	return connections;
}

int bench_connections_open(struct bench_endpoint *ep, uint32_t count)
{
	struct bench_connection *connections = peer_connections(ep, count);
	struct pl_error error;

	for (uint32_t i = 1; i < count; i++) {
		if (connections[i].peer)
			continue;
		if (pl_connect(ep->context, ep->peer->address, ep->timeout, &connections[i].peer, &error) < 0)
			return bench_fail_with(ep, &error);
		connections[i].additional = true;
	}
	return 0;
}

/* Accepts one connection, which the client opened before its request. */
static int accept_connection(struct bench_endpoint *ep, struct bench_connection *connection)
{
	uint64_t deadline = cli_now() + ep->timeout;
	struct pl_error error;
	int rc;

	do {
		rc = pl_accept(ep->listener, ACCEPT_SLICE, &connection->peer, &error);
		if (rc == -ETIMEDOUT && bench_check_signals(ep) < 0)
			return ep->error.code;
	} while (rc == -ETIMEDOUT && cli_now() < deadline);
	connection->additional = rc == 0;
	return rc < 0 ? bench_fail_with(ep, &error) : 0;
}

int bench_connections_accept(struct bench_endpoint *ep, uint32_t count)
{
	struct bench_connection *connections = peer_connections(ep, count);
	int rc = 0;

	for (uint32_t i = 1; rc == 0 && i < count; i++)
		if (!connections[i].peer)
			rc = accept_connection(ep, &connections[i]);
	return rc;
}

int bench_connections_import(struct bench_endpoint *ep, const void *token, size_t length)
{
	struct bench_connection *connections = peer_connections(ep, ep->plan.connections);
	struct pl_error error;

	for (uint32_t i = 0; i < ep->plan.connections; i++) {
		if (pl_remote_import(connections[i].peer, token, length, ep->timeout, &connections[i].remote, &error) <
		    0)
			return bench_fail_with(ep, &error);
		/* The answer to an import shows that the peer is there. */
		bench_restart_timeout(ep);
	}
	return 0;
}

void bench_connections_release(struct bench_endpoint *ep)
{
	for (uint32_t i = 0; i < BENCH_CONNECTIONS_MAX; i++) {
		pl_remote_release(ep->connections[i].remote);
		ep->connections[i].remote = NULL;
	}
}

void bench_connections_close(struct bench_endpoint *ep)
{
	for (uint32_t i = 0; i < BENCH_CONNECTIONS_MAX; i++) {
		if (ep->connections[i].additional)
			pl_peer_close(ep->connections[i].peer);
		ep->connections[i] = (struct bench_connection){ .peer = NULL };
	}
}
