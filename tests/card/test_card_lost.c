/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages whose completion the receiver's card loses for good, over one rail and several: the peer is lost by name, long
 * before the time limit of its operations. Completions that only come late lose nothing.
 */
#include <errno.h>
#include <stdlib.h>

#include "card/card.h"
#include "support/cases.h"
#include "support/environment.h"

#define LIMIT 60 /* seconds, times slowness() */
#define LENGTH 4096u
#define TAG 5u
/* Without the looks for a missing message, its receive takes this long. */
#define TIMEOUT (20 * slowness() * SECOND)

static const struct setting manual = {
	"manual", "verbs", "127.0.0.1", PL_PROGRESS_MANUAL, 1, false, false, true, false
};
static const struct setting threads = {
	"thread", "verbs", "127.0.0.1", PL_PROGRESS_THREAD, 1, false, false, true, false
};

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

static unsigned lanes_of(struct pl_peer *peer)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	check_number(pl_peer_query(peer, &info), 0);
	return info.lanes;
}

/* Returns when all rails are up. */
static void ends_open(struct ends *ends, const struct setting *setting, unsigned rails)
{
	rail_limit = rails;
	*ends = (struct ends){ 0 };
	environment_open(&ends->environment, setting);
	buffer_open(&ends->far, ends->environment.far, LENGTH, PL_ACCESS_LOCAL);
	progress_until(&ends->environment, lanes_of(ends->environment.near_peer) == rails &&
						   lanes_of(ends->environment.far_peer) == rails);
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

static void send_next(struct ends *ends)
{
	static const uint8_t bytes[LENGTH];
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_send_copy(ends->environment.near_peer, TAG, bytes, LENGTH, NULL, &operation, &error), &error);
	complete(&ends->environment, operation, NULL);
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

#define ROUNDS 40u

/* Connections break again and again while completions come late: messages overtake others, and all arrive. */
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

/* With this seed, a request that fails by chance has a wrong length. */
#define WRONG_LENGTH_SEED "17"

static bool is_connected(struct pl_peer *peer)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	check_number(pl_peer_query(peer, &info), 0);
	return info.connected;
}

/*
 * The card refuses a message of the far end, which loses its peer; one of its rails is still up. The near end does not know
 * that for a while, and sends. A receive that is posted after the loss gets nothing.
 */
static void message_after_loss(void *argument)
{
	static const uint8_t bytes[LENGTH];
	struct pl_operation *operation;
	struct pl_error error;
	struct ends ends;

	(void)argument;
	setenv("STANDIN_SEED", WRONG_LENGTH_SEED, 1);
	ends_open(&ends, &manual, 2);
	card_fault_next(CARD_STATUS);
	check_ok(pl_send_copy(ends.environment.far_peer, TAG, bytes, LENGTH, NULL, &operation, &error), &error);
	while (is_connected(ends.environment.far_peer))
		check_number(pl_poll(ends.environment.far, NULL, 0), 0);
	check_number(card_counts_now().faults[CARD_STATUS], 1);
	complete(&ends.environment, operation, NULL);
	send_next(&ends);
	progress_until(&ends.environment, !is_connected(ends.environment.near_peer));
	check_number(await(&ends.environment, receive_next(&ends), NULL, &error), -EIO);
	check_text(error.id, "RDMA-LOCAL");
	ends_close(&ends);
}

static const struct test_case cases[] = {
	{ "1-rail", message_lost, &(const struct loss){ &manual, 1, false }, LIMIT },
	{ "1-rail-break", message_lost, &(const struct loss){ &manual, 1, true }, LIMIT },
	{ "2-rails", message_lost, &(const struct loss){ &manual, 2, false }, LIMIT },
	{ "2-rails-break", message_lost, &(const struct loss){ &manual, 2, true }, LIMIT },
	{ "4-rails", message_lost, &(const struct loss){ &manual, 4, false }, LIMIT },
	{ "4-rails-break", message_lost, &(const struct loss){ &manual, 4, true }, LIMIT },
	{ "4-rails-thread", message_lost, &(const struct loss){ &threads, 4, false }, LIMIT },
	{ "after-loss", message_after_loss, NULL, LIMIT },
	{ "late", messages_late, &manual, LIMIT },
	{ "late-thread", messages_late, &threads, LIMIT },
};

int main(void)
{
	return cases_run("lost", cases, sizeof(cases) / sizeof(cases[0]));
}
