/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane bench compare`: differences between two sets of results, told from noise, or between two runs of a fleet. */
#ifndef PL_BENCH_COMPARE_COMPARE_H
#define PL_BENCH_COMPARE_COMPARE_H

#include <json-c/json.h>

#include "bench/compare/document.h"
#include "bench/compare/ratio.h"
#include "bench/effects/change.h"
#include "cmd/common/csv.h"

enum verdict {
	VERDICT_SAME,
	VERDICT_BETTER,
	VERDICT_WORSE,
	VERDICT_ONLY_BEFORE,
	VERDICT_ONLY_AFTER,
};

struct comparison {
	const struct document_row *before, *after; /* one of them is NULL if only the other document has it */
	struct ratio ratio;                        /* if both have it */
	enum verdict verdict;
};

/* Changes of a matrix, or of one of its rails. */
struct matrix_change {
	const char *rail; /* NULL: all rails */
	struct effects_change change;
};

struct comparisons {
	struct cli_options common;
	const char *names[2];
	struct document documents[2];
	struct comparison *list;
	uint32_t count, compared;
	uint32_t verdicts[VERDICT_ONLY_AFTER + 1]; /* count of each verdict */
	double threshold;                          /* percent; below 0: not given */
	const char *groups;                        /* file of --groups; NULL: none */
	bool csv;
	struct matrix_change *changes;             /* of matrices; the list is empty then */
	size_t change_count;
};

const char *verdict_name(enum verdict verdict);

/* Runs the command; argv[0] is "peerlane bench compare".  Returns an exit status. */
int bench_compare(int argc, char **argv);

/*
 * Compares two matrices of many hosts by their hosts and pairs, and sets comparisons->changes (matrices.c).  Other
 * documents stay for the comparison of rows.  Returns 0 or a negative errno.
 */
int compare_matrices(struct comparisons *comparisons, struct pl_error *error);
/* Returns the verdict of an effect; VERDICT_SAME if it is within the threshold. */
enum verdict judge_effect(const struct comparisons *comparisons, const struct effect *effect);
/* Returns the verdict of a quantity of the whole fleet. */
enum verdict judge_fleet_change(const struct comparisons *comparisons, const struct effects_change *change,
				enum effects_unit unit);
void compare_free_matrices(struct comparisons *comparisons);
void compare_render_matrices(const struct comparisons *comparisons);
/* Adds the members of matrices to the document. */
void compare_add_matrices_json(struct json_object *object, const struct comparisons *comparisons);

/* Adds a line for each change of matrices. */
void compare_print_matrices_csv(struct csv *csv, const struct comparisons *comparisons);

/* Returns the unit of the medians of a row in JSON and CSV. */
const char *comparison_unit_name(const struct document_row *row);
void compare_render_table(const struct comparisons *comparisons);
void compare_render_json(const struct comparisons *comparisons);
void compare_render_csv(const struct comparisons *comparisons);

#endif
