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

	switch (key) {
	case ARGP_KEY_ARG:
		if (list->address)
			argp_error(state, "only one ADDRESS is allowed, not '%s' too", argument);
		list->address = argument;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "the ADDRESS of a server is missing");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
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

static bool append_listing_entry(struct listing *listing, const struct service_entry *entry)
{
	if (listing->count == listing->room) {
		size_t room = listing->room ? listing->room * 2 : 64;
		struct service_entry *entries = realloc(listing->entries, room * sizeof(*entries));

		if (!entries)
			return false;
		listing->entries = entries;
		listing->room = room;
	}
	listing->entries[listing->count++] = *entry;
	return true;
}

/* Fetches the listing in pieces: the server answers with as many entries as fit behind the name in the request. */
static int fetch_listing(struct session *session, struct listing *listing, struct pl_error *error)
{
	struct service_message request = { .type = SERVICE_LIST }, answer;
	struct service_entry entry;
	int rc;

	do {
		size_t offset = 0, before = listing->count;

		rc = session_call(session, &request, &answer, error);
		if (rc < 0)
			return rc;
		while (service_entry_next(&answer, &offset, &entry))
			if (!append_listing_entry(listing, &entry))
				return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
		if (answer.more && listing->count == before)
			return cli_fail(error, -EPROTO, "SERVICE-PROTOCOL", session->address, NULL,
					"the server announced more entries and sent none");
		if (answer.more)
			strcpy(request.name, listing->entries[listing->count - 1].name);
	} while (answer.more);
	return 0;
}

int pl_cli_list(int argc, char **argv)
{
	struct list list = { .address = NULL };
	struct listing listing = { 0 };
	struct session session;
	struct pl_error error;
	int rc;

	cli_parse(&list_command, argc, argv, &list.common, &list);
	rc = session_open(&session, &list.common, list.address, &error);
	if (rc < 0)
		return cli_report_for(&list.common, &error);
	rc = fetch_listing(&session, &listing, &error);
	if (rc == 0 && list.common.json)
		listing_print_json(&listing, &session);
	else if (rc == 0)
		listing_print_table(&listing, list.common.quiet);
	session_close(&session);
	free(listing.entries);
	return rc < 0 ? cli_report_for(&list.common, &error) : CLI_OK;
}
