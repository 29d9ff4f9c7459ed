/* SPDX-License-Identifier: BSD-2-Clause */
/* The initiator's part of the handshake of a rail, with the device's calls replaced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/verbs_rig.h"

static struct verbs_rail *rail_of(struct verbs_rig *rig, unsigned index)
{
	return &rig->endpoint->rails[index];
}

static void expect_protocol_error(struct verbs_rig *rig, const struct pl_rail_message *message)
{
	assert_int_equal(verbs_rig_deliver(rig, message), -EPROTO);
	verbs_rig_expect_silence(rig);
}

/* -- the way up ----------------------------------------------------------------------------------- */

static void test_connection(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 2);
	struct pl_rail_message request = verbs_rig_expect(rig, PL_RAIL_CONNECT, 0, 1), answer;
	struct verbs_rail *rail = rail_of(rig, 0);

	(void)state;
	assert_int_equal(request.count, 2);
	assert_int_equal(request.ports[0], 0);
	assert_int_equal(request.ports[1], 0x11);
	assert_int_equal(request.qp_number, rail->qp->qp_num);
	assert_int_equal(request.lid, 21);
	assert_int_equal(request.traffic_class, 96);
	assert_memory_equal(request.gid, rig->ports[0].gids[0].gid.raw, sizeof(request.gid));
	verbs_rig_expect(rig, PL_RAIL_CONNECT, 1, 1);
	verbs_rig_expect_link(rig, 0, VERBS_ASKING, 2);
	assert_int_equal(rig->card.states[0], IBV_QPS_INIT);
	answer = verbs_rig_message(PL_RAIL_ACCEPT, 0, 1);
	answer.renewals = 9;
	assert_int_equal(verbs_rig_deliver(rig, &answer), 0);
	/* InfiniBand has no neighbours. */
	assert_false(rail->ready.asks);
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 2);
	assert_int_equal(rig->card.receive.dest_qp_num, 0x4321);
	assert_int_equal(rig->card.receive.rq_psn, 0x654321);
	assert_int_equal(rig->card.send.sq_psn, request.psn);
	/* The empty message takes a place in the queue until it is done. */
	assert_int_equal(rig->card.posted, 1);
	assert_int_equal(rig->card.request.opcode, IBV_WR_SEND);
	assert_int_equal(rig->card.request.num_sge, 0);
	assert_true(rig->card.request.send_flags & IBV_SEND_SIGNALED);
	assert_int_equal(rig->queue.posted, 1);
	verbs_rig_complete(rig, 0, IBV_WC_SUCCESS);
	verbs_rig_poll(rig);
	verbs_rig_expect_link(rig, 0, VERBS_UP, 2);
	assert_true(rig->endpoint->opened);
	assert_int_equal(rig->queue.posted, 0);
	assert_int_equal(rail->far_renewals, 9);
	assert_true(pl_list_empty(&rail->retry.link));
	verbs_rig_expect_link(rig, 1, VERBS_ASKING, 2);
	verbs_rig_expect_silence(rig);
	verbs_rig_free(rig);
}

/* A thread moves the queue pair of a RoCE device. */
static void test_ethernet(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, true, 1);

	(void)state;
	verbs_rig_bring_to(rig, VERBS_READYING);
	assert_int_equal(rig->card.posted, 0);
	verbs_rig_release(rig);
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
	assert_int_equal(rig->card.receive.ah_attr.is_global, 1);
	assert_int_equal(rig->card.receive.ah_attr.grh.sgid_index, 3);
	verbs_rig_complete(rig, 0, IBV_WC_SUCCESS);
	verbs_rig_poll(rig);
	verbs_rig_expect_link(rig, 0, VERBS_UP, 1);
	verbs_rig_free(rig);
}

/* The address moves within the table: a connection looks again, at most once a second. */
static void test_moved_address(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, true, 1);
	struct verbs_rail *rail = rail_of(rig, 0);

	(void)state;
	verbs_rig_bring_up(rig, 0, 1);
	assert_int_equal(rig->card.receive.ah_attr.grh.sgid_index, 3);
	assert_int_equal(rig->card.looks, 1);
	rig->device.attributes.phys_port_cnt = 1;
	rig->card.table[0] = (struct ibv_gid_entry){ .gid = rail->gid, .gid_index = 7, .port_num = 1 };
	rig->card.table_count = 1;
	for (uint16_t i = 2; i <= 3; i++) {
		rig->state.looked -= i == 2 ? 0 : PL_NS_PER_S;
		verbs_fail(rail, "test");
		verbs_rig_settle(rig);
		verbs_rig_expect(rig, PL_RAIL_DOWN, 0, (uint16_t)(i - 1));
		verbs_rig_expire(rig, &rail->retry);
		verbs_rig_bring_up(rig, 0, i);
		assert_int_equal(rig->card.receive.ah_attr.grh.sgid_index, i == 2 ? 3 : 7);
	}
	assert_int_equal(rig->card.looks, 2);
	verbs_rig_free(rig);
}

/* The address is removed, and returns: meanwhile another address of the port serves. */
static void test_returning_address(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, true, 1);
	struct ibv_gid_entry *table = rig->card.table;
	struct verbs_rail *rail = rail_of(rig, 0);
	struct pl_rail_message request;

	(void)state;
	verbs_rig_bring_up(rig, 0, 1);
	rig->device.attributes.phys_port_cnt = 1;
	table[0] = table[1] = (struct ibv_gid_entry){ .gid = rail->gid, .gid_index = 7, .port_num = 1 };
	table[0].gid.raw[15] ^= 1;
	table[0].gid_index = 5;
	for (uint16_t i = 2; i <= 3; i++) {
		rig->card.table_count = i - 1u;
		atomic_store(&rig->state.stale, true);
		verbs_fail(rail, "test");
		verbs_rig_settle(rig);
		verbs_rig_expect(rig, PL_RAIL_DOWN, 0, (uint16_t)(i - 1));
		verbs_rig_expire(rig, &rail->retry);
		request = verbs_rig_expect(rig, PL_RAIL_CONNECT, 0, i);
		assert_memory_equal(request.gid, table[i - 2].gid.raw, sizeof(request.gid));
		assert_int_equal(rail->own.gid_index, table[i - 2].gid_index);
		verbs_rig_send(rig, PL_RAIL_ACCEPT, 0, i);
		verbs_rig_release(rig);
		verbs_rig_complete(rig, 0, IBV_WC_SUCCESS);
		verbs_rig_poll(rig);
		verbs_rig_expect_link(rig, 0, VERBS_UP, 1);
	}
	verbs_rig_free(rig);
}

/* A thread asks for a neighbour whose address is not the control connection's. */
static void test_neighbour(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct verbs_rig *rig = verbs_rig_new(true, true, 1);
		struct sockaddr_in *address = (struct sockaddr_in *)&rig->peer.address;
		struct pl_rail_message answer;

		verbs_rig_expect(rig, PL_RAIL_CONNECT, 0, 1);
		address->sin_family = AF_INET;
		address->sin_addr.s_addr = htonl(INADDR_LOOPBACK + i);
		answer = verbs_rig_message(PL_RAIL_ACCEPT, 0, 1);
		memcpy(answer.gid, (const uint8_t[16]){ [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 }, sizeof(answer.gid));
		assert_int_equal(verbs_rig_deliver(rig, &answer), 0);
		assert_int_equal(rail_of(rig, 0)->ready.asks, i);
		assert_memory_equal(&rail_of(rig, 0)->ready.from, &rail_of(rig, 0)->gid, sizeof(union ibv_gid));
		verbs_rig_release(rig);
		verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
		verbs_rig_free(rig);
	}
}

/* -- messages that change nothing, or break the protocol ------------------------------------------ */

static void test_answers(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);
	const struct verbs_rail *rail = rail_of(rig, 0);

	(void)state;
	verbs_rig_send(rig, PL_RAIL_ACCEPT, 0, 2);
	verbs_rig_send(rig, PL_RAIL_ACCEPT, 0, 0);
	verbs_rig_expect_link(rig, 0, VERBS_ASKING, 1);
	assert_int_equal(rig->card.moves, 1);
	verbs_rig_bring_up(rig, 0, 1);
	/* Doubled. */
	verbs_rig_send(rig, PL_RAIL_ACCEPT, 0, 1);
	verbs_rig_expect_link(rig, 0, VERBS_UP, 1);
	assert_int_equal(rig->card.moves, 3);
	assert_int_equal(rig->card.posted, 1);
	/* For an attempt that ended. */
	verbs_fail(rail_of(rig, 0), "test");
	verbs_rig_settle(rig);
	verbs_rig_expect(rig, PL_RAIL_DOWN, 0, 1);
	verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
	verbs_rig_send(rig, PL_RAIL_ACCEPT, 0, 1);
	verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
	verbs_rig_expire(rig, &rail_of(rig, 0)->retry);
	verbs_rig_send(rig, PL_RAIL_ACCEPT, 0, 1);
	verbs_rig_expect_link(rig, 0, VERBS_ASKING, 1);
	assert_int_equal(rail->generation, 2);
	verbs_rig_bring_up(rig, 0, 2);
	verbs_rig_free(rig);
}

/* The first answer counts while the device resolves the address, and while the message is under way. */
static void test_doubled_answers(void **state)
{
	static const enum verbs_link links[] = { VERBS_READYING, VERBS_PROVING };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(links); i++) {
		struct verbs_rig *rig = verbs_rig_new(true, true, 1);

		verbs_rig_bring_to(rig, links[i]);
		verbs_rig_send(rig, PL_RAIL_ACCEPT, 0, 1);
		assert_int_equal(rail_of(rig, 0)->link, links[i]);
		verbs_rig_release(rig);
		assert_int_equal(rig->card.moves, 3);
		assert_int_equal(rig->card.posted, 1);
		verbs_rig_free(rig);
	}
}

static void test_wrong_messages(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 2);
	struct pl_rail_message message;

	(void)state;
	verbs_rig_expect(rig, PL_RAIL_CONNECT, 0, 1);
	verbs_rig_expect(rig, PL_RAIL_CONNECT, 1, 1);
	/* Also one that describes the rails as an acceptor has them. */
	rig->endpoint->port_count = 2;
	rig->endpoint->ports[0] = &rig->ports[0];
	rig->endpoint->ports[1] = &rig->ports[1];
	message = verbs_rig_message(PL_RAIL_CONNECT, 0, 2);
	expect_protocol_error(rig, &message);
	message = verbs_rig_message(PL_RAIL_ACCEPT, 2, 1);
	expect_protocol_error(rig, &message);
	message = verbs_rig_message(PL_RAIL_DOWN, PL_RAILS_MAX - 1, 1);
	expect_protocol_error(rig, &message);
	verbs_rig_expect_link(rig, 0, VERBS_ASKING, 2);
	/* Nobody hears an endpoint that closes. */
	rig->endpoint->closing = true;
	assert_int_equal(verbs_rig_deliver(rig, &message), 0);
	verbs_rig_free(rig);
}

/* -- the end of a connection ---------------------------------------------------------------------- */

static void test_down(void **state)
{
	static const enum verbs_link links[] = { VERBS_ASKING, VERBS_READYING, VERBS_PROVING, VERBS_UP, VERBS_DRAINING };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(links); i++) {
		struct verbs_rig *rig = verbs_rig_new(true, true, 1);
		struct verbs_rail *rail = rail_of(rig, 0);

		verbs_rig_bring_to(rig, links[i]);
		verbs_rig_send(rig, PL_RAIL_DOWN, 0, 2);
		verbs_rig_send(rig, PL_RAIL_DOWN, 0, 0);
		verbs_rig_expect_link(rig, 0, links[i], 1);
		verbs_rig_send(rig, PL_RAIL_DOWN, 0, 1);
		verbs_rig_release(rig);
		verbs_rig_settle(rig);
		verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
		if (links[i] != VERBS_DRAINING)
			verbs_rig_expect(rig, PL_RAIL_DOWN, 0, 1);
		verbs_rig_send(rig, PL_RAIL_DOWN, 0, 1);
		verbs_rig_expect_silence(rig);
		assert_int_equal(rail->attempts, 1);
		assert_true(verbs_rig_until(rig, &rail->retry).least < 30 * PL_NS_PER_MS);
		verbs_rig_expire(rig, &rail->retry);
		verbs_rig_bring_up(rig, 0, 2);
		assert_int_equal(rail->attempts, 0);
		verbs_rig_free(rig);
	}
}

/* -- the proof ------------------------------------------------------------------------------------ */

static void expect_failed_attempt(struct verbs_rig *rig)
{
	verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
	verbs_rig_expect(rig, PL_RAIL_DOWN, 0, 1);
	assert_int_equal(rig->queue.posted, 0);
	assert_int_equal(rail_of(rig, 0)->attempts, 1);
	verbs_rig_expire(rig, &rail_of(rig, 0)->retry);
	verbs_rig_bring_up(rig, 0, 2);
	verbs_rig_free(rig);
}

/* The path loses packets: the device gives up. A flush is no proof either. */
static void test_proof_fails(void **state)
{
	static const enum ibv_wc_status statuses[] = { IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR,
						       IBV_WC_WR_FLUSH_ERR };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(statuses); i++) {
		struct verbs_rig *rig = verbs_rig_new(true, false, 1);

		verbs_rig_bring_to(rig, VERBS_PROVING);
		verbs_rig_complete(rig, 0, statuses[i]);
		verbs_rig_poll(rig);
		expect_failed_attempt(rig);
	}
}

static void test_proof_is_refused(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct verbs_rig *rig = verbs_rig_new(true, false, 1);

		verbs_rig_expect(rig, PL_RAIL_CONNECT, 0, 1);
		if (i)
			rig->card.no_post = ENOMEM;
		else
			rig->queue.posted = VERBS_RIG_ROOM;
		verbs_rig_send(rig, PL_RAIL_ACCEPT, 0, 1);
		assert_int_equal(rig->card.posted, 0);
		rig->card.no_post = 0;
		if (!i)
			rig->queue.posted = 0;
		expect_failed_attempt(rig);
	}
}

/* A device repeats a completion: the queue's room is counted once, and a connection stays as it is. */
static void test_proof_comes_twice(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct verbs_rig *rig = verbs_rig_new(true, false, 1);

		verbs_rig_bring_to(rig, VERBS_PROVING);
		verbs_rig_complete(rig, 0, IBV_WC_SUCCESS);
		verbs_rig_complete(rig, 0, i ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
		verbs_rig_poll(rig);
		verbs_rig_expect_link(rig, 0, VERBS_UP, 1);
		assert_int_equal(rig->queue.posted, 0);
		verbs_rig_expect_silence(rig);
		verbs_rig_free(rig);
	}
}

/* A completion of an earlier queue pair, or without a proof under way, proves nothing. */
static void test_stray_proofs(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);
	struct ibv_wc *completion = &rig->card.completions[0];

	(void)state;
	verbs_rig_expect(rig, PL_RAIL_CONNECT, 0, 1);
	verbs_rig_complete(rig, 0, IBV_WC_SUCCESS);
	verbs_rig_poll(rig);
	verbs_rig_expect_link(rig, 0, VERBS_ASKING, 1);
	verbs_rig_send(rig, PL_RAIL_ACCEPT, 0, 1);
	verbs_rig_complete(rig, 0, IBV_WC_SUCCESS);
	completion->qp_num++;
	verbs_rig_poll(rig);
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
	assert_int_equal(rig->queue.posted, 1);
	verbs_rig_free(rig);
}

/* The acceptor is up and has sent already, before the completion comes. */
static void test_message_proves(void **state)
{
	struct pl_event_record records[PL_EVENTS_MAX];
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);

	(void)state;
	verbs_rig_bring_to(rig, VERBS_PROVING);
	verbs_rig_arrive(rig, 0);
	verbs_rig_poll(rig);
	verbs_rig_expect_link(rig, 0, VERBS_UP, 1);
	assert_int_equal(rig->queue.posted, 1);
	verbs_rig_complete(rig, 0, IBV_WC_SUCCESS);
	verbs_rig_poll(rig);
	verbs_rig_expect_link(rig, 0, VERBS_UP, 1);
	assert_int_equal(rig->queue.posted, 0);
	/* It comes up once. */
	assert_int_equal(pl_event_log_read(&rig->peer.events, 0, sizeof(records[0]), records, PL_EVENTS_MAX), 1);
	assert_int_equal(records[0].event, PL_EVENT_RAIL_OPENED);
	assert_int_equal(records[0].count, 1);
	verbs_rig_free(rig);
}

/* A queue pair that goes takes its proof along, once. */
static void test_proof_goes(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);

	(void)state;
	verbs_rig_bring_to(rig, VERBS_PROVING);
	for (uint16_t i = 1; i <= 2; i++) {
		verbs_rig_expire_attempt(rig, 0);
		verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
		assert_int_equal(rig->queue.posted, 0);
		verbs_rig_expect(rig, PL_RAIL_DOWN, 0, i);
		verbs_rig_expire(rig, &rail_of(rig, 0)->retry);
		verbs_rig_expect(rig, PL_RAIL_CONNECT, 0, (uint16_t)(i + 1));
	}
	verbs_rig_free(rig);
}

/* The task that fails an attempt runs after the next attempt began. */
static void test_late_failure(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);

	(void)state;
	verbs_rig_bring_to(rig, VERBS_PROVING);
	verbs_rig_complete(rig, 0, IBV_WC_RETRY_EXC_ERR);
	assert_true(verbs_cq_poll(&rig->queue));
	verbs_rig_expire_attempt(rig, 0);
	verbs_rig_expire(rig, &rail_of(rig, 0)->retry);
	verbs_rig_expect_link(rig, 0, VERBS_ASKING, 1);
	verbs_rig_settle(rig);
	verbs_rig_expect_link(rig, 0, VERBS_ASKING, 1);
	verbs_rig_free(rig);
}

/* The timer expires before the completion is polled: the connection is good. */
static void test_proof_before_timeout(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);

	(void)state;
	verbs_rig_bring_to(rig, VERBS_PROVING);
	verbs_rig_complete(rig, 0, IBV_WC_SUCCESS);
	verbs_rig_expire(rig, &rail_of(rig, 0)->retry);
	verbs_rig_settle(rig);
	verbs_rig_expect_link(rig, 0, VERBS_UP, 1);
	verbs_rig_expect_silence(rig);
	verbs_rig_free(rig);
}

/* The other end gives up while the completion waits to be polled. */
static void test_proof_before_down(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);

	(void)state;
	verbs_rig_bring_to(rig, VERBS_PROVING);
	verbs_rig_complete(rig, 0, IBV_WC_SUCCESS);
	verbs_rig_send(rig, PL_RAIL_DOWN, 0, 1);
	verbs_rig_expect_link(rig, 0, VERBS_DRAINING, 1);
	verbs_rig_settle(rig);
	expect_failed_attempt(rig);
}

/* The same, and the device refuses the message that waited for the proof: the queue pair is drained once. */
static void test_refusal_before_down(void **state)
{
	const struct pl_frame frame = { .type = PL_FRAME_FENCE };
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);
	uint8_t bytes[VERBS_BUFFER];
	struct verbs_buffer buffer = { .pool = &rig->queue.sends, .bytes = bytes };
	struct ibv_mr mr = { 0 };

	(void)state;
	rig->queue.sends.mr = &mr;
	pl_list_init(&rig->queue.sends.free);
	pl_list_append(&rig->queue.sends.free, &buffer.link);
	verbs_rig_bring_to(rig, VERBS_PROVING);
	verbs_message_first(rig->endpoint, &frame);
	verbs_rig_complete(rig, 0, IBV_WC_SUCCESS);
	rig->card.no_post = EINVAL;
	verbs_rig_send(rig, PL_RAIL_DOWN, 0, 1);
	verbs_rig_expect_link(rig, 0, VERBS_DRAINING, 1);
	verbs_rig_expect(rig, PL_RAIL_DOWN, 0, 1);
	verbs_rig_expect_silence(rig);
	rig->queue.sends.mr = NULL;
	verbs_rig_free(rig);
}

/* The proof that the other end sent may have taken a shared receive, which is lost with the queue pair. */
static void test_lost_receive(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);

	(void)state;
	verbs_rig_bring_to(rig, VERBS_ASKING);
	verbs_fail(rail_of(rig, 0), "a test");
	assert_int_equal(rig->queue.receives_lost, 0);
	verbs_rig_free(rig);
	rig = verbs_rig_new(true, false, 1);
	verbs_rig_bring_to(rig, VERBS_PROVING);
	verbs_fail(rail_of(rig, 0), "a test");
	verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
	assert_int_equal(rig->queue.receives_lost, 1);
	verbs_rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connection),
		cmocka_unit_test(test_ethernet),
		cmocka_unit_test(test_moved_address),
		cmocka_unit_test(test_returning_address),
		cmocka_unit_test(test_neighbour),
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_doubled_answers),
		cmocka_unit_test(test_wrong_messages),
		cmocka_unit_test(test_down),
		cmocka_unit_test(test_proof_fails),
		cmocka_unit_test(test_proof_is_refused),
		cmocka_unit_test(test_proof_comes_twice),
		cmocka_unit_test(test_stray_proofs),
		cmocka_unit_test(test_message_proves),
		cmocka_unit_test(test_proof_goes),
		cmocka_unit_test(test_late_failure),
		cmocka_unit_test(test_proof_before_timeout),
		cmocka_unit_test(test_proof_before_down),
		cmocka_unit_test(test_refusal_before_down),
		cmocka_unit_test(test_lost_receive),
	};

	return cmocka_run_group_tests_name("verbs initiator", tests, NULL, NULL);
}
