/* SPDX-License-Identifier: BSD-2-Clause */
/* Command line of `peerlane check`. */
#include "cmd/check/check.h"
#include "cmd/common/units.h"

#include <string.h>
#include <unistd.h>

enum {
	OPTION_EXPLAIN = 0x200,
	OPTION_FIX,
	OPTION_ERRNO,
	OPTION_CALL,
	OPTION_LIST,
	OPTION_STRICT,
	OPTION_CACHED,
	OPTION_MAX_AGE
};

/* Three periods of peerlane-check.timer. */
#define MAX_AGE (900 * CLI_NS_PER_S)

/* Refuses options that need a check now. */
static void settle_cached(struct check *check, struct argp_state *state)
{
	bool acts = check->explain || check->list || check->call || check->fix;
	bool other = check_has_expectations(check) || acts || check->sysroot || check->host || check->baseline_file ||
		     check->config || check->policy.accepted_count || check->all || check->format_given ||
		     check->common.json;

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
	if (check->policy.expected.direct)
		argp_error(state, "--expect direct=N is for `peerlane routes`, which tests the routes");
	settle_cached(check, state);
	if (check->strict && check->fail_on)
		argp_error(state, "--strict cannot be used with --fail-on, which says the same in more ways");
	check_settle_format(check, !check->explain && !check->list && !check->call && !check->fix,
			    "--explain, --list, --call or --fix", state);
}

/* Parses the options about the results. */
static error_t parse_result_option(int key, char *argument, struct check *check, struct argp_state *state)
{
	switch (key) {
	case OPTION_STRICT:
		check->strict = true;
		return 0;
	case 'a':
		check->all = true;
		return 0;
	case OPTION_CACHED:
		if (!argument[strspn(argument, "0123456789")] && access(argument, F_OK) < 0)
			argp_error(state,
				   "--cached takes the FILE of `peerlane check --format prometheus --output FILE`, not "
				   "'%s'; --max-age takes seconds",
				   argument);
		check->cached = argument;
		return 0;
	case OPTION_MAX_AGE:
		if (cli_parse_seconds(argument, &check->max_age) < 0 || !check->max_age)
			argp_error(state, "--max-age takes seconds, not '%s'", argument);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_check_option(int key, char *argument, struct argp_state *state)
{
	struct check *check = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = check;
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
		return parse_result_option(key, argument, check, state);
	}
}

static const struct argp_option check_options[] = {
	{ "sysroot", 'r', "PATH", 0, "Check this folder, or this file of `peerlane dump`, instead of this machine", 0 },
	{ "all", 'a', NULL, 0, "Show each pair of a GPU and a card, not only the best card of each GPU", 0 },
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

static const struct argp_child check_children[] = { { &check_judge_argp, 0, NULL, 0 }, { 0 } };

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
	.children = check_children,
};

void check_parse_arguments(struct check *check, int argc, char **argv)
{
	cli_parse(&check_command, argc, argv, &check->common, check);
}
