/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asynchronous events of a device (ibv_get_async_event(3)): a port goes down, a queue pair or a queue fails, the device
 * fails. Each queue of the device watches for events, because each has an engine of its own; the queue that reads an
 * event tells all others.
 *
 * Events only bring early what completions and the connection manager bring late or never. The next connection attempt
 * notices a port that is up again; a changed address either breaks the connection or has no effect.
 */
#include <fcntl.h>

#include "fabric/verbs/verbs.h"

/* Bits of struct verbs_cq.events: one for each port that went down, and these. */
#define PORTS 0x00ffffffu
#define QUEUE_PAIRS (1u << 24)
#define QUEUE_BROKEN (1u << 25)
#define DEVICE_LOST (1u << 26)

static unsigned bits_of(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_PORT_ERR:
		return event->element.port_num < 24 ? 1u << event->element.port_num : 0;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_PATH_MIG_ERR:
		return QUEUE_PAIRS;
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_SRQ_ERR:
		return QUEUE_BROKEN;
	case IBV_EVENT_DEVICE_FATAL:
		return DEVICE_LOST;
	default:
		return 0;
	}
}

void verbs_async_tell(struct verbs_state *state, const struct verbs_device *device, unsigned bits)
{
	pthread_mutex_lock(&state->lock);
	state->tellers++;
	pl_list_for_each(at, &state->queues) {
		struct verbs_cq *queue = pl_list_entry(at, struct verbs_cq, link);

		if (queue->device != device)
			continue;
		/* The task may run here at once, if its engine is free, and take the lock. */
		pthread_mutex_unlock(&state->lock);
		atomic_fetch_or(&queue->events, bits);
		pl_engine_post(queue->engine, &queue->events_task);
		pthread_mutex_lock(&state->lock);
	}
	state->tellers--;
	pthread_mutex_unlock(&state->lock);
}

static bool async_event_ready(struct pl_source *source, uint32_t events)
{
	struct verbs_cq *queue = pl_container_of(source, struct verbs_cq, async);
	const struct verbs_library *library = queue->state->library;
	struct ibv_async_event event;
	unsigned bits;

	/* The device was removed: there are no more events. */
	if (events & (EPOLLERR | EPOLLHUP)) {
		pl_source_remove(source);
		verbs_device_lost(queue->state, queue->device);
		return true;
	}
	if (library->ibv_get_async_event(queue->device->verbs, &event))
		return false;
	bits = bits_of(&event);
	library->ibv_ack_async_event(&event);
	if (bits & DEVICE_LOST)
		verbs_device_lost(queue->state, queue->device);
	else if (bits)
		verbs_async_tell(queue->state, queue->device, bits);
	return true;
}

/* -- events in each queue ------------------------------------------------------------------------- */

static bool in_error(const struct verbs_library *library, struct ibv_qp *pair)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attributes;

	return library->ibv_query_qp(pair, &attributes, IBV_QP_STATE, &init) || attributes.qp_state == IBV_QPS_ERR;
}

/* The card would keep trying, in case the port comes back. With another rail that wait is not needed. */
static bool rail_is_replaceable(const struct verbs_rail *rail, unsigned ports)
{
	return ports & 1u << rail->id->port_num && verbs_rails_up(rail->endpoint) > 1;
}

static void handle_events_of_rail(struct verbs_rail *rail, unsigned bits)
{
	const struct verbs_library *library = rail->endpoint->state->library;

	if (atomic_load(&rail->device->gone)) {
		verbs_fail(rail, "the device was removed");
		verbs_drain_expired(&rail->drain);
		return;
	}
	if (rail->link != VERBS_UP)
		return;
	if (bits & QUEUE_BROKEN) {
		/* No completions will come for the posted requests. */
		verbs_fail(rail, "the completion queue failed");
		verbs_drain_expired(&rail->drain);
	} else if (rail_is_replaceable(rail, bits & PORTS) || (bits & QUEUE_PAIRS && in_error(library, rail->id->qp))) {
		verbs_fail(rail, "the port failed, or the queue pair");
	}
}

static void take_events(struct pl_task *task)
{
	struct verbs_cq *queue = pl_container_of(task, struct verbs_cq, events_task);
	unsigned bits = atomic_exchange(&queue->events, 0);

	if (queue->shut)
		return;
	/* The next connection gets a new queue; this one stays until its buffers are free. */
	if (bits & QUEUE_BROKEN)
		queue->broken = true;
	for (size_t i = 0; i < PL_ARRAY_SIZE(queue->rails); i++)
		pl_list_for_each_safe(at, next, &queue->rails[i])
			handle_events_of_rail(pl_list_entry(at, struct verbs_rail, queue_link), bits);
	verbs_cq_left(queue);
}

int verbs_async_open(struct verbs_cq *queue)
{
	int fd = queue->device->verbs->async_fd;

	pl_task_init(&queue->events_task, take_events);
	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	queue->async.fd = fd;
	queue->async.ready = async_event_ready;
	return pl_source_add(queue->engine, &queue->async, EPOLLIN);
}

void verbs_async_close(struct verbs_cq *queue)
{
	if (queue->async.engine)
		pl_source_remove(&queue->async);
	pl_engine_withdraw(queue->engine, &queue->events_task);
}
