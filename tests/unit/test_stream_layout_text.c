/* SPDX-License-Identifier: BSD-2-Clause */
/* Layouts of frames as text: types, shapes, their limits, and the way back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* The command is not part of the library, so its source is included. */
#include "cmd/stream/layout_text.c"

static void test_types_and_back(void **state)
{
	static const struct {
		const char *text;
		uint8_t code, bits;
		uint16_t lanes;
	} cases[] = {
		{ "u8", PL_ELEMENT_UINT, 8, 1 },        { "u12", PL_ELEMENT_UINT, 12, 1 },
		{ "i64", PL_ELEMENT_INT, 64, 1 },       { "f16", PL_ELEMENT_FLOAT, 16, 1 },
		{ "f64x2", PL_ELEMENT_FLOAT, 64, 2 },   { "bf16", PL_ELEMENT_BFLOAT, 16, 1 },
		{ "c128", PL_ELEMENT_COMPLEX, 128, 1 }, { "bool", PL_ELEMENT_BOOL, 8, 1 },
		{ "boolx4", PL_ELEMENT_BOOL, 8, 4 },    { "u8x65535", PL_ELEMENT_UINT, 8, 65535 },
	};

	(void)state;
	for (size_t i = 0; i < CLI_ARRAY_SIZE(cases); i++) {
		struct pl_layout layout = { 0 };
		char text[STREAM_DTYPE_MAX];

		assert_int_equal(stream_dtype_parse(cases[i].text, &layout), 0);
		assert_int_equal(layout.code, cases[i].code);
		assert_int_equal(layout.bits, cases[i].bits);
		assert_int_equal(layout.lanes, cases[i].lanes);
		assert_string_equal(stream_dtype_format(text, &layout), cases[i].text);
	}
}

static void test_wrong_types(void **state)
{
	static const char *const texts[] = { "",
					     "u",
					     "16",
					     "u0",
					     "u65",
					     "f7",
					     "bf32",
					     "c16",
					     "uint16",
					     "u16x",
					     "u16x0",
					     "u16x-1",
					     "U16",
					     "u 16",
					     "u16 ",
					     "u16x65536",
					     "bool8",
					     "f256",
					     "u99999999999999999999" };

	(void)state;
	for (size_t i = 0; i < CLI_ARRAY_SIZE(texts); i++) {
		struct pl_layout layout = { 0 };

		assert_int_equal(stream_dtype_parse(texts[i], &layout), -EINVAL);
	}
}

static void test_shapes_and_back(void **state)
{
	static const char *const right[] = { "scalar", "1", "2048x2048", "18446744073709551615", "1x2x3x4x5x6x7x8" };
	static const char *const wrong[] = { "",
					     "x",
					     "2x",
					     "x2",
					     "2xx2",
					     "0",
					     "2x0",
					     "-1",
					     "+1",
					     " 1",
					     "2X2",
					     "2*2",
					     "1x1x1x1x1x1x1x1x1",
					     "18446744073709551616",
					     "2x2 ",
					     "scalarx2" };
	char text[STREAM_SHAPE_MAX];
	struct pl_layout layout = { .bits = 8, .lanes = 1, .code = PL_ELEMENT_UINT };

	(void)state;
	for (size_t i = 0; i < CLI_ARRAY_SIZE(right); i++) {
		assert_int_equal(stream_shape_parse(right[i], &layout), 0);
		assert_string_equal(stream_shape_format(text, &layout), right[i]);
	}
	assert_int_equal(layout.dimensions, 8);
	for (size_t i = 0; i < CLI_ARRAY_SIZE(wrong); i++)
		assert_int_equal(stream_shape_parse(wrong[i], &layout), -EINVAL);
}

static void test_layouts(void **state)
{
	struct pl_layout layout;
	char text[STREAM_SHAPE_MAX];

	(void)state;
	assert_int_equal(stream_layout_parse("u16", "2048x2048", &layout), 0);
	assert_int_equal(pl_layout_bytes(&layout), 2048 * 2048 * 2);
	assert_true(pl_layout_valid(&layout));
	assert_int_equal(stream_layout_parse("u8", "1099511627776", &layout), 0);
	assert_int_equal(stream_layout_parse("u8", "1099511627777", &layout), -E2BIG);
	assert_int_equal(stream_layout_parse("u8", "4294967296x4294967296", &layout), -E2BIG);
	assert_int_equal(stream_layout_parse("u8", "nine", &layout), -EINVAL);
	assert_int_equal(stream_layout_parse("nine", "9", &layout), -EINVAL);
	/* The longest texts fit their buffers. */
	layout = (struct pl_layout){ .code = PL_ELEMENT_BOOL, .bits = 255, .lanes = 65535, .dimensions = 8 };
	for (int i = 0; i < 8; i++)
		layout.shape[i] = UINT64_MAX;
	assert_int_equal(strlen(stream_shape_format(text, &layout)), 8 * 20 + 7);
	assert_string_equal(stream_dtype_format(text, &layout), "bool255x65535");
	layout = (struct pl_layout){ 0 };
	assert_string_equal(stream_dtype_format(text, &layout), "-");
	assert_string_equal(stream_shape_format(text, &layout), "-");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_types_and_back),
		cmocka_unit_test(test_wrong_types),
		cmocka_unit_test(test_shapes_and_back),
		cmocka_unit_test(test_layouts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
