/* SPDX-License-Identifier: BSD-2-Clause */
/* Queue of copies between host memory and GPU memory: copies that fail while more begin; with the stand-in for the driver. */
#include <stdlib.h>

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

static const bool out_of_gpu = false, into_gpu = true;

static const struct test_case cases[] = {
	{ "failure-found-by-another-copy-out", failure_found_by_another_copy, &out_of_gpu, 30 },
	{ "failure-found-by-another-copy-in", failure_found_by_another_copy, &into_gpu, 30 },
};

int main(void)
{
	return cases_run("gpu-queue", cases, PL_ARRAY_SIZE(cases));
}
