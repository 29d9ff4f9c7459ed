/* SPDX-License-Identifier: BSD-2-Clause */
/* State of the fabric in a context: the library, and the queues of engines and devices. */
#include <fcntl.h>
#include <unistd.h>

#include "fabric/verbs/data/flush.h"

/* The kernel has the module ib_uverbs. */
#define UVERBS "/sys/class/infiniband_verbs/abi_version"

/* -- the state ------------------------------------------------------------------------------------ */

static void state_free(struct verbs_state *state)
{
	verbs_removal_close(state);
	pl_pool_drain(&state->flushes, &state->context->allocator);
	pl_pool_drain(&state->flush_reads, &state->context->allocator);
	pthread_mutex_destroy(&state->look_lock);
	pthread_mutex_destroy(&state->lock);
	pl_free(&state->context->allocator, state);
}

void verbs_state_init(struct verbs_state *state, struct pl_context *context, const struct verbs_library *library)
{
	state->context = context;
	state->library = library;
	state->silence = VERBS_SILENCE;
	pl_list_init(&state->devices);
	pl_list_init(&state->queues);
	pl_list_init(&state->ports);
	pl_list_init(&state->probes);
	verbs_removal_open(state);
	verbs_ports_open(state);
	verbs_helpers_open(&state->connectors);
	verbs_registrar_open(state);
	pthread_mutex_init(&state->lock, NULL);
	pthread_mutex_init(&state->look_lock, NULL);
}

static struct verbs_state *state_new(struct pl_context *context, const struct verbs_library *library)
{
	struct verbs_state *state = pl_zalloc(&context->allocator, sizeof(*state));

	if (state)
		verbs_state_init(state, context, library);
	return state;
}

struct verbs_state *verbs_state_get(struct pl_context *context, struct pl_error *error)
{
	void **slot = pl_fabric_state(context, &pl_verbs_fabric);
	const struct verbs_library *library;
	struct verbs_state *state = NULL;

	pthread_mutex_lock(&context->fabric_lock);
	state = *slot;
	/* Most machines have no RDMA device and stop here. */
	if (!state && access(UVERBS, R_OK) < 0) {
		pl_fail(error, -ENODEV, "RDMA-NO-DEVICE", "access", UVERBS, VERBS_HINT_DEVICE,
			"there is no RDMA device, or its modules are not loaded");
	} else if (!state) {
		library = verbs_library_get(error);
		state = library ? state_new(context, library) : NULL;
		if (library && !state)
			pl_fail_memory(error, "connect");
		*slot = state;
	}
	pthread_mutex_unlock(&context->fabric_lock);
	return state;
}

/* -- queues --------------------------------------------------------------------------------------- */

void verbs_cq_shut(struct verbs_cq *queue)
{
	struct verbs_device *device = queue->device;

	pl_engine_withdraw(queue->engine, &queue->events_task);
	verbs_loopbacks_close(queue);
	if (queue->source.engine)
		pl_source_remove(&queue->source);
	verbs_srq_shut(queue);
	if (queue->cq)
		verbs_object_end(device, VERBS_CQ, queue->cq);
	if (queue->channel)
		verbs_object_end(device, VERBS_CHANNEL, queue->channel);
	queue->cq = NULL;
	queue->channel = NULL;
	verbs_buffer_pool_shut(&queue->sends);
	verbs_buffer_pool_shut(&queue->stages);
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
	verbs_stages_unlock(queue);
	verbs_buffer_pool_close(&queue->stages, queue->state);
	pl_free(&queue->state->context->allocator, queue);
}

/* Spreads the engines' interrupts over the device's completion vectors, and so over cores. */
static int vector_of(const struct verbs_cq *queue)
{
	unsigned vectors = (unsigned)PL_MAX(queue->device->verbs->num_comp_vectors, 1);

	return (int)(pl_context_engine_index(queue->state->context, queue->engine) % vectors);
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
	queue->cq = library->ibv_create_cq(device->verbs, PL_MIN(depth, device->attributes.max_cqe), queue,
					   queue->channel, vector_of(queue));
	return verbs_made(queue->cq);
}

static int queue_fill(struct verbs_cq *queue, struct verbs_failure *failure)
{
	int rc;

	rc = make_cq(queue, failure);
	if (rc < 0)
		return rc;
	/* The loopback queue pairs and the first receives need completions, too. */
	if (queue->cq->cqe <= VERBS_LOOPBACK_DEPTH + VERBS_RECEIVES)
		return -ENOBUFS;
	queue->room = (unsigned)queue->cq->cqe - VERBS_LOOPBACK_DEPTH;
	failure->call = "ibv_reg_mr";
	rc = verbs_buffer_pool_open(&queue->sends, queue->state, queue->device, VERBS_SENDS, VERBS_BUFFER);
	if (rc == 0)
		rc = verbs_srq_open(queue, failure);
	if (rc < 0)
		return rc;
	/* No connection could use the queue, and each attempt would add another one. */
	failure->call = "ibv_create_cq";
	if (!verbs_cq_has_room(queue))
		return -ENOBUFS;
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

void verbs_cq_init(struct verbs_cq *queue, struct verbs_state *state, struct verbs_device *device,
		   struct pl_engine *engine)
{
	queue->state = state;
	queue->device = device;
	queue->engine = engine;
	pl_task_init(&queue->events_task, verbs_take_events);
	pl_list_init(&queue->spent);
	pl_list_init(&queue->starved);
	pl_list_init(&queue->loops);
	for (size_t i = 0; i < PL_ARRAY_SIZE(queue->rails); i++)
		pl_list_init(&queue->rails[i]);
}

static struct verbs_cq *queue_new(struct verbs_state *state, struct verbs_device *device, struct pl_engine *engine,
				  struct verbs_failure *failure)
{
	struct verbs_cq *queue = pl_zalloc(&state->context->allocator, sizeof(*queue));

	if (!queue)
		return NULL;
	verbs_cq_init(queue, state, device, engine);
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

	*failure = (struct verbs_failure){ .code = -ENOMEM, .call = "ibv_create_cq" };
	/* Queues of an engine are created under its lock, so other threads see only the list. */
	pthread_mutex_lock(&state->lock);
	sweep_queues(state, engine);
	pl_list_for_each(at, &state->queues) {
		queue = pl_list_entry(at, struct verbs_cq, link);
		if (queue->device == device && queue->engine == engine && !queue->broken && verbs_cq_has_room(queue)) {
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

	(void)context;
	atomic_store(&state->ending, true);
	verbs_helpers_close(&state->connectors);
	verbs_registrar_close(state);
	verbs_ports_close(state);
	while (!pl_list_empty(&state->queues)) {
		struct verbs_cq *queue = pl_list_first(&state->queues, struct verbs_cq, link);

		pl_list_remove(&queue->link);
		queue_free(queue);
	}
	while (!pl_list_empty(&state->devices)) {
		struct verbs_device *device = pl_list_first(&state->devices, struct verbs_device, link);

		verbs_async_close(device);
		verbs_device_free(device);
	}
	state_free(state);
}
