/* SPDX-License-Identifier: BSD-2-Clause */
/* State of the fabric in a context: libraries, event channels, devices and their queues. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "fabric/verbs/data/flush.h"

#define CM_DEVICE "/dev/infiniband/rdma_cm"
#define HINT_DEVICE \
	"load the card's driver and rdma_ucm, or, without a card: rdma link add rxe0 type rxe netdev eth0; " \
	"see what there is with: rdma link"

/* -- connection events --------------------------------------------------------------------------- */

static int open_cm(struct verbs_state *state, unsigned index)
{
	struct pl_engine *engine = state->context->engines[index];
	struct verbs_cm *cm = &state->cms[index];
	int rc;

	cm->state = state;
	cm->channel = state->library->rdma_create_event_channel();
	if (!cm->channel)
		return -errno;
	if (fcntl(cm->channel->fd, F_SETFL, O_NONBLOCK) < 0 || fcntl(cm->channel->fd, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	cm->source.fd = cm->channel->fd;
	cm->source.ready = verbs_cm_ready;
	rc = pl_source_add(engine, &cm->source, EPOLLIN);
	if (rc < 0)
		cm->source.fd = -1;
	return rc;
}

static unsigned index_of(const struct verbs_state *state, const struct pl_engine *engine)
{
	unsigned index = 0;

	while (state->context->engines[index] != engine)
		index++;
	return index;
}

struct verbs_cm *verbs_cm_of(struct verbs_state *state, const struct pl_engine *engine)
{
	return &state->cms[index_of(state, engine)];
}

/* -- the state ------------------------------------------------------------------------------------ */

static void state_free(struct verbs_state *state)
{
	const struct pl_allocator *allocator = &state->context->allocator;

	verbs_removal_close(state);

	for (unsigned i = 0; state->cms && i < state->context->engine_count; i++) {
		if (!state->cms[i].channel)
			continue;
		if (state->cms[i].source.engine)
			pl_source_remove(&state->cms[i].source);
		state->library->rdma_destroy_event_channel(state->cms[i].channel);
	}
	pthread_mutex_destroy(&state->lock);
	pl_free(allocator, state->cms);
	pl_free(allocator, state);
}

static int verbs_state_open(struct pl_context *context, const struct verbs_library *library,
			    struct verbs_state **result)
{
	struct verbs_state *state = pl_zalloc(&context->allocator, sizeof(*state));
	int rc = 0;

	if (!state)
		return -ENOMEM;
	state->context = context;
	state->library = library;
	pl_list_init(&state->devices);
	pl_list_init(&state->queues);
	pl_list_init(&state->local_addrs);
	verbs_removal_open(state);
	pthread_mutex_init(&state->lock, NULL);
	state->cms = pl_zalloc(&context->allocator, context->engine_count * sizeof(*state->cms));
	if (!state->cms)
		rc = -ENOMEM;
	for (unsigned i = 0; rc == 0 && i < context->engine_count; i++)
		rc = open_cm(state, i);
	if (rc < 0)
		state_free(state);
	else
		*result = state;
	return rc;
}

struct verbs_state *verbs_state_get(struct pl_context *context, struct pl_error *error)
{
	void **slot = pl_fabric_state(context, &pl_verbs_fabric);
	const struct verbs_library *library;
	struct verbs_state *state = NULL;
	int rc;

	pthread_mutex_lock(&context->fabric_lock);
	state = *slot;
	/* Most machines have no RDMA device and stop here. */
	if (!state && access(CM_DEVICE, R_OK | W_OK) < 0) {
		pl_fail(error, -ENODEV, "RDMA-NO-DEVICE", "access", CM_DEVICE, HINT_DEVICE,
			errno == ENOENT ? "there is no RDMA device, or its modules are not loaded"
					: "this process may not use the RDMA connection manager");
	} else if (!state) {
		library = verbs_library_get(error);
		rc = library ? verbs_state_open(context, library, &state) : 0;
		if (rc < 0)
			pl_fail_errno(error, rc, "RDMA-NO-DEVICE", "rdma_create_event_channel", CM_DEVICE);
		*slot = state;
	}
	pthread_mutex_unlock(&context->fabric_lock);
	return state;
}

/* -- devices -------------------------------------------------------------------------------------- */

static uint32_t message_max_of(const struct verbs_library *library, struct ibv_context *verbs,
			       const struct ibv_device_attr *attributes)
{
	uint32_t least = UINT32_MAX;
	struct ibv_port_attr port;

	for (unsigned i = 1; i <= attributes->phys_port_cnt; i++)
		if (!verbs_query_port(library, verbs, (uint8_t)i, &port) && port.max_msg_sz)
			least = PL_MIN(least, port.max_msg_sz);
	return least;
}

static struct verbs_device *device_new(struct verbs_state *state, struct ibv_context *verbs)
{
	struct verbs_device *device = pl_zalloc(&state->context->allocator, sizeof(*device));

	if (!device)
		return NULL;
	device->verbs = verbs;
	snprintf(device->name, sizeof(device->name), "%s", state->library->ibv_get_device_name(verbs->device));
	device->pd = state->library->ibv_alloc_pd(verbs);
	device->shared = verbs_mr_shared_open(state);
	if (!device->pd || !device->shared || state->library->ibv_query_device(verbs, &device->attributes)) {
		pl_registration_cache_close(device->shared);
		if (device->pd)
			state->library->ibv_dealloc_pd(device->pd);
		pl_free(&state->context->allocator, device);
		return NULL;
	}
	atomic_init(&device->windows, device->attributes.device_cap_flags &
					      (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B));
	device->loop_pd = state->library->ibv_alloc_pd(verbs);
	pl_list_init(&device->loop_registrations);
	pl_list_init(&device->registrations);
	device->message_max = message_max_of(state->library, verbs, &device->attributes);
	pl_list_append(&state->devices, &device->link);
	return device;
}

struct verbs_device *verbs_device_get(struct verbs_state *state, struct ibv_context *verbs)
{
	pl_list_for_each(at, &state->devices) {
		struct verbs_device *device = pl_list_entry(at, struct verbs_device, link);

		if (device->verbs == verbs)
			return device;
	}
	return device_new(state, verbs);
}

/* -- queues --------------------------------------------------------------------------------------- */

void verbs_cq_shut(struct verbs_cq *queue)
{
	const struct verbs_library *library = queue->state->library;

	verbs_async_close(queue);
	verbs_loopback_close(queue);
	if (queue->source.engine)
		pl_source_remove(&queue->source);
	verbs_srq_shut(queue);
	if (queue->cq)
		library->ibv_destroy_cq(queue->cq);
	if (queue->channel)
		library->ibv_destroy_comp_channel(queue->channel);
	queue->cq = NULL;
	queue->channel = NULL;
	verbs_buffer_pool_shut(&queue->sends, queue->state);
	verbs_buffer_pool_shut(&queue->stages, queue->state);
	queue->broken = queue->shut = true;
}

/* Called under the engine's lock, or at the end. */
static void queue_free(struct verbs_cq *queue)
{
	if (!queue->shut)
		verbs_cq_shut(queue);
	pl_engine_withdraw(queue->engine, &queue->events_task);
	verbs_srq_close(queue);
	verbs_buffer_pool_close(&queue->sends, queue->state);
	verbs_buffer_pool_close(&queue->stages, queue->state);
	pl_free(&queue->state->context->allocator, queue);
}

/* Spreads the engines' interrupts over the device's completion vectors, and so over cores. */
static int vector_of(const struct verbs_cq *queue)
{
	unsigned vectors = (unsigned)PL_MAX(queue->device->verbs->num_comp_vectors, 1);

	return (int)(index_of(queue->state, queue->engine) % vectors);
}

static int make_cq(struct verbs_cq *queue, struct verbs_failure *failure)
{
	const struct verbs_library *library = queue->state->library;
	struct verbs_device *device = queue->device;
	int depth = device->attributes.max_srq ? VERBS_COMPLETIONS : VERBS_OWN_COMPLETIONS;
	int rc;

	failure->call = "ibv_create_comp_channel";
	queue->channel = library->ibv_create_comp_channel(device->verbs);
	rc = verbs_made(queue->channel);
	if (rc < 0)
		return rc;
	if (fcntl(queue->channel->fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	failure->call = "ibv_create_cq";
	queue->cq = library->ibv_create_cq(device->verbs, PL_MIN(depth, device->attributes.max_cqe), NULL,
					   queue->channel, vector_of(queue));
	return verbs_made(queue->cq);
}

static int queue_fill(struct verbs_cq *queue, struct verbs_failure *failure)
{
	int rc;

	failure->call = "ibv_get_async_event";
	rc = verbs_async_open(queue);
	if (rc == 0)
		rc = make_cq(queue, failure);
	if (rc < 0)
		return rc;
	queue->room = (unsigned)queue->cq->cqe - VERBS_LOOPBACK_DEPTH;
	failure->call = "ibv_reg_mr";
	rc = verbs_buffer_pool_open(&queue->sends, queue->state, queue->device, VERBS_SENDS, VERBS_BUFFER);
	if (rc == 0)
		rc = verbs_srq_open(queue, failure);
	if (rc < 0)
		return rc;
	queue->source.fd = queue->channel->fd;
	queue->source.ready = verbs_cq_ready;
	queue->source.idle = verbs_cq_idle;
	queue->source.pollable = queue->source.memory = true;
	failure->call = "epoll_ctl";
	rc = pl_source_add(queue->engine, &queue->source, EPOLLIN);
	if (rc == 0)
		verbs_cq_idle(&queue->source);
	return rc;
}

static struct verbs_cq *queue_new(struct verbs_state *state, struct verbs_device *device, struct pl_engine *engine,
				  struct verbs_failure *failure)
{
	struct verbs_cq *queue = pl_zalloc(&state->context->allocator, sizeof(*queue));

	if (!queue)
		return NULL;
	queue->state = state;
	queue->device = device;
	queue->engine = engine;
	pl_list_init(&queue->spent);
	pl_list_init(&queue->starved);
	for (size_t i = 0; i < PL_ARRAY_SIZE(queue->rails); i++)
		pl_list_init(&queue->rails[i]);
	failure->code = queue_fill(queue, failure);
	if (failure->code < 0) {
		queue_free(queue);
		return NULL;
	}
	return queue;
}

/* Frees the engine's shut queues whose buffers all came back. The caller holds the lock. */
static void sweep_queues(struct verbs_state *state, const struct pl_engine *engine)
{
	if (state->tellers)
		return;
	pl_list_for_each_safe(at, next, &state->queues) {
		struct verbs_cq *queue = pl_list_entry(at, struct verbs_cq, link);

		if (queue->engine != engine || !queue->shut || queue->sends.taken || queue->stages.taken)
			continue;
		pl_list_remove(&queue->link);
		queue_free(queue);
	}
}

struct verbs_cq *verbs_cq_get(struct verbs_state *state, struct verbs_device *device, struct pl_engine *engine,
			      struct verbs_failure *failure)
{
	struct verbs_cq *queue = NULL;
	bool gone;

	*failure = (struct verbs_failure){ .code = -ENOMEM, .call = "rdma_create_qp" };
	/* Queues of an engine are created under its lock, so other threads see only the list. */
	pthread_mutex_lock(&state->lock);
	sweep_queues(state, engine);
	pl_list_for_each(at, &state->queues) {
		queue = pl_list_entry(at, struct verbs_cq, link);
		if (queue->device == device && queue->engine == engine && !queue->broken) {
			pthread_mutex_unlock(&state->lock);
			return queue;
		}
	}
	/* From here on the object of the device stays, even if the device is removed. */
	gone = atomic_load(&device->gone);
	device->queues += !gone;
	pthread_mutex_unlock(&state->lock);
	if (gone) {
		failure->code = -ENODEV;
		return NULL;
	}
	queue = queue_new(state, device, engine, failure);
	pthread_mutex_lock(&state->lock);
	if (queue)
		pl_list_append(&state->queues, &queue->link);
	else
		device->queues--;
	gone = atomic_load(&device->gone);
	pthread_mutex_unlock(&state->lock);
	if (gone && queue)
		pl_engine_post(engine, &queue->events_task);
	return queue;
}

/* -- the end -------------------------------------------------------------------------------------- */

/* Peers, regions and threads are gone. */
void verbs_state_close(struct pl_context *context, void *opaque)
{
	struct verbs_state *state = opaque;

	verbs_local_addrs_close(state);
	while (!pl_list_empty(&state->queues)) {
		struct verbs_cq *queue = pl_list_first(&state->queues, struct verbs_cq, link);

		pl_list_remove(&queue->link);
		queue_free(queue);
	}
	while (!pl_list_empty(&state->devices)) {
		struct verbs_device *device = pl_list_first(&state->devices, struct verbs_device, link);

		pl_list_remove(&device->link);
		pl_registration_cache_close(device->shared);
		if (device->loop_pd)
			state->library->ibv_dealloc_pd(device->loop_pd);
		if (device->pd)
			state->library->ibv_dealloc_pd(device->pd);
		pl_free(&context->allocator, device);
	}
	state_free(state);
}
