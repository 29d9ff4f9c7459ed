/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "bench/common/numbers.h"
#include "bench/compare/compare.h"
#include "cmd/common/output.h"

enum {
	COLUMN_OPERATION,
	COLUMN_SIZE,
	COLUMN_FABRIC,
	COLUMN_MEMORY,
	COLUMN_BEFORE,
	COLUMN_AFTER,
	COLUMN_UNIT,
	COLUMN_CHANGE,
	COLUMN_INTERVAL,
	COLUMN_RUNS,
	COLUMN_VERDICT,
	COLUMNS,
};

static const struct cli_column columns[COLUMNS] = {
	[COLUMN_OPERATION] = { "OPERATION", 0 },
	[COLUMN_SIZE] = { "SIZE", SCOLS_FL_RIGHT },
	[COLUMN_FABRIC] = { "FABRIC", 0 },
	[COLUMN_MEMORY] = { "MEMORY", 0 },
	[COLUMN_BEFORE] = { "BEFORE", SCOLS_FL_RIGHT },
	[COLUMN_AFTER] = { "AFTER", SCOLS_FL_RIGHT },
	[COLUMN_UNIT] = { "", 0 },
	[COLUMN_CHANGE] = { "CHANGE", SCOLS_FL_RIGHT },
	[COLUMN_INTERVAL] = { "95 %", SCOLS_FL_RIGHT },
	[COLUMN_RUNS] = { "RUNS", SCOLS_FL_RIGHT },
	[COLUMN_VERDICT] = { "VERDICT", 0 },
};

/* Returns the unit of a row's values, and the factor to it. */
static void comparison_unit(const struct document_row *row, const char **unit, double *factor)
{
	*unit = row->lower_is_better ? "us" : "GB/s";
	*factor = row->lower_is_better ? 1 : 1e-9;
	if (!strcmp(row->key.mode, "frames")) {
		*unit = "frames/s";
		*factor = 1;
	}
}

static void set_formatted(struct libscols_line *line, size_t column, const char *format, double value)
{
	char text[64];

	snprintf(text, sizeof(text), format, value);
	cli_table_set(line, column, text);
}

/* Prints about four significant digits. */
static void set_significant(struct libscols_line *line, size_t column, double value)
{
	set_formatted(line, column, value < 1 ? "%.4f" : value < 10 ? "%.3f" : value < 100 ? "%.2f" : "%.1f", value);
}

static double ratio_percent(double ratio)
{
	return (ratio - 1) * 100;
}

static void set_comparison_columns(struct libscols_line *line, const struct comparison *comparison)
{
	const struct ratio *ratio = &comparison->ratio;
	const char *unit;
	double factor;
	char text[80];

	comparison_unit(comparison->after, &unit, &factor);
	set_significant(line, COLUMN_BEFORE, ratio->before * factor);
	set_significant(line, COLUMN_AFTER, ratio->after * factor);
	cli_table_set(line, COLUMN_UNIT, unit);
	set_formatted(line, COLUMN_CHANGE, "%+.1f %%", ratio_percent(ratio->ratio));
	/* A single run on each side has no noise to tell a change from. */
	if (comparison->before->run_count == 1 && comparison->after->run_count == 1)
		snprintf(text, sizeof(text), "not known *");
	else
		snprintf(text, sizeof(text), "%+.1f to %+.1f%s", ratio_percent(ratio->low), ratio_percent(ratio->high),
			 ratio->bootstrap ? "" : " *");
	cli_table_set(line, COLUMN_INTERVAL, text);
	snprintf(text, sizeof(text), "%u, %u", comparison->before->run_count, comparison->after->run_count);
	cli_table_set(line, COLUMN_RUNS, text);
}

/* Returns "noise" if the medians differ by more than the threshold but the interval includes 1. */
static const char *shown_verdict(const struct comparison *comparison, double threshold)
{
	double ratio = comparison->ratio.ratio, least = 1 + threshold / 100;

	if (comparison->verdict == VERDICT_SAME && (ratio > least || ratio < 1 / least))
		return "noise";
	return verdict_name(comparison->verdict);
}

static void add_comparison_line(struct libscols_table *table, const struct comparison *comparison, double threshold)
{
	const struct document_row *row = comparison->after ? comparison->after : comparison->before;
	const struct document_key *key = &row->key;
	struct libscols_line *line = cli_table_line(table);
	char text[120];

	snprintf(text, sizeof(text), "%s%s%s", key->operation, key->both_ways ? ", both ways" : "",
		 row->lower_is_better ? ", latency" : "");
	cli_table_set(line, COLUMN_OPERATION, text);
	cli_table_set(line, COLUMN_SIZE, bench_size_text(text, sizeof(text), key->size));
	/* Each pair of a matrix has its own fabric, which the document does not tell. */
	cli_table_set(line, COLUMN_FABRIC, *key->fabric ? key->fabric : "-");
	snprintf(text, sizeof(text), "%s, %s", key->memory, key->peer_memory);
	cli_table_set(line, COLUMN_MEMORY, text);
	if (comparison->before && comparison->after)
		set_comparison_columns(line, comparison);
	snprintf(text, sizeof(text), "%s%s", shown_verdict(comparison, threshold),
		 row->wrong_content ? ", wrong content" : "");
	cli_table_set(line, COLUMN_VERDICT, text);
}

void compare_render_table(const struct comparisons *comparisons)
{
	const uint32_t *verdicts = comparisons->verdicts;
	struct libscols_table *table = cli_table(columns, COLUMNS);
	bool few = false;

	for (uint32_t i = 0; i < comparisons->count; i++) {
		const struct comparison *comparison = &comparisons->list[i];

		/* --quiet prints regressions only. */
		if (comparisons->common.quiet && comparison->verdict != VERDICT_WORSE)
			continue;
		few = few || (comparison->before && comparison->after && !comparison->ratio.bootstrap);
		add_comparison_line(table, comparison, comparisons->threshold);
	}
	if (!comparisons->common.quiet || verdicts[VERDICT_WORSE])
		cli_table_print(table);
	else
		scols_unref_table(table);
	if (comparisons->common.quiet)
		return;
	if (few)
		printf("* fewer than %u runs: extreme ratios of any two runs; use --repeat for more runs\n",
		       RATIO_RUNS_MIN);
	printf("%u better, %u unchanged (within %.3g %% or noise), %u worse", verdicts[VERDICT_BETTER],
	       verdicts[VERDICT_SAME], comparisons->threshold, verdicts[VERDICT_WORSE]);
	if (verdicts[VERDICT_ONLY_BEFORE] || verdicts[VERDICT_ONLY_AFTER])
		printf("; %u only in %s, %u only in %s", verdicts[VERDICT_ONLY_BEFORE], comparisons->names[0],
		       verdicts[VERDICT_ONLY_AFTER], comparisons->names[1]);
	putchar('\n');
}

/* -- JSON ------------------------------------------------------------------------------------------- */

const char *comparison_unit_name(const struct document_row *row)
{
	const char *unit;
	double factor;

	comparison_unit(row, &unit, &factor);
	return factor == 1 ? unit : "bytes/s";
}

static struct json_object *json_ratio_members(const struct comparison *comparison)
{
	struct json_object *object = json_object_new_object(), *interval = json_object_new_array();
	const struct ratio *ratio = &comparison->ratio;

	cli_json_add(object, "before", json_object_new_double(ratio->before));
	cli_json_add(object, "after", json_object_new_double(ratio->after));
	cli_json_add(object, "ratio", json_object_new_double(ratio->ratio));
	json_object_array_add(interval, json_object_new_double(ratio->low));
	json_object_array_add(interval, json_object_new_double(ratio->high));
	cli_json_add(object, "interval", interval);
	cli_json_add(object, "interval_by", cli_json_text(ratio->bootstrap ? "bootstrap" : "extremes"));
	cli_json_add(object, "runs_before", json_object_new_int64(comparison->before->run_count));
	cli_json_add(object, "runs_after", json_object_new_int64(comparison->after->run_count));
	return object;
}

static struct json_object *json_comparison(const struct comparison *comparison)
{
	const struct document_row *row = comparison->after ? comparison->after : comparison->before;
	const struct document_key *key = &row->key;
	struct json_object *object = json_object_new_object();

	cli_json_add(object, "operation", cli_json_text(key->operation));
	cli_json_add(object, "size", json_object_new_uint64(key->size));
	cli_json_add(object, "mode", cli_json_text(key->mode));
	cli_json_add(object, "both_ways", json_object_new_boolean(key->both_ways));
	cli_json_add(object, "fabric", cli_json_text_or_null(key->fabric));
	cli_json_add(object, "memory", cli_json_text(key->memory));
	cli_json_add(object, "peer_memory", cli_json_text(key->peer_memory));
	cli_json_add(object, "unit", cli_json_text(comparison_unit_name(row)));
	cli_json_add(object, "verdict", cli_json_text(verdict_name(comparison->verdict)));
	cli_json_add(object, "comparison",
		     comparison->before && comparison->after ? json_ratio_members(comparison) : NULL);
	return object;
}

void compare_render_json(const struct comparisons *comparisons)
{
	struct json_object *object = json_object_new_object(), *results = json_object_new_array();

	cli_json_add(object, "format", json_object_new_int(1));
	cli_json_add(object, "kind", cli_json_text("comparison"));
	cli_json_add(object, "version", cli_json_text(pl_version()));
	cli_json_add(object, "before", cli_json_text(comparisons->names[0]));
	cli_json_add(object, "after", cli_json_text(comparisons->names[1]));
	cli_json_add(object, "threshold_percent", json_object_new_double(comparisons->threshold));
	cli_json_add(object, "better", json_object_new_int64(comparisons->verdicts[VERDICT_BETTER]));
	cli_json_add(object, "same", json_object_new_int64(comparisons->verdicts[VERDICT_SAME]));
	cli_json_add(object, "worse", json_object_new_int64(comparisons->verdicts[VERDICT_WORSE]));
	for (uint32_t i = 0; i < comparisons->count; i++)
		json_object_array_add(results, json_comparison(&comparisons->list[i]));
	cli_json_add(object, "results", results);
	if (comparisons->change_count)
		compare_add_matrices_json(object, comparisons);
	cli_json_print(object, true);
}
