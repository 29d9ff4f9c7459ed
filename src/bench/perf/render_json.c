/* SPDX-License-Identifier: BSD-2-Clause */
/* JSON output: one document for all sizes. */
#include <math.h>

#include "bench/common/numbers.h"
#include "bench/perf/results.h"
#include "cmd/common/output.h"

static struct json_object *json_microseconds(double nanoseconds)
{
	return bench_json_number(nanoseconds / 1000, 3);
}

static struct json_object *json_latency_percentiles(const struct bench_latency *from)
{
	struct json_object *latency = json_object_new_object();

	cli_json_add(latency, "min", json_microseconds((double)from->minimum));
	cli_json_add(latency, "p50", json_microseconds((double)from->p50));
	cli_json_add(latency, "p90", json_microseconds((double)from->p90));
	cli_json_add(latency, "p95", json_microseconds((double)from->p95));
	cli_json_add(latency, "p99", json_microseconds((double)from->p99));
	cli_json_add(latency, "p999", json_microseconds((double)from->p999));
	cli_json_add(latency, "p9999", json_microseconds((double)from->p9999));
	cli_json_add(latency, "max", json_microseconds((double)from->maximum));
	cli_json_add(latency, "mean", json_microseconds(from->mean));
	cli_json_add(latency, "stddev", json_microseconds(from->deviation));
	return latency;
}

static struct json_object *json_number_list(const double *values, uint32_t count, int decimals)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < count; i++)
		json_object_array_add(list, bench_json_number(values[i], decimals));
	return list;
}

static void add_sample_members(struct json_object *object, const struct bench_options *options,
			       const struct bench_row *row)
{
	struct json_object *samples = json_object_new_object();
	double least = row->sample_count ? row->samples[0] : 0;

	for (uint32_t i = 1; i < row->sample_count; i++)
		least = CLI_MIN(least, row->samples[i]);
	cli_json_add(samples, "interval_seconds", bench_json_number((double)options->sample_interval / 1e9, 6));
	cli_json_add(samples, "bytes_per_second", json_number_list(row->samples, row->sample_count, 0));
	cli_json_add(object, "samples", samples);
	cli_json_add(object, "minimum_bytes_per_second", row->sample_count ? bench_json_number(least, 0) : NULL);
}

/* Bytes of both directions count, as this processor handles both. */
static void add_cost_members(struct json_object *object, const struct bench_row *row)
{
	double operations = row->operations_per_second * (double)row->elapsed / 1e9;
	double bytes = operations * (double)row->plan.size;
	bool known = row->spent.has_cycles && operations > 0;

	cli_json_add(object, "cycles_per_operation",
		     known ? bench_json_number(row->spent.cycles / operations, 1) : NULL);
	cli_json_add(object, "cycles_per_byte", known ? bench_json_number(row->spent.cycles / bytes, 4) : NULL);
	cli_json_add(object, "joules", row->spent.has_joules ? bench_json_number(row->spent.joules, 3) : NULL);
}

static void add_sequential_members(struct json_object *object, const struct bench_row *row)
{
	struct json_object *registration;

	if (row->plan.operation->connects)
		cli_json_add(object, "connect_us", json_microseconds((double)row->latency.p50));
	if (!row->plan.operation->registers)
		return;
	registration = json_object_new_object();
	cli_json_add(registration, "cold", json_microseconds((double)row->latency.p50));
	cli_json_add(registration, "cached", json_microseconds(row->cached));
	cli_json_add(registration, "operation", json_microseconds(row->operation));
	cli_json_add(object, "registration_us", registration);
}

/* Members of `peerlane bench kv`, whose operations are blocks. */
static void add_request_members(struct json_object *object, const struct bench_row *row)
{
	if (!row->plan.operation->scattered)
		return;
	cli_json_add(object, "prepared", json_object_new_boolean(row->plan.prepared));
	cli_json_add(object, "requests", json_object_new_uint64(row->operations / row->plan.vector));
	cli_json_add(object, "requests_per_second", bench_json_number(bench_row_requests(row), 1));
	cli_json_add(object, "cpu_seconds_per_gigabyte", bench_json_number(bench_row_cpu_seconds(row), 4));
}

static void add_plan_members(struct json_object *object, const struct bench_report *report, const struct bench_row *row)
{
	const struct bench_plan *plan = &row->plan;
	struct bench_layout layout;

	bench_plan_layout(plan, &layout);
	cli_json_add(object, "tool", cli_json_text("peerlane"));
	cli_json_add(object, "operation", cli_json_text(plan->operation->name));
	cli_json_add(object, "size", json_object_new_uint64(plan->size));
	cli_json_add(object, "fabric",
		     cli_json_text(row->sample.fabric ? row->sample.fabric : report->servers[0].info.fabric));
	cli_json_add(object, "route", cli_json_text(cli_route_name(row->sample.route)));
	cli_json_add(object, "reason", cli_json_text(row->sample.reason));
	cli_json_add(object, "memory", cli_json_text(report->memory));
	cli_json_add(object, "peer_memory", cli_json_text(report->servers[0].memory));
	cli_json_add(object, "lanes", json_object_new_int64(row->lanes));
	cli_json_add(object, "depth", json_object_new_int64(plan->latency ? 1 : plan->depth));
	cli_json_add(object, "vector", json_object_new_int64(plan->vector));
	cli_json_add(object, "peers", json_object_new_int64(plan->connections));
	cli_json_add(object, "post_list", json_object_new_int64(plan->post_list));
	cli_json_add(object, "working_set", json_object_new_uint64(layout.window));
}

static void add_share_members(struct json_object *object, const struct bench_report *report,
			      const struct bench_row *row)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < report->server_count; i++) {
		const struct bench_share *share = &row->shares[i];
		struct json_object *one = json_object_new_object();

		cli_json_add(one, "address", cli_json_text(report->servers[i].info.address));
		cli_json_add(one, "operations", json_object_new_uint64(share->operations));
		cli_json_add(one, "seconds", bench_json_number((double)share->elapsed / 1e9, 9));
		cli_json_add(one, "bytes_per_second", bench_json_number(share->bytes_per_second, 0));
		cli_json_add(one, "bytes_per_second_out", bench_json_number(share->bytes_out, 0));
		cli_json_add(one, "bytes_per_second_in", bench_json_number(share->bytes_in, 0));
		cli_json_add(one, "operations_per_second", bench_json_number(share->operations_per_second, 0));
		cli_json_add(one, "latency_us", json_latency_percentiles(&share->latency));
		cli_json_add(one, "server_cpu_percent", bench_json_number(share->server_cpu, 1));
		json_object_array_add(list, one);
	}
	cli_json_add(object, "servers", list);
}

static struct json_object *json_bench_row(const struct bench_options *options, const struct bench_report *report,
					  const struct bench_row *row)
{
	struct json_object *object = json_object_new_object();

	add_plan_members(object, report, row);
	cli_json_add(object, "operations", json_object_new_uint64(row->operations));
	cli_json_add(object, "seconds", bench_json_number((double)row->elapsed / 1e9, 9));
	cli_json_add(object, "bytes_per_second", bench_json_number(row->bytes_per_second, 0));
	cli_json_add(object, "bytes_per_second_out", bench_json_number(row->bytes_out, 0));
	cli_json_add(object, "bytes_per_second_in", bench_json_number(row->bytes_in, 0));
	cli_json_add(object, "operations_per_second", bench_json_number(row->operations_per_second, 0));
	cli_json_add(object, "runs", json_number_list(row->runs, row->run_count, row->plan.latency ? 3 : 0));
	cli_json_add(object, "latency_us", json_latency_percentiles(&row->latency));
	if (options->sample_interval)
		add_sample_members(object, options, row);
	cli_json_add(object, "cpu_percent", bench_json_number(row->cpu, 1));
	cli_json_add(object, "server_cpu_percent", bench_json_number(row->server_cpu, 1));
	cli_json_add(object, "processors_busy",
		     isnan(bench_row_polling_share(options, row))
			     ? NULL
			     : json_object_new_boolean(bench_row_starved(options, row)));
	add_cost_members(object, row);
	add_sequential_members(object, row);
	add_request_members(object, row);
	if (row->shares)
		add_share_members(object, report, row);
	cli_json_add(object, "card_counters", card_counters_json(row->counters));
	cli_json_add(object, "min_rate_met",
		     options->min_rate ? json_object_new_boolean(bench_row_meets_rate(options, row)) : NULL);
	cli_json_add(object, "verified", row->plan.validate ? json_object_new_boolean(row->verified) : NULL);
	return object;
}

/* Adds reasons for missing cycles or joules; "cycles" also if kernel cycles are not counted. */
static void add_unreadable_members(struct json_object *object, const struct bench_cost *cost,
				   const struct card_watch *cards)
{
	struct json_object *unknown = json_object_new_object();

	if (cost->no_cycles[0])
		cli_json_add(unknown, "cycles", cli_json_text(cost->no_cycles));
	else if (cost->user_only)
		cli_json_add(unknown, "cycles",
			     cli_json_text("kernel cycles are not included: this user may not count them"));
	if (cost->no_joules[0])
		cli_json_add(unknown, "joules", cli_json_text(cost->no_joules));
	if (cards->unreadable[0])
		cli_json_add(unknown, "card_counters", cli_json_text(cards->unreadable));
	cli_json_add(object, "not_readable", unknown);
}

static void add_method_members(struct json_object *object, const struct bench_options *options,
			       const struct bench_report *report)
{
	double rate = options->settings.rate ? (double)options->settings.rate / 1000 : 0;

	cli_json_add(object, "mode", cli_json_text(options->plan.latency ? "latency" : "bandwidth"));
	cli_json_add(object, "both_ways", json_object_new_boolean(options->plan.both_ways));
	cli_json_add(object, "touch", json_object_new_boolean(options->plan.touch));
	cli_json_add(object, "progress", cli_json_text(options->manual ? "manual" : "thread"));
	cli_json_add(object, "repeat", json_object_new_int64(options->repeat));
	cli_json_add(object, "rate_bytes_per_second",
		     options->rate_bytes ? json_object_new_uint64(options->rate_bytes) : NULL);
	cli_json_add(object, "rate_operations_per_second", rate > 0 ? bench_json_number(rate, 0) : NULL);
	cli_json_add(object, "min_rate_bytes_per_second",
		     options->min_rate ? json_object_new_uint64(options->min_rate) : NULL);
	cli_json_add(object, "cpus", cli_json_text(options->cpus));
	cli_json_add(object, "numa_node", options->node >= 0 ? json_object_new_int(options->node) : NULL);
	cli_json_add(object, "huge_pages", cli_json_text(report->pages));
	cli_json_add(object, "staging_locked", json_object_new_uint64(report->staging));
}

static void add_server_members(struct json_object *object, const struct bench_server *server)
{
	cli_json_add(object, "peer_machine", server->memory[0] ? machine_json(&server->machine) : NULL);
	cli_json_add(object, "address", cli_json_text(server->info.address));
	cli_json_add(object, "same_host", json_object_new_boolean(server->info.same_host));
	cli_json_add(object, "authenticated", json_object_new_boolean(server->info.authenticated));
	cli_json_add(object, "encrypted", json_object_new_boolean(server->info.encrypted));
	if (server->events)
		cli_json_add(object, "events", cli_events_json(server->events));
}

/* Adds the server; of several, the first one in place of the only one, and all in a list. */
static void add_server_list(struct json_object *object, const struct bench_report *report)
{
	struct json_object *list = json_object_new_array();

	add_server_members(object, &report->servers[0]);
	for (uint32_t i = 0; report->server_count > 1 && i < report->server_count; i++) {
		struct json_object *one = json_object_new_object();

		cli_json_add(one, "fabric", cli_json_text(report->servers[i].info.fabric));
		cli_json_add(one, "memory", cli_json_text(report->servers[i].memory));
		add_server_members(one, &report->servers[i]);
		json_object_array_add(list, one);
	}
	cli_json_add(object, "servers", list);
}

void bench_render_json(const struct bench_options *options, const struct bench_report *report)
{
	struct json_object *object = json_object_new_object(), *results = json_object_new_array();
	struct machine machine;

	machine_read(&machine);
	for (uint32_t i = 0; i < report->count; i++)
		json_object_array_add(results, json_bench_row(options, report, &report->rows[i]));
	result_head(object, "bench", options->argc, options->argv);
	cli_json_add(object, "machine", machine_json(&machine));
	if (options->with_machine)
		result_attach_machine(object);
	add_server_list(object, report);
	add_method_members(object, options, report);
	add_unreadable_members(object, &report->cost, &report->cards);
	cli_json_add(object, "results", results);
	if (report->failed)
		cli_json_add(object, "error", cli_json_error(&report->error));
	cli_json_print(object, true);
}
