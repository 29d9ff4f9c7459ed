/* SPDX-License-Identifier: BSD-2-Clause */
/* Headers of .npy files: which ones describe an array, and what of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cmd/stream/npy.h"

#define PREAMBLE 10u

/* Two pages, of which the second cannot be read: headers end there, so a parser that reads on crashes. */
static uint8_t *end_of_bytes;

static int open_bytes(void **state)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *bytes = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	if (bytes == MAP_FAILED || mprotect(bytes + page, page, PROT_NONE) < 0)
		return -1;
	end_of_bytes = bytes + page;
	return 0;
}

/* Parses a header of version 1.0 with this text. */
static int parse_header(const char *text, struct npy_header *header, struct pl_error *error)
{
	const size_t length = strlen(text);
	uint8_t *bytes = end_of_bytes - length - PREAMBLE;

	memcpy(bytes, "\x93NUMPY\x01\0", 8);
	bytes[8] = (uint8_t)(length & 0xff);
	bytes[9] = (uint8_t)(length >> 8);
	memcpy(bytes + PREAMBLE, text, length);
	return npy_parse(bytes, PREAMBLE + length, "array.npy", header, error);
}

/* Parses a header. An error has the id and printable text, which contains `reason`. */
static int parse_text(const char *text, const char *reason)
{
	struct pl_error error = { 0 };
	struct npy_header header;
	int rc = parse_header(text, &header, &error);

	if (rc == 0)
		return 0;
	assert_int_equal(rc, -EINVAL);
	assert_string_equal(error.id, "NPY-HEADER");
	assert_non_null(strstr(error.message, reason));
	for (const char *at = error.message; *at; at++)
		assert_true(isprint((unsigned char)*at));
	return rc;
}

static int parse(const char *text)
{
	return parse_text(text, "");
}

/* Returns 0 or an error for an array of elements of this type. */
static int parse_descr(const char *descr)
{
	char text[200];

	snprintf(text, sizeof(text), "{'descr': %s, 'fortran_order': False, 'shape': (2,)}", descr);
	return parse_text(text, "the elements");
}

static int parse_shape(const char *shape)
{
	char text[300];

	snprintf(text, sizeof(text), "{'descr': '<u2', 'fortran_order': False, 'shape': %s}", shape);
	return parse(text);
}

static void test_right(void **state)
{
	static const char *const texts[] = {
		"{'descr': '<u2', 'fortran_order': False, 'shape': (2, 3), }   \n",
		"{\"descr\":\"<u2\",\"fortran_order\":False,\"shape\":(2L,3L)}",
		"\t{ 'shape' :\r( 2 ,\t3 , ) ,\n'fortran_order' : False , 'descr' : '<u2' , } \t\r\n",
	};
	struct npy_header header;
	struct pl_error error;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		assert_int_equal(parse_header(texts[i], &header, &error), 0);
		assert_int_equal(header.bytes, 12);
		assert_int_equal(header.offset, PREAMBLE + strlen(texts[i]));
		assert_int_equal(header.layout.bits, 16);
		assert_int_equal(header.layout.lanes, 1);
		assert_int_equal(header.layout.dimensions, 2);
		assert_int_equal(header.layout.shape[0], 2);
		assert_int_equal(header.layout.shape[1], 3);
	}
}

static void test_dicts(void **state)
{
	static const char *const texts[] = {
		"",
		"{",
		"'descr': '<u2', 'fortran_order': False, 'shape': (2,)}",
		"{'descr': '<u2', 'fortran_order': False, 'shape': (2,)",
		"{'descr': '<u2', 'fortran_order': False, 'shape': (2,)} x",
		"{'descr': '<u2', 'fortran_order': False, 'shape': (2,) 'more'",
		"{'descr': '<u2' 'fortran_order': False, 'shape': (2,)}",
		"{'descr' '<u2', 'fortran_order': False, 'shape': (2,)}",
		"{descr: '<u2', 'fortran_order': False, 'shape': (2,)}",
		"{'descr': '<u2', 'fortran_order': False, 'shape'; (2,)}",
		"{'fortran_order': False, 'shape': (2,)}",
		"{'descr': '<u2', 'fortran_order': False, 'other': (2,)}",
		"{'descr': '<u2'x, 'fortran_order': False, 'shape': (2,)}",
		"{'descr': x<u2x, 'fortran_order': False, 'shape': (2,)}",
		"{'descr': '<u2', 'shape': (2,)}",
		"{'descr': '<u2', 'fortran_order': False}",
		"{'descr': '<u2', 'descr': '<u2', 'fortran_order': False, 'shape': (2,)}",
		"{'descr': '<u2', 'fortran_order': False, 'fortran_order': False, 'shape': (2,)}",
		"{'descr': '<u2', 'fortran_order': False, 'shape': (2,), 'shape': (2,)}",
		"{'descr': '<u2', 'fortran_order': False, 'shape': (2,), 'other': (2,)}",
		"{'descr': '<u2', 'fortran_order': True, 'shape': (2,)}",
		"{'descr': '<u2', 'fortran_order': Falsy, 'shape': (2,)}",
		"{'descr': '<u2', 'fortran_order': 0, 'shape': (2,)}",
		"{'descr': '<u2', 'fortran_order': Fal",
		"{'descr",
		"{'a name that is too long': 1}",
		"{'desc\\x72': '<u2', 'fortran_order': False, 'shape': (2,)}",
		"{'descr\x01': '<u2', 'fortran_order': False, 'shape': (2,)}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		assert_int_equal(parse(texts[i]), -EINVAL);
}

/* Each beginning of a right header. */
static void test_cuts(void **state)
{
	char text[] = "{ 'descr' : '<u2' , 'fortran_order' : False , 'shape' : ( 2L , 3 ) }";

	(void)state;
	for (size_t length = sizeof(text) - 1; length; length--) {
		assert_int_equal(parse(text), length == sizeof(text) - 1 ? 0 : -EINVAL);
		text[length - 1] = '\0';
	}
}

static void test_reasons(void **state)
{
	(void)state;
	assert_int_equal(parse_text("{'fortran_order': False, 'shape': (2,)}", "lacks a member"), -EINVAL);
	assert_int_equal(parse_text("{'desc\\x72': '<u2'}", "no dict"), -EINVAL);
	assert_int_equal(parse_text("{'desc\x1b': '<u2'}", "no dict"), -EINVAL);
	assert_int_equal(parse_text("{'sixteen letters.': '<u2'}", "no dict"), -EINVAL);
	assert_int_equal(parse_text("{'descr': '<u0'}", "is no number"), -EINVAL);
	assert_int_equal(parse_text("{'descr': '<u16'}", "is not supported"), -EINVAL);
	assert_int_equal(parse_text("{'descr': '<u17'}", "is no number"), -EINVAL);
}

static void test_types(void **state)
{
	static const char *const right[] = { "'|b1'", "'|u1'", "'>u1'", "'<i8'", "'=f4'", "'<c16'", "\"<f8\"" };
	static const char *const wrong[] = { "'>u2'",
					     "'u2'",
					     "'<u'",
					     "'<u0'",
					     "'<u3'",
					     "'<u17'",
					     "'<u2x'",
					     "'<x2'",
					     "'<b2'",
					     "'*u2'",
					     "'<u-2'",
					     "''",
					     "<u2",
					     "'<O8'",
					     "[('a', '<u2')]",
					     "'<u18446744073709551618'",
					     "'<u18446744073709551617'",
					     "'<u264'" };

	(void)state;
	for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++)
		assert_int_equal(parse_descr(right[i]), 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(parse_descr(wrong[i]), -EINVAL);
}

static void test_shapes(void **state)
{
	static const char *const right[] = { "()", "(1)", "(1,)", "(1, 2, 3, 4, 5, 6, 7, 8)",
					     "(1152921504606846975,)" };
	static const char *const wrong[] = { "2",
					     "(2",
					     "(2 3)",
					     "(2;)",
					     "(,)",
					     "(-1,)",
					     "(0,)",
					     "(1, 2, 3, 4, 5, 6, 7, 8, 9)",
					     "(1152921504606846976,)",
					     "(18446744073709551616,)",
					     "(18446744073709551617,)",
					     "(184467440737095516150,)",
					     "(4294967296, 4294967296)" };

	(void)state;
	for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++)
		assert_int_equal(parse_shape(right[i]), 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(parse_shape(wrong[i]), -EINVAL);
}

/* -- preamble ------------------------------------------------------------------------------------- */

/* Returns the length that a preamble tells, or an error. */
static int length_of(uint8_t major, uint8_t minor, uint32_t length)
{
	uint8_t bytes[12] = "\x93NUMPY";
	struct pl_error error;

	bytes[6] = major;
	bytes[7] = minor;
	for (unsigned i = 0; i < 4; i++)
		bytes[8 + i] = (uint8_t)(length >> 8 * i);
	return npy_header_length(bytes, "array.npy", &error);
}

static void test_preamble(void **state)
{
	uint8_t bytes[] = "\x93NUMPX\x01\0\x10\0  ";
	struct npy_header header;
	struct pl_error error;

	(void)state;
	assert_int_equal(npy_header_length(bytes, "array.npy", &error), -EINVAL);
	assert_int_equal(length_of(1, 0, 100), 110);
	assert_int_equal(length_of(2, 0, 100), 112);
	assert_int_equal(length_of(3, 0, 0x1234), 0x1234 + 12);
	assert_int_equal(length_of(0, 0, 100), -EINVAL);
	assert_int_equal(length_of(4, 0, 100), -EINVAL);
	assert_int_equal(length_of(1, 1, 100), -EINVAL);
	assert_int_equal(length_of(1, 0, 2), 12);
	assert_int_equal(length_of(1, 0, 1), -EINVAL);
	assert_int_equal(length_of(2, 0, NPY_HEADER_MAX - 12), NPY_HEADER_MAX);
	assert_int_equal(length_of(2, 0, NPY_HEADER_MAX - 11), -EINVAL);
	assert_int_equal(length_of(2, 0, 1u << 16), -EINVAL);
	assert_int_equal(length_of(3, 0, 1u << 24), -EINVAL);
	/* A file that ends within its preamble. */
	bytes[5] = 'Y';
	assert_int_equal(npy_parse(bytes, 11, "array.npy", &header, &error), -EINVAL);
	assert_non_null(strstr(error.message, "ends within its header"));
	bytes[5] = 'X';
	assert_int_equal(npy_parse(bytes, 12, "array.npy", &header, &error), -EINVAL);
	assert_non_null(strstr(error.message, "does not begin"));
}

/* -- written headers ------------------------------------------------------------------------------ */

/* Lanes are the last dimension. */
static void test_written(void **state)
{
	const struct pl_layout frame = { PL_ELEMENT_UINT, 16, 3, 2, { 4, 5 } },
			       one = { PL_ELEMENT_FLOAT, 32, 1, 1, { 4 } };
	char bytes[NPY_HEADER_WRITTEN];
	struct npy_header header;
	struct pl_error error;

	(void)state;
	assert_int_equal(npy_format(&frame, 7, bytes, &error), 0);
	assert_int_equal(npy_parse((uint8_t *)bytes, sizeof(bytes), "array.npy", &header, &error), 0);
	assert_int_equal(header.layout.dimensions, 4);
	assert_memory_equal(header.layout.shape, ((const uint64_t[]){ 7, 4, 5, 3 }), 4 * sizeof(uint64_t));
	assert_int_equal(header.layout.code, PL_ELEMENT_UINT);
	assert_int_equal(header.layout.bits, 16);
	assert_int_equal(npy_format(&one, 7, bytes, &error), 0);
	assert_int_equal(npy_parse((uint8_t *)bytes, sizeof(bytes), "array.npy", &header, &error), 0);
	assert_int_equal(header.layout.dimensions, 2);
	assert_int_equal(header.layout.code, PL_ELEMENT_FLOAT);
}

/* The bytes of a header, which end as in a file of NumPy. */
static void test_written_bytes(void **state)
{
	static const char begin[] = "\x93NUMPY\x01\0\x76\x01"
				    "{'descr': '|u1', 'fortran_order': False, 'shape': (7, 4,), } ";
	const struct pl_layout frame = { PL_ELEMENT_UINT, 8, 1, 1, { 4 } };
	char bytes[NPY_HEADER_WRITTEN];
	struct pl_error error;

	(void)state;
	assert_int_equal(npy_format(&frame, 7, bytes, &error), 0);
	assert_memory_equal(bytes, begin, sizeof(begin) - 1);
	for (size_t i = sizeof(begin) - 1; i < sizeof(bytes) - 1; i++)
		assert_int_equal(bytes[i], ' ');
	assert_int_equal(bytes[sizeof(bytes) - 1], '\n');
}

static void test_unwritten(void **state)
{
	static const struct pl_layout layouts[] = {
		{ 0 },
		{ PL_ELEMENT_UINT, 24, 1, 1, { 4 } },
		{ PL_ELEMENT_UINT, 12, 1, 1, { 4 } },
		{ PL_ELEMENT_FLOAT, 8, 1, 1, { 4 } },
		{ PL_ELEMENT_BOOL, 16, 1, 1, { 4 } },
	};
	char bytes[NPY_HEADER_WRITTEN];
	struct pl_error error;

	(void)state;
	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
		assert_int_equal(npy_format(&layouts[i], 7, bytes, &error), -ENOTSUP);
		assert_non_null(strstr(error.message, i ? "NumPy has no type" : "no type and shape"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right),         cmocka_unit_test(test_dicts),   cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_reasons),       cmocka_unit_test(test_written), cmocka_unit_test(test_unwritten),
		cmocka_unit_test(test_types),         cmocka_unit_test(test_shapes),  cmocka_unit_test(test_preamble),
		cmocka_unit_test(test_written_bytes),
	};

	return cmocka_run_group_tests_name("npy", tests, open_bytes, NULL);
}
