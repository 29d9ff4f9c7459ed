/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "cmd/demo/demo.h"
#include "cmd/transfer/transfer.h"
#include "cmd/common/units.h"

#define SIZE_DEFAULT (256ull << 20)
#define FRAMES_DEFAULT 64

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct demo *demo = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &demo->common;
		return 0;
	case 's':
		if (cli_parse_size(argument, &demo->size) || !demo->size)
			argp_error(state, "--size takes a size, such as 256M, not '%s'", argument);
		return 0;
	case 'n':
		if (cli_parse_number(argument, 1, 1000000, &demo->frames))
			argp_error(state, "--frames takes a number, not '%s'", argument);
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "there are no arguments");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{ "size", 's', "SIZE", 0, "Pull files of at least this many bytes (default: 256M)", 1 },
	{ "frames", 'n', "N", 0, "Push N frames of 8 MiB (default: 64)", 1 },
	{ 0 },
};

static const struct argp_child children[] = {
	{ &cli_connection_argp, 0, NULL, 0 },
	{ 0 },
};

static const struct argp arguments = {
	options,
	parse,
	"",
	"Show what Peerlane does, on this machine and with its real files."
	"\v"
	"A second process stands for the remote host and serves compilers, libraries and programs of this machine.  "
	"This "
	"process pulls them into its memory by one-sided reads and compares every byte with the files themselves, "
	"pushes "
	"a stream of 8 MiB frames by one-sided writes and compares hashes that the other process computes, and times "
	"writes of 8 bytes.  The two authenticate with a key made for the purpose.  Nothing is left behind.\n"
	"\n"
	"Examples:\n"
	"  peerlane demo\n"
	"  peerlane demo --encrypt --streams 2\n"
	"  peerlane demo --json | jq '.steps[] | {step, bytes_per_second}'\n",
	children,
	cli_help_filter,
	NULL
};

static void say_begin(const struct demo *demo)
{
	char bytes[CLI_UNIT_MAX];

	if (demo->common.quiet || demo->common.json)
		return;
	printf("A second process serves %zu files of this machine, %s, at %s.\n\n", demo->files.count,
	       cli_format_bytes(bytes, demo->files.bytes), demo->server.address);
	fflush(stdout);
}

static int run(struct demo *demo, struct pl_error *error)
{
	uint64_t begin = cli_now();
	int rc = demo_files_gather(&demo->files, demo->size, error);

	if (rc == 0) {
		demo->rounds = (unsigned)((demo->size + demo->files.bytes - 1) / demo->files.bytes);
		rc = demo_server_start(&demo->server, &demo->common, &demo->files, error);
	}
	if (rc == 0)
		rc = session_open(&demo->session, &demo->common, demo->server.address, error);
	if (rc < 0)
		return rc;
	say_begin(demo);
	rc = demo_pull(demo, error);
	if (rc == 0)
		rc = demo_push(demo, error);
	if (rc == 0)
		rc = demo_write(demo, error);
	demo->nanoseconds = cli_now() - begin;
	session_close(&demo->session);
	return rc;
}

int pl_cli_demo(int argc, char **argv)
{
	struct demo demo = { .size = SIZE_DEFAULT, .frames = FRAMES_DEFAULT, .server = { .key = -1, .output = -1 } };
	struct pl_error error, ending;
	int rc, stopped;

	cli_parse(&arguments, argc, argv, &demo);
	rc = run(&demo, &error);
	stopped = demo_server_stop(&demo.server, &ending);
	if (rc == 0 && stopped < 0) {
		rc = stopped;
		error = ending;
	}
	if (demo.common.json)
		render_demo_json(&demo, rc < 0 ? &error : NULL);
	else if (rc == 0)
		render_demo_table(&demo);
	demo_files_free(&demo.files);
	if (rc < 0)
		return cli_report(&error);
	return demo.pull.result.staged || demo.push.result.staged || demo.write.result.staged ? CLI_DEGRADED : CLI_OK;
}
