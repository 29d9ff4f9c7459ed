/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Clients that open only some data sockets of a peer, in any order, without the first one, and then disconnect.  The
 * listener frees them, on all engines.
 */
#include <pthread.h>
#include <unistd.h>

#include "support/attack.h"
#include "support/cases.h"
#include "support/victim.h"

#define ATTACKERS 4
#define ROUNDS 150

static const struct setting plain = { "plain", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, false, false, false, false };

struct attacker {
	const char *address;
	unsigned number;
	pthread_t thread;
};

static void *attack(void *argument)
{
	const struct attacker *attacker = argument;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct attack_target target;
		int control = attack_greet(attacker->address, &target), lanes[3];
		uint16_t count = 1 + (i + attacker->number) % 3;

		for (uint16_t lane = 0; lane < count; lane++)
			lanes[lane] = attack_lane(attacker->address, &target, 1 + lane);
		/* Alternates the order, so that the listener notices either socket first. */
		if (i % 2)
			close(control);
		for (unsigned lane = 0; lane < count; lane++)
			close(lanes[lane]);
		if (i % 2 == 0)
			close(control);
	}
	return NULL;
}

static void lanes_without_the_first(void *argument)
{
	struct attacker attackers[ATTACKERS];
	struct victim victim;

	/* A loaded machine may stop an attacker for a while between two sockets. */
	victim_open_for(&victim, argument, 5 * SECOND * slowness());
	for (unsigned i = 0; i < ATTACKERS; i++) {
		attackers[i] = (struct attacker){ .address = victim.address, .number = i };
		check_number(pthread_create(&attackers[i].thread, NULL, attack, &attackers[i]), 0);
	}
	for (unsigned i = 0; i < ATTACKERS; i++)
		check_number(pthread_join(attackers[i].thread, NULL), 0);
	victim_check(&victim);
	victim_close(&victim);
}

/* Closes the listener's context while clients connect. */
static void closed_among_them(void *argument)
{
	enum { COUNT = 8 };

	for (unsigned round = 0; round < 20; round++) {
		struct pl_context *context = context_open(argument);
		int controls[COUNT], lanes[COUNT];
		struct attack_target target;
		char address[96];

		listener_open(argument, context, address);
		for (unsigned i = 0; i < COUNT; i++) {
			controls[i] = attack_greet(address, &target);
			lanes[i] = attack_lane(address, &target, (uint16_t)(1 + i % 3));
		}
		for (unsigned i = 0; i < COUNT; i++)
			close(controls[i]);
		pl_close(context);
		for (unsigned i = 0; i < COUNT; i++)
			close(lanes[i]);
	}
}

int main(void)
{
	const struct test_case cases[] = {
		{ "lanes without the first", lanes_without_the_first, &plain, 20 },
		{ "closed among them", closed_among_them, &plain, 20 },
	};

	return cases_run("unfinished", cases, sizeof(cases) / sizeof(cases[0]));
}
