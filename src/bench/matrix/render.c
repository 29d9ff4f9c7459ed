/* SPDX-License-Identifier: BSD-2-Clause */
/* Output of the matrix as text. */
#include <math.h>

#include "bench/common/numbers.h"
#include "bench/matrix/matrix.h"
#include "cmd/common/output.h"

#define COLUMNS_MAX 16 /* of a table in the terminal; larger matrices are for `peerlane report` */

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
			printf(" %7s", from == to                              ? "-"
				       : matrix_cell(matrix, from, to)->failed ? "failed"
				       : isnan(value)                          ? "."
									       : text);
		}
		if (matrix_has_rank(matrix, from))
			printf("  %s", matrix->ranks[from].host);
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

static void print_left_out(const struct matrix *matrix)
{
	for (int i = 0; i < matrix->size; i++)
		if (!matrix_has_rank(matrix, i)) {
			const char *host = matrix->ranks[i].host;

			/* The host of a rank that has not joined is not known. */
			printf("left out: rank %d%s%s%s: %s\n", i, host[0] ? " (" : "", host, host[0] ? ")" : "",
			       matrix->world->losses[i].reason);
		}
}

/* True if the schedule measures latencies, or an earlier run has. */
static bool has_latencies(const struct matrix *matrix)
{
	for (size_t i = 0; i < (size_t)matrix->size * (size_t)matrix->size; i++)
		if (!isnan(matrix->cells[i].latency_us))
			return true;
	return false;
}

static void print_pairs_below(const struct matrix *matrix, const struct matrix_options *options)
{
	for (int from = 0; from < matrix->size; from++)
		for (int to = 0; to < matrix->size; to++)
			if (matrix_is_below(matrix, options, from, to))
				printf("below --min-rate: rank %d (%s) to rank %d (%s): %.3g GB/s\n", from,
				       matrix->ranks[from].host, to, matrix->ranks[to].host,
				       matrix_cell(matrix, from, to)->bytes_per_second / 1e9);
}

void matrix_print(const struct matrix *matrix, const struct matrix_options *options)
{
	char size[32];

	if (!options->common.quiet)
		printf("%d ranks, messages of %s, measured in %.1f s; pairs that share a host in turn\n", matrix->size,
		       bench_size_text(size, sizeof(size), options->size), matrix->seconds);
	if (matrix->size <= COLUMNS_MAX) {
		print_matrix_values(matrix, false);
		if (has_latencies(matrix))
			print_matrix_values(matrix, true);
		putchar('\n');
	} else {
		printf("%speerlane report draws this many ranks\n", options->output ? "" : "use --json: ");
	}
	for (int one_host = 0; one_host < 2; one_host++)
		if (!isnan(matrix->medians[one_host].bytes_per_second))
			printf("median %s: %.3g GB/s, %.3g us\n", one_host ? "within a host" : "between hosts",
			       matrix->medians[one_host].bytes_per_second / 1e9, matrix->medians[one_host].latency_us);
	if (matrix->measured_again && !options->common.quiet)
		printf("%d slow pair%s measured again; the better values count\n", matrix->measured_again,
		       matrix->measured_again == 1 ? "" : "s");
	print_slow_pairs(matrix);
	print_pairs_below(matrix, options);
	print_failed_pairs(matrix);
	print_left_out(matrix);
	if (!matrix->slow_count && !options->common.quiet)
		puts("no slow pairs");
}
