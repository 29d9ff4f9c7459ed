/* SPDX-License-Identifier: BSD-2-Clause */
/* PCI tree, from the paths of devices in sysfs. */
#include "topology/build.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int topology_add(void **array, size_t *count, size_t size, size_t limit)
{
	void *larger = *array;

	if (*count >= limit)
		return -E2BIG;
	/* The capacity is a power of two: at one the array is full. */
	if (!(*count & (*count - 1)))
		larger = reallocarray(*array, *count ? *count * 2 : 1, size);
	if (!larger)
		return -ENOMEM;
	*array = larger;
	memset((char *)larger + *count * size, 0, size);
	return (int)(*count)++;
}

static bool hexadecimal(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (!isdigit((unsigned char)text[i]) && !(text[i] >= 'a' && text[i] <= 'f'))
			return false;
	return length > 0;
}

/* Parses from the end: ":bb:dd.f" has a fixed length, the domain has not. */
bool topology_is_pci_address(const char *text, size_t length)
{
	const char *tail = text + length - 8;

	return length >= 12 && length <= 16 && hexadecimal(text, length - 8) && tail[0] == ':' &&
	       hexadecimal(tail + 1, 2) && tail[3] == ':' && hexadecimal(tail + 4, 2) && tail[6] == '.' &&
	       tail[7] >= '0' && tail[7] <= '7';
}

/* "pci0000:3a" */
static bool is_host_bridge(const char *text, size_t length)
{
	return length >= 10 && length <= 14 && !strncmp(text, "pci", 3) && hexadecimal(text + 3, length - 6) &&
	       text[length - 3] == ':' && hexadecimal(text + length - 2, 2);
}

int pl_topology_find(const struct pl_topology *topology, const char *address)
{
	for (size_t i = 0; *address && i < topology->node_count; i++)
		if (!strcmp(topology->nodes[i].address, address))
			return (int)i;
	return -1;
}

/* Sorts children by address, in whatever order they are found. */
static void link_child(struct pl_topology *topology, int node)
{
	struct pl_pci_node *nodes = topology->nodes;
	int *at = &nodes[nodes[node].parent].child;

	while (*at >= 0 && strcmp(nodes[*at].address, nodes[node].address) < 0)
		at = &nodes[*at].next;
	nodes[node].next = *at;
	*at = node;
}

int topology_node_add(struct pl_topology *topology, const char *address, enum pl_pci_kind kind, int parent)
{
	int index = TOPOLOGY_ADD(topology->nodes, topology->node_count, TOPOLOGY_NODES_MAX);
	struct pl_pci_node *node;

	if (index < 0)
		return index;
	node = &topology->nodes[index];
	TOPOLOGY_COPY(node->address, address);
	node->kind = kind;
	node->parent = parent;
	node->child = node->next = node->numa = node->iommu_group = -1;
	if (parent >= 0)
		link_child(topology, index);
	return index;
}

/* Returns the node of one component of a path; creates it if the tree is that of sysfs. */
static int chain_node(struct pl_topology *topology, struct pl_sysroot *root, const char *address, bool device,
		      int parent)
{
	int node = pl_topology_find(topology, address);

	if (node >= 0 || topology->file[0])
		return node < 0 ? parent : node;
	node = topology_node_add(topology, address, device ? PL_PCI_ENDPOINT : PL_PCI_HOST_BRIDGE, parent);
	if (node >= 0 && device)
		topology_node_read(&topology->nodes[node], root);
	return node;
}

int topology_node_chain(struct pl_topology *topology, struct pl_sysroot *root, const char *path)
{
	int parent = -1;

	for (const char *at = path; *(at += strspn(at, "/"));) {
		size_t length = strcspn(at, "/");
		bool device = topology_is_pci_address(at, length);
		char address[PL_PCI_ADDRESS_MAX];

		if (device || is_host_bridge(at, length)) {
			memcpy(address, at, length);
			address[length] = '\0';
			parent = chain_node(topology, root, address, device, parent);
			if (parent < -1)
				return parent;
		}
		at += length;
	}
	return parent < 0 ? -ENOENT : parent;
}

uint32_t topology_link_speed(const char *text)
{
	uint32_t speed = 0, unit = 1000;

	for (; isdigit((unsigned char)*text) && speed < 1000; text++)
		speed = speed * 10 + (uint32_t)(*text - '0');
	speed *= unit;
	if (*text == '.')
		for (text++; isdigit((unsigned char)*text) && unit; text++)
			speed += (uint32_t)(*text - '0') * (unit /= 10);
	return strncmp(text, " GT/s", 5) ? 0 : speed;
}

uint32_t topology_link_width(uint64_t lanes)
{
	static const uint8_t widths[] = { 1, 2, 4, 8, 12, 16, 32 };

	for (size_t i = 0; i < PL_ARRAY_SIZE(widths); i++)
		if (lanes == widths[i])
			return widths[i];
	return 0;
}

static struct pl_pci_link read_link_property(struct pl_sysroot *root, const char *address, const char *which)
{
	struct pl_pci_link link = { 0 };
	uint64_t width = 0;
	char text[32];

	if (pl_sysroot_text(root, text, sizeof(text), "sys/bus/pci/devices/%s/%s_link_speed", address, which) > 0)
		link.speed = topology_link_speed(text);
	if (pl_sysroot_number(root, 10, &width, "sys/bus/pci/devices/%s/%s_link_width", address, which) == 0)
		link.width = topology_link_width(width);
	if (!link.speed || !link.width)
		link = (struct pl_pci_link){ 0 };
	return link;
}

static void read_number(struct pl_sysroot *root, const char *address, const char *name, uint64_t limit, uint64_t *value)
{
	*value = 0;
	if (pl_sysroot_number(root, 10, value, "sys/bus/pci/devices/%s/%s", address, name) < 0 || *value > limit)
		*value = 0;
}

/* Flags of <linux/ioport.h>. */
#define RESOURCE_MEMORY 0x200
#define RESOURCE_PREFETCH 0x2000
#define RESOURCE_64 0x100000

static void read_bars(struct pl_sysroot *root, struct pl_pci_node *node)
{
	char text[1024], *line = text, *next;

	if (pl_sysroot_text(root, text, sizeof(text), "sys/bus/pci/devices/%s/resource", node->address) <= 0)
		return;
	for (unsigned i = 0; i < PL_PCI_BARS && line; i++, line = next) {
		struct pl_pci_bar *bar = &node->bars[i];
		uint64_t start, end, flags;

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (sscanf(line, "%" SCNx64 " %" SCNx64 " %" SCNx64, &start, &end, &flags) != 3 ||
		    !(flags & RESOURCE_MEMORY) || end < start)
			continue;
		bar->start = start;
		bar->size = end - start + 1;
		bar->prefetchable = flags & RESOURCE_PREFETCH;
		bar->is64 = flags & RESOURCE_64;
		if (pl_sysroot_number(root, 16, &bar->sizes, "sys/bus/pci/devices/%s/resource%u_resize", node->address,
				      i) < 0)
			bar->sizes = 0;
	}
}

static void read_group(struct pl_sysroot *root, struct pl_pci_node *node)
{
	char group[16], *end;
	long number;

	if (pl_sysroot_link_name(root, group, sizeof(group), "sys/bus/pci/devices/%s/iommu_group", node->address) <= 0)
		return;
	number = strtol(group, &end, 10);
	if (*end || number < 0 || number > INT32_MAX)
		return;
	node->iommu_group = (int)number;
	pl_sysroot_text(root, node->iommu_type, sizeof(node->iommu_type), "sys/kernel/iommu_groups/%ld/type", number);
}

void topology_node_merge(struct pl_pci_node *node, const struct pl_pci_node *from)
{
	struct pl_pci_node merged = *from;

	memcpy(merged.address, node->address, sizeof(merged.address));
	merged.kind = node->kind;
	merged.parent = node->parent;
	merged.child = node->child;
	merged.next = node->next;
	merged.numa = node->numa;
	merged.now = node->now;
	merged.best = node->best;
	*node = merged;
}

void topology_node_read(struct pl_pci_node *node, struct pl_sysroot *root)
{
	const char *address = node->address;
	uint64_t value;
	int64_t numa;
	uint8_t config[4096];
	char target[64];
	int length;

	read_number(root, address, "class", 0xffffff, &value);
	node->class = (uint32_t)value;
	read_number(root, address, "vendor", 0xffff, &value);
	node->vendor = (uint16_t)value;
	read_number(root, address, "device", 0xffff, &value);
	node->device = (uint16_t)value;
	read_number(root, address, "subsystem_vendor", 0xffff, &value);
	node->subsystem_vendor = (uint16_t)value;
	read_number(root, address, "subsystem_device", 0xffff, &value);
	node->subsystem_device = (uint16_t)value;
	if (pl_sysroot_signed(root, &numa, "sys/bus/pci/devices/%s/numa_node", address) == 0 && numa >= 0 &&
	    numa < TOPOLOGY_NUMA_MAX)
		node->numa = (int)numa;
	node->virtual_function =
		pl_sysroot_link(root, target, sizeof(target), "sys/bus/pci/devices/%s/physfn", address) > 0;
	pl_sysroot_link_name(root, node->driver, sizeof(node->driver), "sys/bus/pci/devices/%s/driver", address);
	read_group(root, node);
	node->now = read_link_property(root, address, "current");
	node->best = read_link_property(root, address, "max");
	if (node->class >> 8 == PCI_CLASS_BRIDGE)
		node->kind = PL_PCI_BRIDGE;
	else
		read_bars(root, node);
	length = pl_sysroot_bytes(root, config, sizeof(config), "sys/bus/pci/devices/%s/config", address);
	if (length > 0)
		topology_config_parse(node, config, (size_t)length);
}

/* Returns the kind of a bridge: from configuration space if readable, else from its position. */
static enum pl_pci_kind bridge_kind(const struct pl_pci_node *node, const struct pl_pci_node *parent)
{
	if (node->config.express)
		switch (node->config.port_type) {
		case 4:
			return PL_PCI_ROOT_PORT;
		case 5:
			return PL_PCI_UPSTREAM;
		case 6:
			return PL_PCI_DOWNSTREAM;
		default:
			return PL_PCI_BRIDGE;
		}
	if (!parent || parent->kind == PL_PCI_HOST_BRIDGE)
		return PL_PCI_ROOT_PORT;
	if (parent->kind == PL_PCI_ROOT_PORT || parent->kind == PL_PCI_DOWNSTREAM)
		return PL_PCI_UPSTREAM;
	return parent->kind == PL_PCI_UPSTREAM ? PL_PCI_DOWNSTREAM : PL_PCI_BRIDGE;
}

static struct pl_pci_link both(struct pl_pci_link a, struct pl_pci_link b)
{
	if (!a.speed || !b.speed)
		return a.speed ? a : b;
	return (struct pl_pci_link){ PL_MIN(a.speed, b.speed), PL_MIN(a.width, b.width) };
}

/*
 * Ports that QEMU emulates (its own, and the switch x3130) have no line; the speed that they report, 2.5 GT/s x1 or 16
 * GT/s x32, says nothing of the devices below.
 */
static bool is_emulated(const struct pl_pci_node *node)
{
	return node->class >> 8 == PCI_CLASS_BRIDGE &&
	       (node->vendor == PL_PCI_VENDOR_REDHAT ||
		(node->vendor == PL_PCI_VENDOR_TI && (node->device == 0x8232 || node->device == 0x8233)));
}

/*
 * sysfs has one link for each device: below root ports and downstream ports, above all others. Links inside a switch,
 * between its ports, do not exist.
 */
static void finish_link(struct pl_topology *topology, struct pl_pci_node *node)
{
	struct pl_pci_node *parent = node->parent < 0 ? NULL : &topology->nodes[node->parent];

	if (is_emulated(node))
		node->now = node->best = (struct pl_pci_link){ 0 };
	if (node->kind == PL_PCI_BRIDGE)
		node->kind = bridge_kind(node, parent);
	if (node->numa < 0 && parent)
		node->numa = parent->numa;
	if (node->kind == PL_PCI_ROOT_PORT || node->kind == PL_PCI_DOWNSTREAM) {
		node->below_now = node->now;
		node->below_best = node->best;
		node->now = node->best = (struct pl_pci_link){ 0 };
	} else if (parent && (parent->kind == PL_PCI_ROOT_PORT || parent->kind == PL_PCI_DOWNSTREAM)) {
		node->now = both(node->now, parent->below_now);
		node->best = both(node->best, parent->below_best);
	} else if (node->kind != PL_PCI_UPSTREAM && !topology->file[0]) {
		/* A device of the root complex has no line. */
		node->now = node->best = (struct pl_pci_link){ 0 };
	}
	if (!node->now.speed || !node->best.speed)
		return;
	/* The present speed is possible. */
	node->best.speed = PL_MAX(node->best.speed, node->now.speed);
	node->best.width = PL_MAX(node->best.width, node->now.width);
}

/* Parents come before their children. A host bridge has the NUMA node of its first child that reports one. */
void topology_nodes_finish(struct pl_topology *topology, size_t first)
{
	for (size_t i = topology->node_count; i-- > first;) {
		const struct pl_pci_node *node = &topology->nodes[i];

		if (node->parent >= 0 && topology->nodes[node->parent].kind == PL_PCI_HOST_BRIDGE &&
		    topology->nodes[node->parent].numa < 0)
			topology->nodes[node->parent].numa = node->numa;
	}
	for (size_t i = first; i < topology->node_count; i++)
		finish_link(topology, &topology->nodes[i]);
}
