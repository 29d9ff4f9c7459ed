/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lists of registrations of memory with devices. The caller holds grant_lock, except for pl_registrations_finish(),
 * pl_region_await_registrations() and pl_context_await_outdated().
 */
#include "core/grant.h"
#include "core/region.h"

struct pl_registration *pl_registration_find(const struct pl_list *registrations, const void *device)
{
	pl_list_for_each(at, registrations) {
		struct pl_registration *registration = pl_list_entry(at, struct pl_registration, link);

		if (registration->device == device)
			return registration;
	}
	return NULL;
}

void pl_registrations_shut(const struct pl_list *registrations)
{
	pl_list_for_each(at, registrations) {
		struct pl_registration *registration = pl_list_entry(at, struct pl_registration, link);

		if (registration->shut)
			registration->shut(registration);
	}
}

bool pl_registrations_in_use(const struct pl_list *registrations)
{
	pl_list_for_each(at, registrations) {
		struct pl_registration *registration = pl_list_entry(at, struct pl_registration, link);

		if (registration->in_use && registration->in_use(registration))
			return true;
	}
	return false;
}

static void registration_release(struct pl_registration *registration, struct pl_list *ended)
{
	pl_list_remove(&registration->link);
	if (registration->finish)
		pl_list_append(ended, &registration->link);
	registration->release(registration);
}

void pl_registrations_release(struct pl_list *registrations, struct pl_list *ended)
{
	while (!pl_list_empty(registrations))
		registration_release(pl_list_first(registrations, struct pl_registration, link), ended);
}

void pl_registrations_finish(struct pl_list *ended)
{
	while (!pl_list_empty(ended)) {
		struct pl_registration *registration = pl_list_first(ended, struct pl_registration, link);

		pl_list_remove(&registration->link);
		registration->finish(registration);
	}
}

bool pl_registrations_timeless(const struct pl_list *registrations)
{
	pl_list_for_each(at, registrations)
		if (pl_list_entry(at, struct pl_registration, link)->timeless)
			return true;
	return false;
}

void pl_registrations_expire(struct pl_list *registrations, struct pl_list *ended)
{
	pl_list_for_each_safe(at, next, registrations) {
		struct pl_registration *registration = pl_list_entry(at, struct pl_registration, link);

		if (registration->timeless)
			registration_release(registration, ended);
	}
}

/* -- registrations that threads make -------------------------------------------------------------- */

void pl_registration_begun(struct pl_region *region)
{
	region->registering++;
}

void pl_registration_outdated(struct pl_context *context)
{
	context->outdated_registrations++;
}

void pl_registration_ended(struct pl_region *region, bool outdated)
{
	region->registering--;
	region->context->outdated_registrations -= outdated;
	pthread_cond_broadcast(&region->context->registration_ended);
}

void pl_region_await_registrations(struct pl_region *region)
{
	struct pl_context *context = region->context;

	pthread_mutex_lock(&context->grant_lock);
	while (region->registering)
		pthread_cond_wait(&context->registration_ended, &context->grant_lock);
	pthread_mutex_unlock(&context->grant_lock);
}

void pl_context_await_outdated(struct pl_context *context)
{
	pthread_mutex_lock(&context->grant_lock);
	while (context->outdated_registrations)
		pthread_cond_wait(&context->registration_ended, &context->grant_lock);
	pthread_mutex_unlock(&context->grant_lock);
}
