/* SPDX-License-Identifier: BSD-2-Clause */
/* Where everything is in the picture of a machine. */
#ifndef PL_CLI_TOPO_DRAW_H
#define PL_CLI_TOPO_DRAW_H

#include "cmd/topo/topo.h"

/* A box of the picture: a NUMA node, a bridge, a device. */
struct draw_box {
	int node; /* of the topology; -1: a NUMA node, or a card that is nowhere in the tree */
	int numa; /* index of a NUMA node; -1: none */
	int card; /* index of a card that is nowhere in the tree; -1: none */
	int child, next, parent;
	bool device; /* hangs below its bridge, with others; else stands next to them */
	enum topo_what what;
	size_t which;
	int x, y, width, height;
};

struct drawing {
	struct draw_box *boxes;
	size_t count;
	int width, height;
	size_t hidden; /* drives that were left out, as nothing else is near them */
};

/* 0 or -ENOMEM. */
int draw_layout(const struct pl_topology *topology, struct drawing *drawing);
void draw_free(struct drawing *drawing);

#define DRAW_DEVICE_WIDTH 176
#define DRAW_STUB 26   /* from the trunk below a bridge to its devices */
#define DRAW_BRIDGE 40 /* the height of a bridge */
#define DRAW_DROP 44   /* from a bridge to the next one below */
#define DRAW_HEAD 46   /* the head line of a NUMA node */
#define DRAW_MARGIN 24

#endif
