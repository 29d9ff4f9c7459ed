/* SPDX-License-Identifier: BSD-2-Clause */
/* A topology file tells the positions of devices; the machine itself tells their properties. */
#include "topology/build.h"

#include <stdlib.h>

bool topology_has_owner(const struct pl_topology *topology, int node)
{
	for (size_t i = 0; i < topology->gpu_count; i++)
		if (topology->gpus[i].node == node)
			return true;
	for (size_t i = 0; i < topology->card_count; i++)
		if (topology->cards[i].node == node)
			return true;
	return false;
}

/* Reads the machine's device with this address, if it is of the same kind. */
static bool merge(struct pl_pci_node *node, struct pl_sysroot *root)
{
	struct pl_pci_node here = { .numa = -1, .iommu_group = -1 };

	memcpy(here.address, node->address, sizeof(here.address));
	topology_node_read(&here, root);
	if (!here.class || (node->class && here.class >> 16 != node->class >> 16))
		return false;
	topology_node_merge(node, &here);
	return true;
}

/* Adds a GPU or a card for a device that the file names without details. */
static int add_owner(struct pl_topology *topology, int index)
{
	const struct pl_pci_node *node = &topology->nodes[index];
	enum pl_gpu_vendor vendor = PL_GPU_OTHER;
	uint32_t base = node->class >> 16;
	int rc = 0;

	if (base == 0x03 || base == 0x12) {
		topology_is_gpu(node, &vendor);
		rc = topology_gpu_add(topology, index, vendor);
	} else if (base == 0x02) {
		rc = topology_card_add(topology, index, "");
		if (rc >= 0)
			topology->cards[rc].described = true;
	}
	return rc;
}

/* Keeps only RDMA devices of the file's networks; those have a GUID. */
static void drop_plain(struct pl_topology *topology)
{
	size_t kept = 0;

	for (size_t i = 0; i < topology->card_count; i++) {
		struct pl_card *card = &topology->cards[i];

		if (card->described && !card->name[0] && card->netdev_count)
			free(card->netdevs);
		else
			topology->cards[kept++] = *card;
	}
	topology->card_count = kept;
}

/* Counts GPUs and cards of the machine that the file lacks. */
static size_t count_absent(const struct pl_topology *topology, struct pl_sysroot *root)
{
	struct pl_sysroot_list list;
	enum pl_gpu_vendor vendor;
	size_t count = 0;

	if (pl_sysroot_list(root, &list, "sys/bus/pci/devices") < 0)
		return 0;
	for (size_t i = 0; i < list.count; i++) {
		struct pl_pci_node node = { .numa = -1 };

		if (!topology_is_pci_address(list.names[i], strlen(list.names[i])) ||
		    !topology_is_of_interest(root, list.names[i]) || pl_topology_find(topology, list.names[i]) >= 0)
			continue;
		TOPOLOGY_COPY(node.address, list.names[i]);
		topology_node_read(&node, root);
		count += topology_is_gpu(&node, &vendor) || (topology_is_rdma_card(&node) && !node.virtual_function);
	}
	pl_sysroot_list_free(&list);
	return count;
}

int topology_complete_file(struct pl_topology *topology, struct pl_sysroot *root)
{
	size_t here = 0, devices = 0;

	for (size_t i = 0; i < topology->node_count; i++) {
		if (topology->nodes[i].kind != PL_PCI_ENDPOINT)
			continue;
		devices++;
		here += merge(&topology->nodes[i], root);
		if (!topology_has_owner(topology, (int)i) && add_owner(topology, (int)i) == -ENOMEM)
			return -ENOMEM;
		topology->file_vague += !topology->nodes[i].class && !topology_has_owner(topology, (int)i);
	}
	drop_plain(topology);
	topology_links_resolve(topology);
	topology->file_foreign = devices && !here;
	/* Nothing of this machine remains but its name. */
	if (topology->file_foreign) {
		topology->is_virtual = false;
		topology->platform[0] = '\0';
	}
	if (!topology->file_foreign)
		topology->file_absent = count_absent(topology, root);
	return 0;
}
