/* SPDX-License-Identifier: BSD-2-Clause */
/* SVG heat maps of all pairs of ranks. */
#include "report/report.h"

#include <stdlib.h>

#define CELLS_MAX 64
#define TITLED_CELLS_MAX 24 /* cells in a row that have a tooltip each; with more cells the page would grow too large */
#define CELL_TEXT_MIN 26    /* pixels of a cell with a number */
#define CELL_CHARACTER 6.4  /* approximate width of a digit of 11 pixels */
#define LEFT 44
#define TOP 46

/* Writes a value with as many digits as fit a cell.  Returns false if none do. */
static bool fit_heat_value(double value, double side, char text[16])
{
	for (int digits = 3; digits > 0; digits--) {
		int length =
			value >= 100 ? snprintf(text, 16, "%.0f", value) : snprintf(text, 16, "%.*g", digits, value);

		if (length * CELL_CHARACTER <= side - 3)
			return true;
	}
	return false;
}

static void draw_heat_cell(const struct report_heat *heat, bool latency, size_t row, size_t column, double side,
			   double top, FILE *file)
{
	double value = heat->values[row * heat->cells + column];
	double x = LEFT + (double)column * side, y = top + (double)row * side;
	int level = report_heat_level(heat, value);
	char text[REPORT_TEXT];

	fprintf(file,
		"<g><title>%zu to %zu: %s</title><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"",
		row * heat->step, column * heat->step,
		report_value(latency ? REPORT_UNIT_TIME : REPORT_UNIT_RATE, value, text), x, y, side - 1, side - 1);
	fprintf(file, level < 0 ? "n\"/>" : "v%d\"/>", level);
	if (level >= 0 && side >= CELL_TEXT_MIN && fit_heat_value(latency ? value : value / 1e9, side, text))
		fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" class=\"m n%d\">%s</text>", x + side / 2, y + side / 2 + 4,
			level > 2, text);
	fputs("</g>\n", file);
}

/* Draws all cells of a level as one path. */
static void draw_heat_levels(const struct report_heat *heat, double side, double top, FILE *file)
{
	for (int level = -1; level < 10; level++) {
		fprintf(file, level < 0 ? "<path class=\"n\" d=\"" : "<path class=\"v%d\" d=\"", level);
		for (size_t i = 0; i < heat->cells * heat->cells; i++)
			if (report_heat_level(heat, heat->values[i]) == level)
				fprintf(file, "M%.1f %.1fh%.1fv%.1fh-%.1fz", LEFT + (double)(i % heat->cells) * side,
					top + (double)(i / heat->cells) * side, side - 1, side - 1, side - 1);
		fputs("\"/>\n", file);
	}
}

static void draw_rank_numbers(const struct report_heat *heat, double side, double top, FILE *file)
{
	/* Numbers need 22 pixels each. */
	size_t every = (size_t)fmax(1, ceil(22 / side));

	for (size_t i = 0; i < heat->cells; i += every) {
		double at = ((double)i + 0.5) * side;

		fprintf(file,
			"<text x=\"%.1f\" y=\"%.1f\" class=\"m\">%zu</text><text x=\"%d\" y=\"%.1f\" "
			"class=\"e\">%zu</text>\n",
			LEFT + at, top - 8, i * heat->step, LEFT - 8, top + at + 4, i * heat->step);
	}
}

static void draw_heat_scale(const struct report_heat *heat, bool latency, int width, double y, FILE *file)
{
	enum report_unit unit = latency ? REPORT_UNIT_TIME : REPORT_UNIT_RATE;
	double step = fmin(24, (width - LEFT - 20) / 10.0);
	char worst[REPORT_TEXT], best[REPORT_TEXT];

	for (int i = 0; i < 10; i++)
		fprintf(file, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"10\" class=\"v%d\"/>",
			LEFT + i * step, y, step, i);
	report_value(unit, heat->worst, worst);
	report_value(unit, heat->best, best);
	fprintf(file, "\n<text x=\"%d\" y=\"%.1f\">%s</text><text x=\"%.1f\" y=\"%.1f\" class=\"e\">%s</text>\n", LEFT,
		y + 26, worst, LEFT + 10 * step, y + 26, best);
}

static int draw_document_matrix(const struct report_document *document, bool latency, int width, int top, FILE *file)
{
	struct report_heat heat;
	double side, under;
	int rc = report_heat_make(&heat, &document->matrix, latency, CELLS_MAX);

	if (rc < 0)
		return rc;
	side = fmin(46, (double)(width - LEFT - 12) / (double)heat.cells);
	under = top + TOP + side * (double)heat.cells;
	if (file) {
		fprintf(file, "<text x=\"%d\" y=\"%d\">columns: receiving rank, rows: sending rank; %s</text>\n", LEFT,
			top + 14, latency ? "us" : "GB/s");
		draw_rank_numbers(&heat, side, top + TOP, file);
		if (heat.cells > TITLED_CELLS_MAX)
			draw_heat_levels(&heat, side, top + TOP, file);
		for (size_t i = 0; i < heat.cells * heat.cells && heat.cells <= TITLED_CELLS_MAX; i++)
			draw_heat_cell(&heat, latency, i / heat.cells, i % heat.cells, side, top + TOP, file);
		draw_heat_scale(&heat, latency, width, under + 12, file);
	}
	free(heat.values);
	return (int)under + 56;
}

int report_draw_matrix(const struct report *report, enum report_plot plot, int width, bool alone, FILE *file)
{
	bool latency = plot == REPORT_PLOT_MATRIX_LATENCY;
	int top = alone ? 40 : 8, height = top;

	/* The first pass computes the height, which precedes the content. */
	for (int pass = 0; pass < 2; pass++) {
		int y = top;

		if (pass)
			report_svg_begin(file, plot, width, height, alone,
					 latency ? "Latency of all pairs" : "Bandwidth of all pairs",
					 "Heat map with a row for each sending rank and a column for each "
					 "receiving rank. Dark is slow, light is fast.");
		for (size_t i = 0; i < report->document_count && y >= 0; i++) {
			const struct report_matrix *matrix = &report->documents[i].matrix;

			if (latency ? matrix->latency : matrix->rate)
				y = draw_document_matrix(&report->documents[i], latency, width, y, pass ? file : NULL);
		}
		if (y < 0)
			return y;
		height = y;
	}
	fputs("</svg>\n", file);
	return 0;
}
