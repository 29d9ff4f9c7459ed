/* SPDX-License-Identifier: BSD-2-Clause */
/* What can be measured, and what follows from it for memory and receives. */
#include "bench/perf/endpoint.h"

/* Small messages take turns in as much memory, so that caches hold it, as they would in most programs. */
#define WINDOW (4ull << 20)
#define RECEIVES_MAX 512u
#define TURNS_MAX 64u

const char *bench_op_name(enum bench_op op)
{
	static const char *const names[] = {
		[BENCH_WRITE] = "write",
		[BENCH_READ] = "read",
		[BENCH_SEND] = "send",
		[BENCH_FETCH_ADD] = "fetch-add",
		[BENCH_COMPARE_SWAP] = "compare-swap",
		[BENCH_REGISTER] = "register",
		[BENCH_CONNECT] = "connect",
	};

	return op < CLI_ARRAY_SIZE(names) && names[op] ? names[op] : NULL;
}

bool bench_plan_atomic(const struct bench_plan *plan)
{
	return plan->op == BENCH_FETCH_ADD || plan->op == BENCH_COMPARE_SWAP;
}

bool bench_plan_single(const struct bench_plan *plan)
{
	return plan->op == BENCH_REGISTER || plan->op == BENCH_CONNECT;
}

bool bench_plan_spreads(const struct bench_plan *plan)
{
	return !plan->latency && plan->op != BENCH_SEND;
}

uint64_t bench_plan_least(const struct bench_plan *plan)
{
	return bench_plan_pingpong(plan) ? BENCH_SIZE_MARKED : BENCH_SIZE_MIN;
}

bool bench_plan_pingpong(const struct bench_plan *plan)
{
	return plan->latency && (plan->op == BENCH_WRITE || plan->op == BENCH_SEND);
}

uint32_t bench_plan_turns(uint64_t size)
{
	return (uint32_t)CLI_MAX(CLI_MIN(WINDOW / size, TURNS_MAX), 2);
}

bool bench_plan_valid(const struct bench_plan *plan)
{
	if (!bench_op_name(plan->op) || plan->size < bench_plan_least(plan) || plan->size > BENCH_SIZE_MAX)
		return false;
	if (plan->depth < 1 || plan->depth > BENCH_DEPTH_MAX || plan->vector < 1 || plan->vector > PL_TRANSFERS_MAX)
		return false;
	if (plan->vector > 1 && plan->op != BENCH_WRITE && plan->op != BENCH_READ)
		return false;
	if (plan->latency && (plan->both_ways || plan->vector > 1))
		return false;
	if (bench_plan_single(plan) && (!plan->latency || plan->depth != 1))
		return false;
	if (plan->peers < 1 || plan->peers > BENCH_PEERS_MAX || (plan->peers > 1 && !bench_plan_spreads(plan)))
		return false;
	/* Each connection can have a whole list. */
	if (plan->post_list < 1 || (uint64_t)plan->post_list * plan->peers > plan->depth)
		return false;
	if (bench_plan_pingpong(plan) && plan->depth != bench_plan_turns(plan->size))
		return false;
	return !bench_plan_atomic(plan) || plan->size == 8;
}

void bench_plan_layout(const struct bench_plan *plan, struct bench_layout *layout)
{
	uint64_t messages = (uint64_t)plan->depth * plan->vector;

	layout->stride = (plan->size + 63) & ~63ull;
	layout->slots = CLI_MAX(CLI_MIN(WINDOW / layout->stride, messages), 1);
	/* Each operation under way has its own, as it is marked, or counts. */
	if (bench_plan_pingpong(plan) || bench_plan_atomic(plan))
		layout->slots = plan->depth;
	layout->window = layout->slots * layout->stride;
	layout->receives = 0;
	if (plan->op == BENCH_SEND)
		layout->receives = CLI_MIN(plan->depth, RECEIVES_MAX);
}
