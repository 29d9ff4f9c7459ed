/* SPDX-License-Identifier: BSD-2-Clause */
/* Access paths of the local fabric by their keys: found, removed and cleared in short lists, also without memory to grow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fabric/local/local.h"

#define PATHS 10000u
/* Longest list: with as many lists as paths, few have more than some. */
#define LONGEST 16u

static struct local_access paths[PATHS];

/* Keys of a peer: an index, and a random number above it. */
static void make_paths(void)
{
	for (unsigned i = 0; i < PATHS; i++) {
		paths[i].key = (uint64_t)rand() << 32 | i;
		pl_list_init(&paths[i].link);
	}
}

static void add_paths(struct local_access_table *table, const struct pl_allocator *allocator)
{
	for (unsigned i = 0; i < PATHS; i++)
		assert_int_equal(local_access_table_add(table, allocator, &paths[i]), 0);
}

static void expect_paths(const struct local_access_table *table, unsigned first)
{
	for (unsigned i = 0; i < PATHS; i++)
		assert_ptr_equal(local_access_table_find(table, paths[i].key), i < first ? NULL : &paths[i]);
	assert_null(local_access_table_find(table, (uint64_t)1 << 62));
}

static void test_many(void **state)
{
	struct local_access_table table = { .lists = NULL };

	(void)state;
	make_paths();
	expect_paths(&table, PATHS);
	add_paths(&table, &pl_system_allocator);
	expect_paths(&table, 0);
	for (size_t i = 0; i < table.list_count; i++) {
		unsigned length = 0;

		pl_list_for_each(at, &table.lists[i])
			length++;
		assert_true(length <= LONGEST);
	}
	for (unsigned i = 0; i < PATHS / 2; i++)
		local_access_table_remove(&table, &paths[i]);
	expect_paths(&table, PATHS / 2);
	local_access_table_clear(&table, &pl_system_allocator);
	for (unsigned i = 0; i < PATHS; i++)
		assert_true(pl_list_empty(&paths[i].link));
	expect_paths(&table, PATHS);
}

/* Allows one allocation. */
static void *allocate_once(size_t size, void *user)
{
	return (*(unsigned *)user)++ == 0 ? malloc(size) : NULL;
}

static void release_allocated(void *memory, void *user)
{
	(void)user;
	free(memory);
}

static void test_without_memory(void **state)
{
	unsigned calls = 0;
	struct pl_allocator allocator = { .user = &calls, .allocate = allocate_once, .release = release_allocated };
	struct local_access_table table = { .lists = NULL };

	(void)state;
	make_paths();
	add_paths(&table, &allocator);
	expect_paths(&table, 0);
	local_access_table_clear(&table, &allocator);
	assert_int_equal(local_access_table_add(&table, &allocator, &paths[0]), -ENOMEM);
	assert_true(pl_list_empty(&paths[0].link));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_without_memory),
	};

	return cmocka_run_group_tests_name("local-access-table", tests, NULL, NULL);
}
