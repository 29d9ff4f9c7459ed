/* SPDX-License-Identifier: BSD-2-Clause */
/* Text output: tables. */
#include <math.h>
#include <string.h>

#include "bench/common/numbers.h"
#include "bench/perf/results.h"
#include "cmd/common/output.h"
#include "cmd/common/units.h"

enum {
	COLUMN_SIZE,
	COLUMN_GBYTES,
	COLUMN_GBITS,
	COLUMN_MOPS,
	COLUMN_P50,
	COLUMN_P99,
	COLUMN_P999,
	COLUMN_MAX,
	COLUMN_CPU,
	COLUMN_SERVER_CPU,
	COLUMN_VERIFIED,
	COLUMNS,
};

static const struct cli_column columns[COLUMNS] = {
	[COLUMN_SIZE] = { "SIZE", SCOLS_FL_RIGHT },     [COLUMN_GBYTES] = { "GB/s", SCOLS_FL_RIGHT },
	[COLUMN_GBITS] = { "Gbit/s", SCOLS_FL_RIGHT },  [COLUMN_MOPS] = { "Mops/s", SCOLS_FL_RIGHT },
	[COLUMN_P50] = { "p50 us", SCOLS_FL_RIGHT },    [COLUMN_P99] = { "p99 us", SCOLS_FL_RIGHT },
	[COLUMN_P999] = { "p99.9 us", SCOLS_FL_RIGHT }, [COLUMN_MAX] = { "max us", SCOLS_FL_RIGHT },
	[COLUMN_CPU] = { "CPU %", SCOLS_FL_RIGHT },     [COLUMN_SERVER_CPU] = { "server %", SCOLS_FL_RIGHT },
	[COLUMN_VERIFIED] = { "CONTENT", 0 },
};

/* Prints four significant digits, and never an exponent. */
static void set_bench_number(struct libscols_line *line, size_t column, double value)
{
	char text[32];
	int decimals = value < 1 ? 4 : value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0;

	/* --rate and slow operations give tiny numbers: three significant digits. */
	if (value > 0 && value < 0.01)
		decimals = (int)CLI_MIN(2 - floor(log10(value)), 12);
	snprintf(text, sizeof(text), "%.*f", decimals, value);
	cli_table_set(line, column, text);
}

static void set_nanoseconds(struct libscols_line *line, size_t column, uint64_t nanoseconds)
{
	char text[32];

	snprintf(text, sizeof(text), nanoseconds < 100000 ? "%.2f" : "%.0f", (double)nanoseconds / 1000);
	cli_table_set(line, column, text);
}

static void print_working_set(const struct bench_plan *plan)
{
	char text[32];

	if (plan->working_set)
		printf("a working set of %s, ", bench_size_text(text, sizeof(text), plan->working_set));
}

/* Prints the depth, which by default depends on the size and may differ from row to row. */
static void print_depth(const struct bench_report *report)
{
	uint32_t least = UINT32_MAX, most = 0;

	for (uint32_t i = 0; i < report->count; i++) {
		least = CLI_MIN(least, report->rows[i].plan.depth);
		most = CLI_MAX(most, report->rows[i].plan.depth);
	}
	printf("%u", most);
	if (least < most)
		printf(" to %u", least);
	printf(" in flight%s, ", report->rows[0].plan.both_ways ? " in each direction"
				 : report->server_count > 1     ? " per server"
								: "");
}

static void print_bench_header(const struct bench_options *options, const struct bench_report *report)
{
	const struct bench_row *row = &report->rows[report->count - 1];
	const struct bench_plan *plan = &row->plan;
	struct wrap_line line = { 0 };

	wrap_line_add(&line, "%s %s over %s", plan->operation->name,
		      plan->operation->scattered ? "requests"
		      : plan->latency            ? "latency"
						 : "bandwidth",
		      row->sample.fabric ? row->sample.fabric : report->servers[0].info.fabric);
	if (row->sample.kind)
		wrap_line_add(&line, ", %s", cli_route_name(row->sample.route));
	if (row->sample.reason && row->sample.reason[0])
		wrap_line_add(&line, " (%s)", row->sample.reason);
	wrap_line_print(&line, stdout);
	printf("with %s", report->servers[0].info.address);
	for (uint32_t i = 1; i < report->server_count; i++)
		printf(", %s", report->servers[i].info.address);
	printf("%s%s, ", report->servers[0].info.same_host ? ", the same host" : "",
	       report->servers[0].info.encrypted   ? ", encrypted"
	       : report->servers[0].info.same_host ? ""
						   : ", in the clear");
	if (bench_operation_sequential(plan->operation))
		printf("one after the other, ");
	else if (bench_plan_pingpong(plan))
		printf("half the round-trip time, ");
	else if (plan->latency && plan->operation->pingpong)
		printf("until the completion, ");
	else
		print_depth(report);
	print_working_set(plan);
	if (plan->connections > 1)
		printf("%u connections%s, ", plan->connections, report->server_count > 1 ? " each" : "");
	if (plan->post_list > 1)
		printf("posted in lists of %u, ", plan->post_list);
	if (plan->operation->scattered)
		printf("%u scattered blocks each%s, ", plan->vector, plan->prepared ? ", prepared" : "");
	else if (plan->vector > 1)
		printf("%u messages per operation, ", plan->vector);
	printf("%u lane%s, %s progress", row->lanes, row->lanes == 1 ? "" : "s", options->manual ? "manual" : "thread");
	if (options->repeat > 1)
		printf(", median of %u", options->repeat);
	putchar('\n');
}

enum {
	SEQUENTIAL_SIZE,
	SEQUENTIAL_P50,
	SEQUENTIAL_P99,
	SEQUENTIAL_MAX,
	SEQUENTIAL_CACHED,
	SEQUENTIAL_OPERATION,
	SEQUENTIAL_COLUMNS,
};

static const struct cli_column sequential_columns[SEQUENTIAL_COLUMNS] = {
	[SEQUENTIAL_SIZE] = { "SIZE", SCOLS_FL_RIGHT },     [SEQUENTIAL_P50] = { "p50 us", SCOLS_FL_RIGHT },
	[SEQUENTIAL_P99] = { "p99 us", SCOLS_FL_RIGHT },    [SEQUENTIAL_MAX] = { "max us", SCOLS_FL_RIGHT },
	[SEQUENTIAL_CACHED] = { "cached", SCOLS_FL_RIGHT }, [SEQUENTIAL_OPERATION] = { "write alone", SCOLS_FL_RIGHT },
};

/* Prints times only: rates are meaningless for sequential operations. */
static void render_sequential_table(const struct bench_report *report)
{
	bool registers = report->rows[0].plan.operation->registers;
	struct libscols_table *table =
		cli_table(sequential_columns, registers ? SEQUENTIAL_COLUMNS : SEQUENTIAL_CACHED);
	char text[32];

	for (uint32_t i = 0; i < report->count; i++) {
		const struct bench_row *row = &report->rows[i];
		struct libscols_line *line = cli_table_line(table);

		cli_table_set(line, SEQUENTIAL_SIZE,
			      registers ? bench_size_text(text, sizeof(text), row->plan.size) : "-");
		set_nanoseconds(line, SEQUENTIAL_P50, row->latency.p50);
		set_nanoseconds(line, SEQUENTIAL_P99, row->latency.p99);
		set_nanoseconds(line, SEQUENTIAL_MAX, row->latency.maximum);
		if (!registers)
			continue;
		set_nanoseconds(line, SEQUENTIAL_CACHED, (uint64_t)row->cached);
		set_nanoseconds(line, SEQUENTIAL_OPERATION, (uint64_t)row->operation);
	}
	cli_table_print(table);
}

enum {
	REQUEST_SIZE,
	REQUEST_GBYTES,
	REQUEST_RATE,
	REQUEST_P50,
	REQUEST_P99,
	REQUEST_CPU,
	REQUEST_VERIFIED,
	REQUEST_COLUMNS,
};

static const struct cli_column request_columns[REQUEST_COLUMNS] = {
	[REQUEST_SIZE] = { "BLOCK", SCOLS_FL_RIGHT },
	[REQUEST_GBYTES] = { "GB/s", SCOLS_FL_RIGHT },
	[REQUEST_RATE] = { "requests/s", SCOLS_FL_RIGHT },
	[REQUEST_P50] = { "p50 us", SCOLS_FL_RIGHT },
	[REQUEST_P99] = { "p99 us", SCOLS_FL_RIGHT },
	[REQUEST_CPU] = { "CPU s/GB", SCOLS_FL_RIGHT },
	[REQUEST_VERIFIED] = { "CONTENT", 0 },
};

/* Prints the table of `peerlane bench kv`. */
static void render_request_table(const struct bench_options *options, const struct bench_report *report)
{
	struct libscols_table *table =
		cli_table(request_columns, options->plan.validate ? REQUEST_COLUMNS : REQUEST_VERIFIED);
	char text[32];

	for (uint32_t i = 0; i < report->count; i++) {
		const struct bench_row *row = &report->rows[i];
		struct libscols_line *line = cli_table_line(table);

		cli_table_set(line, REQUEST_SIZE, bench_size_text(text, sizeof(text), row->plan.size));
		set_bench_number(line, REQUEST_GBYTES, row->bytes_per_second / 1e9);
		set_bench_number(line, REQUEST_RATE, bench_row_requests(row));
		set_nanoseconds(line, REQUEST_P50, row->latency.p50);
		set_nanoseconds(line, REQUEST_P99, row->latency.p99);
		set_bench_number(line, REQUEST_CPU, bench_row_cpu_seconds(row));
		if (row->plan.validate)
			cli_table_set(line, REQUEST_VERIFIED, row->verified ? "correct" : "WRONG");
	}
	cli_table_print(table);
}

/* Prints the lowest and the highest rate of the intervals. */
static void print_sample_range(const struct bench_options *options, const struct bench_report *report)
{
	for (uint32_t i = 0; i < report->count; i++) {
		const struct bench_row *row = &report->rows[i];
		double least = 0, most = 0;
		char text[32], low[CLI_UNIT_MAX], high[CLI_UNIT_MAX];

		for (uint32_t j = 0; j < row->sample_count; j++) {
			least = j == 0 || row->samples[j] < least ? row->samples[j] : least;
			most = CLI_MAX(most, row->samples[j]);
		}
		printf("%s: ", bench_size_text(text, sizeof(text), row->plan.size));
		if (row->sample_count)
			printf("%s/s to %s/s in %u intervals of %g s\n", cli_format_bytes(low, (uint64_t)least),
			       cli_format_bytes(high, (uint64_t)most), row->sample_count,
			       (double)options->sample_interval / 1e9);
		else
			printf("run shorter than an interval of %g s\n", (double)options->sample_interval / 1e9);
	}
}

static void set_rate_columns(struct libscols_line *line, double bytes, double operations,
			     const struct bench_latency *latency)
{
	set_bench_number(line, COLUMN_GBYTES, bytes / 1e9);
	set_bench_number(line, COLUMN_GBITS, bytes / 1.25e8);
	set_bench_number(line, COLUMN_MOPS, operations / 1e6);
	set_nanoseconds(line, COLUMN_P50, latency->p50);
	set_nanoseconds(line, COLUMN_P99, latency->p99);
	set_nanoseconds(line, COLUMN_P999, latency->p999);
	set_nanoseconds(line, COLUMN_MAX, latency->maximum);
}

static void set_percentage(struct libscols_line *line, size_t column, double percent)
{
	char text[32];

	snprintf(text, sizeof(text), "%.0f", percent);
	cli_table_set(line, column, text);
}

/* Adds a row for all servers together, and one for each of several. */
static void add_bench_row(struct libscols_table *table, const struct bench_report *report, const struct bench_row *row)
{
	struct libscols_line *line = cli_table_line(table);
	char text[32];

	cli_table_set(line, COLUMN_SIZE, bench_size_text(text, sizeof(text), row->plan.size));
	set_rate_columns(line, row->bytes_per_second, row->operations_per_second, &row->latency);
	set_percentage(line, COLUMN_CPU, row->cpu);
	set_percentage(line, COLUMN_SERVER_CPU, row->server_cpu);
	if (row->plan.validate)
		cli_table_set(line, COLUMN_VERIFIED, row->verified ? "correct" : "WRONG");
	for (uint32_t i = 0; row->shares && i < report->server_count; i++) {
		const struct bench_share *share = &row->shares[i];

		line = cli_table_line(table);
		cli_table_set(line, COLUMN_SIZE, report->servers[i].info.address);
		set_rate_columns(line, share->bytes_per_second, share->operations_per_second, &share->latency);
		set_percentage(line, COLUMN_SERVER_CPU, share->server_cpu);
	}
}

/* Prints cycles and energy of this endpoint. */
static void print_bench_cost(const struct bench_report *report)
{
	const struct bench_cost *cost = &report->cost;
	char text[32];

	for (uint32_t i = 0; i < report->count; i++) {
		const struct bench_row *row = &report->rows[i];
		double operations = row->operations_per_second * (double)row->elapsed / 1e9;

		if (operations <= 0 || (!row->spent.has_cycles && !row->spent.has_joules))
			continue;
		printf("%s:", bench_size_text(text, sizeof(text), row->plan.size));
		if (row->spent.has_cycles)
			printf(" %.4g cycles per operation, %.3g per byte%s", row->spent.cycles / operations,
			       row->spent.cycles / (operations * (double)row->plan.size),
			       cost->user_only ? ", without kernel cycles" : "");
		if (row->spent.has_joules)
			printf("%s %.4g J used by this machine", row->spent.has_cycles ? ";" : "", row->spent.joules);
		putchar('\n');
	}
}

static void print_unknown(const char *value, const char *reason)
{
	struct wrap_line line = { 0 };

	if (!reason[0])
		return;
	wrap_line_add(&line, "%s UNKNOWN: %s", value, reason);
	wrap_line_print(&line, stdout);
}

/* Prints missing values before the table, as scripts read the table from the end of the output. */
static void print_unreadable_counters(const struct bench_cost *cost, const struct card_watch *cards)
{
	print_unknown("cycles", cost->no_cycles);
	print_unknown("joules", cost->no_joules);
	print_unknown("card counters", cards->unreadable);
}

static void print_card_troubles(const struct bench_report *report)
{
	const struct card_counters *results[BENCH_SIZES_MAX];

	for (uint32_t i = 0; i < report->count; i++)
		results[i] = report->rows[i].counters;
	card_troubles_print(stdout, results, report->count);
}

static void render_operation_table(const struct bench_options *options, const struct bench_report *report)
{
	struct cli_column shown[COLUMNS];
	struct libscols_table *table;

	memcpy(shown, columns, sizeof(shown));
	if (report->server_count > 1)
		shown[COLUMN_SIZE].name = "SIZE, SERVER";
	table = cli_table(shown, options->plan.validate ? COLUMNS : COLUMN_VERIFIED);
	for (uint32_t i = 0; i < report->count; i++)
		add_bench_row(table, report, &report->rows[i]);
	cli_table_print(table);
}

void bench_render_table(const struct bench_options *options, const struct bench_report *report)
{
	bool sequential = bench_operation_sequential(options->plan.operation);

	if (!options->common.quiet) {
		print_bench_header(options, report);
		print_unreadable_counters(&report->cost, &report->cards);
	}
	if (sequential)
		render_sequential_table(report);
	else if (options->plan.operation->scattered)
		render_request_table(options, report);
	else
		render_operation_table(options, report);
	if (options->sample_interval)
		print_sample_range(options, report);
	if (options->common.quiet)
		return;
	if (!sequential)
		print_bench_cost(report);
	print_card_troubles(report);
}
