/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Table of pointers by index. Adding and removing take constant time, whatever a peer does. The owner's lock protects
 * the table.
 */
#ifndef PL_INDEX_TABLE_H
#define PL_INDEX_TABLE_H

#include <sys/types.h>

#include "base/base.h"

struct pl_index_table {
	void **entries;   /* NULL: unused index */
	uint32_t *unused; /* stack of unused indexes, with room for all */
	size_t count, unused_count;
};

/* Stores a pointer under an unused index. Returns the index or -ENOMEM. */
ssize_t pl_index_table_add(const struct pl_allocator *allocator, struct pl_index_table *table, void *entry);
/* Frees the index of an entry. */
void pl_index_table_remove(struct pl_index_table *table, size_t index);
/* Frees the table's memory, and leaves an empty table. */
void pl_index_table_free(const struct pl_allocator *allocator, struct pl_index_table *table);

/* Returns the entry of an index, which may come from a peer; NULL: none. */
static inline void *pl_index_table_get(const struct pl_index_table *table, uint64_t index)
{
	return index < table->count ? table->entries[index] : NULL;
}

/* Number of entries. */
static inline size_t pl_index_table_used(const struct pl_index_table *table)
{
	return table->count - table->unused_count;
}

#endif
