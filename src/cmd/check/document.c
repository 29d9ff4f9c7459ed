/* SPDX-License-Identifier: BSD-2-Clause */
/* The check's JSON document: the run, its counts, the inventory, and the results.  docs/check.schema.json describes it. */
#include "cmd/check/check.h"

#include <stdio.h>
#include <string.h>

#define DOCUMENT_FORMAT 1

/* Returns seconds with six decimals; null if they are negative. */
static struct json_object *seconds_json(double seconds)
{
	char text[40];

	if (seconds < 0)
		return NULL;
	snprintf(text, sizeof(text), "%.6f", seconds);
	return json_object_new_double_s(seconds, text);
}

/* Returns the number; null for 0, which stands for an unknown value. */
static struct json_object *known_number_json(uint64_t number)
{
	return number ? json_object_new_uint64(number) : NULL;
}

static struct json_object *counts_json(const struct pl_check_counts *counts)
{
	static const char *const names[] = { "none", "ok", "unknown", "warn", "fail" };
	struct json_object *object = json_object_new_object();

	for (size_t i = 0; i < CLI_ARRAY_SIZE(names); i++)
		cli_json_add(object, names[i], json_object_new_uint64(counts->results[i]));
	cli_json_add(object, "accepted", json_object_new_uint64(counts->accepted));
	return object;
}

static struct json_object *pci_device_json(const struct pl_inventory_device *device, bool gpu)
{
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "pci", cli_json_text(device->address));
	if (gpu)
		cli_json_add(object, "model", cli_json_text_or_null(device->model));
	cli_json_add(object, "numa", device->numa < 0 ? NULL : json_object_new_int(device->numa));
	if (!gpu)
		cli_json_add(object, "virtual_function", json_object_new_boolean(device->function));
	cli_json_add(object, "width_lanes", known_number_json(device->link.width));
	cli_json_add(object, "speed_transfers_per_second", known_number_json((uint64_t)device->link.speed * 1000000));
	if (gpu)
		cli_json_add(object, "idle", json_object_new_boolean(device->idle));
	return object;
}

static struct json_object *pci_devices_json(const struct pl_inventory_device *devices, size_t count, bool gpus)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < count; i++)
		cli_json_append(array, pci_device_json(&devices[i], gpus));
	return array;
}

static struct json_object *ports_json(const struct pl_inventory *inventory, const char *device)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < inventory->port_count; i++) {
		const struct pl_inventory_port *port = &inventory->ports[i];
		struct json_object *object;

		if (strcmp(port->device, device))
			continue;
		object = json_object_new_object();
		cli_json_add(object, "port", json_object_new_uint64(port->number));
		cli_json_add(object, "state", cli_json_text_or_null(port->state));
		cli_json_add(object, "layer", cli_json_text_or_null(port->layer));
		cli_json_add(object, "rate_bytes_per_second", known_number_json(port->rate));
		cli_json_append(array, object);
	}
	return array;
}

static struct json_object *rdma_devices_json(const struct pl_inventory *inventory)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < inventory->device_count; i++) {
		const struct pl_inventory_rdma *device = &inventory->devices[i];
		struct json_object *object = json_object_new_object();

		cli_json_add(object, "device", cli_json_text(device->name));
		cli_json_add(object, "pci", cli_json_text_or_null(device->address));
		cli_json_add(object, "firmware", cli_json_text_or_null(device->firmware));
		cli_json_add(object, "ports", ports_json(inventory, device->name));
		cli_json_append(array, object);
	}
	return array;
}

static struct json_object *inventory_json(const struct pl_inventory *inventory)
{
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "driver", cli_json_text_or_null(inventory->driver));
	cli_json_add(object, "kernel", cli_json_text_or_null(inventory->kernel));
	cli_json_add(object, "gpus", pci_devices_json(inventory->gpus, inventory->gpu_count, true));
	cli_json_add(object, "cards", pci_devices_json(inventory->cards, inventory->card_count, false));
	cli_json_add(object, "devices", rdma_devices_json(inventory));
	return object;
}

static struct json_object *expected_json(const struct pl_check_expected *expected)
{
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "gpus", known_number_json(expected->gpus));
	cli_json_add(object, "cards", known_number_json(expected->cards));
	cli_json_add(object, "rate_bytes_per_second", known_number_json(expected->rate));
	cli_json_add(object, "width_lanes", known_number_json(expected->lanes));
	cli_json_add(object, "speed_transfers_per_second",
		     known_number_json((uint64_t)pl_check_generation_speed(expected->generation) * 1000000));
	cli_json_add(object, "driver", cli_json_text_or_null(expected->driver));
	if (expected->direct)
		cli_json_add(object, "direct_cards", json_object_new_uint64(expected->direct));
	return object;
}

static struct json_object *acceptance_json(const struct pl_check_report *report,
					   const struct pl_check_acceptance *acceptance)
{
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "id", cli_json_text(acceptance->row->id));
	cli_json_add(object, "object", cli_json_text_or_null(acceptance->object));
	cli_json_add(object, "reason", cli_json_text(acceptance->reason));
	cli_json_add(object, "used", json_object_new_boolean(pl_check_acceptance_used(report, acceptance)));
	return object;
}

static struct json_object *baseline_json(const struct check *check)
{
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "file", cli_json_text(check->baseline_file));
	cli_json_add(object, "host", cli_json_text_or_null(check->baseline.host));
	cli_json_add(object, "time", cli_json_text_or_null(check->baseline.time));
	return object;
}

static struct json_object *policy_json(const struct check_run *run, const struct check *check)
{
	const struct pl_check_policy *policy = &check->policy;
	struct json_object *object = json_object_new_object(), *ignored = json_object_new_array();

	for (size_t i = 0; i < policy->accepted_count; i++)
		cli_json_append(ignored, acceptance_json(&run->report, &policy->accepted[i]));
	cli_json_add(object, "fail_on", check->fail_on ? cli_json_text(pl_check_status_name(check->fail_on)) : NULL);
	cli_json_add(object, "expected", expected_json(&policy->expected));
	cli_json_add(object, "ignored", ignored);
	cli_json_add(object, "baseline", check->baseline_file ? baseline_json(check) : NULL);
	return object;
}

struct json_object *check_judgement_json(const struct check_run *run, const struct check *check)
{
	const struct pl_check_counts counts = pl_check_count(&run->report);
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "time", cli_json_text(run->time));
	cli_json_add(object, "status", cli_json_text(pl_check_status_name(counts.worst)));
	cli_json_add(object, "counts", counts_json(&counts));
	cli_json_add(object, "policy", policy_json(run, check));
	check_document_add_results(object, &run->report);
	return object;
}

struct json_object *check_document(const struct check_run *run, const struct check *check)
{
	const struct pl_check_counts counts = pl_check_count(&run->report);
	struct json_object *object = cli_json_begin();

	cli_json_add(object, "format", json_object_new_int(DOCUMENT_FORMAT));
	cli_json_add(object, "kind", cli_json_text("check"));
	cli_json_add(object, "version", cli_json_text(pl_version()));
	cli_json_add(object, "host", cli_json_text_or_null(run->host));
	cli_json_add(object, "boot_id", cli_json_text_or_null(run->boot_id));
	cli_json_add(object, "time", cli_json_text(run->time));
	cli_json_add(object, "duration_seconds", seconds_json((double)run->duration / CLI_NS_PER_S));
	cli_json_add(object, "uptime_seconds", seconds_json(run->uptime));
	cli_json_add(object, "root", run->root_user < 0 ? NULL : json_object_new_boolean(run->root_user));
	cli_json_add(object, "status", cli_json_text(pl_check_status_name(counts.worst)));
	cli_json_add(object, "counts", counts_json(&counts));
	cli_json_add(object, "policy", policy_json(run, check));
	cli_json_add(object, "inventory", inventory_json(run->inventory));
	cli_json_add(object, "nccl", check_nccl_json(pl_check_machine_nccl(run->machine)));
	check_document_add_report(object, &run->report);
	return object;
}
