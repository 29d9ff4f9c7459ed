/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Heat maps of many hosts.  The cells are one picture, as a drawn element for each cell would make pages of megabytes.
 * Clear rows and columns above it name the hosts and link to their sections.
 */
#include <stdlib.h>
#include <string.h>

#include "report/host_map.h"

#define MAP_SIDE 900.0
#define CELL_MAX 24.0 /* pixels, so that maps of few hosts do not look like tables */
#define CHARACTER 7.2 /* pixels of a character, at most */
#define NAME_MAX_SHOWN 18
#define MARGIN 210       /* for marks at the right */
#define BELOW 180        /* for marks below, if there are any */
#define HEAD 22          /* for a line of text */
#define LABEL_PITCH 13.0 /* pixels between labels */
#define MARKS_MAX 40     /* labels at an edge */

/* Label at an edge of a map. */
struct edge_mark {
	size_t line; /* row or column */
	char text[96];
};

static size_t rank_of_line(const struct host_map *map, size_t line)
{
	return map->judgement->order[line];
}

static const char *line_host(const struct host_map *map, size_t line)
{
	return map->judgement->ranks.host_names[map->judgement->ranks.host[rank_of_line(map, line)]];
}

/* True if the line is the first one of its host. */
static bool begins_host(const struct host_map *map, size_t line)
{
	const size_t *host = map->judgement->ranks.host;

	return !line || host[rank_of_line(map, line)] != host[rank_of_line(map, line - 1)];
}

static size_t count_host_lines(const struct host_map *map, size_t line)
{
	size_t count = 1;

	while (line + count < map->count && !begins_host(map, line + count))
		count++;
	return count;
}

static void write_percent(FILE *file, double effect)
{
	if (isnan(effect))
		fputs("no values", file);
	else
		fprintf(file, "%.0f %%", 100 * exp(effect));
}

/* Median effects of a host's rank, with what the groups and hosts had taken off. */
static double line_median(const struct host_map *map, size_t line, bool receives)
{
	size_t rank = rank_of_line(map, line), count = 0;
	double *room = malloc((map->count + 1) * sizeof(*room)), median;

	for (size_t i = 0; room && i < map->count; i++) {
		double value = receives ? map->values[i * map->count + rank] : map->values[rank * map->count + i];

		if (value > 0 && map->judgement->ranks.host[i] != map->judgement->ranks.host[rank])
			room[count++] = log(host_map_part(map, value));
	}
	median = room ? effects_median(room, count) : NAN;
	free(room);
	return median;
}

static void write_host_hit(const struct host_map *map, size_t line, bool column, FILE *file)
{
	double at = (double)line * map->cell, size = (double)count_host_lines(map, line) * map->cell;
	const char *name = line_host(map, line);
	size_t number = report_hosts_find(map->hosts, name);

	/* The name of the host may be unknown. */
	if (number == SIZE_MAX)
		return;
	fprintf(file, "<a href=\"#h%zu\"><rect class=\"hit\" ", number);
	if (column)
		fprintf(file, "x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%.0f\">", map->left + at, HEAD, size,
			map->top - HEAD);
	else
		fprintf(file, "x=\"0\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\">", map->top + at,
			map->left + map->side, size);
	fputs("<title>", file);
	report_escape(file, name, 80);
	fputs(column ? ": receives at " : ": sends at ", file);
	write_percent(file, line_median(map, line, column));
	fputs(map->before ? " of the value before, beside the change of all</title></rect></a>\n"
			  : " of the usual value</title></rect></a>\n",
	      file);
}

/* Names every n-th host at the left and above, as far as there is room. */
static void write_map_names(const struct host_map *map, FILE *file)
{
	double last = -LABEL_PITCH;

	for (size_t line = 0; line < map->count; line++) {
		double at = ((double)line + (double)count_host_lines(map, line) / 2) * map->cell;

		if (!begins_host(map, line) || at - last < LABEL_PITCH)
			continue;
		last = at;
		fprintf(file, "<text x=\"%.0f\" y=\"%.1f\" class=\"e\">", map->left - 6, map->top + at + 4);
		report_escape(file, line_host(map, line), NAME_MAX_SHOWN);
		fprintf(file, "</text><text transform=\"translate(%.1f %.0f) rotate(-90)\">", map->left + at + 4,
			map->top - 6);
		report_escape(file, line_host(map, line), NAME_MAX_SHOWN);
		fputs("</text>\n", file);
	}
}

/* -- marks ------------------------------------------------------------------------------------------- */

static size_t line_of_rank(const struct host_map *map, size_t rank)
{
	size_t line = 0;

	while (map->judgement->order[line] != rank)
		line++;
	return line;
}

static size_t line_of_host(const struct host_map *map, size_t host)
{
	size_t line = 0;

	while (map->judgement->ranks.host[map->judgement->order[line]] != host)
		line++;
	return line;
}

static int compare_marks(const void *left, const void *right)
{
	const struct edge_mark *a = left, *b = right;

	return (a->line > b->line) - (a->line < b->line);
}

/* Collects marks of groups, hosts and ranks that send, or receive, less than others. */
static size_t collect_marks(const struct host_map *map, bool receives, struct edge_mark marks[MARKS_MAX])
{
	const struct effects_ranks *ranks = &map->judgement->ranks;
	size_t count = 0;

	for (size_t i = 0; i < map->effects->count && count < MARKS_MAX; i++) {
		const struct effect *effect = &map->effects->list[i];
		struct edge_mark *mark = &marks[count];
		double percent = 100 * exp(receives ? effect->receiving : effect->sending);
		const char *name;
		char cut[24];

		if (effect->kind == EFFECT_PAIR || !(receives ? effect->receives : effect->sends))
			continue;
		if (effect->kind == EFFECT_GROUP) {
			mark->line = line_of_host(map, effect->members[effect->member_count / 2]);
			name = effect->at == EFFECTS_NONE ? "group" : ranks->group_names[effect->at];
			snprintf(mark->text, sizeof(mark->text), "%s (%zu): %.0f %%", effects_cut(cut, sizeof(cut), name), effect->member_count,
				 percent);
		} else {
			bool rank = effect->kind == EFFECT_RANK;

			mark->line = rank ? line_of_rank(map, effect->at) : line_of_host(map, effect->at);
			name = ranks->host_names[rank ? ranks->host[effect->at] : effect->at];
			snprintf(mark->text, sizeof(mark->text), "%s%s: %.0f %%", effects_cut(cut, sizeof(cut), name), rank ? ", one rank" : "",
				 percent);
		}
		count++;
	}
	qsort(marks, count, sizeof(*marks), compare_marks);
	return count;
}

static bool has_marks(const struct host_map *map, bool receives)
{
	struct edge_mark marks[MARKS_MAX];

	return collect_marks(map, receives, marks) > 0;
}

/* Draws a bar beside each line of a group. */
static void write_group_bars(const struct host_map *map, bool receives, FILE *file)
{
	for (size_t i = 0; i < map->effects->count; i++) {
		const struct effect *effect = &map->effects->list[i];

		if (effect->kind != EFFECT_GROUP || !(receives ? effect->receives : effect->sends))
			continue;
		for (size_t j = 0; j < effect->member_count; j++) {
			size_t line = line_of_host(map, effect->members[j]);
			double at = (double)line * map->cell, size = (double)count_host_lines(map, line) * map->cell;

			if (receives)
				fprintf(file, "<rect class=\"bar\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"4\"/>",
					map->left + at, map->top + map->side + 2, size);
			else
				fprintf(file, "<rect class=\"bar\" x=\"%.1f\" y=\"%.1f\" width=\"4\" height=\"%.1f\"/>",
					map->left + map->side + 2, map->top + at, size);
		}
	}
	fputc('\n', file);
}

/* Writes marks at the right edge (sending) or below (receiving), so far apart that they can be read. */
static void write_map_marks(const struct host_map *map, bool receives, FILE *file)
{
	struct edge_mark marks[MARKS_MAX];
	size_t count = collect_marks(map, receives, marks);
	double next = 0;

	write_group_bars(map, receives, file);
	for (size_t i = 0; i < count; i++) {
		double at = ((double)marks[i].line + 0.5) * map->cell, label = fmax(at, next), edge = map->side + 8;

		next = label + LABEL_PITCH;
		if (receives)
			fprintf(file,
				"<path class=\"x\" fill=\"none\" d=\"M%.1f %.1fV%.1fL%.1f %.1f\"/><text class=\"e k\" "
				"transform=\"translate(%.1f %.1f) rotate(-90)\">",
				map->left + at, map->top + edge, map->top + edge + 4, map->left + label,
				map->top + edge + 16, map->left + label + 4, map->top + edge + 19);
		else
			fprintf(file,
				"<path class=\"x\" fill=\"none\" d=\"M%.1f %.1fH%.1fL%.1f %.1f\"/><text class=\"k\" "
				"x=\"%.1f\" y=\"%.1f\">",
				map->left + edge, map->top + at, map->left + edge + 4, map->left + edge + 16,
				map->top + label, map->left + edge + 19, map->top + label + 4);
		report_escape(file, marks[i].text, 0);
		fputs("</text>\n", file);
	}
}

/* Draws a ring around slow pairs, which are only a few pixels. */
static void write_pair_rings(const struct host_map *map, FILE *file)
{
	size_t shown = 0;

	for (size_t i = 0; i < map->effects->count && shown < MARKS_MAX; i++) {
		const struct effect *effect = &map->effects->list[i];

		if (effect->kind != EFFECT_PAIR)
			continue;
		shown++;
		fprintf(file, "<circle class=\"slow\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>",
			map->left + ((double)line_of_rank(map, effect->to) + 0.5) * map->cell,
			map->top + ((double)line_of_rank(map, effect->at) + 0.5) * map->cell, fmax(6, map->cell));
	}
	fputc('\n', file);
}

int host_map_write(const struct host_map *map, FILE *file)
{
	double width = map->left + map->side + MARGIN,
	       height = map->top + map->side + (has_marks(map, true) ? BELOW : 14) + 50;
	int rc;

	fprintf(file,
		"<figure class=\"card map\"><figcaption>%s%s between all hosts: ", map->before ? "Changes of " : "",
		host_map_unit_name(map));
	if (map->before) {
		report_escape(file, map->before->name, 80);
		fputs(" to ", file);
	}
	report_escape(file, map->document->name, 80);
	fprintf(file,
		"</figcaption>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"heat map\">"
		"<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"pr\" viewBox=\"0 0 %.0f %.0f\" "
		"style=\"width:%.0fpx\" "
		"role=\"group\" aria-label=\"Heat map with a row for each sending host and a column for each receiving "
		"host\">\n",
		width, height, width);
	fprintf(file,
		"<text x=\"%.0f\" y=\"14\" class=\"k\">rows: sending host, columns: receiving host; click a row or a "
		"column head to go to its host</text>\n",
		map->left);
	rc = host_map_write_cells(map, file);
	write_map_names(map, file);
	write_map_marks(map, false, file);
	write_map_marks(map, true, file);
	for (size_t line = 0; line < map->count; line++)
		if (begins_host(map, line)) {
			write_host_hit(map, line, false, file);
			write_host_hit(map, line, true, file);
		}
	write_pair_rings(map, file);
	host_map_write_scale(map, height - 44, file);
	fputs("</svg></div></figure>\n", file);
	return rc;
}

/* Sets the sizes of a map: margins are as wide as the longest name. */
void host_map_measure(struct host_map *map)
{
	const struct effects_ranks *ranks = &map->judgement->ranks;
	size_t longest = 4;

	for (size_t i = 0; i < ranks->host_count; i++)
		longest = CLI_MAX(longest, report_length(ranks->host_names[i]));
	map->left = CHARACTER * (double)CLI_MIN(longest, (size_t)NAME_MAX_SHOWN) + 12;
	map->top = HEAD + map->left;
	map->cell = fmin(CELL_MAX, MAP_SIDE / (double)map->count);
	map->side = map->cell * (double)map->count;
}

static int write_document_maps(const struct report_document *document, const struct report_hosts *hosts, FILE *file)
{
	const struct report_matrix *matrix = &document->matrix;
	int rc = 0;

	for (int unit = 0; rc == 0 && unit < EFFECTS_UNITS; unit++) {
		struct host_map map = { .document = document,
					.judgement = matrix->judgement,
					.effects = &matrix->judgement->effects[unit],
					.hosts = hosts,
					.unit = (enum effects_unit)unit,
					.count = matrix->ranks,
					.values = unit == EFFECTS_LATENCY ? matrix->latency : matrix->rate };

		if (!map.effects->ranks)
			continue;
		host_map_measure(&map);
		/* A map in one colour need not be looked at. */
		if (!map.effects->count)
			fprintf(file, "<details><summary>%s: no host and no pair stands out</summary>\n",
				unit == EFFECTS_LATENCY ? "Latency" : "Bandwidth");
		rc = host_map_write(&map, file);
		if (!map.effects->count)
			fputs("</details>\n", file);
	}
	return rc;
}

int report_write_host_maps(const struct report *report, const struct report_hosts *hosts, FILE *file)
{
	const struct report_document *last = NULL;
	size_t count = 0;
	int rc;

	for (size_t i = 0; i < report->document_count; i++)
		if (report_has_map(&report->documents[i])) {
			last = &report->documents[i];
			count++;
		}
	if (!last)
		return 0;
	fputs("<h2>All pairs</h2>\n", file);
	rc = write_document_maps(last, hosts, file);
	if (rc == 0)
		rc = report_write_change_maps(report, hosts, file);
	if (count > 1)
		fputs("<details><summary>Earlier measurements</summary>\n", file);
	for (size_t i = 0; rc == 0 && i < report->document_count; i++)
		if (report_has_map(&report->documents[i]) && &report->documents[i] != last)
			rc = write_document_maps(&report->documents[i], hosts, file);
	if (count > 1)
		fputs("</details>\n", file);
	return rc;
}
