/* SPDX-License-Identifier: BSD-2-Clause */
/* Figures of benchmarks/machine and their goals. */
#ifndef PL_REPORT_GOALS_H
#define PL_REPORT_GOALS_H

#include "report/report.h"

#define REPORT_GOAL_SHARE_MAX 2.0 /* the end of a bar, whose middle is the goal */

enum report_goal_verdict {
	REPORT_GOAL_NOT_JUDGED,
	REPORT_GOAL_MISSED,
	REPORT_GOAL_MET,
	REPORT_GOAL_VERDICTS,
};

/* Figure; `section` and `what` are never NULL. */
struct report_goal {
	const char *section, *what, *unit, *peer, *goal, *not_judged, *note; /* in the document */
	double figure, peer_figure, ratio;
	double share; /* of the goal that is reached; 1 and more if it is met */
	enum report_goal_verdict verdict;
};

/* Returns "met", "missed" or "not judged"; "" without a goal. */
const char *report_verdict_text(const struct report_goal *goal);
const char *report_goal_number(double value, char text[REPORT_TEXT]);
/* True if any figure of the document has a goal. */
bool report_document_has_goals(const struct report_document *document);
/* True if any document has figures, with goals or without. */
bool report_has_figures(const struct report *report);
int report_describe_goals(struct report *report, const struct report_document *document);

int report_draw_goals(const struct report *report, int width, bool alone, FILE *file);
void report_write_goal_tables(const struct report *report, FILE *file);
int report_print_goals(const struct report *report, const struct report_terminal *terminal);

#endif
