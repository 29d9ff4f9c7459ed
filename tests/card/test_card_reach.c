/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two cards, of which one registers memory late, or not at all: transfers go over the other one meanwhile, and over the late
 * one if that is the only one left. Nothing else of the peer waits for ever.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "card/card.h"
#include "card/settings.h"
#include "support/cases.h"
#include "support/environment.h"

/* More than the registrations of the library's own buffers, and more than one card has posted at a time. */
#define LENGTH (64u << 20)
#define LARGE (6u << 20)
#define TAG 5u
#define TIMEOUT (20 * slowness() * SECOND)

struct rig {
	struct scenario_environment environment;
	struct buffer near, far;
	struct pl_remote *remote;
	struct pl_operation *write;
};

/* Connects two ends over both cards. These devices do not register the far memory. */
static void rig_open(struct rig *rig, unsigned refusing)
{
	*rig = (struct rig){ 0 };
	rail_limit = 2;
	environment_open(&rig->environment, &card_manual);
	await_lanes(&rig->environment, 2);
	card_refuse(refusing, LARGE);
	buffer_open(&rig->near, rig->environment.near, LENGTH, PL_ACCESS_ALL);
	buffer_open(&rig->far, rig->environment.far, LENGTH, PL_ACCESS_ALL);
	pattern_fill(rig->near.bytes, LENGTH, 1, 0);
	rig->remote = share(&rig->environment, rig->far.region, rig->environment.near_peer, NULL);
	card_refuse(0, 0);
}

static void post_write(struct rig *rig)
{
	const struct pl_transfer transfer = { rig->remote, 0, rig->near.region, 0, LENGTH };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;

	attributes.timeout = TIMEOUT;
	check_ok(pl_write(rig->environment.near_peer, &transfer, &attributes, &rig->write, &error), &error);
}

/* A message, which would wait behind a write that no card takes. */
static void exchange_message(struct rig *rig)
{
	const struct pl_buffer to = { rig->far.region, 0, LENGTH };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *send, *receive;
	struct pl_error error;
	char text[] = "behind";

	attributes.timeout = TIMEOUT;
	check_ok(pl_receive(rig->environment.far_peer, TAG, UINT64_MAX, &to, &attributes, &receive, &error), &error);
	check_ok(pl_send_copy(rig->environment.near_peer, TAG, text, sizeof(text), &attributes, &send, &error), &error);
	complete(&rig->environment, send, NULL);
	complete(&rig->environment, receive, NULL);
	check(memcmp(rig->far.bytes, text, sizeof(text)) == 0);
}

/* Ends the write and the rig: all bytes have arrived. */
static void rig_end(struct rig *rig)
{
	complete(&rig->environment, rig->write, NULL);
	pattern_check(rig->far.bytes, LENGTH, 1, 0);
	exchange_message(rig);
	pl_remote_release(rig->remote);
	buffer_close(&rig->near);
	buffer_close(&rig->far);
	environment_close(&rig->environment);
}

/* Only card 1 reaches the far memory, and only card 0 has registered the near one: the write waits for card 1. */
static void no_common_card(void *argument)
{
	struct rig rig;

	(void)argument;
	rig_open(&rig, 1u << 0);
	card_hold_on(1u << 1, LARGE);
	post_write(&rig);
	progress_until(&rig.environment, card_held() == 1);
	settle(&rig.environment, 20);
	check_number(pl_test(rig.write, NULL, NULL), -EINPROGRESS);
	card_hold(0);
	rig_end(&rig);
}

/* Card 0 alone serves the write while card 1 registers. Its port goes down: card 1 does the rest. */
static void port_lost(void *argument)
{
	struct rig rig;

	(void)argument;
	rig_open(&rig, 0);
	card_hold_on(1u << 1, LARGE);
	post_write(&rig);
	progress_until(&rig.environment, card_held() == 1);
	card_port(0, false);
	progress_until(&rig.environment, peer_information_of(rig.environment.near_peer).lanes == 1);
	check_number(pl_test(rig.write, NULL, NULL), -EINPROGRESS);
	card_hold(0);
	rig_end(&rig);
}

static struct pl_operation *post_add(struct rig *rig, uint64_t timeout)
{
	const struct pl_atomic add = { .remote = rig->remote, .operand = 3 };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_error error;

	attributes.timeout = timeout;
	check_ok(pl_fetch_add(rig->environment.near_peer, &add, &attributes, &operation, &error), &error);
	return operation;
}

/*
 * Only the card without atomic operations is left: they wait for the other one, or until their time-out, and nothing waits
 * for them.
 */
static void atomics_lost(void *argument)
{
	struct pl_completion receipt;
	struct pl_operation *add;
	struct pl_error error;
	struct rig rig;

	(void)argument;
	setenv("STANDIN_NO_ATOMICS", "2", 1);
	rig_open(&rig, 0);
	*(uint64_t *)rig.far.bytes = 39;
	complete(&rig.environment, post_add(&rig, TIMEOUT), &receipt);
	check_number(receipt.value, 39);
	card_port(0, false);
	progress_until(&rig.environment, peer_information_of(rig.environment.near_peer).lanes == 1);
	check_number(await(&rig.environment, post_add(&rig, SECOND / 5), NULL, &error), -ETIMEDOUT);
	add = post_add(&rig, UINT64_MAX);
	post_write(&rig);
	complete(&rig.environment, rig.write, NULL);
	exchange_message(&rig);
	check_number(pl_test(add, NULL, NULL), -EINPROGRESS);
	*(uint64_t *)rig.far.bytes = 42;
	card_port(0, true);
	complete(&rig.environment, add, &receipt);
	check_number(receipt.value, 42);
	check_number(*(uint64_t *)rig.far.bytes, 45);
	post_write(&rig);
	rig_end(&rig);
	unsetenv("STANDIN_NO_ATOMICS");
}

static const struct test_case cases[] = {
	{ "no common card", no_common_card, NULL, 60 },
	{ "port lost", port_lost, NULL, 60 },
	{ "atomics lost", atomics_lost, NULL, 60 },
};

int main(void)
{
	setenv("STANDIN_CARDS", "2", 1);
	return cases_run("card reach", cases, sizeof(cases) / sizeof(cases[0]));
}
