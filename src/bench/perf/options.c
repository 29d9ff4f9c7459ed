/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/perf/options.h"

#include <limits.h>
#include <string.h>

#include "bench/common/arguments.h"
#include "bench/perf/perf.h"

#define DURATION_DEFAULT (2 * CLI_NS_PER_S)

enum {
	OPTION_STEP = 0x200,
	OPTION_VECTOR,
	OPTION_POST_LIST,
	OPTION_PEERS,
	OPTION_SERVER,
	OPTION_ONCE,
	OPTION_ANNOUNCE,
	OPTION_MPI,
	OPTION_MATRIX,
};

static const struct argp_option bench_options[] = {
	{ NULL, 0, NULL, 0, "Operation and sizes:", 1 },
	{ "op", 'o', "OPERATION", 0,
	  "write (default), read, send, fetch-add or compare-swap; register: cost of registering memory; connect: cost "
	  "of connecting",
	  1 },
	{ "bandwidth", 'b', NULL, 0, "Keep many operations in flight (default)", 1 },
	{ "latency", 'l', NULL, 0,
	  "One operation at a time; for write and send half the round-trip time, for writes of GPU memory the time "
	  "until the completion",
	  1 },
	{ "both-ways", 'B', NULL, 0, "Transmit in both directions at the same time; rates are the sum", 1 },
	{ "size", 's', "SIZES", 0, "1 to 1G: one size, a list such as 8,4K,1M, or a range such as 8-16M", 1 },
	{ "all", 'a', NULL, 0, "All powers of two up to 8M", 1 },
	{ "step", OPTION_STEP, "FACTOR", 0, "Factor between sizes of a range (default: 2)", 1 },
	{ "depth", 'd', "N", 0, "Operations in flight with each server (default: 128 a connection, fewer if large)",
	  1 },
	{ "vector", OPTION_VECTOR, "N", 0, "Messages in each operation; write and read only", 1 },
	{ "post-list", OPTION_POST_LIST, "N", 0, "Post operations in lists of N (default: 1)", 1 },
	{ "matrix", OPTION_MATRIX, NULL, 0, "Measure between all pairs of many hosts (--matrix --help)", 1 },
	{ "mpi", OPTION_MPI, NULL, 0, "Measure between all pairs of processes that mpirun started (--mpi --help)", 1 },
	{ "peers", OPTION_PEERS, "N", 0, "Connections to each server, used in turn (default: 1)", 1 },
	{ NULL, 0, NULL, 0, "Server:", 5 },
	{ "server", OPTION_SERVER, NULL, 0, "Serve clients at ADDRESS until interrupted", 5 },
	{ "once", OPTION_ONCE, NULL, 0, "With --server: exit after the first client", 5 },
	{ "announce", OPTION_ANNOUNCE, "FD", OPTION_HIDDEN, NULL, 5 },
	{ 0 },
};

static void parse_operation(struct bench_options *options, const char *name, struct argp_state *state)
{
	const struct bench_operation *operation = bench_operation_by_name(name);
	char names[200];

	if (operation)
		options->plan.operation = operation;
	else
		argp_error(state, "--op takes %s, not '%s'", bench_operation_names(names, sizeof(names)), name);
}

static void check_sequential_options(struct bench_options *options, struct argp_state *state)
{
	struct bench_plan *plan = &options->plan;

	if (plan->both_ways || plan->vector > 1 || options->depth_given || plan->validate || plan->touch ||
	    options->rate_bytes || options->settings.rate || options->sample_interval)
		argp_error(state, "--op %s runs one operation after the other: only sizes and iterations can be chosen",
			   plan->operation->name);
	if (plan->operation->no_sizes && (options->size_text || options->all))
		argp_error(state, "--op %s has no sizes", plan->operation->name);
	plan->latency = true;
}

static void check_latency_options(const struct bench_options *options, struct argp_state *state)
{
	const struct bench_plan *plan = &options->plan;

	if (plan->both_ways)
		argp_error(state, "--latency and --both-ways exclude each other");
	if (plan->vector > 1 || options->depth_given || plan->post_list > 1)
		argp_error(state, "--latency has one operation in flight: --depth, --vector and --post-list are not "
				  "allowed");
	if (bench_plan_pingpong(plan) && (options->sample_interval || options->rate_bytes || options->settings.rate))
		argp_error(state, "--latency allows --rate and --samples for reads and atomic operations only");
}

static void check_address_options(const struct bench_options *options, struct argp_state *state)
{
	const struct bench_plan *plan = &options->plan;

	if (options->server && options->address_count > 1)
		argp_error(state, "--server takes one ADDRESS");
	if (options->address_count > 1 && bench_operation_sequential(plan->operation))
		argp_error(state, "--op %s takes a single ADDRESS", plan->operation->name);
	if (options->address_count > 1 && bench_plan_pingpong(plan))
		argp_error(state, "--latency of --op %s takes a single ADDRESS; --op read allows several",
			   plan->operation->name);
	if (CLI_MAX(options->address_count, 1u) * plan->connections > BENCH_CONNECTIONS_MAX)
		argp_error(state, "at most %u connections: --peers for each ADDRESS", BENCH_CONNECTIONS_MAX);
}

/* Checks combinations, once all options are known. */
static void finish_options(struct bench_options *options, struct argp_state *state)
{
	struct bench_plan *plan = &options->plan;
	const struct bench_operation *operation = plan->operation;

	if (options->once && !options->server)
		argp_error(state, "--once needs --server");
	if (bench_operation_sequential(operation))
		check_sequential_options(options, state);
	if (plan->latency)
		check_latency_options(options, state);
	if (plan->vector > 1 && !operation->vectors)
		argp_error(state, "--vector is for write and read");
	/* The receiver must know when the bytes have arrived. */
	if (plan->touch && !operation->reads && !operation->needs_receive && !bench_plan_pingpong(plan))
		argp_error(state, "--touch is for read, send and --latency");
	if (plan->connections > 1 && !bench_plan_allows_connections(plan))
		argp_error(state, "--peers is for the bandwidth of write, read and atomic operations");
	if (plan->post_list * plan->connections > (options->depth_given ? plan->depth : BENCH_DEPTH_MAX))
		argp_error(state, "--depth is less than --post-list times --peers");
	check_address_options(options, state);
	bench_finish_method(options, state);
	bench_finish_sizes(options, state);
}

static error_t parse_bench_server_option(int key, char *argument, struct argp_state *state)
{
	struct bench_options *options = state->input;

	switch (key) {
	case OPTION_MPI:
	case OPTION_MATRIX:
		argp_error(state, "--mpi and --matrix must not be abbreviated");
		return 0;
	case OPTION_SERVER:
		options->server = true;
		return 0;
	case OPTION_ONCE:
		options->once = true;
		return 0;
	case OPTION_ANNOUNCE:
		options->announce = (int)bench_parse_number("announce", argument, 0, INT_MAX, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void bench_add_address(struct bench_options *options, const char *address, struct argp_state *state)
{
	if (options->address_count == BENCH_CONNECTIONS_MAX)
		argp_error(state, "'%s': at most %u addresses", address, BENCH_CONNECTIONS_MAX);
	options->addresses[options->address_count++] = address;
}

static error_t parse_bench_option(int key, char *argument, struct argp_state *state)
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
		finish_options(options, state);
		return 0;
	case 'o':
		parse_operation(options, argument, state);
		return 0;
	case 'b':
	case 'l':
		options->plan.latency = key == 'l';
		return 0;
	case 'B':
		options->plan.both_ways = true;
		return 0;
	case 's':
		options->size_text = argument;
		return 0;
	case OPTION_STEP:
		options->step = bench_parse_number("step", argument, 2, 1024, state);
		return 0;
	case 'd':
		options->plan.depth = bench_parse_number("depth", argument, 1, BENCH_DEPTH_MAX, state);
		options->depth_given = true;
		return 0;
	case OPTION_VECTOR:
		options->plan.vector = bench_parse_number("vector", argument, 1, PL_TRANSFERS_MAX, state);
		return 0;
	case 'a':
		options->all = true;
		return 0;
	case OPTION_POST_LIST:
		options->plan.post_list = bench_parse_number("post-list", argument, 1, BENCH_DEPTH_MAX, state);
		return 0;
	case OPTION_PEERS:
		options->plan.connections = bench_parse_number("peers", argument, 1, BENCH_CONNECTIONS_MAX, state);
		return 0;
	default:
		return parse_bench_server_option(key, argument, state);
	}
}

static const struct argp_child bench_children[] = {
	{ &bench_method_argp, 0, NULL, 0 },
	{ 0 },
};

static const struct cli_command bench_command = {
	.arguments = "[ADDRESS...]",
	.summary = "Measure rate, latency and processor time of operations with the server at ADDRESS, or with several "
		   "servers at the same time.",
	.examples = {
		"peerlane bench --latency --op send --size 8",
		"peerlane bench --key key --size 8-16M HOST",
	},
	.notes = "Without ADDRESS, the command starts a server on this machine for the measurement.  "
		 "ADDRESS is HOST, HOST:PORT or [IPv6]:PORT; the default port is " CLI_DEFAULT_PORT ".\n"
		 "\n"
		 "Other measurements, with options of their own (see their --help):\n"
		 "  peerlane bench compare     compare two results\n"
		 "  peerlane bench kv          blocks of a KV cache, with notifications\n"
		 "  peerlane bench proxy       frames through a GPU to a third host\n"
		 "  peerlane bench workflow    frames through a GPU, by several methods\n",
	.options = bench_options,
	.parse = parse_bench_option,
	.children = bench_children,
	.connection = true,
};

int bench_perf(int argc, char **argv)
{
	struct bench_options options = {
		.plan = { .operation = bench_operation_by_name("write"),
			  .depth = BENCH_DEPTH_DEFAULT,
			  .vector = 1,
			  .post_list = 1,
			  .connections = 1 },
		.settings = { .duration = DURATION_DEFAULT },
		.step = 2,
		.repeat = 1,
		.manual = true,
		.memory = "host",
		.announce = -1,
		.node = -1,
		.argc = argc,
		.argv = argv,
	};

	cli_parse(&bench_command, argc, argv, &options.common, &options);
	return options.server ? bench_serve(&options) : bench_measure(&options);
}
