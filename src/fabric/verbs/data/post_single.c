/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fast path of small operations: one request is posted before the call returns if no work is before it and there is
 * room. It enters no list.
 */
#include "fabric/verbs/data/request.h"
#include "fabric/verbs/memory/near.h"
#include "fabric/verbs/data/signal.h"

/*
 * Posts work whose buffer is filled, if it needs one. Returns false if something is in the way; the caller keeps the
 * work.
 */
PL_ALWAYS_INLINE bool post_now(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	struct verbs_rail *rail = verbs_choose_rail(endpoint, work);
	struct ibv_send_wr request, *bad;
	struct ibv_sge pieces[VERBS_PIECES];
	bool signals;
	int rc;

	if (!rail || verbs_is_busy(rail, verbs_is_small(endpoint, work)) || rail->queue->posted >= rail->queue->room ||
	    work->length > verbs_most_of(rail))
		return false;
	if (verbs_needs_buffer(work) && verbs_take_buffer(rail->queue, work) < 0)
		return false;
	if (verbs_needs_local_key(rail, work) && verbs_rail_key(rail, work) < 0)
		return false;
	if (work->kind == VERBS_FRAME)
		verbs_copy_frame(endpoint, work, false);
	verbs_fill_request(rail, work, &request, pieces);
	signals = work->kind == VERBS_FRAME || verbs_must_signal(rail, work, work->operation->completion.posted);
	if (signals)
		request.send_flags |= IBV_SEND_SIGNALED;
	rc = verbs_post_list(rail, &request, &bad);
	if (rc < 0) {
		if (verbs_work_refused(rail, work, rc))
			return true;
		pl_list_append(&endpoint->again, &work->link);
		verbs_fail(rail, "the device refused a request");
		return true;
	}
	/* Runs while the device works: completions need the engine, so none is taken before this. */
	if (work->kind != VERBS_FRAME)
		verbs_carried_by(work->operation, rail);
	if (work->choice)
		verbs_explain_rail(rail, work);
	if (signals)
		verbs_mark_signaled(rail);
	else
		verbs_mark_quiet(rail);
	verbs_account(rail, work);
	pl_list_append(&rail->posted, &work->link);
	return true;
}

/* Returns false if nothing was done. Otherwise the operation's only pending count is the one that it had. */
PL_ALWAYS_INLINE bool post_single(struct verbs_endpoint *endpoint, struct pl_operation *operation)
{
	const struct pl_segment *segment = operation->segments;
	struct verbs_device *device = endpoint->rails[0].device;
	uint8_t choice = 0;
	enum verbs_work_kind kind = verbs_kind_of(operation);
	bool written = kind == VERBS_READ;
	struct verbs_remote_key *target;
	const char *refusal;
	struct verbs_work *work;
	uint32_t lkey = 0;

	if (operation->segment_count != 1 || segment->length >= VERBS_SLICE || !verbs_may_post_now(endpoint) ||
	    (operation->attributes.flags & (PL_MORE | PL_NOTIFY)) || pl_visible_more(operation->attributes.visible))
		return false;
	target = verbs_remote_key_of(segment->remote, endpoint);
	if (!target || !target->present ||
	    (kind == VERBS_ATOMIC &&
	     (device->attributes.atomic_cap == IBV_ATOMIC_NONE || (target->address + segment->remote_offset) % 8)))
		return false;
	/* Between single cards there is nothing to choose. */
	if (endpoint->port_count > 1 || target->near) {
		choice = verbs_choose(endpoint, segment->region ? verbs_near(endpoint->state, segment->region) : 0,
				      target->near);
		device = verbs_device_of(endpoint, choice);
	}
	if (segment->region && segment->length &&
	    (verbs_local_key(endpoint->state, device, segment->region, written, &lkey) < 0 ||
	     (pl_memory_staged(&segment->region->memory) &&
	      !verbs_is_advised(device, operation, segment, written, &refusal))))
		return false;
	work = verbs_work_take(endpoint, kind, operation);
	if (!work)
		return false;
	work->target = target;
	work->remote = target->address + segment->remote_offset;
	work->choice = choice;
	work->length = kind == VERBS_ATOMIC ? 0 : (uint32_t)segment->length;
	work->region = segment->region;
	work->offset = segment->offset;
	work->lkey = lkey;
	work->lkey_device = device;
	if (post_now(endpoint, work))
		return true;
	verbs_work_free(endpoint, work);
	return false;
}

void verbs_post(struct pl_endpoint *base, struct pl_operation *operation)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);

	if (!post_single(endpoint, operation))
		verbs_post_parts(endpoint, operation);
}

int verbs_message(struct pl_endpoint *base, const struct pl_frame *frame, const void *payload,
		  struct pl_operation *operation)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
	struct verbs_work *work = verbs_work_take(endpoint, VERBS_FRAME, NULL);
	bool more = operation && (operation->attributes.flags & PL_MORE);

	if (!work)
		return -ENOMEM;
	work->frame = *frame;
	work->frame.ack = 0;
	work->payload = payload;
	if (frame->length && !payload)
		verbs_gather(endpoint, work, operation);
	/* The bytes are copied already and the operation has no pending count here, unless they are gathered. */
	if (verbs_mw_bind_message(endpoint, work) || more || !verbs_may_post_now(endpoint) || !post_now(endpoint, work))
		verbs_message_wait(endpoint, work, operation);
	return 0;
}
