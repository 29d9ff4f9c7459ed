/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Descriptors of keys that are not imported yet. Cancelled imports leave descriptors here, and so may a hostile peer.
 * So their number is limited, and the oldest are closed first.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "fabric/local/local.h"

/* Largest mapping whose page table entries are made at once, in bytes. */
#define POPULATE_MAX (1u << 20)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
/*
 * Most bytes of address space that mappings of one peer take before their imports, 4 TiB. The files may be sparse, so a
 * peer could take all 128 TiB of this process.
 */
#define PENDING_BYTES_MAX (4ull << 40)

/*
 * The seals guard the size, not the pages: an owner that may write can punch holes. In a memfd of ordinary pages, a hole is a page of zeros
 * at its next access. A memfd of huge pages gets none while their pool is empty, and the access raises SIGBUS. The library shares no huge
 * pages of a pool, so nothing honest is refused.
 */
bool local_file_is_mappable(int fd, uint64_t size)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct statfs system;
	struct stat status;

	return seals >= 0 && (seals & SEALS) == SEALS && fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC &&
	       fstat(fd, &status) == 0 && (uint64_t)status.st_size == size && size <= SIZE_MAX;
}

void *local_map_sealed_file(int fd, uint64_t size, bool *writable)
{
	int flags = fcntl(fd, F_GETFL);
	int populate = size <= POPULATE_MAX ? MAP_POPULATE : 0;
	void *mapping;

	if (flags < 0 || !local_file_is_mappable(fd, size))
		return NULL;
	*writable = (flags & O_ACCMODE) == O_RDWR;
	mapping =
		mmap(NULL, (size_t)size, *writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | populate, fd, 0);
	return mapping == MAP_FAILED ? NULL : mapping;
}

static void pending_list_remove(struct local_endpoint *endpoint, struct local_pending *pending)
{
	pl_list_remove(&pending->link);
	endpoint->pending_count--;
	endpoint->pending_bytes -= pending->size;
	if (pending->ipc_fds)
		endpoint->pending_ipc_fds -= pending->ipc_fds->room;
}

void local_pending_free(struct local_endpoint *endpoint, struct local_pending *pending)
{
	const struct pl_allocator *allocator = &endpoint->state->context->allocator;

	pending_list_remove(endpoint, pending);
	if (pending->ipc_fds)
		pl_ipc_fds_free(allocator, pending->ipc_fds);
	else
		munmap(pending->mapping, pending->size);
	pl_free(allocator, pending);
}

static void pending_list_add(struct local_endpoint *endpoint, struct local_pending *pending)
{
	unsigned fd_count = pending->ipc_fds ? pending->ipc_fds->room : 0;

	while (endpoint->pending_count == LOCAL_PENDING || endpoint->pending_ipc_fds + fd_count > LOCAL_FDS_PER_KEY ||
	       (endpoint->pending_count && endpoint->pending_bytes + pending->size > PENDING_BYTES_MAX))
		local_pending_free(endpoint, pl_list_first(&endpoint->pending, struct local_pending, link));
	pl_list_append(&endpoint->pending, &pending->link);
	endpoint->pending_count++;
	endpoint->pending_bytes += pending->size;
	endpoint->pending_ipc_fds += fd_count;
}

struct local_pending *local_pending_find(struct local_endpoint *endpoint, uint64_t key)
{
	pl_list_for_each(at, &endpoint->pending) {
		struct local_pending *pending = pl_list_entry(at, struct local_pending, link);

		if (pending->key == key)
			return pending;
	}
	return NULL;
}

int local_pending_memory(struct local_endpoint *endpoint, const struct local_record *record, int fd)
{
	struct local_pending *pending = NULL;

	if (record->size <= PENDING_BYTES_MAX)
		pending = pl_zalloc(&endpoint->state->context->allocator, sizeof(*pending));
	if (!pending)
		return 0; /* other access paths remain */
	pending->mapping = local_map_sealed_file(fd, record->size, &pending->writable);
	if (!pending->mapping) {
		pl_free(&endpoint->state->context->allocator, pending);
		return 0;
	}
	pending->key = record->key;
	pending->size = (size_t)record->size;
	pending_list_add(endpoint, pending);
	return 0;
}

static struct local_pending *pending_ipc_fds_new(struct local_endpoint *endpoint, const struct local_record *record)
{
	const struct pl_allocator *allocator = &endpoint->state->context->allocator;
	struct local_pending *pending = pl_zalloc(allocator, sizeof(*pending));

	if (!pending)
		return NULL;
	pending->ipc_fds = pl_ipc_fds_new(allocator, record->fds);
	if (!pending->ipc_fds) {
		pl_free(allocator, pending);
		return NULL;
	}
	pending->key = record->key;
	pending_list_add(endpoint, pending);
	return pending;
}

int local_pending_add(struct local_endpoint *endpoint, const struct local_record *record, int *fds, unsigned count,
		      bool whole)
{
	struct local_pending *pending = local_pending_find(endpoint, record->key);

	if (!count && whole)
		return -EPROTO;
	if (!pending)
		pending = pending_ipc_fds_new(endpoint, record);
	if (!pending)
		return 0;
	if (!pending->ipc_fds || pending->ipc_fds->room != record->fds || count > record->fds - pending->ipc_fds->count)
		return -EPROTO;
	for (unsigned i = 0; i < count && pl_ipc_fds_add(pending->ipc_fds, fds[i], record->size); i++)
		fds[i] = -1;
	/* An incomplete set is useless. Its descriptors are closed first: they may have been the last ones. */
	if (!whole) {
		local_note_kept_back(endpoint, record->key);
		pl_ipc_fds_close(pending->ipc_fds);
	}
	return 0;
}

void *local_pending_take_mapping(struct local_endpoint *endpoint, uint64_t key, size_t size, bool write)
{
	struct local_pending *pending = local_pending_find(endpoint, key);
	void *mapping;

	if (!pending || !pending->mapping)
		return NULL;
	if (pending->size != size || (write && !pending->writable)) {
		local_pending_free(endpoint, pending);
		return NULL;
	}
	mapping = pending->mapping;
	pending_list_remove(endpoint, pending);
	pl_free(&endpoint->state->context->allocator, pending);
	return mapping;
}

struct pl_ipc_fds *local_pending_take(struct local_endpoint *endpoint, uint64_t key)
{
	struct local_pending *pending = local_pending_find(endpoint, key);
	struct pl_ipc_fds *ipc_fds = pending ? pending->ipc_fds : NULL;

	if (!ipc_fds)
		return NULL;
	pending_list_remove(endpoint, pending);
	pl_free(&endpoint->state->context->allocator, pending);
	if (ipc_fds->count == ipc_fds->room)
		return ipc_fds;
	pl_ipc_fds_free(&endpoint->state->context->allocator, ipc_fds);
	return NULL;
}
