/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranks that keep failing.  A failed pair speaks against the rank outside of the majority: the more than half of the ranks
 * that recent pairs connect with each other.  A pair is recent if it is among the last results of one of them,
 * so ranks whose network broke leave the majority.  So ranks behind a broken switch are found also if they reach each other,
 * and a healthy rank that meets all of them one after the other is not.
 */
#include <stdlib.h>

#include "bench/matrix/matrix.h"

static void note_result(struct matrix *matrix, int rank, const struct matrix_outcome *outcome)
{
	struct matrix_failures *failures = &matrix->failures[rank];

	failures->recent[failures->results++ % MATRIX_RECENT] = outcome->failed ? -1 : outcome->partner;
	if (!outcome->failed)
		failures->count = 0;
}

/* Returns the first rank of a rank's group, and shortens the way to it. */
static int find_group(int *groups, int rank)
{
	while (groups[rank] != rank) {
		groups[rank] = groups[groups[rank]];
		rank = groups[rank];
	}
	return rank;
}

/* Joins the groups of all ranks that recent pairs connect. */
static void join_groups(const struct matrix *matrix, int *groups)
{
	for (int i = 0; i < matrix->size; i++)
		groups[i] = i;
	for (int i = 0; i < matrix->size; i++) {
		const struct matrix_failures *failures = &matrix->failures[i];

		for (unsigned k = 0; k < CLI_MIN(failures->results, MATRIX_RECENT); k++) {
			int partner = failures->recent[k];

			if (partner >= 0 && matrix_has_rank(matrix, i) && matrix_has_rank(matrix, partner))
				groups[find_group(groups, i)] = find_group(groups, partner);
		}
	}
}

/* Returns the group of more than half of the ranks that take part; -1: there is none. */
static int find_majority(const struct matrix *matrix, int *groups, int *sizes)
{
	int present = 0, majority = -1;

	for (int i = 0; i < matrix->size; i++) {
		if (!matrix_has_rank(matrix, i))
			continue;
		present++;
		sizes[find_group(groups, i)]++;
	}
	for (int i = 0; i < matrix->size; i++)
		if (2 * sizes[i] > present)
			majority = i;
	return majority;
}

static void blame_rank(struct matrix *matrix, int rank, int partner)
{
	struct matrix_failures *failures = &matrix->failures[rank];

	if (failures->count < MATRIX_FAILURES_MAX)
		failures->partners[failures->count++] = partner;
}

int matrix_count_turn(struct matrix *matrix, const struct matrix_outcome *outcomes)
{
	int *groups = calloc((size_t)matrix->size, sizeof(*groups)),
	    *sizes = calloc((size_t)matrix->size, sizeof(*sizes));
	int majority;

	if (!groups || !sizes) {
		free(groups);
		free(sizes);
		return -ENOMEM;
	}
	for (int i = 0; i < matrix->size; i++)
		if (outcomes[i].partner >= 0)
			note_result(matrix, i, &outcomes[i]);
	join_groups(matrix, groups);
	majority = find_majority(matrix, groups, sizes);
	for (int i = 0; majority >= 0 && i < matrix->size; i++)
		if (outcomes[i].partner >= 0 && outcomes[i].failed && find_group(groups, i) != majority &&
		    find_group(groups, outcomes[i].partner) == majority)
			blame_rank(matrix, i, outcomes[i].partner);
	free(groups);
	free(sizes);
	return 0;
}

bool matrix_keeps_failing(const struct matrix *matrix, int rank)
{
	return matrix->failures[rank].count == MATRIX_FAILURES_MAX;
}

void matrix_forgive_failures(struct matrix *matrix, int lost)
{
	for (int i = 0; i < matrix->size; i++) {
		struct matrix_failures *failures = &matrix->failures[i];
		int kept = 0;

		for (int k = 0; k < failures->count; k++)
			if (failures->partners[k] != lost)
				failures->partners[kept++] = failures->partners[k];
		failures->count = kept;
	}
}
