/* SPDX-License-Identifier: BSD-2-Clause */
/* CSV output of a comparison: a line for each result, or for each change of a matrix. */
#include <math.h>

#include "bench/compare/compare.h"

static const char *const result_columns[] = {
	"operation", "mode",  "fabric", "memory",    "peer_memory", "size",        "both_ways",  "unit",
	"before",    "after", "ratio",  "ratio_low", "ratio_high",  "runs_before", "runs_after", "verdict",
};

static const char *const change_columns[] = {
	"quantity",        "rail", "kind",          "hosts",        "group", "verdict", "confirmed", "sending_ratio",
	"receiving_ratio", "unit", "median_before", "median_after", "text",
};

static void print_csv_comparison(struct csv *csv, const struct comparison *comparison)
{
	const struct document_row *row = comparison->after ? comparison->after : comparison->before;
	const struct document_key *key = &row->key;
	const struct ratio *ratio = &comparison->ratio;
	bool both = comparison->before && comparison->after;

	csv_text(csv, key->operation);
	csv_text(csv, key->mode);
	csv_text(csv, key->fabric);
	csv_text(csv, key->memory);
	csv_text(csv, key->peer_memory);
	csv_integer(csv, key->size);
	csv_text(csv, key->both_ways ? "true" : "false");
	csv_text(csv, comparison_unit_name(row));
	csv_number(csv, both ? ratio->before : NAN);
	csv_number(csv, both ? ratio->after : NAN);
	csv_number(csv, both ? ratio->ratio : NAN);
	csv_number(csv, both ? ratio->low : NAN);
	csv_number(csv, both ? ratio->high : NAN);
	csv_integer(csv, comparison->before ? comparison->before->run_count : 0);
	csv_integer(csv, comparison->after ? comparison->after->run_count : 0);
	csv_text(csv, verdict_name(comparison->verdict));
	csv_end(csv);
}

void compare_render_csv(const struct comparisons *comparisons)
{
	struct csv csv = { .file = stdout };

	if (comparisons->change_count) {
		csv_names(&csv, change_columns, CLI_ARRAY_SIZE(change_columns));
		compare_print_matrices_csv(&csv, comparisons);
		return;
	}
	csv_names(&csv, result_columns, CLI_ARRAY_SIZE(result_columns));
	for (uint32_t i = 0; i < comparisons->count; i++)
		if (!comparisons->common.quiet || comparisons->list[i].verdict == VERDICT_WORSE)
			print_csv_comparison(&csv, &comparisons->list[i]);
}
