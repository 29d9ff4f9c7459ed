/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames on a GPU: events between the steps of a CUDA stream give the time of each step. */
#include <stdio.h>
#include <stdlib.h>

#include "compute/compute.h"
#include "memory/cuda/cuda.h"

#define THREADS 256u

struct compute_stream {
	CUstream handle;
	CUevent marks[PL_STEPS + 1]; /* before the first step, and after each step */
	unsigned steps;
};

struct cuda_compute {
	struct pl_compute compute;
	struct cuda_gpu *gpu;
	CUmodule module;
	CUfunction kernel;
	unsigned count;
	struct compute_stream streams[];
};

static CUresult launch_kernel(const struct cuda_compute *own, const struct pl_work *work, CUstream stream)
{
	CUdeviceptr to = (uintptr_t)work->out, from = (uintptr_t)work->in;
	uint32_t words = (uint32_t)(work->length / sizeof(uint32_t));
	void *arguments[] = { &to, &from, &words };

	return own->gpu->driver->cuLaunchKernel(own->kernel, (words + THREADS - 1) / THREADS, 1, 1, THREADS, 1, 1, 0,
						stream, arguments, NULL);
}

static CUresult begin_cuda_step(const struct cuda_compute *own, const struct pl_work *work, unsigned step,
				CUstream stream)
{
	const struct cuda_driver *driver = own->gpu->driver;

	switch (step) {
	case PL_STEP_TO_DEVICE:
		return driver->cuMemcpyHtoDAsync((uintptr_t)work->in, work->received, work->length, stream);
	case PL_STEP_KERNEL:
		return launch_kernel(own, work, stream);
	default:
		return driver->cuMemcpyDtoHAsync(work->result, (uintptr_t)work->out, work->length, stream);
	}
}

static int cuda_compute_begin(struct pl_compute *compute, unsigned number, const struct pl_work *work,
			      struct pl_error *error)
{
	struct cuda_compute *own = (struct cuda_compute *)compute;
	const struct cuda_driver *driver = own->gpu->driver;
	struct compute_stream *stream = &own->streams[number];
	int mode;
	CUresult result = cuda_enter(own->gpu, &mode);
	const char *call = "cuEventRecord";

	if (result != CUDA_SUCCESS)
		return cuda_fail(driver, result, "cuCtxPushCurrent", compute->name, error);
	stream->steps = work->steps;
	result = driver->cuEventRecord(stream->marks[0], stream->handle);
	for (unsigned step = 0; result == CUDA_SUCCESS && step < PL_STEPS; step++) {
		if (!(work->steps & 1u << step))
			continue;
		result = begin_cuda_step(own, work, step, stream->handle);
		call = step == PL_STEP_KERNEL ? "cuLaunchKernel" : "cuMemcpyAsync";
		if (result == CUDA_SUCCESS)
			result = driver->cuEventRecord(stream->marks[step + 1], stream->handle);
	}
	cuda_leave(own->gpu, mode);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(driver, result, call, compute->name, error);
}

static CUresult read_step_times(const struct cuda_driver *driver, const struct compute_stream *stream,
				uint64_t nanoseconds[PL_STEPS])
{
	CUevent before = stream->marks[0];
	CUresult result = CUDA_SUCCESS;

	for (unsigned step = 0; result == CUDA_SUCCESS && step < PL_STEPS; step++) {
		float milliseconds = 0;

		nanoseconds[step] = 0;
		if (!(stream->steps & 1u << step))
			continue;
		result = driver->cuEventElapsedTime(&milliseconds, before, stream->marks[step + 1]);
		nanoseconds[step] = (uint64_t)((double)milliseconds * 1e6);
		before = stream->marks[step + 1];
	}
	return result;
}

static int cuda_compute_wait(struct pl_compute *compute, unsigned number, uint64_t nanoseconds[PL_STEPS],
			     struct pl_error *error)
{
	struct cuda_compute *own = (struct cuda_compute *)compute;
	const struct cuda_driver *driver = own->gpu->driver;
	struct compute_stream *stream = &own->streams[number];
	int mode;
	CUresult result = cuda_enter(own->gpu, &mode);

	if (result != CUDA_SUCCESS)
		return cuda_fail(driver, result, "cuCtxPushCurrent", compute->name, error);
	/* cuStreamSynchronize() also reports an error of the kernel. */
	result = driver->cuStreamSynchronize(stream->handle);
	if (result == CUDA_SUCCESS)
		result = read_step_times(driver, stream, nanoseconds);
	cuda_leave(own->gpu, mode);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(driver, result, "cuStreamSynchronize", compute->name, error);
}

static int cuda_compute_pin(struct pl_compute *compute, void *address, size_t length, struct pl_error *error)
{
	struct cuda_compute *own = (struct cuda_compute *)compute;
	int mode;
	CUresult result = cuda_enter(own->gpu, &mode);

	if (result == CUDA_SUCCESS) {
		result = own->gpu->driver->cuMemHostRegister(address, length, CU_MEMHOSTREGISTER_PORTABLE);
		cuda_leave(own->gpu, mode);
	}
	return result == CUDA_SUCCESS ? 0
				      : cuda_fail(own->gpu->driver, result, "cuMemHostRegister", compute->name, error);
}

static void cuda_compute_unpin(struct pl_compute *compute, void *address)
{
	struct cuda_compute *own = (struct cuda_compute *)compute;
	int mode;

	if (cuda_enter(own->gpu, &mode) != CUDA_SUCCESS)
		return;
	own->gpu->driver->cuMemHostUnregister(address);
	cuda_leave(own->gpu, mode);
}

static void cuda_compute_close(struct pl_compute *compute)
{
	struct cuda_compute *own = (struct cuda_compute *)compute;
	const struct cuda_driver *driver = own->gpu->driver;
	int mode;

	if (cuda_enter(own->gpu, &mode) == CUDA_SUCCESS) {
		for (unsigned i = 0; i < own->count; i++) {
			struct compute_stream *stream = &own->streams[i];

			for (unsigned mark = 0; mark <= PL_STEPS && stream->marks[mark]; mark++)
				driver->cuEventDestroy(stream->marks[mark]);
			if (stream->handle)
				driver->cuStreamDestroy(stream->handle);
		}
		if (own->module)
			driver->cuModuleUnload(own->module);
		cuda_leave(own->gpu, mode);
	}
	cuda_gpu_put(own->gpu);
	free(own);
}

static const struct pl_compute_ops cuda_compute_ops = { cuda_compute_begin, cuda_compute_wait, cuda_compute_pin,
							cuda_compute_unpin, cuda_compute_close };

static CUresult open_cuda_stream(const struct cuda_driver *driver, struct compute_stream *stream)
{
	CUresult result = driver->cuStreamCreate(&stream->handle, CU_STREAM_NON_BLOCKING);

	for (unsigned i = 0; result == CUDA_SUCCESS && i <= PL_STEPS; i++)
		result = driver->cuEventCreate(&stream->marks[i], 0);
	return result;
}

static int open_cuda_compute(struct cuda_compute *own, const struct pl_compute_kernel *kernel, struct pl_error *error)
{
	const struct cuda_driver *driver = own->gpu->driver;
	const char *call = "cuModuleLoadData";
	int mode;
	CUresult result = cuda_enter(own->gpu, &mode);

	if (result != CUDA_SUCCESS)
		return cuda_fail(driver, result, "cuCtxPushCurrent", NULL, error);
	result = driver->cuModuleLoadData(&own->module, kernel->ptx);
	if (result == CUDA_SUCCESS) {
		call = "cuModuleGetFunction";
		result = driver->cuModuleGetFunction(&own->kernel, own->module, kernel->entry);
	}
	for (unsigned i = 0; result == CUDA_SUCCESS && i < own->count; i++) {
		call = "cuStreamCreate";
		result = open_cuda_stream(driver, &own->streams[i]);
	}
	cuda_leave(own->gpu, mode);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(driver, result, call, own->compute.name, error);
}

int cuda_compute_open(unsigned device, unsigned streams, const struct pl_compute_kernel *kernel,
		      struct pl_compute **result, struct pl_error *error)
{
	struct pl_gpu_info info = PL_GPU_INFO_INIT;
	struct cuda_compute *own;
	/* Checks that the GPU exists, and loads the driver. */
	int rc = pl_gpu_query(device, &info, error);

	if (rc < 0)
		return rc;
	own = calloc(1, sizeof(*own) + streams * sizeof(own->streams[0]));
	if (!own)
		return pl_fail_memory(error, "cuModuleLoadData");
	own->compute.ops = &cuda_compute_ops;
	own->count = streams;
	snprintf(own->compute.name, sizeof(own->compute.name), "%s", info.name);
	snprintf(own->compute.memory, sizeof(own->compute.memory), "cuda:%u", device);
	rc = cuda_gpu_get(cuda_driver_get(error), NULL, (int)device, &own->gpu, error);
	if (rc < 0) {
		free(own);
		return rc;
	}
	rc = open_cuda_compute(own, kernel, error);
	if (rc < 0) {
		cuda_compute_close(&own->compute);
		return rc;
	}
	*result = &own->compute;
	return 0;
}
