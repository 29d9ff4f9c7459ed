/* SPDX-License-Identifier: BSD-2-Clause */
/* Facts of a topology: machine, devices with their links, ports, network devices, and the class of each path. */
#include <string.h>

#include "cmd/fleet/facts.h"

static void add_topo_link(struct facts *facts, struct json_object *device, const char *id)
{
	struct json_object *link = cli_json_member(device, "link", json_type_object);

	facts_add_lanes(facts, id, fleet_number(link, "width"));
	/* The speed of an idle device changes with its load. */
	if (!json_object_get_boolean(cli_json_member(device, "idle", json_type_boolean)))
		facts_add_rate(facts, "speed", id, fleet_number(link, "speed_mts"), 1e3, "GT/s");
}

static void read_topo_ports(struct facts *facts, struct json_object *card, const char *name)
{
	struct json_object *one;
	char object[FACT_OBJECT_MAX];

	for (size_t i = 0; (one = fleet_element(card, "ports", i)); i++) {
		snprintf(object, sizeof(object), "%s/%lld", name, (long long)fleet_number(one, "port"));
		facts_add_text(facts, "state", object, one, "state");
		facts_add_text(facts, "layer", object, one, "link_layer");
		facts_add_rate(facts, "rate", object, fleet_number(one, "bits_per_second"), 1e9, "Gbit/s");
	}
	for (size_t i = 0; (one = fleet_element(card, "net_devices", i)); i++) {
		const char *device = cli_json_member_text(one, "name");

		if (device && *device)
			facts_add_number(facts, "mtu", device, fleet_number(one, "mtu"), "");
	}
}

/* Adds the number of working links of a GPU: 0 if it has none, so that a host that lost all of them differs. */
static void add_topo_gpu_links(struct facts *facts, struct json_object *gpu, const char *id)
{
	struct json_object *link;
	int64_t active = 0;

	if (!cli_json_member(gpu, "links", json_type_array))
		return;
	for (size_t i = 0; (link = fleet_element(gpu, "links", i)); i++) {
		int64_t number = fleet_number(link, "active");

		active += number > 0 && number < INT32_MAX ? number : 0;
	}
	facts_add_number(facts, "gpu-links", id, active, "");
}

/* Reads GPUs or cards; `id` is "gpus" or "cards". */
static void read_topo_devices(struct facts *facts, struct json_object *document, const char *member, const char *id)
{
	struct json_object *device, *array = cli_json_member(document, member, json_type_array);

	if (!array)
		return;
	facts_add_number(facts, id, NULL, (int64_t)json_object_array_length(array), "");
	for (size_t i = 0; (device = fleet_element(document, member, i)); i++) {
		const char *pci = cli_json_member_text(device, "id"),
			   *name = cli_json_member_text(device, "rdma_device");

		if (!pci || !*pci)
			continue;
		facts_add(facts, FACT_OBJECT, PL_CHECK_NONE, id, pci, "present");
		facts_add_text(facts, "model", pci, device, "name");
		facts_add_text(facts, "driver", pci, device, "driver");
		facts_add_number(facts, "numa", pci, fleet_number(device, "numa_node"), "");
		add_topo_link(facts, device, pci);
		add_topo_gpu_links(facts, device, pci);
		facts_add_text(facts, "firmware", name ? name : pci, device, "firmware");
		read_topo_ports(facts, device, name ? name : pci);
	}
}

static void read_topo_pairs(struct facts *facts, struct json_object *document)
{
	struct json_object *pair;
	char object[FACT_OBJECT_MAX];

	for (size_t i = 0; (pair = fleet_element(document, "pairs", i)); i++) {
		const char *gpu = cli_json_member_text(pair, "gpu"), *card = cli_json_member_text(pair, "nic");

		if (!gpu || !card)
			continue;
		snprintf(object, sizeof(object), "%.40s to %.40s", gpu, card);
		facts_add_text(facts, "path", object, pair, "class");
	}
}

static void read_topo_memory(struct facts *facts, struct json_object *document)
{
	struct json_object *node;
	char object[32];

	for (size_t i = 0; (node = fleet_element(document, "numa_nodes", i)); i++) {
		int64_t bytes = fleet_number(node, "memory_bytes");

		/* The firmware takes some megabytes, not the same at each start: whole GiB are compared. */
		snprintf(object, sizeof(object), "NUMA node %lld", (long long)fleet_number(node, "id"));
		facts_add_number(facts, "memory", object, bytes < 0 ? -1 : (bytes + (1ll << 29)) >> 30, " GiB");
	}
}

void facts_read_topo(struct facts *facts, struct json_object *document)
{
	struct json_object *machine = cli_json_member(document, "machine", json_type_object);
	struct json_object *is_virtual = cli_json_member(machine, "virtual", json_type_boolean);

	facts_add_text(facts, "version", NULL, document, "version");
	facts_add_text(facts, "platform", NULL, machine, "platform");
	if (is_virtual)
		facts_add(facts, FACT_VALUE, PL_CHECK_NONE, "virtual", NULL,
			  json_object_get_boolean(is_virtual) ? "yes" : "no");
	read_topo_devices(facts, document, "gpus", "gpus");
	read_topo_devices(facts, document, "nics", "cards");
	read_topo_pairs(facts, document);
	read_topo_memory(facts, document);
	facts_sort(facts);
}
