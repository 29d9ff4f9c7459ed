/* SPDX-License-Identifier: BSD-2-Clause */
/* Judges the pairs by --min-rate. */
#include "bench/common/min_rate.h"

#include "bench/matrix/matrix.h"

bool matrix_is_below(const struct matrix *matrix, const struct matrix_options *options, int from, int to)
{
	/* False for NAN: a pair that was not measured, or failed. */
	return matrix_cell(matrix, from, to)->bytes_per_second < (double)options->min_rate;
}

int matrix_check_rates(const struct matrix *matrix, const struct matrix_options *options, struct pl_error *error)
{
	const struct matrix_cell *lowest = NULL;
	unsigned below = 0, measured = 0;
	char object[80] = "";

	for (int from = 0; from < matrix->size; from++)
		for (int to = 0; to < matrix->size; to++) {
			const struct matrix_cell *cell = matrix_cell(matrix, from, to);

			measured += !isnan(cell->bytes_per_second);
			if (!matrix_is_below(matrix, options, from, to))
				continue;
			below++;
			if (lowest && lowest->bytes_per_second <= cell->bytes_per_second)
				continue;
			lowest = cell;
			snprintf(object, sizeof(object), "rank %d to rank %d", from, to);
		}
	if (!lowest)
		return 0;
	return bench_fail_min_rate(error, object, lowest->bytes_per_second, options->min_rate, below, measured);
}
