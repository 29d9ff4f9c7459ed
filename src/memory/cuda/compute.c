/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames on a GPU: a lane is a stream, and events between its steps tell how long each took. */
#include <stdio.h>
#include <stdlib.h>

#include "memory/compute.h"
#include "memory/cuda/cuda.h"

#define THREADS 256u

struct lane {
	CUstream stream;
	CUevent marks[PL_STEPS + 1]; /* before the first step, and after each */
	unsigned steps;
};

struct cuda_compute {
	struct pl_compute compute;
	struct cuda_place *place;
	CUmodule module;
	CUfunction kernel;
	unsigned count;
	struct lane lanes[];
};

static CUresult launch(const struct cuda_compute *own, const struct pl_work *work, CUstream stream)
{
	CUdeviceptr to = (uintptr_t)work->out, from = (uintptr_t)work->in;
	uint32_t words = (uint32_t)(work->length / sizeof(uint32_t));
	void *arguments[] = { &to, &from, &words };

	return own->place->driver->cuLaunchKernel(own->kernel, (words + THREADS - 1) / THREADS, 1, 1, THREADS, 1, 1, 0,
						  stream, arguments, NULL);
}

static CUresult begin_step(const struct cuda_compute *own, const struct pl_work *work, unsigned step, CUstream stream)
{
	const struct cuda_driver *driver = own->place->driver;

	switch (step) {
	case PL_STEP_TO_DEVICE:
		return driver->cuMemcpyHtoDAsync((uintptr_t)work->in, work->received, work->length, stream);
	case PL_STEP_KERNEL:
		return launch(own, work, stream);
	default:
		return driver->cuMemcpyDtoHAsync(work->result, (uintptr_t)work->out, work->length, stream);
	}
}

static int begin(struct pl_compute *compute, unsigned number, const struct pl_work *work, struct pl_error *error)
{
	struct cuda_compute *own = (struct cuda_compute *)compute;
	const struct cuda_driver *driver = own->place->driver;
	struct lane *lane = &own->lanes[number];
	CUresult result = cuda_enter(own->place);
	const char *call = "cuEventRecord";

	if (result != CUDA_SUCCESS)
		return cuda_fail(driver, result, "cuCtxPushCurrent", compute->name, error);
	lane->steps = work->steps;
	result = driver->cuEventRecord(lane->marks[0], lane->stream);
	for (unsigned step = 0; result == CUDA_SUCCESS && step < PL_STEPS; step++) {
		if (!(work->steps & 1u << step))
			continue;
		result = begin_step(own, work, step, lane->stream);
		call = step == PL_STEP_KERNEL ? "cuLaunchKernel" : "cuMemcpyAsync";
		if (result == CUDA_SUCCESS)
			result = driver->cuEventRecord(lane->marks[step + 1], lane->stream);
	}
	cuda_leave(own->place);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(driver, result, call, compute->name, error);
}

static CUresult measure(const struct cuda_driver *driver, const struct lane *lane, uint64_t nanoseconds[PL_STEPS])
{
	CUevent before = lane->marks[0];
	CUresult result = CUDA_SUCCESS;

	for (unsigned step = 0; result == CUDA_SUCCESS && step < PL_STEPS; step++) {
		float milliseconds = 0;

		nanoseconds[step] = 0;
		if (!(lane->steps & 1u << step))
			continue;
		result = driver->cuEventElapsedTime(&milliseconds, before, lane->marks[step + 1]);
		nanoseconds[step] = (uint64_t)((double)milliseconds * 1e6);
		before = lane->marks[step + 1];
	}
	return result;
}

static int wait(struct pl_compute *compute, unsigned number, uint64_t nanoseconds[PL_STEPS], struct pl_error *error)
{
	struct cuda_compute *own = (struct cuda_compute *)compute;
	const struct cuda_driver *driver = own->place->driver;
	struct lane *lane = &own->lanes[number];
	CUresult result = cuda_enter(own->place);

	if (result != CUDA_SUCCESS)
		return cuda_fail(driver, result, "cuCtxPushCurrent", compute->name, error);
	/* Of a kernel that went wrong this tells too. */
	result = driver->cuStreamSynchronize(lane->stream);
	if (result == CUDA_SUCCESS)
		result = measure(driver, lane, nanoseconds);
	cuda_leave(own->place);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(driver, result, "cuStreamSynchronize", compute->name, error);
}

static int pin(struct pl_compute *compute, void *address, size_t length, struct pl_error *error)
{
	struct cuda_compute *own = (struct cuda_compute *)compute;
	CUresult result = cuda_enter(own->place);

	if (result == CUDA_SUCCESS) {
		result = own->place->driver->cuMemHostRegister(address, length, CU_MEMHOSTREGISTER_PORTABLE);
		cuda_leave(own->place);
	}
	return result == CUDA_SUCCESS
		       ? 0
		       : cuda_fail(own->place->driver, result, "cuMemHostRegister", compute->name, error);
}

static void unpin(struct pl_compute *compute, void *address)
{
	struct cuda_compute *own = (struct cuda_compute *)compute;

	if (cuda_enter(own->place) != CUDA_SUCCESS)
		return;
	own->place->driver->cuMemHostUnregister(address);
	cuda_leave(own->place);
}

static void close_all(struct pl_compute *compute)
{
	struct cuda_compute *own = (struct cuda_compute *)compute;
	const struct cuda_driver *driver = own->place->driver;

	if (cuda_enter(own->place) == CUDA_SUCCESS) {
		for (unsigned i = 0; i < own->count; i++) {
			struct lane *lane = &own->lanes[i];

			for (unsigned mark = 0; mark <= PL_STEPS && lane->marks[mark]; mark++)
				driver->cuEventDestroy(lane->marks[mark]);
			if (lane->stream)
				driver->cuStreamDestroy(lane->stream);
		}
		if (own->module)
			driver->cuModuleUnload(own->module);
		cuda_leave(own->place);
	}
	cuda_place_put(own->place);
	free(own);
}

static const struct pl_compute_ops ops = { begin, wait, pin, unpin, close_all };

static CUresult open_lane(const struct cuda_driver *driver, struct lane *lane)
{
	CUresult result = driver->cuStreamCreate(&lane->stream, CU_STREAM_NON_BLOCKING);

	for (unsigned i = 0; result == CUDA_SUCCESS && i <= PL_STEPS; i++)
		result = driver->cuEventCreate(&lane->marks[i], 0);
	return result;
}

static int open_all(struct cuda_compute *own, const struct pl_compute_kernel *kernel, struct pl_error *error)
{
	const struct cuda_driver *driver = own->place->driver;
	const char *call = "cuModuleLoadData";
	CUresult result = cuda_enter(own->place);

	if (result != CUDA_SUCCESS)
		return cuda_fail(driver, result, "cuCtxPushCurrent", NULL, error);
	result = driver->cuModuleLoadData(&own->module, kernel->ptx);
	if (result == CUDA_SUCCESS) {
		call = "cuModuleGetFunction";
		result = driver->cuModuleGetFunction(&own->kernel, own->module, kernel->entry);
	}
	for (unsigned i = 0; result == CUDA_SUCCESS && i < own->count; i++) {
		call = "cuStreamCreate";
		result = open_lane(driver, &own->lanes[i]);
	}
	cuda_leave(own->place);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(driver, result, call, own->compute.name, error);
}

int cuda_compute_open(unsigned device, unsigned lanes, const struct pl_compute_kernel *kernel,
		      struct pl_compute **result, struct pl_error *error)
{
	struct pl_gpu_info info = PL_GPU_INFO_INIT;
	struct cuda_compute *own;
	/* Looks whether there is such a GPU, and loads the driver. */
	int rc = pl_gpu_query(device, &info, error);

	if (rc < 0)
		return rc;
	own = calloc(1, sizeof(*own) + lanes * sizeof(own->lanes[0]));
	if (!own)
		return pl_fail_memory(error, "cuModuleLoadData");
	own->compute.ops = &ops;
	own->count = lanes;
	snprintf(own->compute.name, sizeof(own->compute.name), "%s", info.name);
	snprintf(own->compute.memory, sizeof(own->compute.memory), "cuda:%u", device);
	rc = cuda_place_get(cuda_driver_get(error), NULL, (int)device, &own->place, error);
	if (rc < 0) {
		free(own);
		return rc;
	}
	rc = open_all(own, kernel, error);
	if (rc < 0) {
		close_all(&own->compute);
		return rc;
	}
	*result = &own->compute;
	return 0;
}
