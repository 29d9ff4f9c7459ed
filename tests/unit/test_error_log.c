/* SPDX-License-Identifier: BSD-2-Clause */
/* Log of the last different errors of a context. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/error_log.h"

static struct pl_error numbered_error(unsigned number)
{
	struct pl_error error = { .code = -EIO, .id = "TEST" };

	snprintf(error.message, sizeof(error.message), "error %u", number);
	return error;
}

static int open_log(void **state)
{
	static struct pl_error_log log;

	memset(&log, 0, sizeof(log));
	pl_error_log_init(&log, &pl_system_allocator);
	*state = &log;
	return 0;
}

static int close_log(void **state)
{
	pl_error_log_destroy(*state);
	return 0;
}

static void test_equal_errors_share_a_number(void **state)
{
	struct pl_error_log *log = *state;
	struct pl_error one = numbered_error(1), two = numbered_error(2), found;
	uint32_t first = pl_error_log_add(log, &one), second = pl_error_log_add(log, &two);

	assert_int_not_equal(first, 0);
	assert_int_not_equal(first, second);
	assert_int_equal(pl_error_log_add(log, &one), first);
	assert_int_equal(pl_error_log_add(log, &two), second);
	assert_true(pl_error_log_find(log, first, &found));
	assert_string_equal(found.message, "error 1");
	assert_true(pl_error_log_find(log, second, &found));
	assert_string_equal(found.message, "error 2");
}

static void test_old_errors_are_unknown(void **state)
{
	struct pl_error_log *log = *state;
	struct pl_error error = numbered_error(0), found = numbered_error(777);
	uint32_t first = pl_error_log_add(log, &error), last = 0;

	for (unsigned i = 1; i <= PL_ERROR_LOG_SIZE; i++) {
		error = numbered_error(i);
		last = pl_error_log_add(log, &error);
	}
	assert_false(pl_error_log_find(log, first, &found));
	assert_string_equal(found.message, "error 777");
	assert_true(pl_error_log_find(log, last, &found));
	assert_true(pl_error_log_find(log, last - PL_ERROR_LOG_SIZE + 1, &found));
	assert_string_equal(found.message, "error 1");
	assert_false(pl_error_log_find(log, last + 1, &found));
	assert_false(pl_error_log_find(log, 0, &found));
}

static void test_numbers_wrap_around(void **state)
{
	struct pl_error_log *log = *state;
	struct pl_error error = numbered_error(1), found;
	uint32_t before, after;

	pl_error_log_add(log, &error);
	log->last = UINT32_MAX - 1;
	error = numbered_error(2);
	before = pl_error_log_add(log, &error);
	assert_int_equal(before, UINT32_MAX);
	error = numbered_error(3);
	after = pl_error_log_add(log, &error);
	assert_int_equal(after, 1);
	assert_true(pl_error_log_find(log, after, &found));
	assert_string_equal(found.message, "error 3");
	assert_false(pl_error_log_find(log, before, &found));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_equal_errors_share_a_number, open_log, close_log),
		cmocka_unit_test_setup_teardown(test_old_errors_are_unknown, open_log, close_log),
		cmocka_unit_test_setup_teardown(test_numbers_wrap_around, open_log, close_log),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
