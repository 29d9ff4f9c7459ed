/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages that wait for the card, and are cancelled: the card does not get them, also not before the peer is swept. At its end a peer
 * sends all others that wait.
 */
#include "card/card.h"
#include "card/settings.h"
#include "core/fabric.h"
#include "fabric/verbs/endpoint.h"
#include "support/cases.h"
#include "support/pair.h"

#define LIMIT 20 /* seconds, times slowness() */
#define LENGTH 64u
#define WAITING 3u
#define MESSAGES 20u

static struct pl_operation *send_tag(struct pl_peer *peer, uint64_t tag, const struct pl_attributes *attributes)
{
	static const uint8_t bytes[LENGTH];
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_send_copy(peer, tag, bytes, LENGTH, attributes, &operation, &error), &error);
	return operation;
}

/* Messages of PL_MORE wait for the next one. The engine posts submitted messages before it sweeps. */
static void waiting_message(void *argument)
{
	const unsigned cancelled = *(const unsigned *)argument;
	struct pl_attributes more = PL_ATTRIBUTES_INIT;
	struct pl_operation *sends[WAITING], *received;
	struct pl_completion receipt;
	struct pl_peer *peer;
	struct pl_error error;
	uint64_t sent;
	struct pair pair;

	more.flags = PL_MORE;
	pair_open(&pair, &card_manual, LENGTH);
	peer = pair.environment.near_peer;
	pl_engine_lock(peer->home);
	sent = peer->sent;
	pl_engine_unlock(peer->home);
	for (unsigned i = 0; i < WAITING - 1; i++)
		sends[i] = send_tag(peer, i + 1, &more);
	pl_engine_lock(peer->home);
	check_number(atomic_load(&sends[0]->state), PL_RUNNING);
	sends[WAITING - 1] = send_tag(peer, WAITING, NULL);
	if (cancelled) {
		/* As pl_cancel() does, except that other tasks are queued. */
		pl_peer_begin_stopping(peer);
		pl_operation_stop(sends[cancelled - 1], -ECANCELED, NULL);
		pl_peer_end_stopping_one(peer);
	}
	pl_engine_unlock(peer->home);
	for (unsigned tag = 1; tag <= WAITING; tag++) {
		if (tag == cancelled)
			continue;
		check_ok(pl_receive(pair.environment.far_peer, 0, 0, &(struct pl_buffer){ pair.far.region, 0, LENGTH },
				    NULL, &received, &error),
			 &error);
		complete(&pair.environment, received, &receipt);
		check_number(receipt.tag, tag);
	}
	for (unsigned i = 0; i < WAITING; i++)
		check_status(await(&pair.environment, sends[i], NULL, &error), i + 1 == cancelled ? -ECANCELED : 0,
			     &error);
	/* The window has room for the message that was not sent. */
	check_number(peer->sent - sent, WAITING - (cancelled > 0));
	pair_close(&pair);
}

/* The card has begun neither the write nor the messages behind it when the program closes the peer, and does all then. */
static void close_behind_write(void *argument)
{
	const unsigned count = *(const unsigned *)argument;
	struct pl_operation *write, *messages[MESSAGES], *received;
	const struct verbs_endpoint *near;
	struct pl_completion receipt;
	struct pl_error error;
	struct pair pair;

	pair_open(&pair, &card_manual, LENGTH);
	near = verbs_endpoint_of(pair.environment.near_peer->endpoint);
	check_number(near->rail_count, 1);
	card_hold_requests(near->rails[0].queue->cq);
	check_ok(pl_write(pair.environment.near_peer,
			  &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, LENGTH }, NULL, &write, &error),
		 &error);
	for (unsigned i = 0; i < count; i++)
		messages[i] = send_tag(pair.environment.near_peer, i, NULL);
	check_number(atomic_load(&write->state), PL_RUNNING);
	check_number(pl_list_empty(&near->waiting), count == 1);
	pl_fail(&error, -ECANCELED, "PEER-CLOSING", "pl_peer_close", NULL, NULL, "closed");
	pl_peer_destroy(pair.environment.near_peer, pl_now() + AMPLE_TIME, -ECANCELED, &error);
	pair.environment.near_peer = NULL;
	for (unsigned i = 0; i < count; i++) {
		check_ok(pl_receive(pair.environment.far_peer, 0, 0, &(struct pl_buffer){ pair.far.region, 0, LENGTH },
				    NULL, &received, &error),
			 &error);
		complete(&pair.environment, received, &receipt);
		check_number(receipt.tag, i);
	}
	complete(&pair.environment, write, NULL);
	for (unsigned i = 0; i < count; i++)
		complete(&pair.environment, messages[i], NULL);
	pair_close(&pair);
}

int main(void)
{
	static const unsigned none = 0, first = 1, second = 2, one = 1, many = MESSAGES;
	static const struct test_case cases[] = {
		{ "waiting-message", waiting_message, &none, LIMIT },
		{ "waiting-message-cancelled", waiting_message, &first, LIMIT },
		/* The frames of several messages go together in one SEND. */
		{ "second-message-cancelled", waiting_message, &second, LIMIT },
		{ "close-behind-write", close_behind_write, &one, LIMIT },
		{ "close-many-behind-write", close_behind_write, &many, LIMIT },
	};

	return cases_run("cancel", cases, sizeof(cases) / sizeof(cases[0]));
}
