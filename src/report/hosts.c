/* SPDX-License-Identifier: BSD-2-Clause */
/* Sections of hosts: their findings, their medians, and their slowest pairs. */
#include <stdlib.h>
#include <string.h>

#include "cmd/fleet/output.h"
#include "report/fleet.h"

#define ITEMS_TEXT 1600
#define SLOWEST 5 /* pairs that a section names, in each direction */

static int compare_host_names(const void *left, const void *right)
{
	return strverscmp(*(const char *const *)left, *(const char *const *)right);
}

int report_hosts_make(struct report_hosts *hosts, const struct report *report)
{
	size_t room = 0, count = 0;

	for (size_t i = 0; i < report->document_count; i++) {
		const struct report_document *document = &report->documents[i];

		room += document->fleet ? document->fleet->fleet.hosts.count : 0;
		room += document->matrix.judgement ? document->matrix.judgement->ranks.host_count : 0;
	}
	*hosts = (struct report_hosts){ .names = malloc((room + 1) * sizeof(*hosts->names)) };
	if (!hosts->names)
		return -ENOMEM;
	for (size_t i = 0; i < report->document_count; i++) {
		const struct report_document *document = &report->documents[i];
		const struct report_judgement *judgement = document->matrix.judgement;

		for (size_t j = 0; document->fleet && j < document->fleet->fleet.hosts.count; j++)
			hosts->names[count++] = document->fleet->fleet.hosts.names[j];
		for (size_t j = 0; judgement && j < judgement->ranks.host_count; j++)
			hosts->names[count++] = judgement->ranks.host_names[j];
	}
	qsort(hosts->names, count, sizeof(*hosts->names), compare_host_names);
	for (size_t i = 0; i < count; i++)
		if (!i || strcmp(hosts->names[hosts->count - 1], hosts->names[i]))
			hosts->names[hosts->count++] = hosts->names[i];
	return 0;
}

size_t report_hosts_find(const struct report_hosts *hosts, const char *name)
{
	const char **found = bsearch(&name, hosts->names, hosts->count, sizeof(*hosts->names), compare_host_names);

	return found ? (size_t)(found - hosts->names) : SIZE_MAX;
}

void report_hosts_free(struct report_hosts *hosts)
{
	free(hosts->names);
	*hosts = (struct report_hosts){ .names = NULL };
}

/* -- findings ---------------------------------------------------------------------------------------- */

static size_t find_fleet_host(const struct fleet *fleet, const char *name)
{
	for (size_t i = 0; i < fleet->hosts.count; i++)
		if (!strcmp(fleet->hosts.names[i], name))
			return i;
	return SIZE_MAX;
}

/* Writes what a run of `peerlane fleet` has found at the host. */
static void write_host_rows(const struct fleet *fleet, const char *name, FILE *file)
{
	size_t host = find_fleet_host(fleet, name);
	const char *command = fleet->kind == FLEET_TOPO ? "topo" : "check";
	char text[ITEMS_TEXT];

	if (host == SIZE_MAX)
		return;
	if (fleet->states[host] == ROW_WELL)
		fprintf(file, "<p class=\"soft\">%s: well, and as most hosts</p>\n", command);
	for (size_t i = 0; i < fleet->row_count; i++) {
		const struct fleet_row *row = &fleet->rows[i];

		if (row->host != host || row->state == ROW_WELL)
			continue;
		fleet_format_items(text, sizeof(text), fleet, row, false);
		fprintf(file, "<p><span class=\"st s%d\">%s</span> <b>", row->state, row_state_name(row->state));
		report_escape(file, row->id, 64);
		fputs("</b> ", file);
		report_escape(file, text, 600);
		fputs("</p>\n", file);
	}
}

/* -- pairs ------------------------------------------------------------------------------------------- */

/* Value of a host's rank with another one. */
struct host_pair {
	double part; /* of the usual value; a latency of twice the usual one is 0.5 */
	double value;
	size_t other; /* host */
};

struct host_pairs {
	const struct report_matrix *matrix;
	const struct report_hosts *hosts;
	enum effects_unit unit;
	struct host_pair *list;
	double *parts;
	size_t count;
};

static int compare_host_pairs(const void *left, const void *right)
{
	const struct host_pair *a = left, *b = right;

	return (a->part > b->part) - (a->part < b->part);
}

/* Collects the pairs of a host in one direction, the slowest first. */
static void collect_host_pairs(struct host_pairs *pairs, size_t host, bool receives)
{
	const struct report_judgement *judgement = pairs->matrix->judgement;
	const double *values = pairs->unit == EFFECTS_LATENCY ? pairs->matrix->latency : pairs->matrix->rate;
	double usual = exp(judgement->effects[pairs->unit].usual);
	size_t ranks = judgement->ranks.count;

	pairs->count = 0;
	for (size_t i = 0; i < ranks; i++)
		for (size_t j = 0; judgement->ranks.host[i] == host && j < ranks; j++) {
			double value = receives ? values[j * ranks + i] : values[i * ranks + j];

			if (!(value > 0) || judgement->ranks.host[j] == host)
				continue;
			pairs->list[pairs->count] = (struct host_pair){
				.part = pairs->unit == EFFECTS_LATENCY ? 1 / (value * usual) : value / usual,
				.value = value,
				.other = judgement->ranks.host[j],
			};
			pairs->parts[pairs->count] = pairs->list[pairs->count].part;
			pairs->count++;
		}
	qsort(pairs->list, pairs->count, sizeof(*pairs->list), compare_host_pairs);
}

static void write_host_direction(struct host_pairs *pairs, size_t host, bool receives, FILE *file)
{
	const struct report_judgement *judgement = pairs->matrix->judgement;
	enum report_unit unit = pairs->unit == EFFECTS_LATENCY ? REPORT_UNIT_TIME : REPORT_UNIT_RATE;
	char text[REPORT_TEXT];
	double median;

	collect_host_pairs(pairs, host, receives);
	fprintf(file, "<tr><td>%s, %s</td>", unit == REPORT_UNIT_TIME ? "latency" : "bandwidth",
		receives ? "receiving" : "sending");
	if (!pairs->count) {
		fputs("<td>no results</td><td></td></tr>\n", file);
		return;
	}
	median = effects_median(pairs->parts, pairs->count);
	fprintf(file, "<td>%s%.0f %%%s</td><td class=\"t\">", median < 0.95 ? "<b>" : "", 100 * median,
		median < 0.95 ? "</b>" : "");
	for (size_t i = 0; i < CLI_MIN(pairs->count, (size_t)SLOWEST); i++) {
		fputs(i ? ", " : "", file);
		report_write_host_link(pairs->hosts, judgement->ranks.host_names[pairs->list[i].other], file);
		fprintf(file, " %s", report_value(unit, pairs->list[i].value, text));
	}
	fputs("</td></tr>\n", file);
}

static size_t find_matrix_host(const struct effects_ranks *ranks, const char *name)
{
	for (size_t i = 0; i < ranks->host_count; i++)
		if (!strcmp(ranks->host_names[i], name))
			return i;
	return EFFECTS_NONE;
}

/* Writes medians and slowest pairs of a host. */
static int write_host_pairs(const struct report_document *document, const struct report_hosts *hosts, const char *name,
			    FILE *file)
{
	const struct report_judgement *judgement = document->matrix.judgement;
	size_t host = find_matrix_host(&judgement->ranks, name), room = judgement->ranks.count;
	struct host_pairs pairs = { .matrix = &document->matrix, .hosts = hosts };

	if (host == EFFECTS_NONE)
		return 0;
	/* All ranks of a host with all others. */
	room = room * room + 1;
	pairs.list = malloc(room * sizeof(*pairs.list));
	pairs.parts = malloc(room * sizeof(*pairs.parts));
	if (pairs.list && pairs.parts) {
		fputs("<div class=\"wide\"><table><thead><tr><th scope=\"col\"></th><th scope=\"col\">of usual</th><th "
		      "scope=\"col\">slowest pairs</th></tr></thead>\n",
		      file);
		for (int unit = 0; unit < EFFECTS_UNITS; unit++) {
			pairs.unit = (enum effects_unit)unit;
			for (int receives = 0; judgement->effects[unit].ranks && receives < 2; receives++)
				write_host_direction(&pairs, host, receives, file);
		}
		fputs("</table></div>\n", file);
	}
	free(pairs.list);
	free(pairs.parts);
	return pairs.list && pairs.parts ? 0 : -ENOMEM;
}

int report_write_host_sections(const struct report *report, const struct report_hosts *hosts, FILE *file)
{
	const struct report_document *before, *matrix = report_last_matrix(report, &before);
	int rc = 0;

	if (!hosts->count)
		return 0;
	fputs("<h2 id=\"hosts\">Hosts</h2>\n<div class=\"hosts\">\n", file);
	for (size_t i = 0; rc == 0 && i < hosts->count; i++) {
		fprintf(file, "<section class=\"card host\" id=\"h%zu\"><h3>", i);
		report_escape(file, hosts->names[i], 80);
		fputs("</h3>\n", file);
		for (int kind = FLEET_CHECK; kind <= FLEET_TOPO; kind++) {
			const struct report_document *last = report_last_fleet(report, (enum fleet_kind)kind, &before);

			if (last)
				write_host_rows(&last->fleet->fleet, hosts->names[i], file);
		}
		if (matrix)
			rc = write_host_pairs(matrix, hosts, hosts->names[i], file);
		fputs("</section>\n", file);
	}
	fputs("</div>\n", file);
	return rc;
}
