/* SPDX-License-Identifier: BSD-2-Clause */
/* Command lines of `peerlane fleet check` and `peerlane fleet topo`. */
#include <stdlib.h>
#include <string.h>

#include "cmd/check/policy_file.h"
#include "cmd/common/units.h"
#include "cmd/fleet/fleet.h"

#define PARALLEL_DEFAULT 64
#define TIMEOUT_DEFAULT (30 * CLI_NS_PER_S)
#define EXPECTED_MAX 64

enum {
	OPTION_HOSTS = 0x300,
	OPTION_LAUNCH,
	OPTION_PARALLEL,
	OPTION_TIMEOUT,
	OPTION_PROGRAM,
	OPTION_SAVE,
	OPTION_EXPECT,
	OPTION_IGNORE,
	OPTION_FAIL_ON
};

/* Adds one accepted finding; the item is ID[:OBJECT][=REASON]. */
static int add_ignored(struct fleet_ignored **ignored, size_t *count, char *item, struct pl_error *error)
{
	struct fleet_ignored one = { .used = 0 }, *grown;
	char *reason = strchr(item, '='), *object;

	if (reason)
		*reason++ = '\0';
	object = strchr(item, ':');
	if (object)
		*object++ = '\0';
	if (!*item || strlen(item) >= sizeof(one.id) ||
	    (object && (!*object || strlen(object) >= sizeof(one.object))) ||
	    (reason && strlen(reason) >= sizeof(one.reason)))
		return cli_fail(error, -EINVAL, "CHECK-IGNORE", NULL, "write ID[:OBJECT][=REASON],...",
				"an identifier, object or reason is empty or too long");
	snprintf(one.id, sizeof(one.id), "%s", item);
	snprintf(one.object, sizeof(one.object), "%s", object ? object : "");
	snprintf(one.reason, sizeof(one.reason), "%s", reason && *reason ? reason : "no reason given");
	cli_printable(one.reason, false);
	grown = realloc(*ignored, (*count + 1) * sizeof(*grown));
	if (!grown)
		return cli_fail_errno(error, -ENOMEM, "realloc", NULL);
	*ignored = grown;
	grown[(*count)++] = one;
	return 0;
}

int fleet_parse_ignored(struct fleet_ignored **ignored, size_t *count, const char *text, struct pl_error *error)
{
	char *copy = strdup(text), *rest = copy, *item;
	int rc = copy ? 0 : cli_fail_errno(error, -ENOMEM, "strdup", NULL);

	while (rc == 0 && (item = strsep(&rest, ",")))
		rc = add_ignored(ignored, count, item, error);
	free(copy);
	return rc;
}

/* Refuses a wrong expectation here, before all hosts do. */
static void add_fleet_expected(struct fleet_options *options, const char *text, struct argp_state *state)
{
	struct pl_check_expected expected = { .gpus = 0 };
	struct pl_error error;

	if (check_parse_expected(&expected, text, &error) < 0)
		argp_error(state, "--expect: %s; it takes %s", error.message, error.hint);
	if (expected.direct)
		argp_error(state, "--expect direct=N is for `peerlane routes`, which tests the routes");
	if (options->expected_count == EXPECTED_MAX)
		argp_error(state, "--expect is given more than %d times", EXPECTED_MAX);
	options->expected[options->expected_count++] = text;
}

static void add_hosts_file(struct fleet_options *options, const char *file, struct argp_state *state)
{
	const char **grown = realloc(options->files, (options->file_count + 1) * sizeof(*grown));

	if (!grown)
		argp_failure(state, CLI_USAGE, errno, "%s", file);
	options->files = grown;
	grown[options->file_count++] = file;
}

static void parse_fleet_fail_on(struct fleet_options *options, const char *name, struct argp_state *state)
{
	options->fail_on = check_parse_fail_on(name);
	if (!options->fail_on)
		argp_error(state, "--fail-on takes fail, warn or unknown, not '%s'", name);
}

/* Reports an error of an option's value, and ends the process. */
static void end_for_option(struct argp_state *state, const char *option, const struct pl_error *error)
{
	argp_error(state, "%s: %s%s%s%s%s", option, error->object, *error->object ? ": " : "", error->message,
		   *error->hint ? "; " : "", error->hint);
}

/* -- hosts and launcher -------------------------------------------------------------------------- */

static error_t parse_launch_option(int key, char *argument, struct argp_state *state)
{
	struct fleet_options *options = state->input;
	struct pl_error error;

	switch (key) {
	case OPTION_HOSTS:
		add_hosts_file(options, argument, state);
		return 0;
	case 'x':
		if (host_list_add(&options->excluded, argument, &error) < 0)
			end_for_option(state, "--exclude", &error);
		return 0;
	case OPTION_LAUNCH:
		options->launch = argument;
		return 0;
	case OPTION_PROGRAM:
		options->program = argument;
		return 0;
	case ARGP_KEY_ARG:
		if (host_list_add(&options->hosts, argument, &error) < 0)
			end_for_option(state, "HOSTS", &error);
		return 0;
	case ARGP_KEY_END:
		if (!options->hosts.count && !options->file_count)
			argp_error(state, "HOSTS are missing: name them, or a file of them with --hosts");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option launch_options[] = {
	{ NULL, 0, NULL, 0, "Hosts:", 10 },
	{ "hosts", OPTION_HOSTS, "FILE", 0,
	  "Ask also the hosts in FILE (-: standard input), one or more a line; # begins a comment", 10 },
	{ "exclude", 'x', "HOSTS", 0, "Leave these hosts out", 10 },
	{ "launch", OPTION_LAUNCH, "COMMAND", 0,
	  "Run the command on a host with COMMAND, which has {host} for its name (default: '" LAUNCH_DEFAULT "')", 10 },
	{ "program", OPTION_PROGRAM, "PATH", 0, "Name of peerlane on the hosts (default: peerlane)", 10 },
	{ 0 },
};

const struct argp fleet_launch_argp = { .options = launch_options, .parser = parse_launch_option };

static error_t parse_hosts_option(int key, char *argument, struct argp_state *state)
{
	struct fleet_options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = options;
		return 0;
	case OPTION_PARALLEL:
		if (cli_parse_number(argument, 1, RUN_PARALLEL_MAX, &options->parallel))
			argp_error(state, "--parallel takes a number from 1 to %u, not '%s'", RUN_PARALLEL_MAX,
				   argument);
		return 0;
	case OPTION_TIMEOUT:
		if (cli_parse_seconds(argument, &options->timeout) || !options->timeout)
			argp_error(state, "--timeout takes seconds, such as 30 or 0.5, not '%s'", argument);
		return 0;
	case OPTION_SAVE:
		options->save = argument;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option hosts_options[] = {
	{ "parallel", OPTION_PARALLEL, "N", 0, "Ask N hosts at the same time, 1 to 256 (default: 64)", 10 },
	{ "timeout", OPTION_TIMEOUT, "SECONDS", 0, "Give up a host after this time (default: 30)", 10 },
	{ "save", OPTION_SAVE, "FOLDER", 0,
	  "Save the document of each host as FOLDER/HOST.json as it comes; FOLDER is new or empty", 10 },
	{ 0 },
};

static const struct argp_child hosts_children[] = { { &fleet_launch_argp, 0, NULL, 10 }, { 0 } };
static const struct argp hosts_argp = { .options = hosts_options,
					.parser = parse_hosts_option,
					.children = hosts_children };

/* -- results ------------------------------------------------------------------------------------- */

static error_t parse_results_option(int key, char *argument, struct argp_state *state)
{
	struct fleet_options *options = state->input;
	struct pl_error error;

	switch (key) {
	case 'o':
		options->output = argument;
		return 0;
	case OPTION_IGNORE:
		if (fleet_parse_ignored(&options->ignored, &options->ignored_count, argument, &error) < 0)
			end_for_option(state, "--ignore", &error);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option results_options[] = {
	{ NULL, 0, NULL, 0, "Results:", 20 },
	{ "output", 'o', "FILE", 0, "Write the JSON document of all hosts to FILE; the table is printed all the same",
	  20 },
	{ "ignore", OPTION_IGNORE, "ID[:OBJECT][=REASON],...", 0,
	  "Accept these findings and differences: they do not count", 20 },
	{ 0 },
};

static const struct argp results_argp = { .options = results_options, .parser = parse_results_option };

static const struct argp_child ask_children[] = { { &hosts_argp, 0, NULL, 0 }, { &results_argp, 0, NULL, 0 }, { 0 } };
static const struct argp_child show_children[] = { { &results_argp, 0, NULL, 0 }, { 0 } };

/* -- commands ------------------------------------------------------------------------------------ */

#define FAIL_ON_OPTION \
	{ \
		"fail-on", OPTION_FAIL_ON, "STATUS", 0, \
			"Exit with 1 if a host has a check that is this or worse: fail (default), warn or unknown", 20 \
	}

static const struct argp_option check_fleet_options[] = {
	{ "expect", OPTION_EXPECT, "KEY=VALUE,...", 0, "Let each host check for this: see `peerlane check --help`",
	  20 },
	FAIL_ON_OPTION,
	{ 0 },
};

static const struct argp_option show_fleet_options[] = {
	FAIL_ON_OPTION,
	{ 0 },
};

static error_t parse_fleet_option(int key, char *argument, struct argp_state *state)
{
	struct fleet_options *options = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = options;
		if (!options->shows)
			state->child_inputs[1] = options;
		return 0;
	case OPTION_EXPECT:
		add_fleet_expected(options, argument, state);
		return 0;
	case OPTION_FAIL_ON:
		parse_fleet_fail_on(options, argument, state);
		return 0;
	case ARGP_KEY_ARG:
		if (!options->shows)
			return ARGP_ERR_UNKNOWN;
		if (options->run)
			argp_error(state, "'%s': there is a RUN already", argument);
		options->run = argument;
		return 0;
	case ARGP_KEY_END:
		if (options->shows && !options->run)
			argp_error(state, "RUN is missing: a folder of --save, or a file of --output");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

#define USUAL_NOTES \
	"Rows come first in which hosts differ from what most hosts have: at least 80 % of them, or all but one.  " \
	"Hosts without an answer are named last.\n" \
	"\n" \
	"Exit status: 0 all hosts answered and are alike, 1 a host fails, 3 none fails, but some differ or are " \
	"silent.\n"
#define HOSTS_NOTES "HOSTS are names, divided by commas, such as gpu[001-200,205].  " USUAL_NOTES

static const struct cli_command check_fleet_command = {
	.arguments = "HOSTS...",
	.summary = "Run `peerlane check` on many hosts, and show which ones fail or differ from the rest.",
	.examples = {
		"peerlane fleet check 'gpu[001-200]' --save monday",
		"peerlane fleet check --hosts hosts.txt --launch 'srun -w {host} -N 1'",
	},
	.notes = HOSTS_NOTES,
	.options = check_fleet_options,
	.parse = parse_fleet_option,
	.children = ask_children,
};

static const struct cli_command topo_fleet_command = {
	.arguments = "HOSTS...",
	.summary = "Run `peerlane topo` on many hosts, and show which ones differ from the rest.",
	.examples = {
		"peerlane fleet topo 'gpu[001-200]'",
		"peerlane fleet topo --hosts hosts.txt --launch 'kubectl exec {host} --'",
	},
	.notes = HOSTS_NOTES,
	.parse = parse_fleet_option,
	.children = ask_children,
};

static const struct cli_command show_fleet_command = {
	.arguments = "RUN",
	.summary = "Show a saved run, or documents that hosts wrote themselves, as `peerlane fleet check` does.",
	.examples = {
		"peerlane fleet show monday --ignore firmware:mlx5_8=spare",
		"peerlane fleet show all.json --fail-on warn",
	},
	.notes = "RUN is a folder of HOST.json, a file of --output, or the document of one host.  " USUAL_NOTES,
	.options = show_fleet_options,
	.parse = parse_fleet_option,
	.children = show_children,
};

void fleet_options_init(struct fleet_options *options)
{
	options->launch = LAUNCH_DEFAULT;
	options->program = "peerlane";
}

void fleet_parse_arguments(struct fleet_options *options, int argc, char **argv)
{
	fleet_options_init(options);
	options->parallel = PARALLEL_DEFAULT;
	options->timeout = TIMEOUT_DEFAULT;
	options->fail_on = PL_CHECK_FAIL;
	options->expected = calloc(EXPECTED_MAX, sizeof(*options->expected));
	if (!options->expected)
		exit(CLI_FAILED);
	cli_parse(options->shows                 ? &show_fleet_command
		  : options->kind == FLEET_CHECK ? &check_fleet_command
						 : &topo_fleet_command,
		  argc, argv, &options->common, options);
}

void fleet_free_options(struct fleet_options *options)
{
	host_list_free(&options->hosts);
	host_list_free(&options->excluded);
	free(options->files);
	free(options->expected);
	free(options->ignored);
}
