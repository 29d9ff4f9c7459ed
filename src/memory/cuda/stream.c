/* SPDX-License-Identifier: BSD-2-Clause */
/* The program's streams: marks, which are events after the work so far and are polled, and waits. */
#include <stdlib.h>

#include "memory/cuda/cuda.h"

struct cuda_mark {
	struct pl_stream_mark base;
	const struct cuda_driver *driver;
	CUcontext context;
	CUevent event;
};

static CUresult record_mark(struct cuda_mark *mark, CUstream stream)
{
	const struct cuda_driver *driver = mark->driver;
	int mode;
	CUresult rc = cuda_enter_context(driver, mark->context, &mode);

	if (rc != CUDA_SUCCESS)
		return rc;
	rc = driver->cuEventCreate(&mark->event, CU_EVENT_DISABLE_TIMING);
	if (rc == CUDA_SUCCESS)
		rc = driver->cuEventRecord(mark->event, stream);
	cuda_leave_context(driver, mode);
	return rc;
}

/* An event recorded during a capture would belong to the graph, and recording it would change the program's graph. */
static int check_capture(const struct cuda_driver *driver, CUstream stream, struct pl_error *error)
{
	int status = 0;
	CUresult rc = driver->cuStreamIsCapturing(stream, &status);

	if (rc != CUDA_SUCCESS && rc != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
		return cuda_fail(driver, rc, "cuStreamIsCapturing", NULL, error);
	if (rc == CUDA_SUCCESS && !status)
		return 0;
	return pl_fail(error, -EINVAL, "STREAM-CAPTURING", "cuStreamIsCapturing", NULL,
		       "post the operation outside of the capture of a CUDA graph", "the stream is being captured");
}

int cuda_mark_new(void *handle, struct pl_stream_mark **result, struct pl_error *error)
{
	const struct cuda_driver *driver = cuda_driver_loaded();
	CUstream stream = handle;
	struct cuda_mark *mark;
	CUresult rc;
	int code;

	if (!driver)
		return pl_fail(error, -ENODEV, "STREAM-NO-DRIVER", "stream", NULL,
			       "create the stream with CUDA in this process",
			       "this process has not loaded libcuda.so.1");
	if (!driver->cuStreamGetCtx || !driver->cuStreamIsCapturing)
		return pl_fail(error, -ENOTSUP, "GPU-DRIVER-OLD", "stream", NULL, "update NVIDIA's driver",
			       "the driver has no cuStreamGetCtx or no cuStreamIsCapturing");
	code = check_capture(driver, stream, error);
	if (code < 0)
		return code;
	mark = calloc(1, sizeof(*mark));
	if (!mark)
		return pl_fail_memory(error, "stream");
	mark->base.ops = &pl_cuda_memory;
	mark->driver = driver;
	rc = driver->cuStreamGetCtx(stream, &mark->context);
	if (rc == CUDA_SUCCESS)
		rc = record_mark(mark, stream);
	if (rc != CUDA_SUCCESS) {
		cuda_mark_free(&mark->base);
		return cuda_fail(driver, rc, "cuEventRecord", NULL, error);
	}
	*result = &mark->base;
	return 0;
}

int cuda_mark_done(struct pl_stream_mark *base)
{
	struct cuda_mark *mark = pl_container_of(base, struct cuda_mark, base);
	CUresult rc;
	int mode;

	if (cuda_enter_context(mark->driver, mark->context, &mode) != CUDA_SUCCESS)
		return -EFAULT;
	rc = mark->driver->cuEventQuery(mark->event);
	cuda_leave_context(mark->driver, mode);
	if (rc == CUDA_ERROR_NOT_READY)
		return 0;
	return rc == CUDA_SUCCESS ? 1 : -EFAULT;
}

void cuda_mark_free(struct pl_stream_mark *base)
{
	struct cuda_mark *mark = pl_container_of(base, struct cuda_mark, base);
	int mode;

	/* The driver frees the event when the stream reaches it. */
	if (mark->event && cuda_enter_context(mark->driver, mark->context, &mode) == CUDA_SUCCESS) {
		mark->driver->cuEventDestroy(mark->event);
		cuda_leave_context(mark->driver, mode);
	}
	free(mark);
}

/* -- waits ------------------------------------------------------------------------------------------------------- */

/* Checks that a stream can wait for a word of host memory. */
static int check_wait(const struct cuda_gpu *gpu, CUstream stream, struct pl_error *error)
{
	const struct cuda_driver *driver = gpu->driver;
	int able = 0;

	if (!driver->cuStreamWaitValue64 || !driver->cuMemHostGetDevicePointer || !driver->cuStreamGetCtx ||
	    !driver->cuStreamIsCapturing)
		return pl_fail(error, -ENOTSUP, "GPU-DRIVER-OLD", "stream", NULL, "update NVIDIA's driver",
			       "the driver has no cuStreamWaitValue64 or no cuMemHostGetDevicePointer");
	driver->cuDeviceGetAttribute(&able, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, gpu->device);
	if (!able)
		return pl_fail(error, -ENOTSUP, "STREAM-NO-WAIT", "cuDeviceGetAttribute", gpu->name,
			       "take frames by pl_subscriber_take(3)",
			       "streams of this GPU cannot wait for 64-bit words");
	return check_capture(driver, stream, error);
}

int cuda_stream_wait(const struct pl_memory *memory, void *handle, const uint64_t *word, uint64_t value,
		     struct pl_error *error)
{
	struct cuda_gpu *gpu = cuda_memory_of(memory)->gpu;
	const struct cuda_driver *driver = gpu->driver;
	CUstream stream = handle;
	CUcontext context;
	CUdeviceptr address;
	CUresult result;
	int mode;

	if (!word)
		return check_wait(gpu, stream, error);
	atomic_store_explicit(&gpu->streams_wait, true, memory_order_relaxed);
	result = driver->cuStreamGetCtx(stream, &context);
	if (result == CUDA_SUCCESS)
		result = cuda_enter_context(driver, context, &mode);
	if (result != CUDA_SUCCESS)
		return cuda_fail(driver, result, "cuCtxPushCurrent", NULL, error);
	result = driver->cuMemHostGetDevicePointer(&address, (void *)(uintptr_t)word, 0);
	if (result == CUDA_SUCCESS)
		result = driver->cuStreamWaitValue64(stream, address, value, CU_STREAM_WAIT_VALUE_GEQ);
	cuda_leave_context(driver, mode);
	return result == CUDA_SUCCESS ? 0 : cuda_fail(driver, result, "cuStreamWaitValue64", gpu->name, error);
}
