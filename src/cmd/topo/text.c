/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdarg.h>
#include <string.h>

#include "cmd/topo/topo.h"
#include "cmd/common/units.h"

enum topo_what topo_what(const struct pl_topology *topology, int node, size_t *index)
{
	for (*index = 0; *index < topology->gpu_count; ++*index)
		if (topology->gpus[*index].node == node)
			return TOPO_GPU;
	for (*index = 0; *index < topology->card_count; ++*index)
		if (topology->cards[*index].node == node)
			return TOPO_CARD;
	for (*index = 0; *index < topology->drive_count; ++*index)
		if (topology->drives[*index].node == node)
			return TOPO_DRIVE;
	return TOPO_OTHER;
}

int topo_next_top(const struct pl_topology *topology, int numa, int previous)
{
	const struct pl_pci_node *nodes = topology->nodes;
	int next = -1;

	for (int i = 0; i < (int)topology->node_count; i++)
		if (nodes[i].parent < 0 && nodes[i].numa == numa &&
		    (previous < 0 || strcmp(nodes[i].address, nodes[previous].address) > 0) &&
		    (next < 0 || strcmp(nodes[i].address, nodes[next].address) < 0))
			next = i;
	return next;
}

const char *topo_short(const char *address)
{
	return strncmp(address, "0000:", 5) ? address : address + 5;
}

const char *topo_card_label(const struct pl_topology *topology, size_t index)
{
	const struct pl_card *card = &topology->cards[index];

	if (card->name[0])
		return card->name;
	return card->node < 0 ? "?" : topo_short(topology->nodes[card->node].address);
}

const char *topo_gpu_name(const struct topo_view *view, size_t gpu, char buffer[TOPO_TEXT])
{
	static const char *const makers[] = { "NVIDIA", "AMD", "Intel", "GPU" };
	const struct pl_gpu *at = &view->topology->gpus[gpu];
	const struct pl_pci_node *node = &view->topology->nodes[at->node];

	if (at->model[0])
		snprintf(buffer, TOPO_TEXT, "%s", at->model);
	else if (!node->device)
		snprintf(buffer, TOPO_TEXT, "%s", makers[at->vendor]);
	else
		pci_names_device(view->names, node->vendor, node->device, buffer, TOPO_TEXT);
	return buffer;
}

const char *topo_card_name(const struct topo_view *view, size_t index, char buffer[TOPO_TEXT])
{
	const struct pl_card *card = &view->topology->cards[index];
	const struct pl_pci_node *node = card->node < 0 ? NULL : &view->topology->nodes[card->node];

	if (card->software)
		snprintf(buffer, TOPO_TEXT, "software, over %s", card->netdev_count ? card->netdevs[0].name : "?");
	else if (node && node->vendor && node->device)
		pci_names_device(view->names, node->vendor, node->device, buffer, TOPO_TEXT);
	else if (card->type[0])
		snprintf(buffer, TOPO_TEXT, "%s", card->type);
	else
		snprintf(buffer, TOPO_TEXT, "card");
	return buffer;
}

const char *topo_bridge_name(const struct pl_topology *topology, int node)
{
	switch (topology->nodes[node].kind) {
	case PL_PCI_HOST_BRIDGE:
		return topology->file[0] ? "processor" : "host bridge";
	case PL_PCI_ROOT_PORT:
		return "root port";
	case PL_PCI_UPSTREAM:
		return "switch";
	case PL_PCI_DOWNSTREAM:
		return "switch port";
	case PL_PCI_BRIDGE:
		return "bridge";
	default:
		return "device";
	}
}

const char *topo_rate(uint64_t rate, char buffer[TOPO_TEXT])
{
	if (rate)
		snprintf(buffer, TOPO_TEXT, "%.3g GB/s", (double)rate / 1e9);
	else
		snprintf(buffer, TOPO_TEXT, "-");
	return buffer;
}

const char *topo_link(const struct pl_topology *topology, int node, char buffer[TOPO_TEXT])
{
	const struct pl_pci_node *at = &topology->nodes[node];
	char now[32], best[32];

	pl_pci_link_text(now, sizeof(now), at->now);
	pl_pci_link_text(best, sizeof(best), at->best);
	if (!at->now.speed)
		snprintf(buffer, TOPO_TEXT, "-");
	else if (pl_topology_degraded(topology, node))
		snprintf(buffer, TOPO_TEXT, "%s of %s", now, best);
	else if (pl_topology_idle(topology, node))
		snprintf(buffer, TOPO_TEXT, "%s (idle)", best);
	else
		snprintf(buffer, TOPO_TEXT, "%s", now);
	return buffer;
}

const char *topo_ports(const struct pl_topology *topology, size_t index, char buffer[TOPO_TEXT])
{
	const struct pl_card *card = &topology->cards[index];
	const struct pl_rdma_port *port = card->ports;
	char rate[32] = "";

	if (!card->name[0]) {
		snprintf(buffer, TOPO_TEXT, card->described ? "not known" : "no RDMA device");
		return buffer;
	}
	if (!card->port_count) {
		snprintf(buffer, TOPO_TEXT, "no ports");
		return buffer;
	}
	for (size_t i = 1; i < card->port_count; i++)
		if (!port->active && card->ports[i].active)
			port = &card->ports[i];
	if (port->rate)
		snprintf(rate, sizeof(rate), "%.4g Gbit/s ", (double)port->rate / 1e9);
	if (port->active)
		snprintf(buffer, TOPO_TEXT, "%s%s", rate, port->link_layer);
	else if (card->described)
		snprintf(buffer, TOPO_TEXT, "%s", rate);
	else
		snprintf(buffer, TOPO_TEXT, "%s %s", port->state[0] ? port->state : "state unknown", port->link_layer);
	return buffer;
}

const struct pl_path *topo_best(const struct pl_topology *topology, size_t gpu)
{
	for (size_t i = 0; i < topology->card_count; i++)
		if (pl_topology_path(topology, gpu, i)->best)
			return pl_topology_path(topology, gpu, i);
	return NULL;
}

static const char *plural(size_t count)
{
	return count == 1 ? "" : "s";
}

const char *topo_summary(const struct pl_topology *topology, char buffer[TOPO_TEXT])
{
	snprintf(buffer, TOPO_TEXT, "%zu GPU%s, %zu RDMA card%s, %zu NUMA node%s%s", topology->gpu_count,
		 plural(topology->gpu_count), topology->card_count, plural(topology->card_count), topology->numa_count,
		 plural(topology->numa_count), topology->is_virtual ? ", virtual machine" : "");
	return buffer;
}

struct notes {
	char (*text)[PL_REASON_MAX];
	size_t count, room;
};

static void __attribute__((format(printf, 2, 3))) note(struct notes *notes, const char *format, ...)
{
	va_list arguments;

	if (notes->count == notes->room)
		return;
	va_start(arguments, format);
	vsnprintf(notes->text[notes->count++], PL_REASON_MAX, format, arguments);
	va_end(arguments);
}

static void note_source(const struct pl_topology *topology, struct notes *notes)
{
	if (topology->file[0])
		note(notes, "Where things are is as %s says, not as the PCI tree does.", topology->file);
	if (topology->file_foreign)
		note(notes, "None of the devices of that file is on this machine: this is another one.");
	if (topology->file_others)
		note(notes, "That file is of several hosts: the first one is shown, the others are left out.");
	if (topology->file_twice)
		note(notes, "%zu device%s in two places of that file: the first one counts.", topology->file_twice,
		     topology->file_twice == 1 ? " is" : "s are");
	if (topology->file_vague)
		note(notes, "That file does not say what %zu of its devices are, which only their own machine can.",
		     topology->file_vague);
	if (topology->file_absent)
		note(notes, "%zu GPU%s or cards of this machine are not in that file.", topology->file_absent,
		     plural(topology->file_absent));
	if (topology->is_virtual && !topology->file[0])
		note(notes, "The PCI tree of a virtual machine is a fiction: take the file of its maker "
			    "(--nccl-topology FILE, "
			    "or NCCL_TOPO_FILE).");
	if (topology->ignored[0])
		note(notes,
		     "NCCL_TOPO_FILE (%.80s) is not followed, as this is no virtual machine: --nccl-topology does.",
		     topology->ignored);
}

static void note_links(const struct pl_topology *topology, struct notes *notes)
{
	char text[TOPO_TEXT];

	for (size_t i = 0; i < topology->node_count; i++) {
		if (pl_topology_degraded(topology, (int)i))
			note(notes, "Slow link: above %s it is %s.", topology->nodes[i].address,
			     topo_link(topology, (int)i, text));
	}
}

static void note_cards(const struct topo_view *view, struct notes *notes)
{
	const struct pl_topology *topology = view->topology;
	char text[TOPO_TEXT];

	for (size_t i = 0; i < topology->card_count; i++) {
		const struct pl_card *card = &topology->cards[i];

		if (!card->name[0] && !card->described)
			note(notes, "%s (%s) has no RDMA device: %s%s.", topology->nodes[card->node].address,
			     topo_card_name(view, i, text),
			     topology->nodes[card->node].driver[0] ? "its driver is " : "no driver is bound to it",
			     topology->nodes[card->node].driver);
	}
}

static void note_acs(const struct pl_topology *topology, struct notes *notes)
{
	size_t redirected = 0;

	for (size_t i = 0; i < topology->path_count; i++)
		redirected += topology->paths[i].redirected;
	if (redirected)
		note(notes,
		     "ACS in switches sends %zu of these paths through the root: peerlane check says what to do.",
		     redirected);
}

size_t topo_notes(const struct topo_view *view, char (*text)[PL_REASON_MAX], size_t room)
{
	const struct pl_topology *topology = view->topology;
	struct notes notes = { text, 0, room };

	note_source(topology, &notes);
	if (!topology->gpu_count)
		note(&notes, "There is no GPU of NVIDIA, AMD or Intel here.");
	if (!topology->card_count)
		note(&notes, "There is no RDMA card here, and no RDMA device of software either.");
	note_links(topology, &notes);
	note_acs(topology, &notes);
	note_cards(view, &notes);
	return notes.count;
}
