/* SPDX-License-Identifier: BSD-2-Clause */
/* Command line of `peerlane subscribe`. */
#include <string.h>

#include "cmd/common/units.h"
#include "cmd/stream/options_text.h"
#include "cmd/stream/subscribe.h"

enum {
	OPTION_START = 0x200,
	OPTION_OVERFLOW,
	OPTION_QUEUE,
	OPTION_EVERY,
	OPTION_COUNT,
	OPTION_TO,
	OPTION_VERIFY,
	OPTION_LOSSLESS,
	OPTION_IN_PLACE,
	OPTION_PUSH,
	OPTION_SNAPSHOT,
	OPTION_RECONNECT,
	OPTION_MEMORY_LIMIT,
	OPTION_STAGING_MEMORY,
	OPTION_TOKEN,
	OPTION_MEMORY = 'm',
};

#define QUEUE_MAX 4096

static error_t parse_subscribe_number(struct subscribe_options *options, int key, const char *argument,
				      struct argp_state *state)
{
	uint64_t bytes;

	switch (key) {
	case OPTION_QUEUE:
		if (cli_parse_number(argument, 1, QUEUE_MAX, &options->source.stream.queue) < 0)
			argp_error(state, "--queue takes a number from 1 to %d, not '%s'", QUEUE_MAX, argument);
		return 0;
	case OPTION_EVERY:
		if (cli_parse_number(argument, 1, UINT32_MAX, &options->source.stream.every) < 0)
			argp_error(state, "--every takes a number, at least 1, not '%s'", argument);
		return 0;
	case OPTION_COUNT:
		if (stream_number_parse(argument, 1, INT64_MAX, &options->count) < 0)
			argp_error(state, "--count takes a number of frames, at least 1, not '%s'", argument);
		return 0;
	case OPTION_RECONNECT:
		if (cli_parse_seconds(argument, &options->source.reconnect) < 0 || !options->source.reconnect)
			argp_error(state, "--reconnect takes seconds above 0, such as 30, not '%s'", argument);
		return 0;
	case OPTION_MEMORY_LIMIT:
		if (cli_parse_size(argument, &bytes) < 0 || !bytes || bytes > SIZE_MAX)
			argp_error(state, "--memory-limit takes a size, such as 4G, not '%s'", argument);
		options->source.stream.memory_bytes = (size_t)bytes;
		return 0;
	case OPTION_STAGING_MEMORY:
		if (cli_parse_size(argument, &bytes) < 0 || !bytes || bytes > SIZE_MAX)
			argp_error(state, "--staging-memory takes a size, such as 1G, not '%s'", argument);
		options->source.common.staging = (size_t)bytes;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void parse_subscribe_argument(struct subscribe_options *options, const char *argument, struct argp_state *state)
{
	if (!options->source.address)
		options->source.address = argument;
	else if (!options->source.name)
		options->source.name = argument;
	else
		argp_error(state, "only an ADDRESS and a NAME are allowed, not '%s' too", argument);
}

static void check_subscribe_arguments(const struct subscribe_options *options, struct argp_state *state)
{
	stream_source_check(&options->source, state);
	if (options->snapshot && !snapshot_path_valid(options->snapshot))
		argp_error(state, "--snapshot takes the name of a .png or .npy file, not '%s'", options->snapshot);
	if (options->source.stream.in_place && options->source.stream.overflow == PL_OVERFLOW_DROP_NEWEST)
		argp_error(state, "--in-place implies --overflow block");
	if (options->source.stream.in_place && options->source.stream.push)
		argp_error(state,
			   "--push writes frames into this command's memory, and --in-place uses the publisher's");
	if (options->source.stream.in_place && options->source.stream.memory &&
	    strcmp(options->source.stream.memory, "host"))
		argp_error(state, "--in-place uses frames in host memory, not in '%s'", options->source.stream.memory);
	/* A snapshot keeps a frame between two writes of the file, and would hold the publisher back meanwhile. */
	if (options->source.stream.in_place && options->snapshot)
		argp_error(state, "--snapshot keeps frames, and --in-place must not: use one of them");
	if (options->to && !strcmp(options->to, "-") && options->source.common.json)
		argp_error(state, "--json and the frames would both be written to standard output");
}

static error_t parse_subscribe_option(int key, char *argument, struct argp_state *state)
{
	struct subscribe_options *options = state->input;

	switch (key) {
	case OPTION_START:
		if (stream_start_parse(argument, &options->source.stream) < 0)
			argp_error(state, "--start takes live, latest, history:N or sequence:N, not '%s'", argument);
		return 0;
	case OPTION_OVERFLOW:
		if (stream_overflow_parse(argument, &options->source.stream.overflow) < 0)
			argp_error(state, "--overflow takes drop-oldest, drop-newest or block, not '%s'", argument);
		return 0;
	case OPTION_MEMORY:
		options->source.stream.memory = cli_parse_memory_kind("memory", argument, state);
		return 0;
	case OPTION_TO:
		options->to = argument;
		return 0;
	case OPTION_VERIFY:
		options->verify = true;
		return 0;
	case OPTION_LOSSLESS:
		options->lossless = true;
		return 0;
	case OPTION_IN_PLACE:
		options->source.stream.in_place = true;
		return 0;
	case OPTION_PUSH:
		options->source.stream.push = true;
		return 0;
	case OPTION_SNAPSHOT:
		options->snapshot = argument;
		return 0;
	case OPTION_TOKEN:
		options->source.token_file = argument;
		return 0;
	case ARGP_KEY_ARG:
		parse_subscribe_argument(options, argument, state);
		return 0;
	case ARGP_KEY_END:
		check_subscribe_arguments(options, state);
		return 0;
	default:
		return parse_subscribe_number(options, key, argument, state);
	}
}

static const struct argp_option subscribe_options[] = {
	{ "start", OPTION_START, "WHERE", 0,
	  "Begin with the next frame (live), the newest (latest), the N newest (history:N), or a sequence (sequence:N) "
	  "(default: live)",
	  1 },
	{ "overflow", OPTION_OVERFLOW, "CHOICE", 0,
	  "While the queue is full, drop its oldest frame (drop-oldest), leave new ones (drop-newest), or let the "
	  "publisher "
	  "wait (block) (default: drop-oldest)",
	  1 },
	{ "queue", OPTION_QUEUE, "N", 0, "Fetch 1 to 4096 frames ahead (default: 4)", 1 },
	{ "every", OPTION_EVERY, "N", 0, "Take only the first of each N frames", 1 },
	{ "count", OPTION_COUNT, "N", 0, "Exit after N frames", 1 },
	{ "memory", OPTION_MEMORY, "KIND", 0,
	  "Take the frames into memory of this kind: host, cuda, or cuda:1 for a GPU by its number (default: host)",
	  1 },
	{ "in-place", OPTION_IN_PLACE, NULL, 0,
	  "Use the frames in the memory of a publisher of this host, without a copy; it waits meanwhile (--overflow "
	  "block)",
	  1 },
	{ "push", OPTION_PUSH, NULL, 0,
	  "Let the publisher write the frames into memory of this command: for a sensor that can only write", 1 },
	{ "to", OPTION_TO, "FILE", 0,
	  "Write the frames into FILE, as raw bytes, or as one array if its name ends in .npy; -: standard output", 1 },
	{ "snapshot", OPTION_SNAPSHOT, "FILE", 0,
	  "Keep the latest frame in FILE, a .png or .npy file, which is replaced up to 4 times a second", 1 },
	{ "verify", OPTION_VERIFY, NULL, 0, "Compare each frame with the test pattern of `peerlane publish`", 1 },
	{ "lossless", OPTION_LOSSLESS, NULL, 0, "Fail at the first frame that is lost", 1 },
	{ "token", OPTION_TOKEN, "FILE", 0, STREAM_TOKEN_HELP, 1 },
	{ "reconnect", OPTION_RECONNECT, "SECONDS", 0,
	  "At the start, and after the loss of the connection, try for this time to connect (default: fail)", 1 },
	{ "memory-limit", OPTION_MEMORY_LIMIT, "SIZE", 0,
	  "Use at most this memory for the queue and two more frames (default: 1G)", 1 },
	{ "staging-memory", OPTION_STAGING_MEMORY, "SIZE", 0,
	  "Lock at most this host memory for the copies of a GPU (default: 128M, and an eighth of the host's memory "
	  "for "
	  "frames of a publisher of this host)",
	  1 },
	{ 0 },
};

static const struct cli_command subscribe_command = {
	.arguments = "ADDRESS NAME",
	.summary = "Take the frames of the stream NAME from the publisher at ADDRESS.",
	.examples = {
		"peerlane subscribe --key key cam1 cam0 --count 2000 --to frames.npy",
		"peerlane subscribe --key key cam1 cam0 --snapshot latest.png",
	},
	.notes = "Ends with the stream, after --count frames, or with SIGINT or SIGTERM.  The exit status is 3 if frames were "
		 "lost, and 1 after a failure.\n",
	.options = subscribe_options,
	.parse = parse_subscribe_option,
	.connection = true,
};

void subscribe_parse_arguments(struct subscribe_options *options, int argc, char **argv)
{
	*options = (struct subscribe_options){ .source.stream = PL_SUBSCRIBER_OPTIONS_INIT, .count = UINT64_MAX };
	cli_parse(&subscribe_command, argc, argv, &options->source.common, options);
}
