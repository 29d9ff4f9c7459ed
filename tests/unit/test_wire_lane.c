/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/wire.h"

static void test_lane_hello(void **state)
{
	static const uint8_t golden[PL_LANE_HELLO] = {
		'P',  'L',  'L',  '2',  2,    0,    2,    3,    8,    7,    6,    5,    4,    3,    2,    1,
		0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b, 0x4c, 0x4d, 0x4e, 0x4f,
	};
	struct pl_lane_hello decoded, hello = { .version = 2, .lane = 0x302, .peer_index = 0x0102030405060708 };
	uint8_t buffer[PL_LANE_HELLO];

	(void)state;
	for (unsigned i = 0; i < sizeof(hello.nonce); i++)
		hello.nonce[i] = (uint8_t)(0x40 + i);
	memset(buffer, 0xee, sizeof(buffer));
	pl_lane_hello_encode(&hello, buffer);
	assert_memory_equal(buffer, golden, sizeof(golden));
	assert_int_equal(pl_lane_hello_decode(buffer, &decoded), 0);
	assert_int_equal(decoded.version, hello.version);
	assert_int_equal(decoded.lane, hello.lane);
	assert_true(decoded.peer_index == hello.peer_index);
	assert_memory_equal(decoded.nonce, hello.nonce, sizeof(hello.nonce));
	for (size_t bit = 0; bit < 8 * PL_LANE_HELLO; bit++) {
		bool fixed = bit / 8 < 4 || bit / 8 >= 32;

		buffer[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(pl_lane_hello_decode(buffer, &decoded), fixed ? -EPROTO : 0);
		buffer[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void test_lane_welcome(void **state)
{
	static const uint8_t golden[PL_LANE_WELCOME] = { 'P', 'L', 'L', '2', 4, 3, 2, 1 };
	uint8_t buffer[PL_LANE_WELCOME];
	uint32_t status;

	(void)state;
	pl_lane_welcome_encode(0x01020304, buffer);
	assert_memory_equal(buffer, golden, sizeof(golden));
	assert_int_equal(pl_lane_welcome_decode(buffer, &status), 0);
	assert_int_equal(status, 0x01020304);
	for (size_t i = 0; i < 4; i++) {
		buffer[i] ^= 1;
		assert_int_equal(pl_lane_welcome_decode(buffer, &status), -EPROTO);
		buffer[i] ^= 1;
	}
}

static void test_lane_challenge(void **state)
{
	struct pl_lane_challenge decoded, challenge = { .status = 0x01020304 };
	uint8_t buffer[PL_LANE_CHALLENGE];

	(void)state;
	for (unsigned i = 0; i < PL_NONCE; i++) {
		challenge.nonce[i] = (uint8_t)(0x40 + i);
		challenge.tag[i] = (uint8_t)(0x60 + i);
	}
	pl_lane_challenge_encode(&challenge, buffer);
	assert_memory_equal(buffer, "PLL2\4\3\2\1", 8);
	for (unsigned i = 0; i < PL_NONCE + PL_TAG; i++)
		assert_int_equal(buffer[8 + i], (i < PL_NONCE ? 0x40 : 0x50) + i);
	assert_int_equal(pl_lane_challenge_decode(buffer, &decoded), 0);
	assert_memory_equal(&decoded, &challenge, sizeof(decoded));
	for (size_t bit = 0; bit < 8 * PL_LANE_CHALLENGE; bit++) {
		buffer[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(pl_lane_challenge_decode(buffer, &decoded), bit < 32 ? -EPROTO : 0);
		buffer[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lane_hello),
		cmocka_unit_test(test_lane_challenge),
		cmocka_unit_test(test_lane_welcome),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
