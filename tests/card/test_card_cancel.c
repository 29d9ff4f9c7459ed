/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages that wait for the card, and are cancelled: the card does not get them, also not before the peer is swept. */
#include "card/card.h"
#include "card/settings.h"
#include "core/fabric.h"
#include "support/cases.h"
#include "support/pair.h"

#define LIMIT 20 /* seconds, times slowness() */
#define LENGTH 64u
#define TAG_OF_NEXT 2u

static struct pl_operation *send_tag(struct pl_peer *peer, uint64_t tag, const struct pl_attributes *attributes)
{
	static const uint8_t bytes[LENGTH];
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_send_copy(peer, tag, bytes, LENGTH, attributes, &operation, &error), &error);
	return operation;
}

/* A message of PL_MORE waits for the next one. The engine posts submitted messages before it sweeps. */
static void waiting_message(void *argument)
{
	const bool cancel = *(const bool *)argument;
	struct pl_attributes more = PL_ATTRIBUTES_INIT;
	struct pl_operation *first, *next, *received;
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
	first = send_tag(peer, 1, &more);
	pl_engine_lock(peer->home);
	check_number(atomic_load(&first->state), PL_RUNNING);
	next = send_tag(peer, TAG_OF_NEXT, NULL);
	if (cancel) {
		/* As pl_cancel() does, except that other tasks are queued. */
		pl_peer_begin_stopping(peer);
		pl_operation_stop(first, -ECANCELED, NULL);
		pl_peer_end_stopping_one(peer);
	}
	pl_engine_unlock(peer->home);
	for (uint64_t tag = cancel ? TAG_OF_NEXT : 1; tag <= TAG_OF_NEXT; tag++) {
		check_ok(pl_receive(pair.environment.far_peer, 0, 0, &(struct pl_buffer){ pair.far.region, 0, LENGTH },
				    NULL, &received, &error),
			 &error);
		complete(&pair.environment, received, &receipt);
		check_number(receipt.tag, tag);
	}
	check_status(await(&pair.environment, first, NULL, &error), cancel ? -ECANCELED : 0, &error);
	complete(&pair.environment, next, NULL);
	/* The window has room for the message that was not sent. */
	check_number(peer->sent - sent, cancel ? 1 : 2);
	pair_close(&pair);
}

int main(void)
{
	static const bool no = false, yes = true;
	static const struct test_case cases[] = {
		{ "waiting-message", waiting_message, &no, LIMIT },
		{ "waiting-message-cancelled", waiting_message, &yes, LIMIT },
	};

	return cases_run("cancel", cases, sizeof(cases) / sizeof(cases[0]));
}
