/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work list of a fabric: operations whose chunks several threads take. The fabric's lock protects the list, and the
 * position of each operation on it.
 */
#ifndef PL_CORE_WORK_LIST_H
#define PL_CORE_WORK_LIST_H

#include "core/operation.h"

/* Position of an operation on a work list. First member of the fabric's structure in operation->fabric. */
struct pl_work_item {
	struct pl_list link;
	unsigned segment; /* first segment with bytes that no thread has taken */
	uint64_t done;    /* bytes taken of that segment */
};

/* Contiguous range of an operation that one thread takes. */
struct pl_chunk {
	struct pl_operation *operation;
	const struct pl_segment *segment;
	uint64_t at, length;
};

static inline struct pl_work_item *pl_work_item_of(struct pl_operation *operation)
{
	return (struct pl_work_item *)operation->fabric;
}

static inline struct pl_operation *pl_work_item_operation(struct pl_list *link)
{
	struct pl_work_item *work = pl_list_entry(link, struct pl_work_item, link);

	return pl_container_of(work, struct pl_operation, fabric);
}

/* Takes the next chunk, of at most `limit` bytes; empty for an empty segment. Returns true if no chunk is left. */
static inline bool pl_work_item_take_chunk(struct pl_operation *operation, uint64_t limit, struct pl_chunk *chunk)
{
	struct pl_work_item *work = pl_work_item_of(operation);
	const struct pl_segment *segment = &operation->segments[work->segment];

	*chunk = (struct pl_chunk){ operation, segment, work->done, PL_MIN(segment->length - work->done, limit) };
	work->done += chunk->length;
	if (work->done == segment->length) {
		work->segment++;
		work->done = 0;
	}
	return work->segment == operation->segment_count;
}

/* Removes the canceled operations of a peer from the list, with the list's pending count of each. */
void pl_work_list_drop_canceled(struct pl_list *list, pthread_mutex_t *lock, const struct pl_peer *peer);

#endif
