/* SPDX-License-Identifier: BSD-2-Clause */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "memory/cuda/cuda.h"

/* Counted by the regions that live there; empty again when they are gone. */
static struct {
	pthread_mutex_t lock;
	struct pl_list all;
	bool occupied; /* kernels of the program wait for copies */
	uint64_t made; /* number of gpus that were made */
} gpus = { PTHREAD_MUTEX_INITIALIZER, { &gpus.all, &gpus.all }, false, 0 };

/* Returns -1 if there is one node, or the firmware does not tell. */
static int node_of(const char *pci)
{
	char path[64], text[16];
	char name[16];

	for (size_t i = 0; i < sizeof(name); i++)
		name[i] = (char)tolower((unsigned char)pci[i]);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.15s/numa_node", name);
	return pl_read_head(path, text, sizeof(text)) ? atoi(text) : -1;
}

static void ask_device_attribute(struct cuda_gpu *gpu)
{
	const struct cuda_driver *driver = gpu->driver;

	if (driver->cuDeviceGetPCIBusId(gpu->name, sizeof(gpu->name), gpu->device) != CUDA_SUCCESS)
		snprintf(gpu->name, sizeof(gpu->name), "cuda:%d", gpu->ordinal);
	gpu->node = node_of(gpu->name);
	driver->cuDeviceGetAttribute(&gpu->writes_ordering, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
				     gpu->device);
	driver->cuDeviceGetAttribute(&gpu->coherent,
				     CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, gpu->device);
	driver->cuDeviceGetAttribute(&gpu->flush_options, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
				     gpu->device);
	driver->cuDeviceGetAttribute(&gpu->host_pointers, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
				     gpu->device);
}

static void destroy(struct cuda_gpu *gpu)
{
	int mode;

	cuda_gather_close(atomic_load(&gpu->gathers));
	if (gpu->stream && cuda_enter(gpu, &mode) == CUDA_SUCCESS) {
		gpu->driver->cuStreamDestroy(gpu->stream);
		cuda_leave(gpu, mode);
	}
	mode = cuda_relax(gpu->driver);
	if (gpu->primary)
		gpu->driver->cuDevicePrimaryCtxRelease(gpu->device);
	if (gpu->created)
		gpu->driver->cuCtxDestroy(gpu->context);
	cuda_unrelax(gpu->driver, mode);
	if (gpu->copies)
		cuda_gpu_put(gpu->copies);
	pthread_mutex_destroy(&gpu->atomic);
	free(gpu);
}

/* Retains the primary context, or creates one for copies alone. */
static CUresult open_context(struct cuda_gpu *gpu, bool for_copies)
{
	const struct cuda_driver *driver = gpu->driver;
	int mode = cuda_relax(driver);
	CUcontext popped;
	CUresult rc;

	if (for_copies) {
		rc = driver->cuCtxCreate(&gpu->context, 0, gpu->device);
		gpu->created = rc == CUDA_SUCCESS;
		if (gpu->created)
			driver->cuCtxPopCurrent(&popped);
	} else {
		rc = driver->cuDevicePrimaryCtxRetain(&gpu->context, gpu->device);
		gpu->primary = rc == CUDA_SUCCESS;
	}
	cuda_unrelax(driver, mode);
	return rc;
}

static int make_gpu(const struct cuda_driver *driver, CUcontext context, int ordinal, bool for_copies,
		    struct cuda_gpu **result, struct pl_error *error);

/*
 * Finds, or makes, the gpu for copies of memory of a primary context: memory that is mapped from handles, which all contexts of the
 * GPU reach. The caller holds the lock. Returns NULL if there is none.
 */
static struct cuda_gpu *find_gpu_for_copies(const struct cuda_gpu *of)
{
	struct cuda_gpu *found = NULL;

	pl_list_for_each(at, &gpus.all) {
		struct cuda_gpu *gpu = pl_list_entry(at, struct cuda_gpu, link);

		if (gpu->created && gpu->ordinal == of->ordinal)
			found = gpu;
	}
	if (found)
		found->references++;
	else
		make_gpu(of->driver, NULL, of->ordinal, true, &found, NULL);
	return found;
}

static int make_gpu(const struct cuda_driver *driver, CUcontext context, int ordinal, bool for_copies,
		    struct cuda_gpu **result, struct pl_error *error)
{
	struct cuda_gpu *gpu = calloc(1, sizeof(*gpu));
	CUresult rc;
	int mode;

	if (!gpu)
		return pl_fail_memory(error, "pl_region_register");
	gpu->driver = driver;
	gpu->context = context;
	gpu->ordinal = ordinal;
	gpu->references = 1;
	gpu->number = ++gpus.made;
	atomic_store_explicit(&gpu->streams_wait, gpus.occupied, memory_order_relaxed);
	pthread_mutex_init(&gpu->atomic, NULL);
	rc = driver->cuDeviceGet(&gpu->device, ordinal);
	if (rc == CUDA_SUCCESS && !context)
		rc = open_context(gpu, for_copies);
	if (rc == CUDA_SUCCESS)
		rc = cuda_enter(gpu, &mode);
	if (rc == CUDA_SUCCESS) {
		rc = driver->cuStreamCreate(&gpu->stream, CU_STREAM_NON_BLOCKING);
		cuda_leave(gpu, mode);
	}
	if (rc != CUDA_SUCCESS) {
		destroy(gpu);
		return cuda_fail(driver, rc, "cuStreamCreate", NULL, error);
	}
	ask_device_attribute(gpu);
	pl_list_append(&gpus.all, &gpu->link);
	if (gpus.occupied && gpu->primary && driver->cuCtxCreate && driver->cuCtxDestroy)
		gpu->copies = find_gpu_for_copies(gpu);
	*result = gpu;
	return 0;
}

int cuda_gpu_get(const struct cuda_driver *driver, CUcontext context, int ordinal, struct cuda_gpu **result,
		 struct pl_error *error)
{
	int rc = 0;

	*result = NULL;
	pthread_mutex_lock(&gpus.lock);
	pl_list_for_each(at, &gpus.all) {
		struct cuda_gpu *gpu = pl_list_entry(at, struct cuda_gpu, link);

		if (context ? gpu->context != context : !gpu->primary || gpu->ordinal != ordinal)
			continue;
		gpu->references++;
		*result = gpu;
		break;
	}
	if (!*result)
		rc = make_gpu(driver, context, ordinal, false, result, error);
	pthread_mutex_unlock(&gpus.lock);
	return rc;
}

/* Puts a fitting gpu into *result, counted; one of the GPU with that name is preferred. */
static void find_used(const char *pci, struct cuda_gpu **result)
{
	struct cuda_gpu *found = NULL;

	pthread_mutex_lock(&gpus.lock);
	pl_list_for_each(at, &gpus.all) {
		struct cuda_gpu *gpu = pl_list_entry(at, struct cuda_gpu, link);

		if (gpu->created)
			continue;
		if (!found || !strncmp(gpu->name, pci, sizeof(gpu->name)))
			found = gpu;
	}
	if (found)
		found->references++;
	pthread_mutex_unlock(&gpus.lock);
	*result = found;
}

struct cuda_gpu *cuda_gpu_used(const struct cuda_driver *driver, const char *pci)
{
	struct cuda_gpu *gpu = NULL;
	int count = 0, active;
	unsigned flags;
	CUdevice device;

	/* Uses the GPU's own primary context if the program uses it; none is created for this. */
	if (driver->cuDevicePrimaryCtxGetState && driver->cuDeviceGetCount(&count) != CUDA_SUCCESS)
		count = 0;
	for (int i = 0; i < count && !gpu; i++) {
		char name[sizeof(gpu->name)] = "";

		if (driver->cuDeviceGet(&device, i) == CUDA_SUCCESS &&
		    driver->cuDeviceGetPCIBusId(name, sizeof(name), device) == CUDA_SUCCESS &&
		    !strncmp(name, pci, sizeof(name)) &&
		    driver->cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active)
			cuda_gpu_get(driver, NULL, i, &gpu, NULL);
	}
	if (!gpu)
		find_used(pci, &gpu);
	for (int i = 0; i < count && !gpu; i++)
		if (driver->cuDeviceGet(&device, i) == CUDA_SUCCESS &&
		    driver->cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active)
			cuda_gpu_get(driver, NULL, i, &gpu, NULL);
	return gpu;
}

void cuda_gpu_hold(struct cuda_gpu *gpu)
{
	pthread_mutex_lock(&gpus.lock);
	gpu->references++;
	pthread_mutex_unlock(&gpus.lock);
}

void cuda_gpu_put(struct cuda_gpu *gpu)
{
	bool last;

	pthread_mutex_lock(&gpus.lock);
	last = --gpu->references == 0;
	if (last)
		pl_list_remove(&gpu->link);
	pthread_mutex_unlock(&gpus.lock);
	if (last)
		destroy(gpu);
}

void cuda_gpus_are_occupied(void)
{
	pthread_mutex_lock(&gpus.lock);
	gpus.occupied = true;
	pl_list_for_each(at, &gpus.all) {
		struct cuda_gpu *gpu = pl_list_entry(at, struct cuda_gpu, link);

		atomic_store_explicit(&gpu->streams_wait, true, memory_order_relaxed);
	}
	pthread_mutex_unlock(&gpus.lock);
}

int cuda_relax(const struct cuda_driver *driver)
{
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (!driver->cuThreadExchangeStreamCaptureMode ||
	    driver->cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)
		return -1;
	return mode;
}

void cuda_unrelax(const struct cuda_driver *driver, int mode)
{
	if (mode >= 0)
		driver->cuThreadExchangeStreamCaptureMode(&mode);
}

CUresult cuda_enter_context(const struct cuda_driver *driver, CUcontext context, int *mode)
{
	CUresult result = driver->cuCtxPushCurrent(context);

	if (result == CUDA_SUCCESS)
		*mode = cuda_relax(driver);
	return result;
}

void cuda_leave_context(const struct cuda_driver *driver, int mode)
{
	CUcontext popped;

	cuda_unrelax(driver, mode);
	driver->cuCtxPopCurrent(&popped);
}

CUresult cuda_enter(const struct cuda_gpu *gpu, int *mode)
{
	return cuda_enter_context(gpu->driver, gpu->context, mode);
}

void cuda_leave(const struct cuda_gpu *gpu, int mode)
{
	cuda_leave_context(gpu->driver, mode);
}
