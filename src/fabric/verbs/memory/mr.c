/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory regions (MRs) of a card. For this end's own use a region is registered once, when the first operation needs
 * it, and shares the MR with other regions of the same memory. Peers reach grants by windows on that MR (mw.c). A grant
 * without windows has an MR of its own with its range and rights: the card checks each access, and revoking deregisters
 * the MR.
 */
#include <stdio.h>

#include "fabric/verbs/memory/near.h"
#include "fabric/verbs/verbs.h"
#include "rdma/data_direct.h"

/* A lack of memory may have ended after this time. */
#define RETRY_PAUSE PL_NS_PER_S

static void release_registration(struct pl_registration *base)
{
	struct verbs_mr *registration = pl_container_of(base, struct verbs_mr, base);

	pl_list_remove(&registration->device_link);
	if (registration->failure == -EINPROGRESS) {
		registration->outdated = true;
		pl_registration_outdated(registration->device->state->context);
		return;
	}
	if (registration->mr && !registration->cached) {
		/* Deregistering takes long. The device stays open until finish_registration(). */
		atomic_fetch_add(&registration->device->users, 1);
		return;
	}
	if (registration->cached)
		verbs_mr_shared_give(base->device, registration->cached, registration->memory);
	pl_free(registration->allocator, registration);
}

/* Deregisters without grant_lock. */
static void finish_registration(struct pl_registration *base)
{
	struct verbs_mr *registration = pl_container_of(base, struct verbs_mr, base);
	struct verbs_device *device = registration->device;
	struct verbs_state *state = device->state;

	if (verbs_object_end(device, VERBS_MR, registration->mr) == 0) {
		pl_free(registration->allocator, registration);
	} else {
		/* Peers may still reach the memory: closing the device ends that. */
		pthread_mutex_lock(&state->context->grant_lock);
		pl_list_append(&device->stuck_registrations, &registration->device_link);
		pthread_mutex_unlock(&state->context->grant_lock);
		verbs_device_lost(state, device);
	}
	verbs_device_leave(device);
}

void verbs_stuck_mrs_end(struct verbs_device *device)
{
	while (!pl_list_empty(&device->stuck_registrations)) {
		struct verbs_mr *registration =
			pl_list_first(&device->stuck_registrations, struct verbs_mr, device_link);

		pl_list_remove(&registration->device_link);
		verbs_object_end(device, VERBS_MR, registration->mr);
		pl_free(registration->allocator, registration);
	}
}

static struct verbs_mr *find_registration(const struct pl_list *list, const struct verbs_device *device)
{
	struct pl_registration *found = pl_registration_find(list, device);

	return found ? pl_container_of(found, struct verbs_mr, base) : NULL;
}

/* Adds an empty registration of a range to a list. NULL: no memory. */
static struct verbs_mr *add_registration(struct verbs_device *device, struct pl_list *list, struct pl_memory *memory,
					 size_t offset, size_t length, unsigned access)
{
	struct verbs_state *state = device->state;
	const struct pl_allocator *allocator = &state->context->allocator;
	struct verbs_mr *registration = pl_zalloc(allocator, sizeof(*registration));

	if (!registration)
		return NULL;
	*registration = (struct verbs_mr){
		.base = { .device = device, .release = release_registration, .timeless = true },
		.library = state->library,
		.allocator = allocator,
		.device = device,
		.memory = memory,
		.offset = offset,
		.length = length,
		.iova = (uintptr_t)memory->address + offset,
		.access = access,
	};
	if (pl_memory_staged(memory))
		verbs_advise(state, device, memory, &registration->advice);
	pl_list_append(list, &registration->base.link);
	pl_list_append(&device->registrations, &registration->device_link);
	return registration;
}

void verbs_mr_register(const struct verbs_mr *registration, struct verbs_mr_result *result)
{
	struct verbs_device *device = registration->device;
	struct pl_memory *memory = registration->memory;
	const struct rdma_range range = { memory, registration->offset, registration->length, registration->iova };
	const struct rdma_domain domain = { registration->library, device->pd, verbs_device_has_data_direct(device) };
	bool address_first = registration->advice.first == PL_GPU_PATH_ADDRESS && !memory->dmabuf;

	*result = (struct verbs_mr_result){ .access = registration->access };
	if (atomic_load(&device->gone)) {
		result->failure = -ENODEV;
		return;
	}
	result->failure =
		verbs_reg_memory(&domain, &range, result->access, address_first, &result->mr, &result->reason);
	if (result->failure != -EFAULT || !registration->own || pl_memory_staged(memory))
		return;
	/* Read-only memory can still be sent, but the kernel binds windows to writable memory only. */
	result->access = registration->access & IBV_ACCESS_RELAXED_ORDERING;
	result->failure = verbs_reg_memory(&domain, &range, result->access, false, &result->mr, &result->reason);
}

/* Notes in receipts, unless a profile of routes says more. */
static void note_data_direct(struct verbs_mr *registration)
{
	for (enum pl_direction direction = 0; direction < PL_DIRECTION_COUNT; direction++)
		if (!registration->advice.directions[direction].reason)
			registration->advice.directions[direction].reason = rdma_data_direct_reason;
}

void verbs_mr_fill(struct verbs_mr *registration, const struct verbs_mr_result *result)
{
	const bool direct = result->mr && result->reason == rdma_data_direct_reason;
	/* Read-only memory may become writable later. The address of a dma-buf need not belong to this process. */
	bool shared = result->mr && registration->own && result->access == registration->access &&
		      !registration->memory->dmabuf;

	/* Regions that share it take for granted that Data Direct was used if the device had it when it was opened. */
	if (pl_memory_staged(registration->memory))
		shared &= direct == verbs_device_has_data_direct(registration->device);
	if (direct)
		note_data_direct(registration);

	registration->access = result->access;
	registration->mr = result->mr;
	registration->reason = direct ? NULL : result->reason;
	registration->failure = result->failure;
	registration->failed = result->failure ? pl_now() : 0;
	if (result->mr)
		registration->lkey = result->mr->lkey;
	if (shared)
		registration->cached = verbs_mr_shared_add(registration->device->state, registration->device,
							   registration->memory, result->access, result->mr);
	if (result->mr && !registration->cached)
		registration->base.finish = finish_registration;
}

/* Registers the memory of an empty registration, or has a thread do so. Returns 0, -EINPROGRESS or the failure. */
static int make_registration(struct verbs_mr *registration)
{
	struct verbs_mr_result result;

	if (registration->length > VERBS_REGISTER_NOW && verbs_registrar_start(registration))
		return -EINPROGRESS;
	verbs_mr_register(registration, &result);
	verbs_mr_fill(registration, &result);
	return registration->failure;
}

static void forget_registration(struct verbs_mr *registration)
{
	pl_list_remove(&registration->base.link);
	release_registration(&registration->base);
}

/* Uses the registration of another region of the memory, or makes one that others can share. */
static int share_or_make(struct verbs_device *device, struct pl_region *region, unsigned access,
			 struct verbs_mr **result)
{
	struct pl_memory *memory = &region->memory;
	struct ibv_mr *mr = NULL;
	uint32_t cached = memory->dmabuf ? 0 : verbs_mr_shared_take(device, memory, access, &mr);

	*result = add_registration(device, &region->registrations, memory, 0, memory->length, access);
	if (!*result) {
		if (cached)
			verbs_mr_shared_give(device, cached, memory);
		return -ENOMEM;
	}
	(*result)->own = true;
	if (!cached)
		return make_registration(*result);
	(*result)->cached = cached;
	(*result)->mr = mr;
	(*result)->lkey = mr->lkey;
	if (verbs_device_has_data_direct(device) && pl_memory_staged(memory)) {
		__atomic_store_n(&memory->data_direct, true, __ATOMIC_RELAXED);
		note_data_direct(*result);
	}
	return 0;
}

/* Finds or makes the registration for this end's own use. A refusal is permanent, except for a lack of memory. */
static int find_or_make_registration(struct verbs_state *state, struct verbs_device *device, struct pl_region *region,
				     struct verbs_mr **result)
{
	bool windows = verbs_mw_enabled(state, device) && verbs_mw_binds(&region->memory);
	const unsigned access = IBV_ACCESS_LOCAL_WRITE | (region->strict ? 0u : IBV_ACCESS_RELAXED_ORDERING);
	int rc;

	*result = find_registration(&region->registrations, device);
	if (*result && (*result)->failure == -ENOMEM && pl_now() - (*result)->failed > RETRY_PAUSE) {
		forget_registration(*result);
		*result = NULL;
	}
	if (*result)
		return (*result)->failure;
	rc = share_or_make(device, region, access | (windows ? IBV_ACCESS_MW_BIND : 0u), result);
	/* The reason that a GPU's driver gave stays known for RETRY_PAUSE. */
	if (rc == -ENOMEM && *result && !(*result)->reason)
		forget_registration(*result);
	return rc;
}

int verbs_local_key_find(struct verbs_state *state, struct verbs_device *device, struct pl_region *region, bool written,
			 uint32_t *lkey)
{
	struct verbs_mr *registration = NULL;
	int rc;

	pthread_mutex_lock(&state->context->grant_lock);
	rc = find_or_make_registration(state, device, region, &registration);
	if (rc == 0)
		atomic_store(&region->recent, &registration->base);
	pthread_mutex_unlock(&state->context->grant_lock);
	if (rc == 0 && written && !(registration->access & IBV_ACCESS_LOCAL_WRITE))
		rc = -EACCES;
	if (rc == 0)
		*lkey = registration->lkey;
	return rc;
}

void verbs_registration_fail(struct pl_error *error, int code)
{
	pl_fail_errno(error, code, "RDMA-REGISTER", "ibv_reg_mr", NULL);
	if (code == -ENOMEM)
		snprintf(error->hint, sizeof(error->hint), "%s", VERBS_HINT_MEMORY);
}

const char *verbs_local_refusal(struct verbs_state *state, struct verbs_device *device, struct pl_region *region)
{
	struct verbs_mr *registration;
	const char *reason;

	pthread_mutex_lock(&state->context->grant_lock);
	registration = find_registration(&region->registrations, device);
	reason = registration ? registration->reason : NULL;
	pthread_mutex_unlock(&state->context->grant_lock);
	return reason;
}

const struct verbs_advised *verbs_local_advice(const struct verbs_device *device, struct pl_region *region,
					       bool written)
{
	static const struct verbs_advised none;
	struct pl_registration *recent = atomic_load_explicit(&region->recent, memory_order_acquire);
	const struct verbs_mr *registration;

	if (!recent || recent->device != device)
		return &none;
	registration = pl_container_of(recent, struct verbs_mr, base);
	return &registration->advice.directions[written ? PL_INTO_GPU : PL_FROM_GPU];
}

/*
 * Relaxed ordering: the bytes of a write become visible in any order, but before its completion and before later
 * writes, which are strictly ordered (PCI Express Base Specification, 2.4.1: only transactions with the attribute may
 * pass). Not for words that programs use to synchronise.
 */
static unsigned access_of(const struct pl_key *key)
{
	unsigned rights = key->rights;
	unsigned access =
		verbs_region_of(key)->strict || (rights & PL_ACCESS_ATOMIC) ? 0 : IBV_ACCESS_RELAXED_ORDERING;

	if (rights & PL_ACCESS_READ)
		access |= IBV_ACCESS_REMOTE_READ;
	if (rights & PL_ACCESS_WRITE)
		access |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
	if (rights & PL_ACCESS_ATOMIC)
		access |= IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE;
	return access;
}

/* Finds the registration of a device at the address that the key's peer knows. The list has windows, too. */
static struct verbs_mr *find_export(const struct pl_list *list, const struct verbs_device *device,
				    const struct pl_key *key)
{
	pl_list_for_each(at, list) {
		struct pl_registration *base = pl_list_entry(at, struct pl_registration, link);
		struct verbs_mr *registration = pl_container_of(base, struct verbs_mr, base);

		if (base->device == device && registration->iova == key->far_address)
			return registration;
	}
	return NULL;
}

int verbs_export_at(struct verbs_device *device, struct pl_list *list, const struct pl_key *key, uint32_t *rkey)
{
	struct verbs_mr *registration = find_export(list, device, key);
	int rc;

	/* The device came after the key. */
	if (!device->far_addresses && key->far_address != verbs_near_address(key))
		return -ENOTSUP;
	if (registration) {
		rc = registration->failure;
	} else {
		registration = add_registration(device, list, key->memory, key->offset, key->length,
						access_of(key));
		if (registration)
			registration->iova = key->far_address;
		rc = registration ? make_registration(registration) : -ENOMEM;
	}
	if (rc == 0)
		*rkey = registration->mr->rkey;
	return rc;
}

void verbs_export_over(struct pl_list *list)
{
	pl_list_for_each_safe(at, next, list) {
		struct pl_registration *base = pl_list_entry(at, struct pl_registration, link);
		struct verbs_mr *registration;

		/* The list has windows, too. */
		if (base->release != release_registration)
			continue;
		registration = pl_container_of(base, struct verbs_mr, base);
		if (registration->failure && registration->failure != -EINPROGRESS)
			forget_registration(registration);
	}
}

int verbs_mw_base(struct verbs_state *state, struct verbs_device *device, struct pl_region *region, unsigned rights,
		  struct ibv_mr **mr)
{
	struct verbs_mr *whole;
	unsigned needed = IBV_ACCESS_MW_BIND | (rights & PL_ACCESS_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0u);
	int rc = find_or_make_registration(state, device, region, &whole);

	if (rc == 0 && (whole->access & needed) != needed)
		rc = -EACCES;
	if (rc == 0)
		*mr = whole->mr;
	return rc;
}

void verbs_mrs_end(struct verbs_device *device)
{
	pl_list_for_each(at, &device->registrations) {
		struct verbs_mr *registration = pl_list_entry(at, struct verbs_mr, device_link);

		/* Its thread finds that the device is gone, and may still use the object. */
		if (registration->failure == -EINPROGRESS)
			continue;
		if (registration->cached)
			verbs_mr_shared_give(device, registration->cached, registration->memory);
		else if (registration->mr)
			verbs_object_end(device, VERBS_MR, registration->mr);
		registration->cached = 0;
		registration->base.finish = NULL;
		registration->mr = NULL;
		registration->failure = -ENODEV;
	}
	verbs_stuck_mrs_end(device);
	verbs_mr_shared_end(device);
}
