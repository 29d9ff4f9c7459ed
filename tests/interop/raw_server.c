/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Server for a program without Peerlane (raw_verbs.c): shares a range of its memory over the verbs fabric, and then
 * checks that the expected bytes changed, and no others.
 *
 * Usage: raw_server ADDRESS:PORT
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <peerlane/peerlane.h>

#include "raw_plan.h"

#define SECOND 1000000000ull
#define LIMIT (40 * SECOND)

struct server {
	struct pl_context *context;
	struct pl_listener *listener;
	struct pl_region *region;
	struct pl_peer *peer;
	uint8_t *memory;
	uint8_t tokens[2 * PLAN_TOKEN];
	uint64_t notified[8]; /* values of received notifications */
	unsigned notified_count;
};

static void check_call(int rc, const char *what, const struct pl_error *error)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "raw_server: %s: %s: %s [%s]\n", what, error ? error->call : "",
		error ? error->message : "failed", error ? error->id : "");
	exit(1);
}

static uint64_t server_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static void share_grant(struct server *server, unsigned rights, uint8_t *token)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	size_t length = PLAN_TOKEN;
	struct pl_error error;

	options.offset = PLAN_GRANT;
	options.length = PLAN_LENGTH;
	options.rights = rights;
	check_call(pl_region_share(server->region, &options, token, &length, &error), "share", &error);
}

static void prepare_region(struct server *server, const char *address)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_error error;

	options.fabric = "verbs";
	options.insecure = true;
	check_call(pl_open(&server->context, &options, &error), "open", &error);
	check_call(pl_region_allocate(server->context, PLAN_REGION, PL_ACCESS_ALL, &server->region, &error), "allocate",
		   &error);
	server->memory = pl_region_address(server->region);
	for (size_t i = 0; i < PLAN_REGION; i++)
		server->memory[i] = plan_before(i);
	share_grant(server, PL_ACCESS_ALL, server->tokens);
	share_grant(server, PL_ACCESS_READ, server->tokens + PLAN_TOKEN);
	check_call(pl_listen(server->context, address, &server->listener, &error), "listen", &error);
}

static void accept_stranger(struct server *server)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct pl_operation *operation;
	struct pl_error error;

	check_call(pl_accept(server->listener, LIMIT, &server->peer, &error), "accept", &error);
	pl_peer_query(server->peer, &info);
	printf("%s from %s by %s\n", info.software, info.address, info.fabric);
	check_call(
		pl_send_copy(server->peer, PLAN_TAG, server->tokens, sizeof(server->tokens), NULL, &operation, &error),
		"send", &error);
	check_call(pl_wait(operation, UINT64_MAX, NULL, &error), "send", &error);
}

static void next_notification(struct server *server, uint64_t value)
{
	struct pl_error error;

	if (server->notified_count < sizeof(server->notified) / sizeof(server->notified[0]))
		server->notified[server->notified_count++] = value;
	if (value != PLAN_REVOKE)
		return;
	check_call(pl_region_revoke(server->region, server->tokens, PLAN_TOKEN), "revoke", NULL);
	check_call(pl_notify(server->peer, PLAN_REVOKE, NULL, 0, NULL, NULL, &error), "notify", &error);
}

/* Serves until the peer disconnects. */
static void serve_stranger(struct server *server)
{
	struct pollfd ready = { .fd = pl_fd(server->context), .events = POLLIN };
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	uint64_t end = server_now() + LIMIT;
	struct pl_completion done;
	struct pl_error error;

	do {
		poll(&ready, 1, 100);
		while (pl_poll(server->context, &done, 1) > 0) {
			/* The loss of the peer is how this program ends. */
			if (done.kind != PL_KIND_LOST)
				check_call(pl_completion_error(server->context, &done, &error), "operation", &error);
			if (done.kind == PL_KIND_NOTIFIED)
				next_notification(server, done.value);
		}
		pl_peer_query(server->peer, &info);
	} while (info.connected && server_now() < end);
	check_call(info.connected ? -1 : 0, "the peer does not go", NULL);
}

static void expect_bytes(uint8_t *expected)
{
	const uint64_t word = PLAN_SWAPPED;

	for (size_t i = 0; i < PLAN_REGION; i++) {
		bool block = i >= PLAN_GRANT + PLAN_BLOCK && i < PLAN_GRANT + PLAN_BLOCK + PLAN_BLOCK_LENGTH;
		bool edge = i >= PLAN_GRANT + PLAN_EDGE && i < PLAN_GRANT + PLAN_LENGTH;

		expected[i] = block || edge ? plan_after(i) : plan_before(i);
	}
	memcpy(expected + PLAN_GRANT + PLAN_WORD, &word, sizeof(word));
}

/* Returns the number of errors found. */
static unsigned count_errors(const struct server *server)
{
	static const uint64_t notified[] = { PLAN_FIRST, PLAN_SECOND, PLAN_REVOKE };
	uint8_t expected[PLAN_REGION];
	unsigned wrong = 0;

	expect_bytes(expected);
	for (size_t i = 0; i < PLAN_REGION; i++) {
		if (server->memory[i] == expected[i])
			continue;
		if (++wrong == 1)
			fprintf(stderr, "raw_server: byte %zu is %02x, not %02x\n", i, server->memory[i], expected[i]);
	}
	printf("%u of %d bytes are wrong\n", wrong, PLAN_REGION);
	if (server->notified_count == sizeof(notified) / sizeof(notified[0]) &&
	    !memcmp(server->notified, notified, sizeof(notified)))
		return wrong;
	fprintf(stderr, "raw_server: %u notifications came, or others than expected\n", server->notified_count);
	return wrong + 1;
}

int main(int argc, char **argv)
{
	struct server server = { 0 };
	unsigned wrong;

	if (argc != 2) {
		fprintf(stderr, "usage: raw_server ADDRESS:PORT\n");
		return 2;
	}
	prepare_region(&server, argv[1]);
	accept_stranger(&server);
	serve_stranger(&server);
	wrong = count_errors(&server);
	pl_close(server.context);
	return wrong ? 1 : 0;
}
