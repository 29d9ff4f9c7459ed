/* SPDX-License-Identifier: BSD-2-Clause */
/* Preparation of a region for its first transfers with a peer: pages, registrations, lanes, staging memory. */
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/fabric.h"

/* Longest wait for lanes.  Transfers work with fewer lanes, so their lack is no error. */
#define LANES_WAIT PL_NS_PER_S
#define LANES_POLL PL_NS_PER_MS
/* Most slots to lock: one for each lane of a peer. */
#define SLOTS_MAX 16u
/* Headers before Linux 5.14 lack it. */
#define POPULATE_WRITE 23

/* Touches each page by an atomic instruction that changes nothing. */
static void touch_pages(uint8_t *bytes, size_t length, size_t page)
{
	for (size_t at = 0; at < length; at += page)
		__atomic_fetch_or(bytes + at, 0, __ATOMIC_RELAXED);
	__atomic_fetch_or(bytes + length - 1, 0, __ATOMIC_RELAXED);
}

/* Makes the kernel allocate, zero and map the pages of host memory. */
static void populate_pages(const struct pl_memory *memory)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *bytes = pl_memory_host_pointer(memory, 0);
	uintptr_t begin, end;

	/* Access to fragile memory may raise a signal, and read-only memory needs no pages of its own. */
	if (!bytes || memory->fragile)
		return;
	begin = (uintptr_t)bytes & ~(page - 1);
	end = ((uintptr_t)bytes + memory->length + page - 1) & ~(page - 1);
	if (madvise((void *)begin, end - begin, POPULATE_WRITE) < 0)
		touch_pages(bytes, memory->length, page);
}

/* Opens the copy queues of the engines that drive lanes, and locks a slot for each lane. */
static void prepare_staging(struct pl_context *context, struct pl_memory *memory, unsigned lanes)
{
	struct pl_slot *slots[SLOTS_MAX];
	unsigned count = PL_MIN(lanes, SLOTS_MAX);

	for (unsigned i = 0; i < context->engine_count; i++) {
		struct pl_engine *engine = context->engines[i];
		struct pl_copier *copier;

		pl_engine_lock(engine);
		copier = pl_context_copier(context, engine);
		if (copier)
			pl_copier_prepare(copier, memory);
		pl_engine_unlock(engine);
	}
	for (unsigned i = 0; i < count; i++)
		slots[i] = pl_slots_take(&context->slot_pool, memory);
	for (unsigned i = 0; i < count; i++)
		pl_slots_give(&context->slot_pool, slots[i]);
}

/* True if the peer has this many lanes, cannot open the others now, or may have no more. */
static bool has_tried_lanes(struct pl_peer *peer, unsigned lanes)
{
	unsigned tried = peer->ops->lanes(peer->endpoint);
	int status;

	if (peer->ops->lanes_missing)
		tried += peer->ops->lanes_missing(peer->endpoint, &status);
	return tried >= lanes || (peer->ops->lanes_most && tried >= peer->ops->lanes_most(peer->endpoint));
}

/* Waits until the peer has this many lanes, or cannot open more, is lost, or the time is over. */
static void await_lanes(struct pl_peer *peer, unsigned lanes)
{
	const struct timespec pause = { .tv_nsec = LANES_POLL };
	uint64_t deadline = pl_deadline(pl_now(), LANES_WAIT);

	while (atomic_load(&peer->state) == PL_PEER_UP && !has_tried_lanes(peer, lanes) && pl_now() < deadline) {
		if (!pl_context_manual(peer->context) || !pl_context_progress(peer->context))
			nanosleep(&pause, NULL);
	}
}

static int fail_lost(struct pl_error *error)
{
	return pl_fail(error, -ENOTCONN, "PEER-LOST", "pl_region_prepare", NULL, "connect again",
		       "the connection is lost");
}

int pl_region_prepare(struct pl_peer *peer, struct pl_region *region, struct pl_error *error)
{
	unsigned lanes = 0;

	if (region->context != peer->context)
		return pl_fail(error, -EINVAL, "REGION-FOREIGN", "pl_region_prepare", NULL,
			       "use a region of the peer's context", "the region belongs to another context");
	if (atomic_load(&peer->state) != PL_PEER_UP)
		return fail_lost(error);
	populate_pages(&region->memory);
	pl_engine_lock(peer->home);
	if (atomic_load(&peer->state) == PL_PEER_UP && peer->ops->prepare)
		lanes = peer->ops->prepare(peer->endpoint, region);
	pl_engine_unlock(peer->home);
	pl_region_await_registrations(region);
	if (lanes && pl_memory_staged(&region->memory))
		prepare_staging(peer->context, &region->memory, lanes);
	await_lanes(peer, lanes);
	return atomic_load(&peer->state) == PL_PEER_UP ? 0 : fail_lost(error);
}
