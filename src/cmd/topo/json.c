/* SPDX-License-Identifier: BSD-2-Clause */
/* JSON output.  Ids are PCI addresses; an RDMA device without an address has its name as id. */
#include "cmd/topo/topo.h"

#include <string.h>

#define DOCUMENT_FORMAT 1
#define REASONS_MAX 16

static struct json_object *json_number_or_null(int64_t value)
{
	return value < 0 ? NULL : json_object_new_int64(value);
}

static struct json_object *json_hexadecimal(uint32_t value, int digits)
{
	char text[16];

	snprintf(text, sizeof(text), "%0*x", digits, value);
	return json_object_new_string(text);
}

static struct json_object *json_rate_or_null(uint64_t rate)
{
	return rate ? json_object_new_uint64(rate) : NULL;
}

static struct json_object *pci_link_json(struct pl_pci_link link)
{
	struct json_object *object;

	if (!link.speed)
		return NULL;
	object = json_object_new_object();
	cli_json_add(object, "speed_mts", json_object_new_int((int)link.speed));
	cli_json_add(object, "width", json_object_new_int((int)link.width));
	cli_json_add(object, "bytes_per_second", json_object_new_uint64(pl_pci_link_rate(link)));
	return object;
}

static struct json_object *card_id_json(const struct pl_topology *topology, const struct pl_card *card)
{
	return cli_json_text(card->node < 0 ? card->name : topology->nodes[card->node].address);
}

static struct json_object *pci_bars_json(const struct pl_pci_node *node)
{
	struct json_object *array = json_object_new_array();

	for (int i = 0; i < PL_PCI_BARS; i++) {
		const struct pl_pci_bar *bar = &node->bars[i];
		struct json_object *object, *sizes;

		if (!bar->size)
			continue;
		object = json_object_new_object();
		cli_json_add(object, "index", json_object_new_int(i));
		cli_json_add(object, "bytes", json_object_new_uint64(bar->size));
		cli_json_add(object, "prefetchable", json_object_new_boolean(bar->prefetchable));
		sizes = json_object_new_array();
		for (unsigned bit = 0; bit < 44; bit++)
			if (bar->sizes >> bit & 1)
				json_object_array_add(sizes, json_object_new_uint64((uint64_t)1 << (bit + 20)));
		cli_json_add(object, "resizable_to", sizes);
		json_object_array_add(array, object);
	}
	return array;
}

/* Adds the members that all PCI devices have. */
static void add_pci_members(struct json_object *object, const struct pl_topology *topology, int index)
{
	const struct pl_pci_node *node = &topology->nodes[index];

	cli_json_add(object, "vendor_id", json_hexadecimal(node->vendor, 4));
	cli_json_add(object, "device_id", json_hexadecimal(node->device, 4));
	cli_json_add(object, "class", json_hexadecimal(node->class, 6));
	cli_json_add(object, "numa_node", json_number_or_null(node->numa));
	cli_json_add(object, "driver", cli_json_text_or_null(node->driver));
	cli_json_add(object, "iommu_group", json_number_or_null(node->iommu_group));
	cli_json_add(object, "iommu_type", cli_json_text_or_null(node->iommu_type));
	cli_json_add(object, "link", pci_link_json(node->now));
	cli_json_add(object, "link_best", pci_link_json(node->best));
	cli_json_add(object, "degraded", json_object_new_boolean(pl_topology_degraded(topology, index)));
	cli_json_add(object, "idle", json_object_new_boolean(pl_topology_idle(topology, index)));
}

static struct json_object *gpu_links_json(const struct pl_topology *topology, size_t gpu)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < topology->link_count; i++) {
		const struct pl_gpu_link *link = &topology->links[i];
		struct json_object *object;

		if (link->gpu != (int)gpu)
			continue;
		object = json_object_new_object();
		cli_json_add(object, "kind",
			     json_object_new_string(link->kind == PL_GPU_LINK_XGMI ? "xgmi" : "nvlink"));
		cli_json_add(object, "generation",
			     json_number_or_null(link->generation ? (int64_t)link->generation : -1));
		cli_json_add(object, "to", json_object_new_string(pl_gpu_link_end_name(link->end)));
		cli_json_add(object, "remote", cli_json_text_or_null(link->remote));
		cli_json_add(object, "active", json_object_new_int64(link->active));
		cli_json_add(object, "down", json_object_new_int64(link->down));
		cli_json_add(object, "hops", json_object_new_int64(link->hops));
		cli_json_add(object, "bytes_per_second", json_rate_or_null(link->bandwidth));
		json_object_array_add(array, object);
	}
	return array;
}

static struct json_object *gpu_pair_json(const struct pl_topology *topology, size_t a, size_t b)
{
	struct json_object *object = json_object_new_object();
	struct pl_gpu_pair pair;
	const char *through = "pci";

	pl_topology_gpu_pair(topology, a, b, &pair);
	if (pair.linked)
		through = !pair.links ? "gpus" : pair.switched ? "switches" : "links";
	cli_json_add(object, "gpu", cli_json_text(topology->nodes[topology->gpus[a].node].address));
	cli_json_add(object, "peer", cli_json_text(topology->nodes[topology->gpus[b].node].address));
	cli_json_add(object, "class", json_object_new_string(pl_path_class_name(pair.class)));
	cli_json_add(object, "through", json_object_new_string(through));
	cli_json_add(object, "links", json_object_new_int64(pair.links));
	cli_json_add(object, "bytes_per_second", json_rate_or_null(pair.bandwidth));
	return object;
}

/* Each pair of GPUs once. */
static struct json_object *gpu_pairs_json(const struct pl_topology *topology)
{
	struct json_object *array = json_object_new_array();

	for (size_t a = 0; a < topology->gpu_count; a++)
		for (size_t b = a + 1; b < topology->gpu_count; b++)
			json_object_array_add(array, gpu_pair_json(topology, a, b));
	return array;
}

static struct json_object *topo_gpus_json(const struct topo_view *view)
{
	static const char *const vendors[] = { "nvidia", "amd", "intel", "other" };
	const struct pl_topology *topology = view->topology;
	struct json_object *array = json_object_new_array();
	char text[TOPO_TEXT];

	for (size_t i = 0; i < topology->gpu_count; i++) {
		const struct pl_gpu *gpu = &topology->gpus[i];
		struct json_object *object = json_object_new_object();

		cli_json_add(object, "id", cli_json_text(topology->nodes[gpu->node].address));
		cli_json_add(object, "index", json_object_new_int((int)i));
		cli_json_add(object, "vendor", json_object_new_string(vendors[gpu->vendor]));
		cli_json_add(object, "name", cli_json_text(topo_gpu_name(view, i, text)));
		add_pci_members(object, topology, gpu->node);
		cli_json_add(object, "bars", pci_bars_json(&topology->nodes[gpu->node]));
		cli_json_add(object, "links", gpu_links_json(topology, i));
		json_object_array_add(array, object);
	}
	return array;
}

static struct json_object *card_ports_json(const struct pl_card *card)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < card->port_count; i++) {
		const struct pl_rdma_port *port = &card->ports[i];
		struct json_object *object = json_object_new_object(), *gids = json_object_new_array();

		cli_json_add(object, "port", json_object_new_int((int)port->number));
		cli_json_add(object, "state", cli_json_text_or_null(port->state));
		cli_json_add(object, "physical_state", cli_json_text_or_null(port->physical));
		cli_json_add(object, "link_layer", cli_json_text_or_null(port->link_layer));
		cli_json_add(object, "bits_per_second", json_rate_or_null(port->rate));
		cli_json_add(object, "lid", json_number_or_null(port->lid));
		cli_json_add(object, "sm_lid", json_number_or_null(port->sm_lid));
		for (size_t j = 0; j < port->gid_count; j++) {
			struct json_object *gid = json_object_new_object();

			cli_json_add(gid, "index", json_object_new_int((int)port->gids[j].index));
			cli_json_add(gid, "gid", cli_json_text(port->gids[j].gid));
			cli_json_add(gid, "type", cli_json_text_or_null(port->gids[j].type));
			cli_json_add(gid, "net_device", cli_json_text_or_null(port->gids[j].netdev));
			json_object_array_add(gids, gid);
		}
		cli_json_add(object, "gids", gids);
		json_object_array_add(array, object);
	}
	return array;
}

static struct json_object *card_netdevs_json(const struct pl_card *card)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < card->netdev_count; i++) {
		const struct pl_netdev *device = &card->netdevs[i];
		struct json_object *object = json_object_new_object();

		cli_json_add(object, "name", cli_json_text(device->name));
		cli_json_add(object, "state", cli_json_text_or_null(device->state));
		cli_json_add(object, "mtu", device->mtu ? json_object_new_int64(device->mtu) : NULL);
		cli_json_add(object, "speed_mbps", json_number_or_null(device->speed > 0 ? device->speed : -1));
		json_object_array_add(array, object);
	}
	return array;
}

static struct json_object *topo_cards_json(const struct topo_view *view)
{
	const struct pl_topology *topology = view->topology;
	struct json_object *array = json_object_new_array();
	char text[TOPO_TEXT];

	for (size_t i = 0; i < topology->card_count; i++) {
		const struct pl_card *card = &topology->cards[i];
		const char *data_direct = pl_card_data_direct(topology, card);
		struct json_object *object = json_object_new_object();

		cli_json_add(object, "id", card_id_json(topology, card));
		cli_json_add(object, "rdma_device", cli_json_text_or_null(card->name));
		cli_json_add(object, "name", cli_json_text(topo_card_name(view, i, text)));
		cli_json_add(object, "software", json_object_new_boolean(card->software));
		cli_json_add(object, "firmware", cli_json_text_or_null(card->firmware));
		cli_json_add(object, "board", cli_json_text_or_null(card->board));
		cli_json_add(object, "data_direct", data_direct ? cli_json_text(data_direct) : NULL);
		if (card->node >= 0)
			add_pci_members(object, topology, card->node);
		cli_json_add(object, "ports", card_ports_json(card));
		cli_json_add(object, "net_devices", card_netdevs_json(card));
		json_object_array_add(array, object);
	}
	return array;
}

static struct json_object *topo_pairs_json(const struct pl_topology *topology)
{
	struct json_object *array = json_object_new_array();
	char reasons[REASONS_MAX][PL_REASON_MAX];

	for (size_t i = 0; i < topology->path_count; i++) {
		const struct pl_path *path = &topology->paths[i];
		struct json_object *object = json_object_new_object(), *texts = json_object_new_array();
		size_t count = pl_topology_reasons(topology, path, reasons, REASONS_MAX);

		cli_json_add(object, "gpu", cli_json_text(topology->nodes[topology->gpus[path->gpu].node].address));
		cli_json_add(object, "nic", card_id_json(topology, &topology->cards[path->card]));
		cli_json_add(object, "class", json_object_new_string(pl_path_class_name(path->class)));
		cli_json_add(object, "best", json_object_new_boolean(path->best));
		cli_json_add(object, "usable", json_object_new_boolean(path->usable));
		cli_json_add(object, "bottleneck_bytes_per_second", json_rate_or_null(path->bandwidth));
		cli_json_add(object, "possible_bytes_per_second", json_rate_or_null(path->possible));
		for (size_t j = 0; j < count; j++)
			json_object_array_add(texts, cli_json_text(reasons[j]));
		cli_json_add(object, "reasons", texts);
		json_object_array_add(array, object);
	}
	return array;
}

static struct json_object *node_acs_json(const struct pl_pci_node *node)
{
	struct json_object *object;

	if (!node->config.extended)
		return NULL;
	object = json_object_new_object();
	cli_json_add(object, "present", json_object_new_boolean(node->config.acs));
	cli_json_add(object, "control", json_hexadecimal(node->config.acs_control, 4));
	return object;
}

static struct json_object *pci_nodes_json(const struct pl_topology *topology)
{
	static const char *const kinds[] = { "host-bridge",     "root-port", "upstream-port",
					     "downstream-port", "bridge",    "endpoint" };
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < topology->node_count; i++) {
		const struct pl_pci_node *node = &topology->nodes[i];
		struct json_object *object = json_object_new_object();

		cli_json_add(object, "id", cli_json_text(node->address));
		cli_json_add(object, "kind", json_object_new_string(kinds[node->kind]));
		cli_json_add(object, "parent",
			     node->parent < 0 ? NULL : cli_json_text(topology->nodes[node->parent].address));
		add_pci_members(object, topology, (int)i);
		cli_json_add(object, "acs", node_acs_json(node));
		json_object_array_add(array, object);
	}
	return array;
}

static struct json_object *topo_drives_json(const struct pl_topology *topology)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < topology->drive_count; i++) {
		const struct pl_nvme *drive = &topology->drives[i];
		struct json_object *object = json_object_new_object();

		cli_json_add(object, "id", cli_json_text(topology->nodes[drive->node].address));
		cli_json_add(object, "device", cli_json_text_or_null(drive->name));
		cli_json_add(object, "model", cli_json_text_or_null(drive->model));
		add_pci_members(object, topology, drive->node);
		json_object_array_add(array, object);
	}
	return array;
}

static struct json_object *numa_nodes_json(const struct pl_topology *topology)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < topology->numa_count; i++) {
		const struct pl_numa_node *node = &topology->numa[i];
		struct json_object *object = json_object_new_object();

		cli_json_add(object, "id", json_object_new_int(node->id));
		cli_json_add(object, "socket", json_number_or_null(node->socket));
		cli_json_add(object, "cpus", cli_json_text_or_null(node->cpus));
		cli_json_add(object, "cpu", cli_json_text_or_null(node->cpu));
		cli_json_add(object, "memory_bytes", json_rate_or_null(node->memory));
		json_object_array_add(array, object);
	}
	return array;
}

struct json_object *topo_document(const struct topo_view *view)
{
	const struct pl_topology *topology = view->topology;
	struct json_object *object = json_object_new_object(), *machine = json_object_new_object();
	struct json_object *texts = json_object_new_array();
	char notes[TOPO_NOTES_MAX][PL_REASON_MAX];
	size_t count = topo_notes(view, notes, TOPO_NOTES_MAX);

	cli_json_add(object, "format", json_object_new_int(DOCUMENT_FORMAT));
	cli_json_add(object, "kind", cli_json_text("topo"));
	cli_json_add(object, "version", cli_json_text(pl_version()));
	cli_json_add(object, "host", cli_json_text_or_null(view->host));
	cli_json_add(machine, "platform", cli_json_text_or_null(topology->platform));
	cli_json_add(machine, "virtual", json_object_new_boolean(topology->is_virtual));
	cli_json_add(machine, "topology_file", cli_json_text_or_null(topology->file));
	cli_json_add(object, "machine", machine);
	cli_json_add(object, "gpus", topo_gpus_json(view));
	cli_json_add(object, "nics", topo_cards_json(view));
	cli_json_add(object, "pairs", topo_pairs_json(topology));
	cli_json_add(object, "gpu_pairs", gpu_pairs_json(topology));
	cli_json_add(object, "drives", topo_drives_json(topology));
	cli_json_add(object, "numa_nodes", numa_nodes_json(topology));
	cli_json_add(object, "pci", pci_nodes_json(topology));
	for (size_t i = 0; i < count; i++)
		json_object_array_add(texts, cli_json_text(notes[i]));
	cli_json_add(object, "notes", texts);
	if (view->judgement)
		cli_json_add(object, "judgement", view->judgement);
	return object;
}
