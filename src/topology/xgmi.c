/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Links between AMD's GPUs, from the topology of the kernel's driver amdkfd: a node for each processor and each GPU
 * (or partition of a GPU), with its links to others.
 */
#include "topology/build.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define KFD_NODES "sys/class/kfd/kfd/topology/nodes"
#define KFD_NODES_MAX 1024
#define KFD_LINK_XGMI 11
#define KFD_WEIGHT_OF_HOP 15

/* Finds a line "name value". */
static uint64_t find_kfd_value(const char *text, const char *name)
{
	size_t length = strlen(name);

	while (text && *text) {
		if (!strncmp(text, name, length) && text[length] == ' ')
			return strtoull(text + length + 1, NULL, 10);
		text = strchr(text, '\n');
		text = text ? text + 1 : NULL;
	}
	return 0;
}

static int find_amd_gpu(const struct pl_topology *topology, uint64_t domain, uint64_t location)
{
	char address[PL_PCI_ADDRESS_MAX], whole[PL_PCI_ADDRESS_MAX];
	int first = -1;

	/* A partition of a GPU has its number in the place of the function. */
	snprintf(address, sizeof(address), "%04x:%02x:%02x.%u", (unsigned)domain, (unsigned)(location >> 8 & 0xff),
		 (unsigned)(location >> 3 & 0x1f), (unsigned)(location & 7));
	snprintf(whole, sizeof(whole), "%.*s0", (int)strlen(address) - 1, address);
	for (size_t i = 0; i < topology->gpu_count; i++) {
		const char *here = topology->nodes[topology->gpus[i].node].address;

		if (topology->gpus[i].vendor != PL_GPU_AMD)
			continue;
		if (!strcmp(here, address))
			return (int)i;
		if (!strcmp(here, whole))
			first = (int)i;
	}
	return first;
}

/* Returns the number that is a node's name; KFD_NODES_MAX if it is none. */
static unsigned kfd_node_number(const char *name)
{
	char *end;
	unsigned long number = strtoul(name, &end, 10);

	return isdigit((unsigned char)name[0]) && !*end && number < KFD_NODES_MAX ? (unsigned)number : KFD_NODES_MAX;
}

/* Fills the GPU of each node; -1 for processors. */
static void read_kfd_nodes(const struct pl_topology *topology, struct pl_sysroot *root,
			   const struct pl_sysroot_list *list, int *gpus)
{
	char text[4096];

	for (unsigned i = 0; i < KFD_NODES_MAX; i++)
		gpus[i] = -1;
	for (size_t i = 0; i < list->count; i++) {
		unsigned node = kfd_node_number(list->names[i]);

		if (node < KFD_NODES_MAX &&
		    pl_sysroot_text(root, text, sizeof(text), KFD_NODES "/%u/properties", node) > 0 &&
		    find_kfd_value(text, "simd_count"))
			gpus[node] = find_amd_gpu(topology, find_kfd_value(text, "domain"),
						  find_kfd_value(text, "location_id"));
	}
}

/* True if the topology has these ends already. Partitions repeat the links of their GPU. */
static bool has_xgmi_link(const struct pl_topology *topology, int gpu, const char *remote)
{
	for (size_t i = 0; i < topology->link_count; i++)
		if (topology->links[i].gpu == gpu && topology->links[i].kind == PL_GPU_LINK_XGMI &&
		    !strcmp(topology->links[i].remote, remote))
			return true;
	return false;
}

static int add_xgmi_link(struct pl_topology *topology, int gpu, int peer, const char *properties)
{
	uint64_t least = find_kfd_value(properties, "min_bandwidth"),
		 most = find_kfd_value(properties, "max_bandwidth");
	uint64_t weight = find_kfd_value(properties, "weight");
	struct pl_gpu_link link = { .gpu = gpu, .peer = peer, .kind = PL_GPU_LINK_XGMI, .end = PL_GPU_END_GPU };

	link.hops = weight > KFD_WEIGHT_OF_HOP ? (unsigned)PL_MIN(weight / KFD_WEIGHT_OF_HOP, (uint64_t)255) : 1;
	TOPOLOGY_COPY(link.remote, topology->nodes[topology->gpus[peer].node].address);
	if (has_xgmi_link(topology, gpu, link.remote))
		return 0;
	if (link.hops == 1) {
		/* The least rate is that of one link. Old kernels tell neither. */
		link.active = least && most >= least && most / least <= 64 ? (unsigned)(most / least) : 1;
		link.bandwidth = most < UINT32_MAX ? most * 1000000 : 0;
	}
	return topology_link_add(topology, &link);
}

static int read_xgmi_links(struct pl_topology *topology, struct pl_sysroot *root, const int *gpus, unsigned node)
{
	struct pl_sysroot_list list;
	char text[2048];
	uint64_t to;
	int rc = 0;

	if (pl_sysroot_list(root, &list, KFD_NODES "/%u/io_links", node) < 0)
		return 0;
	for (size_t i = 0; i < list.count && rc != -ENOMEM; i++) {
		if (pl_sysroot_text(root, text, sizeof(text), KFD_NODES "/%u/io_links/%s/properties", node,
				    list.names[i]) <= 0 ||
		    find_kfd_value(text, "type") != KFD_LINK_XGMI)
			continue;
		to = find_kfd_value(text, "node_to");
		if (to < KFD_NODES_MAX && gpus[to] >= 0 && gpus[to] != gpus[node])
			rc = add_xgmi_link(topology, gpus[node], gpus[to], text);
	}
	pl_sysroot_list_free(&list);
	return PL_MIN(rc, 0);
}

int topology_read_xgmi(struct pl_topology *topology, struct pl_sysroot *root)
{
	struct pl_sysroot_list list;
	int *gpus, rc = 0;

	if (!pl_topology_has_vendor(topology, PL_GPU_AMD) || pl_sysroot_list(root, &list, KFD_NODES) < 0)
		return 0;
	gpus = calloc(KFD_NODES_MAX, sizeof(*gpus));
	if (gpus)
		read_kfd_nodes(topology, root, &list, gpus);
	else
		rc = -ENOMEM;
	for (unsigned node = 0; node < KFD_NODES_MAX && rc != -ENOMEM; node++)
		if (gpus[node] >= 0)
			rc = read_xgmi_links(topology, root, gpus, node);
	free(gpus);
	pl_sysroot_list_free(&list);
	return rc == -ENOMEM ? rc : 0;
}
