/* SPDX-License-Identifier: BSD-2-Clause */
/* Path between GPU and card through PCI Express. */
#include <stdio.h>

#include "diag/check/row.h"
#include "topology/topology.h"

#define GROUP "Path"

static const struct pl_pci_node *node_at(const struct pl_check_machine *machine, int node)
{
	return node < 0 ? NULL : &machine->topology->nodes[node];
}

static void judge_link(const struct pl_check_machine *machine, int node, const char *what,
		       struct pl_check_result *result)
{
	const struct pl_topology *topology = machine->topology;

	for (int at = node; at >= 0 && topology->nodes[at].kind != PL_PCI_HOST_BRIDGE;
	     at = topology->nodes[at].parent) {
		const struct pl_pci_node *one = &topology->nodes[at];

		if (!pl_topology_degraded(topology, at))
			continue;
		/* Bridges of virtual machines are emulated, and show links that do not exist. */
		if (topology->is_virtual && !topology->file[0]) {
			pl_check_unknown(result, one->address, "lspci -vv | grep LnkSta, on the host of this machine",
					 "on the way of the %s: %.1f GT/s x%u of %.1f GT/s x%u, as the virtual machine "
					 "shows it",
					 what, one->now.speed / 1000.0, one->now.width, one->best.speed / 1000.0,
					 one->best.width);
			continue;
		}
		pl_check_note(result, pl_topology_idle(topology, at) ? PL_CHECK_OK : PL_CHECK_WARN, one->address,
			      "on the way of the %s: %.1f GT/s x%u of %.1f GT/s x%u%s", what, one->now.speed / 1000.0,
			      one->now.width, one->best.speed / 1000.0, one->best.width,
			      pl_topology_idle(topology, at) ? ", as it is idle" : "");
	}
}

static void probe_link(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const struct pl_topology *topology = machine->topology;
	size_t known = 0, all = 0;

	for (size_t i = 0; i < topology->gpu_count; i++, all++) {
		known += topology->nodes[topology->gpus[i].node].now.speed != 0;
		judge_link(machine, topology->gpus[i].node, "GPU", result);
	}
	for (size_t i = 0; i < topology->card_count; i++) {
		const struct pl_pci_node *node = node_at(machine, topology->cards[i].node);

		/* A virtual function has no link of its own. */
		if (!node || node->virtual_function)
			continue;
		all++;
		known += node->now.speed != 0;
		judge_link(machine, topology->cards[i].node, "card", result);
	}
	if (all && !known)
		pl_check_unknown(result, NULL, "lspci -vv | grep LnkSta, as root, on the host of this machine",
				 "the kernel shows no links of PCI Express here");
	else if (all && !result->count)
		pl_check_note(result, PL_CHECK_OK, NULL, "every link is as fast and as wide as its ends can be");
}

static const char *describe_class(enum pl_path_class class)
{
	static const char *const texts[] = { "one switch between them", "several switches between them",
					     "through one host bridge", "through two host bridges of one NUMA node",
					     "through the link between processors" };

	return texts[class];
}

static void probe_class(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const struct pl_topology *topology = machine->topology;

	for (size_t i = 0; i < topology->path_count; i++) {
		const struct pl_path *path = &topology->paths[i];
		const struct pl_pci_node *card = node_at(machine, topology->cards[path->card].node);

		if (!path->best || !card)
			continue;
		if (topology->is_virtual && !topology->file[0])
			pl_check_unknown(
				result, topology->nodes[topology->gpus[path->gpu].node].address,
				"the vendor's topology file: NCCL_TOPO_FILE, or --nccl-topology of `peerlane topo`",
				"%s to %s, but in a virtual machine the PCI tree is a fiction",
				pl_path_class_name(path->class), card->address);
		else
			pl_check_note(result, path->class == PL_PATH_SYS ? PL_CHECK_WARN : PL_CHECK_OK,
				      topology->nodes[topology->gpus[path->gpu].node].address,
				      "best card %s (%s): %s, %s", card->address, topology->cards[path->card].name,
				      pl_path_class_name(path->class), describe_class(path->class));
	}
}

/* True if a GPU and a card share a switch, below which ACS matters. */
static bool shares_switch(const struct pl_topology *topology)
{
	for (size_t i = 0; i < topology->path_count; i++)
		if (topology->paths[i].class <= PL_PATH_PXB && topology->cards[topology->paths[i].card].node >= 0)
			return true;
	return false;
}

static void probe_acs(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const struct pl_topology *topology = machine->topology;
	bool hidden = false;
	size_t ports = 0;

	if (!shares_switch(topology))
		return;
	for (size_t i = 0; i < topology->node_count; i++) {
		const struct pl_pci_node *node = &topology->nodes[i];

		if (node->kind != PL_PCI_DOWNSTREAM)
			continue;
		ports++;
		hidden = hidden || !node->config.extended;
		if (node->config.extended && node->config.acs &&
		    node->config.acs_control & (PL_ACS_REQUEST_REDIRECT | PL_ACS_COMPLETION_REDIRECT)) {
			pl_check_note(result, PL_CHECK_WARN, node->address,
				      "ACS sends traffic between the devices of the switch up to the root");
			pl_check_remedy(result,
					"setpci -s %s ECAP_ACS+6.w=0000   # for each port; not where virtual machines "
					"need isolation, these need ATS instead",
					node->address);
		}
	}
	if (result->count)
		return;
	if (ports && hidden)
		pl_check_unknown(result, NULL, "run it as root: only root sees these registers",
				 "whether ACS redirects in the switches");
	else if (ports)
		pl_check_note(result, PL_CHECK_OK, NULL, "no switch port redirects");
	else
		pl_check_note(result, PL_CHECK_OK, NULL, "there is no switch between them");
}

static void note_payload(const struct pl_check_machine *machine, int node, struct pl_check_result *result, bool *hidden)
{
	const struct pl_topology *topology = machine->topology;
	const struct pl_pci_node *one = node_at(machine, node);
	bool small;

	/* These fields are reserved in a virtual function, which uses the sizes of its physical function. */
	if (!one || one->virtual_function)
		return;
	if (!one->config.express) {
		*hidden = true;
		return;
	}
	small = one->config.payload < PL_MIN(one->config.payload_supported, 256) || one->config.read_request < 512;
	/* A virtual machine shows no physfn: its card may be a virtual function of the host. */
	if (small && topology->is_virtual && !topology->file[0])
		pl_check_unknown(result, one->address, "lspci -vv | grep MaxPayload, on the host of this machine",
				 "payload of %u bytes, read requests of %u, as the virtual machine shows it",
				 one->config.payload, one->config.read_request);
	else
		pl_check_note(result, small ? PL_CHECK_WARN : PL_CHECK_OK, one->address,
			      "payload of %u of %u bytes, read requests of %u", one->config.payload,
			      one->config.payload_supported, one->config.read_request);
}

static void probe_payload(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	const struct pl_topology *topology = machine->topology;
	bool hidden = false;

	for (size_t i = 0; i < topology->card_count; i++)
		note_payload(machine, topology->cards[i].node, result, &hidden);
	if (hidden && !result->count)
		pl_check_unknown(result, NULL, "run it as root, or: sudo lspci -vv | grep MaxPayload",
				 "only root sees these registers");
}

const struct pl_check_row pl_check_rows_path[] = {
	{
		.id = "path-link",
		.group = GROUP,
		.title = "speed and width of the links",
		.requirement =
			"Every link of PCI Express from card and GPU to the root is as fast and wide as both ends can.",
		.how = "current_link_speed, current_link_width against max_link_* in /sys/bus/pci/devices, the whole "
		       "way up",
		.reason = "The narrowest link caps the rate: 5 GT/s x4 carries no more than 16 Gbit/s.",
		.remedy = "peerlane topo --tree; move the card to a wider slot, reseat it, update its firmware",
		.rank = 52,
		.probe = probe_link,
	},
	{
		.id = "path-class",
		.group = GROUP,
		.title = "card near the GPU",
		.requirement = "Each GPU has a card that is reached without the link between processors.",
		.how = "the common parent in the PCI tree: PIX, PXB, PHB, NODE, SYS; `peerlane topo`",
		.reason = "Between processors many machines have half the rate or less, and some are unreliable.",
		.remedy = "move the card to a slot of the GPU's processor; or choose another one: peerlane topo",
		.rank = 54,
		.probe = probe_class,
	},
	{
		.id = "path-payload",
		.group = GROUP,
		.title = "sizes of PCI Express packets",
		.requirement = "Cards use a payload of 256 bytes or more, and read requests of 512 or more.",
		.how = "root: the PCI Express capability (lspci -vv: DevCtl)",
		.reason = "Smaller packets reduce the rate.",
		.remedy = "boot with pci=pcie_bus_perf; setpci -s ADDRESS CAP_EXP+8.w for the read request",
		.rank = 78,
		.probe = probe_payload,
	},
	{
		.id = "path-acs",
		.group = GROUP,
		.title = "no ACS redirection in switches",
		.requirement =
			"Switches between GPU and card pass on what is for each other without a way through the root.",
		.how = "root: the ACS control register in extended configuration space (lspci -vv: ACSCtl)",
		.reason = "Redirection halves the rate, and hangs some machines.",
		.remedy = "setpci -s ADDRESS_OF_PORT ECAP_ACS+6.w=0000; or switch ACS off in the firmware; "
			  "virtual machines need ATS instead",
		.rank = 56,
		.probe = probe_acs,
	},
	{ .id = NULL },
};
