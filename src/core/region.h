/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions of this process, and registrations of their memory. */
#ifndef PL_CORE_REGION_H
#define PL_CORE_REGION_H

#include <stdatomic.h>

#include "memory/memory.h"
#include "core/context.h"

/*
 * Registration of memory with a device. Belongs to a region for use by this end, or to a grant or key for use by the
 * peer, and is released with it. grant_lock is held, except by finish().
 */
struct pl_registration {
	struct pl_list link;
	const void *device;
	/* Stops new uses by the peer; several registrations then wait for running uses together. May be NULL. */
	void (*shut)(struct pl_registration *registration);
	/* Ends the registration, and frees it unless it has finish(). */
	void (*release)(struct pl_registration *registration);
	/*
	 * After shut(): true while finish() would wait for running uses. Once it has returned false, finish() waits for none. NULL: false.
	 */
	bool (*in_use)(struct pl_registration *registration);
	/*
	 * Called after release(), without grant_lock: waits for running uses, then frees the registration. Not called if release()
	 * took it from its list. May be NULL.
	 */
	void (*finish)(struct pl_registration *registration);
	bool timeless; /* ends with the grant's expiry: the device does not know that time */
};

/* Returns the registration of a device, or NULL. */
struct pl_registration *pl_registration_find(const struct pl_list *registrations, const void *device);
/* Calls shut() of all registrations. */
void pl_registrations_shut(const struct pl_list *registrations);
/* True if a registration is in use, after pl_registrations_shut(). */
bool pl_registrations_in_use(const struct pl_list *registrations);
/* Releases all; those that have finish() go into `ended`. */
void pl_registrations_release(struct pl_list *registrations, struct pl_list *ended);
/* Finishes what pl_registrations_release() left. Without grant_lock, because it may wait. */
void pl_registrations_finish(struct pl_list *ended);

/* State that a fabric keeps with a region until its end. */
struct pl_region_kept {
	void (*free)(struct pl_region_kept *kept);
};

struct pl_region {
	struct pl_list link;
	struct pl_context *context;
	struct pl_memory memory;
	unsigned access;
	bool strict; /* PL_ACCESS_STRICT: registered without relaxed ordering */
	/* The first engine that runs an operation of the region counts its own without atomic instructions. */
	struct pl_engine *_Atomic counter; /* that engine; NULL: none so far */
	unsigned used;                     /* its operations; its lock */
	atomic_uint busy;                  /* other operations of this end that use the region, and one for all of `used` */
	struct pl_list grants;             /* grant_lock */
	struct pl_list registrations;
	struct pl_registration *_Atomic recent; /* one of the registrations, kept until the end, or NULL */
	/* Of a fabric with cards: ports near the memory (0: not known yet), and ports whose peers got keys. */
	atomic_uint near, exported;
	struct pl_region_kept *_Atomic kept; /* NULL: nothing */
	unsigned registering; /* registrations that threads of a fabric are making; grant_lock */
};

/*
 * Count registrations that threads of a fabric make, each of which can take seconds. The region's memory stays until
 * they have ended. A registration that is released meanwhile is outdated: its thread deregisters it before
 * pl_registration_ended(). grant_lock is held.
 */
void pl_registration_begun(struct pl_region *region);
void pl_registration_outdated(struct pl_context *context);
void pl_registration_ended(struct pl_region *region, bool outdated);
/*
 * Wait for the threads: until no registration of the region is being made; until no registration of the context is
 * outdated. The driver ends both, so there is no deadline. They take grant_lock; no engine's lock is held.
 */
void pl_region_await_registrations(struct pl_region *region);
void pl_context_await_outdated(struct pl_context *context);

void pl_region_destroy(struct pl_region *region);

/* True if the engine, whose lock is held, counts in `used`. */
PL_ALWAYS_INLINE bool pl_region_counts(struct pl_region *region, struct pl_engine *engine)
{
	struct pl_engine *counter = atomic_load_explicit(&region->counter, memory_order_relaxed);

	return counter == engine || (!counter && atomic_compare_exchange_strong(&region->counter, &counter, engine));
}

/* Adds an operation that runs on the engine, whose lock is held. */
PL_ALWAYS_INLINE void pl_region_use(struct pl_region *region, struct pl_engine *engine)
{
	if (!pl_region_counts(region, engine) || region->used++ == 0)
		atomic_fetch_add(&region->busy, 1);
}

/* Removes it. */
PL_ALWAYS_INLINE void pl_region_unuse(struct pl_region *region, struct pl_engine *engine)
{
	if (!pl_region_counts(region, engine) || --region->used == 0)
		atomic_fetch_sub(&region->busy, 1);
}

#endif
