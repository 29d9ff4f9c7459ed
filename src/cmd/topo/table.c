/* SPDX-License-Identifier: BSD-2-Clause */
/* Text output: matrix of GPUs and cards, tables of both, notes. */
#include "cmd/topo/topo.h"

#include <string.h>
#include <unistd.h>

#define GREEN "green"
#define RED "red"

static void set_coloured_cell(const struct topo_view *view, struct libscols_line *line, size_t column, const char *text,
			      const char *colour)
{
	struct libscols_cell *cell;

	cli_table_set(line, column, text);
	if (!line || !view->colour || !colour)
		return;
	cell = scols_line_get_cell(line, column);
	if (cell)
		scols_cell_set_color(cell, colour);
}

static struct libscols_table *new_topo_table(const struct topo_view *view)
{
	struct libscols_table *table = scols_new_table();

	if (table && view->colour)
		scols_table_enable_colors(table, 1);
	return table;
}

static void add_topo_column(struct libscols_table **table, const char *name, int flags)
{
	if (*table && !scols_table_new_column(*table, name, 0, flags)) {
		scols_unref_table(*table);
		*table = NULL;
	}
}

/* Returns the length of the prefix up to '_' that all names of cards share, such as "mlx5_". */
static size_t common_card_prefix(const struct pl_topology *topology)
{
	const char *first = topo_card_label(topology, 0), *end = strrchr(first, '_');
	size_t length = end ? (size_t)(end + 1 - first) : 0;

	for (size_t i = 1; i < topology->card_count; i++)
		if (strncmp(topo_card_label(topology, i), first, length))
			return 0;
	return length;
}

/* Columns of the matrix: GPUs, cards, or both. */
struct matrix_columns {
	bool gpus, cards;
	size_t omitted; /* length of the prefix that the heads of cards omit */
};

static size_t matrix_width(const struct pl_topology *topology, const struct matrix_columns *columns)
{
	size_t width = 3 + 12;

	if (columns->gpus)
		width += topology->gpu_count * strlen(" GPU0 ");
	for (size_t i = 0; columns->cards && i < topology->card_count; i++)
		width += 1 + CLI_MAX(strlen(topo_card_label(topology, i)) - columns->omitted, strlen("NODE*"));
	return width;
}

static void set_gpu_cells(const struct topo_view *view, struct libscols_line *line, size_t gpu)
{
	struct pl_gpu_pair pair;
	char text[TOPO_TEXT];

	for (size_t peer = 0; peer < view->topology->gpu_count; peer++) {
		if (peer == gpu) {
			cli_table_set(line, peer + 1, "X");
			continue;
		}
		pl_topology_gpu_pair(view->topology, gpu, peer, &pair);
		set_coloured_cell(view, line, peer + 1, topo_gpu_pair_label(&pair, text), pair.linked ? GREEN : NULL);
	}
}

static void set_card_cells(const struct topo_view *view, struct libscols_line *line, size_t gpu, size_t column)
{
	char text[TOPO_TEXT];

	for (size_t card = 0; card < view->topology->card_count; card++) {
		const struct pl_path *path = pl_topology_path(view->topology, gpu, card);

		snprintf(text, sizeof(text), "%s%s", pl_path_class_name(path->class), path->best ? "*" : "");
		set_coloured_cell(view, line, column + card, text, path->best ? GREEN : NULL);
	}
}

static void print_path_matrix(const struct topo_view *view, const struct matrix_columns *columns)
{
	const struct pl_topology *topology = view->topology;
	struct libscols_table *table = new_topo_table(view);
	size_t omitted = columns->omitted;
	char text[TOPO_TEXT];

	snprintf(text, sizeof(text), omitted ? "GPU, %.*s" : "GPU", (int)omitted,
		 omitted ? topo_card_label(topology, 0) : "");
	add_topo_column(&table, text, 0);
	for (size_t i = 0; columns->gpus && i < topology->gpu_count; i++) {
		snprintf(text, sizeof(text), "GPU%zu", i);
		add_topo_column(&table, text, 0);
	}
	for (size_t i = 0; columns->cards && i < topology->card_count; i++)
		add_topo_column(&table, topo_card_label(topology, i) + omitted, 0);
	for (size_t gpu = 0; gpu < topology->gpu_count; gpu++) {
		struct libscols_line *line = cli_table_line(table);

		snprintf(text, sizeof(text), "%zu %s", gpu,
			 topo_short_address(topology->nodes[topology->gpus[gpu].node].address));
		cli_table_set(line, 0, text);
		if (columns->gpus)
			set_gpu_cells(view, line, gpu);
		if (columns->cards)
			set_card_cells(view, line, gpu, columns->gpus ? topology->gpu_count + 1 : 1);
	}
	cli_table_print(table);
}

/* Prints one matrix if it fits, else GPUs and cards in a matrix each, without the common prefix of cards if need be. */
static void print_matrices(const struct topo_view *view)
{
	const struct pl_topology *topology = view->topology;
	struct matrix_columns columns = { .gpus = topology->gpu_count > 1, .cards = topology->card_count > 0 };

	if (columns.gpus && columns.cards && matrix_width(topology, &columns) > wrap_width()) {
		columns.cards = false;
		print_path_matrix(view, &columns);
		putchar('\n');
		columns = (struct matrix_columns){ .cards = true };
	}
	if (columns.cards && isatty(STDOUT_FILENO) && matrix_width(topology, &columns) > wrap_width())
		columns.omitted = common_card_prefix(topology);
	print_path_matrix(view, &columns);
}

static void print_link_table(const struct topo_view *view)
{
	static const char *const titles[] = { "GPU", "LINKS", "RATE", "TO" };
	const struct pl_topology *topology = view->topology;
	struct libscols_table *table = new_topo_table(view);
	char text[TOPO_TEXT];

	for (size_t i = 0; i < CLI_ARRAY_SIZE(titles); i++)
		add_topo_column(&table, titles[i], i == 2 ? SCOLS_FL_RIGHT : i == 3 ? SCOLS_FL_TRUNC : 0);
	for (size_t gpu = 0; gpu < topology->gpu_count; gpu++) {
		struct libscols_line *line;

		if (!*topo_gpu_links(topology, gpu, text))
			continue;
		line = cli_table_line(table);
		set_coloured_cell(view, line, 1, text, strstr(text, "down") ? RED : NULL);
		snprintf(text, sizeof(text), "%zu", gpu);
		cli_table_set(line, 0, text);
		cli_table_set(line, 2, topo_rate(topo_gpu_link_rate(topology, gpu), text));
		topo_gpu_link_ends(topology, gpu, text);
		cli_table_set(line, 3, text[0] ? text : "-");
	}
	cli_table_print(table);
}

/* Names the part of a path that limits its rate. */
static const char *path_bottleneck(const struct pl_topology *topology, const struct pl_path *path, char text[TOPO_TEXT])
{
	char link[TOPO_TEXT];

	if (!path->bandwidth)
		snprintf(text, TOPO_TEXT, "-");
	else if (path->narrowest < 0)
		snprintf(text, TOPO_TEXT, "the card's port");
	else
		snprintf(text, TOPO_TEXT, "%.40s at %s", topo_link(topology, path->narrowest, link),
			 topo_short_address(topology->nodes[path->narrowest].address));
	return text;
}

static const char *format_numa_node(int numa, char text[TOPO_TEXT])
{
	if (numa < 0)
		snprintf(text, TOPO_TEXT, "-");
	else
		snprintf(text, TOPO_TEXT, "%d", numa);
	return text;
}

static void print_gpu_table(const struct topo_view *view)
{
	static const char *const titles[] = { "GPU", "NAME", "NUMA", "BEST", "CLASS", "RATE", "BOTTLENECK" };
	const struct pl_topology *topology = view->topology;
	struct libscols_table *table = new_topo_table(view);
	char text[TOPO_TEXT];

	for (size_t i = 0; i < CLI_ARRAY_SIZE(titles); i++)
		add_topo_column(&table, titles[i], i == 5 ? SCOLS_FL_RIGHT : i == 1 || i == 6 ? SCOLS_FL_TRUNC : 0);
	for (size_t gpu = 0; gpu < topology->gpu_count; gpu++) {
		struct libscols_line *line = cli_table_line(table);
		const struct pl_path *best = topo_best_path(topology, gpu);

		snprintf(text, sizeof(text), "%zu", gpu);
		cli_table_set(line, 0, text);
		cli_table_set(line, 1, topo_gpu_name(view, gpu, text));
		cli_table_set(line, 2, format_numa_node(topology->nodes[topology->gpus[gpu].node].numa, text));
		cli_table_set(line, 3, best ? topo_card_label(topology, (size_t)best->card) : "none");
		if (!best)
			continue;
		cli_table_set(line, 4, pl_path_class_name(best->class));
		cli_table_set(line, 5, topo_rate(best->bandwidth, text));
		set_coloured_cell(view, line, 6, path_bottleneck(topology, best, text),
				  best->bandwidth < best->possible || !best->usable ? RED : NULL);
	}
	cli_table_print(table);
}

static void print_card_table(const struct topo_view *view)
{
	static const char *const titles[] = { "CARD", "ADDRESS", "NAME", "NUMA", "LINK", "PORT", "NET" };
	const struct pl_topology *topology = view->topology;
	struct libscols_table *table = new_topo_table(view);
	char text[TOPO_TEXT];

	for (size_t i = 0; i < CLI_ARRAY_SIZE(titles); i++)
		add_topo_column(&table, titles[i], i == 2 || i == 6 ? SCOLS_FL_TRUNC : 0);
	for (size_t i = 0; i < topology->card_count; i++) {
		const struct pl_card *card = &topology->cards[i];
		struct libscols_line *line = cli_table_line(table);

		cli_table_set(line, 0, card->name[0] ? card->name : "-");
		cli_table_set(line, 1, card->node < 0 ? "-" : topology->nodes[card->node].address);
		cli_table_set(line, 2, topo_card_name(view, i, text));
		cli_table_set(line, 3, format_numa_node(card->node < 0 ? -1 : topology->nodes[card->node].numa, text));
		if (card->node >= 0)
			set_coloured_cell(view, line, 4, topo_link(topology, card->node, text),
					  pl_topology_degraded(topology, card->node) ? RED : NULL);
		set_coloured_cell(view, line, 5, topo_ports(topology, i, text),
				  topology->card_count && !card->described && strchr("ISD", text[0]) ? RED : NULL);
		cli_table_set(line, 6, card->netdev_count ? card->netdevs[0].name : "-");
	}
	cli_table_print(table);
}

static void print_topo_notes(const struct topo_view *view)
{
	char notes[TOPO_NOTES_MAX][PL_REASON_MAX];
	size_t count = topo_notes(view, notes, TOPO_NOTES_MAX);

	if (count)
		putchar('\n');
	for (size_t i = 0; i < count; i++)
		wrap_print(notes[i], 0, 0);
}

static void print_matrix_legend(const struct pl_topology *topology)
{
	char text[512];

	if (!topology->path_count && topology->gpu_count < 2)
		return;
	snprintf(text, sizeof(text),
		 "%s%sPIX: at most one PCI switch between them; PXB: several switches; PHB: a host bridge; NODE: "
		 "several "
		 "host bridges of one NUMA node; SYS: different NUMA nodes.",
		 topology->path_count ? "* best card of the GPU. " : "",
		 topo_has_gpu_links(topology) ? "NV or XGMI and a number: so many links between the two GPUs, or from "
						"each of them to switches; XGMI: through other GPUs. "
					      : "");
	putchar('\n');
	wrap_print(text, 0, 0);
}

void topo_print_matrix(const struct topo_view *view)
{
	const struct pl_topology *topology = view->topology;
	char text[TOPO_TEXT];

	if (!view->quiet) {
		if (topology->platform[0])
			printf("%s: ", topology->platform);
		printf("%s\n", topo_summary(topology, text));
	}
	if (topology->path_count || topology->gpu_count > 1) {
		if (!view->quiet)
			putchar('\n');
		print_matrices(view);
	}
	if (view->quiet)
		return;
	print_matrix_legend(topology);
	if (topology->gpu_count) {
		putchar('\n');
		print_gpu_table(view);
	}
	if (topo_has_gpu_links(topology)) {
		putchar('\n');
		print_link_table(view);
	}
	if (topology->card_count) {
		putchar('\n');
		print_card_table(view);
	}
	print_topo_notes(view);
}
