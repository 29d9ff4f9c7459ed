/* SPDX-License-Identifier: BSD-2-Clause */
/* SVG output: picture of a machine, with colours for light and dark backgrounds. */
#include "cmd/topo/draw.h"

#include <string.h>

#define LEGEND 74 /* height */
#define HUES 8    /* colours of the pairs: classes p0 to p7 of the style */

static const char style[] =
	":root{--bg:#fff;--ink:#1c2330;--soft:#5d6778;--panel:#f4f6f9;--edge:#d3d9e2;--bar:#e3e8f0;--gpu:#e8f6e4;"
	"--gpuedge:#5a9e46;--card:#e6effd;--cardedge:#4a7fd0;--drive:#f3f0ea;--driveedge:#b9ae98;--wire:#7d8aa0;"
	"--bad:#d42a2a;--badbg:#fdeaea}"
	"@media(prefers-color-scheme:dark){:root{--bg:#12161d;--ink:#e4e9f1;--soft:#98a4b6;--panel:#1a2029;"
	"--edge:#333d4b;--bar:#2a3341;--gpu:#1b3020;--gpuedge:#63ad4f;--card:#1a2a44;--cardedge:#5f93e3;"
	"--drive:#2a2722;--driveedge:#7b7260;--wire:#77859b;--bad:#ff6b63;--badbg:#3d1d1e}}"
	".pl{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
	".pl text{fill:var(--ink)}.pl .s{fill:var(--soft);font-size:11px}.pl .h{font-size:15px;font-weight:600}"
	".pl .b{font-weight:600;font-size:13px}.pl .e{text-anchor:end}.pl .t{font-size:11px}"
	".pl .panel{fill:var(--panel);stroke:var(--edge)}.pl .bar{fill:var(--bar);stroke:var(--edge)}"
	".pl .gpu{fill:var(--gpu);stroke:var(--gpuedge);stroke-width:1.5}"
	".pl .card{fill:var(--card);stroke:var(--cardedge);stroke-width:1.5}"
	".pl .drive{fill:var(--drive);stroke:var(--driveedge)}.pl .off{stroke:var(--bad);stroke-dasharray:5 3}"
	".pl .w{stroke:var(--wire);fill:none}.pl .bad{stroke:var(--bad);fill:none}.pl text.r{fill:var(--bad);"
	"font-weight:600}"
	".pl .p0{--c:#1b9e62}.pl .p1{--c:#7d56c8}.pl .p2{--c:#cf5a16}.pl .p3{--c:#0c87a8}.pl .p4{--c:#c23b87}"
	".pl .p5{--c:#8a7a00}.pl .p6{--c:#3f62d4}.pl .p7{--c:#a05a3c}"
	"@media(prefers-color-scheme:dark){.pl .p0{--c:#3ecb8a}.pl .p1{--c:#a98cf0}.pl .p2{--c:#f58b4b}"
	".pl .p3{--c:#3fb9da}.pl .p4{--c:#ee77b6}.pl .p5{--c:#cfbc3a}.pl .p6{--c:#86a2ff}.pl .p7{--c:#d39478}}"
	".pl .tab{fill:var(--c)}.pl text.c{fill:var(--c);font-weight:600;font-size:11px}"
	".pl .arc{stroke:var(--c);fill:none;stroke-width:3;stroke-linecap:round}";

void topo_escape(FILE *file, const char *text)
{
	for (const char *at = text; *at; at++)
		switch (*at) {
		case '<':
			fputs("&lt;", file);
			break;
		case '>':
			fputs("&gt;", file);
			break;
		case '&':
			fputs("&amp;", file);
			break;
		case '"':
			fputs("&quot;", file);
			break;
		default:
			/* Device names are ASCII; other bytes could be invalid UTF-8. */
			fputc((unsigned char)*at < ' ' || (unsigned char)*at >= 0x7f ? '?' : *at, file);
		}
}

/* Picture while it is written. */
struct picture {
	const struct topo_view *view;
	const struct pl_topology *topology;
	struct drawing drawing;
	FILE *file;
};

/* Writes a line of text, cut after `most` characters. */
static void svg_text(const struct picture *picture, int x, int y, const char *class, size_t most, const char *words)
{
	char cut[TOPO_TEXT * 2];

	snprintf(cut, sizeof(cut), "%s", words);
	if (strlen(cut) > most && most > 2 && most < sizeof(cut))
		strcpy(cut + most - 2, "..");
	fprintf(picture->file, "<text x=\"%d\" y=\"%d\" class=\"%s\">", x, y, class);
	topo_escape(picture->file, cut);
	fputs("</text>\n", picture->file);
}

static void svg_box(const struct picture *picture, const struct draw_box *at, const char *class, int radius)
{
	fprintf(picture->file, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"%d\" class=\"%s\"/>\n", at->x,
		at->y, at->width, at->height, radius, class);
}

/* Returns the stroke width for a PCI link. */
static double svg_link_width(uint32_t lanes)
{
	if (lanes >= 16)
		return 8;
	if (lanes >= 8)
		return 5;
	return lanes >= 4 ? 3 : 1.5;
}

static void svg_link_title(const struct picture *picture, int node)
{
	char text[TOPO_TEXT], rate[TOPO_TEXT];

	fputs("<title>", picture->file);
	topo_escape(picture->file, picture->topology->nodes[node].address);
	fprintf(picture->file, ": %s, %s</title>", topo_link(picture->topology, node, text),
		topo_rate(pl_pci_link_rate(picture->topology->nodes[node].now), rate));
}

static void svg_link(const struct picture *picture, int node, const char *path)
{
	const struct pl_pci_node *at = &picture->topology->nodes[node];
	uint32_t width = pl_topology_idle(picture->topology, node) ? at->best.width : at->now.width;

	fprintf(picture->file, "<path d=\"%s\" class=\"%s\" stroke-width=\"%.1f\">", path,
		pl_topology_degraded(picture->topology, node) ? "bad" : "w", svg_link_width(width));
	svg_link_title(picture, node);
	fputs("</path>\n", picture->file);
}

/* Draws the thin line that connects a bridge with the devices below it. */
static void draw_trunk(const struct picture *picture, const struct draw_box *bridge)
{
	const struct draw_box *boxes = picture->drawing.boxes;

	for (int child = bridge->child; child >= 0; child = boxes[child].next) {
		int x = boxes[child].x - DRAW_STUB + 8, last = child;

		if (!boxes[child].device || boxes[child].node < 0)
			continue;
		/* Draws a line for each column of devices. */
		while (boxes[last].next >= 0 && boxes[boxes[last].next].device &&
		       boxes[boxes[last].next].x == boxes[child].x)
			last = boxes[last].next;
		fprintf(picture->file, "<path d=\"M%d %dV%d\" class=\"w\" stroke-width=\"3\"/>\n", x,
			bridge->y + bridge->height, boxes[last].y + boxes[last].height / 2);
		child = last;
	}
}

static void draw_link_to_parent(const struct picture *picture, const struct draw_box *at)
{
	const struct draw_box *parent = &picture->drawing.boxes[at->parent];
	char path[96], link[TOPO_TEXT];
	int y = at->y + at->height / 2;

	if (at->node < 0 || parent->node < 0)
		return;
	if (at->device) {
		snprintf(path, sizeof(path), "M%d %dH%d", at->x - DRAW_STUB + 8, y, at->x);
		svg_link(picture, at->node, path);
		return;
	}
	if (at->lower_row)
		snprintf(path, sizeof(path), "M%d %dV%dH%dV%d", parent->x + 9, parent->y + parent->height,
			 at->y - DRAW_DROP + 9, at->x + 30, at->y);
	else
		snprintf(path, sizeof(path), "M%d %dV%d", at->x + 30, parent->y + parent->height, at->y);
	svg_link(picture, at->node, path);
	svg_text(picture, at->x + 42, at->y - DRAW_DROP / 2 + 4,
		 pl_topology_degraded(picture->topology, at->node) ? "r t" : "s", 60,
		 topo_link(picture->topology, at->node, link));
}

static int card_hue(const struct pl_topology *topology, size_t card)
{
	for (size_t gpu = 0; gpu < topology->gpu_count; gpu++)
		if (pl_topology_path(topology, gpu, card)->best)
			return (int)(card % HUES);
	return -1;
}

static void draw_hue_tab(const struct picture *picture, const struct draw_box *at, int hue)
{
	if (hue >= 0)
		fprintf(picture->file,
			"<rect x=\"%d\" y=\"%d\" width=\"6\" height=\"%d\" rx=\"2\" class=\"tab p%d\"/>\n",
			at->x + at->width - 7, at->y + 1, at->height - 2, hue);
}

static void svg_coloured_text(const struct picture *picture, int x, int y, int hue, const char *words)
{
	fprintf(picture->file, "<g class=\"p%d\">", hue);
	svg_text(picture, x, y, "c", 24, words);
	fputs("</g>", picture->file);
}

static void draw_link_text(const struct picture *picture, const struct draw_box *at, int y)
{
	char link[TOPO_TEXT];

	if (at->node >= 0 && picture->topology->nodes[at->node].now.speed)
		svg_text(picture, at->x + 10, y, pl_topology_degraded(picture->topology, at->node) ? "r t" : "s", 27,
			 topo_link(picture->topology, at->node, link));
}

/* Draws the links of a GPU to others, such as "18 NVLink 4 to switches". */
static void draw_gpu_links(const struct picture *picture, const struct draw_box *at, int y)
{
	char links[TOPO_TEXT], ends[TOPO_TEXT] = "", line[TOPO_TEXT * 2 + 8];
	bool down;

	if (!*topo_gpu_links(picture->topology, at->index, links))
		return;
	/* Links that are down take the place of the ends. */
	down = strstr(links, "down");
	if (!down)
		topo_gpu_link_ends(picture->topology, at->index, ends);
	snprintf(line, sizeof(line), "%s%s%s", links, ends[0] ? " to " : "", ends);
	svg_text(picture, at->x + 10, y, down ? "r t" : "s", 27, line);
}

static void draw_gpu_box(const struct picture *picture, const struct draw_box *at)
{
	const struct pl_path *best = topo_best_path(picture->topology, at->index);
	char name[TOPO_TEXT], line[TOPO_TEXT * 2], rate[TOPO_TEXT];
	int hue = best ? best->card % HUES : -1;

	svg_box(picture, at, "gpu", 6);
	draw_hue_tab(picture, at, hue);
	snprintf(line, sizeof(line), "GPU %zu", at->index);
	svg_text(picture, at->x + 10, at->y + 17, "b", 20, line);
	svg_text(picture, at->x + at->width - 12, at->y + 17, "s e", 16,
		 topo_short_address(picture->topology->nodes[at->node].address));
	svg_text(picture, at->x + 10, at->y + 32, "t", 26, topo_gpu_name(picture->view, at->index, name));
	draw_link_text(picture, at, at->y + 46);
	draw_gpu_links(picture, at, at->y + (best ? 74 : 60));
	if (!best)
		return;
	snprintf(line, sizeof(line), "%s %s %s", topo_card_label(picture->topology, (size_t)best->card),
		 pl_path_class_name(best->class), best->bandwidth ? topo_rate(best->bandwidth, rate) : "");
	svg_coloured_text(picture, at->x + 10, at->y + 60, hue, line);
}

/* Formats the GPUs for which a card is best, such as "best for GPU 0, 1". */
static void format_gpus_of_card(const struct pl_topology *topology, size_t card, char *line, size_t size)
{
	size_t used = 0;

	line[0] = '\0';
	for (size_t gpu = 0; gpu < topology->gpu_count && used + 16 < size; gpu++)
		if (pl_topology_path(topology, gpu, card)->best)
			used += (size_t)snprintf(line + used, size - used, used ? ", %zu" : "best for GPU %zu", gpu);
}

static void draw_card_box(const struct picture *picture, const struct draw_box *at)
{
	const struct pl_card *card = &picture->topology->cards[at->index];
	int hue = card_hue(picture->topology, at->index);
	char name[TOPO_TEXT], line[TOPO_TEXT], link[32];
	const char *ports = topo_ports(picture->topology, at->index, line);
	bool off = !card->described && strpbrk(ports, "NDI") == ports;

	off = off || (!card->described && !card->name[0]);
	svg_box(picture, at, off ? "card off" : "card", 6);
	draw_hue_tab(picture, at, hue);
	svg_text(picture, at->x + 10, at->y + 17, "b", 15, card->name[0] ? card->name : "card");
	if (at->node >= 0)
		svg_text(picture, at->x + at->width - 12, at->y + 17, "s e", 16,
			 topo_short_address(picture->topology->nodes[at->node].address));
	topo_card_name(picture->view, at->index, name);
	if (at->node >= 0 && picture->topology->nodes[at->node].now.speed && strlen(name) < 13)
		snprintf(name + strlen(name), sizeof(name) - strlen(name), ", %s",
			 pl_pci_link_text(link, sizeof(link), picture->topology->nodes[at->node].now));
	svg_text(picture, at->x + 10, at->y + 32, "t", 26, name);
	if (off || (at->node >= 0 && !pl_topology_degraded(picture->topology, at->node)))
		svg_text(picture, at->x + 10, at->y + 46, off ? "r t" : "s", 27, ports);
	else
		draw_link_text(picture, at, at->y + 46);
	format_gpus_of_card(picture->topology, at->index, name, sizeof(name));
	if (hue >= 0)
		svg_coloured_text(picture, at->x + 10, at->y + 60, hue, name);
}

static void draw_drive_box(const struct picture *picture, const struct draw_box *at)
{
	const struct pl_nvme *drive = &picture->topology->drives[at->index];

	svg_box(picture, at, "drive", 5);
	svg_text(picture, at->x + 10, at->y + 19, "t", 12, drive->name[0] ? drive->name : "NVMe");
	svg_text(picture, at->x + at->width - 8, at->y + 19, "s e", 16,
		 topo_short_address(picture->topology->nodes[at->node].address));
}

static void draw_bridge_box(const struct picture *picture, const struct draw_box *at)
{
	const struct pl_pci_node *node = &picture->topology->nodes[at->node];
	char name[TOPO_TEXT], line[TOPO_TEXT * 2];

	svg_box(picture, at, "bar", 5);
	snprintf(line, sizeof(line), "%s", topo_bridge_name(picture->topology, at->node));
	line[0] = (char)(line[0] - 'a' + 'A');
	svg_text(picture, at->x + 10, at->y + 17, "b", 24, line);
	snprintf(line, sizeof(line), "%s", topo_short_address(node->address));
	if (node->kind != PL_PCI_HOST_BRIDGE && node->vendor && node->vendor != 0xffff)
		snprintf(line, sizeof(line), "%s  %s", topo_short_address(node->address),
			 pci_names_device(picture->view->names, node->vendor, node->device, name, sizeof(name)));
	svg_text(picture, at->x + 10, at->y + 32, "s", (size_t)at->width / 7, line);
}

/* Draws the link between NUMA nodes, to the next panel or to the next row of panels.  Its width is unknown. */
static void draw_numa_link(const struct picture *picture, const struct draw_box *at)
{
	const struct draw_box *boxes = picture->drawing.boxes;
	char path[64];

	for (size_t i = (size_t)(at - boxes) + 1; i < picture->drawing.count; i++) {
		if (boxes[i].parent >= 0 || boxes[i].numa < 0)
			continue;
		if (boxes[i].y > at->y)
			snprintf(path, sizeof(path), "M%d %dV%d", boxes[i].x + 30, at->y + at->height, boxes[i].y);
		else
			snprintf(path, sizeof(path), "M%d %dH%d", at->x + at->width, at->y + DRAW_HEAD / 2, boxes[i].x);
		fprintf(picture->file,
			"<path d=\"%s\" class=\"w\" stroke-width=\"6\" stroke-dasharray=\"3 3\">"
			"<title>between the NUMA nodes</title></path>\n",
			path);
		return;
	}
}

static void draw_numa_panel(const struct picture *picture, const struct draw_box *at)
{
	const struct pl_numa_node *numa = at->numa < 0 ? NULL : &picture->topology->numa[at->numa];
	char line[TOPO_TEXT * 4];

	svg_box(picture, at, "panel", 10);
	if (numa)
		draw_numa_link(picture, at);
	if (!numa) {
		svg_text(picture, at->x + 18, at->y + 28, "h", 60, "unknown NUMA node");
		return;
	}
	snprintf(line, sizeof(line), numa->socket < 0 ? "NUMA node %d" : "NUMA node %d, socket %d", numa->id,
		 numa->socket);
	svg_text(picture, at->x + 18, at->y + 21, "h", 60, line);
	snprintf(line, sizeof(line), "%s%s%s%s", numa->cpus[0] ? "CPUs " : "", numa->cpus, numa->cpu[0] ? ", " : "",
		 numa->cpu);
	svg_text(picture, at->x + 18, at->y + 37, "s", (size_t)at->width / 6 - 4, line);
}

/* Draws an arc between a GPU and its best card if both are in one column below one bridge. */
static void draw_best_card_arc(const struct picture *picture, const struct draw_box *gpu)
{
	const struct pl_path *best = topo_best_path(picture->topology, gpu->index);
	const struct draw_box *boxes = picture->drawing.boxes;

	for (int i = best ? boxes[gpu->parent].child : -1; i >= 0; i = boxes[i].next) {
		const struct draw_box *card = &boxes[i];
		int x = card->x + card->width, from = gpu->y + 33, to = card->y + 33;

		if (card->kind == TOPO_CARD && card->index == (size_t)best->card && card->x == gpu->x)
			fprintf(picture->file, "<path d=\"M%d %dC%d %d %d %d %d %d\" class=\"arc p%d\"/>\n", x, from,
				x + 16, from, x + 16, to, x, to, best->card % HUES);
	}
}

static void draw_box(const struct picture *picture, const struct draw_box *at)
{
	if (at->parent < 0) {
		draw_numa_panel(picture, at);
		return;
	}
	draw_link_to_parent(picture, at);
	if (!at->device) {
		draw_bridge_box(picture, at);
		draw_trunk(picture, at);
	} else if (at->kind == TOPO_GPU) {
		draw_gpu_box(picture, at);
		draw_best_card_arc(picture, at);
	} else if (at->kind == TOPO_CARD) {
		draw_card_box(picture, at);
	} else if (at->kind == TOPO_DRIVE) {
		draw_drive_box(picture, at);
	}
}

static void draw_legend(const struct picture *picture, int y)
{
	static const uint32_t widths[] = { 16, 8, 4, 1 };
	int x = DRAW_MARGIN;
	char line[160];

	for (size_t i = 0; i < CLI_ARRAY_SIZE(widths); i++, x += 74) {
		fprintf(picture->file, "<path d=\"M%d %dh30\" class=\"w\" stroke-width=\"%.1f\"/>\n", x, y,
			svg_link_width(widths[i]));
		snprintf(line, sizeof(line), "x%u", widths[i]);
		svg_text(picture, x + 36, y + 4, "s", 10, line);
	}
	fprintf(picture->file, "<path d=\"M%d %dh30\" class=\"bad\" stroke-width=\"5\"/>\n", x, y);
	svg_text(picture, x + 36, y + 4, "s", 60, "slower than both ends support");
	svg_text(picture, DRAW_MARGIN, y + 24, "s", 130,
		 "Equal colours: a GPU and its best card. PIX: at most one PCI switch between them. PXB: several "
		 "switches.");
	snprintf(line, sizeof(line),
		 "PHB: a host bridge. NODE: several host bridges of one NUMA node. SYS: different NUMA nodes.");
	svg_text(picture, DRAW_MARGIN, y + 39, "s", 130, line);
	if (!picture->drawing.hidden)
		return;
	snprintf(line, sizeof(line), "Drives not shown, because no GPU or card is near them: %zu.",
		 picture->drawing.hidden);
	svg_text(picture, DRAW_MARGIN, y + 54, "s", 130, line);
}

void topo_draw(const struct topo_view *view, FILE *file)
{
	struct picture picture = { .view = view, .topology = view->topology, .file = file };
	int height;

	if (draw_layout(view->topology, &picture.drawing) == 0) {
		height = picture.drawing.height + LEGEND;
		fprintf(file,
			"<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"pl\" viewBox=\"0 0 %d %d\" width=\"%d\" "
			"height=\"%d\">\n<style>%s</style>\n<rect width=\"%d\" height=\"%d\" "
			"style=\"fill:var(--bg)\"/>\n",
			picture.drawing.width, height, picture.drawing.width, height, style, picture.drawing.width,
			height);
		for (size_t i = 0; i < picture.drawing.count; i++)
			if (picture.drawing.boxes[i].width)
				draw_box(&picture, &picture.drawing.boxes[i]);
		draw_legend(&picture, picture.drawing.height);
		fputs("</svg>\n", file);
	}
	draw_free(&picture.drawing);
}

void topo_write_svg(const struct topo_view *view, FILE *file)
{
	fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", file);
	topo_draw(view, file);
}
