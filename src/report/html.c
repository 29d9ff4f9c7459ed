/* SPDX-License-Identifier: BSD-2-Clause */
/* HTML page: one self-contained file, also well-formed as XML. */
#include <stdlib.h>
#include <string.h>

#include "report/fleet.h"

#define WIDE 640
#define NARROW 340
#define TILES_MAX 6

static const char style[] =
	"*{box-sizing:border-box}"
	":root{color-scheme:light dark;--panel:#f6f8fb;--warn:#fff4d6;--warnedge:#e0b83c;--accent:#3f62d4}"
	"@media(prefers-color-scheme:dark){:root{--panel:#181e27;--warn:#3a3115;--warnedge:#a5842a;--accent:#86a2ff}}"
	"html{-webkit-text-size-adjust:100%}"
	"body{background:var(--bg);color:var(--ink);font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu "
	"Sans',sans-serif;margin:0 auto;padding:32px 24px 48px;max-width:1400px}"
	"h1{font-size:28px;line-height:1.2;margin:0;letter-spacing:-.01em}"
	"h2{font-size:20px;margin:44px 0 14px;padding-top:14px;border-top:1px solid var(--edge)}"
	"h3{font-size:16px;margin:0 0 8px}p{margin:6px 0}.soft{color:var(--soft)}"
	".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(210px,1fr));gap:14px;margin:24px 0 18px}"
	".tile{background:var(--panel);border:1px solid var(--edge);border-radius:10px;padding:14px 16px}"
	".tile b{display:block;font-size:26px;line-height:1.2;font-weight:650;font-variant-numeric:tabular-nums}"
	".tile span{display:block;color:var(--soft);font-size:14px;overflow-wrap:anywhere}"
	"ul.say{margin:0;padding-left:20px;max-width:80ch}ul.say li{margin:5px 0;overflow-wrap:anywhere}"
	".note{background:var(--warn);border-left:4px solid var(--warnedge);padding:8px "
	"14px;border-radius:6px;margin:8px "
	"0;max-width:84ch;overflow-wrap:anywhere}"
	".grid{columns:560px auto;column-gap:20px}"
	".card{background:var(--bg);border:1px solid var(--edge);border-radius:12px;padding:18px 18px 14px;margin:0 "
	"0 20px;break-inside:avoid;min-width:0}"
	".card figcaption{font-size:16px;font-weight:600;margin-bottom:10px}"
	".card svg{display:block;width:100%;height:auto}.narrow{display:none!important}"
	"details{margin-top:10px}summary{cursor:pointer;color:var(--accent);font-size:14px;padding:4px 0}"
	".wide{overflow-x:auto;-webkit-overflow-scrolling:touch}.wide:focus-visible{outline:2px solid var(--accent)}"
	"table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums;min-width:100%}"
	"caption{text-align:left;color:var(--soft);padding:4px 0}"
	"th,td{border-bottom:1px solid var(--edge);padding:5px 12px 5px 0;text-align:left;vertical-align:top;"
	"white-space:nowrap}th{color:var(--soft);font-weight:600}td.r,th.r{text-align:right}td.t{white-space:normal}"
	".machine svg{width:auto;max-width:100%;height:auto}"
	"a{color:var(--accent)}.map svg{max-width:none}.map .wide{padding-bottom:6px}"
	".pr .hit{fill:transparent;cursor:pointer}.pr a:hover .hit,.pr a:focus-visible .hit{fill:var(--ink);"
	"fill-opacity:.1;stroke:var(--ink);stroke-width:1}.pr .bar{fill:var(--ink)}.map .slow{stroke:#111}"
	".st{display:inline-block;border-radius:4px;padding:0 6px;font-size:12px;font-weight:650;line-height:1.6;"
	"background:var(--panel);border:1px solid var(--edge)}"
	".s0{background:#b3261e;border-color:#b3261e;color:#fff}.s1,.s2{background:var(--warn);border-color:var(--"
	"warnedge)}"
	"td.names{min-width:11em;max-width:30em}"
	".hosts{display:grid;grid-template-columns:repeat(auto-fill,minmax(300px,1fr));gap:14px}"
	".wide+h3,p.soft+h3{margin-top:26px}.host{margin:0;padding:12px "
	"14px;font-size:14px;content-visibility:auto;contain-intrinsic-size:auto 170px;"
	"scroll-margin-top:12px;overflow-wrap:anywhere}.host:target{border-color:var(--accent);box-shadow:0 0 0 2px "
	"var(--accent)}.host table{font-size:13px}"
	"dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:0}dt{color:var(--soft)}"
	"dd{margin:0;overflow-wrap:anywhere}"
	"pre{background:var(--panel);border:1px solid var(--edge);border-radius:8px;padding:10px 14px;"
	"white-space:pre-wrap;overflow-wrap:anywhere;font-size:13px;margin:8px "
	"0}footer{margin-top:44px;color:var(--soft);font-size:13px}"
	"@media(max-width:599px){body{padding:20px 14px 32px}h1{font-size:23px}h2{font-size:18px;margin-top:32px}"
	".grid{columns:auto}.hosts{grid-template-columns:minmax(0,1fr)}.tiles{grid-template-columns:1fr 1fr;gap:10px}"
	".tile{padding:10px 12px}.tile b{font-size:20px}.card{padding:14px 10px 10px}.narrow{display:block!important}"
	".broad{display:none!important}dl{grid-template-columns:1fr}dt{margin-top:6px}.machine svg{max-width:none}}"
	"@media print{:root{--bg:#fff!important;--ink:#000!important;--soft:#444!important;--edge:#bbb!important;"
	"--grid:#ddd!important;--panel:#fff!important;--warn:#fff!important}"
	"body{padding:0;font-size:10pt;max-width:none}.tile,.note,li,pre,tr,.broad,.machine,dl{break-inside:avoid}"
	"h2,h3,figcaption,.keep{break-after:avoid}h2{margin-top:24px}"
	".grid{columns:auto}.card{padding:10px;break-inside:auto}.card svg{max-height:88mm;margin:0 auto}"
	".tall svg,.machine svg{max-height:none}.tall details,.again details{display:none}"
	/* Printed pages show the tables that a screen hides. */
	"details>summary{display:none}details::details-content{content-visibility:visible;display:block}"
	".card p.soft{break-before:avoid}.wide{overflow:visible}"
	"table{font-size:7.5pt;break-before:auto}th,td{padding:2px 6px 2px 0;white-space:normal}"
	".machine{page:across;border:0;padding:0}.narrow{display:none!important}.broad{display:block!important}}"
	"@page{margin:14mm}@page across{size:landscape}";

static const char *const captions[REPORT_PLOTS] = {
	[REPORT_PLOT_PHASES] = "Time of a frame by phase",
	[REPORT_PLOT_MATRIX] = "Bandwidth of all pairs",
	[REPORT_PLOT_MATRIX_LATENCY] = "Latency of all pairs",
	[REPORT_PLOT_GOALS] = "Figures next to their goals",
};

static const char *const explanations[REPORT_PLOTS] = {
	[REPORT_PLOT_BANDWIDTH] = "Higher is better.",
	[REPORT_PLOT_FRAMES] = "Higher is better. Frames are received, computed on and inspected.",
	[REPORT_PLOT_LATENCY] = "Lower is better. Lines are medians; shaded bands reach up to the 99th percentile.",
	[REPORT_PLOT_PERCENTILES] = "Lower and flatter is better. At p99, 1 % of the operations took longer.",
	[REPORT_PLOT_PHASES] = ("Medians of each phase; shorter is better. Bars under one heading share a scale. With "
				"several frames in "
				"flight, frames complete more often than the time of each suggests."),
	[REPORT_PLOT_SAMPLES] = "A constant rate is better. Dips are disturbances.",
	[REPORT_PLOT_MATRIX] = "A row for each sending rank. Light is better.",
	[REPORT_PLOT_MATRIX_LATENCY] = "A row for each sending rank. Light is better.",
	[REPORT_PLOT_GOALS] =
		"The line in the middle of a bar is the goal. Longer bars are better. The table has all figures.",
};

static void write_tile(FILE *file, const char *value, const char *label, const char *name)
{
	fprintf(file, "<div class=\"tile\"><span>%s</span><b>%s</b><span>", label, value);
	report_escape(file, name, 60);
	fputs("</span></div>\n", file);
}

static int write_line_tile(const struct report *report, enum report_plot plot, FILE *file)
{
	struct report_lines lines;
	int rc = report_lines_make(&lines, report, plot);
	bool high = plot == REPORT_PLOT_BANDWIDTH;
	const struct report_line *best = NULL;
	char value[REPORT_TEXT], size[REPORT_TEXT], label[160];
	size_t at = 0;

	for (size_t i = 0; rc == 0 && i < lines.count; i++)
		for (size_t j = 0; j < lines.lines[i].count; j++)
			if (!best || (high ? lines.lines[i].y[j] > best->y[at] : lines.lines[i].y[j] < best->y[at])) {
				best = &lines.lines[i];
				at = j;
			}
	if (best) {
		snprintf(label, sizeof(label), "%s, %s",
			 high                    ? "Highest bandwidth"
			 : best->series->latency ? "Lowest latency"
						 : "Shortest time under load",
			 report_value(REPORT_UNIT_SIZE, best->x[at], size));
		write_tile(file, report_value(lines.y.unit, best->y[at], value), label, best->series->name);
	}
	report_lines_free(&lines);
	return rc;
}

static void write_ratio_tile(const struct report_document *document, FILE *file)
{
	struct json_object *ratios = cli_json_member(document->root, "ratios", json_type_array), *best = NULL;
	double ratio, most = 0, size = NAN;
	char value[REPORT_TEXT], text[REPORT_TEXT], label[160], *name;

	for (size_t i = 0; ratios && i < json_object_array_length(ratios); i++) {
		struct json_object *one = json_object_array_get_idx(ratios, i);

		if (cli_json_member_text(one, "arm") && cli_json_member_text(one, "over") &&
		    report_number(one, "ratio", &ratio) == 0 && ratio > most) {
			best = one;
			most = ratio;
		}
	}
	if (!best)
		return;
	report_number(best, "size", &size);
	snprintf(value, sizeof(value), "%.2f times", most);
	snprintf(label, sizeof(label), "Frames per second, %s", report_value(REPORT_UNIT_SIZE, size, text));
	if (asprintf(&name, "%s over %s", cli_json_member_text(best, "arm"), cli_json_member_text(best, "over")) < 0)
		return;
	write_tile(file, value, label, name);
	free(name);
}

static void write_check_tile(const struct report_document *document, FILE *file)
{
	const char *verdict =
		cli_json_member_text(cli_json_member(document->root, "check", json_type_object), "verdict");

	if (!verdict)
		return;
	write_tile(file,
		   !strcmp(verdict, "ready")      ? "ready"
		   : !strcmp(verdict, "degraded") ? "degraded"
						  : "unavailable",
		   "GPUDirect RDMA", "verdict of peerlane check");
}

#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

/* Writes a sentence in which names of hosts are links. */
static void write_sentence(const struct report_hosts *hosts, const char *text, FILE *file)
{
	while (hosts->count && *text) {
		size_t length = strspn(text, NAME_CHARACTERS "."), other;
		char *word, *rest;

		/* A dot at the end ends the sentence. */
		while (length && text[length - 1] == '.')
			length--;
		other = strcspn(text + length, NAME_CHARACTERS);
		word = strndup(text, length);
		rest = strndup(text + length, other);
		if (word && report_hosts_find(hosts, word) != SIZE_MAX)
			report_write_host_link(hosts, word, file);
		else if (word)
			report_escape(file, word, 0);
		if (rest)
			report_escape(file, rest, 0);
		free(word);
		free(rest);
		text += length + other;
	}
	report_escape(file, text, 0);
}

static int write_page_summary(const struct report *report, FILE *file)
{
	struct report_hosts hosts;
	int rc;

	if (report_hosts_make(&hosts, report) < 0)
		return -ENOMEM;
	fputs("<div class=\"tiles\">\n", file);
	rc = write_line_tile(report, REPORT_PLOT_BANDWIDTH, file);
	if (rc == 0)
		rc = write_line_tile(report, REPORT_PLOT_LATENCY, file);
	for (size_t i = 0; i < CLI_MIN(report->document_count, (size_t)TILES_MAX); i++)
		write_ratio_tile(&report->documents[i], file);
	for (size_t i = 0; i < CLI_MIN(report->document_count, (size_t)TILES_MAX); i++)
		if (!report_is_repeated(report, i, "check"))
			write_check_tile(&report->documents[i], file);
	fputs("</div>\n", file);
	for (int warning = 1; warning >= 0; warning--) {
		if (!warning)
			fputs("<ul class=\"say\">\n", file);
		for (size_t i = 0; i < report->sentence_count; i++) {
			if (report->sentences[i].warning != warning)
				continue;
			fputs(warning ? "<p class=\"note\">" : "<li>", file);
			write_sentence(&hosts, report->sentences[i].text, file);
			fputs(warning ? "</p>\n" : "</li>\n", file);
		}
	}
	/* HTML requires at least one item in a list. */
	if (report->point_count)
		fprintf(file, "<li>%zu result%s from %zu file%s; a table is below each plot.</li>\n</ul>\n",
			report->point_count, report->point_count == 1 ? "" : "s", report->document_count,
			report->document_count == 1 ? "" : "s");
	else
		fprintf(file, "<li>From %zu file%s.</li>\n</ul>\n", report->document_count,
			report->document_count == 1 ? "" : "s");
	report_hosts_free(&hosts);
	return rc;
}

static int write_plot_caption(const struct report *report, enum report_plot plot, FILE *file)
{
	struct report_lines lines;
	int rc;

	if (captions[plot]) {
		fputs(captions[plot], file);
		return 0;
	}
	rc = report_lines_make(&lines, report, plot);
	report_escape(file, lines.title, 0);
	if (lines.left_out)
		fprintf(file, " (%zu more lines are in the table only)", lines.left_out);
	report_lines_free(&lines);
	return rc;
}

static int write_plot_card(const struct report *report, enum report_plot plot, FILE *file)
{
	bool tall = plot == REPORT_PLOT_MATRIX || plot == REPORT_PLOT_MATRIX_LATENCY || plot == REPORT_PLOT_GOALS;
	bool again = plot == REPORT_PLOT_PERCENTILES && report_plot_available(report, REPORT_PLOT_LATENCY);
	int rc;

	/*
	 * On paper, heat maps contain the values of their tables, and the table of latencies those of the percentiles.
	 */
	fprintf(file, "<figure class=\"card%s%s\"><figcaption>", tall ? " tall" : "", again ? " again" : "");
	rc = write_plot_caption(report, plot, file);
	fputs("</figcaption>\n<div class=\"broad\">", file);
	if (rc == 0)
		rc = report_draw(report, plot, WIDE, false, file);
	fputs("</div>\n<div class=\"narrow\">", file);
	if (rc == 0)
		rc = report_draw(report, plot, NARROW, false, file);
	fprintf(file, "</div>\n<p class=\"soft\">%s</p>\n<details><summary>Table</summary>\n", explanations[plot]);
	report_write_tables(report, plot, file);
	fputs("</details></figure>\n", file);
	return rc;
}

static void write_page_head(const struct report *report, FILE *file)
{
	const char *time = cli_json_member_text(report->documents[0].root, "time");
	struct json_object *machine = cli_json_member(report->documents[0].root, "machine", json_type_object);
	const char *host = cli_json_member_text(machine, "host"),
		   *processor = cli_json_member_text(machine, "processor");

	fprintf(file,
		"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
		"<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n"
		"<meta name=\"generator\" content=\"peerlane %s\"/>\n<title>Peerlane: ",
		pl_version());
	report_escape(file, host ? host : report->documents[0].name, 60);
	fprintf(file, "</title>\n<style>%s%s</style></head>\n<body>\n<header><h1>", report_style, style);
	fputs("Peerlane measurements</h1>\n<p class=\"soft\">", file);
	if (host)
		report_escape(file, host, 80);
	if (host && (processor || time))
		fputs(", ", file);
	if (processor)
		report_escape(file, processor, 80);
	if (processor && time)
		fputs(", ", file);
	if (time)
		report_escape(file, time, 40);
	fputs("</p></header>\n<main>\n", file);
}

/* True if a plot has a card: maps of many hosts stand apart. */
static bool has_plot_card(const struct report *report, enum report_plot plot)
{
	bool matrix = plot == REPORT_PLOT_MATRIX || plot == REPORT_PLOT_MATRIX_LATENCY;

	if (!report_plot_available(report, plot))
		return false;
	for (size_t i = 0; i < report->document_count; i++)
		if (!matrix || (report->documents[i].kind == REPORT_MATRIX && !report_has_map(&report->documents[i])))
			return true;
	return false;
}

static int write_plot_cards(const struct report *report, FILE *file)
{
	bool any = false;
	int rc = 0;

	for (int plot = 0; plot < REPORT_PLOTS && rc == 0; plot++) {
		if (!has_plot_card(report, (enum report_plot)plot))
			continue;
		if (!any)
			fputs("<h2>Plots</h2>\n<div class=\"grid\">\n", file);
		any = true;
		rc = write_plot_card(report, (enum report_plot)plot, file);
	}
	if (any)
		fputs("</div>\n", file);
	return rc;
}

/* Writes what belongs to many hosts: findings first. */
static int write_hosts_part(const struct report *report, FILE *file)
{
	struct report_hosts hosts;
	int rc = report_hosts_make(&hosts, report);

	if (rc == 0)
		rc = report_write_fleet_findings(report, &hosts, file);
	if (rc == 0)
		rc = report_write_host_maps(report, &hosts, file);
	if (rc == 0)
		rc = report_write_inventory(report, &hosts, file);
	if (rc == 0)
		rc = report_write_host_sections(report, &hosts, file);
	report_hosts_free(&hosts);
	return rc;
}

int report_write_html(const struct report *report, FILE *file)
{
	int rc;

	write_page_head(report, file);
	rc = write_page_summary(report, file);
	if (rc == 0)
		rc = write_plot_cards(report, file);
	if (rc == 0)
		rc = write_hosts_part(report, file);
	report_write_machines(report, file);
	report_write_sources(report, file);
	fprintf(file,
		"</main>\n<footer>Generated by peerlane %s. This page is self-contained and loads "
		"no other files.</footer>\n</body></html>\n",
		pl_version());
	return rc;
}
