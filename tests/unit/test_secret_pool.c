/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory for secrets: core dumps leave it out, and freed slots are wiped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/secret_pool.h"

#define SLOTS 2000

/* True if the flags of the mapping with this address have "dd": no core dump has it. */
static bool is_left_out(const void *address)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	unsigned long begin, end;
	bool inside = false, found = false;
	char line[512];

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			inside = (uintptr_t)address >= begin && (uintptr_t)address < end;
		else if (inside && !strncmp(line, "VmFlags:", 8))
			found = strstr(line, " dd");
	}
	fclose(file);
	return found;
}

static void test_slots(void **state)
{
	static const uint8_t zeros[PL_SECRET_SLOT];
	struct pl_secret_pool pool;
	uint8_t **slots = calloc(SLOTS, sizeof(*slots));

	(void)state;
	assert_non_null(slots);
	assert_false(is_left_out(slots));
	pl_secret_pool_init(&pool);
	for (unsigned i = 0; i < SLOTS; i++) {
		slots[i] = pl_secret_alloc(&pool);
		assert_non_null(slots[i]);
		assert_memory_equal(slots[i], zeros, PL_SECRET_SLOT);
		memset(slots[i], (int)(i % 255) + 1, PL_SECRET_SLOT);
	}
	for (unsigned i = 0; i < SLOTS; i++)
		for (unsigned j = 0; j < PL_SECRET_SLOT; j++)
			assert_int_equal(slots[i][j], i % 255 + 1);
	assert_true(is_left_out(slots[0]));
	assert_true(is_left_out(slots[SLOTS - 1]));
	for (unsigned i = 0; i < SLOTS; i++) {
		pl_secret_free(&pool, slots[i]);
		/* The beginning of a free slot has the address of the next one. */
		assert_memory_equal(slots[i] + sizeof(void *), zeros, PL_SECRET_SLOT - sizeof(void *));
	}
	assert_ptr_equal(pl_secret_alloc(&pool), slots[SLOTS - 1]);
	assert_memory_equal(slots[SLOTS - 1], zeros, PL_SECRET_SLOT);
	pl_secret_free(&pool, slots[SLOTS - 1]);
	pl_secret_free(&pool, NULL);
	pl_secret_pool_destroy(&pool);
	free(slots);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_slots) };

	return cmocka_run_group_tests_name("secret_pool", tests, NULL, NULL);
}
