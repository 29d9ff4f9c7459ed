/* SPDX-License-Identifier: BSD-2-Clause */
/* Changes of counters as JSON. */
#include "bench/counters/counters.h"
#include "cmd/common/output.h"

static struct json_object *json_port_changes(const struct card_port_counters *port)
{
	struct json_object *object = json_object_new_object(), *fell = json_object_new_array();
	struct json_object *folders[CARD_FOLDERS] = { json_object_new_object(), json_object_new_object() };

	for (uint32_t i = 0; i < port->count; i++) {
		const struct card_counter *counter = &port->list[i];

		if (counter->fell)
			cli_json_append(fell, cli_json_text(counter->name));
		else
			cli_json_add(folders[counter->folder], counter->name, json_object_new_uint64(counter->value));
	}
	cli_json_add(object, "device", cli_json_text(port->port.device));
	cli_json_add(object, "port", json_object_new_int64(port->port.number));
	cli_json_add(object, "hw_counters", folders[CARD_HW_COUNTERS]);
	cli_json_add(object, "counters", folders[CARD_COUNTERS]);
	cli_json_add(object, "fell", fell);
	return object;
}

struct json_object *card_counters_json(const struct card_counters *changes)
{
	struct json_object *list;

	if (!changes)
		return NULL;
	list = json_object_new_array();
	for (unsigned i = 0; i < changes->count; i++)
		if (changes->ports[i].readable)
			cli_json_append(list, json_port_changes(&changes->ports[i]));
	return list;
}
