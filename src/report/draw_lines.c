/* SPDX-License-Identifier: BSD-2-Clause */
/* Lines, or bars where there is one size only, as SVG. */
#include "report/report.h"

#define LEGEND_ROW 20
#define BAR 40
#define CHARACTER 6.6 /* about as wide as one of 12 pixels is */
#define TICKS_MAX 12
#define HUES 8

struct frame {
	const struct report_lines *lines;
	FILE *file;
	int width, height, left, right, top, bottom; /* of the plot in it */
};

static double x_of(const struct frame *frame, double value)
{
	return frame->left + report_at(&frame->lines->x, value) * (frame->right - frame->left);
}

static double y_of(const struct frame *frame, double value)
{
	return frame->bottom - report_at(&frame->lines->y, value) * (frame->bottom - frame->top);
}

static void marker(FILE *file, size_t index, double x, double y, const char *class)
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

/* Names with what stands for them, in as many rows as it takes; how high they are.  Without a file: only that. */
static int legend(const struct report_lines *lines, int width, int top, FILE *file)
{
	size_t most = (size_t)((width - 60) / CHARACTER);
	double x = 16;
	int y = top;

	for (size_t i = 0; i < lines->count; i++) {
		const char *name = lines->lines[i].series->name;
		double needed = 34 + (double)CLI_MIN(report_length(name), most) * CHARACTER;

		if (x > 16 && x + needed > width - 8) {
			x = 16;
			y += LEGEND_ROW;
		}
		if (file) {
			fprintf(file, "<g class=\"c%zu b%zu\"><path d=\"M%.0f %dh20\" class=\"l\"/>", i % HUES,
				i / HUES, x, y + 8);
			marker(file, i, x + 10, y + 8, "d");
			fprintf(file, "<text x=\"%.0f\" y=\"%d\" class=\"k\">", x + 25, y + 12);
			report_escape(file, name, most);
			fputs("</text></g>\n", file);
		}
		x += needed + 8;
	}
	return y + LEGEND_ROW - top;
}

static void draw_axes(const struct frame *frame)
{
	bool wide = frame->width > 400;
	double values[TICKS_MAX];
	char text[REPORT_TEXT];
	size_t count = report_ticks(&frame->lines->y, values, 8);

	for (size_t i = 0; i < count; i++) {
		double y = y_of(frame, values[i]);

		fprintf(frame->file,
			"<path d=\"M%d %.1fH%d\" class=\"g\"/><text x=\"%d\" y=\"%.1f\" class=\"e\">%s</text>\n",
			frame->left, y, frame->right, frame->left - 8, y + 4,
			report_tick(frame->lines->y.unit, values[i], text));
	}
	count = report_ticks(&frame->lines->x, values, wide ? TICKS_MAX : 6);
	for (size_t i = 0; i < count; i++) {
		double x = x_of(frame, values[i]);

		fprintf(frame->file,
			"<path d=\"M%.1f %dV%d\" class=\"g\"/><text x=\"%.1f\" y=\"%d\" class=\"m\">%s</text>\n", x,
			frame->top, frame->bottom, x, frame->bottom + 17,
			report_tick(frame->lines->x.unit, values[i], text));
	}
	fprintf(frame->file, "<path d=\"M%d %dH%d\" class=\"x\"/>\n", frame->left, frame->bottom, frame->right);
	if (frame->lines->x.unit == REPORT_UNIT_SIZE)
		fprintf(frame->file, "<text x=\"%d\" y=\"%d\" class=\"m\">size of a message, bytes</text>\n",
			(frame->left + frame->right) / 2, frame->bottom + 35);
}

static void draw_band(const struct frame *frame, const struct report_line *line)
{
	size_t first = 0, count = 0;

	/* Only where it is known all along. */
	while (count < line->count && line->high[count] > 0)
		count++;
	if (count < 2)
		return;
	fputs("<path class=\"a\" d=\"M", frame->file);
	for (size_t i = first; i < count; i++)
		fprintf(frame->file, "%.1f %.1f ", x_of(frame, line->x[i]), y_of(frame, line->y[i]));
	for (size_t i = count; i-- > first;)
		fprintf(frame->file, "%.1f %.1f ", x_of(frame, line->x[i]),
			y_of(frame, fmax(line->high[i], line->y[i])));
	fputs("z\"/>\n", frame->file);
}

static void draw_line(const struct frame *frame, const struct report_line *line)
{
	bool dense = line->count > 40;
	char x[REPORT_TEXT], y[REPORT_TEXT];

	fprintf(frame->file, "<g class=\"c%zu b%zu\">", line->index % HUES, line->index / HUES);
	draw_band(frame, line);
	fputs("<path class=\"l\" d=\"M", frame->file);
	for (size_t i = 0; i < line->count; i++)
		fprintf(frame->file, "%.1f %.1f ", x_of(frame, line->x[i]), y_of(frame, line->y[i]));
	fputs("\"/>\n", frame->file);
	for (size_t i = 0; i < line->count && !dense; i++) {
		fputs("<g><title>", frame->file);
		report_escape(frame->file, line->series->name, 0);
		fprintf(frame->file, ", %s: %s</title>", report_value(frame->lines->x.unit, line->x[i], x),
			report_value(frame->lines->y.unit, line->y[i], y));
		marker(frame->file, line->index, x_of(frame, line->x[i]), y_of(frame, line->y[i]), "d");
		fputs("</g>\n", frame->file);
	}
	fputs("</g>\n", frame->file);
}

static void draw_bars(const struct frame *frame)
{
	const struct report_lines *lines = frame->lines;
	char text[REPORT_TEXT];

	for (size_t i = 0; i < lines->count; i++) {
		const struct report_line *line = &lines->lines[i];
		int y = frame->top + (int)i * BAR, width = frame->width - 32 - 90;

		fprintf(frame->file, "<g class=\"c%zu\"><text x=\"16\" y=\"%d\" class=\"k\">", i % HUES, y + 11);
		report_escape(frame->file, line->series->name, (size_t)((frame->width - 32) / CHARACTER));
		fprintf(frame->file,
			"</text><rect x=\"16\" y=\"%d\" width=\"%.1f\" height=\"14\" rx=\"3\" class=\"d\"/><text "
			"x=\"%.1f\" y=\"%d\" class=\"k\">%s</text></g>\n",
			y + 17, fmax(2, report_at(&lines->y, line->y[0]) * width),
			24 + report_at(&lines->y, line->y[0]) * width, y + 28,
			report_value(lines->y.unit, line->y[0], text));
	}
}

int report_draw_lines(const struct report *report, enum report_plot plot, int width, bool alone, FILE *file)
{
	struct report_lines lines;
	int rc = report_lines_make(&lines, report, plot), top = alone ? 40 : 8, below;
	struct frame frame = { .lines = &lines, .file = file, .width = width, .top = top };

	if (rc == 0 && lines.count) {
		below = lines.bars ? 0 : legend(&lines, width, top, NULL) + 8;
		frame.height = lines.bars ? top + (int)lines.count * BAR + 8 : top + below + (width > 400 ? 340 : 290);
		frame.left = 76;
		frame.right = width - 24;
		frame.top = top + below;
		frame.bottom = frame.height - 46;
		report_svg_begin(file, plot, width, frame.height, alone, lines.title, lines.text);
		if (lines.bars) {
			draw_bars(&frame);
		} else {
			legend(&lines, width, top, file);
			draw_axes(&frame);
			for (size_t i = 0; i < lines.count; i++)
				draw_line(&frame, &lines.lines[i]);
		}
		fputs("</svg>\n", file);
	}
	report_lines_free(&lines);
	return rc;
}
