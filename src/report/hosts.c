/* SPDX-License-Identifier: BSD-2-Clause */
/* Sections of hosts: their findings, their medians, and their slowest pairs. */
#include <stdlib.h>
#include <string.h>

#include "cmd/fleet/output.h"
#include "report/fleet.h"

#define PAIRS_MAX 8       /* that a section names, in each direction */
#define PAIR_DEVIATIONS 4 /* of the noise, by which a pair is below what its hosts reach elsewhere */
#define PAIR_FACTOR 1.05

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
			if (strcmp(judgement->ranks.host_names[j], EFFECTS_NO_NAME))
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

/* True if a run has a row of this host and name that is not well. */
static bool has_host_row(const struct fleet *fleet, const char *name, const char *id)
{
	size_t host = fleet ? find_fleet_host(fleet, name) : SIZE_MAX;

	for (size_t i = 0; host != SIZE_MAX && i < fleet->row_count; i++)
		if (fleet->rows[i].host == host && fleet->rows[i].state != ROW_WELL && !strcmp(fleet->rows[i].id, id))
			return true;
	return false;
}

/* Writes what a run of `peerlane fleet` has found at the host, except what another one has found as well. */
static void write_host_rows(const struct fleet *fleet, const struct fleet *shown, const char *name, FILE *file)
{
	size_t host = find_fleet_host(fleet, name);
	char text[FLEET_ITEMS_TEXT];

	for (size_t i = 0; host != SIZE_MAX && i < fleet->row_count; i++) {
		const struct fleet_row *row = &fleet->rows[i];

		if (row->host != host || row->state == ROW_WELL || has_host_row(shown, name, row->id))
			continue;
		fleet_format_items(text, sizeof(text), fleet, row, false);
		fprintf(file, "<p><span class=\"st s%d\">%s</span> <b>", row->state, row_state_name(row->state));
		report_escape(file, row->id, 64);
		fputs("</b> ", file);
		report_escape(file, text, 600);
		fputs("</p>\n", file);
	}
}

static bool is_host_well(const struct fleet *fleet, const char *name)
{
	size_t host = fleet ? find_fleet_host(fleet, name) : SIZE_MAX;

	return host != SIZE_MAX && fleet->states[host] == ROW_WELL;
}

static void write_host_findings(const struct report *report, const char *name, FILE *file)
{
	const struct report_document *before, *check = report_last_fleet(report, FLEET_CHECK, &before);
	const struct report_document *topo = report_last_fleet(report, FLEET_TOPO, &before);
	const struct fleet *first = check ? &check->fleet->fleet : NULL, *second = topo ? &topo->fleet->fleet : NULL;

	if (is_host_well(first, name) || is_host_well(second, name))
		fprintf(file, "<p class=\"soft\">%s%s%s: well, and as most hosts</p>\n",
			is_host_well(first, name) ? "check" : "",
			is_host_well(first, name) && is_host_well(second, name) ? ", " : "",
			is_host_well(second, name) ? "topo" : "");
	if (first)
		write_host_rows(first, NULL, name, file);
	if (second)
		write_host_rows(second, first, name, file);
}

/* -- pairs ------------------------------------------------------------------------------------------- */

/* Value of a host's rank with another one. */
struct host_pair {
	double rest; /* logarithm of the value over what both hosts reach elsewhere */
	double value;
	size_t other; /* host */
};

struct host_pairs {
	const struct report_matrix *matrix;
	const struct report_hosts *hosts;
	enum effects_unit unit;
	struct host_pair *list; /* slow ones */
	double *parts;          /* of the usual value, of all pairs; a latency of twice the usual one is 0.5 */
	size_t count, slow;
};

static int compare_host_pairs(const void *left, const void *right)
{
	const struct host_pair *a = left, *b = right;

	return (a->rest > b->rest) - (a->rest < b->rest);
}

/* Adds a pair of ranks of two hosts. */
static void add_host_pair(struct host_pairs *pairs, size_t from, size_t to, size_t other)
{
	const struct report_judgement *judgement = pairs->matrix->judgement;
	const struct effects *effects = &judgement->effects[pairs->unit];
	const double *values = pairs->unit == EFFECTS_LATENCY ? pairs->matrix->latency : pairs->matrix->rate;
	double value = values[from * judgement->ranks.count + to],
	       rest = effects->rest[from * judgement->ranks.count + to];
	double usual = exp(effects->usual);

	if (!(value > 0))
		return;
	pairs->parts[pairs->count++] = pairs->unit == EFFECTS_LATENCY ? 1 / (value * usual) : value / usual;
	if (rest < -fmax(PAIR_DEVIATIONS * effects->noise, log(PAIR_FACTOR)))
		pairs->list[pairs->slow++] = (struct host_pair){ .rest = rest, .value = value, .other = other };
}

/* Collects the pairs of a host in one direction, the slowest first. */
static void collect_host_pairs(struct host_pairs *pairs, size_t host, bool receives)
{
	const struct effects_ranks *ranks = &pairs->matrix->judgement->ranks;

	pairs->count = pairs->slow = 0;
	for (size_t i = 0; i < ranks->count; i++)
		for (size_t j = 0; ranks->host[i] == host && j < ranks->count; j++)
			if (ranks->host[j] != host)
				add_host_pair(pairs, receives ? j : i, receives ? i : j, ranks->host[j]);
	qsort(pairs->list, pairs->slow, sizeof(*pairs->list), compare_host_pairs);
}

/* Writes the cell of one direction. */
static void write_host_median(struct host_pairs *pairs, FILE *file)
{
	double median = effects_median(pairs->parts, pairs->count);

	if (isnan(median))
		fputs("<td>no results</td>", file);
	else
		fprintf(file, median < 0.95 ? "<td><b>%.0f %%</b></td>" : "<td>%.0f %%</td>", 100 * median);
}

/* Writes the slow pairs of one direction, if there are any. */
static void write_slow_pairs(const struct host_pairs *pairs, bool receives, FILE *file)
{
	const struct effects_ranks *ranks = &pairs->matrix->judgement->ranks;
	bool latency = pairs->unit == EFFECTS_LATENCY;
	char text[REPORT_TEXT];

	if (!pairs->slow)
		return;
	fprintf(file, "<p>%s %s: ", latency ? "Long latency" : "Slow", receives ? "from" : "to");
	for (size_t i = 0; i < CLI_MIN(pairs->slow, (size_t)PAIRS_MAX); i++) {
		fputs(i ? ", " : "", file);
		report_write_host_link(pairs->hosts, ranks->host_names[pairs->list[i].other], file);
		fprintf(file, " %s",
			report_value(latency ? REPORT_UNIT_TIME : REPORT_UNIT_RATE, pairs->list[i].value, text));
	}
	if (pairs->slow > PAIRS_MAX)
		fprintf(file, ", and %zu more", pairs->slow - PAIRS_MAX);
	fputs("</p>\n", file);
}

/* Writes medians of all judged quantities, and the pairs that are slower than both hosts are elsewhere. */
static void write_host_values(struct host_pairs *pairs, size_t host, FILE *file)
{
	const struct report_judgement *judgement = pairs->matrix->judgement;

	fputs("<table><thead><tr><th scope=\"col\">of usual</th><th scope=\"col\">sending</th><th "
	      "scope=\"col\">receiving</th></tr></thead>\n",
	      file);
	for (int unit = 0; unit < EFFECTS_UNITS; unit++) {
		if (!judgement->effects[unit].ranks)
			continue;
		pairs->unit = (enum effects_unit)unit;
		fprintf(file, "<tr><td>%s</td>", unit == EFFECTS_LATENCY ? "latency" : "bandwidth");
		for (int receives = 0; receives < 2; receives++) {
			collect_host_pairs(pairs, host, receives);
			write_host_median(pairs, file);
		}
		fputs("</tr>\n", file);
	}
	fputs("</table>\n", file);
	for (int unit = 0; unit < EFFECTS_UNITS; unit++)
		for (int receives = 0; judgement->effects[unit].ranks && receives < 2; receives++) {
			pairs->unit = (enum effects_unit)unit;
			collect_host_pairs(pairs, host, receives);
			write_slow_pairs(pairs, receives, file);
		}
}

static size_t find_matrix_host(const struct effects_ranks *ranks, const char *name)
{
	for (size_t i = 0; i < ranks->host_count; i++)
		if (!strcmp(ranks->host_names[i], name))
			return i;
	return EFFECTS_NONE;
}

/* Writes what a matrix tells of a host. */
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
	if (pairs.list && pairs.parts)
		write_host_values(&pairs, host, file);
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
		write_host_findings(report, hosts->names[i], file);
		if (matrix)
			rc = write_host_pairs(matrix, hosts, hosts->names[i], file);
		fputs("</section>\n", file);
	}
	fputs("</div>\n", file);
	return rc;
}
