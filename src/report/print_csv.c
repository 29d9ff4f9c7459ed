/* SPDX-License-Identifier: BSD-2-Clause */
/* CSV output of a report: a line for each result, each pair of a matrix, and each finding of a host. */
#include "cmd/common/csv.h"
#include "cmd/fleet/output.h"
#include "report/fleet.h"
#include "report/goals.h"

static const char *const csv_columns[] = {
	"file",
	"name",
	"mode",
	"rail",
	"from",
	"to",
	"size",
	"bytes_per_second",
	"operations_per_second",
	"p50_us",
	"p90_us",
	"p95_us",
	"p99_us",
	"p999_us",
	"p9999_us",
	"staged_bytes",
	"verified",
	/* findings */
	"host",
	"status",
	"row",
	"text",
	/* figures of benchmarks/machine */
	"section",
	"figure",
	"unit",
	"peer",
	"peer_figure",
	"ratio",
	"goal",
	"verdict",
};

#define GOAL_FIELDS 8

static void skip_csv_fields(struct csv *csv, unsigned count)
{
	while (count--)
		csv_text(csv, NULL);
}

static void print_csv_point(struct csv *csv, const struct report *report, const struct report_series *series,
			    const struct report_point *point)
{
	csv_text(csv, report->documents[series->document].path);
	csv_text(csv, series->name);
	csv_text(csv, series->latency ? "latency" : "bandwidth");
	skip_csv_fields(csv, 3);
	csv_number(csv, point->size);
	csv_number(csv, point->rate);
	csv_number(csv, point->operations);
	for (int i = 0; i < REPORT_PERCENTILES; i++)
		csv_number(csv, point->latency[i]);
	csv_number(csv, point->staged);
	csv_text(csv, point->verified < 0 ? NULL : point->verified ? "true" : "false");
	skip_csv_fields(csv, 4 + GOAL_FIELDS);
	csv_end(csv);
}

/* Prints the pairs with a value, of all rails together or of one. */
static void print_csv_pairs(struct csv *csv, const struct report_document *document, const struct report_rail *rail)
{
	const struct report_matrix *matrix = &document->matrix;

	for (size_t i = 0; i < matrix->ranks * matrix->ranks; i++) {
		double rate = rail->rate ? rail->rate[i] : NAN, latency = rail->latency ? rail->latency[i] : NAN;

		if (isnan(rate) && isnan(latency))
			continue;
		csv_text(csv, document->path);
		csv_text(csv, document->name);
		csv_text(csv, "matrix");
		csv_text(csv, rail->name);
		csv_text(csv, matrix->labels[i / matrix->ranks]);
		csv_text(csv, matrix->labels[i % matrix->ranks]);
		csv_number(csv, matrix->size);
		csv_number(csv, rate);
		csv_text(csv, NULL);
		csv_number(csv, latency);
		skip_csv_fields(csv, 11 + GOAL_FIELDS);
		csv_end(csv);
	}
}

/* Prints the findings of a fleet, a line for each host. */
static void print_csv_findings(struct csv *csv, const struct report_document *document)
{
	const struct fleet *fleet = &document->fleet->fleet;
	char text[FLEET_ITEMS_TEXT];

	for (size_t i = 0; i < fleet->group_count; i++) {
		const struct fleet_group *group = &fleet->groups[i];

		fleet_format_items(text, sizeof(text), fleet, group->row, group->host_count > 1);
		for (size_t k = 0; k < group->host_count; k++) {
			csv_text(csv, document->path);
			csv_text(csv, document->name);
			csv_text(csv, "finding");
			skip_csv_fields(csv, 14);
			csv_text(csv, fleet->hosts.names[group->hosts[k]]);
			csv_text(csv, row_state_name(group->row->state));
			csv_text(csv, group->row->id);
			csv_text(csv, text);
			skip_csv_fields(csv, GOAL_FIELDS);
			csv_end(csv);
		}
	}
}

/* Prints the figures of benchmarks/machine; the verdict of those without a goal is empty. */
static void print_csv_goals(struct csv *csv, const struct report_document *document)
{
	for (size_t i = 0; i < document->goal_count; i++) {
		const struct report_goal *goal = &document->goals[i];

		csv_text(csv, document->path);
		csv_text(csv, goal->what);
		csv_text(csv, "goal");
		skip_csv_fields(csv, 18);
		csv_text(csv, goal->section);
		csv_number(csv, goal->figure);
		csv_text(csv, goal->unit);
		csv_text(csv, goal->peer);
		csv_number(csv, goal->peer_figure);
		csv_number(csv, goal->ratio);
		csv_text(csv, goal->goal);
		csv_text(csv, report_verdict_text(goal));
		csv_end(csv);
	}
}

void report_print_csv(const struct report *report)
{
	struct csv csv = { .file = stdout };

	csv_names(&csv, csv_columns, CLI_ARRAY_SIZE(csv_columns));
	for (size_t i = 0; i < report->series_count; i++)
		for (size_t j = 0; j < report->series[i].count; j++)
			print_csv_point(&csv, report, &report->series[i], &report->series[i].points[j]);
	for (size_t i = 0; i < report->document_count; i++) {
		const struct report_matrix *matrix = &report->documents[i].matrix;
		struct report_rail all = { .rate = matrix->rate, .latency = matrix->latency };

		print_csv_pairs(&csv, &report->documents[i], &all);
		for (size_t k = 0; k < matrix->rail_count; k++)
			print_csv_pairs(&csv, &report->documents[i], &matrix->rails[k]);
		if (report->documents[i].fleet)
			print_csv_findings(&csv, &report->documents[i]);
		print_csv_goals(&csv, &report->documents[i]);
	}
}
