/* SPDX-License-Identifier: BSD-2-Clause */
/* Command line of `peerlane relay`. */
#include "cmd/common/units.h"
#include "cmd/stream/options_text.h"
#include "cmd/stream/relay.h"
#include "stream/ring.h"

enum {
	OPTION_LISTEN = 0x200,
	OPTION_NAME,
	OPTION_SLOTS,
	OPTION_ALLOW_BLOCK,
	OPTION_PATIENCE,
	OPTION_START,
	OPTION_OVERFLOW,
	OPTION_QUEUE,
	OPTION_RECONNECT,
	OPTION_MEMORY_LIMIT,
	OPTION_PUSH,
	OPTION_TOKEN,
};

#define QUEUE_MAX 4096

/* Parses an option about the stream that is relayed. */
static error_t parse_upstream_option(struct subscribe_options *upstream, int key, const char *argument,
				     struct argp_state *state)
{
	uint64_t bytes;

	switch (key) {
	case OPTION_START:
		if (stream_start_parse(argument, &upstream->source.stream) < 0)
			argp_error(state, "--start takes live, latest, history:N or sequence:N, not '%s'", argument);
		return 0;
	case OPTION_OVERFLOW:
		if (stream_overflow_parse(argument, &upstream->source.stream.overflow) < 0)
			argp_error(state, "--overflow takes drop-oldest, drop-newest or block, not '%s'", argument);
		return 0;
	case OPTION_QUEUE:
		if (cli_parse_number(argument, 1, QUEUE_MAX, &upstream->source.stream.queue) < 0)
			argp_error(state, "--queue takes a number from 1 to %d, not '%s'", QUEUE_MAX, argument);
		return 0;
	case OPTION_RECONNECT:
		if (cli_parse_seconds(argument, &upstream->source.reconnect) < 0 || !upstream->source.reconnect)
			argp_error(state, "--reconnect takes seconds above 0, such as 30, not '%s'", argument);
		return 0;
	case OPTION_MEMORY_LIMIT:
		if (cli_parse_size(argument, &bytes) < 0 || !bytes || bytes > SIZE_MAX)
			argp_error(state, "--memory-limit takes a size, such as 4G, not '%s'", argument);
		upstream->source.stream.memory_bytes = (size_t)bytes;
		return 0;
	case OPTION_PUSH:
		upstream->source.stream.push = true;
		return 0;
	case OPTION_TOKEN:
		upstream->source.token_file = argument;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void parse_relay_argument(struct subscribe_options *upstream, const char *argument, struct argp_state *state)
{
	if (!upstream->source.address)
		upstream->source.address = argument;
	else if (!upstream->source.name)
		upstream->source.name = argument;
	else
		argp_error(state, "only an ADDRESS and a NAME are allowed, not '%s' too", argument);
}

static void check_relay_arguments(const struct relay_options *options, struct argp_state *state)
{
	stream_source_check(&options->upstream.source, state);
	if (options->name && !pl_stream_name_valid(options->name))
		argp_error(state, "--name takes 1 to 63 characters of A-Z a-z 0-9 . _ -, not '%s'", options->name);
	if (options->patience && !options->allow_block)
		argp_error(state, "--patience needs --allow-block");
}

static error_t parse_relay_option(int key, char *argument, struct argp_state *state)
{
	struct relay_options *options = state->input;

	switch (key) {
	case OPTION_LISTEN:
		options->listen = argument;
		return 0;
	case OPTION_NAME:
		options->name = argument;
		return 0;
	case OPTION_SLOTS:
		if (stream_number_parse(argument, 2, PL_STREAM_SLOTS_MAX, &options->slots) < 0)
			argp_error(state, "--slots takes a number from 2 to %d, not '%s'", PL_STREAM_SLOTS_MAX,
				   argument);
		return 0;
	case OPTION_ALLOW_BLOCK:
		options->allow_block = true;
		return 0;
	case OPTION_PATIENCE:
		if (stream_patience_parse(argument, &options->patience) < 0)
			argp_error(state, "--patience takes seconds above 0, or never, not '%s'", argument);
		return 0;
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &options->share;
		return 0;
	case ARGP_KEY_ARG:
		parse_relay_argument(&options->upstream, argument, state);
		return 0;
	case ARGP_KEY_END:
		check_relay_arguments(options, state);
		return 0;
	default:
		return parse_upstream_option(&options->upstream, key, argument, state);
	}
}

static const struct argp_option relay_options[] = {
	{ "listen", OPTION_LISTEN, "ADDRESS", 0, "Listen on this address (default: " STREAM_SERVER_ADDRESS ")", 1 },
	{ "name", OPTION_NAME, "NAME", 0, "Name of the relay's stream (default: that of the relayed one)", 1 },
	{ "slots", OPTION_SLOTS, "K", 0,
	  "Keep the last K frames for subscribers, 2 to 65536 (default: as many as the publisher)", 1 },
	{ "allow-block", OPTION_ALLOW_BLOCK, NULL, 0, "Let subscribers of the relay hold frames back", 1 },
	{ "patience", OPTION_PATIENCE, "SECONDS", 0,
	  "Wait at most this time for a subscriber that holds frames back; then it loses frames (default: 1; or never)",
	  1 },
	{ NULL, 0, NULL, 0, "Frames of the publisher:", 2 },
	{ "start", OPTION_START, "WHERE", 0,
	  "Begin with the next frame (live), the newest (latest), the N newest (history:N), or a sequence (sequence:N) "
	  "(default: live)",
	  2 },
	{ "overflow", OPTION_OVERFLOW, "CHOICE", 0,
	  "While the queue is full: drop-oldest, drop-newest or block (default: drop-oldest)", 2 },
	{ "queue", OPTION_QUEUE, "N", 0, "Fetch 1 to 4096 frames ahead (default: 4)", 2 },
	{ "push", OPTION_PUSH, NULL, 0,
	  "Let the publisher write the frames into memory of this command: for a sensor that can only write", 2 },
	{ "token", OPTION_TOKEN, "FILE", 0, STREAM_TOKEN_HELP, 2 },
	{ "reconnect", OPTION_RECONNECT, "SECONDS", 0,
	  "At the start, and after the loss of the connection, try for this time to connect (default: fail)", 2 },
	{ "memory-limit", OPTION_MEMORY_LIMIT, "SIZE", 0,
	  "Use at most this memory for the queue and two more frames (default: 1G)", 2 },
	{ 0 },
};

static const struct argp_child relay_children[] = STREAM_SHARE_CHILDREN;

static const struct cli_command relay_command = {
	.arguments = "ADDRESS NAME",
	.summary = "Publish the stream NAME of the publisher at ADDRESS again, for more subscribers.",
	.examples = {
		"peerlane relay --key key cam1 cam0 --listen :19876",
		"peerlane relay --key key cam1 cam0 --slots 1000 --start history:1000",
	},
	.notes = "The frames leave the publisher once, for any number of subscribers of the relay.  They keep their sequences "
		 "and times of capture.  The relay ends with the stream, or with SIGINT or SIGTERM.  The exit status is 3 if "
		 "the relay lost frames, and 1 after a failure.\n",
	.options = relay_options,
	.parse = parse_relay_option,
	.children = relay_children,
	.connection = true,
};

void relay_parse_arguments(struct relay_options *options, int argc, char **argv)
{
	*options = (struct relay_options){ .upstream = { .source.stream = PL_SUBSCRIBER_OPTIONS_INIT,
							 .count = UINT64_MAX },
					   .listen = STREAM_SERVER_ADDRESS };
	cli_parse(&relay_command, argc, argv, &options->upstream.source.common, options);
}
