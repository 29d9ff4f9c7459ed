/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting: waiting work becomes lists of work requests, with the buffers that they need. */
#include <endian.h>

#include "fabric/verbs/bare.h"
#include "fabric/verbs/verbs.h"

/* Completions of a queue pair's requests come in order, so one of a few is enough. */
#define SIGNAL_EVERY 16

/* Work requests for one rail. */
struct batch {
	struct verbs_rail *rail;
	struct ibv_send_wr requests[VERBS_LIST];
	struct ibv_sge elements[VERBS_LIST];
	struct verbs_work *works[VERBS_LIST];
	unsigned count;
};

static inline bool needs_buffer(const struct verbs_work *work)
{
	return work->staged || work->back || work->kind == VERBS_FRAME || work->kind == VERBS_ATOMIC;
}

/* The buffer that a work request needs: 0, -EAGAIN if there is none now, or why there never is one. */
static int take_buffer(struct verbs_queue *queue, struct verbs_work *work)
{
	struct verbs_pool *pool = work->staged ? &queue->stages : &queue->sends;
	struct verbs_buffer *last = work->buffer;
	int rc = 0;

	/* Another device does not know the buffer that the last one had. */
	if (last && last->pool == pool)
		return 0;
	if (!pool->mr)
		rc = verbs_pool_open(pool, queue, VERBS_STAGES, VERBS_STAGE);
	if (rc < 0)
		return rc;
	work->buffer = verbs_pool_take(pool);
	if (!work->buffer) {
		work->buffer = last;
		return -EAGAIN;
	}
	if (last) {
		memcpy(work->buffer->bytes, last->bytes, work->length);
		verbs_buffer_put(last);
	}
	return 0;
}

/* A waiting work request comes to nothing. */
static void give_up(struct verbs_endpoint *endpoint, struct verbs_work *work, const struct pl_error *error)
{
	struct pl_operation *operation = work->operation;

	if (verbs_work_skip(work))
		pl_list_prepend(&endpoint->waiting, &work->link);
	else
		verbs_work_free(endpoint, work);
	if (!operation)
		return;
	pl_operation_fail(operation, error->code, error);
	pl_operation_part_done(operation);
}

/* Staged bytes that leave: 0, or -EFAULT if they cannot be read. */
static int copy_out(struct verbs_work *work, struct pl_error *error)
{
	if (!work->staged || work->kind != VERBS_WRITE || !work->operation ||
	    pl_memory_copy_out(&work->region->memory, work->offset, work->buffer->bytes, work->length) == 0)
		return 0;
	return pl_fail(error, -EFAULT, "MEMORY-UNREADABLE", "pl_write", NULL, VERBS_HINT_MAPPED,
		       "the region's memory cannot be read");
}

/* The bytes are copied, so the operation's buffer is free again: that part of it is done. */
static void copy_frame(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	struct pl_operation *operation = work->operation;
	uint32_t length = pl_frame_payload(&work->frame);
	uint8_t *bytes = work->buffer->bytes;

	if (work->built)
		return;
	if (!verbs_unnumbered(work) && !work->counted)
		work->frame.ack = ++endpoint->sent;
	work->built = true;
	work->length = length;
	work->bare = endpoint->base.peer->bare && verbs_bare_encode(&work->frame, &work->immediate);
	if (!work->bare) {
		pl_frame_encode(&work->frame, bytes);
		bytes += PL_FRAME_HEADER;
		work->length += PL_FRAME_HEADER;
	}
	if (length)
		memcpy(bytes, work->payload, length);
	work->payload = NULL;
	work->operation = NULL;
	if (operation)
		pl_operation_part_done(operation);
}

static inline bool needs_local_key(const struct verbs_rail *rail, const struct verbs_work *work)
{
	return !work->buffer && work->length && work->lkey_device != rail->device;
}

/* What names the local bytes at the rail's device; the first rail's is known.  0, or why it does not reach them. */
static int local_key(struct verbs_rail *rail, struct verbs_work *work)
{
	int rc = verbs_local_key(rail->endpoint->state, rail->device, work->region, work->kind == VERBS_READ,
				 &work->lkey);

	if (rc == 0)
		work->lkey_device = rail->device;
	return rc;
}

static void fill_request(struct verbs_rail *rail, struct verbs_work *work, struct ibv_send_wr *request,
			 struct ibv_sge *element)
{
	const struct verbs_buffer *buffer = work->buffer;

	*element = (struct ibv_sge){ .length = work->kind == VERBS_ATOMIC ? 8 : work->length };
	if (buffer) {
		element->addr = (uintptr_t)buffer->bytes;
		element->lkey = buffer->pool->mr->lkey;
	} else {
		element->addr = (uintptr_t)work->region->memory.address + work->offset;
		element->lkey = work->lkey;
	}
	/* The rest of it is for other kinds of requests. */
	request->next = NULL;
	request->send_flags = 0;
	request->wr_id = (uintptr_t)work;
	request->sg_list = element;
	request->num_sge = element->length ? 1 : 0;
	switch (work->kind) {
	case VERBS_WRITE:
	case VERBS_READ:
		request->opcode = work->kind == VERBS_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
		request->wr.rdma.remote_addr = work->remote;
		request->wr.rdma.rkey = work->target->rkeys[rail->index];
		if (work->notify) {
			request->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
			request->imm_data =
				htobe32(work->frame.ack << VERBS_NOTIFY_BITS | (uint32_t)work->frame.offset);
		}
		break;
	case VERBS_FRAME:
		request->opcode = work->bare ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
		request->imm_data = htobe32(work->immediate);
		break;
	case VERBS_BIND: /* window.c */
		break;
	case VERBS_ATOMIC: {
		bool add = work->operation->receipt.kind == PL_KIND_FETCH_ADD;

		request->opcode = add ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
		request->wr.atomic.remote_addr = work->remote;
		request->wr.atomic.rkey = work->target->rkeys[rail->index];
		request->wr.atomic.compare_add = add ? work->operation->operand : work->operation->compare;
		request->wr.atomic.swap = work->operation->operand;
		break;
	}
	}
	/* The processor copies these bytes: not where it cannot reach them. */
	if (element->length <= rail->inline_max && (work->kind == VERBS_WRITE || work->kind == VERBS_FRAME) &&
	    (buffer || !work->region || !pl_memory_staged(&work->region->memory)))
		request->send_flags |= IBV_SEND_INLINE;
}

/* -- which rail ----------------------------------------------------------------------------------- */

static bool usable(const struct verbs_rail *rail)
{
	return rail->link == VERBS_UP && rail->posted_count < VERBS_SEND_DEPTH && rail->posted_bytes < rail->pace.limit;
}

/* Numbered frames keep to one rail while it is up; another takes over once no older ones are anywhere else. */
static struct verbs_rail *frame_rail(struct verbs_endpoint *endpoint)
{
	struct verbs_rail *framer = endpoint->framer;

	if (framer && framer->link == VERBS_UP)
		return usable(framer) ? framer : NULL;
	framer = NULL;
	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		if (endpoint->rails[i].frames)
			return NULL;
		if (!framer && endpoint->rails[i].link == VERBS_UP)
			framer = &endpoint->rails[i];
	}
	endpoint->framer = framer;
	return framer && usable(framer) ? framer : NULL;
}

static bool takes(const struct verbs_rail *rail, const struct verbs_work *work)
{
	return usable(rail) && (rail->index == 0 || !work->first_only) && verbs_reaches(work->target, rail->index);
}

/* The one with the fewest bytes to go; but what is small stays with others, as lists of requests cost less. */
static struct verbs_rail *transfer_rail(struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	struct verbs_rail *best = NULL, *latest = endpoint->latest;

	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		struct verbs_rail *rail = &endpoint->rails[i];

		if (takes(rail, work) && (!best || rail->posted_bytes < best->posted_bytes))
			best = rail;
	}
	if (best && latest && latest->posted_bytes + work->length < best->posted_bytes + VERBS_SLICE &&
	    takes(latest, work))
		best = latest;
	return best;
}

/* A word is atomic only among operations of one device, so as long as it is up the first one does them all. */
static struct verbs_rail *atomic_rail(struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		struct verbs_rail *rail = &endpoint->rails[i];

		if (rail->link == VERBS_UP && verbs_reaches(work->target, i))
			return usable(rail) ? rail : NULL;
	}
	return NULL;
}

static struct verbs_rail *choose_of_many(struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	if (work->only)
		return usable(work->only) ? work->only : NULL;
	if (work->kind == VERBS_ATOMIC)
		return atomic_rail(endpoint, work);
	if (work->kind != VERBS_FRAME)
		return transfer_rail(endpoint, work);
	if (!verbs_unnumbered(work))
		return frame_rail(endpoint);
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		if (usable(&endpoint->rails[i]))
			return &endpoint->rails[i];
	return NULL;
}

/* NULL: none has room for it now. */
static inline struct verbs_rail *choose_rail(struct verbs_endpoint *endpoint, const struct verbs_work *work)
{
	/* By far the most have one. */
	if (endpoint->rail_count == 1 && !work->only)
		return usable(&endpoint->rails[0]) && (!work->target || verbs_reaches(work->target, 0))
			       ? &endpoint->rails[0]
			       : NULL;
	return choose_of_many(endpoint, work);
}

/*
 * How much of a transfer one request takes.  Of what is worth it every rail gets a share, which ends
 * where a line of 128 bytes does: what cards and memory write at once.
 */
static uint32_t piece_of(const struct verbs_rail *rail, const struct verbs_work *work)
{
	uint32_t most = PL_MIN(rail->chunk, rail->device->message_max), share;
	unsigned up;

	most = (uint32_t)PL_MIN(most, rail->pace.limit - rail->posted_bytes);
	if (work->length < 2 * VERBS_SLICE || most < VERBS_SLICE)
		return PL_MIN(work->length, most);
	up = verbs_rails_up(rail->endpoint);
	if (up < 2)
		return PL_MIN(work->length, most);
	share = PL_MIN(PL_MAX(work->length / up, VERBS_SLICE), VERBS_SLICE_MAX);
	share = PL_MIN(share, most);
	if (work->length - share < VERBS_SLICE / 4)
		return PL_MIN(work->length, most);
	return share - (uint32_t)((work->remote + share) % 128);
}

static void starve(struct verbs_rail *rail)
{
	if (pl_list_empty(&rail->starved_link))
		pl_list_append(&rail->queue->starved, &rail->starved_link);
}

/* Several rails share the work as it comes, so none takes much more than it has under way. */
static bool has_enough(const struct verbs_rail *rail)
{
	return rail->posted_bytes >= VERBS_RAIL_BYTES && verbs_rails_up(rail->endpoint) > 1;
}

/* The other end revoked what it is for; or the connection is gone. */
static bool nobody_takes(const struct verbs_work *work)
{
	return (work->target && !(work->target->present | work->target->windows)) ||
	       (work->only && work->only->link != VERBS_UP);
}

/* Only the home engine posts, so that nobody else changes it meanwhile. */
static void carried_by(struct pl_operation *operation, const struct verbs_rail *rail)
{
	unsigned rails = atomic_load_explicit(&operation->rails, memory_order_relaxed);

	atomic_store_explicit(&operation->rails, rails | 1u << rail->index, memory_order_relaxed);
}

static void account(struct verbs_rail *rail, const struct verbs_work *work)
{
	rail->endpoint->latest = rail;
	rail->posted_count++;
	rail->posted_bytes += work->length;
	rail->frames += work->kind == VERBS_FRAME && !verbs_unnumbered(work);
	rail->queue->posted++;
}

static void enter(struct batch *batch, struct verbs_rail *rail, struct verbs_work *work)
{
	unsigned n = batch->count++;

	fill_request(rail, work, &batch->requests[n], &batch->elements[n]);
	if (n)
		batch->requests[n - 1].next = &batch->requests[n];
	batch->rail = rail;
	batch->works[n] = work;
	account(rail, work);
}

/* Not with others, as the keys must not change meanwhile. */
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

/* Adds the first waiting work; false if there is none, no room for it, or it is for another rail. */
static bool add_work(struct verbs_endpoint *endpoint, struct batch *batch)
{
	struct verbs_rail *rail;
	struct verbs_work *work;
	struct pl_error error;
	int rc = -EAGAIN;

	if (batch->count == VERBS_LIST || pl_list_empty(&endpoint->waiting))
		return false;
	work = pl_list_first(&endpoint->waiting, struct verbs_work, link);
	if (nobody_takes(work)) {
		pl_list_remove(&work->link);
		pl_wire_fail(&error, PL_WIRE_UNKNOWN_KEY, "post", NULL);
		give_up(endpoint, work, &error);
		return true;
	}
	rail = choose_rail(endpoint, work);
	if (!rail || (batch->rail && rail != batch->rail) || (work->length >= VERBS_SLICE && has_enough(rail)))
		return false;
	if (work->kind == VERBS_BIND)
		return bind_alone(rail, work, batch);
	if (work->kind == VERBS_WRITE || work->kind == VERBS_READ) {
		uint32_t piece = piece_of(rail, work);

		if (piece < work->length)
			verbs_work_cut(endpoint, work, piece);
	}
	/* What others give back is not told to this endpoint's completions. */
	if (rail->queue->posted < rail->queue->room)
		rc = needs_buffer(work) ? take_buffer(rail->queue, work) : 0;
	if (rc == -EAGAIN) {
		starve(rail);
		return false;
	}
	pl_list_remove(&work->link);
	if (rc == 0 && needs_local_key(rail, work))
		rc = local_key(rail, work);
	if (rc < 0 && rail->index) {
		/* The first one's device reaches the memory. */
		work->first_only = true;
		pl_list_prepend(&endpoint->waiting, &work->link);
		return true;
	}
	if (rc < 0)
		pl_fail_errno(&error, rc, "RDMA-REGISTER", "ibv_reg_mr", NULL);
	else
		rc = copy_out(work, &error);
	if (rc < 0) {
		give_up(endpoint, work, &error);
		return true;
	}
	if (work->operation)
		carried_by(work->operation, rail);
	if (work->kind == VERBS_FRAME)
		copy_frame(endpoint, work);
	if (work->notify && !work->counted) {
		work->frame.ack = ++endpoint->sent;
		work->counted = true;
	}
	enter(batch, rail, work);
	return true;
}

/* What the queue pair did not take is for the next. */
static void untake(struct verbs_rail *rail, struct verbs_work *work)
{
	pl_list_append(&rail->endpoint->again, &work->link);
	rail->posted_count--;
	rail->posted_bytes -= work->length;
	rail->frames -= work->kind == VERBS_FRAME && !verbs_unnumbered(work);
	rail->queue->posted--;
}

/* Posts a batch as one list; false if the queue pair does not take it. */
static bool post_batch(struct batch *batch)
{
	struct verbs_rail *rail = batch->rail;
	struct ibv_send_wr *bad = NULL;
	unsigned taken = batch->count;

	for (unsigned i = 0; i < batch->count; i++) {
		if (++rail->unsignaled < SIGNAL_EVERY && i + 1 < batch->count)
			continue;
		batch->requests[i].send_flags |= IBV_SEND_SIGNALED;
		rail->unsignaled = 0;
	}
	if (ibv_post_send(rail->id->qp, batch->requests, &bad))
		taken = (unsigned)(bad - batch->requests);
	for (unsigned i = 0; i < taken; i++)
		pl_list_append(&rail->posted, &batch->works[i]->link);
	for (unsigned i = taken; i < batch->count; i++)
		untake(rail, batch->works[i]);
	return taken == batch->count;
}

bool verbs_post_now(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	struct verbs_rail *rail = choose_rail(endpoint, work);
	struct ibv_send_wr request, *bad = NULL;
	struct ibv_sge element;

	if (!rail || rail->posted_count >= VERBS_BUSY || rail->queue->posted >= rail->queue->room ||
	    work->length > PL_MIN(rail->chunk, rail->device->message_max))
		return false;
	if (needs_buffer(work) && take_buffer(rail->queue, work) < 0)
		return false;
	if (needs_local_key(rail, work) && local_key(rail, work) < 0)
		return false;
	if (work->kind == VERBS_FRAME)
		copy_frame(endpoint, work);
	else
		carried_by(work->operation, rail);
	fill_request(rail, work, &request, &element);
	request.send_flags |= IBV_SEND_SIGNALED;
	rail->unsignaled = 0;
	account(rail, work);
	pl_list_append(&rail->posted, &work->link);
	if (ibv_post_send(rail->id->qp, &request, &bad)) {
		pl_list_remove(&work->link);
		untake(rail, work);
		verbs_fail(rail);
	}
	return true;
}

void verbs_flush(struct verbs_endpoint *endpoint)
{
	struct batch batch;

	if (endpoint->flushing || !verbs_rails_up(endpoint))
		return;
	/* What ends while frames are copied may bring more work. */
	endpoint->flushing = true;
	endpoint->waiting_count = 0;
	endpoint->listing = false;
	do {
		/* Behind what came back from the last queue pair. */
		if (!pl_list_empty(&endpoint->again)) {
			pl_list_splice(&endpoint->again, &endpoint->waiting);
			pl_list_splice(&endpoint->waiting, &endpoint->again);
		}
		batch.rail = NULL;
		batch.count = 0;
		while (add_work(endpoint, &batch))
			;
		if (batch.count && !post_batch(&batch))
			verbs_fail(batch.rail);
	} while (batch.count && !(pl_list_empty(&endpoint->waiting) && pl_list_empty(&endpoint->again)));
	endpoint->flushing = false;
}
