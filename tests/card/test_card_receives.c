/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many peers that send to one engine: its receives suffice, and their memory has a limit.
 *
 * test_card_receives --measure [ROUNDS]: pauses for want of a receive, and messages a second. No test: a benchmark.
 */
#include <stdio.h>
#include <stdlib.h>

#include "card/card.h"
#include "card/settings.h"
#include "support/cases.h"
#include "support/environment.h"

/* A queue pair may have this many SENDs under way. */
#define BURST 128u
#define SENDERS 16u
#define MESSAGE 64u
/* Messages above half a buffer never share a SEND. */
#define LARGE_MESSAGE 4200u
#define TAG 5u
#define ROUNDS 3u
/* Bytes of a receive or send buffer; buffers of a queue with one rail; receives that a further rail adds. */
#define BUFFER 8224u
#define BASE 512u
#define FURTHER 128u
/* Most receives that a queue adds, and all queues of a context. */
#define QUEUE_MOST 3840u
#define CONTEXT_MOST 7680u

/* -- senders, each a context of its own, and their receiver ---------------------------------------- */

struct sender {
	struct scenario_environment environment; /* drives `near` alone */
	struct pl_peer *near_peer, *far_peer;
	struct pl_operation *sent[BURST];
};

struct crowd {
	struct scenario_environment receiver; /* drives `far` alone */
	struct buffer to;
	uint32_t length; /* bytes of a message */
	struct sender senders[SENDERS];
};

static struct pl_context *one_engine_open(const struct setting *setting)
{
	struct pl_options options = setting_options(setting);

	options.workers = 1;
	return context_open_with(&options);
}

static void sender_open(struct crowd *crowd, struct sender *sender)
{
	const struct setting *setting = crowd->receiver.setting;

	sender->environment = (struct scenario_environment){ .setting = setting };
	sender->environment.near = one_engine_open(setting);
	drive(&sender->environment, sender->environment.near);
	drive(&crowd->receiver, sender->environment.near);
	connect_pair(&crowd->receiver, sender->environment.near, crowd->receiver.listener, &sender->near_peer,
		     &sender->far_peer);
	drive_no_more(&crowd->receiver, sender->environment.near);
}

static void sender_close(struct sender *sender)
{
	pl_peer_close(sender->near_peer);
	pl_peer_close(sender->far_peer);
	pl_close(sender->environment.near);
}

static void crowd_open(struct crowd *crowd, const struct setting *setting, uint32_t length)
{
	crowd->length = length;
	crowd->receiver = (struct scenario_environment){ .setting = setting };
	crowd->receiver.far = one_engine_open(setting);
	drive(&crowd->receiver, crowd->receiver.far);
	crowd->receiver.listener = listener_open(setting, crowd->receiver.far, crowd->receiver.address);
	buffer_open(&crowd->to, crowd->receiver.far, length, PL_ACCESS_LOCAL);
	for (unsigned i = 0; i < SENDERS; i++)
		sender_open(crowd, &crowd->senders[i]);
}

static void crowd_close(struct crowd *crowd)
{
	for (unsigned i = 0; i < SENDERS; i++)
		sender_close(&crowd->senders[i]);
	buffer_close(&crowd->to);
	pl_listener_close(crowd->receiver.listener);
	pl_close(crowd->receiver.far);
}

/* Sends the messages one by one: those that wait for each other would share a SEND. The receiver is not driven. */
static void send_burst(struct sender *sender, uint32_t length)
{
	static const uint8_t bytes[LARGE_MESSAGE];
	struct pl_error error;

	for (unsigned i = 0; i < BURST; i++) {
		check_ok(pl_send_copy(sender->near_peer, TAG, bytes, length, NULL, &sender->sent[i], &error), &error);
		progress(&sender->environment);
	}
}

static void receive_burst(struct crowd *crowd, struct sender *sender)
{
	const struct pl_buffer to = { crowd->to.region, 0, crowd->length };
	struct pl_operation *operation;
	struct pl_error error;

	/* A sender that paused goes on only if its context is driven. */
	drive(&crowd->receiver, sender->environment.near);
	for (unsigned i = 0; i < BURST; i++) {
		check_ok(pl_receive(sender->far_peer, TAG, UINT64_MAX, &to, NULL, &operation, &error), &error);
		complete(&crowd->receiver, operation, NULL);
		complete(&crowd->receiver, sender->sent[i], NULL);
	}
	drive_no_more(&crowd->receiver, sender->environment.near);
}

static void round_run(struct crowd *crowd)
{
	for (unsigned i = 0; i < SENDERS; i++)
		send_burst(&crowd->senders[i], crowd->length);
	for (unsigned i = 0; i < SENDERS; i++)
		receive_burst(crowd, &crowd->senders[i]);
}

/* -- cases ----------------------------------------------------------------------------------------- */

/* All bursts arrive before the receiver looks, or, with threads, while it does. */
static void bursts_fit(void *argument)
{
	struct crowd crowd;

	crowd_open(&crowd, *(const struct setting *const *)argument, MESSAGE);
	for (unsigned i = 0; i < ROUNDS; i++)
		round_run(&crowd);
	check_number(card_counts_now().receiver_waits, 0);
	check_number(card_counts_now().connects, SENDERS);
	crowd_close(&crowd);
}

/* Rails that come in place of others add nothing. */
static void rails_replaced(void *argument)
{
	const unsigned buffers = (SENDERS + 1) * BASE + (SENDERS - 1) * FURTHER;
	struct crowd crowd;

	(void)argument;
	crowd_open(&crowd, &card_manual, MESSAGE);
	check_number(card_counts_now().locked, (uint64_t)buffers * BUFFER);
	for (unsigned i = 0; i < SENDERS; i++) {
		sender_close(&crowd.senders[i]);
		sender_open(&crowd, &crowd.senders[i]);
	}
	check_number(card_counts_now().locked, (uint64_t)buffers * BUFFER);
	round_run(&crowd);
	check_number(card_counts_now().receiver_waits, 0);
	crowd_close(&crowd);
}

/* With fewer receives than the rule asks for, senders pause, and every message arrives. */
static void receives_missing(struct crowd *crowd, unsigned further)
{
	const unsigned buffers = (SENDERS + 1) * BASE + further * FURTHER;

	crowd_open(crowd, &card_manual, MESSAGE);
	check_number(card_counts_now().locked, (uint64_t)buffers * BUFFER);
	for (unsigned i = 0; i < ROUNDS; i++)
		round_run(crowd);
	check(card_counts_now().receiver_waits > 0);
	check_number(card_counts_now().connects, SENDERS);
	crowd_close(crowd);
}

static void memory_refused(void *argument)
{
	char limit[32];
	struct crowd crowd;

	(void)argument;
	snprintf(limit, sizeof(limit), "%u", (BASE + 2 * FURTHER) * BUFFER);
	setenv("STANDIN_LOCKED", limit, 1);
	receives_missing(&crowd, 2);
}

/* The device's shared receive queue has room for 400 receives, and its completion queue for 2,047 completions. */
static void device_small(void *argument)
{
	struct crowd crowd;

	(void)argument;
	setenv("STANDIN_CARD", "small", 1);
	receives_missing(&crowd, 1);
}

/* The queue of one engine, and the queues of four engines, stop growing. */
static void memory_bounded(void *argument)
{
	const unsigned buffers = (1 + 4) * BASE + QUEUE_MOST + CONTEXT_MOST;
	struct pl_options options = setting_options(&card_threads);
	struct scenario_environment environment = { .setting = &card_threads };
	struct pl_peer *near[80], *far[80];

	(void)argument;
	environment.near = one_engine_open(&card_threads);
	options.workers = 4;
	environment.far = context_open_with(&options);
	environment.listener = listener_open(&card_threads, environment.far, environment.address);
	for (unsigned i = 0; i < 80; i++)
		connect_pair(&environment, environment.near, environment.listener, &near[i], &far[i]);
	check_number(card_counts_now().locked, (uint64_t)buffers * BUFFER);
	for (unsigned i = 0; i < 80; i++) {
		pl_peer_close(near[i]);
		pl_peer_close(far[i]);
	}
	pl_listener_close(environment.listener);
	pl_close(environment.near);
	pl_close(environment.far);
}

/* -- measurement ----------------------------------------------------------------------------------- */

static void measure(const struct setting *setting, uint32_t length, unsigned rounds)
{
	const unsigned messages = rounds * SENDERS * BURST;
	struct crowd crowd;
	unsigned waits;
	uint64_t begin;

	crowd_open(&crowd, setting, length);
	waits = card_counts_now().receiver_waits;
	begin = clock_now();
	for (unsigned i = 0; i < rounds; i++)
		round_run(&crowd);
	begin = clock_now() - begin;
	printf("%-8s%8u%10u%14.0f%12.1f\n", setting->name, length, card_counts_now().receiver_waits - waits,
	       messages * (double)SECOND / (double)begin, (double)card_counts_now().locked / 1e6);
	crowd_close(&crowd);
}

static void measure_all(unsigned rounds)
{
	printf("%u peers, bursts of %u messages\n%-8s%8s%10s%14s%12s\n", SENDERS, BURST, "setting", "bytes", "pauses",
	       "messages/s", "MB locked");
	measure(&card_manual, MESSAGE, rounds);
	measure(&card_manual, LARGE_MESSAGE, rounds);
	measure(&card_threads, MESSAGE, rounds);
	measure(&card_threads, LARGE_MESSAGE, rounds);
}

int main(int argc, char **argv)
{
	static const struct setting *const settings[] = { &card_manual, &card_threads };
	static const struct test_case cases[] = {
		{ "bursts-fit-manual", bursts_fit, &settings[0], 30 },
		{ "bursts-fit-thread", bursts_fit, &settings[1], 30 },
		{ "rails-replaced", rails_replaced, NULL, 30 },
		{ "memory-refused", memory_refused, NULL, 30 },
		{ "device-small", device_small, NULL, 30 },
		{ "memory-bounded", memory_bounded, NULL, 60 },
	};

	if (argc < 2 || strcmp(argv[1], "--measure"))
		return cases_run("card receives", cases, sizeof(cases) / sizeof(cases[0]));
	measure_all(argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 50);
	return 0;
}
