/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/cuda/gather_list.h"

#include <stdlib.h>

struct pl_gather_list *cuda_list_place(struct pl_list *lists, unsigned count)
{
	struct pl_list *after = lists;
	struct pl_gather_list *list;
	unsigned first = 0;

	/* Finds the first gap that is large enough. */
	pl_list_for_each(at, lists) {
		const struct pl_gather_list *other = pl_list_entry(at, struct pl_gather_list, link);

		if (other->first - first >= count)
			break;
		first = other->first + other->count;
		after = at;
	}
	if (count > CUDA_KEPT_RANGES || first > CUDA_KEPT_RANGES - count)
		return NULL;
	list = calloc(1, sizeof(*list));
	if (!list)
		return NULL;
	list->first = first;
	list->count = count;
	list->users = 1;
	pl_list_prepend(after, &list->link);
	return list;
}

void cuda_list_put(struct pl_gather_list *list)
{
	if (--list->users)
		return;
	pl_list_remove(&list->link);
	free(list);
}

void cuda_lists_free(struct pl_list *lists)
{
	pl_list_for_each_safe(at, next, lists)
		free(pl_list_entry(at, struct pl_gather_list, link));
}
