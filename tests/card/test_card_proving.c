/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Attempts to connect a rail again that fail while this end waits for the proof. The other end may have the connection up:
 * its card has messages acknowledged whose completions come late here. They arrive all the same. Nor does a queue that
 * breaks meanwhile keep this end waiting.
 */
#include <stdlib.h>

#include "base/base.h"
#include "card/card.h"
#include "card/settings.h"
#include "core/peer.h"
#include "fabric/verbs/verbs.h"
#include "support/cases.h"
#include "support/environment.h"

#define LIMIT 60 /* seconds, times slowness() */
#define LENGTH 4096u
#define TAG 5u
/* Polls after which the library gives up a queue. */
#define POLLS 4u
#define TIMEOUT (20 * slowness() * SECOND)

struct attempt {
	const char *card;
	bool told; /* the other end tells the end of the connection; else this one ends it */
};

/* Two ends without grants: rails that come up ask for no keys. The far end accepts the rails. */
struct rig {
	struct scenario_environment environment;
	struct buffer into;
	struct verbs_rail *near, *far; /* ends of the only rail */
};

static void rig_open(struct rig *rig, const struct attempt *attempt)
{
	setenv("STANDIN_CARD", attempt->card, 1);
	rail_limit = 1;
	*rig = (struct rig){ 0 };
	environment_open(&rig->environment, &card_manual);
	buffer_open(&rig->into, rig->environment.far, LENGTH, PL_ACCESS_LOCAL);
	await_lanes(&rig->environment, 1);
	rig->near = &verbs_endpoint_of(rig->environment.near_peer->endpoint)->rails[0];
	rig->far = &verbs_endpoint_of(rig->environment.far_peer->endpoint)->rails[0];
}

static void rig_close(struct rig *rig)
{
	buffer_close(&rig->into);
	environment_close(&rig->environment);
}

static struct pl_operation *receive_next(struct rig *rig)
{
	const struct pl_buffer to = { rig->into.region, 0, LENGTH };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_error error;

	attributes.timeout = TIMEOUT;
	check_ok(pl_receive(rig->environment.far_peer, TAG, UINT64_MAX, &to, &attributes, &operation, &error), &error);
	return operation;
}

static void send_length(struct rig *rig, size_t length)
{
	static const uint8_t bytes[LENGTH];
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_send_copy(rig->environment.near_peer, TAG, bytes, length, NULL, &operation, &error), &error);
	complete(&rig->environment, operation, NULL);
}

static void expect_length(struct rig *rig, struct pl_operation *receive, uint64_t length)
{
	struct pl_completion receipt;

	complete(&rig->environment, receive, &receipt);
	check_number(receipt.bytes, length);
}

/* Locks the engine of a rail: on RoCE a helper thread runs its tasks, too. */
static void rail_lock(const struct verbs_rail *rail)
{
	pl_engine_lock(rail->endpoint->base.peer->home);
}

/* Runs tasks. */
static void rail_unlock(const struct verbs_rail *rail)
{
	pl_engine_unlock(rail->endpoint->base.peer->home);
}

static void fail_rail(struct verbs_rail *rail)
{
	rail_lock(rail);
	verbs_fail(rail, "a test");
	rail_unlock(rail);
}

/* What the test looks at in a rail, which belongs to an engine. */
struct look {
	enum verbs_link link;
	uint16_t generation;
	unsigned frames;
};

static struct look look_at(const struct verbs_rail *rail)
{
	struct look look;

	rail_lock(rail);
	look = (struct look){ rail->link, rail->generation, rail->frames };
	rail_unlock(rail);
	return look;
}

/* The far end's card shows no further received frames. */
static void hold_received(struct rig *rig)
{
	rail_lock(rig->far);
	check(rig->far->queue);
	card_hold_received(rig->far->queue->cq);
	rail_unlock(rig->far);
}

/* Breaks the rail and connects it again, but the far end's card shows neither the proof nor anything behind it. */
static void prove_unseen(struct rig *rig)
{
	const uint16_t before = look_at(rig->far).generation;

	fail_rail(rig->near);
	/* The far end takes the request last in a round, so no proof can be there yet. */
	while (look_at(rig->far).generation == before) {
		check_number(pl_poll(rig->environment.near, NULL, 0), 0);
		check_number(pl_poll(rig->environment.far, NULL, 0), 0);
	}
	hold_received(rig);
	progress_until(&rig->environment, look_at(rig->near).link == VERBS_UP);
	check_number(look_at(rig->far).link, VERBS_PROVING);
}

/* Ends the attempt at the far end. The card shows the completions from then on. */
static void end_attempt(struct rig *rig, const struct attempt *attempt)
{
	struct pl_rail_message down = { .step = PL_RAIL_DOWN, .index = rig->far->index };

	rail_lock(rig->far);
	down.generation = rig->far->generation;
	if (attempt->told)
		check_number(verbs_rail_message(&rig->far->endpoint->base, &down), 0);
	else
		verbs_fail(rig->far, "a test");
	card_hold_received(NULL);
	rail_unlock(rig->far);
}

/* Returns the ends of the peer's rails in its log, less their beginnings. */
static int count_down(struct pl_peer *peer)
{
	struct pl_event_query query = PL_EVENT_QUERY_INIT;
	struct pl_event_record records[64];
	int count = pl_peer_events(peer, &query, records, 64), down = 0;

	check(count > 0 && count < 64);
	while (count--) {
		down += records[count].event == PL_EVENT_RAIL_LOST;
		down -= records[count].event == PL_EVENT_RAIL_OPENED || records[count].event == PL_EVENT_RAIL_REOPENED;
	}
	return down;
}

static void message_behind_proof(void *argument)
{
	const struct attempt *attempt = argument;
	struct pl_operation *first, *second;
	struct rig rig;

	rig_open(&rig, attempt);
	first = receive_next(&rig);
	second = receive_next(&rig);
	prove_unseen(&rig);
	send_length(&rig, 1);
	/* The far end's card has acknowledged the message. */
	progress_until(&rig.environment, !look_at(rig.near).frames);
	check_number(look_at(rig.far).link, VERBS_PROVING);
	end_attempt(&rig, attempt);
	send_length(&rig, 2);
	expect_length(&rig, first, 1);
	expect_length(&rig, second, 2);
	await_lanes(&rig.environment, 1);
	/* The attempt that failed was never up at the far end, so its log has no end of it. */
	check_number(count_down(rig.environment.far_peer), -1);
	check_number(count_down(rig.environment.near_peer), -1);
	rig_close(&rig);
}

/* Returns the only rail of a context's only peer; NULL: none yet. */
static struct verbs_rail *rail_of(const struct pl_context *context)
{
	struct pl_endpoint *endpoint =
		pl_list_empty(&context->peers) ? NULL : pl_list_first(&context->peers, struct pl_peer, link)->endpoint;

	return endpoint && verbs_endpoint_of(endpoint)->rail_count ? &verbs_endpoint_of(endpoint)->rails[0] : NULL;
}

/* The same at the first connection. The far end has not accepted the peer then: a proof that it takes late opens the peer. */
static void message_behind_first_proof(void *argument)
{
	const struct attempt *attempt = argument;
	struct pl_operation *connecting, *accepting, *receive;
	struct pl_completion receipt;
	struct pl_error error;
	struct rig rig = { 0 };

	setenv("STANDIN_CARD", attempt->card, 1);
	rail_limit = 1;
	environment_listen(&rig.environment, &card_manual);
	buffer_open(&rig.into, rig.environment.far, LENGTH, PL_ACCESS_LOCAL);
	check_ok(pl_accept_start(rig.environment.listener, 0, &accepting, &error), &error);
	check_ok(pl_connect_start(rig.environment.near, rig.environment.address, 0, 0, &connecting, &error), &error);
	do {
		check_number(pl_poll(rig.environment.near, NULL, 0), 0);
		check_number(pl_poll(rig.environment.far, NULL, 0), 0);
		rig.far = rail_of(rig.environment.far);
	} while (!rig.far || !look_at(rig.far).generation);
	hold_received(&rig);
	complete(&rig.environment, connecting, &receipt);
	rig.environment.near_peer = receipt.peer;
	rig.near = rail_of(rig.environment.near);
	send_length(&rig, 1);
	progress_until(&rig.environment, !look_at(rig.near).frames);
	check_number(look_at(rig.far).link, VERBS_PROVING);
	end_attempt(&rig, attempt);
	complete(&rig.environment, accepting, &receipt);
	rig.environment.far_peer = receipt.peer;
	send_length(&rig, 2);
	for (unsigned length = 1; length <= 2; length++) {
		receive = receive_next(&rig);
		expect_length(&rig, receive, length);
	}
	await_lanes(&rig.environment, 1);
	rig_close(&rig);
}

/* The far end's queue has completions, and cannot be polled, while that end waits for the proof. */
static void queue_breaks(void *argument)
{
	struct pl_operation *receive;
	uint16_t generation;
	struct rig rig;

	rig_open(&rig, argument);
	receive = receive_next(&rig);
	prove_unseen(&rig);
	generation = look_at(rig.far).generation;
	card_faults_next(CARD_POLL, POLLS);
	rail_lock(rig.far);
	check_number(verbs_cq_poll(rig.far->queue), 0);
	rail_unlock(rig.far);
	check_number(card_counts_now().faults[CARD_POLL], POLLS);
	check(look_at(rig.far).link != VERBS_PROVING || look_at(rig.far).generation != generation);
	card_hold_received(NULL);
	send_length(&rig, 1);
	expect_length(&rig, receive, 1);
	rig_close(&rig);
}

static const struct test_case cases[] = {
	{ "queue-breaks", queue_breaks, &(const struct attempt){ "cx7-roce", false }, LIMIT },
	{ "queue-breaks-own-receives", queue_breaks, &(const struct attempt){ "e810", false }, LIMIT },
	{ "told", message_behind_proof, &(const struct attempt){ "cx7-roce", true }, LIMIT },
	{ "told-infiniband", message_behind_proof, &(const struct attempt){ "cx7-ib", true }, LIMIT },
	{ "told-own-receives", message_behind_proof, &(const struct attempt){ "e810", true }, LIMIT },
	{ "failed", message_behind_proof, &(const struct attempt){ "cx7-roce", false }, LIMIT },
	{ "failed-own-receives", message_behind_proof, &(const struct attempt){ "e810", false }, LIMIT },
	{ "first-told", message_behind_first_proof, &(const struct attempt){ "cx7-roce", true }, LIMIT },
	{ "first-told-infiniband", message_behind_first_proof, &(const struct attempt){ "cx7-ib", true }, LIMIT },
	{ "first-told-own-receives", message_behind_first_proof, &(const struct attempt){ "e810", true }, LIMIT },
	{ "first-failed", message_behind_first_proof, &(const struct attempt){ "cx7-roce", false }, LIMIT },
	{ "first-failed-own-receives", message_behind_first_proof, &(const struct attempt){ "e810", false }, LIMIT },
};

int main(void)
{
	return cases_run("proving", cases, sizeof(cases) / sizeof(cases[0]));
}
