/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `peerlane report`: documents of measurements are read into series of points, which are drawn as a page, as
 * single plots, and in the terminal.  NAN stands for what a document does not say.
 */
#ifndef PL_CLI_REPORT_H
#define PL_CLI_REPORT_H

#include <math.h>

#include "cmd/common/output.h"
#include "topology/topology.h"

/* What a page can show and still be small, and read by somebody. */
#define REPORT_FILES_MAX 64
#define REPORT_FILE_MAX (32u << 20)
#define REPORT_SERIES_MAX 64
#define REPORT_POINTS_MAX 2000
#define REPORT_PHASES_MAX 12
#define REPORT_SAMPLES_MAX 200 /* of a line; more are averaged */
#define REPORT_RANKS_MAX 1024
#define REPORT_DEPTH_MAX 32
#define REPORT_TEXT 64

/* REPORT_MACHINE: what `peerlane topo` or `peerlane check` says, to be shown with the others. */
enum report_kind { REPORT_BENCH, REPORT_WORKFLOW, REPORT_PROXY, REPORT_MATRIX, REPORT_MACHINE };

enum report_percentile {
	REPORT_P50,
	REPORT_P90,
	REPORT_P95,
	REPORT_P99,
	REPORT_P999,
	REPORT_P9999,
	REPORT_PERCENTILES,
};

/* What tells series apart, in the order in which their names have it. */
enum report_part {
	REPORT_TOOL,
	REPORT_ARM,
	REPORT_OPERATION,
	REPORT_FABRIC,
	REPORT_MEMORY,
	REPORT_DEPTH,
	REPORT_VECTOR,
	REPORT_HOST,
	REPORT_FILE,
	REPORT_PARTS,
};

struct report_point {
	double size;                                           /* bytes */
	double rate, least;                                    /* bytes per second; the least of all samples */
	double operations;                                     /* or frames, per second */
	double low, high;                                      /* of all runs, as a factor of the result */
	double latency[REPORT_PERCENTILES], shortest, longest; /* microseconds */
	double cpu, server_cpu;                                /* percent of a core */
	double phases[REPORT_PHASES_MAX];                      /* microseconds */
	double staged;                                         /* bytes that went through host memory */
	int verified;                                          /* -1: not known */
	const char *route, *reason;                            /* of the document; may be NULL */
	double *samples;                                       /* bytes per second */
	size_t sample_count;
	double interval; /* seconds between them */
};

struct report_series {
	char *name, *parts[REPORT_PARTS];
	size_t document;
	bool latency;                /* one at a time: it is the time that counts */
	struct report_point *points; /* by size */
	size_t count;
};

struct report_matrix {
	size_t ranks;
	double size;
	double *rate, *latency; /* from row to column; NULL: not there */
	const char **labels;
};

struct report_document {
	char *path, *name;
	struct json_object *root;
	enum report_kind kind;
	struct report_matrix matrix;
	struct pl_topology *topology; /* NULL: not there */
};

struct report_sentence {
	bool warning;
	char *text;
};

struct report {
	struct report_document *documents;
	struct report_series *series;
	size_t document_count, series_count, point_count;
	char *phases[REPORT_PHASES_MAX];
	size_t phase_count;
	struct report_sentence *sentences; /* report_say() */
	size_t sentence_count;
};

/* -- reading (report_load.c, report_results.c, report_matrix.c, report_topology.c) ----------------- */

/* Each: 0 or a negative errno, with an error that names the file and the place in it. */
int report_load(struct report *report, const char *path, struct pl_error *error);
/* The same for what is in memory; path is what errors call it. */
int report_parse(struct report *report, const char *path, const char *text, size_t length, struct pl_error *error);
/* When all are there: gives series their names, points their order. */
int report_finish(struct report *report, struct pl_error *error);
void report_free(struct report *report);

int report_read_results(struct report *report, struct report_document *document, struct pl_error *error);
int report_read_matrix(struct report_document *document, struct pl_error *error);
/* What `peerlane topo --json` prints, as far as the picture needs it. */
int report_read_topology(struct pl_topology **topology, struct json_object *from, const char *path,
			 struct pl_error *error);

/* Whether an earlier document has the same object under this name, as those of one machine do. */
bool report_repeated(const struct report *report, size_t document, const char *name);

/* -- values (report_json.c) ---------------------------------------------------------------------- */

/* A member if it is there and of this type, else NULL. */
struct json_object *report_member(struct json_object *object, const char *name, enum json_type type);
/* A text, NULL if there is none. */
const char *report_text(struct json_object *object, const char *name);
/* A number from 0 to 1e18 into *value; NAN if it is absent or null; -EPROTO if it is anything else. */
int report_number(struct json_object *object, const char *name, double *value);
int report_number_of(struct json_object *object, double *value);
int report_wrong(struct pl_error *error, const char *path, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int report_no_memory(struct pl_error *error);

/* -- meaning (report_say.c) ---------------------------------------------------------------------- */

int report_say(struct report *report, struct pl_error *error);
/* Which plots there is something for. */
enum report_plot {
	REPORT_PLOT_BANDWIDTH,
	REPORT_PLOT_FRAMES, /* bandwidth of arms, where there are other results as well */
	REPORT_PLOT_LATENCY,
	REPORT_PLOT_PERCENTILES,
	REPORT_PLOT_PHASES,
	REPORT_PLOT_SAMPLES,
	REPORT_PLOT_MATRIX,
	REPORT_PLOT_MATRIX_LATENCY,
	REPORT_PLOTS,
};
const char *report_plot_name(enum report_plot plot);
/* Rates over sizes. */
bool report_plot_of_rates(enum report_plot plot);
/* Whether it shows the series, if that has something for it. */
bool report_plot_takes(const struct report *report, enum report_plot plot, const struct report_series *series);
bool report_has(const struct report *report, enum report_plot plot);

/* -- lines (report_lines.c) ---------------------------------------------------------------------- */

/* What a plot of lines shows, whatever draws it. */
struct report_line {
	const struct report_series *series;
	size_t index;         /* of the line: its colour */
	double *x, *y, *high; /* high: the upper edge of a band, NAN where there is none */
	size_t count;
};

enum report_unit { REPORT_UNIT_SIZE, REPORT_UNIT_RATE, REPORT_UNIT_TIME, REPORT_UNIT_SECONDS, REPORT_UNIT_PERCENTILE };

struct report_axis {
	double low, high; /* of the values; with log, their logarithms to the base of 10 */
	bool log;
	enum report_unit unit;
};

struct report_lines {
	char title[160], text[320]; /* what it is, for those who do not see it */
	struct report_line *lines;
	size_t count, left_out;
	struct report_axis x, y;
	bool bars; /* one point each, all of the same size */
};

/* 0 or -ENOMEM. */
int report_lines_make(struct report_lines *lines, const struct report *report, enum report_plot plot);
void report_lines_free(struct report_lines *lines);
/* From 0 to 1. */
double report_at(const struct report_axis *axis, double value);
/* Marks of an axis: their values; how many, at most `most`. */
size_t report_ticks(const struct report_axis *axis, double *values, size_t most);
/* "64K", "1.5 GB/s", "12.3 us", "0.5 s", "p99.9"; return buffer. */
const char *report_value(enum report_unit unit, double value, char buffer[REPORT_TEXT]);
/* As short as they can be, for axes. */
const char *report_tick(enum report_unit unit, double value, char buffer[REPORT_TEXT]);

/* -- pictures ------------------------------------------------------------------------------------ */

/* Text in XML, with all that is there of UTF-8; at most `most` characters (0: all). */
void report_escape(FILE *file, const char *text, size_t most);
size_t report_length(const char *text); /* in characters */

/* The style of plots, for light and dark. */
extern const char report_style[];
/* One plot as an element; alone with its style. `width` is 640, or about 340 for phones. */
int report_draw(const struct report *report, enum report_plot plot, int width, bool alone, FILE *file);
int report_draw_lines(const struct report *report, enum report_plot plot, int width, bool alone, FILE *file);
int report_draw_phases(const struct report *report, int width, bool alone, FILE *file);
int report_draw_matrix(const struct report *report, enum report_plot plot, int width, bool alone, FILE *file);
void report_svg_begin(FILE *file, enum report_plot plot, int width, int height, bool alone, const char *title,
		      const char *text);

/* Sizes of which phases are shown, at most `most`: how many. */
size_t report_phase_sizes(const struct report *report, double *sizes, size_t most);
double report_phase_total(const struct report *report, const struct report_point *point);

/* A matrix in fewer cells, as those of many ranks are not seen: each is the worst of what it stands for. */
struct report_heat {
	size_t cells, step; /* in a row; ranks of a cell */
	double *values, least, median, most;
	double worst, best; /* where the colours begin and end */
};
int report_heat_make(struct report_heat *heat, const struct report_matrix *matrix, bool latency, size_t most);
/* 0 (worst) to 9 (best); -1: nothing is known. */
int report_heat_level(const struct report_heat *heat, double value);

int report_write_html(const struct report *report, FILE *file);
void report_write_tables(const struct report *report, enum report_plot plot, FILE *file);
void report_write_machines(const struct report *report, FILE *file);
void report_write_sources(const struct report *report, FILE *file);

struct report_terminal {
	unsigned width, height;
	bool unicode, colour;
};
int report_print(const struct report *report, enum report_plot plot, const struct report_terminal *terminal);
int report_print_phases(const struct report *report, const struct report_terminal *terminal);
int report_print_matrix(const struct report *report, enum report_plot plot, const struct report_terminal *terminal);
void report_print_json(const struct report *report);

#endif
