/* SPDX-License-Identifier: BSD-2-Clause */
/* Command line of `peerlane bench kv`. */
#include <string.h>

#include "bench/common/arguments.h"
#include "bench/perf/options.h"
#include "bench/perf/perf.h"
#include "bench/perf/requests.h"

#define KV_DURATION (2 * CLI_NS_PER_S)
#define KV_BLOCKS 128u
#define KV_REQUESTS 4u

enum {
	OPTION_BLOCKS = 0x300,
	OPTION_PREPARED,
};

static const struct argp_option kv_options[] = {
	{ NULL, 0, NULL, 0, "Requests:", 1 },
	{ "op", 'o', "OPERATION", 0, "read (default): this decoder reads; write: this prefiller writes", 1 },
	{ "size", 's', "SIZES", 0, "Bytes of a block: 16K, a list such as 4K,64K, or a range such as 4K-256K", 1 },
	{ "blocks", OPTION_BLOCKS, "N", 0, "Blocks of a request (default: 128)", 1 },
	{ "depth", 'd', "N", 0, "Requests in flight with each server (default: 4)", 1 },
	{ "prepared", OPTION_PREPARED, NULL, 0, "Post prepared vectors; else each request lists its blocks anew", 1 },
	{ 0 },
};

static void parse_kv_operation(struct bench_options *options, const char *name, struct argp_state *state)
{
	if (strcmp(name, "read") && strcmp(name, "write"))
		argp_error(state, "--op takes read or write, not '%s'", name);
	options->plan.operation =
		bench_operation_by_code(!strcmp(name, "write") ? BENCH_KV_WRITE : BENCH_KV_READ);
}

static void finish_kv_options(struct bench_options *options, struct argp_state *state)
{
	struct bench_plan plan = options->plan;

	if (plan.touch)
		argp_error(state, "--touch is not for requests of blocks");
	bench_finish_method(options, state);
	bench_finish_sizes(options, state);
	for (uint32_t i = 0; i < options->size_count; i++) {
		plan.size = options->sizes[i];
		if (!bench_plan_valid(&plan))
			argp_error(state,
				   "%u requests of %u blocks of %llu bytes need more than 16 GiB: use less of --depth, "
				   "--blocks or --size",
				   plan.depth, plan.vector, (unsigned long long)plan.size);
	}
}

static error_t parse_kv_option(int key, char *argument, struct argp_state *state)
{
	struct bench_options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = options;
		return 0;
	case ARGP_KEY_ARG:
		bench_add_address(options, argument, state);
		return 0;
	case ARGP_KEY_END:
		finish_kv_options(options, state);
		return 0;
	case 'o':
		parse_kv_operation(options, argument, state);
		return 0;
	case 's':
		options->size_text = argument;
		return 0;
	case OPTION_BLOCKS:
		options->plan.vector = bench_parse_number("blocks", argument, 1, BENCH_BLOCKS_MAX, state);
		return 0;
	case 'd':
		options->plan.depth = bench_parse_number("depth", argument, 1, BENCH_DEPTH_MAX, state);
		return 0;
	case OPTION_PREPARED:
		options->plan.prepared = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_child kv_children[] = {
	{ &bench_method_argp, 0, NULL, 0 },
	{ 0 },
};

static const struct cli_command kv_command = {
	.arguments = "[ADDRESS...]",
	.summary = "Measure requests as between the hosts of an inference engine: scattered blocks of a KV cache are "
		   "read or written, and a notification ends each request.",
	.examples = {
		"peerlane bench kv",
		"peerlane bench kv --key key --op write --blocks 500 --size 8K HOST",
	},
	.notes = "ADDRESS is that of `peerlane bench --server`.  Without ADDRESS, the command starts a server on this "
		 "machine for the measurement.\n",
	.options = kv_options,
	.parse = parse_kv_option,
	.children = kv_children,
	.connection = true,
};

int bench_kv(int argc, char **argv)
{
	struct bench_options options = {
		.plan = { .operation = bench_operation_by_code(BENCH_KV_READ),
			  .depth = KV_REQUESTS,
			  .vector = KV_BLOCKS,
			  .post_list = 1,
			  .connections = 1 },
		.settings = { .duration = KV_DURATION },
		.step = 2,
		.repeat = 1,
		.memory = "host",
		.announce = -1,
		.node = -1,
		.depth_given = true,
		.argc = argc,
		.argv = argv,
	};

	cli_parse(&kv_command, argc, argv, &options.common, &options);
	return bench_measure(&options);
}
