/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * IPC memory handles.  A handle holds the process id of the owner and the number of its descriptor, opened through
 * /proc.
 * The stand-in is as strict as the driver.  Only whole allocations of cuMemAlloc are shared.  The owner cannot open its
 * own handle.  Each context opens a handle once.  Another device opens a handle only with peer access enabled.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libcuda/standin.h"

struct handle {
	uint64_t magic, owner, fd, id, length, device, rest[2];
};
_Static_assert(sizeof(struct handle) == 64, "as the driver's");
#define MAGIC 0x6475636e69646e73ull
#define LAZY_ENABLE_PEER_ACCESS 1u

API CUresult cuIpcGetMemHandle(struct handle *handle, CUdeviceptr address)
{
	const struct allocation *of;
	CUresult result = standin_failure("cuIpcGetMemHandle");

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (result)
		return result;
	if (!standin_current())
		return INVALID_CONTEXT;
	pthread_mutex_lock(&standin_lock);
	of = standin_find(address, 1);
	if (of && of->kind == KIND_ALLOC && of->address == address && of->fd >= 0)
		*handle = (struct handle){ MAGIC,  (uint64_t)getpid(), (uint64_t)of->fd,
					   of->id, of->length,         (uint64_t)of->device,
					   { 0 } };
	else
		result = INVALID_VALUE;
	pthread_mutex_unlock(&standin_lock);
	return result;
}

/* Returns the opened allocation that this context already has for a handle, or NULL.  The caller holds the lock. */
static struct allocation *opened_allocation(const struct handle *handle, const struct context *context)
{
	for (struct allocation *at = standin_allocations; at; at = at->next)
		if (at->kind == KIND_OPENED && at->owner == handle->owner && at->owner_id == handle->id &&
		    at->context == context)
			return at;
	return NULL;
}

static void *map_opened(int fd, size_t length, size_t *size)
{
	off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);

	if (end < (off_t)length)
		return MAP_FAILED;
	*size = (size_t)end;
	return mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

struct allocation *standin_open(uint64_t owner, uint64_t fd, struct allocation wanted)
{
	struct allocation *made = calloc(1, sizeof(*made));
	void *bytes, *start;
	char path[64];

	if (!made)
		return NULL;
	snprintf(path, sizeof(path), "/proc/%llu/fd/%llu", (unsigned long long)owner, (unsigned long long)fd);
	*made = wanted;
	made->kind = KIND_OPENED;
	made->owner = owner;
	made->fd = open(path, O_RDWR | O_CLOEXEC);
	bytes = map_opened(made->fd, made->length, &made->reserved);
	if (made->fd >= 0)
		close(made->fd);
	start = bytes == MAP_FAILED ? NULL : standin_reserve(made->reserved);
	if (!start) {
		if (bytes != MAP_FAILED)
			munmap(bytes, made->reserved);
		free(made);
		return NULL;
	}
	made->fd = -1;
	made->bytes = bytes;
	made->address = (uintptr_t)start;
	standin_add(made);
	return made;
}

void standin_close(struct allocation *opened)
{
	standin_remove(opened->address);
	munmap(opened->bytes, opened->reserved);
	munmap((void *)(uintptr_t)opened->address, opened->reserved);
	free(opened);
}

API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, struct handle handle, unsigned flags)
{
	struct context *context = standin_current();
	CUresult result = standin_failure("cuIpcOpenMemHandle");
	struct allocation *found;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (result)
		return result;
	if (!context || handle.owner == (uint64_t)getpid())
		return INVALID_CONTEXT;
	if (handle.magic != MAGIC || handle.device >= DEVICES || !handle.length)
		return INVALID_VALUE;
	if ((int)handle.device != context->device && !(flags & LAZY_ENABLE_PEER_ACCESS))
		return PEER_ACCESS_UNSUPPORTED;
	pthread_mutex_lock(&standin_lock);
	found = opened_allocation(&handle, context);
	if (!found)
		found = standin_open(handle.owner, handle.fd,
				     (struct allocation){ .length = handle.length,
							  .device = (int)handle.device,
							  .context = context,
							  .owner_id = handle.id });
	if (found) {
		found->openings++;
		*address = found->address;
	}
	pthread_mutex_unlock(&standin_lock);
	return found ? SUCCESS : INVALID_VALUE;
}

API CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
	struct allocation *found;
	CUresult result = INVALID_VALUE;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (!standin_current())
		return INVALID_CONTEXT;
	pthread_mutex_lock(&standin_lock);
	found = standin_find(address, 1);
	if (found && found->kind == KIND_OPENED && !found->pool && found->address == address) {
		result = SUCCESS;
		if (--found->openings == 0)
			standin_close(found);
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

size_t standin_opened(void)
{
	size_t count = 0;

	pthread_mutex_lock(&standin_lock);
	for (const struct allocation *at = standin_allocations; at; at = at->next)
		count += at->kind == KIND_OPENED || (at->kind == KIND_MAPPED && standin_imported(at->handle));
	pthread_mutex_unlock(&standin_lock);
	return count;
}
