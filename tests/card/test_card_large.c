/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large messages. The peer reads them through windows on the registration of their region, so a message registers
 * nothing, and nothing reaches its buffer once the send is done.
 *
 * test_card_large --measure [MESSAGES]: messages of 64 KiB a second. No test: a benchmark.
 */
#include <stdio.h>
#include <stdlib.h>

#include "card/card.h"
#include "card/settings.h"
#include "core/peer.h"
#include "support/cases.h"
#include "support/pair.h"

#define LIMIT 40 /* seconds, times slowness() */
#define SLOTS 8u
#define SLOT (512u << 10)
#define LENGTH (64u << 10)
#define MESSAGES 200u

struct slot {
	struct pl_operation *sent, *received;
	uint32_t length;
	uint64_t seed;
};

struct flow {
	struct pair pair;
	struct slot slots[SLOTS];
	uint64_t random;
	unsigned next;
};

static void slot_start(struct flow *flow, unsigned index, uint32_t length)
{
	struct slot *slot = &flow->slots[index];
	const struct pl_buffer from = { flow->pair.near.region, index * SLOT, length };
	const struct pl_buffer to = { flow->pair.far.region, index * SLOT, length };
	struct pl_error error;

	slot->length = length;
	slot->seed = ++flow->next;
	pattern_fill(flow->pair.near.bytes + index * SLOT, length, slot->seed, 0);
	check_ok(pl_receive(flow->pair.environment.far_peer, slot->seed, UINT64_MAX, &to, NULL, &slot->received, &error), &error);
	check_ok(pl_send(flow->pair.environment.near_peer, slot->seed, &from, NULL, &slot->sent, &error), &error);
}

static void slot_finish(struct flow *flow, unsigned index)
{
	struct slot *slot = &flow->slots[index];

	complete(&flow->pair.environment, slot->sent, NULL);
	complete(&flow->pair.environment, slot->received, NULL);
	pattern_check(flow->pair.far.bytes + index * SLOT, slot->length, slot->seed, 0);
	slot->sent = slot->received = NULL;
}

/* Sends messages of this length, or of random lengths above 8 KiB. */
static void flow_run(struct flow *flow, unsigned messages, uint32_t length)
{
	for (unsigned i = 0; i < messages; i++) {
		unsigned index = i % SLOTS;

		if (flow->slots[index].sent)
			slot_finish(flow, index);
		slot_start(flow, index, length ? length : 8193 + (uint32_t)(random_next(&flow->random) % (SLOT - 8193)));
	}
	for (unsigned i = 0; i < SLOTS; i++)
		if (flow->slots[i].sent)
			slot_finish(flow, i);
}

static void flow_open(struct flow *flow, unsigned rails)
{
	narrow_grants = true;
	rail_limit = rails;
	pair_open(&flow->pair, &card_manual, SLOTS * SLOT);
	/* Writes over all rails: the windows of the grant are bound. */
	pair_spread(&flow->pair, rails);
}

/* -- cases ----------------------------------------------------------------------------------------- */

static void nothing_registered(void *argument)
{
	const unsigned rails = *(const unsigned *)argument;
	struct flow flow = { .random = 1 };
	struct card_counts before, after;

	flow_open(&flow, rails);
	flow_run(&flow, 1, LENGTH);
	before = card_counts_now();
	flow_run(&flow, MESSAGES, LENGTH);
	after = card_counts_now();
	check_number(after.made_mrs, before.made_mrs);
	check_number(after.mrs, before.mrs);
	/* Each rail has a window for each message under way. */
	check(after.made_mws - before.made_mws <= rails * SLOTS);
	check_number(after.requests[IBV_WR_BIND_MW] - before.requests[IBV_WR_BIND_MW], rails * MESSAGES);
	check_number(after.requests[IBV_WR_LOCAL_INV] - before.requests[IBV_WR_LOCAL_INV], rails * MESSAGES);
	check_number(after.bound, before.bound);
	check_number(after.connects, rails);
	pair_close(&flow.pair);
}

/* A card without windows, a program that wants none, an older peer: a registration each, as long as the message. */
static void registered_each(void *argument)
{
	const bool wide = !strcmp(argument, "wide"), older = !strcmp(argument, "older");
	struct flow flow = { .random = 1 };
	struct card_counts before, after;

	if (!wide && !older)
		setenv("STANDIN_CARD", argument, 1);
	flow_open(&flow, 1);
	if (wide) {
		pair_close(&flow.pair);
		narrow_grants = false;
		pair_open(&flow.pair, &card_manual, SLOTS * SLOT);
	}
	if (older)
		flow.pair.environment.near_peer->bound_messages = false;
	flow_run(&flow, 1, LENGTH);
	before = card_counts_now();
	flow_run(&flow, MESSAGES, LENGTH);
	after = card_counts_now();
	check_number(after.made_mrs - before.made_mrs, MESSAGES);
	check_number(after.mrs, before.mrs);
	/* The grant of the older peer has a window. */
	check_number(after.bound, older);
	pair_close(&flow.pair);
}

/* A send that is cancelled while the peer reads: the window goes, and the connection of others stays usable. */
static void canceled(void *argument)
{
	struct flow flow = { .random = 1 };
	struct pl_error error;
	unsigned bound;

	(void)argument;
	flow_open(&flow, 2);
	bound = card_counts_now().bound;
	for (unsigned i = 0; i < 40; i++) {
		unsigned index = i % SLOTS;

		slot_start(&flow, index, SLOT);
		settle(&flow.pair.environment, i % 4);
		pl_cancel(flow.slots[index].sent);
		check_one_of(await(&flow.pair.environment, flow.slots[index].sent, NULL, &error), 0, -ECANCELED);
		/* A broken connection has none of its grants' windows either. */
		check(card_counts_now().bound <= bound);
		pl_cancel(flow.slots[index].received);
		await(&flow.pair.environment, flow.slots[index].received, NULL, &error);
		flow.slots[index].sent = NULL;
	}
	flow_run(&flow, MESSAGES, 0);
	pair_close(&flow.pair);
}

/* The device neither invalidates nor deallocates the window of a send that ends: it is given up, and opened anew. */
static void kept_window(void *argument)
{
	struct flow flow = { .random = 1 };
	struct pl_error error;
	unsigned connects;

	(void)argument;
	flow_open(&flow, 1);
	flow_run(&flow, 1, LENGTH);
	connects = card_counts_now().connects;
	slot_start(&flow, 0, SLOT);
	card_fault_next(CARD_REFUSE);
	card_fault_next(CARD_DEALLOC);
	pl_cancel(flow.slots[0].sent);
	check_number(await(&flow.pair.environment, flow.slots[0].sent, NULL, &error), -ECANCELED);
	pl_cancel(flow.slots[0].received);
	await(&flow.pair.environment, flow.slots[0].received, NULL, &error);
	flow.slots[0].sent = NULL;
	progress_until(&flow.pair.environment, card_counts_now().connects > connects);
	flow_run(&flow, SLOTS, LENGTH);
	pair_close(&flow.pair);
}

struct mood {
	const char *faults, *most;
	unsigned rails;
};

static void in_mood(void *argument)
{
	const struct mood *mood = argument;
	struct flow flow = { .random = 1 };
	struct card_counts counts;
	unsigned faults = 0;

	setenv("STANDIN_MOOD", mood->faults, 1);
	setenv("STANDIN_FAULTS", mood->most, 1);
	flow_open(&flow, mood->rails);
	flow_run(&flow, MESSAGES, 0);
	counts = card_counts_now();
	for (unsigned i = 0; i < CARD_FAULTS; i++)
		faults += counts.faults[i];
	check(faults > 0);
	check(counts.connects <= mood->rails + 3 * faults);
	pair_close(&flow.pair);
	check_number(card_counts_now().bound, 0);
}

static void measure(unsigned messages)
{
	struct flow flow = { .random = 1 };
	uint64_t begin;

	flow_open(&flow, 1);
	flow_run(&flow, SLOTS, LENGTH);
	begin = clock_now();
	flow_run(&flow, messages, LENGTH);
	begin = clock_now() - begin;
	printf("%u messages of %u bytes, %u at once: %.0f a second\n", messages, LENGTH, SLOTS,
	       messages * (double)SECOND / (double)begin);
	pair_close(&flow.pair);
}

int main(int argc, char **argv)
{
	static const unsigned rails[] = { 1, 2, 4 };
	static const struct mood moods[] = {
		{ "late:2000,rnr:500", "1000000", 2 },     { "undelivered:100", "20", 1 },
		{ "undelivered:100", "20", 2 },		   { "unanswered:50", "10", 1 },
		{ "unanswered:50,late:500", "10", 4 },	   { "undelivered:50,unanswered:50,taken", "10", 3 },
	};
	static const struct test_case cases[] = {
		{ "nothing-registered-1-rail", nothing_registered, &rails[0], LIMIT },
		{ "nothing-registered-2-rails", nothing_registered, &rails[1], LIMIT },
		{ "nothing-registered-4-rails", nothing_registered, &rails[2], LIMIT },
		{ "registered-each-thor2", registered_each, "thor2", LIMIT },
		{ "registered-each-wide", registered_each, "wide", LIMIT },
		{ "registered-each-older", registered_each, "older", LIMIT },
		{ "canceled", canceled, NULL, LIMIT },
		{ "kept-window", kept_window, NULL, LIMIT },
		{ "late", in_mood, &moods[0], LIMIT },
		{ "undelivered-1-rail", in_mood, &moods[1], LIMIT },
		{ "undelivered-2-rails", in_mood, &moods[2], LIMIT },
		{ "unanswered-1-rail", in_mood, &moods[3], LIMIT },
		{ "unanswered-4-rails", in_mood, &moods[4], LIMIT },
		{ "all-3-rails", in_mood, &moods[5], LIMIT },
	};

	if (argc > 1 && !strcmp(argv[1], "--measure")) {
		measure(argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 20000);
		return 0;
	}
	return cases_run("large messages", cases, sizeof(cases) / sizeof(cases[0]));
}
