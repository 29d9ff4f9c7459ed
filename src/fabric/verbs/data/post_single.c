/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fast path of small operations: one request is posted before the call returns if no work is before it and there is
 * room. It enters no list.
 */
#include "fabric/verbs/data/request.h"
#include "fabric/verbs/memory/near.h"
#include "fabric/verbs/data/signal.h"

_Static_assert(VERBS_BUSY <= VERBS_SEND_DEPTH, "a rail that is not busy has room in its queue pair");

/* True if a request of that length can be posted on the rail at once. An empty one needs as much room as a byte. */
PL_ALWAYS_INLINE bool has_room(const struct verbs_rail *rail, uint64_t length, bool small)
{
	return rail->link == VERBS_UP && !verbs_is_busy(rail, small) && rail->queue->posted < rail->queue->room &&
	       length <= rail->chunk && length <= rail->device->message_max &&
	       rail->posted_bytes + (length ? length : 1) <= rail->pace.limit;
}

/*
 * Posts work on a rail with room, whose device knows the local bytes. Returns false if no buffer or room is free; the caller
 * keeps the work. `kind` is that of the work: the compiler drops the steps of other kinds.
 */
PL_ALWAYS_INLINE bool post_on_rail(struct verbs_rail *rail, struct verbs_work *work, enum verbs_work_kind kind)
{
	struct verbs_endpoint *endpoint = rail->endpoint;
	struct pl_operation *operation = work->operation;
	const bool frame = kind == VERBS_FRAME, simple = kind == VERBS_WRITE || kind == VERBS_READ;
	const bool named = verbs_must_be_named(rail, kind);
	const uint8_t choice = work->choice;
	bool signals;
	int rc;

	if (named && !verbs_ask_before(rail))
		return false;
	work->simple = simple;
	if (!simple && verbs_take_buffer(rail->queue, work) < 0)
		return false;
	if (frame)
		verbs_copy_frame(endpoint, work, false);
	if (simple)
		verbs_fill_simple(rail, work, kind, &rail->single.request, rail->single.pieces);
	else
		verbs_fill_request(rail, work, &rail->single.request, rail->single.pieces);
	signals = frame || named || verbs_must_signal(rail, work, operation->completion.posted);
	if (signals)
		rail->single.request.send_flags |= IBV_SEND_SIGNALED;
	else
		rail->single.request.wr_id |= VERBS_UNSIGNALED;
	rc = verbs_post_list(rail, &rail->single.request, &rail->single.bad);
	if (rc < 0) {
		if (verbs_work_refused(rail, work, rc))
			return true;
		pl_list_append(&endpoint->again, &work->link);
		verbs_fail(rail, "the device refused a request");
		return true;
	}
	/* Runs while the device works: completions need the engine, so none is taken before this. */
	if (!frame)
		verbs_carried_by(operation, rail);
	if (choice)
		verbs_explain_rail(rail, work);
	if (signals)
		verbs_mark_signaled(rail);
	else
		verbs_mark_quiet(rail);
	verbs_account(rail, work);
	pl_list_append(&rail->posted, &work->link);
	return true;
}

/* Posts work on the rail that suits it best. Returns false if something is in the way; the caller keeps the work. */
PL_ALWAYS_INLINE bool post_now(struct verbs_endpoint *endpoint, struct verbs_work *work, enum verbs_work_kind kind)
{
	struct verbs_rail *rail = verbs_choose_rail(endpoint, work);

	return rail && has_room(rail, work->length, verbs_is_small(endpoint, work)) &&
	       (!verbs_needs_local_key(rail, work) || verbs_rail_key(rail, work) == 0) &&
	       post_on_rail(rail, work, kind);
}

/* Local and remote memory of an operation's only segment. */
struct ends {
	struct verbs_remote_key *target;
	const struct verbs_device *device; /* device of the lkey */
	uint32_t lkey;
	uint8_t choice;
};

/* Takes work for an operation's only segment, without a pending count. */
PL_ALWAYS_INLINE struct verbs_work *take_segment(struct verbs_endpoint *endpoint, struct pl_operation *operation,
						 enum verbs_work_kind kind, const struct ends *ends)
{
	const struct pl_segment *segment = operation->segments;
	struct verbs_work *work = verbs_work_take(endpoint, kind, operation);

	if (!work)
		return NULL;
	work->target = ends->target;
	work->remote = ends->target->address + segment->remote_offset;
	work->choice = ends->choice;
	work->length = kind == VERBS_ATOMIC ? 0 : (uint32_t)segment->length;
	work->region = segment->region;
	work->offset = segment->offset;
	work->lkey = ends->lkey;
	work->lkey_device = ends->device;
	return work;
}

/*
 * Posts an operation on the rail, which has room; NULL: on the rail that suits it best. Returns false if something is in
 * the way.
 */
PL_ALWAYS_INLINE bool post_segment(struct verbs_endpoint *endpoint, struct verbs_rail *rail,
				   struct pl_operation *operation, enum verbs_work_kind kind, const struct ends *ends)
{
	struct verbs_work *work = take_segment(endpoint, operation, kind, ends);

	if (!work)
		return false;
	if (rail ? post_on_rail(rail, work, kind) : post_now(endpoint, work, kind))
		return true;
	verbs_work_free(endpoint, work);
	return false;
}

/* Posts an operation on an endpoint with several rails or ports, an atomic one, or one on special memory. */
__attribute__((noinline)) static bool post_any(struct verbs_endpoint *endpoint, struct pl_operation *operation)
{
	const struct pl_segment *segment = operation->segments;
	struct verbs_device *device = endpoint->rails[0].device;
	enum verbs_work_kind kind = verbs_kind_of(operation);
	struct ends ends = { .target = verbs_remote_key_of(segment->remote, endpoint) };
	const char *refusal;

	if (!ends.target || !ends.target->present ||
	    (kind == VERBS_ATOMIC &&
	     (device->attributes.atomic_cap == IBV_ATOMIC_NONE || (ends.target->address + segment->remote_offset) % 8)))
		return false;
	/* Between single cards there is nothing to choose. */
	if (endpoint->port_count > 1 || ends.target->near) {
		ends.choice = verbs_choose(endpoint, segment->region ? verbs_near(endpoint->state, segment->region) : 0,
					   ends.target->near);
		device = verbs_device_of(endpoint, ends.choice);
	}
	ends.device = device;
	if (segment->region && segment->length &&
	    (verbs_local_key(endpoint->state, device, segment->region, kind == VERBS_READ, &ends.lkey) < 0 ||
	     (pl_memory_staged(&segment->region->memory) &&
	      !verbs_is_advised(device, operation, segment, kind == VERBS_READ, &refusal))))
		return false;
	return post_segment(endpoint, NULL, operation, kind, &ends);
}

/* Lets a write or read wait for others that share its list, because the rail is busy. */
PL_ALWAYS_INLINE bool list_segment(struct verbs_endpoint *endpoint, struct pl_operation *operation,
				   enum verbs_work_kind kind, const struct ends *ends)
{
	struct verbs_work *work = take_segment(endpoint, operation, kind, ends);

	if (!work)
		return false;
	work->fresh = true;
	pl_list_append(&endpoint->waiting, &work->link);
	verbs_flush_soon(endpoint);
	return true;
}

/*
 * Posts a write or read between single cards, of host memory whose registration is known, or lets it wait if the rail is
 * busy. Returns false if any of that does not hold, or something is in the way.
 */
PL_ALWAYS_INLINE bool post_usual(struct verbs_endpoint *endpoint, struct pl_operation *operation,
				 enum verbs_work_kind kind)
{
	const struct pl_segment *segment = operation->segments;
	struct verbs_rail *rail = &endpoint->rails[0];
	struct verbs_remote_key *target = segment->remote->fabric_data;
	const struct verbs_mr *mr;

	if (endpoint->rail_count != 1 || endpoint->port_count > 1 || !target || target->near ||
	    !verbs_reaches(target, 0) || !segment->length || pl_memory_staged(&segment->region->memory))
		return false;
	mr = verbs_recent_mr(rail->device, segment->region);
	if (!mr || (kind == VERBS_READ && !(mr->access & IBV_ACCESS_LOCAL_WRITE)))
		return false;
	if (verbs_may_post_now(endpoint) && has_room(rail, segment->length, false))
		return post_segment(endpoint, rail, operation, kind,
				    &(struct ends){ target, rail->device, mr->lkey, 0 });
	return rail->link == VERBS_UP && verbs_is_busy(rail, false) &&
	       list_segment(endpoint, operation, kind, &(struct ends){ target, rail->device, mr->lkey, 0 });
}

/* Returns false if nothing was done. Otherwise the operation's only pending count is the one that it had. */
PL_ALWAYS_INLINE bool post_single(struct verbs_endpoint *endpoint, struct pl_operation *operation)
{
	if (operation->segment_count != 1 || operation->segments->length >= VERBS_SLICE ||
	    (operation->attributes.flags & (PL_MORE | PL_NOTIFY)) || pl_visible_more(operation->attributes.visible))
		return false;
	if (operation->completion.kind == PL_KIND_WRITE && post_usual(endpoint, operation, VERBS_WRITE))
		return true;
	if (operation->completion.kind == PL_KIND_READ && post_usual(endpoint, operation, VERBS_READ))
		return true;
	return verbs_may_post_now(endpoint) && post_any(endpoint, operation);
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
	if (verbs_mw_bind_message(endpoint, work) || more || !verbs_may_post_now(endpoint) ||
	    !post_now(endpoint, work, VERBS_FRAME))
		verbs_message_wait(endpoint, work, operation);
	return 0;
}
