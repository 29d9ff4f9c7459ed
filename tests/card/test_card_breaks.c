/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections that break in the middle of a message: the device has taken a shared receive for it, and returns it late
 * or never. Messages must arrive after more breaks than there are receives.
 */
#include <errno.h>
#include <stdlib.h>

#include "card/card.h"
#include "card/settings.h"
#include "support/cases.h"
#include "support/pair.h"

#define LIMIT 60 /* seconds, times slowness() */
#define BREAKS 300u
#define CANCELS 20u
/* A queue pair may have this many SENDs under way. */
#define BURST 128u
#define LENGTH 4096u
#define TAG 5u

/* Sends messages at once, and receives them. */
static void exchange(struct pair *pair, unsigned count)
{
	struct pl_operation *sent[BURST], *received[BURST];
	const struct pl_buffer to = { pair->far.region, 0, LENGTH };
	static const uint8_t bytes[LENGTH];
	struct pl_error error;

	for (unsigned i = 0; i < count; i++) {
		check_ok(pl_receive(pair->environment.far_peer, TAG, UINT64_MAX, &to, NULL, &received[i], &error), &error);
		check_ok(pl_send_copy(pair->environment.near_peer, TAG, bytes, LENGTH, NULL, &sent[i], &error), &error);
	}
	for (unsigned i = 0; i < count; i++) {
		complete(&pair->environment, sent[i], NULL);
		complete(&pair->environment, received[i], NULL);
	}
}

/*
 * Time for which an end waits for its last receive.  A card that is late four times in a row, as on a busy machine, loses
 * receives; then a test is tried again.
 */
#define LAST_TIME (100 * MS)
#define LATE_LEAST 4u
#define TRIES 5u

/* Opens a pair and breaks it often. Returns the breaks whose last receive the card may not have returned in time. */
static unsigned break_often(struct pair *pair, const struct setting *setting, unsigned breaks)
{
	struct card_counts before;
	unsigned waits, late = 0;

	pair_open(pair, setting, LENGTH);
	before = card_counts_now();
	for (unsigned i = 0; i < breaks; i++) {
		const uint64_t begin = clock_now();

		card_fault_next(CARD_UNDELIVERED);
		exchange(pair, 1);
		/* The other end may have begun its wait in the break before. */
		late += clock_now() - begin >= LAST_TIME / 2;
	}
	check_number(card_counts_now().faults[CARD_UNDELIVERED], before.faults[CARD_UNDELIVERED] + breaks);
	check(card_counts_now().faults[CARD_TAKEN] >= before.faults[CARD_TAKEN] + breaks);
	waits = card_counts_now().receiver_waits;
	exchange(pair, BURST);
	check_number(card_counts_now().receiver_waits, waits);
	return late;
}

/* Checks that a pair whose connections break keeps its two queues. */
static void keep_queues(const struct setting *setting)
{
	unsigned late, before = 0, tries = TRIES;
	struct card_counts counts;
	struct pair pair;

	for (;;) {
		late = break_often(&pair, setting, BREAKS);
		counts = card_counts_now();
		pair_close(&pair);
		if (counts.made_srqs == before + 2)
			break;
		check(late >= LATE_LEAST && --tries);
		before = card_counts_now().made_srqs;
	}
	check_number(counts.srqs, 2);
}

/* The device returns each receive some milliseconds after the failure, and tells then. */
static void receives_return(void *argument)
{
	setenv("STANDIN_MOOD", "taken", 1);
	keep_queues(*(const struct setting *const *)argument);
}

/* Completions come late, too: the frames of a connection that ended are not lost. */
static void completions_late(void *argument)
{
	setenv("STANDIN_MOOD", "taken,late:3000", 1);
	keep_queues(*(const struct setting *const *)argument);
}

/*
 * An end cancels its write, which breaks the connection, when a message has arrived whose completion comes later than
 * that of the write. The sender knows that the message arrived, and does not send it again.
 */
static void message_arrives_at_break(void *argument)
{
	struct pl_operation *write, *sent, *received;
	static const uint8_t bytes[LENGTH];
	struct pl_buffer into = { .length = LENGTH };
	struct pl_error error;
	struct pair pair;
	int rc;

	setenv("STANDIN_CARD", argument, 1);
	setenv("STANDIN_MOOD", "late", 1);
	pair_open(&pair, &card_manual, LENGTH);
	into.region = pair.near.region;
	for (unsigned i = 0; i < CANCELS; i++) {
		const struct pl_transfer transfer = { .remote = pair.remote, .region = pair.near.region, .length = LENGTH };

		check_ok(pl_receive(pair.environment.near_peer, TAG, UINT64_MAX, &into, NULL, &received, &error), &error);
		check_ok(pl_write(pair.environment.near_peer, &transfer, NULL, &write, &error), &error);
		check_ok(pl_send_copy(pair.environment.far_peer, TAG, bytes, LENGTH, NULL, &sent, &error), &error);
		pl_cancel(write);
		complete(&pair.environment, sent, NULL);
		complete(&pair.environment, received, NULL);
		rc = pl_wait(write, UINT64_MAX, NULL, &error);
		check(rc == 0 || rc == -ECANCELED);
	}
	pair_close(&pair);
}

/* The device keeps the receives, and tells nothing: queues are made anew, and the old ones go. */
static void receives_lost(void *argument)
{
	struct pair pair;

	setenv("STANDIN_MOOD", "taken,no-last", 1);
	break_often(&pair, *(const struct setting *const *)argument, BREAKS);
	check(card_counts_now().made_srqs > 2 && card_counts_now().made_srqs <= 2 + 2 * BREAKS / 64);
	check_number(card_counts_now().srqs, 2);
	pair_close(&pair);
}

/* Closes a peer. Returns true if the card, on a busy machine, may not have returned the last receive in time. */
static bool close_late(struct pl_peer *peer)
{
	const uint64_t begin = clock_now();

	pl_peer_close(peer);
	return clock_now() - begin >= LAST_TIME;
}

/*
 * Opens a pair, and closes peers beside it. `made`: queues that were made before. Returns true if the pair kept its two;
 * on a busy machine they may be lost.
 */
static bool queues_outlast_peers(unsigned made)
{
	struct pl_peer *near, *far;
	unsigned waits, late = 0;
	struct pair pair;
	bool kept;

	pair_open(&pair, &card_manual, LENGTH);
	waits = card_counts_now().receiver_waits;
	for (unsigned i = 0; i < BREAKS; i++) {
		connect_pair(&pair.environment, pair.environment.near, pair.environment.listener, &near, &far);
		late += close_late(near);
		late += close_late(far);
	}
	exchange(&pair, BURST);
	check_number(card_counts_now().receiver_waits, waits);
	kept = card_counts_now().made_srqs == made + 2;
	check(kept || late >= LATE_LEAST);
	pair_close(&pair);
	return kept;
}

/* Peers that close share the queue with those that stay. */
static void peers_close(void *argument)
{
	unsigned made = 0, tries = TRIES;

	(void)argument;
	setenv("STANDIN_MOOD", "taken", 1);
	while (!queues_outlast_peers(made)) {
		check(--tries);
		made = card_counts_now().made_srqs;
	}
}

int main(void)
{
	static const struct setting *const settings[] = { &card_manual, &card_threads };
	static const struct test_case cases[] = {
		{ "receives-return-manual", receives_return, &settings[0], LIMIT },
		{ "receives-return-thread", receives_return, &settings[1], LIMIT },
		{ "completions-late", completions_late, &settings[0], LIMIT },
		{ "message-arrives-at-break", message_arrives_at_break, "cx7-ib", LIMIT },
		{ "message-arrives-at-break-own", message_arrives_at_break, "e810", LIMIT },
		{ "receives-lost-manual", receives_lost, &settings[0], LIMIT },
		{ "receives-lost-thread", receives_lost, &settings[1], LIMIT },
		{ "peers-close", peers_close, NULL, LIMIT },
	};

	return cases_run("breaks", cases, sizeof(cases) / sizeof(cases[0]));
}
