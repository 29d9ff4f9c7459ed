/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"

#define SEGMENT ((size_t)2 << 20) /* of mapped memory */

const char *gpu_kind;

static struct cuda_driver driver;
static CUcontext context;
static CUstream stream;

/* What only tests use. */
static struct {
	CUresult (*allocate_async)(CUdeviceptr *, size_t, CUstream);
	CUresult (*free_async)(CUdeviceptr, CUstream);
	CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, uint64_t);
	CUresult (*unreserve)(CUdeviceptr, size_t);
	CUresult (*create)(void **, size_t, const void *, uint64_t);
	CUresult (*map)(CUdeviceptr, size_t, size_t, void *, uint64_t);
	CUresult (*unmap)(CUdeviceptr, size_t);
	CUresult (*release)(void *);
	CUresult (*set_access)(CUdeviceptr, size_t, const void *, size_t);
} more;

struct mirror {
	struct mirror *next;
	const uint8_t *host;
	size_t length;
	uint8_t *memory;
};
static struct mirror *mirrors;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool find(void *library, const char *name, void *function)
{
	void *found = dlsym(library, name);

	memcpy(function, &found, sizeof(found));
	return found;
}

static bool find_more(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	return library && find(library, "cuMemAllocAsync", &more.allocate_async) &&
	       find(library, "cuMemFreeAsync", &more.free_async) &&
	       find(library, "cuMemAddressReserve", &more.reserve) &&
	       find(library, "cuMemAddressFree", &more.unreserve) && find(library, "cuMemCreate", &more.create) &&
	       find(library, "cuMemMap", &more.map) && find(library, "cuMemUnmap", &more.unmap) &&
	       find(library, "cuMemRelease", &more.release) && find(library, "cuMemSetAccess", &more.set_access);
}

bool gpu_open(const char *kind)
{
	CUdevice device;

	if (cuda_driver_open("libcuda.so.1", RTLD_NOW, &driver, NULL) < 0 || !find_more() || driver.cuInit(0) ||
	    driver.cuDeviceGet(&device, 0) || driver.cuDevicePrimaryCtxRetain(&context, device) ||
	    driver.cuCtxPushCurrent(context) || driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
		return false;
	driver.cuCtxPopCurrent(&context);
	gpu_kind = kind;
	return true;
}

static void enter(void)
{
	check(driver.cuCtxPushCurrent(context) == CUDA_SUCCESS);
}

static void leave(void)
{
	CUcontext popped;

	check(driver.cuCtxPopCurrent(&popped) == CUDA_SUCCESS && popped == context);
}

/* -- memory mapped from several handles, side by side -------------------------------------------------- */

struct location {
	int type, number;
};
struct properties {
	int type, handle_types;
	struct location location;
	void *windows;
	struct {
		unsigned char compression, rdma;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};
struct access {
	struct location location;
	int flags;
};

static size_t mapped_size(size_t length)
{
	return (length + SEGMENT - 1) / SEGMENT * SEGMENT;
}

static CUresult map_segments(CUdeviceptr at, size_t size)
{
	struct properties properties = { .type = 1, .location = { 1, 0 }, .flags = { .rdma = 1 } };
	CUresult result = CUDA_SUCCESS;

	for (size_t done = 0; done < size && result == CUDA_SUCCESS; done += SEGMENT) {
		void *handle;

		result = more.create(&handle, SEGMENT, &properties, 0);
		if (result == CUDA_SUCCESS)
			result = more.map(at + done, SEGMENT, 0, handle, 0);
		if (result == CUDA_SUCCESS)
			result = more.release(handle);
	}
	return result;
}

static CUresult allocate_mapped(CUdeviceptr *address, size_t length)
{
	struct access access = { .location = { 1, 0 }, .flags = 3 };
	size_t size = mapped_size(length);
	CUresult result = more.reserve(address, size, 0, 0, 0);

	if (result == CUDA_SUCCESS)
		result = map_segments(*address, size);
	return result == CUDA_SUCCESS ? more.set_access(*address, size, &access, 1) : result;
}

/* How long the mappings are must be remembered until they are undone. */
struct mapped {
	struct mapped *next;
	CUdeviceptr address;
	size_t size;
};
static struct mapped *all_mapped;

static void remember(CUdeviceptr address, size_t size)
{
	struct mapped *made = malloc(sizeof(*made));

	check(made);
	pthread_mutex_lock(&lock);
	*made = (struct mapped){ all_mapped, address, size };
	all_mapped = made;
	pthread_mutex_unlock(&lock);
}

static size_t recall(CUdeviceptr address)
{
	struct mapped **at = &all_mapped, *found;
	size_t size = 0;

	pthread_mutex_lock(&lock);
	while (*at && (*at)->address != address)
		at = &(*at)->next;
	found = *at;
	if (found) {
		*at = found->next;
		size = found->size;
	}
	pthread_mutex_unlock(&lock);
	free(found);
	return size;
}

/* -- allocation and copies ---------------------------------------------------------------------------- */

void *gpu_allocate(size_t length)
{
	CUdeviceptr address = 0;
	CUresult result;

	length = length ? length : 1;
	enter();
	if (!strcmp(gpu_kind, "pool")) {
		result = more.allocate_async(&address, length, stream);
		if (result == CUDA_SUCCESS)
			result = driver.cuStreamSynchronize(stream);
	} else if (!strcmp(gpu_kind, "mapped")) {
		result = allocate_mapped(&address, length);
		remember(address, mapped_size(length));
	} else {
		result = driver.cuMemAlloc(&address, length);
	}
	leave();
	check_number(result, CUDA_SUCCESS);
	return (void *)(uintptr_t)address;
}

void gpu_free(void *memory)
{
	CUdeviceptr address = (uintptr_t)memory;
	CUresult result;

	enter();
	if (!strcmp(gpu_kind, "pool")) {
		result = more.free_async(address, stream);
		driver.cuStreamSynchronize(stream);
	} else if (!strcmp(gpu_kind, "mapped")) {
		size_t size = recall(address);

		result = CUDA_SUCCESS;
		for (size_t done = 0; done < size && result == CUDA_SUCCESS; done += SEGMENT)
			result = more.unmap(address + done, SEGMENT);
		more.unreserve(address, size);
	} else {
		result = driver.cuMemFree(address);
	}
	leave();
	check_number(result, CUDA_SUCCESS);
}

void gpu_copy_in(void *memory, const void *from, size_t length)
{
	enter();
	check_number(driver.cuMemcpyHtoDAsync((uintptr_t)memory, from, length, stream), CUDA_SUCCESS);
	check_number(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
	leave();
}

void gpu_copy_out(const void *memory, void *to, size_t length)
{
	enter();
	check_number(driver.cuMemcpyDtoHAsync(to, (uintptr_t)memory, length, stream), CUDA_SUCCESS);
	check_number(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
	leave();
}

/* -- mirrors ------------------------------------------------------------------------------------------ */

void mirror_add(const void *host, size_t length, void *memory)
{
	struct mirror *made = malloc(sizeof(*made));

	check(made);
	pthread_mutex_lock(&lock);
	*made = (struct mirror){ mirrors, host, length, memory };
	mirrors = made;
	pthread_mutex_unlock(&lock);
}

void mirror_remove(const void *host)
{
	struct mirror **at = &mirrors, *gone;

	pthread_mutex_lock(&lock);
	while (*at && (*at)->host != host)
		at = &(*at)->next;
	gone = *at;
	if (gone)
		*at = gone->next;
	pthread_mutex_unlock(&lock);
	free(gone);
}

/* The GPU's memory that bytes mirror, or NULL. */
static uint8_t *mirrored(const void *host)
{
	uint8_t *memory = NULL;

	pthread_mutex_lock(&lock);
	for (struct mirror *at = mirrors; at && !memory; at = at->next)
		if ((const uint8_t *)host >= at->host && (const uint8_t *)host < at->host + at->length)
			memory = at->memory + ((const uint8_t *)host - at->host);
	pthread_mutex_unlock(&lock);
	return memory;
}

void mirror_fetch(const void *host, size_t length)
{
	uint8_t *memory = length ? mirrored(host) : NULL;

	if (memory)
		gpu_copy_out(memory, (void *)host, length);
}

void mirror_bring(const void *host, size_t length)
{
	uint8_t *memory = length ? mirrored(host) : NULL;

	if (memory)
		gpu_copy_in(memory, host, length);
}
