/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations that take long. A helper thread registers the memory without a lock, so the engine and grant_lock stay
 * free. Operations, imports and large sends that need the registration wait, and go on when any registration has ended.
 * A registration that is released meanwhile is ended by its thread; the region's memory stays until then.
 */
#include "fabric/verbs/verbs.h"

static struct pl_region *region_of(const struct verbs_mr *registration)
{
	return pl_container_of(registration->memory, struct pl_region, memory);
}

/* -- endpoints that wait --------------------------------------------------------------------------- */

static void continue_endpoint(struct verbs_endpoint *endpoint)
{
	while (!pl_list_empty(&endpoint->registering)) {
		struct verbs_work *work = pl_list_first(&endpoint->registering, struct verbs_work, link);

		pl_list_remove(&work->link);
		pl_list_append(work->kind == VERBS_BIND ? &endpoint->again : &endpoint->waiting, &work->link);
	}
	verbs_flush(endpoint);
	pl_peer_registered(endpoint->base.peer);
}

static void continue_waiters(struct pl_task *task)
{
	struct verbs_waiters *waiters = pl_container_of(task, struct verbs_waiters, task);
	struct pl_list woken;

	pl_list_init(&woken);
	pl_list_splice(&woken, &waiters->endpoints);
	while (!pl_list_empty(&woken)) {
		struct verbs_endpoint *endpoint = pl_list_first(&woken, struct verbs_endpoint, waiter_link);

		pl_list_remove(&endpoint->waiter_link);
		continue_endpoint(endpoint);
	}
}

void verbs_await_registration(struct verbs_endpoint *endpoint)
{
	struct verbs_waiters *waiters = endpoint->state->waiters;

	while (waiters->engine != endpoint->base.peer->home)
		waiters++;
	pl_list_remove(&endpoint->waiter_link);
	pl_list_append(&waiters->endpoints, &endpoint->waiter_link);
}

/* -- threads --------------------------------------------------------------------------------------- */

/*
 * An endpoint that found the registration unfinished holds its engine's lock until it waits. So the task, which needs
 * that lock, comes later.
 */
static void tell_waiters(struct verbs_state *state)
{
	for (unsigned i = 0; i < state->context->engine_count; i++)
		pl_engine_post(state->context->engines[i], &state->waiters[i].task);
}

static void run_registration(struct verbs_job *job)
{
	struct verbs_mr *registration = pl_container_of(job, struct verbs_mr, job);
	struct verbs_device *device = registration->device;
	struct verbs_state *state = device->state;
	struct verbs_mr_result result;
	bool outdated;

	verbs_mr_register(registration, &result);
	pthread_mutex_lock(&state->context->grant_lock);
	outdated = registration->outdated;
	if (outdated && result.mr) {
		pthread_mutex_unlock(&state->context->grant_lock);
		verbs_object_end(device, VERBS_MR, result.mr);
		pthread_mutex_lock(&state->context->grant_lock);
	}
	if (!outdated)
		verbs_mr_fill(registration, &result);
	/* The region, and a registration that is not outdated, may be gone after this. */
	pl_registration_ended(region_of(registration), outdated);
	if (outdated)
		pl_free(registration->allocator, registration);
	pthread_mutex_unlock(&state->context->grant_lock);
	verbs_device_leave(device);
	tell_waiters(state);
}

bool verbs_registrar_start(struct verbs_mr *registration)
{
	struct verbs_device *device = registration->device;

	registration->failure = -EINPROGRESS;
	registration->job.run = run_registration;
	pl_registration_begun(region_of(registration));
	atomic_fetch_add(&device->users, 1);
	if (verbs_helpers_start(&device->state->registrars, &registration->job))
		return true;
	atomic_fetch_sub(&device->users, 1);
	pl_registration_ended(region_of(registration), false);
	return false;
}

void verbs_registrar_open(struct verbs_state *state)
{
	verbs_helpers_open(&state->registrars);
	for (unsigned i = 0; i < state->context->engine_count; i++) {
		state->waiters[i].engine = state->context->engines[i];
		pl_list_init(&state->waiters[i].endpoints);
		pl_task_init(&state->waiters[i].task, continue_waiters);
	}
}

void verbs_registrar_close(struct verbs_state *state)
{
	verbs_helpers_close(&state->registrars);
	for (unsigned i = 0; i < state->context->engine_count; i++)
		pl_engine_withdraw(state->context->engines[i], &state->waiters[i].task);
}
