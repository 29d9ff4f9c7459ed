/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared receive queue of a verbs_cq, and its receive buffers, which grow with the rails. */
#include "fabric/verbs/verbs.h"

/* Part of the completion queue that receives may fill, so that requests have the rest. */
#define COMPLETIONS_PER_RECEIVE 4
/* Part of the receives that may be lost before new connections get another queue. */
#define LOST_PART 4

/* Makes the queue with its final size, because not all devices can resize one. Some have none: E810, MANA, ionic, erdma. */
static int make_srq(struct verbs_cq *queue, struct verbs_failure *failure)
{
	unsigned most = PL_MIN((unsigned)queue->device->attributes.max_srq_wr,
			       (unsigned)queue->cq->cqe / COMPLETIONS_PER_RECEIVE);
	struct ibv_srq_init_attr attributes = { .srq_context = queue, .attr = { .max_sge = 1 } };
	int rc;

	failure->call = "ibv_create_srq";
	if (!queue->device->attributes.max_srq)
		return 0;
	queue->receives_max = PL_MAX(PL_MIN(most, VERBS_RECEIVES_MAX), VERBS_RECEIVES);
	attributes.attr.max_wr = queue->receives_max;
	queue->srq = queue->state->library->ibv_create_srq(queue->device->pd, &attributes);
	rc = verbs_made(queue->srq);
	return rc == -EOPNOTSUPP || rc == -ENOSYS ? 0 : rc;
}

/* Registers a slab of receive buffers and posts them. */
static int add_receives(struct verbs_cq *queue, unsigned count, const char **call)
{
	struct verbs_buffer_pool *slab = &queue->receives[queue->receive_slabs];
	struct verbs_buffer *buffer;
	int rc;

	*call = "ibv_reg_mr";
	rc = verbs_buffer_pool_open(slab, queue->state, queue->device, count, VERBS_BUFFER);
	if (rc < 0)
		return rc;
	queue->receive_slabs++;
	queue->receive_count += count;
	queue->room -= count;
	*call = "ibv_post_srq_recv";
	while (rc == 0 && (buffer = verbs_buffer_pool_take(slab)))
		rc = verbs_receive_post(queue, NULL, buffer);
	return rc;
}

int verbs_srq_open(struct verbs_cq *queue, struct verbs_failure *failure)
{
	int rc = make_srq(queue, failure);

	return rc < 0 || !queue->srq ? rc : add_receives(queue, VERBS_RECEIVES, &failure->call);
}

/* True if the rails may use more receives than there are, and the device's queues have room for their completions. */
static bool needs_receives(const struct verbs_cq *queue)
{
	unsigned enough = VERBS_RECEIVES + (queue->rail_count - 1) * VERBS_SEND_DEPTH;

	return queue->srq && queue->receive_count < enough &&
	       queue->receive_count + VERBS_SEND_DEPTH <= queue->receives_max &&
	       queue->posted + VERBS_SEND_DEPTH <= queue->room;
}

void verbs_srq_grow(struct verbs_cq *queue)
{
	atomic_uint *added = &queue->state->receives_added;
	unsigned before = queue->receive_count;
	const char *call;

	if (!needs_receives(queue))
		return;
	/* Fewer receives cost pauses and no connection, so an error does not matter. */
	if (atomic_fetch_add(added, VERBS_SEND_DEPTH) + VERBS_SEND_DEPTH <= VERBS_RECEIVES_ADDED_MAX)
		add_receives(queue, VERBS_SEND_DEPTH, &call);
	if (queue->receive_count == before)
		atomic_fetch_sub(added, VERBS_SEND_DEPTH);
}

void verbs_srq_note_lost(struct verbs_cq *queue)
{
	if (!queue->srq || ++queue->receives_lost < queue->receive_count / LOST_PART)
		return;
	/* Its rails keep it until they break. */
	queue->broken = true;
	pl_engine_post(queue->engine, &queue->events_task);
}

void verbs_srq_shut(struct verbs_cq *queue)
{
	if (queue->srq)
		verbs_object_end(queue->device, VERBS_SRQ, queue->srq);
	queue->srq = NULL;
	for (unsigned i = 0; i < queue->receive_slabs; i++)
		verbs_buffer_pool_shut(&queue->receives[i]);
}

void verbs_srq_close(struct verbs_cq *queue)
{
	if (queue->receive_count)
		atomic_fetch_sub(&queue->state->receives_added, queue->receive_count - VERBS_RECEIVES);
	for (unsigned i = 0; i < queue->receive_slabs; i++)
		verbs_buffer_pool_close(&queue->receives[i], queue->state);
}
