/* SPDX-License-Identifier: BSD-2-Clause */
/* Blobs of regions: golden head, and each requirement of the decoder with a checksum that fits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "wire/wire.h"

#define COUNT_AT 8

/* Returns the size of a new blob in `buffer`, of `count` tokens. */
static size_t encode_blob(uint8_t *buffer, size_t count)
{
	uint8_t token[PL_TOKEN_SIZE];
	struct pl_blob_writer blob;

	pl_blob_begin(&blob, buffer, count);
	for (size_t i = 0; i < count; i++) {
		memset(token, (int)(i + 1), sizeof(token));
		pl_blob_add(&blob, 0x1000 * i, token);
	}
	return pl_blob_end(&blob);
}

/* Writes a 32-bit value in the order of the wire. */
static void store_le32(uint8_t *at, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

/* Makes the checksum fit to changed bytes, and decodes the blob from an allocation of its exact size. */
static int decode_signed(const uint8_t *buffer, size_t length)
{
	uint8_t *exact = malloc(length);
	int rc;

	assert_non_null(exact);
	memcpy(exact, buffer, length);
	store_le32(exact + length - 4, XXH32(exact, length - 4, 0));
	rc = pl_blob_decode(exact, length);
	free(exact);
	return rc;
}

static void test_blob_content(void **state)
{
	static const uint8_t head[] = { 'P', 'L', 'S', '1', 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0 };
	uint8_t buffer[PL_REGIONS_BLOB_SIZE(3)];

	(void)state;
	assert_int_equal(encode_blob(buffer, 3), sizeof(buffer));
	assert_memory_equal(buffer, head, sizeof(head));
	assert_int_equal(pl_blob_decode(buffer, sizeof(buffer)), 3);
	assert_true(pl_blob_address(buffer, 2) == 0x2000);
	assert_int_equal(pl_blob_token(buffer, 2)[PL_TOKEN_SIZE - 1], 3);
}

/* Checks that a changed bit is refused without and, in the head, also with a checksum that fits. */
static void test_blob_changed(void **state)
{
	uint8_t buffer[PL_REGIONS_BLOB_SIZE(3)];

	(void)state;
	encode_blob(buffer, 3);
	for (size_t bit = 0; bit < 8 * sizeof(buffer); bit++) {
		buffer[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(pl_blob_decode(buffer, sizeof(buffer)), bit < 8 * 16 ? -EPROTO : -EBADMSG);
		if (bit < 8 * sizeof(buffer) - 32)
			assert_int_equal(decode_signed(buffer, sizeof(buffer)), bit < 8 * 16 ? -EPROTO : 3);
		buffer[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void test_blob_sizes(void **state)
{
	size_t size = PL_REGIONS_BLOB_SIZE(PL_REGIONS_MAX + 1);
	uint8_t *buffer = calloc(1, size);

	(void)state;
	assert_non_null(buffer);
	encode_blob(buffer, 3);
	for (size_t length = 4; length < PL_REGIONS_BLOB_SIZE(4); length++)
		assert_int_equal(decode_signed(buffer, length), length == PL_REGIONS_BLOB_SIZE(3) ? 3 : -EPROTO);
	store_le32(buffer + COUNT_AT, 0);
	assert_int_equal(decode_signed(buffer, PL_REGIONS_BLOB_SIZE(0)), -EPROTO);
	store_le32(buffer + COUNT_AT, PL_REGIONS_MAX);
	assert_int_equal(decode_signed(buffer, PL_REGIONS_BLOB_SIZE(PL_REGIONS_MAX)), PL_REGIONS_MAX);
	store_le32(buffer + COUNT_AT, PL_REGIONS_MAX + 1);
	assert_int_equal(decode_signed(buffer, size), -EPROTO);
	free(buffer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blob_content),
		cmocka_unit_test(test_blob_changed),
		cmocka_unit_test(test_blob_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
