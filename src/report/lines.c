/* SPDX-License-Identifier: BSD-2-Clause */
/* Which points a plot of lines has, and how its axes run. */
#include <stdlib.h>
#include <string.h>

#include "bench/perf/endpoint.h"
#include "report/report.h"
#include "cmd/common/units.h"

#define LINES_MAX 16
/* Of an axis by powers of ten, below which it gets others; and about how many then. */
#define FEW_TICKS 3
#define EVEN_TICKS 5

/* How far out a percentile is: each nine is a step. */
static const double nines[REPORT_PERCENTILES] = { 0.301, 1, 1.301, 2, 3, 4 };
static const char *const nine_names[REPORT_PERCENTILES] = { "p50", "p90", "p95", "p99", "p99.9", "p99.99" };

/* Whether times of requests that wait for each other are shown, as there are no others. */
static bool only_loaded(const struct report *report)
{
	for (size_t i = 0; i < report->series_count; i++)
		if (report->series[i].latency)
			return false;
	return true;
}

bool report_plot_of_rates(enum report_plot plot)
{
	return plot == REPORT_PLOT_BANDWIDTH || plot == REPORT_PLOT_FRAMES;
}

static bool is_arm(const struct report_series *series)
{
	return series->parts[REPORT_ARM][0];
}

/* Frames through a GPU are another thing than messages: arms have a picture of their own next to those. */
bool report_plot_takes(const struct report *report, enum report_plot plot, const struct report_series *series)
{
	bool others = false;

	if (!report_plot_of_rates(plot))
		return true;
	for (size_t i = 0; i < report->series_count; i++)
		others = others || (!is_arm(&report->series[i]) && !report->series[i].latency);
	return (plot == REPORT_PLOT_FRAMES) == (others && is_arm(series));
}

static bool is_message(const struct report_series *series)
{
	const char *operation = series->parts[REPORT_OPERATION];

	return strcmp(operation, "register") && strcmp(operation, "connect");
}

/* What it takes to register memory, or to connect, is not compared with the latency of messages. */
static bool beside_messages(const struct report *report, const struct report_series *series)
{
	bool messages = false;

	for (size_t i = 0; i < report->series_count; i++)
		messages = messages || (report->series[i].latency && is_message(&report->series[i]));
	return messages && !is_message(series);
}

static bool shown(const struct report *report, const struct report_series *series, enum report_plot plot)
{
	bool bandwidth = report_plot_of_rates(plot) || plot == REPORT_PLOT_SAMPLES;
	/* In a latency run one message is under way: its rate says how long that took, once more. */
	bool fits = bandwidth ? !series->latency : series->latency || only_loaded(report);

	fits = fits && report_plot_takes(report, plot, series) && (bandwidth || !beside_messages(report, series));
	for (size_t i = 0; i < series->count && fits; i++) {
		const struct report_point *point = &series->points[i];

		if (report_plot_of_rates(plot)    ? point->rate > 0
		    : plot == REPORT_PLOT_SAMPLES ? point->sample_count > 0
						  : point->latency[REPORT_P50] > 0)
			return true;
	}
	return false;
}

static void push(struct report_line *line, double x, double y, double high)
{
	line->x[line->count] = x;
	line->y[line->count] = y;
	line->high[line->count++] = high;
}

static void fill_sizes(struct report_line *line, const struct report_series *series, enum report_plot plot)
{
	for (size_t i = 0; i < series->count; i++) {
		const struct report_point *point = &series->points[i];
		double y = report_plot_of_rates(plot) ? point->rate : point->latency[REPORT_P50];

		if (y > 0)
			push(line, point->size, y, report_plot_of_rates(plot) ? NAN : point->latency[REPORT_P99]);
	}
}

/* The point that the plots of one size show: the smallest for times, the largest for rates. */
static const struct report_point *one_point(const struct report_series *series, enum report_plot plot)
{
	const struct report_point *found = NULL;

	for (size_t i = 0; i < series->count; i++) {
		const struct report_point *point = &series->points[i];

		if (plot == REPORT_PLOT_SAMPLES && point->sample_count)
			found = point;
		if (plot == REPORT_PLOT_PERCENTILES && !found && point->latency[REPORT_P50] > 0)
			found = point;
	}
	return found;
}

static void fill_percentiles(struct report_line *line, const struct report_point *point)
{
	for (int i = 0; i < REPORT_PERCENTILES; i++)
		if (point->latency[i] > 0)
			push(line, nines[i], point->latency[i], NAN);
}

static void fill_samples(struct report_line *line, const struct report_point *point)
{
	for (size_t i = 0; i < point->sample_count; i++)
		push(line, ((double)i + 0.5) * point->interval, point->samples[i], NAN);
}

static int add_line(struct report_lines *lines, const struct report_series *series, enum report_plot plot)
{
	const struct report_point *point = one_point(series, plot);
	size_t room = CLI_MAX(CLI_MAX(series->count, (size_t)REPORT_PERCENTILES), point ? point->sample_count : 0);
	struct report_line *line = &lines->lines[lines->count++];

	*line = (struct report_line){ .series = series,
				      .index = lines->count - 1,
				      .x = calloc(room * 3, sizeof(double)) };
	if (!line->x)
		return -ENOMEM;
	line->y = line->x + room;
	line->high = line->y + room;
	if (plot == REPORT_PLOT_PERCENTILES)
		fill_percentiles(line, point);
	else if (plot == REPORT_PLOT_SAMPLES)
		fill_samples(line, point);
	else
		fill_sizes(line, series, plot);
	return 0;
}

/* From what to what the values go. */
static void span(const struct report_lines *lines, bool vertical, double *low, double *high)
{
	*low = INFINITY;
	*high = 0;
	for (size_t i = 0; i < lines->count; i++) {
		const struct report_line *line = &lines->lines[i];

		for (size_t j = 0; j < line->count; j++) {
			double value = vertical ? line->y[j] : line->x[j];

			*low = fmin(*low, value);
			*high = fmax(*high, vertical ? fmax(value, line->high[j]) : value);
		}
	}
}

static void make_axes(struct report_lines *lines, enum report_plot plot)
{
	double low, high;

	span(lines, false, &low, &high);
	lines->x = (struct report_axis){ low, high, false, REPORT_UNIT_SECONDS };
	if (plot == REPORT_PLOT_SAMPLES) {
		lines->x.low = 0;
	} else if (plot == REPORT_PLOT_PERCENTILES) {
		lines->x.unit = REPORT_UNIT_PERCENTILE;
	} else {
		lines->x = (struct report_axis){ log10(low), log10(high), true, REPORT_UNIT_SIZE };
	}
	lines->bars = lines->x.unit == REPORT_UNIT_SIZE && !(low < high);
	span(lines, true, &low, &high);
	if (plot == REPORT_PLOT_SAMPLES)
		lines->y = (struct report_axis){ 0, high > 0 ? high * 1.05 : 1, false, REPORT_UNIT_RATE };
	else
		/* Some room, so that no point lies on the frame. */
		lines->y = (struct report_axis){ log10(low) - 0.08, log10(high) + 0.08, true,
						 report_plot_of_rates(plot) ? REPORT_UNIT_RATE : REPORT_UNIT_TIME };
	/* A bar begins at nothing, where its length is to say something. */
	if (lines->bars)
		lines->y = (struct report_axis){ 0, high, false, lines->y.unit };
}

static void name_sizes(const struct report_lines *lines, enum report_plot plot, char text[REPORT_TEXT])
{
	double size = NAN;

	text[0] = '\0';
	for (size_t i = 0; i < lines->count; i++) {
		const struct report_point *point = one_point(lines->lines[i].series, plot);

		if (i && point && point->size != size) {
			snprintf(text, REPORT_TEXT, "the %s size of each",
				 plot == REPORT_PLOT_SAMPLES ? "largest" : "smallest");
			return;
		}
		size = point ? point->size : NAN;
	}
	report_value(REPORT_UNIT_SIZE, size, text);
}

static void make_texts(struct report_lines *lines, const struct report *report, enum report_plot plot)
{
	bool loaded = !report_plot_of_rates(plot) && plot != REPORT_PLOT_SAMPLES && only_loaded(report);
	char size[REPORT_TEXT], low[REPORT_TEXT], high[REPORT_TEXT];
	double least, most;

	if (plot == REPORT_PLOT_PERCENTILES || plot == REPORT_PLOT_SAMPLES)
		name_sizes(lines, plot, size);
	else
		report_value(REPORT_UNIT_SIZE, lines->lines[0].x[0], size);
	if (plot == REPORT_PLOT_BANDWIDTH)
		snprintf(lines->title, sizeof(lines->title), lines->bars ? "Bandwidth with %s" : "Bandwidth over size",
			 size);
	else if (plot == REPORT_PLOT_FRAMES)
		snprintf(lines->title, sizeof(lines->title),
			 lines->bars ? "Frames through a GPU, of %s" : "Frames through a GPU: bandwidth over size",
			 size);
	else if (plot == REPORT_PLOT_SAMPLES)
		snprintf(lines->title, sizeof(lines->title), "Bandwidth over time, %s", size);
	else if (plot == REPORT_PLOT_PERCENTILES)
		snprintf(lines->title, sizeof(lines->title), "%s by percentile, %s",
			 loaded ? "Time under load" : "Latency", size);
	else
		snprintf(lines->title, sizeof(lines->title), lines->bars ? "%s with %s" : "%s over size",
			 loaded ? "Time under load" : "Latency", size);
	span(lines, true, &least, &most);
	snprintf(lines->text, sizeof(lines->text), "%zu line%s, from %s to %s.%s", lines->count,
		 lines->count == 1 ? "" : "s", report_value(lines->y.unit, least, low),
		 report_value(lines->y.unit, most, high),
		 plot == REPORT_PLOT_LATENCY
			 ? " The lines are what half of the operations stay below; the shade reaches "
			   "up to what 99 of 100 stay below."
			 : "");
}

int report_lines_make(struct report_lines *lines, const struct report *report, enum report_plot plot)
{
	*lines = (struct report_lines){ .lines = calloc(LINES_MAX, sizeof(*lines->lines)) };
	if (!lines->lines)
		return -ENOMEM;
	for (size_t i = 0; i < report->series_count; i++) {
		if (!shown(report, &report->series[i], plot))
			continue;
		if (lines->count == LINES_MAX)
			lines->left_out++;
		else if (add_line(lines, &report->series[i], plot) < 0)
			return -ENOMEM;
	}
	if (!lines->count)
		return 0;
	make_axes(lines, plot);
	make_texts(lines, report, plot);
	return 0;
}

void report_lines_free(struct report_lines *lines)
{
	for (size_t i = 0; i < lines->count; i++)
		free(lines->lines[i].x);
	free(lines->lines);
}

/* -- axes ---------------------------------------------------------------------------------------- */

double report_at(const struct report_axis *axis, double value)
{
	double at = axis->log ? log10(value) : value;

	return axis->high > axis->low ? fmin(fmax((at - axis->low) / (axis->high - axis->low), 0), 1) : 0.5;
}

/* Powers of two, so many apart that they have room. */
static size_t size_ticks(const struct report_axis *axis, double *values, size_t most)
{
	double first = ceil(axis->low / log10(2) - 1e-9), last = floor(axis->high / log10(2) + 1e-9);
	double step = fmax(1, ceil((last - first + 1) / (double)most));
	size_t count = 0;

	for (double power = first; power <= last && count < most; power += step)
		values[count++] = exp2(power);
	if (!count)
		values[count++] = pow(10, axis->low);
	return count;
}

static size_t decade_ticks(const struct report_axis *axis, double *values, size_t most)
{
	static const double parts[][3] = { { 1, 2, 5 }, { 1, 3, 0 }, { 1, 0, 0 } };
	size_t count = 0;

	/* The finest division that has room; of decades as many as that. */
	for (size_t choice = 0; choice < CLI_ARRAY_SIZE(parts) + 12; choice++) {
		const double *part = parts[CLI_MIN(choice, CLI_ARRAY_SIZE(parts) - 1)];
		double step = choice < CLI_ARRAY_SIZE(parts) ? 1 : (double)(choice - CLI_ARRAY_SIZE(parts) + 2);
		bool fits = true;

		count = 0;
		for (double decade = floor(axis->low); decade <= axis->high && fits; decade += step)
			for (size_t i = 0; i < 3 && part[i] > 0 && fits; i++) {
				double at = decade + log10(part[i]);

				if (at < axis->low || at > axis->high)
					continue;
				fits = count < most;
				if (fits)
					values[count++] = pow(10, at);
			}
		if (fits)
			break;
	}
	return count;
}

/* By 1, 2 or 5 of a decade. */
static size_t plain_ticks(const struct report_axis *axis, double *values, size_t most)
{
	static const double parts[] = { 1, 2, 5, 10 };
	double least = (axis->high - axis->low) / (double)most, decade = pow(10, floor(log10(least))), step = decade;
	size_t count = 0;

	for (size_t i = 0; i < CLI_ARRAY_SIZE(parts) && step < least; i++)
		step = decade * parts[i];
	for (double at = ceil(axis->low / step - 1e-9); at * step <= axis->high && count < most; at++)
		values[count++] = at * step + 0.0; /* no minus before the zero */
	return count;
}

/* What is less than a decade has even steps, which the axis presses together a little. */
static size_t even_ticks(const struct report_axis *axis, double *values, size_t most)
{
	const struct report_axis even = { .low = pow(10, axis->low), .high = pow(10, axis->high) };

	return plain_ticks(&even, values, CLI_MIN(most, (size_t)EVEN_TICKS));
}

size_t report_ticks(const struct report_axis *axis, double *values, size_t most)
{
	size_t count = 0;

	if (axis->unit == REPORT_UNIT_PERCENTILE) {
		for (int i = 0; i < REPORT_PERCENTILES && count < most; i++)
			if (nines[i] >= axis->low && nines[i] <= axis->high && i != REPORT_P95)
				values[count++] = nines[i];
		return count;
	}
	if (axis->unit == REPORT_UNIT_SIZE)
		return size_ticks(axis, values, most);
	if (!axis->log)
		return plain_ticks(axis, values, most);
	count = decade_ticks(axis, values, most);
	return count < FEW_TICKS && count < most ? even_ticks(axis, values, most) : count;
}

/* "64 KiB" */
static void size_text(double value, char buffer[REPORT_TEXT])
{
	char text[CLI_UNIT_MAX];
	size_t digits = strspn(bench_size_text(text, sizeof(text), (uint64_t)value), "0123456789");

	snprintf(buffer, REPORT_TEXT, text[digits] ? "%.*s %siB" : "%.*s %sB", (int)digits, text, text + digits);
}

const char *report_value(enum report_unit unit, double value, char buffer[REPORT_TEXT])
{
	char text[CLI_UNIT_MAX];

	if (isnan(value))
		snprintf(buffer, REPORT_TEXT, "-");
	else if (unit == REPORT_UNIT_SIZE)
		size_text(value, buffer);
	else if (unit == REPORT_UNIT_RATE)
		snprintf(buffer, REPORT_TEXT, "%s/s", cli_format_bytes(text, (uint64_t)(value + 0.5)));
	else if (unit == REPORT_UNIT_TIME)
		snprintf(buffer, REPORT_TEXT, "%s", cli_format_time(text, (uint64_t)fmin(value * 1000 + 0.5, 1e19)));
	else if (unit == REPORT_UNIT_SECONDS)
		snprintf(buffer, REPORT_TEXT, "%.3g s", value);
	else
		for (int i = 0; i < REPORT_PERCENTILES; i++)
			if (fabs(nines[i] - value) < 0.01)
				snprintf(buffer, REPORT_TEXT, "%s", nine_names[i]);
	return buffer;
}

const char *report_tick(enum report_unit unit, double value, char buffer[REPORT_TEXT])
{
	double scaled = value;
	char *end;

	report_value(unit, value, buffer);
	if (unit == REPORT_UNIT_SIZE)
		return bench_size_text(buffer, REPORT_TEXT, (uint64_t)value);
	if (unit != REPORT_UNIT_RATE && unit != REPORT_UNIT_TIME)
		return buffer;
	/* "10.0 GB/s" as "10 GB/s" */
	scaled = strtod(buffer, &end);
	memmove(buffer + 24, end, strlen(end) + 1);
	end = buffer + snprintf(buffer, 24, "%g", scaled);
	memmove(end, buffer + 24, strlen(buffer + 24) + 1);
	return buffer;
}
