/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/topo/topo.h"

#include <stdarg.h>
#include <string.h>

#include "cmd/common/units.h"

enum topo_kind topo_node_kind(const struct pl_topology *topology, int node, size_t *index)
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

int topo_next_root(const struct pl_topology *topology, int numa, int previous)
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

const char *topo_short_address(const char *address)
{
	return strncmp(address, "0000:", 5) ? address : address + 5;
}

const char *topo_card_label(const struct pl_topology *topology, size_t index)
{
	const struct pl_card *card = &topology->cards[index];

	if (card->name[0])
		return card->name;
	return card->node < 0 ? "?" : topo_short_address(topology->nodes[card->node].address);
}

const char *topo_gpu_name(const struct topo_view *view, size_t gpu, char buffer[TOPO_TEXT])
{
	static const char *const vendors[] = { "NVIDIA", "AMD", "Intel", "GPU" };
	const struct pl_gpu *at = &view->topology->gpus[gpu];
	const struct pl_pci_node *node = &view->topology->nodes[at->node];

	if (at->model[0])
		snprintf(buffer, TOPO_TEXT, "%s", at->model);
	else if (!node->device)
		snprintf(buffer, TOPO_TEXT, "%s", vendors[at->vendor]);
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
		snprintf(buffer, TOPO_TEXT, rate < 999500000000 ? "%.3g GB/s" : "%.0f GB/s", (double)rate / 1e9);
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

const struct pl_path *topo_best_path(const struct pl_topology *topology, size_t gpu)
{
	for (size_t i = 0; i < topology->card_count; i++)
		if (pl_topology_path(topology, gpu, i)->best)
			return pl_topology_path(topology, gpu, i);
	return NULL;
}

static const char *plural_suffix(size_t count)
{
	return count == 1 ? "" : "s";
}

const char *topo_summary(const struct pl_topology *topology, char buffer[TOPO_TEXT])
{
	snprintf(buffer, TOPO_TEXT, "%zu GPU%s, %zu RDMA card%s, %zu NUMA node%s%s", topology->gpu_count,
		 plural_suffix(topology->gpu_count), topology->card_count, plural_suffix(topology->card_count),
		 topology->numa_count, plural_suffix(topology->numa_count),
		 topology->is_virtual ? ", virtual machine" : "");
	return buffer;
}

void topo_add_note(struct topo_note_list *notes, const char *format, ...)
{
	va_list arguments;

	if (notes->count == notes->room)
		return;
	va_start(arguments, format);
	vsnprintf(notes->text[notes->count++], PL_REASON_MAX, format, arguments);
	va_end(arguments);
}

static void note_topology_file(const struct pl_topology *topology, struct topo_note_list *notes)
{
	if (topology->file[0])
		topo_add_note(notes, "Locations come from %s, not from the PCI tree.", topology->file);
	if (topology->file_foreign)
		topo_add_note(notes, "That file describes another machine: none of its devices exists here.");
	if (topology->file_others)
		topo_add_note(notes, "That file describes several hosts; only the first one is shown.");
	if (topology->file_twice)
		topo_add_note(notes, "That file lists %zu device%s twice; the first entry is used.",
			      topology->file_twice, plural_suffix(topology->file_twice));
	if (topology->file_vague)
		topo_add_note(notes, "That file does not give the type of %zu device%s; only the machine itself can.",
			      topology->file_vague, plural_suffix(topology->file_vague));
	if (topology->file_absent)
		topo_add_note(notes, "%zu of the GPUs and cards of this machine are not in that file.",
			      topology->file_absent);
	if (topology->is_virtual && !topology->file[0])
		topo_add_note(notes,
			      "PCI distances are not real in a virtual machine: pass the topology file of the provider "
			      "with --nccl-topology FILE, or in NCCL_TOPO_FILE.");
	if (topology->ignored[0])
		topo_add_note(notes,
			      "NCCL_TOPO_FILE (%.80s) is ignored, because this is not a virtual machine.  "
			      "--nccl-topology applies it.",
			      topology->ignored);
}

static void note_slow_links(const struct pl_topology *topology, struct topo_note_list *notes)
{
	char text[TOPO_TEXT];

	for (size_t i = 0; i < topology->node_count; i++) {
		if (pl_topology_degraded(topology, (int)i))
			topo_add_note(notes, "Slow link above %s: %s.", topology->nodes[i].address,
				      topo_link(topology, (int)i, text));
	}
}

static void note_cards_without_rdma(const struct topo_view *view, struct topo_note_list *notes)
{
	const struct pl_topology *topology = view->topology;
	char text[TOPO_TEXT];

	for (size_t i = 0; i < topology->card_count; i++) {
		const struct pl_card *card = &topology->cards[i];

		if (!card->name[0] && !card->described)
			topo_add_note(notes, "%s (%s) has no RDMA device: %s%s.", topology->nodes[card->node].address,
				      topo_card_name(view, i, text),
				      topology->nodes[card->node].driver[0] ? "its driver is "
									    : "no driver is bound to it",
				      topology->nodes[card->node].driver);
	}
}

static void note_redirected_paths(const struct pl_topology *topology, struct topo_note_list *notes)
{
	size_t redirected = 0;

	for (size_t i = 0; i < topology->path_count; i++)
		redirected += topology->paths[i].redirected;
	if (redirected)
		topo_add_note(notes,
			      "ACS in PCI switches redirects %zu of these paths through the root complex; see "
			      "`peerlane check`.",
			      redirected);
}

static void note_data_direct(const struct pl_topology *topology, struct topo_note_list *notes)
{
	if (topology->data_direct_silent[0])
		topo_add_note(
			notes,
			"Data Direct functions of the cards are unknown: the process that asked libmlx5 for them: %s. "
			"See the kernel log.",
			topology->data_direct_silent);
	for (size_t i = 0; i < topology->card_count; i++) {
		const struct pl_card *card = &topology->cards[i];

		if (card->data_direct >= 0)
			topo_add_note(
				notes,
				"%s reaches GPU memory by its Data Direct function %s%s: its distances from GPUs, "
				"and the rates, are those of that function.",
				card->name, card->data_direct_below ? "below " : "",
				topology->nodes[card->data_direct].address);
	}
}

size_t topo_notes(const struct topo_view *view, char (*text)[PL_REASON_MAX], size_t room)
{
	const struct pl_topology *topology = view->topology;
	struct topo_note_list notes = { text, 0, room };

	note_topology_file(topology, &notes);
	if (!topology->gpu_count)
		topo_add_note(&notes, "No GPU of NVIDIA, AMD or Intel found.");
	if (!topology->card_count)
		topo_add_note(&notes, "No RDMA card and no software RDMA device found.");
	note_data_direct(topology, &notes);
	note_slow_links(topology, &notes);
	topo_note_lost_links(topology, &notes);
	note_redirected_paths(topology, &notes);
	note_cards_without_rdma(view, &notes);
	return notes.count;
}
