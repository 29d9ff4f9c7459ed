/* SPDX-License-Identifier: BSD-2-Clause */
/* JSON document of the matrix. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/common/numbers.h"
#include "bench/matrix/matrix.h"
#include "cmd/common/output.h"

#define REASONS_MAX 256 /* different ones in a document; pairs with further ones have none */
#define LINES_RANKS_MAX 64

static struct json_object *json_medians(const struct matrix_medians *medians)
{
	struct json_object *object;

	if (isnan(medians->bytes_per_second))
		return NULL;
	object = json_object_new_object();
	cli_json_add(object, "bytes_per_second", bench_json_number(medians->bytes_per_second, 0));
	cli_json_add(object, "latency_us", bench_json_number(medians->latency_us, 3));
	return object;
}

static struct json_object *json_text_or_null(const char *text)
{
	return *text ? cli_json_text(text) : NULL;
}

static struct json_object *json_ranks(const struct matrix *matrix)
{
	struct json_object *array = json_object_new_array();

	for (int i = 0; i < matrix->size; i++) {
		struct json_object *object = json_object_new_object();

		cli_json_add(object, "rank", json_object_new_int(i));
		cli_json_add(object, "host", json_text_or_null(matrix->ranks[i].host));
		cli_json_add(object, "memory", json_text_or_null(matrix->ranks[i].memory));
		cli_json_append(array, object);
	}
	return array;
}

/* Returns the rows of `size` x `size` cells. */
static struct json_object *json_matrix_values(const struct matrix_cell *cells, int size, bool latency)
{
	struct json_object *rows = json_object_new_array();

	for (int from = 0; from < size; from++) {
		struct json_object *row = json_object_new_array();

		for (int to = 0; to < size; to++, cells++)
			cli_json_append(row, latency ? bench_json_number(cells->latency_us, 3)
						     : bench_json_number(cells->bytes_per_second, 0));
		cli_json_append(rows, row);
	}
	return rows;
}

/* Returns the name of a rail: that of its device, else that of its network. */
static struct json_object *json_rail_name(const struct matrix_options *options, int rail)
{
	char name[128];

	return cli_json_text(matrix_copy_rail(options->common.devices ? options->common.devices : options->network,
					      rail, name, sizeof(name)));
}

/* Returns the values of each rail; NULL if there is one. */
static struct json_object *json_rails(const struct matrix *matrix, const struct matrix_options *options)
{
	struct json_object *array = matrix->rail_cells ? json_object_new_array() : NULL;

	for (int rail = 0; array && rail < matrix->rails; rail++) {
		const struct matrix_cell *cells = matrix_rail_cell(matrix, rail, 0, 0);
		struct json_object *object = json_object_new_object();

		cli_json_add(object, "name", json_rail_name(options, rail));
		cli_json_add(object, "bytes_per_second", json_matrix_values(cells, matrix->size, false));
		cli_json_add(object, "latency_us", json_matrix_values(cells, matrix->size, true));
		cli_json_append(array, object);
	}
	return array;
}

static struct json_object *json_left_out(const struct matrix *matrix)
{
	struct json_object *array = json_object_new_array();

	for (int i = 0; i < matrix->size; i++) {
		struct json_object *object;

		if (matrix_has_rank(matrix, i))
			continue;
		object = json_object_new_object();
		cli_json_add(object, "rank", json_object_new_int(i));
		cli_json_add(object, "host", json_text_or_null(matrix->ranks[i].host));
		cli_json_add(object, "reason", cli_json_text(matrix->world->losses[i].reason));
		cli_json_append(array, object);
	}
	return array;
}

static struct json_object *json_slow_pairs(const struct matrix *matrix)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; i < matrix->slow_count; i++) {
		const struct matrix_slow *slow = &matrix->slow[i];
		struct json_object *object = json_object_new_object();

		cli_json_add(object, "from", json_object_new_int(slow->from));
		cli_json_add(object, "to", json_object_new_int(slow->to));
		cli_json_add(object, "what", cli_json_text(slow->latency ? "latency" : "bandwidth"));
		cli_json_add(object, "value", bench_json_number(slow->value, 3));
		cli_json_add(object, "median", bench_json_number(slow->median, 3));
		cli_json_add(object, "reason", cli_json_text(matrix_cell(matrix, slow->from, slow->to)->reason));
		cli_json_append(array, object);
	}
	return array;
}

static struct json_object *json_failed_pairs(const struct matrix *matrix)
{
	struct json_object *array = json_object_new_array();

	for (int from = 0; from < matrix->size; from++)
		for (int to = 0; to < matrix->size; to++) {
			struct json_object *object;

			if (!matrix_cell(matrix, from, to)->failed)
				continue;
			object = json_object_new_object();
			cli_json_add(object, "from", json_object_new_int(from));
			cli_json_add(object, "to", json_object_new_int(to));
			cli_json_add(object, "reason", cli_json_text(matrix_cell(matrix, from, to)->reason));
			cli_json_append(array, object);
		}
	return array;
}

static struct json_object *json_pairs_below(const struct matrix *matrix, const struct matrix_options *options)
{
	struct json_object *array = json_object_new_array();

	for (int from = 0; from < matrix->size; from++)
		for (int to = 0; to < matrix->size; to++) {
			struct json_object *object;

			if (!matrix_is_below(matrix, options, from, to))
				continue;
			object = json_object_new_object();
			cli_json_add(object, "from", json_object_new_int(from));
			cli_json_add(object, "to", json_object_new_int(to));
			cli_json_add(object, "bytes_per_second",
				     bench_json_number(matrix_cell(matrix, from, to)->bytes_per_second, 0));
			cli_json_append(array, object);
		}
	return array;
}

/* Adds the judgement by --min-rate, and the error of a whole measurement. */
static void json_add_min_rate(struct json_object *object, const struct matrix *matrix,
			      const struct matrix_options *options, bool complete)
{
	struct pl_error error;

	cli_json_add(object, "min_rate_bytes_per_second",
		     options->min_rate ? json_object_new_uint64(options->min_rate) : NULL);
	cli_json_add(object, "below_min_rate", options->min_rate ? json_pairs_below(matrix, options) : NULL);
	if (complete && matrix_check_rates(matrix, options, &error) < 0)
		cli_json_add(object, "error", cli_json_error(&error));
}

/* Adds "reasons", a list of texts, and "reason_of", with the number of each pair's text. */
static void json_add_reasons(struct json_object *object, const struct matrix *matrix)
{
	struct json_object *reasons = json_object_new_array(), *rows = json_object_new_array();
	const char *texts[REASONS_MAX];
	size_t count = 0;

	for (int from = 0; from < matrix->size; from++) {
		struct json_object *row = json_object_new_array();

		for (int to = 0; to < matrix->size; to++) {
			const char *reason = matrix_cell(matrix, from, to)->reason;
			size_t i = 0;

			while (i < count && strcmp(texts[i], reason))
				i++;
			if (i == count && *reason && count < REASONS_MAX) {
				texts[count++] = reason;
				cli_json_append(reasons, cli_json_text(reason));
			}
			cli_json_append(row, i < count ? json_object_new_int((int)i) : NULL);
		}
		cli_json_append(rows, row);
	}
	cli_json_add(object, "reasons", reasons);
	cli_json_add(object, "reason_of", rows);
}

static struct json_object *json_number_or_null(unsigned number)
{
	return number ? json_object_new_int64(number) : NULL;
}

struct json_object *matrix_json_options(const struct matrix_options *options)
{
	static const char *const choices[] = { [PL_DEFAULT] = NULL, [PL_ON] = "on", [PL_OFF] = "off" };
	const struct cli_options *common = &options->common;
	struct json_object *object = json_object_new_object();
	bool pairs = options->schedule == MATRIX_PAIRS;

	cli_json_add(object, "size", json_object_new_uint64(options->size));
	cli_json_add(object, "duration", bench_json_number((double)options->duration / 1e9, 9));
	cli_json_add(object, "network", cli_json_text(options->network));
	cli_json_add(object, "schedule", pairs ? NULL : cli_json_text(matrix_schedule_name(options->schedule)));
	cli_json_add(object, "rounds", json_number_or_null(options->rounds));
	cli_json_add(object, "rails-apart", options->rails_apart ? json_object_new_boolean(true) : NULL);
	cli_json_add(object, "fabric", cli_json_text(common->fabric));
	cli_json_add(object, "device", cli_json_text(common->devices));
	cli_json_add(object, "lanes", json_number_or_null(common->lanes));
	cli_json_add(object, "rails", json_number_or_null(common->rails));
	cli_json_add(object, "traffic-class", json_number_or_null(common->traffic_class));
	cli_json_add(object, "service-level", json_number_or_null(common->service_level));
	cli_json_add(object, "gid-index",
		     common->gid_index ? json_object_new_int64(common->gid_index - PL_GID_INDEX(0)) : NULL);
	cli_json_add(object, "pkey", json_number_or_null(common->pkey));
	cli_json_add(object, "ack-timeout", json_number_or_null(common->ack_timeout));
	cli_json_add(object, "retries", json_number_or_null(common->retries));
	cli_json_add(object, "rnr-timer", json_number_or_null(common->rnr_timer));
	cli_json_add(object, "narrow-grants", common->narrow ? json_object_new_boolean(common->narrow == PL_ON) : NULL);
	cli_json_add(object, "encrypt", cli_json_text(choices[common->encrypt]));
	cli_json_add(object, "key", json_object_new_boolean(cli_authenticates(common)));
	return object;
}

struct json_object *matrix_document(const struct matrix *matrix, const struct matrix_options *options, bool complete)
{
	struct json_object *object = cli_json_begin(), *command = json_object_new_array();
	time_t now = time(NULL);
	struct tm parts;
	char text[32];

	cli_json_append(command, cli_json_text("peerlane"));
	cli_json_append(command, cli_json_text("bench"));
	for (int i = 1; i < options->command_count; i++)
		cli_json_append(command, cli_json_text(options->command[i]));
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
	cli_json_add(object, "format", json_object_new_int(1));
	cli_json_add(object, "kind", cli_json_text("matrix"));
	cli_json_add(object, "version", cli_json_text(pl_version()));
	cli_json_add(object, "time", cli_json_text(text));
	cli_json_add(object, "command", command);
	cli_json_add(object, "complete", json_object_new_boolean(complete));
	cli_json_add(object, "options", matrix_json_options(options));
	cli_json_add(object, "schedule", cli_json_text(matrix_schedule_name(options->schedule)));
	cli_json_add(object, "ranks", json_ranks(matrix));
	cli_json_add(object, "left_out", json_left_out(matrix));
	cli_json_add(object, "size", json_object_new_uint64(options->size));
	cli_json_add(object, "seconds", bench_json_number(matrix->seconds, 3));
	cli_json_add(object, "median_between_hosts", json_medians(&matrix->medians[0]));
	cli_json_add(object, "median_within_hosts", json_medians(&matrix->medians[1]));
	cli_json_add(object, "bytes_per_second", json_matrix_values(matrix->cells, matrix->size, false));
	cli_json_add(object, "latency_us", json_matrix_values(matrix->cells, matrix->size, true));
	cli_json_add(object, "rails", json_rails(matrix, options));
	cli_json_add(object, "measured_again", json_object_new_int(matrix->measured_again));
	cli_json_add(object, "slow", json_slow_pairs(matrix));
	cli_json_add(object, "failed", json_failed_pairs(matrix));
	json_add_min_rate(object, matrix, options, complete);
	json_add_reasons(object, matrix);
	return object;
}

bool matrix_has_lines(const struct matrix *matrix)
{
	return matrix->size <= LINES_RANKS_MAX;
}

int matrix_print_json(const struct matrix *matrix, const struct matrix_options *options, struct pl_error *error)
{
	int rc = cli_json_end(matrix_document(matrix, options, true), matrix_has_lines(matrix));

	return rc < 0 ? cli_fail_errno(error, rc, "malloc", "standard output") : 0;
}

int matrix_write_output(const struct matrix *matrix, const struct matrix_options *options, struct pl_error *error)
{
	struct json_object *object = matrix_document(matrix, options, true);
	const char *text = cli_json_string(object, matrix_has_lines(matrix));
	int rc = text ? 0 : cli_fail_errno(error, -ENOMEM, "malloc", options->output);

	if (rc == 0 && !strcmp(options->output, "-"))
		puts(text);
	else if (rc == 0)
		rc = cli_replace_file(options->output, text, 0644, error);
	json_object_put(object);
	return rc;
}
