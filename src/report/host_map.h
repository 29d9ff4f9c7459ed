/* SPDX-License-Identifier: BSD-2-Clause */
/* Heat map of many hosts, in a page. */
#ifndef PL_REPORT_HOST_MAP_H
#define PL_REPORT_HOST_MAP_H

#include "report/fleet.h"

/* One heat map. */
struct host_map {
	const struct report_document *document;
	const struct report_document *before; /* NULL: a map of values; else of changes since this one */
	const struct report_judgement *judgement;
	const struct effects *effects;
	const struct report_hosts *hosts;
	enum effects_unit unit;
	size_t count;
	double cell, side, left, top; /* pixels */
	const double *values;         /* of a map of changes: factors, with the change of the whole fleet */
};

/* Sets the sizes of a map (draw_hosts.c). */
void host_map_measure(struct host_map *map);
/* Writes a map with its names, marks and links (draw_hosts.c).  Returns 0 or -ENOMEM. */
int host_map_write(const struct host_map *map, FILE *file);

/* -- colours (host_map_colours.c) --------------------------------------------------------------------- */

/* Returns a value as part of the usual one; a latency of twice the usual one is 0.5. */
double host_map_part(const struct host_map *map, double value);
/* Returns "Bandwidth" or "Latency"; in a map of changes as in the middle of a sentence. */
const char *host_map_unit_name(const struct host_map *map);
/* Writes the cells as one picture.  Returns 0 or -ENOMEM. */
int host_map_write_cells(const struct host_map *map, FILE *file);
void host_map_write_scale(const struct host_map *map, double y, FILE *file);

#endif
