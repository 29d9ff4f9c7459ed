/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/index_table.h"

#define FIRST_COUNT 8

static int grow_table(const struct pl_allocator *allocator, struct pl_index_table *table)
{
	size_t count = table->count ? 2 * table->count : FIRST_COUNT;
	uint32_t *unused;
	void **entries;

	if (count > UINT32_MAX)
		return -ENOMEM;
	entries = pl_realloc(allocator, table->entries, count * sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	table->entries = entries;
	unused = pl_realloc(allocator, table->unused, count * sizeof(*unused));
	if (!unused)
		return -ENOMEM;
	table->unused = unused;
	memset(entries + table->count, 0, (count - table->count) * sizeof(*entries));
	/* The lowest index comes first. */
	for (size_t i = count; i-- > table->count;)
		unused[table->unused_count++] = (uint32_t)i;
	table->count = count;
	return 0;
}

ssize_t pl_index_table_add(const struct pl_allocator *allocator, struct pl_index_table *table, void *entry)
{
	uint32_t index;

	if (table->unused_count == 0 && grow_table(allocator, table) < 0)
		return -ENOMEM;
	index = table->unused[--table->unused_count];
	table->entries[index] = entry;
	return (ssize_t)index;
}

void pl_index_table_remove(struct pl_index_table *table, size_t index)
{
	table->entries[index] = NULL;
	table->unused[table->unused_count++] = (uint32_t)index;
}

void pl_index_table_free(const struct pl_allocator *allocator, struct pl_index_table *table)
{
	pl_free(allocator, table->entries);
	pl_free(allocator, table->unused);
	*table = (struct pl_index_table){ 0 };
}
