/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads that wait for answers when the peer is lost end in the order in which they were posted. */
#include <stdlib.h>

#include "core/peer.h"
#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/pair.h"

#define LIMIT 60 /* seconds, times slowness() */
#define LENGTH 64u
/* Reads before the loss, so that the last ones have the last and the first of the lane's requests. */
#define BEFORE (TCP_REQUESTS_MAX - 2u)
#define LAST 4u

static void loss(void *argument)
{
	static const struct setting setting = {
		.name = "manual", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
	};
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_completion completions[LAST + 1];
	struct pl_operation *operation;
	struct pl_error error;
	struct pl_peer *peer;
	unsigned ended = 0;
	struct pair pair;

	(void)argument;
	pair_open(&pair, &setting, LENGTH);
	peer = pair.environment.near_peer;
	const struct pl_transfer transfer = { pair.remote, 0, pair.near.region, 0, LENGTH };

	for (unsigned i = 0; i < BEFORE; i++) {
		check_ok(pl_read(peer, &transfer, NULL, &operation, &error), &error);
		complete(&pair.environment, operation, NULL);
	}
	drive_no_more(&pair.environment, pair.environment.far);
	for (unsigned i = 0; i < LAST; i++) {
		attributes.user_data = i;
		check_ok(pl_read(peer, &transfer, &attributes, NULL, &error), &error);
	}
	settle(&pair.environment, 0);
	pl_fail(&error, -ECONNRESET, "PEER-LOST", NULL, NULL, NULL, "a test");
	pl_engine_lock(peer->home);
	pl_peer_lose(peer, &error);
	pl_engine_unlock(peer->home);
	/* The event of the loss is one of them. */
	collect(&pair.environment, pair.environment.near, completions, LAST + 1);
	for (unsigned i = 0; i <= LAST; i++) {
		check_number(completions[i].status, -ECONNRESET);
		if (completions[i].kind == PL_KIND_READ)
			check_number(completions[i].user_data, ended++);
	}
	check_number(ended, LAST);
	pair_close(&pair);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "reads", loss, NULL, LIMIT },
	};

	return cases_run("loss", cases, sizeof(cases) / sizeof(cases[0]));
}
