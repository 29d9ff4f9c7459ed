/* SPDX-License-Identifier: BSD-2-Clause */
/* Exports a grant's key at the owner; imports it as an access path at the peer. */
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fabric/local/local.h"
#include "memory/page_replace.h"

/* Returns the length of the mapping of a region. */
static uint64_t whole_pages(uint64_t length)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return (length + page - 1) & ~(page - 1);
}

/* -- the owner ------------------------------------------------------------------------------------ */

/*
 * Sends the descriptor of the region. The descriptor reaches all of the region, so only a grant of the whole region
 * gets one. A grant without write access gets a read-only descriptor.
 */
static bool send_region_descriptor(struct local_endpoint *endpoint, const struct pl_key *key)
{
	struct local_record record = { .type = LOCAL_RECORD_MEMORY, .key = key->id };
	int fd, rc;

	if (key->offset || key->length != key->memory->length)
		return false;
	fd = pl_memory_export_shared(key->memory, key->rights & (PL_ACCESS_WRITE | PL_ACCESS_ATOMIC));
	if (pl_lacks_descriptor(fd))
		pl_peer_note_key(endpoint->base.peer, PL_EVENT_LIMIT_REACHED, key->id, fd, LOCAL_NO_DESCRIPTOR);
	if (fd < 0)
		return false;
	record.size = whole_pages(key->length);
	rc = local_fd_socket_send(endpoint, &record, fd);
	close(fd);
	return rc == 0;
}

/* Exports device memory for the peer's device. A process needs no descriptors of its own memory. */
static unsigned export_device_memory(struct local_endpoint *endpoint, const struct pl_key *key, unsigned room,
				     struct local_key *remote_key)
{
	const struct pl_allocator *allocator = &endpoint->state->context->allocator;
	struct pl_ipc_fds *ipc_fds = endpoint->process == getpid() ? NULL : pl_ipc_fds_new(allocator, room);
	int length = pl_memory_export_ipc(key->memory, key->offset, key->length, remote_key->ipc_handle, ipc_fds);

	/* The peer notices descriptors that do not arrive. */
	if (length >= 0 && ipc_fds && ipc_fds->count)
		local_fd_socket_send_ipc_fds(endpoint, key->id, ipc_fds);
	pl_ipc_fds_free(allocator, ipc_fds);
	if (length < 0)
		return 0;
	remote_key->ipc_handle_length = (uint32_t)length;
	return LOCAL_PATH_DEVICE;
}

int local_export_key(struct pl_endpoint *base, struct pl_grant *grant, struct pl_key *key,
		     uint8_t blob[PL_KEY_BLOB_MAX])
{
	struct local_endpoint *endpoint = local_endpoint_of(base);
	struct local_key remote_key = { .id = key->id, .gate = (uint32_t)key->id, .expires = key->expires };
	const void *address = pl_memory_host_pointer(key->memory, key->offset);
	unsigned paths = 0;

	if (endpoint->own_gates && remote_key.gate < endpoint->own_gates->count) {
		remote_key.number = (uint32_t)(key->id >> 32) | 1;
		remote_key.address = (uintptr_t)address;
		paths = address ? LOCAL_PATH_PROCESS
				: export_device_memory(endpoint, key, grant ? LOCAL_FDS_PER_KEY : LOCAL_FDS_PER_MESSAGE,
						       &remote_key);
		if (address && grant && send_region_descriptor(endpoint, key))
			paths |= LOCAL_PATH_MAPPED;
		if (!paths ||
		    local_gate_open(endpoint->own_gates, key, remote_key.number, paths & ~LOCAL_PATH_PROCESS) < 0)
			paths = remote_key.number = 0;
	}
	remote_key.paths = (uint8_t)(paths | (address ? 0 : LOCAL_PATH_STAGED));
	return local_key_encode(&remote_key, blob);
}

/* -- the peer ------------------------------------------------------------------------------------- */

static void access_unmap(struct local_access *access)
{
	local_host_pin_free(access->pin);
	access->pin = NULL;
	if (!access->mapping)
		return;
	if (!access->torn)
		munmap(access->mapping, access->mapped);
	access->mapping = NULL;
	atomic_fetch_sub(&access->state->mappings, 1);
}

static void forget_access(struct pl_remote *remote)
{
	struct local_access *access = remote->fabric_data;

	pthread_mutex_lock(&access->state->lock);
	/* Without a list the endpoint may have ended. */
	if (!pl_list_empty(&access->link))
		local_access_table_remove(&access->endpoint->accesses, access);
	pthread_mutex_unlock(&access->state->lock);
	access_unmap(access);
	if (access->device && access->message_source)
		local_device_park(access->device);
	else
		local_device_free(access->device);
	pl_free(&remote->context->allocator, access);
}

/* True if the gate is shut and has no holders. A copy after the owner's deadline keeps the memory mapped. */
static bool copies_have_left(const struct local_access *access)
{
	return access->gate && atomic_load(&access->gate->open) != access->number && !local_gate_is_held(access->gate);
}

/*
 * Replaces the mapping by pages of this process. The owner gets its memory back. A hostile owner, which controls the
 * gate, may claim that no thread copies. A copying thread then uses these pages. If there are none
 * (vm.overcommit_memory, vm.max_map_count), the owner's memory stays until the remote region is released.
 */
static void access_replace_mapping(struct local_access *access)
{
	void *pages;

	local_host_pin_release(access->pin);
	if (!access->mapping || access->torn)
		return;
	pages = mmap(NULL, access->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (pages != MAP_FAILED &&
	    pl_pages_replace(access->mapping, pages, access->mapped, 0, PROT_READ | PROT_WRITE) == PL_PAGES_TORN)
		access->torn = true;
}

static void access_close_memory(struct local_access *access)
{
	access_replace_mapping(access);
	if (access->device)
		local_device_shut(access->device);
}

void local_key_revoked(struct local_endpoint *endpoint, uint64_t key)
{
	struct local_pending *pending = local_pending_find(endpoint, key);
	struct local_access *access;

	if (pending)
		local_pending_free(endpoint, pending);
	pthread_mutex_lock(&endpoint->state->lock);
	access = local_access_table_find(&endpoint->accesses, key);
	if (access) {
		pl_peer_note_key(endpoint->base.peer, PL_EVENT_REVOKED_THERE, key, 0, "the other end ended the grant");
		if (copies_have_left(access))
			access_close_memory(access);
	}
	pthread_mutex_unlock(&endpoint->state->lock);
	local_borrowed_revoked(endpoint, key);
}

/* Takes the key's mapping if it has the length of the remote region, and allows all that the region allows. */
static bool access_take_mapping(struct local_endpoint *endpoint, const struct local_key *key,
				const struct pl_remote *remote, struct local_access *access)
{
	access->mapped = whole_pages(remote->length);
	access->mapping = local_pending_take_mapping(endpoint, key->id, access->mapped,
						     remote->rights & (PL_ACCESS_WRITE | PL_ACCESS_ATOMIC));
	if (!access->mapping)
		return false;
	access->base = access->mapping;
	if (atomic_fetch_add(&access->state->mappings, 1) >= LOCAL_MAPPINGS_MAX)
		access_unmap(access);
	return access->mapping != NULL;
}

/* True if the kernel lets this process copy; it checks the same permission for every access. */
static bool kernel_permits_copies(const struct local_endpoint *endpoint, const struct local_key *key)
{
	uint8_t byte;
	struct iovec local = { .iov_base = &byte, .iov_len = 1 };
	struct iovec remote = { .iov_base = (void *)(uintptr_t)key->address, .iov_len = 1 };

	/* Write-only memory fails here with EFAULT, although it could be written. */
	return endpoint->process_fd >= 0 &&
	       (process_vm_readv(endpoint->process, &local, 1, &remote, 1, 0) >= 0 || errno == EFAULT);
}

static void select_access_path(struct local_endpoint *endpoint, const struct pl_remote *remote,
			       struct local_access *access)
{
	struct local_key key;

	access->path = &local_socket_path;
	if (local_key_decode(remote->key, remote->key_length, &key) < 0 || !key.number || !endpoint->gates ||
	    key.gate >= endpoint->gate_count || key.address + remote->length < key.address)
		return;
	access->gate = &endpoint->gates[key.gate];
	access->number = key.number;
	access->key = key.id;
	access->expires = key.expires;
	if ((key.paths & LOCAL_PATH_MAPPED) && access_take_mapping(endpoint, &key, remote, access)) {
		access->path = &local_mapped_path;
		access->pin = local_host_pin_new(access->state->context, access->mapping, access->mapped,
						 !(remote->rights & (PL_ACCESS_WRITE | PL_ACCESS_ATOMIC)));
	} else if ((key.paths & LOCAL_PATH_PROCESS) && kernel_permits_copies(endpoint, &key)) {
		access->base = (uint8_t *)(uintptr_t)key.address;
		access->path = &local_process_path;
	} else if (key.paths & LOCAL_PATH_PROCESS) {
		access->path = &local_denied_path;
	} else if (key.paths & LOCAL_PATH_DEVICE) {
		access->device = local_device_new(endpoint, &key, local_pending_take(endpoint, key.id), remote->length);
		if (access->device)
			access->path = &local_device_path;
	}
}

void local_imported(struct pl_endpoint *base, struct pl_remote *remote)
{
	struct local_endpoint *endpoint = local_endpoint_of(base);
	struct local_access *access = pl_zalloc(&endpoint->state->context->allocator, sizeof(*access));
	int rc;

	if (!access)
		return; /* the sockets need no access path */
	access->endpoint = endpoint;
	access->state = endpoint->state;
	pl_list_init(&access->link);
	access->message_source = pl_list_empty(&remote->link);
	/* Receives the descriptor, which was sent before the key. */
	local_fd_socket_drain(endpoint);
	select_access_path(endpoint, remote, access);
	pthread_mutex_lock(&endpoint->state->lock);
	rc = local_access_table_add(&endpoint->accesses, &endpoint->state->context->allocator, access);
	pthread_mutex_unlock(&endpoint->state->lock);
	remote->fabric_data = access;
	remote->forget = forget_access;
	if (rc < 0) {
		/* A revoked key could not be found. The sockets need no access path. */
		forget_access(remote);
		remote->fabric_data = NULL;
		remote->forget = NULL;
		return;
	}
	remote->path_reason = access->path->reason;
}

void *local_map(struct pl_endpoint *base, struct pl_remote *remote, size_t *length)
{
	const struct local_access *access = remote->fabric_data;
	void *mapping;

	(void)base;
	/* The pages of a revoked key may be those of this process already. */
	if (!access || !access->mapping || access->torn || atomic_load(&access->gate->open) != access->number)
		return NULL;
	/* From no bytes of a shared mapping, the kernel makes a second one. Emulators refuse that. */
	mapping = mremap(access->mapping, 0, access->mapped, MREMAP_MAYMOVE);
	if (mapping == MAP_FAILED)
		return NULL;
	if (mprotect(mapping, access->mapped, PROT_READ) < 0) {
		munmap(mapping, access->mapped);
		return NULL;
	}
	*length = access->mapped;
	return mapping;
}
