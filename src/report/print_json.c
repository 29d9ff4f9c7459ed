/* SPDX-License-Identifier: BSD-2-Clause */
/* JSON output of a report. */
#include "report/goals.h"

static struct json_object *json_report_number(double value)
{
	return isnan(value) ? NULL : json_object_new_double(value);
}

static struct json_object *json_report_point(const struct report *report, const struct report_point *point)
{
	static const char *const names[REPORT_PERCENTILES] = { "p50", "p90", "p95", "p99", "p999", "p9999" };
	struct json_object *object = json_object_new_object(), *latency = json_object_new_object();

	cli_json_add(object, "size", json_object_new_uint64((uint64_t)point->size));
	cli_json_add(object, "bytes_per_second", json_report_number(point->rate));
	cli_json_add(object, "operations_per_second", json_report_number(point->operations));
	for (int i = 0; i < REPORT_PERCENTILES; i++)
		cli_json_add(latency, names[i], json_report_number(point->latency[i]));
	cli_json_add(object, "latency_us", latency);
	if (report_phase_total(report, point) > 0)
		cli_json_add(object, "phases_total_us", json_report_number(report_phase_total(report, point)));
	cli_json_add(object, "verified", point->verified < 0 ? NULL : json_object_new_boolean(point->verified));
	return object;
}

static struct json_object *json_report_goal(const struct report_document *document, const struct report_goal *goal)
{
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "file", cli_json_text(document->path));
	cli_json_add(object, "section", cli_json_text(goal->section));
	cli_json_add(object, "what", cli_json_text(goal->what));
	cli_json_add(object, "figure", json_report_number(goal->figure));
	cli_json_add(object, "unit", goal->unit ? cli_json_text(goal->unit) : NULL);
	cli_json_add(object, "peer", goal->peer ? cli_json_text(goal->peer) : NULL);
	cli_json_add(object, "peer_figure", json_report_number(goal->peer_figure));
	cli_json_add(object, "ratio", json_report_number(goal->ratio));
	cli_json_add(object, "goal", goal->goal ? cli_json_text(goal->goal) : NULL);
	cli_json_add(object, "verdict", goal->goal ? cli_json_text(report_verdict_text(goal)) : NULL);
	return object;
}

static struct json_object *json_report_goals(const struct report *report)
{
	struct json_object *goals = json_object_new_array();

	for (size_t i = 0; i < report->document_count; i++)
		for (size_t k = 0; k < report->documents[i].goal_count; k++)
			json_object_array_add(goals,
					      json_report_goal(&report->documents[i], &report->documents[i].goals[k]));
	return goals;
}

void report_print_json(const struct report *report)
{
	struct json_object *object = json_object_new_object(), *sentences = json_object_new_array();
	struct json_object *lines = json_object_new_array(), *plots = json_object_new_array();

	for (size_t i = 0; i < report->sentence_count; i++) {
		struct json_object *one = json_object_new_object();

		cli_json_add(one, "text", cli_json_text(report->sentences[i].text));
		cli_json_add(one, "warning", json_object_new_boolean(report->sentences[i].warning));
		json_object_array_add(sentences, one);
	}
	for (int plot = 0; plot < REPORT_PLOTS; plot++)
		if (report_plot_available(report, (enum report_plot)plot))
			json_object_array_add(plots, cli_json_text(report_plot_name((enum report_plot)plot)));
	for (size_t i = 0; i < report->series_count; i++) {
		const struct report_series *series = &report->series[i];
		struct json_object *one = json_object_new_object(), *points = json_object_new_array();

		cli_json_add(one, "name", cli_json_text(series->name));
		cli_json_add(one, "file", cli_json_text(report->documents[series->document].path));
		cli_json_add(one, "mode", cli_json_text(series->latency ? "latency" : "bandwidth"));
		for (size_t j = 0; j < series->count; j++)
			json_object_array_add(points, json_report_point(report, &series->points[j]));
		cli_json_add(one, "points", points);
		json_object_array_add(lines, one);
	}
	cli_json_add(object, "sentences", sentences);
	cli_json_add(object, "plots", plots);
	cli_json_add(object, "lines", lines);
	if (report_has_figures(report))
		cli_json_add(object, "goals", json_report_goals(report));
	cli_json_print(object, true);
}
