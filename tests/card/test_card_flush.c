/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loopback queue pairs of an owner, whose reads make the peer's writes visible: each has the port, the GID and the P_Key of
 * a rail that is up. Each case has a process of its own, because the card reads its variables once.
 */
#include <stdlib.h>

#include "card/card.h"
#include "card/settings.h"
#include "fabric/verbs/data/flush.h"
#include "support/cases.h"
#include "support/environment.h"

#define LENGTH 4096u
/* Reads through one port, far more than a queue posts together. */
#define MANY 1000u

struct rig {
	struct scenario_environment environment;
	struct buffer near, far;
	struct pl_remote *remote; /* the owner must flush: the grant allows no reads */
};

static void rig_open(struct rig *rig, const struct pl_options *options)
{
	struct scenario_environment *environment = &rig->environment;
	struct pl_grant_options writable = PL_GRANT_OPTIONS_INIT;

	*environment = (struct scenario_environment){ .setting = &card_manual };
	environment->near = context_open_with(options);
	environment->far = context_open_with(options);
	drive(environment, environment->near);
	drive(environment, environment->far);
	environment->listener = listener_open(&card_manual, environment->far, environment->address);
	connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
		     &environment->far_peer);
	await_lanes(environment, options->rails);
	buffer_open(&rig->near, environment->near, LENGTH, PL_ACCESS_LOCAL);
	buffer_open(&rig->far, environment->far, LENGTH, PL_ACCESS_ALL);
	writable.rights = PL_ACCESS_WRITE;
	rig->remote = share(environment, rig->far.region, environment->near_peer, &writable);
}

/* Opens the rig with rails over both ports of one card. */
static void rig_open_ports(struct rig *rig)
{
	struct pl_options options = setting_options(&card_manual);

	setenv("STANDIN_CARD", "cx7-roce", 1);
	setenv("STANDIN_PORTS", "2", 1);
	options.rails = 2;
	rig_open(rig, &options);
}

static void rig_close(struct rig *rig)
{
	pl_remote_release(rig->remote);
	buffer_close(&rig->near);
	buffer_close(&rig->far);
	environment_close(&rig->environment);
}

/* Writes bytes that the owner's card must make visible. Returns the last loopback queue pair. */
static struct card_attributes write_visibly(struct rig *rig)
{
	const struct pl_transfer transfer = { rig->remote, 0, rig->near.region, 0, LENGTH };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_error error;

	attributes.visible = PL_VISIBLE_PLACED;
	check_ok(pl_write(rig->environment.near_peer, &transfer, &attributes, &operation, &error), &error);
	complete(&rig->environment, operation, NULL);
	return card_counts_now().loopback;
}

/* The port of the first rail goes down: the owner reads through the port of the other one. */
static void other_port(void *argument)
{
	struct rig rig;

	(void)argument;
	rig_open_ports(&rig);
	check_number(write_visibly(&rig).port, 1);
	card_port(0, false);
	progress_until(&rig.environment, peer_information_of(rig.environment.near_peer).lanes == 1 &&
						 peer_information_of(rig.environment.far_peer).lanes == 1);
	check_number(write_visibly(&rig).port, 2);
	check_number(card_counts_now().loopbacks, 2);
	/* Further flushes need no other queue pair, also when the first rail is back. */
	write_visibly(&rig);
	card_port(0, true);
	await_lanes(&rig.environment, 2);
	write_visibly(&rig);
	check_number(card_counts_now().loopbacks, 2);
	rig_close(&rig);
}

/* The P_Key moves in the port's table: once the rail has connected again, the loopback queue pair has the new index. */
static void moved_pkey(void *argument)
{
	struct pl_options options = setting_options(&card_manual);
	unsigned connects;
	struct rig rig;

	(void)argument;
	setenv("STANDIN_CARD", "cx7-ib", 1);
	options.rails = 1;
	options.pkey = 5;
	rig_open(&rig, &options);
	check_number(write_visibly(&rig).pkey_index, 1);
	card_move_pkey();
	connects = card_counts_now().connects;
	card_fault_next(CARD_UNDELIVERED);
	check_number(write_visibly(&rig).pkey_index, 3);
	/* An end that has not yet seen the table connects with the old index, which the card refuses to carry, and then once more. */
	check(card_counts_now().connects > connects);
	/* The queue pair of the old index is gone: those of both ends' rails, and one of the owner, are left. */
	check_number(card_counts_now().qps, 3);
	rig_close(&rig);
}

static struct verbs_flush *flush_of_test(struct verbs_state *state)
{
	struct verbs_flush *flush = pl_pool_take(&state->flushes, &state->context->allocator, sizeof(*flush));

	*flush = (struct verbs_flush){ .state = state, .reads = 1 };
	return flush;
}

/* Many reads through the first port do not delay one through the second port. */
static void fair_ports(void *argument)
{
	struct verbs_flush *many, *one;
	struct verbs_endpoint *owner;
	struct rig rig;

	(void)argument;
	rig_open_ports(&rig);
	owner = verbs_endpoint_of(rig.environment.far_peer->endpoint);
	many = flush_of_test(owner->state);
	one = flush_of_test(owner->state);
	pl_engine_lock(rig.environment.far_peer->home);
	for (unsigned i = 0; i < MANY; i++)
		check_number(verbs_loopback_read(&owner->rails[0], rig.far.region, many), 0);
	check_number(verbs_loopback_read(&owner->rails[1], rig.far.region, one), 0);
	check(owner->rails[0].queue == owner->rails[1].queue);
	check_number(owner->rails[0].queue->loop_posted, VERBS_LOOPBACK_DEPTH);
	pl_engine_unlock(rig.environment.far_peer->home);
	progress_until(&rig.environment, one->reads == 1);
	check(many->reads > MANY / 2);
	progress_until(&rig.environment, many->reads == 1);
	check(!one->failed && !many->failed);
	verbs_flush_done(one);
	verbs_flush_done(many);
	rig_close(&rig);
}

static const struct test_case cases[] = {
	{ "other port", other_port, NULL, 20 },
	{ "moved P_Key", moved_pkey, NULL, 20 },
	{ "fair ports", fair_ports, NULL, 20 },
};

int main(void)
{
	return cases_run("flushes over a card", cases, sizeof(cases) / sizeof(cases[0]));
}
