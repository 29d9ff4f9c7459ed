/* SPDX-License-Identifier: BSD-2-Clause */
/* Support for cards: dma-buf export of GPU memory, and flushes that make a card's writes visible to kernels. */
#include <unistd.h>

#include "memory/cuda/cuda.h"

/* Rounding of a range's ends: pages of the host; if that is refused, both page sizes of GPUs. */
static const CUdeviceptr roundings[] = { 4096, 65536, 2097152 };

/* Exports whole pages, including memory next to the range, so a grant must set its own bounds. */
static int export_pages(struct pl_memory *memory, size_t offset, size_t length, unsigned long long flags,
			uint64_t *skew)
{
	const struct cuda_gpu *gpu = cuda_memory_of(memory)->gpu;
	const struct cuda_driver *driver = gpu->driver;
	CUdeviceptr first = cuda_address(memory, offset), begin = first;
	CUresult result;
	int fd = -1;
	int mode;

	if (!driver->cuMemGetHandleForAddressRange)
		return -ENOSYS;
	result = cuda_enter(gpu, &mode);
	if (result != CUDA_SUCCESS)
		return -EFAULT;
	result = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < PL_ARRAY_SIZE(roundings) && result == CUDA_ERROR_INVALID_VALUE; i++) {
		CUdeviceptr mask = PL_MAX(roundings[i], (CUdeviceptr)sysconf(_SC_PAGESIZE)) - 1;

		begin = first & ~mask;
		result = driver->cuMemGetHandleForAddressRange(&fd, begin, ((first + length + mask) & ~mask) - begin,
							       CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, flags);
	}
	cuda_leave(gpu, mode);
	if (result != CUDA_SUCCESS)
		return cuda_errno(result);
	*skew = first - begin;
	return fd;
}

int cuda_export_dmabuf(struct pl_memory *memory, size_t offset, size_t length, uint64_t *skew)
{
	return export_pages(memory, offset, length, 0, skew);
}

int cuda_export_dmabuf_pcie(struct pl_memory *memory, size_t offset, size_t length, uint64_t *skew)
{
	return export_pages(memory, offset, length, CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE, skew);
}

/*
 * Returns the order from the device's attributes, as the driver's interface defines them
 * (CUflushGPUDirectRDMAWritesOptions and others). Over a coherent link a completion, which the processor sees, may pass
 * bytes that go to the GPU by a PCIe switch, so only a read by the same path is sure.
 */
enum pl_memory_order cuda_order(const struct pl_memory *memory)
{
	const struct cuda_gpu *gpu = cuda_memory_of(memory)->gpu;

	if (gpu->coherent)
		return PL_ORDER_READ;
	if (gpu->writes_ordering >= CU_WRITES_ORDERING_OWNER)
		return PL_ORDER_NATIVE;
	if (gpu->driver->cuFlushGPUDirectRDMAWrites && (gpu->flush_options & CU_FLUSH_WRITES_OPTION_HOST))
		return PL_ORDER_DRIVER;
	return PL_ORDER_READ;
}

int cuda_flush(struct pl_memory *memory)
{
	const struct cuda_gpu *gpu = cuda_memory_of(memory)->gpu;
	const struct cuda_driver *driver = gpu->driver;
	enum pl_memory_order order = cuda_order(memory);
	CUresult result;
	int mode;

	if (order != PL_ORDER_DRIVER)
		return order == PL_ORDER_NATIVE ? 0 : -ENOTSUP;
	result = cuda_enter(gpu, &mode);
	if (result != CUDA_SUCCESS)
		return -EFAULT;
	result = driver->cuFlushGPUDirectRDMAWrites(CU_FLUSH_TARGET_CURRENT_DEVICE, CU_FLUSH_TO_OWNER);
	cuda_leave(gpu, mode);
	return cuda_errno(result);
}
