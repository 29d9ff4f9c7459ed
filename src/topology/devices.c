/* SPDX-License-Identifier: BSD-2-Clause */
/* GPUs, drives, and cards without an RDMA device, by PCI class and vendor. */
#include "topology/build.h"

#include <stdio.h>

#define CLASS_NETWORK 0x02
#define CLASS_DISPLAY 0x03
#define CLASS_ACCELERATOR 0x12
/* Device number of ConnectX-8's Data Direct function. */
#define DATA_DIRECT_FUNCTION 0x2100

bool topology_is_gpu(const struct pl_pci_node *node, enum pl_gpu_vendor *vendor)
{
	uint32_t base = node->class >> 16;

	if (node->virtual_function || (base != CLASS_DISPLAY && base != CLASS_ACCELERATOR))
		return false;
	switch (node->vendor) {
	case PL_PCI_VENDOR_NVIDIA:
		*vendor = PL_GPU_NVIDIA;
		return true;
	case PL_PCI_VENDOR_AMD:
		*vendor = PL_GPU_AMD;
		return true;
	case PL_PCI_VENDOR_INTEL:
		*vendor = PL_GPU_INTEL;
		/* Usual address of the GPU within the processor. */
		return strcmp(node->address, "0000:00:02.0") != 0;
	default:
		*vendor = PL_GPU_OTHER;
		return base == CLASS_ACCELERATOR;
	}
}

const char *pl_pci_rdma_driver(uint16_t vendor, uint16_t device)
{
	static const struct {
		uint16_t vendor, from, to;
		const char *driver;
	} numbers[] = {
		{ PL_PCI_VENDOR_MELLANOX, 0x1002, 0x1010, "mlx4_core" },
		{ PL_PCI_VENDOR_MELLANOX, 0x6340, 0x6778, "mlx4_core" },
		{ PL_PCI_VENDOR_MELLANOX, 0x1011, 0x10ff, "mlx5_core" },
		{ PL_PCI_VENDOR_MELLANOX, 0xa2d0, 0xa2df, "mlx5_core" },
		{ PL_PCI_VENDOR_AMAZON, 0xefa0, 0xefaf, "efa" },
		{ PL_PCI_VENDOR_BROADCOM, 0x16c0, 0x16ff, "bnxt_en" },
		{ PL_PCI_VENDOR_BROADCOM, 0x1750, 0x1769, "bnxt_en" },
		{ PL_PCI_VENDOR_INTEL, 0x1591, 0x159b, "ice" },
		{ PL_PCI_VENDOR_INTEL, 0x579c, 0x579f, "ice" },
		{ PL_PCI_VENDOR_PENSANDO, 0x1002, 0x1003, "ionic" },
		{ PL_PCI_VENDOR_MICROSOFT, 0x00b9, 0x00bb, "mana" },
	};

	for (size_t i = 0; i < PL_ARRAY_SIZE(numbers); i++)
		if (vendor == numbers[i].vendor && device >= numbers[i].from && device <= numbers[i].to)
			return numbers[i].driver;
	return NULL;
}

const struct pl_pci_bar *pl_pci_nvidia_bar1(const struct pl_pci_node *node)
{
	/* From Hopper on the registers in BAR 0 have a 64-bit address, which occupies two BARs. */
	return &node->bars[node->bars[0].is64 ? 2 : 1];
}

bool topology_is_rdma_card(const struct pl_pci_node *node)
{
	uint32_t class = node->class >> 8;

	/* Belongs to a card, and has no RDMA device of its own. */
	if (node->vendor == PL_PCI_VENDOR_MELLANOX && node->device == DATA_DIRECT_FUNCTION)
		return false;
	if (class == PCI_CLASS_INFINIBAND)
		return true;
	if (class >> 8 != CLASS_NETWORK)
		return false;
	if (node->vendor == PL_PCI_VENDOR_MELLANOX)
		return class == PCI_CLASS_ETHERNET || pl_pci_rdma_driver(node->vendor, node->device);
	/* Cards of other vendors that work as plain Ethernet cards are not RDMA cards. */
	return pl_pci_rdma_driver(node->vendor, node->device) &&
	       (node->vendor == PL_PCI_VENDOR_AMAZON || !node->driver[0]);
}

int topology_gpu_add(struct pl_topology *topology, int node, enum pl_gpu_vendor vendor)
{
	int index = TOPOLOGY_ADD(topology->gpus, topology->gpu_count, TOPOLOGY_GPUS_MAX);

	if (index < 0)
		return index;
	topology->gpus[index].node = node;
	topology->gpus[index].vendor = vendor;
	return index;
}

int topology_card_add(struct pl_topology *topology, int node, const char *name)
{
	int index = TOPOLOGY_ADD(topology->cards, topology->card_count, TOPOLOGY_CARDS_MAX);

	if (index < 0)
		return index;
	topology->cards[index].node = node;
	topology->cards[index].data_direct = -1;
	TOPOLOGY_COPY(topology->cards[index].name, name);
	return index;
}

/* Copies the name that the driver of an NVIDIA GPU reports. */
static void name_topology_gpu(struct pl_topology *topology, struct pl_sysroot *root, struct pl_gpu *gpu)
{
	char text[2048], *model;

	if (gpu->vendor != PL_GPU_NVIDIA || gpu->model[0] ||
	    pl_sysroot_text(root, text, sizeof(text), "proc/driver/nvidia/gpus/%s/information",
			    topology->nodes[gpu->node].address) <= 0)
		return;
	model = strstr(text, "Model:");
	if (!model)
		return;
	model += strlen("Model:");
	model += strspn(model, " \t");
	model[strcspn(model, "\n")] = '\0';
	TOPOLOGY_COPY(gpu->model, model);
}

int topology_read_names(struct pl_topology *topology, struct pl_sysroot *root)
{
	for (size_t i = 0; i < topology->gpu_count; i++)
		name_topology_gpu(topology, root, &topology->gpus[i]);
	return 0;
}

static int add_drive(struct pl_topology *topology, struct pl_sysroot *root, int node)
{
	int index = TOPOLOGY_ADD(topology->drives, topology->drive_count, TOPOLOGY_CARDS_MAX);
	struct pl_nvme *drive;
	struct pl_sysroot_list list;

	if (index < 0)
		return index;
	drive = &topology->drives[index];
	drive->node = node;
	if (pl_sysroot_list(root, &list, "sys/bus/pci/devices/%s/nvme", topology->nodes[node].address) == 0 &&
	    list.count) {
		TOPOLOGY_COPY(drive->name, list.names[0]);
		pl_sysroot_text(root, drive->model, sizeof(drive->model), "sys/bus/pci/devices/%s/nvme/%s/model",
				topology->nodes[node].address, list.names[0]);
	}
	pl_sysroot_list_free(&list);
	return 0;
}

static bool has_card(const struct pl_topology *topology, int node)
{
	for (size_t i = 0; i < topology->card_count; i++)
		if (topology->cards[i].node == node)
			return true;
	return false;
}

/* Only relevant functions get a node: a large machine has hundreds of others. */
bool topology_is_of_interest(struct pl_sysroot *root, const char *address)
{
	uint64_t class, vendor, device;

	if (pl_sysroot_number(root, 10, &class, "sys/bus/pci/devices/%s/class", address) < 0)
		return false;
	if (class >> 8 == PCI_CLASS_NVME || class >> 8 == PCI_CLASS_INFINIBAND || class >> 16 == CLASS_DISPLAY ||
	    class >> 16 == CLASS_ACCELERATOR)
		return true;
	return class >> 16 == CLASS_NETWORK &&
	       pl_sysroot_number(root, 10, &vendor, "sys/bus/pci/devices/%s/vendor", address) == 0 &&
	       pl_sysroot_number(root, 10, &device, "sys/bus/pci/devices/%s/device", address) == 0 &&
	       (vendor == PL_PCI_VENDOR_MELLANOX || (vendor <= UINT16_MAX && device <= UINT16_MAX &&
						     pl_pci_rdma_driver((uint16_t)vendor, (uint16_t)device)));
}

static int add_topology_device(struct pl_topology *topology, struct pl_sysroot *root, const char *address)
{
	char path[PL_SYSROOT_PATH_MAX], bridge[PL_PCI_ADDRESS_MAX + 8];
	enum pl_gpu_vendor vendor;
	int node;

	if (pl_sysroot_resolve(root, path, sizeof(path), "sys/bus/pci/devices/%s", address) < 0)
		return 0;
	if (!strncmp(path, "sys/bus/", 8)) {
		/* Without the link only the domain of its position is known. */
		snprintf(bridge, sizeof(bridge), "pci%.*s:00", (int)strcspn(address, ":"), address);
		snprintf(path, sizeof(path), "%s/%s", bridge, address);
	}
	node = topology_node_chain(topology, root, path);
	if (node < 0)
		return node;
	if (topology_is_gpu(&topology->nodes[node], &vendor))
		node = topology_gpu_add(topology, node, vendor);
	else if (topology->nodes[node].class >> 8 == PCI_CLASS_NVME)
		node = add_drive(topology, root, node);
	else if (topology_is_rdma_card(&topology->nodes[node]) && !topology->nodes[node].virtual_function &&
		 !has_card(topology, node))
		node = topology_card_add(topology, node, "");
	return PL_MIN(node, 0);
}

int topology_read_devices(struct pl_topology *topology, struct pl_sysroot *root)
{
	struct pl_sysroot_list list;
	int rc = 0;

	if (pl_sysroot_list(root, &list, "sys/bus/pci/devices") < 0)
		return 0;
	for (size_t i = 0; i < list.count && rc != -ENOMEM; i++)
		if (topology_is_pci_address(list.names[i], strlen(list.names[i])) &&
		    topology_is_of_interest(root, list.names[i]))
			rc = add_topology_device(topology, root, list.names[i]);
	pl_sysroot_list_free(&list);
	return rc == -ENOMEM ? rc : 0;
}
