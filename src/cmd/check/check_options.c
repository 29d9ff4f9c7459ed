/* SPDX-License-Identifier: BSD-2-Clause */
/* Command line of `peerlane check`. */
#include "cmd/check/check.h"
#include "cmd/common/units.h"

#include <string.h>

enum {
	OPTION_EXPLAIN = 0x200,
	OPTION_FIX,
	OPTION_ERRNO,
	OPTION_CALL,
	OPTION_LIST,
	OPTION_EXPECT,
	OPTION_STRICT,
	OPTION_HOST,
	OPTION_FORMAT,
	OPTION_FAIL_ON,
	OPTION_IGNORE,
	OPTION_CONFIG,
	OPTION_BASELINE,
	OPTION_CACHED,
	OPTION_MAX_AGE
};

/* Three periods of peerlane-check.timer. */
#define MAX_AGE (900 * CLI_NS_PER_S)

static void parse_fail_on(struct check *check, const char *name, struct argp_state *state)
{
	check->fail_on = check_parse_fail_on(name);
	if (!check->fail_on)
		argp_error(state, "--fail-on takes fail, warn or unknown, not '%s'", name);
}

static const char *const formats[] = {
	[CHECK_TEXT] = "text",     [CHECK_JSON] = "json", [CHECK_LINE] = "line", [CHECK_PROMETHEUS] = "prometheus",
	[CHECK_NAGIOS] = "nagios",
};

static void parse_format(struct check *check, const char *name, struct argp_state *state)
{
	for (size_t i = 0; i < CLI_ARRAY_SIZE(formats); i++) {
		if (strcmp(name, formats[i]))
			continue;
		check->format = (enum check_format)i;
		check->format_given = true;
		return;
	}
	argp_error(state, "--format takes text, json, line, prometheus or nagios, not '%s'", name);
}

/* True if the arguments ask for the output of a plugin, whose usage errors have another exit status. */
static bool asks_for_nagios(char *const *arguments)
{
	for (; *arguments; arguments++)
		if (!strcmp(*arguments, "--format=nagios") ||
		    (!strcmp(*arguments, "--format") && arguments[1] && !strcmp(arguments[1], "nagios")))
			return true;
	return false;
}

/* Lets --json and --format agree, and refuses a format where there are no results. */
static void settle_format(struct check *check, struct argp_state *state)
{
	bool runs = !check->explain && !check->list && !check->call && !check->fix;

	if (check->common.json && check->format_given && check->format != CHECK_JSON)
		argp_error(state, "--json is --format json: it cannot be used with --format %s",
			   formats[check->format]);
	if (check->common.json)
		check->format = CHECK_JSON;
	check->common.json = check->format == CHECK_JSON;
	if (!runs && check->format > CHECK_JSON)
		argp_error(state,
			   "--format %s shows results: it cannot be used with --explain, --list, --call or --fix",
			   formats[check->format]);
	if (check->output && (!runs || check->format == CHECK_TEXT))
		argp_error(state, "--output needs --format json, line, prometheus or nagios");
}

/* Parses the options about the policy. */
static error_t parse_policy_option(int key, char *argument, struct check *check, struct argp_state *state)
{
	struct pl_error error;

	switch (key) {
	case OPTION_STRICT:
		check->strict = true;
		return 0;
	case OPTION_EXPECT:
		if (check_parse_expected(&check->policy.expected, argument, &error) < 0)
			argp_error(state, "--expect: %s; it takes %s", error.message, error.hint);
		return 0;
	case OPTION_IGNORE:
		if (check_parse_ignored(&check->policy, argument, &error) < 0)
			argp_error(state, "--ignore: %s; %s", error.message, error.hint);
		return 0;
	case OPTION_FAIL_ON:
		parse_fail_on(check, argument, state);
		return 0;
	case OPTION_CONFIG:
		check->config = argument;
		return 0;
	case OPTION_BASELINE:
		check->baseline_file = argument;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Parses the options about the output. */
static error_t parse_output_option(int key, char *argument, struct check *check, struct argp_state *state)
{
	switch (key) {
	case OPTION_FORMAT:
		parse_format(check, argument, state);
		return 0;
	case 'o':
		check->output = argument;
		return 0;
	case OPTION_HOST:
		if (!*argument || strlen(argument) >= CHECK_HOST_MAX)
			argp_error(state, "--host takes a name of 1 to %d bytes", CHECK_HOST_MAX - 1);
		check->host = argument;
		return 0;
	case 'a':
		check->all = true;
		return 0;
	case OPTION_CACHED:
		check->cached = argument;
		return 0;
	case OPTION_MAX_AGE:
		if (cli_parse_seconds(argument, &check->max_age) < 0 || !check->max_age)
			argp_error(state, "--max-age takes seconds, not '%s'", argument);
		return 0;
	default:
		return parse_policy_option(key, argument, check, state);
	}
}

/* Refuses options that need a check now. */
static void settle_cached(struct check *check, struct argp_state *state)
{
	const struct pl_check_expected *expected = &check->policy.expected;
	bool expects = expected->gpus || expected->cards || expected->rate || expected->lanes || *expected->driver;
	bool acts = check->explain || check->list || check->call || check->fix;
	bool other = expects || acts || check->sysroot || check->host || check->baseline_file || check->config ||
		     check->policy.accepted_count || check->all || check->format_given || check->common.json;

	if (check->cached && other)
		argp_error(state, "--cached repeats a result: it can be used with --max-age, --fail-on, --strict and "
				  "--quiet only");
	if (check->max_age && !check->cached)
		argp_error(state, "--max-age needs --cached");
	if (!check->max_age)
		check->max_age = MAX_AGE;
}

/* Refuses options that do not fit each other. */
static void settle_options(struct check *check, struct argp_state *state)
{
	if (!check->call != !check->error)
		argp_error(state, "--errno and --call must be used together");
	if (check->yes && !check->fix)
		argp_error(state, "--yes needs --fix");
	if (check->fix && check->sysroot)
		argp_error(state, "--fix cannot be used with --sysroot: it changes this machine only");
	settle_cached(check, state);
	if (check->strict && check->fail_on)
		argp_error(state, "--strict cannot be used with --fail-on, which says the same in more ways");
	settle_format(check, state);
}

static error_t parse_check_option(int key, char *argument, struct argp_state *state)
{
	struct check *check = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		if (asks_for_nagios(state->argv))
			argp_err_exit_status = NAGIOS_UNKNOWN;
		return 0;
	case 'r':
		check->sysroot = argument;
		return 0;
	case 'y':
		check->yes = true;
		return 0;
	case OPTION_EXPLAIN:
		check->explain = argument;
		return 0;
	case OPTION_LIST:
		check->list = true;
		return 0;
	case OPTION_FIX:
		check->fix = true;
		return 0;
	case OPTION_ERRNO:
		check->error = argument;
		return 0;
	case OPTION_CALL:
		check->call = argument;
		return 0;
	case ARGP_KEY_END:
		settle_options(check, state);
		return 0;
	default:
		return parse_output_option(key, argument, check, state);
	}
}

static const struct argp_option check_options[] = {
	{ "sysroot", 'r', "PATH", 0, "Check this folder, or this file of `peerlane dump`, instead of this machine", 0 },
	{ "host", OPTION_HOST, "NAME", 0,
	  "Name the machine NAME in the output (default: SLURMD_NODENAME, NODE_NAME, or its host name)", 0 },
	{ "format", OPTION_FORMAT, "FORMAT", 0,
	  "Print text, json (as --json does), line (one line), prometheus (metrics) or nagios (plugin output)", 0 },
	{ "output", 'o', "FILE", 0, "Write to FILE, which is replaced as a whole; not for text", 0 },
	{ "all", 'a', NULL, 0, "Show each pair of a GPU and a card, not only the best card of each GPU", 0 },
	{ "expect", OPTION_EXPECT, "KEY=VALUE,...", 0,
	  "Fail if the machine has less than gpus=N, cards=N, rate=GBITS of each port, links=LANESxGENERATION of each "
	  "GPU and card, or another driver=PATTERN",
	  0 },
	{ "baseline", OPTION_BASELINE, "FILE", 0,
	  "Fail if the machine has less, or other firmware, than at the earlier check in FILE (JSON)", 0 },
	{ "ignore", OPTION_IGNORE, "ID[:OBJECT][=REASON],...", 0,
	  "Accept findings of these checks: they are shown, and do not count", 0 },
	{ "config", OPTION_CONFIG, "FILE", 0,
	  "Read expectations and accepted findings from FILE (default: " CHECK_CONFIG ", if it exists)", 0 },
	{ "fail-on", OPTION_FAIL_ON, "STATUS", 0,
	  "Exit with 1 if a check is this or worse, else with 0: fail, warn or unknown", 0 },
	{ "cached", OPTION_CACHED, "FILE", 0,
	  "Check nothing: tell the result in FILE, which --format prometheus wrote; for probes that must answer in a "
	  "second",
	  0 },
	{ "max-age", OPTION_MAX_AGE, "SECONDS", 0, "With --cached: fail if the result is older (default: 900)", 0 },
	{ "strict", OPTION_STRICT, NULL, 0, "Exit with 3 also if a check is UNKNOWN", 0 },
	{ "explain", OPTION_EXPLAIN, "ID", 0, "Explain one check: requirement, reason and remedy", 0 },
	{ "list", OPTION_LIST, NULL, 0, "List all checks", 0 },
	{ "fix", OPTION_FIX, NULL, 0, "Show safe repairs: load modules, rescan a card without a driver, raise limits",
	  0 },
	{ "yes", 'y', NULL, 0, "With --fix: make the repairs, as root", 0 },
	{ "call", OPTION_CALL, "NAME", 0, "With --errno: the function that failed, for example ibv_reg_mr", 0 },
	{ "errno", OPTION_ERRNO, "ERROR", 0,
	  "Explain an error of a function: EFAULT, 14, CUDA_ERROR_NOT_SUPPORTED, IBV_WC_RETRY_EXC_ERR", 0 },
	{ 0 },
};

static const struct cli_command check_command = {
	.summary = "Find out whether GPUDirect RDMA works on this machine, and how to fix it.",
	.examples = {
		"peerlane check",
		"peerlane check --errno EFAULT --call ibv_reg_mr",
	},
	.notes = "Nothing is changed without --fix --yes.  Without root, checks that need root are UNKNOWN.\n"
		 "\n"
		 "Exit status: 0 all is well, 3 RDMA works but is degraded, 1 no card can be used.  With --fail-on: 0 or 1, "
		 "and 2 if the check could not run.  With --format nagios: that of a plugin.\n",
	.options = check_options,
	.parse = parse_check_option,
};

void check_parse_arguments(struct check *check, int argc, char **argv)
{
	cli_parse(&check_command, argc, argv, &check->common, check);
}
