/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/perf/plan.h"

#include "bench/perf/requests.h"
#include "cmd/common/cli.h"

/* Small messages are spread over a window that fits into the processor's caches, as in most programs. */
#define WINDOW (4ull << 20)
#define RECEIVES_MAX 512u
#define PINGPONG_DEPTH_MAX 64u

bool bench_plan_allows_connections(const struct bench_plan *plan)
{
	return !plan->latency && !plan->operation->needs_receive;
}

bool bench_plan_allows_working_set(const struct bench_plan *plan)
{
	const struct bench_operation *operation = plan->operation;

	/* Latency needs a slot that both ends know, also where one message is in flight. */
	return !(plan->latency && operation->pingpong) && !operation->atomic && !operation->scattered &&
	       !bench_operation_sequential(operation);
}

uint64_t bench_plan_min_size(const struct bench_plan *plan)
{
	return bench_plan_pingpong(plan) ? BENCH_SIZE_MARKED : BENCH_SIZE_MIN;
}

bool bench_plan_pingpong(const struct bench_plan *plan)
{
	return plan->latency && plan->operation->pingpong && plan->depth != 1;
}

uint32_t bench_plan_pingpong_depth(uint64_t size)
{
	return (uint32_t)CLI_MAX(CLI_MIN(WINDOW / size, PINGPONG_DEPTH_MAX), 2);
}

static uint64_t slot_stride(const struct bench_plan *plan)
{
	return (plan->size + 63) & ~63ull;
}

/* Each request in flight has blocks of its own, so the plan decides how much memory both ends allocate. */
static bool scattered_plan_valid(const struct bench_plan *plan)
{
	uint64_t slots = (uint64_t)plan->depth * plan->vector;

	return plan->vector <= BENCH_BLOCKS_MAX && slot_stride(plan) <= BENCH_POOL_MAX / slots && !plan->latency &&
	       !plan->both_ways && plan->connections == 1 && plan->post_list == 1;
}

bool bench_plan_valid(const struct bench_plan *plan)
{
	if (!plan->operation || plan->size < bench_plan_min_size(plan) || plan->size > BENCH_SIZE_MAX)
		return false;
	if (plan->depth < 1 || plan->depth > BENCH_DEPTH_MAX || plan->vector < 1 || plan->vector > PL_TRANSFERS_MAX)
		return false;
	if (plan->operation->scattered && !scattered_plan_valid(plan))
		return false;
	if (plan->vector > 1 && !plan->operation->vectors)
		return false;
	if (plan->working_set && (plan->working_set > BENCH_WORKING_SET_MAX || !bench_plan_allows_working_set(plan)))
		return false;
	if (plan->latency && (plan->both_ways || plan->vector > 1))
		return false;
	if (bench_operation_sequential(plan->operation) && (!plan->latency || plan->depth != 1))
		return false;
	if (plan->connections < 1 || plan->connections > BENCH_CONNECTIONS_MAX ||
	    (plan->connections > 1 && !bench_plan_allows_connections(plan)))
		return false;
	/* Each connection has room for a whole list. */
	if (plan->post_list < 1 || (uint64_t)plan->post_list * plan->connections > plan->depth)
		return false;
	if (bench_plan_pingpong(plan) && plan->depth != bench_plan_pingpong_depth(plan->size))
		return false;
	return !plan->operation->size || plan->size == plan->operation->size;
}

void bench_plan_layout(const struct bench_plan *plan, struct bench_layout *layout)
{
	uint64_t messages = (uint64_t)plan->depth * plan->vector, slots;

	layout->stride = slot_stride(plan);
	slots = plan->working_set ? plan->working_set / layout->stride : CLI_MIN(WINDOW / layout->stride, messages);
	layout->slots = CLI_MAX(slots, 1);
	/* Each operation in flight has a slot of its own, for its marker or its counter. */
	if (bench_plan_pingpong(plan) || plan->operation->atomic)
		layout->slots = plan->depth;
	if (plan->operation->scattered)
		layout->slots = messages;
	layout->window = layout->slots * layout->stride;
	layout->receives = 0;
	if (plan->operation->needs_receive)
		layout->receives = CLI_MIN(plan->depth, RECEIVES_MAX);
	layout->turns = plan->working_set && layout->slots > (layout->receives ? layout->receives : messages);
}
