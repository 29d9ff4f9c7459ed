/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of a pool (cudaMallocAsync()) in another process: the driver gives a descriptor of a pool that was created as
 * shareable, and bytes that name an allocation in it.
 */
#include <unistd.h>

#include "memory/cuda/ipc_handle.h"

static bool pool_descriptor_complete(const struct cuda_driver *driver)
{
	return driver->cuMemPoolExportToShareableHandle && driver->cuMemPoolImportFromShareableHandle &&
	       driver->cuMemPoolExportPointer && driver->cuMemPoolImportPointer && driver->cuMemPoolSetAccess &&
	       driver->cuMemPoolDestroy;
}

bool cuda_pool_export(const struct cuda_gpu *gpu, size_t length, struct cuda_ipc_handle *ipc, struct pl_ipc_fds *fds)
{
	const struct cuda_driver *driver = gpu->driver;
	CUmemoryPool pool = NULL;
	CUdeviceptr base;
	size_t size;
	int fd;

	if (driver->cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ipc->address) != CUDA_SUCCESS ||
	    !pool)
		return false;
	ipc->why = CUDA_WHY_POOL;
	if (!pool_descriptor_complete(driver) ||
	    driver->cuMemGetAddressRange(&base, &size, ipc->address) != CUDA_SUCCESS ||
	    pl_outside(ipc->address - base, length, size) ||
	    driver->cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) !=
		    CUDA_SUCCESS)
		return false;
	/* Afterwards: the driver refuses pointers into a pool that was never exported. */
	if (driver->cuMemPoolExportPointer(&ipc->pointer, base) != CUDA_SUCCESS || !pl_ipc_fds_add(fds, fd, size)) {
		close(fd);
		return false;
	}
	ipc->offset = ipc->address - base;
	ipc->size = size;
	ipc->method = CUDA_IPC_POOL;
	return true;
}

static CUresult open_pool(const struct cuda_driver *driver, struct pl_ipc_fd *part)
{
	CUmemoryPool pool = NULL;
	CUresult result;

	if (part->handle)
		return part->type == CUDA_FD_POOL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (part->fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	result = driver->cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)part->fd,
							    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	close(part->fd);
	part->fd = -1;
	if (result != CUDA_SUCCESS)
		return result;
	part->type = CUDA_FD_POOL;
	part->handle = (uintptr_t)pool;
	return CUDA_SUCCESS;
}

int cuda_pool_import(const struct cuda_gpu *gpu, const struct cuda_ipc_handle *ipc, struct pl_ipc_fds *fds,
		     CUdeviceptr *base, const char **why)
{
	const struct cuda_driver *driver = gpu->driver;
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, gpu->device }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemPoolPtrExportData pointer = ipc->pointer;
	CUmemoryPool pool;

	*why = CUDA_STAGED "the descriptors of the other end's GPU memory did not come (see ulimit -n)";
	if (!fds || fds->count != 1)
		return -ENOENT;
	*why = CUDA_STAGED "the GPU's driver does not let this process open the other's memory";
	if (!pool_descriptor_complete(driver) || open_pool(driver, &fds->list[0]) != CUDA_SUCCESS)
		return -EACCES;
	pool = (CUmemoryPool)(uintptr_t)fds->list[0].handle;
	/* The pool's own GPU has access already, and the driver refuses the request for it. */
	driver->cuMemPoolSetAccess(pool, &access, 1);
	return driver->cuMemPoolImportPointer(base, pool, &pointer) == CUDA_SUCCESS ? 0 : -EACCES;
}
