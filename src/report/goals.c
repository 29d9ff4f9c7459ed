/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading of the figures and goals of benchmarks/machine, and the sentences about them. */
#include <stdlib.h>
#include <string.h>

#include "report/goals.h"

#define SENTENCES_MOST 12 /* of each kind and document */

static int fail_goal(struct pl_error *error, const char *path, size_t index, const char *what)
{
	return report_fail_content(error, path, "figures[%zu]: %s", index, what);
}

/* Returns the part of the goal that a figure reaches, 1 and more if it is met; NAN if that is unknown. */
static double share_of_goal(const struct report_goal *goal, bool of_ratio, double least, double most)
{
	double value = of_ratio ? goal->ratio : goal->figure;

	if (isnan(value))
		return NAN;
	if (least > 0)
		return value / least;
	if (isnan(most))
		return NAN;
	return value > 0 ? most / value : REPORT_GOAL_SHARE_MAX;
}

/* Reads a figure.  The texts stay in the document. */
static int read_goal(struct report_goal *goal, struct json_object *from, const char *path, size_t index,
		     struct pl_error *error)
{
	const char *of = cli_json_member_text(from, "goal_of");
	double least = NAN, most = NAN;
	struct json_object *met;

	*goal = (struct report_goal){
		.section = cli_json_member_text(from, "section"),
		.what = cli_json_member_text(from, "what"),
		.unit = cli_json_member_text(from, "unit"),
		.peer = cli_json_member_text(from, "peer"),
		.goal = cli_json_member_text(from, "goal"),
		.not_judged = cli_json_member_text(from, "not_judged"),
		.note = cli_json_member_text(from, "note"),
		.verdict = REPORT_GOAL_NOT_JUDGED,
		.share = NAN,
	};
	if (!goal->section || !goal->what)
		return fail_goal(error, path, index, "\"section\" or \"what\" is no text");
	if (report_number(from, "figure", &goal->figure) < 0 ||
	    report_number(from, "peer_figure", &goal->peer_figure) < 0 ||
	    report_number(from, "ratio", &goal->ratio) < 0 || report_number(from, "least", &least) < 0 ||
	    report_number(from, "most", &most) < 0)
		return fail_goal(error, path, index, "a value is not a number from 0 to 1e18");
	met = cli_json_member(from, "met", json_type_boolean);
	if (met)
		goal->verdict = json_object_get_boolean(met) ? REPORT_GOAL_MET : REPORT_GOAL_MISSED;
	goal->share = share_of_goal(goal, of && !strcmp(of, "ratio"), least, most);
	return 0;
}

int report_read_goals(struct report_document *document, struct pl_error *error)
{
	struct json_object *figures = cli_json_member(document->root, "figures", json_type_array);
	size_t count = figures ? json_object_array_length(figures) : 0;
	int rc = 0;

	if (!figures)
		return report_fail_content(error, document->path, "\"figures\" is not an array");
	if (count > REPORT_POINTS_MAX)
		return cli_fail(error, -E2BIG, "REPORT-SIZE", document->path, "split the file",
				"a file has at most %d figures", REPORT_POINTS_MAX);
	document->goals = calloc(count ? count : 1, sizeof(*document->goals));
	if (!document->goals)
		return report_fail_memory(error);
	for (; document->goal_count < count && rc == 0; document->goal_count++)
		rc = read_goal(&document->goals[document->goal_count],
			       json_object_array_get_idx(figures, document->goal_count), document->path,
			       document->goal_count, error);
	return rc;
}

bool report_document_has_goals(const struct report_document *document)
{
	for (size_t i = 0; i < document->goal_count; i++)
		if (document->goals[i].goal)
			return true;
	return false;
}

bool report_has_figures(const struct report *report)
{
	for (size_t i = 0; i < report->document_count; i++)
		if (report->documents[i].goal_count)
			return true;
	return false;
}

const char *report_verdict_text(const struct report_goal *goal)
{
	static const char *const texts[] = { "not judged", "missed", "met" };

	return goal->goal ? texts[goal->verdict] : "";
}

/* Formats as benchmarks/machine does: three digits, or whole numbers from 1,000 on. */
const char *report_goal_number(double value, char text[REPORT_TEXT])
{
	if (isnan(value))
		snprintf(text, REPORT_TEXT, "-");
	else
		snprintf(text, REPORT_TEXT, value >= 1000 ? "%.0f" : "%.3g", value);
	return text;
}

static int describe_counts(struct report *report, const struct report_document *document)
{
	size_t counts[REPORT_GOAL_VERDICTS] = { 0 };

	for (size_t i = 0; i < document->goal_count; i++)
		if (document->goals[i].goal)
			counts[document->goals[i].verdict]++;
	return report_add_sentence(report, false, "%s: %zu goals met, %zu missed, %zu not judged; %zu figures.",
				   document->name, counts[REPORT_GOAL_MET], counts[REPORT_GOAL_MISSED],
				   counts[REPORT_GOAL_NOT_JUDGED], document->goal_count);
}

static int describe_missed(struct report *report, const struct report_document *document)
{
	char figure[REPORT_TEXT], ratio[REPORT_TEXT];
	bool compared;
	size_t named = 0;
	int rc = 0;

	for (size_t i = 0; i < document->goal_count && rc == 0; i++) {
		const struct report_goal *goal = &document->goals[i];

		if (!goal->goal || goal->verdict != REPORT_GOAL_MISSED || named++ >= SENTENCES_MOST)
			continue;
		compared = !isnan(goal->ratio);
		rc = report_add_sentence(report, true, "Missed: %.60s: %.120s: %s%s%.20s%s%s, goal %.40s.",
					 goal->section, goal->what, report_goal_number(goal->figure, figure),
					 goal->unit && *goal->unit ? " " : "", goal->unit ? goal->unit : "",
					 compared ? ", ratio " : "",
					 compared ? report_goal_number(goal->ratio, ratio) : "", goal->goal);
	}
	if (rc == 0 && named > SENTENCES_MOST)
		rc = report_add_sentence(report, true, "%zu more goals of %s are missed.", named - SENTENCES_MOST,
					 document->name);
	return rc;
}

/* Names what a list of the document tells: `failures` or `left_out`. */
static int describe_list(struct report *report, const struct report_document *document, const char *list,
			 const char *member, const char *verb)
{
	struct json_object *all = cli_json_member(document->root, list, json_type_array);
	size_t count = all ? json_object_array_length(all) : 0;
	int rc = 0;

	for (size_t i = 0; i < CLI_MIN(count, (size_t)SENTENCES_MOST) && rc == 0; i++) {
		struct json_object *one = json_object_array_get_idx(all, i);
		const char *section = cli_json_member_text(one, "section"), *what = cli_json_member_text(one, "what"),
			   *text = cli_json_member_text(one, member);

		rc = report_add_sentence(report, !strcmp(list, "failures"), "%s: %.60s%s%.120s: %.400s.", verb,
					 section ? section : "?", what ? ": " : "", what ? what : "",
					 text ? text : "no reason given");
	}
	return rc;
}

int report_describe_goals(struct report *report, const struct report_document *document)
{
	struct json_object *complete = cli_json_member(document->root, "complete", json_type_boolean);
	int rc;

	if (document->kind != REPORT_GOALS)
		return 0;
	rc = describe_counts(report, document);
	if (rc == 0 && complete && !json_object_get_boolean(complete))
		rc = report_add_sentence(report, true, "%s: the run was ended before its last section.",
					 document->name);
	if (rc == 0)
		rc = describe_missed(report, document);
	if (rc == 0)
		rc = describe_list(report, document, "failures", "message", "Failed");
	if (rc == 0)
		rc = describe_list(report, document, "left_out", "reason", "Not measured");
	return rc;
}
