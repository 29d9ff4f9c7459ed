/* SPDX-License-Identifier: BSD-2-Clause */
/* The command lines of `peerlane bench workflow` and `peerlane bench proxy`. */
#include "bench/workflow/workflow.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/units.h"

#define SIZES_DEFAULT "64K,1M,16M"
#define ROUNDS_DEFAULT 5u
#define DEPTH_DEFAULT 8u
#define DURATION_DEFAULT (200 * CLI_NS_PER_MS)

enum {
	OPTION_ARMS = 0x200,
	OPTION_COMPUTE,
	OPTION_DURATION,
	OPTION_INJECT,
	OPTION_SERVER,
	OPTION_ONCE,
	OPTION_ANNOUNCE,
};

static const struct argp_option flow_argp_options[] = {
	{ NULL, 0, NULL, 0, "What to measure:", 1 },
	{ "size", 's', "SIZES", 0, "Bytes of a frame, 4K to 512M: a list such as 64K,1M (default: " SIZES_DEFAULT ")",
	  1 },
	{ "arms", OPTION_ARMS, "LIST", 0, "Which ways, such as A,B,BO (default: all)", 1 },
	{ "compute", OPTION_COMPUTE, "DEVICE", 0,
	  "What computes: cuda or cuda:1 for a GPU, or simulated; default: a GPU if there is one", 1 },
	{ NULL, 0, NULL, 0, "How long, and how:", 2 },
	{ "rounds", 'r', "N", 0, "Measure every arm N times, in turns (default: 5)", 2 },
	{ "duration", OPTION_DURATION, "SECONDS", 0, "Measure an arm so long in a round (default: 0.2)", 2 },
	{ "frames", 'n', "N", 0, "Measure so many frames instead", 2 },
	{ "depth", 'd', "N", 0, "Frames under way in overlapped arms, 2 to 64 (default: 8, fewer of large ones)", 2 },
	{ "inject", OPTION_INJECT, "WHERE", 0,
	  "Make one fault, which must be found: source, compute or result; nothing is measured then", 2 },
	{ NULL, 0, NULL, 0, "The other end:", 3 },
	{ "server", OPTION_SERVER, NULL, 0, "Be the source or the sink, at ADDRESS, until interrupted", 3 },
	{ "once", OPTION_ONCE, NULL, 0, "End after the first client; with --server", 3 },
	{ "announce", OPTION_ANNOUNCE, "FD", OPTION_HIDDEN, NULL, 3 },
	{ 0 },
};

static void finish_sizes(struct flow_options *options, const char *text, struct argp_state *state)
{
	char *copy = strdup(text), *rest = copy, *at;
	uint64_t size;

	if (!copy)
		argp_failure(state, CLI_FAILED, ENOMEM, "--size");
	options->size_count = 0;
	while ((at = strsep(&rest, ","))) {
		if (cli_parse_size(at, &size) || !flow_size_valid(size))
			argp_error(state, "--size takes multiples of 4 from 4K to 512M, such as 64K,1M, not '%s'", at);
		if (options->size_count == FLOW_SIZES_MAX)
			argp_error(state, "--size takes up to %u sizes", FLOW_SIZES_MAX);
		options->sizes[options->size_count++] = size;
	}
	free(copy);
}

static void parse_arms(struct flow_options *options, const char *text, struct argp_state *state)
{
	char *copy = strdup(text), *rest = copy, *at;
	unsigned count;
	const struct flow_arm *arms = flow_arms(options->proxy, &count);

	if (!copy)
		argp_failure(state, CLI_FAILED, ENOMEM, "--arms");
	memset(options->arms, 0, sizeof(options->arms));
	options->arms_given = true;
	while ((at = strsep(&rest, ","))) {
		unsigned i = 0;

		while (i < count && strcmp(arms[i].name, at))
			i++;
		if (i == count)
			argp_error(state, "--arms takes %s, not '%s'",
				   options->proxy ? "A, B, AO and BO" : "A, B, A', B', AO, BO and BP", at);
		else
			options->arms[i] = true;
	}
	free(copy);
}

static void parse_device(struct flow_options *options, const char *text, struct argp_state *state)
{
	unsigned number;

	if (strcmp(text, "auto") && strcmp(text, "simulated") && strcmp(text, "cuda") &&
	    (strncmp(text, "cuda:", 5) || cli_parse_number(text + 5, 0, 255, &number)))
		argp_error(state, "--compute takes cuda, cuda:N or simulated, not '%s'", text);
	options->device = text;
}

static void parse_fault(struct flow_options *options, const char *text, struct argp_state *state)
{
	static const char *const names[] = { "", "source", "compute", "result" };

	for (unsigned i = 1; i < CLI_ARRAY_SIZE(names); i++) {
		if (!strcmp(text, names[i])) {
			options->fault = (enum flow_fault)i;
			return;
		}
	}
	argp_error(state, "--inject takes source, compute or result, not '%s'", text);
}

static uint32_t parse_number(const char *name, const char *text, unsigned min, unsigned max, struct argp_state *state)
{
	unsigned value = min;

	if (cli_parse_number(text, min, max, &value))
		argp_error(state, "--%s takes a number from %u to %u, not '%s'", name, min, max, text);
	return value;
}

static error_t parse_end(int key, char *argument, struct argp_state *state)
{
	struct flow_options *options = state->input;

	switch (key) {
	case OPTION_SERVER:
		options->server = true;
		return 0;
	case OPTION_ONCE:
		options->once = true;
		return 0;
	case OPTION_ANNOUNCE:
		options->announce = (int)parse_number("announce", argument, 0, INT_MAX, state);
		return 0;
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->common;
		return 0;
	case ARGP_KEY_ARG:
		if (!options->address)
			options->address = argument;
		else if (options->proxy && !options->sink)
			options->sink = argument;
		else
			argp_error(state, "one %s only, not '%s' too",
				   options->proxy ? "SOURCE and one SINK" : "ADDRESS", argument);
		return 0;
	case ARGP_KEY_END:
		if (options->once && !options->server)
			argp_error(state, "--once goes with --server");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct flow_options *options = state->input;

	switch (key) {
	case 's':
		finish_sizes(options, argument, state);
		return 0;
	case OPTION_ARMS:
		parse_arms(options, argument, state);
		return 0;
	case OPTION_COMPUTE:
		parse_device(options, argument, state);
		return 0;
	case OPTION_INJECT:
		parse_fault(options, argument, state);
		return 0;
	case 'r':
		options->rounds = parse_number("rounds", argument, 1, FLOW_ROUNDS_MAX, state);
		return 0;
	case 'n':
		options->frames = parse_number("frames", argument, 1, UINT_MAX, state);
		return 0;
	case 'd':
		options->depth = parse_number("depth", argument, FLOW_DEPTH_MIN, FLOW_DEPTH_MAX, state);
		return 0;
	case OPTION_DURATION:
		if (cli_parse_seconds(argument, &options->duration) || !options->duration)
			argp_error(state, "--duration takes seconds, such as 1 or 0.5, not '%s'", argument);
		return 0;
	default:
		return parse_end(key, argument, state);
	}
}

static const struct argp_child children[] = {
	{ &cli_connection_argp, 0, NULL, 0 },
	{ 0 },
};

static const struct argp workflow_arguments = {
	flow_argp_options,
	parse,
	"[ADDRESS]",
	"Receive frames from the source at ADDRESS, compute on each, and look at the result in host memory, in several "
	"ways, called arms, that are measured in turns."
	"\v"
	"A receives into host memory, copies to the device, computes, copies back; B receives straight into the "
	"device's "
	"memory.  A' and B' do the same with locked host memory.  AO and BO have several frames under way, so that "
	"receiving, computing and copying overlap; BP is BO with frames that the source writes.  Every frame is "
	"inspected, and of some every word is compared.\n"
	"\n"
	"Without ADDRESS the source is another process of this machine.  Without a GPU the device is simulated: really "
	"copied and computed, but by the processor.\n"
	"\n"
	"Examples:\n"
	"  peerlane bench workflow\n"
	"  peerlane bench workflow --fabric tcp --size 4K,1M,512M --compute cuda:0\n"
	"  peerlane bench workflow --inject source         the fault must be found\n"
	"  peerlane bench workflow --server --key key      on one host\n"
	"  peerlane bench workflow --key key HOST          on the other\n",
	children,
	cli_help_filter,
	NULL
};

static const struct argp proxy_arguments = {
	flow_argp_options,
	parse,
	"[SOURCE [SINK]]",
	"Receive frames from SOURCE, compute on each, and have SINK read the result, in several ways, called arms, "
	"that "
	"are measured in turns."
	"\v"
	"A goes through host memory: received there, copied to the device, computed, copied back, read by the sink "
	"from "
	"there.  B never does: received into the device's memory, computed, read by the sink from the device's memory. "
	" "
	"AO and BO have several frames under way.  The sink compares every word of some results.\n"
	"\n"
	"SOURCE and SINK are addresses of `peerlane bench workflow --server`; what is missing is another process of "
	"this "
	"machine.\n"
	"\n"
	"Examples:\n"
	"  peerlane bench proxy\n"
	"  peerlane bench proxy --key key CAMERA STORE\n",
	children,
	cli_help_filter,
	NULL
};

static int run(const struct argp *arguments, bool proxy, int argc, char **argv)
{
	struct flow_options options = {
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

	flow_arms(proxy, &count);
	memset(options.arms, 1, count * sizeof(options.arms[0]));
	cli_parse(arguments, argc, argv, &options);
	return options.server ? flow_serve(&options) : flow_measure(&options);
}

int bench_workflow(int argc, char **argv)
{
	return run(&workflow_arguments, false, argc, argv);
}

int bench_proxy(int argc, char **argv)
{
	return run(&proxy_arguments, true, argc, argv);
}
