/* SPDX-License-Identifier: BSD-2-Clause */
/* The command line of `peerlane bench`. */
#include "bench/perf/endpoint.h"
#include "bench/matrix/matrix.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "bench/workflow/workflow.h"

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
};

static const struct argp_option bench_options[] = {
	{ NULL, 0, NULL, 0, "What to measure:", 1 },
	{ "op", 'o', "OPERATION", 0,
	  "write (default), read, send, fetch-add or compare-swap; register or connect: what it costs to register "
	  "memory, or to connect",
	  1 },
	{ "bandwidth", 'b', NULL, 0, "Keep many operations under way (default)", 1 },
	{ "latency", 'l', NULL, 0, "One at a time: how long it takes, one way for write and send", 1 },
	{ "both-ways", 'B', NULL, 0, "Both ends at the same time; rates are the sum", 1 },
	{ "size", 's', "SIZES", 0, "1 to 1G: one size, a list such as 8,4K,1M, or a range such as 8-16M", 1 },
	{ "all", 'a', NULL, 0, "All powers of two to 8M", 1 },
	{ "step", OPTION_STEP, "FACTOR", 0, "From one size of a range to the next (default: 2)", 1 },
	{ "depth", 'd', "N", 0, "Operations under way with each server (default: 128, fewer of large ones)", 1 },
	{ "vector", OPTION_VECTOR, "N", 0, "Put N messages into each operation; write and read only", 1 },
	{ "post-list", OPTION_POST_LIST, "N", 0, "Post N operations at once, as one list, once N can be (default: 1)",
	  1 },
	{ "mpi", OPTION_MPI, NULL, 0, "Measure between all pairs of processes that mpirun started (--mpi --help)", 1 },
	{ "peers", OPTION_PEERS, "N", 0, "Connect N times with each server; operations take turns (default: 1)", 1 },
	{ NULL, 0, NULL, 0, "The other end:", 5 },
	{ "server", OPTION_SERVER, NULL, 0, "Be the server, at ADDRESS, until interrupted", 5 },
	{ "once", OPTION_ONCE, NULL, 0, "End after the first client; with --server", 5 },
	{ "announce", OPTION_ANNOUNCE, "FD", OPTION_HIDDEN, NULL, 5 },
	{ 0 },
};

static void parse_op(struct bench_options *options, const char *text, struct argp_state *state)
{
	for (int op = BENCH_WRITE; op <= BENCH_CONNECT; op++) {
		if (!strcmp(text, bench_op_name((enum bench_op)op))) {
			options->plan.op = (enum bench_op)op;
			return;
		}
	}
	argp_error(state, "--op takes write, read, send, fetch-add, compare-swap, register or connect, not '%s'", text);
}

static void finish_single(struct bench_options *options, struct argp_state *state)
{
	struct bench_plan *plan = &options->plan;

	if (plan->both_ways || plan->vector > 1 || options->depth_given || plan->validate || plan->touch ||
	    options->rate_bytes || options->length.rate || options->sample_interval)
		argp_error(state, "--op %s is one at a time: it goes with sizes and iterations only",
			   bench_op_name(plan->op));
	if (plan->op == BENCH_CONNECT && (options->size_text || options->all))
		argp_error(state, "--op connect has no sizes");
	plan->latency = true;
}

static void finish_latency(const struct bench_options *options, struct argp_state *state)
{
	const struct bench_plan *plan = &options->plan;

	if (plan->both_ways)
		argp_error(state, "--latency is one operation at a time: it does not go with --both-ways");
	if (plan->vector > 1 || options->depth_given || plan->post_list > 1)
		argp_error(state, "--latency is one operation at a time: it does not go with --depth, --vector or "
				  "--post-list");
	if (bench_plan_pingpong(plan) && (options->sample_interval || options->rate_bytes || options->length.rate))
		argp_error(state, "messages to and fro go as fast as they can: --latency goes with --rate and "
				  "--samples for reads and atomic operations only");
}

static void finish_addresses(const struct bench_options *options, struct argp_state *state)
{
	const struct bench_plan *plan = &options->plan;

	if (options->server && options->address_count > 1)
		argp_error(state, "--server takes one ADDRESS");
	if (options->address_count > 1 && bench_plan_single(plan))
		argp_error(state, "--op %s is measured with one server: give one ADDRESS after the other",
			   bench_op_name(plan->op));
	if (options->address_count > 1 && bench_plan_pingpong(plan))
		argp_error(state, "messages to and fro have one server: give one ADDRESS after the other, or take "
				  "--op read, which has one under way with each");
	if (CLI_MAX(options->address_count, 1u) * plan->peers > BENCH_PEERS_MAX)
		argp_error(state, "at most %u connections: --peers for each ADDRESS", BENCH_PEERS_MAX);
}

/* What goes together is known once all options are. */
static void finish(struct bench_options *options, struct argp_state *state)
{
	struct bench_plan *plan = &options->plan;

	if (options->once && !options->server)
		argp_error(state, "--once goes with --server");
	if (bench_plan_single(plan))
		finish_single(options, state);
	if (plan->latency)
		finish_latency(options, state);
	if (plan->vector > 1 && plan->op != BENCH_WRITE && plan->op != BENCH_READ)
		argp_error(state, "--vector goes with write and read");
	if (plan->touch && plan->op != BENCH_READ && plan->op != BENCH_SEND && !bench_plan_pingpong(plan))
		argp_error(state,
			   "--touch is for who knows when bytes are there: it goes with read, send and --latency");
	if (plan->peers > 1 && !bench_plan_spreads(plan))
		argp_error(state, "--peers goes with the bandwidth of write, read and atomic operations");
	if (plan->post_list * plan->peers > (options->depth_given ? plan->depth : BENCH_DEPTH_MAX))
		argp_error(state, "--depth is less than a list for each connection: --post-list times --peers");
	finish_addresses(options, state);
	bench_finish_how(options, state);
	bench_finish_sizes(options, state);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct bench_options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = options;
		state->child_inputs[1] = &options->common;
		return 0;
	case OPTION_MPI:
		argp_error(state, "write --mpi in full");
		return 0;
	case ARGP_KEY_ARG:
		if (options->address_count == BENCH_PEERS_MAX)
			argp_error(state, "at most %u addresses, not '%s' too", BENCH_PEERS_MAX, argument);
		options->addresses[options->address_count++] = argument;
		return 0;
	case ARGP_KEY_END:
		finish(options, state);
		return 0;
	case 'o':
		parse_op(options, argument, state);
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
		options->plan.peers = bench_parse_number("peers", argument, 1, BENCH_PEERS_MAX, state);
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

static const struct argp_child children[] = {
	{ &bench_how_argp, 0, NULL, 0 },
	{ &cli_connection_argp, 0, NULL, 0 },
	{ 0 },
};

static const struct argp arguments = {
	bench_options,
	parse,
	"[ADDRESS...]",
	"Measure rate, latency and processor time of operations with the server at ADDRESS, or several at the same "
	"time."
	"\v"
	"Without ADDRESS a server is started on this machine, for as long as it takes.  "
	"ADDRESS is HOST, HOST:PORT or [IPv6]:PORT; the default port is " CLI_DEFAULT_PORT ".\n"
	"\n"
	"Examples:\n"
	"  peerlane bench\n"
	"  peerlane bench --latency --op send --size 8\n"
	"  peerlane bench --memory cuda --size 1G --progress thread\n"
	"  peerlane bench --repeat 7 --json >results.json\n"
	"  peerlane bench --op read --rate 1GB --samples 0.1 --duration 10\n"
	"  peerlane bench --perftest --all\n"
	"  peerlane bench --server --key key               on one host\n"
	"  peerlane bench --key key --size 8-16M HOST      on the other\n"
	"  peerlane bench --key key HOST1 HOST2 HOST3      with three at once\n"
	"\n"
	"There are also, with options of their own (--help shows them):\n"
	"  peerlane bench compare     tell what changed between two results\n"
	"  peerlane bench proxy       frames through a GPU, and on to a third host\n"
	"  peerlane bench workflow    frames through a GPU, in several ways\n",
	children,
	NULL,
	NULL
};

/* Words in place of an ADDRESS that stand for something else to be done. */
static const struct subcommand {
	const char *name;
	int (*run)(int argc, char **argv);
} subcommands[] = {
	{ "compare", bench_compare },
	{ "proxy", bench_proxy },
	{ "workflow", bench_workflow },
};

static const struct subcommand *find_subcommand(const char *name)
{
	for (size_t i = 0; i < CLI_ARRAY_SIZE(subcommands); i++)
		if (!strcmp(subcommands[i].name, name))
			return &subcommands[i];
	return NULL;
}

static int run_subcommand(const struct subcommand *subcommand, int argc, char **argv)
{
	char name[48];

	/* argp shows it as the program's name. */
	snprintf(name, sizeof(name), "peerlane bench %s", subcommand->name);
	argv[1] = name;
	return subcommand->run(argc - 1, argv + 1);
}

/* It has options of its own, and processes that something else started. */
static bool asks_for_mpi(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
		if (!strcmp(argv[i], "--mpi"))
			return true;
	return false;
}

int pl_cli_bench(int argc, char **argv)
{
	struct bench_options options = {
		.plan = { .op = BENCH_WRITE, .depth = BENCH_DEPTH_DEFAULT, .vector = 1, .post_list = 1, .peers = 1 },
		.length = { .duration = DURATION_DEFAULT },
		.step = 2,
		.repeat = 1,
		.manual = true,
		.memory = "host",
		.announce = -1,
		.node = -1,
		.argc = argc,
		.argv = argv,
	};
	const struct subcommand *subcommand;

	if (argc > 1 && (subcommand = find_subcommand(argv[1])))
		return run_subcommand(subcommand, argc, argv);
	if (asks_for_mpi(argc, argv))
		return pl_cli_matrix(argc, argv);
	cli_parse(&arguments, argc, argv, &options);
	return options.server ? bench_serve(&options) : bench_measure(&options);
}
