/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: results for `peerlane bench compare`.  The target compares the results with themselves. */
#include "fuzz.h"

#include <string.h>

#include "bench/compare/compare.h"

/* Largest sum of runs of all rows that the target compares, to limit its time. */
#define RUNS_COMPARED 200u

/* Compares a matrix with itself: nothing changed. */
static void compare_with_itself(const struct document *document)
{
	struct comparisons comparisons = { .names = { "input", "input" }, .documents = { *document, *document } };
	struct pl_error error;

	if (compare_matrices(&comparisons, &error) < 0) {
		REQUIRE(error.code == -ENOENT && !strcmp(error.id, "BENCH-COMPARE-NOTHING"));
		REQUIRE(document->matrix.ranks > DOCUMENT_ROW_RANKS_MAX);
	}
	REQUIRE(!comparisons.verdicts[VERDICT_WORSE] && !comparisons.verdicts[VERDICT_BETTER]);
	for (size_t i = 0; i < comparisons.change_count; i++)
		REQUIRE(!comparisons.changes[i].change.only[0] && !comparisons.changes[i].change.only[1]);
	compare_free_matrices(&comparisons);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct document document;
	struct pl_error error;
	uint32_t runs = 0;

	if (document_parse((const char *)data, size, "input", &document, &error) < 0) {
		REQUIRE(error.code == -EINVAL && error.message[0]);
		REQUIRE(!strcmp(error.id, "BENCH-DOCUMENT") || !strcmp(error.id, "FLEET-SAVED"));
		REQUIRE(!document_is_run(&document));
		REQUIRE(!document.rows && document.count == 0 && document.matrix.ranks == 0);
		return 0;
	}
	REQUIRE(document.count <= DOCUMENT_ROWS_MAX ||
		document.count <= 2 * DOCUMENT_ROW_RANKS_MAX * DOCUMENT_ROW_RANKS_MAX);
	for (uint32_t i = 0; i < document.count; i++) {
		const struct document_row *row = &document.rows[i];
		struct ratio ratio;

		REQUIRE(row->run_count >= 1 && row->run_count <= DOCUMENT_RUNS_MAX && document_rows_match(row, row));
		for (uint32_t j = 1; j < row->run_count; j++)
			REQUIRE(row->runs[j - 1] <= row->runs[j]);
		runs += row->run_count;
		if (runs > RUNS_COMPARED)
			continue;
		ratio_compute(row->runs, row->run_count, row->runs, row->run_count, &ratio);
		REQUIRE(ratio.low > 0 && ratio.low <= ratio.high && ratio.high < 1e31);
	}
	compare_with_itself(&document);
	document_free(&document);
	return 0;
}
