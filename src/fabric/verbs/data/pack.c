/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several frames in one SEND. Small messages that come faster than the device takes them wait for each other (work.c).
 * One SEND of several frames costs the device, its driver and the receiver little more than a SEND of one. Each frame
 * keeps its header, and so its number: after a broken connection the receiver drops each repeated frame. Gathered
 * frames, whose bytes the device reads itself, form a chain behind the first until the device is done; failed ones are
 * sent singly again.
 */
#include "fabric/verbs/data/request.h"

/* True if a frame can be packed with others. */
static bool joins(const struct verbs_work *work)
{
	return work->kind == VERBS_FRAME && !verbs_unnumbered(work) && !work->only && !work->built && !work->alone &&
	       !work->answer;
}

/* Returns the next waiting frame if it fits behind frames of this many bytes. */
static struct verbs_work *next_of(struct verbs_endpoint *endpoint, const struct verbs_work *work, uint32_t length)
{
	struct verbs_work *next;

	if (pl_list_empty(&endpoint->waiting))
		return NULL;
	next = pl_list_first(&endpoint->waiting, struct verbs_work, link);
	return joins(next) && !verbs_operation_failed(endpoint, next) && next->gathered == work->gathered &&
			       length + PL_FRAME_HEADER + pl_frame_payload(&next->frame) <= VERBS_BUFFER
		       ? next
		       : NULL;
}

bool verbs_packs(struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	return endpoint->base.peer->packs && joins(work) &&
	       next_of(endpoint, work, PL_FRAME_HEADER + pl_frame_payload(&work->frame));
}

/*
 * Returns the most frames of one SEND. A notification that went with a write has 10 bits of its number, so if it is
 * repeated the receiver must not have taken 512 later frames.
 */
static unsigned pack_limit(const struct verbs_endpoint *endpoint)
{
	return endpoint->sent - endpoint->notified < VERBS_EARLY ? VERBS_NOTIFY_PACK : VERBS_PACK;
}

_Static_assert(VERBS_SEND_DEPTH * VERBS_NOTIFY_PACK <= 1u << (31 - VERBS_NOTIFY_BITS), "the numbers suffice");

static void pack_copied(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	unsigned most = pack_limit(endpoint);
	struct verbs_work *next;

	for (unsigned count = 1; count < most && (next = next_of(endpoint, work, work->length)); count++) {
		struct pl_operation *operation = next->operation;

		pl_list_remove(&next->link);
		verbs_number(endpoint, next);
		work->length += verbs_put_frame(next, work->buffer->bytes + work->length);
		verbs_work_free(endpoint, next);
		if (operation)
			pl_operation_pending_done(operation);
	}
}

/* The headers are in the buffer, one behind the other. */
static void pack_gathered(struct verbs_rail *rail, struct verbs_work *work)
{
	struct verbs_endpoint *endpoint = rail->endpoint;
	unsigned most = PL_MIN(pack_limit(endpoint), PL_MIN(VERBS_PIECES, (unsigned)rail->device->attributes.max_sge) / 2);
	struct verbs_work *last = work, *next;

	for (unsigned count = 1; count < most && (next = next_of(endpoint, work, work->length)); count++) {
		if (verbs_needs_local_key(rail, next) && verbs_rail_key(rail, next) < 0)
			return;
		pl_list_remove(&next->link);
		verbs_number(endpoint, next);
		work->length += verbs_put_frame(next, work->buffer->bytes + count * PL_FRAME_HEADER);
		next->counted = true;
		last = last->also = next;
	}
}

void verbs_pack(struct verbs_rail *rail, struct verbs_work *work)
{
	if (work->gathered)
		pack_gathered(rail, work);
	else
		pack_copied(rail->endpoint, work);
}

void verbs_unpack(struct pl_list *list)
{
	pl_list_for_each(at, list) {
		struct verbs_work *work = pl_list_entry(at, struct verbs_work, link), *next = work->also;

		if (!next)
			continue;
		work->also = NULL;
		/* The frame keeps its number. */
		work->counted = work->alone = true;
		work->built = false;
		next->alone = true;
		pl_list_append(at->next, &next->link);
	}
}
