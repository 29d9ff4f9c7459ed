/* SPDX-License-Identifier: BSD-2-Clause */
/* Attributes of queue pairs: what the port and the device of this end, those of the other end, and options make of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/verbs_rig.h"

/* mlx5: the vendor of its options. */
#define VENDOR 0x15b3u

static struct verbs_rail *rail_of(struct verbs_rig *rig)
{
	return &rig->endpoint->rails[0];
}

/* An acceptor connects for the first time. Returns its answer. */
static struct pl_rail_message accept_request(struct verbs_rig *rig, const struct pl_rail_message *request)
{
	assert_int_equal(verbs_rig_deliver(rig, request), 0);
	verbs_rig_release(rig);
	verbs_rig_expect_link(rig, 0, VERBS_PROVING, 1);
	return verbs_rig_expect(rig, PL_RAIL_ACCEPT, 0, 1);
}

static struct pl_rail_message request_of_far(void)
{
	return verbs_rig_message(PL_RAIL_CONNECT, 0, 1);
}

/* The rail of an initiator breaks, and connects again. Returns its request. */
static struct pl_rail_message request_again(struct verbs_rig *rig, uint16_t generation)
{
	verbs_fail(rail_of(rig), "test");
	verbs_rig_settle(rig);
	verbs_rig_expect(rig, PL_RAIL_DOWN, 0, (uint16_t)(generation - 1));
	verbs_rig_expire(rig, &rail_of(rig)->retry);
	return verbs_rig_expect(rig, PL_RAIL_CONNECT, 0, generation);
}

/* -- limits and rights ---------------------------------------------------------------------------- */

/* A request has as many pieces as the device takes, and as many inline bytes as the device grants. */
static void test_limits(void **state)
{
	static const unsigned pieces[][2] = { { 30, VERBS_PIECES }, { 3, 3 }, { 1, 1 } };
	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(pieces); i++) {
		struct verbs_rig *rig = verbs_rig_new(false, false, 1);
		const struct pl_rail_message request = request_of_far();
		const struct ibv_qp_init_attr *asked = &rig->card.asked;

		rig->device.attributes.max_sge = (int)pieces[i][0];
		rig->card.inline_granted = 28 + (uint32_t)i;
		accept_request(rig, &request);
		assert_int_equal(asked->cap.max_send_sge, pieces[i][1]);
		assert_int_equal(asked->cap.max_send_wr, VERBS_SEND_DEPTH);
		assert_int_equal(asked->cap.max_inline_data, VERBS_INLINE);
		assert_int_equal(rail_of(rig)->inline_max, 28 + i);
		assert_ptr_equal(asked->qp_context, rail_of(rig));
		assert_ptr_equal(asked->srq, rig->queue.srq);
		verbs_rig_free(rig);
	}
}

/* The second port of a device, and its partition. Drivers without atomics may refuse the right to them. */
static void test_port(void **state)
{
	const unsigned rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	(void)state;
	for (unsigned atomics = 0; atomics < 2; atomics++) {
		struct verbs_rig *rig = verbs_rig_new(false, false, 2);
		struct pl_rail_message request = request_of_far();

		request.ports[0] = 1;
		rig->ports[1].pkey_index = 9;
		rig->device.attributes.atomic_cap = atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
		accept_request(rig, &request);
		assert_int_equal(rig->card.begin.port_num, 2);
		assert_int_equal(rig->card.begin.pkey_index, 9);
		assert_int_equal(rig->card.begin.qp_access_flags, rights | (atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0u));
		assert_int_equal(rig->card.receive.ah_attr.port_num, 2);
		verbs_rig_free(rig);
	}
}

/* -- path ----------------------------------------------------------------------------------------- */

/* Packets are as long as both ports take. */
static void test_mtu(void **state)
{
	static const struct {
		enum ibv_mtu near, far, both;
	} cases[] = { { IBV_MTU_4096, IBV_MTU_1024, IBV_MTU_1024 }, { IBV_MTU_1024, IBV_MTU_4096, IBV_MTU_1024 } };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct verbs_rig *rig = verbs_rig_new(false, false, 1);
		struct pl_rail_message request = request_of_far();

		rig->card.mtu = cases[i].near;
		request.mtu = (uint8_t)cases[i].far;
		assert_int_equal(accept_request(rig, &request).mtu, cases[i].near);
		assert_int_equal(rig->card.receive.path_mtu, cases[i].both);
		assert_int_equal(rail_of(rig)->pace.packet, 128u << cases[i].near);
		verbs_rig_free(rig);
	}
}

/* A port that wants a global route header has one at both ends. */
static void test_global(void **state)
{
	(void)state;
	for (unsigned global = 0; global < 2; global++) {
		struct verbs_rig *rig = verbs_rig_new(false, false, 1);
		const struct pl_rail_message request = request_of_far();

		rig->card.port_flags = global ? IBV_QPF_GRH_REQUIRED : 0;
		assert_int_equal(accept_request(rig, &request).global, global);
		assert_int_equal(rig->card.receive.ah_attr.is_global, global);
		verbs_rig_free(rig);
	}
}

/* A RoCE port without addresses, and a port that an option excludes meanwhile, connect nothing. InfiniBand needs no GID. */
static void test_addresses(void **state)
{
	static const struct {
		bool ethernet, excluded;
		unsigned gids;
		enum verbs_link link;
	} cases[] = { { false, false, 0, VERBS_PROVING },
		      { true, false, 0, VERBS_DOWN },
		      { true, true, 1, VERBS_DOWN },
		      { true, false, 1, VERBS_PROVING } };
	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct verbs_rig *rig = verbs_rig_new(false, cases[i].ethernet, 1);
		const struct pl_rail_message request = request_of_far();

		rig->ports[0].gid_count = cases[i].gids;
		rig->ports[0].excluded = cases[i].excluded;
		assert_int_equal(verbs_rig_deliver(rig, &request), 0);
		verbs_rig_release(rig);
		verbs_rig_expect_link(rig, 0, cases[i].link, cases[i].link == VERBS_PROVING);
		assert_int_equal(rig->card.made, cases[i].link == VERBS_PROVING);
		verbs_rig_free(rig);
	}
}

/*
 * A request tells the wishes of its end, and how many devices the rail had before. Late packets of an earlier queue pair do
 * not fit a later one: its first packet has a number by chance, of 24 bits.
 */
static void test_request(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);
	struct pl_rail_message request;
	uint32_t first = 0;
	bool differs = false;

	(void)state;
	verbs_rig_bring_up(rig, 0, 1);
	rail_of(rig)->renewals = 3;
	rig->context.options.service_level = 5;
	rig->context.options.traffic_class = 104;
	for (uint16_t i = 2; i <= 6; i++) {
		request = request_again(rig, i);
		assert_int_equal(request.renewals, 3);
		assert_int_equal(request.service_level, 5);
		assert_int_equal(request.traffic_class, 104);
		assert_true(request.psn <= 0xffffff);
		first = i == 2 ? request.psn : first;
		differs |= request.psn != first;
		verbs_rig_send(rig, PL_RAIL_ACCEPT, 0, i);
		assert_int_equal(rig->card.receive.ah_attr.sl, 5);
		verbs_rig_complete(rig, 0, IBV_WC_SUCCESS);
		verbs_rig_poll(rig);
		verbs_rig_expect_link(rig, 0, VERBS_UP, 1);
	}
	assert_true(differs);
	verbs_rig_free(rig);
}

/* -- reads and retries ---------------------------------------------------------------------------- */

/*
 * Each end tells how many reads its device serves, and has as many under way as the other end serves. A device may serve
 * more than it asks for, or the other way round.
 */
static void test_reads(void **state)
{
	static const struct {
		int served, asked;
		uint8_t far, told, most;
	} cases[] = { { 16, 16, 4, 16, 4 },
		      { 4, 16, 16, 4, 4 },
		      { 16, 4, 16, 4, 4 },
		      { 255, 255, 255, 128, 128 },
		      { 0, 0, 16, 1, 1 } };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct verbs_rig *rig = verbs_rig_new(false, false, 1);
		struct pl_rail_message request = request_of_far();

		rig->device.attributes.max_qp_rd_atom = cases[i].served;
		rig->device.attributes.max_qp_init_rd_atom = cases[i].asked;
		request.reads = cases[i].far;
		assert_int_equal(accept_request(rig, &request).reads, cases[i].told);
		assert_int_equal(rig->card.receive.max_dest_rd_atomic, cases[i].told);
		assert_int_equal(rig->card.send.max_rd_atomic, cases[i].most);
		verbs_rig_free(rig);
	}
}

/* A busy receiver is waited for without end, whatever the options are. */
static void test_retries(void **state)
{
	(void)state;
	for (unsigned chosen = 0; chosen < 2; chosen++) {
		struct verbs_rig *rig = verbs_rig_new(false, false, 1);
		const struct pl_rail_message request = request_of_far();
		struct pl_options *options = &rig->context.options;

		if (chosen) {
			options->ack_timeout = 18;
			options->retries = 3;
			options->rnr_timer = 20;
		}
		accept_request(rig, &request);
		assert_int_equal(rig->card.send.timeout, chosen ? 18 : 14);
		assert_int_equal(rig->card.send.retry_cnt, chosen ? 3 : 6);
		assert_int_equal(rig->card.receive.min_rnr_timer, chosen ? 20 : 12);
		assert_int_equal(rig->card.send.rnr_retry, 7);
		/* 4.096 us times 2 to the power of the time-out, once more than the retries. */
		assert_int_equal(verbs_retry_time(options), chosen ? 4 * (4096ull << 18) : 7 * (4096ull << 14));
		verbs_rig_free(rig);
	}
}

/* -- options of the card -------------------------------------------------------------------------- */

/* An initiator tells the options that its device has, if the other end knows of them. */
static void test_options_told(void **state)
{
	static const struct {
		bool peer, call;
		uint32_t vendor;
		int refusal;
		bool told;
	} cases[] = { { true, true, VENDOR, 0, true },
		      { false, true, VENDOR, 0, false },
		      { true, false, VENDOR, 0, false },
		      { true, true, 0, 0, false },
		      { true, true, VENDOR, EOPNOTSUPP, false } };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct verbs_rig *rig = verbs_rig_new(true, false, 1);
		struct pl_rail_message request;

		verbs_rig_bring_up(rig, 0, 1);
		rig->peer.ece = cases[i].peer;
		if (!cases[i].call)
			rig->library.ibv_query_ece = NULL;
		rig->card.ece = (struct ibv_ece){ .vendor_id = cases[i].vendor, .options = 5 };
		rig->card.no_ece = cases[i].refusal;
		request = request_again(rig, 2);
		assert_int_equal(request.ece_vendor, cases[i].told ? VENDOR : 0);
		assert_int_equal(request.ece_options, cases[i].told ? 5 : 0);
		verbs_rig_free(rig);
	}
}

/* An acceptor gives its queue pair the options of a request, and tells the choice of its device, or that there is none. */
static void test_options_chosen(void **state)
{
	static const struct {
		uint32_t vendor;
		bool call;
		int refusal;
		bool set, told;
	} cases[] = { { VENDOR, true, 0, true, true },
		      { 0, true, 0, false, false },
		      { VENDOR, false, 0, false, false },
		      { VENDOR, true, EINVAL, true, false } };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct verbs_rig *rig = verbs_rig_new(false, false, 1);
		struct pl_rail_message request = request_of_far(), answer;

		rig->peer.ece = true;
		rig->card.ece = (struct ibv_ece){ .vendor_id = VENDOR, .options = 4 };
		rig->card.no_ece_set = cases[i].refusal;
		if (!cases[i].call)
			rig->library.ibv_set_ece = NULL;
		request.ece_vendor = cases[i].vendor;
		request.ece_options = cases[i].vendor ? 6 : 0;
		answer = accept_request(rig, &request);
		assert_int_equal(rig->card.ece_set.vendor_id, cases[i].set ? VENDOR : 0);
		assert_int_equal(rig->card.ece_set.options, cases[i].set ? 6 : 0);
		assert_int_equal(answer.ece_vendor, cases[i].told ? VENDOR : 0);
		assert_int_equal(answer.ece_options, cases[i].told ? 4 : 0);
		verbs_rig_free(rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limits),       cmocka_unit_test(test_port),
		cmocka_unit_test(test_mtu),          cmocka_unit_test(test_global),
		cmocka_unit_test(test_addresses),    cmocka_unit_test(test_request),
		cmocka_unit_test(test_reads),        cmocka_unit_test(test_retries),
		cmocka_unit_test(test_options_told), cmocka_unit_test(test_options_chosen),
	};

	return cmocka_run_group_tests_name("verbs queue pairs", tests, NULL, NULL);
}
