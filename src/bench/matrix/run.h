/* SPDX-License-Identifier: BSD-2-Clause */
/* Run of a matrix: start of a rank (start.c), turns of the schedule (turn.c). */
#ifndef PL_BENCH_MATRIX_RUN_H
#define PL_BENCH_MATRIX_RUN_H

#include "bench/matrix/link.h"

/* Result of a rank with one other in one turn. */
struct turn_result {
	int32_t partner;
	uint32_t measured; /* 0: there is no result */
	struct matrix_cell cell;
};

struct runner {
	struct matrix *matrix;
	const struct matrix_options *options;
	struct link_end ends[MATRIX_RAILS_MAX];
	struct stats *stats;
	int width;                   /* results of a rank on each rail in a turn */
	struct turn_result *own;     /* by rail */
	struct turn_result *results; /* rank 0: by rank and rail */
	struct link *links;          /* of this rank in a turn */
	uint32_t turn;               /* number of the next turn on a rail */
};

/* Opens the ends of this rank and exchanges them.  A rank that fails tells all others. */
int runner_start(struct runner *runner, struct pl_error *error);
void runner_stop(struct runner *runner);
/* Runs the whole schedule.  Ends early, with 0, if no other rank is left. */
int runner_run_schedule(struct runner *runner, struct pl_error *error);

#endif
