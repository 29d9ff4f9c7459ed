/* SPDX-License-Identifier: BSD-2-Clause */
/* Judgement of a machine by a policy, and its output, for `check`, `topo` and `routes`. */
#include "cmd/check/check.h"

#include <stdlib.h>
#include <string.h>

void check_release_policy(struct check *check)
{
	free(check->policy.accepted);
	pl_inventory_release(&check->baseline.inventory);
}

int check_judge_read_config(struct check *check, struct pl_error *error)
{
	/* The configuration of this machine says nothing about another one. */
	if (!check->config && check->sysroot)
		return 0;
	return check_read_config(&check->policy, check->config ? check->config : CHECK_CONFIG, !check->config, error);
}

int check_judge_begin(struct check_run *run, struct check *check, struct pl_error *error)
{
	struct pl_check_policy *policy = &check->policy;
	int rc = check_judge_read_config(check, error);

	if (rc == 0 && check->baseline_file) {
		rc = check_read_baseline(&check->baseline, check->baseline_file, error);
		policy->baseline = &check->baseline;
	}
	if (rc == 0)
		rc = check_run_begin(run, check->sysroot, check->host, policy, error);
	if (rc < 0)
		check_release_policy(check);
	return rc;
}

void check_judge_end(struct check_run *run, struct check *check)
{
	check_run_end(run);
	check_release_policy(check);
}

/* Writes a text to standard output or as a file, and frees it; NULL: memory lacked. */
static int write_text(char *text, const struct check *check, struct pl_error *error)
{
	int rc = 0;

	if (!text)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	if (check->output && strcmp(check->output, "-"))
		rc = cli_replace_file(check->output, text, 0644, error);
	else
		fputs(text, stdout);
	free(text);
	return rc;
}

int check_write_run(const struct check_run *run, const struct check *check, struct pl_error *error)
{
	return write_text(check_format_run(run, check), check, error);
}

int check_write_document(struct json_object *object, const struct check *check, struct pl_error *error)
{
	return write_text(check_format_document(object), check, error);
}

int check_report_failure(const struct check *check, const struct pl_error *error)
{
	if (check->format == CHECK_NAGIOS)
		return check_report_nagios(error);
	cli_report_for(&check->common, error);
	/* With --fail-on, 1 says that a check counts. */
	return check->fail_on && check->format != CHECK_PROMETHEUS ? CLI_USAGE : CLI_FAILED;
}

/* An entry that matches no finding hides nothing, and may be outdated. */
void check_name_unused(const struct check_run *run, const struct check *check)
{
	for (size_t i = 0; !check->common.quiet && i < check->policy.accepted_count; i++) {
		const struct pl_check_acceptance *acceptance = &check->policy.accepted[i];

		if (!pl_check_acceptance_used(&run->report, acceptance))
			cli_warn("nothing to ignore of %s%s%s", acceptance->row->id, *acceptance->object ? ":" : "",
				 acceptance->object);
	}
}

int check_show_judgement(const struct check_run *run, const struct check *check, enum cli_exit status)
{
	const struct pl_check_counts counts = pl_check_count(&run->report);
	struct pl_error error;

	if (check->format == CHECK_TEXT) {
		putchar('\n');
		render_results(&run->report, check->common.quiet);
		check_name_unused(run, check);
	} else if (check->format != CHECK_JSON && check_write_run(run, check, &error) < 0) {
		return check_report_failure(check, &error);
	}
	if (check->format == CHECK_PROMETHEUS)
		return CLI_OK;
	if (check->format == CHECK_NAGIOS)
		return (int)check_nagios_status(run, check);
	if (check->fail_on)
		return counts.worst >= check->fail_on ? CLI_FAILED : CLI_OK;
	return status == CLI_OK && counts.worst == PL_CHECK_FAIL ? CLI_DEGRADED : status;
}
