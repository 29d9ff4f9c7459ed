/* SPDX-License-Identifier: BSD-2-Clause */
/* SVG plots of lines; of bars, if all results have one size. */
#include "report/report.h"

#define LEGEND_ROW 20
#define BAR 40
#define CHARACTER_WIDTH 6.6 /* approximate width of a character of 12 pixels */
#define TICKS_MAX 12
#define HUES 8

struct line_canvas {
	const struct report_lines *lines;
	FILE *file;
	int width, height, left, right, top, bottom; /* of the plot area */
};

static double line_plot_x(const struct line_canvas *canvas, double value)
{
	return canvas->left + report_axis_position(&canvas->lines->x, value) * (canvas->right - canvas->left);
}

static double line_plot_y(const struct line_canvas *canvas, double value)
{
	return canvas->bottom - report_axis_position(&canvas->lines->y, value) * (canvas->bottom - canvas->top);
}

static void draw_marker(FILE *file, size_t index, double x, double y, const char *class)
{
	switch (index % 4) {
	case 0:
		fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" class=\"%s\"/>", x, y, class);
		break;
	case 1:
		fprintf(file, "<rect x=\"%.1f\" y=\"%.1f\" width=\"7\" height=\"7\" class=\"%s\"/>", x - 3.5, y - 3.5,
			class);
		break;
	case 2:
		fprintf(file, "<path d=\"M%.1f %.1fl4.5 8h-9z\" class=\"%s\"/>", x, y - 5, class);
		break;
	default:
		fprintf(file, "<path d=\"M%.1f %.1fl4.5 4.5-4.5 4.5-4.5-4.5z\" class=\"%s\"/>", x, y - 4.5, class);
	}
}

/* Draws the legend in as many rows as needed and returns its height.  Without a file, only returns the height. */
static int draw_line_legend(const struct report_lines *lines, int width, int top, FILE *file)
{
	size_t most = (size_t)((width - 60) / CHARACTER_WIDTH);
	double x = 16;
	int y = top;

	for (size_t i = 0; i < lines->count; i++) {
		const char *name = lines->lines[i].series->name;
		double needed = 34 + (double)CLI_MIN(report_length(name), most) * CHARACTER_WIDTH;

		if (x > 16 && x + needed > width - 8) {
			x = 16;
			y += LEGEND_ROW;
		}
		if (file) {
			fprintf(file, "<g class=\"c%zu b%zu\"><path d=\"M%.0f %dh20\" class=\"l\"/>", i % HUES,
				i / HUES, x, y + 8);
			draw_marker(file, i, x + 10, y + 8, "d");
			fprintf(file, "<text x=\"%.0f\" y=\"%d\" class=\"k\">", x + 25, y + 12);
			report_escape(file, name, most);
			fputs("</text></g>\n", file);
		}
		x += needed + 8;
	}
	return y + LEGEND_ROW - top;
}

static void draw_line_axes(const struct line_canvas *canvas)
{
	bool wide = canvas->width > 400;
	double values[TICKS_MAX];
	char text[REPORT_TEXT];
	size_t count = report_ticks(&canvas->lines->y, values, 8);

	for (size_t i = 0; i < count; i++) {
		double y = line_plot_y(canvas, values[i]);

		fprintf(canvas->file,
			"<path d=\"M%d %.1fH%d\" class=\"g\"/><text x=\"%d\" y=\"%.1f\" class=\"e\">%s</text>\n",
			canvas->left, y, canvas->right, canvas->left - 8, y + 4,
			report_tick(canvas->lines->y.unit, values[i], text));
	}
	count = report_ticks(&canvas->lines->x, values, wide ? TICKS_MAX : 6);
	for (size_t i = 0; i < count; i++) {
		double x = line_plot_x(canvas, values[i]);

		fprintf(canvas->file,
			"<path d=\"M%.1f %dV%d\" class=\"g\"/><text x=\"%.1f\" y=\"%d\" class=\"m\">%s</text>\n", x,
			canvas->top, canvas->bottom, x, canvas->bottom + 17,
			report_tick(canvas->lines->x.unit, values[i], text));
	}
	fprintf(canvas->file, "<path d=\"M%d %dH%d\" class=\"x\"/>\n", canvas->left, canvas->bottom, canvas->right);
	if (canvas->lines->x.unit == REPORT_UNIT_SIZE)
		fprintf(canvas->file, "<text x=\"%d\" y=\"%d\" class=\"m\">message size, bytes</text>\n",
			(canvas->left + canvas->right) / 2, canvas->bottom + 35);
}

static void draw_line_band(const struct line_canvas *canvas, const struct report_line *line)
{
	size_t first = 0, count = 0;

	/* A band is drawn only if its edge is known for all points. */
	while (count < line->count && line->high[count] > 0)
		count++;
	if (count < 2)
		return;
	fputs("<path class=\"a\" d=\"M", canvas->file);
	for (size_t i = first; i < count; i++)
		fprintf(canvas->file, "%.1f %.1f ", line_plot_x(canvas, line->x[i]), line_plot_y(canvas, line->y[i]));
	for (size_t i = count; i-- > first;)
		fprintf(canvas->file, "%.1f %.1f ", line_plot_x(canvas, line->x[i]),
			line_plot_y(canvas, fmax(line->high[i], line->y[i])));
	fputs("z\"/>\n", canvas->file);
}

static void draw_svg_line(const struct line_canvas *canvas, const struct report_line *line)
{
	bool dense = line->count > 40;
	char x[REPORT_TEXT], y[REPORT_TEXT];

	fprintf(canvas->file, "<g class=\"c%zu b%zu\">", line->index % HUES, line->index / HUES);
	draw_line_band(canvas, line);
	fputs("<path class=\"l\" d=\"M", canvas->file);
	for (size_t i = 0; i < line->count; i++)
		fprintf(canvas->file, "%.1f %.1f ", line_plot_x(canvas, line->x[i]), line_plot_y(canvas, line->y[i]));
	fputs("\"/>\n", canvas->file);
	for (size_t i = 0; i < line->count && !dense; i++) {
		fputs("<g><title>", canvas->file);
		report_escape(canvas->file, line->series->name, 0);
		fprintf(canvas->file, ", %s: %s</title>", report_value(canvas->lines->x.unit, line->x[i], x),
			report_value(canvas->lines->y.unit, line->y[i], y));
		draw_marker(canvas->file, line->index, line_plot_x(canvas, line->x[i]), line_plot_y(canvas, line->y[i]),
			    "d");
		fputs("</g>\n", canvas->file);
	}
	fputs("</g>\n", canvas->file);
}

static void draw_svg_bars(const struct line_canvas *canvas)
{
	const struct report_lines *lines = canvas->lines;
	char text[REPORT_TEXT];

	for (size_t i = 0; i < lines->count; i++) {
		const struct report_line *line = &lines->lines[i];
		int y = canvas->top + (int)i * BAR, width = canvas->width - 32 - 90;

		fprintf(canvas->file, "<g class=\"c%zu\"><text x=\"16\" y=\"%d\" class=\"k\">", i % HUES, y + 11);
		report_escape(canvas->file, line->series->name, (size_t)((canvas->width - 32) / CHARACTER_WIDTH));
		fprintf(canvas->file,
			"</text><rect x=\"16\" y=\"%d\" width=\"%.1f\" height=\"14\" rx=\"3\" class=\"d\"/><text "
			"x=\"%.1f\" y=\"%d\" class=\"k\">%s</text></g>\n",
			y + 17, fmax(2, report_axis_position(&lines->y, line->y[0]) * width),
			24 + report_axis_position(&lines->y, line->y[0]) * width, y + 28,
			report_value(lines->y.unit, line->y[0], text));
	}
}

int report_draw_lines(const struct report *report, enum report_plot plot, int width, bool alone, FILE *file)
{
	struct report_lines lines;
	int rc = report_lines_make(&lines, report, plot), top = alone ? 40 : 8, below;
	struct line_canvas canvas = { .lines = &lines, .file = file, .width = width, .top = top };

	if (rc == 0 && lines.count) {
		below = lines.bars ? 0 : draw_line_legend(&lines, width, top, NULL) + 8;
		canvas.height = lines.bars ? top + (int)lines.count * BAR + 8 : top + below + (width > 400 ? 340 : 290);
		canvas.left = 76;
		canvas.right = width - 24;
		canvas.top = top + below;
		canvas.bottom = canvas.height - 46;
		report_svg_begin(file, plot, width, canvas.height, alone, lines.title, lines.text);
		if (lines.bars) {
			draw_svg_bars(&canvas);
		} else {
			draw_line_legend(&lines, width, top, file);
			draw_line_axes(&canvas);
			for (size_t i = 0; i < lines.count; i++)
				draw_svg_line(&canvas, &lines.lines[i]);
		}
		fputs("</svg>\n", file);
	}
	report_lines_free(&lines);
	return rc;
}
