/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames of a rate keep to it, whether or not its period is a whole number of nanoseconds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cmd/stream/frame_pace.h"

#define BEGIN 5000000000ull
#define SECONDS 100u

static void check_rate(uint64_t rate)
{
	const uint64_t end = BEGIN + SECONDS * 1000000000ull;
	struct frame_pace pace;

	frame_pace_begin(&pace, (double)rate, BEGIN);
	for (uint64_t i = 0; i < SECONDS * rate; i++)
		frame_pace_advance(&pace);
	assert_true(pace.next >= end - 1 && pace.next <= end + 1);
}

static void test_rates(void **state)
{
	(void)state;
	check_rate(1);
	check_rate(7);
	check_rate(60);
	check_rate(30000);
	check_rate(300000);
}

static void test_no_rate(void **state)
{
	struct frame_pace pace;

	(void)state;
	frame_pace_begin(&pace, 0, BEGIN);
	assert_true(pace.period == 0 && pace.next == BEGIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rates),
		cmocka_unit_test(test_no_rate),
	};

	return cmocka_run_group_tests_name("frame pace", tests, NULL, NULL);
}
