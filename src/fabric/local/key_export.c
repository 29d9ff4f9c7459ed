/* SPDX-License-Identifier: BSD-2-Clause */
/* Exports a grant's key at the owner; imports it as an access path at the peer. */
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fabric/local/local.h"

/* -- the owner ------------------------------------------------------------------------------------ */

/*
 * The descriptor reaches all of the region, so only a grant of the whole region gets it. A grant without write access
 * gets a read-only descriptor.
 */
static bool send_memory(struct local_endpoint *endpoint, const struct pl_key *key)
{
	long page = sysconf(_SC_PAGESIZE);
	struct local_record record = { .type = LOCAL_RECORD_MEMORY, .key = key->id };
	int fd, rc;

	if (key->offset || key->length != key->memory->length)
		return false;
	fd = pl_memory_export_shared(key->memory, key->rights & (PL_ACCESS_WRITE | PL_ACCESS_ATOMIC));
	if (fd < 0)
		return false;
	record.size = (key->length + (size_t)page - 1) & ~((uint64_t)page - 1);
	rc = local_side_send(endpoint, &record, fd);
	close(fd);
	return rc == 0;
}

/* Exports device memory for the peer's device. A process needs no descriptors of its own memory. */
static unsigned export_device_memory(struct local_endpoint *endpoint, const struct pl_key *key, unsigned room, struct local_key *there)
{
	const struct pl_allocator *allocator = &endpoint->state->context->allocator;
	struct pl_ipc_fds *parts = endpoint->process == getpid() ? NULL : pl_ipc_fds_new(allocator, room);
	int length = pl_memory_export_ipc(key->memory, key->offset, key->length, there->ipc_handle, parts);

	/* The peer notices descriptors that do not arrive. */
	if (length >= 0 && parts && parts->count)
		local_side_send_parts(endpoint, key->id, parts);
	pl_ipc_fds_free(allocator, parts);
	if (length < 0)
		return 0;
	there->ipc_handle_length = (uint32_t)length;
	return LOCAL_WAY_DEVICE;
}

int local_export_key(struct pl_endpoint *base, struct pl_grant *grant, struct pl_key *key,
		     uint8_t blob[PL_KEY_BLOB_MAX])
{
	struct local_endpoint *endpoint = local_endpoint_of(base);
	struct local_key there = { .id = key->id, .gate = (uint32_t)key->id, .expires = key->expires };
	const void *address = pl_memory_host_pointer(key->memory, key->offset);
	unsigned ways = 0;

	if (there.gate < LOCAL_GATES && endpoint->own) {
		there.number = (uint32_t)(key->id >> 32) | 1;
		there.address = (uintptr_t)address;
		ways = address ? LOCAL_WAY_PROCESS
			       : export_device_memory(endpoint, key, grant ? LOCAL_PARTS : LOCAL_MESSAGE_PARTS, &there);
		if (address && grant && send_memory(endpoint, key))
			ways |= LOCAL_WAY_MAPPED;
		if (!ways || local_gate_open(endpoint->own, key, there.number, ways & ~LOCAL_WAY_PROCESS) < 0)
			ways = there.number = 0;
	}
	there.ways = (uint8_t)(ways | (address ? 0 : LOCAL_WAY_STAGED));
	return local_key_encode(&there, blob);
}

/* -- the peer ------------------------------------------------------------------------------------- */

static void unmap(struct local_access *access)
{
	local_lock_free(access->lock);
	access->lock = NULL;
	if (access->mapping)
		munmap(access->mapping, access->mapped);
	access->mapping = NULL;
}

static void forget_access(struct pl_remote *remote)
{
	struct local_access *access = remote->fabric_data;

	pthread_mutex_lock(&access->state->lock);
	pl_list_remove(&access->link);
	pthread_mutex_unlock(&access->state->lock);
	unmap(access);
	if (access->device && access->source)
		local_device_park(access->device);
	else
		local_device_free(access->device);
	pl_free(&remote->context->allocator, access);
}

/* A thread that is still copying after the owner's deadline keeps the memory until the remote region is released. */
static bool copies_have_left(const struct local_access *access)
{
	return access->gate && atomic_load(&access->gate->open) != access->number && !local_gate_is_held(access->gate);
}

/*
 * Replaces the mapping by pages of this process. The owner gets its memory back. A hostile owner, which controls the
 * gate, may claim that no thread copies: such a thread then copies to these pages.
 */
static void replace_mapping(struct local_access *access)
{
	local_lock_shut(access->lock);
	if (access->mapping && mmap(access->mapping, access->mapped, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		unmap(access);
}

static void close_access(struct local_access *access)
{
	replace_mapping(access);
	if (access->device)
		local_device_shut(access->device);
}

void local_revoked(struct local_endpoint *endpoint, uint64_t key)
{
	struct local_pending *pending = local_pending_find(endpoint, key);

	if (pending)
		local_pending_free(endpoint, pending);
	pthread_mutex_lock(&endpoint->state->lock);
	pl_list_for_each(at, &endpoint->accesses) {
		struct local_access *access = pl_list_entry(at, struct local_access, link);

		if (access->key == key && copies_have_left(access))
			close_access(access);
	}
	pthread_mutex_unlock(&endpoint->state->lock);
}

void local_accesses_leave(struct local_endpoint *endpoint)
{
	pthread_mutex_lock(&endpoint->state->lock);
	while (!pl_list_empty(&endpoint->accesses))
		pl_list_remove(endpoint->accesses.next);
	pthread_mutex_unlock(&endpoint->state->lock);
}

/* Takes the key's mapping if it allows all that the remote region allows. */
static bool take_mapping(struct local_endpoint *endpoint, const struct local_key *key, const struct pl_remote *remote,
			 struct local_access *access)
{
	struct local_pending *pending = local_pending_find(endpoint, key->id);

	if (!pending || !pending->mapping)
		return false;
	pl_list_remove(&pending->link);
	endpoint->pending_count--;
	access->mapping = pending->mapping;
	access->mapped = pending->size;
	access->base = pending->mapping;
	if (remote->length > pending->size ||
	    (!pending->writable && (remote->rights & (PL_ACCESS_WRITE | PL_ACCESS_ATOMIC)))) {
		munmap(access->mapping, access->mapped);
		access->mapping = NULL;
	}
	pl_free(&endpoint->state->context->allocator, pending);
	return access->mapping != NULL;
}

/* True if the kernel lets this process copy; it checks the same permission for every access. */
static bool may_copy(const struct local_endpoint *endpoint, const struct local_key *key)
{
	uint8_t byte;
	struct iovec here = { .iov_base = &byte, .iov_len = 1 };
	struct iovec there = { .iov_base = (void *)(uintptr_t)key->address, .iov_len = 1 };

	/* Write-only memory fails here with EFAULT, although it could be written. */
	return endpoint->process_fd >= 0 &&
	       (process_vm_readv(endpoint->process, &here, 1, &there, 1, 0) >= 0 || errno == EFAULT);
}

static void find_way(struct local_endpoint *endpoint, const struct pl_remote *remote, struct local_access *access)
{
	struct local_key key;

	access->way = &local_socket_way;
	if (local_key_decode(remote->key, remote->key_length, &key) < 0 || !key.number || key.gate >= LOCAL_GATES ||
	    !endpoint->gates || key.address + remote->length < key.address)
		return;
	access->gate = &endpoint->gates[key.gate];
	access->number = key.number;
	access->key = key.id;
	access->expires = key.expires;
	if ((key.ways & LOCAL_WAY_MAPPED) && take_mapping(endpoint, &key, remote, access)) {
		access->way = &local_mapped_way;
		access->lock = local_lock_new(access->state->context, access->mapping, access->mapped);
	} else if ((key.ways & LOCAL_WAY_PROCESS) && may_copy(endpoint, &key)) {
		access->base = (uint8_t *)(uintptr_t)key.address;
		access->way = &local_process_way;
	} else if (key.ways & LOCAL_WAY_PROCESS) {
		access->way = &local_denied_way;
	} else if (key.ways & LOCAL_WAY_DEVICE) {
		access->device = local_device_new(endpoint, &key, local_pending_take(endpoint, key.id), remote->length);
		if (access->device)
			access->way = &local_device_way;
	}
}

void local_imported(struct pl_endpoint *base, struct pl_remote *remote)
{
	struct local_endpoint *endpoint = local_endpoint_of(base);
	struct local_access *access = pl_zalloc(&endpoint->state->context->allocator, sizeof(*access));

	if (!access)
		return; /* the sockets need no address */
	access->endpoint = endpoint;
	access->state = endpoint->state;
	pl_list_init(&access->link);
	access->source = pl_list_empty(&remote->link);
	/* The descriptor was sent before the key that has arrived. */
	local_side_drain(endpoint);
	find_way(endpoint, remote, access);
	pthread_mutex_lock(&endpoint->state->lock);
	pl_list_append(&endpoint->accesses, &access->link);
	pthread_mutex_unlock(&endpoint->state->lock);
	remote->fabric_data = access;
	remote->forget = forget_access;
}
