/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue of copies between host memory and GPU memory: copies that fail while more begin; with the stand-in for the driver. */
#include <pthread.h>
#include <stdlib.h>

#include "memory/cuda/cuda.h"
#include "memory/memory.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"
#include "support/process.h"

/* Copies that one direction of a queue can have under way. */
#define DEPTH 64u
#define LENGTH ((size_t)4096)
/* Last of the copies that fail. */
#define FAILED 2u

/* Copies of this size and more are asked for once in so many nanoseconds. */
#define BULK ((size_t)64 << 10)
#define ASK_PAUSE 3000u
/* Longer than a case may run, in microseconds. */
#define HELD 100000000u

/* Returns the number of questions to the driver in many looks for the end of a copy that does not end; their time in *time. */
static unsigned asked_for_held_copy(struct pl_memory *memory, struct pl_copy_queue *queue, void *host, size_t length,
				    unsigned looks, uint64_t *time)
{
	unsigned asked = gpu_standin.asked();
	uint64_t sequence;

	gpu_standin.delay(HELD);
	check_number(memory->ops->queue_begin(queue, memory, 0, host, length, true, &sequence), 0);
	*time = pl_now();
	for (unsigned i = 0; i < looks; i++)
		check_number(memory->ops->queue_done(queue, true, sequence, false), 0);
	*time = pl_now() - *time;
	asked = gpu_standin.asked() - asked;
	gpu_standin.delay(0);
	check_number(memory->ops->queue_done(queue, true, sequence, true), 1);
	return asked;
}

/* Each question about a copy costs calls of the driver, for which other threads wait. A small copy ends soon, so it is asked for at once. */
static void bulk_copies_are_asked_for_rarely(void *unused)
{
	enum { LOOKS = 20000 };
	struct pl_memory memory = { 0 };
	struct pl_copy_queue *queue;
	struct pl_error error;
	uint64_t time;
	uint8_t *host;
	void *device;

	(void)unused;
	if (!gpu_open("alloc"))
		exit(SKIPPED);
	gpu_standin_find();
	gpu_standin_need();
	device = gpu_allocate(BULK);
	host = aligned_alloc(4096, BULK);
	check(host);
	memset(host, 1, BULK);
	gpu_pin(host, BULK);
	check_ok(pl_memory_attach(&memory, device, BULK, &error), &error);
	check_ok(memory.ops->queue_open(&memory, &queue, &error), &error);
	check(asked_for_held_copy(&memory, queue, host, BULK, LOOKS, &time) <= time / ASK_PAUSE + 1);
	check_number(asked_for_held_copy(&memory, queue, host, LENGTH, LOOKS, &time), LOOKS);
	memory.ops->queue_close(queue);
	pl_memory_release(&memory);
	gpu_unpin(host);
	gpu_free(device);
	free(host);
}

/* The queue waits for its oldest copy, to have room for another one. The owner of a copy that failed then learns of it later. */
static void failure_found_by_another_copy(void *argument)
{
	const bool into = *(const bool *)argument;
	struct pl_memory memory = { 0 };
	struct pl_copy_queue *queue;
	struct pl_error error;
	uint64_t sequence;
	uint8_t *host;
	void *device;

	if (!gpu_open("alloc"))
		exit(SKIPPED);
	gpu_standin_find();
	gpu_standin_need();
	device = gpu_allocate(LENGTH);
	host = aligned_alloc(4096, LENGTH);
	check(host);
	memset(host, 1, LENGTH);
	gpu_pin(host, LENGTH);
	check_ok(pl_memory_attach(&memory, device, LENGTH, &error), &error);
	check_ok(memory.ops->queue_open(&memory, &queue, &error), &error);
	gpu_standin.fail("copy", 0, FAILED, 700);
	for (uint64_t i = 1; i <= DEPTH + FAILED; i++) {
		check_number(memory.ops->queue_begin(queue, &memory, 0, host, LENGTH, into, &sequence), 0);
		check_number(sequence, i);
	}
	for (uint64_t i = 1; i <= DEPTH + FAILED; i++)
		check_number(memory.ops->queue_done(queue, into, i, true), i <= FAILED ? -EFAULT : 1);
	memory.ops->queue_close(queue);
	pl_memory_release(&memory);
	gpu_unpin(host);
	gpu_free(device);
	free(host);
}

/*
 * A GPU has another number after its last memory was released, although its structure may have the same address. So other
 * processes' memory that was opened for one GPU is not taken for another's.
 */
static void numbers_are_not_used_again(void *unused)
{
	enum { TIMES = 64 };
	uint64_t numbers[TIMES];
	struct pl_memory memory;
	struct pl_error error;
	void *device;

	(void)unused;
	if (!gpu_open("alloc"))
		exit(SKIPPED);
	device = gpu_allocate(LENGTH);
	for (unsigned i = 0; i < TIMES; i++) {
		memory = (struct pl_memory){ 0 };
		check_ok(pl_memory_attach(&memory, device, LENGTH, &error), &error);
		numbers[i] = memory.device;
		check(numbers[i]);
		for (unsigned k = 0; k < i; k++)
			check(numbers[k] != numbers[i]);
		pl_memory_release(&memory);
	}
	gpu_free(device);
}

struct synchronizer {
	const struct cuda_driver *driver;
	CUcontext context;
	CUstream stream;
	CUresult result;
};

static void *synchronize(void *argument)
{
	struct synchronizer *by = argument;
	int mode;

	check_number(cuda_enter_context(by->driver, by->context, &mode), CUDA_SUCCESS);
	by->result = by->driver->cuStreamSynchronize(by->stream);
	cuda_leave_context(by->driver, mode);
	return NULL;
}

/* Threads that copy on one stream learn of their own copies from the stand-in, also if another thread waits first. */
static void failure_is_of_its_thread(void *unused)
{
	struct synchronizer mine = { 0 }, other;
	CUdeviceptr device;
	CUdevice gpu;
	uint8_t *host;
	pthread_t thread;
	int mode, before;

	(void)unused;
	if (!gpu_open("alloc"))
		exit(SKIPPED);
	gpu_standin_find();
	gpu_standin_need();
	mine.driver = cuda_driver_loaded();
	check(mine.driver);
	host = calloc(1, LENGTH);
	check(host);
	before = cuda_relax(mine.driver);
	check_number(mine.driver->cuDeviceGet(&gpu, 0), CUDA_SUCCESS);
	check_number(mine.driver->cuDevicePrimaryCtxRetain(&mine.context, gpu), CUDA_SUCCESS);
	check_number(cuda_enter_context(mine.driver, mine.context, &mode), CUDA_SUCCESS);
	check_number(mine.driver->cuStreamCreate(&mine.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	check_number(mine.driver->cuMemAlloc(&device, LENGTH), CUDA_SUCCESS);
	check_number(mine.driver->cuMemHostRegister(host, LENGTH, 0), CUDA_SUCCESS);
	other = mine;
	gpu_standin.fail("copy", 0, 1, 700);
	check_number(mine.driver->cuMemcpyHtoDAsync(device, host, LENGTH, mine.stream), CUDA_SUCCESS);
	check(!pthread_create(&thread, NULL, synchronize, &other));
	check(!pthread_join(thread, NULL));
	check_number(other.result, CUDA_SUCCESS);
	check_number(mine.driver->cuStreamSynchronize(mine.stream), 700);
	check_number(mine.driver->cuStreamSynchronize(mine.stream), CUDA_SUCCESS);
	mine.driver->cuMemHostUnregister(host);
	mine.driver->cuMemFree(device);
	mine.driver->cuStreamDestroy(mine.stream);
	cuda_leave_context(mine.driver, mode);
	mine.driver->cuDevicePrimaryCtxRelease(gpu);
	cuda_unrelax(mine.driver, before);
	free(host);
}

static const bool out_of_gpu = false, into_gpu = true;

static const struct test_case cases[] = {
	{ "failure-found-by-another-copy-out", failure_found_by_another_copy, &out_of_gpu, 30 },
	{ "failure-found-by-another-copy-in", failure_found_by_another_copy, &into_gpu, 30 },
	{ "numbers-are-not-used-again", numbers_are_not_used_again, NULL, 30 },
	{ "failure-is-of-its-thread", failure_is_of_its_thread, NULL, 30 },
	{ "bulk-copies-are-asked-for-rarely", bulk_copies_are_asked_for_rarely, NULL, 60 },
};

int main(void)
{
	return cases_run("gpu-queue", cases, PL_ARRAY_SIZE(cases));
}
