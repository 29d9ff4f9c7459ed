/* SPDX-License-Identifier: BSD-2-Clause */
/* Options that `check`, `topo` and `routes` share: the policy of the operator, and the format of the results. */
#include "cmd/check/check.h"

#include <string.h>

enum {
	OPTION_EXPECT = 0x280,
	OPTION_HOST,
	OPTION_FORMAT,
	OPTION_FAIL_ON,
	OPTION_IGNORE,
	OPTION_CONFIG,
	OPTION_BASELINE
};

static void parse_check_fail_on(struct check *check, const char *name, struct argp_state *state)
{
	check->fail_on = check_parse_fail_on(name);
	if (!check->fail_on)
		argp_error(state, "--fail-on takes fail, warn or unknown, not '%s'", name);
}

static const char *const formats[] = {
	[CHECK_TEXT] = "text",     [CHECK_JSON] = "json", [CHECK_LINE] = "line", [CHECK_PROMETHEUS] = "prometheus",
	[CHECK_NAGIOS] = "nagios",
};

static void parse_check_format(struct check *check, const char *name, struct argp_state *state)
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

void check_settle_format(struct check *check, bool runs, const char *others, struct argp_state *state)
{
	if (check->common.json && check->format_given && check->format != CHECK_JSON)
		argp_error(state, "--json is --format json: it cannot be used with --format %s",
			   formats[check->format]);
	if (check->common.json)
		check->format = CHECK_JSON;
	check->common.json = check->format == CHECK_JSON;
	if (!runs && check->format > CHECK_JSON)
		argp_error(state, "--format %s shows results: it cannot be used with %s", formats[check->format],
			   others);
	if (check->output && (!runs || check->format == CHECK_TEXT))
		argp_error(state, "--output needs --format json, line, prometheus or nagios");
}

bool check_has_expectations(const struct check *check)
{
	const struct pl_check_expected *expected = &check->policy.expected;

	return expected->gpus || expected->cards || expected->rate || expected->lanes || expected->direct ||
	       *expected->driver;
}

bool check_is_judged(const struct check *check)
{
	return check_has_expectations(check) || check->policy.accepted_count || check->fail_on || check->config ||
	       check->baseline_file || check->format > CHECK_JSON;
}

/* Parses the options about the policy. */
static error_t parse_policy_option(int key, char *argument, struct check *check, struct argp_state *state)
{
	struct pl_error error;

	switch (key) {
	case OPTION_EXPECT:
		if (check_parse_expected(&check->policy.expected, argument, &error) < 0)
			argp_error(state, "--expect: %s; it takes %s", error.message, error.hint);
		return 0;
	case OPTION_IGNORE:
		if (check_parse_ignored(&check->policy, argument, &error) < 0)
			argp_error(state, "--ignore: %s; %s", error.message, error.hint);
		return 0;
	case OPTION_FAIL_ON:
		parse_check_fail_on(check, argument, state);
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

static error_t parse_judge_option(int key, char *argument, struct argp_state *state)
{
	struct check *check = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		if (asks_for_nagios(state->argv))
			argp_err_exit_status = NAGIOS_UNKNOWN;
		return 0;
	case OPTION_FORMAT:
		parse_check_format(check, argument, state);
		return 0;
	case 'o':
		check->output = argument;
		return 0;
	case OPTION_HOST:
		if (!*argument || strlen(argument) >= CHECK_HOST_MAX)
			argp_error(state, "--host takes a name of 1 to %d bytes", CHECK_HOST_MAX - 1);
		check->host = argument;
		return 0;
	default:
		return parse_policy_option(key, argument, check, state);
	}
}

static const struct argp_option judge_options[] = {
	{ NULL, 0, NULL, 0, "Judgement and its format:", 30 },
	{ "host", OPTION_HOST, "NAME", 0,
	  "Name the machine NAME in the output (default: SLURMD_NODENAME, NODE_NAME, or its host name)", 30 },
	{ "format", OPTION_FORMAT, "FORMAT", 0,
	  "Print text, json (as --json does), line (one line), prometheus (metrics) or nagios (plugin output)", 30 },
	{ "output", 'o', "FILE", 0, "Write to FILE, which is replaced as a whole; not for text", 30 },
	{ "expect", OPTION_EXPECT, "KEY=VALUE,...", 0,
	  "Fail if the machine has less than gpus=N, cards=N, rate=GBITS of each port, links=LANESxGENERATION of each "
	  "GPU and card, or another driver=PATTERN; see the man page for `routes`",
	  30 },
	{ "baseline", OPTION_BASELINE, "FILE", 0,
	  "Fail if the machine has less, or other firmware, than at the earlier run in FILE (JSON)", 30 },
	{ "ignore", OPTION_IGNORE, "ID[:OBJECT][=REASON],...", 0,
	  "Accept findings of these checks: they are shown, and do not count", 30 },
	{ "config", OPTION_CONFIG, "FILE", 0,
	  "Read expectations and accepted findings from FILE (default: " CHECK_CONFIG ", if it exists)", 30 },
	{ "fail-on", OPTION_FAIL_ON, "STATUS", 0,
	  "Exit with 1 if a check is this or worse, else with 0: fail, warn or unknown", 30 },
	{ 0 },
};

const struct argp check_judge_argp = { judge_options, parse_judge_option, NULL, NULL, NULL, NULL, NULL };
