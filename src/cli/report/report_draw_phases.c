/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the time of a frame goes, as bars of stacked phases; an arm each, side by side for some sizes. */
#include <stdlib.h>

#include "cli/report/report.h"

#define SIZES_MAX 5
#define ROW 40
#define CHARACTER 6.6
#define HUES 8

double report_phase_total(const struct report *report, const struct report_point *point)
{
	double total = 0;

	for (size_t i = 0; i < report->phase_count; i++)
		if (point->phases[i] > 0)
			total += point->phases[i];
	return total;
}

static int by_value(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

size_t report_phase_sizes(const struct report *report, double *sizes, size_t most)
{
	double all[REPORT_POINTS_MAX];
	size_t count = 0, unique = 0;

	for (size_t i = 0; i < report->series_count; i++)
		for (size_t j = 0; j < report->series[i].count; j++)
			if (report_phase_total(report, &report->series[i].points[j]) > 0 && count < REPORT_POINTS_MAX)
				all[count++] = report->series[i].points[j].size;
	qsort(all, count, sizeof(*all), by_value);
	for (size_t i = 0; i < count; i++)
		if (!i || all[i] != all[unique - 1])
			all[unique++] = all[i];
	/* Some of them, the first and the last too. */
	for (size_t i = 0; i < CLI_MIN(unique, most); i++)
		sizes[i] = unique <= most || most < 2 ? all[i] : all[i * (unique - 1) / (most - 1)];
	return CLI_MIN(unique, most);
}

static int legend(const struct report *report, int width, int top, FILE *file)
{
	double x = 16;
	int y = top;

	for (size_t i = 0; i < report->phase_count; i++) {
		double needed = 24 + (double)CLI_MIN(report_length(report->phases[i]), 24) * CHARACTER;

		if (x > 16 && x + needed > width - 8) {
			x = 16;
			y += 20;
		}
		if (file) {
			fprintf(file,
				"<g class=\"c%zu\"><rect x=\"%.0f\" y=\"%d\" width=\"12\" height=\"12\" rx=\"3\" "
				"class=\"d\"/><text x=\"%.0f\" y=\"%d\" class=\"k\">",
				i % HUES, x, y, x + 18, y + 11);
			report_escape(file, report->phases[i], 24);
			fputs("</text></g>\n", file);
		}
		x += needed + 8;
	}
	return y + 28 - top;
}

static void draw_bar(const struct report *report, const struct report_series *series, const struct report_point *point,
		     double longest, int width, int y, FILE *file)
{
	double x = 16, total = report_phase_total(report, point), scale = (width - 32 - 70) / longest;
	char text[REPORT_TEXT], share[REPORT_TEXT];

	fprintf(file, "<text x=\"16\" y=\"%d\" class=\"k\">", y + 11);
	report_escape(file, series->name, (size_t)((width - 32) / CHARACTER));
	fputs("</text>\n", file);
	for (size_t i = 0; i < report->phase_count; i++) {
		double part = point->phases[i] > 0 ? point->phases[i] * scale : 0;

		if (part <= 0)
			continue;
		snprintf(share, sizeof(share), "%.0f%%", 100 * point->phases[i] / total);
		fprintf(file, "<g class=\"c%zu\"><title>", i % HUES);
		report_escape(file, report->phases[i], 0);
		fprintf(file,
			": %s, %s</title><rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"16\" class=\"d\"/></g>\n",
			report_value(REPORT_UNIT_TIME, point->phases[i], text), share, x, y + 16, fmax(part - 1, 0.5));
		x += part;
	}
	fprintf(file, "<text x=\"%.1f\" y=\"%d\" class=\"k\">%s</text>\n", x + 6, y + 28,
		report_value(REPORT_UNIT_TIME, total, text));
}

/* The point of a series that is of this size and has phases. */
static const struct report_point *find_point(const struct report *report, const struct report_series *series,
					     double size)
{
	for (size_t i = 0; i < series->count; i++)
		if (series->points[i].size == size && report_phase_total(report, &series->points[i]) > 0)
			return &series->points[i];
	return NULL;
}

static int draw_size(const struct report *report, double size, int width, int y, FILE *file)
{
	double longest = 0;
	char text[REPORT_TEXT];

	for (size_t i = 0; i < report->series_count; i++) {
		const struct report_point *point = find_point(report, &report->series[i], size);

		longest = point ? fmax(longest, report_phase_total(report, point)) : longest;
	}
	if (file)
		fprintf(file, "<text x=\"16\" y=\"%d\" class=\"h\">%s frames</text>\n", y + 14,
			report_value(REPORT_UNIT_SIZE, size, text));
	y += 24;
	for (size_t i = 0; i < report->series_count; i++) {
		const struct report_point *point = find_point(report, &report->series[i], size);

		if (!point)
			continue;
		if (file)
			draw_bar(report, &report->series[i], point, longest, width, y, file);
		y += ROW;
	}
	return y + 10;
}

int report_draw_phases(const struct report *report, int width, bool alone, FILE *file)
{
	double sizes[SIZES_MAX];
	size_t count = report_phase_sizes(report, sizes, SIZES_MAX);
	int top = alone ? 40 : 8, y = top + legend(report, width, top, NULL);

	for (size_t i = 0; i < count; i++)
		y = draw_size(report, sizes[i], width, y, NULL);
	report_svg_begin(file, REPORT_PLOT_PHASES, width, y, alone, "Where the time of a frame goes",
			 "Bars of stacked phases, one for each arm; those of one size have the same scale.");
	y = top + legend(report, width, top, file);
	for (size_t i = 0; i < count; i++)
		y = draw_size(report, sizes[i], width, y, file);
	fputs("</svg>\n", file);
	return 0;
}
