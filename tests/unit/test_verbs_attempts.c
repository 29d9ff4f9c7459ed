/* SPDX-License-Identifier: BSD-2-Clause */
/* Attempts to connect a rail again: their times, ports that are down, and the loss of a peer that no rail reaches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/verbs_rig.h"

/* Timers expire up to 10 ms late, and an attempt has four. The test may set a timer shortly before its last call. */
#define LATE (50 * PL_NS_PER_MS)
#define SLOW (400 * PL_NS_PER_MS)
/* Attempts of a new peer. */
#define FIRST_ATTEMPTS 5

static struct verbs_rail *rail_of(struct verbs_rig *rig, unsigned index)
{
	return &rig->endpoint->rails[index];
}

static void expect_time(struct verbs_rig_time time, uint64_t expected)
{
	assert_true(time.least <= expected + LATE);
	assert_true(time.most + SLOW >= expected);
}

static void expect_pause(const struct verbs_rig *rig, const struct verbs_rail *rail, uint64_t pause)
{
	expect_time(verbs_rig_until(rig, &rail->retry), pause);
}

/* -- attempts without an answer ------------------------------------------------------------------- */

/* One attempt of a rail expires. Returns the time that it had. */
static struct verbs_rig_time let_attempt_expire(struct verbs_rig *rig, uint16_t generation)
{
	struct verbs_rig_time limit;

	verbs_rig_expect(rig, PL_RAIL_CONNECT, 0, generation);
	verbs_rig_expect_link(rig, 0, VERBS_ASKING, 1);
	limit = verbs_rig_expire_attempt(rig, 0);
	verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
	verbs_rig_expect(rig, PL_RAIL_DOWN, 0, generation);
	return limit;
}

/* A new peer that does not answer: each pause is longer. */
static void test_first_attempts(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);
	struct verbs_rail *rail = rail_of(rig, 0);

	(void)state;
	for (unsigned i = 0; i < FIRST_ATTEMPTS; i++) {
		assert_int_equal(rail->attempts, i);
		expect_time(let_attempt_expire(rig, (uint16_t)(1 + i)), 4 * PL_NS_PER_S);
		if (i + 1 == FIRST_ATTEMPTS)
			break;
		expect_pause(rig, rail, (2 * PL_NS_PER_MS) << i);
		verbs_rig_expire(rig, &rail->retry);
	}
	assert_int_equal(atomic_load(&rig->peer.state), PL_PEER_LOST);
	assert_int_equal(rig->peer.loss.code, -ETIMEDOUT);
	assert_string_equal(rig->peer.loss.id, "RDMA-CONNECT");
	assert_string_equal(rig->peer.loss.call, "connect");
	assert_non_null(strstr(rig->peer.loss.message, "do not reach each other"));
	verbs_rig_free(rig);
}

/* A new peer whose packets do not arrive: each proof has more time. */
static void test_first_proofs(void **state)
{
	static const unsigned limits[FIRST_ATTEMPTS] = { 1, 2, 4, 4, 4 };
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);

	(void)state;
	for (uint16_t i = 1; i <= FIRST_ATTEMPTS; i++) {
		verbs_rig_expect(rig, PL_RAIL_CONNECT, 0, i);
		verbs_rig_send(rig, PL_RAIL_ACCEPT, 0, i);
		verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
		expect_time(verbs_rig_expire_attempt(rig, 0), limits[i - 1] * PL_NS_PER_S);
		verbs_rig_expect(rig, PL_RAIL_DOWN, 0, i);
		if (i < FIRST_ATTEMPTS)
			verbs_rig_expire(rig, &rail_of(rig, 0)->retry);
	}
	assert_int_equal(atomic_load(&rig->peer.state), PL_PEER_LOST);
	verbs_rig_free(rig);
}

/* A peer that was up: the pauses grow up to half a second. */
static void test_later_attempts(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);
	struct verbs_rail *rail = rail_of(rig, 0);

	(void)state;
	verbs_rig_bring_up(rig, 0, 1);
	verbs_fail(rail, "test");
	verbs_rig_expect(rig, PL_RAIL_DOWN, 0, 1);
	verbs_rig_settle(rig);
	for (unsigned i = 0; i < 12; i++) {
		assert_int_equal(rail->attempts, i + 1);
		expect_pause(rig, rail, PL_MIN((2 * PL_NS_PER_MS) << i, 500 * PL_NS_PER_MS));
		verbs_rig_expire(rig, &rail->retry);
		expect_time(let_attempt_expire(rig, (uint16_t)(2 + i)), 2 * PL_NS_PER_S);
	}
	assert_int_equal(atomic_load(&rig->peer.state), PL_PEER_UP);
	/* No attempt counts once the rail is up. */
	verbs_rig_expire(rig, &rail->retry);
	verbs_rig_bring_up(rig, 0, 14);
	assert_int_equal(rail->attempts, 0);
	assert_int_equal(rig->endpoint->down_since, 0);
	verbs_rig_free(rig);
}

/* Another rail carries the work: the attempts become rare. */
static void test_spare_rail(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 2);
	struct verbs_rail *rail = rail_of(rig, 1);

	(void)state;
	verbs_rig_bring_up(rig, 0, 1);
	verbs_rig_expect(rig, PL_RAIL_CONNECT, 1, 1);
	rail->attempts = 20;
	verbs_rig_expire_attempt(rig, 1);
	expect_pause(rig, rail, 5 * PL_NS_PER_S);
	assert_true(verbs_rig_until(rig, &rail->retry).most > 4 * PL_NS_PER_S);
	assert_int_equal(rig->endpoint->down_since, 0);
	verbs_rig_free(rig);
}

static void test_generation_wraps(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);
	struct verbs_rail *rail = rail_of(rig, 0);

	(void)state;
	let_attempt_expire(rig, 1);
	rail->generation = UINT16_MAX;
	verbs_rig_expire(rig, &rail->retry);
	verbs_rig_bring_up(rig, 0, 0);
	verbs_rig_free(rig);
}

/* The control channel takes no message. */
static void test_channel_is_closed(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);
	struct verbs_rail *rail = rail_of(rig, 0);

	(void)state;
	let_attempt_expire(rig, 1);
	pl_channel_close(&rig->peer.channel);
	verbs_rig_expire(rig, &rail->retry);
	verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
	assert_int_equal(rail->attempts, 2);
	expect_pause(rig, rail, 4 * PL_NS_PER_MS);
	verbs_rig_free(rig);
}

/* Nothing is tried for a peer that leaves, or is lost. */
static void test_finished(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct verbs_rig *rig = verbs_rig_new(true, false, 1);
		struct verbs_rail *rail = rail_of(rig, 0);

		let_attempt_expire(rig, 1);
		rig->endpoint->closing = i == 0;
		rig->peer.leaving = i == 1;
		if (i == 2)
			atomic_store(&rig->peer.state, PL_PEER_LOST);
		verbs_rig_expire(rig, &rail->retry);
		verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
		assert_int_equal(rig->card.made, 1);
		assert_true(pl_list_empty(&rail->retry.link));
		verbs_rig_expect_silence(rig);
		verbs_rig_free(rig);
	}
}

/* -- peers that no rail reaches ------------------------------------------------------------------- */

/* Lets all attempts of a new peer fail at once. */
static void fail_first_attempts(struct verbs_rig *rig)
{
	for (unsigned i = 0; i < FIRST_ATTEMPTS; i++) {
		assert_int_equal(atomic_load(&rig->peer.state), PL_PEER_UP);
		verbs_rig_expire(rig, &rail_of(rig, 0)->retry);
		verbs_rig_settle(rig);
	}
	assert_int_equal(atomic_load(&rig->peer.state), PL_PEER_LOST);
	assert_string_equal(rig->peer.loss.id, "RDMA-CONNECT");
	verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
}

/* Ends the attempt that the rig began, so that it does not count. */
static struct verbs_rig *new_rig_without_attempts(void)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);

	let_attempt_expire(rig, 1);
	rail_of(rig, 0)->attempts = 0;
	return rig;
}

/* The loss names the last failure. */
static void test_reasons(void **state)
{
	struct verbs_rig *rig = new_rig_without_attempts();

	(void)state;
	rig->card.no_pair = ENOMEM;
	fail_first_attempts(rig);
	assert_int_equal(rig->peer.loss.code, -ENOMEM);
	assert_string_equal(rig->peer.loss.call, "ibv_create_qp");
	assert_non_null(strstr(rig->peer.loss.message, "ENOMEM"));
	assert_non_null(strstr(rig->peer.loss.hint, "ulimit -l"));
	verbs_rig_free(rig);
	rig = new_rig_without_attempts();
	rig->card.no_init = EPERM;
	fail_first_attempts(rig);
	assert_int_equal(rig->peer.loss.code, -EPERM);
	assert_non_null(strstr(rig->peer.loss.hint, "ibv_devinfo"));
	verbs_rig_free(rig);
	rig = new_rig_without_attempts();
	rig->card.port_state = IBV_PORT_DOWN;
	fail_first_attempts(rig);
	assert_int_equal(rig->peer.loss.code, -ENETDOWN);
	assert_string_equal(rig->peer.loss.message, "port 1 of card0 is down");
	/* No message was sent, and no queue pair made. */
	assert_int_equal(rig->card.made, 1);
	verbs_rig_expect_silence(rig);
	verbs_rig_free(rig);
}

/* Resolution of the other end's address, and the empty message. */
static void test_reasons_after_answer(void **state)
{
	(void)state;
	for (unsigned n = 0; n < 2; n++) {
		struct verbs_rig *rig = verbs_rig_new(true, false, 1);

		rig->card.no_receive = n ? 0 : ETIMEDOUT;
		for (unsigned i = 1; i <= FIRST_ATTEMPTS; i++) {
			verbs_rig_expect(rig, PL_RAIL_CONNECT, 0, (uint16_t)i);
			verbs_rig_send(rig, PL_RAIL_ACCEPT, 0, (uint16_t)i);
			if (n)
				verbs_rig_complete(rig, 0, IBV_WC_RETRY_EXC_ERR);
			verbs_rig_poll(rig);
			verbs_rig_expect(rig, PL_RAIL_DOWN, 0, (uint16_t)i);
			if (i < FIRST_ATTEMPTS)
				verbs_rig_expire(rig, &rail_of(rig, 0)->retry);
		}
		assert_int_equal(atomic_load(&rig->peer.state), PL_PEER_LOST);
		assert_string_equal(rig->peer.loss.id, "RDMA-CONNECT");
		assert_non_null(strstr(rig->peer.loss.message, n ? "do not reach each other" : "card0:1 finds no way"));
		assert_non_null(strstr(rig->peer.loss.hint, "ib_write_bw"));
		verbs_rig_free(rig);
	}
}

/* A peer that was up has connect_timeout. Its loss names the error that broke the last connection. */
static void test_deadline(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);
	struct verbs_rail *rail = rail_of(rig, 0);

	(void)state;
	verbs_rig_bring_up(rig, 0, 1);
	rail->broke.status = IBV_WC_RETRY_EXC_ERR;
	rail->broke.vendor_error = 0x81;
	rail->broke.port = 1;
	verbs_fail(rail, "test");
	verbs_rig_settle(rig);
	verbs_rig_expect(rig, PL_RAIL_DOWN, 0, 1);
	verbs_rig_expire(rig, &rail->retry);
	let_attempt_expire(rig, 2);
	assert_int_equal(atomic_load(&rig->peer.state), PL_PEER_UP);
	assert_true(rig->endpoint->down_since);
	rig->endpoint->down_since -= rig->context.options.connect_timeout;
	verbs_rig_expire(rig, &rail->retry);
	let_attempt_expire(rig, 3);
	assert_int_equal(atomic_load(&rig->peer.state), PL_PEER_LOST);
	assert_non_null(strstr(rig->peer.loss.message, "transport retry counter exceeded (vendor error 0x81)"));
	assert_true(pl_list_empty(&rail->retry.link));
	verbs_rig_free(rig);
}

/* The other end is up, as its first message tells, but the proof fails: connect_timeout counts from then on. */
static void test_deadline_before_proof(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);

	(void)state;
	verbs_rig_bring_to(rig, VERBS_PROVING);
	assert_true(pl_verbs_fabric.up(&rig->endpoint->base));
	verbs_rig_complete(rig, 0, IBV_WC_RETRY_EXC_ERR);
	verbs_rig_poll(rig);
	verbs_rig_expect(rig, PL_RAIL_DOWN, 0, 1);
	assert_int_equal(atomic_load(&rig->peer.state), PL_PEER_UP);
	rig->endpoint->down_since -= rig->context.options.connect_timeout;
	verbs_rig_expire(rig, &rail_of(rig, 0)->retry);
	let_attempt_expire(rig, 2);
	assert_int_equal(atomic_load(&rig->peer.state), PL_PEER_LOST);
	verbs_rig_free(rig);
}

/* One rail without hope does not lose the peer. */
static void test_other_rail_hopes(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 2);

	(void)state;
	rail_of(rig, 0)->attempts = FIRST_ATTEMPTS;
	verbs_rig_expire_attempt(rig, 0);
	assert_int_equal(atomic_load(&rig->peer.state), PL_PEER_UP);
	assert_false(pl_list_empty(&rail_of(rig, 0)->retry.link));
	rail_of(rig, 1)->attempts = FIRST_ATTEMPTS;
	verbs_rig_expire_attempt(rig, 1);
	assert_int_equal(atomic_load(&rig->peer.state), PL_PEER_LOST);
	verbs_rig_free(rig);
}

/* -- ports that are down -------------------------------------------------------------------------- */

/* Nothing is sent over a network that may be the control channel's; the port is looked at every 50 ms. */
static void test_port_is_down(void **state)
{
	static const enum ibv_port_state states[] = { IBV_PORT_DOWN, IBV_PORT_INIT };

	(void)state;
	for (size_t n = 0; n < PL_ARRAY_SIZE(states); n++) {
		struct verbs_rig *rig = verbs_rig_new(true, false, 1);
		struct verbs_rail *rail = rail_of(rig, 0);

		verbs_rig_bring_up(rig, 0, 1);
		rig->card.port_state = states[n];
		verbs_fail(rail, "test");
		verbs_rig_settle(rig);
		verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
		for (unsigned i = 0; i < 20; i++) {
			verbs_rig_expire(rig, &rail->retry);
			expect_pause(rig, rail, 50 * PL_NS_PER_MS);
			verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
		}
		/* These are no attempts. */
		assert_true(rail->attempts <= 1);
		assert_int_equal(rig->card.made, 1);
		verbs_rig_expect_silence(rig);
		rig->card.port_state = IBV_PORT_ACTIVE;
		verbs_rig_expire(rig, &rail->retry);
		verbs_rig_bring_up(rig, 0, rail->generation);
		verbs_rig_free(rig);
	}
}

/* -- queue pairs that a thread uses --------------------------------------------------------------- */

/* An attempt ends while the device resolves the address: the queue pair stays until the thread is done. */
static void test_busy(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct verbs_rig *rig = verbs_rig_new(true, true, 1);
		struct verbs_rail *rail = rail_of(rig, 0);

		verbs_rig_bring_to(rig, VERBS_READYING);
		if (i == 0)
			verbs_rig_expire_attempt(rig, 0);
		else if (i == 1)
			verbs_rig_send(rig, PL_RAIL_DOWN, 0, 1);
		else if (i == 2)
			verbs_fail(rail, "test");
		else
			rig->card.no_receive = ETIMEDOUT;
		verbs_rig_settle(rig);
		verbs_rig_expect_link(rig, 0, VERBS_READYING, 1);
		verbs_rig_release(rig);
		verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
		assert_int_equal(rig->card.posted, 0);
		assert_int_equal(rail->attempts, 1);
		verbs_rig_expect(rig, PL_RAIL_DOWN, 0, 1);
		rig->card.no_receive = 0;
		verbs_rig_expire(rig, &rail->retry);
		verbs_rig_bring_up(rig, 0, 2);
		verbs_rig_free(rig);
	}
}

/* The device is removed meanwhile. */
static void test_busy_and_removed(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, true, 1);

	(void)state;
	verbs_rig_bring_to(rig, VERBS_READYING);
	atomic_store(&rig->device.gone, true);
	verbs_take_events(&rig->queue.events_task);
	verbs_rig_expect_link(rig, 0, VERBS_READYING, 1);
	/* The device's objects stay as long as the queue has a rail; this test keeps the queue. */
	rig->queue.shut = true;
	verbs_rig_release(rig);
	verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
	/* Without a device of that name no queue pair is made. */
	verbs_rig_expire(rig, &rail_of(rig, 0)->retry);
	verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
	assert_int_equal(rig->card.made, 1);
	verbs_rig_free(rig);
}

static void *release_later(void *argument)
{
	struct verbs_rig *rig = argument;

	usleep(100000);
	atomic_store(&rig->card.holds, false);
	return NULL;
}

static unsigned tasks_run;

static void count_task(struct pl_task *task)
{
	(void)task;
	tasks_run++;
}

/* The end waits for the thread: with the engine's lock, without it, and for jobs that have not begun. */
static void test_close_waits(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, true, 1);
	struct pl_task task;
	pthread_t thread;

	(void)state;
	verbs_rig_bring_to(rig, VERBS_READYING);
	tasks_run = 0;
	pl_task_init(&task, count_task);
	pl_verbs_fabric.abandon(&rig->endpoint->base, &task);
	verbs_rig_settle(rig);
	assert_int_equal(tasks_run, 0);
	verbs_rig_release(rig);
	verbs_rig_settle(rig);
	assert_int_equal(tasks_run, 1);
	verbs_rig_free(rig);

	rig = verbs_rig_new(true, true, 1);
	verbs_rig_bring_to(rig, VERBS_READYING);
	assert_int_equal(pthread_create(&thread, NULL, release_later, rig), 0);
	pl_engine_unlock(rig->peer.home);
	pl_verbs_fabric.close(&rig->endpoint->base);
	assert_false(atomic_load(&rig->card.misused));
	assert_int_equal(rig->card.made, rig->card.destroyed);
	pl_engine_lock(rig->peer.home);
	pthread_join(thread, NULL);
	rig->endpoint = NULL;
	verbs_rig_free(rig);
}

/* More jobs than threads: those that wait are taken back, and their queue pairs go at once. */
static void test_waiting_jobs(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, true, 1);
	struct verbs_helpers *connectors = &rig->state.connectors;
	struct verbs_ready_job jobs[VERBS_HELPERS + 2];
	struct ibv_qp *pair = &rig->card.pairs[VERBS_RIG_PAIRS - 1];

	(void)state;
	rig->card.present[VERBS_RIG_PAIRS - 1] = true;
	atomic_store(&rig->card.holds, true);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(jobs); i++) {
		jobs[i] = (struct verbs_ready_job){ .qp = pair, .receive.qp_state = IBV_QPS_RTR, .send.qp_state = IBV_QPS_RTS,
						    .engine = rig->peer.home };
		pl_list_init(&jobs[i].base.link);
		pl_task_init(&jobs[i].done, count_task);
		verbs_connector_start(&rig->state, &jobs[i]);
		while (atomic_load(&rig->card.held) < PL_MIN(i + 1, (unsigned)VERBS_HELPERS))
			usleep(200);
	}
	assert_int_equal(connectors->count, VERBS_HELPERS);
	assert_int_equal(connectors->pending, 2);
	assert_false(verbs_helpers_withdraw(connectors, &jobs[0].base));
	assert_true(verbs_helpers_withdraw(connectors, &jobs[VERBS_HELPERS].base));
	assert_true(verbs_helpers_withdraw(connectors, &jobs[VERBS_HELPERS + 1].base));
	assert_false(verbs_helpers_withdraw(connectors, &jobs[VERBS_HELPERS + 1].base));
	assert_int_equal(connectors->pending, 0);
	verbs_helpers_wait(connectors);
	/* The rail's own job waits for a thread, and is taken back by the end. */
	verbs_rig_send(rig, PL_RAIL_ACCEPT, 0, 1);
	verbs_rig_expect(rig, PL_RAIL_CONNECT, 0, 1);
	assert_int_equal(connectors->pending, 1);
	pl_engine_unlock(rig->peer.home);
	pl_verbs_fabric.close(&rig->endpoint->base);
	pl_engine_lock(rig->peer.home);
	rig->endpoint = NULL;
	assert_int_equal(rig->card.destroyed, 1);
	atomic_store(&rig->card.holds, false);
	for (tasks_run = 0; tasks_run < VERBS_HELPERS;) {
		usleep(200);
		verbs_rig_settle(rig);
	}
	verbs_rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_attempts),
		cmocka_unit_test(test_first_proofs),
		cmocka_unit_test(test_later_attempts),
		cmocka_unit_test(test_spare_rail),
		cmocka_unit_test(test_generation_wraps),
		cmocka_unit_test(test_channel_is_closed),
		cmocka_unit_test(test_finished),
		cmocka_unit_test(test_reasons),
		cmocka_unit_test(test_reasons_after_answer),
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_deadline_before_proof),
		cmocka_unit_test(test_other_rail_hopes),
		cmocka_unit_test(test_port_is_down),
		cmocka_unit_test(test_busy),
		cmocka_unit_test(test_busy_and_removed),
		cmocka_unit_test(test_close_waits),
		cmocka_unit_test(test_waiting_jobs),
	};

	return cmocka_run_group_tests_name("verbs attempts", tests, NULL, NULL);
}
