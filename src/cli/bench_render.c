/* SPDX-License-Identifier: BSD-2-Clause */
/* Results for people and for programs. */
#include "cli/bench.h"
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

	printf("%s %s over %s, %s", bench_op_name(plan->op), plan->latency ? "latency" : "bandwidth",
	       row->sample.fabric, cli_route_name(row->sample.route));
	if (row->sample.reason && row->sample.reason[0])
		printf(" (%s)", row->sample.reason);
	printf("\nwith %s%s%s, ", report->info.address, report->info.same_host ? ", the same host" : "",
	       report->info.encrypted       ? ", encrypted"
	       : report->info.authenticated ? ", authenticated"
					    : "");
	if (bench_plan_pingpong(plan))
		printf("half of the time there and back, ");
	else
		printf("%u under way%s, ", plan->depth, plan->both_ways ? " each way" : "");
	if (plan->vector > 1)
		printf("%u in each operation, ", plan->vector);
	printf("%u stream%s, %s progress", row->streams, row->streams == 1 ? "" : "s",
	       options->manual ? "manual" : "thread");
	if (options->repeat > 1)
		printf(", median of %u", options->repeat);
	putchar('\n');
}

void bench_render_table(const struct bench_options *options, const struct bench_report *report)
{
	struct libscols_table *table = cli_table(columns, options->plan.validate ? COLUMNS : COLUMN_VERIFIED);
	char text[32];

	if (!options->common.quiet)
		print_header(options, report);
	for (uint32_t i = 0; i < report->count; i++) {
		const struct bench_row *row = &report->rows[i];
		struct libscols_line *line = cli_table_line(table);

		cli_table_set(line, COLUMN_SIZE, bench_size_text(text, sizeof(text), row->plan.size));
		set_number(line, COLUMN_GBYTES, row->bytes_per_second / 1e9);
		set_number(line, COLUMN_GBITS, row->bytes_per_second / 1.25e8);
		set_number(line, COLUMN_MOPS, row->operations_per_second / 1e6);
		set_time(line, COLUMN_P50, row->p50);
		set_time(line, COLUMN_P99, row->p99);
		set_time(line, COLUMN_P999, row->p999);
		set_time(line, COLUMN_MAX, row->maximum);
		snprintf(text, sizeof(text), "%.0f", row->cpu);
		cli_table_set(line, COLUMN_CPU, text);
		snprintf(text, sizeof(text), "%.0f", row->server_cpu);
		cli_table_set(line, COLUMN_SERVER_CPU, text);
		if (options->plan.validate)
			cli_table_set(line, COLUMN_VERIFIED, row->verified ? "right" : "WRONG");
	}
	cli_table_print(table);
}

/* With a fixed number of decimals: programs read it, people look at it. */
static struct json_object *json_number(double value, int decimals)
{
	char text[48];

	snprintf(text, sizeof(text), "%.*f", decimals, value);
	return json_object_new_double_s(value, text);
}

static struct json_object *json_latency(const struct bench_row *row)
{
	struct json_object *latency = json_object_new_object();

	cli_json_add(latency, "p50", json_number((double)row->p50 / 1000, 3));
	cli_json_add(latency, "p99", json_number((double)row->p99 / 1000, 3));
	cli_json_add(latency, "p999", json_number((double)row->p999 / 1000, 3));
	cli_json_add(latency, "max", json_number((double)row->maximum / 1000, 3));
	return latency;
}

static struct json_object *json_row(const struct bench_row *row)
{
	struct json_object *object = json_object_new_object();
	const struct bench_plan *plan = &row->plan;

	cli_json_add(object, "operation", cli_json_text(bench_op_name(plan->op)));
	cli_json_add(object, "size", json_object_new_uint64(plan->size));
	cli_json_add(object, "fabric", cli_json_text(row->sample.fabric));
	cli_json_add(object, "route", cli_json_text(cli_route_name(row->sample.route)));
	cli_json_add(object, "reason", cli_json_text(row->sample.reason));
	cli_json_add(object, "streams", json_object_new_int64(row->streams));
	cli_json_add(object, "depth", json_object_new_int64(plan->latency ? 1 : plan->depth));
	cli_json_add(object, "vector", json_object_new_int64(plan->vector));
	cli_json_add(object, "operations", json_object_new_uint64(row->operations));
	cli_json_add(object, "seconds", json_number((double)row->elapsed / 1e9, 6));
	cli_json_add(object, "bytes_per_second", json_number(row->bytes_per_second, 0));
	cli_json_add(object, "bytes_per_second_out", json_number(row->bytes_out, 0));
	cli_json_add(object, "bytes_per_second_in", json_number(row->bytes_in, 0));
	cli_json_add(object, "operations_per_second", json_number(row->operations_per_second, 0));
	cli_json_add(object, "latency_us", json_latency(row));
	cli_json_add(object, "cpu_percent", json_number(row->cpu, 1));
	cli_json_add(object, "server_cpu_percent", json_number(row->server_cpu, 1));
	cli_json_add(object, "verified", plan->validate ? json_object_new_boolean(row->verified) : NULL);
	return object;
}

void bench_render_json(const struct bench_options *options, const struct bench_report *report)
{
	struct json_object *object = json_object_new_object(), *results = json_object_new_array();

	for (uint32_t i = 0; i < report->count; i++)
		json_object_array_add(results, json_row(&report->rows[i]));
	cli_json_add(object, "version", cli_json_text(pl_version()));
	cli_json_add(object, "address", cli_json_text(report->info.address));
	cli_json_add(object, "same_host", json_object_new_boolean(report->info.same_host));
	cli_json_add(object, "authenticated", json_object_new_boolean(report->info.authenticated));
	cli_json_add(object, "encrypted", json_object_new_boolean(report->info.encrypted));
	cli_json_add(object, "mode", cli_json_text(options->plan.latency ? "latency" : "bandwidth"));
	cli_json_add(object, "both_ways", json_object_new_boolean(options->plan.both_ways));
	cli_json_add(object, "progress", cli_json_text(options->manual ? "manual" : "thread"));
	cli_json_add(object, "repeat", json_object_new_int64(options->repeat));
	cli_json_add(object, "results", results);
	if (report->failed)
		cli_json_add(object, "error", cli_json_error(&report->error));
	cli_json_print(object, true);
}
