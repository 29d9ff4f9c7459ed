/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What drivers of some cards do in their own way: whom an error completion names, and which bytes a request without pieces
 * moves. Each case has a process of its own, because the card reads its variables once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "card/card.h"
#include "card/settings.h"
#include "support/pair.h"

#define LENGTH 4096u
#define LIST 8u
#define CULPRIT 4u
#define BURST 30u
#define PEERS 12u
/* Polls after which the library gives up a queue. */
#define POLLS 4u
#define LIMIT 30 /* seconds, times slowness() */

static bool is_connected(struct pl_peer *peer)
{
	return peer_information_of(peer).connected;
}

/* -- error completions ----------------------------------------------------------------------------- */

/* Imports the grant of a buffer, which the owner revoked. */
static struct pl_remote *revoked_remote(struct pair *pair, struct buffer *buffer)
{
	size_t length = PL_TOKEN_MAX;
	uint8_t token[PL_TOKEN_MAX];
	struct pl_remote *remote;
	struct pl_error error;

	check_ok(pl_region_share(buffer->region, NULL, token, &length, &error), &error);
	remote = import_token(&pair->environment, pair->environment.near_peer, token, length);
	check_number(pl_region_revoke(buffer->region, token, length), 0);
	return remote;
}

/*
 * One list: a message or a write, writes, and one by a revoked grant. Only that one fails, although the driver names the
 * first request.
 */
static void culprit_named(const char *card, bool message)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operations[LIST];
	const struct pl_buffer first = { .length = 8 };
	struct pl_remote *revoked;
	struct buffer other;
	struct pl_error error;
	struct pair pair;

	setenv("STANDIN_CARD", card, 1);
	pair_open(&pair, &card_manual, LENGTH);
	buffer_open(&other, pair.environment.far, LENGTH, PL_ACCESS_ALL);
	revoked = revoked_remote(&pair, &other);
	memset(pair.near.bytes, 0x5a, LENGTH);
	memset(pair.far.bytes, 0, LENGTH);
	for (unsigned i = 0; i < LIST; i++) {
		const struct pl_transfer transfer = { i == CULPRIT ? revoked : pair.remote, 8 * i, pair.near.region, 0, 8 };
		struct pl_buffer from = first;

		from.region = pair.near.region;
		attributes.flags = i + 1 < LIST ? PL_MORE : 0;
		if (message && i == 0)
			check_ok(pl_send(pair.environment.near_peer, 1, &from, &attributes, &operations[i], &error), &error);
		else
			check_ok(pl_write(pair.environment.near_peer, &transfer, &attributes, &operations[i], &error), &error);
	}
	for (unsigned i = 0; i < LIST; i++)
		check_number(await(&pair.environment, operations[i], NULL, &error), i == CULPRIT ? -EACCES : 0);
	for (unsigned i = message; i < LIST; i++)
		check_number(pair.far.bytes[8 * i], i == CULPRIT ? 0 : 0x5a);
	check(is_connected(pair.environment.near_peer) && is_connected(pair.environment.far_peer));
	/* One that failed, one that named the request, and the present one. */
	check(card_counts_now().connects <= 3);
	pl_remote_release(revoked);
	buffer_close(&other);
	pair_close(&pair);
}

static void culprit_of_writes(void *argument)
{
	culprit_named(argument, false);
}

static void culprit_behind_message(void *argument)
{
	culprit_named(argument, true);
}

/* As culprit_of_writes(), while each poll fails behind the completions that it takes. */
static void culprit_of_failed_polls(void *argument)
{
	setenv("STANDIN_MOOD", "poll-behind", 1);
	culprit_named(argument, false);
	check(card_counts_now().faults[CARD_POLL_BEHIND] > 0);
}

/* Atomic operations on the memory, of which all but the last one have the flags. Counts those that end with each status. */
struct burst {
	unsigned done, denied, uncertain;
};

static struct burst add_burst(struct pair *pair, struct pl_remote *remote, uint32_t flags)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operations[BURST];
	struct burst burst = { 0 };
	struct pl_error error;

	for (unsigned i = 0; i < BURST; i++) {
		const struct pl_atomic atomic = { .remote = remote, .remote_offset = 8 * i, .operand = 1 };

		attributes.flags = i + 1 < BURST ? flags : 0;
		check_ok(pl_fetch_add(pair->environment.near_peer, &atomic, &attributes, &operations[i], &error),
			 &error);
	}
	for (unsigned i = 0; i < BURST; i++) {
		int status = await(&pair->environment, operations[i], NULL, &error);

		burst.done += status == 0;
		burst.denied += status == -EACCES;
		burst.uncertain += status == -ECONNRESET;
	}
	check_number(burst.done + burst.denied + burst.uncertain, BURST);
	return burst;
}

/* Revokes while the queue pair still has the key, posts a burst, and returns how it ended. */
static struct burst denied_burst(struct pair *pair, uint32_t flags)
{
	struct pl_remote *revoked;
	struct buffer other;
	struct burst burst;

	buffer_open(&other, pair->environment.far, LENGTH, PL_ACCESS_ALL);
	revoked = revoked_remote(pair, &other);
	/* The rail learns how many requests a burst has: those of the next one are unsignaled at first. */
	check_number(add_burst(pair, pair->remote, 0).done, BURST);
	burst = add_burst(pair, revoked, flags);
	check_number(burst.done, 0);
	pl_remote_release(revoked);
	buffer_close(&other);
	return burst;
}

/* A list tells the cause at once. */
static void culprit_of_atomic_list(void *argument)
{
	struct pair pair;

	setenv("STANDIN_CARD", argument, 1);
	pair_open(&pair, &card_manual, LENGTH);
	check_number(denied_burst(&pair, PL_MORE).denied, BURST);
	check_number(add_burst(&pair, pair.remote, PL_MORE).done, BURST);
	check_number(card_counts_now().connects, 2);
	pair_close(&pair);
}

/*
 * Reads in one list, with an atomic operation in place of number `atomic`, if that is below LIST. The first read fails once if
 * `fails`. Only the atomic operation may fail. Returns the number of completions.
 */
static unsigned read_list(struct pair *pair, unsigned atomic, bool fails)
{
	const struct pl_atomic add = { .remote = pair->remote, .remote_offset = 64, .operand = 1 };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_peer *peer = pair->environment.near_peer;
	struct pl_operation *operations[LIST];
	struct card_counts before = card_counts_now();
	struct pl_error error;

	for (unsigned i = 0; i < LIST; i++) {
		const struct pl_transfer transfer = { pair->remote, 0, pair->near.region, 8 * i, 8 };

		attributes.flags = i + 1 < LIST ? PL_MORE : 0;
		/* The whole list is posted by the last one. */
		if (fails && i + 1 == LIST)
			card_fault_next(CARD_BAD_READS);
		check_ok(i == atomic ? pl_fetch_add(peer, &add, &attributes, &operations[i], &error)
				     : pl_read(peer, &transfer, &attributes, &operations[i], &error),
			 &error);
	}
	for (unsigned i = 0; i < LIST; i++) {
		int status = await(&pair->environment, operations[i], NULL, &error);

		check(status == 0 || (i == atomic && status == -ECONNRESET));
	}
	return card_counts_now().completions - before.completions;
}

/* Single operations tell the cause, too. Later requests are unsignaled, although no further one fails. */
static void culprit_of_atomics(void *argument)
{
	struct pair pair;

	setenv("STANDIN_CARD", argument, 1);
	pair_open(&pair, &card_manual, LENGTH);
	check_number(denied_burst(&pair, 0).denied, BURST);
	check_number(add_burst(&pair, pair.remote, 0).done, BURST);
	check_number(read_list(&pair, LIST, false), 1);
	pair_close(&pair);
}

/* Writes, and among them an atomic operation by a revoked grant. Those from number `first` on are one list. */
static void deny_among_writes(struct pair *pair, unsigned first)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_peer *peer = pair->environment.near_peer;
	struct pl_operation *operations[BURST];
	struct pl_remote *revoked;
	struct buffer other;
	struct pl_error error;

	buffer_open(&other, pair->environment.far, LENGTH, PL_ACCESS_ALL);
	revoked = revoked_remote(pair, &other);
	check_number(add_burst(pair, pair->remote, 0).done, BURST);
	for (unsigned i = 0; i < BURST; i++) {
		const struct pl_transfer transfer = { pair->remote, 8 * i, pair->near.region, 0, 8 };
		const struct pl_atomic atomic = { .remote = revoked, .operand = 1 };

		attributes.flags = i >= first && i + 1 < BURST ? PL_MORE : 0;
		check_ok(i == CULPRIT ? pl_fetch_add(peer, &atomic, &attributes, &operations[i], &error)
				      : pl_write(peer, &transfer, &attributes, &operations[i], &error),
			 &error);
	}
	for (unsigned i = 0; i < BURST; i++)
		check_number(await(&pair->environment, operations[i], NULL, &error), i == CULPRIT ? -EACCES : 0);
	pl_remote_release(revoked);
	buffer_close(&other);
}

static void culprit_among_writes(void *argument)
{
	struct pair pair;

	setenv("STANDIN_CARD", argument, 1);
	pair_open(&pair, &card_manual, LENGTH);
	deny_among_writes(&pair, 0);
	deny_among_writes(&pair, CULPRIT);
	deny_among_writes(&pair, BURST);
	pair_close(&pair);
}

/* A request that fails at its first try only costs no operation; afterwards requests are unsignaled as before. */
static void end_doubt(const char *card, unsigned atomic)
{
	struct pair pair;

	setenv("STANDIN_CARD", card, 1);
	pair_open(&pair, &card_manual, LENGTH);
	read_list(&pair, atomic, true);
	check_number(read_list(&pair, LIST, false), 1);
	check_number(card_counts_now().connects, 2);
	pair_close(&pair);
}

static void doubt_ends(void *argument)
{
	end_doubt(argument, LIST);
}

/* The atomic operation ends uncertain. */
static void doubt_of_atomic_ends(void *argument)
{
	end_doubt(argument, LIST / 2);
}

/* -- requests without pieces ------------------------------------------------------------------------ */

/*
 * Bursts of reads whose last ones are unsignaled, so that an empty read follows. In a list, a transfer of nothing has the
 * place of one with bytes before.
 */
static void nothing_moved(void *argument)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operations[30];
	struct pl_error error;
	struct pair pair;

	setenv("STANDIN_CARD", argument, 1);
	pair_open(&pair, &card_manual, LENGTH);
	memset(pair.far.bytes, 0x77, LENGTH);
	for (unsigned turn = 0; turn < 4; turn++) {
		for (unsigned i = 0; i < 30; i++) {
			const struct pl_transfer transfer = { pair.remote, 0, pair.near.region, 0, 8 };

			check_ok(pl_read(pair.environment.near_peer, &transfer, NULL, &operations[i], &error), &error);
		}
		for (unsigned i = 0; i < 30; i++)
			check_number(await(&pair.environment, operations[i], NULL, &error), 0);
	}
	for (unsigned turn = 0; turn < 4; turn++) {
		const bool empty = turn % 2, writes = turn > 1;

		memset(pair.near.bytes, 0, LENGTH);
		memset(pair.far.bytes, 0x77, LENGTH);
		for (unsigned i = 0; i < 3; i++) {
			const struct pl_transfer transfer = { pair.remote, 512 * i, pair.near.region, 512 * i,
							      empty && i == 1 ? 0 : 128 };

			attributes.flags = i < 2 ? PL_MORE : 0;
			check_ok(writes ? pl_write(pair.environment.near_peer, &transfer, &attributes, &operations[i], &error)
					: pl_read(pair.environment.near_peer, &transfer, &attributes, &operations[i], &error),
				 &error);
		}
		for (unsigned i = 0; i < 3; i++)
			check_number(await(&pair.environment, operations[i], NULL, &error), 0);
		check_number(pair.near.bytes[512], empty || writes ? 0 : 0x77);
		check_number(pair.far.bytes[512], writes && !empty ? 0 : 0x77);
	}
	check_number(card_counts_now().connects, 1);
	pair_close(&pair);
}

/* -- events ------------------------------------------------------------------------------------------ */

/* Of many connections, only those of the event are asked for their state. */
static void event_asks_one(void *argument)
{
	struct pl_peer *peers[PEERS], *far_peers[PEERS];
	struct pl_operation *operation;
	struct pl_remote *revoked;
	struct pl_error error;
	struct buffer other;
	struct pair pair;

	(void)argument;
	pair_open(&pair, &card_manual, LENGTH);
	for (unsigned i = 0; i < PEERS; i++)
		connect_pair(&pair.environment, pair.environment.near, pair.environment.listener, &peers[i],
			     &far_peers[i]);
	buffer_open(&other, pair.environment.far, LENGTH, PL_ACCESS_ALL);
	revoked = revoked_remote(&pair, &other);
	check_ok(pl_write(pair.environment.near_peer, &(struct pl_transfer){ revoked, 0, pair.near.region, 0, 8 }, NULL,
			  &operation, &error),
		 &error);
	check_number(await(&pair.environment, operation, NULL, &error), -EACCES);
	/* The next connection comes after the events of the last one. */
	check_ok(pl_write(pair.environment.near_peer, &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, 8 },
			  NULL, &operation, &error),
		 &error);
	check_ok(await(&pair.environment, operation, NULL, &error), &error);
	check(card_counts_now().queried_qps <= 2);
	for (unsigned i = 0; i < PEERS; i++) {
		check(is_connected(peers[i]));
		pl_peer_close(peers[i]);
		pl_peer_close(far_peers[i]);
	}
	pl_remote_release(revoked);
	buffer_close(&other);
	pair_close(&pair);
}

/* -- completion queues ------------------------------------------------------------------------------ */

/* More connections than a completion queue takes the receives of: others get another queue. */
static void queues_follow(void *argument)
{
	struct pl_peer *peers[PEERS], *far_peers[PEERS];
	struct pl_error error;
	struct pair pair;
	unsigned before;

	setenv("STANDIN_CARD", argument, 1);
	setenv("STANDIN_CQE", "1023", 1);
	pair_open(&pair, &card_manual, LENGTH);
	before = card_counts_now().cqs;
	for (unsigned i = 0; i < PEERS; i++)
		connect_pair(&pair.environment, pair.environment.near, pair.environment.listener, &peers[i],
			     &far_peers[i]);
	check_number(card_counts_now().cqs, 3 * before);
	for (unsigned i = 0; i < PEERS; i++) {
		struct pl_remote *remote = share(&pair.environment, pair.far.region, peers[i], NULL);
		const struct pl_transfer transfer = { remote, 8 * i, pair.near.region, 0, 8 };
		struct pl_operation *operation;

		check_ok(pl_write(peers[i], &transfer, NULL, &operation, &error), &error);
		check_ok(await(&pair.environment, operation, NULL, &error), &error);
		pl_remote_release(remote);
	}
	check_number(card_counts_now().connects, 1 + PEERS);
	for (unsigned i = 0; i < PEERS; i++) {
		pl_peer_close(peers[i]);
		pl_peer_close(far_peers[i]);
	}
	pair_close(&pair);
}

/*
 * The user reads which queue is too small for a single connection. No attempt keeps one. `argument`: a card, and the entries
 * of its completion queues.
 */
static void queue_too_small(void *argument)
{
	struct scenario_environment environment;
	struct pl_operation *connecting, *accepting;
	struct pl_error error;

	setenv("STANDIN_CARD", strtok(argument, " "), 1);
	setenv("STANDIN_CQE", strtok(NULL, " "), 1);
	environment_listen(&environment, &card_manual);
	check_ok(pl_accept_start(environment.listener, 0, &accepting, &error), &error);
	check_ok(pl_connect_start(environment.near, environment.address, 0, 0, &connecting, &error), &error);
	check_number(await(&environment, connecting, NULL, &error), -ENOBUFS);
	check_text(error.id, "RDMA-CONNECT");
	check_text(error.call, "ibv_create_cq");
	/* The attempts leave no queue. */
	check_number(card_counts_now().cqs, 0);
	check_number(card_counts_now().channels, 0);
	pl_listener_close(environment.listener);
	await(&environment, accepting, NULL, &error);
	pl_close(environment.near);
	pl_close(environment.far);
}

/* Polls that fail now and then cost nothing. If all of them fail, the connection is made again, with another queue. */
static void polls_fail(void *argument)
{
	struct pl_event_query query = PL_EVENT_QUERY_INIT;
	const bool always = *(const bool *)argument;
	struct pl_event_record records[32];
	unsigned named = 0;
	struct pl_error error;
	struct pair pair;
	int count;

	pair_open(&pair, &card_manual, LENGTH);
	for (unsigned turn = 0; turn < 4; turn++) {
		const struct pl_transfer transfer = { pair.remote, 0, pair.near.region, 0, LENGTH };
		struct pl_operation *operation;

		card_faults_next(CARD_POLL, always && turn == 0 ? POLLS : POLLS - 1);
		check_ok(pl_write(pair.environment.near_peer, &transfer, NULL, &operation, &error), &error);
		check_ok(await(&pair.environment, operation, NULL, &error), &error);
	}
	check_number(card_counts_now().connects, always ? 2 : 1);
	count = pl_peer_events(pair.environment.near_peer, &query, records, 32);
	for (int i = 0; i < count; i++)
		named += strstr(records[i].text, "ibv_poll_cq") != NULL;
	check_number(named, always);
	pair_close(&pair);
}

static bool sometimes = false, always = true;

/* -- the program ------------------------------------------------------------------------------------ */

struct driver_case {
	const char *name;
	void (*run)(void *argument);
	void *argument;
};

static void driver_test(void **state)
{
	const struct driver_case *driver = *state;

	assert_int_equal(process_run(driver->name, LIMIT, driver->run, driver->argument), 0);
}

int main(void)
{
	static char small_queues[][16] = { "ionic 255", "cx7-roce 8", "e2000 272" };
	static struct driver_case cases[] = {
		{ "culprit-of-writes-thor2", culprit_of_writes, "thor2" },
		{ "culprit-of-writes-e810", culprit_of_writes, "e810" },
		{ "culprit-of-writes-cx7", culprit_of_writes, "cx7-roce" },
		{ "culprit-behind-message-thor2", culprit_behind_message, "thor2" },
		{ "culprit-behind-message-cx7", culprit_behind_message, "cx7-roce" },
		{ "culprit-of-failed-polls-cx7", culprit_of_failed_polls, "cx7-roce" },
		{ "culprit-of-failed-polls-thor2", culprit_of_failed_polls, "thor2" },
		{ "culprit-of-atomic-list-cx7", culprit_of_atomic_list, "cx7-roce" },
		{ "culprit-of-atomic-list-e2000", culprit_of_atomic_list, "e2000" },
		{ "culprit-of-atomics-cx7", culprit_of_atomics, "cx7-roce" },
		{ "culprit-of-atomics-e2000", culprit_of_atomics, "e2000" },
		{ "culprit-among-writes-cx7", culprit_among_writes, "cx7-roce" },
		{ "culprit-among-writes-e2000", culprit_among_writes, "e2000" },
		{ "doubt-ends-e2000", doubt_ends, "e2000" },
		{ "doubt-ends-cx7", doubt_ends, "cx7-roce" },
		{ "doubt-of-atomic-ends-e2000", doubt_of_atomic_ends, "e2000" },
		{ "doubt-of-atomic-ends-cx7", doubt_of_atomic_ends, "cx7-roce" },
		{ "event-asks-one", event_asks_one, NULL },
		{ "queues-follow-e810", queues_follow, "e810" },
		{ "queues-follow-mana", queues_follow, "mana" },
		{ "queue-too-small", queue_too_small, small_queues[0] },
		{ "queue-too-small-for-reads-back", queue_too_small, small_queues[1] },
		{ "queue-too-small-for-requests", queue_too_small, small_queues[2] },
		{ "polls-fail-sometimes", polls_fail, &sometimes },
		{ "polls-fail-always", polls_fail, &always },
		{ "nothing-moved-erdma", nothing_moved, "erdma" },
		{ "nothing-moved-e810", nothing_moved, "e810" },
		{ "nothing-moved-cx7", nothing_moved, "cx7-roce" },
	};
	struct CMUnitTest tests[sizeof(cases) / sizeof(cases[0])];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		tests[i] = (struct CMUnitTest){ cases[i].name, driver_test, NULL, NULL, &cases[i] };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
