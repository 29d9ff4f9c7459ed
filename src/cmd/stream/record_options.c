/* SPDX-License-Identifier: BSD-2-Clause */
/* Command line of `peerlane record`. */
#include "cmd/common/units.h"
#include "cmd/stream/options_text.h"
#include "cmd/stream/record.h"

enum {
	OPTION_TO = 0x200,
	OPTION_START,
	OPTION_OVERFLOW,
	OPTION_QUEUE,
	OPTION_COUNT,
	OPTION_SECONDS,
	OPTION_MEMORY_LIMIT,
	OPTION_FORCE,
	OPTION_PUSH,
	OPTION_TOKEN,
	OPTION_RECONNECT,
};

#define QUEUE_MAX 4096

static error_t parse_record_number(struct record_options *options, int key, const char *argument,
				   struct argp_state *state)
{
	uint64_t bytes;

	switch (key) {
	case OPTION_QUEUE:
		if (cli_parse_number(argument, 1, QUEUE_MAX, &options->source.stream.queue) < 0)
			argp_error(state, "--queue takes a number from 1 to %d, not '%s'", QUEUE_MAX, argument);
		return 0;
	case OPTION_COUNT:
		if (stream_number_parse(argument, 1, INT64_MAX, &options->count) < 0)
			argp_error(state, "--count takes a number of frames, at least 1, not '%s'", argument);
		return 0;
	case OPTION_SECONDS:
		if (cli_parse_seconds(argument, &options->seconds) < 0 || !options->seconds)
			argp_error(state, "--seconds takes a time above 0, such as 60, not '%s'", argument);
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
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void parse_record_argument(struct record_options *options, const char *argument, struct argp_state *state)
{
	if (!options->source.address)
		options->source.address = argument;
	else if (!options->source.name)
		options->source.name = argument;
	else
		argp_error(state, "only an ADDRESS and a NAME are allowed, not '%s' too", argument);
}

static void check_record_arguments(const struct record_options *options, struct argp_state *state)
{
	stream_source_check(&options->source, state);
	if (!options->to)
		argp_error(state, "the file is missing: add --to, such as --to %s.plrec", options->source.name);
}

static error_t parse_record_option(int key, char *argument, struct argp_state *state)
{
	struct record_options *options = state->input;

	switch (key) {
	case OPTION_TO:
		options->to = argument;
		return 0;
	case OPTION_START:
		if (stream_start_parse(argument, &options->source.stream) < 0)
			argp_error(state, "--start takes live, latest, history:N or sequence:N, not '%s'", argument);
		return 0;
	case OPTION_OVERFLOW:
		if (stream_overflow_parse(argument, &options->source.stream.overflow) < 0)
			argp_error(state, "--overflow takes drop-oldest, drop-newest or block, not '%s'", argument);
		return 0;
	case OPTION_FORCE:
		options->force = true;
		return 0;
	case OPTION_PUSH:
		options->source.stream.push = true;
		return 0;
	case OPTION_TOKEN:
		options->source.token_file = argument;
		return 0;
	case ARGP_KEY_ARG:
		parse_record_argument(options, argument, state);
		return 0;
	case ARGP_KEY_END:
		check_record_arguments(options, state);
		return 0;
	default:
		return parse_record_number(options, key, argument, state);
	}
}

static const struct argp_option record_options[] = {
	{ "to", OPTION_TO, "FILE", 0, "Write the recording into FILE, which must not exist (required)", 1 },
	{ "force", OPTION_FORCE, NULL, 0, "Replace FILE", 1 },
	{ "start", OPTION_START, "WHERE", 0,
	  "Begin with the next frame (live), the newest (latest), the N newest (history:N), or a sequence (sequence:N) "
	  "(default: live)",
	  1 },
	{ "overflow", OPTION_OVERFLOW, "CHOICE", 0,
	  "While the queue is full, drop its oldest frame (drop-oldest), leave new ones (drop-newest), or let the "
	  "publisher wait (block) (default: drop-oldest)",
	  1 },
	{ "queue", OPTION_QUEUE, "N", 0, "Fetch 1 to 4096 frames ahead (default: 4)", 1 },
	{ "push", OPTION_PUSH, NULL, 0,
	  "Let the publisher write the frames into memory of this command: for a sensor that can only write", 1 },
	{ "token", OPTION_TOKEN, "FILE", 0, STREAM_TOKEN_HELP, 1 },
	{ "reconnect", OPTION_RECONNECT, "SECONDS", 0,
	  "At the start, and after the loss of the connection, try for this time to connect (default: end)", 1 },
	{ "count", OPTION_COUNT, "N", 0, "End after N frames", 1 },
	{ "seconds", OPTION_SECONDS, "SECONDS", 0, "End after this time", 1 },
	{ "memory-limit", OPTION_MEMORY_LIMIT, "SIZE", 0,
	  "Use at most this memory for the queue and one more frame (default: 1G)", 1 },
	{ 0 },
};

static const struct cli_command record_command = {
	.arguments = "ADDRESS NAME",
	.summary = "Record the frames of the stream NAME from the publisher at ADDRESS into a file.",
	.examples = {
		"peerlane record --key key cam1 cam0 --to run7.plrec --overflow block",
		"peerlane record cam1 cam0 --to run8.plrec --seconds 60 --reconnect 30",
	},
	.notes = "Ends with the stream, after --count frames or --seconds, or with SIGINT or SIGTERM.  A recording that was "
		 "killed keeps its whole frames.  `peerlane replay` publishes and checks recordings.  The exit status is 3 if "
		 "frames were lost, and 1 after a failure.\n",
	.options = record_options,
	.parse = parse_record_option,
	.connection = true,
};

void record_parse_arguments(struct record_options *options, int argc, char **argv)
{
	*options = (struct record_options){ .source.stream = PL_SUBSCRIBER_OPTIONS_INIT,
					    .count = UINT64_MAX,
					    .seconds = UINT64_MAX };
	cli_parse(&record_command, argc, argv, &options->source.common, options);
}
