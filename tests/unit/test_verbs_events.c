/* SPDX-License-Identifier: BSD-2-Clause */
/* Asynchronous events of a device, and what becomes of its rails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/fault_rig.h"

static void happen(struct fault_rig *rig, enum ibv_event_type event)
{
	int fd = eventfd(0, 0);

	assert_true(fd >= 0);
	rig->endpoint.flushing = true;
	rig->verbs.async_fd = fd;
	verbs_async_watch(&rig->state);
	assert_non_null(rig->device.async.engine);
	fault_card.event = event;
	fault_card.happened = true;
	assert_true(rig->device.async.ready(&rig->device.async, EPOLLIN));
	assert_false(rig->device.async.ready(&rig->device.async, EPOLLIN));
	/* As the engine would, if its lock were not held here. */
	pl_engine_withdraw(rig->peer.home, &rig->queue.events_task);
	rig->queue.events_task.run(&rig->queue.events_task);
	verbs_async_close(&rig->device);
	close(fd);
}

/* A port that is down is left to the other rail; the only one there is waits. */
static void test_port(void **state)
{
	struct fault_rig *rig = fault_rig_new();

	(void)state;
	happen(rig, IBV_EVENT_PORT_ERR);
	fault_rig_expect_links(rig, VERBS_DRAINING, VERBS_UP);
	fault_rig_free(rig);
	rig = fault_rig_new();
	rig->endpoint.rails[1].link = VERBS_DOWN;
	happen(rig, IBV_EVENT_PORT_ERR);
	fault_rig_expect_links(rig, VERBS_UP, VERBS_DOWN);
	fault_rig_free(rig);
}

static void test_pair(void **state)
{
	static const enum ibv_event_type events[] = { IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR,
						      IBV_EVENT_QP_ACCESS_ERR };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(events); i++) {
		struct fault_rig *rig = fault_rig_new();

		fault_card.state = IBV_QPS_ERR;
		happen(rig, events[i]);
		/* The other one has no event, so it is not looked at. */
		fault_rig_expect_links(rig, VERBS_DRAINING, VERBS_UP);
		assert_int_equal(fault_card.queried_pairs, 1);
		fault_rig_free(rig);
		/* The queue pair has been made again since. */
		rig = fault_rig_new();
		fault_card.state = IBV_QPS_RTS;
		happen(rig, events[i]);
		fault_rig_expect_links(rig, VERBS_UP, VERBS_UP);
		fault_rig_free(rig);
	}
}

/* A queue that overran, say: nothing will be heard of what is posted, so it is taken back without. */
static void test_queue(void **state)
{
	static const enum ibv_event_type events[] = { IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_ERR };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(events); i++) {
		struct fault_rig *rig = fault_rig_new();

		happen(rig, events[i]);
		fault_rig_expect_links(rig, VERBS_DRAINING, VERBS_DRAINING);
		assert_true(rig->queue.broken);
		assert_false(rig->queue.shut);
		assert_false(atomic_load(&rig->device.gone));
		assert_int_equal(fault_card.destroyed, 2);
		assert_int_equal(atomic_load(&rig->operation.status), 0);
		assert_ptr_equal(rig->endpoint.rails[0].held.next, &rig->work->link);
		fault_rig_free(rig);
	}
}

/* Other queues of the device are not concerned. */
static void test_other_queue(void **state)
{
	static const enum ibv_event_type events[] = { IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_ERR };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(events); i++) {
		struct fault_rig *rig = fault_rig_new();
		struct verbs_cq other = { 0 };

		verbs_cq_init(&other, &rig->state, &rig->device, rig->context.engines[0]);
		pl_list_append(&rig->state.queues, &other.link);
		rig->cq.cq_context = rig->srq.srq_context = &other;
		happen(rig, events[i]);
		pl_engine_withdraw(rig->peer.home, &other.events_task);
		fault_rig_expect_links(rig, VERBS_UP, VERBS_UP);
		assert_false(rig->queue.broken);
		assert_int_not_equal(atomic_load(&other.events), 0);
		pl_list_remove(&other.link);
		fault_rig_free(rig);
	}
}

static void test_device(void **state)
{
	struct fault_rig *rig = fault_rig_new();

	(void)state;
	happen(rig, IBV_EVENT_DEVICE_FATAL);
	fault_rig_expect_links(rig, VERBS_DRAINING, VERBS_DRAINING);
	assert_true(atomic_load(&rig->device.gone));
	assert_int_equal(fault_card.destroyed, 2);
	assert_ptr_equal(rig->endpoint.rails[0].held.next, &rig->work->link);
	fault_rig_free(rig);
}

/* Events that concern no rail. Some make the next look at the ports a fresh one. */
static void test_others(void **state)
{
	static const enum ibv_event_type events[] = {
		IBV_EVENT_PORT_ACTIVE, IBV_EVENT_LID_CHANGE, IBV_EVENT_GID_CHANGE, IBV_EVENT_CLIENT_REREGISTER,
		IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE,  IBV_EVENT_COMM_EST
	};

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(events); i++) {
		struct fault_rig *rig = fault_rig_new();

		happen(rig, events[i]);
		fault_rig_expect_links(rig, VERBS_UP, VERBS_UP);
		assert_int_equal(fault_card.failed, 0);
		assert_int_equal(atomic_load(&rig->state.stale), i < 5);
		fault_rig_free(rig);
	}
}

static int refuse_event(struct ibv_cq *cq, int solicited_only)
{
	(void)cq;
	(void)solicited_only;
	return ENODEV;
}

/* A queue whose device promises no event is given up, because nothing would poll it. */
static void test_no_notification(void **state)
{
	struct fault_rig *rig = fault_rig_new();

	(void)state;
	rig->endpoint.flushing = true;
	rig->verbs.ops.req_notify_cq = refuse_event;
	pl_list_init(&rig->queue.source.hot);
	verbs_cq_idle(&rig->queue.source);
	assert_false(rig->queue.armed);
	pl_engine_withdraw(rig->peer.home, &rig->queue.events_task);
	rig->queue.events_task.run(&rig->queue.events_task);
	assert_true(rig->queue.broken);
	fault_rig_expect_links(rig, VERBS_DRAINING, VERBS_DRAINING);
	fault_rig_free(rig);
}

/* A kernel without memory for one more watched descriptor, as one that cannot be watched: the next look adds it. */
static void test_watch_later(void **state)
{
	struct fault_rig *rig = fault_rig_new();

	(void)state;
	rig->verbs.async_fd = memfd_create("unwatched", 0);
	assert_true(rig->verbs.async_fd >= 0);
	verbs_async_watch(&rig->state);
	assert_null(rig->device.async.engine);
	close(rig->verbs.async_fd);
	happen(rig, IBV_EVENT_PORT_ERR);
	fault_rig_expect_links(rig, VERBS_DRAINING, VERBS_UP);
	fault_rig_free(rig);
}

/* A card's firmware may take long to answer: other rails, which need the state's lock, do not wait for it. */
static void test_port_query(void **state)
{
	struct fault_rig *rig = fault_rig_new();

	(void)state;
	fault_card.unheld = &rig->state.lock;
	assert_false(verbs_port_is_down(&rig->endpoint.rails[0]));
	assert_int_equal(fault_card.queried, 1);
	assert_int_equal(atomic_load(&rig->device.users), 0);
	atomic_store(&rig->device.gone, true);
	assert_false(verbs_port_is_down(&rig->endpoint.rails[0]));
	assert_int_equal(fault_card.queried, 1);
	atomic_store(&rig->device.gone, false);
	fault_rig_free(rig);
}

/* A failed rail is not drained before its work has come back. */
static void test_posted_work(void **state)
{
	struct fault_rig *rig = fault_rig_new();
	struct verbs_rail *rail = &rig->endpoint.rails[0];

	(void)state;
	rig->endpoint.flushing = true;
	verbs_fail(rail, "test");
	assert_false(pl_list_empty(&rail->posted));
	atomic_store(&rail->last_reached, true);
	rail->drained_task.run(&rail->drained_task);
	fault_rig_expect_links(rig, VERBS_DRAINING, VERBS_UP);
	assert_int_equal(fault_card.destroyed, 0);
	fault_rig_free(rig);
}

/* A rail's device is gone. Only a peer without another rail makes a helper look for it before the next pause ends. */
static void test_seek_without_rail(void **state)
{
	struct fault_rig *rig = fault_rig_new();
	struct verbs_rail *rails = rig->endpoint.rails;
	const char *call;

	(void)state;
	atomic_store(&rig->device.gone, true);
	rails[0].link = VERBS_DOWN;
	assert_int_equal(verbs_qp_make(&rails[0], &call), -ENODEV);
	assert_false(atomic_load(&rig->state.seek_task.queued));
	rails[1].link = VERBS_DOWN;
	assert_int_equal(verbs_qp_make(&rails[0], &call), -ENODEV);
	assert_true(atomic_load(&rig->state.seek_task.queued));
	pl_engine_withdraw(rig->peer.home, &rig->state.seek_task);
	atomic_store(&rig->device.gone, false);
	rails[0].link = rails[1].link = VERBS_UP;
	fault_rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_port),
		cmocka_unit_test(test_pair),
		cmocka_unit_test(test_queue),
		cmocka_unit_test(test_device),
		cmocka_unit_test(test_other_queue),
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_no_notification),
		cmocka_unit_test(test_watch_later),
		cmocka_unit_test(test_port_query),
		cmocka_unit_test(test_seek_without_rail),
		cmocka_unit_test(test_posted_work),
	};

	return cmocka_run_group_tests_name("verbs events", tests, NULL, NULL);
}
