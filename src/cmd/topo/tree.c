/* SPDX-License-Identifier: BSD-2-Clause */
/* For the terminal: the PCI tree.  A port with one thing below it is shown with that. */
#include <string.h>

#include "cmd/topo/topo.h"

/* More than the kernel has numbers for. */
#define TREE_NUMA_MAX 1024

enum { COLUMN_DEVICE, COLUMN_WHAT, COLUMN_LINK, COLUMN_MORE };

struct tree {
	const struct topo_view *view;
	struct libscols_table *table;
};

static void red(const struct tree *tree, struct libscols_line *line, size_t column)
{
	struct libscols_cell *cell = tree->view->colour ? scols_line_get_cell(line, column) : NULL;

	if (cell)
		scols_cell_set_color(cell, "red");
}

static void describe_gpu(const struct tree *tree, struct libscols_line *line, size_t gpu)
{
	const struct pl_topology *topology = tree->view->topology;
	const struct pl_path *best = topo_best(topology, gpu);
	char name[TOPO_TEXT], text[TOPO_TEXT * 2], rate[TOPO_TEXT];

	snprintf(text, sizeof(text), "GPU %zu, %s", gpu, topo_gpu_name(tree->view, gpu, name));
	cli_table_set(line, COLUMN_WHAT, text);
	if (!best)
		return;
	snprintf(text, sizeof(text), "best card %s, %s, %s", topo_card_label(topology, (size_t)best->card),
		 pl_path_class_name(best->class), topo_rate(best->bandwidth, rate));
	cli_table_set(line, COLUMN_MORE, text);
}

static void describe_card(const struct tree *tree, struct libscols_line *line, size_t card)
{
	const struct pl_topology *topology = tree->view->topology;
	char name[TOPO_TEXT], text[TOPO_TEXT * 2];

	snprintf(text, sizeof(text), "%s, %s", topology->cards[card].name[0] ? topology->cards[card].name : "card",
		 topo_card_name(tree->view, card, name));
	cli_table_set(line, COLUMN_WHAT, text);
	cli_table_set(line, COLUMN_MORE, topo_ports(topology, card, text));
}

static void describe(const struct tree *tree, struct libscols_line *line, int index)
{
	const struct pl_topology *topology = tree->view->topology;
	const struct pl_pci_node *node = &topology->nodes[index];
	char text[TOPO_TEXT];
	size_t which;

	cli_table_set(line, COLUMN_DEVICE, node->address);
	if (node->kind != PL_PCI_HOST_BRIDGE)
		cli_table_set(line, COLUMN_LINK, topo_link(topology, index, text));
	if (pl_topology_degraded(topology, index))
		red(tree, line, COLUMN_LINK);
	switch (topo_what(topology, index, &which)) {
	case TOPO_GPU:
		describe_gpu(tree, line, which);
		break;
	case TOPO_CARD:
		describe_card(tree, line, which);
		break;
	case TOPO_DRIVE:
		snprintf(text, sizeof(text), "%s",
			 topology->drives[which].name[0] ? topology->drives[which].name : "NVMe");
		cli_table_set(line, COLUMN_WHAT, text);
		cli_table_set(line, COLUMN_MORE, topology->drives[which].model);
		break;
	case TOPO_OTHER:
		cli_table_set(line, COLUMN_WHAT, topo_bridge_name(topology, index));
		break;
	}
}

static bool is_port(const struct pl_pci_node *node)
{
	return node->kind == PL_PCI_ROOT_PORT || node->kind == PL_PCI_DOWNSTREAM;
}

static void add(const struct tree *tree, struct libscols_line *parent, int index)
{
	const struct pl_pci_node *nodes = tree->view->topology->nodes;
	struct libscols_line *line;

	if (is_port(&nodes[index]) && nodes[index].child >= 0 && nodes[nodes[index].child].next < 0) {
		add(tree, parent, nodes[index].child);
		return;
	}
	line = scols_table_new_line(tree->table, parent);
	if (!line)
		return;
	describe(tree, line, index);
	for (int child = nodes[index].child; child >= 0; child = nodes[child].next)
		add(tree, line, child);
}

static void add_tops(const struct tree *tree, struct libscols_line *line, int numa)
{
	const struct pl_topology *topology = tree->view->topology;

	for (int node = topo_next_top(topology, numa, -1); node >= 0; node = topo_next_top(topology, numa, node))
		add(tree, line, node);
}

static void add_numa(const struct tree *tree, const struct pl_numa_node *numa)
{
	struct libscols_line *line = scols_table_new_line(tree->table, NULL);
	char text[TOPO_TEXT * 2];

	if (!line)
		return;
	snprintf(text, sizeof(text), "NUMA node %d", numa->id);
	cli_table_set(line, COLUMN_DEVICE, text);
	cli_table_set(line, COLUMN_WHAT, numa->cpu);
	if (numa->cpus[0]) {
		snprintf(text, sizeof(text), "CPUs %s", numa->cpus);
		cli_table_set(line, COLUMN_MORE, text);
	}
	add_tops(tree, line, numa->id);
}

/* Cards that are nowhere in the tree. */
static void add_rest(const struct tree *tree)
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
		describe_card(tree, line, i);
	}
}

void topo_print_tree(const struct topo_view *view)
{
	static const char *const titles[] = { "DEVICE", "WHAT", "LINK", "MORE" };
	const struct pl_topology *topology = view->topology;
	struct tree tree = { view, scols_new_table() };

	for (size_t i = 0; tree.table && i < CLI_ARRAY_SIZE(titles); i++)
		if (!scols_table_new_column(tree.table, titles[i], 0, i == COLUMN_DEVICE ? SCOLS_FL_TREE : 0))
			return;
	if (!tree.table)
		return;
	scols_table_enable_colors(tree.table, view->colour);
	for (size_t i = 0; i < topology->numa_count; i++)
		add_numa(&tree, &topology->numa[i]);
	/* Then those of NUMA nodes that are not there, or not known. */
	for (int i = -1; i < TREE_NUMA_MAX; i++) {
		bool known = false;

		for (size_t j = 0; j < topology->numa_count; j++)
			known = known || topology->numa[j].id == i;
		if (!known)
			add_tops(&tree, NULL, i);
	}
	add_rest(&tree);
	cli_table_print(tree.table);
}
