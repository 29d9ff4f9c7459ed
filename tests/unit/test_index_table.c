/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/index_table.h"

#define COUNT 1000

static void test_lowest_first(void **state)
{
	struct pl_index_table table = { 0 };
	char entries[COUNT];

	(void)state;
	for (ssize_t i = 0; i < COUNT; i++)
		assert_int_equal(pl_index_table_add(&pl_system_allocator, &table, &entries[i]), i);
	assert_int_equal(pl_index_table_used(&table), COUNT);
	for (size_t i = 0; i < COUNT; i++)
		assert_ptr_equal(pl_index_table_get(&table, i), &entries[i]);
	assert_null(pl_index_table_get(&table, table.count));
	assert_null(pl_index_table_get(&table, UINT64_MAX));
	pl_index_table_free(&pl_system_allocator, &table);
	assert_null(pl_index_table_get(&table, 0));
}

static void test_indexes_return(void **state)
{
	struct pl_index_table table = { 0 };
	char entries[COUNT], other;
	ssize_t index;

	(void)state;
	for (size_t i = 0; i < COUNT; i++)
		pl_index_table_add(&pl_system_allocator, &table, &entries[i]);
	for (size_t i = 0; i < COUNT; i += 2)
		pl_index_table_remove(&table, i);
	assert_int_equal(pl_index_table_used(&table), COUNT / 2);
	for (size_t i = 0; i < COUNT / 2; i++) {
		index = pl_index_table_add(&pl_system_allocator, &table, &other);
		assert_true(index >= 0 && index < COUNT && index % 2 == 0);
		assert_ptr_equal(pl_index_table_get(&table, (uint64_t)index), &other);
	}
	for (size_t i = 1; i < COUNT; i += 2)
		assert_ptr_equal(pl_index_table_get(&table, i), &entries[i]);
	pl_index_table_free(&pl_system_allocator, &table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lowest_first),
		cmocka_unit_test(test_indexes_return),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
