/* SPDX-License-Identifier: BSD-2-Clause */
/* A card that its driver resets: the driver lets calls wait meanwhile. Transfers over another card go on. */
#include <stdlib.h>

#include "card/card.h"
#include "card/settings.h"
#include "fabric/verbs/verbs.h"
#include "support/cases.h"
#include "support/pair.h"

#define LIMIT 60 /* seconds, times slowness() */
#define LENGTH 4096u
#define WRITES 100u

/* Both ends lose the device of a rail. */
static void lose_device(const struct pair *pair, unsigned rail)
{
	struct pl_peer *const peers[] = { pair->environment.near_peer, pair->environment.far_peer };

	for (unsigned i = 0; i < 2; i++) {
		struct verbs_endpoint *endpoint = verbs_endpoint_of(peers[i]->endpoint);

		check(endpoint->rails[0].device != endpoint->rails[1].device);
		verbs_device_lost(endpoint->state, endpoint->rails[rail].device);
	}
}

static void writes_during_reset(void *argument)
{
	struct pl_operation *operation;
	struct pl_error error;
	struct pair pair;

	setenv("STANDIN_CARDS", "2", 1);
	rail_limit = 2;
	pair_open(&pair, argument, LENGTH);
	await_lanes(&pair.environment, 2);
	const struct pl_transfer transfer = { pair.remote, 0, pair.near.region, 0, LENGTH };

	card_hold_looks(true);
	lose_device(&pair, 1);
	progress_until(&pair.environment, card_looks_held() == 2);
	for (unsigned i = 0; i < WRITES; i++) {
		check_ok(pl_write(pair.environment.near_peer, &transfer, NULL, &operation, &error), &error);
		complete(&pair.environment, operation, NULL);
	}
	check_number(card_looks_held(), 2);
	card_hold_looks(false);
	/* The device is back. */
	await_lanes(&pair.environment, 2);
	pair_close(&pair);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "manual", writes_during_reset, (void *)&card_manual, LIMIT },
		{ "threads", writes_during_reset, (void *)&card_threads, LIMIT },
	};

	return cases_run("resets", cases, sizeof(cases) / sizeof(cases[0]));
}
