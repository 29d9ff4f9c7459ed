/* SPDX-License-Identifier: BSD-2-Clause */
/* Plots in the terminal: braille, with eight dots in a character, or ASCII characters. */
#include "report/goals.h"

#include <stdlib.h>
#include <string.h>

#define LEFT 11 /* width of the axis labels */
#define TICKS_MAX 12

struct canvas {
	const struct report_terminal *terminal;
	const struct report_lines *lines;
	int columns, rows; /* in characters */
	uint8_t *dots;     /* bits of each character, as in braille */
	char *letters;     /* marks of points, drawn over the dots */
	uint8_t *owners;   /* number of the line that owns each character, from 1 */
};

static const int colours[] = { 32, 35, 33, 36, 31, 34, 92, 95 };

/* Prints a name without control characters. */
static void print_terminal_text(const struct report_terminal *terminal, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return;
	cli_printable(copy, false);
	for (char *at = copy; *at; at++)
		if (terminal->unicode || !(*at & 0x80))
			putchar(*at);
		else if ((*at & 0xc0) == 0xc0)
			putchar('?');
	free(copy);
}

void report_print_cell(const struct report_terminal *terminal, const char *text, size_t width)
{
	size_t length = report_length(text);
	bool cut = width && length > width;
	char *copy = strdup(text), *end = copy;

	if (!copy)
		return;
	for (size_t i = 0; i + 1 < width && *end; i++)
		for (end++; (*end & 0xc0) == 0x80;)
			end++;
	if (cut)
		*end = '\0';
	print_terminal_text(terminal, copy);
	if (cut)
		fputs(terminal->unicode ? "\xe2\x80\xa6" : "~", stdout);
	for (; length < width; length++)
		putchar(' ');
	free(copy);
}

static void set_colour(const struct report_terminal *terminal, size_t line)
{
	if (terminal->colour && line)
		printf("\033[%dm", colours[(line - 1) % CLI_ARRAY_SIZE(colours)]);
	else if (terminal->colour)
		fputs("\033[0m", stdout);
}

static int dot_columns(const struct canvas *canvas)
{
	return canvas->columns * (canvas->terminal->unicode ? 2 : 1);
}

static int dot_rows(const struct canvas *canvas)
{
	return canvas->rows * (canvas->terminal->unicode ? 4 : 1);
}

static void set_dot(struct canvas *canvas, int x, int y, size_t line)
{
	static const uint8_t bits[4][2] = { { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 } };
	bool unicode = canvas->terminal->unicode;
	int index = (unicode ? y / 4 : y) * canvas->columns + (unicode ? x / 2 : x);

	canvas->dots[index] |= unicode ? bits[y % 4][x % 2] : 1;
	canvas->owners[index] = (uint8_t)(line + 1);
}

static void draw_dotted_line(struct canvas *canvas, const struct report_line *line)
{
	int width = dot_columns(canvas) - 1, height = dot_rows(canvas) - 1, x = 0, y = 0;

	for (size_t i = 0; i < line->count; i++) {
		int to_x = (int)lround(report_axis_position(&canvas->lines->x, line->x[i]) * width);
		int to_y = height - (int)lround(report_axis_position(&canvas->lines->y, line->y[i]) * height);
		int steps = i ? CLI_MAX(abs(to_x - x), abs(to_y - y)) : 0;

		for (int step = 0; step <= steps; step++)
			set_dot(canvas, steps ? x + (to_x - x) * step / steps : to_x,
				steps ? y + (to_y - y) * step / steps : to_y, line->index);
		x = to_x;
		y = to_y;
		/* Letters identify lines without colours. */
		if (canvas->lines->count > 1 && line->count <= 40)
			canvas->letters[(y / (canvas->terminal->unicode ? 4 : 1)) * canvas->columns +
					x / (canvas->terminal->unicode ? 2 : 1)] = (char)('a' + line->index);
	}
}

static void print_canvas_cell(const struct canvas *canvas, int index)
{
	uint8_t dots = canvas->dots[index];

	if (!dots && !canvas->letters[index]) {
		putchar(' ');
		return;
	}
	set_colour(canvas->terminal, canvas->owners[index]);
	if (canvas->letters[index])
		putchar(canvas->letters[index]);
	else if (canvas->terminal->unicode)
		printf("\xe2%c%c", 0xa0 | dots >> 6, 0x80 | (dots & 0x3f));
	else
		putchar('.');
	set_colour(canvas->terminal, 0);
}

static void print_canvas_rows(const struct canvas *canvas)
{
	const char *bar = canvas->terminal->unicode ? "\xe2\x94\x82" : "|";
	double ticks[TICKS_MAX];
	size_t count = report_ticks(&canvas->lines->y, ticks, CLI_MIN((size_t)canvas->rows / 2, (size_t)8));
	char text[REPORT_TEXT];

	for (int row = 0; row < canvas->rows; row++) {
		const char *label = "";
		int used = canvas->columns;

		for (size_t i = 0; i < count; i++)
			if (canvas->rows - 1 -
				    (int)lround(report_axis_position(&canvas->lines->y, ticks[i]) *
						(canvas->rows - 1)) ==
			    row)
				label = report_tick(canvas->lines->y.unit, ticks[i], text);
		printf("%*s %s", LEFT - 2, label, bar);
		while (used && !canvas->dots[row * canvas->columns + used - 1])
			used--;
		for (int column = 0; column < used; column++)
			print_canvas_cell(canvas, row * canvas->columns + column);
		putchar('\n');
	}
}

static void print_x_axis(const struct canvas *canvas)
{
	bool unicode = canvas->terminal->unicode;
	double ticks[TICKS_MAX];
	size_t count = report_ticks(&canvas->lines->x, ticks, CLI_MIN((size_t)canvas->columns / 9, (size_t)TICKS_MAX));
	char *row = malloc((size_t)canvas->columns + REPORT_TEXT), text[REPORT_TEXT];
	int end = 0;

	printf("%*s%s", LEFT - 1, "", unicode ? "\xe2\x94\x94" : "+");
	for (int i = 0; i < canvas->columns; i++)
		fputs(unicode ? "\xe2\x94\x80" : "-", stdout);
	putchar('\n');
	if (!row)
		return;
	memset(row, ' ', (size_t)canvas->columns + REPORT_TEXT);
	for (size_t i = 0; i < count; i++) {
		int at = (int)lround(report_axis_position(&canvas->lines->x, ticks[i]) * (canvas->columns - 1)), length;

		report_tick(canvas->lines->x.unit, ticks[i], text);
		length = (int)strlen(text);
		at = CLI_MAX(0, CLI_MIN(at - length / 2, canvas->columns - length));
		if (at < end || length > canvas->columns)
			continue;
		memcpy(row + at, text, (size_t)length);
		end = at + length + 1;
	}
	printf("%*s%.*s\n", LEFT, "", CLI_MAX(end - 1, 0), row);
	free(row);
}

static void print_line_legend(const struct canvas *canvas)
{
	for (size_t i = 0; i < canvas->lines->count; i++) {
		printf("%*s", LEFT, "");
		set_colour(canvas->terminal, i + 1);
		if (canvas->lines->count > 1)
			printf("%c  ", (int)('a' + i));
		print_terminal_text(canvas->terminal, canvas->lines->lines[i].series->name);
		set_colour(canvas->terminal, 0);
		putchar('\n');
	}
}

static void print_terminal_bars(const struct report_lines *lines, const struct report_terminal *terminal)
{
	int room = (int)terminal->width - 16;
	char text[REPORT_TEXT];

	for (size_t i = 0; i < lines->count; i++) {
		const struct report_line *line = &lines->lines[i];
		int length = CLI_MAX((int)lround(report_axis_position(&lines->y, line->y[0]) * room), 1);

		fputs("  ", stdout);
		print_terminal_text(terminal, line->series->name);
		fputs("\n  ", stdout);
		set_colour(terminal, i + 1);
		while (length--)
			fputs(terminal->unicode ? "\xe2\x96\x88" : "#", stdout);
		set_colour(terminal, 0);
		printf(" %s\n", report_value(lines->y.unit, line->y[0], text));
	}
}

static int print_terminal_lines(const struct report_lines *lines, const struct report_terminal *terminal)
{
	struct canvas canvas = {
		.terminal = terminal,
		.lines = lines,
		.columns = CLI_MAX((int)terminal->width - LEFT - 1, 20),
		.rows = CLI_MAX(CLI_MIN((int)terminal->height, 16), 6),
	};
	size_t cells = (size_t)(canvas.columns * canvas.rows);

	canvas.dots = calloc(cells, 3);
	if (!canvas.dots)
		return -ENOMEM;
	canvas.letters = (char *)canvas.dots + cells;
	canvas.owners = canvas.dots + 2 * cells;
	for (size_t i = 0; i < lines->count; i++)
		draw_dotted_line(&canvas, &lines->lines[i]);
	print_canvas_rows(&canvas);
	print_x_axis(&canvas);
	print_line_legend(&canvas);
	free(canvas.dots);
	return 0;
}

int report_print(const struct report *report, enum report_plot plot, const struct report_terminal *terminal)
{
	struct report_lines lines;
	int rc;

	if (plot == REPORT_PLOT_PHASES)
		return report_print_phases(report, terminal);
	if (plot == REPORT_PLOT_MATRIX || plot == REPORT_PLOT_MATRIX_LATENCY)
		return report_print_matrix(report, plot, terminal);
	if (plot == REPORT_PLOT_GOALS)
		return report_print_goals(report, terminal);
	rc = report_lines_make(&lines, report, plot);
	if (rc == 0 && lines.count) {
		printf("\n%s\n", lines.title);
		if (lines.bars)
			print_terminal_bars(&lines, terminal);
		else
			rc = print_terminal_lines(&lines, terminal);
		if (lines.left_out)
			printf("%*s(and %zu more lines)\n", LEFT, "", lines.left_out);
	}
	report_lines_free(&lines);
	return rc;
}

/* Prints a bar; without colours, letters stand for phases. */
static void print_phase_bar(const struct report *report, const struct report_point *point, double longest,
			    const struct report_terminal *terminal)
{
	double total = report_phase_total(report, point), at = 0, scale = (terminal->width - 16) / longest;
	char text[REPORT_TEXT];
	int done = 0;

	fputs("    ", stdout);
	for (size_t i = 0; i < report->phase_count; i++) {
		if (!(point->phases[i] > 0))
			continue;
		at += point->phases[i];
		set_colour(terminal, i + 1);
		for (; done < (int)lround(at * scale); done++)
			if (terminal->unicode && terminal->colour)
				fputs("\xe2\x96\x88", stdout);
			else
				putchar((int)('a' + i));
		set_colour(terminal, 0);
	}
	printf(" %s\n", report_value(REPORT_UNIT_TIME, total, text));
}

static void print_phase_bars(const struct report *report, double size, const struct report_terminal *terminal)
{
	double longest = 0;
	char text[REPORT_TEXT];

	/* The first pass finds the longest bar. */
	for (int pass = 0; pass < 2; pass++) {
		if (pass)
			printf("  %s frames\n", report_value(REPORT_UNIT_SIZE, size, text));
		for (size_t i = 0; i < report->series_count; i++)
			for (size_t j = 0; j < report->series[i].count; j++) {
				const struct report_point *point = &report->series[i].points[j];
				double total = report_phase_total(report, point);

				if (point->size != size || !(total > 0))
					continue;
				longest = fmax(longest, total);
				if (!pass)
					continue;
				fputs("   ", stdout);
				print_terminal_text(terminal, report->series[i].name);
				putchar('\n');
				print_phase_bar(report, point, longest, terminal);
			}
	}
}

int report_print_phases(const struct report *report, const struct report_terminal *terminal)
{
	double sizes[3];
	size_t count = report_phase_sizes(report, sizes, CLI_ARRAY_SIZE(sizes));

	puts("\nTime of a frame by phase");
	fputs("  ", stdout);
	for (size_t i = 0; i < report->phase_count; i++) {
		set_colour(terminal, i + 1);
		printf(i ? ", %c " : "%c ", (int)('a' + i));
		print_terminal_text(terminal, report->phases[i]);
		set_colour(terminal, 0);
	}
	putchar('\n');
	for (size_t i = 0; i < count; i++)
		print_phase_bars(report, sizes[i], terminal);
	return 0;
}

/* Names the host of a row behind its `used` columns, if the terminal has room. */
static void print_row_host(const struct report_matrix *matrix, size_t rank, size_t used,
			   const struct report_terminal *terminal)
{
	const char *host = matrix->labels[rank];

	if (!host || used + 2 + strlen(host) > terminal->width)
		return;
	fputs("  ", stdout);
	print_terminal_text(terminal, host);
}

static void print_heat_cells(const struct report_heat *heat, const struct report_matrix *matrix,
			     const struct report_terminal *terminal)
{
	/* From worst to best: light to dark, so that slow pairs appear as gaps. */
	static const char *const blocks[] = { "  ", "\xe2\x96\x91\xe2\x96\x91", "\xe2\x96\x92\xe2\x96\x92",
					      "\xe2\x96\x93\xe2\x96\x93", "\xe2\x96\x88\xe2\x96\x88" };
	static const char *const signs[] = { "  ", "..", "++", "**", "##" };

	for (size_t i = 0; i < heat->cells; i++) {
		printf("%6zu ", i * heat->step);
		for (size_t j = 0; j < heat->cells; j++) {
			int level = report_heat_level(heat, heat->values[i * heat->cells + j]);

			if (level < 0)
				fputs(i == j ? "- " : "? ", stdout);
			else
				fputs(terminal->unicode ? blocks[level / 2] : signs[level / 2], stdout);
		}
		if (heat->step == 1)
			print_row_host(matrix, i, 7 + 2 * heat->cells, terminal);
		putchar('\n');
	}
}

static void print_heat_numbers(const struct report_heat *heat, const struct report_matrix *matrix, bool latency,
			       const struct report_terminal *terminal)
{
	const int width = 8;
	double scale = latency ? 1 : 1e-9;

	printf("%6s ", latency ? "us" : "GB/s");
	for (size_t j = 0; j < heat->cells; j++)
		printf("%*zu", width, j);
	putchar('\n');
	for (size_t i = 0; i < heat->cells; i++) {
		printf("%6zu ", i);
		for (size_t j = 0; j < heat->cells; j++) {
			double value = heat->values[i * heat->cells + j];

			if (isnan(value))
				printf("%*s", width, "-");
			else
				printf("%*.3g", width, value * scale);
		}
		print_row_host(matrix, i, 7 + (size_t)width * heat->cells, terminal);
		putchar('\n');
	}
}

int report_print_matrix(const struct report *report, enum report_plot plot, const struct report_terminal *terminal)
{
	bool latency = plot == REPORT_PLOT_MATRIX_LATENCY;
	enum report_unit unit = latency ? REPORT_UNIT_TIME : REPORT_UNIT_RATE;
	size_t most = CLI_MAX((terminal->width - 8) / 2, 1u);
	char low[REPORT_TEXT], high[REPORT_TEXT];
	struct report_heat heat;
	int rc = 0;

	for (size_t i = 0; i < report->document_count && rc == 0; i++) {
		const struct report_matrix *matrix = &report->documents[i].matrix;

		if (!(latency ? matrix->latency : matrix->rate))
			continue;
		rc = report_heat_make(&heat, matrix, latency, most);
		if (rc < 0)
			break;
		printf("\n%s of all pairs, from row to column\n", latency ? "Latency" : "Bandwidth");
		if (heat.step == 1 && heat.cells * 8 + 8 <= terminal->width) {
			print_heat_numbers(&heat, matrix, latency, terminal);
		} else {
			print_heat_cells(&heat, matrix, terminal);
			printf("       empty: worst (%s); full: best (%s)\n", report_value(unit, heat.worst, low),
			       report_value(unit, heat.best, high));
		}
		free(heat.values);
	}
	return rc;
}
