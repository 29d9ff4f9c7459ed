/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One fault of the stand-in card at a time: what the user is told, and how many connections it costs. Each case has a
 * process of its own, because the card reads its variables once.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "card/card.h"
#include "card/settings.h"
#include "core/fabric.h"
#include "support/pair.h"

#define LENGTH 4096u
#define LIMIT 20 /* seconds, times slowness() */

/* Waits for an operation and returns its status; the error has a name if it failed. */
static int pair_await(struct pair *pair, struct pl_operation *operation, struct pl_error *error)
{
	int status = await(&pair->environment, operation, NULL, error);

	if (status)
		check(error->id[0] && error->code == status);
	return status;
}

static int write_once(struct pair *pair, struct pl_error *error)
{
	struct pl_operation *operation;

	check_ok(pl_write(pair->environment.near_peer,
			  &(struct pl_transfer){ pair->remote, 0, pair->near.region, 0, LENGTH }, NULL, &operation, error),
		 error);
	return pair_await(pair, operation, error);
}

static int read_once(struct pair *pair, struct pl_error *error)
{
	struct pl_operation *operation;

	check_ok(pl_read(pair->environment.near_peer,
			 &(struct pl_transfer){ pair->remote, 0, pair->near.region, 0, LENGTH }, NULL, &operation, error),
		 error);
	return pair_await(pair, operation, error);
}

static int add_once(struct pair *pair, struct pl_error *error)
{
	const struct pl_atomic atomic = { .remote = pair->remote, .operand = 1 };
	struct pl_operation *operation;

	check_ok(pl_fetch_add(pair->environment.near_peer, &atomic, NULL, &operation, error), error);
	return pair_await(pair, operation, error);
}

/* -- posts that the driver refuses ---------------------------------------------------------------- */

static void atomic_missing(void *argument)
{
	struct pl_error error;
	struct pair pair;

	(void)argument;
	setenv("STANDIN_CARD", "thor2", 1);
	pair_open(&pair, &card_manual, LENGTH);
	check_number(add_once(&pair, &error), -ENOTSUP);
	check_text(error.id, "RDMA-NO-ATOMICS");
	check_number(write_once(&pair, &error), 0);
	check_number(card_counts_now().connects, 1);
	check_number(card_counts_now().refused, 0);
	pair_close(&pair);
}

/* A card that cannot serve: verbs is refused by name, and auto takes another fabric. */
static void card_refused(void *argument)
{
	const bool iwarp = !strcmp(argument, "siw");
	struct setting automatic = card_manual;
	struct scenario_environment environment = { .setting = &automatic };
	struct pl_context *context;
	struct pl_operation *operation;
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct pl_error error;

	setenv("STANDIN_CARD", argument, 1);
	automatic.fabric = "auto";
	environment_open(&environment, &automatic);
	check_number(pl_peer_query(environment.near_peer, &info), 0);
	check(strcmp(info.fabric, "verbs"));
	context = context_open(&card_manual);
	drive(&environment, context);
	check_ok(pl_connect_start(context, environment.address, 0, 0, &operation, &error), &error);
	check_number(await(&environment, operation, NULL, &error), -ENOTSUP);
	check_text(error.id, iwarp ? "RDMA-IWARP" : "RDMA-NO-RC");
	check(iwarp || !strcmp(error.object, "efa_0"));
	drive_no_more(&environment, context);
	pl_close(context);
	environment_close(&environment);
}

/* Each refused post ends by name, or costs one connection. */
static void posts_refused(void *argument)
{
	unsigned refused = 0;
	struct pl_error error;
	struct pair pair;
	int status;

	setenv("STANDIN_MOOD", "refuse:1000", 1);
	setenv("STANDIN_SEED", argument, 1);
	setenv("STANDIN_FAULTS", "20", 1);
	pair_open(&pair, &card_manual, LENGTH);
	for (unsigned i = 0; i < 200; i++) {
		status = write_once(&pair, &error);
		check_one_of(status, 0, -EINVAL, -ENOMEM);
		if (status)
			check_text(error.id, "RDMA-POST");
		refused += status != 0;
	}
	check(refused > 0);
	check(card_counts_now().connects <= 1 + card_counts_now().refused);
	pair_close(&pair);
}

/* The driver refuses the first request of a list, and does not say which. Only that request fails, or none. */
static void list_refused(void *argument)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operations[8];
	unsigned failed = 0;
	struct pl_error error;
	struct pair pair;

	(void)argument;
	setenv("STANDIN_CARD", "thor2", 1);
	pair_open(&pair, &card_manual, LENGTH);
	check_number(write_once(&pair, &error), 0);
	card_fault_next(CARD_REFUSE);
	for (unsigned i = 0; i < 8; i++) {
		const struct pl_transfer transfer = { pair.remote, 0, pair.near.region, 0, 8 };

		attributes.flags = i < 7 ? PL_MORE : 0;
		check_ok(pl_write(pair.environment.near_peer, &transfer, &attributes, &operations[i], &error), &error);
	}
	for (unsigned i = 0; i < 8; i++) {
		int status = pair_await(&pair, operations[i], &error);

		check_one_of(status, 0, -EINVAL);
		failed += status != 0;
	}
	check_number(card_counts_now().refused, 1);
	check(failed <= 1);
	pair_close(&pair);
}

/* A request that fails on each connection ends by name, and costs few connections. */
static void request_always_fails(void *argument)
{
	struct pl_error error;
	struct pair pair;

	(void)argument;
	setenv("STANDIN_MOOD", "bad-reads", 1);
	pair_open(&pair, &card_manual, LENGTH);
	check_number(read_once(&pair, &error), -EIO);
	check_text(error.id, "RDMA-LOCAL");
	check(card_counts_now().connects <= 6);
	pair_close(&pair);
}

/* -- queues ---------------------------------------------------------------------------------------- */

/* Begins to connect both ends. */
static void connect_begin(struct scenario_environment *environment, struct pl_operation **connecting,
			  struct pl_operation **accepting)
{
	struct pl_error error;

	environment_listen(environment, &card_manual);
	check_ok(pl_accept_start(environment->listener, 0, accepting, &error), &error);
	check_ok(pl_connect_start(environment->near, environment->address, 0, 0, connecting, &error), &error);
}

/* The user reads which call failed, and why. */
static void queue_refused(void *argument)
{
	struct scenario_environment environment;
	struct pl_operation *connecting, *accepting;
	struct pl_error error;

	(void)argument;
	setenv("STANDIN_MOOD", "no-srq", 1);
	connect_begin(&environment, &connecting, &accepting);
	check_number(await(&environment, connecting, NULL, &error), -ENOMEM);
	check_text(error.id, "RDMA-CONNECT");
	check_text(error.call, "ibv_create_srq");
	check(strstr(error.message, "ibv_create_srq") && strstr(error.hint, "ulimit -l"));
	pl_listener_close(environment.listener);
	await(&environment, accepting, NULL, &error);
	pl_close(environment.near);
	pl_close(environment.far);
}

/* Messages and notifications over receives of the queue pair itself, more than it has at once. */
static void receives_of_the_pair(void *argument)
{
	struct pl_operation *operations[300], *received[300];
	struct pl_error error;
	struct pair pair;

	setenv("STANDIN_CARD", argument, 1);
	pair_open(&pair, &card_manual, LENGTH);
	for (unsigned i = 0; i < 300; i++) {
		const struct pl_buffer to = { pair.far.region, 0, LENGTH };

		check_ok(pl_receive(pair.environment.far_peer, 5, UINT64_MAX, &to, NULL, &received[i], &error), &error);
	}
	for (unsigned i = 0; i < 300; i++) {
		const struct pl_buffer from = { pair.near.region, 0, LENGTH };

		check_ok(pl_send(pair.environment.near_peer, 5, &from, NULL, &operations[i], &error), &error);
	}
	for (unsigned i = 0; i < 300; i++) {
		check_number(pair_await(&pair, operations[i], &error), 0);
		check_number(pair_await(&pair, received[i], &error), 0);
	}
	check_number(write_once(&pair, &error), 0);
	check_number(card_counts_now().connects, 1);
	check_number(card_counts_now().srqs, 0);
	pair_close(&pair);
}

/* -- connections ---------------------------------------------------------------------------------- */

#define FIRST_CONNECTION (3 * SECOND + SLACK)

/* An address that is not found, or a path that loses all packets, costs an attempt, and not the peer. */
static void attempt_lost(void *argument)
{
	const bool route = !strncmp(argument, "route", 5);
	const uint64_t begin = clock_now();
	struct pl_error error;
	struct pair pair;

	setenv("STANDIN_MOOD", argument, 1);
	setenv("STANDIN_FAULTS", "1", 1);
	pair_open(&pair, &card_manual, LENGTH);
	check(clock_now() - begin < FIRST_CONNECTION);
	check_number(card_counts_now().faults[route ? CARD_ROUTE_LOST : CARD_PATH_LOST], 1);
	check(card_counts_now().connects <= 2);
	check_number(write_once(&pair, &error), 0);
	pair_close(&pair);
}

/* Leaves verbs and tcp as the fabrics of "auto". */
static void drop_local_fabric(struct pl_context *context)
{
	check(context->fabrics[0] == &pl_local_fabric);
	context->fabric_count--;
	memmove(context->fabrics, context->fabrics + 1, context->fabric_count * sizeof(context->fabrics[0]));
}

/* Checks the text of an event in a peer's log. */
static void check_event(struct pl_peer *peer, unsigned event, const char *text)
{
	struct pl_event_record records[8];
	struct pl_event_query query = PL_EVENT_QUERY_INIT;
	int count = pl_peer_events(peer, &query, records, 8);
	bool found = false;

	for (int i = 0; i < count; i++)
		found |= records[i].event == event && strstr(records[i].text, text);
	check(found);
}

/* Cards that do not reach each other cost attempts once: the next connections take tcp at once. */
static void hopeless_remembered(void *argument)
{
	struct setting automatic = card_manual;
	struct scenario_environment environment;
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct pl_peer *near[3], *far[3];
	unsigned made = 0;

	(void)argument;
	setenv("STANDIN_MOOD", "path-lost", 1);
	automatic.fabric = "auto";
	environment_listen(&environment, &automatic);
	drop_local_fabric(environment.near);
	drop_local_fabric(environment.far);
	for (unsigned i = 0; i < 3; i++) {
		connect_pair(&environment, environment.near, environment.listener, &near[i], &far[i]);
		check_number(pl_peer_query(near[i], &info), 0);
		check_text(info.fabric, "tcp");
		check_event(near[i], PL_EVENT_CONNECTED, "did not reach each other");
		check_event(near[i], PL_EVENT_FABRIC_FAILED,
			    i ? "at a connection of the last minute" : "the devices do not reach each other");
		check(i ? card_counts_now().made_qps == made : card_counts_now().made_qps > 0);
		made = card_counts_now().made_qps;
	}
	for (unsigned i = 0; i < 3; i++) {
		pl_peer_close(near[i]);
		pl_peer_close(far[i]);
	}
	pl_listener_close(environment.listener);
	pl_close(environment.near);
	pl_close(environment.far);
}

/* A context closes, or gives up, while its card looks for the other end's address. */
static void closed_while_connecting(void *argument)
{
	const bool cancel = !strcmp(argument, "cancel");
	struct scenario_environment environment;
	struct pl_operation *connecting, *accepting;
	struct pl_error error;

	setenv("STANDIN_MOOD", "route-lost", 1);
	for (unsigned i = 0; i < 8; i++) {
		connect_begin(&environment, &connecting, &accepting);
		settle(&environment, 7 * i);
		if (cancel) {
			pl_cancel(connecting);
			check_one_of(await(&environment, connecting, NULL, &error), -ECANCELED);
		}
		pl_close(environment.near);
		drive_no_more(&environment, environment.near);
		pl_listener_close(environment.listener);
		pl_close(environment.far);
	}
}

/* A stop of the program that is longer than its first attempt costs no attempt: the answer is read after it. */
static void stopped_while_connecting(void *argument)
{
	struct scenario_environment environment;
	struct pl_operation *connecting, *accepting;
	struct pl_completion near, far;
	struct pl_error error;

	(void)argument;
	/* Counts are asked for before the library under test loads the card. */
	check(dlopen("libibverbs.so.1", RTLD_NOW));
	connect_begin(&environment, &connecting, &accepting);
	progress_until(&environment, card_counts_now().made_qps);
	usleep(1200000);
	check_ok(await(&environment, connecting, &near, &error), &error);
	check_ok(await(&environment, accepting, &far, &error), &error);
	check_number(card_counts_now().connects, 1);
	environment.near_peer = near.peer;
	environment.far_peer = far.peer;
	environment_close(&environment);
}

/* -- completions ---------------------------------------------------------------------------------- */

/* A completion that names earlier work, or no queue pair, does not matter. */
static void completion_wrong(void *argument)
{
	struct pl_error error;
	struct pair pair;

	setenv("STANDIN_MOOD", argument, 1);
	pair_open(&pair, &card_manual, LENGTH);
	for (unsigned i = 0; i < 100; i++) {
		check_number(write_once(&pair, &error), 0);
		check_number(read_once(&pair, &error), 0);
		check_number(add_once(&pair, &error), 0);
	}
	check_number(card_counts_now().connects, 1);
	pair_close(&pair);
}

/* -- the program ---------------------------------------------------------------------------------- */

struct fault_case {
	const char *name;
	void (*run)(void *argument);
	char *argument;
};

static void fault_test(void **state)
{
	const struct fault_case *fault = *state;

	assert_int_equal(process_run(fault->name, LIMIT, fault->run, fault->argument), 0);
}

int main(void)
{
	static struct fault_case cases[] = {
		{ "atomic-missing", atomic_missing, NULL },
		{ "iwarp-refused", card_refused, "siw" },
		{ "efa-refused", card_refused, "efa" },
		{ "posts-refused-1", posts_refused, "1" },
		{ "posts-refused-2", posts_refused, "2" },
		{ "list-refused", list_refused, NULL },
		{ "request-always-fails", request_always_fails, NULL },
		{ "queue-refused", queue_refused, NULL },
		{ "route-lost", attempt_lost, "route-lost" },
		{ "route-lost-5000", attempt_lost, "route-lost:5000" },
		{ "path-lost", attempt_lost, "path-lost" },
		{ "path-lost-5000", attempt_lost, "path-lost:5000" },
		{ "hopeless-remembered", hopeless_remembered, NULL },
		{ "closed-while-connecting", closed_while_connecting, "close" },
		{ "canceled-while-connecting", closed_while_connecting, "cancel" },
		{ "stopped-while-connecting", stopped_while_connecting, NULL },
		{ "completion-doubled", completion_wrong, "doubled" },
		{ "completion-stale", completion_wrong, "stale" },
		{ "completion-wrong-number", completion_wrong, "wrong-number" },
		{ "receives-of-the-pair-e810", receives_of_the_pair, "e810" },
		{ "receives-of-the-pair-mana", receives_of_the_pair, "mana" },
	};
	struct CMUnitTest tests[sizeof(cases) / sizeof(cases[0])];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		tests[i] = (struct CMUnitTest){ cases[i].name, fault_test, NULL, NULL, &cases[i] };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
