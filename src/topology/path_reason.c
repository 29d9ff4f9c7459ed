/* SPDX-License-Identifier: BSD-2-Clause */
/* Reasons of a path, as sentences. */
#include "topology/build.h"

#include <stdarg.h>
#include <stdio.h>

struct reasons {
	char (*text)[PL_REASON_MAX];
	size_t count, room;
};

static void __attribute__((format(printf, 2, 3))) say(struct reasons *reasons, const char *format, ...)
{
	va_list arguments;

	if (reasons->count == reasons->room)
		return;
	va_start(arguments, format);
	vsnprintf(reasons->text[reasons->count++], PL_REASON_MAX, format, arguments);
	va_end(arguments);
}

char *pl_pci_link_text(char *buffer, size_t size, struct pl_pci_link link)
{
	if (!link.speed)
		snprintf(buffer, size, "unknown");
	else if (link.speed % 1000)
		snprintf(buffer, size, "%u.%u GT/s x%u", link.speed / 1000, link.speed % 1000 / 100, link.width);
	else
		snprintf(buffer, size, "%u GT/s x%u", link.speed / 1000, link.width);
	return buffer;
}

static int top_of(const struct pl_topology *topology, int node)
{
	while (node >= 0 && topology->nodes[node].parent >= 0)
		node = topology->nodes[node].parent;
	return node;
}

static const char *address_of(const struct pl_topology *topology, int node)
{
	return node < 0 ? "an unknown place" : topology->nodes[node].address;
}

static void say_class(const struct pl_topology *topology, const struct pl_path *path, struct reasons *reasons)
{
	int gpu = topology->gpus[path->gpu].node, card = pl_card_gpu_node(&topology->cards[path->card]);
	unsigned count;
	int meeting = topology_meeting(topology, gpu, card, &count);

	switch (path->class) {
	case PL_PATH_PIX:
		say(reasons, "both are below %s, with one switch at most between them", address_of(topology, meeting));
		break;
	case PL_PATH_PXB:
		say(reasons, "%u switches are between them, and no host bridge: they meet at %s", count,
		    address_of(topology, meeting));
		break;
	case PL_PATH_PHB:
		say(reasons, topology->file[0] ? "they meet at the processor, %s" : "they meet at the host bridge %s",
		    address_of(topology, meeting));
		break;
	case PL_PATH_NODE:
		say(reasons, "they are at different host bridges of one NUMA node: %s and %s",
		    address_of(topology, top_of(topology, gpu)), address_of(topology, top_of(topology, card)));
		break;
	case PL_PATH_SYS:
		if (card < 0)
			say(reasons, "the card is no PCI device, so nothing is known of the way to it");
		else if (topology->nodes[gpu].numa < 0 || topology->nodes[card].numa < 0)
			say(reasons,
			    "they are at different host bridges, and the NUMA node of one of them is not known");
		else
			say(reasons, "the way crosses from NUMA node %d to %d", topology->nodes[gpu].numa,
			    topology->nodes[card].numa);
		break;
	}
}

/* Describes defects of the links above a device. */
static void say_links(const struct pl_topology *topology, int node, int end, struct reasons *reasons)
{
	char now[32], best[32];

	for (; node >= 0 && node != end; node = topology->nodes[node].parent) {
		const struct pl_pci_node *at = &topology->nodes[node];

		pl_pci_link_text(now, sizeof(now), at->now);
		pl_pci_link_text(best, sizeof(best), at->best);
		if (pl_topology_degraded(topology, node))
			say(reasons, "the link above %s runs at %s, and both ends can do %s", at->address, now, best);
		else if (pl_topology_idle(topology, node))
			say(reasons, "%s is idle and saves power: %s now, %s when it works", at->address, now, best);
	}
}

static void say_narrowest(const struct pl_topology *topology, const struct pl_path *path, struct reasons *reasons)
{
	const struct pl_pci_node *node;
	char text[32];

	if (!path->bandwidth)
		return;
	if (path->narrowest < 0) {
		say(reasons, "the card's port is the narrowest: %.4g Gbit/s", (double)path->bandwidth * 8 / 1e9);
		return;
	}
	node = &topology->nodes[path->narrowest];
	pl_pci_link_text(text, sizeof(text), pl_topology_idle(topology, path->narrowest) ? node->best : node->now);
	say(reasons, "the narrowest is the link above %s: %s, %.4g GB/s", node->address, text,
	    (double)path->bandwidth / 1e9);
}

static void say_card(const struct pl_topology *topology, const struct pl_path *path, struct reasons *reasons)
{
	const struct pl_card *card = &topology->cards[path->card];
	const char *driver = card->node < 0 ? "" : topology->nodes[card->node].driver;

	if (path->usable)
		return;
	if (card->name[0] && card->port_count)
		say(reasons, "%s has no active port: %s", card->name,
		    card->ports[0].state[0] ? card->ports[0].state : "its state is not known");
	else if (card->name[0])
		say(reasons, "%s has no ports", card->name);
	else
		say(reasons, "the card has no RDMA device: %s%s",
		    driver[0] ? "its driver is " : "no driver is bound to it", driver);
}

/* Tells why the best card is not the nearest one. */
static void say_choice(const struct pl_topology *topology, const struct pl_path *path, struct reasons *reasons)
{
	unsigned sharing = 0;

	for (size_t i = 0; i < topology->gpu_count; i++)
		sharing += pl_topology_path(topology, i, (size_t)path->card)->best;
	if (sharing > 1)
		say(reasons, "it is the best one for %u GPUs, which share it", sharing);
	for (size_t i = 0; i < topology->card_count; i++) {
		const struct pl_path *other = pl_topology_path(topology, (size_t)path->gpu, i);
		const struct pl_card *card = &topology->cards[i];

		if (other->class >= path->class)
			continue;
		say(reasons, "%s is nearer (%s), but %s", card->name[0] ? card->name : address_of(topology, card->node),
		    pl_path_class_name(other->class),
		    other->usable ? "its way carries less than half" : "cannot be used");
		return;
	}
}

size_t pl_topology_reasons(const struct pl_topology *topology, const struct pl_path *path, char (*text)[PL_REASON_MAX],
			   size_t room)
{
	struct reasons reasons = { text, 0, room };
	int gpu = topology->gpus[path->gpu].node, card = pl_card_gpu_node(&topology->cards[path->card]);
	unsigned count;
	int meeting = topology_meeting(topology, gpu, card, &count);

	if (topology->cards[path->card].data_direct >= 0)
		say(&reasons, "the card reaches the GPU's memory by its Data Direct function, %s%s",
		    topology->cards[path->card].data_direct_below ? "below " : "", topology->nodes[card].address);
	say_class(topology, path, &reasons);
	if (topology->is_virtual && !topology->file[0])
		say(&reasons,
		    "this is a virtual machine, whose PCI tree is a fiction: the real way may be another one");
	say_narrowest(topology, path, &reasons);
	say_links(topology, gpu, meeting, &reasons);
	if (card >= 0)
		say_links(topology, card, meeting, &reasons);
	if (path->redirected)
		say(&reasons, "ACS makes a switch send what they say to each other up to the root and back");
	say_card(topology, path, &reasons);
	if (path->best)
		say_choice(topology, path, &reasons);
	return reasons.count;
}
