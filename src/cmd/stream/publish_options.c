/* SPDX-License-Identifier: BSD-2-Clause */
/* Command line of `peerlane publish`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/units.h"
#include "cmd/stream/layout_text.h"
#include "cmd/stream/options_text.h"
#include "cmd/stream/publish.h"
#include "stream/ring.h"

enum {
	OPTION_NAME = 0x200,
	OPTION_LISTEN,
	OPTION_SLOTS,
	OPTION_DTYPE,
	OPTION_SHAPE,
	OPTION_FRAME_BYTES,
	OPTION_RATE,
	OPTION_COUNT,
	OPTION_FROM,
	OPTION_SUBSCRIBERS,
	OPTION_ALLOW_BLOCK,
	OPTION_PATIENCE,
	OPTION_MEMORY = 'm',
};

#define RATE_MAX 1e6

/* Parses frames a second. */
static int parse_frame_rate(const char *text, double *rate)
{
	char *end;

	*rate = strtod(text, &end);
	return end == text || *end || !isfinite(*rate) || *rate < 0 || (*rate > 0 && *rate < 1e-6) || *rate > RATE_MAX
		       ? -EINVAL
		       : 0;
}

static error_t parse_publish_number(struct publish_options *options, int key, const char *argument,
				    struct argp_state *state)
{
	switch (key) {
	case OPTION_SLOTS:
		if (stream_number_parse(argument, 2, PL_STREAM_SLOTS_MAX, &options->slots) < 0)
			argp_error(state, "--slots takes a number from 2 to %d, not '%s'", PL_STREAM_SLOTS_MAX,
				   argument);
		return 0;
	case OPTION_FRAME_BYTES:
		if (cli_parse_size(argument, &options->frame_bytes) < 0 || !options->frame_bytes ||
		    options->frame_bytes > STREAM_FRAME_MAX)
			argp_error(state, "--frame-bytes takes a size from 1 to 1T, such as 8M, not '%s'", argument);
		return 0;
	case OPTION_RATE:
		if (parse_frame_rate(argument, &options->rate) < 0)
			argp_error(state, "--rate takes frames a second, up to 1000000, such as 200, not '%s'",
				   argument);
		return 0;
	case OPTION_COUNT:
		if (stream_number_parse(argument, 1, INT64_MAX, &options->count) < 0)
			argp_error(state, "--count takes a number of frames, at least 1, not '%s'", argument);
		return 0;
	case OPTION_SUBSCRIBERS:
		if (stream_number_parse(argument, 1, 256, &options->subscribers) < 0)
			argp_error(state, "--subscribers takes a number from 1 to 256, not '%s'", argument);
		return 0;
	case OPTION_PATIENCE:
		if (stream_patience_parse(argument, &options->patience) < 0)
			argp_error(state, "--patience takes seconds above 0, or never, not '%s'", argument);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Completes the layout of a frame from the options. */
static void check_publish_layout(struct publish_options *options, struct argp_state *state)
{
	int rc;

	if (!options->dtype != !options->shape)
		argp_error(state, "--dtype and --shape belong together, such as --dtype u16 --shape 2048x2048");
	if (options->frame_bytes && options->dtype)
		argp_error(state, "--frame-bytes is for frames without --dtype and --shape");
	if (!options->from && !options->dtype && !options->frame_bytes) {
		options->dtype = "u16";
		options->shape = "2048x2048";
	}
	if (!options->dtype)
		return;
	rc = stream_layout_parse(options->dtype, options->shape, &options->layout);
	if (rc == -E2BIG)
		argp_error(state, "a frame of %s %s has more than 2^40 bytes", options->dtype, options->shape);
	if (stream_dtype_parse(options->dtype, &(struct pl_layout){ 0 }) < 0)
		argp_error(state, "--dtype takes a type such as " STREAM_DTYPES ", not '%s'", options->dtype);
	if (rc < 0)
		argp_error(state, "--shape takes up to %d numbers from 1, such as 2048x2048, not '%s'",
			   PL_LAYOUT_DIMENSIONS_MAX, options->shape);
	options->frame_bytes = pl_layout_bytes(&options->layout);
}

static void check_publish_arguments(struct publish_options *options, struct argp_state *state)
{
	if (!options->name)
		argp_error(state, "the name of the stream is missing: add --name, such as --name cam0");
	if (!pl_stream_name_valid(options->name))
		argp_error(state, "--name takes 1 to 63 characters of A-Z a-z 0-9 . _ -, not '%s'", options->name);
	if (options->patience && !options->allow_block)
		argp_error(state, "--patience needs --allow-block");
	check_publish_layout(options, state);
}

static error_t parse_publish_option(int key, char *argument, struct argp_state *state)
{
	struct publish_options *options = state->input;

	switch (key) {
	case OPTION_NAME:
		options->name = argument;
		return 0;
	case OPTION_LISTEN:
		options->listen = argument;
		return 0;
	case OPTION_DTYPE:
		options->dtype = argument;
		return 0;
	case OPTION_SHAPE:
		options->shape = argument;
		return 0;
	case OPTION_FROM:
		options->from = argument;
		return 0;
	case OPTION_MEMORY:
		options->memory = cli_parse_memory_kind("memory", argument, state);
		return 0;
	case OPTION_ALLOW_BLOCK:
		options->allow_block = true;
		return 0;
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->share;
		return 0;
	case ARGP_KEY_END:
		check_publish_arguments(options, state);
		return 0;
	default:
		return parse_publish_number(options, key, argument, state);
	}
}

static const struct argp_option publish_options[] = {
	{ "name", OPTION_NAME, "NAME", 0, "Name of the stream: 1 to 63 characters of A-Z a-z 0-9 . _ - (required)", 1 },
	{ "listen", OPTION_LISTEN, "ADDRESS", 0, "Listen on this address (default: " STREAM_SERVER_ADDRESS ")", 1 },
	{ "from", OPTION_FROM, "FILE", 0,
	  "Publish the frames of FILE: raw bytes, or a .npy file whose first axis counts frames; -: standard input "
	  "(default: a test pattern)",
	  1 },
	{ "dtype", OPTION_DTYPE, "TYPE", 0, "Type of the elements: " STREAM_DTYPES " (test pattern: u16)", 1 },
	{ "shape", OPTION_SHAPE, "NxM...", 0, "Shape of a frame, the slowest dimension first (test pattern: 2048x2048)",
	  1 },
	{ "frame-bytes", OPTION_FRAME_BYTES, "SIZE", 0, "Bytes of a frame without type and shape, such as 8M", 1 },
	{ "slots", OPTION_SLOTS, "K", 0, "Keep the last K frames for subscribers, 2 to 65536 (default: 16)", 1 },
	{ "memory", OPTION_MEMORY, "KIND", 0,
	  "Keep the frames in memory of this kind: host, cuda, or cuda:1 for a GPU by its number (default: host)", 1 },
	{ "rate", OPTION_RATE, "HZ", 0,
	  "Publish HZ frames a second; 0: without pauses (default: 30 for the test pattern, 0 for --from)", 1 },
	{ "count", OPTION_COUNT, "N", 0, "End the stream after N frames", 1 },
	{ "subscribers", OPTION_SUBSCRIBERS, "N", 0, "Wait for N subscribers before the first frame", 1 },
	{ "allow-block", OPTION_ALLOW_BLOCK, NULL, 0,
	  "Let subscribers hold frames back (subscribe --overflow block), so that the publisher waits for them", 1 },
	{ "patience", OPTION_PATIENCE, "SECONDS", 0,
	  "Wait at most this time for a subscriber that holds frames back; then it loses frames (default: 1; or never)",
	  1 },
	{ 0 },
};

static const struct argp_child publish_children[] = STREAM_SHARE_CHILDREN;

static const struct cli_command publish_command = {
	.summary = "Publish frames as a stream, from a file, a pipe or a test pattern.",
	.examples = {
		"peerlane publish --name cam0 --rate 200",
		"camera | peerlane publish --name cam0 --from - --dtype u16 --shape 512x640",
	},
	.notes = "The stream ends at the end of the input, after --count frames, or with SIGINT or SIGTERM.  An address "
		 "other than loopback needs a key; `peerlane key group key` makes one.\n",
	.options = publish_options,
	.parse = parse_publish_option,
	.children = publish_children,
	.connection = true,
};

void publish_parse_arguments(struct publish_options *options, int argc, char **argv)
{
	*options = (struct publish_options){ .listen = STREAM_SERVER_ADDRESS, .count = UINT64_MAX, .rate = -1 };
	cli_parse(&publish_command, argc, argv, &options->common, options);
	if (options->rate < 0)
		options->rate = options->from ? 0 : PUBLISH_DEFAULT_RATE;
}
