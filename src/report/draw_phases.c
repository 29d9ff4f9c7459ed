/* SPDX-License-Identifier: BSD-2-Clause */
/* Stacked bars of a frame's phases, one for each method; bars of one file and size share a scale. */
#include "report/report.h"

#include <stdlib.h>

#include "bench/common/numbers.h"

#define SIZES_MAX 5
#define ROW 40
#define CHARACTER_WIDTH 6.6
#define HUES 8

double report_phase_total(const struct report *report, const struct report_point *point)
{
	double total = 0;

	for (size_t i = 0; i < report->phase_count; i++)
		if (point->phases[i] > 0)
			total += point->phases[i];
	return total;
}

size_t report_phase_sizes(const struct report *report, double *sizes, size_t most)
{
	double all[REPORT_POINTS_MAX];
	size_t count = 0, unique = 0;

	for (size_t i = 0; i < report->series_count; i++)
		for (size_t j = 0; j < report->series[i].count; j++)
			if (report_phase_total(report, &report->series[i].points[j]) > 0 && count < REPORT_POINTS_MAX)
				all[count++] = report->series[i].points[j].size;
	qsort(all, count, sizeof(*all), bench_compare_doubles);
	for (size_t i = 0; i < count; i++)
		if (!i || all[i] != all[unique - 1])
			all[unique++] = all[i];
	/* Selects `most` sizes, with the first and the last one. */
	for (size_t i = 0; i < CLI_MIN(unique, most); i++)
		sizes[i] = unique <= most || most < 2 ? all[i] : all[i * (unique - 1) / (most - 1)];
	return CLI_MIN(unique, most);
}

static int draw_phase_legend(const struct report *report, int width, int top, FILE *file)
{
	double x = 16;
	int y = top;

	for (size_t i = 0; i < report->phase_count; i++) {
		double needed = 24 + (double)CLI_MIN(report_length(report->phases[i]), 24) * CHARACTER_WIDTH;

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

static void draw_phase_bar(const struct report *report, const struct report_series *series,
			   const struct report_point *point, double longest, int width, int y, FILE *file)
{
	double x = 16, total = report_phase_total(report, point), scale = (width - 32 - 70) / longest;
	char text[REPORT_TEXT], share[REPORT_TEXT];

	fprintf(file, "<text x=\"16\" y=\"%d\" class=\"k\">", y + 11);
	report_escape(file, series->properties[REPORT_METHOD][0] ? series->properties[REPORT_METHOD] : series->name,
		      (size_t)((width - 32) / CHARACTER_WIDTH));
	fputs("</text>\n", file);
	for (size_t i = 0; i < report->phase_count; i++) {
		double length = point->phases[i] > 0 ? point->phases[i] * scale : 0;

		if (length <= 0)
			continue;
		snprintf(share, sizeof(share), "%.0f%%", 100 * point->phases[i] / total);
		fprintf(file, "<g class=\"c%zu\"><title>", i % HUES);
		report_escape(file, report->phases[i], 0);
		fprintf(file,
			": %s, %s</title><rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"16\" class=\"d\"/></g>\n",
			report_value(REPORT_UNIT_TIME, point->phases[i], text), share, x, y + 16,
			fmax(length - 1, 0.5));
		x += length;
	}
	fprintf(file, "<text x=\"%.1f\" y=\"%d\" class=\"k\">%s</text>\n", x + 6, y + 28,
		report_value(REPORT_UNIT_TIME, total, text));
}

/* Returns the point of this document and size that has phases; NULL if there is none. */
static const struct report_point *find_phase_point(const struct report *report, const struct report_series *series,
						   size_t document, double size)
{
	for (size_t i = 0; i < series->count && series->document == document; i++)
		if (series->points[i].size == size && report_phase_total(report, &series->points[i]) > 0)
			return &series->points[i];
	return NULL;
}

/* True if several files have phases, so that headings need the file's name. */
static bool has_several_phase_files(const struct report *report)
{
	size_t first = SIZE_MAX;

	for (size_t i = 0; i < report->series_count; i++) {
		const struct report_series *series = &report->series[i];

		for (size_t j = 0; j < series->count; j++)
			if (report_phase_total(report, &series->points[j]) > 0) {
				if (first != SIZE_MAX && series->document != first)
					return true;
				first = series->document;
			}
	}
	return false;
}

static void draw_phase_heading(const struct report *report, size_t document, double size, int width, int y, FILE *file)
{
	char text[REPORT_TEXT];

	fprintf(file, "<text x=\"16\" y=\"%d\" class=\"h\">%s frames", y + 14,
		report_value(REPORT_UNIT_SIZE, size, text));
	if (has_several_phase_files(report)) {
		fputs(", ", file);
		report_escape(file, report->documents[document].name, (size_t)width / 14);
	}
	fputs("</text>\n", file);
}

static int draw_phase_group(const struct report *report, size_t document, double size, int width, int y, FILE *file)
{
	double longest = 0;

	for (size_t i = 0; i < report->series_count; i++) {
		const struct report_point *point = find_phase_point(report, &report->series[i], document, size);

		longest = point ? fmax(longest, report_phase_total(report, point)) : longest;
	}
	if (!(longest > 0))
		return y;
	if (file)
		draw_phase_heading(report, document, size, width, y, file);
	y += 24;
	for (size_t i = 0; i < report->series_count; i++) {
		const struct report_point *point = find_phase_point(report, &report->series[i], document, size);

		if (!point)
			continue;
		if (file)
			draw_phase_bar(report, &report->series[i], point, longest, width, y, file);
		y += ROW;
	}
	return y + 10;
}

static int draw_phase_groups(const struct report *report, int width, int y, FILE *file)
{
	double sizes[SIZES_MAX];
	size_t count = report_phase_sizes(report, sizes, SIZES_MAX);

	for (size_t document = 0; document < report->document_count; document++)
		for (size_t i = 0; i < count; i++)
			y = draw_phase_group(report, document, sizes[i], width, y, file);
	return y;
}

int report_draw_phases(const struct report *report, int width, bool alone, FILE *file)
{
	int top = alone ? 40 : 8,
	    y = draw_phase_groups(report, width, top + draw_phase_legend(report, width, top, NULL), NULL);

	report_svg_begin(file, REPORT_PLOT_PHASES, width, y, alone, "Time of a frame by phase",
			 "Stacked bars of phases, one for each method; bars under one heading share a scale.");
	draw_phase_groups(report, width, top + draw_phase_legend(report, width, top, file), file);
	fputs("</svg>\n", file);
	return 0;
}
