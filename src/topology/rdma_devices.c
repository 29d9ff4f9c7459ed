/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA devices, from their class in sysfs. */
#include "topology/build.h"

#include <stdlib.h>

static void read_device_text(struct pl_sysroot *root, char *to, size_t size, const char *device, const char *file)
{
	char text[256];

	if (pl_sysroot_text(root, text, sizeof(text), "sys/class/infiniband/%s/%s", device, file) > 0)
		pl_copy_printable(to, size, text);
}

/*
 * Finds a device's position in the PCI tree; a software device is at the network device below it. Some kernels put
 * soft-RoCE and soft-iWARP below that device; only those have a parent.
 */
static int find_node(struct pl_topology *topology, struct pl_sysroot *root, const char *device, bool *software)
{
	char path[PL_SYSROOT_PATH_MAX], parent[64];

	*software = !strncmp(device, "siw", 3) || pl_sysroot_exists(root, "sys/class/infiniband/%s/parent", device);
	if (pl_sysroot_resolve(root, path, sizeof(path), "sys/class/infiniband/%s/device", device) == 0)
		return topology_node_chain(topology, root, path);
	*software = true;
	if (pl_sysroot_text(root, parent, sizeof(parent), "sys/class/infiniband/%s/parent", device) > 0 &&
	    !strchr(parent, '/') &&
	    pl_sysroot_resolve(root, path, sizeof(path), "sys/class/net/%s/device", parent) == 0)
		return topology_node_chain(topology, root, path);
	return -ENOENT;
}

/* Finds the node for user space, /dev/infiniband/uverbsN. */
static void find_uverbs(struct pl_sysroot *root, const struct pl_sysroot_list *list, struct pl_card *card)
{
	char device[64];

	for (size_t i = 0; i < list->count; i++)
		if (pl_sysroot_text(root, device, sizeof(device), "sys/class/infiniband_verbs/%s/ibdev",
				    list->names[i]) > 0 &&
		    !strcmp(device, card->name))
			TOPOLOGY_COPY(card->uverbs, list->names[i]);
}

/* Finds the card of a topology file at that node; facts of this machine win over the file. */
static int find_described(struct pl_topology *topology, int node)
{
	for (size_t i = 0; i < topology->card_count && node >= 0; i++) {
		struct pl_card *card = &topology->cards[i];

		if (card->node != node || !card->described)
			continue;
		free(card->ports);
		free(card->netdevs);
		*card = (struct pl_card){ .node = node, .data_direct = -1 };
		return (int)i;
	}
	return -1;
}

static int read_card(struct pl_topology *topology, struct pl_sysroot *root, const struct pl_sysroot_list *uverbs,
		     const char *name)
{
	char parent[16] = "";
	bool software;
	int node = find_node(topology, root, name, &software), index, rc;
	struct pl_card *card;

	if (node < 0 && node != -ENOENT)
		return node;
	index = find_described(topology, node);
	if (index < 0)
		index = topology_card_add(topology, PL_MAX(node, -1), name);
	if (index < 0)
		return index;
	card = &topology->cards[index];
	TOPOLOGY_COPY(card->name, name);
	card->software = software;
	read_device_text(root, card->type, sizeof(card->type), name, "hca_type");
	read_device_text(root, card->firmware, sizeof(card->firmware), name, "fw_ver");
	read_device_text(root, card->board, sizeof(card->board), name, "board_id");
	read_device_text(root, card->guid, sizeof(card->guid), name, "node_guid");
	find_uverbs(root, uverbs, card);
	rc = topology_read_ports(card, root);
	read_device_text(root, parent, sizeof(parent), name, "parent");
	if (rc == 0 && parent[0]) {
		rc = topology_netdev_add(card, root, parent);
	} else if (rc == 0 && node >= 0) {
		rc = topology_read_netdevs(card, root, topology->nodes[node].address);
	}
	topology_name_ports(card);
	return PL_MIN(rc, 0);
}

static struct pl_card *find_rdma_device(struct pl_topology *topology, const char *name)
{
	for (size_t i = 0; *name && i < topology->card_count; i++)
		if (!strcmp(topology->cards[i].name, name))
			return &topology->cards[i];
	return NULL;
}

/* True if a node can be a Data Direct function, or stand above one that a topology file lacks. */
static bool may_be_data_direct(const struct pl_topology *topology, int node)
{
	return topology->nodes[node].kind != PL_PCI_HOST_BRIDGE && !topology_has_owner(topology, node);
}

/* Returns the last component of a path. */
static const char *last_component(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

int pl_topology_set_data_direct(struct pl_topology *topology, struct pl_sysroot *root, const char *name,
				const char *path)
{
	struct pl_card *card = find_rdma_device(topology, name);
	const size_t known = topology->node_count;
	struct pl_card before;
	int node, rc;

	if (!card || card->software)
		return 0;
	node = topology_node_chain(topology, root, path);
	topology_nodes_finish(topology, known);
	if (node < 0)
		return node == -ENOMEM ? node : 0;
	if (!may_be_data_direct(topology, node))
		return 0;
	before = *card;
	card->data_direct = node;
	card->data_direct_below = strcmp(last_component(path), topology->nodes[node].address) != 0;
	rc = topology_make_paths(topology);
	if (rc < 0)
		*card = before;
	return rc;
}

static int compare_device_names(const void *a, const void *b)
{
	return strverscmp(*(char *const *)a, *(char *const *)b);
}

int topology_read_cards(struct pl_topology *topology, struct pl_sysroot *root)
{
	struct pl_sysroot_list list, uverbs;
	int rc = 0;

	if (pl_sysroot_list(root, &list, "sys/class/infiniband") < 0)
		return 0;
	pl_sysroot_list(root, &uverbs, "sys/class/infiniband_verbs");
	/* mlx5_2 comes before mlx5_10. */
	if (list.count)
		qsort(list.names, list.count, sizeof(*list.names), compare_device_names);
	for (size_t i = 0; i < list.count && rc != -ENOMEM; i++)
		rc = read_card(topology, root, &uverbs, list.names[i]);
	pl_sysroot_list_free(&uverbs);
	pl_sysroot_list_free(&list);
	return rc == -ENOMEM ? rc : 0;
}
