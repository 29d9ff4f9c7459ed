/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Staging of memory that the card cannot reach: its bytes go through registered buffers of the queue. For GPU memory
 * these buffers are locked for the GPU's copies, too, and the engine's copier moves the bytes while the engine does
 * other things. Up to VERBS_STAGES copies and requests are under way. All other copies end before the call does.
 */
#include "fabric/verbs/data/request.h"

/* Locks the buffers for copies of the memory's device. */
static void lock_stages(struct verbs_cq *queue, const struct pl_memory *memory)
{
	struct pl_slots *slots = &queue->state->context->slot_pool;
	const size_t bytes = (size_t)VERBS_STAGES * VERBS_STAGE;

	if (queue->stage_lock.tried || !memory->ops->pin)
		return;
	queue->stage_lock.tried = true;
	if (!pl_slots_reserve(slots, bytes))
		return;
	if (memory->ops->pin(memory, queue->stages.slab, bytes, false, &queue->stage_lock.holder) == 0)
		queue->stage_lock.ops = memory->ops;
	else
		pl_slots_return(slots, bytes);
}

void verbs_stages_unlock(struct verbs_cq *queue)
{
	const struct pl_memory_ops *ops = queue->stage_lock.ops;

	if (!ops)
		return;
	ops->unpin(queue->stage_lock.holder, queue->stages.slab);
	pl_slots_return(&queue->state->context->slot_pool, (size_t)VERBS_STAGES * VERBS_STAGE);
	queue->stage_lock.ops = NULL;
}

/* Returns the queue that has the buffer of staged work. */
static struct verbs_cq *queue_of(const struct verbs_work *work)
{
	return pl_container_of(work->buffer->pool, struct verbs_cq, stages);
}

/* Returns the copier that moves the bytes of a work request later; NULL: they are copied at once. */
static struct pl_copier *copier_for(struct verbs_cq *queue, const struct verbs_work *work)
{
	const struct pl_memory *memory = &work->region->memory;

	if (!pl_memory_staged(memory))
		return NULL;
	lock_stages(queue, memory);
	return queue->stage_lock.ops == memory->ops ? pl_context_copier(queue->state->context, queue->engine) : NULL;
}

static void fail_copy(struct verbs_work *work)
{
	const bool written = work->kind == VERBS_READ;
	struct pl_error error;

	pl_fail(&error, -EFAULT, written ? "MEMORY-UNWRITABLE" : "MEMORY-UNREADABLE", written ? "pl_read" : "pl_write", NULL,
		VERBS_HINT_MAPPED, written ? "the region's memory cannot be written" : "the region's memory cannot be read");
	pl_operation_fail(work->operation, -EFAULT, &error);
}

/* Ends work whose bytes are in their place, or cannot be copied. */
static void end_staged_work(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	struct pl_operation *operation = work->operation;

	if (work->kind == VERBS_READ)
		atomic_fetch_add(&operation->staged, work->length);
	verbs_work_free(endpoint, work);
	pl_operation_pending_done(operation);
}

/* A copy has ended. If it ended before its start returned, the caller of the start goes on. */
static void copy_ended(struct pl_copy *copy, int status)
{
	struct verbs_work *work = pl_container_of(copy, struct verbs_work, copying);
	struct verbs_endpoint *endpoint = verbs_endpoint_of(work->operation->peer->endpoint);
	struct verbs_cq *queue = queue_of(work);

	work->copies = false;
	work->copied = status == 0;
	if (status < 0)
		fail_copy(work);
	if (work->starts)
		return;
	pl_list_remove(&work->link);
	/* Copied work goes first: other work may wait for its buffer. */
	if (work->kind == VERBS_WRITE && status == 0 && !atomic_load(&work->operation->canceled))
		pl_list_append(&endpoint->again, &work->link);
	else
		end_staged_work(endpoint, work);
	if (endpoint->closing)
		return;
	verbs_cq_feed(queue);
	verbs_flush(endpoint);
}

/* Copies between a buffer and memory of a region. Returns 0, -EINPROGRESS while the copier does it, or -EFAULT. */
static int copy_staged(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	struct pl_copier *copier = copier_for(queue_of(work), work);
	const bool into = work->kind == VERBS_READ;
	int rc;

	if (!copier) {
		rc = into ? pl_memory_copy_in(&work->region->memory, work->offset, work->buffer->bytes, work->length)
			  : pl_memory_copy_out(&work->region->memory, work->offset, work->buffer->bytes, work->length);
		work->copied = rc == 0;
		if (rc < 0)
			fail_copy(work);
		return rc;
	}
	work->copies = work->starts = true;
	work->copying.done = copy_ended;
	pl_list_init(&work->copying.link);
	pl_list_append(&endpoint->copying, &work->link);
	pl_copier_host(copier, &work->copying, &work->region->memory, work->offset, work->buffer->bytes, work->length, into);
	work->starts = false;
	if (work->copies)
		return -EINPROGRESS;
	pl_list_remove(&work->link);
	return work->copied ? 0 : -EFAULT;
}

int verbs_stage_out(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	if (!work->staged || work->kind != VERBS_WRITE || work->copied)
		return 0;
	return copy_staged(endpoint, work);
}

bool verbs_stage_in(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	if (work->kind == VERBS_READ && !atomic_load(&work->operation->canceled))
		return copy_staged(endpoint, work) == -EINPROGRESS;
	return false;
}

void verbs_stages_drain(struct verbs_endpoint *endpoint)
{
	if (!pl_list_empty(&endpoint->copying))
		pl_copier_drain(pl_context_copier(endpoint->state->context, endpoint->base.peer->home));
}
