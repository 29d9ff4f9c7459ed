/* SPDX-License-Identifier: BSD-2-Clause */
/* Layout of the picture of a machine. */
#ifndef PL_CMD_TOPO_DRAW_H
#define PL_CMD_TOPO_DRAW_H

#include "cmd/topo/topo.h"

/* Box of the picture: a NUMA node, a bridge or a device. */
struct draw_box {
	int node; /* node of the topology; -1: a NUMA node, or a card outside the PCI tree */
	int numa; /* index of a NUMA node; -1: none */
	int card; /* index of a card outside the PCI tree; -1: none */
	int child, next, parent;
	bool device;    /* true: below its bridge, in a column of devices; false: next to that column */
	bool lower_row; /* a bridge below the first row of those of its parent */
	enum topo_kind kind;
	size_t index; /* of the GPU, card or drive */
	int x, y, width, height;
};

struct drawing {
	struct draw_box *boxes;
	size_t count;
	int width, height;
	bool gpu_links; /* GPUs have a line for their links */
	size_t hidden;  /* drives left out because no GPU or card is near them */
};

/* Computes the boxes.  Returns 0 or -ENOMEM. */
int draw_layout(const struct pl_topology *topology, struct drawing *drawing);
void draw_free(struct drawing *drawing);

#define DRAW_DEVICE_WIDTH 176
#define DRAW_STUB 26   /* width from the trunk below a bridge to its devices */
#define DRAW_BRIDGE 40 /* height of a bridge */
#define DRAW_DROP 44   /* height from a bridge to the next one below */
#define DRAW_HEAD 46   /* height of the heading of a NUMA node */
#define DRAW_MARGIN 24

#endif
