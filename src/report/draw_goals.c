/* SPDX-License-Identifier: BSD-2-Clause */
/* Bars of figures next to their goals: the line in the middle is the goal. */
#include "report/goals.h"

#include <string.h>

#define ROW 38
#define HEADING 30
#define CHARACTER_WIDTH 6.6
#define VALUE_WIDTH 150 /* of the text beside a bar */
#define LEFT 16

static const char *colour_class(const struct report_goal *goal)
{
	return goal->verdict == REPORT_GOAL_MET ? "c0" : goal->verdict == REPORT_GOAL_MISSED ? "c2" : "c6";
}

/* Writes the text beside a bar: the value that the goal is about, and the goal. */
static void write_goal_value(const struct report_goal *goal, double x, int y, FILE *file)
{
	bool ratio = !strncmp(goal->goal, "ratio ", 6);
	char text[REPORT_TEXT];

	fprintf(file, "<text x=\"%.0f\" y=\"%d\">%s%s", x, y,
		report_goal_number(ratio ? goal->ratio : goal->figure, text), ratio || !goal->unit ? "" : " ");
	if (!ratio && goal->unit)
		report_escape(file, goal->unit, 8);
	fputs(", goal ", file);
	report_escape(file, goal->goal + (ratio ? 6 : 0), 10);
	fputs("</text>\n", file);
}

static void draw_goal_row(const struct report_goal *goal, int width, int y, FILE *file)
{
	const char *verdict = report_verdict_text(goal);
	double room = width - 2 * LEFT - VALUE_WIDTH, length = 0;
	size_t most = (size_t)((width - 2 * LEFT) / CHARACTER_WIDTH) - strlen(verdict) - 2;

	if (!isnan(goal->share))
		length = room * fmin(goal->share, REPORT_GOAL_SHARE_MAX) / REPORT_GOAL_SHARE_MAX;
	fprintf(file, "<g class=\"%s\"><title>", colour_class(goal));
	report_escape(file, goal->what, 0);
	fprintf(file, ": %s</title>\n<text x=\"%d\" y=\"%d\" class=\"k\">", verdict, LEFT, y + 11);
	report_escape(file, goal->what, most);
	fprintf(file, "</text>\n<text x=\"%d\" y=\"%d\" class=\"%se\">%s</text>\n", width - LEFT, y + 11,
		goal->verdict == REPORT_GOAL_MISSED ? "k " : "", verdict);
	fprintf(file,
		"<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"12\" class=\"n\"/><rect x=\"%d\" y=\"%d\" "
		"width=\"%.1f\" height=\"12\" class=\"%s\"/>",
		LEFT, y + 16, room, LEFT, y + 16, fmax(length, 0.5),
		goal->verdict == REPORT_GOAL_NOT_JUDGED ? "a" : "d");
	fprintf(file, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" style=\"stroke:var(--ink)\"/></g>\n",
		LEFT + room / 2, LEFT + room / 2, y + 14, y + 30);
	write_goal_value(goal, LEFT + room + 8, y + 26, file);
}

static void draw_goal_heading(const struct report_document *document, const struct report_goal *goal, bool with_file,
			      int width, int y, FILE *file)
{
	size_t most = (size_t)((width - 2 * LEFT) / 16);

	fprintf(file, "<text x=\"%d\" y=\"%d\" class=\"h\">", LEFT, y + 20);
	report_escape(file, goal->section, most);
	if (with_file) {
		fputs(", ", file);
		report_escape(file, document->name, most);
	}
	fputs("</text>\n", file);
}

/* Draws the goals of a document by section; without a file, computes the height only.  Returns the next position. */
static int draw_document_goals(const struct report *report, const struct report_document *document, int width, int y,
			       FILE *file)
{
	const char *section = NULL;

	for (size_t i = 0; i < document->goal_count; i++) {
		const struct report_goal *goal = &document->goals[i];

		if (!goal->goal)
			continue;
		if (!section || strcmp(section, goal->section)) {
			if (file)
				draw_goal_heading(document, goal, report->document_count > 1, width, y, file);
			section = goal->section;
			y += HEADING;
		}
		if (file)
			draw_goal_row(goal, width, y, file);
		y += ROW;
	}
	return y;
}

static int draw_all_goals(const struct report *report, int width, int y, FILE *file)
{
	for (size_t i = 0; i < report->document_count; i++)
		y = draw_document_goals(report, &report->documents[i], width, y, file);
	return y;
}

int report_draw_goals(const struct report *report, int width, bool alone, FILE *file)
{
	int top = alone ? 40 : 0, height = draw_all_goals(report, width, top, NULL);
	bool empty = height == top;

	report_svg_begin(
		file, REPORT_PLOT_GOALS, width, height + (empty ? HEADING : 8), alone, "Figures next to their goals",
		"A bar for each figure with a goal. The line in the middle is the goal: longer bars are better.");
	draw_all_goals(report, width, top, file);
	if (empty)
		fprintf(file, "<text x=\"%d\" y=\"%d\">No figure has a goal.</text>\n", LEFT, top + 20);
	fputs("</svg>\n", file);
	return 0;
}
