/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Events of closed peers take little memory of a program that never collects any, and all reach a program that does. Of those that a
 * program holds, the last ones are kept, and of other completions all.
 */
#include <stdlib.h>

#include "core/context.h"
#include "support/cases.h"
#include "support/environment.h"

#define PEERS 3
#define NOTIFICATIONS 600
/* Events of each peer: these, and its loss. */
#define EVENTS (NOTIFICATIONS + 1)
#define KEPT 1024
/* Notifications of closed peers that are kept while the program holds notifications, and peers that leave more. */
#define KEPT_HELD (16u * 1024)
#define PEERS_HELD 28u
/* Notifications of a peer that stays open. */
#define OPEN_NOTIFICATIONS 5

static const struct setting setting = {
	.name = "orphans", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

/* At most NOTIFICATIONS. One after the other, they would take minutes beside other programs. */
static void notify_times(struct scenario_environment *environment, uint64_t first, unsigned count)
{
	struct pl_operation *operations[NOTIFICATIONS];
	struct pl_error error;

	for (unsigned i = 0; i < count; i++)
		check_ok(pl_notify(environment->near_peer, first + i, NULL, 0, NULL, &operations[i], &error), &error);
	for (unsigned i = 0; i < count; i++)
		complete(environment, operations[i], NULL);
}

/* The near end notifies, and closes. The far end closes its lost peer. */
static void notify_and_leave(struct scenario_environment *environment, uint64_t first)
{
	notify_times(environment, first, NOTIFICATIONS);
	pl_peer_close(environment->near_peer);
	progress_until(environment, !peer_information_of(environment->far_peer).connected);
	pl_peer_close(environment->far_peer);
	environment->near_peer = environment->far_peer = NULL;
}

/* All peers come and go. After each the far end collects this number of completions. */
static void let_peers_leave(struct scenario_environment *environment, unsigned collected)
{
	struct pl_completion completions[EVENTS];

	for (unsigned i = 0; i < PEERS; i++) {
		if (i)
			connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
				     &environment->far_peer);
		notify_and_leave(environment, (uint64_t)i * EVENTS);
		check_number((unsigned)pl_poll(environment->far, completions, (int)collected), collected);
	}
}

/* Checks that the far end has these last events alone, in their order. */
static void check_events(struct scenario_environment *environment, unsigned count)
{
	struct pl_completion completions[PEERS * EVENTS];

	check_number((unsigned)pl_poll(environment->far, completions, PEERS * EVENTS), count);
	for (unsigned i = 0; i < count; i++) {
		unsigned number = PEERS * EVENTS - count + i;

		check(!completions[i].peer);
		if (number % EVENTS == NOTIFICATIONS) {
			check_number(completions[i].kind, PL_KIND_LOST);
			continue;
		}
		check_number(completions[i].kind, PL_KIND_NOTIFIED);
		check_number(completions[i].value, number);
	}
}

static void never_collecting(void *argument)
{
	struct pl_completion completions[OPEN_NOTIFICATIONS + 1];
	struct scenario_environment environment;
	struct pl_peer *near_peer, *far_peer;
	struct pl_error error;
	struct buffer buffer;

	(void)argument;
	environment_open(&environment, &setting);
	buffer_open(&buffer, environment.far, 8, PL_ACCESS_LOCAL);
	near_peer = environment.near_peer;
	far_peer = environment.far_peer;
	notify_times(&environment, 0, OPEN_NOTIFICATIONS);
	connect_pair(&environment, environment.near, environment.listener, &environment.near_peer,
		     &environment.far_peer);
	check_ok(pl_receive(environment.far_peer, 1, 0, &(struct pl_buffer){ buffer.region, 0, 8 }, NULL, NULL, &error),
		 &error);
	let_peers_leave(&environment, 0);
	check_number((unsigned)pl_poll(environment.far, completions, OPEN_NOTIFICATIONS + 1), OPEN_NOTIFICATIONS + 1);
	for (unsigned i = 0; i < OPEN_NOTIFICATIONS; i++) {
		check_number(completions[i].value, i);
		check(completions[i].peer == far_peer);
	}
	check_number(completions[OPEN_NOTIFICATIONS].kind, PL_KIND_RECEIVE);
	check(!completions[OPEN_NOTIFICATIONS].peer);
	check_events(&environment, KEPT);
	environment.near_peer = near_peer;
	environment.far_peer = far_peer;
	buffer_close(&buffer);
	environment_close(&environment);
}

static void collecting(void *argument)
{
	struct scenario_environment environment;
	struct pl_completion completion;
	struct pl_operation *operation;
	struct pl_error error;

	(void)argument;
	environment_open(&environment, &setting);
	check_ok(pl_notify(environment.near_peer, 0, NULL, 0, NULL, &operation, &error), &error);
	complete(&environment, operation, NULL);
	collect(&environment, environment.far, &completion, 1);
	let_peers_leave(&environment, 0);
	check_events(&environment, PEERS * EVENTS);
	environment_close(&environment);
}

/* Fewer events than the limit wait at any time, although more come, and the program never collects all that wait. */
static void collecting_some(void *argument)
{
	struct scenario_environment environment;

	(void)argument;
	environment_open(&environment, &setting);
	let_peers_leave(&environment, EVENTS - 1);
	check_events(&environment, PEERS);
	environment_close(&environment);
}

/* Returns the number of notifications that the context has dropped. */
static uint64_t count_dropped(struct pl_context *context)
{
	struct pl_error_count count = PL_ERROR_COUNT_INIT;
	struct pl_error error;

	for (unsigned i = 0; pl_context_error_count(context, i, &count, &error) == 0; i++)
		if (!strcmp(count.id, "EVENTS-DROPPED"))
			return count.count;
	return 0;
}

/* A program collects, and holds notifications meanwhile. */
static void holding(void *argument)
{
	const unsigned dropped = PEERS_HELD * NOTIFICATIONS - KEPT_HELD;
	struct scenario_environment environment;
	struct pl_completion *completions;
	struct pl_completion loss;

	(void)argument;
	completions = calloc(KEPT_HELD, sizeof(*completions));
	check(completions);
	environment_open(&environment, &setting);
	pl_notifications_hold(environment.far, true);
	for (unsigned i = 0; i < PEERS_HELD; i++) {
		if (i)
			connect_pair(&environment, environment.near, environment.listener, &environment.near_peer,
				     &environment.far_peer);
		notify_and_leave(&environment, (uint64_t)i * NOTIFICATIONS);
		check_number(pl_poll(environment.far, &loss, 1), 1);
		check_number(loss.kind, PL_KIND_LOST);
		check_number(count_dropped(environment.far), i + 1 < PEERS_HELD ? 0 : dropped);
	}
	pl_notifications_hold(environment.far, false);
	check_number((unsigned)pl_poll(environment.far, completions, KEPT_HELD), KEPT_HELD);
	for (unsigned i = 0; i < KEPT_HELD; i++) {
		check_number(completions[i].kind, PL_KIND_NOTIFIED);
		check_number(completions[i].value, dropped + i);
	}
	check_number((unsigned)pl_poll(environment.far, &loss, 1), 0);
	free(completions);
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "never-collecting", never_collecting, NULL, 60 },
	{ "collecting", collecting, NULL, 60 },
	{ "collecting-some", collecting_some, NULL, 60 },
	{ "holding", holding, NULL, 120 },
};

int main(void)
{
	return cases_run("event-orphans", cases, sizeof(cases) / sizeof(cases[0]));
}
