/* SPDX-License-Identifier: BSD-2-Clause */
/* Path between two devices: its class, its rate and the reason. */
#include "topology/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *pl_path_class_name(enum pl_path_class class)
{
	static const char *const names[] = { "PIX", "PXB", "PHB", "NODE", "SYS" };

	return (unsigned)class < PL_ARRAY_SIZE(names) ? names[class] : "?";
}

uint64_t pl_pci_link_rate(struct pl_pci_link link)
{
	uint64_t bits = (uint64_t)link.speed * 1000000 * link.width;

	if (link.speed <= 5000)
		return bits / 10; /* 8b/10b */
	if (link.speed <= 32000)
		return bits / 130 * 128 / 8;
	return bits / 256 * 242 / 8; /* flits: 242 of 256 bytes are not for error protection */
}

static bool is_gpu_node(const struct pl_topology *topology, int node)
{
	for (size_t i = 0; i < topology->gpu_count; i++)
		if (topology->gpus[i].node == node)
			return true;
	return false;
}

bool pl_topology_idle(const struct pl_topology *topology, int index)
{
	const struct pl_pci_node *node = &topology->nodes[index];

	return node->now.speed && node->now.speed <= 5000 && node->now.speed < node->best.speed &&
	       node->now.width == node->best.width && is_gpu_node(topology, index);
}

bool pl_topology_degraded(const struct pl_topology *topology, int index)
{
	const struct pl_pci_node *node = &topology->nodes[index];

	return node->now.speed && node->best.speed &&
	       (node->now.speed < node->best.speed || node->now.width < node->best.width) &&
	       !pl_topology_idle(topology, index);
}

static int parent_of(const struct pl_topology *topology, int node)
{
	return topology->nodes[node].parent;
}

static unsigned depth_of(const struct pl_topology *topology, int node)
{
	unsigned depth = 0;

	while (node >= 0) {
		node = parent_of(topology, node);
		depth++;
	}
	return depth;
}

/* Returns the nearest node above both; -1 if there is none. */
static int common(const struct pl_topology *topology, int a, int b)
{
	unsigned depth_a = depth_of(topology, a), depth_b = depth_of(topology, b);

	for (; depth_a > depth_b; depth_a--)
		a = parent_of(topology, a);
	for (; depth_b > depth_a; depth_b--)
		b = parent_of(topology, b);
	while (a != b) {
		a = parent_of(topology, a);
		b = parent_of(topology, b);
	}
	return a;
}

/* Counts switches from a node, itself excluded, to the node below `end`. */
static unsigned switches(const struct pl_topology *topology, int node, int end)
{
	unsigned count = 0;

	if (node == end)
		return 0;
	for (node = parent_of(topology, node); node >= 0 && node != end; node = parent_of(topology, node))
		count += topology->nodes[node].kind == PL_PCI_UPSTREAM;
	return count;
}

static unsigned switches_between(const struct pl_topology *topology, int a, int b, int meeting)
{
	return switches(topology, a, meeting) + switches(topology, b, meeting) +
	       (topology->nodes[meeting].kind == PL_PCI_UPSTREAM);
}

static int numa_of(const struct pl_topology *topology, int node)
{
	int numa = node < 0 ? -1 : topology->nodes[node].numa;

	/* On a machine with one NUMA node, every device is there. */
	return numa < 0 && topology->numa_count == 1 ? topology->numa[0].id : numa;
}

enum pl_path_class pl_topology_class(const struct pl_topology *topology, int a, int b)
{
	int meeting = a < 0 || b < 0 ? -1 : common(topology, a, b);

	if (meeting >= 0 && topology->nodes[meeting].kind != PL_PCI_HOST_BRIDGE)
		return switches_between(topology, a, b, meeting) > 1 ? PL_PATH_PXB : PL_PATH_PIX;
	if (meeting >= 0)
		return PL_PATH_PHB;
	if (numa_of(topology, a) < 0 || numa_of(topology, a) != numa_of(topology, b))
		return PL_PATH_SYS;
	return PL_PATH_NODE;
}

struct narrow {
	uint64_t now, possible;
	int node;
};

static void narrow_by(struct narrow *narrow, uint64_t now, uint64_t possible, int node)
{
	if (now && (!narrow->now || now < narrow->now)) {
		narrow->now = now;
		narrow->node = node;
	}
	if (possible && (!narrow->possible || possible < narrow->possible))
		narrow->possible = possible;
}

/* Narrows the path by all links from a node up to the meeting point. */
static void narrow_up(const struct pl_topology *topology, struct narrow *narrow, int node, int end)
{
	for (; node >= 0 && node != end && topology->nodes[node].kind != PL_PCI_HOST_BRIDGE;
	     node = parent_of(topology, node)) {
		uint64_t now = pl_pci_link_rate(topology->nodes[node].now);
		uint64_t best = pl_pci_link_rate(topology->nodes[node].best);

		best = best ? best : now;
		narrow_by(narrow, pl_topology_idle(topology, node) ? best : now, best, node);
	}
}

/*
 * Returns the rate of the fastest active port, or of the fastest port if none is active. Rates of soft-RoCE mean
 * nothing.
 */
static uint64_t port_rate(const struct pl_card *card)
{
	uint64_t active = 0, any = 0;

	for (size_t i = 0; i < card->port_count && !card->software; i++) {
		any = PL_MAX(any, card->ports[i].rate);
		if (card->ports[i].active)
			active = PL_MAX(active, card->ports[i].rate);
	}
	return (active ? active : any) / 8;
}

static bool has_names(const struct pl_topology *topology)
{
	for (size_t i = 0; i < topology->card_count; i++)
		if (topology->cards[i].name[0])
			return true;
	return false;
}

static bool is_usable(const struct pl_topology *topology, const struct pl_card *card)
{
	/* For another machine, a card counts if it has a name, or if no card has one. */
	if (card->described)
		return topology->file_foreign && (card->name[0] || !has_names(topology));
	for (size_t i = 0; i < card->port_count; i++)
		if (card->ports[i].active)
			return true;
	return false;
}

/* True if ACS makes a switch send peer requests through the root. */
static bool redirects(const struct pl_topology *topology, int node, int end)
{
	for (; node >= 0 && node != end; node = parent_of(topology, node)) {
		const struct pl_pci_node *port = &topology->nodes[node];

		if (port->kind == PL_PCI_DOWNSTREAM && port->config.acs &&
		    (port->config.acs_control & PL_ACS_REQUEST_REDIRECT))
			return true;
	}
	return false;
}

int pl_card_gpu_node(const struct pl_card *card)
{
	return card->data_direct < 0 ? card->node : card->data_direct;
}

const char *pl_card_data_direct(const struct pl_topology *topology, const struct pl_card *card)
{
	return card->data_direct < 0 || card->data_direct_below ? NULL : topology->nodes[card->data_direct].address;
}

static void make_path(const struct pl_topology *topology, struct pl_path *path)
{
	const struct pl_card *card = &topology->cards[path->card];
	int gpu = topology->gpus[path->gpu].node, end = pl_card_gpu_node(card);
	int meeting = end < 0 ? -1 : common(topology, gpu, end);
	struct narrow narrow = { .node = -1 };
	uint64_t port = port_rate(card);

	path->class = pl_topology_class(topology, gpu, end);
	narrow_up(topology, &narrow, gpu, meeting);
	if (end >= 0 && !card->software)
		narrow_up(topology, &narrow, end, meeting);
	narrow_by(&narrow, port, port, -1);
	path->bandwidth = narrow.now;
	path->possible = narrow.possible;
	path->narrowest = narrow.node;
	path->usable = is_usable(topology, card);
	if (path->class <= PL_PATH_PXB && end >= 0)
		path->redirected = redirects(topology, gpu, meeting) || redirects(topology, end, meeting);
}

int topology_make_paths(struct pl_topology *topology)
{
	size_t count = topology->gpu_count * topology->card_count, old_count = topology->path_count;
	struct pl_path *old = topology->paths, *paths;
	int rc;

	if (!count)
		return 0;
	paths = calloc(count, sizeof(*paths));
	if (!paths)
		return -ENOMEM;
	topology->paths = paths;
	topology->path_count = count;
	for (size_t i = 0; i < count; i++) {
		topology->paths[i].gpu = (int)(i / topology->card_count);
		topology->paths[i].card = (int)(i % topology->card_count);
		make_path(topology, &topology->paths[i]);
	}
	rc = topology_choose(topology);
	if (rc < 0) {
		topology->paths = old;
		topology->path_count = old_count;
	}
	free(rc < 0 ? paths : old);
	return rc;
}

const struct pl_path *pl_topology_path(const struct pl_topology *topology, size_t gpu, size_t card)
{
	if (gpu >= topology->gpu_count || card >= topology->card_count)
		return NULL;
	return &topology->paths[gpu * topology->card_count + card];
}

uint64_t topology_card_rate(const struct pl_topology *topology, const struct pl_card *card)
{
	struct narrow narrow = { .node = -1 };
	uint64_t port = port_rate(card);

	if (!card->software)
		narrow_up(topology, &narrow, card->node, -1);
	narrow_by(&narrow, port, port, -1);
	return narrow.now;
}

bool topology_card_usable(const struct pl_topology *topology, const struct pl_card *card)
{
	return is_usable(topology, card);
}

int topology_card_numa(const struct pl_topology *topology, const struct pl_card *card)
{
	return numa_of(topology, card->node);
}

int topology_meeting(const struct pl_topology *topology, int a, int b, unsigned *count)
{
	int meeting = a < 0 || b < 0 ? -1 : common(topology, a, b);

	*count = meeting < 0 ? 0 : switches_between(topology, a, b, meeting);
	return meeting;
}
