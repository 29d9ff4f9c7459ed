/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "cmd/transfer/transfer.h"

struct list {
	struct cli_options common;
	const char *address;
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct list *list = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &list->common;
		return 0;
	case ARGP_KEY_ARG:
		if (list->address)
			argp_error(state, "one ADDRESS only, not '%s' too", argument);
		list->address = argument;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "the ADDRESS of a server is missing");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_child children[] = {
	{ &cli_connection_argp, 0, NULL, 0 },
	{ 0 },
};

static const struct argp arguments = {
	NULL,
	parse,
	"ADDRESS",
	"Show what `peerlane serve` at ADDRESS publishes."
	"\v"
	"ADDRESS is HOST, HOST:PORT or [IPv6]:PORT; the default port is " CLI_DEFAULT_PORT ".\n"
	"\n"
	"Examples:\n"
	"  peerlane list localhost\n"
	"  peerlane list --key key gpu1 --json | jq -r '.entries[].name'\n",
	children,
	cli_help_filter,
	NULL
};

static bool append(struct listing *listing, const struct service_entry *entry)
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

/* The server answers with as many names as fit; the last one of these asks for the next. */
static int fetch(struct session *session, struct listing *listing, struct pl_error *error)
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
			if (!append(listing, &entry))
				return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
		if (answer.more && listing->count == before)
			return cli_fail(error, -EPROTO, "SERVICE-PROTOCOL", session->address, NULL,
					"the server's listing does not go on");
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

	cli_parse(&arguments, argc, argv, &list);
	rc = session_open(&session, &list.common, list.address, &error);
	if (rc < 0)
		return cli_report_for(&list.common, &error);
	rc = fetch(&session, &listing, &error);
	if (rc == 0 && list.common.json)
		render_list_json(&listing, &session);
	else if (rc == 0)
		render_list_table(&listing, list.common.quiet);
	session_close(&session);
	free(listing.entries);
	return rc < 0 ? cli_report_for(&list.common, &error) : CLI_OK;
}
