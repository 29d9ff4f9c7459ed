/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane streams` */
#include <stdlib.h>
#include <string.h>

#include "cmd/common/output.h"
#include "cmd/common/units.h"
#include "cmd/stream/client.h"
#include "cmd/stream/layout_text.h"
#include "cmd/stream/stream_json.h"
#include "cmd/stream/token_file.h"

/* Most publishers of a context. */
#define STREAMS_MAX 1024
#define INTERVAL_DEFAULT CLI_NS_PER_S
/* Digits of an instance in the table. */
#define INSTANCE_DIGITS 8

enum { OPTION_INTERVAL = 0x200, OPTION_TOKEN };

struct streams {
	struct cli_options common;
	const char *address, *token_file;
	struct stream_token_bytes token;          /* of the file; length 0: none */
	uint64_t interval;                        /* nanoseconds between two looks; 0: one look */
	struct pl_publisher_info *first, *second; /* the looks */
	int first_count, count;
	uint64_t span; /* nanoseconds between them */
};

static error_t parse_streams_option(int key, char *argument, struct argp_state *state)
{
	struct streams *streams = state->input;

	switch (key) {
	case OPTION_INTERVAL:
		if (cli_parse_seconds(argument, &streams->interval) < 0 || streams->interval > 3600 * CLI_NS_PER_S)
			argp_error(state, "--interval takes seconds up to 3600, such as 1 or 0.5, not '%s'", argument);
		return 0;
	case OPTION_TOKEN:
		streams->token_file = argument;
		return 0;
	default:
		return cli_parse_address(&streams->address, "a publisher", key, argument, state);
	}
}

static const struct argp_option streams_options[] = {
	{ "interval", OPTION_INTERVAL, "SECONDS", 0,
	  "Measure the rates over this time; 0: do not measure them (default: 1)", 1 },
	{ "token", OPTION_TOKEN, "FILE", 0,
	  "List the stream of the token in FILE, too, which the publisher wrote with --share", 1 },
	{ 0 },
};

static const struct cli_command streams_command = {
	.arguments = "ADDRESS",
	.summary = "List the streams that the process at ADDRESS publishes.",
	.examples = {
		"peerlane streams localhost",
		"peerlane streams --key key cam1 --json | jq -r '.streams[].name'",
	},
	.notes = "ADDRESS is HOST, HOST:PORT or [IPv6]:PORT; the default port is " CLI_DEFAULT_PORT ".\n",
	.options = streams_options,
	.parse = parse_streams_option,
	.connection = true,
};

static int look_at_streams(const struct streams *streams, const struct stream_client *client,
			   struct pl_publisher_info **infos, struct pl_error *error)
{
	int count;

	*infos = calloc(STREAMS_MAX, sizeof(**infos));
	if (!*infos)
		return cli_fail_errno(error, -ENOMEM, "malloc", client->address);
	(*infos)[0].size = sizeof(**infos);
	count = pl_peer_publishers_with_token(client->peer, streams->token_file ? streams->token.bytes : NULL,
					      streams->token.length, *infos, STREAMS_MAX, client->timeout, error);
	if (count < 0)
		stream_token_hint(streams->token_file, error);
	return CLI_MIN(count, STREAMS_MAX);
}

static int fetch_streams(struct streams *streams, const struct stream_client *client, struct pl_error *error)
{
	uint64_t begin;

	streams->first_count = look_at_streams(streams, client, &streams->first, error);
	if (streams->first_count < 0)
		return streams->first_count;
	begin = cli_now();
	if (streams->interval && streams->first_count && stream_client_wait(client, -1, streams->interval))
		return stream_fail_interrupted(error);
	streams->count = look_at_streams(streams, client, &streams->second, error);
	streams->span = cli_now() - begin;
	return CLI_MIN(streams->count, 0);
}

/* Returns the frames a second of a stream; negative if it was not measured. */
static double measure_stream_rate(const struct streams *streams, const struct pl_publisher_info *info)
{
	for (int i = 0; streams->interval && i < streams->first_count; i++) {
		const struct pl_publisher_info *before = &streams->first[i];

		if (!memcmp(before->instance, info->instance, sizeof(info->instance)) &&
		    info->published >= before->published)
			return (double)(info->published - before->published) * 1e9 / (double)streams->span;
	}
	return -1;
}

static int print_streams_json(const struct streams *streams, const struct stream_client *client)
{
	struct json_object *object = cli_json_begin(), *array = json_object_new_array();

	for (int i = 0; i < streams->count; i++) {
		double rate = measure_stream_rate(streams, &streams->second[i]);

		cli_json_append(array, stream_json_describe(&streams->second[i], rate));
	}
	cli_json_add(object, "address", cli_json_text(client->info.address));
	cli_json_add(object, "authenticated", json_object_new_boolean(client->info.authenticated));
	cli_json_add(object, "encrypted", json_object_new_boolean(client->info.encrypted));
	cli_json_add(object, "streams", array);
	return cli_json_results(object);
}

static void add_stream_line(struct libscols_table *table, const struct streams *streams,
			    const struct pl_publisher_info *info)
{
	struct libscols_line *line = cli_table_line(table);
	char text[STREAM_SHAPE_MAX], instance[STREAM_INSTANCE_MAX];
	double rate = measure_stream_rate(streams, info);

	cli_table_set(line, 0, info->name);
	stream_instance_format(instance, info->instance);
	instance[INSTANCE_DIGITS] = '\0';
	cli_table_set(line, 1, instance);
	cli_table_set(line, 2, stream_dtype_format(text, &info->layout));
	cli_table_set(line, 3, stream_shape_format(text, &info->layout));
	snprintf(text, sizeof(text), "%llu", (unsigned long long)info->slots);
	cli_table_set(line, 4, text);
	cli_table_set(line, 5, info->memory);
	if (rate < 0)
		snprintf(text, sizeof(text), "-");
	else
		snprintf(text, sizeof(text), "%.1f/s", rate);
	cli_table_set(line, 6, info->state == PL_STREAM_LIVE ? text : "ended");
	snprintf(text, sizeof(text), "%llu", (unsigned long long)info->published);
	cli_table_set(line, 7, text);
	snprintf(text, sizeof(text), "%u", info->subscribers);
	cli_table_set(line, 8, text);
	snprintf(text, sizeof(text), "%u", info->blocking);
	cli_table_set(line, 9, info->allow_block ? text : "-");
}

static int print_streams_table(const struct streams *streams, struct pl_error *error)
{
	static const struct cli_column columns[] = {
		{ "NAME", 0 },
		{ "INSTANCE", 0 },
		{ "DTYPE", 0 },
		{ "SHAPE", 0 },
		{ "SLOTS", SCOLS_FL_RIGHT },
		{ "MEMORY", 0 },
		{ "RATE", SCOLS_FL_RIGHT },
		{ "PUBLISHED", SCOLS_FL_RIGHT },
		{ "SUBSCRIBERS", SCOLS_FL_RIGHT },
		{ "BLOCK", SCOLS_FL_RIGHT },
	};
	struct libscols_table *table = cli_table(columns, CLI_ARRAY_SIZE(columns));

	if (!table)
		return cli_fail_errno(error, -ENOMEM, "malloc", "standard output");
	for (int i = 0; i < streams->count; i++)
		add_stream_line(table, streams, &streams->second[i]);
	cli_table_print(table);
	return CLI_OK;
}

int pl_cli_streams(int argc, char **argv)
{
	struct streams streams = { .interval = INTERVAL_DEFAULT };
	struct stream_client client;
	struct pl_error error;
	int rc;

	cli_parse(&streams_command, argc, argv, &streams.common, &streams);
	rc = streams.token_file ? stream_token_read(streams.token_file, &streams.token, &error) : 0;
	if (rc == 0)
		rc = stream_client_open(&client, &streams.common, streams.address, &error);
	if (rc < 0) {
		stream_token_wipe(&streams.token);
		return cli_report_for(&streams.common, &error);
	}
	rc = fetch_streams(&streams, &client, &error);
	stream_token_wipe(&streams.token);
	if (rc == 0 && streams.common.json)
		rc = print_streams_json(&streams, &client);
	else if (rc == 0 && streams.count)
		rc = print_streams_table(&streams, &error);
	else if (rc == 0 && !streams.common.quiet)
		printf("no streams at %s\n", client.info.address);
	stream_client_close(&client);
	free(streams.first);
	free(streams.second);
	return rc < 0 ? cli_report_for(&streams.common, &error) : rc;
}
