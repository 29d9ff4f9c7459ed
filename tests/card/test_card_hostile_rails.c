/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Attackers with a card, whose connection is up: RAILS messages about ports and rails that do not exist, answers without
 * a question, and questions without end. The attacker is a context whose control channel the test writes to.
 */
#include <stdlib.h>

#include "card/card.h"
#include "card/settings.h"
#include "core/fabric.h"
#include "core/peer.h"
#include "fabric/verbs/verbs.h"
#include "support/cases.h"
#include "support/full_channel.h"
#include "support/victim.h"

#define CARDS 4u
#define PORTS ((1u << CARDS) - 1)
#define ROUNDS 4u

struct attack {
	struct victim victim;
	struct pl_context *context; /* of the attacker */
	struct pl_listener *listener;
	struct pl_peer *here, *there; /* the attacker's end, and the victim's */
};

static atomic_uint answers;

static int count_answer(struct pl_endpoint *endpoint, const struct pl_rails_message *message)
{
	(void)endpoint;
	(void)message;
	atomic_fetch_add(&answers, 1);
	return 0;
}

/* Connects the attacker to the victim, or the victim to the attacker. The attacker takes any answer. */
static void link_open(struct attack *attack, bool victim_connects)
{
	static struct pl_fabric_ops ops;
	struct pl_error error;
	char address[96];

	attack->context = context_open(&card_threads);
	attack->listener = listener_open(&card_threads, attack->context, address);
	if (victim_connects) {
		check_ok(pl_connect(attack->victim.context, address, 0, &attack->there, &error), &error);
		check_ok(pl_accept(attack->listener, AMPLE_TIME, &attack->here, &error), &error);
	} else {
		check_ok(pl_connect(attack->context, attack->victim.address, 0, &attack->here, &error), &error);
		check_ok(pl_accept(attack->victim.listener, AMPLE_TIME, &attack->there, &error), &error);
	}
	pl_engine_lock(attack->here->home);
	ops = *attack->here->ops;
	ops.rails = count_answer;
	attack->here->ops = &ops;
	pl_engine_unlock(attack->here->home);
}

static void link_close(struct attack *attack)
{
	pl_peer_close(attack->there);
	pl_peer_close(attack->here);
	pl_close(attack->context);
}

/* Returns false if the attacker's end of the control channel is closed. */
static bool send_rails(struct attack *attack, const struct pl_rails_message *message)
{
	const struct pl_control control = { .type = PL_CONTROL_RAILS, .rails = *message };
	int rc;

	pl_engine_lock(attack->here->home);
	rc = pl_channel_send(&attack->here->channel, &control);
	pl_engine_unlock(attack->here->home);
	return rc == 0;
}

/* The victim ends the connection, because of the message. */
static void expect_lost(struct pl_peer *peer)
{
	struct pl_event_record records[32];
	struct pl_event_query all = PL_EVENT_QUERY_INIT;
	bool found = false;
	int count;

	for (uint64_t end = clock_now() + AMPLE_TIME; peer_information_of(peer).connected && clock_now() < end;)
		sleep_ms(1);
	count = pl_peer_events(peer, &all, records, 32);
	for (int i = 0; i < count; i++)
		found |= records[i].event == PL_EVENT_LOST && records[i].status == -EPROTO;
	check(found);
}

/* Each of the messages ends its connection, and no rail is made for it. */
static void wrong(bool victim_connects, const struct pl_rails_message *messages, size_t count)
{
	struct attack attack;

	victim_open(&attack.victim, &card_threads);
	for (size_t i = 0; i < count; i++) {
		unsigned made;

		link_open(&attack, victim_connects);
		/* Two rails are made at first. */
		for (uint64_t end = clock_now() + AMPLE_TIME;
		     peer_information_of(attack.there).lanes < 2 && clock_now() < end;)
			sleep_ms(1);
		made = card_counts_now().made_qps;
		check(send_rails(&attack, &messages[i]));
		expect_lost(attack.there);
		check_number(card_counts_now().made_qps, made);
		link_close(&attack);
	}
	check_number(atomic_load(&answers), 0);
	victim_close(&attack.victim);
}

/* Ports beyond those of each end, and an answer, which only an initiator gives. */
static void wrong_questions(void *argument)
{
	static const struct pl_rails_message messages[] = {
		{ PORTS + 1, 1, 0 }, { 1, PORTS + 1, 0 }, { 0x800, 0, 0 }, { 0, 0x800, 0 }, { 1, 1, 1 }, { 0, 0, 0x80 },
	};

	(void)argument;
	wrong(true, messages, sizeof(messages) / sizeof(messages[0]));
}

/* Answers to which the victim has no question, rails that do not exist, and a question, which only an acceptor asks. */
static void wrong_answers(void *argument)
{
	static const struct pl_rails_message messages[] = {
		{ 1, 1, 1 }, { PORTS, PORTS, 3 }, { 1, 1, 4 }, { 1, 1, 0x80 }, { 1, 1, 0 }
	};

	(void)argument;
	wrong(false, messages, sizeof(messages) / sizeof(messages[0]));
}

/* Questions about all ports, again and again: the victim answers each, with at most 8 rails, and serves others. */
static void many_questions(void *argument)
{
	unsigned questions = 0, before;
	struct attack attack;

	(void)argument;
	victim_open(&attack.victim, &card_threads);
	before = card_counts_now().qps;
	link_open(&attack, true);
	for (unsigned i = 0; i < ROUNDS; i++) {
		for (uint16_t near = 0; near <= PORTS; near++)
			for (uint16_t far = 0; far <= PORTS; far++, questions++)
				check(send_rails(&attack, &(const struct pl_rails_message){ near, far, 0 }));
		victim_check(&attack.victim);
	}
	for (uint64_t end = clock_now() + AMPLE_TIME; atomic_load(&answers) < questions && clock_now() < end;)
		sleep_ms(1);
	check_number(atomic_load(&answers), questions);
	check(peer_information_of(attack.there).connected);
	/* Each end has one queue pair for each rail, at most. */
	check(card_counts_now().qps <= before + 2 * PL_RAILS_MAX);
	check(card_counts_now().qps > before + 2 * 2);
	link_close(&attack);
	/* The victim's engine keeps a queue on each of two further cards, with a channel, which is a pipe. */
	attack.victim.descriptors += 2 * 2;
	victim_close(&attack.victim);
}

/* Asks or chooses rails at the victim's end while its control channel is full, because the attacker does not read. */
static uint8_t with_full_channel(struct attack *attack, bool asks)
{
	struct pl_peer *victim = attack->there;
	uint8_t choice = 0;

	pl_engine_lock(attack->here->home);
	pl_engine_lock(victim->home);
	full_channel_fill(victim);
	if (asks)
		check_number(victim->ops->rails(victim->endpoint, &(const struct pl_rails_message){ 1, 1, 0 }), 0);
	else
		choice = verbs_choose(verbs_endpoint_of(victim->endpoint), 1, 1);
	pl_engine_unlock(victim->home);
	pl_engine_unlock(attack->here->home);
	return choice;
}

/* The other end waits for the answer to its question: without room for it the connection ends. */
static void answer_is_lost(void *argument)
{
	struct attack attack;

	(void)argument;
	victim_open(&attack.victim, &card_threads);
	link_open(&attack, true);
	with_full_channel(&attack, true);
	for (uint64_t end = clock_now() + AMPLE_TIME; peer_information_of(attack.there).connected; sleep_ms(1))
		check(clock_now() < end);
	link_close(&attack);
	victim_close(&attack.victim);
}

/* No transfer waits for the answer to a question that was not sent. A later one asks again. */
static void question_is_lost(void *argument)
{
	struct attack attack;
	struct pl_peer *victim;
	uint8_t choice;

	(void)argument;
	victim_open(&attack.victim, &card_threads);
	link_open(&attack, false);
	victim = attack.there;
	check_number(with_full_channel(&attack, false), 0);
	for (uint64_t end = clock_now() + AMPLE_TIME;; sleep_ms(1)) {
		pl_engine_lock(victim->home);
		choice = verbs_choose(verbs_endpoint_of(victim->endpoint), 1, 1);
		pl_engine_unlock(victim->home);
		if (choice)
			break;
		check(clock_now() < end);
	}
	for (uint64_t end = clock_now() + AMPLE_TIME; !atomic_load(&answers); sleep_ms(1))
		check(clock_now() < end);
	link_close(&attack);
	victim_close(&attack.victim);
}

static const struct test_case cases[] = {
	{ "wrong-questions", wrong_questions, NULL, 30 },   { "wrong-answers", wrong_answers, NULL, 30 },
	{ "many-questions", many_questions, NULL, 60 },     { "answer-is-lost", answer_is_lost, NULL, 60 },
	{ "question-is-lost", question_is_lost, NULL, 60 },
};

int main(void)
{
	setenv("STANDIN_CARDS", "4", 1);
	return cases_run("card-hostile-rails", cases, sizeof(cases) / sizeof(cases[0]));
}
