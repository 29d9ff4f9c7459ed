/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane fleet compare`: changes between two saved runs. */
#include <stdlib.h>
#include <string.h>

#include "cmd/fleet/changes.h"
#include "cmd/fleet/fleet.h"

struct compare_options {
	struct cli_options common;
	const char *paths[2];
	struct fleet_ignored *ignored;
	size_t ignored_count;
	bool csv;
};

enum { OPTION_IGNORE = 0x300, OPTION_CSV };

static error_t parse_fleet_compare_option(int key, char *argument, struct argp_state *state)
{
	struct compare_options *options = state->input;
	struct pl_error error;

	switch (key) {
	case OPTION_IGNORE:
		if (fleet_parse_ignored(&options->ignored, &options->ignored_count, argument, &error) < 0)
			argp_error(state, "--ignore: %s; %s", error.message, error.hint);
		return 0;
	case OPTION_CSV:
		options->csv = true;
		return 0;
	case ARGP_KEY_ARG:
		if (state->arg_num > 1)
			argp_error(state, "'%s': there are OLD and NEW already", argument);
		options->paths[state->arg_num] = argument;
		return 0;
	case ARGP_KEY_END:
		if (state->arg_num < 2)
			argp_error(state, "OLD and NEW are needed: folders of --save, or JSON documents");
		if (options->csv && options->common.json)
			argp_error(state, "--json and --csv exclude each other");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option fleet_compare_options[] = {
	{ "ignore", OPTION_IGNORE, "ID[:OBJECT][=REASON],...", 0, "Leave out changes of these checks and properties",
	  0 },
	{ "csv", OPTION_CSV, NULL, 0, "Print comma-separated values, with names in the first line", 0 },
	{ 0 },
};

static const struct cli_command fleet_compare_command = {
	.arguments = "OLD NEW",
	.summary = "Show what changed on which hosts between two saved runs of `peerlane fleet`.",
	.examples = {
		"peerlane fleet compare monday friday",
		"peerlane fleet compare monday.json friday.json --ignore kernel",
	},
	.notes = "OLD and NEW are folders of --save, files of --output, or documents of one host, as `peerlane check --json` "
		 "writes them.  Compared are statuses of checks, findings, devices and "
		 "their properties.  Times, loads, counters, addresses and starts of machines are no changes.\n"
		 "\n"
		 "Exit status: 0 nothing changed, 1 something changed, 2 a run cannot be read.\n",
	.options = fleet_compare_options,
	.parse = parse_fleet_compare_option,
};

static int read_both(struct saved *before, struct saved *after, const struct compare_options *options,
		     struct pl_error *error)
{
	int rc = saved_read(before, options->paths[0], error);

	return rc < 0 ? rc : saved_read(after, options->paths[1], error);
}

int fleet_compare(int argc, char **argv)
{
	struct compare_options options = { .paths = { NULL } };
	struct saved before = { .path = NULL }, after = { .path = NULL };
	struct changes changes = { .before = &before, .after = &after };
	struct pl_error error;
	int rc, status;

	cli_parse(&fleet_compare_command, argc, argv, &options.common, &options);
	changes.ignored = options.ignored;
	changes.ignored_count = options.ignored_count;
	rc = read_both(&before, &after, &options, &error);
	if (rc < 0) {
		cli_report_for(&options.common, &error);
		status = CLI_USAGE;
	} else {
		status = changes_show(&changes, &options.common, options.csv);
	}
	changes_free(&changes);
	saved_free(&before);
	saved_free(&after);
	return status;
}
