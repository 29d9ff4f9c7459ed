/* SPDX-License-Identifier: BSD-2-Clause */
/* Text output of a workflow: tables and explanations. */
#include "bench/workflow/workflow.h"

#include <string.h>
#include <unistd.h>

#include "bench/common/numbers.h"
#include "cmd/common/output.h"

enum {
	RATE_SIZE,
	RATE_METHOD,
	RATE_PATH,
	RATE_FRAMES,
	RATE_GBYTES,
	RATE_GBITS,
	RATE_SPREAD,
	RATE_RATIO,
	RATE_ROUTE,
	RATE_CONTENT,
	RATE_COLUMNS
};

static const struct cli_column rate_columns[RATE_COLUMNS] = {
	[RATE_SIZE] = { "SIZE", SCOLS_FL_RIGHT },
	[RATE_METHOD] = { "METHOD", 0 },
	[RATE_PATH] = { "PATH OF FRAMES", 0 },
	[RATE_FRAMES] = { "frames/s", SCOLS_FL_RIGHT },
	[RATE_GBYTES] = { "GB/s", SCOLS_FL_RIGHT },
	[RATE_GBITS] = { "Gbit/s", SCOLS_FL_RIGHT },
	[RATE_SPREAD] = { "SPREAD", SCOLS_FL_RIGHT },
	[RATE_RATIO] = { "RATIO TO A", SCOLS_FL_RIGHT },
	[RATE_ROUTE] = { "ROUTE", 0 },
	[RATE_CONTENT] = { "CONTENT", 0 },
};

enum { TIME_SIZE, TIME_METHOD, TIME_PHASES, TIME_COLUMNS = TIME_PHASES + WORKFLOW_PHASES + 2 };

const struct workflow_result *workflow_result_of(const struct workflow_report *report, const char *method,
						 uint64_t size)
{
	for (uint32_t i = 0; i < report->count; i++)
		if (report->results[i].size == size && !strcmp(report->results[i].method->name, method))
			return &report->results[i];
	return NULL;
}

double workflow_phase_us(const struct workflow_result *result, enum workflow_phase phase)
{
	return (double)stats_percentile(&result->phases[phase], 50) / 1000;
}

/* Prints about four significant digits, and never an exponent. */
static void set_four_digits(struct libscols_line *line, size_t column, double value)
{
	char text[32];
	int decimals = value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0;

	snprintf(text, sizeof(text), "%.*f", decimals, value);
	cli_table_set(line, column, text);
}

static void set_microseconds(struct libscols_line *line, size_t column, double microseconds)
{
	char text[32];

	snprintf(text, sizeof(text), microseconds < 100 ? "%.1f" : "%.0f", microseconds);
	cli_table_set(line, column, microseconds > 0 ? text : "-");
}

static void set_method_ratio(struct libscols_line *line, const struct workflow_report *report,
			     const struct workflow_result *result)
{
	const struct workflow_result *over = workflow_result_of(report, "A", result->size);
	struct workflow_ratio ratio;
	char text[48];

	if (!over || over == result)
		return;
	ratio = workflow_ratio_of(result, over);
	snprintf(text, sizeof(text), "%.2f (%.2f-%.2f)", ratio.ratio, ratio.low, ratio.high);
	cli_table_set(line, RATE_RATIO, text);
}

static void print_method_rates(const struct workflow_report *report)
{
	struct libscols_table *table = cli_table(rate_columns, RATE_COLUMNS);
	char text[48];

	for (uint32_t i = 0; i < report->count; i++) {
		const struct workflow_result *result = &report->results[i];
		double bytes = result->median * (double)result->size;
		struct libscols_line *line;

		if (!result->rounds)
			continue;
		line = cli_table_line(table);
		cli_table_set(line, RATE_SIZE, bench_size_text(text, sizeof(text), result->size));
		cli_table_set(line, RATE_METHOD, result->method->name);
		cli_table_set(line, RATE_PATH, result->method->title);
		set_four_digits(line, RATE_FRAMES, result->median);
		set_four_digits(line, RATE_GBYTES, bytes / 1e9);
		set_four_digits(line, RATE_GBITS, bytes / 1.25e8);
		snprintf(text, sizeof(text), "-%.0f +%.0f %%", 100 * (1 - result->low / result->median),
			 100 * (result->high / result->median - 1));
		cli_table_set(line, RATE_SPREAD, text);
		set_method_ratio(line, report, result);
		cli_table_set(line, RATE_ROUTE, cli_route_name(result->totals.route));
		cli_table_set(line, RATE_CONTENT, result->verified ? "correct" : "WRONG");
	}
	cli_table_print(table);
}

static void print_method_phases(const struct workflow_options *options, const struct workflow_report *report)
{
	struct cli_column columns[TIME_COLUMNS] = { { "SIZE", SCOLS_FL_RIGHT }, { "METHOD", 0 } };
	struct libscols_table *table;
	unsigned skipped = options->proxy ? WORKFLOW_INSPECT : WORKFLOW_SERVE, at = TIME_PHASES;
	char text[32];

	for (unsigned phase = 0; phase < WORKFLOW_PHASES; phase++)
		if (phase != skipped)
			columns[at++] =
				(struct cli_column){ workflow_phase_name((enum workflow_phase)phase), SCOLS_FL_RIGHT };
	columns[at++] = (struct cli_column){ "p99", SCOLS_FL_RIGHT };
	columns[at++] = (struct cli_column){ "interval", SCOLS_FL_RIGHT };
	columns[at++] = (struct cli_column){ "CPU %", SCOLS_FL_RIGHT };
	table = cli_table(columns, at);
	for (uint32_t i = 0; i < report->count; i++) {
		const struct workflow_result *result = &report->results[i];
		struct libscols_line *line;

		if (!result->rounds)
			continue;
		line = cli_table_line(table);
		cli_table_set(line, TIME_SIZE, bench_size_text(text, sizeof(text), result->size));
		cli_table_set(line, TIME_METHOD, result->method->name);
		at = TIME_PHASES;
		for (unsigned phase = 0; phase < WORKFLOW_PHASES; phase++)
			if (phase != skipped)
				set_microseconds(line, at++, workflow_phase_us(result, (enum workflow_phase)phase));
		set_microseconds(line, at++, (double)stats_percentile(&result->phases[WORKFLOW_WHOLE], 99) / 1000);
		set_microseconds(line, at++, result->median > 0 ? 1e6 / result->median : 0);
		snprintf(text, sizeof(text), "%.0f", 100 * (double)result->cpu / (double)CLI_MAX(result->elapsed, 1u));
		cli_table_set(line, at, text);
	}
	cli_table_print(table);
}

static void print_workflow_header(const struct workflow_options *options, const struct workflow_report *report)
{
	const struct pl_peer_info *source = &report->source;

	printf("frames from %s%s over %s, processed by %s", source->address,
	       source->same_host ? " (the same host)" : "", source->fabric,
	       strcmp(report->compute->name, "simulated") ? report->compute->name : "a simulated device");
	if (options->proxy)
		printf(", results read by %s%s", report->sink.address,
		       report->sink.same_host ? " (the same host)" : "");
	printf("; median, minimum and maximum of %u round%s\n\n", options->rounds, options->rounds == 1 ? "" : "s");
}

void workflow_render_text(const struct workflow_options *options, const struct workflow_report *report)
{
	uint64_t last = 0;
	bool any = false;
	char text[32];

	for (uint32_t i = 0; i < report->count; i++)
		any = any || report->results[i].rounds;
	for (uint32_t i = 0; i < report->count; i++)
		if (report->results[i].skipped)
			printf("method %s with frames of %s was skipped: %s\n", report->results[i].method->name,
			       bench_size_text(text, sizeof(text), report->results[i].size),
			       report->results[i].reason.message);
	if (!any)
		return;
	if (!options->common.quiet)
		print_workflow_header(options, report);
	print_method_rates(report);
	if (options->common.quiet)
		return;
	puts("\nmicroseconds per frame: medians of the phases and of the whole, 99th percentile of the whole, interval "
	     "between frames");
	print_method_phases(options, report);
	for (uint32_t i = 0; i < report->count; i++) {
		if (report->results[i].size == last)
			continue;
		last = report->results[i].size;
		printf("\n%s:\n", bench_size_text(text, sizeof(text), last));
		workflow_explain(report, last);
	}
	if (!strcmp(report->compute->name, "simulated"))
		printf("\nSimulated: no GPU was used.  The device's memory is host memory; its copies and kernels run "
		       "on the "
		       "%ld\nprocessors of this machine, as this program does.  These figures say nothing about "
		       "GPUDirect, "
		       "and\noverlapping gains only what idle processors can do.\n",
		       sysconf(_SC_NPROCESSORS_ONLN));
}
