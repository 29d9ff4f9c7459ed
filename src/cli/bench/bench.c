/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane bench`: arguments, the other process where none is named, the sizes one after the other. */
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/bench/child.h"
#include "cli/output.h"
#include "cli/units.h"

enum {
	OPTION_LATENCY = 0x200, OPTION_BANDWIDTH, OPTION_BOTH_WAYS, OPTION_SERVER, OPTION_ONCE, OPTION_PROGRESS,
	OPTION_VECTOR, OPTION_REPEAT, OPTION_STEP,
};

static const struct argp_option bench_options[] = {
	{ NULL, 0, NULL, 0, "What is measured:", 1 },
	{ "op", 'o', "OPERATION", 0, "write (default), read, send, fetch-add, compare-swap", 1 },
	{ "size", 's', "SIZES", 0, "Bytes: 64K, a sweep 8-16M, or a list 8,4K,1M; 1 to 1G (64K)", 1 },
	{ "step", OPTION_STEP, "FACTOR", 0, "From one size of a sweep to the next (2)", 1 },
	{ "bandwidth", OPTION_BANDWIDTH, NULL, 0, "Many at a time: bytes and operations a second (default)", 1 },
	{ "latency", OPTION_LATENCY, NULL, 0, "One at a time, to and fro: half of the round trip", 1 },
	{ "depth", 'd', "N", 0, "Operations under way at a time (128)", 1 },
	{ "vector", OPTION_VECTOR, "N", 0, "Elements in one vectored write or read (1)", 1 },
	{ "both-ways", OPTION_BOTH_WAYS, NULL, 0, "Both ends transmit; the sum is shown", 1 },
	{ "duration", 'D', "SECONDS", 0, "Time for each size (2)", 1 },
	{ "iterations", 'n', "N", 0, "Operations for each size, in place of a time", 1 },
	{ "repeat", OPTION_REPEAT, "N", 0, "Measure N times and show the median (1)", 1 },
	{ "progress", OPTION_PROGRESS, "HOW", 0, "manual: poll without pause (default); thread: as most programs do", 1 },
	{ NULL, 0, NULL, 0, "The other end:", 2 },
	{ "server", OPTION_SERVER, NULL, 0, "Be it: listen on ADDRESS, serve one client after the other", 2 },
	{ "once", OPTION_ONCE, NULL, 0, "With --server: end after the first client", 2 },
	{ 0 },
};

static enum bench_operation find_operation(const char *name)
{
	for (enum bench_operation i = BENCH_WRITE; i < BENCH_OPERATIONS; i++)
		if (!strcmp(name, bench_operation_name(i)))
			return i;
	return 0;
}

static void add_size(struct bench_options *options, uint64_t size, struct argp_state *state)
{
	if (size == 0 || size > BENCH_SIZE_MAX)
		argp_error(state, "a size is 1 byte to 1G");
	if (options->size_count == BENCH_SIZES_MAX)
		argp_error(state, "more than %d sizes", BENCH_SIZES_MAX);
	options->sizes[options->size_count++] = size;
}

static uint64_t parse_size(const char *text, struct argp_state *state)
{
	uint64_t size = 0;

	if (cli_parse_size(text, &size))
		argp_error(state, "'%s' is no size: write 64K, 8-16M, or 8,4K,1M", text);
	return size;
}

static void parse_sizes(struct bench_options *options, const char *argument, struct argp_state *state)
{
	char *text = strdup(argument), *rest = text, *item;

	options->size_count = 0;
	while (text && (item = strsep(&rest, ","))) {
		char *dash = strchr(item, '-');
		uint64_t first, last;

		if (dash)
			*dash = '\0';
		first = parse_size(item, state);
		last = dash ? parse_size(dash + 1, state) : first;
		if (last < first)
			argp_error(state, "a sweep goes from the smaller size to the larger");
		for (uint64_t size = first; size <= last && size; size *= options->step)
			add_size(options, size, state);
	}
	free(text);
}

static unsigned parse_number(const char *name, const char *text, unsigned max, struct argp_state *state)
{
	unsigned value = 0;

	if (cli_parse_number(text, 1, max, &value))
		argp_error(state, "--%s takes a number from 1 to %u, not '%s'", name, max, text);
	return value;
}

static void check(struct bench_options *options, const char *sizes, struct argp_state *state)
{
	bool atomic = options->operation == BENCH_FETCH_ADD || options->operation == BENCH_COMPARE_SWAP;

	parse_sizes(options, sizes ? sizes : atomic || options->latency ? "8" : "64K", state);
	for (unsigned i = 0; atomic && i < options->size_count; i++)
		if (options->sizes[i] != 8)
			argp_error(state, "atomic operations are on 8 bytes");
	if (options->vector > 1 && (options->operation > BENCH_READ || options->latency))
		argp_error(state, "--vector is for the bandwidth of writes and reads");
	if (options->both_ways && (atomic || options->latency))
		argp_error(state, "--both-ways is for the bandwidth of write, read and send");
	if (options->server && !options->address)
		options->address = "127.0.0.1";
}

static error_t parse_more(int key, char *argument, struct bench_options *options, struct argp_state *state)
{
	switch (key) {
	case OPTION_LATENCY:
	case OPTION_BANDWIDTH:
		options->latency = key == OPTION_LATENCY;
		return 0;
	case OPTION_BOTH_WAYS:
		options->both_ways = true;
		return 0;
	case OPTION_SERVER:
		options->server = true;
		return 0;
	case OPTION_ONCE:
		options->once = true;
		return 0;
	case OPTION_PROGRESS:
		if (strcmp(argument, "manual") && strcmp(argument, "thread"))
			argp_error(state, "--progress is manual or thread, not '%s'", argument);
		options->manual = !strcmp(argument, "manual");
		return 0;
	case OPTION_VECTOR:
		options->vector = parse_number("vector", argument, BENCH_VECTOR_MAX, state);
		return 0;
	case OPTION_REPEAT:
		options->repeat = parse_number("repeat", argument, 1000, state);
		return 0;
	case OPTION_STEP:
		options->step = parse_number("step", argument, 1024, state);
		if (options->step < 2)
			argp_error(state, "--step is at least 2");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

struct arguments {
	struct bench_options options;
	const char *sizes;
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct arguments *arguments = state->input;
	struct bench_options *options = &arguments->options;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->common;
		return 0;
	case 'o':
		options->operation = find_operation(argument);
		if (!options->operation)
			argp_error(state, "no operation '%s': write, read, send, fetch-add, compare-swap", argument);
		return 0;
	case 's':
		arguments->sizes = argument;
		return 0;
	case 'd':
		options->depth = parse_number("depth", argument, BENCH_DEPTH_MAX, state);
		return 0;
	case 'n':
		options->iterations = parse_number("iterations", argument, 1000000000, state);
		return 0;
	case 'D':
		if (cli_parse_seconds(argument, &options->duration) || !options->duration)
			argp_error(state, "--duration takes seconds, such as 2 or 0.5, not '%s'", argument);
		return 0;
	case ARGP_KEY_ARG:
		if (options->address)
			return ARGP_ERR_UNKNOWN;
		options->address = argument;
		return 0;
	case ARGP_KEY_END:
		check(options, arguments->sizes, state);
		return 0;
	default:
		return parse_more(key, argument, options, state);
	}
}

static const struct argp_child children[] = { { &cli_connection_argp, 0, NULL, 0 }, { 0 } };

static const struct argp argp = {
	bench_options, parse, "[ADDRESS]",
	"Measures how fast bytes go between two processes, and checks that they are the right ones.\v"
	"Without ADDRESS the other process is started on this machine.  Between two machines:\n\n"
	"  peerlane bench --server --key key :19875            on one\n"
	"  peerlane bench --key key HOST --size 8-16M          on the other\n\n"
	"Examples:\n"
	"  peerlane bench --size 16M\n"
	"  peerlane bench --op send --latency --size 8\n"
	"  peerlane bench --op read --size 4K-64M --step 4 --json\n\n"
	"Rates are decimal: bytes times operations over the time from the first post to the last completion.  Without "
	"--latency the times shown are those of single operations among --depth others.",
	children, NULL, NULL,
};

static int measure_all(const struct bench_options *options, struct pl_error *error)
{
	struct bench_result *results = calloc(options->size_count, sizeof(*results));
	struct bench_link link;
	bool verified = true;
	int rc = results ? bench_client_open(&link, options, error) : cli_fail_errno(error, -ENOMEM, "malloc", NULL);

	if (rc < 0) {
		free(results);
		return rc;
	}
	for (unsigned i = 0; rc == 0 && i < options->size_count; i++) {
		rc = bench_measure(&link, options, options->sizes[i], &results[i], error);
		verified = verified && results[i].verified;
	}
	if (rc == 0 && options->common.json)
		bench_render_json(options, results, options->size_count);
	else if (rc == 0)
		bench_render_table(options, results, options->size_count);
	if (rc == 0 && !verified)
		rc = cli_fail(error, -EBADMSG, "BENCH-DIFFERENT", NULL, "check memory and network of both machines",
			      "the bytes at the other end are not the ones that were sent");
	pl_close(link.context);
	free(results);
	return rc;
}

int pl_cli_bench(int argc, char **argv)
{
	struct arguments arguments = {
		.options = { .operation = BENCH_WRITE, .manual = true, .depth = 128, .vector = 1, .repeat = 1, .step = 2,
			     .duration = 2 * CLI_NS_PER_S },
	};
	struct bench_options *options = &arguments.options;
	struct bench_child child = { 0 };
	struct pl_error error;
	int rc = 0;

	cli_parse(&argp, argc, argv, &arguments);
	if (options->server)
		return bench_serve(options);
	if (!options->address) {
		rc = bench_child_start(&child, options, &error);
		options->address = child.address;
	}
	if (rc == 0)
		rc = measure_all(options, &error);
	bench_child_stop(&child);
	return rc < 0 ? (int)cli_report_for(&options->common, &error) : (int)CLI_OK;
}
