/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory handles and their mappings, of this process and of others.
 * The stand-in is as strict as the driver.  Mappings lie in reserved addresses and do not overlap.  A mapping covers
 * whole handles and is unmapped as a whole.  No device reaches a mapping before cuMemSetAccess().  Only handles created
 * for export can be exported, and only exported descriptors can be imported.
 * Each handle's memory is a file.  A trailer after the memory describes the handle.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcuda/standin.h"

#define GRANULARITY ((size_t)65536)
#define MAGIC 0x68616e646c653031ull
#define READ_AND_WRITE 3

/* Trailer at the end of the file. */
struct trailer {
	uint64_t magic, length, owner;
	struct properties properties;
};

struct handle {
	size_t length;
	struct properties properties;
	int fd; /* -1: the backing has no files */
	bool imported;
	unsigned references; /* one of the program, and one of each mapping */
};

struct reservation {
	struct reservation *next;
	CUdeviceptr address;
	size_t size;
};
static struct reservation *reservations;
static size_t handles; /* number of references that programs hold */

API CUresult cuMemGetAllocationGranularity(size_t *size, const void *properties, int option)
{
	(void)properties;
	(void)option;
	*size = GRANULARITY;
	return SUCCESS;
}

/* -- addresses ------------------------------------------------------------------------------------------ */

API CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wanted,
				 uint64_t flags)
{
	struct reservation *made;
	void *start;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (!size || size % GRANULARITY || flags || (alignment & (alignment - 1)))
		return INVALID_VALUE;
	(void)wanted;
	made = calloc(1, sizeof(*made));
	start = made ? standin_reserve(size) : NULL;
	if (!start) {
		free(made);
		return OUT_OF_MEMORY;
	}
	pthread_mutex_lock(&standin_lock);
	*made = (struct reservation){ reservations, (uintptr_t)start, size };
	reservations = made;
	pthread_mutex_unlock(&standin_lock);
	*address = (uintptr_t)start;
	return SUCCESS;
}

/* Returns the first mapping that lies in a range, at least in part. */
static struct allocation *mapping_in_range(CUdeviceptr address, size_t size)
{
	for (struct allocation *at = standin_allocations; at; at = at->next)
		if (at->kind == KIND_MAPPED && at->address < address + size && address < at->address + at->length)
			return at;
	return NULL;
}

API CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
	struct reservation **at = &reservations, *removed;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&standin_lock);
	while (*at && ((*at)->address != address || (*at)->size != size))
		at = &(*at)->next;
	removed = mapping_in_range(address, size) ? NULL : *at;
	if (removed)
		*at = removed->next;
	pthread_mutex_unlock(&standin_lock);
	if (!removed)
		return INVALID_VALUE;
	munmap((void *)(uintptr_t)address, size);
	free(removed);
	return SUCCESS;
}

static bool is_reserved(CUdeviceptr address, size_t size)
{
	for (const struct reservation *at = reservations; at; at = at->next)
		if (address >= at->address && address - at->address <= at->size &&
		    size <= at->size - (address - at->address))
			return true;
	return false;
}

/* -- handles -------------------------------------------------------------------------------------------- */

bool standin_imported(const struct handle *handle)
{
	return handle->imported;
}

size_t standin_handles(void)
{
	size_t count;

	pthread_mutex_lock(&standin_lock);
	count = handles;
	pthread_mutex_unlock(&standin_lock);
	return count;
}

size_t standin_mapped(void)
{
	size_t count = 0;

	pthread_mutex_lock(&standin_lock);
	for (const struct allocation *at = standin_allocations; at; at = at->next)
		count += at->kind == KIND_MAPPED;
	pthread_mutex_unlock(&standin_lock);
	return count;
}

/* Times that a GPU got access to a mapping to which another one had it. */
static unsigned joined;

unsigned standin_joined(void)
{
	unsigned count;

	pthread_mutex_lock(&standin_lock);
	count = joined;
	pthread_mutex_unlock(&standin_lock);
	return count;
}

/* Drops a reference.  The caller holds the lock. */
static void handle_drop(struct handle *handle)
{
	if (--handle->references)
		return;
	if (handle->fd >= 0)
		close(handle->fd);
	free(handle);
}

static CUresult handle_make_file(struct handle *handle)
{
	struct trailer trailer = { MAGIC, handle->length, (uint64_t)getpid(), handle->properties };
	void *bytes;

	handle->fd = backing_file(handle->length + sizeof(trailer));
	if (handle->fd < 0)
		return handle->properties.handle_types ? NOT_SUPPORTED : SUCCESS;
	bytes = mmap(NULL, handle->length, PROT_READ | PROT_WRITE, MAP_SHARED, handle->fd, 0);
	if (bytes == MAP_FAILED ||
	    pwrite(handle->fd, &trailer, sizeof(trailer), (off_t)handle->length) != (ssize_t)sizeof(trailer))
		return OUT_OF_MEMORY;
	memset(bytes, 0xa5, handle->length);
	munmap(bytes, handle->length);
	return SUCCESS;
}

API CUresult cuMemCreate(struct handle **result, size_t size, const struct properties *properties, uint64_t flags)
{
	struct handle *made;
	CUresult rc = standin_failure("cuMemCreate");

	if (rc)
		return rc;
	if (!standin_initialized)
		return NOT_INITIALIZED;
	if (!size || size % GRANULARITY || flags || properties->type != 1 || properties->location.type != 1)
		return INVALID_VALUE;
	if (properties->location.number < 0 || properties->location.number >= DEVICES)
		return INVALID_DEVICE;
	made = calloc(1, sizeof(*made));
	if (!made)
		return OUT_OF_MEMORY;
	*made = (struct handle){ .length = size, .properties = *properties, .references = 1 };
	rc = handle_make_file(made);
	pthread_mutex_lock(&standin_lock);
	handles++;
	if (rc) {
		handles--;
		handle_drop(made);
	}
	pthread_mutex_unlock(&standin_lock);
	*result = made;
	return rc;
}

API CUresult cuMemRelease(struct handle *handle)
{
	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&standin_lock);
	handles--;
	handle_drop(handle);
	pthread_mutex_unlock(&standin_lock);
	return SUCCESS;
}

API CUresult cuMemRetainAllocationHandle(struct handle **handle, void *address)
{
	const struct allocation *of;
	CUresult result = standin_failure("cuMemRetainAllocationHandle");

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (result)
		return result;
	pthread_mutex_lock(&standin_lock);
	of = mapping_in_range((uintptr_t)address, 1);
	if (of) {
		*handle = of->handle;
		of->handle->references++;
		handles++;
	}
	pthread_mutex_unlock(&standin_lock);
	return of ? SUCCESS : INVALID_VALUE;
}

API CUresult cuMemGetAllocationPropertiesFromHandle(struct properties *properties, const struct handle *handle)
{
	*properties = handle->properties;
	return SUCCESS;
}

/* -- between processes ---------------------------------------------------------------------------------- */

API CUresult cuMemExportToShareableHandle(int *fd, const struct handle *handle, int type, uint64_t flags)
{
	CUresult result = standin_failure("cuMemExportToShareableHandle");

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (result)
		return result;
	if (type != SHAREABLE || !(handle->properties.handle_types & SHAREABLE) || flags)
		return INVALID_VALUE;
	*fd = dup(handle->fd);
	return *fd < 0 ? NOT_SUPPORTED : SUCCESS;
}

static bool read_trailer(int fd, struct trailer *trailer)
{
	struct stat status;

	return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > (off_t)sizeof(*trailer) &&
	       pread(fd, trailer, sizeof(*trailer), status.st_size - (off_t)sizeof(*trailer)) ==
		       (ssize_t)sizeof(*trailer) &&
	       trailer->magic == MAGIC && trailer->length + sizeof(*trailer) == (uint64_t)status.st_size;
}

API CUresult cuMemImportFromShareableHandle(struct handle **result, void *shared, int type)
{
	int fd = (int)(intptr_t)shared;
	CUresult rc = standin_failure("cuMemImportFromShareableHandle");
	struct trailer trailer;
	struct handle *made;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (rc)
		return rc;
	if (!standin_initialized)
		return NOT_INITIALIZED;
	if (type != SHAREABLE || !read_trailer(fd, &trailer))
		return INVALID_VALUE;
	made = calloc(1, sizeof(*made));
	if (!made)
		return OUT_OF_MEMORY;
	*made = (struct handle){
		.length = trailer.length,
		.properties = trailer.properties,
		.fd = dup(fd),
		.imported = trailer.owner != (uint64_t)getpid(),
		.references = 1,
	};
	pthread_mutex_lock(&standin_lock);
	handles++;
	pthread_mutex_unlock(&standin_lock);
	*result = made;
	return SUCCESS;
}

/* -- mappings ------------------------------------------------------------------------------------------- */

API CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, struct handle *handle, uint64_t flags)
{
	CUresult result = standin_failure("cuMemMap");
	struct allocation *made = NULL;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (result)
		return result;
	if (offset || flags || size != handle->length)
		return INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	if (is_reserved(address, size) && !mapping_in_range(address, size)) {
		made = standin_make((struct allocation){ .length = size,
							 .fd = handle->fd < 0 ? -1 : dup(handle->fd),
							 .kind = KIND_MAPPED,
							 .device = handle->properties.location.number,
							 .handle = handle },
				    address);
		result = made ? SUCCESS : OUT_OF_MEMORY;
	} else {
		result = INVALID_VALUE;
	}
	if (made) {
		handle->references++;
		standin_add(made);
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

/* Returns true if whole mappings fill the range. */
static bool is_filled(CUdeviceptr address, size_t size)
{
	const struct allocation *at;

	for (; size; address += at->length, size -= at->length) {
		at = mapping_in_range(address, 1);
		if (!at || at->address != address || at->length > size)
			return false;
	}
	return true;
}

API CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
	CUresult result = INVALID_VALUE;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&standin_lock);
	if (size && is_filled(address, size)) {
		for (size_t done = 0, length; done < size; done += length) {
			struct allocation *removed = standin_remove(address + done);

			length = removed->length;
			handle_drop(removed->handle);
			backing_undo(removed, true);
			free(removed);
		}
		result = SUCCESS;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

API CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const struct access *access, size_t count)
{
	CUresult result = standin_failure("cuMemSetAccess");

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (result)
		return result;
	pthread_mutex_lock(&standin_lock);
	result = size && is_filled(address, size) ? SUCCESS : INVALID_VALUE;
	for (size_t i = 0; i < count && result == SUCCESS; i++) {
		if (access[i].location.type != 1 || access[i].location.number < 0 ||
		    access[i].location.number >= DEVICES)
			result = INVALID_DEVICE;
		else if (access[i].flags != READ_AND_WRITE)
			result = INVALID_VALUE;
		for (struct allocation *at = standin_allocations; at && result == SUCCESS; at = at->next)
			if (at->kind == KIND_MAPPED && at->address >= address && at->address < address + size) {
				joined += at->reached && at->reached != 1u << access[i].location.number;
				at->reached |= 1u << access[i].location.number;
			}
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}
