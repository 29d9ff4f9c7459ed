/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of this process as the other end of a copy: it needs no handle. A GPU copies from and to the memory of another
 * GPU at full speed only if the driver gives it access. Without access the driver copies through host memory.
 */
#include "memory/cuda/ipc_handle.h"

/* Gives the GPU access to all memory that is allocated in a context of another GPU. */
static bool allow_context(const struct cuda_gpu *gpu, CUcontext context)
{
	CUresult result;
	int mode;

	if (!gpu->driver->cuCtxEnablePeerAccess || cuda_enter(gpu, &mode) != CUDA_SUCCESS)
		return false;
	result = gpu->driver->cuCtxEnablePeerAccess(context, 0);
	cuda_leave(gpu, mode);
	return result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

static bool allow_pool(const struct cuda_gpu *gpu, CUmemoryPool pool)
{
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, gpu->device }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	return gpu->driver->cuMemPoolSetAccess && gpu->driver->cuMemPoolSetAccess(pool, &access, 1) == CUDA_SUCCESS;
}

/* Gives a GPU access to memory that belongs to no context: of a pool, or mapped from handles. */
static bool reach_memory(const struct cuda_gpu *gpu, struct cuda_memory *own, size_t length, uint64_t *offset)
{
	CUmemoryPool pool = NULL;
	bool reached;
	int mode;

	if (cuda_enter(own->gpu, &mode) != CUDA_SUCCESS)
		return false;
	if (gpu->driver->cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, own->base) == CUDA_SUCCESS &&
	    pool)
		reached = allow_pool(gpu, pool);
	else
		reached = cuda_handles_map_again(gpu, length, own, offset);
	cuda_leave(own->gpu, mode);
	return reached;
}

/* If two threads give access to the same memory at the same time, copies and kernels that use it fail from then on. */
static pthread_mutex_t access_lock = PTHREAD_MUTEX_INITIALIZER;

/* Returns true if the contexts of a GPU, also that for copies, reach memory of another GPU from now on. */
static bool reach(const struct cuda_gpu *gpu, struct cuda_memory *own, size_t length, uint64_t *offset)
{
	CUcontext context = own->pointer.context;
	bool reached;

	pthread_mutex_lock(&access_lock);
	if (context)
		reached = allow_context(gpu, context) && (!gpu->copies || allow_context(gpu->copies, context));
	else
		reached = reach_memory(gpu, own, length, offset);
	pthread_mutex_unlock(&access_lock);
	return reached;
}

int cuda_take_own(const struct cuda_driver *driver, struct cuda_ipc_handle *ipc, size_t length,
		  const struct pl_memory *beside, struct cuda_memory *own, const char **reason)
{
	struct cuda_gpu *gpu;
	int rc = cuda_pointer_inspect(driver, (void *)(uintptr_t)ipc->address, length, &own->pointer, NULL);

	*reason = CUDA_STAGED "the memory is not allocated any more";
	if (rc == 1)
		rc = cuda_gpu_get(driver, own->pointer.context, own->pointer.ordinal, &own->gpu, NULL);
	if (rc < 0)
		return rc;
	if (!own->gpu)
		return -EFAULT;
	own->base = ipc->address;
	ipc->offset = 0;
	*reason = NULL;
	gpu = beside->ops == &pl_cuda_memory ? cuda_memory_of(beside)->gpu : own->gpu;
	if (gpu->device == own->gpu->device) {
		own->beside = gpu == own->gpu ? gpu : NULL;
		return 0;
	}
	*reason = "local: the driver copies through host memory, as one GPU has no access to the other's memory";
	if (!reach(gpu, own, length, &ipc->offset))
		return 0;
	/* The copies are those of one GPU, as between processes. */
	cuda_gpu_put(own->gpu);
	cuda_gpu_hold(gpu);
	own->gpu = gpu;
	own->beside = gpu;
	*reason = NULL;
	return 0;
}
