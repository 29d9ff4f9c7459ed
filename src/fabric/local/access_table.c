/* SPDX-License-Identifier: BSD-2-Clause */
/* Hash table of an endpoint's access paths, so that a revocation finds its path among many. */
#include "fabric/local/local.h"

#define LISTS_FIRST 16u

/* The peer chooses keys: equal hashes slow down its own revocations only. */
static struct pl_list *list_of_key(const struct local_access_table *table, uint64_t key)
{
	return &table->lists[(key * 0x9e3779b97f4a7c15ull) >> 32 & (table->list_count - 1)];
}

/* Doubles the number of lists. */
static int grow_access_table(struct local_access_table *table, const struct pl_allocator *allocator)
{
	struct local_access_table grown = { .list_count = PL_MAX(2 * table->list_count, (size_t)LISTS_FIRST) };

	grown.lists = pl_alloc(allocator, grown.list_count * sizeof(*grown.lists));
	if (!grown.lists)
		return -ENOMEM;
	for (size_t i = 0; i < grown.list_count; i++)
		pl_list_init(&grown.lists[i]);
	for (size_t i = 0; i < table->list_count; i++) {
		while (!pl_list_empty(&table->lists[i])) {
			struct local_access *access = pl_list_first(&table->lists[i], struct local_access, link);

			pl_list_remove(&access->link);
			pl_list_append(list_of_key(&grown, access->key), &access->link);
		}
	}
	pl_free(allocator, table->lists);
	grown.count = table->count;
	*table = grown;
	return 0;
}

int local_access_table_add(struct local_access_table *table, const struct pl_allocator *allocator,
			   struct local_access *access)
{
	/* A table that cannot grow still works, with longer lists. */
	if (table->count >= table->list_count && grow_access_table(table, allocator) < 0 && !table->lists)
		return -ENOMEM;
	pl_list_append(list_of_key(table, access->key), &access->link);
	table->count++;
	return 0;
}

void local_access_table_remove(struct local_access_table *table, struct local_access *access)
{
	pl_list_remove(&access->link);
	table->count--;
}

struct local_access *local_access_table_find(const struct local_access_table *table, uint64_t key)
{
	struct pl_list *list;

	if (!table->lists)
		return NULL;
	list = list_of_key(table, key);
	pl_list_for_each(at, list) {
		struct local_access *access = pl_list_entry(at, struct local_access, link);

		if (access->key == key)
			return access;
	}
	return NULL;
}

void local_access_table_clear(struct local_access_table *table, const struct pl_allocator *allocator)
{
	for (size_t i = 0; i < table->list_count; i++)
		while (!pl_list_empty(&table->lists[i]))
			pl_list_remove(table->lists[i].next);
	pl_free(allocator, table->lists);
	*table = (struct local_access_table){ .lists = NULL };
}
