/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Removal of a device, which a driver's reset does, and its return as another device.
 *
 * Everything that uses the device ends in this order: queue pairs, queues, registrations, the context.
 * Some drivers, such as soft-RoCE's, wait for that. References to the device keep an empty object. Rails keep trying to
 * connect, and use the new device of the same name. Local keys are created on demand; the other end is told, and
 * asks for its keys again.
 */
#include "fabric/verbs/data/flush.h"

/* Pauses between two looks for a new device: the first and the longest. Each is twice as long as the one before. */
#define TEND_PAUSE (500 * PL_NS_PER_MS)
#define TEND_PAUSE_MAX (10 * PL_NS_PER_S)

static struct pl_engine *first_engine(const struct verbs_state *state)
{
	return state->context->engines[0];
}

/* The caller holds the lock. */
static void let_go(struct verbs_state *state, struct verbs_device *device)
{
	pthread_mutex_lock(&state->context->grant_lock);
	/* A registration was released meanwhile, and is being deregistered. Its end calls again. */
	if (atomic_load(&device->users)) {
		pthread_mutex_unlock(&state->context->grant_lock);
		return;
	}
	verbs_mrs_end(device);
	verbs_loopbacks_end(device);
	pthread_mutex_unlock(&state->context->grant_lock);
	verbs_async_close(device);
	verbs_object_end(device, VERBS_PD, device->pd);
	device->pd = NULL;
	verbs_object_end(device, VERBS_CONTEXT, device->verbs);
	device->verbs = NULL;
}

/* Closes removed devices without users. */
static void let_all_go(struct verbs_state *state)
{
	pthread_mutex_lock(&state->lock);
	pl_list_for_each(at, &state->devices) {
		struct verbs_device *device = pl_list_entry(at, struct verbs_device, link);

		if (atomic_load(&device->gone) && device->verbs && !device->queues && !atomic_load(&device->users))
			let_go(state, device);
	}
	/* Connections that begin before the next look ends do not use them. */
	verbs_ports_leave(state);
	pthread_mutex_unlock(&state->lock);
}

static void look_for_devices(struct verbs_job *job)
{
	struct verbs_state *state = pl_container_of(job, struct verbs_state, tending.job);

	state->tending.complete = verbs_ports_look_now(state);
	pl_engine_post(first_engine(state), &state->tending.done);
}

static void tend(struct verbs_state *state)
{
	/* A look that the driver lets wait does not delay this: the driver may wait until the device is closed. */
	let_all_go(state);
	if (atomic_load(&state->tending.busy)) {
		state->tending.again = true;
		return;
	}
	atomic_store(&state->tending.busy, true);
	/* Without a thread, the engine may wait. */
	if (!verbs_helpers_start(&state->connectors, &state->tending.job))
		look_for_devices(&state->tending.job);
}

static void watch_devices(struct verbs_state *state)
{
	pthread_mutex_lock(&state->lock);
	verbs_async_watch(state);
	pthread_mutex_unlock(&state->lock);
}

static void run_tended(struct pl_task *task)
{
	struct verbs_state *state = pl_container_of(task, struct verbs_state, tending.done);

	atomic_store(&state->tending.busy, false);
	watch_devices(state);
	if (state->tending.again) {
		state->tending.again = false;
		tend(state);
		return;
	}
	if (state->tending.complete) {
		pl_timer_clear(first_engine(state), &state->tend_timer);
		state->tend_pause = 0;
		return;
	}
	state->tend_pause = state->tend_pause ? PL_MIN(2 * state->tend_pause, TEND_PAUSE_MAX) : TEND_PAUSE;
	pl_timer_set(first_engine(state), &state->tend_timer, pl_now() + state->tend_pause);
}

void verbs_device_appeared(struct verbs_state *state)
{
	/* Without a pause no device is missing, unless a look for it is under way. */
	if (state->tend_pause || atomic_load(&state->tending.busy))
		pl_engine_post(first_engine(state), &state->tend_task);
}

void verbs_device_seek(struct verbs_state *state)
{
	if (verbs_ports_are_old(state))
		pl_engine_post(first_engine(state), &state->seek_task);
}

/* A device came or went, or its last user left: the pauses begin anew. */
static void run_tend(struct pl_task *task)
{
	struct verbs_state *state = pl_container_of(task, struct verbs_state, tend_task);

	state->tend_pause = 0;
	tend(state);
}

/* The pauses go on: a device that stays away must not be looked for at each connection attempt. */
static void run_seek(struct pl_task *task)
{
	struct verbs_state *state = pl_container_of(task, struct verbs_state, seek_task);

	if (!atomic_load(&state->tending.busy) && verbs_ports_are_old(state))
		tend(state);
}

static void tend_expired(struct pl_timer *timer)
{
	tend(pl_container_of(timer, struct verbs_state, tend_timer));
}

static void run_watch(struct pl_task *task)
{
	struct verbs_state *state = pl_container_of(task, struct verbs_state, watch_task);

	watch_devices(state);
}

void verbs_removal_open(struct verbs_state *state)
{
	pl_task_init(&state->watch_task, run_watch);
	state->uevents.fd = -1;
	pl_task_init(&state->tend_task, run_tend);
	pl_task_init(&state->seek_task, run_seek);
	pl_task_init(&state->tending.done, run_tended);
	state->tending.job.run = look_for_devices;
	pl_timer_init(&state->tend_timer, tend_expired);
}

void verbs_removal_close(struct verbs_state *state)
{
	pl_engine_withdraw(first_engine(state), &state->watch_task);
	pl_engine_withdraw(first_engine(state), &state->tend_task);
	pl_engine_withdraw(first_engine(state), &state->seek_task);
	pl_engine_withdraw(first_engine(state), &state->tending.done);
	pl_timer_clear(first_engine(state), &state->tend_timer);
	verbs_uevents_close(state);
}

bool verbs_device_use(struct verbs_device *device)
{
	bool gone;

	pthread_mutex_lock(&device->state->lock);
	gone = atomic_load(&device->gone);
	if (!gone)
		atomic_fetch_add(&device->users, 1);
	pthread_mutex_unlock(&device->state->lock);
	return !gone;
}

void verbs_device_leave(struct verbs_device *device)
{
	if (atomic_fetch_sub(&device->users, 1) == 1 && atomic_load(&device->gone))
		pl_engine_post(first_engine(device->state), &device->state->tend_task);
}

void verbs_device_lost(struct verbs_state *state, struct verbs_device *device)
{
	/* A device that was given up makes no further calls, and none looks for it again. */
	if (atomic_load(&device->silent) || atomic_exchange(&device->gone, true))
		return;
	verbs_async_tell(state, device, NULL, 0);
	pl_engine_post(first_engine(state), &state->tend_task);
}

void verbs_cq_left(struct verbs_cq *queue)
{
	struct verbs_state *state = queue->state;

	if (queue->shut || queue->rail_count || (!queue->broken && !atomic_load(&queue->device->gone)))
		return;
	verbs_cq_shut(queue);
	pthread_mutex_lock(&state->lock);
	queue->device->queues--;
	pthread_mutex_unlock(&state->lock);
	pl_engine_post(first_engine(state), &state->tend_task);
}

void verbs_rail_renew(struct verbs_rail *rail)
{
	struct verbs_state *state = rail->endpoint->state;
	struct verbs_device *device;

	pthread_mutex_lock(&state->lock);
	device = rail->port->device;
	pthread_mutex_unlock(&state->lock);
	if (atomic_load(&device->gone))
		return;
	rail->device = device;
	rail->renewals++;
}
