/* SPDX-License-Identifier: BSD-2-Clause */
/* Command lines of `peerlane bench workflow` and `peerlane bench proxy`. */
#include "bench/workflow/workflow.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "bench/common/arguments.h"
#include "cmd/common/units.h"

#define SIZES_DEFAULT "64K,1M,16M"
#define ROUNDS_DEFAULT 5u
#define DEPTH_DEFAULT 8u
#define DURATION_DEFAULT (200 * CLI_NS_PER_MS)

enum {
	OPTION_METHODS = 0x200,
	OPTION_COMPUTE,
	OPTION_DURATION,
	OPTION_INJECT,
	OPTION_SERVER,
	OPTION_ONCE,
	OPTION_ANNOUNCE,
};

static const struct argp_option workflow_argp_options[] = {
	{ NULL, 0, NULL, 0, "Frames and methods:", 1 },
	{ "size", 's', "SIZES", 0, "Bytes of a frame, 4K to 512M: a list such as 64K,1M (default: " SIZES_DEFAULT ")",
	  1 },
	{ "arms", OPTION_METHODS, "LIST", 0, "Methods to measure, such as A,B,BO (default: all)", 1 },
	{ "compute", OPTION_COMPUTE, "DEVICE", 0,
	  "Device: cuda or cuda:1 for a GPU, or simulated (default: a GPU if there is one)", 1 },
	{ NULL, 0, NULL, 0, "Duration:", 2 },
	{ "rounds", 'r', "N", 0, "Rounds of all methods (default: 5)", 2 },
	{ "duration", OPTION_DURATION, "SECONDS", 0, "Time for a method in each round (default: 0.2)", 2 },
	{ "frames", 'n', "N", 0, "Frames for a method in each round, instead of a time", 2 },
	{ "depth", 'd', "N", 0, "Frames in flight in overlapped methods, 2 to 64 (default: 8, fewer if large)", 2 },
	{ "inject", OPTION_INJECT, "PLACE", 0,
	  "Make one fault, to test its detection: source, compute or result; measures nothing", 2 },
	{ NULL, 0, NULL, 0, "Server:", 3 },
	{ "server", OPTION_SERVER, NULL, 0, "Be source or sink at ADDRESS until interrupted", 3 },
	{ "once", OPTION_ONCE, NULL, 0, "With --server: exit after the first client", 3 },
	{ "announce", OPTION_ANNOUNCE, "FD", OPTION_HIDDEN, NULL, 3 },
	{ 0 },
};

static void parse_frame_sizes(struct workflow_options *options, const char *text, struct argp_state *state)
{
	char *copy = strdup(text), *rest = copy, *at;
	uint64_t size;

	if (!copy)
		argp_failure(state, CLI_FAILED, ENOMEM, "--size");
	options->size_count = 0;
	while ((at = strsep(&rest, ","))) {
		if (cli_parse_size(at, &size) || !workflow_size_valid(size))
			argp_error(state, "--size takes multiples of 4 from 4K to 512M, such as 64K,1M, not '%s'", at);
		if (options->size_count == WORKFLOW_SIZES_MAX)
			argp_error(state, "--size takes up to %u sizes", WORKFLOW_SIZES_MAX);
		options->sizes[options->size_count++] = size;
	}
	free(copy);
}

static void parse_methods(struct workflow_options *options, const char *text, struct argp_state *state)
{
	char *copy = strdup(text), *rest = copy, *at;
	unsigned count;
	const struct workflow_method *methods = workflow_methods(options->proxy, &count);

	if (!copy)
		argp_failure(state, CLI_FAILED, ENOMEM, "--arms");
	memset(options->methods, 0, sizeof(options->methods));
	options->methods_given = true;
	while ((at = strsep(&rest, ","))) {
		unsigned i = 0;

		while (i < count && strcmp(methods[i].name, at))
			i++;
		if (i == count)
			argp_error(state, "--arms takes %s, not '%s'",
				   options->proxy ? "A, B, AO and BO" : "A, B, A', B', AO, BO, BP and S", at);
		else
			options->methods[i] = true;
	}
	free(copy);
}

static void parse_compute_device(struct workflow_options *options, const char *text, struct argp_state *state)
{
	unsigned number;

	if (strcmp(text, "auto") && strcmp(text, "simulated") && strcmp(text, "cuda") &&
	    (strncmp(text, "cuda:", 5) || cli_parse_number(text + 5, 0, 255, &number)))
		argp_error(state, "--compute takes cuda, cuda:N or simulated, not '%s'", text);
	options->device = text;
}

static void parse_fault_place(struct workflow_options *options, const char *text, struct argp_state *state)
{
	static const char *const names[] = { "", "source", "compute", "result" };

	for (unsigned i = 1; i < CLI_ARRAY_SIZE(names); i++) {
		if (!strcmp(text, names[i])) {
			options->fault = (enum workflow_fault)i;
			return;
		}
	}
	argp_error(state, "--inject takes source, compute or result, not '%s'", text);
}

static error_t parse_server_option(int key, char *argument, struct argp_state *state)
{
	struct workflow_options *options = state->input;

	switch (key) {
	case OPTION_SERVER:
		options->server = true;
		return 0;
	case OPTION_ONCE:
		options->once = true;
		return 0;
	case OPTION_ANNOUNCE:
		options->announce = (int)bench_parse_number("announce", argument, 0, INT_MAX, state);
		return 0;
	case ARGP_KEY_ARG:
		if (!options->address)
			options->address = argument;
		else if (options->proxy && !options->sink)
			options->sink = argument;
		else
			argp_error(state,
				   options->proxy ? "'%s': only one SOURCE and one SINK" : "'%s': only one ADDRESS",
				   argument);
		return 0;
	case ARGP_KEY_END:
		if (options->once && !options->server)
			argp_error(state, "--once needs --server");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_workflow_option(int key, char *argument, struct argp_state *state)
{
	struct workflow_options *options = state->input;

	switch (key) {
	case 's':
		parse_frame_sizes(options, argument, state);
		return 0;
	case OPTION_METHODS:
		parse_methods(options, argument, state);
		return 0;
	case OPTION_COMPUTE:
		parse_compute_device(options, argument, state);
		return 0;
	case OPTION_INJECT:
		parse_fault_place(options, argument, state);
		return 0;
	case 'r':
		options->rounds = bench_parse_number("rounds", argument, 1, WORKFLOW_ROUNDS_MAX, state);
		return 0;
	case 'n':
		options->frames = bench_parse_number("frames", argument, 1, UINT_MAX, state);
		return 0;
	case 'd':
		options->depth = bench_parse_number("depth", argument, WORKFLOW_DEPTH_MIN, WORKFLOW_DEPTH_MAX, state);
		return 0;
	case OPTION_DURATION:
		options->duration = bench_parse_interval("duration", argument, state);
		return 0;
	default:
		return parse_server_option(key, argument, state);
	}
}

static const struct cli_command workflow_command = {
	.arguments = "[ADDRESS]",
	.summary = "Receive frames from the source at ADDRESS, compute on each one, and inspect the result in host memory, "
		   "by several methods that are measured in turn.",
	.examples = {
		"peerlane bench workflow",
		"peerlane bench workflow --fabric tcp --size 4K,1M,512M --compute cuda:0",
	},
	.notes = "Method A receives into host memory, copies to the device, computes, copies back; B receives directly "
		 "into the device's memory.  A' and B' do the same with pinned host memory.  AO and BO have several "
		 "frames in flight, so that receiving, computing and copying overlap.  BP is BO with frames that the "
		 "source writes, and S with frames of a stream that the source publishes.  Every frame is inspected, and of some frames every word is compared.\n"
		 "\n"
		 "Without ADDRESS the source is another process of this machine.  Without a GPU the device is "
		 "simulated: the processor copies and computes.\n",
	.options = workflow_argp_options,
	.parse = parse_workflow_option,
	.connection = true,
};

static const struct cli_command proxy_command = {
	.arguments = "[SOURCE [SINK]]",
	.summary = "Receive frames from SOURCE, compute on each one, and have SINK read the result, by several methods "
		   "that are measured in turn.",
	.examples = {
		"peerlane bench proxy",
		"peerlane bench proxy --key key CAMERA STORE",
	},
	.notes = "Method A passes through host memory: frames are received there, copied to the device, computed, copied "
		 "back, and read by the sink.  B does not: frames are received into the device's memory, computed, and "
		 "read from there by the sink.  AO and BO have several frames in flight.  The sink compares every word "
		 "of some results.\n"
		 "\n"
		 "SOURCE and SINK are addresses of `peerlane bench workflow --server`.  Each missing one is another "
		 "process of this machine.\n",
	.options = workflow_argp_options,
	.parse = parse_workflow_option,
	.connection = true,
};

static int run_workflow_command(const struct cli_command *command, bool proxy, int argc, char **argv)
{
	struct workflow_options options = {
		.device = "auto",
		.proxy = proxy,
		.sizes = { 64 << 10, 1 << 20, 16 << 20 },
		.size_count = 3,
		.rounds = ROUNDS_DEFAULT,
		.depth = DEPTH_DEFAULT,
		.duration = DURATION_DEFAULT,
		.announce = -1,
		.argc = argc,
		.argv = argv,
	};
	unsigned count;

	workflow_methods(proxy, &count);
	memset(options.methods, 1, count * sizeof(options.methods[0]));
	cli_parse(command, argc, argv, &options.common, &options);
	return options.server ? workflow_serve(&options) : workflow_measure(&options);
}

int bench_workflow(int argc, char **argv)
{
	return run_workflow_command(&workflow_command, false, argc, argv);
}

int bench_proxy(int argc, char **argv)
{
	return run_workflow_command(&proxy_command, true, argc, argv);
}
