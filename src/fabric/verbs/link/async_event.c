/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asynchronous events of a device (ibv_get_async_event(3)): a port goes down, a queue pair or a queue fails, addresses
 * change, the device fails. The first engine watches all devices, and tells the queue of the event, or each of the device.
 *
 * Events only bring early what completions and timers bring late. The next connection attempt notices a port that is up
 * again; a changed address either breaks the connection or has no effect.
 */
#include "fabric/verbs/verbs.h"

/* Events of ports from this number on are not told: such a rail notices by its own requests. */
#define PORTS_TOLD 24
/* Bits of struct verbs_cq.events: one for each port that went down, and these. */
#define PORTS ((1u << PORTS_TOLD) - 1)
#define QUEUE_PAIRS (1u << 24)
#define QUEUE_BROKEN (1u << 25)
#define DEVICE_LOST (1u << 26)
#define LAST_RECEIVES (1u << 27)

/* True if the next look at the ports finds something new. */
static bool changes_ports(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
		return true;
	default:
		return false;
	}
}

static unsigned bits_of(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_PORT_ERR:
		return event->element.port_num < PORTS_TOLD ? 1u << event->element.port_num : 0;
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
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return LAST_RECEIVES;
	default:
		return 0;
	}
}

/* Returns the queue of the object that has the event; NULL: the event is the device's or a port's. */
static const struct verbs_cq *queue_of(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return event->element.qp->send_cq->cq_context;
	case IBV_EVENT_CQ_ERR:
		return event->element.cq->cq_context;
	case IBV_EVENT_SRQ_ERR:
		return event->element.srq->srq_context;
	default:
		return NULL;
	}
}

/* No queue is freed between the calls with 1 and -1. */
static void hold_queues(struct verbs_state *state, int change)
{
	pthread_mutex_lock(&state->lock);
	state->tellers += (unsigned)change;
	pthread_mutex_unlock(&state->lock);
}

void verbs_async_tell(struct verbs_state *state, const struct verbs_device *device, const struct verbs_cq *only,
		      unsigned bits)
{
	pthread_mutex_lock(&state->lock);
	state->tellers++;
	pl_list_for_each(at, &state->queues) {
		struct verbs_cq *queue = pl_list_entry(at, struct verbs_cq, link);

		if (queue->device != device || (only && queue != only))
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

/* The queue pair, and so its rail, stays until the event is acknowledged (ibv_destroy_qp(3)). */
static void note_pair(struct verbs_device *device, const struct ibv_async_event *event, unsigned bits)
{
	struct verbs_rail *rail = event->element.qp->qp_context;

	if (bits & LAST_RECEIVES)
		atomic_store(&device->lasts_missed, 0);
	if (rail)
		atomic_store(bits & LAST_RECEIVES ? &rail->last_reached : &rail->pair_event, true);
}

bool verbs_async_take(struct verbs_device *device)
{
	struct verbs_state *state = device->state;
	const struct verbs_cq *queue;
	struct ibv_async_event event;
	unsigned bits;

	if (state->library->ibv_get_async_event(device->verbs, &event))
		return false;
	bits = bits_of(&event);
	queue = queue_of(&event);
	if (bits & (QUEUE_PAIRS | LAST_RECEIVES))
		note_pair(device, &event, bits);
	if (changes_ports(&event)) {
		atomic_store(&state->stale, true);
		verbs_paths_forget(state);
	}
	hold_queues(state, 1);
	state->library->ibv_ack_async_event(&event);
	if (bits & DEVICE_LOST)
		verbs_device_lost(state, device);
	else if (bits)
		verbs_async_tell(state, device, queue, bits);
	hold_queues(state, -1);
	return true;
}

static bool async_event_ready(struct pl_source *source, uint32_t events)
{
	struct verbs_device *device = pl_container_of(source, struct verbs_device, async);

	/* The device was removed: there are no more events. */
	if (events & (EPOLLERR | EPOLLHUP)) {
		pl_source_remove(source);
		verbs_device_lost(device->state, device);
		return true;
	}
	return verbs_async_take(device);
}

void verbs_async_watch(struct verbs_state *state)
{
	verbs_uevents_open(state);
	pl_list_for_each(at, &state->devices) {
		struct verbs_device *device = pl_list_entry(at, struct verbs_device, link);

		if (!device->verbs || atomic_load(&device->gone) || device->async.fd >= 0)
			continue;
		device->async.fd = device->verbs->async_fd;
		device->async.ready = async_event_ready;
		/* Without it, failures show late. The next look at the ports tries again. */
		if (pl_source_add(state->context->engines[0], &device->async, EPOLLIN) < 0)
			device->async.fd = -1;
	}
}

void verbs_async_close(struct verbs_device *device)
{
	if (device->async.engine)
		pl_source_remove(&device->async);
}

/* -- events in each queue ------------------------------------------------------------------------- */

/* True if the device reported an error of the queue pair. The query is a call of the card's firmware, which takes long. */
static bool is_failed_pair(struct verbs_rail *rail, unsigned bits)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attributes;

	if (!(bits & QUEUE_PAIRS) || !atomic_exchange(&rail->pair_event, false))
		return false;
	return verbs_library_of(rail)->ibv_query_qp(rail->qp, &attributes, IBV_QP_STATE, &init) ||
	       attributes.qp_state == IBV_QPS_ERR;
}

/* The card would keep trying, in case the port comes back. With another rail that wait is not needed. */
static bool rail_is_replaceable(const struct verbs_rail *rail, unsigned ports)
{
	return rail->port->number < PORTS_TOLD && ports & 1u << rail->port->number &&
	       verbs_rails_up(rail->endpoint) > 1;
}

/*
 * Ends the rail's use of its broken queue, which yields neither a proof nor the completions of posted requests. An attempt
 * that fails so does not show that the devices cannot reach each other.
 */
static void leave_broken(struct verbs_rail *rail)
{
	const char *why = rail->queue->why ? rail->queue->why : "the completion queue failed";

	if (rail->link == VERBS_UP)
		verbs_fail(rail, why);
	else if (rail->link != VERBS_DRAINING)
		verbs_connect_failed(rail, -EIO, "ibv_poll_cq");
	verbs_drain_expired(&rail->drain);
}

static void handle_events_of_rail(struct verbs_rail *rail, unsigned bits)
{
	if (atomic_load(&rail->device->gone)) {
		verbs_fail(rail, "the device was removed");
		verbs_drain_expired(&rail->drain);
		return;
	}
	if (bits & LAST_RECEIVES && rail->link == VERBS_DRAINING && atomic_load(&rail->last_reached))
		pl_engine_post(rail->queue->engine, &rail->drained_task);
	if (bits & QUEUE_BROKEN)
		leave_broken(rail);
	else if (rail->link == VERBS_UP && (rail_is_replaceable(rail, bits & PORTS) || is_failed_pair(rail, bits)))
		verbs_fail(rail, "the port failed, or the queue pair");
}

void verbs_look_at_pair(struct verbs_rail *rail)
{
	if (!atomic_load(&rail->pair_event))
		return;
	atomic_fetch_or(&rail->queue->events, QUEUE_PAIRS);
	pl_engine_post(rail->queue->engine, &rail->queue->events_task);
}

void verbs_cq_break(struct verbs_cq *queue, const char *why)
{
	queue->why = why;
	atomic_fetch_or(&queue->events, QUEUE_BROKEN);
	pl_engine_post(queue->engine, &queue->events_task);
}

void verbs_take_events(struct pl_task *task)
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
