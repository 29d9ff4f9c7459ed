/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/check/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Time limit of a query to a library; a suspended GPU needs time to answer. */
#define QUERY_TIMEOUT (3 * CLI_NS_PER_S)

enum { OPTION_EXPLAIN = 0x200, OPTION_FIX, OPTION_ERRNO, OPTION_CALL, OPTION_LIST, OPTION_EXPECT, OPTION_STRICT, OPTION_HOST, OPTION_FORMAT };

/* Parses gpus=N,cards=N. */
static void parse_expectation(struct check *check, char *text, struct argp_state *state)
{
	char gpus[] = "gpus", cards[] = "cards";
	char *const names[] = { gpus, cards, NULL };
	unsigned *const numbers[] = { &check->gpus_expected, &check->cards_expected };

	while (*text) {
		char *value = NULL, *end;
		int which = getsubopt(&text, names, &value);
		unsigned long number = value ? strtoul(value, &end, 10) : 0;

		if (which < 0 || !value || *end || end == value || number < 1 || number > 1024)
			argp_error(state, "--expect takes gpus=N and cards=N, such as gpus=8,cards=8");
		*numbers[which] = (unsigned)number;
	}
}

static const char *const formats[] = {
	[CHECK_TEXT] = "text",		   [CHECK_JSON] = "json",     [CHECK_LINE] = "line",
	[CHECK_PROMETHEUS] = "prometheus", [CHECK_NAGIOS] = "nagios",
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

/* Refuses options that do not fit each other, and lets --json and --format agree. */
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
		argp_error(state, "--format %s shows results: it cannot be used with --explain, --list, --call or --fix",
			   formats[check->format]);
	if (check->output && (!runs || check->format == CHECK_TEXT))
		argp_error(state, "--output needs --format json, line, prometheus or nagios");
}

static error_t parse_check_option(int key, char *argument, struct argp_state *state)
{
	struct check *check = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		if (asks_for_nagios(state->argv))
			argp_err_exit_status = NAGIOS_UNKNOWN;
		return 0;
	case OPTION_FORMAT:
		parse_format(check, argument, state);
		return 0;
	case 'o':
		check->output = argument;
		return 0;
	case 'r':
		check->sysroot = argument;
		return 0;
	case OPTION_HOST:
		if (!*argument || strlen(argument) >= CHECK_HOST_MAX)
			argp_error(state, "--host takes a name of 1 to %d bytes", CHECK_HOST_MAX - 1);
		check->host = argument;
		return 0;
	case 'a':
		check->all = true;
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
	case OPTION_STRICT:
		check->strict = true;
		return 0;
	case OPTION_EXPECT:
		parse_expectation(check, argument, state);
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
		if (!check->call != !check->error)
			argp_error(state, "--errno and --call must be used together");
		if (check->yes && !check->fix)
			argp_error(state, "--yes needs --fix");
		if (check->fix && check->sysroot)
			argp_error(state, "--fix cannot be used with --sysroot: it changes this machine only");
		settle_format(check, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
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
	{ "expect", OPTION_EXPECT, "gpus=N,cards=N", 0, "Fail if the machine has fewer GPUs or cards than this", 0 },
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
		 "Exit status: 0 all is well, 3 RDMA works but is degraded, 1 no card can be used.\n",
	.options = check_options,
	.parse = parse_check_option,
};

static int explain_check_row(const struct check *check)
{
	const struct pl_check_row *row = pl_check_row_find(check->explain);
	struct pl_error error;

	if (!row) {
		cli_fail(&error, -ENOENT, "CHECK-UNKNOWN", check->explain, "`peerlane check --list` lists all checks",
			 "unknown check");
		return cli_report_for(&check->common, &error);
	}
	if (check->common.json)
		render_rows_json(row);
	else
		render_row(row);
	return CLI_OK;
}

/* Runs the checks as the options say. */
static int begin_run(struct check_run *run, const struct check *check, struct pl_error *error)
{
	struct pl_check_options options = {
		.ask = true,
		.timeout = QUERY_TIMEOUT,
		.gpus_expected = check->gpus_expected,
		.cards_expected = check->cards_expected,
	};

	return check_run_begin(run, check->sysroot, check->host, &options, error);
}

static void format_known_calls(char *text, size_t size)
{
	const char *call;
	size_t length = 0;

	text[0] = '\0';
	for (size_t i = 0; (call = pl_decode_call_at(i)) && length < size; i++)
		length += (size_t)snprintf(text + length, size - length, "%s%s", i ? ", " : "", call);
}

static int decode_error(const struct check *check)
{
	struct decoded decoded = { .call = check->call };
	struct check_run run;
	struct pl_error error;
	const char *known;
	char calls[176];
	int kind = pl_decode_kind_of(check->call, &known);

	if (kind < 0) {
		format_known_calls(calls, sizeof(calls));
		cli_fail(&error, -EINVAL, "DECODE-CALL", check->call, calls,
			 "unknown function; the hint lists the known ones");
		return cli_report_for(&check->common, &error);
	}
	decoded.kind = (enum pl_decode_kind)kind;
	decoded.number = pl_decode_number(decoded.kind, check->error);
	decoded.entry = decoded.number > 0 ? pl_decode_find(known, decoded.number) : NULL;
	if (!decoded.entry) {
		cli_fail(&error, -EINVAL, "DECODE-ERROR", check->error,
			 kind == PL_DECODE_ERRNO  ? "write EFAULT or 14"
			 : kind == PL_DECODE_CUDA ? "write CUDA_ERROR_NOT_SUPPORTED or 801"
						  : "write IBV_WC_RETRY_EXC_ERR or 12",
			 "not an error of %s", check->call);
		return cli_report_for(&check->common, &error);
	}
	if (begin_run(&run, check, &error) < 0)
		return cli_report_for(&check->common, &error);
	decoded.report = &run.report;
	if (check->common.json)
		render_decoded_json(&decoded);
	else
		render_decoded(&decoded);
	check_run_end(&run);
	return CLI_OK;
}

static int verdict_status(const struct pl_check_report *report, bool strict)
{
	if (report->verdict != PL_CHECK_READY)
		return report->verdict == PL_CHECK_DEGRADED ? CLI_DEGRADED : CLI_FAILED;
	for (size_t i = 0; strict && i < report->count; i++)
		if (report->results[i].status == PL_CHECK_UNKNOWN)
			return CLI_DEGRADED;
	return CLI_OK;
}

static struct json_object *action_json(const struct pl_check_action *action, const char *done)
{
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "command", cli_json_text(action->command));
	cli_json_add(object, "result", done ? cli_json_text(done) : NULL);
	return object;
}

/* Runs all actions of a plan, also after failures, and prints the result of each. */
static int run_plan_actions(const struct check *check, const struct pl_check_plan *plan)
{
	struct json_object *all = check->common.json ? json_object_new_array() : NULL;
	struct pl_error error;
	int status = CLI_OK;

	for (size_t i = 0; i < plan->count; i++) {
		int rc = check->yes ? pl_check_action_run(&plan->actions[i], &error) : 0;

		if (all)
			json_object_array_add(all, action_json(&plan->actions[i], !check->yes ? NULL
										  : rc < 0    ? error.message
											      : "done"));
		else
			printf("%s  %s\n", rc < 0 ? "failed" : "done  ", plan->actions[i].command);
		if (rc < 0)
			status = cli_report(&error);
	}
	if (all)
		cli_json_print(all, true);
	return status;
}

static int fix_machine(const struct check *check, struct check_run *run)
{
	struct pl_check_plan plan;
	struct pl_error error;
	int status;

	pl_check_plan(run->machine, &run->report, &plan);
	if (!check->yes && !check->common.json) {
		render_plan(&plan, &run->report, check->common.quiet);
		return CLI_OK;
	}
	if (check->yes && plan.count && geteuid()) {
		cli_fail(&error, -EPERM, "FIX-ROOT", "--fix --yes", "sudo peerlane check --fix --yes",
			 "only root can do this");
		return cli_report_for(&check->common, &error);
	}
	status = run_plan_actions(check, &plan);
	if (!check->common.json && !check->common.quiet)
		puts(plan.count ? "\nRun `peerlane check` again to see the remaining problems."
				: "There are no safe repairs.");
	return status;
}

/* Writes the run for programs, to standard output or as a file. */
static int write_run(const struct check_run *run, const struct check *check, struct pl_error *error)
{
	char *text = check_format_run(run, check);
	int rc = 0;

	if (!text)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	if (check->output && strcmp(check->output, "-"))
		rc = cli_replace_file(check->output, text, 0644);
	else
		fputs(text, stdout);
	if (check->format == CHECK_JSON && (!check->output || !strcmp(check->output, "-")))
		putchar('\n');
	free(text);
	return rc < 0 ? cli_fail_errno(error, rc, "write", check->output) : 0;
}

static int report_failure(const struct check *check, const struct pl_error *error)
{
	return check->format == CHECK_NAGIOS ? check_report_nagios(error) : cli_report_for(&check->common, error);
}

/* Shows the results, and returns the exit status. */
static int show_run(const struct check_run *run, const struct check *check)
{
	struct pl_error error;

	if (check->format == CHECK_TEXT)
		render_check(&run->report, check);
	else if (write_run(run, check, &error) < 0)
		return report_failure(check, &error);
	switch (check->format) {
	case CHECK_PROMETHEUS:
		return CLI_OK;
	case CHECK_NAGIOS:
		return (int)check_nagios_status(run, check);
	default:
		return verdict_status(&run->report, check->strict);
	}
}

int pl_cli_check(int argc, char **argv)
{
	struct check check = { .sysroot = NULL };
	struct check_run run;
	struct pl_error error;
	int status;

	cli_parse(&check_command, argc, argv, &check.common, &check);
	if (check.explain)
		return explain_check_row(&check);
	if (check.list) {
		if (check.common.json)
			render_rows_json(NULL);
		else
			render_rows();
		return CLI_OK;
	}
	if (check.call)
		return decode_error(&check);
	if (begin_run(&run, &check, &error) < 0)
		return report_failure(&check, &error);
	status = check.fix ? fix_machine(&check, &run) : show_run(&run, &check);
	check_run_end(&run);
	return status;
}
