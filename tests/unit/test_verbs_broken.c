/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues and queue pairs that break at any time of a rail, not only while it is up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/verbs_rig.h"

/* Keeps the queue of the rig, which the device cannot destroy. */
static void break_queue(struct verbs_rig *rig)
{
	rig->queue.rail_count++;
	verbs_cq_break(&rig->queue, "a test");
	verbs_rig_settle(rig);
}

static void close_broken(struct verbs_rig *rig)
{
	assert_true(rig->queue.broken);
	rig->queue.rail_count--;
	assert_int_equal(rig->queue.rail_count, 0);
	verbs_rig_free(rig);
}

/* Breaks the queue of a rail in this state, which leaves it at once: nothing else would look at the rail. */
static void leave_in(bool initiator, enum verbs_link link)
{
	struct verbs_rig *rig = verbs_rig_new(initiator, true, 1);
	const struct verbs_rail *rail = &rig->endpoint->rails[0];

	verbs_rig_bring_to(rig, link);
	break_queue(rig);
	if (link == VERBS_READYING) {
		verbs_rig_expect_link(rig, 0, VERBS_READYING, 1);
		verbs_rig_release(rig);
	}
	verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
	assert_null(rail->queue);
	assert_false(rail->unreached);
	if (link != VERBS_DRAINING)
		verbs_rig_expect(rig, PL_RAIL_DOWN, 0, 1);
	close_broken(rig);
}

static void test_initiator(void **state)
{
	(void)state;
	for (enum verbs_link link = VERBS_ASKING; link <= VERBS_DRAINING; link++)
		leave_in(true, link);
}

static void test_acceptor(void **state)
{
	(void)state;
	for (enum verbs_link link = VERBS_READYING; link <= VERBS_DRAINING; link++)
		leave_in(false, link);
}

/* The rail was up before, so the attempt is drained first. */
static void test_proving_again(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(false, true, 1);

	(void)state;
	verbs_rig_bring_up(rig, 0, 1);
	verbs_fail(&rig->endpoint->rails[0], "test");
	verbs_rig_expect(rig, PL_RAIL_DOWN, 0, 1);
	verbs_rig_settle(rig);
	verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 2);
	verbs_rig_release(rig);
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
	verbs_rig_expect(rig, PL_RAIL_ACCEPT, 0, 2);
	break_queue(rig);
	verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
	verbs_rig_expect(rig, PL_RAIL_DOWN, 0, 2);
	close_broken(rig);
}

/* A failed queue pair that keeps its receives, and tells nothing: without completions there is nothing to wait for. */
static void test_draining(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(false, true, 1);
	struct verbs_rail *rail = &rig->endpoint->rails[0];

	(void)state;
	verbs_rig_bring_to(rig, VERBS_DRAINING);
	atomic_store(&rail->last_reached, false);
	verbs_rig_settle(rig);
	verbs_rig_expect_link(rig, 0, VERBS_DRAINING, 1);
	break_queue(rig);
	verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
	close_broken(rig);
}

static int polls_failed;

static int fail_poll(struct ibv_cq *cq, int count, struct ibv_wc *completions)
{
	(void)cq;
	(void)count;
	(void)completions;
	polls_failed++;
	return -1;
}

/* A queue that cannot be polled is told again, so that no rail stays there. */
static void test_told_again(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(false, true, 1);

	(void)state;
	verbs_rig_bring_to(rig, VERBS_UP);
	rig->queue.broken = true;
	rig->queue.rail_count++;
	rig->verbs.ops.poll_cq = fail_poll;
	polls_failed = 0;
	assert_int_equal(verbs_cq_poll(&rig->queue), 0);
	verbs_rig_settle(rig);
	assert_true(polls_failed >= 4);
	verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
	close_broken(rig);
}

/* -- queue pairs ---------------------------------------------------------------------------------- */

static struct ibv_qp *failed_pair;

static int get_event(struct ibv_context *context, struct ibv_async_event *event)
{
	(void)context;
	*event = (struct ibv_async_event){ .event_type = IBV_EVENT_QP_FATAL, .element.qp = failed_pair };
	return 0;
}

static void ack_event(struct ibv_async_event *event)
{
	(void)event;
}

static enum ibv_qp_state pair_state;

static int query_pair(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask, struct ibv_qp_init_attr *init)
{
	(void)mask;
	(void)init;
	assert_ptr_equal(pair, failed_pair);
	attributes->qp_state = pair_state;
	return 0;
}

/* The device reports an error of the queue pair, before its proof is polled. */
static void let_pair_fail(struct verbs_rig *rig)
{
	failed_pair = rig->endpoint->rails[0].qp;
	failed_pair->qp_context = &rig->endpoint->rails[0];
	rig->cq.cq_context = &rig->queue;
	failed_pair->send_cq = &rig->cq;
	rig->library.ibv_get_async_event = get_event;
	rig->library.ibv_ack_async_event = ack_event;
	rig->library.ibv_query_qp = query_pair;
	assert_true(verbs_async_take(&rig->device));
	verbs_rig_settle(rig);
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
}

/* A rail that comes up asks for the state of its queue pair then, and only fails if that has failed. */
static void test_pair(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		const bool initiator = i % 2, fails = i / 2;
		struct verbs_rig *rig = verbs_rig_new(initiator, true, 1);

		pair_state = fails ? IBV_QPS_ERR : IBV_QPS_RTS;
		verbs_rig_bring_to(rig, VERBS_PROVING);
		let_pair_fail(rig);
		if (initiator)
			verbs_rig_complete(rig, 0, IBV_WC_SUCCESS);
		else
			verbs_rig_arrive(rig, 0);
		verbs_rig_poll(rig);
		assert_false(atomic_load(&rig->endpoint->rails[0].pair_event));
		verbs_rig_expect_link(rig, 0, fails ? VERBS_DOWN : VERBS_UP, !fails);
		assert_true(rig->endpoint->opened);
		verbs_rig_free(rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_initiator),     cmocka_unit_test(test_acceptor),
		cmocka_unit_test(test_proving_again), cmocka_unit_test(test_draining),
		cmocka_unit_test(test_told_again),    cmocka_unit_test(test_pair),
	};

	return cmocka_run_group_tests_name("verbs broken", tests, NULL, NULL);
}
