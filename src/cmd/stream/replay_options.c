/* SPDX-License-Identifier: BSD-2-Clause */
/* Command line of `peerlane replay`. */
#include <math.h>
#include <stdlib.h>

#include "cmd/stream/options_text.h"
#include "cmd/stream/replay.h"
#include "stream/ring.h"

enum {
	OPTION_LISTEN = 0x200,
	OPTION_NAME,
	OPTION_RATE,
	OPTION_SPEED,
	OPTION_FAST,
	OPTION_LOOP,
	OPTION_SLOTS,
	OPTION_SUBSCRIBERS,
	OPTION_ALLOW_BLOCK,
	OPTION_CHECK,
	OPTION_INFO,
};

/* Parses a number from 10^-6 to 10^6. */
static int parse_factor(const char *text, double *factor)
{
	char *end;

	*factor = strtod(text, &end);
	return end == text || *end || !isfinite(*factor) || *factor < 1e-6 || *factor > 1e6 ? -EINVAL : 0;
}

static void choose_pace(struct replay_options *options, enum replay_pace pace, struct argp_state *state)
{
	if (options->pace != REPLAY_RECORDED)
		argp_error(state, "only one of --rate, --speed and --fast is allowed");
	options->pace = pace;
}

static error_t parse_replay_pace(struct replay_options *options, int key, const char *argument,
				 struct argp_state *state)
{
	switch (key) {
	case OPTION_RATE:
		if (parse_factor(argument, &options->rate) < 0)
			argp_error(state, "--rate takes frames a second, up to 1000000, such as 200, not '%s'",
				   argument);
		choose_pace(options, REPLAY_RATE, state);
		return 0;
	case OPTION_SPEED:
		if (parse_factor(argument, &options->speed) < 0)
			argp_error(state, "--speed takes a factor up to 1000000, such as 0.5, not '%s'", argument);
		return 0;
	case OPTION_FAST:
		choose_pace(options, REPLAY_FAST, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void check_replay_arguments(const struct replay_options *options, struct argp_state *state)
{
	if (!options->file)
		argp_error(state, "the FILE of a recording is missing");
	if (options->speed > 0 && options->pace != REPLAY_RECORDED)
		argp_error(state, "only one of --rate, --speed and --fast is allowed");
	if (options->name && !pl_stream_name_valid(options->name))
		argp_error(state, "--name takes 1 to 63 characters of A-Z a-z 0-9 . _ -, not '%s'", options->name);
}

static error_t parse_replay_option(int key, char *argument, struct argp_state *state)
{
	struct replay_options *options = state->input;

	switch (key) {
	case OPTION_LISTEN:
		options->listen = argument;
		return 0;
	case OPTION_NAME:
		options->name = argument;
		return 0;
	case OPTION_LOOP:
		options->loop = true;
		return 0;
	case OPTION_SLOTS:
		if (stream_number_parse(argument, 2, PL_STREAM_SLOTS_MAX, &options->slots) < 0)
			argp_error(state, "--slots takes a number from 2 to %d, not '%s'", PL_STREAM_SLOTS_MAX,
				   argument);
		return 0;
	case OPTION_SUBSCRIBERS:
		if (stream_number_parse(argument, 1, 256, &options->subscribers) < 0)
			argp_error(state, "--subscribers takes a number from 1 to 256, not '%s'", argument);
		return 0;
	case OPTION_ALLOW_BLOCK:
		options->allow_block = true;
		return 0;
	case OPTION_CHECK:
		options->check = true;
		return 0;
	case OPTION_INFO:
		options->info = true;
		return 0;
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->share;
		return 0;
	case ARGP_KEY_ARG:
		if (options->file)
			argp_error(state, "only one FILE is allowed, not '%s' too", argument);
		options->file = argument;
		return 0;
	case ARGP_KEY_END:
		check_replay_arguments(options, state);
		return 0;
	default:
		return parse_replay_pace(options, key, argument, state);
	}
}

static const struct argp_option replay_options[] = {
	{ "check", OPTION_CHECK, NULL, 0, "Verify the digests of FILE, print what it has, and publish nothing", 1 },
	{ "info", OPTION_INFO, NULL, 0, "Print what FILE has, and publish nothing", 1 },
	{ "listen", OPTION_LISTEN, "ADDRESS", 0, "Listen on this address (default: " STREAM_SERVER_ADDRESS ")", 1 },
	{ "name", OPTION_NAME, "NAME", 0, "Name of the stream (default: that of the recorded one)", 1 },
	{ "speed", OPTION_SPEED, "FACTOR", 0, "Publish at the recorded times, FACTOR times as fast (default: 1)", 1 },
	{ "rate", OPTION_RATE, "HZ", 0, "Publish HZ frames a second", 1 },
	{ "fast", OPTION_FAST, NULL, 0, "Publish without pauses", 1 },
	{ "loop", OPTION_LOOP, NULL, 0, "Begin again after the last frame, with sequences that go on", 1 },
	{ "slots", OPTION_SLOTS, "K", 0,
	  "Keep the last K frames for subscribers, 2 to 65536 (default: as the recorded stream)", 1 },
	{ "subscribers", OPTION_SUBSCRIBERS, "N", 0, "Wait for N subscribers before the first frame", 1 },
	{ "allow-block", OPTION_ALLOW_BLOCK, NULL, 0,
	  "Let subscribers hold frames back (--overflow block), so that the replay waits for them", 1 },
	{ 0 },
};

static const struct argp_child replay_children[] = STREAM_SHARE_CHILDREN;

static const struct cli_command replay_command = {
	.arguments = "FILE",
	.summary = "Publish the stream that `peerlane record` recorded into FILE, or check FILE.",
	.examples = {
		"peerlane replay --key key run7.plrec --listen :19875 --speed 0.5",
		"peerlane replay run7.plrec --check",
	},
	.notes = "Frames keep their sequences, times of capture, metadata and layouts, and are flagged as replayed.  An address "
		 "other than loopback needs a key; `peerlane key group key` makes one.  The exit status is 1 if FILE is "
		 "damaged; of --check, 3 if FILE has no index, because its writer was killed or the disk was full.\n",
	.options = replay_options,
	.parse = parse_replay_option,
	.children = replay_children,
	.connection = true,
};

void replay_parse_arguments(struct replay_options *options, int argc, char **argv)
{
	*options = (struct replay_options){ .listen = STREAM_SERVER_ADDRESS };
	cli_parse(&replay_command, argc, argv, &options->common, options);
	if (options->speed == 0)
		options->speed = 1;
}
