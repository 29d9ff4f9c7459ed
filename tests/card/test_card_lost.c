/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages whose completion the receiver's card loses for good, over one rail and several: the peer is lost by name, long
 * before the time limit of its operations. Completions that only come late lose nothing.
 */
#include <errno.h>
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
/* Without the looks for a missing message, its receive takes this long. */
#define TIMEOUT (20 * slowness() * SECOND)

/* Two ends without grants: rails that come up ask for no keys, whose completions could be lost instead. */
struct ends {
	struct scenario_environment environment;
	struct buffer far;
};

struct loss {
	const struct setting *setting;
	unsigned rails;
	bool breaks; /* the connection breaks behind the message, so that later ones come over another */
};

/* Returns when all rails are up. */
static void ends_open(struct ends *ends, const struct setting *setting, unsigned rails)
{
	rail_limit = rails;
	*ends = (struct ends){ 0 };
	environment_open(&ends->environment, setting);
	buffer_open(&ends->far, ends->environment.far, LENGTH, PL_ACCESS_LOCAL);
	await_lanes(&ends->environment, rails);
}

static void ends_close(struct ends *ends)
{
	buffer_close(&ends->far);
	environment_close(&ends->environment);
}

static struct pl_operation *receive_next(struct ends *ends)
{
	const struct pl_buffer to = { ends->far.region, 0, LENGTH };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_error error;

	attributes.timeout = TIMEOUT;
	check_ok(pl_receive(ends->environment.far_peer, TAG, UINT64_MAX, &to, &attributes, &operation, &error), &error);
	return operation;
}

/* Sends bytes. The message may still be on its way. */
static void send_length(struct ends *ends, size_t length)
{
	static const uint8_t bytes[LENGTH];
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_send_copy(ends->environment.near_peer, TAG, bytes, length, NULL, &operation, &error), &error);
	complete(&ends->environment, operation, NULL);
}

static void send_next(struct ends *ends)
{
	send_length(ends, LENGTH);
}

static void expect_message_lost(struct ends *ends, struct pl_operation *operation)
{
	struct pl_error error;

	check_number(await(&ends->environment, operation, NULL, &error), -EPROTO);
	check_text(error.id, "RDMA-MESSAGE-LOST");
}

static void message_lost(void *argument)
{
	const struct loss *loss = argument;
	struct pl_operation *first, *second;
	struct ends ends;

	ends_open(&ends, loss->setting, loss->rails);
	first = receive_next(&ends);
	second = receive_next(&ends);
	card_fault_next(CARD_LOST);
	send_next(&ends);
	check_number(card_counts_now().faults[CARD_LOST], 1);
	if (loss->breaks)
		card_fault_next(CARD_UNDELIVERED);
	send_next(&ends);
	expect_message_lost(&ends, first);
	expect_message_lost(&ends, second);
	check_number(card_counts_now().faults[CARD_UNDELIVERED], loss->breaks);
	ends_close(&ends);
}

/*
 * Other peers fill the queues of the far end as fast as it polls them. It notices the lost message all the same, and the rails
 * end.
 */
static void message_lost_in_crowd(void *argument)
{
	const struct setting *setting = argument;
	struct pl_operation *first, *second;
	struct verbs_endpoint *far;
	struct ends ends;

	ends_open(&ends, setting, 2);
	far = verbs_endpoint_of(ends.environment.far_peer->endpoint);
	check(far->rails[0].queue == far->rails[1].queue);
	first = receive_next(&ends);
	second = receive_next(&ends);
	card_fault_next(CARD_LOST);
	send_next(&ends);
	card_crowd(far->rails[0].queue->cq, 0);
	card_fault_next(CARD_UNDELIVERED);
	send_next(&ends);
	expect_message_lost(&ends, first);
	expect_message_lost(&ends, second);
	progress_until(&ends.environment, !peer_information_of(ends.environment.far_peer).lanes);
	card_crowd(NULL, 0);
	ends_close(&ends);
}

#define ROUNDS 40u

/* Connections break again and again while completions come late: all messages arrive. */
static void messages_late(void *argument)
{
	struct ends ends;

	setenv("STANDIN_MOOD", "late:5000", 1);
	setenv("STANDIN_CARDS", "2", 1);
	ends_open(&ends, argument, 2);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct pl_operation *received[4];

		for (unsigned j = 0; j < 4; j++)
			received[j] = receive_next(&ends);
		for (unsigned j = 0; j < 4; j++) {
			if (j == 2)
				card_fault_next(CARD_UNDELIVERED);
			send_next(&ends);
		}
		for (unsigned j = 0; j < 4; j++)
			complete(&ends.environment, received[j], NULL);
	}
	check_number(card_counts_now().faults[CARD_UNDELIVERED], ROUNDS);
	ends_close(&ends);
}

/* Looks of the far end that find nothing, fewer than those that lose the peer. */
#define VAIN_LOOKS 3u

/*
 * A message overtakes one that is in the queue of another card, which shows its completion late. Looks in vain lose nothing,
 * and both arrive in order. If other peers fill that queue, a look takes all that were before it.
 */
static void message_overtakes(void *argument)
{
	const bool *crowded = argument;
	struct pl_operation *first, *second;
	struct verbs_endpoint *near, *far;
	struct verbs_rail *rail;
	struct pl_completion receipts[2];
	struct ends ends;

	setenv("STANDIN_CARDS", "2", 1);
	ends_open(&ends, &card_manual, 2);
	near = verbs_endpoint_of(ends.environment.near_peer->endpoint);
	far = verbs_endpoint_of(ends.environment.far_peer->endpoint);
	first = receive_next(&ends);
	second = receive_next(&ends);
	/* The far end makes no progress but what this function makes. */
	drive_no_more(&ends.environment, ends.environment.far);
	rail = verbs_frame_rail(near);
	check(rail);
	check(far->rails[0].queue != far->rails[1].queue);
	card_hold_received(far->rails[rail->index].queue->cq);
	send_length(&ends, 1);
	/* The far end's card has acknowledged the message. */
	progress_until(&ends.environment, !rail->frames);
	pl_engine_lock(near->base.peer->home);
	verbs_fail(rail, "a test");
	pl_engine_unlock(near->base.peer->home);
	send_length(&ends, 2);
	pl_engine_lock(far->base.peer->home);
	while (!far->early_count)
		verbs_cq_poll(far->rails[!rail->index].queue);
	for (unsigned i = 1; i <= VAIN_LOOKS; i++) {
		verbs_gap_look(&far->gap.timer);
		check_number(far->gap.looks, i);
	}
	card_hold_received(NULL);
	if (*crowded) {
		struct ibv_cq *cq = far->rails[rail->index].queue->cq;

		card_crowd(cq, (unsigned)cq->cqe - 1);
		verbs_gap_look(&far->gap.timer);
		card_crowd(NULL, 0);
		check_number(far->early_count, 0);
	}
	pl_engine_unlock(far->base.peer->home);
	drive(&ends.environment, ends.environment.far);
	complete(&ends.environment, first, &receipts[0]);
	complete(&ends.environment, second, &receipts[1]);
	check_number(receipts[0].bytes, 1);
	check_number(receipts[1].bytes, 2);
	ends_close(&ends);
}

/* With this seed, a request that fails by chance has a wrong length. */
#define WRONG_LENGTH_SEED "17"

static bool is_connected(struct pl_peer *peer)
{
	return peer_information_of(peer).connected;
}

/* Checks that the last events of a lost peer are the ends of so many rails, for a reason, and the loss. */
static void expect_cause(struct pl_peer *peer, int rails, const char *reason)
{
	struct pl_event_query query = PL_EVENT_QUERY_INIT;
	struct pl_event_record records[64];
	int count = pl_peer_events(peer, &query, records, 64);

	check(count > rails);
	check_number(records[--count].event, PL_EVENT_LOST);
	while (rails--) {
		check_number(records[--count].event, PL_EVENT_RAIL_LOST);
		check(strstr(records[count].text, reason));
	}
}

/* Sends a message from the far end, which loses its peer by it. The near end makes no progress. */
static void lose_by_sending(struct ends *ends)
{
	static const uint8_t bytes[LENGTH];
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_send_copy(ends->environment.far_peer, TAG, bytes, LENGTH, NULL, &operation, &error), &error);
	while (is_connected(ends->environment.far_peer))
		check_number(pl_poll(ends->environment.far, NULL, 0), 0);
	complete(&ends->environment, operation, NULL);
}

/*
 * The card refuses a message of the far end, which loses its peer; one of its rails is still up. The near end does not know
 * that for a while, and sends. A receive that is posted after the loss gets nothing.
 */
static void message_after_loss(void *argument)
{
	struct pl_error error;
	struct ends ends;

	(void)argument;
	setenv("STANDIN_SEED", WRONG_LENGTH_SEED, 1);
	ends_open(&ends, &card_manual, 2);
	card_fault_next(CARD_STATUS);
	lose_by_sending(&ends);
	check_number(card_counts_now().faults[CARD_STATUS], 1);
	expect_cause(ends.environment.far_peer, 1, "local length error");
	send_next(&ends);
	progress_until(&ends.environment, !is_connected(ends.environment.near_peer));
	check_number(await(&ends.environment, receive_next(&ends), NULL, &error), -EIO);
	check_text(error.id, "RDMA-LOCAL");
	ends_close(&ends);
}

/* -- other losses of the far end's peer ------------------------------------------------------------ */

/* Loses the far end's peer as pl_context_reload() does with a peer that is no longer admitted. */
static void revoke_near(struct ends *ends)
{
	struct pl_peer *peer = ends->environment.far_peer;
	struct pl_error error;

	pl_fail(&error, -EACCES, "PEER-REVOKED", NULL, NULL, NULL, "the other end is not admitted any longer");
	pl_engine_lock(peer->home);
	pl_peer_lose(peer, &error);
	pl_engine_unlock(peer->home);
}

static void expect_receive(struct ends *ends, struct pl_operation *operation, int status)
{
	struct pl_error error;

	check_number(await(&ends->environment, operation, NULL, &error), status);
	check_text(error.id, "PEER-REVOKED");
}

/* A revoked peer reaches no grant any more, over no rail, and its messages go to no receive. */
static void revoked_peer(void *argument)
{
	static const uint8_t bytes[LENGTH];
	struct pl_operation *receive, *writing, *sending;
	struct buffer near, far;
	struct pl_remote *remote;
	struct pl_error error;
	struct ends ends;

	ends_open(&ends, &card_manual, *(const unsigned *)argument);
	buffer_open(&near, ends.environment.near, LENGTH, PL_ACCESS_LOCAL);
	buffer_open(&far, ends.environment.far, LENGTH, PL_ACCESS_ALL);
	memset(near.bytes, 1, LENGTH);
	memset(far.bytes, 2, LENGTH);
	remote = share(&ends.environment, far.region, ends.environment.near_peer, NULL);
	receive = receive_next(&ends);
	revoke_near(&ends);
	expect_receive(&ends, receive, -EACCES);
	const struct pl_transfer transfer = { remote, 0, near.region, 0, LENGTH };

	/* The near end knows nothing of the loss yet. */
	check_ok(pl_write(ends.environment.near_peer, &transfer, NULL, &writing, &error), &error);
	check_ok(pl_send_copy(ends.environment.near_peer, TAG, bytes, LENGTH, NULL, &sending, &error), &error);
	check(await(&ends.environment, writing, NULL, &error) < 0);
	await(&ends.environment, sending, NULL, &error);
	expect_receive(&ends, receive_next(&ends), -EACCES);
	for (unsigned i = 0; i < LENGTH; i++)
		check_number(far.bytes[i], 2);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
	ends_close(&ends);
}

static bool rails_are_down(const struct pl_peer *peer)
{
	const struct verbs_endpoint *endpoint = verbs_endpoint_of(peer->endpoint);

	for (unsigned i = 0; i < endpoint->rail_count; i++)
		if (endpoint->rails[i].link != VERBS_DOWN)
			return false;
	return true;
}

/*
 * A message and a notification are in the far end's queue, not yet taken, when the peer is lost. The receive that was
 * posted for the message fails, so no later one gets it.
 */
static void queued_at_loss(void *argument)
{
	static const uint8_t bytes[LENGTH];
	struct pl_operation *receive, *sending, *notifying;
	struct pl_completion completions[8];
	struct pl_error error;
	struct ends ends;
	int count;

	ends_open(&ends, &card_manual, *(const unsigned *)argument);
	receive = receive_next(&ends);
	check_ok(pl_send_copy(ends.environment.near_peer, TAG, bytes, LENGTH, NULL, &sending, &error), &error);
	check_ok(pl_notify(ends.environment.near_peer, 7, NULL, 0, NULL, &notifying, &error), &error);
	/* Only the near end makes progress: the far end's card has acknowledged both. */
	while (pl_test(sending, NULL, &error) == -EINPROGRESS)
		;
	while (pl_test(notifying, NULL, &error) == -EINPROGRESS)
		;
	revoke_near(&ends);
	expect_receive(&ends, receive, -EACCES);
	/* A rail that is down has taken all of its completions. */
	while (!rails_are_down(ends.environment.far_peer)) {
		count = pl_poll(ends.environment.far, completions, 8);
		for (int i = 0; i < count; i++)
			check(completions[i].kind != PL_KIND_NOTIFIED);
	}
	expect_receive(&ends, receive_next(&ends), -EACCES);
	ends_close(&ends);
}

/* Lets the timer of a peer that has said BYE expire now, as it does if the program made no progress for long. */
static void end_grace(struct pl_peer *peer)
{
	pl_engine_lock(peer->home);
	peer->timer.expire(&peer->timer);
	pl_engine_unlock(peer->home);
}

struct closing {
	unsigned rails;
	bool late; /* the far end takes its completions when the peer's grace is over */
};

/*
 * The near end sends and closes at once. The far end reads BYE before it can poll the message, which its receive gets all the
 * same.
 */
static void closed_behind_message(void *argument)
{
	const struct closing *closing = argument;
	struct pl_operation *receive;
	struct pl_completion receipt;
	struct verbs_rail *rail;
	struct ends ends;

	ends_open(&ends, &card_manual, closing->rails);
	receive = receive_next(&ends);
	rail = verbs_frame_rail(verbs_endpoint_of(ends.environment.near_peer->endpoint));
	check(rail);
	card_hold_received(verbs_endpoint_of(ends.environment.far_peer->endpoint)->rails[rail->index].queue->cq);
	send_length(&ends, 1);
	pl_peer_close(ends.environment.near_peer);
	ends.environment.near_peer = NULL;
	progress_until(&ends.environment, atomic_load(&ends.environment.far_peer->ending));
	card_hold_received(NULL);
	if (closing->late)
		end_grace(ends.environment.far_peer);
	complete(&ends.environment, receive, &receipt);
	check_number(receipt.bytes, 1);
	ends_close(&ends);
}

/* The driver refuses a message on as many rails as may be tried. The last of these rails ends with the peer, too. */
static void message_refused(void *argument)
{
	struct pl_error error;
	struct ends ends;

	(void)argument;
	ends_open(&ends, &card_manual, VERBS_REFUSALS + 1);
	card_faults_next(CARD_REFUSE, VERBS_REFUSALS);
	/* The near end connects no rail again: its proof would take a refusal. */
	lose_by_sending(&ends);
	check_number(card_counts_now().faults[CARD_REFUSE], VERBS_REFUSALS);
	check_number(peer_information_of(ends.environment.far_peer).lanes, 0);
	expect_cause(ends.environment.far_peer, VERBS_REFUSALS, "the device refused a request");
	check(await(&ends.environment, receive_next(&ends), NULL, &error) < 0);
	check_text(error.id, "RDMA-POST");
	ends_close(&ends);
}

/*
 * The driver refuses a message at its last rail, and with it a write behind it in the same list, which has not reached the
 * card. The write ends with the peer.
 */
static void list_refused(void *argument)
{
	static const uint8_t bytes[LENGTH];
	struct pl_attributes more = PL_ATTRIBUTES_INIT;
	struct pl_operation *sending, *writing;
	struct pl_remote *remote;
	struct pl_error error;
	struct buffer near;
	struct ends ends;

	(void)argument;
	/* The last refusal comes when one rail is left, which then carries both. */
	ends_open(&ends, &card_manual, VERBS_REFUSALS);
	buffer_open(&near, ends.environment.near, LENGTH, PL_ACCESS_ALL);
	remote = share(&ends.environment, near.region, ends.environment.far_peer, NULL);
	const struct pl_transfer transfer = { remote, 0, ends.far.region, 0, LENGTH };

	more.flags = PL_MORE;
	card_faults_next(CARD_REFUSE, VERBS_REFUSALS);
	check_ok(pl_send_copy(ends.environment.far_peer, TAG, bytes, LENGTH, &more, &sending, &error), &error);
	check_number(card_counts_now().faults[CARD_REFUSE], 0);
	check_ok(pl_write(ends.environment.far_peer, &transfer, NULL, &writing, &error), &error);
	while (is_connected(ends.environment.far_peer))
		check_number(pl_poll(ends.environment.far, NULL, 0), 0);
	check_number(card_counts_now().faults[CARD_REFUSE], VERBS_REFUSALS);
	check_number(pl_test(writing, NULL, &error), -ENOMEM);
	check_text(error.id, "RDMA-POST");
	await(&ends.environment, sending, NULL, &error);
	pl_remote_release(remote);
	buffer_close(&near);
	ends_close(&ends);
}

static const struct test_case cases[] = {
	{ "1-rail", message_lost, &(const struct loss){ &card_manual, 1, false }, LIMIT },
	{ "1-rail-break", message_lost, &(const struct loss){ &card_manual, 1, true }, LIMIT },
	{ "2-rails", message_lost, &(const struct loss){ &card_manual, 2, false }, LIMIT },
	{ "2-rails-break", message_lost, &(const struct loss){ &card_manual, 2, true }, LIMIT },
	{ "4-rails", message_lost, &(const struct loss){ &card_manual, 4, false }, LIMIT },
	{ "4-rails-break", message_lost, &(const struct loss){ &card_manual, 4, true }, LIMIT },
	{ "4-rails-thread", message_lost, &(const struct loss){ &card_threads, 4, false }, LIMIT },
	{ "crowd", message_lost_in_crowd, &card_manual, LIMIT },
	{ "crowd-thread", message_lost_in_crowd, &card_threads, LIMIT },
	{ "revoked-1-rail", revoked_peer, &(const unsigned){ 1 }, LIMIT },
	{ "revoked-3-rails", revoked_peer, &(const unsigned){ 3 }, LIMIT },
	{ "queued-1-rail", queued_at_loss, &(const unsigned){ 1 }, LIMIT },
	{ "queued-2-rails", queued_at_loss, &(const unsigned){ 2 }, LIMIT },
	{ "closed-1-rail", closed_behind_message, &(const struct closing){ 1, false }, LIMIT },
	{ "closed-2-rails", closed_behind_message, &(const struct closing){ 2, false }, LIMIT },
	{ "closed-1-rail-late", closed_behind_message, &(const struct closing){ 1, true }, LIMIT },
	{ "closed-2-rails-late", closed_behind_message, &(const struct closing){ 2, true }, LIMIT },
	{ "refused", message_refused, NULL, LIMIT },
	{ "refused-list", list_refused, NULL, LIMIT },
	{ "after-loss", message_after_loss, NULL, LIMIT },
	{ "overtakes", message_overtakes, &(const bool){ false }, LIMIT },
	{ "overtakes-crowd", message_overtakes, &(const bool){ true }, LIMIT },
	{ "late", messages_late, &card_manual, LIMIT },
	{ "late-thread", messages_late, &card_threads, LIMIT },
};

int main(void)
{
	return cases_run("lost", cases, sizeof(cases) / sizeof(cases[0]));
}
