/* SPDX-License-Identifier: BSD-2-Clause */
/* Kept lists of a GPU, whose memory the caller releases first; with the stand-in for the driver. */
#include <stdlib.h>

#include "memory/memory.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/gpu.h"
#include "support/gpu_standin.h"
#include "support/process.h"

/* The last memory of a GPU is that of another process, which takes it back: the GPU stays until the list is forgotten. */
static void list_outlives_memory(void *unused)
{
	struct pl_gather_range range = { .length = 64 };
	const struct pl_memory_ops *ops;
	struct pl_gather_list *list;
	struct pl_memory memory;
	struct pl_error error;
	size_t locked;

	(void)unused;
	if (!gpu_open("alloc"))
		exit(SKIPPED);
	gpu_standin_find();
	gpu_standin_need();
	check_ok(pl_memory_allocate(&memory, "cuda:0", 4096, &error), &error);
	ops = memory.ops;
	ops->gather_prepare(&memory);
	/* Waits for the kernel that loading has launched. */
	gpu_free(gpu_allocate(4096));
	locked = gpu_standin.pinned();
	check(locked);
	range.to = range.from = (uintptr_t)memory.address;
	list = ops->gather_keep(&memory, &range, 1);
	check(list);
	pl_memory_release(&memory);
	check_number(gpu_standin.pinned(), locked);
	ops->gather_forget(list);
	check_number(gpu_standin.pinned(), 0);
}

static const struct test_case cases[] = {
	{ "list-outlives-memory", list_outlives_memory, NULL, 30 },
};

int main(void)
{
	return cases_run("gpu-list", cases, sizeof(cases) / sizeof(cases[0]));
}
