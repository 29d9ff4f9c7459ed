/* SPDX-License-Identifier: BSD-2-Clause */
/* Text output of the PCI tree.  A port with one node below is shown as that node. */
#include "cmd/topo/topo.h"

#include <string.h>

/* Limit of NUMA node numbers; the kernel has at most 1024. */
#define TREE_NUMA_MAX 1024

enum { COLUMN_DEVICE, COLUMN_DESCRIPTION, COLUMN_LINK, COLUMN_DETAILS };

struct tree {
	const struct topo_view *view;
	struct libscols_table *table;
};

static void colour_cell_red(const struct tree *tree, struct libscols_line *line, size_t column)
{
	struct libscols_cell *cell = tree->view->colour ? scols_line_get_cell(line, column) : NULL;

	if (cell)
		scols_cell_set_color(cell, "red");
}

static void describe_gpu_node(const struct tree *tree, struct libscols_line *line, size_t gpu)
{
	const struct pl_topology *topology = tree->view->topology;
	const struct pl_path *best = topo_best_path(topology, gpu);
	char name[TOPO_TEXT], text[TOPO_TEXT * 2], rate[TOPO_TEXT];

	snprintf(text, sizeof(text), "GPU %zu, %s", gpu, topo_gpu_name(tree->view, gpu, name));
	cli_table_set(line, COLUMN_DESCRIPTION, text);
	if (!best)
		return;
	snprintf(text, sizeof(text), "best card %s, %s, %s", topo_card_label(topology, (size_t)best->card),
		 pl_path_class_name(best->class), topo_rate(best->bandwidth, rate));
	cli_table_set(line, COLUMN_DETAILS, text);
}

static void describe_card_node(const struct tree *tree, struct libscols_line *line, size_t card)
{
	const struct pl_topology *topology = tree->view->topology;
	char name[TOPO_TEXT], text[TOPO_TEXT * 2];

	snprintf(text, sizeof(text), "%s, %s", topology->cards[card].name[0] ? topology->cards[card].name : "card",
		 topo_card_name(tree->view, card, name));
	cli_table_set(line, COLUMN_DESCRIPTION, text);
	cli_table_set(line, COLUMN_DETAILS, topo_ports(topology, card, text));
}

/* Describes a bridge, or the Data Direct function of a card. */
static void describe_other_node(const struct tree *tree, struct libscols_line *line, int index)
{
	const struct pl_topology *topology = tree->view->topology;
	char text[TOPO_TEXT];

	for (size_t i = 0; i < topology->card_count; i++) {
		if (topology->cards[i].data_direct != index || topology->cards[i].data_direct_below)
			continue;
		snprintf(text, sizeof(text), "Data Direct of %s", topology->cards[i].name);
		cli_table_set(line, COLUMN_DESCRIPTION, text);
		return;
	}
	cli_table_set(line, COLUMN_DESCRIPTION, topo_bridge_name(topology, index));
}

static void describe_pci_node(const struct tree *tree, struct libscols_line *line, int index)
{
	const struct pl_topology *topology = tree->view->topology;
	const struct pl_pci_node *node = &topology->nodes[index];
	char text[TOPO_TEXT];
	size_t device;

	cli_table_set(line, COLUMN_DEVICE, node->address);
	if (node->kind != PL_PCI_HOST_BRIDGE)
		cli_table_set(line, COLUMN_LINK, topo_link(topology, index, text));
	if (pl_topology_degraded(topology, index))
		colour_cell_red(tree, line, COLUMN_LINK);
	switch (topo_node_kind(topology, index, &device)) {
	case TOPO_GPU:
		describe_gpu_node(tree, line, device);
		break;
	case TOPO_CARD:
		describe_card_node(tree, line, device);
		break;
	case TOPO_DRIVE:
		snprintf(text, sizeof(text), "%s",
			 topology->drives[device].name[0] ? topology->drives[device].name : "NVMe");
		cli_table_set(line, COLUMN_DESCRIPTION, text);
		cli_table_set(line, COLUMN_DETAILS, topology->drives[device].model);
		break;
	case TOPO_OTHER:
		describe_other_node(tree, line, index);
		break;
	}
}

static bool is_port_with_one_child(const struct pl_pci_node *nodes, int index)
{
	return topo_is_port(&nodes[index]) && nodes[index].child >= 0 && nodes[nodes[index].child].next < 0;
}

static void add_tree_node(const struct tree *tree, struct libscols_line *parent, int index)
{
	const struct pl_pci_node *nodes = tree->view->topology->nodes;
	struct libscols_line *line;

	if (is_port_with_one_child(nodes, index)) {
		add_tree_node(tree, parent, nodes[index].child);
		return;
	}
	line = scols_table_new_line(tree->table, parent);
	if (!line)
		return;
	describe_pci_node(tree, line, index);
	for (int child = nodes[index].child; child >= 0; child = nodes[child].next)
		add_tree_node(tree, line, child);
}

static void add_numa_roots(const struct tree *tree, struct libscols_line *line, int numa)
{
	const struct pl_topology *topology = tree->view->topology;

	for (int node = topo_next_root(topology, numa, -1); node >= 0; node = topo_next_root(topology, numa, node))
		add_tree_node(tree, line, node);
}

static void add_numa_line(const struct tree *tree, const struct pl_numa_node *numa)
{
	struct libscols_line *line = scols_table_new_line(tree->table, NULL);
	char text[TOPO_TEXT * 2];

	if (!line)
		return;
	snprintf(text, sizeof(text), "NUMA node %d", numa->id);
	cli_table_set(line, COLUMN_DEVICE, text);
	cli_table_set(line, COLUMN_DESCRIPTION, numa->cpu);
	if (numa->cpus[0]) {
		snprintf(text, sizeof(text), "CPUs %s", numa->cpus);
		cli_table_set(line, COLUMN_DETAILS, text);
	}
	add_numa_roots(tree, line, numa->id);
}

/* Adds software devices and cards outside the PCI tree. */
static void add_cards_outside_tree(const struct tree *tree)
{
	const struct pl_topology *topology = tree->view->topology;

	for (size_t i = 0; i < topology->card_count; i++) {
		struct libscols_line *line;

		if (topology->cards[i].node >= 0 && !topology->cards[i].software)
			continue;
		line = scols_table_new_line(tree->table, NULL);
		if (!line)
			return;
		cli_table_set(line, COLUMN_DEVICE, topology->cards[i].name);
		describe_card_node(tree, line, i);
	}
}

void topo_print_tree(const struct topo_view *view)
{
	static const struct cli_column columns[] = {
		[COLUMN_DEVICE] = { "DEVICE", SCOLS_FL_TREE },
		[COLUMN_DESCRIPTION] = { "DESCRIPTION", 0 },
		[COLUMN_LINK] = { "LINK", 0 },
		[COLUMN_DETAILS] = { "DETAILS", SCOLS_FL_WRAP },
	};
	const struct pl_topology *topology = view->topology;
	struct tree tree = { view, cli_table(columns, CLI_ARRAY_SIZE(columns)) };

	if (!tree.table)
		return;
	scols_table_enable_colors(tree.table, view->colour);
	for (size_t i = 0; i < topology->numa_count; i++)
		add_numa_line(&tree, &topology->numa[i]);
	/* Roots whose NUMA node is unknown or not listed. */
	for (int i = -1; i < TREE_NUMA_MAX; i++) {
		bool known = false;

		for (size_t j = 0; j < topology->numa_count; j++)
			known = known || topology->numa[j].id == i;
		if (!known)
			add_numa_roots(&tree, NULL, i);
	}
	add_cards_outside_tree(&tree);
	cli_table_print(tree.table);
}
