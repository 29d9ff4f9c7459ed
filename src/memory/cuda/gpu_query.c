/* SPDX-License-Identifier: BSD-2-Clause */
/* pl_gpu_query(): properties of GPUs. */
#include <stdio.h>

#include "memory/cuda/cuda.h"

static int attribute(const struct cuda_driver *driver, int name, CUdevice device)
{
	int value = 0;

	return driver->cuDeviceGetAttribute(&value, name, device) == CUDA_SUCCESS ? value : 0;
}

int pl_gpu_query(unsigned number, struct pl_gpu_info *info, struct pl_error *error)
{
	const struct cuda_driver *driver = cuda_driver_get(error);
	struct pl_gpu_info full = { .size = sizeof(full) };
	CUdevice device;
	CUresult result;
	int count = 0;

	if (info->size < sizeof(info->size) || info->size > sizeof(full))
		return pl_fail(error, -EINVAL, "OPTION", "pl_gpu_query", "size", "use PL_GPU_INFO_INIT",
			       "a structure of a newer library, or not initialised");
	if (!driver)
		return -ENODEV;
	result = driver->cuDeviceGetCount(&count);
	if (result == CUDA_SUCCESS && number >= (unsigned)count)
		return pl_fail(error, -ENODEV, "GPU-NONE", "pl_gpu_query", NULL,
			       "check nvidia-smi and CUDA_VISIBLE_DEVICES", "there are %d GPUs here", count);
	if (result == CUDA_SUCCESS)
		result = driver->cuDeviceGet(&device, (int)number);
	if (result != CUDA_SUCCESS)
		return cuda_fail(driver, result, "cuDeviceGet", NULL, error);
	driver->cuDeviceGetName(full.name, sizeof(full.name), device);
	driver->cuDeviceGetPCIBusId(full.pci, sizeof(full.pci), device);
	driver->cuDriverGetVersion(&full.driver);
	full.rdma = attribute(driver, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, device);
	full.dmabuf = driver->cuMemGetHandleForAddressRange &&
		      attribute(driver, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device);
	full.writes_ordering = attribute(driver, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, device);
	full.size = info->size;
	memcpy(info, &full, info->size);
	return 0;
}
