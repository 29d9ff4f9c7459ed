/* SPDX-License-Identifier: BSD-2-Clause */
/* Registered host memory, which copies and kernels reach. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libcuda/standin.h"

#define PAGE ((uintptr_t)4096)
/* Flag of cuMemHostRegister(). */
#define READ_ONLY 8u

struct registration {
	struct registration *next;
	uint8_t *address;
	size_t length;
	uint64_t id;
	bool read_only;
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

/* Bytes at an address of GPU memory, or of registered host memory, and how many there are in a row. NULL: a kernel must not use it. */
static uint8_t *bytes_at(CUdeviceptr address, bool write, size_t *length)
{
	struct allocation *allocation = standin_find(address, 1);
	const struct registration *found = registration_at((void *)(uintptr_t)address);
	size_t skip;

	if (allocation) {
		skip = address - allocation->address;
		*length = allocation->length - skip;
		return allocation->bytes + skip;
	}
	if (!found || (write && found->read_only))
		return NULL;
	skip = address - (uintptr_t)found->address;
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

API CUresult cuMemHostRegister_v2(void *address, size_t length, unsigned flags)
{
	CUresult result = standin_failure("cuMemHostRegister");
	struct registration *made;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (result)
		return result;
	if (!standin_current())
		return INVALID_CONTEXT;
	if (!(flags & READ_ONLY) && !is_writable(address))
		return INVALID_VALUE;
	made = calloc(1, sizeof(*made));
	if (!made)
		return OUT_OF_MEMORY;
	*made = (struct registration){ .address = address, .length = length, .read_only = flags & READ_ONLY };
	pthread_mutex_lock(&standin_lock);
	made->id = standin_next_id();
	if (standin_is_pinned(address, 1)) {
		result = ALREADY_REGISTERED;
		free(made);
	} else {
		made->next = registrations;
		registrations = made;
		pinned += length;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *result, void *address, unsigned flags)
{
	bool known;

	if (!standin_current())
		return INVALID_CONTEXT;
	pthread_mutex_lock(&standin_lock);
	known = standin_is_pinned(address, 1);
	pthread_mutex_unlock(&standin_lock);
	*result = (CUdeviceptr)(uintptr_t)address;
	return known && !flags ? SUCCESS : INVALID_VALUE;
}

API CUresult cuMemHostUnregister(void *address)
{
	struct registration **at = &registrations, *removed;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (!standin_current())
		return INVALID_CONTEXT;
	pthread_mutex_lock(&standin_lock);
	while (*at && (*at)->address != address)
		at = &(*at)->next;
	removed = *at;
	if (removed) {
		*at = removed->next;
		pinned -= removed->length;
	}
	pthread_mutex_unlock(&standin_lock);
	free(removed);
	return removed ? SUCCESS : NOT_REGISTERED;
}
