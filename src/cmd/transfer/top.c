/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane top` */
#include <stdlib.h>

#include "cmd/common/units.h"
#include "cmd/transfer/top.h"

#define INTERVAL_DEFAULT CLI_NS_PER_S

struct top {
	struct cli_options common;
	const char *address;
	uint64_t interval; /* nanoseconds */
	unsigned count;    /* looks; 0: until the command is interrupted */
};

static error_t parse_top_option(int key, char *argument, struct argp_state *state)
{
	struct top *top = state->input;

	switch (key) {
	case 'i':
		if (cli_parse_seconds(argument, &top->interval) < 0 || top->interval < 100 * CLI_NS_PER_MS ||
		    top->interval > 3600 * CLI_NS_PER_S)
			argp_error(state, "--interval takes seconds from 0.1 to 3600, not '%s'", argument);
		return 0;
	case 'n':
		if (cli_parse_number(argument, 1, 1000000000, &top->count) < 0)
			argp_error(state, "--count takes a number from 1 to 1000000000, not '%s'", argument);
		return 0;
	default:
		return cli_parse_address(&top->address, "a server", key, argument, state);
	}
}

static const struct argp_option top_options[] = {
	{ "count", 'n', "N", 0, "End after N times (default: when interrupted)", 1 },
	{ "interval", 'i', "SECONDS", 0, "Time over which rates are measured, 0.1 to 3600 (default: 1)", 1 },
	{ 0 },
};

static const struct cli_command top_command = {
	.arguments = "ADDRESS",
	.summary = "Show the clients of `peerlane serve` at ADDRESS, with their rates, again and again.",
	.examples = {
		"peerlane top localhost",
		"peerlane top --key key gpu1 -n 1 --json | jq .read_bytes_per_second",
	},
	.notes = "ADDRESS is HOST, HOST:PORT or [IPv6]:PORT; the default port is " CLI_DEFAULT_PORT ".\n\n"
		 "Bytes are those that clients report while they read or write, holes of sparse files included.  Clients of earlier "
		 "versions report no reads.  STAGING, DIRECT and STAGED have no small files.\n",
	.options = top_options,
	.parse = parse_top_option,
	.connection = true,
};

/* Waits for the next look. */
static int wait_until(struct session *session, uint64_t time, struct pl_error *error)
{
	uint64_t now;
	int rc = 0;

	while (rc == 0 && session->peer && (now = cli_now()) < time)
		rc = session_pump(session, (int)((time - now) / CLI_NS_PER_MS) + 1, error);
	return rc;
}

static int print_look(const struct top *top, const struct session *session, const struct top_look *before,
		      const struct top_look *now, struct pl_error *error)
{
	struct top_row *rows = top_sort(before, now);
	int rc = rows ? 0 : -ENOMEM;

	if (rows && top->common.json)
		rc = top_print_json(session, before, now, rows);
	else if (rows)
		top_print(session, before, now, rows, top->common.quiet);
	free(rows);
	return rc < 0 ? cli_fail_errno(error, rc, "malloc", "standard output") : 0;
}

static int watch(const struct top *top, struct session *session, struct pl_error *error)
{
	struct top_look looks[2] = { { 0 } };
	unsigned shown = 0;
	int rc = top_look(session, &looks[0], error);

	while (rc == 0 && (!top->count || shown < top->count) && !ferror(stdout)) {
		struct top_look *before = &looks[shown % 2], *now = &looks[(shown + 1) % 2];

		rc = wait_until(session, before->time + top->interval, error);
		if (rc == 0)
			rc = top_look(session, now, error);
		if (rc == 0)
			rc = print_look(top, session, before, now, error);
		shown++;
	}
	top_look_free(&looks[0]);
	top_look_free(&looks[1]);
	/* An interrupt ends the command. */
	return rc == -EINTR && !top->count ? 0 : rc;
}

int pl_cli_top(int argc, char **argv)
{
	struct top top = { .interval = INTERVAL_DEFAULT };
	struct session session;
	struct pl_error error;
	int rc;

	cli_parse(&top_command, argc, argv, &top.common, &top);
	rc = session_open(&session, &top.common, top.address, &error);
	if (rc < 0)
		return cli_report_for(&top.common, &error);
	rc = watch(&top, &session, &error);
	session_close(&session);
	return rc < 0 ? cli_report_for(&top.common, &error) : CLI_OK;
}
