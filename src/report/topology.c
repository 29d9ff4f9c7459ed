/* SPDX-License-Identifier: BSD-2-Clause */
/* Topology of a machine, read from the JSON of `peerlane topo`, to draw it on another machine. */
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

#include "topology/build.h"

#define NODES_MAX 4096
#define LEVELS_MAX 64 /* far more than PCI has */
#define DRIVES_MAX 1024
#define PORTS_MAX 16
#define LINKS_OF_GPU_MAX 1024 /* far more than a GPU has */

/* Returns an element of an array, or NULL unless it is an object. */
static struct json_object *array_object(struct json_object *from, const char *name, size_t index)
{
	struct json_object *array = cli_json_member(from, name, json_type_array);
	struct json_object *object = array ? json_object_array_get_idx(array, index) : NULL;

	return json_object_is_type(object, json_type_object) ? object : NULL;
}

static size_t array_length(struct json_object *from, const char *name)
{
	struct json_object *array = cli_json_member(from, name, json_type_array);

	return array ? json_object_array_length(array) : 0;
}

static const char *member_text(struct json_object *from, const char *name)
{
	const char *value = cli_json_member_text(from, name);

	return value ? value : "";
}

/* Returns a number, or `absent` if it is absent, invalid or too large. */
static int64_t member_integer(struct json_object *from, const char *name, int64_t most, int64_t absent)
{
	double value;

	return report_number(from, name, &value) == 0 && value <= (double)most ? (int64_t)value : absent;
}

static bool member_flag(struct json_object *from, const char *name)
{
	struct json_object *value = cli_json_member(from, name, json_type_boolean);

	return value && json_object_get_boolean(value);
}

static struct pl_pci_link read_pci_link(struct json_object *from, const char *name)
{
	struct json_object *link = cli_json_member(from, name, json_type_object);

	return (struct pl_pci_link){
		.speed = (uint32_t)member_integer(link, "speed_mts", 1000000, 0),
		.width = topology_link_width((uint64_t)member_integer(link, "width", 32, 0)),
	};
}

static enum pl_pci_kind read_pci_kind(struct json_object *from)
{
	static const char *const kinds[] = { "host-bridge",     "root-port", "upstream-port",
					     "downstream-port", "bridge",    "endpoint" };

	for (size_t i = 0; i < CLI_ARRAY_SIZE(kinds); i++)
		if (!strcmp(member_text(from, "kind"), kinds[i]))
			return (enum pl_pci_kind)i;
	return PL_PCI_ENDPOINT;
}

static unsigned node_depth(const struct pl_topology *topology, int node)
{
	unsigned level = 0;

	for (; node >= 0 && level <= LEVELS_MAX; node = topology->nodes[node].parent)
		level++;
	return level;
}

static int add_pci_nodes(struct pl_topology *topology, struct json_object *from)
{
	if (array_length(from, "pci") > NODES_MAX)
		return -E2BIG;
	for (size_t i = 0; i < array_length(from, "pci"); i++) {
		struct json_object *object = array_object(from, "pci", i);
		int parent = pl_topology_find(topology, member_text(object, "parent")), index;
		struct pl_pci_node *node;

		/* An identifier is unique, and follows that of its parent. */
		if (!*member_text(object, "id") || pl_topology_find(topology, member_text(object, "id")) >= 0 ||
		    (*member_text(object, "parent") && parent < 0) || node_depth(topology, parent) > LEVELS_MAX)
			return -EPROTO;
		index = topology_node_add(topology, member_text(object, "id"), read_pci_kind(object), parent);
		if (index < 0)
			return index;
		node = &topology->nodes[index];
		node->numa = (int)member_integer(object, "numa_node", TOPOLOGY_NUMA_MAX, -1);
		node->now = read_pci_link(object, "link");
		node->best = read_pci_link(object, "link_best");
		node->vendor = (uint16_t)strtoul(member_text(object, "vendor_id"), NULL, 16);
		node->class = (uint32_t)strtoul(member_text(object, "class"), NULL, 16) & 0xffffff;
		TOPOLOGY_COPY(node->driver, member_text(object, "driver"));
	}
	return 0;
}

static int add_report_gpus(struct pl_topology *topology, struct json_object *from)
{
	static const char *const vendors[] = { "nvidia", "amd", "intel" };

	for (size_t i = 0; i < array_length(from, "gpus"); i++) {
		struct json_object *object = array_object(from, "gpus", i);
		int node = pl_topology_find(topology, member_text(object, "id")), index;
		size_t vendor = 0;

		while (vendor < CLI_ARRAY_SIZE(vendors) && strcmp(member_text(object, "vendor"), vendors[vendor]))
			vendor++;
		index = node < 0 ? -EPROTO : topology_gpu_add(topology, node, (enum pl_gpu_vendor)vendor);
		if (index < 0)
			return index;
		TOPOLOGY_COPY(topology->gpus[index].model, member_text(object, "name"));
	}
	return 0;
}

static int add_links_of_gpu(struct pl_topology *topology, int gpu, struct json_object *from)
{
	for (size_t i = 0; i < array_length(from, "links"); i++) {
		struct json_object *object = array_object(from, "links", i);
		struct pl_gpu_link link = { .gpu = gpu, .peer = -1 };
		int rc;

		link.end = pl_gpu_link_end_parse(member_text(object, "to"));
		link.kind = strcmp(member_text(object, "kind"), "xgmi") ? PL_GPU_LINK_NVLINK : PL_GPU_LINK_XGMI;
		TOPOLOGY_COPY(link.remote, member_text(object, "remote"));
		link.generation = (unsigned)member_integer(object, "generation", 100, 0);
		link.hops = (unsigned)member_integer(object, "hops", 255, 1);
		link.active = link.hops > 1 ? 0 : (unsigned)member_integer(object, "active", LINKS_OF_GPU_MAX, 0);
		link.down = (unsigned)member_integer(object, "down", LINKS_OF_GPU_MAX, 0);
		link.bandwidth = (uint64_t)member_integer(object, "bytes_per_second", INT64_MAX / 8192, 0);
		rc = topology_link_add(topology, &link);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int add_report_links(struct pl_topology *topology, struct json_object *from)
{
	int rc = 0;

	for (size_t i = 0; i < topology->gpu_count && rc == 0; i++)
		rc = add_links_of_gpu(topology, (int)i, array_object(from, "gpus", i));
	topology_links_resolve(topology);
	return rc;
}

static int add_card_ports(struct pl_card *card, struct json_object *from)
{
	for (size_t i = 0; i < array_length(from, "ports"); i++) {
		struct json_object *object = array_object(from, "ports", i);
		int index = TOPOLOGY_ADD(card->ports, card->port_count, PORTS_MAX);

		if (index < 0)
			return index;
		card->ports[index].number = (unsigned)member_integer(object, "port", 255, 0);
		card->ports[index].rate = (uint64_t)member_integer(object, "bits_per_second", INT64_MAX / 2, 0);
		TOPOLOGY_COPY(card->ports[index].state, member_text(object, "state"));
		TOPOLOGY_COPY(card->ports[index].link_layer, member_text(object, "link_layer"));
	}
	for (size_t i = 0; i < array_length(from, "net_devices"); i++) {
		int index = TOPOLOGY_ADD(card->netdevs, card->netdev_count, PORTS_MAX);

		if (index < 0)
			return index;
		TOPOLOGY_COPY(card->netdevs[index].name, member_text(array_object(from, "net_devices", i), "name"));
	}
	return 0;
}

static int add_report_cards(struct pl_topology *topology, struct json_object *from)
{
	for (size_t i = 0; i < array_length(from, "nics"); i++) {
		struct json_object *object = array_object(from, "nics", i);
		int node = pl_topology_find(topology, member_text(object, "id"));
		int index = topology_card_add(topology, node, member_text(object, "rdma_device")), rc;

		if (index < 0)
			return index;
		/* The name comes from that machine's database, so it is not looked up here. */
		TOPOLOGY_COPY(topology->cards[index].type, member_text(object, "name"));
		TOPOLOGY_COPY(topology->cards[index].firmware, member_text(object, "firmware"));
		topology->cards[index].software = member_flag(object, "software");
		topology->cards[index].data_direct = pl_topology_find(topology, member_text(object, "data_direct"));
		rc = add_card_ports(&topology->cards[index], object);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int add_drives_and_numa(struct pl_topology *topology, struct json_object *from)
{
	struct json_object *machine = cli_json_member(from, "machine", json_type_object);
	int index;

	for (size_t i = 0; i < array_length(from, "drives"); i++) {
		struct json_object *object = array_object(from, "drives", i);

		index = TOPOLOGY_ADD(topology->drives, topology->drive_count, DRIVES_MAX);
		if (index < 0)
			return index;
		topology->drives[index].node = pl_topology_find(topology, member_text(object, "id"));
		if (topology->drives[index].node < 0)
			return -EPROTO;
		TOPOLOGY_COPY(topology->drives[index].name, member_text(object, "device"));
		TOPOLOGY_COPY(topology->drives[index].model, member_text(object, "model"));
	}
	for (size_t i = 0; i < array_length(from, "numa_nodes"); i++) {
		struct json_object *object = array_object(from, "numa_nodes", i);

		index = TOPOLOGY_ADD(topology->numa, topology->numa_count, TOPOLOGY_NUMA_MAX);
		if (index < 0)
			return index;
		topology->numa[index].id = (int)member_integer(object, "id", TOPOLOGY_NUMA_MAX, (int64_t)i);
		topology->numa[index].socket = (int)member_integer(object, "socket", TOPOLOGY_NUMA_MAX, -1);
		TOPOLOGY_COPY(topology->numa[index].cpus, member_text(object, "cpus"));
		TOPOLOGY_COPY(topology->numa[index].cpu, member_text(object, "cpu"));
	}
	TOPOLOGY_COPY(topology->platform, member_text(machine, "platform"));
	TOPOLOGY_COPY(topology->file, member_text(machine, "topology_file"));
	topology->is_virtual = member_flag(machine, "virtual");
	return 0;
}

static int find_report_card(const struct pl_topology *topology, const char *id)
{
	for (size_t i = 0; i < topology->card_count; i++) {
		const struct pl_card *card = &topology->cards[i];

		if (!strcmp(card->node < 0 ? card->name : topology->nodes[card->node].address, id))
			return (int)i;
	}
	return -1;
}

static int find_report_gpu(const struct pl_topology *topology, const char *id)
{
	for (size_t i = 0; i < topology->gpu_count; i++)
		if (!strcmp(topology->nodes[topology->gpus[i].node].address, id))
			return (int)i;
	return -1;
}

static int add_gpu_paths(struct pl_topology *topology, struct json_object *from)
{
	size_t count = topology->gpu_count * topology->card_count;

	if (!count)
		return 0;
	topology->paths = calloc(count, sizeof(*topology->paths));
	if (!topology->paths)
		return -ENOMEM;
	topology->path_count = count;
	for (size_t i = 0; i < count; i++)
		topology->paths[i] = (struct pl_path){ .gpu = (int)(i / topology->card_count),
						       .card = (int)(i % topology->card_count),
						       .class = PL_PATH_SYS,
						       .narrowest = -1 };
	for (size_t i = 0; i < CLI_MIN(array_length(from, "pairs"), count); i++) {
		struct json_object *object = array_object(from, "pairs", i);
		int gpu = find_report_gpu(topology, member_text(object, "gpu")),
		    card = find_report_card(topology, member_text(object, "nic"));
		struct pl_path *path;

		if (gpu < 0 || card < 0)
			return -EPROTO;
		path = &topology->paths[(size_t)gpu * topology->card_count + (size_t)card];
		for (int class = PL_PATH_PIX; class < PL_PATH_SYS; class ++)
			if (!strcmp(member_text(object, "class"), pl_path_class_name((enum pl_path_class) class)))
				path->class = (enum pl_path_class) class;
		path->best = member_flag(object, "best");
		path->usable = member_flag(object, "usable");
		path->bandwidth = (uint64_t)member_integer(object, "bottleneck_bytes_per_second", INT64_MAX / 2, 0);
	}
	return 0;
}

int report_read_topology(struct pl_topology **result, struct json_object *from, const char *path,
			 struct pl_error *error)
{
	struct pl_topology *topology = calloc(1, sizeof(*topology));
	int rc = topology ? add_pci_nodes(topology, from) : -ENOMEM;

	if (rc == 0)
		rc = add_report_gpus(topology, from);
	if (rc == 0)
		rc = add_report_links(topology, from);
	if (rc == 0)
		rc = add_report_cards(topology, from);
	if (rc == 0)
		rc = add_drives_and_numa(topology, from);
	if (rc == 0)
		rc = add_gpu_paths(topology, from);
	if (rc == 0) {
		*result = topology;
		return 0;
	}
	pl_topology_free(topology);
	if (rc == -ENOMEM)
		return report_fail_memory(error);
	return report_fail_content(error, path, "\"topology\" is not what peerlane topo --json prints%s",
				   rc == -E2BIG ? ": it is too large" : "");
}
