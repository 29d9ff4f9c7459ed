/* SPDX-License-Identifier: BSD-2-Clause */
/* Results for people. */
#include "cli/bench/bench.h"
#include "cli/output.h"

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

const char *bench_size_text(char *buffer, size_t size, uint64_t bytes)
{
	static const char units[] = "KMG";
	char unit[2] = "";

	for (size_t i = 0; i < 3 && bytes && bytes % 1024 == 0; i++) {
		bytes /= 1024;
		unit[0] = units[i];
	}
	snprintf(buffer, size, "%llu%s", (unsigned long long)bytes, unit);
	return buffer;
}

/* Four digits that count, and never an exponent. */
static void set_number(struct libscols_line *line, size_t column, double value)
{
	char text[32];
	int decimals = value < 1 ? 4 : value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0;

	snprintf(text, sizeof(text), "%.*f", decimals, value);
	cli_table_set(line, column, text);
}

static void set_time(struct libscols_line *line, size_t column, uint64_t nanoseconds)
{
	char text[32];

	snprintf(text, sizeof(text), nanoseconds < 100000 ? "%.2f" : "%.0f", (double)nanoseconds / 1000);
	cli_table_set(line, column, text);
}

static void print_header(const struct bench_options *options, const struct bench_report *report)
{
	const struct bench_row *row = &report->rows[report->count - 1];
	const struct bench_plan *plan = &row->plan;

	printf("%s %s over %s", bench_op_name(plan->op), plan->latency ? "latency" : "bandwidth",
	       row->sample.fabric ? row->sample.fabric : report->info.fabric);
	if (row->sample.kind)
		printf(", %s", cli_route_name(row->sample.route));
	if (row->sample.reason && row->sample.reason[0])
		printf(" (%s)", row->sample.reason);
	printf("\nwith %s%s%s, ", report->info.address, report->info.same_host ? ", the same host" : "",
	       report->info.encrypted       ? ", encrypted"
	       : report->info.authenticated ? ", authenticated"
					    : "");
	if (bench_plan_single(plan))
		printf("one at a time, ");
	else if (bench_plan_pingpong(plan))
		printf("half of the time there and back, ");
	else
		printf("%u under way%s, ", plan->depth, plan->both_ways ? " each way" : "");
	if (plan->peers > 1)
		printf("%u connections, ", plan->peers);
	if (plan->vector > 1)
		printf("%u in each operation, ", plan->vector);
	printf("%u stream%s, %s progress", row->streams, row->streams == 1 ? "" : "s",
	       options->manual ? "manual" : "thread");
	if (options->repeat > 1)
		printf(", median of %u", options->repeat);
	putchar('\n');
}

enum {
	SINGLE_SIZE,
	SINGLE_P50,
	SINGLE_P99,
	SINGLE_MAX,
	SINGLE_CACHED,
	SINGLE_OPERATION,
	SINGLES,
};

static const struct cli_column single_columns[SINGLES] = {
	[SINGLE_SIZE] = { "SIZE", SCOLS_FL_RIGHT },     [SINGLE_P50] = { "p50 us", SCOLS_FL_RIGHT },
	[SINGLE_P99] = { "p99 us", SCOLS_FL_RIGHT },    [SINGLE_MAX] = { "max us", SCOLS_FL_RIGHT },
	[SINGLE_CACHED] = { "cached", SCOLS_FL_RIGHT }, [SINGLE_OPERATION] = { "write alone", SCOLS_FL_RIGHT },
};

/* Rates say nothing of what is done one at a time. */
static void render_single(const struct bench_report *report)
{
	bool registers = report->rows[0].plan.op == BENCH_REGISTER;
	struct libscols_table *table = cli_table(single_columns, registers ? SINGLES : SINGLE_CACHED);
	char text[32];

	for (uint32_t i = 0; i < report->count; i++) {
		const struct bench_row *row = &report->rows[i];
		struct libscols_line *line = cli_table_line(table);

		cli_table_set(line, SINGLE_SIZE, registers ? bench_size_text(text, sizeof(text), row->plan.size) : "-");
		set_time(line, SINGLE_P50, row->latency.p50);
		set_time(line, SINGLE_P99, row->latency.p99);
		set_time(line, SINGLE_MAX, row->latency.maximum);
		if (!registers)
			continue;
		set_time(line, SINGLE_CACHED, (uint64_t)row->cached);
		set_time(line, SINGLE_OPERATION, (uint64_t)row->operation);
	}
	cli_table_print(table);
}

/* The rate that holds all the time, as far as intervals of that length tell. */
static void print_samples(const struct bench_options *options, const struct bench_report *report)
{
	for (uint32_t i = 0; i < report->count; i++) {
		const struct bench_row *row = &report->rows[i];
		double least = 0, most = 0;
		char text[32];

		for (uint32_t j = 0; j < row->sample_count; j++) {
			least = j == 0 || row->samples[j] < least ? row->samples[j] : least;
			most = CLI_MAX(most, row->samples[j]);
		}
		printf("%s: ", bench_size_text(text, sizeof(text), row->plan.size));
		if (row->sample_count)
			printf("%.4g to %.4g GB/s in %u intervals of %g s\n", least / 1e9, most / 1e9,
			       row->sample_count, (double)options->sample_interval / 1e9);
		else
			printf("shorter than an interval of %g s\n", (double)options->sample_interval / 1e9);
	}
}

void bench_render_table(const struct bench_options *options, const struct bench_report *report)
{
	struct libscols_table *table = cli_table(columns, options->plan.validate ? COLUMNS : COLUMN_VERIFIED);
	char text[32];

	if (!options->common.quiet)
		print_header(options, report);
	if (bench_plan_single(&options->plan)) {
		render_single(report);
		scols_unref_table(table);
		return;
	}
	for (uint32_t i = 0; i < report->count; i++) {
		const struct bench_row *row = &report->rows[i];
		struct libscols_line *line = cli_table_line(table);

		cli_table_set(line, COLUMN_SIZE, bench_size_text(text, sizeof(text), row->plan.size));
		set_number(line, COLUMN_GBYTES, row->bytes_per_second / 1e9);
		set_number(line, COLUMN_GBITS, row->bytes_per_second / 1.25e8);
		set_number(line, COLUMN_MOPS, row->operations_per_second / 1e6);
		set_time(line, COLUMN_P50, row->latency.p50);
		set_time(line, COLUMN_P99, row->latency.p99);
		set_time(line, COLUMN_P999, row->latency.p999);
		set_time(line, COLUMN_MAX, row->latency.maximum);
		snprintf(text, sizeof(text), "%.0f", row->cpu);
		cli_table_set(line, COLUMN_CPU, text);
		snprintf(text, sizeof(text), "%.0f", row->server_cpu);
		cli_table_set(line, COLUMN_SERVER_CPU, text);
		if (options->plan.validate)
			cli_table_set(line, COLUMN_VERIFIED, row->verified ? "right" : "WRONG");
	}
	cli_table_print(table);
	if (options->sample_interval)
		print_samples(options, report);
}
