/* SPDX-License-Identifier: BSD-2-Clause */
/* Engines of peers: lanes of peers in succession, and homes, for all numbers of engines and lanes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/context.h"
#include "core/fabric.h"

#define ENGINES_MAX 64u

/* As many peers as fit have lanes with engines of their own. */
static void check_lanes(unsigned engines, unsigned lanes)
{
	bool used[ENGINES_MAX] = { false };

	for (unsigned peer = 0; peer < engines / lanes; peer++) {
		unsigned home = pl_context_home_of(peer, lanes, engines);

		for (unsigned lane = 0; lane < lanes; lane++) {
			assert_false(used[(home + lane) % engines]);
			used[(home + lane) % engines] = true;
		}
	}
}

static void check_homes(unsigned engines, unsigned lanes)
{
	bool used[ENGINES_MAX] = { false };

	for (unsigned peer = 0; peer < engines; peer++) {
		unsigned home = pl_context_home_of(peer, lanes, engines);

		assert_true(home < engines);
		assert_false(used[home]);
		used[home] = true;
	}
}

static void test_all(void **state)
{
	(void)state;
	for (unsigned engines = 1; engines <= ENGINES_MAX; engines++) {
		for (unsigned lanes = 1; lanes <= PL_LANES_MAX; lanes++) {
			check_lanes(engines, lanes);
			check_homes(engines, lanes);
		}
	}
}

/* The product of the number and the lanes passes 32 bits. */
static void test_large_numbers(void **state)
{
	(void)state;
	assert_true(pl_context_home_of(UINT32_MAX, 16, 9) < 9);
	assert_true(pl_context_home_of(UINT32_MAX, 8, 64) < 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all),
		cmocka_unit_test(test_large_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
