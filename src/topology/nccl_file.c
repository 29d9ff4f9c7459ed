/* SPDX-License-Identifier: BSD-2-Clause */
/* Topology files of NCCL: processors with the devices below them. One bridge element stands for a whole switch. */
#include "topology/build.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define DEPTH_MAX 64

struct file {
	struct topology_xml xml;
	struct pl_topology *topology;
	int stack[DEPTH_MAX + 1]; /* node of each open element, -1 if it has none */
	size_t depth, skipped;    /* open elements; those below an element of another host */
	char host[24];            /* the first host */
	int gpu;                  /* GPU of the last such element; -1: it came again, as for a second rank */
	unsigned capability;      /* compute capability of that GPU, 90 for 9.0; 0: unknown */
};

static const char *attribute(const char *const *attributes, const char *name)
{
	for (; *attributes; attributes += 2)
		if (!strcmp(attributes[0], name))
			return attributes[1];
	return "";
}

/* Parses a number up to a limit, ignoring trailing text; otherwise 0. */
static uint64_t number(const char *const *attributes, const char *name, int base, uint64_t limit)
{
	const char *text = attribute(attributes, name);
	uint64_t value = isxdigit((unsigned char)text[0]) ? strtoull(text, NULL, base) : 0;

	return value <= limit ? value : 0;
}

static bool mask_bit(const char *digits, size_t count, size_t bit)
{
	char digit;

	if (bit / 4 >= count)
		return false;
	digit = digits[count - 1 - bit / 4];
	return (isdigit((unsigned char)digit) ? digit - '0' : (digit | 32) - 'a' + 10) >> bit % 4 & 1;
}

/* Converts "000000ff,ffff0000" to "16-39". */
static void cpu_list(const char *mask, char *to, size_t size)
{
	char digits[1024];
	size_t count = 0, used = 0;

	for (; *mask && count < sizeof(digits); mask++)
		if (isxdigit((unsigned char)*mask))
			digits[count++] = *mask;
	to[0] = '\0';
	for (size_t bit = 0; bit < count * 4 && used + 24 < size; bit++) {
		size_t last = bit;

		if (!mask_bit(digits, count, bit))
			continue;
		while (mask_bit(digits, count, last + 1))
			last++;
		used += (size_t)snprintf(to + used, size - used, last > bit ? "%s%zu-%zu" : "%s%zu", used ? "," : "",
					 bit, last);
		bit = last;
	}
}

static int begin_cpu(struct pl_topology *topology, const char *const *attributes)
{
	const char *vendor = attribute(attributes, "vendor"), *arch = attribute(attributes, "arch");
	int id = (int)number(attributes, "numaid", 10, TOPOLOGY_NUMA_MAX - 1), node, index;
	char address[PL_PCI_ADDRESS_MAX], name[64];
	struct pl_numa_node *numa;

	snprintf(address, sizeof(address), "cpu%d", id);
	node = topology_node_add(topology, address, PL_PCI_HOST_BRIDGE, -1);
	if (node < 0)
		return node;
	topology->nodes[node].numa = id;
	index = TOPOLOGY_ADD(topology->numa, topology->numa_count, TOPOLOGY_NUMA_MAX);
	if (index < 0)
		return index;
	numa = &topology->numa[index];
	numa->id = id;
	numa->socket = -1;
	cpu_list(attribute(attributes, "affinity"), numa->cpus, sizeof(numa->cpus));
	snprintf(name, sizeof(name), "%s%s%s", vendor, vendor[0] && arch[0] ? " " : "", arch);
	TOPOLOGY_COPY(numa->cpu, name);
	return node;
}

/* Writes the address as sysfs does: lower case, four digits for domain 0. */
static int read_nccl_address(const char *text, char address[PL_PCI_ADDRESS_MAX])
{
	size_t length = strlen(text);

	for (; length > 12 && *text == '0'; length--)
		text++;
	if (length >= PL_PCI_ADDRESS_MAX)
		return -EINVAL;
	for (size_t i = 0; i <= length; i++)
		address[i] = (char)tolower((unsigned char)text[i]);
	return topology_is_pci_address(address, length) ? 0 : -EINVAL;
}

/* Some files repeat the invented addresses of virtual switches; a number makes them unique. */
static int make_unique(const struct pl_topology *topology, char address[PL_PCI_ADDRESS_MAX], bool bridge)
{
	size_t length = strlen(address);

	for (unsigned i = 2; pl_topology_find(topology, address) >= 0; i++) {
		if (!bridge || i == 100)
			return -EEXIST;
		snprintf(address + length, PL_PCI_ADDRESS_MAX - length, "#%u", i);
	}
	return 0;
}

static int begin_pci(struct pl_topology *topology, int parent, const char *const *attributes)
{
	uint32_t class = (uint32_t)number(attributes, "class", 16, 0xffffff);
	char address[PL_PCI_ADDRESS_MAX];
	struct pl_pci_node *node;
	struct pl_pci_link link;
	int index;

	if (parent < 0 || read_nccl_address(attribute(attributes, "busid"), address) < 0)
		return -EINVAL;
	index = make_unique(topology, address, class >> 8 == PCI_CLASS_BRIDGE);
	if (index < 0)
		return index;
	/* Some files do not mark switches; a node with devices below it is one. */
	node = &topology->nodes[parent];
	if (node->kind == PL_PCI_ENDPOINT && (!node->class || node->class >> 16 == PCI_CLASS_BRIDGE >> 8))
		node->kind = PL_PCI_UPSTREAM;
	index = topology_node_add(topology, address, class >> 8 == PCI_CLASS_BRIDGE ? PL_PCI_UPSTREAM : PL_PCI_ENDPOINT,
				  parent);
	if (index < 0)
		return index;
	node = &topology->nodes[index];
	node->class = class;
	node->vendor = (uint16_t)number(attributes, "vendor", 16, 0xffff);
	node->device = (uint16_t)number(attributes, "device", 16, 0xffff);
	node->subsystem_vendor = (uint16_t)number(attributes, "subsystem_vendor", 16, 0xffff);
	node->subsystem_device = (uint16_t)number(attributes, "subsystem_device", 16, 0xffff);
	link.speed = topology_link_speed(attribute(attributes, "link_speed"));
	link.width = topology_link_width(number(attributes, "link_width", 10, 32));
	if (link.speed && link.width)
		node->now = link;
	return index;
}

static int begin_gpu(struct file *file, int node, const char *const *attributes)
{
	struct pl_topology *topology = file->topology;
	enum pl_gpu_vendor vendor = PL_GPU_NVIDIA;

	file->gpu = -1;
	if (node < 0 || topology->nodes[node].kind != PL_PCI_ENDPOINT)
		return 0;
	/* With several ranks on a GPU the file has it several times. */
	for (size_t i = 0; i < topology->gpu_count; i++)
		if (topology->gpus[i].node == node)
			return 0;
	/* Only GPUs of AMD have this attribute. */
	if (*attribute(attributes, "gcn"))
		vendor = PL_GPU_AMD;
	if (!topology->nodes[node].vendor)
		topology->nodes[node].vendor = vendor == PL_GPU_AMD ? PL_PCI_VENDOR_AMD : PL_PCI_VENDOR_NVIDIA;
	file->capability = (unsigned)number(attributes, "sm", 10, 999);
	file->gpu = topology_gpu_add(topology, node, vendor);
	return file->gpu;
}

/* Translates the PCI class of the device at the other end of a link; the last byte tells IBM's processors. */
static enum pl_gpu_link_end link_end_of_class(uint32_t class)
{
	switch (class >> 16) {
	case 0x03:
	case 0x12:
		return PL_GPU_END_GPU;
	case 0x06:
		return class == 0x068001 ? PL_GPU_END_CPU : PL_GPU_END_SWITCH;
	default:
		return PL_GPU_END_UNKNOWN;
	}
}

/* Reads <nvlink>, or <xgmi> as files for AMD have it. */
static int begin_gpu_link(struct file *file, enum pl_gpu_link_kind kind, const char *const *attributes)
{
	struct pl_gpu_link link = { .gpu = file->gpu, .peer = -1, .kind = kind, .hops = 1 };
	char remote[PL_PCI_ADDRESS_MAX];
	int rc;

	link.active = (unsigned)number(attributes, "count", 10, 255);
	if (link.gpu < 0 || !link.active)
		return 0;
	link.end = link_end_of_class((uint32_t)number(attributes, "tclass", 16, 0xffffff));
	if (read_nccl_address(attribute(attributes, "target"), remote) == 0)
		TOPOLOGY_COPY(link.remote, remote);
	if (kind == PL_GPU_LINK_NVLINK) {
		link.generation = pl_nvlink_generation(file->capability);
		link.bandwidth = pl_nvlink_rate(link.generation, file->capability) * link.active;
	}
	rc = topology_link_add(file->topology, &link);
	return rc == -E2BIG ? 0 : PL_MIN(rc, 0);
}

/* NCCL numbers the ports of RDMA devices from 1, and writes 0 for sockets. */
static bool is_rdma(const char *const *attributes)
{
	if (*attribute(attributes, "port") && !number(attributes, "port", 10, 255))
		return false;
	return number(attributes, "port", 10, 255) || number(attributes, "guid", 16, UINT64_MAX) ||
	       !strcmp(attribute(attributes, "gdr"), "1");
}

/* Starts a port of a card. */
static int begin_net(struct pl_topology *topology, int node, const char *const *attributes)
{
	bool rdma = is_rdma(attributes);
	const char *name = attribute(attributes, "name");
	struct pl_rdma_port *port;
	struct pl_card *card;
	int index;

	if (node < 0 || topology->nodes[node].kind != PL_PCI_ENDPOINT)
		return 0;
	index = topology_card_add(topology, node, rdma ? name : "");
	if (index < 0)
		return index;
	card = &topology->cards[index];
	card->described = true;
	if (!rdma) {
		index = TOPOLOGY_ADD(card->netdevs, card->netdev_count, 1);
		if (index < 0)
			return index;
		TOPOLOGY_COPY(card->netdevs[index].name, name);
		card->netdevs[index].speed = (int64_t)number(attributes, "speed", 10, INT32_MAX);
		return 0;
	}
	index = TOPOLOGY_ADD(card->ports, card->port_count, 1);
	if (index < 0)
		return index;
	port = &card->ports[index];
	port->number = (unsigned)number(attributes, "port", 10, 255);
	port->lid = port->sm_lid = -1;
	port->rate = number(attributes, "speed", 10, INT32_MAX) * 1000000;
	return 0;
}

/* With NVLink between hosts NCCL writes all of them into one file. */
static bool is_of_another_host(struct file *file, const char *element, const char *const *attributes)
{
	const char *host = strcmp(element, "cpu") ? "" : attribute(attributes, "host_hash");

	if (!file->host[0])
		TOPOLOGY_COPY(file->host, host);
	return host[0] && strncmp(file->host, host, sizeof(file->host) - 1) != 0;
}

static int begin_nccl_element(struct topology_xml *xml, const char *element, const char *const *attributes)
{
	struct file *file = pl_container_of(xml, struct file, xml);
	int above = file->depth ? file->stack[file->depth - 1] : -1, node = above, rc = 0;

	if (file->skipped || is_of_another_host(file, element, attributes)) {
		file->topology->file_others = file->topology->file_others || !file->skipped;
		file->skipped++;
		return 0;
	}
	if (!file->depth)
		rc = strcmp(element, "system") ? -EINVAL : 0;
	else if (!strcmp(element, "cpu"))
		rc = node = file->depth == 1 ? begin_cpu(file->topology, attributes) : -EINVAL;
	else if (!strcmp(element, "pci"))
		rc = node = begin_pci(file->topology, above, attributes);
	else if (!strcmp(element, "gpu"))
		rc = begin_gpu(file, above, attributes);
	else if (!strcmp(element, "nvlink"))
		rc = begin_gpu_link(file, PL_GPU_LINK_NVLINK, attributes);
	else if (!strcmp(element, "xgmi"))
		rc = begin_gpu_link(file, PL_GPU_LINK_XGMI, attributes);
	else if (!strcmp(element, "net"))
		rc = begin_net(file->topology, above, attributes);
	/* The first position counts. */
	if (rc == -EEXIST) {
		file->topology->file_twice++;
		file->skipped++;
		return 0;
	}
	if (rc < 0)
		return rc;
	file->stack[file->depth++] = node;
	return 0;
}

static void end_nccl_element(struct topology_xml *xml, const char *element)
{
	struct file *file = pl_container_of(xml, struct file, xml);

	(void)element;
	if (file->skipped)
		file->skipped--;
	else
		file->depth--;
}

int topology_read_nccl(struct pl_topology *topology, const char *name, const char *data, size_t length,
		       struct pl_error *error)
{
	struct file file = { .xml = { begin_nccl_element, end_nccl_element }, .topology = topology, .gpu = -1 };
	int rc;

	TOPOLOGY_COPY(topology->file, name);
	rc = topology_parse_xml(&file.xml, name, data, length, error);
	if (rc < 0)
		return rc;
	if (!topology->numa_count)
		return pl_fail(error, -EINVAL, "NCCL-FILE-SYNTAX", NULL, name, NULL, "it has no processors");
	return 0;
}
