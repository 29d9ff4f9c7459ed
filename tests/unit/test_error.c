/* SPDX-License-Identifier: BSD-2-Clause */
/* Texts of errors: what is kept of those that do not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/base.h"

#define OBJECT_SIZE sizeof(((struct pl_error *)0)->object)

static struct pl_error error_about(const char *object)
{
	struct pl_error error;

	assert_int_equal(pl_fail(&error, -EINVAL, "ID", "call", object, "hint", "fact %d", 1), -EINVAL);
	return error;
}

static void test_text(void **state)
{
	struct pl_error error = error_about("object");
	char text[100];

	(void)state;
	assert_int_equal(pl_error_format(&error, text, sizeof(text)), 38);
	assert_string_equal(text, "object: call: fact 1 [ID]\n  hint: hint");
	assert_string_equal(error_about(NULL).object, "");
}

static void test_long_object(void **state)
{
	char path[200] = "/", expected[OBJECT_SIZE] = "...";

	(void)state;
	/* The longest that fits, and one byte more. */
	for (size_t i = 1; i < OBJECT_SIZE; i++)
		path[i] = (char)('a' + i % 26);
	path[OBJECT_SIZE - 1] = '\0';
	assert_string_equal(error_about(path).object, path);
	memcpy(path + OBJECT_SIZE - 2, ":7", 3);
	memcpy(expected + 3, path + 4, OBJECT_SIZE - 4);
	expected[OBJECT_SIZE - 1] = '\0';
	assert_string_equal(error_about(path).object, expected);
	/* 100 characters of two bytes, none of which is cut. */
	for (size_t i = 0; i < 99; i++)
		memcpy(path + 2 * i, "\xc3\xa4", 3);
	memcpy(path + 198, "x", 2);
	assert_int_equal(strlen(error_about(path).object), OBJECT_SIZE - 2);
	assert_memory_equal(error_about(path).object, "...\xc3\xa4", 5);
}

/* A lack of descriptors names the limit, and what raises it. */
static void test_descriptor_limit(void **state)
{
	struct rlimit old;
	struct pl_error error;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 123, old.rlim_max }), 0);
	assert_int_equal(pl_fail_errno(&error, -EMFILE, "SYSTEM", "socket", "object"), -EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_string_equal(error.id, "DESCRIPTOR-LIMIT");
	assert_string_equal(error.call, "socket");
	assert_string_equal(error.object, "object");
	assert_non_null(strstr(error.message, "123 (RLIMIT_NOFILE)"));
	assert_non_null(strstr(error.hint, "ulimit -n"));
	assert_non_null(strstr(error.hint, "LimitNOFILE="));
	assert_int_equal(pl_fail_errno(&error, -ENFILE, "SYSTEM", "socket", NULL), -ENFILE);
	assert_string_equal(error.id, "DESCRIPTOR-LIMIT");
	assert_non_null(strstr(error.hint, "fs.file-max"));
	assert_int_equal(pl_fail_errno(&error, -EBADF, "SYSTEM", "socket", NULL), -EBADF);
	assert_string_equal(error.id, "SYSTEM");
	assert_int_equal(pl_fail_errno(NULL, -EMFILE, "SYSTEM", "socket", NULL), -EMFILE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_long_object),
		cmocka_unit_test(test_descriptor_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
