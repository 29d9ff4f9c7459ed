/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory as a card knows it.  For this end's own use a region is registered once, when the first
 * operation needs it.  For peers every grant is registered by itself, with its own range and rights:
 * the card checks what a peer may do, and revoking takes the registration away.
 */
#include "fabric/verbs/verbs.h"

struct verbs_registration {
	struct pl_registration base;
	const struct verbs_library *library;
	const struct pl_allocator *allocator;
	struct ibv_mr *mr; /* NULL: it cannot be registered, and why */
	int failure;
	unsigned access;
};

static void release(struct pl_registration *base)
{
	struct verbs_registration *registration = pl_container_of(base, struct verbs_registration, base);

	if (registration->mr)
		registration->library->ibv_dereg_mr(registration->mr);
	pl_free(registration->allocator, registration);
}

static struct verbs_registration *find(const struct pl_list *list, const struct verbs_device *device)
{
	struct pl_registration *found = pl_registration_find(list, device);

	return found ? pl_container_of(found, struct verbs_registration, base) : NULL;
}

/* Adds a device's registration to a list: 0 or a negative errno. */
static int make(struct verbs_endpoint *endpoint, struct pl_list *list, void *address, size_t length, unsigned access,
		struct verbs_registration **result)
{
	const struct verbs_library *library = endpoint->state->library;
	const struct pl_allocator *allocator = &endpoint->state->context->allocator;
	struct verbs_registration *registration = pl_zalloc(allocator, sizeof(*registration));

	*result = registration;
	if (!registration)
		return -ENOMEM;
	*registration = (struct verbs_registration){
		.base = { .device = endpoint->device, .release = release },
		.library = library,
		.allocator = allocator,
		.access = access,
	};
	registration->failure = verbs_reg_mr(library, endpoint->device->pd, address, length, access, &registration->mr);
	pl_list_append(list, &registration->base.link);
	return registration->failure;
}

static void forget(struct verbs_registration *registration)
{
	pl_list_remove(&registration->base.link);
	release(&registration->base);
}

/* For this end's own use.  What was refused stays so, but for a lack of memory. */
static int find_or_make(struct verbs_endpoint *endpoint, struct pl_region *region, struct verbs_registration **result)
{
	struct pl_list *list = &region->registrations;
	struct pl_memory *memory = &region->memory;
	const unsigned access = IBV_ACCESS_RELAXED_ORDERING;
	int rc;

	*result = find(list, endpoint->device);
	if (*result)
		return (*result)->failure;
	rc = make(endpoint, list, memory->address, memory->length, access | IBV_ACCESS_LOCAL_WRITE, result);
	/* Memory that cannot be written can still be sent from. */
	if (rc == -EFAULT) {
		forget(*result);
		rc = make(endpoint, list, memory->address, memory->length, access, result);
	}
	if (rc == -ENOMEM && *result)
		forget(*result);
	return rc;
}

int verbs_local_key(struct verbs_endpoint *endpoint, struct pl_region *region, bool written, uint32_t *lkey)
{
	struct pl_context *context = endpoint->state->context;
	struct verbs_registration *registration = NULL;
	struct pl_registration *recent;
	int rc = 0;

	if (!endpoint->device)
		return -ENOTCONN;
	recent = atomic_load_explicit(&region->recent, memory_order_acquire);
	if (recent && recent->device == endpoint->device) {
		registration = pl_container_of(recent, struct verbs_registration, base);
	} else {
		pthread_mutex_lock(&context->grant_lock);
		rc = find_or_make(endpoint, region, &registration);
		if (rc == 0)
			atomic_store(&region->recent, &registration->base);
		pthread_mutex_unlock(&context->grant_lock);
	}
	if (rc == 0 && written && !(registration->access & IBV_ACCESS_LOCAL_WRITE))
		rc = -EACCES;
	if (rc == 0)
		*lkey = registration->mr->lkey;
	return rc;
}

/*
 * Relaxed ordering: the bytes of a write may become visible in any order, but before its completion and
 * before whatever is sent later, as these are ordered strictly (PCI Express Base Specification, 2.4.1:
 * only what has the attribute itself may pass).  Not for words on which somebody synchronises.
 */
static unsigned access_of(unsigned rights)
{
	unsigned access = rights & PL_ACCESS_ATOMIC ? 0 : IBV_ACCESS_RELAXED_ORDERING;

	if (rights & PL_ACCESS_READ)
		access |= IBV_ACCESS_REMOTE_READ;
	if (rights & PL_ACCESS_WRITE)
		access |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
	if (rights & PL_ACCESS_ATOMIC)
		access |= IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE;
	return access;
}

int verbs_export_key(struct pl_endpoint *base, struct pl_grant *grant, struct pl_key *key,
		     uint8_t blob[PL_KEY_BLOB_MAX])
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
	uint8_t *address = (uint8_t *)key->memory->address + key->offset;
	struct pl_list *list = grant ? &grant->registrations : &key->registrations;
	struct verbs_registration *registration;
	struct pl_writer writer;
	int rc;

	if (!endpoint->device)
		return -ENOTCONN;
	registration = find(list, endpoint->device);
	if (!registration) {
		rc = make(endpoint, list, address, key->length, access_of(key->rights), &registration);
		if (rc < 0) {
			if (registration)
				forget(registration);
			return rc;
		}
	}
	pl_writer_init(&writer, blob, PL_KEY_BLOB_MAX);
	pl_put_u64(&writer, key->id);
	pl_put_u32(&writer, registration->mr->rkey);
	pl_put_u64(&writer, (uintptr_t)address);
	return (int)(writer.at - writer.begin);
}
