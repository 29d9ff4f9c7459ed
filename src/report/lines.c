/* SPDX-License-Identifier: BSD-2-Clause */
/* Points and axes of line plots. */
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

#include "bench/common/numbers.h"
#include "bench/perf/operation.h"
#include "cmd/common/units.h"

#define LINES_MAX 16
/* Least number of ticks at powers of ten, below which an axis gets even steps; their approximate number. */
#define FEW_TICKS 3
#define EVEN_TICKS 5

/* Position of each percentile on its axis: each nine is a step. */
static const double nines[REPORT_PERCENTILES] = { 0.301, 1, 1.301, 2, 3, 4 };
static const char *const nine_names[REPORT_PERCENTILES] = { "p50", "p90", "p95", "p99", "p99.9", "p99.99" };

/* True if no series is a latency measurement; times under load are shown instead. */
static bool has_no_latency_series(const struct report *report)
{
	for (size_t i = 0; i < report->series_count; i++)
		if (report->series[i].latency)
			return false;
	return true;
}

bool report_plot_shows_rates(enum report_plot plot)
{
	return plot == REPORT_PLOT_BANDWIDTH || plot == REPORT_PLOT_FRAMES;
}

static bool is_method_series(const struct report_series *series)
{
	return series->properties[REPORT_METHOD][0];
}

/* True if a plot includes the series.  Methods of a workflow have a plot of their own next to message bandwidths. */
bool report_plot_includes(const struct report *report, enum report_plot plot, const struct report_series *series)
{
	bool others = false;

	if (!report_plot_shows_rates(plot))
		return true;
	for (size_t i = 0; i < report->series_count; i++)
		others = others || (!is_method_series(&report->series[i]) && !report->series[i].latency);
	return (plot == REPORT_PLOT_FRAMES) == (others && is_method_series(series));
}

static bool is_message_series(const struct report_series *series)
{
	const struct bench_operation *operation = bench_operation_by_name(series->properties[REPORT_OPERATION]);

	return !operation || !bench_operation_sequential(operation);
}

/* True for registrations and connections next to message latencies, which they must not be compared with. */
static bool excluded_by_messages(const struct report *report, const struct report_series *series)
{
	bool messages = false;

	for (size_t i = 0; i < report->series_count; i++)
		messages = messages || (report->series[i].latency && is_message_series(&report->series[i]));
	return messages && !is_message_series(series);
}

static bool is_series_shown(const struct report *report, const struct report_series *series, enum report_plot plot)
{
	bool bandwidth = report_plot_shows_rates(plot) || plot == REPORT_PLOT_SAMPLES;
	/* The rate of a latency run is only the inverse of its latency. */
	bool fits = bandwidth ? !series->latency : series->latency || has_no_latency_series(report);

	fits = fits && report_plot_includes(report, plot, series) &&
	       (bandwidth || !excluded_by_messages(report, series));
	for (size_t i = 0; i < series->count && fits; i++) {
		const struct report_point *point = &series->points[i];

		if (report_plot_shows_rates(plot) ? point->rate > 0
		    : plot == REPORT_PLOT_SAMPLES ? point->sample_count > 0
						  : point->latency[REPORT_P50] > 0)
			return true;
	}
	return false;
}

static void add_line_point(struct report_line *line, double x, double y, double high)
{
	line->x[line->count] = x;
	line->y[line->count] = y;
	line->high[line->count++] = high;
}

static void fill_line_sizes(struct report_line *line, const struct report_series *series, enum report_plot plot)
{
	for (size_t i = 0; i < series->count; i++) {
		const struct report_point *point = &series->points[i];
		double y = report_plot_shows_rates(plot) ? point->rate : point->latency[REPORT_P50];

		if (y > 0)
			add_line_point(line, point->size, y,
				       report_plot_shows_rates(plot) ? NAN : point->latency[REPORT_P99]);
	}
}

/* Returns the point for plots of a single size: the smallest size for latencies, the largest for rates. */
static const struct report_point *single_size_point(const struct report_series *series, enum report_plot plot)
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

static void fill_line_percentiles(struct report_line *line, const struct report_point *point)
{
	for (int i = 0; i < REPORT_PERCENTILES; i++)
		if (point->latency[i] > 0)
			add_line_point(line, nines[i], point->latency[i], NAN);
}

static void fill_line_samples(struct report_line *line, const struct report_point *point)
{
	for (size_t i = 0; i < point->sample_count; i++)
		add_line_point(line, ((double)i + 0.5) * point->interval, point->samples[i], NAN);
}

static int add_report_line(struct report_lines *lines, const struct report_series *series, enum report_plot plot)
{
	const struct report_point *point = single_size_point(series, plot);
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
		fill_line_percentiles(line, point);
	else if (plot == REPORT_PLOT_SAMPLES)
		fill_line_samples(line, point);
	else
		fill_line_sizes(line, series, plot);
	return 0;
}

/* Computes the range of all values. */
static void line_value_range(const struct report_lines *lines, bool vertical, double *low, double *high)
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

static void make_line_axes(struct report_lines *lines, enum report_plot plot)
{
	double low, high;

	line_value_range(lines, false, &low, &high);
	lines->x = (struct report_axis){ low, high, false, REPORT_UNIT_SECONDS };
	if (plot == REPORT_PLOT_SAMPLES) {
		lines->x.low = 0;
	} else if (plot == REPORT_PLOT_PERCENTILES) {
		lines->x.unit = REPORT_UNIT_PERCENTILE;
	} else {
		lines->x = (struct report_axis){ log10(low), log10(high), true, REPORT_UNIT_SIZE };
	}
	lines->bars = lines->x.unit == REPORT_UNIT_SIZE && !(low < high);
	line_value_range(lines, true, &low, &high);
	if (plot == REPORT_PLOT_SAMPLES)
		lines->y = (struct report_axis){ 0, high > 0 ? high * 1.05 : 1, false, REPORT_UNIT_RATE };
	else
		/* A margin keeps points off the frame. */
		lines->y = (struct report_axis){ log10(low) - 0.08, log10(high) + 0.08, true,
						 report_plot_shows_rates(plot) ? REPORT_UNIT_RATE : REPORT_UNIT_TIME };
	/* Bars begin at 0, so that their lengths are comparable. */
	if (lines->bars)
		lines->y = (struct report_axis){ 0, high, false, lines->y.unit };
}

static void name_point_sizes(const struct report_lines *lines, enum report_plot plot, char text[REPORT_TEXT])
{
	double size = NAN;

	text[0] = '\0';
	for (size_t i = 0; i < lines->count; i++) {
		const struct report_point *point = single_size_point(lines->lines[i].series, plot);

		if (i && point && point->size != size) {
			snprintf(text, REPORT_TEXT, "%s size of each line",
				 plot == REPORT_PLOT_SAMPLES ? "largest" : "smallest");
			return;
		}
		size = point ? point->size : NAN;
	}
	report_value(REPORT_UNIT_SIZE, size, text);
}

static void make_line_texts(struct report_lines *lines, const struct report *report, enum report_plot plot)
{
	bool loaded = !report_plot_shows_rates(plot) && plot != REPORT_PLOT_SAMPLES && has_no_latency_series(report);
	char size[REPORT_TEXT], low[REPORT_TEXT], high[REPORT_TEXT];
	double least, most;

	if (plot == REPORT_PLOT_PERCENTILES || plot == REPORT_PLOT_SAMPLES)
		name_point_sizes(lines, plot, size);
	else
		report_value(REPORT_UNIT_SIZE, lines->lines[0].x[0], size);
	if (plot == REPORT_PLOT_BANDWIDTH)
		snprintf(lines->title, sizeof(lines->title),
			 lines->bars ? "Bandwidth, messages of %s" : "Bandwidth over size", size);
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
		snprintf(lines->title, sizeof(lines->title), lines->bars ? "%s, messages of %s" : "%s over size",
			 loaded ? "Time under load" : "Latency", size);
	line_value_range(lines, true, &least, &most);
	snprintf(lines->text, sizeof(lines->text), "%zu line%s, from %s to %s.%s", lines->count,
		 lines->count == 1 ? "" : "s", report_value(lines->y.unit, least, low),
		 report_value(lines->y.unit, most, high),
		 plot == REPORT_PLOT_LATENCY ? " Lines are medians; shaded bands reach up to the 99th percentile."
					     : "");
}

int report_lines_make(struct report_lines *lines, const struct report *report, enum report_plot plot)
{
	*lines = (struct report_lines){ .lines = calloc(LINES_MAX, sizeof(*lines->lines)) };
	if (!lines->lines)
		return -ENOMEM;
	for (size_t i = 0; i < report->series_count; i++) {
		if (!is_series_shown(report, &report->series[i], plot))
			continue;
		if (lines->count == LINES_MAX)
			lines->left_out++;
		else if (add_report_line(lines, &report->series[i], plot) < 0)
			return -ENOMEM;
	}
	if (!lines->count)
		return 0;
	make_line_axes(lines, plot);
	make_line_texts(lines, report, plot);
	return 0;
}

void report_lines_free(struct report_lines *lines)
{
	for (size_t i = 0; i < lines->count; i++)
		free(lines->lines[i].x);
	free(lines->lines);
}

/* -- axes ---------------------------------------------------------------------------------------- */

double report_axis_position(const struct report_axis *axis, double value)
{
	double at = axis->log ? log10(value) : value;

	return axis->high > axis->low ? fmin(fmax((at - axis->low) / (axis->high - axis->low), 0), 1) : 0.5;
}

/* Places ticks at powers of two, with as large steps as needed. */
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
	static const double divisions[][3] = { { 1, 2, 5 }, { 1, 3, 0 }, { 1, 0, 0 } };
	size_t count = 0;

	/* Chooses the finest division of decades that fits, or else decades that are several apart. */
	for (size_t choice = 0; choice < CLI_ARRAY_SIZE(divisions) + 12; choice++) {
		const double *division = divisions[CLI_MIN(choice, CLI_ARRAY_SIZE(divisions) - 1)];
		double step = choice < CLI_ARRAY_SIZE(divisions) ? 1 : (double)(choice - CLI_ARRAY_SIZE(divisions) + 2);
		bool fits = true;

		count = 0;
		for (double decade = floor(axis->low); decade <= axis->high && fits; decade += step)
			for (size_t i = 0; i < 3 && division[i] > 0 && fits; i++) {
				double at = decade + log10(division[i]);

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

/* Places ticks at multiples of 1, 2 or 5 times a power of ten. */
static size_t linear_ticks(const struct report_axis *axis, double *values, size_t most)
{
	static const double divisions[] = { 1, 2, 5, 10 };
	double least = (axis->high - axis->low) / (double)most, decade = pow(10, floor(log10(least))), step = decade;
	size_t count = 0;

	for (size_t i = 0; i < CLI_ARRAY_SIZE(divisions) && step < least; i++)
		step = decade * divisions[i];
	for (double at = ceil(axis->low / step - 1e-9); at * step <= axis->high && count < most; at++)
		values[count++] = at * step + 0.0; /* adding 0.0 turns -0 into 0 */
	return count;
}

/* Places ticks in linear steps on a logarithmic axis of less than a decade. */
static size_t narrow_log_ticks(const struct report_axis *axis, double *values, size_t most)
{
	const struct report_axis even = { .low = pow(10, axis->low), .high = pow(10, axis->high) };

	return linear_ticks(&even, values, CLI_MIN(most, (size_t)EVEN_TICKS));
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
		return linear_ticks(axis, values, most);
	count = decade_ticks(axis, values, most);
	return count < FEW_TICKS && count < most ? narrow_log_ticks(axis, values, most) : count;
}

/* Formats a size: "64 KiB". */
static void format_report_size(double value, char buffer[REPORT_TEXT])
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
		format_report_size(value, buffer);
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
	/* Shortens "10.0 GB/s" to "10 GB/s". */
	scaled = strtod(buffer, &end);
	memmove(buffer + 24, end, strlen(end) + 1);
	end = buffer + snprintf(buffer, 24, "%g", scaled);
	memmove(end, buffer + 24, strlen(buffer + 24) + 1);
	return buffer;
}
