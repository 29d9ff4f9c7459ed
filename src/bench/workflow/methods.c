/* SPDX-License-Identifier: BSD-2-Clause */
/* Methods of getting frames through a device. */
#include "bench/workflow/workflow.h"

static const struct workflow_method local_methods[] = {
	{ .name = "A", .title = "through host memory" },
	{ .name = "B", .title = "into device memory", .direct = true },
	{ .name = "A'", .title = "A with pinned host memory", .pinned = true },
	{ .name = "B'", .title = "B with pinned host memory", .direct = true, .pinned = true },
	{ .name = "AO", .title = "A', overlapped", .pinned = true, .overlapped = true },
	{ .name = "BO", .title = "B', overlapped", .direct = true, .pinned = true, .overlapped = true },
	{ .name = "BP",
	  .title = "BO, written by the source",
	  .direct = true,
	  .pinned = true,
	  .overlapped = true,
	  .push = true },
	{ .name = "S", .title = "BO, of a stream", .direct = true, .pinned = true, .overlapped = true, .stream = true },
};

static const struct workflow_method proxy_methods[] = {
	{ .name = "A", .title = "through host memory", .pinned = true, .proxy = true },
	{ .name = "B", .title = "device memory only", .direct = true, .pinned = true, .proxy = true },
	{ .name = "AO", .title = "A, overlapped", .pinned = true, .overlapped = true, .proxy = true },
	{ .name = "BO", .title = "B, overlapped", .direct = true, .pinned = true, .overlapped = true, .proxy = true },
};

const struct workflow_method *workflow_methods(bool proxy, unsigned *count)
{
	*count = proxy ? CLI_ARRAY_SIZE(proxy_methods) : CLI_ARRAY_SIZE(local_methods);
	return proxy ? proxy_methods : local_methods;
}

unsigned workflow_method_steps(const struct workflow_method *method)
{
	unsigned steps = 1u << PL_STEP_KERNEL;

	if (!method->direct)
		steps |= 1u << PL_STEP_TO_DEVICE;
	if (!method->direct || !method->proxy)
		steps |= 1u << PL_STEP_TO_HOST;
	return steps;
}
