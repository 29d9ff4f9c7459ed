/* SPDX-License-Identifier: BSD-2-Clause */
/* How much a rail has under way, on links of several kinds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric/verbs/verbs.h"

#define PACKET 1024u
/* Bytes per second. */
#define FAST (100ull << 20)
#define SLOW (100ull << 10)
#define FEW 4

/* A link that carries so much as a rule, and so much if a packet goes at a time, or a few; and the time there. */
struct link {
	uint64_t rate, single, few, now;
};

static void open_pace(struct verbs_pace *pace)
{
	verbs_pace_open(pace);
	verbs_pace_connect(pace, IBV_MTU_1024);
	assert_int_equal(pace->limit, VERBS_UNLIMITED);
	assert_int_equal(pace->packet, PACKET);
}

/* Half a second of completions, each of which finds more to do.  Returns what was done. */
static uint64_t carry(struct verbs_pace *pace, struct link *link)
{
	uint64_t end = link->now + PL_NS_PER_S / 2, done = 0;

	while (link->now < end && pace->limit != VERBS_UNLIMITED) {
		uint64_t rate = pace->limit == pace->packet                ? link->single
				: link->few && pace->limit <= FEW * PACKET ? link->few
									   : link->rate;

		link->now += pace->limit * PL_NS_PER_S / rate;
		done += pace->limit;
		verbs_pace_done(pace, pace->limit, false, link->now);
	}
	return done;
}

/* A cable was pulled: there is no limit any more soon after. */
static void test_fast(void **state)
{
	struct link link = { .rate = FAST, .single = SLOW, .now = PL_NS_PER_S };
	struct verbs_pace pace;

	(void)state;
	open_pace(&pace);
	verbs_pace_broke(&pace, link.now);
	assert_true(pace.limit < VERBS_CHUNK && pace.limit > PACKET);
	for (unsigned i = 0; i < 5 && pace.limit != VERBS_UNLIMITED; i++)
		carry(&pace, &link);
	assert_int_equal(pace.limit, VERBS_UNLIMITED);
}

/* Packets overtake each other: one at a time, and rarely more. */
static void test_overtaken(void **state)
{
	struct link link = { .rate = SLOW, .single = 8 * SLOW, .now = PL_NS_PER_S };
	struct verbs_pace pace;
	uint64_t done = 0, began;

	(void)state;
	open_pace(&pace);
	verbs_pace_broke(&pace, link.now);
	for (unsigned i = 0; i < 4; i++)
		carry(&pace, &link);
	began = link.now;
	for (unsigned i = 0; i < 120; i++) {
		done += carry(&pace, &link);
		assert_true(pace.limit <= 64u << 10);
	}
	/* What is tried in between costs less than a sixth. */
	assert_true(done * PL_NS_PER_S / (link.now - began) > 8 * SLOW * 5 / 6);
	/* Then they do not any more. */
	link.rate = FAST;
	for (unsigned i = 0; i < 50 && pace.limit != VERBS_UNLIMITED; i++)
		carry(&pace, &link);
	assert_int_equal(pace.limit, VERBS_UNLIMITED);
}

/* A few do better than one at a time, and many do not: it stays with a few, until these do badly, too. */
static void test_few(void **state)
{
	struct link link = { .rate = SLOW, .single = 8 * SLOW, .few = 16 * SLOW, .now = PL_NS_PER_S };
	struct verbs_pace pace;
	uint64_t done = 0, began;

	(void)state;
	open_pace(&pace);
	verbs_pace_broke(&pace, link.now);
	for (unsigned i = 0; i < 8; i++)
		carry(&pace, &link);
	began = link.now;
	for (unsigned i = 0; i < 120; i++)
		done += carry(&pace, &link);
	assert_true(done * PL_NS_PER_S / (link.now - began) > 16 * SLOW * 5 / 6);
	link.few = SLOW;
	for (unsigned i = 0; i < 80; i++)
		carry(&pace, &link);
	began = link.now;
	for (done = 0; link.now < began + 20 * PL_NS_PER_S;)
		done += carry(&pace, &link);
	assert_true(done * PL_NS_PER_S / (link.now - began) > 8 * SLOW * 5 / 6);
}

/* A link that carries little, and less of single packets, is not kept to these. */
static void test_thin(void **state)
{
	struct link link = { .rate = 2 * SLOW, .single = SLOW, .now = PL_NS_PER_S };
	struct verbs_pace pace;

	(void)state;
	open_pace(&pace);
	verbs_pace_broke(&pace, link.now);
	for (unsigned i = 0; i < 60 && pace.limit != VERBS_UNLIMITED; i++)
		carry(&pace, &link);
	assert_int_equal(pace.limit, VERBS_UNLIMITED);
}

/* Somebody who asks for little does not make it a slow link. */
static void test_idle(void **state)
{
	struct verbs_pace pace;
	uint64_t now = PL_NS_PER_S;

	(void)state;
	open_pace(&pace);
	verbs_pace_broke(&pace, now);
	for (unsigned i = 0; i < 1000; i++) {
		now += PL_NS_PER_MS;
		verbs_pace_done(&pace, 8, true, now);
	}
	assert_true(pace.limit > PACKET);
}

/* It breaks again: no more than before, nor less. */
static void test_again(void **state)
{
	struct verbs_pace pace;
	uint32_t limit;

	(void)state;
	open_pace(&pace);
	verbs_pace_broke(&pace, PL_NS_PER_S);
	limit = pace.limit;
	verbs_pace_broke(&pace, 2 * PL_NS_PER_S);
	assert_int_equal(pace.limit, limit);
	verbs_pace_connect(&pace, (enum ibv_mtu)0);
	assert_int_equal(pace.packet, PACKET);
	verbs_pace_connect(&pace, IBV_MTU_4096);
	assert_int_equal(pace.packet, 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fast), cmocka_unit_test(test_overtaken), cmocka_unit_test(test_few),
		cmocka_unit_test(test_thin), cmocka_unit_test(test_idle),      cmocka_unit_test(test_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
