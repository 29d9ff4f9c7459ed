/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues as sources of their engines. */
#include "fabric/verbs/data/request.h"

void verbs_cq_take_present(struct verbs_cq *queue)
{
	unsigned left = (unsigned)queue->cq->cqe, taken;

	/* The queue yields completions in order, and holds no more than these. */
	while (left && queue->cq && (taken = verbs_cq_poll(queue)))
		left -= PL_MIN(taken, left);
}

bool verbs_cq_ready(struct pl_source *source, uint32_t events)
{
	struct verbs_cq *queue = pl_container_of(source, struct verbs_cq, source);
	struct ibv_cq *cq;
	void *context;

	(void)events;
	if (queue->armed && !queue->state->library->ibv_get_cq_event(queue->channel, &cq, &context)) {
		queue->state->library->ibv_ack_cq_events(cq, 1);
		queue->armed = false;
	}
	return verbs_cq_poll(queue);
}

/* A thread may sleep on the descriptor from now on. */
void verbs_cq_idle(struct pl_source *source)
{
	struct verbs_cq *queue = pl_container_of(source, struct verbs_cq, source);

	if (queue->armed || (!pl_list_empty(&source->hot) && !pl_engine_eager(queue->engine)))
		return;
	/* Without an event nothing would poll the queue any more. */
	if (ibv_req_notify_cq(queue->cq, 0)) {
		verbs_cq_break(queue, "ibv_req_notify_cq of the completion queue failed");
		return;
	}
	queue->armed = true;
	/* A completion between the last poll and ibv_req_notify_cq() creates no event. */
	verbs_cq_take_present(queue);
}
