/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory mapped from handles (cuMemCreate()) in another process: the driver gives a descriptor of a handle that was
 * created as shareable. The other process's driver imports it, and maps the handles side by side, as the owner has
 * them. A mapping covers complete handles; each GPU that copies has its own.
 */
#include <unistd.h>

#include "memory/cuda/ipc_handle.h"

/* -- the owner ---------------------------------------------------------------------------------------- */

static CUresult export_handle(const struct cuda_driver *driver, CUdeviceptr at, int *fd, enum cuda_ipc_handle_why *why)
{
	CUmemAllocationProp properties = { 0 };
	CUmemGenericAllocationHandle handle;
	CUresult result = driver->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)at);

	if (result != CUDA_SUCCESS)
		return result;
	result = driver->cuMemGetAllocationPropertiesFromHandle(&properties, handle);
	if (result == CUDA_SUCCESS && !(properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
		*why = CUDA_WHY_HANDLES;
		result = CUDA_ERROR_NOT_SUPPORTED;
	}
	if (result == CUDA_SUCCESS)
		result = driver->cuMemExportToShareableHandle(fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	driver->cuMemRelease(handle);
	return result;
}

static bool offer_all(const struct cuda_driver *driver, size_t length, struct cuda_ipc_handle *ipc,
		      struct pl_ipc_fds *fds, enum cuda_ipc_handle_why *why)
{
	CUdeviceptr at = ipc->address, end = at + length, base;
	size_t size;
	int fd;

	while (at < end) {
		*why = CUDA_WHY_REFUSED;
		if (driver->cuMemGetAddressRange(&base, &size, at) != CUDA_SUCCESS || base + size <= at ||
		    export_handle(driver, at, &fd, why) != CUDA_SUCCESS)
			return false;
		if (!pl_ipc_fds_add(fds, fd, size)) {
			close(fd);
			*why = CUDA_WHY_MANY;
			return false;
		}
		if (at == ipc->address)
			ipc->offset = at - base;
		ipc->size += size;
		at = base + size;
	}
	return true;
}

static bool handle_descriptors_complete(const struct cuda_driver *driver)
{
	return driver->cuMemRetainAllocationHandle && driver->cuMemGetAllocationPropertiesFromHandle &&
	       driver->cuMemExportToShareableHandle && driver->cuMemImportFromShareableHandle && driver->cuMemRelease &&
	       driver->cuMemAddressReserve && driver->cuMemAddressFree && driver->cuMemMap && driver->cuMemUnmap &&
	       driver->cuMemSetAccess;
}

bool cuda_handles_export(const struct cuda_gpu *gpu, size_t length, struct cuda_ipc_handle *ipc, struct pl_ipc_fds *fds)
{
	enum cuda_ipc_handle_why why = CUDA_WHY_REFUSED;

	if (handle_descriptors_complete(gpu->driver) && offer_all(gpu->driver, length, ipc, fds, &why)) {
		ipc->method = CUDA_IPC_HANDLES;
		return true;
	}
	pl_ipc_fds_close(fds);
	ipc->offset = ipc->size = 0;
	ipc->why = (uint8_t)why;
	return false;
}

/* -- the importer ------------------------------------------------------------------------------------- */

/* Checks that the other end's numbers are consistent. The driver knows the size of a handle, and maps no more. */
static bool adds_up(const struct cuda_ipc_handle *ipc, const struct pl_ipc_fds *fds)
{
	uint64_t rest = ipc->size;

	for (unsigned i = 0; i < fds->count; i++) {
		if (!fds->list[i].size || fds->list[i].size > rest)
			return false;
		rest -= fds->list[i].size;
	}
	return rest == 0;
}

static CUresult open_part(const struct cuda_driver *driver, struct pl_ipc_fd *part)
{
	CUmemAllocationProp properties = { 0 };
	CUresult result;

	if (part->handle)
		return part->type == CUDA_FD_HANDLE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (part->fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	result = driver->cuMemImportFromShareableHandle(&part->handle, (void *)(intptr_t)part->fd,
							CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	close(part->fd);
	part->fd = -1;
	if (result != CUDA_SUCCESS) {
		part->handle = 0;
		return result;
	}
	part->type = CUDA_FD_HANDLE;
	result = driver->cuMemGetAllocationPropertiesFromHandle(&properties, part->handle);
	if (result == CUDA_SUCCESS && properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		result = CUDA_ERROR_INVALID_VALUE;
	return result;
}

static CUresult map_parts(const struct cuda_gpu *gpu, const struct pl_ipc_fds *fds, CUdeviceptr base, size_t size)
{
	const struct cuda_driver *driver = gpu->driver;
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, gpu->device }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUresult result = CUDA_SUCCESS;
	size_t done = 0;

	for (unsigned i = 0; i < fds->count && result == CUDA_SUCCESS; i++) {
		result = driver->cuMemMap(base + done, fds->list[i].size, 0, fds->list[i].handle, 0);
		if (result == CUDA_SUCCESS)
			done += fds->list[i].size;
	}
	if (result == CUDA_SUCCESS)
		result = driver->cuMemSetAccess(base, size, &access, 1);
	if (result != CUDA_SUCCESS && done)
		driver->cuMemUnmap(base, done);
	return result;
}

int cuda_handles_import(const struct cuda_gpu *gpu, const struct cuda_ipc_handle *ipc, struct pl_ipc_fds *fds,
			CUdeviceptr *base, const char **why)
{
	const struct cuda_driver *driver = gpu->driver;
	CUresult result = CUDA_SUCCESS;

	*why = CUDA_STAGED "the descriptors of the other end's GPU memory did not come (see ulimit -n)";
	if (!fds || !fds->count)
		return -ENOENT;
	*why = CUDA_STAGED "the other end described more of its GPU memory than there is";
	if (!adds_up(ipc, fds))
		return -EPROTO;
	*why = CUDA_STAGED "the GPU's driver does not let this process open the other's memory";
	for (unsigned i = 0; i < fds->count && result == CUDA_SUCCESS; i++)
		result = handle_descriptors_complete(driver) ? open_part(driver, &fds->list[i])
							     : CUDA_ERROR_NOT_SUPPORTED;
	if (result != CUDA_SUCCESS)
		return -EACCES;
	*why = CUDA_STAGED "the GPU that would copy does not reach the other process's GPU memory";
	if (driver->cuMemAddressReserve(base, ipc->size, 0, 0, 0) != CUDA_SUCCESS)
		return -ENOMEM;
	if (map_parts(gpu, fds, *base, ipc->size) == CUDA_SUCCESS)
		return 0;
	driver->cuMemAddressFree(*base, ipc->size);
	return -EACCES;
}

void cuda_handles_leave(const struct cuda_driver *driver, CUdeviceptr base, size_t size)
{
	driver->cuMemUnmap(base, size);
	driver->cuMemAddressFree(base, size);
}

/* -- this process's memory ---------------------------------------------------------------------------- */

/* Returns the first address, and the length, of the mappings that hold a range. */
static bool find_mappings(const struct cuda_driver *driver, CUdeviceptr at, size_t length, CUdeviceptr *begin,
			  size_t *total)
{
	CUdeviceptr end = at + length, base;
	size_t size;

	for (*total = 0; at < end; at = base + size) {
		if (driver->cuMemGetAddressRange(&base, &size, at) != CUDA_SUCCESS || base + size <= at)
			return false;
		*begin = *total ? *begin : base;
		*total += size;
	}
	return true;
}

static CUresult map_handle_of(const struct cuda_driver *driver, CUdeviceptr from, CUdeviceptr to, size_t size)
{
	CUmemGenericAllocationHandle handle;
	CUresult result = driver->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)from);

	if (result != CUDA_SUCCESS)
		return result;
	result = driver->cuMemMap(to, size, 0, handle, 0);
	driver->cuMemRelease(handle);
	return result;
}

/* Maps the same handles at another address. */
static CUresult map_mappings(const struct cuda_gpu *gpu, CUdeviceptr from, CUdeviceptr to, size_t total)
{
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, gpu->device }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	const struct cuda_driver *driver = gpu->driver;
	CUresult result = CUDA_SUCCESS;
	CUdeviceptr base;
	size_t done = 0, size;

	while (done < total && result == CUDA_SUCCESS) {
		result = driver->cuMemGetAddressRange(&base, &size, from + done);
		if (result == CUDA_SUCCESS && size > total - done)
			result = CUDA_ERROR_INVALID_VALUE;
		if (result == CUDA_SUCCESS)
			result = map_handle_of(driver, from + done, to + done, size);
		if (result == CUDA_SUCCESS)
			done += size;
	}
	if (result == CUDA_SUCCESS)
		result = driver->cuMemSetAccess(to, total, &access, 1);
	if (result != CUDA_SUCCESS && done)
		driver->cuMemUnmap(to, done);
	return result;
}

bool cuda_handles_map_again(const struct cuda_gpu *gpu, size_t length, struct cuda_memory *own, uint64_t *offset)
{
	const struct cuda_driver *driver = gpu->driver;
	CUdeviceptr begin = 0, to;
	size_t total;

	if (!handle_descriptors_complete(driver) || !find_mappings(driver, own->base, length, &begin, &total) ||
	    driver->cuMemAddressReserve(&to, total, 0, 0, 0) != CUDA_SUCCESS)
		return false;
	if (map_mappings(gpu, begin, to, total) != CUDA_SUCCESS) {
		driver->cuMemAddressFree(to, total);
		return false;
	}
	*offset = own->base - begin;
	own->base = to;
	own->mapped = total;
	return true;
}
