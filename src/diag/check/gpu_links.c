/* SPDX-License-Identifier: BSD-2-Clause */
#include "diag/check/gpu_links.h"

#include <stdio.h>
#include <stdlib.h>

#include "diag/check/probe.h"

#define LINKS_MAX 4096
#define CLASS_SWITCH 0x0680 /* PCI class of an NVSwitch, without its last byte */

/* NVLinks while they are collected. */
struct link_list {
	struct pl_gpu_link *links;
	size_t count;
};

/* Translates nvmlNvlinkVersion_t. */
static unsigned generation_of_version(unsigned version)
{
	static const unsigned generations[] = { 0, 1, 2, 2, 3, 3, 4, 5, 6 };

	return version < PL_ARRAY_SIZE(generations) ? generations[version] : 0;
}

/* Old drivers do not tell the kind of the other end; its PCI class does. */
static bool is_nvswitch(struct pl_sysroot *root, const char *address)
{
	uint64_t class;

	return pl_sysroot_number(root, 10, &class, "sys/bus/pci/devices/%s/class", address) == 0 &&
	       class >> 8 == CLASS_SWITCH;
}

/* Reads "up VERSION END ADDRESS" or "down". */
static bool parse_nvlink_fact(const char *value, unsigned capability, struct pl_sysroot *root, struct pl_gpu_link *link)
{
	char end[16] = "", remote[sizeof(link->remote)] = "";
	unsigned version;

	if (!strcmp(value, "down")) {
		link->down = 1;
		return true;
	}
	if (sscanf(value, "up %u %15s %23s", &version, end, remote) != 3)
		return false;
	link->active = 1;
	link->end = pl_gpu_link_end_parse(end);
	if (strspn(remote, "0123456789abcdef:.") == strlen(remote))
		memcpy(link->remote, remote, sizeof(remote));
	if (link->end == PL_GPU_END_UNKNOWN && link->remote[0] && is_nvswitch(root, link->remote))
		link->end = PL_GPU_END_SWITCH;
	link->generation = pl_nvlink_generation(capability);
	if (!link->generation)
		link->generation = generation_of_version(version);
	link->bandwidth = pl_nvlink_rate(link->generation, capability);
	return true;
}

static void collect_links_of_gpu(const struct pl_topology *topology, size_t gpu, struct pl_sysroot *root,
				 const struct pl_facts *facts, struct link_list *list)
{
	const char *address = topology->nodes[topology->gpus[gpu].node].address, *key, *value;
	long long capability = pl_facts_number(facts, 0, "nvml.gpu.%s.capability", address);
	char prefix[PL_FACT_KEY_MAX];

	snprintf(prefix, sizeof(prefix), "nvml.gpu.%s.nvlink.", address);
	/* NVML told about links of this GPU, so others do not count: one element without links replaces them. */
	if (capability > 0 && list->count < LINKS_MAX)
		list->links[list->count++] = (struct pl_gpu_link){ .gpu = (int)gpu, .end = PL_GPU_END_UNKNOWN };
	for (size_t i = 0; (key = pl_facts_at(facts, i, &value)) && list->count < LINKS_MAX; i++) {
		struct pl_gpu_link link = { .gpu = (int)gpu, .peer = -1, .end = PL_GPU_END_UNKNOWN, .hops = 1 };

		if (!strncmp(key, prefix, strlen(prefix)) &&
		    parse_nvlink_fact(value, capability > 0 && capability < 1000 ? (unsigned)capability : 0, root,
				      &link))
			list->links[list->count++] = link;
	}
}

int pl_gpu_links_add(struct pl_topology *topology, struct pl_sysroot *root, const struct pl_facts *facts)
{
	struct link_list list = { .links = calloc(LINKS_MAX, sizeof(*list.links)) };
	int rc;

	if (!list.links)
		return -ENOMEM;
	for (size_t i = 0; i < topology->gpu_count; i++)
		if (topology->gpus[i].vendor == PL_GPU_NVIDIA)
			collect_links_of_gpu(topology, i, root, facts, &list);
	rc = pl_topology_set_nvlinks(topology, list.links, list.count);
	free(list.links);
	return rc;
}

int pl_gpu_links_read(struct pl_topology *topology, struct pl_sysroot *root, uint64_t timeout)
{
	static const struct pl_probe probe = { .name = "nvml", .run = pl_probe_nvml };
	struct pl_facts *facts;
	int rc;

	if (topology->file_foreign || !pl_topology_has_vendor(topology, PL_GPU_NVIDIA))
		return 0;
	facts = pl_probe_one(root, &probe, timeout);
	if (!facts)
		return -ENOMEM;
	rc = pl_gpu_links_add(topology, root, facts);
	pl_facts_free(facts);
	return rc;
}
