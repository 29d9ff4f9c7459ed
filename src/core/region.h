/* SPDX-License-Identifier: BSD-2-Clause */
/* Regions of this process, and what fabrics registered of memory. */
#ifndef PL_CORE_REGION_H
#define PL_CORE_REGION_H

#include <stdatomic.h>

#include "memory/memory.h"
#include "core/context.h"

/*
 * What a fabric made of memory, so that a device reaches it.  Hangs on a region, for use by this end,
 * or on a grant or key, for use by the peer, and is released with it.  grant_lock
 */
struct pl_registration {
	struct pl_list link;
	const void *device;
	/* The peer begins nothing more with it: so that what several are in the middle of is waited for together.  Or NULL */
	void (*shut)(struct pl_registration *registration);
	/* Returns when it is not used any more. */
	void (*release)(struct pl_registration *registration);
	bool timeless; /* goes when the grant expires, as the device does not know when that is */
};

/* The one for a device, or NULL. */
struct pl_registration *pl_registration_find(const struct pl_list *registrations, const void *device);
void pl_registrations_release(struct pl_list *registrations);

struct pl_region {
	struct pl_list link;
	struct pl_context *context;
	struct pl_memory memory;
	unsigned access;
	atomic_uint busy; /* operations of ours that use it */
	struct pl_list registrations;
	struct pl_registration *_Atomic recent; /* one of these, which stays until the end, or NULL */
};

void pl_region_destroy(struct pl_region *region);

#endif
