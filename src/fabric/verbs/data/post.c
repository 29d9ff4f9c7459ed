/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting: turns waiting work into lists of work requests, with the buffers that they need. */
#include "fabric/verbs/data/request.h"
#include "fabric/verbs/data/signal.h"

/* List of work requests for one rail. */
struct batch {
	struct verbs_rail *rail;
	struct ibv_send_wr requests[VERBS_LIST];
	struct ibv_sge pieces[VERBS_LIST][VERBS_PIECES];
	struct verbs_work *works[VERBS_LIST];
	unsigned count;
};

/* Ends waiting work that cannot be posted. Without `error` its operation has failed before. */
static void end_waiting_work(struct verbs_endpoint *endpoint, struct verbs_work *work, const struct pl_error *error)
{
	struct pl_operation *operation = work->operation;

	if (verbs_work_skip(work))
		pl_list_prepend(&endpoint->waiting, &work->link);
	else
		verbs_work_free(endpoint, work);
	if (!operation)
		return;
	if (error)
		pl_operation_fail(operation, error->code, error);
	pl_operation_pending_done(operation);
}

/* -- choice of a rail ----------------------------------------------------------------------------- */

/* Numbered frames stay on one rail while it is up. Another rail takes over once no older frame is pending elsewhere. */
struct verbs_rail *verbs_frame_rail(struct verbs_endpoint *endpoint)
{
	struct verbs_rail *framer = endpoint->framer;

	if (framer && framer->link == VERBS_UP)
		return verbs_usable(framer) ? framer : NULL;
	framer = NULL;
	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		if (endpoint->rails[i].frames)
			return NULL;
		if (!framer && endpoint->rails[i].link == VERBS_UP)
			framer = &endpoint->rails[i];
	}
	endpoint->framer = framer;
	return framer && verbs_usable(framer) ? framer : NULL;
}

/* True if a rail of the device that reaches the work's own memory serves the work now, if not at this moment. */
static bool lkey_device_serves(const struct verbs_endpoint *endpoint, const struct verbs_work *work, uint8_t live)
{
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		if (live & 1u << i && endpoint->rails[i].device == work->lkey_device && verbs_reaches(work->target, i))
			return true;
	return false;
}

/* Work for one device goes to others if no rail of that device is left, as after a port went down. */
static bool takes(const struct verbs_rail *rail, const struct verbs_work *work, uint8_t live)
{
	return live & 1u << rail->index && verbs_usable(rail) && verbs_reaches(work->target, rail->index) &&
	       (!work->lkey_only || rail->device == work->lkey_device ||
		!lkey_device_serves(rail->endpoint, work, live));
}

bool verbs_rail_takes(const struct verbs_rail *rail, const struct verbs_work *work)
{
	return takes(rail, work, verbs_live_rails(rail->endpoint, work->choice, work->target));
}

/*
 * Returns the rail with the fewest posted bytes; small work stays with other work, because lists of requests cost less.
 */
static struct verbs_rail *transfer_rail(struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	struct verbs_rail *best = NULL, *latest = endpoint->latest;
	uint8_t live = verbs_live_rails(endpoint, work->choice, work->target);

	/* The device of another rail does not know the buffer. */
	for (unsigned i = 0; work->copied && i < endpoint->rail_count; i++)
		if (takes(&endpoint->rails[i], work, live) && &endpoint->rails[i].queue->stages == work->buffer->pool)
			return &endpoint->rails[i];
	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		struct verbs_rail *rail = &endpoint->rails[i];

		if (takes(rail, work, live) && (!best || rail->posted_bytes < best->posted_bytes))
			best = rail;
	}
	if (best && latest && latest->posted_bytes + work->length < best->posted_bytes + VERBS_SLICE &&
	    takes(latest, work, live))
		best = latest;
	return best;
}

/*
 * A word is atomic only among operations of one device: the owner's first one that is near the memory, or is up, does
 * all atomic operations.
 */
static struct verbs_rail *atomic_rail(struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	uint8_t live = verbs_live_atomic_rails(endpoint, work->choice, work->target);
	struct verbs_rail *first = NULL;

	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		struct verbs_rail *rail = &endpoint->rails[i];

		if (live & 1u << i && verbs_reaches(work->target, i) && (!first || rail->far_port < first->far_port))
			first = rail;
	}
	return first && verbs_usable(first) ? first : NULL;
}

/* Returns the rail of the frames for data whose notification follows: the order of one queue pair is enough then. */
static struct verbs_rail *framed_rail(struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	struct verbs_rail *framer = verbs_frame_rail(endpoint);

	/* A full queue has room soon. */
	if (!framer && endpoint->framer && endpoint->framer->link == VERBS_UP)
		return NULL;
	return framer && verbs_rail_takes(framer, work) ? framer : transfer_rail(endpoint, work);
}

struct verbs_rail *verbs_choose_of_many(struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	if (work->only)
		return verbs_usable(work->only) ? work->only : NULL;
	if (work->behind)
		return verbs_usable(work->behind) ? work->behind : NULL;
	if (work->kind == VERBS_ATOMIC)
		return atomic_rail(endpoint, work);
	if (work->framed)
		return framed_rail(endpoint, work);
	if (work->kind != VERBS_FRAME && !work->notify)
		return transfer_rail(endpoint, work);
	if (verbs_has_number(work))
		return verbs_frame_rail(endpoint);
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		if (verbs_usable(&endpoint->rails[i]))
			return &endpoint->rails[i];
	return NULL;
}

/* Returns the bytes of a request that ends at a multiple of 128 bytes, the unit in which cards and memory write. */
static uint32_t whole_lines(const struct verbs_work *work, uint32_t length)
{
	return length < work->length && length >= 256 ? length - (uint32_t)((work->remote + length) % 128) : length;
}

/*
 * Returns the bytes of a transfer that one request takes. Each rail gets a share of large transfers. All requests but the
 * last end with a line of memory: another rail may place the bytes behind them first.
 */
static uint32_t piece_of(const struct verbs_rail *rail, const struct verbs_work *work)
{
	uint32_t most = verbs_most_of(rail), share;
	unsigned up;

	if (work->length < 2 * VERBS_SLICE || most < VERBS_SLICE)
		return whole_lines(work, PL_MIN(work->length, most));
	up = (unsigned)__builtin_popcount(verbs_live_rails(rail->endpoint, work->choice, work->target) & work->target->present);
	if (up < 2)
		return whole_lines(work, PL_MIN(work->length, most));
	share = PL_MIN(PL_MAX(work->length / up, VERBS_SLICE), VERBS_SLICE_MAX);
	share = PL_MIN(share, most);
	if (work->length - share < VERBS_SLICE / 4)
		return whole_lines(work, PL_MIN(work->length, most));
	return whole_lines(work, share);
}

static void starve(struct verbs_rail *rail)
{
	if (pl_list_empty(&rail->starved_link))
		pl_list_append(&rail->queue->starved, &rail->starved_link);
}

/* True if a rail has enough posted: several rails share the work as it comes. */
static bool has_enough(const struct verbs_rail *rail)
{
	return rail->posted_bytes >= VERBS_RAIL_BYTES && verbs_rails_up(rail->endpoint) > 1;
}

/* True if the owner refuses the key of the memory over all rails that are up and whose cards have atomic operations. */
static bool atomics_are_refused(const struct verbs_endpoint *endpoint, const struct verbs_remote_key *target)
{
	uint8_t up = 0;

	for (unsigned i = 0; i < endpoint->rail_count; i++)
		if (endpoint->rails[i].link == VERBS_UP)
			up |= (uint8_t)(1u << i);
	up &= verbs_rails_with_atomics(endpoint);
	return up && !(up & ~target->refused);
}

/* True if the peer revoked the key, or the connection is gone. */
static bool nobody_takes(const struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	if (work->kind == VERBS_ATOMIC && work->target->refused && atomics_are_refused(endpoint, work->target))
		return true;
	return (work->target && !verbs_obtainable(endpoint, work->target)) || (work->only && work->only->link != VERBS_UP);
}

/*
 * No rail takes the transfer. Asks for a key if it is missing, or lets the transfer wait for its rails, apart from other
 * work. Returns false if it stays the first. An atomic operation waits for a card that has them, and no other work for it.
 */
static bool await_rail(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	uint8_t live = work->kind == VERBS_ATOMIC ? verbs_live_atomic_rails(endpoint, work->choice, work->target)
						  : verbs_live_rails(endpoint, work->choice, work->target);

	if (!work->target || work->only || work->notify || work->behind)
		return false;
	if (!live) {
		verbs_park(endpoint, work);
		return true;
	}
	return !(live & work->target->present) && verbs_ask_missing(endpoint, work->target, live);
}

/* Appends work whose request is filled. */
static inline void batch_append(struct batch *batch, struct verbs_rail *rail, struct verbs_work *work)
{
	unsigned n = batch->count++;

	if (n)
		batch->requests[n - 1].next = &batch->requests[n];
	batch->rail = rail;
	batch->works[n] = work;
	verbs_account(rail, work);
}

static void add_to_batch(struct batch *batch, struct verbs_rail *rail, struct verbs_work *work)
{
	work->simple = work->fresh = false;
	verbs_fill_request(rail, work, &batch->requests[batch->count], batch->pieces[batch->count]);
	batch_append(batch, rail, work);
}

/*
 * Adds the first waiting work if it is fresh, and the only rail has room for it: no other work needs so few steps. Returns
 * false if it needs others.
 */
static bool add_fresh(struct verbs_endpoint *endpoint, struct verbs_work *work, struct batch *batch)
{
	struct verbs_rail *rail = &endpoint->rails[0];
	unsigned n = batch->count;

	if (!work->fresh)
		return false;
	work->fresh = false;
	if (endpoint->rail_count != 1 || !verbs_usable(rail) || rail->queue->posted >= rail->queue->room ||
	    !verbs_reaches(work->target, 0) || work->lkey_device != rail->device || work->length > verbs_most_of(rail))
		return false;
	pl_list_remove(&work->link);
	work->simple = true;
	verbs_carried_by(work->operation, rail);
	verbs_fill_simple(rail, work, work->kind, &batch->requests[n], batch->pieces[n]);
	batch_append(batch, rail, work);
	return true;
}

/* Posts a bind request in a list of its own, because keys must not change while the list is built. */
static bool bind_alone(struct verbs_rail *rail, struct verbs_work *work, const struct batch *batch)
{
	if (batch->count)
		return false;
	if (rail->queue->posted >= rail->queue->room) {
		starve(rail);
		return false;
	}
	pl_list_remove(&work->link);
	verbs_bind(rail, work);
	return true;
}

static void build_request(struct verbs_rail *rail, struct verbs_work *work)
{
	struct verbs_endpoint *endpoint = rail->endpoint;
	bool packed;

	if (work->built)
		return;
	packed = verbs_packs(endpoint, work);
	verbs_copy_frame(endpoint, work, packed);
	if (packed)
		verbs_pack(rail, work);
}

/* True if another device reaches both memories of the transfer, and this rail's device not, or not yet. */
static bool leaves_to_another(const struct verbs_rail *rail, const struct verbs_work *work)
{
	const struct verbs_endpoint *endpoint = rail->endpoint;

	return work->kind != VERBS_FRAME && work->lkey_device && work->lkey_device != rail->device &&
	       !work->lkey_only &&
	       lkey_device_serves(endpoint, work, verbs_live_rails(endpoint, work->choice, work->target));
}

/*
 * True if work must wait for the registration: no other rail can take it, and its bytes must not be copied. Work behind
 * it waits, too, so that its order stays.
 */
static bool awaits_registration(const struct verbs_rail *rail, const struct verbs_work *work)
{
	if (work->kind == VERBS_FRAME)
		return work->operation->attributes.flags & PL_REQUIRE_DIRECT;
	return !leaves_to_another(rail, work);
}

/* Adds the first waiting work. Returns false if there is none, no room for it, or if it is for another rail. */
static bool add_work(struct verbs_endpoint *endpoint, struct batch *batch)
{
	struct verbs_rail *rail;
	struct verbs_work *work;
	struct pl_error error;
	int rc = -EAGAIN;

	if (batch->count == VERBS_LIST || pl_list_empty(&endpoint->waiting))
		return false;
	work = pl_list_first(&endpoint->waiting, struct verbs_work, link);
	if (verbs_operation_failed(endpoint, work)) {
		verbs_work_drop(endpoint, work, false);
		return true;
	}
	if (add_fresh(endpoint, work, batch))
		return true;
	if (work->rest) {
		verbs_work_expand(endpoint, work);
		return true;
	}
	if (nobody_takes(endpoint, work)) {
		pl_list_remove(&work->link);
		pl_wire_fail(&error, PL_WIRE_UNKNOWN_KEY, "post", NULL);
		end_waiting_work(endpoint, work, &error);
		return true;
	}
	if (work->kind == VERBS_FRAME && work->answer && !verbs_mw_message_goes(endpoint, work))
		return false;
	if ((work->notify || work->back) && endpoint->rail_count > 1) {
		enum verbs_behind behind = verbs_behind_first(endpoint, work);

		if (behind != VERBS_BEHIND_GOES)
			return behind == VERBS_BEHIND_CHANGED;
	}
	rail = verbs_choose_rail(endpoint, work);
	if (!rail && await_rail(endpoint, work))
		return true;
	if (!rail || (batch->rail && rail != batch->rail) || (work->length >= VERBS_SLICE && has_enough(rail)))
		return false;
	if (!batch->count && verbs_must_follow_signaled(rail, work->kind) && !verbs_ask_before(rail))
		return false;
	if (work->kind == VERBS_BIND)
		return bind_alone(rail, work, batch);
	/* A read that flushes has a buffer for its few bytes, and stays whole. */
	if ((work->kind == VERBS_WRITE || work->kind == VERBS_READ) && !work->back) {
		uint32_t piece = piece_of(rail, work);

		if (piece < work->length)
			verbs_work_cut(endpoint, work, piece);
	}
	/* This endpoint gets no completion when other queue pairs free their room. */
	if (rail->queue->posted < rail->queue->room)
		rc = verbs_needs_buffer(work) ? verbs_take_buffer(rail->queue, work) : 0;
	if (rc == -EAGAIN) {
		starve(rail);
		return false;
	}
	pl_list_remove(&work->link);
	if (rc == 0 && verbs_needs_local_key(rail, work))
		rc = verbs_rail_key(rail, work);
	if (rc == -EINPROGRESS && awaits_registration(rail, work)) {
		pl_list_prepend(&endpoint->waiting, &work->link);
		verbs_await_registration(endpoint);
		return false;
	}
	if (rc < 0 && work->gathered)
		rc = verbs_gather_not(work);
	if (rc < 0 && leaves_to_another(rail, work)) {
		work->lkey_only = true;
		pl_list_prepend(&endpoint->waiting, &work->link);
		return true;
	}
	if (rc < 0) {
		verbs_registration_fail(&error, rc);
		end_waiting_work(endpoint, work, &error);
		return true;
	}
	rc = verbs_stage_out(endpoint, work);
	if (rc == -EINPROGRESS)
		return true;
	if (rc < 0) {
		end_waiting_work(endpoint, work, NULL);
		return true;
	}
	if (work->operation)
		verbs_carried_by(work->operation, rail);
	if (work->choice)
		verbs_explain_rail(rail, work);
	if (work->kind == VERBS_FRAME)
		build_request(rail, work);
	if (work->notify && !work->counted) {
		work->frame.ack = endpoint->notified = ++endpoint->sent;
		work->counted = true;
	}
	add_to_batch(batch, rail, work);
	return true;
}

/* Puts back all requests that the queue pair did not take, from number `taken` on. */
static void untake(struct batch *batch, unsigned taken)
{
	struct verbs_rail *rail = batch->rail;

	for (unsigned i = taken; i < batch->count; i++) {
		pl_list_append(&rail->endpoint->again, &batch->works[i]->link);
		verbs_unaccount(rail, batch->works[i]);
	}
	verbs_unpack(&rail->endpoint->again);
}

/* Ends the request that the driver refuses, or puts it back. Returns false if the connection must be made again. */
static bool handle_refusal(struct batch *batch, unsigned taken, int code)
{
	struct verbs_rail *rail = batch->rail;

	verbs_unaccount(rail, batch->works[taken]);
	if (verbs_work_refused(rail, batch->works[taken], code)) {
		untake(batch, taken + 1);
		/* The sweep at a loss has not seen the rest of the batch. */
		if (verbs_is_lost(rail->endpoint))
			pl_peer_sweep(rail->endpoint->base.peer);
		/* The last request that was taken may be the last for long. */
		verbs_ask(rail);
		return true;
	}
	pl_list_append(&rail->endpoint->again, &batch->works[taken]->link);
	untake(batch, taken + 1);
	return false;
}

/* Posts a batch as one list. Returns false if the connection must be made again. */
static bool post_batch(struct batch *batch)
{
	struct verbs_rail *rail = batch->rail;
	struct ibv_send_wr *bad;
	unsigned taken = batch->count;
	int rc;

	verbs_signal_list(rail, batch->requests, batch->count);
	rc = verbs_post_list(rail, batch->requests, &bad);
	/* A driver that fails before the first request may leave `bad` as it was. */
	if (rc < 0)
		taken = bad ? (unsigned)(bad - batch->requests) : 0;
	for (unsigned i = 0; i < taken; i++)
		pl_list_append(&rail->posted, &batch->works[i]->link);
	if (taken && batch->requests[taken - 1].send_flags & IBV_SEND_SIGNALED)
		verbs_mark_signaled(rail);
	else if (taken)
		verbs_mark_quiet(rail);
	return taken == batch->count || handle_refusal(batch, taken, rc);
}

void verbs_flush(struct verbs_endpoint *endpoint)
{
	struct batch batch;

	if (endpoint->flushing || !verbs_rails_up(endpoint))
		return;
	/* Operations that end while frames are copied may add work. */
	endpoint->flushing = true;
	endpoint->waiting_count = 0;
	endpoint->listing = false;
	do {
		/* Behind the work that the last queue pair returned. */
		if (!pl_list_empty(&endpoint->again)) {
			pl_list_splice(&endpoint->again, &endpoint->waiting);
			pl_list_splice(&endpoint->waiting, &endpoint->again);
		}
		batch.rail = NULL;
		batch.count = 0;
		while (add_work(endpoint, &batch))
			;
		if (batch.count && !post_batch(&batch))
			verbs_fail(batch.rail, "the device refused a request");
	} while (batch.count && !(pl_list_empty(&endpoint->waiting) && pl_list_empty(&endpoint->again)));
	endpoint->flushing = false;
}
