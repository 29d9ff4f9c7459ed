/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several connections to one server, which operations take in turns.  The first has the messages between the ends,
 * too; the others are the client's, and nothing more than kept by the server.
 */
#include "bench/perf/endpoint.h"

#define ACCEPT_SLICE (200 * CLI_NS_PER_MS)

/* Those with end->far. */
static struct bench_link *links_of(struct bench_end *end, uint32_t count)
{
	struct bench_link *links = &end->links[(end->far - end->fars) * count];

	links[0].peer = end->far->peer;
	return links;
}

int bench_links_connect(struct bench_end *end, uint32_t count)
{
	struct bench_link *links = links_of(end, count);
	struct pl_error error;

	for (uint32_t i = 1; i < count; i++) {
		if (links[i].peer)
			continue;
		if (pl_connect(end->context, end->far->address, end->timeout, &links[i].peer, &error) < 0)
			return bench_fail_as(end, &error);
		links[i].further = true;
	}
	return 0;
}

/* They are on their way already: the client connected before it asked. */
static int accept_one(struct bench_end *end, struct bench_link *link)
{
	uint64_t deadline = cli_now() + end->timeout;
	struct pl_error error;
	int rc;

	do {
		rc = pl_accept(end->listener, ACCEPT_SLICE, &link->peer, &error);
		if (rc == -ETIMEDOUT && bench_signals(end) < 0)
			return end->error.code;
	} while (rc == -ETIMEDOUT && cli_now() < deadline);
	link->further = rc == 0;
	return rc < 0 ? bench_fail_as(end, &error) : 0;
}

int bench_links_accept(struct bench_end *end, uint32_t count)
{
	struct bench_link *links = links_of(end, count);
	int rc = 0;

	for (uint32_t i = 1; rc == 0 && i < count; i++)
		if (!links[i].peer)
			rc = accept_one(end, &links[i]);
	return rc;
}

int bench_links_import(struct bench_end *end, const void *token, size_t length)
{
	struct bench_link *links = links_of(end, end->plan.peers);
	struct pl_error error;

	for (uint32_t i = 0; i < end->plan.peers; i++)
		if (pl_remote_import(links[i].peer, token, length, end->timeout, &links[i].remote, &error) < 0)
			return bench_fail_as(end, &error);
	return 0;
}

void bench_links_release(struct bench_end *end)
{
	for (uint32_t i = 0; i < BENCH_PEERS_MAX; i++) {
		pl_remote_release(end->links[i].remote);
		end->links[i].remote = NULL;
	}
}

void bench_links_close(struct bench_end *end)
{
	for (uint32_t i = 0; i < BENCH_PEERS_MAX; i++) {
		if (end->links[i].further)
			pl_peer_close(end->links[i].peer);
		end->links[i] = (struct bench_link){ .peer = NULL };
	}
}
