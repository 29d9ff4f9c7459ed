/* SPDX-License-Identifier: BSD-2-Clause */
/* Run of a matrix, from its files of results to its judgement. */
#include "bench/matrix/run.h"

#include <stdlib.h>

/*
 * Opens the files of results at rank 0, and tells all ranks which pairs an earlier run has measured.  All ranks fail if
 * rank 0 fails.
 */
static int open_results(struct runner *runner, struct pl_error *error)
{
	struct matrix *matrix = runner->matrix;
	size_t cells = (size_t)matrix->size * (size_t)matrix->size;
	bool first = matrix->rank == 0;
	uint8_t failed;
	int rc = 0, shared;
	struct pl_error other;

	if (first && runner->options->resume)
		rc = matrix_resume(matrix, runner->options, error);
	if (first && rc == 0)
		rc = matrix_save_open(matrix, runner->options, error);
	failed = rc < 0;
	shared = matrix->world->ops->share(matrix->world, &failed, sizeof(failed), rc < 0 ? &other : error);
	if (shared == 0 && failed) {
		matrix->start_failed = true;
		return rc < 0 ? rc
			      : cli_fail(error, -ECANCELED, "MPI-RANK", matrix->ranks[0].host,
					 "see the error message of that rank", "rank 0 failed to start");
	}
	return shared < 0 ? shared : matrix->world->ops->share(matrix->world, matrix->measured, cells, error);
}

static int allocate_results(struct runner *runner, struct pl_error *error)
{
	struct matrix *matrix = runner->matrix;
	size_t ranks = (size_t)matrix->size, rails = (size_t)matrix->rails, rows = matrix->rank == 0 ? ranks : 1;
	size_t width = (size_t)runner->width, rail_cells = rails > 1 && matrix->rank == 0 ? rails * ranks * ranks : 0;

	runner->stats = malloc(sizeof(*runner->stats));
	runner->own = calloc(rails * width, sizeof(*runner->own));
	runner->results = calloc(rows * rails * width, sizeof(*runner->results));
	runner->links = calloc(ranks, sizeof(*runner->links));
	matrix->ranks = calloc(ranks, sizeof(*matrix->ranks));
	matrix->ends = calloc(ranks * rails, sizeof(*matrix->ends));
	matrix->hosts = calloc(ranks, sizeof(*matrix->hosts));
	matrix->failures = calloc(ranks, sizeof(*matrix->failures));
	matrix->measured = calloc(ranks * ranks, sizeof(*matrix->measured));
	matrix->cells = calloc(ranks * rows, sizeof(*matrix->cells));
	if (rail_cells)
		matrix->rail_cells = calloc(rail_cells, sizeof(*matrix->rail_cells));
	if (!runner->stats || !runner->own || !runner->results || !runner->links || !matrix->ranks || !matrix->ends ||
	    !matrix->hosts || !matrix->failures || !matrix->measured || !matrix->cells ||
	    (rail_cells && !matrix->rail_cells))
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	for (size_t i = 0; i < ranks * rows; i++)
		matrix->cells[i] = matrix_empty_cell();
	for (size_t i = 0; i < rail_cells; i++)
		matrix->rail_cells[i] = matrix_empty_cell();
	for (size_t rail = 0; rail < rails; rail++)
		runner->ends[rail] =
			(struct link_end){ .matrix = matrix, .options = runner->options, .stats = runner->stats };
	return 0;
}

/* Names the hosts of ranks that have not joined, as far as rank 0 knows them. */
static void name_lost_ranks(struct matrix *matrix)
{
	const struct world *world = matrix->world;

	for (int i = 0; world->losses && i < matrix->size; i++)
		if (!*matrix->ranks[i].host)
			snprintf(matrix->ranks[i].host, sizeof(matrix->ranks[i].host), "%s", world->losses[i].host);
}

void matrix_stop_clock(struct matrix *matrix)
{
	matrix->seconds = matrix->earlier_seconds + (double)(cli_now() - matrix->begun) / 1e9;
}

int matrix_run(struct matrix *matrix, const struct matrix_options *options, struct pl_error *error)
{
	struct runner runner = { .matrix = matrix, .options = options };
	bool wide = options->schedule == MATRIX_ALL_TO_ALL || options->schedule == MATRIX_ONE_TO_ALL;
	int rc;

	matrix->begun = cli_now();
	runner.width = wide ? matrix->size : 1;
	rc = allocate_results(&runner, error);
	if (rc == 0)
		rc = runner_start(&runner, error);
	if (rc == 0) {
		name_lost_ranks(matrix);
		rc = open_results(&runner, error);
	}
	if (rc == 0)
		rc = runner_run_schedule(&runner, error);
	if (rc == 0 && matrix->rank == 0)
		rc = matrix_judge(matrix) < 0 ? cli_fail_errno(error, -ENOMEM, "malloc", NULL) : 0;
	runner_stop(&runner);
	free(runner.stats);
	free(runner.own);
	free(runner.results);
	free(runner.links);
	return rc;
}
