/* SPDX-License-Identifier: BSD-2-Clause */
#include "core/operation_index.h"

/* Most operations of a peer that are searched one by one. */
#define FEW_OPERATIONS 64u
#define LISTS_FIRST (2u * FEW_OPERATIONS)

static struct pl_list *indexed_list(const struct pl_operation_index *index, uint64_t user_data)
{
	/* The upper bits of the product depend on all bits of the value. */
	return &index->lists[(user_data * 0x9e3779b97f4a7c15u >> 32) & (index->size - 1)];
}

/* Moves operations into the index. Returns their number. */
static size_t index_operations(struct pl_operation_index *index, struct pl_list *from)
{
	size_t count = 0;

	for (; !pl_list_empty(from); count++) {
		struct pl_operation *operation = pl_list_first(from, struct pl_operation, peer_link);

		pl_list_remove(&operation->peer_link);
		pl_list_append(indexed_list(index, operation->attributes.user_data), &operation->peer_link);
	}
	return count;
}

/* Moves all operations out of the index. */
static void index_empty(struct pl_operation_index *index, struct pl_list *to)
{
	for (size_t i = 0; index->added && i < index->size; i++)
		pl_list_splice(to, &index->lists[i]);
	index->added = 0;
}

/* Gives the index this number of lists, a power of two, which are empty. Returns false if there is no memory. */
static bool index_resize(struct pl_operation_index *index, const struct pl_allocator *allocator, size_t size)
{
	struct pl_list *lists = pl_alloc(allocator, size * sizeof(*lists));

	if (!lists)
		return false;
	for (size_t i = 0; i < size; i++)
		pl_list_init(&lists[i]);
	pl_free(allocator, index->lists);
	index->lists = lists;
	index->size = size;
	return true;
}

/* Gives the index lists for its operations and those of the peer. Returns false if there is no memory. */
static bool index_grow(struct pl_peer *peer)
{
	struct pl_operation_index *index = &peer->operation_index;
	size_t size = LISTS_FIRST, count = 0;
	struct pl_list all;

	pl_list_init(&all);
	pl_operations_take(peer, &all);
	pl_list_for_each(at, &all)
		count++;
	while (size < 2 * count)
		size *= 2;
	/* Most of the operations that were added may have ended: the lists stay then. */
	if (size > index->size && !index_resize(index, &peer->context->allocator, size)) {
		pl_list_splice(&peer->operations, &all);
		return false;
	}
	index->added = index_operations(index, &all);
	return true;
}

/* True if the peer has more operations outside the index than this number. */
static bool has_more_operations(const struct pl_peer *peer, size_t most)
{
	size_t count = 0;

	pl_list_for_each(at, &peer->operations) {
		if (++count > most)
			return true;
	}
	return false;
}

void pl_operations_take(struct pl_peer *peer, struct pl_list *taken)
{
	index_empty(&peer->operation_index, taken);
	pl_list_splice(taken, &peer->operations);
}

void pl_operations_take_of(struct pl_peer *peer, uint64_t user_data, struct pl_list *taken)
{
	struct pl_operation_index *index = &peer->operation_index;

	if (!index->added && !has_more_operations(peer, FEW_OPERATIONS)) {
		pl_operations_take(peer, taken);
		return;
	}
	index->added += index->size ? index_operations(index, &peer->operations) : 0;
	/* Each look at all operations follows after as many new ones. */
	if (index->added >= index->size && !index_grow(peer)) {
		pl_operations_take(peer, taken);
		return;
	}
	pl_list_splice(taken, indexed_list(index, user_data));
}

void pl_operation_index_free(struct pl_peer *peer)
{
	pl_free(&peer->context->allocator, peer->operation_index.lists);
	peer->operation_index = (struct pl_operation_index){ 0 };
}
