/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Layout of the picture.  NUMA nodes stand side by side.  Bridges are bars, as wide as everything below them.  Devices
 * are boxes below their bridge, in columns.  NUMA nodes, and bridges below one parent, begin a new row where the picture
 * would become so wide that a page shrinks its text.
 */
#include "cmd/topo/draw.h"

#include <stdlib.h>
#include <string.h>

#define GAP 18
#define DEVICE_GAP 12
#define COLUMN_MAX 8 /* devices in a column, unless there are more columns than these */
#define COLUMNS_MAX 5
#define PAD 18 /* margin inside a NUMA node */
#define BOXES_MAX 8192
/* Width of a picture whose text of 11 px keeps its size in a window of 1,400 px. */
#define PICTURE_WIDTH 1400
#define GUTTER 22 /* width for the line to bridges in further rows */

static int add_draw_box(struct drawing *drawing, int parent)
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

/* True if the node, or a node below it, is a GPU or a card. */
static bool has_gpu_or_card(const struct pl_topology *topology, int node)
{
	size_t index;
	enum topo_kind kind = topo_node_kind(topology, node, &index);

	if (kind == TOPO_GPU || kind == TOPO_CARD)
		return true;
	for (int child = topology->nodes[node].child; child >= 0; child = topology->nodes[child].next)
		if (has_gpu_or_card(topology, child))
			return true;
	return false;
}

static size_t count_drives_below(const struct pl_topology *topology, int node)
{
	size_t index, count = topo_node_kind(topology, node, &index) == TOPO_DRIVE;

	for (int child = topology->nodes[node].child; child >= 0; child = topology->nodes[child].next)
		count += count_drives_below(topology, child);
	return count;
}

/* Adds a node and all nodes below it.  A port has no box; the nodes below it take its place. */
static int add_node_boxes(const struct pl_topology *topology, struct drawing *drawing, int node, int parent)
{
	const struct pl_pci_node *at = &topology->nodes[node];
	int index = parent, rc = 0;

	if (drawing->count >= BOXES_MAX)
		return 0;
	if (!topo_is_port(at)) {
		index = add_draw_box(drawing, parent);
		if (index < 0)
			return index;
		drawing->boxes[index].node = node;
		drawing->boxes[index].kind = topo_node_kind(topology, node, &drawing->boxes[index].index);
		drawing->boxes[index].device = at->kind == PL_PCI_ENDPOINT;
	}
	for (int child = at->child; child >= 0 && rc >= 0; child = topology->nodes[child].next)
		rc = add_node_boxes(topology, drawing, child, index);
	return PL_MIN(rc, 0);
}

static int add_root_boxes(const struct pl_topology *topology, struct drawing *drawing, int numa, int parent)
{
	int rc = 0;

	for (int node = topo_next_root(topology, numa, -1); node >= 0 && rc >= 0;
	     node = topo_next_root(topology, numa, node)) {
		if (has_gpu_or_card(topology, node))
			rc = add_node_boxes(topology, drawing, node, parent);
		else
			drawing->hidden += count_drives_below(topology, node);
	}
	return rc;
}

static bool numa_node_listed(const struct pl_topology *topology, int id)
{
	for (size_t i = 0; i < topology->numa_count; i++)
		if (topology->numa[i].id == id)
			return true;
	return false;
}

/* Adds a panel for each NUMA node, and one for devices of unknown NUMA nodes. */
static int add_numa_panels(const struct pl_topology *topology, struct drawing *drawing)
{
	int index, rc = 0, other;

	for (size_t i = 0; i < topology->numa_count && rc >= 0; i++) {
		index = add_draw_box(drawing, -1);
		if (index < 0)
			return index;
		drawing->boxes[index].numa = (int)i;
		rc = add_root_boxes(topology, drawing, topology->numa[i].id, index);
	}
	other = rc < 0 ? rc : add_draw_box(drawing, -1);
	if (other < 0)
		return other;
	for (size_t i = 0; i < topology->node_count && rc >= 0; i++)
		if (topology->nodes[i].parent < 0 && !numa_node_listed(topology, topology->nodes[i].numa) &&
		    has_gpu_or_card(topology, (int)i))
			rc = add_node_boxes(topology, drawing, (int)i, other);
	for (size_t i = 0; i < topology->card_count && rc >= 0; i++) {
		if (topology->cards[i].node >= 0)
			continue;
		rc = index = add_draw_box(drawing, other);
		if (index < 0)
			break;
		drawing->boxes[index].card = (int)i;
		drawing->boxes[index].kind = TOPO_CARD;
		drawing->boxes[index].index = i;
		drawing->boxes[index].device = true;
	}
	return PL_MIN(rc, 0);
}

static int device_box_height(const struct drawing *drawing, const struct draw_box *box)
{
	if (box->kind == TOPO_DRIVE)
		return 30;
	return box->kind == TOPO_GPU && drawing->gpu_links ? 80 : 66;
}

/* Places the devices of a box in columns.  Returns the width that they take. */
static int place_device_boxes(struct drawing *drawing, int index, int x, int y, int *bottom)
{
	struct draw_box *boxes = drawing->boxes;
	int left = x, top = y, in_column = 0, used = x, column_max, count = 0;

	for (int child = boxes[index].child; child >= 0; child = boxes[child].next)
		count += boxes[child].device;
	column_max = PL_MAX(COLUMN_MAX, (count + COLUMNS_MAX - 1) / COLUMNS_MAX);
	for (int child = boxes[index].child; child >= 0; child = boxes[child].next) {
		struct draw_box *box = &boxes[child];

		if (!box->device)
			continue;
		if (in_column == column_max) {
			left += DRAW_STUB + DRAW_DEVICE_WIDTH + GAP;
			top = y;
			in_column = 0;
		}
		box->x = left + DRAW_STUB;
		box->y = top + DEVICE_GAP;
		box->width = DRAW_DEVICE_WIDTH;
		box->height = device_box_height(drawing, box);
		top = box->y + box->height;
		in_column++;
		used = box->x + box->width;
		*bottom = PL_MAX(*bottom, top);
	}
	return in_column ? used + GAP - x : 0;
}

/* Moves a box and all boxes below it. */
static void move_boxes(struct drawing *drawing, int index, int right, int down)
{
	drawing->boxes[index].x += right;
	drawing->boxes[index].y += down;
	for (int child = drawing->boxes[index].child; child >= 0; child = drawing->boxes[child].next)
		move_boxes(drawing, child, right, down);
}

/* Row of bridges that is being filled. */
struct bridge_row {
	int left, used, top, bottom; /* bottom: of all rows */
	bool first;
};

static int place_child_boxes(struct drawing *drawing, int index, int x, int y, int room, int *bottom);

/* Places a bridge and all below it in a row, or in a new one if it does not fit. */
static void place_bridge_box(struct drawing *drawing, int index, struct bridge_row *row, int right, int gap)
{
	struct draw_box *box = &drawing->boxes[index];
	int bottom = row->top + DRAW_BRIDGE, down;

	box->x = row->used;
	box->y = row->top;
	box->height = DRAW_BRIDGE;
	box->width = place_child_boxes(drawing, index, row->used, row->top + DRAW_BRIDGE, right - row->left, &bottom);
	if (row->used > row->left && row->used + box->width > right) {
		down = row->bottom + gap - row->top;
		move_boxes(drawing, index, row->left - row->used, down);
		bottom += down;
		*row = (struct bridge_row){ row->left, row->left, row->top + down, row->bottom, false };
	}
	box->lower_row = !row->first;
	row->used += box->width + GAP;
	row->bottom = PL_MAX(row->bottom, bottom);
}

/* Makes room for the line from a box to bridges in lower rows. */
static void move_bridges_right(struct drawing *drawing, int index)
{
	for (int child = drawing->boxes[index].child; child >= 0; child = drawing->boxes[child].next)
		if (!drawing->boxes[child].device)
			move_boxes(drawing, child, GUTTER, 0);
}

/*
 * Sets sizes and positions of a box's children, from (x, y) on, in rows that have `room`.  Returns their width together.
 */
static int place_child_boxes(struct drawing *drawing, int index, int x, int y, int room, int *bottom)
{
	struct draw_box *boxes = drawing->boxes;
	bool panel = boxes[index].parent < 0;
	int devices = place_device_boxes(drawing, index, x, y, bottom), right = x + PL_MAX(devices - GAP, 0);
	struct bridge_row row = { x, x + devices, y + (panel ? 0 : DRAW_DROP), *bottom, true };

	for (int child = boxes[index].child; child >= 0; child = boxes[child].next) {
		if (boxes[child].device)
			continue;
		place_bridge_box(drawing, child, &row, x + room - (panel ? 0 : GUTTER), panel ? GAP : DRAW_DROP);
		right = PL_MAX(right, boxes[child].x + boxes[child].width);
	}
	*bottom = PL_MAX(*bottom, row.bottom);
	if (!row.first && !panel) {
		move_bridges_right(drawing, index);
		right += GUTTER;
	}
	return PL_MAX(right - x, DRAW_STUB + DRAW_DEVICE_WIDTH);
}

/* Gives the panels from `first` to before `end` the height of their row.  Returns the row's lower edge. */
static int finish_panel_row(struct drawing *drawing, size_t first, size_t end, int bottom)
{
	for (size_t i = first; i < end; i++)
		if (drawing->boxes[i].parent < 0 && drawing->boxes[i].width)
			drawing->boxes[i].height = bottom + PAD - drawing->boxes[i].y;
	return bottom + PAD;
}

/* Places the panels in rows.  Returns the lower edge of the last one. */
static int place_panels(struct drawing *drawing)
{
	const int room = PICTURE_WIDTH - 2 * DRAW_MARGIN - 2 * PAD;
	int x = DRAW_MARGIN, y = DRAW_MARGIN, bottom = y + DRAW_HEAD + 40;
	size_t first = 0;

	for (size_t i = 0; i < drawing->count; i++) {
		struct draw_box *box = &drawing->boxes[i];
		int own = y + DRAW_HEAD + 40;

		if (box->parent >= 0 || (box->numa < 0 && box->child < 0))
			continue;
		box->x = x;
		box->y = y;
		box->width = place_child_boxes(drawing, (int)i, x + PAD, y + DRAW_HEAD, room, &own) + 2 * PAD;
		if (x > DRAW_MARGIN && x + box->width > PICTURE_WIDTH - DRAW_MARGIN) {
			int top = finish_panel_row(drawing, first, i, bottom) + 2 * GAP;

			move_boxes(drawing, (int)i, DRAW_MARGIN - x, top - y);
			own += top - y;
			x = DRAW_MARGIN;
			bottom = y = top;
			first = i;
		}
		bottom = PL_MAX(bottom, own);
		x += box->width + 2 * GAP;
		drawing->width = PL_MAX(drawing->width, x - 2 * GAP + DRAW_MARGIN);
	}
	return finish_panel_row(drawing, first, drawing->count, bottom);
}

int draw_layout(const struct pl_topology *topology, struct drawing *drawing)
{
	int rc;

	*drawing = (struct drawing){ .width = 640, .gpu_links = topo_has_gpu_links(topology) };
	rc = add_numa_panels(topology, drawing);
	if (rc < 0)
		return rc;
	drawing->height = place_panels(drawing) + DRAW_MARGIN;
	return 0;
}

void draw_free(struct drawing *drawing)
{
	free(drawing->boxes);
}
