/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "cmd/common/output.h"
#include "cmd/transfer/listing.h"

struct list {
	struct cli_options common;
	const char *address;
};

static error_t parse_list_argument(int key, char *argument, struct argp_state *state)
{
	struct list *list = state->input;

	return cli_parse_address(&list->address, "a server", key, argument, state);
}

static const struct cli_command list_command = {
	.arguments = "ADDRESS",
	.summary = "List the files and memory that `peerlane serve` at ADDRESS publishes.",
	.examples = {
		"peerlane list localhost",
		"peerlane list --key key gpu1 --json | jq -r '.entries[].name'",
	},
	.notes = "ADDRESS is HOST, HOST:PORT or [IPv6]:PORT; the default port is " CLI_DEFAULT_PORT ".\n",
	.parse = parse_list_argument,
	.connection = true,
};

int pl_cli_list(int argc, char **argv)
{
	struct list list = { .address = NULL };
	struct listing listing = { 0 };
	struct session session;
	struct pl_error error;
	int rc, status = CLI_OK;

	cli_parse(&list_command, argc, argv, &list.common, &list);
	rc = session_open(&session, &list.common, list.address, &error);
	if (rc < 0)
		return cli_report_for(&list.common, &error);
	rc = listing_fetch(&session, &listing, &error);
	if (rc == 0 && list.common.json)
		status = listing_print_json(&listing, &session);
	else if (rc == 0)
		listing_print_table(&listing, list.common.quiet);
	session_close(&session);
	listing_free(&listing);
	return rc < 0 ? cli_report_for(&list.common, &error) : status;
}
