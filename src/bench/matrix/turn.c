/* SPDX-License-Identifier: BSD-2-Clause */
/* Turns of the schedule: links of this rank, phases, and results at rank 0. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/matrix/run.h"

/* Ranks of a turn. */
struct turn {
	int partner; /* of this rank in MATRIX_PAIRS; -1: none */
	enum matrix_schedule schedule;
	bool again; /* pairs that are measured a second time */
};

/* -- results --------------------------------------------------------------------------------------- */

/* Adds the result of a rail: of several the worst counts. */
static void merge_cell(struct matrix_cell *cell, const struct matrix_cell *rail)
{
	bool worse = rail->failed || !(cell->bytes_per_second <= rail->bytes_per_second);

	if (worse && !cell->failed) {
		memcpy(cell->fabric, rail->fabric, sizeof(cell->fabric));
		memcpy(cell->reason, rail->reason, sizeof(cell->reason));
	}
	cell->bytes_per_second = fmin(cell->bytes_per_second, rail->bytes_per_second);
	cell->latency_us = fmax(cell->latency_us, rail->latency_us);
	cell->staged = cell->staged || rail->staged;
	cell->failed = cell->failed || rail->failed;
	if (cell->failed)
		cell->bytes_per_second = cell->latency_us = NAN;
}

/* Makes a result of another rank safe to use. */
static void check_cell(struct matrix_cell *cell)
{
	if (!(cell->bytes_per_second > 0 && isfinite(cell->bytes_per_second)))
		cell->bytes_per_second = NAN;
	if (!(cell->latency_us > 0 && isfinite(cell->latency_us)))
		cell->latency_us = NAN;
	cell->fabric[sizeof(cell->fabric) - 1] = cell->reason[sizeof(cell->reason) - 1] = '\0';
	cli_printable(cell->fabric, false);
	cli_printable(cell->reason, false);
}

/* Keeps the better values of each rail; the worst rail counts for the pair. */
static void keep_second_result(struct matrix *matrix, int from, int rail, const struct turn_result *result)
{
	int to = result->partner;

	if (matrix->rank > 0)
		return;
	if (!matrix->rail_cells) {
		matrix_keep_better(matrix_cell(matrix, from, to), &result->cell);
		return;
	}
	matrix_keep_better(matrix_rail_cell(matrix, rail, from, to), &result->cell);
	*matrix_cell(matrix, from, to) = *matrix_rail_cell(matrix, 0, from, to);
	for (int i = 1; i < matrix->rails; i++)
		merge_cell(matrix_cell(matrix, from, to), matrix_rail_cell(matrix, i, from, to));
}

static void keep_result(struct matrix *matrix, int from, int rail, struct turn_result *result, bool again)
{
	int to = result->partner;
	struct matrix_cell *cell;

	if (!result->measured || to < 0 || to >= matrix->size || to == from)
		return;
	check_cell(&result->cell);
	if (again) {
		keep_second_result(matrix, from, rail, result);
		return;
	}
	cell = matrix->rank == 0 ? matrix_cell(matrix, from, to) : &matrix->cells[to];
	if (matrix->rail_cells)
		*matrix_rail_cell(matrix, rail, from, to) = result->cell;
	if (rail == 0)
		*cell = result->cell;
	else
		merge_cell(cell, &result->cell);
}

/* Returns the partner that a rank measured, and that measured it, in this turn; -1: none that takes part. */
static int measured_partner(const struct matrix *matrix, const struct runner *runner, int rank)
{
	size_t row = (size_t)matrix->rails * (size_t)runner->width;
	const struct turn_result *result = &runner->results[(size_t)rank * row], *other;
	int partner = result->partner;

	if (!result->measured || partner < 0 || partner >= matrix->size || !world_has(matrix->world, rank) ||
	    !world_has(matrix->world, partner))
		return -1;
	other = &runner->results[(size_t)partner * row];
	return other->measured && other->partner == rank ? partner : -1;
}

/* True if a rank measured with its partner in this turn, and failed on one of the rails. */
static bool failed_in_turn(const struct matrix *matrix, const struct runner *runner, int rank)
{
	const struct turn_result *results =
		&runner->results[(size_t)rank * (size_t)matrix->rails * (size_t)runner->width];
	bool failed = false;

	for (int rail = 0; rail < matrix->rails; rail++, results += runner->width)
		failed = failed || (results->measured && results->cell.failed);
	return failed;
}

/*
 * Leaves ranks out that fail with all partners, so that the others need not wait for them in each round.  Only results of
 * this turn count: a pair that is measured again keeps its better values.
 */
static void leave_out_failing(struct matrix *matrix, const struct runner *runner)
{
	struct matrix_outcome *outcomes = calloc((size_t)matrix->size, sizeof(*outcomes));
	struct world *world = matrix->world;

	/* All ranks are judged before the first one is left out.  Without memory all stay. */
	for (int i = 0; outcomes && i < matrix->size; i++) {
		int partner = outcomes[i].partner = measured_partner(matrix, runner, i);

		if (partner >= 0)
			outcomes[i].failed =
				failed_in_turn(matrix, runner, i) || failed_in_turn(matrix, runner, partner);
	}
	if (outcomes)
		matrix_count_turn(matrix, outcomes);
	free(outcomes);
	for (int i = 1; i < matrix->size; i++)
		if (world_has(world, i) && matrix_keeps_failing(matrix, i))
			world->ops->leave_out(world, i, "it failed with 3 partners in a row");
	for (int i = 1; i < matrix->size; i++)
		if (!world_has(world, i))
			matrix_forgive_failures(matrix, i);
}

/* Keeps the results of a turn: rank 0 those of all ranks, any other its own. */
static void keep_turn_results(struct runner *runner, const struct turn *turn)
{
	struct matrix *matrix = runner->matrix;
	size_t row = (size_t)matrix->rails * (size_t)runner->width;

	for (int i = 0; i < matrix->size; i++) {
		struct turn_result *results = matrix->rank == 0 ? runner->results + (size_t)i * row : runner->own;

		if (i != matrix->rank && (matrix->rank > 0 || !world_has(matrix->world, i)))
			continue;
		for (size_t at = 0; at < row; at++)
			keep_result(matrix, i, (int)(at / (size_t)runner->width), &results[at], turn->again);
	}
	if (matrix->rank == 0 && turn->schedule == MATRIX_PAIRS && matrix->world->ops->leave_out)
		leave_out_failing(matrix, runner);
	matrix_save_part(matrix->save);
}

/* -- turns ----------------------------------------------------------------------------------------- */

static bool writes_in_phase(const struct matrix *matrix, const struct turn *turn, int phase, int from, int to)
{
	if (turn->schedule == MATRIX_PAIRS)
		return turn->partner >= 0 && (from < to) == (phase == 0) &&
		       (from == matrix->rank ? to == turn->partner : from == turn->partner && to == matrix->rank);
	return matrix_writes(matrix, turn->schedule, phase, from, to);
}

/* Lists the links of this rank in all phases. */
static int list_links(struct runner *runner, const struct turn *turn)
{
	const struct matrix *matrix = runner->matrix;
	int count = 0, rank = matrix->rank;

	for (int other = 0; other < matrix->size; other++) {
		bool used = false;

		for (int phase = 0; phase < matrix_phases(turn->schedule); phase++)
			used = used || writes_in_phase(matrix, turn, phase, rank, other) ||
			       writes_in_phase(matrix, turn, phase, other, rank);
		if (used)
			runner->links[count++] = (struct link){ .rank = other, .cell = matrix_empty_cell() };
	}
	return count;
}

static void measure_phase(struct runner *runner, const struct turn *turn, int rail, int phase, int count)
{
	struct link **writing = calloc((size_t)CLI_MAX(count, 1), sizeof(struct link *));
	const struct matrix *matrix = runner->matrix;
	int written = 0;

	/* Without memory there are no results. */
	for (int i = 0; writing && i < count; i++)
		if (writes_in_phase(matrix, turn, phase, matrix->rank, runner->links[i].rank))
			writing[written++] = &runner->links[i];
	if (written && turn->schedule == MATRIX_PAIRS)
		link_measure(&runner->ends[rail], writing[0]);
	else if (written)
		links_measure(&runner->ends[rail], writing, written);
	for (int i = 0; i < written; i++) {
		struct turn_result *result =
			&runner->own[rail * runner->width + (runner->width > 1 ? writing[i]->rank : 0)];

		*result = (struct turn_result){ .partner = writing[i]->rank, .measured = 1, .cell = writing[i]->cell };
	}
	free(writing);
}

/*
 * Measures a turn on one rail, and leaves *links links open: the other ends may still measure.  All ranks reach the same
 * barriers, also those without a link.
 */
static int run_rail_turn(struct runner *runner, const struct turn *turn, int rail, int *links, struct pl_error *error)
{
	struct matrix *matrix = runner->matrix;
	int count = list_links(runner, turn), rc = 0;

	links_connect(&runner->ends[rail], runner->links, count, runner->turn++);
	for (int phase = 0; phase < matrix_phases(turn->schedule) && rc == 0; phase++) {
		rc = matrix->world->ops->barrier(matrix->world, error);
		if (rc == 0)
			measure_phase(runner, turn, rail, phase, count);
	}
	*links = count;
	return rc;
}

static int run_turn(struct runner *runner, const struct turn *turn, struct pl_error *error)
{
	struct matrix *matrix = runner->matrix;
	size_t row = (size_t)matrix->rails * (size_t)runner->width;
	int rc = 0, links = 0;

	memset(runner->own, 0, row * sizeof(*runner->own));
	for (int rail = 0; rail < matrix->rails && rc == 0; rail++) {
		if (rail > 0)
			rc = matrix->world->ops->barrier(matrix->world, error);
		links_close(runner->links, links);
		links = 0;
		if (rc == 0)
			rc = run_rail_turn(runner, turn, rail, &links, error);
	}
	if (rc == 0)
		rc = matrix->world->ops->collect(matrix->world, runner->own, row * sizeof(*runner->own),
						 runner->results, error);
	links_close(runner->links, links);
	if (rc == 0)
		keep_turn_results(runner, turn);
	return rc;
}

static bool is_alone(const struct matrix *matrix)
{
	return world_present(matrix->world) < 2;
}

static int run_round(struct runner *runner, int round, struct pl_error *error)
{
	int partner = matrix_partner(runner->matrix->size, round, runner->matrix->rank), turns, mine, rc;
	struct matrix *matrix = runner->matrix;

	/* All ranks must know the same losses, as these change the number of turns. */
	rc = matrix->world->ops->barrier(matrix->world, error);
	if (rc < 0)
		return rc;
	mine = matrix_turn(matrix, round, matrix->rank, &turns);
	if (mine < 0)
		return cli_fail_errno(error, mine, "malloc", NULL);
	for (int number = 0; number < turns && rc == 0 && !is_alone(matrix); number++) {
		bool own = number == mine && matrix_has_rank(matrix, partner);

		rc = run_turn(runner, &(struct turn){ own ? partner : -1, MATRIX_PAIRS, false }, error);
	}
	return rc;
}

/* Tells all ranks which pairs rank 0 found slow.  Returns their number, or a negative errno. */
static int share_suspects(struct runner *runner, uint8_t *suspects, struct pl_error *error)
{
	struct matrix *matrix = runner->matrix;
	size_t pairs = (size_t)matrix->size * (size_t)matrix->size;
	int32_t count = 0;
	int rc;

	if (matrix->rank == 0) {
		count = matrix_judge(matrix) < 0 ? -ENOMEM : matrix_mark_suspects(matrix, suspects);
		/* Without memory the first measurement stands. */
		matrix->measured_again = count = CLI_MAX(count, 0);
	}
	rc = matrix->world->ops->share(matrix->world, &count, sizeof(count), error);
	if (rc == 0 && count > 0)
		rc = matrix->world->ops->share(matrix->world, suspects, pairs, error);
	return rc < 0 ? rc : count;
}

/* Measures slow pairs a second time, before they are reported. */
static int run_suspects(struct runner *runner, struct pl_error *error)
{
	struct matrix *matrix = runner->matrix;
	uint8_t *suspects = calloc((size_t)matrix->size, (size_t)matrix->size);
	int turns = 1,
	    rc = suspects ? share_suspects(runner, suspects, error) : cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	bool any = rc > 0;

	for (int number = 0; any && rc >= 0 && number < turns && !is_alone(matrix); number++) {
		int partner = matrix_plan_suspects(matrix, suspects, number, matrix->rank, &turns);

		if (partner == -ENOMEM)
			rc = cli_fail_errno(error, partner, "malloc", NULL);
		else
			rc = matrix->world->ops->barrier(matrix->world, error);
		if (partner >= 0 && !matrix_has_rank(matrix, partner))
			partner = -1;
		if (rc == 0)
			rc = run_turn(runner, &(struct turn){ partner, MATRIX_PAIRS, true }, error);
	}
	free(suspects);
	return CLI_MIN(rc, 0);
}

int runner_run_schedule(struct runner *runner, struct pl_error *error)
{
	const struct matrix_options *options = runner->options;
	struct matrix *matrix = runner->matrix;
	int rounds = matrix_rounds(matrix->size), wanted = (int)options->rounds, rc = 0;

	if (options->schedule != MATRIX_PAIRS)
		return is_alone(matrix) || matrix_is_measured(matrix, options->schedule)
			       ? 0
			       : run_turn(runner, &(struct turn){ -1, options->schedule, false }, error);
	if (wanted == 0 || wanted > rounds)
		wanted = rounds;
	for (int number = 0; number < wanted && rc == 0 && !is_alone(matrix); number++)
		rc = run_round(runner, matrix_spread_round(rounds, wanted, number), error);
	return rc < 0 || is_alone(matrix) ? rc : run_suspects(runner, error);
}
