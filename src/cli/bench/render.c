/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/bench/bench.h"
#include "cli/output.h"
#include "cli/units.h"

static const struct cli_column columns[] = {
	{ "SIZE", SCOLS_FL_RIGHT }, { "GB/s", SCOLS_FL_RIGHT }, { "Gbit/s", SCOLS_FL_RIGHT }, { "Mop/s", SCOLS_FL_RIGHT },
	{ "p50 us", SCOLS_FL_RIGHT }, { "p99 us", SCOLS_FL_RIGHT }, { "p99.9 us", SCOLS_FL_RIGHT },
	{ "max us", SCOLS_FL_RIGHT }, { "CPU %", SCOLS_FL_RIGHT }, { "VERIFIED", 0 },
};

const char *bench_operation_name(enum bench_operation operation)
{
	static const char *const names[BENCH_OPERATIONS] = {
		[BENCH_WRITE] = "write", [BENCH_READ] = "read", [BENCH_SEND] = "send",
		[BENCH_FETCH_ADD] = "fetch-add", [BENCH_COMPARE_SWAP] = "compare-swap",
	};

	return names[operation];
}

static void set_number(struct libscols_line *line, size_t column, const char *format, double value)
{
	char text[CLI_UNIT_MAX];

	/* The formats are the callers' constants. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(text, sizeof(text), format, value);
#pragma GCC diagnostic pop
	cli_table_set(line, column, text);
}

static const char *size_text(char buffer[CLI_UNIT_MAX], uint64_t size)
{
	static const char *const units[] = { "", "K", "M", "G" };
	unsigned unit = 0;

	while (unit < 3 && size >= 1024 && size % 1024 == 0) {
		size /= 1024;
		unit++;
	}
	snprintf(buffer, CLI_UNIT_MAX, "%llu%s", (unsigned long long)size, units[unit]);
	return buffer;
}

void bench_render_table(const struct bench_options *options, const struct bench_result *results, unsigned count)
{
	struct libscols_table *table = cli_table(columns, CLI_ARRAY_SIZE(columns));
	char text[CLI_UNIT_MAX];

	if (!table || count == 0)
		return;
	if (!options->common.quiet)
		printf("%s, %s%s, depth %u, %u stream%s, %s progress\nroute %s: %s\n\n",
		       bench_operation_name(options->operation), options->latency ? "latency" : "bandwidth",
		       options->both_ways ? " both ways" : "", results[0].depth, results[count - 1].streams,
		       results[count - 1].streams == 1 ? "" : "s", options->manual ? "manual" : "threaded",
		       cli_route_name(results[0].route), results[0].reason);
	for (unsigned i = 0; i < count; i++) {
		const struct bench_result *result = &results[i];
		struct libscols_line *line = cli_table_line(table);

		cli_table_set(line, 0, size_text(text, result->size));
		set_number(line, 1, "%.3f", result->bytes_per_second / 1e9);
		set_number(line, 2, "%.2f", result->bytes_per_second / 1.25e8);
		set_number(line, 3, "%.3f", result->operations_per_second / 1e6);
		set_number(line, 4, "%.2f", (double)result->p50 / 1e3);
		set_number(line, 5, "%.2f", (double)result->p99 / 1e3);
		set_number(line, 6, "%.2f", (double)result->p999 / 1e3);
		set_number(line, 7, "%.2f", (double)result->max / 1e3);
		set_number(line, 8, "%.0f", result->cpu);
		cli_table_set(line, 9, result->verified ? "yes" : "NO");
	}
	cli_table_print(table);
}

static struct json_object *number(double value)
{
	return json_object_new_double(value);
}

static struct json_object *result_json(const struct bench_options *options, const struct bench_result *result)
{
	struct json_object *object = json_object_new_object(), *latency = json_object_new_object();

	cli_json_add(latency, "p50", number((double)result->p50 / 1e3));
	cli_json_add(latency, "p99", number((double)result->p99 / 1e3));
	cli_json_add(latency, "p999", number((double)result->p999 / 1e3));
	cli_json_add(latency, "max", number((double)result->max / 1e3));
	cli_json_add(object, "operation", cli_json_text(bench_operation_name(result->operation)));
	cli_json_add(object, "mode", cli_json_text(options->latency ? "latency" : "bandwidth"));
	cli_json_add(object, "size", json_object_new_uint64(result->size));
	cli_json_add(object, "fabric", cli_json_text(result->fabric));
	cli_json_add(object, "route", cli_json_text(cli_route_name(result->route)));
	cli_json_add(object, "reason", cli_json_text(result->reason));
	cli_json_add(object, "streams", json_object_new_uint64(result->streams));
	cli_json_add(object, "depth", json_object_new_uint64(result->depth));
	cli_json_add(object, "vector", json_object_new_uint64(options->vector));
	cli_json_add(object, "both_ways", json_object_new_boolean(options->both_ways));
	cli_json_add(object, "operations", json_object_new_uint64(result->count));
	cli_json_add(object, "seconds", number((double)result->nanoseconds / 1e9));
	cli_json_add(object, "bytes_per_second", number(result->bytes_per_second));
	cli_json_add(object, "operations_per_second", number(result->operations_per_second));
	cli_json_add(object, "latency_us", latency);
	cli_json_add(object, "cpu_percent", number(result->cpu));
	cli_json_add(object, "peer_cpu_percent", number(result->peer_cpu));
	cli_json_add(object, "verified", json_object_new_boolean(result->verified));
	return object;
}

void bench_render_json(const struct bench_options *options, const struct bench_result *results, unsigned count)
{
	struct json_object *object = json_object_new_object(), *array = json_object_new_array();

	for (unsigned i = 0; i < count; i++)
		json_object_array_add(array, result_json(options, &results[i]));
	cli_json_add(object, "software", cli_json_text(pl_version()));
	cli_json_add(object, "results", array);
	cli_json_print(object, true);
}
