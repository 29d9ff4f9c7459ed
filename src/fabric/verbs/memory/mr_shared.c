/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared registrations: regions of the same memory share one for this end's own use. Registrations for peers are never
 * shared or kept, because revoking removes them.
 *
 * While a region covers the whole registration, its memory exists, so every region within can use it. After that it is
 * kept only if a change of the memory can be detected: by the number of a GPU allocation, or because the program
 * promises to report it. Otherwise a card could write into pages that the process no longer has.
 */
#include "fabric/verbs/verbs.h"

struct verbs_shared {
	struct verbs_device *device;
	const struct pl_allocator *allocator;
	struct ibv_mr *mr;
	unsigned access;
	unsigned regions; /* regions that cover all of it; grant_lock */
	bool kept;
};

static void release_shared_mr(void *owner)
{
	struct verbs_shared *shared = owner;

	verbs_object_end(shared->device, VERBS_MR, shared->mr);
	pl_free(shared->allocator, shared);
}

struct pl_registration_cache *verbs_mr_shared_open(const struct verbs_state *state)
{
	return pl_registration_cache_new(&state->context->allocator, state->context->options.keep_bytes,
					 release_shared_mr);
}

/*
 * Returns the number of the allocation that holds all of the memory; 0: unknown. A GPU's virtual range can consist of
 * several.
 */
static uint64_t identity_of(const struct pl_memory *memory)
{
	struct pl_memory last = *memory;
	uint64_t first;

	if (!memory->ops->identity)
		return 0;
	first = memory->ops->identity(memory);
	last.address = (uint8_t *)memory->address + memory->length - 1;
	last.length = 1;
	return memory->ops->identity(&last) == first ? first : 0;
}

static bool is_whole(const struct pl_cached *cached, const struct pl_memory *memory)
{
	return cached->begin == (uintptr_t)memory->address && cached->end == cached->begin + memory->length;
}

uint32_t verbs_mr_shared_take(struct verbs_device *device, const struct pl_memory *memory, unsigned access,
			      struct ibv_mr **mr)
{
	uint32_t number =
		pl_registration_cache_take(device->shared, memory->address, memory->length, identity_of(memory));
	const struct pl_cached *cached;
	struct verbs_shared *shared;

	if (!number)
		return 0;
	cached = pl_registration_cache_entry(device->shared, number);
	shared = cached->owner;
	/* Memory windows may have been disabled meanwhile, and a region may want another order. */
	if ((shared->access & access) != access || ((shared->access ^ access) & IBV_ACCESS_RELAXED_ORDERING)) {
		pl_registration_cache_drop(device->shared, number);
		pl_registration_cache_give(device->shared, number);
		return 0;
	}
	shared->regions += is_whole(cached, memory);
	*mr = shared->mr;
	return number;
}

uint32_t verbs_mr_shared_add(struct verbs_state *state, struct verbs_device *device, const struct pl_memory *memory,
			     unsigned access, struct ibv_mr *mr)
{
	const struct pl_options *options = &state->context->options;
	const struct pl_allocator *allocator = &state->context->allocator;
	struct verbs_shared *shared = pl_zalloc(allocator, sizeof(*shared));
	uint64_t identity = identity_of(memory);
	uint32_t number;

	if (!shared)
		return 0;
	*shared = (struct verbs_shared){
		.device = device,
		.allocator = allocator,
		.mr = mr,
		.access = access,
		.regions = 1,
		/* Memory of the library goes with its region; a mapped file may be truncated. */
		.kept = options->keep_bytes && !memory->owned && !memory->fragile &&
			(pl_memory_staged(memory) ? identity != 0 : options->keep_host == PL_ON),
	};
	number = pl_registration_cache_add(device->shared, shared, memory->address, memory->length, identity);
	if (!number)
		pl_free(allocator, shared);
	return number;
}

void verbs_mr_shared_give(const struct verbs_device *device, uint32_t number, const struct pl_memory *memory)
{
	const struct pl_cached *cached = pl_registration_cache_entry(device->shared, number);
	struct verbs_shared *shared = cached->owner;

	shared->regions -= is_whole(cached, memory);
	if (!shared->regions && !shared->kept)
		pl_registration_cache_drop(device->shared, number);
	pl_registration_cache_give(device->shared, number);
}

void verbs_mr_shared_end(struct verbs_device *device)
{
	pl_registration_cache_invalidate(device->shared, NULL, SIZE_MAX);
}

void verbs_mr_shared_count(void *opaque, struct pl_registrations_info *info)
{
	struct verbs_state *state = opaque;
	struct pl_registration_cache_counts counts;

	pthread_mutex_lock(&state->lock);
	pl_list_for_each(at, &state->devices) {
		pl_registration_cache_count(pl_list_entry(at, struct verbs_device, link)->shared, &counts);
		info->found += counts.hits;
		info->made += counts.misses;
		info->evicted += counts.evictions;
		info->outdated += counts.invalidations;
		info->registrations += counts.entries;
		info->bytes += counts.bytes;
		info->bytes_kept += counts.idle_bytes;
	}
	pthread_mutex_unlock(&state->lock);
}

void verbs_mr_shared_freed(void *opaque, const void *address, size_t length)
{
	struct verbs_state *state = opaque;

	pthread_mutex_lock(&state->lock);
	pl_list_for_each(at, &state->devices)
		pl_registration_cache_invalidate(pl_list_entry(at, struct verbs_device, link)->shared, address, length);
	pthread_mutex_unlock(&state->lock);
}
