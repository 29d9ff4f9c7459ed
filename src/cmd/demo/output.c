/* SPDX-License-Identifier: BSD-2-Clause */
/* Output of the demonstration: table, facts, JSON. */
#include <stdarg.h>

#include "cmd/common/units.h"
#include "cmd/demo/demo.h"
#include "cmd/transfer/transfer.h"

enum { COLUMN_STEP, COLUMN_BYTES, COLUMN_RATE, COLUMN_FABRIC, COLUMN_ROUTE, COLUMN_VERIFIED };

static const struct cli_column columns[] = {
	[COLUMN_STEP] = { "STEP", 0 },
	[COLUMN_BYTES] = { "BYTES", SCOLS_FL_RIGHT },
	[COLUMN_RATE] = { "RATE OR LATENCY", 0 },
	[COLUMN_FABRIC] = { "FABRIC", 0 },
	[COLUMN_ROUTE] = { "ROUTE", 0 },
	[COLUMN_VERIFIED] = { "VERIFIED", 0 },
};

static void add_step_line(struct libscols_table *table, const struct demo_step *step, const char *name,
			  const char *latency, const char *verified)
{
	struct libscols_line *line = cli_table_line(table);
	char bytes[CLI_UNIT_MAX], rate[CLI_UNIT_MAX];
	const struct pipeline_result *result = &step->result;

	cli_table_set(line, COLUMN_STEP, name);
	cli_table_set(line, COLUMN_BYTES, cli_format_bytes(bytes, result->bytes));
	cli_table_set(line, COLUMN_RATE, latency ? latency : cli_format_rate(rate, result->bytes, result->nanoseconds));
	cli_table_set(line, COLUMN_FABRIC, result->fabric);
	cli_table_set(line, COLUMN_ROUTE, cli_route_name(result->route));
	cli_table_set(line, COLUMN_VERIFIED, verified);
}

static void add_latency_line(struct libscols_table *table, const struct demo_step *step, const char *name,
			     const char *verified)
{
	char latency[80], median[CLI_UNIT_MAX], p99[CLI_UNIT_MAX];

	snprintf(latency, sizeof(latency), "p50 %s, p99 %s", cli_format_time(median, step->median),
		 cli_format_time(p99, step->p99));
	add_step_line(table, step, name, latency, verified);
}

static void add_gpu_lines(struct libscols_table *table, const struct demo_gpu *gpu)
{
	static const char verified[] = "GPU kernel";
	char name[64];

	if (!gpu->count)
		return;
	snprintf(name, sizeof(name), "push, GPU 0 to %u", gpu->count - 1);
	add_step_line(table, &gpu->push, name, NULL, verified);
	snprintf(name, sizeof(name), "pull, GPU %u to 0", gpu->count - 1);
	add_step_line(table, &gpu->pull, name, NULL, verified);
	add_step_line(table, &gpu->host, "  through host memory", NULL, verified);
	snprintf(name, sizeof(name), "8 bytes, GPU 0 to %u", gpu->count - 1);
	add_latency_line(table, &gpu->write, name, verified);
	add_latency_line(table, &gpu->host_write, "  through host memory", verified);
}

static void add_total_line(struct libscols_table *table, const struct demo *demo)
{
	struct libscols_line *line = cli_table_line(table);
	char bytes[CLI_UNIT_MAX], time[CLI_UNIT_MAX], text[64];

	snprintf(text, sizeof(text), "total, %s", cli_format_time(time, demo->nanoseconds));
	cli_table_set(line, COLUMN_STEP, text);
	cli_table_set(line, COLUMN_BYTES, cli_format_bytes(bytes, demo_total(demo).bytes));
}

static void __attribute__((format(printf, 2, 3))) print_demo_fact(const char *label, const char *format, ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	printf("%-9s ", label);
	wrap_print(text, 10, 10);
}

static void print_gpu_facts(const struct demo_gpu *gpu)
{
	const struct pipeline_result *result = &gpu->push.result;

	if (gpu->count)
		print_demo_fact("GPU route", "%s: %s", cli_route_name(result->route), result->reason);
	if (gpu->count == 1)
		print_demo_fact("GPUs", "both processes use GPU 0, %s", gpu->info[0].name);
	else if (gpu->count)
		print_demo_fact("GPUs", "this process uses GPU 0, %s; the other one GPU 1, %s", gpu->info[0].name,
				gpu->info[1].name);
	else if (gpu->wanted)
		print_demo_fact("GPUs", "no GPU: %s", gpu->absent.message);
}

static void print_demo_facts(const struct demo *demo)
{
	const struct pl_peer_info *info = &demo->session.info;
	const struct pipeline_result *result = &demo->push.result;
	char bytes[CLI_UNIT_MAX];

	putchar('\n');
	print_demo_fact("route", "%s, %u %s: %s", cli_route_name(result->route), result->lanes,
			result->lanes == 1 ? "lane" : "lanes", result->reason);
	print_gpu_facts(&demo->gpu);
	print_demo_fact("control", "%s", info->authenticated ? "TLS, authenticated with a key" : "TLS without a key");
	print_demo_fact("data", "%s",
			info->encrypted ? "encrypted" : "in the clear within this host; --encrypt encrypts it");
	if (demo->rounds > 1)
		print_demo_fact("files", "only %s found on this machine, so each file was pulled %u times",
				cli_format_bytes(bytes, demo->files.bytes), demo->rounds);
	print_demo_fact("result", "every received byte was compared with its source: no differences");
}

void demo_print_table(const struct demo *demo)
{
	struct libscols_table *table = cli_table(columns, CLI_ARRAY_SIZE(columns));
	char pull[64], push[64], write[64];

	snprintf(pull, sizeof(pull), "pull %u file%s", demo->pull.count, demo->pull.count == 1 ? "" : "s");
	snprintf(push, sizeof(push), "push %u frame%s", demo->push.count, demo->push.count == 1 ? "" : "s");
	snprintf(write, sizeof(write), "write 8 bytes, %u x", demo->write.count);
	add_step_line(table, &demo->pull, pull, NULL, "every byte");
	add_step_line(table, &demo->push, push, NULL, "XXH3-128");
	add_latency_line(table, &demo->write, write, "read back");
	add_gpu_lines(table, &demo->gpu);
	add_total_line(table, demo);
	cli_table_print(table);
	print_demo_facts(demo);
}

static struct json_object *demo_step_json(const char *name, const struct demo_step *step)
{
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "step", cli_json_text(name));
	cli_json_add(object, "count", json_object_new_int((int)step->count));
	pipeline_result_add_json(object, &step->result);
	cli_json_add(object, "bytes_verified", json_object_new_uint64(step->verified));
	if (step->median) {
		cli_json_add(object, "latency_min_ns", json_object_new_uint64(step->min));
		cli_json_add(object, "latency_p50_ns", json_object_new_uint64(step->median));
		cli_json_add(object, "latency_p99_ns", json_object_new_uint64(step->p99));
	}
	return object;
}

static void add_gpu_step(struct json_object *steps, const char *name, const struct demo_step *step, unsigned from,
			 unsigned to, bool host)
{
	struct json_object *object = demo_step_json(name, step);

	cli_json_add(object, "from_gpu", json_object_new_int((int)from));
	cli_json_add(object, "to_gpu", json_object_new_int((int)to));
	cli_json_add(object, "through_host", json_object_new_boolean(host));
	json_object_array_add(steps, object);
}

static void add_gpu_steps(struct json_object *steps, const struct demo_gpu *gpu)
{
	unsigned other = gpu->count - 1;

	if (!gpu->count)
		return;
	add_gpu_step(steps, "gpu-push", &gpu->push, 0, other, false);
	add_gpu_step(steps, "gpu-pull", &gpu->pull, other, 0, false);
	add_gpu_step(steps, "gpu-host", &gpu->host, 0, 0, true);
	add_gpu_step(steps, "gpu-write", &gpu->write, 0, other, false);
	add_gpu_step(steps, "gpu-host-write", &gpu->host_write, 0, 0, true);
}

/* Returns the GPUs in use, by their CUDA numbers. */
static struct json_object *demo_gpus_json(const struct demo_gpu *gpu)
{
	struct json_object *list = json_object_new_array();

	for (unsigned i = 0; i < gpu->count; i++) {
		struct json_object *object = json_object_new_object();

		cli_json_add(object, "number", json_object_new_int((int)i));
		cli_json_add(object, "name", cli_json_text(gpu->info[i].name));
		cli_json_add(object, "pci", cli_json_text(gpu->info[i].pci));
		json_object_array_add(list, object);
	}
	return list;
}

void demo_print_json(const struct demo *demo, const struct pl_error *error)
{
	struct json_object *object = json_object_new_object(), *steps = json_object_new_array();

	json_object_array_add(steps, demo_step_json("pull", &demo->pull));
	json_object_array_add(steps, demo_step_json("push", &demo->push));
	json_object_array_add(steps, demo_step_json("write", &demo->write));
	add_gpu_steps(steps, &demo->gpu);
	cli_json_add(object, "address", cli_json_text(demo->server.address));
	cli_json_add(object, "authenticated", json_object_new_boolean(demo->session.info.authenticated));
	cli_json_add(object, "encrypted", json_object_new_boolean(demo->session.info.encrypted));
	cli_json_add(object, "files", json_object_new_uint64(demo->files.count));
	cli_json_add(object, "files_bytes", json_object_new_uint64(demo->files.bytes));
	cli_json_add(object, "rounds", json_object_new_int((int)demo->rounds));
	cli_json_add(object, "gpus", demo_gpus_json(&demo->gpu));
	cli_json_add(object, "gpu_error",
		     demo->gpu.wanted && !demo->gpu.count ? cli_json_error(&demo->gpu.absent) : NULL);
	cli_json_add(object, "steps", steps);
	cli_json_add(object, "bytes", json_object_new_uint64(demo_total(demo).bytes));
	cli_json_add(object, "seconds", json_object_new_double((double)demo->nanoseconds / 1e9));
	cli_json_add(object, "verified", json_object_new_boolean(!error));
	cli_json_add(object, "error", error ? cli_json_error(error) : NULL);
	cli_json_print(object, true);
}
