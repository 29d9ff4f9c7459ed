/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies between host memory and GPU memory. Synchronous ones are for small sizes. The others use queues: a stream for
 * each direction, and an event after each copy, which is polled.
 */
#include <stdlib.h>

#include "memory/cuda/cuda.h"

/* Copies under way in one direction of a queue; a power of two. */
#define DEPTH 64
/* Pieces in one call of the driver. */
#define TOGETHER 32
/* A copy from this size on that has not ended is asked for again after ASK_PAUSE nanoseconds. Bytes. */
#define BULK_FROM ((size_t)64 << 10)
#define ASK_PAUSE 3000u

struct direction {
	CUstream stream;
	CUevent events[DEPTH];
	struct cuda_clock clocks[DEPTH]; /* arguments of cuda_ended() */
	uint64_t begun, done;
	uint64_t ask_from;            /* time from which the oldest copy may be asked for; 0: now */
	size_t lengths[DEPTH];        /* of single copies, in bytes; 0: others */
	uint64_t failed, failed_last; /* copies that failed, and perhaps others between them; 0: none */
};

struct pl_copy_queue {
	struct cuda_gpu *memory_gpu;    /* held; that of the memory */
	struct cuda_gpu *gpu;           /* its context makes the copies */
	struct direction directions[2]; /* out of GPU memory; into it */
};

static CUresult begin_cuda_copy(struct cuda_gpu *gpu, CUdeviceptr device, void *host, size_t length, bool into,
				CUstream stream, struct cuda_clock *clock)
{
	*clock = (struct cuda_clock){ 0 };
	return into ? cuda_begin_into(gpu, device, host, length, stream, clock)
		    : gpu->driver->cuMemcpyDtoHAsync(host, device, length, stream);
}

static int copy_and_wait(struct cuda_gpu *of, CUdeviceptr device, void *host, size_t length, bool into)
{
	struct cuda_gpu *gpu = cuda_gpu_for_copies(of);
	int mode;
	CUresult result = cuda_enter(gpu, &mode);
	struct cuda_clock clock;

	if (result != CUDA_SUCCESS)
		return -EFAULT;
	result = begin_cuda_copy(gpu, device, host, length, into, gpu->stream, &clock);
	if (result == CUDA_SUCCESS)
		result = gpu->driver->cuStreamSynchronize(gpu->stream);
	cuda_ended(gpu, clock);
	cuda_leave(gpu, mode);
	return result == CUDA_SUCCESS ? 0 : -EFAULT;
}

/*
 * Starts a copy in the context of one of the two GPUs: it reaches the other's memory, or the driver knows a path
 * between them.
 */
static CUresult begin_across(const struct cuda_gpu *gpu, struct pl_memory *to, size_t to_offset, struct pl_memory *from,
			     size_t from_offset, size_t length, CUstream stream)
{
	const struct cuda_driver *driver = gpu->driver;
	CUcontext there = cuda_gpu_for_copies(cuda_memory_of(to)->gpu)->context,
		  here = cuda_gpu_for_copies(cuda_memory_of(from)->gpu)->context;

	if (there == here)
		return driver->cuMemcpyDtoDAsync(cuda_address(to, to_offset), cuda_address(from, from_offset), length,
						 stream);
	return driver->cuMemcpyPeerAsync(cuda_address(to, to_offset), there, cuda_address(from, from_offset), here,
					 length, stream);
}

int cuda_copy_across(struct pl_memory *to, size_t to_offset, struct pl_memory *from, size_t from_offset, size_t length)
{
	const struct cuda_gpu *gpu = cuda_gpu_for_copies(cuda_memory_of(from)->gpu);
	int mode;
	CUresult result = cuda_enter(gpu, &mode);

	if (result != CUDA_SUCCESS)
		return -EFAULT;
	result = begin_across(gpu, to, to_offset, from, from_offset, length, gpu->stream);
	if (result == CUDA_SUCCESS)
		result = gpu->driver->cuStreamSynchronize(gpu->stream);
	cuda_leave(gpu, mode);
	return result == CUDA_SUCCESS ? 0 : -EFAULT;
}

int cuda_copy_in(struct pl_memory *memory, size_t offset, const void *from, size_t length)
{
	return copy_and_wait(cuda_memory_of(memory)->gpu, cuda_address(memory, offset), (void *)from, length, true);
}

int cuda_copy_to_address(struct cuda_gpu *gpu, CUdeviceptr to, const void *from, size_t length)
{
	return copy_and_wait(gpu, to, (void *)from, length, true);
}

int cuda_copy_out(struct pl_memory *memory, size_t offset, void *to, size_t length)
{
	return copy_and_wait(cuda_memory_of(memory)->gpu, cuda_address(memory, offset), to, length, false);
}

static void close_direction(const struct cuda_driver *driver, struct direction *direction)
{
	for (unsigned i = 0; i < DEPTH && direction->events[i]; i++)
		driver->cuEventDestroy(direction->events[i]);
	if (direction->stream)
		driver->cuStreamDestroy(direction->stream);
}

static CUresult open_direction(const struct cuda_driver *driver, struct direction *direction)
{
	CUresult result = driver->cuStreamCreate(&direction->stream, CU_STREAM_NON_BLOCKING);

	for (unsigned i = 0; result == CUDA_SUCCESS && i < DEPTH; i++)
		result = driver->cuEventCreate(&direction->events[i], CU_EVENT_DISABLE_TIMING);
	return result;
}

int cuda_queue_open(const struct pl_memory *memory, struct pl_copy_queue **result, struct pl_error *error)
{
	const struct cuda_memory *own = cuda_memory_of(memory);
	const struct cuda_driver *driver = own->gpu->driver;
	struct pl_copy_queue *queue = calloc(1, sizeof(*queue));
	CUresult rc;
	int code;
	int mode;

	if (!queue)
		return pl_fail_memory(error, "copy");
	code = cuda_gpu_get(driver, own->gpu->primary ? NULL : own->gpu->context, own->gpu->ordinal, &queue->memory_gpu,
			    error);
	if (code < 0) {
		free(queue);
		return code;
	}
	queue->gpu = cuda_gpu_for_copies(queue->memory_gpu);
	rc = cuda_enter(queue->gpu, &mode);
	if (rc == CUDA_SUCCESS) {
		for (unsigned i = 0; rc == CUDA_SUCCESS && i < 2; i++)
			rc = open_direction(driver, &queue->directions[i]);
		cuda_leave(queue->gpu, mode);
	}
	if (rc != CUDA_SUCCESS) {
		cuda_queue_close(queue);
		return cuda_fail(driver, rc, "cuStreamCreate", NULL, error);
	}
	*result = queue;
	return 0;
}

void cuda_queue_close(struct pl_copy_queue *queue)
{
	int mode;

	if (cuda_enter(queue->gpu, &mode) == CUDA_SUCCESS) {
		for (unsigned i = 0; i < 2; i++)
			close_direction(queue->gpu->driver, &queue->directions[i]);
		cuda_leave(queue->gpu, mode);
	}
	cuda_gpu_put(queue->memory_gpu);
	free(queue);
}

/* Prepares a copy of a queue: finds room for its event, and enters the context. */
static int queue_enter(struct pl_copy_queue *queue, bool into, int *mode)
{
	struct direction *direction = &queue->directions[into];

	/* The owner of a copy that fails here learns of it by its own cuda_queue_done(). */
	if (direction->begun - direction->done >= DEPTH)
		cuda_queue_done(queue, into, direction->done + 1, true);
	return cuda_enter(queue->gpu, mode) == CUDA_SUCCESS ? 0 : -EFAULT;
}

static int queue_leave(struct pl_copy_queue *queue, bool into, CUresult result, size_t length, struct cuda_clock clock,
		       int mode, uint64_t *sequence)
{
	struct direction *direction = &queue->directions[into];
	size_t at = (direction->begun + 1) % DEPTH;

	direction->clocks[at] = clock;
	if (result == CUDA_SUCCESS)
		result = queue->gpu->driver->cuEventRecord(direction->events[at], direction->stream);
	cuda_leave(queue->gpu, mode);
	if (result != CUDA_SUCCESS)
		return -EFAULT;
	*sequence = ++direction->begun;
	direction->lengths[at] = length;
	return 0;
}

int cuda_queue_begin(struct pl_copy_queue *queue, struct pl_memory *memory, size_t offset, void *host, size_t length,
		     bool into, uint64_t *sequence)
{
	CUresult result;
	struct cuda_clock clock;
	int mode;

	if (queue_enter(queue, into, &mode) < 0)
		return -EFAULT;
	result = begin_cuda_copy(queue->gpu, cuda_address(memory, offset), host, length, into,
				 queue->directions[into].stream, &clock);
	return queue_leave(queue, into, result, length, clock, mode, sequence);
}

/* Starts copies with one call of the driver, since CUDA 13.0; a call for each costs more than the copy. */
static bool begin_together(struct cuda_gpu *gpu, const struct pl_memory_piece *pieces, unsigned count, bool into,
			   CUstream stream, struct cuda_clock *clock)
{
	const struct cuda_driver *driver = gpu->driver;
	CUmemcpyAttributes attributes = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
	CUdeviceptr hosts[TOGETHER], devices[TOGETHER];
	size_t lengths[TOGETHER], first = 0;

	if (!driver->cuMemcpyBatchAsync || count == 1 || (into && cuda_needs_rows(gpu)))
		return false;
	if (into)
		clock->begun = pl_now();
	for (unsigned i = 0; i < count; i++) {
		hosts[i] = (CUdeviceptr)(uintptr_t)pieces[i].host;
		devices[i] = cuda_address(pieces[i].memory, pieces[i].offset);
		lengths[i] = pieces[i].length;
	}
	return driver->cuMemcpyBatchAsync(into ? devices : hosts, into ? hosts : devices, lengths, count, &attributes,
					  &first, 1, stream) == CUDA_SUCCESS;
}

/* If the list is refused, each copy is requested singly; copying one twice does no harm. */
int cuda_queue_list(struct pl_copy_queue *queue, struct pl_memory_piece *pieces, unsigned count, bool into,
		    uint64_t *sequence)
{
	CUstream stream = queue->directions[into].stream;
	struct cuda_clock first = { 0 };
	int mode;

	if (queue_enter(queue, into, &mode) < 0)
		return -EFAULT;
	for (unsigned at = 0; at < count;) {
		unsigned end = PL_MIN(at + TOGETHER, count);
		struct cuda_clock clock = { 0 };
		bool together = begin_together(queue->gpu, pieces + at, end - at, into, stream, &clock);

		for (; at < end; at++) {
			struct pl_memory_piece *piece = &pieces[at];
			CUdeviceptr device = cuda_address(piece->memory, piece->offset);

			piece->status = 0;
			if (!together &&
			    begin_cuda_copy(queue->gpu, device, piece->host, piece->length, into, stream, &clock))
				piece->status = -EFAULT;
		}
		if (!first.begun)
			first = clock;
	}
	return queue_leave(queue, into, CUDA_SUCCESS, 0, first, mode, sequence);
}

int cuda_queue_across(struct pl_copy_queue *queue, struct pl_memory *to, size_t to_offset, struct pl_memory *from,
		      size_t from_offset, size_t length, bool into, uint64_t *sequence)
{
	CUresult result;
	int mode;

	if (queue_enter(queue, into, &mode) < 0)
		return -EFAULT;
	result = begin_across(queue->gpu, to, to_offset, from, from_offset, length, queue->directions[into].stream);
	return queue_leave(queue, into, result, 0, (struct cuda_clock){ 0 }, mode, sequence);
}

/* Notes that a copy failed, and with it those before it that nothing is known of. */
static void direction_fail(struct direction *direction, uint64_t sequence)
{
	if (!direction->failed)
		direction->failed = direction->done + 1;
	direction->failed_last = sequence;
}

static bool direction_has_failed(const struct direction *direction, uint64_t sequence)
{
	return direction->failed && sequence >= direction->failed && sequence <= direction->failed_last;
}

int cuda_queue_done(struct pl_copy_queue *queue, bool into, uint64_t sequence, bool wait)
{
	const struct cuda_driver *driver = queue->gpu->driver;
	struct direction *direction = &queue->directions[into];
	CUevent event = direction->events[sequence % DEPTH];
	CUresult result;
	int mode;

	if (sequence <= direction->done)
		return direction_has_failed(direction, sequence) ? -EFAULT : 1;
	/* Each question costs calls of the driver, for which other threads wait. */
	if (!wait && direction->ask_from && pl_now() < direction->ask_from)
		return 0;
	result = cuda_enter(queue->gpu, &mode);
	if (result == CUDA_SUCCESS) {
		result = wait ? driver->cuEventSynchronize(event) : driver->cuEventQuery(event);
		cuda_leave(queue->gpu, mode);
	}
	if (result == CUDA_ERROR_NOT_READY) {
		if (direction->lengths[sequence % DEPTH] >= BULK_FROM)
			direction->ask_from = pl_now() + ASK_PAUSE;
		return 0;
	}
	direction->ask_from = 0;
	cuda_ended(queue->gpu, direction->clocks[sequence % DEPTH]);
	if (result != CUDA_SUCCESS)
		direction_fail(direction, sequence);
	direction->done = sequence;
	return result == CUDA_SUCCESS ? 1 : -EFAULT;
}
