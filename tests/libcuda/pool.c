/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory pools.  A pool created for export is shared by a descriptor, and an allocation in the pool by exported bytes.
 * The stand-in is as strict as the driver.  A pool is imported only from a pool's descriptor, and a pointer only into
 * its own pool.  The default pool of a device and its pointers are not exported.  A pool is exported before its
 * pointers.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcuda/standin.h"

#define MAGIC 0x706f6f6c30303031ull

struct pool {
	int device;
	bool shareable, imported, exported;
	uint64_t owner, number;
	unsigned reached; /* devices with access beside its own, a bit each */
};

static struct pool defaults[DEVICES] = { { .device = 0 }, { .device = 1 } };
static uint64_t last_number;

struct pool *standin_default_pool(int device)
{
	return &defaults[device];
}

bool standin_pool_reached(const struct pool *pool, int device)
{
	return pool->device == device || pool->reached & 1u << device;
}

/* Description in the file behind a descriptor. */
struct description {
	uint64_t magic, owner, number, device;
};

struct pointer {
	uint64_t magic, owner, fd, id, length, device, pool, rest;
};
_Static_assert(sizeof(struct pointer) == 64, "as the driver's");

/* Pool properties begin with the members of a handle's properties. */
API CUresult cuMemPoolCreate(struct pool **result, const struct properties *properties)
{
	struct pool *made;

	if (properties->type != 1 || properties->location.type != 1 || (properties->handle_types & ~SHAREABLE))
		return INVALID_VALUE;
	made = calloc(1, sizeof(*made));
	if (!made)
		return OUT_OF_MEMORY;
	pthread_mutex_lock(&standin_lock);
	*made = (struct pool){
		.device = properties->location.number,
		.shareable = properties->handle_types & SHAREABLE,
		.owner = (uint64_t)getpid(),
		.number = ++last_number,
	};
	pthread_mutex_unlock(&standin_lock);
	*result = made;
	return SUCCESS;
}

API CUresult cuMemPoolDestroy(struct pool *pool)
{
	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (pool == &defaults[0] || pool == &defaults[1])
		return INVALID_VALUE;
	free(pool);
	return SUCCESS;
}

API CUresult cuMemPoolExportToShareableHandle(int *fd, struct pool *pool, int type, uint64_t flags)
{
	struct description description = { MAGIC, pool->owner, pool->number, (uint64_t)pool->device };

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (type != SHAREABLE || !pool->shareable || pool->imported || flags)
		return INVALID_VALUE;
	*fd = memfd_create("pool", MFD_CLOEXEC);
	if (*fd < 0 || write(*fd, &description, sizeof(description)) != (ssize_t)sizeof(description))
		return OUT_OF_MEMORY;
	pthread_mutex_lock(&standin_lock);
	pool->exported = true;
	pthread_mutex_unlock(&standin_lock);
	return SUCCESS;
}

API CUresult cuMemPoolImportFromShareableHandle(struct pool **result, void *shared, int type, uint64_t flags)
{
	int fd = (int)(intptr_t)shared;
	struct description description;
	struct stat status;
	struct pool *made;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (type != SHAREABLE || flags || fstat(fd, &status) || !S_ISREG(status.st_mode) ||
	    pread(fd, &description, sizeof(description), 0) != (ssize_t)sizeof(description) ||
	    description.magic != MAGIC || description.device >= DEVICES)
		return INVALID_VALUE;
	made = calloc(1, sizeof(*made));
	if (!made)
		return OUT_OF_MEMORY;
	*made = (struct pool){
		.device = (int)description.device,
		.imported = true,
		.owner = description.owner,
		.number = description.number,
	};
	*result = made;
	return SUCCESS;
}

API CUresult cuMemPoolExportPointer(struct pointer *pointer, CUdeviceptr address)
{
	const struct allocation *of;
	CUresult result = INVALID_VALUE;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&standin_lock);
	of = standin_find(address, 1);
	if (of && of->kind == KIND_POOL && of->address == address && of->pool->exported) {
		*pointer = (struct pointer){ MAGIC,      (uint64_t)getpid(),   (uint64_t)of->fd, of->id,
					     of->length, (uint64_t)of->device, of->pool->number, 0 };
		result = SUCCESS;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

API CUresult cuMemPoolImportPointer(CUdeviceptr *address, struct pool *pool, const struct pointer *pointer)
{
	CUresult result = standin_failure("cuMemPoolImportPointer");
	struct allocation *made;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (result)
		return result;
	if (!standin_current())
		return INVALID_CONTEXT;
	/* The driver follows addresses in these bytes without a check, so the stand-in aborts on invalid bytes. */
	if (pointer->magic != MAGIC || pointer->rest)
		abort();
	if (!pool->imported || pointer->owner != pool->owner || pointer->pool != pool->number || !pointer->length)
		return INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	made = standin_open(
		pointer->owner, pointer->fd,
		(struct allocation){
			.length = pointer->length, .device = pool->device, .owner_id = pointer->id, .pool = pool });
	if (made)
		*address = made->address;
	pthread_mutex_unlock(&standin_lock);
	return made ? SUCCESS : INVALID_VALUE;
}

API CUresult cuMemPoolSetAccess(struct pool *pool, const struct access *access, size_t count)
{
	CUresult result = standin_failure("cuMemPoolSetAccess");

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	for (size_t i = 0; i < count; i++)
		if (access[i].location.type != 1 || access[i].location.number == pool->device ||
		    access[i].location.number < 0 || access[i].location.number >= DEVICES)
			return INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	for (size_t i = 0; i < count && result == SUCCESS; i++)
		pool->reached |= 1u << access[i].location.number;
	pthread_mutex_unlock(&standin_lock);
	return result;
}
