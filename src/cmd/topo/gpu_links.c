/* SPDX-License-Identifier: BSD-2-Clause */
/* Texts about NVLink and xGMI between GPUs. */
#include "cmd/topo/topo.h"

const char *topo_gpu_pair_label(const struct pl_gpu_pair *pair, char buffer[TOPO_TEXT])
{
	const char *prefix = pair->kind == PL_GPU_LINK_XGMI ? "XGMI" : "NV";

	if (!pair->linked)
		snprintf(buffer, TOPO_TEXT, "%s", pl_path_class_name(pair->class));
	else if (pair->links)
		snprintf(buffer, TOPO_TEXT, "%s%u", prefix, pair->links);
	else
		snprintf(buffer, TOPO_TEXT, "%s", prefix);
	return buffer;
}

/* Returns the kind of links that a GPU has; NVLink if it has none. */
static enum pl_gpu_link_kind kind_of_gpu_links(const struct pl_topology *topology, size_t gpu)
{
	return topology->gpus[gpu].vendor == PL_GPU_AMD ? PL_GPU_LINK_XGMI : PL_GPU_LINK_NVLINK;
}

const char *topo_gpu_links(const struct pl_topology *topology, size_t gpu, char buffer[TOPO_TEXT])
{
	enum pl_gpu_link_kind kind = kind_of_gpu_links(topology, gpu);
	struct pl_gpu_link_sum sum;
	size_t used;

	pl_topology_sum_links(topology, gpu, kind, &sum);
	buffer[0] = '\0';
	if (!sum.active && !sum.down)
		return buffer;
	used = (size_t)snprintf(buffer, TOPO_TEXT, "%u %s", sum.active, pl_gpu_link_name(kind));
	if (sum.generation)
		used += (size_t)snprintf(buffer + used, TOPO_TEXT - used, " %u", sum.generation);
	if (sum.down)
		snprintf(buffer + used, TOPO_TEXT - used, ", %u down", sum.down);
	return buffer;
}

/* True if a GPU has working links to such an end, other than GPUs of this machine. */
static bool has_links_to(const struct pl_topology *topology, size_t gpu, enum pl_gpu_link_end end)
{
	for (size_t i = 0; i < topology->link_count; i++)
		if (topology->links[i].gpu == (int)gpu && topology->links[i].active && topology->links[i].peer < 0 &&
		    topology->links[i].end == end)
			return true;
	return false;
}

const char *topo_gpu_link_ends(const struct pl_topology *topology, size_t gpu, char buffer[TOPO_TEXT])
{
	static const char *const names[] = {
		[PL_GPU_END_GPU] = "other GPUs",
		[PL_GPU_END_SWITCH] = "switches",
		[PL_GPU_END_CPU] = "processors",
		[PL_GPU_END_UNKNOWN] = "unknown devices",
	};
	size_t used = 0;

	buffer[0] = '\0';
	for (size_t i = 0; i < topology->link_count && used + 24 < TOPO_TEXT; i++) {
		const struct pl_gpu_link *link = &topology->links[i];

		if (link->gpu == (int)gpu && link->active && link->peer >= 0)
			used += (size_t)snprintf(buffer + used, TOPO_TEXT - used, used ? ", %d" : "GPU %d", link->peer);
	}
	for (size_t i = 0; i < CLI_ARRAY_SIZE(names) && used + 24 < TOPO_TEXT; i++)
		if (has_links_to(topology, gpu, (enum pl_gpu_link_end)i))
			used += (size_t)snprintf(buffer + used, TOPO_TEXT - used, "%s%s", used ? ", " : "", names[i]);
	return buffer;
}

uint64_t topo_gpu_link_rate(const struct pl_topology *topology, size_t gpu)
{
	struct pl_gpu_link_sum sum;

	pl_topology_sum_links(topology, gpu, kind_of_gpu_links(topology, gpu), &sum);
	return sum.bandwidth;
}

bool topo_has_gpu_links(const struct pl_topology *topology)
{
	for (size_t i = 0; i < topology->link_count; i++)
		if (topology->links[i].active || topology->links[i].down)
			return true;
	return false;
}

/* Returns the most links of this kind that work at one GPU of the same vendor. */
static unsigned most_working_links(const struct pl_topology *topology, enum pl_gpu_link_kind kind)
{
	struct pl_gpu_link_sum sum;
	unsigned most = 0;

	for (size_t i = 0; i < topology->gpu_count; i++) {
		if (kind_of_gpu_links(topology, i) != kind)
			continue;
		pl_topology_sum_links(topology, i, kind, &sum);
		most = PL_MAX(most, sum.active);
	}
	return most;
}

void topo_note_lost_links(const struct pl_topology *topology, struct topo_note_list *notes)
{
	for (size_t i = 0; i < topology->gpu_count; i++) {
		enum pl_gpu_link_kind kind = kind_of_gpu_links(topology, i);
		unsigned most = most_working_links(topology, kind);
		struct pl_gpu_link_sum sum;

		pl_topology_sum_links(topology, i, kind, &sum);
		/* GPUs without any link may be of another model. */
		if (sum.active + sum.down && sum.active < most)
			topo_add_note(notes, "GPU %zu has %u working %s links, another GPU has %u.", i, sum.active,
				      pl_gpu_link_name(kind), most);
	}
}
