/* SPDX-License-Identifier: BSD-2-Clause */
/* Second measurement of slow pairs: a passing dip is no defect.  The better values of both count. */
#include <stdlib.h>

#include "bench/matrix/matrix.h"

/* A rank with more slow pairs is slow itself, which a few of its pairs tell as well as all. */
#define SUSPECTS_PER_RANK 8

/* Returns the slow pairs of each rank; NULL: no memory. */
static int *count_slow_pairs(const struct matrix *matrix)
{
	size_t ranks = (size_t)matrix->size;
	int *counts = calloc(ranks, sizeof(*counts));
	uint8_t *seen = calloc(ranks * ranks, 1);

	for (size_t i = 0; counts && seen && i < matrix->slow_count; i++) {
		const struct matrix_slow *slow = &matrix->slow[i];
		size_t one = (size_t)CLI_MIN(slow->from, slow->to), other = (size_t)CLI_MAX(slow->from, slow->to);

		if (seen[one * ranks + other]++)
			continue;
		counts[one]++;
		counts[other]++;
	}
	if (!seen) {
		free(counts);
		counts = NULL;
	}
	free(seen);
	return counts;
}

int matrix_mark_suspects(struct matrix *matrix, uint8_t *suspects)
{
	int *counts = count_slow_pairs(matrix), marked = 0;

	if (!counts)
		return -ENOMEM;
	for (size_t i = 0; i < matrix->slow_count; i++) {
		const struct matrix_slow *slow = &matrix->slow[i];
		int one = CLI_MIN(slow->from, slow->to), other = CLI_MAX(slow->from, slow->to);
		size_t pair = (size_t)one * (size_t)matrix->size + (size_t)other;
		uint8_t *suspect = &suspects[pair];

		/* Results of an earlier run stay. */
		if (*suspect || (matrix->measured && matrix->measured[pair]) || counts[one] > SUSPECTS_PER_RANK ||
		    counts[other] > SUSPECTS_PER_RANK || !matrix_has_rank(matrix, one) ||
		    !matrix_has_rank(matrix, other))
			continue;
		*suspect = 1;
		marked++;
	}
	free(counts);
	return marked;
}

int matrix_plan_suspects(const struct matrix *matrix, const uint8_t *suspects, int turn, int rank, int *turns)
{
	int *next = calloc((size_t)matrix->size, sizeof(*next)), partner = -1;

	if (!next)
		return -ENOMEM;
	*turns = 0;
	for (int one = 0; one < matrix->size; one++)
		for (int other = one + 1; other < matrix->size; other++) {
			int at;

			if (!suspects[(size_t)one * (size_t)matrix->size + (size_t)other])
				continue;
			/* A host is in one pair of a turn at most; every rank computes the same. */
			at = CLI_MAX(next[matrix->hosts[one]], next[matrix->hosts[other]]);
			next[matrix->hosts[one]] = next[matrix->hosts[other]] = at + 1;
			*turns = CLI_MAX(*turns, at + 1);
			if (at == turn && (one == rank || other == rank))
				partner = one == rank ? other : one;
		}
	free(next);
	return partner;
}

void matrix_keep_better(struct matrix_cell *cell, const struct matrix_cell *again)
{
	double rate = cell->bytes_per_second, latency = cell->latency_us;

	if (again->failed)
		return;
	if (!(rate >= again->bytes_per_second))
		*cell = *again;
	/* fmax() and fmin() prefer a number to NAN. */
	cell->bytes_per_second = fmax(rate, again->bytes_per_second);
	cell->latency_us = fmin(latency, again->latency_us);
}
