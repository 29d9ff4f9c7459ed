/* SPDX-License-Identifier: BSD-2-Clause */
/* The ways to get frames through a device. */
#include "bench/workflow/workflow.h"

static const struct flow_arm workflow_arms[] = {
	{ .name = "A", .title = "through host memory" },
	{ .name = "B", .title = "into device memory", .direct = true },
	{ .name = "A'", .title = "A with locked host memory", .pinned = true },
	{ .name = "B'", .title = "B with locked host memory", .direct = true, .pinned = true },
	{ .name = "AO", .title = "A', overlapped", .pinned = true, .overlapped = true },
	{ .name = "BO", .title = "B', overlapped", .direct = true, .pinned = true, .overlapped = true },
	{ .name = "BP",
	  .title = "BO, pushed by the source",
	  .direct = true,
	  .pinned = true,
	  .overlapped = true,
	  .push = true },
};

static const struct flow_arm proxy_arms[] = {
	{ .name = "A", .title = "through host memory", .pinned = true, .proxy = true },
	{ .name = "B", .title = "device memory only", .direct = true, .pinned = true, .proxy = true },
	{ .name = "AO", .title = "A, overlapped", .pinned = true, .overlapped = true, .proxy = true },
	{ .name = "BO", .title = "B, overlapped", .direct = true, .pinned = true, .overlapped = true, .proxy = true },
};

const struct flow_arm *flow_arms(bool proxy, unsigned *count)
{
	*count = proxy ? CLI_ARRAY_SIZE(proxy_arms) : CLI_ARRAY_SIZE(workflow_arms);
	return proxy ? proxy_arms : workflow_arms;
}

unsigned flow_arm_steps(const struct flow_arm *arm)
{
	unsigned steps = 1u << PL_STEP_KERNEL;

	if (!arm->direct)
		steps |= 1u << PL_STEP_TO_DEVICE;
	if (!arm->direct || !arm->proxy)
		steps |= 1u << PL_STEP_TO_HOST;
	return steps;
}
