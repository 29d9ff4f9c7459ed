/* SPDX-License-Identifier: BSD-2-Clause */
/* Matrices of all pairs: reading, and values of heat map cells. */
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

#include "bench/common/numbers.h"

static int read_matrix_row(struct json_object *row, size_t ranks, double *values)
{
	if (!json_object_is_type(row, json_type_array) || json_object_array_length(row) != ranks)
		return -EPROTO;
	for (size_t i = 0; i < ranks; i++)
		if (report_number_of(json_object_array_get_idx(row, i), &values[i]) < 0)
			return -EPROTO;
	return 0;
}

static int read_matrix_values(struct report_document *document, struct json_object *object, const char *name,
			      double **values, struct pl_error *error)
{
	struct json_object *rows = cli_json_member(object, name, json_type_array);
	size_t ranks = document->matrix.ranks;

	if (!rows)
		return 0;
	if (json_object_array_length(rows) != ranks)
		return report_fail_content(error, document->path, "\"%s\" has %zu rows, not one for each of %zu ranks",
					   name, json_object_array_length(rows), ranks);
	*values = calloc(ranks * ranks, sizeof(**values));
	if (!*values)
		return report_fail_memory(error);
	for (size_t i = 0; i < ranks; i++)
		if (read_matrix_row(json_object_array_get_idx(rows, i), ranks, *values + i * ranks) < 0)
			return report_fail_content(error, document->path, "\"%s\"[%zu] is not %zu numbers", name, i,
						   ranks);
	return 0;
}

/* Reads the values of each rail. */
static int read_matrix_rails(struct report_document *document, struct pl_error *error)
{
	struct json_object *rails = cli_json_member(document->root, "rails", json_type_array);
	struct report_matrix *matrix = &document->matrix;
	size_t count = rails ? json_object_array_length(rails) : 0;
	int rc = 0;

	if (count > REPORT_RAILS_MAX)
		return report_fail_content(error, document->path, "\"rails\" is not an array of at most %d",
					   REPORT_RAILS_MAX);
	matrix->rails = calloc(count + 1, sizeof(*matrix->rails));
	if (!matrix->rails)
		return report_fail_memory(error);
	while (rc == 0 && matrix->rail_count < count) {
		struct json_object *object = json_object_array_get_idx(rails, matrix->rail_count);
		struct report_rail *rail = &matrix->rails[matrix->rail_count++];

		rail->name = cli_json_member_text(object, "name");
		rc = read_matrix_values(document, object, "bytes_per_second", &rail->rate, error);
		if (rc == 0)
			rc = read_matrix_values(document, object, "latency_us", &rail->latency, error);
	}
	return rc;
}

void report_free_matrix(struct report_matrix *matrix)
{
	for (size_t i = 0; i < matrix->rail_count; i++) {
		free(matrix->rails[i].rate);
		free(matrix->rails[i].latency);
	}
	free(matrix->rails);
	free(matrix->rate);
	free(matrix->latency);
	free(matrix->labels);
}

int report_read_matrix(struct report_document *document, struct pl_error *error)
{
	struct json_object *ranks = cli_json_member(document->root, "ranks", json_type_array);
	struct report_matrix *matrix = &document->matrix;
	int rc;

	matrix->ranks = ranks ? json_object_array_length(ranks) : 0;
	if (matrix->ranks < 2 || matrix->ranks > REPORT_RANKS_MAX)
		return report_fail_content(error, document->path, "\"ranks\" is not an array of 2 to %d",
					   REPORT_RANKS_MAX);
	matrix->labels = calloc(matrix->ranks, sizeof(*matrix->labels));
	if (!matrix->labels)
		return report_fail_memory(error);
	for (size_t i = 0; i < matrix->ranks; i++)
		matrix->labels[i] = cli_json_member_text(json_object_array_get_idx(ranks, i), "host");
	if (report_number(document->root, "size", &matrix->size) < 0)
		return report_fail_content(error, document->path, "\"size\" is not a number from 0 to 1e18");
	rc = read_matrix_values(document, document->root, "bytes_per_second", &matrix->rate, error);
	if (rc == 0)
		rc = read_matrix_values(document, document->root, "latency_us", &matrix->latency, error);
	if (rc == 0)
		rc = read_matrix_rails(document, error);
	if (rc == 0 && !matrix->rate && !matrix->latency)
		rc = report_fail_content(error, document->path, "the file contains no matrix");
	return rc;
}

/* Returns the worst value of a block of pairs; NAN if none is known.  Pairs of a rank with itself do not count. */
static double worst_block_value(const struct report_matrix *matrix, const double *from, bool latency, size_t row,
				size_t column, size_t step)
{
	double worst = NAN;

	for (size_t i = row; i < CLI_MIN(row + step, matrix->ranks); i++)
		for (size_t j = column; j < CLI_MIN(column + step, matrix->ranks); j++)
			if (i != j)
				worst = latency ? fmax(worst, from[i * matrix->ranks + j])
						: fmin(worst, from[i * matrix->ranks + j]);
	return worst;
}

int report_heat_make(struct report_heat *heat, const struct report_matrix *matrix, bool latency, size_t most)
{
	const double *from = latency ? matrix->latency : matrix->rate;
	double *sorted;
	size_t count = 0;

	*heat = (struct report_heat){
		.step = (matrix->ranks + most - 1) / most,
		.least = NAN,
		.median = NAN,
		.most = NAN,
		.worst = NAN,
		.best = NAN,
	};
	heat->cells = (matrix->ranks + heat->step - 1) / heat->step;
	heat->values = calloc(heat->cells * heat->cells, sizeof(*heat->values));
	sorted = calloc(matrix->ranks * matrix->ranks, sizeof(*sorted));
	if (!heat->values || !sorted) {
		free(heat->values);
		free(sorted);
		return -ENOMEM;
	}
	for (size_t i = 0; i < heat->cells; i++)
		for (size_t j = 0; j < heat->cells; j++)
			heat->values[i * heat->cells + j] =
				worst_block_value(matrix, from, latency, i * heat->step, j * heat->step, heat->step);
	for (size_t i = 0; i < matrix->ranks; i++)
		for (size_t j = 0; j < matrix->ranks; j++)
			if (i != j && !isnan(from[i * matrix->ranks + j]))
				sorted[count++] = from[i * matrix->ranks + j];
	qsort(sorted, count, sizeof(*sorted), bench_compare_doubles);
	if (count) {
		heat->least = sorted[0];
		heat->median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
		heat->most = sorted[count - 1];
		/* Colours span at least a factor of two, so that a uniform matrix looks uniform. */
		heat->best = latency ? heat->least : heat->most;
		heat->worst = latency ? fmax(heat->most, 2 * heat->median) : fmin(heat->least, heat->median / 2);
	}
	free(sorted);
	return 0;
}

int report_heat_level(const struct report_heat *heat, double value)
{
	double at;

	if (isnan(value) || isnan(heat->least))
		return -1;
	at = heat->best == heat->worst ? 1 : (value - heat->worst) / (heat->best - heat->worst);
	return CLI_MAX(CLI_MIN((int)(at * 10), 9), 0);
}
