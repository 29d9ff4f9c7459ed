/* SPDX-License-Identifier: BSD-2-Clause */
/* Matrices of all pairs of ranks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/compare/document_reader.h"
#include "bench/effects/effects.h"
#include "cmd/common/output.h"

#define RANK_TEXT 256

/* Bytes of the messages whose latencies a matrix has; its document has the size of the other ones. */
#define LATENCY_SIZE 8

static const char *const matrix_members[2] = { "bytes_per_second", "latency_us" };

/* Reads the rates or the latencies of all pairs. */
static int read_matrix_values(const struct document_reader *reader, struct json_object *object,
			      struct document_values *set, int unit)
{
	struct json_object *rows = cli_json_member(object, matrix_members[unit], json_type_array);
	size_t size = reader->document->matrix.ranks;
	double *values = calloc(size * size, sizeof(*values));

	set->values[unit] = values;
	if (!values)
		return cli_fail_errno(reader->error, -ENOMEM, "calloc", NULL);
	if (!rows || json_object_array_length(rows) != size)
		return refuse_document(reader, "there is no array of %s of all ranks", matrix_members[unit]);
	for (size_t from = 0; from < size; from++) {
		struct json_object *row = json_object_array_get_idx(rows, from);

		if (!json_object_is_type(row, json_type_array) || json_object_array_length(row) != size)
			return refuse_document(reader, "a row of %s has a wrong length", matrix_members[unit]);
		for (size_t to = 0; to < size; to++) {
			struct json_object *value = json_object_array_get_idx(row, to);

			values[from * size + to] = NAN;
			if (value && !read_positive_number(value, &values[from * size + to]))
				return refuse_document(reader, "the value of a pair %s", "is not a positive number");
		}
	}
	return 0;
}

/* Reads the values of all rails, and of each rail. */
static int read_matrix_sets(const struct document_reader *reader)
{
	struct document_matrix *matrix = &reader->document->matrix;
	struct json_object *rails = cli_json_member(reader->root, "rails", json_type_array);
	size_t count = rails ? json_object_array_length(rails) : 0;
	int rc = 0;

	if (count > DOCUMENT_RAILS_MAX)
		return refuse_document(reader, "there are more than %s rails", "16");
	matrix->sets = calloc(count + 1, sizeof(*matrix->sets));
	if (!matrix->sets)
		return cli_fail_errno(reader->error, -ENOMEM, "calloc", NULL);
	while (rc == 0 && matrix->set_count <= count) {
		struct document_values *set = &matrix->sets[matrix->set_count++];
		struct json_object *object = reader->root;
		char name[RANK_TEXT];

		if (set != matrix->sets) {
			object = json_object_array_get_idx(rails, matrix->set_count - 2);
			copy_document_text(object, "name", "?", name, sizeof(name));
			set->rail = strdup(name);
			if (!set->rail)
				rc = cli_fail_errno(reader->error, -ENOMEM, "strdup", NULL);
		}
		for (int unit = 0; rc == 0 && unit < 2; unit++)
			rc = read_matrix_values(reader, object, set, unit);
	}
	return rc;
}

/* Returns the text of a rank's member, without control characters; NULL if it is unknown. */
static char *copy_rank_text(struct json_object *rank, const char *name)
{
	char text[RANK_TEXT];

	copy_document_text(rank, name, "", text, sizeof(text));
	return *text ? strdup(text) : NULL;
}

static int read_matrix_ranks(const struct document_reader *reader, struct json_object *ranks)
{
	struct document_matrix *matrix = &reader->document->matrix;

	matrix->hosts = calloc(matrix->ranks, sizeof(*matrix->hosts));
	matrix->memory = calloc(matrix->ranks, sizeof(*matrix->memory));
	if (!matrix->hosts || !matrix->memory)
		return cli_fail_errno(reader->error, -ENOMEM, "calloc", NULL);
	for (size_t i = 0; i < matrix->ranks; i++) {
		struct json_object *rank = json_object_array_get_idx(ranks, i);

		matrix->hosts[i] = copy_rank_text(rank, "host");
		matrix->memory[i] = copy_rank_text(rank, "memory");
	}
	return 0;
}

/* Adds the row of a pair of ranks.  A pair that was not measured has none. */
static int add_matrix_row(const struct document_reader *reader, size_t from, size_t to, int unit)
{
	const struct document_matrix *matrix = &reader->document->matrix;
	struct document_row *row = &reader->document->rows[reader->document->count];
	struct document_key *key = &row->key;
	double value = matrix->sets[0].values[unit][from * matrix->ranks + to];

	if (isnan(value))
		return 0;
	snprintf(key->operation, sizeof(key->operation), "rank %u to %u", (unsigned)from, (unsigned)to);
	snprintf(key->mode, sizeof(key->mode), unit ? "latency" : "bandwidth");
	snprintf(row->tool, sizeof(row->tool), "peerlane");
	snprintf(key->memory, sizeof(key->memory), "%.23s", matrix->memory[from] ? matrix->memory[from] : "host");
	snprintf(key->peer_memory, sizeof(key->peer_memory), "%.23s", matrix->memory[to] ? matrix->memory[to] : "host");
	key->size = unit ? LATENCY_SIZE : matrix->size;
	row->lower_is_better = unit;
	row->runs = calloc(1, sizeof(*row->runs));
	if (!row->runs)
		return cli_fail_errno(reader->error, -ENOMEM, "calloc", NULL);
	row->runs[0] = value;
	row->run_count = 1;
	reader->document->count++;
	return 0;
}

/* Adds rows, unless there are too many to compare each of them, as with all pairs of many ranks. */
static int add_matrix_rows(const struct document_reader *reader)
{
	const struct document_matrix *matrix = &reader->document->matrix;
	size_t ranks = matrix->ranks, known = 0;
	int rc = 0;

	for (int unit = 0; unit < 2; unit++)
		for (size_t i = 0; i < ranks * ranks; i++)
			known += !isnan(matrix->sets[0].values[unit][i]);
	if (ranks > DOCUMENT_ROW_RANKS_MAX && known > 2 * DOCUMENT_ROW_RANKS_MAX * DOCUMENT_ROW_RANKS_MAX)
		return 0;
	reader->document->rows = calloc(known + 1, sizeof(*reader->document->rows));
	if (!reader->document->rows)
		return cli_fail_errno(reader->error, -ENOMEM, "calloc", NULL);
	for (int unit = 0; unit < 2; unit++)
		for (size_t i = 0; rc == 0 && i < ranks * ranks; i++)
			rc = add_matrix_row(reader, i / ranks, i % ranks, unit);
	return rc;
}

/* Counts the pairs, in both directions, that an interrupted matrix lacks. */
static void count_missing_pairs(const struct document_reader *reader)
{
	struct json_object *complete = cli_json_member(reader->root, "complete", json_type_boolean);
	struct document *document = reader->document;
	size_t ranks = document->matrix.ranks;

	if (!complete || json_object_get_boolean(complete))
		return;
	document->pairs = (uint32_t)(ranks * (ranks - 1));
	for (size_t i = 0; i < ranks * ranks; i++)
		document->pairs_left += i / ranks != i % ranks && isnan(document->matrix.sets[0].values[0][i]);
}

int document_read_matrix(const struct document_reader *reader)
{
	struct json_object *ranks = cli_json_member(reader->root, "ranks", json_type_array);
	struct json_object *size = cli_json_member(reader->root, "size", json_type_int);
	struct document_matrix *matrix = &reader->document->matrix;
	size_t count = ranks ? json_object_array_length(ranks) : 0;
	int rc;

	if (count < 2 || count > DOCUMENT_RANKS_MAX)
		return refuse_document(reader, "there are not 2 to %s ranks", "1024");
	if (!size || json_object_get_int64(size) < 0)
		return refuse_document(reader, "the matrix has no valid %s", "size");
	matrix->ranks = count;
	matrix->size = (uint64_t)json_object_get_int64(size);
	matrix->judged = effects_judge_schedule(cli_json_member_text(reader->root, "schedule"));
	rc = read_matrix_ranks(reader, ranks);
	if (rc == 0)
		rc = read_matrix_sets(reader);
	if (rc == 0)
		rc = add_matrix_rows(reader);
	if (rc == 0)
		count_missing_pairs(reader);
	return rc;
}

void document_free_matrix(struct document_matrix *matrix)
{
	for (size_t i = 0; i < matrix->ranks; i++) {
		free(matrix->hosts ? matrix->hosts[i] : NULL);
		free(matrix->memory ? matrix->memory[i] : NULL);
	}
	free(matrix->hosts);
	free(matrix->memory);
	for (size_t i = 0; i < matrix->set_count; i++) {
		free(matrix->sets[i].rail);
		free(matrix->sets[i].values[0]);
		free(matrix->sets[i].values[1]);
	}
	free(matrix->sets);
	*matrix = (struct document_matrix){ .ranks = 0 };
}
