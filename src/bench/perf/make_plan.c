/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/perf/make_plan.h"

#include <string.h>
#include <sys/random.h>

/* Default of bytes in flight on a connection, and the least number of operations, which keep it busy. */
#define BYTES_IN_FLIGHT (64ull << 20)
/* The same with memory of a device at an end: its bytes pass through more stages on their way. */
#define BYTES_IN_FLIGHT_DEVICE (128ull << 20)
#define OPERATIONS_IN_FLIGHT_MIN 4u
#define WARMUP_BYTES (128ull << 20)
#define WARMUP_MAX 1000u
#define WARMUP_MIN 4u

/* True if either end has memory of a device. */
static bool uses_device(const struct bench_report *report, const char *memory)
{
	bool device = strcmp(memory, "host") != 0;

	for (uint32_t i = 0; i < report->server_count; i++)
		device |= strcmp(report->servers[i].memory, "host") != 0;
	return device;
}

/*
 * The receiver of a written message looks for it in memory. Each look at a device's memory is a copy that takes as long as the
 * write, so the latency of such writes ends with their completion. --touch asks for the receiver's time too.
 */
static uint32_t latency_depth(const struct bench_report *report, const struct bench_plan *plan, const char *memory)
{
	bool writes = !plan->operation->needs_receive;

	if (!bench_plan_pingpong(plan) || (writes && uses_device(report, memory) && !plan->touch))
		return 1;
	return bench_plan_pingpong_depth(plan->size);
}

struct bench_plan bench_make_plan(const struct bench_options *options, const struct bench_report *report,
				  const char *memory, uint64_t size)
{
	struct bench_plan plan = options->plan;
	uint64_t bytes = size * plan.vector;
	uint64_t in_flight = uses_device(report, memory) ? BYTES_IN_FLIGHT_DEVICE : BYTES_IN_FLIGHT;

	plan.size = size;
	if (!options->depth_given)
		plan.depth = (uint32_t)CLI_MIN(
			BENCH_DEPTH_MAX,
			plan.connections *
				CLI_MIN(BENCH_DEPTH_DEFAULT, CLI_MAX(in_flight / bytes, OPERATIONS_IN_FLIGHT_MIN)));
	if (plan.latency)
		plan.depth = latency_depth(report, &plan, memory);
	/* Each connection has room for a whole list. */
	if (!plan.latency && !options->depth_given)
		plan.depth = CLI_MAX(plan.depth, plan.connections * plan.post_list);
	return plan;
}

struct bench_run_settings bench_make_settings(const struct bench_options *options, const struct bench_plan *plan)
{
	struct bench_run_settings settings = options->settings;
	uint64_t operations = WARMUP_BYTES / (plan->size * plan->vector);

	if (!options->warmup_given)
		settings.warmup = CLI_MIN(CLI_MAX(operations, WARMUP_MIN), WARMUP_MAX);
	if (options->rate_bytes)
		settings.rate = CLI_MAX(options->rate_bytes * 1000 / (plan->size * plan->vector), 1);
	if (getrandom(&settings.seed, sizeof(settings.seed), 0) != (ssize_t)sizeof(settings.seed))
		settings.seed = cli_now();
	return settings;
}
