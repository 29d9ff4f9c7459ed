/* SPDX-License-Identifier: BSD-2-Clause */
/* --size: one size, a list, a range. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/perf/options.h"
#include "cmd/common/units.h"

#define BANDWIDTH_SIZES "8,4K,64K,1M,16M"
#define LATENCY_SIZES "8,4K,64K"
#define FIXED_SIZE "8" /* of atomic operations; of operations without sizes, for their rows */

static void refuse_size(const struct bench_options *options, uint64_t size, struct argp_state *state)
{
	argp_error(state, "--size takes sizes from %llu to 1G%s, not %llu",
		   (unsigned long long)bench_plan_min_size(&options->plan),
		   bench_plan_pingpong(&options->plan) ? " for this latency" : "", (unsigned long long)size);
}

static void add_bench_size(struct bench_options *options, uint64_t size, struct argp_state *state)
{
	if (size < bench_plan_min_size(&options->plan) || size > BENCH_SIZE_MAX)
		refuse_size(options, size, state);
	if (options->size_count == BENCH_SIZES_MAX)
		argp_error(state, "--size takes up to %u sizes", BENCH_SIZES_MAX);
	options->sizes[options->size_count++] = size;
}

static uint64_t parse_size_bound(const char *text, const char *whole, struct argp_state *state)
{
	uint64_t size = 0;

	if (cli_parse_size(text, &size))
		argp_error(state, "--size takes sizes such as 8, 64K, 8-16M or 8,4K,1M, not '%s' in '%s'", text, whole);
	return size;
}

/* Adds one member of the list: a size, or a range. */
static void parse_size_range(struct bench_options *options, char *text, struct argp_state *state)
{
	char *dash = strchr(text, '-');
	const char *whole = options->size_text ? options->size_text : text;
	uint64_t first, last;

	if (dash)
		*dash = '\0';
	first = last = parse_size_bound(text, whole, state);
	if (dash)
		last = parse_size_bound(dash + 1, whole, state);
	if (first > last)
		argp_error(state, "--size: the end of the range is below its beginning");
	/* Size 0 would make the loop below endless. */
	if (first == 0)
		refuse_size(options, first, state);
	for (uint64_t size = first; size <= last; size *= options->step)
		add_bench_size(options, size, state);
}

static const char *default_size_list(const struct bench_options *options)
{
	const struct bench_plan *plan = &options->plan;

	if (plan->operation->size || plan->operation->no_sizes)
		return FIXED_SIZE;
	if (options->all)
		return bench_plan_pingpong(plan) ? "8-8M" : "2-8M";
	if (plan->operation->default_sizes)
		return plan->operation->default_sizes;
	if (options->perftest)
		return !plan->latency ? "64K" : bench_plan_pingpong(plan) ? "8" : "2";
	return plan->latency ? LATENCY_SIZES : BANDWIDTH_SIZES;
}

void bench_finish_sizes(struct bench_options *options, struct argp_state *state)
{
	const struct bench_operation *operation = options->plan.operation;
	const char *text = options->size_text ? options->size_text : default_size_list(options);
	char *copy, *rest, *at;

	rest = copy = strdup(text);
	if (!copy)
		argp_failure(state, CLI_FAILED, ENOMEM, "--size");
	while ((at = strsep(&rest, ",")))
		parse_size_range(options, at, state);
	free(copy);
	for (uint32_t i = 0; operation->size && i < options->size_count; i++)
		if (options->sizes[i] != operation->size)
			argp_error(state, "--op %s takes --size %llu only", operation->name,
				   (unsigned long long)operation->size);
}
