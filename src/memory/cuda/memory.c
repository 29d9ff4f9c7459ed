/* SPDX-License-Identifier: BSD-2-Clause */
/* GPU memory: memory operations of the kind "cuda". */
#include <stdio.h>
#include <stdlib.h>

#include "memory/cuda/cuda.h"

static int cuda_recognise(const void *address, size_t length, struct pl_error *error)
{
	const struct cuda_driver *driver = cuda_driver_loaded();
	struct cuda_pointer pointer;

	return driver ? cuda_pointer_inspect(driver, address, length, &pointer, error) : 0;
}

static struct cuda_memory *memory_new(struct pl_error *error)
{
	struct cuda_memory *own = calloc(1, sizeof(*own));

	if (!own)
		pl_fail_memory(error, "pl_region_register");
	return own;
}

static void fill_cuda_memory(struct pl_memory *memory, struct cuda_memory *own)
{
	memory->handle = own;
	memory->device = own->gpu->number;
	memory->node = own->gpu->node;
}

/*
 * Makes the driver finish operations of the program on this memory (cudaMemset(), copies within the GPU) before they
 * return, so that transfers read the bytes that the program sees. Each allocation has a switch of its own. The driver has
 * none for memory mapped from handles.
 */
static void order_operations(const struct pl_memory *memory)
{
	const struct cuda_memory *own = cuda_memory_of(memory);
	const struct cuda_driver *driver = own->gpu->driver;
	CUdeviceptr at = cuda_address(memory, 0), base;
	unsigned left = own->pointer.segments;
	int mode, on = 1;
	size_t size;

	if (cuda_enter(own->gpu, &mode) != CUDA_SUCCESS)
		return;
	do {
		driver->cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at);
		if (driver->cuMemGetAddressRange(&base, &size, at) != CUDA_SUCCESS)
			break;
		at = base + size;
	} while (left && --left);
	cuda_leave(own->gpu, mode);
}

static int cuda_attach(struct pl_memory *memory, struct pl_error *error)
{
	const struct cuda_driver *driver = cuda_driver_loaded();
	struct cuda_memory *own = memory_new(error);
	int rc;

	if (!own)
		return -ENOMEM;
	rc = cuda_pointer_inspect(driver, memory->address, memory->length, &own->pointer, error);
	if (rc == 0)
		rc = pl_fail(error, -EFAULT, "MEMORY-UNMAPPED", "pl_region_register", NULL,
			     "keep the memory while it is being registered", "the memory at %p was just freed",
			     memory->address);
	if (rc > 0)
		rc = cuda_gpu_get(driver, own->pointer.context, own->pointer.ordinal, &own->gpu, error);
	if (rc < 0) {
		free(own);
		return rc;
	}
	fill_cuda_memory(memory, own);
	order_operations(memory);
	return 0;
}

CUresult cuda_allocate_zeroed(const struct cuda_gpu *gpu, size_t length, CUdeviceptr *address)
{
	const struct cuda_driver *driver = gpu->driver;
	int mode;
	CUresult result = cuda_enter(gpu, &mode);

	if (result != CUDA_SUCCESS)
		return result;
	result = driver->cuMemAlloc(address, length);
	if (result == CUDA_SUCCESS) {
		result = driver->cuMemsetD8Async(*address, 0, length, gpu->stream);
		if (result == CUDA_SUCCESS)
			result = driver->cuStreamSynchronize(gpu->stream);
		if (result != CUDA_SUCCESS) {
			driver->cuMemFree(*address);
			*address = 0;
		}
	}
	cuda_leave(gpu, mode);
	return result;
}

static int cuda_allocate(struct pl_memory *memory, unsigned device, size_t length, struct pl_error *error)
{
	const struct cuda_driver *driver = cuda_driver_get(error);
	struct cuda_memory *own;
	CUdeviceptr address;
	CUresult result;
	char object[24];
	int count = 0, rc;

	if (!driver)
		return -ENODEV;
	snprintf(object, sizeof(object), "cuda:%u", device);
	result = driver->cuDeviceGetCount(&count);
	if (result != CUDA_SUCCESS)
		return cuda_fail(driver, result, "cuDeviceGetCount", object, error);
	if (device >= (unsigned)count)
		return pl_fail(error, -ENODEV, "GPU-NONE", "cuDeviceGet", object,
			       "check nvidia-smi and CUDA_VISIBLE_DEVICES", "there are %d GPUs here", count);
	own = memory_new(error);
	if (!own)
		return -ENOMEM;
	rc = cuda_gpu_get(driver, NULL, (int)device, &own->gpu, error);
	if (rc < 0) {
		free(own);
		return rc;
	}
	result = cuda_allocate_zeroed(own->gpu, length, &address);
	if (result != CUDA_SUCCESS) {
		cuda_gpu_put(own->gpu);
		free(own);
		return cuda_fail(driver, result, "cuMemAlloc", object, error);
	}
	*memory = (struct pl_memory){
		.ops = &pl_cuda_memory,
		.address = (void *)(uintptr_t)address,
		.length = length,
		.owned = true,
	};
	cuda_pointer_inspect(driver, memory->address, length, &own->pointer, NULL);
	fill_cuda_memory(memory, own);
	order_operations(memory);
	return 0;
}

static void cuda_release(struct pl_memory *memory)
{
	struct cuda_memory *own = cuda_memory_of(memory);
	int mode;

	if (memory->owned && cuda_enter(own->gpu, &mode) == CUDA_SUCCESS) {
		own->gpu->driver->cuMemFree(cuda_address(memory, 0));
		cuda_leave(own->gpu, mode);
	}
	cuda_close_other(own);
	cuda_gpu_put(own->gpu);
	free(own);
}

/* Atomic operation under a lock of the GPU: only this process changes the words, not kernels at the same time. */
static int cuda_atomic(struct pl_memory *memory, size_t offset, bool add, uint64_t operand, uint64_t compare,
		       uint64_t *old)
{
	struct cuda_gpu *gpu = cuda_memory_of(memory)->gpu;
	uint64_t changed;
	int rc;

	pthread_mutex_lock(&gpu->atomic);
	rc = cuda_copy_out(memory, offset, old, sizeof(*old));
	if (rc == 0 && (add || *old == compare)) {
		changed = add ? *old + operand : operand;
		rc = cuda_copy_in(memory, offset, &changed, sizeof(changed));
	}
	pthread_mutex_unlock(&gpu->atomic);
	return rc;
}

/* Locks for all GPUs of the process, through the context of one, which is held until the unlock. */
static int cuda_pin(const struct pl_memory *memory, void *address, size_t length, bool read_only, void **holder)
{
	const struct cuda_gpu *own = cuda_memory_of(memory)->gpu;
	struct cuda_gpu *gpu;
	CUresult result;
	int rc = cuda_gpu_get(own->driver, own->primary ? NULL : own->context, own->ordinal, &gpu, NULL);
	int mode;

	if (rc < 0)
		return rc;
	result = cuda_enter(cuda_gpu_for_copies(gpu), &mode);
	if (result == CUDA_SUCCESS) {
		result = gpu->driver->cuMemHostRegister(address, length, CU_MEMHOSTREGISTER_PORTABLE);
		/* Read-only memory of another process needs a flag; since CUDA 11.1. Kernels must not write to memory with it. */
		if (result != CUDA_SUCCESS && read_only)
			result = gpu->driver->cuMemHostRegister(
				address, length, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_READ_ONLY);
		cuda_leave(cuda_gpu_for_copies(gpu), mode);
	}
	if (result != CUDA_SUCCESS)
		cuda_gpu_put(gpu);
	*holder = gpu;
	return cuda_errno(result);
}

static void cuda_unpin(void *holder, void *address)
{
	struct cuda_gpu *gpu = holder;
	int mode;

	if (cuda_enter(cuda_gpu_for_copies(gpu), &mode) == CUDA_SUCCESS) {
		gpu->driver->cuMemHostUnregister(address);
		cuda_leave(cuda_gpu_for_copies(gpu), mode);
	}
	cuda_gpu_put(gpu);
}

/* Memory of another process stays until it is closed here. */
static bool is_allocated(const struct pl_memory *memory)
{
	const struct cuda_memory *own = cuda_memory_of(memory);

	return own->opening || own->mapped || own->imported ||
	       cuda_buffer_id(own->gpu->driver, memory->address) == own->pointer.buffer_id;
}

static bool cuda_gather_reaches(const struct pl_memory *memory, const struct pl_memory *other, bool written)
{
	const struct cuda_memory *own = cuda_memory_of(memory);
	const struct cuda_gpu *gpu = own->gpu;

	/*
	 * A kernel that touches memory that the program has freed, or host memory that is not locked, or not for writes, would end
	 * all work of the context.
	 */
	if (other->ops == &pl_cuda_memory)
		return cuda_memory_of(other)->beside == gpu && is_allocated(memory);
	return (!own->beside || own->beside == gpu) && is_allocated(memory) &&
	       cuda_kernel_uses_host(gpu, other->address, other->length, written);
}

static int cuda_number(const struct pl_memory *memory)
{
	return cuda_memory_of(memory)->gpu->ordinal;
}

static bool cuda_host_is_locked(const struct pl_memory *memory, const void *address, size_t length)
{
	return cuda_ends_are_locked(cuda_memory_of(memory)->gpu->driver, address, length);
}

static uint64_t cuda_identity(const struct pl_memory *memory)
{
	return cuda_buffer_id(cuda_memory_of(memory)->gpu->driver, memory->address);
}

const struct pl_memory_ops pl_cuda_memory = {
	.name = "cuda",
	.recognise = cuda_recognise,
	.attach = cuda_attach,
	.allocate = cuda_allocate,
	.release = cuda_release,
	.copy_in = cuda_copy_in,
	.copy_out = cuda_copy_out,
	.queue_open = cuda_queue_open,
	.queue_close = cuda_queue_close,
	.queue_begin = cuda_queue_begin,
	.queue_list = cuda_queue_list,
	.queue_done = cuda_queue_done,
	.copy_across = cuda_copy_across,
	.queue_across = cuda_queue_across,
	.gather_prepare = cuda_gather_prepare,
	.gather_reaches = cuda_gather_reaches,
	.gather_take = cuda_gather_take,
	.gather_keep = cuda_gather_keep,
	.gather_forget = cuda_gather_forget,
	.gather_start = cuda_gather_start,
	.gather_done = cuda_gather_done,
	.gather_give = cuda_gather_give,
	.export_ipc = cuda_export_ipc,
	.import_ipc = cuda_import_ipc,
	.close_ipc_fd = cuda_close_ipc_fd,
	.atomic = cuda_atomic,
	.pin = cuda_pin,
	.unpin = cuda_unpin,
	.host_is_locked = cuda_host_is_locked,
	.number = cuda_number,
	.identity = cuda_identity,
	.export_dmabuf = cuda_export_dmabuf,
	.export_dmabuf_pcie = cuda_export_dmabuf_pcie,
	.order = cuda_order,
	.flush = cuda_flush,
	.mark_new = cuda_mark_new,
	.mark_done = cuda_mark_done,
	.mark_free = cuda_mark_free,
	.stream_wait = cuda_stream_wait,
};
