/* SPDX-License-Identifier: BSD-2-Clause */
/* For cards: a dma-buf of the memory, and making what a card wrote visible to kernels. */
#include <unistd.h>

#include "memory/cuda/cuda.h"

/*
 * Whole pages of the host; what lies next to the range comes along, so whoever grants access to it must
 * give bounds of its own.  Where the driver can map by PCI Express (on systems where that is a choice), that
 * is what a card wants.
 */
int cuda_export_dmabuf(struct pl_memory *memory, size_t offset, size_t length, uint64_t *skew)
{
	const struct cuda_place *place = cuda_memory_of(memory)->place;
	const struct cuda_driver *driver = place->driver;
	const CUdeviceptr mask = (CUdeviceptr)sysconf(_SC_PAGESIZE) - 1;
	CUdeviceptr begin = cuda_address(memory, offset) & ~mask;
	CUdeviceptr end = (cuda_address(memory, offset) + length + mask) & ~mask;
	CUresult result;
	int fd = -1;

	if (!driver->cuMemGetHandleForAddressRange)
		return -ENOSYS;
	result = cuda_enter(place);
	if (result != CUDA_SUCCESS)
		return -EFAULT;
	result = driver->cuMemGetHandleForAddressRange(&fd, begin, end - begin, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
						       CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_PCIE);
	if (result != CUDA_SUCCESS)
		result = driver->cuMemGetHandleForAddressRange(&fd, begin, end - begin,
							       CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
	cuda_leave(place);
	if (result != CUDA_SUCCESS)
		return cuda_errno(result);
	*skew = cuda_address(memory, offset) - begin;
	return fd;
}

int cuda_flush(struct pl_memory *memory)
{
	const struct cuda_place *place = cuda_memory_of(memory)->place;
	const struct cuda_driver *driver = place->driver;
	CUresult result;

	if (place->writes_ordering >= CU_WRITES_ORDERING_OWNER)
		return 0;
	if (!driver->cuFlushGPUDirectRDMAWrites || !(place->flush_options & CU_FLUSH_WRITES_OPTION_HOST))
		return -ENOTSUP;
	result = cuda_enter(place);
	if (result != CUDA_SUCCESS)
		return -EFAULT;
	result = driver->cuFlushGPUDirectRDMAWrites(CU_FLUSH_TARGET_CURRENT_DEVICE, CU_FLUSH_TO_OWNER);
	cuda_leave(place);
	return cuda_errno(result);
}
