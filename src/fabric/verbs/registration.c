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
	struct ibv_mr *mr;
};

static void release(struct pl_registration *base)
{
	struct verbs_registration *registration = pl_container_of(base, struct verbs_registration, base);

	registration->library->ibv_dereg_mr(registration->mr);
	pl_free(registration->allocator, registration);
}

/* The device's registration in a list, made if need be: 0 or a negative errno. grant_lock */
static int find_or_make(struct verbs_state *state, struct verbs_device *device, struct pl_list *list, void *address,
			size_t length, unsigned access, struct ibv_mr **mr)
{
	struct pl_registration *found = pl_registration_find(list, device);
	struct verbs_registration *registration;
	int rc;

	if (found) {
		*mr = pl_container_of(found, struct verbs_registration, base)->mr;
		return 0;
	}
	registration = pl_zalloc(&state->context->allocator, sizeof(*registration));
	if (!registration)
		return -ENOMEM;
	registration->base = (struct pl_registration){ .device = device, .release = release };
	registration->library = state->library;
	registration->allocator = &state->context->allocator;
	rc = verbs_reg_mr(state->library, device->pd, address, length, access, mr);
	if (rc < 0) {
		pl_free(&state->context->allocator, registration);
		return rc;
	}
	registration->mr = *mr;
	pl_list_append(list, &registration->base.link);
	return 0;
}

int verbs_local_key(struct verbs_endpoint *endpoint, struct pl_region *region, uint32_t *lkey)
{
	struct pl_context *context = endpoint->state->context;
	struct ibv_mr *mr;
	int rc;

	if (!endpoint->device)
		return -ENOTCONN;
	pthread_mutex_lock(&context->grant_lock);
	rc = find_or_make(endpoint->state, endpoint->device, &region->registrations, region->memory.address,
			  region->memory.length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING, &mr);
	/* Memory that cannot be written can still be sent from. */
	if (rc == -EFAULT)
		rc = find_or_make(endpoint->state, endpoint->device, &region->registrations, region->memory.address,
				  region->memory.length, IBV_ACCESS_RELAXED_ORDERING, &mr);
	if (rc == 0)
		*lkey = mr->lkey;
	pthread_mutex_unlock(&context->grant_lock);
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
	struct pl_writer writer;
	struct ibv_mr *mr;
	int rc;

	if (!endpoint->device)
		return -ENOTCONN;
	rc = find_or_make(endpoint->state, endpoint->device, grant ? &grant->registrations : &key->registrations,
			  address, key->length, access_of(key->rights), &mr);
	if (rc < 0)
		return rc;
	pl_writer_init(&writer, blob, PL_KEY_BLOB_MAX);
	pl_put_u64(&writer, key->id);
	pl_put_u32(&writer, mr->rkey);
	pl_put_u64(&writer, (uintptr_t)address);
	return (int)(writer.at - writer.begin);
}
