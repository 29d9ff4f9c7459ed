/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Options of a context that reach the card: attributes of queue pairs, ports that they exclude, and the number of queue
 * pairs. Each case has a process of its own, because the card reads its variables once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "card/card.h"
#include "card/settings.h"
#include "support/pair.h"

#define LENGTH 4096u
#define LIMIT 20 /* seconds, times slowness() */

/* -- two contexts --------------------------------------------------------------------------------- */

struct ends {
	struct scenario_environment environment;
	struct pl_options near, far;
};

static void ends_init(struct ends *ends, const char *card)
{
	setenv("STANDIN_CARD", card, 1);
	ends->environment = (struct scenario_environment){ .setting = &card_manual };
	ends->near = ends->far = setting_options(&card_manual);
}

static void ends_listen(struct ends *ends)
{
	struct scenario_environment *environment = &ends->environment;

	environment->near = context_open_with(&ends->near);
	environment->far = context_open_with(&ends->far);
	drive(environment, environment->near);
	drive(environment, environment->far);
	environment->listener = listener_open(environment->setting, environment->far, environment->address);
}

static void ends_connect(struct ends *ends)
{
	struct scenario_environment *environment = &ends->environment;

	ends_listen(ends);
	connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
		     &environment->far_peer);
}

/* Each end has one of two cards. */
static void ends_connect_apart(struct ends *ends, const char *card)
{
	setenv("STANDIN_CARDS", "2", 1);
	ends_init(ends, card);
	ends->near.devices = "mlx5_0";
	ends->far.devices = "mlx5_1";
	ends_connect(ends);
}

/* Begins to connect, and returns the error of the connecting end. */
static int ends_fail(struct ends *ends, struct pl_error *error)
{
	struct scenario_environment *environment = &ends->environment;
	struct pl_operation *connecting;
	int status;

	ends_listen(ends);
	check_ok(pl_connect_start(environment->near, environment->address, 0, 0, &connecting, error), error);
	status = await(environment, connecting, NULL, error);
	check(status < 0);
	pl_listener_close(environment->listener);
	pl_close(environment->near);
	pl_close(environment->far);
	return status;
}

static unsigned count_rails(const struct ends *ends)
{
	return peer_information_of(ends->environment.near_peer).lanes;
}

/* -- attributes of queue pairs -------------------------------------------------------------------- */

static void check_attributes(const struct card_attributes *found, const struct card_attributes *expected)
{
	check_number(found->service_level, expected->service_level);
	check_number(found->traffic_class, expected->traffic_class);
	check_number(found->gid_index, expected->gid_index);
	check_number(found->pkey_index, expected->pkey_index);
	check_number(found->ack_timeout, expected->ack_timeout);
	check_number(found->retries, expected->retries);
	check_number(found->rnr_timer, expected->rnr_timer);
}

static void check_connection(struct ends *ends, const struct card_attributes *initiator,
			     const struct card_attributes *acceptor)
{
	struct card_counts counts;

	ends_connect(ends);
	counts = card_counts_now();
	check_attributes(&counts.initiator, initiator);
	check_attributes(&counts.acceptor, acceptor);
	environment_close(&ends->environment);
}

static void defaults(void *argument)
{
	const struct card_attributes expected = {
		.gid_index = strstr(argument, "roce") ? 3 : 0, .ack_timeout = 14, .retries = 6, .rnr_timer = 12
	};
	struct ends ends;

	ends_init(&ends, argument);
	check_connection(&ends, &expected, &expected);
}

/* Both ends have the initiator's service level and traffic class. All else is each end's own. */
static void attributes_infiniband(void *argument)
{
	struct ends ends;

	(void)argument;
	ends_init(&ends, "cx7-ib");
	ends.near.service_level = 15;
	ends.far.service_level = 3;
	ends.near.pkey = 5;
	ends.far.pkey = 0x8005;
	ends.near.ack_timeout = ends.near.rnr_timer = 31;
	ends.near.retries = 7;
	ends.far.ack_timeout = ends.far.retries = ends.far.rnr_timer = 1;
	check_connection(&ends,
			 &(struct card_attributes){ .service_level = 15, .pkey_index = 1, .ack_timeout = 31, .retries = 7,
						    .rnr_timer = 31 },
			 &(struct card_attributes){ .service_level = 15, .pkey_index = 1, .ack_timeout = 1, .retries = 1,
						    .rnr_timer = 1 });
}

/* Entry 3 is the best one, entry 1 a link-local address, entry 4 one of IPv6. */
static void attributes_roce(void *argument)
{
	static const uint8_t indexes[] = { 1, 4, 3 };
	struct card_attributes expected = { .service_level = 5, .traffic_class = 104, .ack_timeout = 14, .retries = 6,
					    .rnr_timer = 12 };
	struct ends ends;

	(void)argument;
	for (size_t i = 0; i < sizeof(indexes); i++) {
		ends_init(&ends, "cx7-roce");
		ends.near.gid_index = ends.far.gid_index = PL_GID_INDEX(indexes[i]);
		ends.near.service_level = 5;
		ends.near.traffic_class = 104;
		ends.far.traffic_class = 8;
		expected.gid_index = indexes[i];
		check_connection(&ends, &expected, &expected);
	}
}

/* The control connection has an IPv6 address, which the port lacks: its IPv4 address goes before its link-local one. */
static void control_ipv6(void *argument)
{
	static struct setting setting;
	struct card_counts counts;
	struct ends ends;

	(void)argument;
	setting = card_manual;
	setting.host = "[::1]";
	ends_init(&ends, "cx8-800g");
	ends.environment.setting = &setting;
	ends_connect(&ends);
	counts = card_counts_now();
	check_number(counts.initiator.gid_index, 2);
	check_number(counts.acceptor.gid_index, 2);
	environment_close(&ends.environment);
}

/* -- options that leave no port ------------------------------------------------------------------- */

static void exclusions(void *argument)
{
	static const struct {
		const char *card;
		unsigned gid_index, pkey;
		const char *id, *object;
	} cases[] = {
		{ "cx7-ib", 0, 0x8006, "RDMA-PKEY", "mlx5_0:1" },
		{ "cx7-ib", 0, 0x8007, "RDMA-PKEY-LIMITED", "mlx5_0:1" },
		{ "cx7-ib", 0, 0x0007, "RDMA-PKEY-LIMITED", "mlx5_0:1" },
		{ "cx7-ib", PL_GID_INDEX(1), 0, "RDMA-GID-INDEX", "mlx5_0:1" },
	};
	struct pl_error error;
	struct ends ends;

	(void)argument;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ends_init(&ends, cases[i].card);
		ends.near.gid_index = cases[i].gid_index;
		ends.near.pkey = cases[i].pkey;
		check_number(ends_fail(&ends, &error), -ENODEV);
		check_text(error.id, cases[i].id);
		check_text(error.object, cases[i].object);
	}
}

/* The two ends are in different partitions: no packet arrives. */
static void other_partition(void *argument)
{
	struct pl_error error;
	struct ends ends;

	(void)argument;
	ends_init(&ends, "cx7-ib");
	ends.near.pkey = 0x8005;
	ends_fail(&ends, &error);
	check_text(error.id, "RDMA-CONNECT");
	check(strstr(error.hint, "partitions"));
	check(strstr(error.hint, "versions of RoCE"));
}

/* -- options of queue pairs ----------------------------------------------------------------------- */

/* Both queue pairs have the options that both cards support, or none. `argument`: cards without, and the options. */
static void options(void *argument)
{
	const char *without = strtok(argument, " "), *expected = strtok(NULL, " ");
	struct ends ends;

	setenv("STANDIN_NO_ECE", without, 1);
	ends_connect_apart(&ends, "cx7-roce");
	check_number(card_counts_now().initiator.ece, atoi(expected));
	check_number(card_counts_now().acceptor.ece, atoi(expected));
	environment_close(&ends.environment);
}

/* -- subnets of InfiniBand ------------------------------------------------------------------------ */

/* The cards of the two ends are in one subnet, where packets go to the LID, or in two, where they go to a router. */
static void subnets(void *argument)
{
	struct pl_operation *operation;
	struct pl_transfer transfer = { .length = LENGTH };
	struct buffer near, far;
	struct pl_error error;
	struct ends ends;

	setenv("STANDIN_NETWORKS", argument, 1);
	ends_connect_apart(&ends, "ib-routed");
	check_number(card_counts_now().initiator.gid_index, strcmp(argument, "routed") ? 0 : 1);
	buffer_open(&near, ends.environment.near, LENGTH, PL_ACCESS_ALL);
	buffer_open(&far, ends.environment.far, LENGTH, PL_ACCESS_ALL);
	pattern_fill(near.bytes, LENGTH, 1, 0);
	transfer.remote = share(&ends.environment, far.region, ends.environment.near_peer, NULL);
	transfer.region = near.region;
	check_ok(pl_write(ends.environment.near_peer, &transfer, NULL, &operation, &error), &error);
	complete(&ends.environment, operation, NULL);
	pl_remote_release(transfer.remote);
	pattern_check(far.bytes, LENGTH, 1, 0);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&ends.environment);
}

/* -- number of queue pairs ------------------------------------------------------------------------ */

/* `argument`: a card, and its queue pairs by default. */
static void rails(void *argument)
{
	char *name = strtok(argument, " "), *count = strtok(NULL, " ");
	struct ends ends;

	ends_init(&ends, name);
	ends_connect(&ends);
	progress_until(&ends.environment, count_rails(&ends) == (unsigned)atoi(count));
	environment_close(&ends.environment);
	/* An option of either end says otherwise. */
	for (unsigned i = 0; i < 2; i++) {
		ends_init(&ends, name);
		*(i ? &ends.near.rails : &ends.far.rails) = 1;
		ends_connect(&ends);
		check_number(count_rails(&ends), 1);
		check_number(card_counts_now().qps, 2);
		environment_close(&ends.environment);
	}
}

/* -- the program ---------------------------------------------------------------------------------- */

struct option_case {
	const char *name;
	void (*run)(void *argument);
	char *argument;
};

static void option_test(void **state)
{
	const struct option_case *one = *state;

	assert_int_equal(process_run(one->name, LIMIT, one->run, one->argument), 0);
}

int main(void)
{
	static char cards[][16] = { "cx7-200g 1", "cx7-400g 2", "cx8-800g 2", "0 3", "2 0", "1 0" };
	static struct option_case cases[] = {
		{ "defaults-infiniband", defaults, "cx7-ib" },
		{ "defaults-roce", defaults, "cx7-roce" },
		{ "attributes-infiniband", attributes_infiniband, NULL },
		{ "attributes-roce", attributes_roce, NULL },
		{ "control-ipv6", control_ipv6, NULL },
		{ "exclusions", exclusions, NULL },
		{ "other-partition", other_partition, NULL },
		{ "options-of-both", options, cards[3] },
		{ "options-of-initiator", options, cards[4] },
		{ "options-of-acceptor", options, cards[5] },
		{ "one-subnet", subnets, "one" },
		{ "two-subnets", subnets, "routed" },
		{ "rails-200g", rails, cards[0] },
		{ "rails-400g", rails, cards[1] },
		{ "rails-800g", rails, cards[2] },
	};
	struct CMUnitTest tests[sizeof(cases) / sizeof(cases[0])];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		tests[i] = (struct CMUnitTest){ cases[i].name, option_test, NULL, NULL, &cases[i] };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
