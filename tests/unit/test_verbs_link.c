/* SPDX-License-Identifier: BSD-2-Clause */
/* A rail between two connections: how a queue pair is drained, and the attempts of an end that waits for the other one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/verbs_rig.h"

/* Failed queue pairs without the event of their last receive, after which a driver counts as one that never tells. */
#define LASTS_MISSED 4u

static struct verbs_rail *rail_of(struct verbs_rig *rig)
{
	return &rig->endpoint->rails[0];
}

/* An initiator's request came, and was answered. The endpoint was never open. */
static struct verbs_rig *new_proving(void)
{
	struct verbs_rig *rig = verbs_rig_new(false, false, 1);

	verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 1);
	verbs_rig_expect(rig, PL_RAIL_ACCEPT, 0, 1);
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
	return rig;
}

/* -- draining ------------------------------------------------------------------------------------- */

/*
 * The initiator gives up its attempt, of which it says so before its proof is polled here. The proof shows that the network
 * carries packets: the endpoint opens. A peer that was lost meanwhile stays lost.
 */
static void test_late_proof(void **state)
{
	(void)state;
	for (unsigned lost = 0; lost < 2; lost++) {
		struct verbs_rig *rig = new_proving();

		verbs_rig_send(rig, PL_RAIL_DOWN, 0, 1);
		verbs_rig_expect_link(rig, 0, VERBS_DRAINING, 1);
		if (lost)
			atomic_store(&rig->peer.state, PL_PEER_LOST);
		verbs_rig_arrive(rig, 0);
		verbs_rig_poll(rig);
		verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
		assert_int_equal(rig->endpoint->opened, !lost);
		assert_int_equal(rig->endpoint->down_since != 0, !lost);
		atomic_store(&rig->peer.state, PL_PEER_UP);
		verbs_rig_free(rig);
	}
}

/* The same of an endpoint that was open: its time to connect again goes on. */
static void test_late_proof_again(void **state)
{
	struct verbs_rig *rig = new_proving();
	uint64_t since;

	(void)state;
	verbs_rig_arrive(rig, 0);
	verbs_rig_poll(rig);
	verbs_fail(rail_of(rig), "test");
	verbs_rig_settle(rig);
	verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 2);
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
	since = rig->endpoint->down_since -= PL_NS_PER_S;
	verbs_rig_send(rig, PL_RAIL_DOWN, 0, 2);
	verbs_rig_expect_link(rig, 0, VERBS_DRAINING, 1);
	verbs_rig_arrive(rig, 0);
	verbs_rig_poll(rig);
	verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
	assert_int_equal(rig->endpoint->down_since, since);
	verbs_rig_free(rig);
}

/* A new attempt is given up at once, because no frame can have come. Once the endpoint was open, the queue pair is drained. */
static void test_given_up(void **state)
{
	(void)state;
	for (uint16_t generation = 1; generation <= 2; generation++) {
		struct verbs_rig *rig = verbs_rig_new(true, false, 1);
		unsigned drained = 0;

		if (generation == 2) {
			verbs_rig_bring_up(rig, 0, 1);
			verbs_fail(rail_of(rig), "test");
			verbs_rig_settle(rig);
			verbs_rig_expire(rig, &rail_of(rig)->retry);
			drained = rig->card.failed;
		}
		verbs_rig_send(rig, PL_RAIL_ACCEPT, 0, generation);
		verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
		verbs_rig_send(rig, PL_RAIL_DOWN, 0, generation);
		assert_int_equal(rail_of(rig)->link, generation == 2 ? VERBS_DRAINING : VERBS_DOWN);
		assert_int_equal(rig->card.failed - drained, generation - 1);
		verbs_rig_settle(rig);
		verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
		verbs_rig_free(rig);
	}
}

/* Of a driver that never tells of the last receive, the rail does not wait for it. */
static void test_last_receive(void **state)
{
	(void)state;
	for (unsigned missed = LASTS_MISSED - 1; missed <= LASTS_MISSED; missed++) {
		struct verbs_rig *rig = verbs_rig_new(true, false, 1);
		struct verbs_rail *rail = rail_of(rig);
		uint64_t limit;

		verbs_rig_bring_up(rig, 0, 1);
		assert_int_equal(atomic_load(&rig->endpoint->lanes), 1);
		atomic_store(&rig->device.lasts_missed, missed);
		verbs_fail(rail, "test");
		assert_int_equal(atomic_load(&rig->endpoint->lanes), 0);
		atomic_store(&rail->last_reached, false);
		limit = rail->drain.deadline;
		verbs_rig_settle(rig);
		verbs_rig_expect_link(rig, 0, missed < LASTS_MISSED ? VERBS_DRAINING : VERBS_DOWN,
				      missed < LASTS_MISSED);
		assert_int_equal(rig->queue.receives_lost, missed == LASTS_MISSED);
		if (missed < LASTS_MISSED) {
			/* This wait is shorter than that for requests, and begins once. */
			assert_true(rail->drain.deadline < limit);
			limit = rail->drain.deadline;
			rail->drained_task.run(&rail->drained_task);
			assert_int_equal(rail->drain.deadline, limit);
			verbs_rig_expire(rig, &rail->drain);
			verbs_rig_settle(rig);
			verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
			assert_int_equal(rig->queue.receives_lost, 1);
			assert_int_equal(atomic_load(&rig->device.lasts_missed), LASTS_MISSED);
		}
		verbs_rig_free(rig);
	}
}

/* Rail whose queue pair returns its last receive when the device is asked for events; and how often it was asked. */
static struct verbs_rail *returning;
static unsigned events_asked;

static int get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	(void)context;
	(void)event;
	events_asked++;
	if (returning)
		atomic_store(&returning->last_reached, true);
	return -1;
}

/*
 * An endpoint that closes takes the events of the last receive itself if it has the first engine, and waits for a moment. A
 * removed device has none, and a rail that is up does not wait.
 */
static void test_awaited_receive(void **state)
{
	static const struct {
		bool drains, returns, closed, silent;
		unsigned missed, lost;
	} cases[] = { { true, true, false, false, 0, 0 },
		      { true, false, false, false, 0, 1 },
		      { true, false, false, false, LASTS_MISSED, 1 },
		      { true, false, true, false, 0, 1 },
		      { true, false, false, true, 0, 0 },
		      { false, false, false, false, 0, 0 } };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct verbs_rig *rig = verbs_rig_new(true, false, 1);
		struct verbs_rail *rail = rail_of(rig);

		rig->library.ibv_get_async_event = get_async_event;
		verbs_rig_bring_up(rig, 0, 1);
		if (cases[i].drains)
			verbs_fail(rail, "test");
		atomic_store(&rail->last_reached, false);
		atomic_store(&rig->device.lasts_missed, cases[i].missed);
		returning = cases[i].returns ? rail : NULL;
		events_asked = 0;
		rig->device.verbs = cases[i].closed ? NULL : &rig->verbs;
		atomic_store(&rig->device.silent, cases[i].silent);
		verbs_await_last_receive(rail);
		atomic_store(&rig->device.silent, false);
		rig->device.verbs = &rig->verbs;
		assert_int_equal(events_asked > 0,
				 cases[i].drains && !cases[i].closed && !cases[i].silent && !cases[i].missed);
		assert_int_equal(rig->queue.receives_lost, cases[i].lost);
		atomic_store(&rail->last_reached, true);
		verbs_rig_free(rig);
	}
}

/* A task of an earlier end does nothing to a rail that is up again, of which the peer's device refuses no access any more. */
static void test_up_again(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);
	struct verbs_rail *rail = rail_of(rig);
	const struct verbs_remote_key key = { 0 };

	(void)state;
	verbs_rig_bring_up(rig, 0, 1);
	verbs_fail(rail, "test");
	/* Work with the card near waits for a moment. */
	assert_true(rail->wait_until);
	rail->denied = &key;
	verbs_rig_settle(rig);
	verbs_rig_expect(rig, PL_RAIL_DOWN, 0, 1);
	verbs_rig_expire(rig, &rail->retry);
	verbs_rig_bring_up(rig, 0, 2);
	assert_null(rail->denied);
	rail->drained_task.run(&rail->drained_task);
	verbs_rig_expect_link(rig, 0, VERBS_UP, 1);
	verbs_rig_free(rig);
}

/* The end of an endpoint waits for no receive: only a queue pair that drains, and has not returned all, may keep one. */
static void test_forgone_receive(void **state)
{
	static const struct {
		bool drains, returned;
		unsigned lost;
	} cases[] = { { true, false, 1 }, { true, true, 0 }, { false, false, 0 } };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct verbs_rig *rig = verbs_rig_new(true, false, 1);
		struct verbs_rail *rail = rail_of(rig);

		verbs_rig_bring_up(rig, 0, 1);
		if (cases[i].drains)
			verbs_fail(rail, "test");
		atomic_store(&rail->last_reached, cases[i].returned);
		verbs_forgo_last_receive(rail);
		assert_int_equal(rig->queue.receives_lost, cases[i].lost);
		atomic_store(&rail->last_reached, true);
		verbs_rig_free(rig);
	}
}

/* A queue pair that the driver does not destroy may use buffers for ever: closing the device ends that. */
static void test_destroy_fails(void **state)
{
	(void)state;
	for (unsigned fails = 0; fails < 2; fails++) {
		struct verbs_rig *rig = verbs_rig_new(true, false, 1);

		verbs_rig_bring_up(rig, 0, 1);
		verbs_fail(rail_of(rig), "test");
		rig->card.no_destroy = fails ? EIO : 0;
		rail_of(rig)->drained_task.run(&rail_of(rig)->drained_task);
		assert_int_equal(atomic_load(&rig->device.gone), fails);
		assert_int_equal(atomic_load(&rig->state.tend_task.queued), fails);
		/* This device cannot be closed. */
		pl_engine_withdraw(rig->peer.home, &rig->state.tend_task);
		pl_engine_withdraw(rig->peer.home, &rig->queue.events_task);
		atomic_store(&rig->device.gone, false);
		verbs_rig_free(rig);
	}
}

/* -- attempts ------------------------------------------------------------------------------------- */

/* An acceptor loses no peer, however many attempts fail: its initiator decides. */
static void test_acceptor_waits(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(false, false, 1);

	(void)state;
	rig->card.no_pair = ENOMEM;
	for (uint16_t i = 1; i <= 20; i++) {
		verbs_rig_send(rig, PL_RAIL_CONNECT, 0, i);
		verbs_rig_expect(rig, PL_RAIL_DOWN, 0, i);
	}
	assert_int_equal(atomic_load(&rig->peer.state), PL_PEER_UP);
	rig->card.no_pair = 0;
	verbs_rig_bring_up(rig, 0, 21);
	verbs_rig_free(rig);
}

/* The last connection ended without an error of the device: the loss of the peer names none. */
static void test_loss_without_error(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);
	struct verbs_rail *rail = rail_of(rig);

	(void)state;
	verbs_rig_bring_up(rig, 0, 1);
	verbs_fail(rail, "test");
	verbs_rig_settle(rig);
	rig->endpoint->down_since -= rig->context.options.connect_timeout;
	verbs_rig_expire(rig, &rail->retry);
	verbs_rig_expire_attempt(rig, 0);
	assert_int_equal(atomic_load(&rig->peer.state), PL_PEER_LOST);
	assert_null(strstr(rig->peer.loss.message, "gave up"));
	verbs_rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late_proof),       cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_late_proof_again), cmocka_unit_test(test_awaited_receive),
		cmocka_unit_test(test_up_again),         cmocka_unit_test(test_last_receive),
		cmocka_unit_test(test_forgone_receive),  cmocka_unit_test(test_destroy_fails),
		cmocka_unit_test(test_acceptor_waits),   cmocka_unit_test(test_loss_without_error),
	};

	return cmocka_run_group_tests_name("verbs link", tests, NULL, NULL);
}
