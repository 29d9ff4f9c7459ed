/* SPDX-License-Identifier: BSD-2-Clause */
/* Common parts of all plots: style, frame, texts. */
#include "report/goals.h"

#include <string.h>

/* Uses the colours of topology pictures.  They repeat after eight lines, with dashes. */
const char report_style[] =
	":root{--bg:#fff;--ink:#1c2330;--soft:#5d6778;--edge:#d3d9e2;--grid:#e7ebf1}"
	"@media(prefers-color-scheme:dark){:root{--bg:#12161d;--ink:#e4e9f1;--soft:#98a4b6;--edge:#333d4b;"
	"--grid:#262e3a}}"
	".pr{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
	".pr text{fill:var(--soft)}.pr .k{fill:var(--ink)}.pr .h{fill:var(--ink);font-size:14px;font-weight:600}"
	".pr .e{text-anchor:end}.pr .m{text-anchor:middle}.pr .g{stroke:var(--grid)}.pr .x{stroke:var(--edge)}"
	".pr .l{stroke:var(--c);fill:none;stroke-width:2;stroke-linejoin:round}.pr .d{fill:var(--c)}"
	".pr .o{fill:var(--bg);stroke:var(--c);stroke-width:1.5}.pr .a{fill:var(--c);opacity:.13}.pr "
	".w{stroke:var(--c)}"
	".pr .c0{--c:#1b9e62}.pr .c1{--c:#7d56c8}.pr .c2{--c:#cf5a16}.pr .c3{--c:#0c87a8}.pr .c4{--c:#c23b87}"
	".pr .c5{--c:#8a7a00}.pr .c6{--c:#3f62d4}.pr .c7{--c:#a05a3c}"
	"@media(prefers-color-scheme:dark){.pr .c0{--c:#3ecb8a}.pr .c1{--c:#a98cf0}.pr .c2{--c:#f58b4b}"
	".pr .c3{--c:#3fb9da}.pr .c4{--c:#ee77b6}.pr .c5{--c:#cfbc3a}.pr .c6{--c:#86a2ff}.pr .c7{--c:#d39478}}"
	/* The second eight lines: dashed, with hollow marks for the legend. */
	".pr .b1 .l{stroke-dasharray:7 3}.pr .b1 .d{fill:var(--bg);stroke:var(--c);stroke-width:1.5}"
	/* From bad to good: dark to light, so that the scale works without colours. */
	".pr .n{fill:var(--grid)}.pr .v0{fill:#8c1d40}.pr .v1{fill:#b0413a}.pr .v2{fill:#cb6338}.pr .v3{fill:#dd8843}"
	".pr .v4{fill:#e8ac5c}.pr .v5{fill:#d9c77a}.pr .v6{fill:#b5d08f}.pr .v7{fill:#97d3a1}.pr .v8{fill:#a7e0bd}"
	".pr .v9{fill:#c4eed6}.pr text.n0{fill:#fff;font-size:11px}.pr text.n1{fill:#111;font-size:11px}"
	".pr .slow{fill:none;stroke:var(--ink);stroke-width:2}";

const char *report_plot_name(enum report_plot plot)
{
	static const char *const names[REPORT_PLOTS] = { "bandwidth",   "frames",         "latency",
							 "percentiles", "phases",         "samples",
							 "matrix",      "matrix-latency", "goals" };

	return names[plot];
}

/* Returns the number of bytes of a UTF-8 character; of a truncated one, the bytes that are there. */
static size_t utf8_length(const char *at)
{
	size_t length = 1;

	while (((unsigned char)at[length] & 0xc0) == 0x80)
		length++;
	return length;
}

size_t report_length(const char *text)
{
	size_t count = 0;

	for (; *text; text += utf8_length(text))
		count++;
	return count;
}

static void write_escaped(FILE *file, const char *at, size_t length)
{
	/* XML does not allow U+FFFE and U+FFFF; C1 contains control characters. */
	bool odd = (length == 3 && !memcmp(at, "\xef\xbf", 2) && (unsigned char)at[2] >= 0xbe) ||
		   (length == 2 && at[0] == '\xc2' && (unsigned char)at[1] < 0xa0);

	if (*at == '<')
		fputs("&lt;", file);
	else if (*at == '>')
		fputs("&gt;", file);
	else if (*at == '&')
		fputs("&amp;", file);
	else if (*at == '"')
		fputs("&quot;", file);
	else if (*at == '\'')
		fputs("&#39;", file);
	else if (odd || (unsigned char)*at < ' ' || *at == 0x7f)
		fputc('?', file);
	else
		fwrite(at, 1, length, file);
}

void report_escape(FILE *file, const char *text, size_t most)
{
	bool cut = most && report_length(text) > most;
	size_t room = cut ? most - 1 : SIZE_MAX;

	for (; *text && room; text += utf8_length(text), room--)
		write_escaped(file, text, utf8_length(text));
	if (cut)
		fputs("\xe2\x80\xa6", file);
}

void report_svg_begin(FILE *file, enum report_plot plot, int width, int height, bool alone, const char *title,
		      const char *text)
{
	fprintf(file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"pr\" viewBox=\"0 0 %d %d\" width=\"%d\" "
		"height=\"%d\" "
		"role=\"img\" aria-labelledby=\"t%d-%d d%d-%d\">\n<title id=\"t%d-%d\">",
		width, height, width, height, plot, width, plot, width, plot, width);
	report_escape(file, title, 0);
	fprintf(file, "</title>\n<desc id=\"d%d-%d\">", plot, width);
	report_escape(file, text, 0);
	fputs("</desc>\n", file);
	if (alone)
		fprintf(file,
			"<style>%s</style>\n<rect width=\"%d\" height=\"%d\" style=\"fill:var(--bg)\"/>\n<text "
			"x=\"16\" "
			"y=\"24\" class=\"h\">",
			report_style, width, height);
	if (alone) {
		report_escape(file, title, (size_t)width / 8);
		fputs("</text>\n", file);
	}
}

int report_draw(const struct report *report, enum report_plot plot, int width, bool alone, FILE *file)
{
	if (plot == REPORT_PLOT_PHASES)
		return report_draw_phases(report, width, alone, file);
	if (plot == REPORT_PLOT_MATRIX || plot == REPORT_PLOT_MATRIX_LATENCY)
		return report_draw_matrix(report, plot, width, alone, file);
	if (plot == REPORT_PLOT_GOALS)
		return report_draw_goals(report, width, alone, file);
	return report_draw_lines(report, plot, width, alone, file);
}
