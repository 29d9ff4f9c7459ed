/* SPDX-License-Identifier: BSD-2-Clause */
/* Which way is taken, given what was proven. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "route/route.h"

/* Rates of the ways in one direction, 0: not proven; in the other direction all are the same. */
static void fill(struct pl_profile *profile, const char *device, const uint64_t into[PL_WAY_COUNT])
{
	for (enum pl_way way = 0; way < PL_WAY_COUNT; way++) {
		struct pl_proof *proof = pl_profile_add(profile);

		assert_non_null(proof);
		strcpy(proof->gpu, "0000:17:00.0");
		snprintf(proof->device, sizeof(proof->device), "%s", device);
		proof->way = way;
		proof->legs[PL_INTO_GPU] = (struct pl_proof_leg){ .proven = into[way] > 0, .rate = into[way] };
		proof->legs[PL_FROM_GPU] = (struct pl_proof_leg){ .proven = true, .rate = 5 };
	}
}

static void chosen(void **state)
{
	static const struct {
		uint64_t rates[PL_WAY_COUNT];
		int way; /* -1: none */
	} cases[] = {
		{ { 0, 0, 0 }, -1 },
		{ { 0, 0, 7 }, PL_WAY_STAGED },
		{ { 10, 0, 0 }, PL_WAY_DMABUF },
		{ { 0, 10, 9 }, PL_WAY_ADDRESS },
		{ { 10, 11, 0 }, PL_WAY_ADDRESS },
		{ { 10, 10, 0 }, PL_WAY_DMABUF },
		/* Staging must be faster by more than a quarter. */
		{ { 1000, 0, 1250 }, PL_WAY_DMABUF },
		{ { 1000, 0, 1260 }, PL_WAY_STAGED },
		{ { 1, UINT64_MAX, UINT64_MAX }, PL_WAY_ADDRESS },
	};
	const struct pl_proof *proof;
	const char *reason;

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct pl_profile profile = { 0 };

		fill(&profile, "mlx5_1", (const uint64_t[]){ 1, 1, 1 });
		fill(&profile, "mlx5_0", cases[i].rates);
		proof = pl_profile_choose(&profile, "0000:17:00.0", "mlx5_0", PL_INTO_GPU, &reason);
		assert_int_equal(proof ? (int)proof->way : -1, cases[i].way);
		assert_true(!proof || !strcmp(proof->device, "mlx5_0"));
		assert_true(strlen(reason));
		proof = pl_profile_choose(&profile, "0000:17:00.0", "mlx5_0", PL_FROM_GPU, &reason);
		assert_int_equal(proof->way, PL_WAY_DMABUF);
		assert_null(pl_profile_choose(&profile, "0000:18:00.0", "mlx5_0", PL_INTO_GPU, &reason));
		pl_profile_free(&profile);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(chosen) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
