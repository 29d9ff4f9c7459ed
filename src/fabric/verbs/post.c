/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting: waiting work becomes lists of work requests, with the buffers that they need. */
#include "fabric/verbs/verbs.h"

#define BATCH 16
/* Completions of a queue pair's requests come in order, so one of a few is enough. */
#define SIGNAL_EVERY 16

struct batch {
	struct ibv_send_wr requests[BATCH];
	struct ibv_sge elements[BATCH];
	struct verbs_work *works[BATCH];
	unsigned count;
};

/* The buffer that a work request needs: 0, -EAGAIN if there is none now, or why there never is one. */
static int take_buffer(struct verbs_queue *queue, struct verbs_work *work)
{
	struct verbs_pool *pool = &queue->sends;
	int rc = 0;

	if (work->buffer || (!work->staged && work->kind != VERBS_FRAME && work->kind != VERBS_ATOMIC))
		return 0;
	if (work->staged) {
		pool = &queue->stages;
		rc = pool->mr ? 0 : verbs_pool_open(pool, queue, VERBS_STAGES, VERBS_STAGE);
	}
	if (rc < 0)
		return rc;
	work->buffer = verbs_pool_take(pool);
	return work->buffer ? 0 : -EAGAIN;
}

/* A waiting work request comes to nothing. */
static void give_up(struct verbs_endpoint *endpoint, struct verbs_work *work, const struct pl_error *error)
{
	struct pl_operation *operation = work->operation;

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
	    pl_memory_copy_out(work->staged, work->staged_offset, work->buffer->bytes, work->length) == 0)
		return 0;
	return pl_fail(error, -EFAULT, "MEMORY-UNREADABLE", "pl_write", NULL, VERBS_HINT_MAPPED,
		       "the region's memory cannot be read");
}

/* The bytes are copied, so the operation's buffer is free again: that part of it is done. */
static void copy_frame(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	struct pl_operation *operation = work->operation;

	if (work->frame.ack)
		return; /* it was posted before */
	work->frame.ack = ++endpoint->sent;
	pl_frame_encode(&work->frame, work->buffer->bytes);
	if (work->frame.length && pl_frame_payload(&work->frame))
		memcpy(work->buffer->bytes + PL_FRAME_HEADER, work->payload, work->frame.length);
	work->payload = NULL;
	work->operation = NULL;
	work->length = PL_FRAME_HEADER + pl_frame_payload(&work->frame);
	if (operation)
		pl_operation_part_done(operation);
}

static void fill_request(struct verbs_endpoint *endpoint, struct verbs_work *work, struct ibv_send_wr *request,
			 struct ibv_sge *element)
{
	const struct verbs_buffer *buffer = work->buffer;

	memset(request, 0, sizeof(*request));
	*element = (struct ibv_sge){ .addr = (uintptr_t)(buffer ? buffer->bytes : work->local),
				     .length = work->kind == VERBS_ATOMIC ? 8 : work->length,
				     .lkey = buffer ? buffer->pool->mr->lkey : work->lkey };
	request->wr_id = (uintptr_t)work;
	request->sg_list = element;
	request->num_sge = element->length ? 1 : 0;
	request->wr.rdma.remote_addr = work->remote;
	request->wr.rdma.rkey = work->rkey;
	switch (work->kind) {
	case VERBS_WRITE:
		request->opcode = IBV_WR_RDMA_WRITE;
		break;
	case VERBS_READ:
		request->opcode = IBV_WR_RDMA_READ;
		break;
	case VERBS_FRAME:
		request->opcode = IBV_WR_SEND;
		break;
	case VERBS_ATOMIC: {
		bool add = work->operation->receipt.kind == PL_KIND_FETCH_ADD;

		request->opcode = add ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
		request->wr.atomic.remote_addr = work->remote;
		request->wr.atomic.rkey = work->rkey;
		request->wr.atomic.compare_add = add ? work->operation->operand : work->operation->compare;
		request->wr.atomic.swap = work->operation->operand;
		break;
	}
	}
	if (element->length <= endpoint->inline_max && (work->kind == VERBS_WRITE || work->kind == VERBS_FRAME))
		request->send_flags |= IBV_SEND_INLINE;
}

static void starve(struct verbs_endpoint *endpoint)
{
	if (pl_list_empty(&endpoint->starved_link))
		pl_list_append(&endpoint->queue->starved, &endpoint->starved_link);
}

/* Adds the first waiting work; false if there is none, or no room for it. */
static bool add_work(struct verbs_endpoint *endpoint, struct batch *batch)
{
	struct verbs_queue *queue = endpoint->queue;
	struct verbs_work *work;
	struct pl_error error;
	unsigned n = batch->count;
	int rc;

	if (n == BATCH || pl_list_empty(&endpoint->waiting) || endpoint->posted_count + n >= VERBS_SEND_DEPTH)
		return false;
	work = pl_list_first(&endpoint->waiting, struct verbs_work, link);
	if ((work->kind == VERBS_WRITE || work->kind == VERBS_READ) && work->length > endpoint->chunk)
		verbs_work_cut(endpoint, work, endpoint->chunk);
	/* What others give back is not told to this endpoint's completions. */
	rc = queue->posted + n < queue->room ? take_buffer(queue, work) : -EAGAIN;
	if (rc == -EAGAIN) {
		starve(endpoint);
		return false;
	}
	pl_list_remove(&work->link);
	if (rc < 0)
		pl_fail_errno(&error, rc, "RDMA-REGISTER", "ibv_reg_mr", NULL);
	else
		rc = copy_out(work, &error);
	if (rc < 0) {
		give_up(endpoint, work, &error);
		return true;
	}
	if (work->kind == VERBS_FRAME)
		copy_frame(endpoint, work);
	fill_request(endpoint, work, &batch->requests[n], &batch->elements[n]);
	if (n)
		batch->requests[n - 1].next = &batch->requests[n];
	batch->works[n] = work;
	batch->count++;
	return true;
}

/* Posts a batch as one list; false if the queue pair does not take it. */
static bool post_batch(struct verbs_endpoint *endpoint, struct batch *batch)
{
	struct ibv_send_wr *bad = NULL;
	unsigned taken = batch->count;

	for (unsigned i = 0; i < batch->count; i++) {
		if (++endpoint->unsignaled < SIGNAL_EVERY && i + 1 < batch->count)
			continue;
		batch->requests[i].send_flags |= IBV_SEND_SIGNALED;
		endpoint->unsignaled = 0;
	}
	if (ibv_post_send(endpoint->id->qp, batch->requests, &bad))
		taken = (unsigned)(bad - batch->requests);
	for (unsigned i = 0; i < taken; i++)
		pl_list_append(&endpoint->posted, &batch->works[i]->link);
	for (unsigned i = taken; i < batch->count; i++)
		pl_list_append(&endpoint->again, &batch->works[i]->link);
	endpoint->posted_count += taken;
	endpoint->queue->posted += taken;
	return taken == batch->count;
}

void verbs_flush(struct verbs_endpoint *endpoint)
{
	struct batch batch;

	if (endpoint->link != VERBS_UP || endpoint->flushing)
		return;
	/* What ends while frames are copied may bring more work. */
	endpoint->flushing = true;
	endpoint->waiting_count = 0;
	do {
		/* Behind what came back from the last queue pair. */
		if (!pl_list_empty(&endpoint->again)) {
			pl_list_splice(&endpoint->again, &endpoint->waiting);
			pl_list_splice(&endpoint->waiting, &endpoint->again);
		}
		batch.count = 0;
		while (add_work(endpoint, &batch))
			;
		if (batch.count && !post_batch(endpoint, &batch))
			verbs_fail(endpoint);
	} while (batch.count && endpoint->link == VERBS_UP);
	endpoint->flushing = false;
}
