/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The layout of the picture: NUMA nodes side by side; in them bridges as bars, each as wide as all that is
 * below it; devices as boxes that hang below their bridge, one under the other.
 */
#include <stdlib.h>
#include <string.h>

#include "cmd/topo/draw.h"

#define GAP 18
#define DEVICE_GAP 12
#define COLUMN_MAX 8 /* devices in a column */
#define PAD 18       /* inside a NUMA node */
#define BOXES_MAX 8192

static int add_box(struct drawing *drawing, int parent)
{
	struct draw_box *box;
	int index = (int)drawing->count;

	if (!(drawing->count & (drawing->count - 1))) {
		size_t room = drawing->count ? drawing->count * 2 : 1;

		box = reallocarray(drawing->boxes, room, sizeof(*box));
		if (!box)
			return -ENOMEM;
		drawing->boxes = box;
	}
	box = &drawing->boxes[drawing->count++];
	*box = (struct draw_box){ .node = -1, .numa = -1, .card = -1, .child = -1, .next = -1, .parent = parent };
	if (parent >= 0) {
		int *at = &drawing->boxes[parent].child;

		while (*at >= 0)
			at = &drawing->boxes[*at].next;
		*at = index;
	}
	return index;
}

static bool is_port(const struct pl_pci_node *node)
{
	return node->kind == PL_PCI_ROOT_PORT || node->kind == PL_PCI_DOWNSTREAM;
}

/* Whether anything but drives is there or below. */
static bool matters(const struct pl_topology *topology, int node)
{
	size_t which;
	enum topo_what what = topo_what(topology, node, &which);

	if (what == TOPO_GPU || what == TOPO_CARD)
		return true;
	for (int child = topology->nodes[node].child; child >= 0; child = topology->nodes[child].next)
		if (matters(topology, child))
			return true;
	return false;
}

static size_t drives_below(const struct pl_topology *topology, int node)
{
	size_t which, count = topo_what(topology, node, &which) == TOPO_DRIVE;

	for (int child = topology->nodes[node].child; child >= 0; child = topology->nodes[child].next)
		count += drives_below(topology, child);
	return count;
}

/* Ports have no box of their own: what is below them stands for them. */
static int add_node(const struct pl_topology *topology, struct drawing *drawing, int node, int parent)
{
	const struct pl_pci_node *at = &topology->nodes[node];
	int index = parent, rc = 0;

	if (drawing->count >= BOXES_MAX)
		return 0;
	if (!is_port(at)) {
		index = add_box(drawing, parent);
		if (index < 0)
			return index;
		drawing->boxes[index].node = node;
		drawing->boxes[index].what = topo_what(topology, node, &drawing->boxes[index].which);
		drawing->boxes[index].device = at->kind == PL_PCI_ENDPOINT;
	}
	for (int child = at->child; child >= 0 && rc >= 0; child = topology->nodes[child].next)
		rc = add_node(topology, drawing, child, index);
	return PL_MIN(rc, 0);
}

static int add_tops(const struct pl_topology *topology, struct drawing *drawing, int numa, int parent)
{
	int rc = 0;

	for (int node = topo_next_top(topology, numa, -1); node >= 0 && rc >= 0;
	     node = topo_next_top(topology, numa, node)) {
		if (matters(topology, node))
			rc = add_node(topology, drawing, node, parent);
		else
			drawing->hidden += drives_below(topology, node);
	}
	return rc;
}

static bool has_numa(const struct pl_topology *topology, int id)
{
	for (size_t i = 0; i < topology->numa_count; i++)
		if (topology->numa[i].id == id)
			return true;
	return false;
}

/* A panel for each NUMA node, and one for what is of none of them. */
static int add_panels(const struct pl_topology *topology, struct drawing *drawing)
{
	int index, rc = 0, other;

	for (size_t i = 0; i < topology->numa_count && rc >= 0; i++) {
		index = add_box(drawing, -1);
		if (index < 0)
			return index;
		drawing->boxes[index].numa = (int)i;
		rc = add_tops(topology, drawing, topology->numa[i].id, index);
	}
	other = rc < 0 ? rc : add_box(drawing, -1);
	if (other < 0)
		return other;
	for (size_t i = 0; i < topology->node_count && rc >= 0; i++)
		if (topology->nodes[i].parent < 0 && !has_numa(topology, topology->nodes[i].numa) &&
		    matters(topology, (int)i))
			rc = add_node(topology, drawing, (int)i, other);
	for (size_t i = 0; i < topology->card_count && rc >= 0; i++) {
		if (topology->cards[i].node >= 0)
			continue;
		rc = index = add_box(drawing, other);
		if (index < 0)
			break;
		drawing->boxes[index].card = (int)i;
		drawing->boxes[index].what = TOPO_CARD;
		drawing->boxes[index].which = i;
		drawing->boxes[index].device = true;
	}
	return PL_MIN(rc, 0);
}

static int device_height(const struct draw_box *box)
{
	return box->what == TOPO_DRIVE ? 30 : 66;
}

/* Sizes and places of a box's children, below y; how wide they are together. */
static int place(struct drawing *drawing, int index, int x, int y, int *bottom)
{
	struct draw_box *boxes = drawing->boxes;
	int left = x, top = y, in_column = 0, used = x;

	for (int child = boxes[index].child; child >= 0; child = boxes[child].next) {
		struct draw_box *box = &boxes[child];

		if (!box->device)
			continue;
		if (in_column == COLUMN_MAX) {
			left += DRAW_STUB + DRAW_DEVICE_WIDTH + GAP;
			top = y;
			in_column = 0;
		}
		box->x = left + DRAW_STUB;
		box->y = top + DEVICE_GAP;
		box->width = DRAW_DEVICE_WIDTH;
		box->height = device_height(box);
		top = box->y + box->height;
		in_column++;
		used = box->x + box->width;
		*bottom = PL_MAX(*bottom, top);
	}
	if (in_column)
		used += GAP;
	for (int child = boxes[index].child; child >= 0; child = boxes[child].next) {
		struct draw_box *box = &boxes[child];

		if (box->device)
			continue;
		box->x = used;
		box->y = y + (boxes[index].numa >= 0 || boxes[index].node < 0 ? 0 : DRAW_DROP);
		box->height = DRAW_BRIDGE;
		*bottom = PL_MAX(*bottom, box->y + box->height);
		box->width = place(drawing, child, used, box->y + box->height, bottom);
		used += box->width + GAP;
	}
	return PL_MAX(used - GAP - x, DRAW_STUB + DRAW_DEVICE_WIDTH);
}

int draw_layout(const struct pl_topology *topology, struct drawing *drawing)
{
	int x = DRAW_MARGIN, bottom = 0, rc;

	*drawing = (struct drawing){ .boxes = NULL };
	rc = add_panels(topology, drawing);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < drawing->count; i++) {
		struct draw_box *box = &drawing->boxes[i];

		if (box->parent >= 0 || (box->numa < 0 && box->child < 0))
			continue;
		box->x = x;
		box->y = DRAW_MARGIN;
		box->width = place(drawing, (int)i, x + PAD, box->y + DRAW_HEAD, &bottom) + 2 * PAD;
		x += box->width + 2 * GAP;
	}
	bottom = PL_MAX(bottom, DRAW_MARGIN + DRAW_HEAD + 40);
	for (size_t i = 0; i < drawing->count; i++)
		if (drawing->boxes[i].parent < 0 && drawing->boxes[i].width)
			drawing->boxes[i].height = bottom + PAD - drawing->boxes[i].y;
	drawing->width = PL_MAX(x - 2 * GAP + DRAW_MARGIN, 640);
	drawing->height = bottom + PAD + DRAW_MARGIN;
	return 0;
}

void draw_free(struct drawing *drawing)
{
	free(drawing->boxes);
}
