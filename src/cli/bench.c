/* SPDX-License-Identifier: BSD-2-Clause */
/* The command line of `peerlane bench`. */
#include "cli/bench.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli/units.h"
#include "cli/workflow.h"

#define BANDWIDTH_SIZES "8,4K,64K,1M,16M"
#define LATENCY_SIZES "8,4K,64K"
#define DURATION_DEFAULT (2 * CLI_NS_PER_S)

enum {
	OPTION_STEP = 0x200,
	OPTION_DURATION,
	OPTION_PROGRESS,
	OPTION_VECTOR,
	OPTION_WARMUP,
	OPTION_VALIDATE,
	OPTION_REPEAT,
	OPTION_SERVER,
	OPTION_ONCE,
	OPTION_ANNOUNCE,
	OPTION_MEMORY,
};

static const struct argp_option bench_options[] = {
	{ NULL, 0, NULL, 0, "What to measure:", 1 },
	{ "op", 'o', "OPERATION", 0, "write (default), read, send, fetch-add or compare-swap", 1 },
	{ "bandwidth", 'b', NULL, 0, "Keep many operations under way (default)", 1 },
	{ "latency", 'l', NULL, 0, "One at a time: how long it takes, one way for write and send", 1 },
	{ "both-ways", 'B', NULL, 0, "Both ends at the same time; rates are the sum", 1 },
	{ "size", 's', "SIZES", 0, "8 to 1G: one size, a list such as 8,4K,1M, or a range such as 8-16M", 1 },
	{ "step", OPTION_STEP, "FACTOR", 0, "From one size of a range to the next (default: 2)", 1 },
	{ "depth", 'd', "N", 0, "Operations under way (default: 128, fewer of large ones)", 1 },
	{ "vector", OPTION_VECTOR, "N", 0, "Put N messages into each operation; write and read only", 1 },
	{ NULL, 0, NULL, 0, "How long, and how:", 2 },
	{ "duration", OPTION_DURATION, "SECONDS", 0, "Measure each size for so long (default: 2)", 2 },
	{ "iterations", 'n', "N", 0, "Measure so many operations instead", 2 },
	{ "warmup", OPTION_WARMUP, "N", 0, "Operations before, not measured (default: up to 1000)", 2 },
	{ "repeat", OPTION_REPEAT, "N", 0, "Run each size N times and take the median run", 2 },
	{ "validate", OPTION_VALIDATE, NULL, 0, "Compare what arrived with what was sent, outside the time measured",
	  2 },
	{ "progress", OPTION_PROGRESS, "HOW", 0, "manual: this program polls (default); thread: the library's threads",
	  2 },
	{ "memory", OPTION_MEMORY, "KIND", 0,
	  "Where this end's bytes are: host (default), cuda or cuda:1 for a GPU; the same for a server started here",
	  2 },
	{ NULL, 0, NULL, 0, "The other end:", 3 },
	{ "server", OPTION_SERVER, NULL, 0, "Be the server, at ADDRESS, until interrupted", 3 },
	{ "once", OPTION_ONCE, NULL, 0, "End after the first client; with --server", 3 },
	{ "announce", OPTION_ANNOUNCE, "FD", OPTION_HIDDEN, NULL, 3 },
	{ 0 },
};

static void parse_op(struct bench_options *options, const char *text, struct argp_state *state)
{
	for (int op = BENCH_WRITE; op <= BENCH_COMPARE_SWAP; op++) {
		if (!strcmp(text, bench_op_name((enum bench_op)op))) {
			options->plan.op = (enum bench_op)op;
			return;
		}
	}
	argp_error(state, "--op takes write, read, send, fetch-add or compare-swap, not '%s'", text);
}

static void add_size(struct bench_options *options, uint64_t size, struct argp_state *state)
{
	if (size < BENCH_SIZE_MIN || size > BENCH_SIZE_MAX)
		argp_error(state, "--size takes sizes from 8 to 1G");
	if (options->size_count == BENCH_SIZES_MAX)
		argp_error(state, "--size takes up to %u sizes", BENCH_SIZES_MAX);
	options->sizes[options->size_count++] = size;
}

static uint64_t parse_size(const char *text, struct argp_state *state)
{
	uint64_t size = 0;

	if (cli_parse_size(text, &size))
		argp_error(state, "--size takes sizes such as 8, 64K, 8-16M or 8,4K,1M, not '%s'", text);
	return size;
}

/* One member of the list: a size, or a range. */
static void parse_sizes(struct bench_options *options, char *text, struct argp_state *state)
{
	char *dash = strchr(text, '-');
	uint64_t first, last;

	if (dash)
		*dash = '\0';
	first = last = parse_size(text, state);
	if (dash)
		last = parse_size(dash + 1, state);
	if (first > last)
		argp_error(state, "--size: the range ends before it begins");
	/* Before the loop, which would not end. */
	if (first == 0)
		argp_error(state, "--size takes sizes from 8 to 1G");
	for (uint64_t size = first; size <= last; size *= options->step)
		add_size(options, size, state);
}

static void finish_sizes(struct bench_options *options, struct argp_state *state)
{
	const char *text = options->size_text;
	char *copy, *rest, *at;

	if (!text)
		text = bench_plan_atomic(&options->plan) ? "8"
		       : options->plan.latency           ? LATENCY_SIZES
							 : BANDWIDTH_SIZES;
	rest = copy = strdup(text);
	if (!copy)
		argp_failure(state, CLI_FAILED, ENOMEM, "--size");
	while ((at = strsep(&rest, ",")))
		parse_sizes(options, at, state);
	free(copy);
	for (uint32_t i = 0; bench_plan_atomic(&options->plan) && i < options->size_count; i++)
		if (options->sizes[i] != 8)
			argp_error(state, "atomic operations have 8 bytes");
}

/* What goes together is known once all options are. */
static void finish(struct bench_options *options, struct argp_state *state)
{
	struct bench_plan *plan = &options->plan;

	if (options->once && !options->server)
		argp_error(state, "--once goes with --server");
	if (plan->latency && plan->both_ways)
		argp_error(state, "--latency is one operation at a time: it does not go with --both-ways");
	if (plan->latency && (plan->vector > 1 || options->depth_given))
		argp_error(state, "--latency is one operation at a time: it does not go with --depth or --vector");
	if (plan->vector > 1 && plan->op != BENCH_WRITE && plan->op != BENCH_READ)
		argp_error(state, "--vector goes with write and read");
	finish_sizes(options, state);
}

static uint32_t parse_number(const char *name, const char *text, unsigned min, unsigned max, struct argp_state *state)
{
	unsigned value = min;

	if (cli_parse_number(text, min, max, &value))
		argp_error(state, "--%s takes a number from %u to %u, not '%s'", name, min, max, text);
	return value;
}

static void parse_progress(struct bench_options *options, const char *text, struct argp_state *state)
{
	if (strcmp(text, "manual") && strcmp(text, "thread"))
		argp_error(state, "--progress takes manual or thread, not '%s'", text);
	options->manual = !strcmp(text, "manual");
}

static void parse_duration(struct bench_options *options, const char *text, struct argp_state *state)
{
	if (cli_parse_seconds(text, &options->length.duration) || !options->length.duration)
		argp_error(state, "--duration takes seconds, such as 5 or 0.5, not '%s'", text);
}

static error_t parse_run(int key, char *argument, struct argp_state *state)
{
	struct bench_options *options = state->input;

	switch (key) {
	case 'n':
		options->length.iterations = parse_number("iterations", argument, 1, UINT_MAX, state);
		return 0;
	case OPTION_DURATION:
		parse_duration(options, argument, state);
		return 0;
	case OPTION_WARMUP:
		options->length.warmup = parse_number("warmup", argument, 0, UINT_MAX, state);
		options->warmup_given = true;
		return 0;
	case OPTION_REPEAT:
		options->repeat = parse_number("repeat", argument, 1, BENCH_REPEAT_MAX, state);
		return 0;
	case OPTION_MEMORY:
		options->memory = argument;
		return 0;
	case OPTION_VALIDATE:
		options->plan.validate = true;
		return 0;
	case OPTION_PROGRESS:
		parse_progress(options, argument, state);
		return 0;
	case OPTION_SERVER:
		options->server = true;
		return 0;
	case OPTION_ONCE:
		options->once = true;
		return 0;
	case OPTION_ANNOUNCE:
		options->announce = (int)parse_number("announce", argument, 0, INT_MAX, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct bench_options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->common;
		return 0;
	case ARGP_KEY_ARG:
		if (options->address)
			argp_error(state, "one ADDRESS only, not '%s' too", argument);
		options->address = argument;
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
		options->step = parse_number("step", argument, 2, 1024, state);
		return 0;
	case 'd':
		options->plan.depth = parse_number("depth", argument, 1, BENCH_DEPTH_MAX, state);
		options->depth_given = true;
		return 0;
	case OPTION_VECTOR:
		options->plan.vector = parse_number("vector", argument, 1, PL_TRANSFERS_MAX, state);
		return 0;
	default:
		return parse_run(key, argument, state);
	}
}

static const struct argp_child children[] = {
	{ &cli_connection_argp, 0, NULL, 0 },
	{ 0 },
};

static const struct argp arguments = {
	bench_options,
	parse,
	"[ADDRESS]",
	"Measure rate, latency and processor time of operations with the server at ADDRESS."
	"\v"
	"Without ADDRESS a server is started on this machine, for as long as it takes.  "
	"ADDRESS is HOST, HOST:PORT or [IPv6]:PORT; the default port is " CLI_DEFAULT_PORT ".\n"
	"\n"
	"Examples:\n"
	"  peerlane bench\n"
	"  peerlane bench --latency --op send --size 8\n"
	"  peerlane bench --memory cuda --size 1G --progress thread\n"
	"  peerlane bench --server --key key               on one host\n"
	"  peerlane bench --key key --size 8-16M HOST      on the other\n"
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

int pl_cli_bench(int argc, char **argv)
{
	struct bench_options options = {
		.plan = { .op = BENCH_WRITE, .depth = BENCH_DEPTH_DEFAULT, .vector = 1 },
		.length = { .duration = DURATION_DEFAULT },
		.step = 2,
		.repeat = 1,
		.manual = true,
		.memory = "host",
		.announce = -1,
	};
	const struct subcommand *subcommand;

	if (argc > 1 && (subcommand = find_subcommand(argv[1])))
		return run_subcommand(subcommand, argc, argv);
	cli_parse(&arguments, argc, argv, &options);
	return options.server ? bench_serve(&options) : bench_measure(&options);
}
