/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"

#define SEGMENT ((size_t)2 << 20) /* size of one handle of mapped memory */
#define WRITE_COMBINED 4u         /* flag of cuMemHostAlloc() */

const char *gpu_kind;

static struct cuda_driver driver;
static CUdevice device;
static CUcontext context;
static CUstream stream;
static __thread int capture_mode; /* of this thread, while another one is set */
static CUmemoryPool pool; /* memory pool whose memory can be shared */

/* Driver functions that only tests call. */
static struct {
	CUresult (*allocate_async)(CUdeviceptr *, size_t, CUstream);
	CUresult (*free_async)(CUdeviceptr, CUstream);
	CUresult (*allocate_from)(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
	CUresult (*create_pool)(CUmemoryPool *, const void *);
	CUresult (*allocate_host)(void **, size_t, unsigned);
	CUresult (*free_host)(void *);
	CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, uint64_t);
} more;

struct mirror {
	struct mirror *next;
	const uint8_t *host;
	size_t length;
	uint8_t *memory;
};
static struct mirror *mirrors;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool find_function(void *library, const char *name, void *function)
{
	void *found = dlsym(library, name);

	memcpy(function, &found, sizeof(found));
	return found;
}

static bool find_more(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	return library && find_function(library, "cuMemAllocAsync", &more.allocate_async) &&
	       find_function(library, "cuMemFreeAsync", &more.free_async) &&
	       find_function(library, "cuMemAllocFromPoolAsync", &more.allocate_from) &&
	       find_function(library, "cuMemPoolCreate", &more.create_pool) &&
	       find_function(library, "cuMemHostAlloc", &more.allocate_host) &&
	       find_function(library, "cuMemFreeHost", &more.free_host) &&
	       find_function(library, "cuMemCreate", &more.create);
}

/* The calls of the test itself must not spoil a graph that another thread captures. */
static void exchange_capture_mode(void)
{
	if (driver.cuThreadExchangeStreamCaptureMode)
		driver.cuThreadExchangeStreamCaptureMode(&capture_mode);
}

static void relax(void)
{
	capture_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	exchange_capture_mode();
}

bool gpu_open(const char *kind)
{
	return gpu_open_on(kind, 0);
}

bool gpu_open_on(const char *kind, int number)
{
	bool good;

	if (cuda_driver_open("libcuda.so.1", RTLD_NOW, &driver, NULL) < 0 || !find_more())
		return false;
	relax();
	good = !driver.cuInit(0) && !driver.cuDeviceGet(&device, number) &&
	       !driver.cuDevicePrimaryCtxRetain(&context, device) && !driver.cuCtxPushCurrent(context) &&
	       !driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) && !driver.cuCtxPopCurrent(&context);
	exchange_capture_mode();
	gpu_kind = good ? kind : gpu_kind;
	return good;
}

static void push_context(void)
{
	check(driver.cuCtxPushCurrent(context) == CUDA_SUCCESS);
	relax();
}

static void pop_context(void)
{
	CUcontext popped;

	exchange_capture_mode();
	check(driver.cuCtxPopCurrent(&popped) == CUDA_SUCCESS && popped == context);
}

/* -- memory mapped from several handles, next to each other ------------------------------------------- */

static size_t mapped_size(size_t length)
{
	return (length + SEGMENT - 1) / SEGMENT * SEGMENT;
}

static CUresult map_segments(CUdeviceptr at, size_t size)
{
	CUmemAllocationProp properties = {
		.type = 1,
		.requestedHandleTypes = strcmp(gpu_kind, "private") ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, device },
		.allocFlags = { [1] = 1 }, /* gpuDirectRDMACapable */
	};
	CUresult result = CUDA_SUCCESS;

	for (size_t done = 0; done < size && result == CUDA_SUCCESS; done += SEGMENT) {
		CUmemGenericAllocationHandle handle;

		result = more.create(&handle, SEGMENT, &properties, 0);
		if (result == CUDA_SUCCESS)
			result = driver.cuMemMap(at + done, SEGMENT, 0, handle, 0);
		if (result == CUDA_SUCCESS)
			result = driver.cuMemRelease(handle);
	}
	return result;
}

static CUresult allocate_mapped(CUdeviceptr *address, size_t length)
{
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, device }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	size_t size = mapped_size(length);
	CUresult result = driver.cuMemAddressReserve(address, size, 0, 0, 0);

	if (result == CUDA_SUCCESS)
		result = map_segments(*address, size);
	return result == CUDA_SUCCESS ? driver.cuMemSetAccess(*address, size, &access, 1) : result;
}

/* Length of each mapping, which gpu_free() needs to unmap the memory. */
struct mapped {
	struct mapped *next;
	CUdeviceptr address;
	size_t size;
};
static struct mapped *all_mapped;

static void remember_mapping(CUdeviceptr address, size_t size)
{
	struct mapped *made = malloc(sizeof(*made));

	check(made);
	pthread_mutex_lock(&lock);
	*made = (struct mapped){ all_mapped, address, size };
	all_mapped = made;
	pthread_mutex_unlock(&lock);
}

static size_t forget_mapping(CUdeviceptr address)
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

static bool is_pool(void)
{
	return !strncmp(gpu_kind, "pool", 4);
}

static bool is_mapped(void)
{
	return !strcmp(gpu_kind, "mapped") || !strcmp(gpu_kind, "private");
}

static CUresult allocate_shared(CUdeviceptr *address, size_t length)
{
	/* CUmemPoolProps begins with the members of a handle's properties. */
	union {
		CUmemAllocationProp properties;
		char space[256];
	} of = { .properties = { .type = 1,
				 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, device } } };
	CUresult result = pool ? CUDA_SUCCESS : more.create_pool(&pool, &of);

	return result == CUDA_SUCCESS ? more.allocate_from(address, length, pool, stream) : result;
}

void *gpu_allocate(size_t length)
{
	CUdeviceptr address = 0;
	CUresult result;

	length = length ? length : 1;
	push_context();
	if (is_pool()) {
		result = strcmp(gpu_kind, "pool") ? allocate_shared(&address, length)
						  : more.allocate_async(&address, length, stream);
		if (result == CUDA_SUCCESS)
			result = driver.cuStreamSynchronize(stream);
	} else if (is_mapped()) {
		result = allocate_mapped(&address, length);
		remember_mapping(address, mapped_size(length));
	} else {
		result = driver.cuMemAlloc(&address, length);
	}
	pop_context();
	check_number(result, CUDA_SUCCESS);
	return (void *)(uintptr_t)address;
}

void gpu_free(void *memory)
{
	CUdeviceptr address = (uintptr_t)memory;
	CUresult result;

	push_context();
	if (is_pool()) {
		result = more.free_async(address, stream);
		driver.cuStreamSynchronize(stream);
	} else if (is_mapped()) {
		size_t size = forget_mapping(address);

		result = CUDA_SUCCESS;
		for (size_t done = 0; done < size && result == CUDA_SUCCESS; done += SEGMENT)
			result = driver.cuMemUnmap(address + done, SEGMENT);
		driver.cuMemAddressFree(address, size);
	} else {
		result = driver.cuMemFree(address);
	}
	pop_context();
	check_number(result, CUDA_SUCCESS);
}

static void pin(void *host, size_t length, unsigned flags)
{
	push_context();
	check_number(driver.cuMemHostRegister(host, length, flags), CUDA_SUCCESS);
	pop_context();
}

void gpu_pin(void *host, size_t length)
{
	pin(host, length, 0);
}

void gpu_pin_read_only(void *host, size_t length)
{
	pin(host, length, CU_MEMHOSTREGISTER_READ_ONLY);
}

void gpu_unpin(void *host)
{
	push_context();
	check_number(driver.cuMemHostUnregister(host), CUDA_SUCCESS);
	pop_context();
}

void *gpu_allocate_write_combined(size_t length)
{
	void *host = NULL;

	push_context();
	check_number(more.allocate_host(&host, length, WRITE_COMBINED), CUDA_SUCCESS);
	pop_context();
	return host;
}

void gpu_free_write_combined(void *host)
{
	push_context();
	check_number(more.free_host(host), CUDA_SUCCESS);
	pop_context();
}

void gpu_copy_in(void *memory, const void *from, size_t length)
{
	push_context();
	check_number(driver.cuMemcpyHtoDAsync((uintptr_t)memory, from, length, stream), CUDA_SUCCESS);
	check_number(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
	pop_context();
}

void gpu_copy_out(const void *memory, void *to, size_t length)
{
	push_context();
	check_number(driver.cuMemcpyDtoHAsync(to, (uintptr_t)memory, length, stream), CUDA_SUCCESS);
	check_number(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
	pop_context();
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
	struct mirror **at = &mirrors, *removed;

	pthread_mutex_lock(&lock);
	while (*at && (*at)->host != host)
		at = &(*at)->next;
	removed = *at;
	if (removed)
		*at = removed->next;
	pthread_mutex_unlock(&lock);
	free(removed);
}

/* Returns the GPU memory that the bytes mirror, or NULL. */
static uint8_t *mirror_find(const void *host)
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
	uint8_t *memory = length ? mirror_find(host) : NULL;

	if (memory)
		gpu_copy_out(memory, (void *)host, length);
}

void mirror_bring(const void *host, size_t length)
{
	uint8_t *memory = length ? mirror_find(host) : NULL;

	if (memory)
		gpu_copy_in(memory, host, length);
}
