/* SPDX-License-Identifier: BSD-2-Clause */
/* NVLink and xGMI between GPUs. */
#include "topology/build.h"

#include <stdlib.h>

const char *pl_gpu_link_name(enum pl_gpu_link_kind kind)
{
	return kind == PL_GPU_LINK_XGMI ? "xGMI" : "NVLink";
}

static const char *const end_names[] = {
	[PL_GPU_END_GPU] = "gpu",
	[PL_GPU_END_SWITCH] = "switch",
	[PL_GPU_END_CPU] = "cpu",
	[PL_GPU_END_UNKNOWN] = "unknown",
};

const char *pl_gpu_link_end_name(enum pl_gpu_link_end end)
{
	return end_names[end];
}

enum pl_gpu_link_end pl_gpu_link_end_parse(const char *name)
{
	for (size_t i = 0; i < PL_ARRAY_SIZE(end_names); i++)
		if (!strcmp(name, end_names[i]))
			return (enum pl_gpu_link_end)i;
	return PL_GPU_END_UNKNOWN;
}

bool pl_topology_has_vendor(const struct pl_topology *topology, enum pl_gpu_vendor vendor)
{
	for (size_t i = 0; i < topology->gpu_count; i++)
		if (topology->gpus[i].vendor == vendor)
			return true;
	return false;
}

unsigned pl_nvlink_generation(unsigned capability)
{
	/* Index: major number of the compute capability. */
	static const unsigned generations[] = { [6] = 1, [7] = 2, [8] = 3, [9] = 4, [10] = 5 };
	unsigned major = capability / 10;

	return major < PL_ARRAY_SIZE(generations) ? generations[major] : 0;
}

uint64_t pl_nvlink_rate(unsigned generation, unsigned capability)
{
	/* GB/s */
	static const uint64_t rates[] = { 0, 20, 25, 25, 25, 50 };

	/* GPUs of these architectures are for workstations, and their links are slower. */
	if (capability == 75 || capability == 86 || capability == 89)
		return 0;
	return generation < PL_ARRAY_SIZE(rates) ? rates[generation] * 1000000000 : 0;
}

static bool same_ends(const struct pl_gpu_link *a, const struct pl_gpu_link *b)
{
	return a->gpu == b->gpu && a->kind == b->kind && a->end == b->end && !strcmp(a->remote, b->remote);
}

int topology_link_add(struct pl_topology *topology, const struct pl_gpu_link *link)
{
	struct pl_gpu_link *at;
	int index;

	for (size_t i = 0; i < topology->link_count; i++) {
		at = &topology->links[i];
		if (!same_ends(at, link))
			continue;
		at->active += link->active;
		at->down += link->down;
		at->generation = PL_MAX(at->generation, link->generation);
		at->bandwidth += link->bandwidth;
		return (int)i;
	}
	index = TOPOLOGY_ADD(topology->links, topology->link_count, TOPOLOGY_LINKS_MAX);
	if (index >= 0)
		topology->links[index] = *link;
	return index;
}

static int find_gpu_at(const struct pl_topology *topology, const char *address)
{
	for (size_t i = 0; *address && i < topology->gpu_count; i++)
		if (!strcmp(topology->nodes[topology->gpus[i].node].address, address))
			return (int)i;
	return -1;
}

void topology_links_resolve(struct pl_topology *topology)
{
	for (size_t i = 0; i < topology->link_count; i++) {
		struct pl_gpu_link *link = &topology->links[i];

		link->peer = find_gpu_at(topology, link->remote);
		if (link->peer >= 0)
			link->end = PL_GPU_END_GPU;
	}
}

static bool names_gpu(const struct pl_gpu_link *links, size_t count, int gpu)
{
	for (size_t i = 0; i < count; i++)
		if (links[i].gpu == gpu)
			return true;
	return false;
}

int pl_topology_set_nvlinks(struct pl_topology *topology, const struct pl_gpu_link *links, size_t count)
{
	size_t kept = 0;
	int rc = 0;

	for (size_t i = 0; i < topology->link_count; i++)
		if (topology->links[i].kind != PL_GPU_LINK_NVLINK || !names_gpu(links, count, topology->links[i].gpu))
			topology->links[kept++] = topology->links[i];
	topology->link_count = kept;
	for (size_t i = 0; i < count && rc != -ENOMEM; i++)
		if (links[i].active || links[i].down)
			rc = topology_link_add(topology, &links[i]);
	topology_links_resolve(topology);
	return rc == -ENOMEM ? rc : 0;
}

void pl_topology_sum_links(const struct pl_topology *topology, size_t gpu, enum pl_gpu_link_kind kind,
			   struct pl_gpu_link_sum *sum)
{
	bool unknown = false;

	*sum = (struct pl_gpu_link_sum){ 0 };
	for (size_t i = 0; i < topology->link_count; i++) {
		const struct pl_gpu_link *link = &topology->links[i];

		if (link->gpu != (int)gpu || link->kind != kind)
			continue;
		sum->active += link->active;
		sum->down += link->down;
		sum->generation = PL_MAX(sum->generation, link->generation);
		sum->bandwidth += link->bandwidth;
		unknown = unknown || (link->active && !link->bandwidth);
	}
	if (unknown)
		sum->bandwidth = 0;
}

/* Sums up the direct links of a GPU to another one. True if there are any. */
static bool find_direct_links(const struct pl_topology *topology, int gpu, int peer, struct pl_gpu_pair *pair)
{
	for (size_t i = 0; i < topology->link_count; i++) {
		const struct pl_gpu_link *link = &topology->links[i];

		if (link->gpu != gpu || link->peer != peer || (!link->active && link->hops < 2))
			continue;
		pair->linked = true;
		pair->kind = link->kind;
		pair->links += link->active;
		pair->bandwidth += link->bandwidth;
	}
	return pair->linked;
}

/* Sums up the links of a GPU to switches. All switches of a machine connect all of its GPUs. */
static struct pl_gpu_link_sum sum_switch_links(const struct pl_topology *topology, int gpu)
{
	struct pl_gpu_link_sum sum = { 0 };

	for (size_t i = 0; i < topology->link_count; i++) {
		const struct pl_gpu_link *link = &topology->links[i];

		if (link->gpu != gpu || link->end != PL_GPU_END_SWITCH)
			continue;
		sum.active += link->active;
		sum.bandwidth += link->bandwidth;
	}
	return sum;
}

void pl_topology_gpu_pair(const struct pl_topology *topology, size_t a, size_t b, struct pl_gpu_pair *pair)
{
	struct pl_gpu_link_sum left, right;

	*pair = (struct pl_gpu_pair){
		.class = pl_topology_class(topology, topology->gpus[a].node, topology->gpus[b].node),
	};
	/* A file can name a link at one of its ends only. */
	if (find_direct_links(topology, (int)a, (int)b, pair) || find_direct_links(topology, (int)b, (int)a, pair))
		return;
	left = sum_switch_links(topology, (int)a);
	right = sum_switch_links(topology, (int)b);
	pair->links = PL_MIN(left.active, right.active);
	if (!pair->links)
		return;
	pair->linked = pair->switched = true;
	pair->kind = PL_GPU_LINK_NVLINK;
	pair->bandwidth = PL_MIN(left.bandwidth, right.bandwidth);
}
