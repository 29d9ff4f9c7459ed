/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads a document of an earlier check.  Each member is of its type and fits, or the document is refused. */
#include <stdlib.h>
#include <string.h>

#include "cmd/check/policy_file.h"

#define DEPTH_MAX 32
#define ENTRIES_MAX 4096u

/* Parsing of one document; the first defect is kept. */
struct baseline_reader {
	const char *file;
	struct pl_error *error;
	int rc;
};

static void refuse_baseline(struct baseline_reader *reader, const char *fact, const char *member)
{
	if (reader->rc < 0)
		return;
	reader->rc = cli_fail(reader->error, -EINVAL, "CHECK-BASELINE", reader->file,
			      "take a file of: peerlane check --format json --output FILE", "%s%s%s", fact,
			      member ? " " : "", member ? member : "");
}

/* Returns a member of this type, NULL if it is null.  Refuses a document in which it is missing or of another type. */
static struct json_object *baseline_member(struct baseline_reader *reader, struct json_object *object, const char *name,
					   enum json_type type)
{
	struct json_object *value = NULL;

	if (!json_object_is_type(object, json_type_object) || !json_object_object_get_ex(object, name, &value))
		refuse_baseline(reader, "no member", name);
	else if (value && !json_object_is_type(value, type))
		refuse_baseline(reader, "wrong type of", name);
	else
		return value;
	return NULL;
}

static void baseline_text(struct baseline_reader *reader, struct json_object *object, const char *name, char *text,
			  size_t size)
{
	struct json_object *value = baseline_member(reader, object, name, json_type_string);
	size_t length = value ? (size_t)json_object_get_string_len(value) : 0;

	text[0] = '\0';
	if (length >= size || (value && strlen(json_object_get_string(value)) != length)) {
		refuse_baseline(reader, "too long or with NUL:", name);
		return;
	}
	if (value)
		memcpy(text, json_object_get_string(value), length + 1);
	cli_printable(text, false);
}

/* Returns a number of 0 to max; 0 if it is null. */
static uint64_t baseline_number(struct baseline_reader *reader, struct json_object *object, const char *name,
				uint64_t max)
{
	struct json_object *value = baseline_member(reader, object, name, json_type_int);
	int64_t number = value ? json_object_get_int64(value) : 0;

	if (number >= 0 && (uint64_t)number <= max)
		return (uint64_t)number;
	refuse_baseline(reader, "out of range:", name);
	return 0;
}

static bool baseline_boolean(struct baseline_reader *reader, struct json_object *object, const char *name)
{
	struct json_object *value = baseline_member(reader, object, name, json_type_boolean);

	return value && json_object_get_boolean(value);
}

/* Returns an array and the number of its entries. */
static struct json_object *baseline_array(struct baseline_reader *reader, struct json_object *object, const char *name,
					  size_t *count)
{
	struct json_object *value = baseline_member(reader, object, name, json_type_array);

	*count = value ? json_object_array_length(value) : 0;
	if (*count > ENTRIES_MAX) {
		refuse_baseline(reader, "too many entries in", name);
		*count = 0;
	}
	return value;
}

static void *baseline_room(struct baseline_reader *reader, size_t count, size_t size)
{
	void *room = calloc(count + 1, size);

	if (!room && reader->rc == 0)
		reader->rc = cli_fail_errno(reader->error, -ENOMEM, "malloc", reader->file);
	return room;
}

static void read_baseline_devices(struct baseline_reader *reader, struct json_object *inventory, bool gpus,
				  struct pl_inventory_device **devices, size_t *count)
{
	size_t entries;
	struct json_object *array = baseline_array(reader, inventory, gpus ? "gpus" : "cards", &entries);

	*devices = baseline_room(reader, entries, sizeof(**devices));
	for (; reader->rc == 0 && *count < entries; (*count)++) {
		struct json_object *from = json_object_array_get_idx(array, *count);
		struct pl_inventory_device *to = &(*devices)[*count];

		baseline_text(reader, from, "pci", to->address, sizeof(to->address));
		if (gpus) {
			baseline_text(reader, from, "model", to->model, sizeof(to->model));
			to->idle = baseline_boolean(reader, from, "idle");
		}
		to->link.width = (uint32_t)baseline_number(reader, from, "width_lanes", 1024);
		to->link.speed =
			(uint32_t)(baseline_number(reader, from, "speed_transfers_per_second", 1ull << 50) / 1000000);
	}
}

static void read_baseline_ports(struct baseline_reader *reader, struct json_object *from,
				const struct pl_inventory_rdma *device, struct pl_inventory *inventory)
{
	size_t entries;
	struct json_object *array = baseline_array(reader, from, "ports", &entries);
	struct pl_inventory_port *grown =
		realloc(inventory->ports, (inventory->port_count + entries + 1) * sizeof(*grown));

	if (!grown) {
		reader->rc = cli_fail_errno(reader->error, -ENOMEM, "malloc", reader->file);
		return;
	}
	inventory->ports = grown;
	for (size_t i = 0; reader->rc == 0 && i < entries; i++) {
		struct json_object *one = json_object_array_get_idx(array, i);
		struct pl_inventory_port *port = &grown[inventory->port_count++];

		*port = (struct pl_inventory_port){ .number = 0 };
		memcpy(port->device, device->name, sizeof(port->device));
		port->number = (unsigned)baseline_number(reader, one, "port", 255);
		baseline_text(reader, one, "state", port->state, sizeof(port->state));
		baseline_text(reader, one, "layer", port->layer, sizeof(port->layer));
		port->rate = baseline_number(reader, one, "rate_bytes_per_second", 1ull << 60);
		port->active = !strcmp(port->state, "ACTIVE");
	}
	if (inventory->port_count > ENTRIES_MAX)
		refuse_baseline(reader, "too many entries in", "ports");
}

static void read_baseline_rdma(struct baseline_reader *reader, struct json_object *from, struct pl_inventory *inventory)
{
	size_t entries;
	struct json_object *array = baseline_array(reader, from, "devices", &entries);

	inventory->devices = baseline_room(reader, entries, sizeof(*inventory->devices));
	for (; reader->rc == 0 && inventory->device_count < entries; inventory->device_count++) {
		struct json_object *one = json_object_array_get_idx(array, inventory->device_count);
		struct pl_inventory_rdma *device = &inventory->devices[inventory->device_count];

		baseline_text(reader, one, "device", device->name, sizeof(device->name));
		baseline_text(reader, one, "pci", device->address, sizeof(device->address));
		baseline_text(reader, one, "firmware", device->firmware, sizeof(device->firmware));
		read_baseline_ports(reader, one, device, inventory);
	}
}

static void read_baseline(struct baseline_reader *reader, struct json_object *root, struct pl_check_baseline *baseline)
{
	struct pl_inventory *inventory = &baseline->inventory;
	struct json_object *from;
	char kind[16];

	if (!json_object_is_type(root, json_type_object)) {
		refuse_baseline(reader, "no JSON object", NULL);
		return;
	}
	baseline_text(reader, root, "kind", kind, sizeof(kind));
	if (strcmp(kind, "check"))
		refuse_baseline(reader, "no output of the check", NULL);
	if (baseline_number(reader, root, "format", INT64_MAX) != 1)
		refuse_baseline(reader, "of another format than 1, which is of another version", NULL);
	baseline_text(reader, root, "host", baseline->host, sizeof(baseline->host));
	baseline_text(reader, root, "time", baseline->time, sizeof(baseline->time));
	from = baseline_member(reader, root, "inventory", json_type_object);
	if (!from)
		refuse_baseline(reader, "no inventory", NULL);
	baseline_text(reader, from, "driver", inventory->driver, sizeof(inventory->driver));
	baseline_text(reader, from, "kernel", inventory->kernel, sizeof(inventory->kernel));
	read_baseline_devices(reader, from, true, &inventory->gpus, &inventory->gpu_count);
	read_baseline_devices(reader, from, false, &inventory->cards, &inventory->card_count);
	read_baseline_rdma(reader, from, inventory);
}

int check_parse_baseline(struct pl_check_baseline *baseline, const char *file, const char *text, size_t length,
			 struct pl_error *error)
{
	struct baseline_reader reader = { .file = file, .error = error };
	struct json_tokener *tokener = json_tokener_new_ex(DEPTH_MAX);
	struct json_object *root;
	enum json_tokener_error outcome;

	*baseline = (struct pl_check_baseline){ .host = "" };
	if (!tokener)
		return cli_fail_errno(error, -ENOMEM, "json_tokener_new", file);
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	root = json_tokener_parse_ex(tokener, text, (int)length);
	outcome = json_tokener_get_error(tokener);
	json_tokener_free(tokener);
	if (outcome != json_tokener_success)
		refuse_baseline(&reader, "no valid JSON:",
				outcome == json_tokener_continue ? "unexpected end" : json_tokener_error_desc(outcome));
	else
		read_baseline(&reader, root, baseline);
	json_object_put(root);
	if (reader.rc < 0)
		pl_inventory_release(&baseline->inventory);
	return reader.rc;
}

int check_read_baseline(struct pl_check_baseline *baseline, const char *file, struct pl_error *error)
{
	size_t length;
	char *text;
	int rc = check_read_file(file, CHECK_BASELINE_MAX, &text, &length, error);

	*baseline = (struct pl_check_baseline){ .host = "" };
	if (rc < 0)
		return rc;
	rc = check_parse_baseline(baseline, file, text, length, error);
	free(text);
	return rc;
}
