/* SPDX-License-Identifier: BSD-2-Clause */
/* JSON output of a workflow. */
#include "bench/workflow/workflow.h"

#include <string.h>

#include "bench/common/numbers.h"
#include "cmd/common/output.h"

static struct json_object *json_rounds(const struct workflow_result *result)
{
	struct json_object *runs = json_object_new_array();

	for (uint32_t i = 0; i < result->rounds; i++)
		json_object_array_add(runs, bench_json_number(result->runs[i], 3));
	return runs;
}

static struct json_object *json_phase_times(const struct workflow_result *result, bool proxy)
{
	struct json_object *phases = json_object_new_object();

	for (unsigned i = 0; i < WORKFLOW_WHOLE; i++)
		if (i != (proxy ? WORKFLOW_INSPECT : WORKFLOW_SERVE))
			cli_json_add(phases, workflow_phase_name((enum workflow_phase)i),
				     bench_json_number(workflow_phase_us(result, (enum workflow_phase)i), 3));
	return phases;
}

static struct json_object *json_frame_latency(const struct stats *stats)
{
	static const struct {
		const char *name;
		double percent;
	} percentiles[] = { { "p50", 50 }, { "p99", 99 }, { "p999", 99.9 }, { "max", 100 } };
	struct json_object *latency = json_object_new_object();

	for (size_t i = 0; i < CLI_ARRAY_SIZE(percentiles); i++)
		cli_json_add(latency, percentiles[i].name,
			     bench_json_number((double)stats_percentile(stats, percentiles[i].percent) / 1000, 3));
	return latency;
}

static struct json_object *json_method_result(const struct workflow_result *result, bool proxy)
{
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "arm", cli_json_text(result->method->name));
	cli_json_add(object, "size", json_object_new_uint64(result->size));
	cli_json_add(object, "depth", json_object_new_int64(result->depth));
	cli_json_add(object, "frames", json_object_new_uint64(result->frames));
	cli_json_add(object, "seconds", bench_json_number((double)result->elapsed / 1e9, 6));
	cli_json_add(object, "frames_per_second", bench_json_number(result->median, 3));
	cli_json_add(object, "bytes_per_second", bench_json_number(result->median * (double)result->size, 0));
	cli_json_add(object, "runs", json_rounds(result));
	cli_json_add(object, "phases_us", json_phase_times(result, proxy));
	cli_json_add(object, "latency_us", json_frame_latency(&result->phases[WORKFLOW_WHOLE]));
	cli_json_add(object, "cpu_percent",
		     bench_json_number(100 * (double)result->cpu / (double)CLI_MAX(result->elapsed, 1u), 1));
	cli_json_add(object, "fabric", cli_json_text(result->totals.fabric));
	cli_json_add(object, "route", cli_json_text(cli_route_name(result->totals.route)));
	cli_json_add(object, "reason", cli_json_text(result->totals.reason));
	cli_json_add(object, "host_bytes_staged", json_object_new_uint64(result->totals.staged));
	cli_json_add(object, "bytes_direct", json_object_new_uint64(result->totals.direct));
	cli_json_add(object, "received_into", cli_json_text(result->method->direct ? "device" : "host"));
	cli_json_add(object, "verified", json_object_new_boolean(result->verified));
	return object;
}

static struct json_object *json_skipped_methods(const struct workflow_report *report)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < report->count; i++) {
		const struct workflow_result *result = &report->results[i];
		struct json_object *object;

		if (!result->skipped)
			continue;
		object = json_object_new_object();
		cli_json_add(object, "arm", cli_json_text(result->method->name));
		cli_json_add(object, "size", json_object_new_uint64(result->size));
		cli_json_add(object, "error", cli_json_error(&result->reason));
		json_object_array_add(list, object);
	}
	return list;
}

static struct json_object *json_method_ratios(const struct workflow_report *report)
{
	static const char *const pairs[][2] = {
		{ "B", "A" },  { "B'", "A'" }, { "AO", "A" }, { "AO", "A'" }, { "BO", "A" }, { "BO", "B'" },
		{ "BO", "B" }, { "BO", "AO" }, { "BP", "A" }, { "BP", "BO" }, { "S", "A" },  { "S", "BO" },
	};
	struct json_object *ratios = json_object_new_array();

	for (uint32_t i = 0; i < report->count; i++) {
		const struct workflow_result *result = &report->results[i];

		for (size_t pair = 0; pair < CLI_ARRAY_SIZE(pairs); pair++) {
			const struct workflow_result *over = workflow_result_of(report, pairs[pair][1], result->size);
			struct json_object *object;
			struct workflow_ratio ratio;

			if (strcmp(result->method->name, pairs[pair][0]) || !over || !over->rounds || !result->rounds)
				continue;
			ratio = workflow_ratio_of(result, over);
			object = json_object_new_object();
			cli_json_add(object, "size", json_object_new_uint64(result->size));
			cli_json_add(object, "arm", cli_json_text(pairs[pair][0]));
			cli_json_add(object, "over", cli_json_text(pairs[pair][1]));
			cli_json_add(object, "ratio", bench_json_number(ratio.ratio, 4));
			cli_json_add(object, "low", bench_json_number(ratio.low, 4));
			cli_json_add(object, "high", bench_json_number(ratio.high, 4));
			json_object_array_add(ratios, object);
		}
	}
	return ratios;
}

static struct json_object *json_methods(const struct workflow_options *options)
{
	struct json_object *list = json_object_new_array();
	unsigned count;
	const struct workflow_method *methods = workflow_methods(options->proxy, &count);

	for (unsigned i = 0; i < count; i++) {
		struct json_object *object;

		if (!options->methods[i])
			continue;
		object = json_object_new_object();
		cli_json_add(object, "name", cli_json_text(methods[i].name));
		cli_json_add(object, "title", cli_json_text(methods[i].title));
		json_object_array_add(list, object);
	}
	return list;
}

/* Returns a server's machine; NULL if the server did not send it. */
static struct json_object *json_known_machine(const struct machine *machine)
{
	return machine->cores ? machine_json(machine) : NULL;
}

void workflow_render_json(const struct workflow_options *options, const struct workflow_report *report)
{
	struct json_object *object = json_object_new_object(), *results = json_object_new_array();
	struct machine machine;

	for (uint32_t i = 0; i < report->count; i++)
		if (report->results[i].rounds)
			json_object_array_add(results, json_method_result(&report->results[i], options->proxy));
	machine_read(&machine);
	result_head(object, options->proxy ? "proxy" : "workflow", options->argc, options->argv);
	cli_json_add(object, "machine", machine_json(&machine));
	cli_json_add(object, "peer_machine", json_known_machine(&report->source_machine));
	if (options->proxy)
		cli_json_add(object, "sink_machine", json_known_machine(&report->sink_machine));
	cli_json_add(object, "device", report->compute ? cli_json_text(report->compute->name) : NULL);
	cli_json_add(object, "fabric", cli_json_text(report->source.fabric));
	cli_json_add(object, "address", cli_json_text(report->source.address));
	cli_json_add(object, "same_host", json_object_new_boolean(report->source.same_host));
	cli_json_add(object, "authenticated", json_object_new_boolean(report->source.authenticated));
	cli_json_add(object, "encrypted", json_object_new_boolean(report->source.encrypted));
	cli_json_add(object, "rounds", json_object_new_int64(options->rounds));
	cli_json_add(object, "arms", json_methods(options));
	cli_json_add(object, "results", results);
	cli_json_add(object, "ratios", json_method_ratios(report));
	cli_json_add(object, "left_out", json_skipped_methods(report));
	if (report->failed)
		cli_json_add(object, "error", cli_json_error(&report->error));
	cli_json_print(object, true);
}
