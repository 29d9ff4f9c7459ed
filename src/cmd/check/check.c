/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/check/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Prints the functions that --call knows: a hint has no room for them. */
static void print_known_calls(void)
{
	const char *call;

	fputs("known functions:\n", stderr);
	for (size_t i = 0; (call = pl_decode_call_at(i)); i++)
		fprintf(stderr, "  %s\n", call);
}

static int decode_error(struct check *check)
{
	struct decoded decoded = { .call = check->call };
	struct check_run run;
	struct pl_error error;
	const char *known;
	int rc, kind = pl_decode_kind_of(check->call, &known);

	if (kind < 0) {
		cli_fail(&error, -EINVAL, "DECODE-CALL", check->call,
			 "peerlane-check(1) lists the known functions, at --call", "unknown function");
		rc = cli_report_for(&check->common, &error);
		if (!check->common.json)
			print_known_calls();
		return rc;
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
	if (check_judge_begin(&run, check, &error) < 0)
		return cli_report_for(&check->common, &error);
	decoded.report = &run.report;
	if (check->common.json)
		render_decoded_json(&decoded);
	else
		render_decoded(&decoded);
	check_judge_end(&run, check);
	return CLI_OK;
}

int check_exit_status(enum pl_check_verdict verdict, const struct pl_check_counts *counts, const struct check *check)
{
	if (check->fail_on)
		return counts->worst >= check->fail_on ? CLI_FAILED : CLI_OK;
	if (verdict != PL_CHECK_READY)
		return verdict == PL_CHECK_DEGRADED ? CLI_DEGRADED : CLI_FAILED;
	return check->strict && counts->results[PL_CHECK_UNKNOWN] ? CLI_DEGRADED : CLI_OK;
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

/* Shows the results, and returns the exit status. */
static int show_run(const struct check_run *run, const struct check *check)
{
	struct pl_check_counts counts = pl_check_count(&run->report);
	struct pl_error error;

	if (check->format == CHECK_TEXT) {
		render_check(&run->report, check);
		check_name_unused(run, check);
	} else if (check_write_run(run, check, &error) < 0) {
		return check_report_failure(check, &error);
	}
	switch (check->format) {
	case CHECK_PROMETHEUS:
		return CLI_OK;
	case CHECK_NAGIOS:
		return (int)check_nagios_status(run, check);
	default:
		return check_exit_status(run->report.verdict, &counts, check);
	}
}

int pl_cli_check(int argc, char **argv)
{
	struct check check = { .sysroot = NULL };
	struct check_run run;
	struct pl_error error;
	int status;

	check_parse_arguments(&check, argc, argv);
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
	if (check.cached) {
		status = check_answer_cached(&check, &error);
		return status < 0 ? check_report_failure(&check, &error) : status;
	}
	if (check_judge_begin(&run, &check, &error) < 0)
		return check_report_failure(&check, &error);
	status = check.fix ? fix_machine(&check, &run) : show_run(&run, &check);
	check_judge_end(&run, &check);
	return status;
}
