/* SPDX-License-Identifier: BSD-2-Clause */
/* Properties of pointers, from the driver. A range may span several allocations, mapped from handles side by side. */
#include "memory/cuda/cuda.h"

#define SEGMENTS_MAX 65536

struct answer {
	unsigned type;
	unsigned managed;
	int ordinal;
	CUcontext context;
	uint64_t buffer_id;
};

/* Returns false if the driver does not know the address. */
static bool ask_pointer(const struct cuda_driver *driver, CUdeviceptr address, struct answer *answer)
{
	int names[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
			CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT,
			CU_POINTER_ATTRIBUTE_BUFFER_ID };
	void *values[] = { &answer->type, &answer->managed, &answer->ordinal, &answer->context, &answer->buffer_id };

	memset(answer, 0, sizeof(*answer));
	answer->ordinal = -1;
	/* For an unknown address this call succeeds and leaves zeros. */
	return driver->cuPointerGetAttributes(PL_ARRAY_SIZE(names), names, values, address) == CUDA_SUCCESS &&
	       answer->type != 0;
}

static int refuse_managed(struct pl_error *error)
{
	return pl_fail(error, -ENOTSUP, "GPU-MANAGED", "pl_region_register", NULL,
		       "use memory of cudaMalloc(), cudaMallocAsync() or cuMemCreate()",
		       "managed memory moves between host and GPU on its own, and cannot be registered");
}

static int refuse_hole(const void *address, size_t length, size_t at, struct pl_error *error)
{
	return pl_fail(error, -EFAULT, "MEMORY-UNMAPPED", "pl_region_register", NULL,
		       "register memory that is allocated for its whole length",
		       "of %zu bytes at %p on a GPU, those from %zu on are not allocated there", length, address, at);
}

/* Returns the allocation that holds an address; the driver needs a current context for it. */
static CUresult range_of(const struct cuda_driver *driver, const struct answer *answer, CUdeviceptr at,
			 CUdeviceptr *base, size_t *size)
{
	CUcontext context = answer->context, popped;
	CUdevice device;
	CUresult result = driver->cuDeviceGet(&device, answer->ordinal);
	int mode = cuda_relax(driver);

	if (result == CUDA_SUCCESS && !answer->context)
		result = driver->cuDevicePrimaryCtxRetain(&context, device);
	if (result == CUDA_SUCCESS) {
		result = driver->cuCtxPushCurrent(context);
		if (result == CUDA_SUCCESS) {
			result = driver->cuMemGetAddressRange(base, size, at);
			driver->cuCtxPopCurrent(&popped);
		}
		if (!answer->context)
			driver->cuDevicePrimaryCtxRelease(device);
	}
	cuda_unrelax(driver, mode);
	return result;
}

/* True if adjacent allocations on one GPU cover the whole range. */
static int walk(const struct cuda_driver *driver, const void *address, size_t length, struct cuda_pointer *pointer,
		struct pl_error *error)
{
	CUdeviceptr begin = (uintptr_t)address, at = begin, base;
	struct answer answer;
	size_t size;

	for (unsigned i = 0; i < SEGMENTS_MAX; i++) {
		if (!ask_pointer(driver, at, &answer) || answer.type != CU_MEMORYTYPE_DEVICE ||
		    answer.ordinal != pointer->ordinal || range_of(driver, &answer, at, &base, &size) != CUDA_SUCCESS ||
		    base + size <= at)
			return refuse_hole(address, length, (size_t)(at - begin), error);
		pointer->segments = i + 1;
		if (base + size - begin >= length)
			return 1;
		at = base + size;
	}
	return refuse_hole(address, length, (size_t)(at - begin), error);
}

int cuda_pointer_inspect(const struct cuda_driver *driver, const void *address, size_t length,
			 struct cuda_pointer *pointer, struct pl_error *error)
{
	struct answer answer;

	if (!ask_pointer(driver, (uintptr_t)address, &answer))
		return 0;
	if (answer.managed)
		return refuse_managed(error);
	/* Pinned host memory is host memory. */
	if (answer.type != CU_MEMORYTYPE_DEVICE)
		return 0;
	*pointer = (struct cuda_pointer){
		.ordinal = answer.ordinal,
		.context = answer.context,
		.buffer_id = answer.buffer_id,
	};
	return walk(driver, address, length, pointer, error);
}

uint64_t cuda_buffer_id(const struct cuda_driver *driver, const void *address)
{
	uint64_t id = 0;

	if (driver->cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, (uintptr_t)address) != CUDA_SUCCESS)
		return 0;
	return id;
}

bool cuda_pointer_is_locked(const struct cuda_driver *driver, const void *address)
{
	struct answer answer;

	return ask_pointer(driver, (uintptr_t)address, &answer) && answer.type == CU_MEMORYTYPE_HOST && !answer.managed;
}

bool cuda_ends_are_locked(const struct cuda_driver *driver, const void *address, size_t length)
{
	return cuda_pointer_is_locked(driver, address) &&
	       cuda_pointer_is_locked(driver, (const uint8_t *)address + length - 1);
}

/*
 * True if kernels of the current context use locked host memory at the processor's address. By documentation they do not with
 * write-combined memory; an H200 with driver 580.159.04 told the processor's address. By documentation a kernel may read all locked
 * memory. It may write to it unless cuMemHostRegister() got the flag READ_ONLY: the access flags told that there, while
 * cuMemHostGetFlags() tells nothing of registered memory.
 */
static bool kernel_uses_address(const struct cuda_driver *driver, const void *address, bool written)
{
	CUdeviceptr at = (uintptr_t)address, there = 0;
	unsigned access = 0;

	if (driver->cuPointerGetAttribute(&there, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at) != CUDA_SUCCESS ||
	    there != at)
		return false;
	return !written ||
	       (driver->cuPointerGetAttribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at) == CUDA_SUCCESS &&
		access == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
}

bool cuda_kernel_uses_host(const struct cuda_gpu *gpu, const void *address, size_t length, bool written)
{
	const struct cuda_driver *driver = gpu->driver;
	const uint8_t *last = (const uint8_t *)address + length - 1;
	uint64_t id = cuda_buffer_id(driver, address);
	bool uses;
	int mode;

	if (!gpu->host_pointers || !id || cuda_buffer_id(driver, last) != id ||
	    !cuda_ends_are_locked(driver, address, length) || cuda_enter(gpu, &mode) != CUDA_SUCCESS)
		return false;
	uses = kernel_uses_address(driver, address, written) && kernel_uses_address(driver, last, written);
	cuda_leave(gpu, mode);
	return uses;
}
