/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unsignaled requests: single small operations have fewer completions than requests, and none of them waits for a
 * completion that nothing asks for. Each case has a process of its own, because the card reads its variables once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "card/card.h"
#include "card/settings.h"
#include "support/pair.h"

#define LENGTH 64u
#define DEPTH 30u
#define TURNS 200u
/* No multiple of the 16 requests that may have one completion. */
#define LIST 40u
/* More than a rail takes before further operations wait for others, and with as many reads more than its queue pair takes. */
#define WIDE 80u
/* Requests that a queue pair takes. */
#define QUEUE 128u
/* More than the length below which requests may be unsignaled. Bytes. */
#define LONG 8192u
/* Half of the time after which the library expects no poll soon. */
#define HASTE (50 * MS / 1000)
#define LIMIT 30 /* seconds, times slowness() */
/* A completion that nothing asks for would come with the end of the operation. */
#define TIMEOUT (2 * AMPLE_TIME)
#define SOON (TIMEOUT / 2)

static void post_one(struct pair *pair, unsigned number, struct pl_operation **handle)
{
	const struct pl_transfer transfer = { pair->remote, 0, pair->near.region, 0, 1 + number % LENGTH };
	const struct pl_atomic atomic = { .remote = pair->remote, .operand = 1 };
	struct pl_peer *peer = pair->environment.near_peer;
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;

	attributes.timeout = TIMEOUT;
	switch (number % 3) {
	case 0:
		check_ok(pl_write(peer, &transfer, &attributes, handle, &error), &error);
		break;
	case 1:
		check_ok(pl_read(peer, &transfer, &attributes, handle, &error), &error);
		break;
	default:
		check_ok(pl_fetch_add(peer, &atomic, &attributes, handle, &error), &error);
		break;
	}
}

/* Polls until nothing of `count` is missing. Returns the number of failed operations. */
static unsigned collect_all(struct pair *pair, unsigned count)
{
	struct pl_completion completions[LIST];
	const uint64_t begin = clock_now();
	unsigned failed = 0;

	while (count) {
		int got = pl_poll(pair->environment.near, completions, LIST);

		check(got >= 0 && (unsigned)got <= count);
		for (int i = 0; i < got; i++) {
			failed += completions[i].status != 0;
			check(completions[i].status || completions[i].lanes == 1);
		}
		count -= (unsigned)got;
		check(clock_now() - begin < SOON);
		pl_poll(pair->environment.far, NULL, 0);
	}
	return failed;
}

/* Few completions are asked for, by few further requests; each burst ends although nothing follows it. */
static void bursts_end(void *argument)
{
	unsigned fast = 0, completions = 0;
	struct card_counts before, after;
	struct pair pair;

	(void)argument;
	pair_open(&pair, &card_manual, LENGTH);
	/* The first completions make the queue hot. */
	for (unsigned i = 0; i < DEPTH; i++) {
		post_one(&pair, i, NULL);
		check_number(collect_all(&pair, 1), 0);
	}
	for (unsigned turn = 0; turn < TURNS; turn++) {
		uint64_t begin;

		post_one(&pair, 0, NULL);
		check_number(collect_all(&pair, 1), 0);
		begin = clock_now();
		before = card_counts_now();
		for (unsigned i = 0; i < DEPTH; i++)
			post_one(&pair, i, NULL);
		begin = clock_now() - begin;
		check_number(collect_all(&pair, DEPTH), 0);
		after = card_counts_now();
		check(after.posts - before.posts <= DEPTH + 1);
		/* A program that takes so long between polls gets each completion. */
		if (begin > HASTE)
			continue;
		fast++;
		completions += after.completions - before.completions;
	}
	check(completions <= fast * DEPTH * 3 / 4);
	pair_close(&pair);
}

/*
 * A burst that follows an equal one has a completion for each quarter, and one for the rest. Of single requests after it,
 * only the first one may need an empty request.
 */
static void bursts_repeat(void *argument)
{
	struct card_counts before, after;
	unsigned fast = 0, completions = 0;
	struct pair pair;

	(void)argument;
	pair_open(&pair, &card_manual, LENGTH);
	for (unsigned turn = 0; turn < TURNS; turn++) {
		uint64_t begin;

		for (unsigned i = 0; i < DEPTH; i++)
			post_one(&pair, i, NULL);
		check_number(collect_all(&pair, DEPTH), 0);
		before = card_counts_now();
		begin = clock_now();
		for (unsigned i = 0; i < DEPTH; i++)
			post_one(&pair, i, NULL);
		begin = clock_now() - begin;
		check_number(collect_all(&pair, DEPTH), 0);
		after = card_counts_now();
		if (begin <= HASTE) {
			fast++;
			completions += after.completions - before.completions;
		}
		for (unsigned i = 0; i < DEPTH; i++) {
			post_one(&pair, i, NULL);
			check_number(collect_all(&pair, 1), 0);
		}
		check(card_counts_now().posts - after.posts <= DEPTH + 1);
	}
	/* Five of 30; 14 for a burst that follows no other. */
	check(completions <= fast * DEPTH / 3);
	pair_close(&pair);
}

/* Posts operations as one list: the last one ends the list. */
static void post_list(struct pair *pair)
{
	const struct pl_transfer transfer = { pair->remote, 0, pair->near.region, 0, 8 };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;

	attributes.timeout = TIMEOUT;
	for (unsigned i = 0; i < LIST; i++) {
		attributes.flags = i + 1 < LIST ? PL_MORE : 0;
		check_ok(pl_write(pair->environment.near_peer, &transfer, &attributes, NULL, &error), &error);
	}
}

/* A list has a completion for each 16 requests and one for the last request, and needs no empty request behind it. */
static void lists_end(void *argument)
{
	struct card_counts before, after;
	struct pair pair;

	(void)argument;
	pair_open(&pair, &card_manual, LENGTH);
	for (unsigned turn = 0; turn < TURNS / 10; turn++) {
		before = card_counts_now();
		post_list(&pair);
		after = card_counts_now();
		check_number(after.posts - before.posts, LIST);
		check_number(collect_all(&pair, LIST), 0);
		after = card_counts_now();
		check_number(after.posts - before.posts, LIST);
		check_number(after.completions - before.completions, LIST / 16 + 1);
	}
	pair_close(&pair);
}

struct burst {
	unsigned posts, completions;
};

/* Writes of this length, after a completion was just taken. Returns what the card did for them. */
static struct burst burst_of(struct pair *pair, unsigned count, uint64_t length, unsigned pause)
{
	const struct pl_transfer transfer = { pair->remote, 0, pair->near.region, 0, length };
	struct card_counts before, after;
	struct pl_error error;

	post_one(pair, 0, NULL);
	check_number(collect_all(pair, 1), 0);
	before = card_counts_now();
	if (pause)
		sleep_ms(pause);
	for (unsigned i = 0; i < count; i++)
		check_ok(pl_write(pair->environment.near_peer, &transfer, NULL, NULL, &error), &error);
	check_number(collect_all(pair, count), 0);
	after = card_counts_now();
	return (struct burst){ after.posts - before.posts, after.completions - before.completions };
}

/* Checks that each request of such writes has a completion, and that none is added. */
static void expect_each(struct pair *pair, uint64_t length, unsigned pause)
{
	const struct burst burst = burst_of(pair, DEPTH, length, pause);

	check_number(burst.posts, DEPTH);
	check_number(burst.completions, DEPTH);
}

/* Each request asks where nothing is gained otherwise, or the next poll may come late. */
static void rules_hold(void *argument)
{
	struct pair pair;

	(void)argument;
	pair_open(&pair, &card_manual, LONG);
	for (unsigned turn = 0; turn < TURNS / 10; turn++) {
		/* One alone. */
		check_number(burst_of(&pair, 1, 8, 0).posts, 1);
		/* Long ones. */
		expect_each(&pair, LONG, 0);
		/* The last poll was long ago. */
		expect_each(&pair, 8, 1);
	}
	/* A thread may sleep on the descriptor. */
	check(pl_fd(pair.environment.near) >= 0);
	for (unsigned turn = 0; turn < TURNS / 10; turn++)
		expect_each(&pair, 8, 0);
	pair_close(&pair);
}

/* A connection that broke has a limit of bytes under way, and its rate is measured. */
static void slow_rail_asks(void *argument)
{
	struct pair pair;

	(void)argument;
	pair_open(&pair, &card_manual, LENGTH);
	card_fault_next(CARD_UNDELIVERED);
	burst_of(&pair, 1, 8, 0);
	check_number(card_counts_now().connects, 2);
	for (unsigned turn = 0; turn < TURNS / 10; turn++)
		expect_each(&pair, 8, 0);
	pair_close(&pair);
}

/* Waits for a burst, the last operation first: nothing was polled before. */
static void wait_for_burst(struct pair *pair)
{
	struct pl_operation *operations[DEPTH];
	uint64_t begin = clock_now();
	struct pl_error error;

	for (unsigned i = 0; i < DEPTH; i++)
		post_one(pair, i, &operations[i]);
	for (unsigned i = DEPTH; i-- > 0;)
		check_ok(pl_wait(operations[i], TIMEOUT, NULL, &error), &error);
	check(clock_now() - begin < SOON);
}

/* Waiters sleep on descriptors. */
static void waiters_wake(void *argument)
{
	struct pair pair;

	(void)argument;
	pair_open(&pair, &card_manual, LENGTH);
	for (unsigned turn = 0; turn < TURNS / 10; turn++)
		wait_for_burst(&pair);
	pair_close(&pair);
}

/* The progress thread sleeps until a completion comes. */
static void threads_wake(void *argument)
{
	struct pair pair;

	poll_time = argument ? 20000 : PL_NO_POLLING;
	pair_open(&pair, &card_threads, LENGTH);
	for (unsigned turn = 0; turn < TURNS; turn++)
		wait_for_burst(&pair);
	pair_close(&pair);
}

/* In each mood all operations end soon; without faults that break connections they succeed, over one connection. */
static void moods_pass(void *argument)
{
	const bool breaks = !strncmp(argument, "status", 6) || !strncmp(argument, "refuse", 6);
	unsigned failed = 0;
	struct pair pair;

	setenv("STANDIN_MOOD", argument, 1);
	setenv("STANDIN_FAULTS", breaks ? "12" : "1000000", 1);
	pair_open(&pair, &card_manual, LENGTH);
	for (unsigned turn = 0; turn < TURNS; turn++) {
		for (unsigned i = 0; i < DEPTH; i++)
			post_one(&pair, i, NULL);
		failed += collect_all(&pair, DEPTH);
	}
	check(breaks || !failed);
	check(breaks || card_counts_now().connects == 1);
	pair_close(&pair);
}

static void post_both(struct pair *pair, unsigned number)
{
	const struct pl_transfer write = { pair->remote, number, pair->near.region, number, 1 };
	const struct pl_transfer read = { pair->remote, WIDE + number, pair->near.region, WIDE + number, 1 };
	struct pl_peer *peer = pair->environment.near_peer;
	struct pl_error error;

	check_ok(pl_write(peer, &write, NULL, NULL, &error), &error);
	check_ok(pl_read(peer, &read, NULL, NULL, &error), &error);
}

/*
 * Writes and reads that wait behind a busy rail move their bytes, also if the connection breaks meanwhile. Returns the
 * number of failed operations.
 */
static unsigned move_behind(struct pair *pair, uint8_t value)
{
	const unsigned posts = card_counts_now().posts;
	unsigned failed;

	memset(pair->near.bytes, value, WIDE);
	memset(pair->far.bytes + WIDE, value, WIDE);
	for (unsigned i = 0; i < WIDE; i++)
		post_both(pair, i);
	check(card_counts_now().posts - posts <= QUEUE);
	failed = collect_all(pair, 2 * WIDE);
	for (unsigned i = 0; failed == 0 && i < WIDE; i++) {
		check_number(pair->far.bytes[i], value);
		check_number(pair->near.bytes[WIDE + i], value);
	}
	return failed;
}

static void waiting_pass(void *argument)
{
	const bool fails = !strncmp(argument, "status", 6) || !strncmp(argument, "refuse", 6);
	unsigned failed = 0;
	struct pair pair;

	setenv("STANDIN_MOOD", argument, 1);
	setenv("STANDIN_FAULTS", "6", 1);
	pair_open(&pair, &card_manual, 2 * WIDE);
	for (unsigned turn = 1; turn <= TURNS / 10; turn++)
		failed += move_behind(&pair, (uint8_t)turn);
	check(failed <= (fails ? 6 : 0));
	if (card_counts_now().faults[CARD_ORDER])
		check_number(card_counts_now().connects, 1);
	else
		check(card_counts_now().connects > 1 || fails);
	pair_close(&pair);
}

/* Operations that are cancelled, or done and not reported, end at once. The region is free then. */
static void cancelled_end(void *argument)
{
	struct pl_completion completions[WIDE];
	uint64_t begin, least = UINT64_MAX;
	unsigned done = 0;
	struct pair pair;

	(void)argument;
	pair_open(&pair, &card_manual, LENGTH);
	for (unsigned turn = 0; turn < TURNS / 20; turn++) {
		for (unsigned i = 0; i < DEPTH; i++)
			post_one(&pair, i, NULL);
		check_number(collect_all(&pair, DEPTH), 0);
		for (unsigned i = 0; i < WIDE; i++)
			post_one(&pair, i, NULL);
		begin = clock_now();
		check(pl_cancel_posted(pair.environment.near, 0) >= 0);
		for (done = 0; done < WIDE;) {
			int got = pl_poll(pair.environment.near, completions, WIDE);

			for (int i = 0; i < got; i++)
				check_one_of(completions[i].status, 0, -ECANCELED);
			done += (unsigned)got;
			pl_poll(pair.environment.far, NULL, 0);
		}
		begin = clock_now() - begin;
		least = begin < least ? begin : least;
	}
	/* A rail gives up its requests after a second.  Some turns of a busy machine may take as long. */
	check(least < SECOND / 2);
	check_number(pl_region_deregister(pair.near.region), 0);
	pair.near.region = NULL;
	pair_close(&pair);
}

/* Operations under way keep the region, and the remote region that the program has released. */
static void regions_stay(void *argument)
{
	struct pair pair;

	(void)argument;
	pair_open(&pair, &card_manual, LENGTH);
	for (unsigned turn = 0; turn < 2; turn++) {
		for (unsigned i = 0; i < DEPTH; i++)
			post_one(&pair, i, NULL);
		check_number(pl_region_deregister(pair.near.region), -EBUSY);
		if (turn)
			pl_remote_release(pair.remote);
		check_number(collect_all(&pair, DEPTH), 0);
	}
	pair.remote = NULL;
	check_number(pl_region_deregister(pair.near.region), 0);
	pair.near.region = NULL;
	pair_close(&pair);
}

/* A second peer, whose rail shares the completion queue of the first one's. */
struct beside {
	struct pl_peer *near, *far;
	struct pl_remote *remote;
};

static void beside_open(struct pair *pair, struct beside *beside)
{
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_error error;

	connect_pair(&pair->environment, pair->environment.near, pair->environment.listener, &beside->near,
		     &beside->far);
	check_ok(pl_region_share(pair->far.region, NULL, token, &length, &error), &error);
	beside->remote = import_token(&pair->environment, beside->near, token, length);
}

static void beside_close(struct beside *beside)
{
	pl_remote_release(beside->remote);
	pl_peer_close(beside->near);
	pl_peer_close(beside->far);
}

/* Polls until a burst has ended. Each poll finds the completion of a write to the other peer, posted just before. */
static void collect_beside(struct pair *pair, const struct beside *beside, unsigned count)
{
	const struct pl_transfer transfer = { beside->remote, 0, pair->near.region, 0, 8 };
	struct pl_completion completions[LIST];
	const uint64_t begin = clock_now();
	struct pl_error error;

	while (count) {
		int got;

		check_ok(pl_write(beside->near, &transfer, NULL, NULL, &error), &error);
		got = pl_poll(pair->environment.near, completions, LIST);
		check(got >= 1 && (unsigned)got <= count + 1);
		for (int i = 0; i < got; i++)
			check_number(completions[i].status, 0);
		count -= (unsigned)got - 1;
		check(clock_now() - begin < SOON);
	}
}

/* The end of a burst is asked for although no poll finds nothing. */
static void busy_queue_asks(void *argument)
{
	struct beside beside;
	unsigned connects;
	struct pair pair;

	(void)argument;
	pair_open(&pair, &card_manual, LENGTH);
	beside_open(&pair, &beside);
	connects = card_counts_now().connects;
	for (unsigned turn = 0; turn < TURNS; turn++) {
		for (unsigned i = 0; i < DEPTH; i++)
			post_one(&pair, i, NULL);
		collect_beside(&pair, &beside, DEPTH);
	}
	check_number(card_counts_now().connects, connects);
	beside_close(&beside);
	pair_close(&pair);
}

static void in_process(const char *name, void (*run)(void *), char *argument)
{
	setenv("STANDIN_CARD", "cx7-roce", 1);
	check_number(process_run(name, LIMIT, run, argument), 0);
}

static void test_bursts(void **state)
{
	(void)state;
	in_process("bursts", bursts_end, NULL);
	in_process("repeated bursts", bursts_repeat, NULL);
}

static void test_lists(void **state)
{
	(void)state;
	in_process("lists", lists_end, NULL);
}

static void test_rules(void **state)
{
	(void)state;
	in_process("rules", rules_hold, NULL);
	in_process("slow rail", slow_rail_asks, NULL);
}

static void test_busy_queue(void **state)
{
	(void)state;
	in_process("busy queue", busy_queue_asks, NULL);
}

static void test_waiters(void **state)
{
	(void)state;
	in_process("waiters", waiters_wake, NULL);
}

static void test_threads(void **state)
{
	(void)state;
	in_process("threads", threads_wake, NULL);
	in_process("threads that poll", threads_wake, (char[]){ "poll" });
}

static void test_moods(void **state)
{
	static char moods[][24] = { "late:500,channel:500", "events:500", "doubled:500", "stale:500",
				    "wrong-number:500",     "status:50",  "refuse:50" };

	(void)state;
	for (size_t i = 0; i < sizeof(moods) / sizeof(moods[0]); i++)
		in_process(moods[i], moods_pass, moods[i]);
}

static void test_waiting(void **state)
{
	static char moods[][24] = { "order:100", "undelivered:20", "unanswered:20", "status:20", "refuse:20" };

	(void)state;
	for (size_t i = 0; i < sizeof(moods) / sizeof(moods[0]); i++)
		in_process(moods[i], waiting_pass, moods[i]);
}

static void test_cancelled(void **state)
{
	(void)state;
	in_process("cancelled", cancelled_end, NULL);
}

static void test_regions(void **state)
{
	(void)state;
	in_process("regions", regions_stay, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bursts),     cmocka_unit_test(test_lists),   cmocka_unit_test(test_rules),
		cmocka_unit_test(test_waiters),    cmocka_unit_test(test_threads), cmocka_unit_test(test_moods),
		cmocka_unit_test(test_cancelled),  cmocka_unit_test(test_regions), cmocka_unit_test(test_waiting),
		cmocka_unit_test(test_busy_queue),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
