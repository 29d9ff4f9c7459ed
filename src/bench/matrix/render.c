/* SPDX-License-Identifier: BSD-2-Clause */
/* Output of the matrix as text and as JSON. */
#include <math.h>
#include <time.h>

#include "bench/common/numbers.h"
#include "bench/matrix/matrix.h"
#include "cmd/common/output.h"

#define COLUMNS_MAX 16 /* of a table in the terminal; larger matrices are for `peerlane report` */

static const struct matrix_cell *matrix_cell(const struct matrix *matrix, int from, int to)
{
	return &matrix->cells[(size_t)from * (size_t)matrix->size + (size_t)to];
}

static bool is_pair_slow(const struct matrix *matrix, int from, int to, bool latency)
{
	for (size_t i = 0; i < matrix->slow_count; i++)
		if (matrix->slow[i].from == from && matrix->slow[i].to == to && matrix->slow[i].latency == latency)
			return true;
	return false;
}

static void print_matrix_values(const struct matrix *matrix, bool latency)
{
	printf("\n%s\n%6s",
	       latency ? "us, median of messages of 8 bytes, from row to column" : "GB/s, from row to column", "");
	for (int to = 0; to < matrix->size; to++)
		printf(" %7d", to);
	putchar('\n');
	for (int from = 0; from < matrix->size; from++) {
		printf("%6d", from);
		for (int to = 0; to < matrix->size; to++) {
			double value = latency ? matrix_cell(matrix, from, to)->latency_us
					       : matrix_cell(matrix, from, to)->bytes_per_second / 1e9;
			char text[32];

			snprintf(text, sizeof(text), "%.3g%s", value,
				 is_pair_slow(matrix, from, to, latency) ? "*" : "");
			/* The space keeps columns apart where a value has 8 or more characters, as "1.23e+03*" has. */
			printf(" %7s", from == to ? "-" : isnan(value) ? "failed" : text);
		}
		putchar('\n');
	}
}

static void print_slow_pairs(const struct matrix *matrix)
{
	for (size_t i = 0; i < matrix->slow_count; i++) {
		const struct matrix_slow *slow = &matrix->slow[i];
		const struct matrix_rank *from = &matrix->ranks[slow->from], *to = &matrix->ranks[slow->to];

		printf("slow: rank %d (%s, %s) to rank %d (%s, %s): ", slow->from, from->host, from->memory, slow->to,
		       to->host, to->memory);
		if (slow->latency)
			printf("%.3g us; the median is %.3g us\n", slow->value, slow->median);
		else
			printf("%.3g GB/s; the median is %.3g GB/s\n", slow->value / 1e9, slow->median / 1e9);
	}
}

static void print_failed_pairs(const struct matrix *matrix)
{
	for (int from = 0; from < matrix->size; from++)
		for (int to = 0; to < matrix->size; to++)
			if (matrix_cell(matrix, from, to)->failed)
				printf("failed: rank %d to rank %d: %s\n", from, to,
				       matrix_cell(matrix, from, to)->reason);
}

void matrix_print(const struct matrix *matrix, const struct matrix_options *options)
{
	char size[32];

	if (!options->common.quiet)
		printf("%d ranks, messages of %s, measured in %.1f s; pairs that share a host in turn\n", matrix->size,
		       bench_size_text(size, sizeof(size), options->size), matrix->seconds);
	if (matrix->size <= COLUMNS_MAX) {
		print_matrix_values(matrix, false);
		print_matrix_values(matrix, true);
		putchar('\n');
	} else {
		printf("use --json and peerlane report to draw this many ranks\n");
	}
	for (int one_host = 0; one_host < 2; one_host++)
		if (!isnan(matrix->medians[one_host].bytes_per_second))
			printf("median %s: %.3g GB/s, %.3g us\n", one_host ? "within a host" : "between hosts",
			       matrix->medians[one_host].bytes_per_second / 1e9, matrix->medians[one_host].latency_us);
	print_slow_pairs(matrix);
	print_failed_pairs(matrix);
	if (!matrix->slow_count && !options->common.quiet)
		puts("no slow pairs");
}

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

static struct json_object *json_ranks(const struct matrix *matrix)
{
	struct json_object *array = json_object_new_array();

	for (int i = 0; i < matrix->size; i++) {
		struct json_object *object = json_object_new_object();

		cli_json_add(object, "rank", json_object_new_int(i));
		cli_json_add(object, "host", cli_json_text(matrix->ranks[i].host));
		cli_json_add(object, "memory", cli_json_text(matrix->ranks[i].memory));
		json_object_array_add(array, object);
	}
	return array;
}

static struct json_object *json_matrix_values(const struct matrix *matrix, bool latency)
{
	struct json_object *rows = json_object_new_array();

	for (int from = 0; from < matrix->size; from++) {
		struct json_object *row = json_object_new_array();

		for (int to = 0; to < matrix->size; to++)
			json_object_array_add(
				row, latency ? bench_json_number(matrix_cell(matrix, from, to)->latency_us, 3)
					     : bench_json_number(matrix_cell(matrix, from, to)->bytes_per_second, 0));
		json_object_array_add(rows, row);
	}
	return rows;
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
		json_object_array_add(array, object);
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
			json_object_array_add(array, object);
		}
	return array;
}

void matrix_print_json(const struct matrix *matrix, const struct matrix_options *options)
{
	struct json_object *object = json_object_new_object(), *command = json_object_new_array();
	time_t now = time(NULL);
	struct tm parts;
	char text[32];

	json_object_array_add(command, cli_json_text("peerlane"));
	json_object_array_add(command, cli_json_text("bench"));
	for (int i = 1; i < options->command_count; i++)
		json_object_array_add(command, cli_json_text(options->command[i]));
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &parts));
	cli_json_add(object, "format", json_object_new_int(1));
	cli_json_add(object, "kind", cli_json_text("matrix"));
	cli_json_add(object, "version", cli_json_text(pl_version()));
	cli_json_add(object, "time", cli_json_text(text));
	cli_json_add(object, "command", command);
	cli_json_add(object, "ranks", json_ranks(matrix));
	cli_json_add(object, "size", json_object_new_uint64(options->size));
	cli_json_add(object, "seconds", bench_json_number(matrix->seconds, 3));
	cli_json_add(object, "median_between_hosts", json_medians(&matrix->medians[0]));
	cli_json_add(object, "median_within_hosts", json_medians(&matrix->medians[1]));
	cli_json_add(object, "bytes_per_second", json_matrix_values(matrix, false));
	cli_json_add(object, "latency_us", json_matrix_values(matrix, true));
	cli_json_add(object, "slow", json_slow_pairs(matrix));
	cli_json_add(object, "failed", json_failed_pairs(matrix));
	cli_json_print(object, true);
}
