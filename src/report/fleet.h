/* SPDX-License-Identifier: BSD-2-Clause */
/* Many hosts in a report: runs of `peerlane fleet`, judged matrices, and the sections of the hosts. */
#ifndef PL_REPORT_FLEET_H
#define PL_REPORT_FLEET_H

#include "bench/effects/change.h"
#include "cmd/fleet/judge.h"
#include "cmd/fleet/saved.h"
#include "report/report.h"

/* Run of `peerlane fleet check` or `topo`. */
struct report_fleet {
	struct saved saved; /* hosts and answers, which belong to `fleet` */
	struct fleet fleet; /* judged */
};

/* Judgement of a matrix of many hosts. */
struct report_judgement {
	struct effects_ranks ranks;
	struct effects effects[EFFECTS_UNITS]; /* ranks is NULL: this quantity is not judged */
	struct effects (*rails)[EFFECTS_UNITS]; /* of each rail by itself */
	size_t rail_count;
	size_t *order; /* ranks, by group and host */
};

/* Matrices of fewer ranks are drawn with a number in each cell. */
#define REPORT_MAP_RANKS_MIN 25

/* Hosts that have a section: those of fleets and of judged matrices, sorted by name. */
struct report_hosts {
	const char **names;
	size_t count;
};

/* -- reading (load_fleet.c) -------------------------------------------------------------------------- */

/* Reads a folder of `peerlane fleet --save`. */
int report_load_fleet(struct report *report, const char *path, struct pl_error *error);
/* Reads a parsed document of `peerlane fleet --output`. */
int report_take_fleet(struct report_document *document, struct json_object *root, struct pl_error *error);
void report_free_fleet(struct report_fleet *fleet);

/* -- judgement (judge.c) ----------------------------------------------------------------------------- */

/* Judges the matrices of many hosts, with the groups of report->groups. */
int report_judge_matrices(struct report *report, struct pl_error *error);
/* Sets the order of the ranks, to be freed.  Returns 0 or -ENOMEM. */
int report_order_ranks(struct report_judgement *judgement);
void report_free_judgement(struct report_judgement *judgement);
/* True if a matrix is drawn as a map that names the hosts. */
bool report_has_map(const struct report_document *document);
/* Returns the last two documents with a judged matrix: `before` is NULL if there is one only. */
const struct report_document *report_last_matrix(const struct report *report, const struct report_document **before);
/* Returns the last two runs of a command, likewise. */
const struct report_document *report_last_fleet(const struct report *report, enum fleet_kind kind,
						const struct report_document **before);
/* Adds sentences about fleets, judged matrices and their changes (fleet_sentences.c).  Returns 0 or -ENOMEM. */
int report_describe_fleets(struct report *report);

/* -- page -------------------------------------------------------------------------------------------- */

/* Returns 0 or -ENOMEM. */
int report_hosts_make(struct report_hosts *hosts, const struct report *report);
/* Returns the number of a host, for its anchor; SIZE_MAX: it has no section. */
size_t report_hosts_find(const struct report_hosts *hosts, const char *name);
void report_hosts_free(struct report_hosts *hosts);
/* Writes names in compressed form, as a link if it is one host with a section. */
void report_write_host_link(const struct report_hosts *hosts, const char *name, FILE *file);
/* Writes the tables of findings, changes and inventory (fleet_tables.c). */
int report_write_fleet_findings(const struct report *report, const struct report_hosts *hosts, FILE *file);
int report_write_inventory(const struct report *report, const struct report_hosts *hosts, FILE *file);
/* Writes a section for each host (hosts.c). */
int report_write_host_sections(const struct report *report, const struct report_hosts *hosts, FILE *file);
/* Writes the heat maps of all judged matrices (draw_hosts.c). */
int report_write_host_maps(const struct report *report, const struct report_hosts *hosts, FILE *file);
/* Writes heat maps of the changes between the last two matrices (draw_changes.c). */
int report_write_change_maps(const struct report *report, const struct report_hosts *hosts, FILE *file);

/* Colours of a picture with a palette: red, green, blue. */
struct report_colour {
	uint8_t red, green, blue;
};

/* Writes a PNG picture in base64.  Colour 0 is transparent (png.c).  Returns 0 or -ENOMEM. */
int report_write_png(FILE *file, const uint8_t *pixels, uint32_t width, uint32_t height,
		     const struct report_colour *palette, uint32_t colours);

#endif
