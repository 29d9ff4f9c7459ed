/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables of figures and goals: in the page, and in the terminal. */
#include "report/goals.h"

#include <string.h>

#include "cmd/common/output.h"

static void write_number_cell(FILE *file, double value)
{
	char text[REPORT_TEXT];

	fprintf(file, "<td class=\"r\">%s</td>", report_goal_number(value, text));
}

static void write_text_cell(FILE *file, const char *text)
{
	fputs("<td>", file);
	report_escape(file, text ? text : "", 60);
	fputs("</td>", file);
}

static void write_figure_row(FILE *file, const struct report_goal *goal)
{
	fputs("<tr><th scope=\"row\">", file);
	report_escape(file, goal->section, 40);
	fputs(": ", file);
	report_escape(file, goal->what, 120);
	fputs("</th>", file);
	write_number_cell(file, goal->figure);
	write_text_cell(file, goal->unit);
	write_number_cell(file, goal->peer_figure);
	write_text_cell(file, goal->peer);
	write_number_cell(file, goal->ratio);
	write_text_cell(file, goal->goal);
	fputs("<td>", file);
	if (goal->verdict == REPORT_GOAL_MISSED && goal->goal)
		fputs("<span class=\"st s0\">missed</span>", file);
	else
		fputs(report_verdict_text(goal), file);
	fputs("</td>", file);
	write_text_cell(file, goal->note ? goal->note : goal->not_judged);
	fputs("</tr>\n", file);
}

void report_write_goal_tables(const struct report *report, FILE *file)
{
	for (size_t i = 0; i < report->document_count; i++) {
		const struct report_document *document = &report->documents[i];

		if (!document->goal_count)
			continue;
		fputs("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"figures and goals\"><table>"
		      "<caption>",
		      file);
		report_escape(file, document->name, 80);
		fputs("</caption>\n<thead><tr><th scope=\"col\">Figure</th><th scope=\"col\" class=\"r\">Value</th>"
		      "<th scope=\"col\">Unit</th><th scope=\"col\" class=\"r\">Peer</th><th scope=\"col\">Peer is</th>"
		      "<th scope=\"col\" class=\"r\">Ratio</th><th scope=\"col\">Goal</th><th "
		      "scope=\"col\">Verdict</th>"
		      "<th scope=\"col\">Note</th></tr></thead>\n",
		      file);
		for (size_t k = 0; k < document->goal_count; k++)
			write_figure_row(file, &document->goals[k]);
		fputs("</table></div>\n", file);
	}
}

/* Columns beside the figure and the verdict, in terminals that are wide enough. */
static bool shows_peer(const struct report_terminal *terminal)
{
	return terminal->width >= 70;
}

static bool shows_goal(const struct report_terminal *terminal)
{
	return terminal->width > 100;
}

/* Returns the width of the figures' names: what the other columns leave. */
static size_t name_width(const struct report_terminal *terminal)
{
	return terminal->width - (shows_goal(terminal) ? 64 : shows_peer(terminal) ? 47 : 22);
}

/* Names the document if there are several. */
static void print_document_name(const struct report *report, const struct report_document *document,
				const struct report_terminal *terminal)
{
	if (report->document_count == 1)
		return;
	putchar('\n');
	report_print_cell(terminal, document->name, 0);
}

static void print_goal_head(const struct report_terminal *terminal)
{
	fputs("\n  ", stdout);
	report_print_cell(terminal, "FIGURE", name_width(terminal) - 2);
	printf(" %8s ", "VALUE");
	if (shows_peer(terminal))
		printf("UNIT     %8s %6s ", "PEER", "RATIO");
	printf(shows_goal(terminal) ? "GOAL             VERDICT\n" : "VERDICT\n");
}

static void print_goal_row(const struct report_goal *goal, const struct report_terminal *terminal)
{
	static const int colours[REPORT_GOAL_VERDICTS] = { 0, 31, 32 };
	char value[REPORT_TEXT], peer[REPORT_TEXT], ratio[REPORT_TEXT];

	fputs("  ", stdout);
	report_print_cell(terminal, goal->what, name_width(terminal) - 2);
	printf(" %8s ", report_goal_number(goal->figure, value));
	if (shows_peer(terminal)) {
		report_print_cell(terminal, goal->unit ? goal->unit : "", 8);
		printf(" %8s %6s ", report_goal_number(goal->peer_figure, peer),
		       report_goal_number(goal->ratio, ratio));
	}
	if (shows_goal(terminal)) {
		report_print_cell(terminal, goal->goal ? goal->goal : "", 16);
		putchar(' ');
	}
	if (terminal->colour && goal->goal && colours[goal->verdict])
		printf("\033[%dm%s\033[0m\n", colours[goal->verdict], report_verdict_text(goal));
	else
		printf("%s\n", report_verdict_text(goal));
}

int report_print_goals(const struct report *report, const struct report_terminal *terminal)
{
	for (size_t i = 0; i < report->document_count; i++) {
		const struct report_document *document = &report->documents[i];
		bool only_goals = report_document_has_goals(document);
		const char *section = NULL;

		for (size_t k = 0; k < document->goal_count; k++) {
			const struct report_goal *goal = &document->goals[k];

			if (only_goals && !goal->goal)
				continue;
			if (!section) {
				print_document_name(report, document, terminal);
				print_goal_head(terminal);
			}
			if (!section || strcmp(section, goal->section)) {
				report_print_cell(terminal, goal->section, 0);
				putchar('\n');
			}
			section = goal->section;
			print_goal_row(goal, terminal);
		}
	}
	return 0;
}
