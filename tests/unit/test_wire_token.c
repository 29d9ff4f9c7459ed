/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "wire/wire.h"

static struct pl_token sample_token(void)
{
	struct pl_token token = { .rights = PL_ACCESS_READ | PL_ACCESS_ATOMIC,
				  .grant = 0x0102030405060708,
				  .length = 0x1112131415161718,
				  .expires = 0x2122232425262728 };

	for (unsigned i = 0; i < 16; i++) {
		token.context_id[i] = (uint8_t)(0x40 + i);
		token.secret[i] = (uint8_t)(0x50 + i);
	}
	return token;
}

/* Corrects the checksum after a change of the bytes before it. */
static void token_seal(uint8_t *buffer)
{
	uint32_t sum = htole32(XXH32(buffer, PL_TOKEN_SIZE - 4, 0));

	memcpy(buffer + PL_TOKEN_SIZE - 4, &sum, 4);
}

static void test_golden(void **state)
{
	static const uint8_t golden[PL_TOKEN_SIZE] = {
		'P',  'L',  'T',  '1',  1,    5,    0,    0,    0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
		0x49, 0x4a, 0x4b, 0x4c, 0x4d, 0x4e, 0x4f, 8,    7,    6,    5,    4,    3,    2,    1,    0x50, 0x51,
		0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d, 0x5e, 0x5f, 0x18, 0x17, 0x16,
		0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0xb7, 0x6e, 0xba, 0xf4,
	};
	struct pl_token decoded, token = sample_token();
	uint8_t buffer[PL_TOKEN_SIZE];

	(void)state;
	memset(buffer, 0xee, sizeof(buffer));
	pl_token_encode(&token, buffer);
	assert_memory_equal(buffer, golden, sizeof(golden));
	assert_int_equal(pl_token_decode(buffer, sizeof(buffer), &decoded), 0);
	assert_int_equal(decoded.rights, token.rights);
	assert_memory_equal(decoded.context_id, token.context_id, 16);
	assert_true(decoded.grant == token.grant);
	assert_memory_equal(decoded.secret, token.secret, 16);
	assert_true(decoded.length == token.length);
	assert_true(decoded.expires == token.expires);
}

static void test_every_bit_counts(void **state)
{
	struct pl_token decoded, token = sample_token();
	uint8_t buffer[PL_TOKEN_SIZE];

	(void)state;
	pl_token_encode(&token, buffer);
	for (size_t bit = 0; bit < 8 * PL_TOKEN_SIZE; bit++) {
		int expected = bit / 8 < 5 ? -EPROTO : -EBADMSG; /* magic and version are checked first */

		buffer[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(pl_token_decode(buffer, sizeof(buffer), &decoded), expected);
		buffer[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(pl_token_decode(buffer, sizeof(buffer), &decoded), 0);
}

static void test_lengths(void **state)
{
	struct pl_token decoded, token = sample_token();
	uint8_t buffer[PL_TOKEN_SIZE];

	(void)state;
	pl_token_encode(&token, buffer);
	for (size_t length = 0; length <= 2 * PL_TOKEN_SIZE; length++) {
		uint8_t *exact = calloc(1, length ? length : 1);

		assert_non_null(exact);
		memcpy(exact, buffer, PL_MIN(length, sizeof(buffer)));
		assert_int_equal(pl_token_decode(exact, length, &decoded), length == PL_TOKEN_SIZE ? 0 : -EPROTO);
		free(exact);
	}
	assert_int_equal(pl_token_decode(NULL, 0, &decoded), -EPROTO);
}

/* Checks that a token with wrong contents and a right checksum is refused. */
static void test_sealed_nonsense(void **state)
{
	struct pl_token decoded, token = sample_token();
	uint8_t buffer[PL_TOKEN_SIZE];

	(void)state;
	for (unsigned bit = 0; bit < 16; bit++) {
		pl_token_encode(&token, buffer);
		buffer[6 + bit / 8] ^= (uint8_t)(1 << bit % 8);
		token_seal(buffer);
		assert_int_equal(pl_token_decode(buffer, sizeof(buffer), &decoded), -EPROTO);
	}
	pl_token_encode(&token, buffer);
	buffer[4] = 2;
	token_seal(buffer);
	assert_int_equal(pl_token_decode(buffer, sizeof(buffer), &decoded), -EPROTO);
	token.rights = PL_ACCESS_ALL + 1;
	pl_token_encode(&token, buffer);
	assert_int_equal(pl_token_decode(buffer, sizeof(buffer), &decoded), -EPROTO);
}

/* A token of a stream has neither rights nor a length. Earlier releases refuse its kind, as test_sealed_nonsense() does. */
static void test_stream_token(void **state)
{
	struct pl_token decoded, token = sample_token();
	uint8_t buffer[PL_TOKEN_SIZE];

	(void)state;
	token.kind = PL_TOKEN_STREAM;
	pl_token_encode(&token, buffer);
	assert_int_equal(pl_token_decode(buffer, sizeof(buffer), &decoded), -EPROTO);
	token.rights = 0;
	pl_token_encode(&token, buffer);
	assert_int_equal(pl_token_decode(buffer, sizeof(buffer), &decoded), -EPROTO);
	token.length = 0;
	pl_token_encode(&token, buffer);
	assert_int_equal(buffer[5], 0);
	assert_int_equal(buffer[6], 1);
	assert_int_equal(buffer[7], 0);
	assert_int_equal(pl_token_decode(buffer, sizeof(buffer), &decoded), 0);
	assert_int_equal(decoded.kind, PL_TOKEN_STREAM);
	assert_true(decoded.grant == token.grant && decoded.expires == token.expires);
	assert_memory_equal(decoded.secret, token.secret, 16);
	token.kind = PL_TOKEN_KIND_END;
	pl_token_encode(&token, buffer);
	assert_int_equal(pl_token_decode(buffer, sizeof(buffer), &decoded), -EPROTO);
}

static void test_blob(void **state)
{
	static const uint8_t header[16] = { 'P', 'L', 'S', '1', 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0 };
	uint8_t tokens[2][PL_TOKEN_SIZE], blob[PL_REGIONS_BLOB_SIZE(2)];
	struct pl_token token = sample_token();
	struct pl_blob_writer writer;

	(void)state;
	pl_blob_begin(&writer, blob, 2);
	for (unsigned i = 0; i < 2; i++) {
		token.grant = i;
		pl_token_encode(&token, tokens[i]);
		pl_blob_add(&writer, 0x0102030405060708 + i, tokens[i]);
	}
	assert_int_equal(pl_blob_end(&writer), sizeof(blob));
	assert_memory_equal(blob, header, sizeof(header));
	assert_int_equal(blob[16], 8);
	assert_int_equal(blob[23], 1);
	assert_int_equal(pl_blob_decode(blob, sizeof(blob)), 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(pl_blob_address(blob, i) == UINT64_C(0x0102030405060708) + i);
		assert_memory_equal(pl_blob_token(blob, i), tokens[i], PL_TOKEN_SIZE);
	}
	for (size_t length = 0; length < sizeof(blob); length++)
		assert_int_equal(pl_blob_decode(blob, length), -EPROTO);
	for (size_t bit = 0; bit < 8 * sizeof(blob); bit++) {
		blob[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(pl_blob_decode(blob, sizeof(blob)), bit / 8 < 16 ? -EPROTO : -EBADMSG);
		blob[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),  cmocka_unit_test(test_every_bit_counts),
		cmocka_unit_test(test_lengths), cmocka_unit_test(test_sealed_nonsense),
		cmocka_unit_test(test_blob),    cmocka_unit_test(test_stream_token),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
