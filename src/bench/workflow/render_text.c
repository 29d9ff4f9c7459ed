/* SPDX-License-Identifier: BSD-2-Clause */
/* Results for people. */
#include <string.h>
#include <unistd.h>

#include "cmd/common/output.h"
#include "bench/workflow/workflow.h"

enum {
	RATE_SIZE,
	RATE_ARM,
	RATE_WHAT,
	RATE_FRAMES,
	RATE_GBYTES,
	RATE_GBITS,
	RATE_SPREAD,
	RATE_OVER,
	RATE_ROUTE,
	RATE_CONTENT,
	RATE_COLUMNS
};

static const struct cli_column rate_columns[RATE_COLUMNS] = {
	[RATE_SIZE] = { "SIZE", SCOLS_FL_RIGHT },
	[RATE_ARM] = { "ARM", 0 },
	[RATE_WHAT] = { "FRAMES GO", 0 },
	[RATE_FRAMES] = { "frames/s", SCOLS_FL_RIGHT },
	[RATE_GBYTES] = { "GB/s", SCOLS_FL_RIGHT },
	[RATE_GBITS] = { "Gbit/s", SCOLS_FL_RIGHT },
	[RATE_SPREAD] = { "SPREAD", SCOLS_FL_RIGHT },
	[RATE_OVER] = { "TIMES A", SCOLS_FL_RIGHT },
	[RATE_ROUTE] = { "ROUTE", 0 },
	[RATE_CONTENT] = { "CONTENT", 0 },
};

enum { TIME_SIZE, TIME_ARM, TIME_PHASES, TIME_COLUMNS = TIME_PHASES + FLOW_PHASES + 2 };

const struct flow_result *flow_result_of(const struct flow_report *report, const char *arm, uint64_t size)
{
	for (uint32_t i = 0; i < report->count; i++)
		if (report->results[i].size == size && !strcmp(report->results[i].arm->name, arm))
			return &report->results[i];
	return NULL;
}

double flow_phase_us(const struct flow_result *result, enum flow_phase phase)
{
	return (double)stats_percentile(&result->phases[phase], 50) / 1000;
}

static const char *size_text(char buffer[32], uint64_t bytes)
{
	static const char units[] = "KMG";
	char unit[2] = "";

	for (size_t i = 0; i < 3 && bytes % 1024 == 0; i++) {
		bytes /= 1024;
		unit[0] = units[i];
	}
	snprintf(buffer, 32, "%llu%s", (unsigned long long)bytes, unit);
	return buffer;
}

/* Four digits that count, and never an exponent. */
static void set_number(struct libscols_line *line, size_t column, double value)
{
	char text[32];
	int decimals = value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0;

	snprintf(text, sizeof(text), "%.*f", decimals, value);
	cli_table_set(line, column, text);
}

static void set_time(struct libscols_line *line, size_t column, double microseconds)
{
	char text[32];

	snprintf(text, sizeof(text), microseconds < 100 ? "%.1f" : "%.0f", microseconds);
	cli_table_set(line, column, microseconds > 0 ? text : "-");
}

static void set_ratio(struct libscols_line *line, const struct flow_report *report, const struct flow_result *result)
{
	const struct flow_result *over = flow_result_of(report, "A", result->size);
	struct flow_ratio ratio;
	char text[48];

	if (!over || over == result)
		return;
	ratio = flow_ratio_of(result, over);
	snprintf(text, sizeof(text), "%.2f (%.2f-%.2f)", ratio.ratio, ratio.low, ratio.high);
	cli_table_set(line, RATE_OVER, text);
}

static void print_rates(const struct flow_report *report)
{
	struct libscols_table *table = cli_table(rate_columns, RATE_COLUMNS);
	char text[48];

	for (uint32_t i = 0; i < report->count; i++) {
		const struct flow_result *result = &report->results[i];
		double bytes = result->median * (double)result->size;
		struct libscols_line *line;

		if (!result->rounds)
			continue;
		line = cli_table_line(table);
		cli_table_set(line, RATE_SIZE, size_text(text, result->size));
		cli_table_set(line, RATE_ARM, result->arm->name);
		cli_table_set(line, RATE_WHAT, result->arm->title);
		set_number(line, RATE_FRAMES, result->median);
		set_number(line, RATE_GBYTES, bytes / 1e9);
		set_number(line, RATE_GBITS, bytes / 1.25e8);
		snprintf(text, sizeof(text), "-%.0f +%.0f %%", 100 * (1 - result->low / result->median),
			 100 * (result->high / result->median - 1));
		cli_table_set(line, RATE_SPREAD, text);
		set_ratio(line, report, result);
		cli_table_set(line, RATE_ROUTE, cli_route_name(result->tally.route));
		cli_table_set(line, RATE_CONTENT, result->verified ? "right" : "WRONG");
	}
	cli_table_print(table);
}

static void print_phases(const struct flow_options *options, const struct flow_report *report)
{
	struct cli_column columns[TIME_COLUMNS] = { { "SIZE", SCOLS_FL_RIGHT }, { "ARM", 0 } };
	struct libscols_table *table;
	unsigned left_out = options->proxy ? FLOW_INSPECT : FLOW_SERVE, at = TIME_PHASES;
	char text[32];

	for (unsigned phase = 0; phase < FLOW_PHASES; phase++)
		if (phase != left_out)
			columns[at++] = (struct cli_column){ flow_phase_name((enum flow_phase)phase), SCOLS_FL_RIGHT };
	columns[at++] = (struct cli_column){ "p99", SCOLS_FL_RIGHT };
	columns[at++] = (struct cli_column){ "each", SCOLS_FL_RIGHT };
	columns[at++] = (struct cli_column){ "CPU %", SCOLS_FL_RIGHT };
	table = cli_table(columns, at);
	for (uint32_t i = 0; i < report->count; i++) {
		const struct flow_result *result = &report->results[i];
		struct libscols_line *line;

		if (!result->rounds)
			continue;
		line = cli_table_line(table);
		cli_table_set(line, TIME_SIZE, size_text(text, result->size));
		cli_table_set(line, TIME_ARM, result->arm->name);
		at = TIME_PHASES;
		for (unsigned phase = 0; phase < FLOW_PHASES; phase++)
			if (phase != left_out)
				set_time(line, at++, flow_phase_us(result, (enum flow_phase)phase));
		set_time(line, at++, (double)stats_percentile(&result->phases[FLOW_WHOLE], 99) / 1000);
		set_time(line, at++, result->median > 0 ? 1e6 / result->median : 0);
		snprintf(text, sizeof(text), "%.0f", 100 * (double)result->cpu / (double)CLI_MAX(result->elapsed, 1u));
		cli_table_set(line, at, text);
	}
	cli_table_print(table);
}

static void print_header(const struct flow_options *options, const struct flow_report *report)
{
	const struct pl_peer_info *source = &report->source;

	printf("frames from %s%s over %s, computed on by %s%s", source->address,
	       source->same_host ? " (the same host)" : "", source->fabric,
	       strcmp(report->compute->name, "simulated") ? "" : "a device that is ", report->compute->name);
	if (options->proxy)
		printf(", results read by %s%s", report->sink.address,
		       report->sink.same_host ? " (the same host)" : "");
	printf("; median of %u round%s, and the worst and the best\n\n", options->rounds,
	       options->rounds == 1 ? "" : "s");
}

void flow_render_text(const struct flow_options *options, const struct flow_report *report)
{
	uint64_t last = 0;
	bool any = false;
	char text[32];

	for (uint32_t i = 0; i < report->count; i++)
		any = any || report->results[i].rounds;
	for (uint32_t i = 0; i < report->count; i++)
		if (report->results[i].left_out)
			printf("%s of %s is left out: %s\n", report->results[i].arm->name,
			       size_text(text, report->results[i].size), report->results[i].reason.message);
	if (!any)
		return;
	if (!options->common.quiet)
		print_header(options, report);
	print_rates(report);
	if (options->common.quiet)
		return;
	puts("\nmicroseconds of a frame: median of each phase, of the whole, its 99th percentile, and from one to the "
	     "next");
	print_phases(options, report);
	for (uint32_t i = 0; i < report->count; i++) {
		if (report->results[i].size == last)
			continue;
		last = report->results[i].size;
		printf("\n%s:\n", size_text(text, last));
		flow_explain(report, last);
	}
	if (!strcmp(report->compute->name, "simulated"))
		printf("\nSimulated: no GPU took part.  Its memory is the host's, its copies and its kernel are work "
		       "of this "
		       "machine's %ld\nprocessors, which it shares with this program and with all that runs here; so "
		       "these "
		       "figures say nothing of\nGPUDirect, and overlapping gains only what processors are free for.\n",
		       sysconf(_SC_NPROCESSORS_ONLN));
}
