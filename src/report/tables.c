/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables below the plots of the page. */
#include "report/goals.h"

#define RANKS_MAX 32 /* of a table; larger matrices are only drawn */

static void begin_table(FILE *file, const char *label)
{
	fprintf(file, "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"%s\"><table>\n", label);
}

static void end_table(FILE *file)
{
	fputs("</table></div>\n", file);
}

static void write_cell(FILE *file, enum report_unit unit, double value)
{
	char text[REPORT_TEXT];

	fprintf(file, "<td class=\"r\">%s</td>", report_value(unit, value, text));
}

static void write_name_cells(FILE *file, const struct report_series *series, const struct report_point *point)
{
	fputs("<tr><th scope=\"row\">", file);
	report_escape(file, series->name, 120);
	fputs("</th>", file);
	write_cell(file, REPORT_UNIT_SIZE, point->size);
}

static void write_rate_row(FILE *file, const struct report_series *series, const struct report_point *point)
{
	write_name_cells(file, series, point);
	write_cell(file, REPORT_UNIT_RATE, point->rate);
	if (point->rate > 0)
		fprintf(file, "<td class=\"r\">%.4g</td>", point->rate / 1.25e8);
	else
		fputs("<td class=\"r\">-</td>", file);
	if (point->operations > 0)
		fprintf(file, "<td class=\"r\">%.4g</td>", point->operations);
	else
		fputs("<td class=\"r\">-</td>", file);
	if (isnan(point->low))
		fputs("<td class=\"r\">-</td>", file);
	else
		fprintf(file, "<td class=\"r\">%.1f%% to %+.1f%%</td>", 100 * (point->low - 1),
			100 * (point->high - 1));
	write_cell(file, REPORT_UNIT_RATE, point->least);
	if (isnan(point->cpu))
		fputs("<td class=\"r\">-</td>", file);
	else
		fprintf(file, "<td class=\"r\">%.0f</td>", point->cpu);
	fputs("<td>", file);
	report_escape(file, point->route ? point->route : "-", 40);
	fprintf(file, "</td><td>%s</td></tr>\n",
		point->verified < 0 ? "not checked"
		: point->verified   ? "correct"
				    : "WRONG");
}

static void write_time_row(FILE *file, const struct report_series *series, const struct report_point *point)
{
	write_name_cells(file, series, point);
	write_cell(file, REPORT_UNIT_TIME, point->shortest);
	for (int i = 0; i < REPORT_PERCENTILES; i++)
		write_cell(file, REPORT_UNIT_TIME, point->latency[i]);
	write_cell(file, REPORT_UNIT_TIME, point->longest);
	fputs("</tr>\n", file);
}

static void write_phase_row(FILE *file, const struct report *report, const struct report_series *series,
			    const struct report_point *point)
{
	double total = report_phase_total(report, point);

	if (!(total > 0))
		return;
	write_name_cells(file, series, point);
	for (size_t i = 0; i < report->phase_count; i++)
		write_cell(file, REPORT_UNIT_TIME, point->phases[i]);
	write_cell(file, REPORT_UNIT_TIME, total);
	fputs("</tr>\n", file);
}

static void write_sample_row(FILE *file, const struct report_series *series, const struct report_point *point)
{
	double least = INFINITY, most = 0, sum = 0;

	if (!point->sample_count)
		return;
	for (size_t i = 0; i < point->sample_count; i++) {
		least = fmin(least, point->samples[i]);
		most = fmax(most, point->samples[i]);
		sum += point->samples[i];
	}
	write_name_cells(file, series, point);
	fprintf(file, "<td class=\"r\">%zu</td>", point->sample_count);
	write_cell(file, REPORT_UNIT_SECONDS, point->interval);
	write_cell(file, REPORT_UNIT_RATE, least);
	write_cell(file, REPORT_UNIT_RATE, sum / (double)point->sample_count);
	write_cell(file, REPORT_UNIT_RATE, most);
	fputs("</tr>\n", file);
}

static void write_table_head(FILE *file, const struct report *report, enum report_plot plot)
{
	fputs("<thead><tr><th scope=\"col\">Series</th><th scope=\"col\" class=\"r\">Size</th>", file);
	if (report_plot_shows_rates(plot))
		fputs("<th class=\"r\" scope=\"col\">Bandwidth</th><th class=\"r\" scope=\"col\">Gbit/s</th><th "
		      "class=\"r\" "
		      "scope=\"col\">Operations/s</th><th class=\"r\" scope=\"col\">Range of runs</th><th class=\"r\" "
		      "scope=\"col\">Lowest sample</th><th class=\"r\" scope=\"col\">CPU %</th><th "
		      "scope=\"col\">Route</th><th "
		      "scope=\"col\">Content</th>",
		      file);
	else if (plot == REPORT_PLOT_PHASES) {
		for (size_t i = 0; i < report->phase_count; i++) {
			fputs("<th class=\"r\" scope=\"col\">", file);
			report_escape(file, report->phases[i], 24);
			fputs("</th>", file);
		}
		fputs("<th class=\"r\" scope=\"col\">total</th>", file);
	} else if (plot == REPORT_PLOT_SAMPLES) {
		fputs("<th class=\"r\" scope=\"col\">samples</th><th class=\"r\" scope=\"col\">interval</th><th "
		      "class=\"r\" "
		      "scope=\"col\">lowest</th><th class=\"r\" scope=\"col\">mean</th><th class=\"r\" "
		      "scope=\"col\">highest</th>",
		      file);
	} else {
		fputs("<th class=\"r\" scope=\"col\">min</th><th class=\"r\" scope=\"col\">p50</th><th class=\"r\" "
		      "scope=\"col\">p90</th><th class=\"r\" scope=\"col\">p95</th><th class=\"r\" "
		      "scope=\"col\">p99</th><th "
		      "class=\"r\" scope=\"col\">p99.9</th><th class=\"r\" scope=\"col\">p99.99</th><th class=\"r\" "
		      "scope=\"col\">max</th>",
		      file);
	}
	fputs("</tr></thead>\n", file);
}

static void write_table_rows(FILE *file, const struct report *report, enum report_plot plot)
{
	for (size_t i = 0; i < report->series_count; i++) {
		const struct report_series *series = &report->series[i];

		for (size_t j = 0; j < series->count; j++) {
			const struct report_point *point = &series->points[j];

			if (!report_plot_includes(report, plot, series))
				continue;
			if (report_plot_shows_rates(plot) && !series->latency)
				write_rate_row(file, series, point);
			else if (plot == REPORT_PLOT_PHASES)
				write_phase_row(file, report, series, point);
			else if (plot == REPORT_PLOT_SAMPLES)
				write_sample_row(file, series, point);
			else if (!report_plot_shows_rates(plot) && point->latency[REPORT_P50] > 0)
				write_time_row(file, series, point);
		}
	}
}

static void write_matrix_table(FILE *file, const struct report_matrix *matrix, bool latency)
{
	const double *values = latency ? matrix->latency : matrix->rate;

	if (!values)
		return;
	if (matrix->ranks > RANKS_MAX) {
		fprintf(file, "<p>%zu ranks: see the file for the values.</p>\n", matrix->ranks);
		return;
	}
	begin_table(file, "all pairs");
	fputs("<thead><tr><th scope=\"col\">from \\ to</th>", file);
	for (size_t i = 0; i < matrix->ranks; i++)
		fprintf(file, "<th class=\"r\" scope=\"col\">%zu</th>", i);
	fputs("</tr></thead>\n", file);
	for (size_t i = 0; i < matrix->ranks; i++) {
		fprintf(file, "<tr><th scope=\"row\">%zu ", i);
		report_escape(file, matrix->labels[i] ? matrix->labels[i] : "", 40);
		fputs("</th>", file);
		for (size_t j = 0; j < matrix->ranks; j++)
			write_cell(file, latency ? REPORT_UNIT_TIME : REPORT_UNIT_RATE,
				   i == j ? NAN : values[i * matrix->ranks + j]);
		fputs("</tr>\n", file);
	}
	end_table(file);
}

void report_write_tables(const struct report *report, enum report_plot plot, FILE *file)
{
	if (plot == REPORT_PLOT_MATRIX || plot == REPORT_PLOT_MATRIX_LATENCY) {
		for (size_t i = 0; i < report->document_count; i++)
			write_matrix_table(file, &report->documents[i].matrix, plot == REPORT_PLOT_MATRIX_LATENCY);
		return;
	}
	if (plot == REPORT_PLOT_GOALS) {
		report_write_goal_tables(report, file);
		return;
	}
	begin_table(file, report_plot_name(plot));
	write_table_head(file, report, plot);
	write_table_rows(file, report, plot);
	end_table(file);
}
