/* SPDX-License-Identifier: BSD-2-Clause */
/* GPUs that the program uses. */
#include "memory/cuda/driver.h"
#include "state.h"

/* True if the program uses the GPU: CUDA's runtime has made its context. */
static bool gpu_is_used(const struct cuda_driver *driver, int number)
{
	unsigned flags;
	int active = 0;
	CUdevice device;

	return driver->cuDeviceGet(&device, number) == CUDA_SUCCESS &&
	       driver->cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active;
}

int gpus_used(int *numbers, int most)
{
	const struct cuda_driver *driver = cuda_driver_get(NULL);
	int count = 0, used = 0;

	if (!driver || !driver->cuDevicePrimaryCtxGetState || driver->cuDeviceGetCount(&count) != CUDA_SUCCESS)
		return 0;
	for (int number = 0; number < count && used < most; number++)
		if (gpu_is_used(driver, number))
			numbers[used++] = number;
	return used;
}

int gpu_current(void)
{
	const struct cuda_driver *driver = cuda_driver_loaded();
	CUdevice device;

	return driver && driver->cuCtxGetDevice && driver->cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
}
