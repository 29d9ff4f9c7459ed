/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several frames in one SEND.  Small messages that come faster than the device takes them wait for each other (work.c);
 * together they cost the device, its driver and the receiver little more than one does.  Each keeps its header, and so
 * its number: what arrives twice after a connection broke is dropped one by one.
 */
#include "fabric/verbs/request.h"

/* Whether a frame can be among others: not where its bytes stay in a device's memory, or it was posted before. */
static bool joins(const struct verbs_work *work)
{
	return work->kind == VERBS_FRAME && !verbs_unnumbered(work) && !work->only && !work->gathered && !work->built;
}

static struct verbs_work *next_of(struct verbs_endpoint *endpoint, uint32_t length)
{
	struct verbs_work *next;

	if (pl_list_empty(&endpoint->waiting))
		return NULL;
	next = pl_list_first(&endpoint->waiting, struct verbs_work, link);
	return joins(next) && length + PL_FRAME_HEADER + pl_frame_payload(&next->frame) <= VERBS_BUFFER ? next : NULL;
}

bool verbs_packs(struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	return endpoint->base.peer->packs && joins(work) &&
	       next_of(endpoint, PL_FRAME_HEADER + pl_frame_payload(&work->frame));
}

void verbs_pack(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	struct verbs_work *next;

	for (unsigned count = 1; count < VERBS_PACK && (next = next_of(endpoint, work->length)); count++) {
		struct pl_operation *operation = next->operation;

		pl_list_remove(&next->link);
		verbs_number(endpoint, next);
		work->length += verbs_put_frame(next, work->buffer->bytes + work->length);
		verbs_work_free(endpoint, next);
		if (operation)
			pl_operation_part_done(operation);
	}
}
