/* SPDX-License-Identifier: BSD-2-Clause */
/* Marks on the program's streams: an event after the work so far, which is polled. */
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
	CUcontext popped;
	CUresult rc = driver->cuCtxPushCurrent(mark->context);

	if (rc != CUDA_SUCCESS)
		return rc;
	rc = driver->cuEventCreate(&mark->event, CU_EVENT_DISABLE_TIMING);
	if (rc == CUDA_SUCCESS)
		rc = driver->cuEventRecord(mark->event, stream);
	driver->cuCtxPopCurrent(&popped);
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
	CUcontext popped;
	CUresult rc;

	if (mark->driver->cuCtxPushCurrent(mark->context) != CUDA_SUCCESS)
		return -EFAULT;
	rc = mark->driver->cuEventQuery(mark->event);
	mark->driver->cuCtxPopCurrent(&popped);
	if (rc == CUDA_ERROR_NOT_READY)
		return 0;
	return rc == CUDA_SUCCESS ? 1 : -EFAULT;
}

void cuda_mark_free(struct pl_stream_mark *base)
{
	struct cuda_mark *mark = pl_container_of(base, struct cuda_mark, base);
	CUcontext popped;

	/* The driver frees the event when the stream reaches it. */
	if (mark->event && mark->driver->cuCtxPushCurrent(mark->context) == CUDA_SUCCESS) {
		mark->driver->cuEventDestroy(mark->event);
		mark->driver->cuCtxPopCurrent(&popped);
	}
	free(mark);
}
