/* SPDX-License-Identifier: BSD-2-Clause */
/* HTML output: one page with the picture and all tables, which loads nothing from elsewhere. */
#include "cmd/topo/topo.h"

#define REASONS_MAX 16

static const char head[] = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
			   "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>";

static const char style[] =
	"</title>\n<style>\n"
	":root{color-scheme:light dark;--bg:#fff;--ink:#1c2330;--soft:#5d6778;--edge:#d3d9e2;--good:#d9f2dd;"
	"--warn:#fff4d6}\n"
	"@media(prefers-color-scheme:dark){:root{--bg:#12161d;--ink:#e4e9f1;--soft:#98a4b6;--edge:#333d4b;"
	"--good:#1d4028;--warn:#3c3213}}\n"
	"body{background:var(--bg);color:var(--ink);font:15px/1.45 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu "
	"Sans',sans-serif;margin:24px auto;padding:0 24px;max-width:1900px}\n"
	"h1{font-size:22px;margin:0}h2{font-size:17px;margin:28px 0 8px}p{margin:4px 0;color:var(--soft)}\n"
	"figure{margin:16px 0;overflow-x:auto}figure svg{max-width:100%;height:auto;min-width:900px}\n"
	"table{border-collapse:collapse;font-size:14px}th,td{border:1px solid var(--edge);padding:4px 10px;"
	"text-align:left;vertical-align:top}th{color:var(--soft);font-weight:600}.best{background:var(--good);"
	"font-weight:600}\n"
	".note{background:var(--warn);color:var(--ink);padding:6px 12px;border-radius:6px;margin:6px 0}\n"
	".wide{overflow-x:auto}small{color:var(--soft)}\n</style></head><body>\n";

static void write_html_cell(FILE *file, const char *text)
{
	fputs("<td>", file);
	topo_escape(file, text);
	fputs("</td>", file);
}

static void write_html_notes(const struct topo_view *view, FILE *file)
{
	char notes[TOPO_NOTES_MAX][PL_REASON_MAX];
	size_t count = topo_notes(view, notes, TOPO_NOTES_MAX);

	for (size_t i = 0; i < count; i++) {
		fputs("<p class=\"note\">", file);
		topo_escape(file, notes[i]);
		fputs("</p>\n", file);
	}
}

/* Writes a cell of the matrix, with the reasons as its tooltip. */
static void write_html_pair(const struct pl_topology *topology, const struct pl_path *path, FILE *file)
{
	char reasons[REASONS_MAX][PL_REASON_MAX], rate[TOPO_TEXT];
	size_t count = pl_topology_reasons(topology, path, reasons, REASONS_MAX);

	fprintf(file, "<td%s title=\"", path->best ? " class=\"best\"" : "");
	for (size_t i = 0; i < count; i++) {
		topo_escape(file, reasons[i]);
		fputs(i + 1 < count ? "; " : "", file);
	}
	fprintf(file, "\">%s<br><small>%s</small></td>", pl_path_class_name(path->class),
		topo_rate(path->bandwidth, rate));
}

/* Writes the cell of two GPUs, with their links in words as its tooltip. */
static void write_html_gpu_pair(const struct pl_topology *topology, size_t gpu, size_t peer, FILE *file)
{
	struct pl_gpu_pair pair;
	char label[TOPO_TEXT], rate[TOPO_TEXT];

	if (gpu == peer) {
		fputs("<td>X</td>", file);
		return;
	}
	pl_topology_gpu_pair(topology, gpu, peer, &pair);
	fprintf(file, "<td%s title=\"", pair.linked ? " class=\"best\"" : "");
	if (!pair.linked)
		fputs("no links", file);
	else if (!pair.links)
		fprintf(file, "%s through other GPUs", pl_gpu_link_name(pair.kind));
	else
		fprintf(file, "%u %s links%s", pair.links, pl_gpu_link_name(pair.kind),
			pair.switched ? " of each GPU to switches" : "");
	fprintf(file, "; over PCI: %s\">%s<br><small>%s</small></td>", pl_path_class_name(pair.class),
		topo_gpu_pair_label(&pair, label), pair.linked ? topo_rate(pair.bandwidth, rate) : "");
}

static void write_html_matrix_head(const struct pl_topology *topology, bool gpus, FILE *file)
{
	fputs("<h2>GPUs and cards</h2>\n<div class=\"wide\"><table><tr><th>GPU</th>", file);
	for (size_t i = 0; gpus && i < topology->gpu_count; i++)
		fprintf(file, "<th>GPU %zu</th>", i);
	for (size_t i = 0; i < topology->card_count; i++) {
		fputs("<th>", file);
		topo_escape(file, topo_card_label(topology, i));
		fputs("</th>", file);
	}
	fputs("</tr>\n", file);
}

static void write_html_matrix(const struct topo_view *view, FILE *file)
{
	const struct pl_topology *topology = view->topology;
	bool gpus = topology->gpu_count > 1;
	char text[TOPO_TEXT];

	if (!topology->path_count && !gpus)
		return;
	write_html_matrix_head(topology, gpus, file);
	for (size_t gpu = 0; gpu < topology->gpu_count; gpu++) {
		fprintf(file, "<tr><th>%zu ", gpu);
		topo_escape(file, topo_short_address(topology->nodes[topology->gpus[gpu].node].address));
		fputs("<br><small>", file);
		topo_escape(file, topo_gpu_name(view, gpu, text));
		fputs("</small></th>", file);
		for (size_t peer = 0; gpus && peer < topology->gpu_count; peer++)
			write_html_gpu_pair(topology, gpu, peer, file);
		for (size_t card = 0; card < topology->card_count; card++)
			write_html_pair(topology, pl_topology_path(topology, gpu, card), file);
		fputs("</tr>\n", file);
	}
	fprintf(file, "</table></div>\n<p>Green: the best card of the GPU%s. Point at a pair to see the reasons.</p>\n",
		topo_has_gpu_links(topology) ? ", and GPUs joined by NVLink (NV) or xGMI (XGMI)" : "");
}

static void write_html_cards(const struct topo_view *view, FILE *file)
{
	const struct pl_topology *topology = view->topology;
	char text[TOPO_TEXT];

	if (!topology->card_count)
		return;
	fputs("<h2>Cards</h2>\n<div class=\"wide\"><table><tr><th>Card</th><th>Address</th><th>Name</th><th>Link</th>"
	      "<th>Port</th><th>Network device</th><th>Firmware</th></tr>\n",
	      file);
	for (size_t i = 0; i < topology->card_count; i++) {
		const struct pl_card *card = &topology->cards[i];

		fputs("<tr>", file);
		write_html_cell(file, card->name[0] ? card->name : "-");
		write_html_cell(file, card->node < 0 ? "-" : topology->nodes[card->node].address);
		write_html_cell(file, topo_card_name(view, i, text));
		write_html_cell(file, card->node < 0 ? "-" : topo_link(topology, card->node, text));
		write_html_cell(file, topo_ports(topology, i, text));
		write_html_cell(file, card->netdev_count ? card->netdevs[0].name : "-");
		write_html_cell(file, card->firmware[0] ? card->firmware : "-");
		fputs("</tr>\n", file);
	}
	fputs("</table></div>\n", file);
}

void topo_write_html(const struct topo_view *view, FILE *file)
{
	const struct pl_topology *topology = view->topology;
	const char *name = topology->platform[0] ? topology->platform : "Topology";
	char text[TOPO_TEXT];

	fputs(head, file);
	topo_escape(file, name);
	fputs(style, file);
	fputs("<h1>", file);
	topo_escape(file, name);
	fprintf(file, "</h1>\n<p>%s</p>\n", topo_summary(topology, text));
	write_html_notes(view, file);
	fputs("<figure>\n", file);
	topo_draw(view, file);
	fputs("</figure>\n", file);
	write_html_matrix(view, file);
	write_html_cards(view, file);
	fputs("</body></html>\n", file);
}
