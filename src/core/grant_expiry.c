/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Expiry of grants. A device does not know the time, so the context removes a peer's registrations when the grant
 * expires. Contexts without threads do so when the program drives them next.
 */
#include "core/peer.h"

/* Longest time between two checks: an administrator may set the wall clock at any time. */
#define LOOK_AGAIN PL_NS_PER_S

bool pl_grant_timeless(const struct pl_grant *grant)
{
	if (!pl_list_empty(&grant->registrations))
		return true;
	pl_list_for_each(at, &grant->keys)
		if (pl_registrations_timeless(&pl_list_entry(at, struct pl_key, grant_link)->registrations))
			return true;
	return false;
}

static void expire_registrations(struct pl_grant *grant, struct pl_list *ended)
{
	pl_registrations_release(&grant->registrations, ended);
	pl_list_for_each(at, &grant->keys)
		pl_registrations_expire(&pl_list_entry(at, struct pl_key, grant_link)->registrations, ended);
}

/* Returns the time until the next grant expires; UINT64_MAX if none does. */
static uint64_t expire_grants(struct pl_context *context)
{
	uint64_t now = pl_wall_clock(), left = UINT64_MAX;
	struct pl_list ended;

	pl_list_init(&ended);
	pthread_mutex_lock(&context->grant_lock);
	for (size_t i = 0; i < context->grants.count; i++) {
		struct pl_grant *grant = pl_index_table_get(&context->grants, i);

		if (!grant || !grant->expires || !pl_grant_timeless(grant))
			continue;
		if (grant->expires <= now)
			expire_registrations(grant, &ended);
		else
			left = PL_MIN(left, grant->expires - now);
	}
	pthread_mutex_unlock(&context->grant_lock);
	pl_registrations_finish(&ended);
	return left;
}

static void expire_and_rearm(struct pl_context *context)
{
	uint64_t left = expire_grants(context);

	if (left != UINT64_MAX)
		pl_timer_set(context->engines[0], &context->expiry_timer, pl_now() + PL_MIN(left, LOOK_AGAIN));
}

static void expiry_timer_run(struct pl_timer *timer)
{
	expire_and_rearm(pl_container_of(timer, struct pl_context, expiry_timer));
}

static void expiry_task_run(struct pl_task *task)
{
	expire_and_rearm(pl_container_of(task, struct pl_context, expiry_task));
}

void pl_expiry_init(struct pl_context *context)
{
	pl_timer_init(&context->expiry_timer, expiry_timer_run);
	pl_task_init(&context->expiry_task, expiry_task_run);
}

void pl_expiry_watch(struct pl_context *context)
{
	pl_engine_post(context->engines[0], &context->expiry_task);
}
