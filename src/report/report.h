/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `peerlane report`: reads documents of measurements into series of points, and draws these as a page, as single plots,
 * and in the terminal.  NAN stands for values that a document lacks.
 */
#ifndef PL_REPORT_REPORT_H
#define PL_REPORT_REPORT_H

#include <math.h>

#include "cmd/common/output.h"
#include "topology/topology.h"

/* Limits keep pages small and legible. */
#define REPORT_FILES_MAX 64
#define REPORT_SERIES_MAX 64
#define REPORT_POINTS_MAX 2000
#define REPORT_PHASES_MAX 12
#define REPORT_SAMPLES_MAX 200 /* of a line; larger counts are averaged */
#define REPORT_RANKS_MAX 1024
#define REPORT_RAILS_MAX 16
#define REPORT_DEPTH_MAX 40
#define REPORT_TEXT 64

/* REPORT_MACHINE: output of `peerlane topo` or `peerlane check`, shown with the results. */
enum report_kind {
	REPORT_BENCH,
	REPORT_WORKFLOW,
	REPORT_PROXY,
	REPORT_MATRIX,
	REPORT_GOALS,
	REPORT_MACHINE,
	REPORT_FLEET
};

enum report_percentile {
	REPORT_P50,
	REPORT_P90,
	REPORT_P95,
	REPORT_P99,
	REPORT_P999,
	REPORT_P9999,
	REPORT_PERCENTILES,
};

/* Properties that distinguish series, in the order in which names list them. */
enum report_property {
	REPORT_TOOL,
	REPORT_METHOD,
	REPORT_OPERATION,
	REPORT_FABRIC,
	REPORT_MEMORY,
	REPORT_DEPTH,
	REPORT_VECTOR,
	REPORT_HOST,
	REPORT_FILE,
	REPORT_PROPERTIES,
};

struct report_point {
	double size;                                           /* bytes */
	double rate, least;                                    /* bytes per second; the lowest sample */
	double operations;                                     /* or frames, per second */
	double low, high;                                      /* of all runs, as a factor of their mean */
	double latency[REPORT_PERCENTILES], shortest, longest; /* microseconds */
	double cpu, server_cpu;                                /* percent of a core */
	double phases[REPORT_PHASES_MAX];                      /* microseconds */
	double staged;                                         /* bytes that were staged in host memory */
	int verified;                                          /* -1: unknown */
	const char *route, *reason;                            /* in the document; may be NULL */
	double *samples;                                       /* bytes per second */
	size_t sample_count;
	double interval; /* seconds between them */
};

struct report_series {
	char *name, *properties[REPORT_PROPERTIES];
	size_t document;
	bool latency;                /* results of --latency: times are shown */
	struct report_point *points; /* sorted by size */
	size_t count;
};

/* Values of one rail of a matrix. */
struct report_rail {
	const char *name;
	double *rate, *latency; /* as those of the matrix, which has the worst of all rails */
};

struct report_matrix {
	size_t ranks;
	double size;
	double *rate, *latency; /* from row to column; NULL: absent */
	const char **labels;
	struct report_rail *rails;
	size_t rail_count;
	struct report_judgement *judgement; /* NULL: too few hosts to judge (fleet.h) */
};

struct report_document {
	char *path, *name;
	struct json_object *root;
	enum report_kind kind;
	struct report_matrix matrix;
	struct pl_topology *topology; /* NULL: absent */
	struct report_fleet *fleet;   /* NULL: no run of `peerlane fleet` (fleet.h) */
	struct report_goal *goals;    /* NULL: no figures of benchmarks/machine (goals.h) */
	size_t goal_count;
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
	struct report_sentence *sentences; /* made by report_make_sentences() */
	size_t sentence_count;
	const char *groups; /* file of --groups; NULL: none */
};

/* All return 0 or a negative errno, with an error that names the file and the member. */
int report_load(struct report *report, const char *path, struct pl_error *error);
/* Reads a document from memory; errors call it `path`. */
int report_parse(struct report *report, const char *path, const char *text, size_t length, struct pl_error *error);
/* Adds a document without content for a file. */
int report_add_document(struct report *report, const char *path, struct report_document **document,
			struct pl_error *error);
/* Names the series, sorts their points and judges matrices, once all files are loaded. */
int report_finish(struct report *report, struct pl_error *error);
void report_free(struct report *report);

int report_read_results(struct report *report, struct report_document *document, struct pl_error *error);
int report_read_matrix(struct report_document *document, struct pl_error *error);
void report_free_matrix(struct report_matrix *matrix);
int report_read_goals(struct report_document *document, struct pl_error *error);
/* Reads the output of `peerlane topo --json`, as far as it is drawn. */
int report_read_topology(struct pl_topology **topology, struct json_object *from, const char *path,
			 struct pl_error *error);

/* True if an earlier document has an equal member, as documents of one machine do. */
bool report_is_repeated(const struct report *report, size_t document, const char *name);

/* Reads a number from 0 to 1e18 into *value, NAN if it is absent or null.  Returns -EPROTO for anything else. */
int report_number(struct json_object *object, const char *name, double *value);
int report_number_of(struct json_object *object, double *value);
int report_fail_content(struct pl_error *error, const char *path, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int report_fail_memory(struct pl_error *error);

int report_make_sentences(struct report *report, struct pl_error *error);
/* Adds a sentence; those beyond a limit are left out.  Returns 0 or -ENOMEM. */
int report_add_sentence(struct report *report, bool warning, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Plots of a report. */
enum report_plot {
	REPORT_PLOT_BANDWIDTH,
	REPORT_PLOT_FRAMES, /* bandwidth of methods, next to that of messages */
	REPORT_PLOT_LATENCY,
	REPORT_PLOT_PERCENTILES,
	REPORT_PLOT_PHASES,
	REPORT_PLOT_SAMPLES,
	REPORT_PLOT_MATRIX,
	REPORT_PLOT_MATRIX_LATENCY,
	REPORT_PLOT_GOALS,
	REPORT_PLOTS,
};
const char *report_plot_name(enum report_plot plot);
/* True for plots of rates over sizes. */
bool report_plot_shows_rates(enum report_plot plot);
/* True if the plot includes the series, provided that the series has values for it. */
bool report_plot_includes(const struct report *report, enum report_plot plot, const struct report_series *series);
bool report_plot_available(const struct report *report, enum report_plot plot);

/* Line of a plot, independent of its output. */
struct report_line {
	const struct report_series *series;
	size_t index;         /* of the line; chooses its colour */
	double *x, *y, *high; /* high: upper edge of a band, or NAN */
	size_t count;
};

enum report_unit { REPORT_UNIT_SIZE, REPORT_UNIT_RATE, REPORT_UNIT_TIME, REPORT_UNIT_SECONDS, REPORT_UNIT_PERCENTILE };

struct report_axis {
	double low, high; /* range of values; with log, of their decimal logarithms */
	bool log;
	enum report_unit unit;
};

struct report_lines {
	char title[160], text[320]; /* description for screen readers */
	struct report_line *lines;
	size_t count, left_out;
	struct report_axis x, y;
	bool bars; /* one point each, all of the same size */
};

/* Returns 0 or -ENOMEM. */
int report_lines_make(struct report_lines *lines, const struct report *report, enum report_plot plot);
void report_lines_free(struct report_lines *lines);
/* Returns the position of a value on an axis, from 0 to 1. */
double report_axis_position(const struct report_axis *axis, double value);
/* Computes the values of at most `most` ticks and returns their number. */
size_t report_ticks(const struct report_axis *axis, double *values, size_t most);
/* Formats a value: "64K", "1.5 GB/s", "12.3 us", "0.5 s", "p99.9".  Returns buffer. */
const char *report_value(enum report_unit unit, double value, char buffer[REPORT_TEXT]);
/* Formats a value for an axis, as short as possible.  Returns buffer. */
const char *report_tick(enum report_unit unit, double value, char buffer[REPORT_TEXT]);

/* Writes text as XML content, at most `most` characters (0: all). */
void report_escape(FILE *file, const char *text, size_t most);
size_t report_length(const char *text); /* Returns the number of characters. */

/* Style of plots, for light and dark colour schemes. */
extern const char report_style[];
/* Writes a plot as an SVG element; `alone` adds its style.  `width` is 640, or about 340 for phones. */
int report_draw(const struct report *report, enum report_plot plot, int width, bool alone, FILE *file);
int report_draw_lines(const struct report *report, enum report_plot plot, int width, bool alone, FILE *file);
int report_draw_phases(const struct report *report, int width, bool alone, FILE *file);
int report_draw_matrix(const struct report *report, enum report_plot plot, int width, bool alone, FILE *file);
void report_svg_begin(FILE *file, enum report_plot plot, int width, int height, bool alone, const char *title,
		      const char *text);

/* Selects at most `most` sizes of results with phases, and returns their number. */
size_t report_phase_sizes(const struct report *report, double *sizes, size_t most);
double report_phase_total(const struct report *report, const struct report_point *point);

/* Matrix in a limited number of cells; a cell of several pairs has the worst of their values. */
struct report_heat {
	size_t cells, step; /* cells in a row; ranks of a cell */
	double *values, least, median, most;
	double worst, best; /* values of the first and the last colour; NAN: no value is known */
};
int report_heat_make(struct report_heat *heat, const struct report_matrix *matrix, bool latency, size_t most);
/* Returns a level from 0 (worst) to 9 (best), or -1 if the value is unknown. */
int report_heat_level(const struct report_heat *heat, double value);

int report_write_html(const struct report *report, FILE *file);
void report_write_tables(const struct report *report, enum report_plot plot, FILE *file);
void report_write_machines(const struct report *report, FILE *file);
void report_write_sources(const struct report *report, FILE *file);

struct report_terminal {
	unsigned width, height;
	bool unicode, colour;
};
/*
 * Prints a text without control characters, cut or padded to `width` columns; 0: as it is. The last column of a text that was cut
 * says so.
 */
void report_print_cell(const struct report_terminal *terminal, const char *text, size_t width);
int report_print(const struct report *report, enum report_plot plot, const struct report_terminal *terminal);
int report_print_phases(const struct report *report, const struct report_terminal *terminal);
int report_print_matrix(const struct report *report, enum report_plot plot, const struct report_terminal *terminal);
void report_print_json(const struct report *report);
void report_print_csv(const struct report *report);

#endif
