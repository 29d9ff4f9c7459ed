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

static void add_total_line(struct libscols_table *table, const struct demo *demo)
{
	struct libscols_line *line = cli_table_line(table);
	char bytes[CLI_UNIT_MAX], time[CLI_UNIT_MAX], text[64];
	uint64_t total = demo->pull.result.bytes + demo->push.result.bytes + demo->write.result.bytes;

	snprintf(text, sizeof(text), "total, %s", cli_format_time(time, demo->nanoseconds));
	cli_table_set(line, COLUMN_STEP, text);
	cli_table_set(line, COLUMN_BYTES, cli_format_bytes(bytes, total));
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

static void print_demo_facts(const struct demo *demo)
{
	const struct pl_peer_info *info = &demo->session.info;
	const struct pipeline_result *result = &demo->push.result;
	char bytes[CLI_UNIT_MAX];

	putchar('\n');
	print_demo_fact("route", "%s, %u of %u lanes: %s", cli_route_name(result->route), result->lanes, info->lanes,
			result->reason);
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
	char pull[64], push[64], write[64], latency[80], median[CLI_UNIT_MAX], p99[CLI_UNIT_MAX];

	snprintf(pull, sizeof(pull), "pull %u files", demo->pull.count);
	snprintf(push, sizeof(push), "push %u frames", demo->push.count);
	snprintf(write, sizeof(write), "write 8 bytes, %u x", demo->write.count);
	snprintf(latency, sizeof(latency), "p50 %s, p99 %s", cli_format_time(median, demo->write.median),
		 cli_format_time(p99, demo->write.p99));
	add_step_line(table, &demo->pull, pull, NULL, "every byte");
	add_step_line(table, &demo->push, push, NULL, "XXH3-128");
	add_step_line(table, &demo->write, write, latency, "read back");
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

void demo_print_json(const struct demo *demo, const struct pl_error *error)
{
	struct json_object *object = json_object_new_object(), *steps = json_object_new_array();
	uint64_t bytes = demo->pull.result.bytes + demo->push.result.bytes + demo->write.result.bytes;

	json_object_array_add(steps, demo_step_json("pull", &demo->pull));
	json_object_array_add(steps, demo_step_json("push", &demo->push));
	json_object_array_add(steps, demo_step_json("write", &demo->write));
	cli_json_add(object, "address", cli_json_text(demo->server.address));
	cli_json_add(object, "authenticated", json_object_new_boolean(demo->session.info.authenticated));
	cli_json_add(object, "encrypted", json_object_new_boolean(demo->session.info.encrypted));
	cli_json_add(object, "files", json_object_new_uint64(demo->files.count));
	cli_json_add(object, "files_bytes", json_object_new_uint64(demo->files.bytes));
	cli_json_add(object, "rounds", json_object_new_int((int)demo->rounds));
	cli_json_add(object, "steps", steps);
	cli_json_add(object, "bytes", json_object_new_uint64(bytes));
	cli_json_add(object, "seconds", json_object_new_double((double)demo->nanoseconds / 1e9));
	cli_json_add(object, "verified", json_object_new_boolean(!error));
	cli_json_add(object, "error", error ? cli_json_error(error) : NULL);
	cli_json_print(object, true);
}
