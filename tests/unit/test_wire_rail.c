/* SPDX-License-Identifier: BSD-2-Clause */
/* RAIL, the control message of the verbs fabric: form, limits and exact bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/control_body.h"

#define BUFFER_SIZE (PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX)
#define BODY_SIZE 46

/* Offsets in the body. */
enum { STEP_AT = 0, INDEX_AT = 1, COUNT_AT = 4, QP_AT = 15, PSN_AT = 19, GID_AT = 25, MTU_AT = 41, GLOBAL_AT = 43 };

static struct pl_control rail_sample(enum pl_rail_step step)
{
	struct pl_control message = { .type = PL_CONTROL_RAIL };

	message.rail = (struct pl_rail_message){ .step = step, .index = 1, .generation = 0x0203 };
	if (step == PL_RAIL_DOWN)
		return message;
	message.rail.renewals = 0x0405;
	message.rail.qp_number = 0x060708;
	message.rail.psn = 0x090a0b;
	message.rail.lid = 0x0c0d;
	for (unsigned i = 0; i < sizeof(message.rail.gid); i++)
		message.rail.gid[i] = (uint8_t)(0x40 + i);
	message.rail.mtu = 5;
	message.rail.reads = 16;
	message.rail.global = true;
	message.rail.traffic_class = 104;
	message.rail.service_level = 3;
	if (step == PL_RAIL_CONNECT) {
		message.rail.count = 3;
		memcpy(message.rail.ports, (const uint8_t[]){ 2, 0, 11 }, 3);
	}
	return message;
}

/* Encodes a message, which must succeed. Returns its body. */
static const uint8_t *encode_rail(const struct pl_control *message, uint8_t *buffer)
{
	assert_int_equal(pl_control_encode(message, buffer, BUFFER_SIZE), PL_CONTROL_HEADER + BODY_SIZE);
	return buffer + PL_CONTROL_HEADER;
}

static int decode_rail(const uint8_t *body, size_t length, struct pl_control *message)
{
	return control_decode_exact(PL_CONTROL_RAIL, body, length, message);
}

static void expect_round_trip(const struct pl_control *message)
{
	uint8_t buffer[BUFFER_SIZE], again[BUFFER_SIZE];
	struct pl_control decoded;
	const uint8_t *body = encode_rail(message, buffer);

	assert_int_equal(decode_rail(body, BODY_SIZE, &decoded), 0);
	assert_memory_equal(encode_rail(&decoded, again), body, BODY_SIZE);
}

static void expect_refused(const struct pl_control *message)
{
	uint8_t buffer[BUFFER_SIZE];

	assert_int_equal(pl_control_encode(message, buffer, sizeof(buffer)), -EINVAL);
}

static void test_round_trips(void **state)
{
	(void)state;
	for (unsigned step = PL_RAIL_CONNECT; step <= PL_RAIL_DOWN; step++) {
		struct pl_control message = rail_sample(step);

		expect_round_trip(&message);
	}
}

static void test_fields(void **state)
{
	struct pl_control decoded, message = rail_sample(PL_RAIL_CONNECT);
	uint8_t buffer[BUFFER_SIZE];

	(void)state;
	assert_int_equal(decode_rail(encode_rail(&message, buffer), BODY_SIZE, &decoded), 0);
	assert_int_equal(decoded.type, PL_CONTROL_RAIL);
	assert_int_equal(decoded.rail.step, PL_RAIL_CONNECT);
	assert_int_equal(decoded.rail.index, 1);
	assert_int_equal(decoded.rail.generation, 0x0203);
	assert_int_equal(decoded.rail.count, 3);
	assert_memory_equal(decoded.rail.ports, message.rail.ports, sizeof(message.rail.ports));
	assert_int_equal(decoded.rail.renewals, 0x0405);
	assert_int_equal(decoded.rail.qp_number, 0x060708);
	assert_int_equal(decoded.rail.psn, 0x090a0b);
	assert_int_equal(decoded.rail.lid, 0x0c0d);
	assert_memory_equal(decoded.rail.gid, message.rail.gid, sizeof(message.rail.gid));
	assert_int_equal(decoded.rail.mtu, 5);
	assert_int_equal(decoded.rail.reads, 16);
	assert_true(decoded.rail.global);
	assert_int_equal(decoded.rail.traffic_class, 104);
	assert_int_equal(decoded.rail.service_level, 3);
}

/* clang-format off: bytes, a line for each field or group of them */
static void test_golden(void **state)
{
	static const uint8_t connect[] = {
		'P', 'L', 'C', '1', 9, 0, 0, 0, BODY_SIZE, 0, 0, 0,   /* header */
		1, 1, 3, 2,                                           /* step, index, generation */
		3, 2, 0, 11, 0, 0, 0, 0, 0,                           /* count, ports */
		5, 4,                                                 /* renewals */
		8, 7, 6, 0, 0x0b, 0x0a, 9, 0, 0x0d, 0x0c,             /* queue pair, psn, lid */
		0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b, 0x4c, 0x4d, 0x4e, 0x4f,
		5, 16, 1, 104, 3,                                     /* mtu, reads, global, class, service level */
	};
	static const uint8_t down[PL_CONTROL_HEADER + BODY_SIZE] = {
		'P', 'L', 'C', '1', 9, 0, 0, 0, BODY_SIZE, 0, 0, 0, 3, 1, 3, 2,
	};
	struct pl_control message = rail_sample(PL_RAIL_CONNECT);
	uint8_t buffer[BUFFER_SIZE], accept[sizeof(connect)];

	(void)state;
	encode_rail(&message, buffer);
	assert_memory_equal(buffer, connect, sizeof(connect));
	memcpy(accept, connect, sizeof(accept));
	accept[PL_CONTROL_HEADER + STEP_AT] = 2;
	memset(accept + PL_CONTROL_HEADER + COUNT_AT, 0, 1 + PL_RAILS_MAX);
	message = rail_sample(PL_RAIL_ACCEPT);
	encode_rail(&message, buffer);
	assert_memory_equal(buffer, accept, sizeof(accept));
	message = rail_sample(PL_RAIL_DOWN);
	encode_rail(&message, buffer);
	assert_memory_equal(buffer, down, sizeof(down));
}

/* clang-format on */

static void test_truncated_and_trailing(void **state)
{
	(void)state;
	for (unsigned step = PL_RAIL_CONNECT; step <= PL_RAIL_DOWN; step++) {
		struct pl_control decoded, message = rail_sample(step);
		uint8_t buffer[BUFFER_SIZE] = { 0 };
		const uint8_t *body = encode_rail(&message, buffer);

		for (size_t length = 0; length < BODY_SIZE + 4; length++)
			assert_int_equal(decode_rail(body, length, &decoded), length == BODY_SIZE ? 0 : -EPROTO);
		for (size_t size = 0; size < PL_CONTROL_HEADER + BODY_SIZE; size++)
			assert_int_equal(pl_control_encode(&message, buffer, size), -ENOBUFS);
	}
}

/* All values of a byte: which are good. */
static void expect_values(enum pl_rail_step step, size_t at, unsigned first, unsigned last)
{
	struct pl_control decoded, message = rail_sample(step);
	uint8_t buffer[BUFFER_SIZE], *body = buffer + PL_CONTROL_HEADER;

	encode_rail(&message, buffer);
	for (unsigned value = 0; value < 256; value++) {
		bool good = value >= first && value <= last;

		body[at] = (uint8_t)value;
		if (decode_rail(body, BODY_SIZE, &decoded) != (good ? 0 : -EPROTO))
			fail_msg("step %u, byte %zu, value %u", step, at, value);
	}
}

static void test_bounds(void **state)
{
	(void)state;
	for (unsigned step = PL_RAIL_CONNECT; step <= PL_RAIL_ACCEPT; step++) {
		expect_values(step, QP_AT + 3, 0, 0);
		expect_values(step, PSN_AT + 3, 0, 0);
		expect_values(step, PSN_AT, 0, 255);
		expect_values(step, GID_AT, 0, 255);
		expect_values(step, MTU_AT, 1, 5);
		expect_values(step, MTU_AT + 1, 1, 255);
		expect_values(step, GLOBAL_AT, 0, 1);
		expect_values(step, GLOBAL_AT + 1, 0, 255);
		expect_values(step, GLOBAL_AT + 2, 0, 15);
	}
	/* Three rails. */
	expect_values(PL_RAIL_CONNECT, INDEX_AT, 0, 2);
	expect_values(PL_RAIL_CONNECT, COUNT_AT, 2, PL_RAILS_MAX);
	expect_values(PL_RAIL_CONNECT, COUNT_AT + 1, 0, 255);
	for (unsigned step = PL_RAIL_ACCEPT; step <= PL_RAIL_DOWN; step++) {
		expect_values(step, INDEX_AT, 0, PL_RAILS_MAX - 1);
		for (size_t i = 0; i <= PL_RAILS_MAX; i++)
			expect_values(step, COUNT_AT + i, 0, 0);
	}
	/* A CONNECT has a count and an ACCEPT has none, so that neither can be the other. A DOWN has no queue pair. */
	expect_values(PL_RAIL_CONNECT, STEP_AT, PL_RAIL_CONNECT, PL_RAIL_CONNECT);
	expect_values(PL_RAIL_ACCEPT, STEP_AT, PL_RAIL_ACCEPT, PL_RAIL_ACCEPT);
	expect_values(PL_RAIL_DOWN, STEP_AT, PL_RAIL_DOWN, PL_RAIL_DOWN);
}

/* All bytes of a DOWN behind the generation are zero. */
static void test_down_is_empty(void **state)
{
	(void)state;
	for (size_t at = COUNT_AT; at < BODY_SIZE; at++)
		expect_values(PL_RAIL_DOWN, at, 0, 0);
}

/* A question for rails, or its answer: masks of ports that exist, and of any rails. */
static void test_rails(void **state)
{
	struct pl_control message = { .type = PL_CONTROL_RAILS, .rails = { 0x0fff, 0x0801, 0xff } }, decoded;
	static const uint8_t body[] = { 0xff, 0x0f, 0x01, 0x08, 0xff, 0 };
	uint8_t bytes[BUFFER_SIZE];

	(void)state;
	assert_int_equal(pl_control_encode(&message, bytes, sizeof(bytes)), PL_CONTROL_HEADER + 5);
	assert_memory_equal(bytes + PL_CONTROL_HEADER, body, 5);
	assert_int_equal(control_decode_exact(PL_CONTROL_RAILS, body, 5, &decoded), 0);
	assert_int_equal(decoded.rails.acceptor, 0x0fff);
	assert_int_equal(decoded.rails.initiator, 0x0801);
	assert_int_equal(decoded.rails.rails, 0xff);
	assert_int_equal(control_decode_exact(PL_CONTROL_RAILS, body, 4, &decoded), -EPROTO);
	assert_int_equal(control_decode_exact(PL_CONTROL_RAILS, body, 6, &decoded), -EPROTO);
	message.rails.acceptor = 1 << PL_PORTS_MAX;
	expect_refused(&message);
	message.rails.acceptor = 0;
	message.rails.initiator = 0x8000;
	expect_refused(&message);
}

/* Options of the card (ECE): in a message to an end that knows them, behind the rest. */
static void test_options(void **state)
{
	static const uint8_t options[] = { 0xb3, 0x15, 0, 0, 2, 0, 0, 0x30 };

	(void)state;
	for (unsigned step = PL_RAIL_CONNECT; step <= PL_RAIL_ACCEPT; step++) {
		struct pl_control decoded, message = rail_sample(step);
		uint8_t plain[BUFFER_SIZE], buffer[BUFFER_SIZE] = { 0 }, *body = buffer + PL_CONTROL_HEADER;

		encode_rail(&message, plain);
		message.rail.ece_vendor = 0x15b3;
		message.rail.ece_options = 0x30000002;
		assert_int_equal(pl_control_encode(&message, buffer, BUFFER_SIZE),
				 PL_CONTROL_HEADER + BODY_SIZE + sizeof(options));
		assert_memory_equal(body, plain + PL_CONTROL_HEADER, BODY_SIZE);
		assert_memory_equal(body + BODY_SIZE, options, sizeof(options));
		for (size_t length = BODY_SIZE; length < BODY_SIZE + sizeof(options) + 4; length++)
			assert_int_equal(decode_rail(body, length, &decoded),
					 length == BODY_SIZE || length == BODY_SIZE + sizeof(options) ? 0 : -EPROTO);
		assert_int_equal(decode_rail(body, BODY_SIZE + sizeof(options), &decoded), 0);
		assert_int_equal(decoded.rail.ece_vendor, 0x15b3);
		assert_int_equal(decoded.rail.ece_options, 0x30000002);
		assert_int_equal(decode_rail(body, BODY_SIZE, &decoded), 0);
		assert_int_equal(decoded.rail.ece_vendor | decoded.rail.ece_options, 0);
		memset(body + BODY_SIZE, 0, 4);
		assert_int_equal(decode_rail(body, BODY_SIZE + sizeof(options), &decoded), -EPROTO);
		memset(body + BODY_SIZE, 0, sizeof(options));
		assert_int_equal(decode_rail(body, BODY_SIZE + sizeof(options), &decoded), -EPROTO);
	}
}

static void test_no_queue_pair(void **state)
{
	struct pl_control message = rail_sample(PL_RAIL_ACCEPT);

	(void)state;
	message.rail.qp_number = 0;
	expect_refused(&message);
	message.rail.qp_number = 0xffffff;
	expect_round_trip(&message);
	message.rail.qp_number = 0x1000000;
	expect_refused(&message);
}

static void test_encoder_refuses(void **state)
{
	struct pl_control m;

	(void)state;
	m = rail_sample(PL_RAIL_ACCEPT), m.rail.step = 0, expect_refused(&m);
	m = rail_sample(PL_RAIL_DOWN), m.rail.step = PL_RAIL_DOWN + 1, expect_refused(&m);
	m = rail_sample(PL_RAIL_DOWN), m.rail.index = PL_RAILS_MAX, expect_refused(&m);
	m = rail_sample(PL_RAIL_CONNECT), m.rail.index = 3, expect_refused(&m);
	m = rail_sample(PL_RAIL_CONNECT), m.rail.count = 0, m.rail.index = 0, expect_refused(&m);
	m = rail_sample(PL_RAIL_CONNECT), m.rail.count = PL_RAILS_MAX + 1, expect_refused(&m);
	m = rail_sample(PL_RAIL_ACCEPT), m.rail.count = 2, expect_refused(&m);
	m = rail_sample(PL_RAIL_ACCEPT), m.rail.ports[PL_RAILS_MAX - 1] = 1, expect_refused(&m);
	m = rail_sample(PL_RAIL_ACCEPT), m.rail.psn = 1 << 24, expect_refused(&m);
	m = rail_sample(PL_RAIL_ACCEPT), m.rail.mtu = 0, expect_refused(&m);
	m = rail_sample(PL_RAIL_ACCEPT), m.rail.mtu = 6, expect_refused(&m);
	m = rail_sample(PL_RAIL_ACCEPT), m.rail.reads = 0, expect_refused(&m);
	m = rail_sample(PL_RAIL_DOWN), m.rail.qp_number = 1, expect_refused(&m);
	m = rail_sample(PL_RAIL_DOWN), m.rail.mtu = 1, expect_refused(&m);
	m = rail_sample(PL_RAIL_DOWN), m.rail.reads = 1, expect_refused(&m);
	m = rail_sample(PL_RAIL_DOWN), m.rail.psn = 1, expect_refused(&m);
	m = rail_sample(PL_RAIL_DOWN), m.rail.lid = 1, expect_refused(&m);
	m = rail_sample(PL_RAIL_DOWN), m.rail.renewals = 1, expect_refused(&m);
	m = rail_sample(PL_RAIL_DOWN), m.rail.gid[15] = 1, expect_refused(&m);
	m = rail_sample(PL_RAIL_DOWN), m.rail.global = true, expect_refused(&m);
	m = rail_sample(PL_RAIL_DOWN), m.rail.traffic_class = 1, expect_refused(&m);
	m = rail_sample(PL_RAIL_DOWN), m.rail.service_level = 1, expect_refused(&m);
	m = rail_sample(PL_RAIL_DOWN), m.rail.ece_vendor = 1, expect_refused(&m);
	m = rail_sample(PL_RAIL_DOWN), m.rail.ece_options = 1, expect_refused(&m);
	m = rail_sample(PL_RAIL_ACCEPT), m.rail.ece_options = 1, expect_refused(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trips),
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_truncated_and_trailing),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_down_is_empty),
		cmocka_unit_test(test_rails),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_no_queue_pair),
		cmocka_unit_test(test_encoder_refuses),
	};

	return cmocka_run_group_tests_name("wire rail", tests, NULL, NULL);
}
