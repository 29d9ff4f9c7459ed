/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locked host memory, registered or allocated, which copies and kernels reach. As documented, kernels have an address of their own for
 * write-combined memory, and fail if they use the processor's.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libcuda/standin.h"

#define PAGE ((uintptr_t)4096)
/* Flag of cuMemHostRegister(), and of cuMemHostAlloc(). */
#define READ_ONLY 8u
#define WRITE_COMBINED 4u
/* Access flags of pointers. */
#define ACCESS_READ 1u
#define ACCESS_READ_WRITE 3u

struct registration {
	struct registration *next;
	uint8_t *address;
	size_t length;
	uint64_t id;
	CUdeviceptr there; /* address for kernels */
	bool read_only, allocated;
};
static struct registration *registrations;
static size_t pinned;

static struct registration *registration_at(const void *address)
{
	for (struct registration *at = registrations; at; at = at->next)
		if ((const uint8_t *)address >= at->address &&
		    (size_t)((const uint8_t *)address - at->address) < at->length)
			return at;
	return NULL;
}

bool standin_is_pinned(const void *address, size_t length)
{
	const struct registration *found = registration_at(address);

	return found && (size_t)((const uint8_t *)address - found->address) + length <= found->length;
}

uint64_t standin_registration(CUdeviceptr address)
{
	const struct registration *found = registration_at((void *)(uintptr_t)address);

	return found ? found->id : 0;
}

CUdeviceptr standin_host_pointer(CUdeviceptr address)
{
	const struct registration *found = registration_at((void *)(uintptr_t)address);

	return found ? found->there + (address - (uintptr_t)found->address) : 0;
}

unsigned standin_host_access(CUdeviceptr address)
{
	const struct registration *found = registration_at((void *)(uintptr_t)address);

	return found ? found->read_only ? ACCESS_READ : ACCESS_READ_WRITE : 0;
}

/* The registration that has an address for kernels. */
static const struct registration *registration_there(CUdeviceptr address)
{
	for (const struct registration *at = registrations; at; at = at->next)
		if (address >= at->there && address - at->there < at->length)
			return at;
	return NULL;
}

/* Bytes at an address of GPU memory, or of registered host memory, and how many there are in a row. NULL: a kernel must not use it. */
static uint8_t *bytes_at(CUdeviceptr address, bool write, size_t *length)
{
	struct allocation *allocation = standin_find(address, 1);
	const struct registration *found = registration_there(address);
	size_t skip;

	if (allocation) {
		skip = address - allocation->address;
		*length = allocation->length - skip;
		return allocation->bytes + skip;
	}
	if (!found || (write && found->read_only))
		return NULL;
	skip = address - found->there;
	*length = found->length - skip;
	return found->address + skip;
}

bool standin_move(CUdeviceptr to, CUdeviceptr from, size_t length)
{
	while (length) {
		size_t room, there, piece;
		uint8_t *target = bytes_at(to, true, &room), *source = bytes_at(from, false, &there);

		if (!target || !source)
			return false;
		piece = room < there ? room : there;
		piece = piece < length ? piece : length;
		memcpy(target, source, piece);
		to += piece;
		from += piece;
		length -= piece;
	}
	return true;
}

/* The driver finds out for all pages. False only if the kernel says so: old ones do not know these advices. */
static bool is_writable(const void *address)
{
	void *page = (void *)((uintptr_t)address & ~(PAGE - 1));

	return madvise(page, PAGE, MADV_POPULATE_READ) < 0 || madvise(page, PAGE, MADV_POPULATE_WRITE) == 0;
}

size_t standin_pinned(void)
{
	size_t bytes;

	pthread_mutex_lock(&standin_lock);
	bytes = pinned;
	pthread_mutex_unlock(&standin_lock);
	return bytes;
}

static CUresult registration_add(struct registration wanted)
{
	struct registration *made = malloc(sizeof(*made));
	CUresult result = SUCCESS;

	if (!made)
		return OUT_OF_MEMORY;
	*made = wanted;
	pthread_mutex_lock(&standin_lock);
	made->id = standin_next_id();
	if (standin_is_pinned(made->address, 1)) {
		result = ALREADY_REGISTERED;
		free(made);
	} else {
		made->next = registrations;
		registrations = made;
		pinned += made->length;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

API CUresult cuMemHostRegister_v2(void *address, size_t length, unsigned flags)
{
	CUresult result = standin_failure("cuMemHostRegister");

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (result)
		return result;
	if (!standin_current())
		return INVALID_CONTEXT;
	if (!(flags & READ_ONLY) && !is_writable(address))
		return INVALID_VALUE;
	return registration_add((struct registration){
		.address = address, .length = length, .there = (uintptr_t)address, .read_only = flags & READ_ONLY });
}

API CUresult cuMemHostAlloc(void **address, size_t length, unsigned flags)
{
	struct registration wanted = { .length = (length + PAGE - 1) & ~(PAGE - 1), .allocated = true };
	CUresult result;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (!standin_current())
		return INVALID_CONTEXT;
	wanted.address = mmap(NULL, wanted.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (wanted.address == MAP_FAILED)
		return OUT_OF_MEMORY;
	wanted.there = (uintptr_t)(flags & WRITE_COMBINED ? standin_reserve(wanted.length) : wanted.address);
	result = registration_add(wanted);
	*address = wanted.address;
	return result;
}

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *result, void *address, unsigned flags)
{
	if (!standin_current())
		return INVALID_CONTEXT;
	pthread_mutex_lock(&standin_lock);
	*result = standin_host_pointer((uintptr_t)address);
	pthread_mutex_unlock(&standin_lock);
	return *result && !flags ? SUCCESS : INVALID_VALUE;
}

/* Returns NULL if no registration of that kind begins at the address. */
static struct registration *registration_remove(const void *address, bool allocated)
{
	struct registration **at = &registrations, *removed;

	pthread_mutex_lock(&standin_lock);
	while (*at && ((*at)->address != address || (*at)->allocated != allocated))
		at = &(*at)->next;
	removed = *at;
	if (removed) {
		*at = removed->next;
		pinned -= removed->length;
	}
	pthread_mutex_unlock(&standin_lock);
	return removed;
}

API CUresult cuMemHostUnregister(void *address)
{
	struct registration *removed;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (!standin_current())
		return INVALID_CONTEXT;
	removed = registration_remove(address, false);
	free(removed);
	return removed ? SUCCESS : NOT_REGISTERED;
}

API CUresult cuMemFreeHost(void *address)
{
	struct registration *removed;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	removed = registration_remove(address, true);
	if (!removed)
		return INVALID_VALUE;
	if (removed->there != (uintptr_t)address)
		munmap((void *)(uintptr_t)removed->there, removed->length);
	munmap(address, removed->length);
	free(removed);
	return SUCCESS;
}
