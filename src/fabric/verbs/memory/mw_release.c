/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of memory windows. */
#include "fabric/verbs/verbs.h"

void verbs_mw_dealloc(const struct verbs_rail *rail, struct ibv_mw *mw)
{
	if (mw && verbs_object_end(rail->device, VERBS_MW, mw) < 0)
		verbs_device_lost(rail->endpoint->state, rail->device);
}

void verbs_mw_free(struct verbs_mw *window)
{
	verbs_mw_dealloc(window->base.device, window->mw);
	pl_free(window->allocator, window);
}

/* With the lock: no other thread may deregister the memory before, which drivers refuse while it has windows. */
void verbs_mw_release(struct pl_registration *base)
{
	struct verbs_mw *window = pl_container_of(base, struct verbs_mw, base);
	const struct verbs_rail *rail = base->device;

	if (!window->mw || verbs_object_end(rail->device, VERBS_MW, window->mw) == 0)
		return;
	window->kept_by = rail->device;
	atomic_fetch_add(&rail->device->users, 1);
}

void verbs_mw_finish(struct pl_registration *base)
{
	struct verbs_mw *window = pl_container_of(base, struct verbs_mw, base);

	if (window->kept_by) {
		verbs_device_lost(window->kept_by->state, window->kept_by);
		verbs_device_leave(window->kept_by);
	}
	pl_free(window->allocator, window);
}

/*
 * Deallocates the rail's window of a key, if there is one. NULL: no key. Returns false if the driver refuses that: it will refuse to
 * deregister the memory, too. grant_lock is held.
 */
static bool drop_window(struct verbs_rail *rail, const struct pl_key *key)
{
	struct pl_registration *found = key ? pl_registration_find(&key->registrations, rail) : NULL;
	struct verbs_mw *window = found ? pl_container_of(found, struct verbs_mw, base) : NULL;

	bool dropped;

	if (!window || !window->mw)
		return true;
	/* The queue pair is in the error state: no peer reaches the memory by it. */
	dropped = verbs_object_end(rail->device, VERBS_MW, window->mw) == 0;
	window->mw = NULL;
	return dropped;
}

void verbs_mw_drop_all(struct verbs_rail *rail)
{
	struct pl_peer *peer = rail->endpoint->base.peer;

	if (!rail->endpoint->windowed)
		return;
	verbs_mw_forget(rail);
	/* The driver's call takes long for each window: other threads may have the lock between two. */
	for (size_t i = 0;; i++) {
		bool more, dropped = true;

		pthread_mutex_lock(&peer->context->grant_lock);
		more = i < peer->keys.count;
		if (more)
			dropped = drop_window(rail, pl_index_table_get(&peer->keys, i));
		pthread_mutex_unlock(&peer->context->grant_lock);
		if (!dropped)
			verbs_device_lost(rail->endpoint->state, rail->device);
		if (!more)
			break;
	}
}
