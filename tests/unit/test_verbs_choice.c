/* SPDX-License-Identifier: BSD-2-Clause */
/* Rails between cards near the memory: questions, answers, and the rails that carry transfers meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/verbs_rig.h"

/* An end with two ports and rails between ports of the same number, which may get more. */
static struct verbs_rig *rig_new(bool initiator)
{
	struct verbs_rig *rig = verbs_rig_new(initiator, false, 2);
	struct pl_rail_message request;

	rig->context.options.rails = 0;
	rig->endpoint->rails_most = VERBS_RAILS;
	if (initiator) {
		verbs_rig_expect(rig, PL_RAIL_CONNECT, 0, 1);
		verbs_rig_expect(rig, PL_RAIL_CONNECT, 1, 1);
		return rig;
	}
	request = verbs_rig_message(PL_RAIL_CONNECT, 0, 1);
	request.count = 2;
	request.ports[1] = 0x11;
	assert_int_equal(verbs_rig_deliver(rig, &request), 0);
	verbs_rig_expect(rig, PL_RAIL_ACCEPT, 0, 1);
	return rig;
}

static int deliver_rails(struct verbs_rig *rig, uint16_t acceptor, uint16_t initiator, uint8_t rails)
{
	const struct pl_rails_message message = { acceptor, initiator, rails };

	return pl_verbs_fabric.rails(&rig->endpoint->base, &message);
}

/* -- initiator ------------------------------------------------------------------------------------ */

/* Rails that exist serve; one between other ports is made, once. */
static void test_questions(void **state)
{
	struct verbs_rig *rig = rig_new(true);
	struct pl_rail_message request;

	(void)state;
	assert_int_equal(deliver_rails(rig, 2, 2, 0), 0);
	verbs_rig_expect_rails(rig, 2, 2, 2);
	assert_int_equal(deliver_rails(rig, 2, 1, 0), 0);
	request = verbs_rig_expect(rig, PL_RAIL_CONNECT, 2, 1);
	assert_int_equal(request.count, 3);
	assert_int_equal(request.ports[1], 0x11);
	assert_int_equal(request.ports[2], 0x01);
	verbs_rig_expect_rails(rig, 2, 1, 4);
	assert_ptr_equal(rig->endpoint->rails[2].port, &rig->ports[0]);
	assert_int_equal(deliver_rails(rig, 2, 1, 0), 0);
	verbs_rig_expect_rails(rig, 2, 1, 4);
	verbs_rig_expect_silence(rig);
	verbs_rig_free(rig);
}

/* Two ports that are near at both ends make pairs with the same numbers. */
static void test_pairs(void **state)
{
	struct verbs_rig *rig = rig_new(true);

	(void)state;
	assert_int_equal(deliver_rails(rig, 3, 3, 0), 0);
	verbs_rig_expect_rails(rig, 3, 3, 3);
	assert_int_equal(deliver_rails(rig, 0, 2, 0), 0);
	verbs_rig_expect_rails(rig, 0, 2, 2);
	verbs_rig_free(rig);
}

/* A port that one queue pair does not fill gets two rails when a transfer needs one first, as far as there is room. */
static void test_wide_port(void **state)
{
	struct verbs_rig *rig = rig_new(true);

	(void)state;
	rig->ports[0].wide = true;
	assert_int_equal(deliver_rails(rig, 2, 1, 0), 0);
	for (unsigned i = 2; i < 4; i++) {
		struct pl_rail_message request = verbs_rig_expect(rig, PL_RAIL_CONNECT, i, 1);

		assert_int_equal(request.count, 4);
		assert_int_equal(request.ports[i], 0x01);
	}
	verbs_rig_expect_rails(rig, 2, 1, 12);
	verbs_rig_free(rig);

	rig = rig_new(true);
	rig->ports[0].wide = true;
	rig->endpoint->rails_most = 3;
	assert_int_equal(deliver_rails(rig, 2, 1, 0), 0);
	verbs_rig_expect(rig, PL_RAIL_CONNECT, 2, 1);
	verbs_rig_expect_rails(rig, 2, 1, 4);
	verbs_rig_expect_silence(rig);
	verbs_rig_free(rig);
}

/* At the limit of rails, and with a number of rails that the program chose, none is made. */
static void test_limits(void **state)
{
	struct verbs_rig *rig = rig_new(true);

	(void)state;
	rig->endpoint->rails_most = 2;
	assert_int_equal(deliver_rails(rig, 1, 2, 0), 0);
	verbs_rig_expect_rails(rig, 1, 2, 0);
	rig->endpoint->rails_most = VERBS_RAILS;
	rig->context.options.rails = 2;
	assert_int_equal(deliver_rails(rig, 1, 2, 0), 0);
	verbs_rig_expect_rails(rig, 1, 2, 0);
	assert_int_equal(deliver_rails(rig, 0, 2, 0), 0);
	verbs_rig_expect_rails(rig, 0, 2, 2);
	verbs_rig_free(rig);
}

static void test_wrong_questions(void **state)
{
	struct verbs_rig *rig = rig_new(true);

	(void)state;
	assert_int_equal(deliver_rails(rig, 1, 1, 1), -EPROTO);
	assert_int_equal(deliver_rails(rig, 4, 1, 0), -EPROTO);
	assert_int_equal(deliver_rails(rig, 1, 4, 0), -EPROTO);
	verbs_rig_expect_silence(rig);
	rig->endpoint->closing = true;
	assert_int_equal(deliver_rails(rig, 4, 4, 4), 0);
	verbs_rig_free(rig);
}

/* The initiator's own transfers need no question, and remember their rails. */
static void test_own_choice(void **state)
{
	struct verbs_rig *rig = rig_new(true);
	uint8_t choice = verbs_choose(rig->endpoint, 1, 2);

	(void)state;
	assert_int_equal(choice, 1);
	verbs_rig_expect(rig, PL_RAIL_CONNECT, 2, 1);
	verbs_rig_expect_silence(rig);
	assert_int_equal(rig->endpoint->choices[choice].rails, 4);
	assert_int_equal(verbs_choose(rig->endpoint, 1, 2), choice);
	assert_int_equal(verbs_choose(rig->endpoint, 0, 0), 0);
	/* Memory at one end only has near cards. */
	assert_int_equal(verbs_choose(rig->endpoint, 0, 2), choice + 1);
	assert_int_equal(rig->endpoint->choices[choice + 1].rails, 2);
	assert_int_equal(rig->endpoint->choices[0].rails, 3);
	verbs_rig_free(rig);
}

/* Beyond the most choices, all cards are alike. */
static void test_many_choices(void **state)
{
	struct verbs_rig *rig = rig_new(true);

	(void)state;
	for (unsigned i = 1; i < VERBS_CHOICES; i++)
		assert_int_equal(verbs_choose(rig->endpoint, 1u << 20 | i, 0), i);
	assert_int_equal(verbs_choose(rig->endpoint, 1u << 21, 0), 0);
	verbs_rig_free(rig);
}

/* -- acceptor ------------------------------------------------------------------------------------- */

static void test_answers(void **state)
{
	struct verbs_rig *rig = rig_new(false);
	uint8_t choice = verbs_choose(rig->endpoint, 1, 2);

	(void)state;
	verbs_rig_expect_rails(rig, 1, 2, 0);
	assert_int_equal(verbs_choose(rig->endpoint, 1, 2), choice);
	verbs_rig_expect_silence(rig);
	/* An answer to another question, and one with a rail that does not exist. */
	assert_int_equal(deliver_rails(rig, 2, 2, 1), -EPROTO);
	assert_int_equal(deliver_rails(rig, 1, 2, 4), -EPROTO);
	rig->endpoint->rails[1].link = VERBS_UP;
	assert_int_equal(verbs_live_rails(rig->endpoint, choice, NULL), 0);
	assert_int_equal(deliver_rails(rig, 1, 2, 2), 0);
	assert_int_equal(verbs_live_rails(rig->endpoint, choice, NULL), 2);
	assert_int_equal(deliver_rails(rig, 1, 2, 2), -EPROTO);
	rig->endpoint->rails[1].link = VERBS_DOWN;
	verbs_rig_free(rig);
}

/* Answers to questions about the same memory of the acceptor differ by the initiator's. */
static void test_several_answers(void **state)
{
	struct verbs_rig *rig = rig_new(false);
	uint8_t first = verbs_choose(rig->endpoint, 1, 1), second = verbs_choose(rig->endpoint, 1, 2);

	(void)state;
	assert_int_equal(deliver_rails(rig, 1, 2, 2), 0);
	assert_false(rig->endpoint->choices[first].known);
	assert_int_equal(rig->endpoint->choices[second].rails, 2);
	verbs_rig_free(rig);
}

/* Before the answer, local memory is registered by the device near it. */
static void test_device(void **state)
{
	struct verbs_rig *rig = rig_new(false);
	struct verbs_device other = rig->device;

	(void)state;
	rig->ports[1].device = &other;
	assert_ptr_equal(verbs_device_of(rig->endpoint, verbs_choose(rig->endpoint, 2, 1)), &other);
	assert_ptr_equal(verbs_device_of(rig->endpoint, verbs_choose(rig->endpoint, 0, 1)), &rig->device);
	rig->ports[1].device = &rig->device;
	verbs_rig_free(rig);
}

/* A request may add rails, and must not change any. */
static void test_added_rails(void **state)
{
	struct verbs_rig *rig = rig_new(false);
	struct pl_rail_message request = verbs_rig_message(PL_RAIL_CONNECT, 2, 1);

	(void)state;
	request.count = 3;
	request.ports[1] = 0x11;
	request.ports[2] = 0x01;
	assert_int_equal(verbs_rig_deliver(rig, &request), 0);
	assert_int_equal(rig->endpoint->rail_count, 3);
	assert_ptr_equal(rig->endpoint->rails[2].port, &rig->ports[1]);
	assert_int_equal(rig->endpoint->rails[2].far_port, 0);
	/* The rails of the start stay those of memory to which all cards are alike. */
	assert_int_equal(rig->endpoint->choices[0].rails, 3);
	request.generation = 2;
	request.ports[1] = 0x01;
	assert_int_equal(verbs_rig_deliver(rig, &request), -EPROTO);
	request.ports[1] = 0x11;
	request.ports[2] = 0xc1;
	assert_int_equal(verbs_rig_deliver(rig, &request), -EPROTO);
	request.ports[2] = 0;
	request.index = 1;
	request.count = 2;
	assert_int_equal(verbs_rig_deliver(rig, &request), -EPROTO);
	verbs_rig_free(rig);
}

/* -- rails that carry transfers ------------------------------------------------------------------- */

/* Transfers wait for the near rail's first connection, and for a moment after it broke; then others carry them. */
static void test_live_rails(void **state)
{
	const uint64_t before = pl_now();
	struct verbs_rig *rig = rig_new(true);
	struct verbs_rail *rails = rig->endpoint->rails;
	uint8_t choice = verbs_choose(rig->endpoint, 1, 2);
	struct verbs_remote_key target = { .refused = 1 };

	(void)state;
	rails[0].link = VERBS_UP;
	rails[1].link = VERBS_UP;
	/* A new peer's first connection has a second. */
	assert_true(rails[2].wait_until >= before + PL_NS_PER_S);
	rails[2].wait_until = pl_now() + 100 * PL_NS_PER_S;
	assert_int_equal(verbs_live_rails(rig->endpoint, choice, NULL), 0);
	rails[2].wait_until = 0;
	rails[1].wait_until = pl_now() + 100 * PL_NS_PER_S;
	rails[1].link = VERBS_ASKING;
	assert_int_equal(verbs_live_rails(rig->endpoint, choice, NULL), 1);
	rails[1].link = VERBS_UP;
	rails[2].wait_until = pl_now();
	assert_int_equal(verbs_live_rails(rig->endpoint, choice, NULL), 3);
	/* The owner has no key for a rail. */
	assert_int_equal(verbs_live_rails(rig->endpoint, choice, &target), 2);
	rails[2].link = VERBS_UP;
	assert_int_equal(verbs_live_rails(rig->endpoint, choice, NULL), 4);
	target.refused = 4;
	assert_int_equal(verbs_live_rails(rig->endpoint, choice, &target), 3);
	/* Memory to which all cards are alike does not use rails that were made for other memory. */
	assert_int_equal(verbs_live_rails(rig->endpoint, 0, NULL), 3);
	for (unsigned i = 0; i < 3; i++)
		rails[i].link = VERBS_ASKING;
	verbs_rig_free(rig);
}

/* An attempt that fails ends the wait, and so does its time. */
static void test_parking(void **state)
{
	struct verbs_rig *rig = rig_new(true);
	struct verbs_work *work = pl_zalloc(&pl_system_allocator, sizeof(*work));
	uint64_t until;

	(void)state;
	assert_non_null(work);
	pl_list_init(&work->link);
	work->choice = verbs_choose(rig->endpoint, 1, 2);
	rig->endpoint->rails[1].wait_until = pl_now() + 100 * PL_NS_PER_S;
	rig->endpoint->rails[2].wait_until = pl_now() + 50 * PL_NS_PER_S;
	verbs_park(rig->endpoint, work);
	assert_false(pl_list_empty(&rig->endpoint->parked));
	assert_true(rig->endpoint->parking.deadline - rig->endpoint->rails[2].wait_until < PL_NS_PER_S / 10);
	verbs_rig_send(rig, PL_RAIL_DOWN, 2, 1);
	assert_true(pl_list_empty(&rig->endpoint->parked));
	assert_int_equal(rig->endpoint->rails[2].wait_until, 0);
	/* Without a rail to wait for, only an answer ends the wait. */
	verbs_park(rig->endpoint, work);
	assert_true(pl_list_empty(&rig->endpoint->parking.link));
	rig->endpoint->rails[2].wait_until = pl_now() + 50 * PL_NS_PER_S;
	verbs_park(rig->endpoint, work);
	/* The timer of the first one serves all. */
	until = rig->endpoint->parking.deadline;
	rig->endpoint->rails[2].wait_until += PL_NS_PER_S;
	verbs_park(rig->endpoint, work);
	assert_int_equal(rig->endpoint->parking.deadline, until);
	verbs_rig_expire(rig, &rig->endpoint->parking);
	assert_ptr_equal(pl_list_first(&rig->endpoint->waiting, struct verbs_work, link), work);
	verbs_rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_questions),       cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_wide_port),       cmocka_unit_test(test_limits),
		cmocka_unit_test(test_wrong_questions), cmocka_unit_test(test_own_choice),
		cmocka_unit_test(test_many_choices),    cmocka_unit_test(test_answers),
		cmocka_unit_test(test_several_answers), cmocka_unit_test(test_device),
		cmocka_unit_test(test_added_rails),     cmocka_unit_test(test_live_rails),
		cmocka_unit_test(test_parking),
	};

	return cmocka_run_group_tests_name("verbs choice", tests, NULL, NULL);
}
