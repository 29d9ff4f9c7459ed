/* SPDX-License-Identifier: BSD-2-Clause */
/* The acceptor's part of the handshake of a rail, with the device's calls replaced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/verbs_rig.h"

static struct verbs_rail *rail_of(struct verbs_rig *rig, unsigned index)
{
	return &rig->endpoint->rails[index];
}

/* -- requests ------------------------------------------------------------------------------------- */

static void test_first_request(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(false, false, 2);
	struct pl_rail_message request = verbs_rig_message(PL_RAIL_CONNECT, 1, 1), answer;
	struct verbs_rail *rail = rail_of(rig, 1);

	(void)state;
	request.ports[0] = 1;
	request.ports[1] = 0;
	request.renewals = 3;
	assert_int_equal(verbs_rig_deliver(rig, &request), 0);
	assert_int_equal(rig->endpoint->rail_count, 2);
	assert_ptr_equal(rail_of(rig, 0)->port, &rig->ports[1]);
	assert_ptr_equal(rail->port, &rig->ports[0]);
	verbs_rig_expect_link(rig, 0, VERBS_DOWN, 1);
	verbs_rig_expect_link(rig, 1, VERBS_PROVING, 1);
	assert_int_equal(rig->card.states[0], IBV_QPS_RTS);
	answer = verbs_rig_expect(rig, PL_RAIL_ACCEPT, 1, 1);
	assert_int_equal(answer.qp_number, rail->qp->qp_num);
	assert_int_equal(answer.psn, rig->card.send.sq_psn);
	assert_int_equal(answer.lid, 21);
	assert_memory_equal(answer.gid, rig->ports[0].gids[0].gid.raw, sizeof(answer.gid));
	assert_int_equal(answer.mtu, IBV_MTU_4096);
	assert_int_equal(answer.reads, 16);
	assert_false(answer.global);
	/* Nothing was posted, and nothing is told before the other end's message comes. */
	assert_int_equal(rig->card.posted, 0);
	assert_false(rig->endpoint->opened);
	verbs_rig_arrive(rig, 1);
	verbs_rig_poll(rig);
	verbs_rig_expect_link(rig, 1, VERBS_UP, 1);
	assert_true(rig->endpoint->opened);
	assert_int_equal(rail->far_renewals, 3);
	verbs_rig_expect_silence(rig);
	verbs_rig_free(rig);
}

/* Routes of the queue pair: by LID within a subnet, else with a global route header. */
static void test_route(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(false, false, 1);
	const struct ibv_qp_attr *receive = &rig->card.receive, *send = &rig->card.send;
	struct pl_rail_message request = verbs_rig_message(PL_RAIL_CONNECT, 0, 1);

	(void)state;
	assert_int_equal(verbs_rig_deliver(rig, &request), 0);
	assert_int_equal(receive->path_mtu, IBV_MTU_1024);
	assert_int_equal(receive->dest_qp_num, 0x4321);
	assert_int_equal(receive->rq_psn, 0x654321);
	assert_int_equal(receive->max_dest_rd_atomic, 16);
	assert_int_equal(send->max_rd_atomic, 4);
	assert_int_equal(receive->ah_attr.dlid, 77);
	assert_int_equal(receive->ah_attr.port_num, 1);
	assert_int_equal(receive->ah_attr.is_global, 0);
	for (unsigned i = 0; i < 3; i++) {
		request = verbs_rig_message(PL_RAIL_CONNECT, 0, (uint16_t)(2 + i));
		request.global = i == 0;
		request.lid = i == 1 ? 0 : 77;
		request.gid[7] = i == 2;
		request.traffic_class = 104;
		request.service_level = 3;
		assert_int_equal(verbs_rig_deliver(rig, &request), 0);
		verbs_rig_settle(rig);
		assert_int_equal(receive->ah_attr.is_global, 1);
		assert_memory_equal(receive->ah_attr.grh.dgid.raw, request.gid, sizeof(request.gid));
		assert_int_equal(receive->ah_attr.grh.sgid_index, 3);
		/* As the initiator wants, not as the options of this end say. */
		assert_int_equal(receive->ah_attr.grh.traffic_class, 104);
		assert_int_equal(receive->ah_attr.sl, 3);
		assert_true(receive->ah_attr.grh.hop_limit > 1);
	}
	verbs_rig_free(rig);
}

/* Two subnets that routers join: packets go to the other end's FLID. Ports of one subnet may have several. */
static void test_router(void **state)
{
	static const uint8_t near[8] = { 0xfe, 0xc0, 0, 0, 0x12, 0x34, 0, 1 },
			     far[8] = { 0xfe, 0xc0, 0, 0, 0x56, 0x78, 0, 1 };
	struct verbs_rig *rig = verbs_rig_new(false, false, 1);
	const struct ibv_ah_attr *address = &rig->card.receive.ah_attr;

	(void)state;
	memcpy(rig->ports[0].gids[0].gid.raw, near, sizeof(near));
	for (uint16_t i = 0; i < 3; i++) {
		struct pl_rail_message request = verbs_rig_message(PL_RAIL_CONNECT, 0, (uint16_t)(1 + i));

		memcpy(request.gid, far, sizeof(far));
		request.gid[7] = i ? 2 : 1;
		/* No FLID: the prefix of another kind. */
		request.gid[3] = i == 2;
		assert_int_equal(verbs_rig_deliver(rig, &request), 0);
		/* The attempt before is drained first. */
		verbs_rig_settle(rig);
		assert_int_equal(address->dlid, i == 1 ? 0x5678 : 77);
		assert_int_equal(address->is_global, i > 0);
		if (i)
			assert_memory_equal(address->grh.dgid.raw, request.gid, sizeof(request.gid));
	}
	verbs_rig_free(rig);
}

/* Delivers a request. Returns true if it is accepted once the attempt before has been drained. */
static bool accepts(struct verbs_rig *rig, uint16_t generation)
{
	unsigned made = rig->card.made;

	verbs_rig_send(rig, PL_RAIL_CONNECT, 0, generation);
	verbs_rig_settle(rig);
	if (rig->card.made == made) {
		verbs_rig_expect_silence(rig);
		return false;
	}
	verbs_rig_expect(rig, PL_RAIL_ACCEPT, 0, generation);
	assert_int_equal(rail_of(rig, 0)->generation, generation);
	return true;
}

/* Generations grow, and wrap around. */
static void test_generations(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(false, false, 1);

	(void)state;
	assert_true(accepts(rig, 5));
	assert_false(accepts(rig, 5));
	assert_false(accepts(rig, 4));
	assert_false(accepts(rig, (uint16_t)(5 + 32768)));
	/* The attempt gives way to the next one, which need not be the next number. */
	assert_true(accepts(rig, 7));
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
	assert_false(accepts(rig, 6));
	assert_true(accepts(rig, 7 + 32767));
	assert_true(accepts(rig, UINT16_MAX));
	assert_false(accepts(rig, UINT16_MAX));
	assert_true(accepts(rig, 0));
	assert_false(accepts(rig, UINT16_MAX));
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
	verbs_rig_free(rig);
}

static void expect_protocol_error(struct verbs_rig *rig, const struct pl_rail_message *message)
{
	unsigned made = rig->card.made;

	assert_int_equal(verbs_rig_deliver(rig, message), -EPROTO);
	assert_int_equal(rig->card.made, made);
	verbs_rig_expect_silence(rig);
}

/* The first request describes all rails; later ones must agree. */
static void test_descriptions(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(false, false, 2);
	struct pl_rail_message request = verbs_rig_message(PL_RAIL_CONNECT, 0, 1), other;

	(void)state;
	/* More rails than this end advertised. */
	rig->context.options.rails = 1;
	expect_protocol_error(rig, &request);
	rig->context.options.rails = 2;
	request.ports[1] = 2;
	expect_protocol_error(rig, &request);
	assert_int_equal(rig->endpoint->rail_count, 0);
	request.ports[1] = 0;
	assert_int_equal(verbs_rig_deliver(rig, &request), 0);
	verbs_rig_expect(rig, PL_RAIL_ACCEPT, 0, 1);
	request.index = 1;
	other = request;
	other.count = 3;
	expect_protocol_error(rig, &other);
	other = request;
	other.count = 1;
	other.index = 0;
	expect_protocol_error(rig, &other);
	other = request;
	other.ports[0] = 1;
	expect_protocol_error(rig, &other);
	other = request;
	other.ports[1] = 2;
	expect_protocol_error(rig, &other);
	/* Ports behind the last rail are not looked at. */
	request.ports[2] = 9;
	/* Without the option, as many rails as there can be. */
	rig->context.options.rails = 0;
	assert_int_equal(verbs_rig_deliver(rig, &request), 0);
	verbs_rig_expect(rig, PL_RAIL_ACCEPT, 1, 1);
	verbs_rig_free(rig);
}

/* A request that waits for the old queue pair ends by its own DOWN, and by no other. */
static void test_waiting_request_ends(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(false, false, 1);

	(void)state;
	verbs_rig_bring_up(rig, 0, 1);
	verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 2);
	verbs_rig_send(rig, PL_RAIL_DOWN, 0, 2);
	verbs_rig_settle(rig);
	verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
	verbs_rig_expect_silence(rig);
	verbs_rig_bring_up(rig, 0, 3);
	verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 4);
	verbs_rig_send(rig, PL_RAIL_DOWN, 0, 3);
	verbs_rig_settle(rig);
	verbs_rig_expect(rig, PL_RAIL_ACCEPT, 0, 4);
	/* Nothing waits any more. */
	verbs_rig_send(rig, PL_RAIL_DOWN, 0, 0);
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
	verbs_rig_free(rig);
}

/* No DOWN goes where the network is down here, or to a peer that leaves. */
static void test_silent_failures(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct verbs_rig *rig = verbs_rig_new(false, false, 1);

		verbs_rig_bring_up(rig, 0, 1);
		rig->endpoint->rails[0].broke.here = i == 0;
		rig->peer.leaving = i == 1;
		verbs_fail(&rig->endpoint->rails[0], "a test");
		verbs_rig_settle(rig);
		verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
		verbs_rig_expect_silence(rig);
		verbs_rig_free(rig);
	}
}

/* Messages that an acceptor does not get. */
static void test_wrong_messages(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(false, false, 2);
	struct pl_rail_message message = verbs_rig_message(PL_RAIL_DOWN, 0, 1);

	(void)state;
	/* Before the first request there is no rail. */
	expect_protocol_error(rig, &message);
	verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 1);
	verbs_rig_expect(rig, PL_RAIL_ACCEPT, 0, 1);
	message = verbs_rig_message(PL_RAIL_ACCEPT, 0, 1);
	expect_protocol_error(rig, &message);
	message = verbs_rig_message(PL_RAIL_DOWN, 2, 1);
	expect_protocol_error(rig, &message);
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
	verbs_rig_free(rig);
}

static void test_finished(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct verbs_rig *rig = verbs_rig_new(false, false, 1);

		rig->endpoint->closing = i == 0;
		rig->peer.leaving = i == 1;
		if (i == 2)
			atomic_store(&rig->peer.state, PL_PEER_LOST);
		assert_false(accepts(rig, 1));
		verbs_rig_free(rig);
	}
}

/* The connection to a peer that leaves stays until its last bytes have come. */
static void test_leaving(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(false, false, 1);

	(void)state;
	verbs_rig_bring_up(rig, 0, 1);
	rig->peer.leaving = true;
	assert_false(accepts(rig, 2));
	verbs_rig_expect_link(rig, 0, VERBS_UP, 1);
	verbs_rig_free(rig);
}

/* -- requests for a rail in use ------------------------------------------------------------------- */

/* The old connection fails first. The other end made that, so it is not told. */
static void test_rail_is_up(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(false, false, 1);
	const struct verbs_rail *rail = rail_of(rig, 0);

	(void)state;
	verbs_rig_bring_up(rig, 0, 1);
	verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 2);
	verbs_rig_expect_link(rig, 0, VERBS_DRAINING, 1);
	assert_int_equal(rail->generation, 1);
	assert_int_equal(rig->card.states[0], IBV_QPS_ERR);
	verbs_rig_expect_silence(rig);
	/* Until the queue pair is drained, the latest request counts. */
	verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 4);
	verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 4);
	verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 3);
	assert_int_equal(rig->card.failed, 1);
	assert_int_equal(rig->card.made, 1);
	verbs_rig_settle(rig);
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
	assert_int_equal(rig->card.made, 2);
	assert_false(rig->card.present[0]);
	verbs_rig_expect(rig, PL_RAIL_ACCEPT, 0, 4);
	verbs_rig_expect_silence(rig);
	verbs_rig_arrive(rig, 0);
	verbs_rig_poll(rig);
	verbs_rig_expect_link(rig, 0, VERBS_UP, 1);
	verbs_rig_free(rig);
}

/* Posted work must come back before the queue pair goes, or a second passes. */
static void test_work_is_posted(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(false, false, 1);
	struct verbs_rail *rail = rail_of(rig, 0);
	struct verbs_rig_time drain;
	struct verbs_work *work;

	(void)state;
	verbs_rig_bring_up(rig, 0, 1);
	work = pl_zalloc(&pl_system_allocator, sizeof(*work));
	assert_non_null(work);
	work->kind = VERBS_FRAME;
	work->frame.type = PL_FRAME_FENCED;
	work->serial = ++rail->serial;
	pl_list_append(&rail->posted, &work->link);
	rail->posted_count = rig->queue.posted = 1;
	verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 2);
	verbs_rig_settle(rig);
	verbs_rig_expect_link(rig, 0, VERBS_DRAINING, 1);
	drain = verbs_rig_until(rig, &rail->drain);
	assert_true(drain.least < 2 * PL_NS_PER_S && drain.most > PL_NS_PER_S / 2);
	verbs_rig_expect_silence(rig);
	verbs_rig_expire(rig, &rail->drain);
	verbs_rig_settle(rig);
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
	verbs_rig_expect(rig, PL_RAIL_ACCEPT, 0, 2);
	verbs_rig_free(rig);
}

/* A thread uses the queue pair: it stays until the thread is done. */
static void test_rail_is_readying(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(false, true, 1);

	(void)state;
	verbs_rig_bring_to(rig, VERBS_READYING);
	verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 2);
	verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 3);
	verbs_rig_settle(rig);
	verbs_rig_expect_link(rig, 0, VERBS_READYING, 1);
	assert_int_equal(rig->card.destroyed, 0);
	verbs_rig_expect_silence(rig);
	verbs_rig_release(rig);
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
	assert_int_equal(rig->card.made, 2);
	verbs_rig_expect(rig, PL_RAIL_ACCEPT, 0, 3);
	verbs_rig_expect_silence(rig);
	verbs_rig_free(rig);
}

static void test_rail_is_proving(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(false, false, 1);

	(void)state;
	verbs_rig_bring_to(rig, VERBS_PROVING);
	verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 2);
	/* The other end may have been up. */
	verbs_rig_expect_link(rig, 0, VERBS_DRAINING, 1);
	verbs_rig_settle(rig);
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
	assert_int_equal(rig->card.made, 2);
	verbs_rig_expect(rig, PL_RAIL_ACCEPT, 0, 2);
	verbs_rig_expect_silence(rig);
	verbs_rig_free(rig);
}

/* The other end's message arrived, and it fails the connection before this end sees the arrival. */
static void test_request_overtakes_arrival(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(false, false, 1);

	(void)state;
	verbs_rig_bring_to(rig, VERBS_PROVING);
	verbs_rig_arrive(rig, 0);
	verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 2);
	/* The connection was up, so it drains as one. */
	verbs_rig_expect_link(rig, 0, VERBS_DRAINING, 1);
	assert_int_equal(rig->card.failed, 1);
	assert_true(rig->endpoint->opened);
	verbs_rig_settle(rig);
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
	verbs_rig_expect(rig, PL_RAIL_ACCEPT, 0, 2);
	verbs_rig_free(rig);
}

/* The peer was never up, so the engine's lock is held: the endpoint ends without a wait for receives. */
static void test_closed_at_once(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct verbs_rig *rig = verbs_rig_new(false, false, 1);
		const bool drains = i == 1;

		verbs_rig_bring_to(rig, VERBS_PROVING);
		if (drains)
			verbs_fail(rail_of(rig, 0), "a test");
		verbs_rig_expect_link(rig, 0, drains ? VERBS_DRAINING : VERBS_PROVING, 1);
		/* The device does not tell. */
		atomic_store(&rail_of(rig, 0)->last_reached, false);
		pl_verbs_fabric.close(&rig->endpoint->base);
		rig->endpoint = NULL;
		assert_int_equal(rig->card.failed, drains);
		/* A wait would have counted. */
		assert_int_equal(atomic_load(&rig->device.lasts_missed), 0);
		assert_int_equal(rig->queue.receives_lost, 1);
		verbs_rig_free(rig);
	}
}

/* -- the end of a connection ---------------------------------------------------------------------- */

static void test_down(void **state)
{
	static const enum verbs_link links[] = { VERBS_READYING, VERBS_PROVING, VERBS_UP, VERBS_DRAINING };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(links); i++) {
		struct verbs_rig *rig = verbs_rig_new(false, true, 1);

		verbs_rig_bring_to(rig, links[i]);
		verbs_rig_send(rig, PL_RAIL_DOWN, 0, 2);
		verbs_rig_send(rig, PL_RAIL_DOWN, 0, 0);
		verbs_rig_expect_link(rig, 0, links[i], 1);
		verbs_rig_expect_silence(rig);
		verbs_rig_send(rig, PL_RAIL_DOWN, 0, 1);
		assert_true(links[i] != VERBS_UP || rail_of(rig, 0)->link == VERBS_DRAINING);
		if (links[i] == VERBS_READYING)
			verbs_rig_expect_link(rig, 0, VERBS_READYING, 1);
		verbs_rig_release(rig);
		verbs_rig_settle(rig);
		verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
		if (links[i] != VERBS_DRAINING)
			verbs_rig_expect(rig, PL_RAIL_DOWN, 0, 1);
		/* The acceptor waits for the next request. */
		assert_true(pl_list_empty(&rail_of(rig, 0)->retry.link));
		verbs_rig_send(rig, PL_RAIL_DOWN, 0, 1);
		verbs_rig_expect_silence(rig);
		verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 2);
		verbs_rig_release(rig);
		verbs_rig_expect(rig, PL_RAIL_ACCEPT, 0, 2);
		verbs_rig_free(rig);
	}
}

/*
 * The connection ends while this end's port is down: the other end learns it when the port is up again. Its device may have lost its
 * requests, and complete none of them for long.
 */
static void test_down_is_told_later(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct verbs_rig *rig = verbs_rig_new(false, false, 1);
		struct verbs_rail *rail = rail_of(rig, 0);

		verbs_rig_bring_up(rig, 0, 1);
		rig->card.port_state = IBV_PORT_DOWN;
		verbs_fail(rail, "the port is down");
		verbs_rig_settle(rig);
		verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
		verbs_rig_expect_silence(rig);
		verbs_rig_expire(rig, &rail->retry);
		verbs_rig_expect_silence(rig);
		if (i == 1) {
			/* The other end has noticed. */
			verbs_rig_send(rig, PL_RAIL_DOWN, 0, 1);
		} else if (i == 2) {
			verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 2);
			verbs_rig_expect(rig, PL_RAIL_ACCEPT, 0, 2);
			assert_true(pl_list_empty(&rail->retry.link));
			verbs_rig_free(rig);
			continue;
		}
		rig->card.port_state = IBV_PORT_ACTIVE;
		verbs_rig_expire(rig, &rail->retry);
		if (i == 0)
			verbs_rig_expect(rig, PL_RAIL_DOWN, 0, 1);
		verbs_rig_expect_silence(rig);
		assert_true(pl_list_empty(&rail->retry.link));
		verbs_rig_free(rig);
	}
}

/* -- failures of the device ----------------------------------------------------------------------- */

/* The other end learns it at once, and may connect again. */
static void test_refusals(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct verbs_rig *rig = verbs_rig_new(false, i % 2, 1);

		rig->card.no_pair = i == 0 ? ENOMEM : 0;
		rig->card.no_init = i == 1 ? EINVAL : 0;
		rig->card.no_receive = i == 2 ? ETIMEDOUT : 0;
		rig->card.no_send = i == 3 ? EINVAL : 0;
		verbs_rig_send(rig, PL_RAIL_CONNECT, 0, 1);
		verbs_rig_release(rig);
		verbs_rig_expect_link(rig, 0, VERBS_DOWN, 0);
		verbs_rig_expect(rig, PL_RAIL_DOWN, 0, 1);
		verbs_rig_expect_silence(rig);
		assert_int_equal(atomic_load(&rig->peer.state), PL_PEER_UP);
		rig->card.no_pair = rig->card.no_init = rig->card.no_receive = rig->card.no_send = 0;
		verbs_rig_bring_up(rig, 0, 2);
		verbs_rig_free(rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_request),
		cmocka_unit_test(test_route),
		cmocka_unit_test(test_router),
		cmocka_unit_test(test_generations),
		cmocka_unit_test(test_descriptions),
		cmocka_unit_test(test_waiting_request_ends),
		cmocka_unit_test(test_silent_failures),
		cmocka_unit_test(test_wrong_messages),
		cmocka_unit_test(test_finished),
		cmocka_unit_test(test_leaving),
		cmocka_unit_test(test_rail_is_up),
		cmocka_unit_test(test_work_is_posted),
		cmocka_unit_test(test_rail_is_readying),
		cmocka_unit_test(test_rail_is_proving),
		cmocka_unit_test(test_request_overtakes_arrival),
		cmocka_unit_test(test_closed_at_once),
		cmocka_unit_test(test_down),
		cmocka_unit_test(test_down_is_told_later),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests_name("verbs acceptor", tests, NULL, NULL);
}
