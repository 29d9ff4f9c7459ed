/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory: allocations, attributes of pointers. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libcuda/standin.h"

#define PAGE ((size_t)4096)
#define DEVICE_TYPE 2

/*
 * List of all allocations.  Each lies in its own pages, while the driver places small allocations next to each other.
 */
struct allocation *standin_allocations;
static uint64_t last_id;

uint64_t standin_next_id(void)
{
	return ++last_id;
}

/* Returns the allocation at an address.  Mapped memory exists only once a device has access to it. */
static struct allocation *allocation_at(CUdeviceptr address)
{
	for (struct allocation *at = standin_allocations; at; at = at->next)
		if (address >= at->address && address - at->address < at->length)
			return at->kind == KIND_MAPPED && !at->reached ? NULL : at;
	return NULL;
}

struct allocation *standin_find(CUdeviceptr address, size_t length)
{
	struct allocation *found = allocation_at(address);

	return found && length <= found->length - (address - found->address) ? found : NULL;
}

bool standin_reaches(const struct context *context, CUdeviceptr address)
{
	const struct allocation *found = allocation_at(address);

	return found && (found->kind != KIND_MAPPED || (found->reached & (1u << context->device)));
}

bool standin_has_access(const struct context *context, CUdeviceptr address)
{
	const struct allocation *found = allocation_at(address);

	if (!found || found->device == context->device || found->kind == KIND_OPENED)
		return found;
	if (found->kind == KIND_MAPPED)
		return found->reached & 1u << context->device;
	return found->pool ? standin_pool_reached(found->pool, context->device)
			   : context->reaches & 1u << found->device;
}

bool standin_transfer(CUdeviceptr address, void *host, size_t length, bool into)
{
	while (length) {
		struct allocation *at = allocation_at(address);
		size_t skip, piece;

		if (!at)
			return false;
		skip = address - at->address;
		piece = at->length - skip < length ? at->length - skip : length;
		if (into)
			memcpy(at->bytes + skip, host, piece);
		else
			memcpy(host, at->bytes + skip, piece);
		address += piece;
		host = (uint8_t *)host + piece;
		length -= piece;
	}
	return true;
}

bool standin_across(CUdeviceptr to, CUdeviceptr from, size_t length)
{
	while (length) {
		const struct allocation *source = allocation_at(from);
		size_t piece;

		if (!source)
			return false;
		piece = source->length - (from - source->address) < length ? source->length - (from - source->address)
									   : length;
		if (!standin_transfer(to, source->bytes + (from - source->address), piece, true))
			return false;
		to += piece;
		from += piece;
		length -= piece;
	}
	return true;
}

void standin_add(struct allocation *made)
{
	made->id = ++last_id;
	made->next = standin_allocations;
	standin_allocations = made;
}

struct allocation *standin_remove(CUdeviceptr address)
{
	struct allocation **at = &standin_allocations, *removed;

	while (*at && (*at)->address != address)
		at = &(*at)->next;
	removed = *at;
	if (removed)
		*at = removed->next;
	return removed;
}

struct allocation *standin_make(struct allocation wanted, CUdeviceptr at)
{
	struct allocation *made = calloc(1, sizeof(*made));

	if (!made)
		return NULL;
	*made = wanted;
	made->reserved = (made->length + PAGE - 1) / PAGE * PAGE;
	if (!backing_make(made, at)) {
		free(made);
		return NULL;
	}
	/* Memory in the file of another process keeps its bytes. */
	if (wanted.fd < 0)
		memset(made->bytes, 0xa5, made->length);
	return made;
}

static CUresult allocate_kind(size_t length, enum kind kind, struct context *context, int device, struct pool *pool,
			      CUdeviceptr *address)
{
	struct allocation *made = standin_make(
		(struct allocation){
			.length = length, .fd = -1, .kind = kind, .device = device, .context = context, .pool = pool },
		0);

	if (!made)
		return OUT_OF_MEMORY;
	pthread_mutex_lock(&standin_lock);
	standin_add(made);
	*address = made->address;
	pthread_mutex_unlock(&standin_lock);
	return SUCCESS;
}

/* Removes an allocation from the list and frees it. */
static CUresult allocation_free(CUdeviceptr address)
{
	struct allocation *removed = NULL, *of;
	bool imported;

	pthread_mutex_lock(&standin_lock);
	of = allocation_at(address);
	imported = of && of->kind == KIND_OPENED && of->pool && of->address == address;
	if (imported)
		standin_close(of);
	else if (of && of->kind != KIND_OPENED && of->kind != KIND_MAPPED)
		removed = standin_remove(address);
	pthread_mutex_unlock(&standin_lock);
	if (imported)
		return SUCCESS;
	if (!removed)
		return INVALID_VALUE;
	backing_undo(removed, false);
	free(removed);
	return SUCCESS;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t length)
{
	CUresult result = standin_failure("cuMemAlloc");
	struct context *context = standin_current();

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	if (result)
		return result;
	if (!context || !length)
		return context ? INVALID_VALUE : INVALID_CONTEXT;
	return allocate_kind(length, KIND_ALLOC, context, context->device, NULL, address);
}

/* Like the driver, waits for all streams first. */
API CUresult cuMemFree_v2(CUdeviceptr address)
{
	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	standin_finish_streams();
	return allocation_free(address);
}

static CUresult allocate_in_pool(struct pool *pool, size_t length, CUdeviceptr *address)
{
	struct context *context = standin_current();

	return context ? allocate_kind(length, KIND_POOL, NULL, context->device, pool, address) : INVALID_CONTEXT;
}

/* Allocates from the device's default pool, which cannot be shared. */
API CUresult cuMemAllocAsync(CUdeviceptr *address, size_t length, void *stream)
{
	const struct context *context = standin_current();

	(void)stream;
	return context ? allocate_in_pool(standin_default_pool(context->device), length, address) : INVALID_CONTEXT;
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t length, struct pool *pool, void *stream)
{
	(void)stream;
	return allocate_in_pool(pool, length, address);
}

API CUresult cuMemFreeAsync(CUdeviceptr address, void *stream)
{
	(void)stream;
	return allocation_free(address);
}

API CUresult cuMemAllocManaged(CUdeviceptr *address, size_t length, unsigned flags)
{
	struct context *context = standin_current();

	(void)flags;
	return context ? allocate_kind(length, KIND_MANAGED, context, context->device, NULL, address) : INVALID_CONTEXT;
}

void *standin_reserve(size_t size)
{
	uint8_t *room = mmap(NULL, size + DEVICE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint8_t *aligned = room + (DEVICE_PAGE - (uintptr_t)room % DEVICE_PAGE) % DEVICE_PAGE;

	if (room == MAP_FAILED)
		return NULL;
	if (aligned > room)
		munmap(room, (size_t)(aligned - room));
	munmap(aligned + size, (size_t)(room + DEVICE_PAGE - aligned));
	return aligned;
}

/* -- attributes of pointers ------------------------------------------------------------------------- */

/* Attributes of memory for kernels of the current context. */
static CUresult tell_reach(const struct allocation *of, CUdeviceptr address, int attribute, void *value)
{
	if (!standin_current())
		return INVALID_CONTEXT;
	if (attribute == 3)
		*(CUdeviceptr *)value = of ? address : standin_host_pointer(address);
	else
		*(unsigned *)value = of ? 3 : standin_host_access(address);
	return SUCCESS;
}

static CUresult tell_attribute(const struct allocation *of, CUdeviceptr address, int attribute, void *value)
{
	uint64_t host = standin_registration(address);

	switch (attribute) {
	case 3:  /* address for kernels */
	case 16: /* access flags */
		return tell_reach(of, address, attribute, value);
	case 1: /* context */
		memcpy(value, &(struct context *){ of ? of->context : NULL }, sizeof(void *));
		return SUCCESS;
	case 2: /* type */
		*(unsigned *)value = of ? DEVICE_TYPE : host ? 1 : 0;
		return SUCCESS;
	case 6: /* SYNC_MEMOPS */
		*(unsigned *)value = of && of->ordered;
		return SUCCESS;
	case 7: /* number of the allocation */
		*(uint64_t *)value = of ? of->id : host;
		return SUCCESS;
	case 8: /* managed */
		*(unsigned *)value = of && of->kind == KIND_MANAGED;
		return SUCCESS;
	case 9: /* device */
		*(int *)value = of ? of->device : 0;
		return SUCCESS;
	case 17: /* pool */
		memcpy(value, &(struct pool *){ of ? of->pool : NULL }, sizeof(void *));
		return SUCCESS;
	default:
		return INVALID_VALUE;
	}
}

API CUresult cuPointerGetAttributes(unsigned count, int *names, void **values, CUdeviceptr address)
{
	CUresult result = SUCCESS;

	if (!standin_initialized)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&standin_lock);
	for (unsigned i = 0; i < count && result == SUCCESS; i++)
		result = tell_attribute(allocation_at(address), address, names[i], values[i]);
	pthread_mutex_unlock(&standin_lock);
	return result;
}

API CUresult cuPointerGetAttribute(void *value, int name, CUdeviceptr address)
{
	CUresult result = INVALID_VALUE;
	const struct allocation *of;

	if (!standin_initialized)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&standin_lock);
	of = allocation_at(address);
	if (of || standin_registration(address))
		result = tell_attribute(of, address, name, value);
	pthread_mutex_unlock(&standin_lock);
	return result;
}

API CUresult cuPointerSetAttribute(const void *value, int name, CUdeviceptr address)
{
	CUresult result = INVALID_VALUE;
	struct allocation *of;

	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&standin_lock);
	of = allocation_at(address);
	if (of && name == 6)
		result = of->kind == KIND_MAPPED ? NOT_SUPPORTED : SUCCESS;
	if (result == SUCCESS)
		of->ordered = *(const unsigned *)value;
	pthread_mutex_unlock(&standin_lock);
	return result;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
	const struct allocation *of;

	if (!standin_current())
		return INVALID_CONTEXT;
	pthread_mutex_lock(&standin_lock);
	of = allocation_at(address);
	if (of) {
		*base = of->address;
		*size = of->length;
	}
	pthread_mutex_unlock(&standin_lock);
	return of ? SUCCESS : INVALID_VALUE;
}

API CUresult cuMemGetHandleForAddressRange(void *result, CUdeviceptr address, size_t length, int type,
					   unsigned long long flags)
{
	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	/* Beside a Grace processor the driver has PCIE mappings, which ordinary registrations cannot access. */
	const char *machine = getenv("STANDIN_GPU");
	const struct allocation *of;
	int fd = -1;

	if (flags && (!machine || strcmp(machine, "grace")))
		return NOT_SUPPORTED;
	pthread_mutex_lock(&standin_lock);
	of = allocation_at(address);
	if (type == 1 && of && of->kind != KIND_MANAGED && address % PAGE == 0 && length % PAGE == 0 && length &&
	    length <= of->reserved - (address - of->address))
		fd = backing_export(of, address, length);
	pthread_mutex_unlock(&standin_lock);
	if (fd < 0)
		return INVALID_VALUE;
	/* Marks the mapping for the stand-in card. */
	if (flags)
		fcntl(fd, F_SETFL, O_APPEND);
	memcpy(result, &fd, sizeof(fd));
	return SUCCESS;
}

static atomic_uint flushes;

/* The bytes that the stand-in card holds back, if the process has one, arrive. */
static void flush_card(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *found = library ? dlsym(library, "standin_card_flush") : NULL;
	void (*flush)(void);

	memcpy(&flush, &found, sizeof(flush));
	if (found)
		flush();
	if (library)
		dlclose(library);
}

API CUresult cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	if (standin_spoils())
		return CAPTURE_UNSUPPORTED;
	(void)target;
	(void)scope;
	if (!standin_current())
		return INVALID_CONTEXT;
	atomic_fetch_add(&flushes, 1);
	flush_card();
	return SUCCESS;
}

unsigned standin_flushes(void)
{
	return atomic_load(&flushes);
}
