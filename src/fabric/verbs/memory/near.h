/* SPDX-License-Identifier: BSD-2-Clause */
/* Ports near a region's memory: the measured profile of routes decides, otherwise the topology of the machine. */
#ifndef PL_FABRIC_VERBS_MEMORY_NEAR_H
#define PL_FABRIC_VERBS_MEMORY_NEAR_H

#include "core/context.h"
#include "fabric/verbs/state.h"

/* Bit that marks a mask of ports as found; the other bits stand for state->places. */
#define VERBS_NEAR_KNOWN (1u << VERBS_PLACES)

/* Reads the topology when it is needed first: with ports of several devices. The state's lock is held. */
void verbs_machine_read(struct verbs_state *state);

/* Rate between a GPU and a device, as a profile of routes has it. */
struct verbs_measured {
	bool direct;   /* without staging, in both directions */
	uint64_t rate; /* of the slower direction, bytes per second; 0: not proven */
};

/* profile_advice.c: grant_lock is held */
void verbs_measure(struct verbs_state *state, const struct verbs_port *port, const struct pl_memory *memory,
		   struct verbs_measured *measured);

/* Forgets that all ports are alike to a region: further ones appeared. The state's lock is held. */
void verbs_near_forget(struct verbs_state *state);
/* Finds the ports near the region's memory. grant_lock is held; the second function takes it. */
unsigned verbs_near_find(struct verbs_state *state, struct pl_region *region);
unsigned verbs_near_find_unlocked(struct verbs_state *state, struct pl_region *region);

/* Returns a mask of places; 0: all ports are alike, or nothing is known. No lock; grant_lock is not held. */
PL_ALWAYS_INLINE unsigned verbs_near(struct verbs_state *state, struct pl_region *region)
{
	unsigned near = atomic_load_explicit(&region->near, memory_order_relaxed);

	if (!near)
		near = verbs_near_find_unlocked(state, region);
	return near & ~VERBS_NEAR_KNOWN;
}

#endif
