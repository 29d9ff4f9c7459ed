/* SPDX-License-Identifier: BSD-2-Clause */
/* The pattern of test frames: each byte counts, and each frame has its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* The command is not part of the library, so its source is included. */
#include "cmd/stream/pattern.c"

#define LENGTH (PATTERN_BLOCK * 8 * 2 + 21)

static void test_each_byte_counts(void **state)
{
	static const uint64_t lengths[] = { 0, 1, 7, 8, 9, PATTERN_BLOCK * 8, LENGTH };
	uint8_t *frame = malloc(LENGTH + 1);

	(void)state;
	assert_non_null(frame);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint64_t length = lengths[i];

		frame[length] = 0x5a;
		pattern_fill(frame, length, 77);
		assert_int_equal(frame[length], 0x5a);
		assert_true(pattern_check(frame, length, 77) == UINT64_MAX);
		for (uint64_t at = 0; at < length; at++) {
			frame[at] ^= 1;
			assert_int_equal(pattern_check(frame, length, 77), at / 8 * 8);
			frame[at] ^= 1;
		}
	}
	free(frame);
}

static void test_each_frame_has_its_own(void **state)
{
	uint64_t frame[4];

	(void)state;
	pattern_fill(frame, sizeof(frame), 1000);
	for (uint64_t sequence = 0; sequence < 2000; sequence++)
		assert_int_equal(pattern_check(frame, sizeof(frame), sequence) == UINT64_MAX, sequence == 1000);
	/* A frame whose second half is of the next sequence. */
	pattern_fill(frame + 2, 16, 1001);
	assert_int_equal(pattern_check(frame, sizeof(frame), 1000), 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_byte_counts),
		cmocka_unit_test(test_each_frame_has_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
