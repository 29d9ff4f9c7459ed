/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that query registrations and staging memory, and pl_memory_freed(). */
#include "core/fabric.h"

static void *fabric_state_of(struct pl_context *context, unsigned fabric)
{
	void *state;

	pthread_mutex_lock(&context->fabric_lock);
	state = context->fabric_states[fabric];
	pthread_mutex_unlock(&context->fabric_lock);
	return state;
}

int pl_registrations_query(struct pl_context *context, struct pl_registrations_info *info, struct pl_error *error)
{
	size_t size = info->size;

	if (size != sizeof(*info))
		return pl_fail(error, -EINVAL, "OPTION", "pl_registrations_query", "size",
			       "initialise with PL_REGISTRATIONS_INFO_INIT", "this library knows no such structure");
	*info = (struct pl_registrations_info)PL_REGISTRATIONS_INFO_INIT;
	for (unsigned i = 0; i < context->fabric_count; i++) {
		void *state = fabric_state_of(context, i);

		if (state && context->fabrics[i]->count)
			context->fabrics[i]->count(state, info);
	}
	return 0;
}

int pl_staging_query(struct pl_context *context, struct pl_staging_info *info, struct pl_error *error)
{
	size_t size = info->size;

	if (size != sizeof(*info))
		return pl_fail(error, -EINVAL, "OPTION", "pl_staging_query", "size",
			       "initialise with PL_STAGING_INFO_INIT", "this library knows no such structure");
	*info = (struct pl_staging_info)PL_STAGING_INFO_INIT;
	pl_slots_count(&context->slot_pool, info);
	return 0;
}

void pl_memory_freed(struct pl_context *context, const void *pointer, size_t length)
{
	for (unsigned i = 0; i < context->fabric_count; i++) {
		void *state = fabric_state_of(context, i);

		if (state && context->fabrics[i]->freed)
			context->fabrics[i]->freed(state, pointer, length);
	}
}
