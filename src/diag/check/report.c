/* SPDX-License-Identifier: BSD-2-Clause */
/* All rows, and running them. */
#include <stdlib.h>

#include "diag/check/row.h"
#include "diag/check/verdict.h"

static const struct pl_check_row *const files[] = {
	pl_check_rows_gpu,  pl_check_rows_driver,   pl_check_rows_peer,   pl_check_rows_module,
	pl_check_rows_card, pl_check_rows_access,   pl_check_rows_port,   pl_check_rows_traffic,
	pl_check_rows_path, pl_check_rows_bus,      pl_check_rows_system, pl_check_rows_software,
	pl_check_rows_nccl, pl_check_rows_expected, pl_check_rows_route,
};

const struct pl_check_row *pl_check_row_at(size_t index)
{
	for (size_t i = 0; i < PL_ARRAY_SIZE(files); i++)
		for (const struct pl_check_row *row = files[i]; row->id; row++)
			if (!index--)
				return row;
	return NULL;
}

const struct pl_check_row *pl_check_row_find(const char *id)
{
	const struct pl_check_row *row;

	for (size_t i = 0; (row = pl_check_row_at(i)); i++)
		if (!strcmp(row->id, id))
			return row;
	return NULL;
}

static void run_row(const struct pl_check_machine *machine, const struct pl_check_row *row,
		    struct pl_check_result *result)
{
	result->row = row;
	row->probe(machine, result);
	if (result->status >= PL_CHECK_WARN)
		pl_check_remedy(result, "%s", row->remedy);
}

static bool more_urgent(const struct pl_check_result *a, const struct pl_check_result *b)
{
	if (a->status != b->status)
		return a->status > b->status;
	return a->row->rank < b->row->rank;
}

static void choose_first(struct pl_check_report *report)
{
	report->first = NULL;
	for (size_t i = 0; i < report->count; i++) {
		struct pl_check_result *result = &report->results[i];

		if (result->status < PL_CHECK_WARN)
			result->remedy[0] = '\0';
		else if (!report->first || more_urgent(result, report->first))
			report->first = result;
	}
}

void pl_check_settle(struct pl_check_report *report, const struct pl_check_policy *policy)
{
	pl_check_accept(report, policy);
	choose_first(report);
}

void pl_check_report_keep(struct pl_check_report *report, bool (*wanted)(const struct pl_check_row *row))
{
	size_t kept = 0;

	for (size_t i = 0; i < report->count; i++) {
		if (wanted(report->results[i].row))
			report->results[kept++] = report->results[i];
		else
			free(report->results[i].findings);
	}
	report->count = kept;
	choose_first(report);
}

int pl_check_run(struct pl_check_report *report, const struct pl_check_machine *machine, struct pl_error *error)
{
	const struct pl_check_row *row;
	size_t count = 0;
	int rc;

	*report = (struct pl_check_report){ .count = 0 };
	while (pl_check_row_at(count))
		count++;
	report->results = calloc(count, sizeof(*report->results));
	if (!report->results)
		return pl_fail_memory(error, "pl_check_run");
	for (size_t i = 0; (row = pl_check_row_at(i)); i++)
		if (row->probe)
			run_row(machine, row, &report->results[report->count++]);
	/* Accepting a finding does not make a path work. */
	rc = pl_check_add_routes(report, machine);
	if (rc < 0) {
		pl_check_report_free(report);
		return pl_fail_memory(error, "pl_check_run");
	}
	pl_check_settle(report, machine->policy);
	pl_check_judge(report, machine);
	return 0;
}

void pl_check_report_free(struct pl_check_report *report)
{
	for (size_t i = 0; i < report->count; i++)
		free(report->results[i].findings);
	free(report->results);
	free(report->routes);
	*report = (struct pl_check_report){ .count = 0 };
}

struct pl_check_counts pl_check_count(const struct pl_check_report *report)
{
	struct pl_check_counts counts = { .worst = PL_CHECK_OK };

	for (size_t i = 0; i < report->count; i++) {
		counts.results[report->results[i].status]++;
		counts.worst = PL_MAX(counts.worst, report->results[i].status);
		for (size_t j = 0; j < report->results[i].count; j++)
			counts.accepted += report->results[i].findings[j].accepted != NULL;
	}
	return counts;
}

void pl_check_plan(const struct pl_check_machine *machine, const struct pl_check_report *report,
		   struct pl_check_plan *plan)
{
	*plan = (struct pl_check_plan){ .count = 0 };
	for (size_t i = 0; i < report->count; i++)
		if (report->results[i].status >= PL_CHECK_WARN && report->results[i].row->plan)
			report->results[i].row->plan(machine, plan);
}
