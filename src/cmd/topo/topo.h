/* SPDX-License-Identifier: BSD-2-Clause */
/* Outputs of `peerlane topo`: table, tree, JSON, SVG and HTML of one topology. */
#ifndef PL_CMD_TOPO_TOPO_H
#define PL_CMD_TOPO_TOPO_H

#include "cmd/common/output.h"
#include "cmd/topo/pci_names.h"
#include "topology/topology.h"

#define TOPO_TEXT 96

struct topo_view {
	const struct pl_topology *topology;
	struct pci_names *names;
	bool colour, quiet;
	char host[256]; /* name of the machine; empty: a dump */
	struct json_object *judgement; /* for the document, which takes it; NULL: none */
};

/* -- texts (text.c); functions with a buffer return it ------------------------------------------- */

enum topo_kind { TOPO_OTHER, TOPO_GPU, TOPO_CARD, TOPO_DRIVE };

/* Returns the kind of a PCI node, and in *index its index in the list of that kind. */
enum topo_kind topo_node_kind(const struct pl_topology *topology, int node, size_t *index);
/*
 * Iterates over the PCI roots of a NUMA node in the order of their addresses.  Returns the root after `previous` (-1: the
 * first one), or -1 at the end.
 */
int topo_next_root(const struct pl_topology *topology, int numa, int previous);
/* Returns an address without the domain if the domain is 0000: "3b:00.0" for "0000:3b:00.0". */
const char *topo_short_address(const char *address);
/* Returns the RDMA device of a card, such as "mlx5_0", or else the address of the card. */
const char *topo_card_label(const struct pl_topology *topology, size_t card);
const char *topo_gpu_name(const struct topo_view *view, size_t gpu, char buffer[TOPO_TEXT]);
const char *topo_card_name(const struct topo_view *view, size_t card, char buffer[TOPO_TEXT]);
/* True for ports of the root complex and of switches. */
static inline bool topo_is_port(const struct pl_pci_node *node)
{
	return node->kind == PL_PCI_ROOT_PORT || node->kind == PL_PCI_DOWNSTREAM;
}

/* Returns the kind of a bridge, such as "switch". */
const char *topo_bridge_name(const struct pl_topology *topology, int node);
/* Formats a rate, such as "50 GB/s"; "-" if unknown. */
const char *topo_rate(uint64_t bytes_per_second, char buffer[TOPO_TEXT]);
/* Formats the link of a node, such as "32 GT/s x16"; with the possible link if that is faster. */
const char *topo_link(const struct pl_topology *topology, int node, char buffer[TOPO_TEXT]);
/* Formats the state of a card's port, such as "400 Gbit/s InfiniBand". */
const char *topo_ports(const struct pl_topology *topology, size_t card, char buffer[TOPO_TEXT]);
/* Returns the path to the best card of a GPU, or NULL. */
const struct pl_path *topo_best_path(const struct pl_topology *topology, size_t gpu);
/*
 * Formats the connection of two GPUs for the matrix: "NV18", "XGMI1", "XGMI" (through other GPUs), else the class of
 * the PCI path.
 */
const char *topo_gpu_pair_label(const struct pl_gpu_pair *pair, char buffer[TOPO_TEXT]);
/* Formats the links of a GPU, such as "18 NVLink 4"; with the links that are down. Empty if the GPU has none. */
const char *topo_gpu_links(const struct pl_topology *topology, size_t gpu, char buffer[TOPO_TEXT]);
/* Formats the other ends of a GPU's links, such as "switches" or "GPU 1, 2". */
const char *topo_gpu_link_ends(const struct pl_topology *topology, size_t gpu, char buffer[TOPO_TEXT]);
/* Returns the rate of all active links of a GPU, in bytes per second and direction; 0 if unknown. */
uint64_t topo_gpu_link_rate(const struct pl_topology *topology, size_t gpu);
/* True if a GPU has links of its own to GPUs or switches, working or not. */
bool topo_has_gpu_links(const struct pl_topology *topology);
/* Formats the numbers of devices, such as "8 GPUs, 8 RDMA cards, 2 NUMA nodes". */
const char *topo_summary(const struct pl_topology *topology, char buffer[TOPO_TEXT]);
/* Writes up to `room` sentences about the whole machine; returns their number. */
size_t topo_notes(const struct topo_view *view, char (*notes)[PL_REASON_MAX], size_t room);
#define TOPO_NOTES_MAX 16

/* Notes of a machine while they are collected. */
struct topo_note_list {
	char (*text)[PL_REASON_MAX];
	size_t count, room;
};

void topo_add_note(struct topo_note_list *notes, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds a note for each GPU with fewer working links than another one (gpu_links.c). */
void topo_note_lost_links(const struct pl_topology *topology, struct topo_note_list *notes);

/* -- renderers ----------------------------------------------------------------------------------- */

void topo_print_matrix(const struct topo_view *view);           /* table.c */
void topo_print_tree(const struct topo_view *view);             /* tree.c */
/* Returns the document; to be freed (json.c). */
struct json_object *topo_document(const struct topo_view *view);
void topo_write_svg(const struct topo_view *view, FILE *file);  /* svg.c */
void topo_write_html(const struct topo_view *view, FILE *file); /* html.c */
/* Writes the picture with its style, for embedding in a page. */
void topo_draw(const struct topo_view *view, FILE *file);
/* Writes text escaped for XML and HTML. */
void topo_escape(FILE *file, const char *text);

#endif
