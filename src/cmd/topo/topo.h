/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane topo`: one topology, shown in several ways. */
#ifndef PL_CLI_TOPO_H
#define PL_CLI_TOPO_H

#include "cmd/common/output.h"
#include "cmd/topo/pci_names.h"
#include "topology/topology.h"

#define TOPO_TEXT 96

struct topo_view {
	const struct pl_topology *topology;
	struct pci_names *names;
	bool colour, quiet;
};

/* -- texts (topo_text.c); all return buffer ------------------------------------------------------ */

enum topo_what { TOPO_OTHER, TOPO_GPU, TOPO_CARD, TOPO_DRIVE };

/* What a node is, and its index there. */
enum topo_what topo_what(const struct pl_topology *topology, int node, size_t *index);
/* The host bridges of a NUMA node, in the order of their addresses: the one after `previous` (-1: the first); -1 at the end. */
int topo_next_top(const struct pl_topology *topology, int numa, int previous);
/* "0000:3b:00.0" as "3b:00.0": all but other domains are 0000. */
const char *topo_short(const char *address);
/* "mlx5_0"; the address of a card that has no RDMA device. */
const char *topo_card_label(const struct pl_topology *topology, size_t card);
const char *topo_gpu_name(const struct topo_view *view, size_t gpu, char buffer[TOPO_TEXT]);
const char *topo_card_name(const struct topo_view *view, size_t card, char buffer[TOPO_TEXT]);
/* "switch", "Switch of ...": what a bridge is, for people. */
const char *topo_bridge_name(const struct pl_topology *topology, int node);
/* "50 GB/s"; "-" if it is not known. */
const char *topo_rate(uint64_t bytes_per_second, char buffer[TOPO_TEXT]);
/* "32 GT/s x16", and what it could be if that is more. */
const char *topo_link(const struct pl_topology *topology, int node, char buffer[TOPO_TEXT]);
/* "up, 400 Gbit/s InfiniBand" */
const char *topo_ports(const struct pl_topology *topology, size_t card, char buffer[TOPO_TEXT]);
/* The path to the card that is best for a GPU; NULL if there is none. */
const struct pl_path *topo_best(const struct pl_topology *topology, size_t gpu);
/* "8 GPUs, 8 RDMA cards, 2 NUMA nodes" */
const char *topo_summary(const struct pl_topology *topology, char buffer[TOPO_TEXT]);
/* What there is to be said of the whole, a sentence each: at most room; how many. */
size_t topo_notes(const struct topo_view *view, char (*notes)[PL_REASON_MAX], size_t room);
#define TOPO_NOTES_MAX 16

/* -- renderers ----------------------------------------------------------------------------------- */

void topo_print_matrix(const struct topo_view *view);           /* topo_table.c */
void topo_print_tree(const struct topo_view *view);             /* topo_tree.c */
void topo_print_json(const struct topo_view *view);             /* topo_json.c */
void topo_write_svg(const struct topo_view *view, FILE *file);  /* topo_svg.c */
void topo_write_html(const struct topo_view *view, FILE *file); /* topo_html.c */
/* The picture alone, with its style, to be put into something else. */
void topo_draw(const struct topo_view *view, FILE *file);
/* Text in XML or HTML. */
void topo_escape(FILE *file, const char *text);

#endif
