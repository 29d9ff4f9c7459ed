/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/compare/compare.h"

#include <stdlib.h>
#include <string.h>

#include "bench/common/numbers.h"
#include "cmd/common/output.h"
#include "cmd/fleet/changes.h"

#define THRESHOLD_DEFAULT 3.0
#define THRESHOLD_MAX 1000.0

enum {
	OPTION_THRESHOLD = 0x200,
	OPTION_GROUPS,
	OPTION_CSV,
};

static const struct argp_option compare_options[] = {
	{ "threshold", OPTION_THRESHOLD, "PERCENT", 0, "Smallest difference of medians that counts (default: 3)", 1 },
	{ "groups", OPTION_GROUPS, "FILE", 0,
	  "Groups of hosts, as of leaf switches: lines of HOSTS and GROUP, for matrices", 1 },
	{ "csv", OPTION_CSV, NULL, 0, "Print comma-separated values, with names in the first line", 1 },
	{ 0 },
};

static void parse_threshold(struct comparisons *comparisons, const char *text, struct argp_state *state)
{
	char *end;

	comparisons->threshold = strtod(text, &end);
	/* The negated condition also refuses NAN. */
	if (end == text || *end || !(comparisons->threshold >= 0 && comparisons->threshold <= THRESHOLD_MAX))
		argp_error(state, "--threshold takes a percentage from 0 to 1000, not '%s'", text);
}

static error_t parse_compare_option(int key, char *argument, struct argp_state *state)
{
	struct comparisons *comparisons = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		if (state->arg_num > 1)
			argp_error(state, "'%s': there are two files already", argument);
		comparisons->names[state->arg_num] = argument;
		return 0;
	case ARGP_KEY_END:
		if (state->arg_num < 2)
			argp_error(state,
				   "two files are needed: results, or runs of peerlane fleet, before and after a "
				   "change");
		if (!strcmp(comparisons->names[0], "-") && !strcmp(comparisons->names[1], "-"))
			argp_error(state, "only one file can be standard input");
		if (comparisons->csv && comparisons->common.json)
			argp_error(state, "--json and --csv exclude each other");
		return 0;
	case OPTION_GROUPS:
		comparisons->groups = argument;
		return 0;
	case OPTION_CSV:
		comparisons->csv = true;
		return 0;
	case OPTION_THRESHOLD:
		parse_threshold(comparisons, argument, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct cli_command compare_command = {
	.arguments = "BEFORE AFTER",
	.summary = "Compare two sets of results, and tell changes from noise; or two runs of peerlane fleet.",
	.examples = {
		"peerlane bench compare --threshold 10 --quiet before.json after.json",
		"peerlane bench compare monday friday",
	},
	.notes = "Results with the same operation, size, mode, fabric and memory are compared by the medians of their "
		 "runs.  A difference counts if it exceeds the threshold and the 95 % confidence interval of the ratio "
		 "does not include 1.  That needs at least 5 runs of each (--repeat); with fewer, all runs of one file "
		 "must be better than all of the other.\n"
		 "\n"
		 "Matrices with 8 hosts in common, each with 3 results or more, are compared by groups, hosts, ranks "
		 "and pairs of hosts, and the noise is that of all pairs.\n"
		 "\n"
		 "Runs of `peerlane fleet check` and `topo`, which are folders of --save or files of --output, and documents of "
		 "one host are compared as `peerlane fleet compare` does: the exit status is 1 if anything changed.\n"
		 "\n"
		 "The exit status is 0 if no result got worse, 1 if one did, 2 if the files cannot be read or have no "
		 "result in common.\n",
	.options = compare_options,
	.parse = parse_compare_option,
};

const char *verdict_name(enum verdict verdict)
{
	static const char *const names[] = {
		[VERDICT_SAME] = "same",
		[VERDICT_BETTER] = "better",
		[VERDICT_WORSE] = "worse",
		[VERDICT_ONLY_BEFORE] = "only before",
		[VERDICT_ONLY_AFTER] = "only after",
	};

	return names[verdict];
}

static enum verdict judge_comparison(const struct comparison *comparison, double threshold)
{
	const struct ratio *ratio = &comparison->ratio;
	double least = 1 + threshold / 100;
	bool more = ratio->ratio > least && ratio->low > 1;
	/* The same ratio in the other direction: from 2 to 1 is as far as from 1 to 2. */
	bool less = ratio->ratio * least < 1 && ratio->high < 1;

	if (comparison->after->wrong_content)
		return VERDICT_WORSE;
	if (!more && !less)
		return VERDICT_SAME;
	return more == comparison->after->lower_is_better ? VERDICT_WORSE : VERDICT_BETTER;
}

/* Returns the first row with the same key that was not matched before: a document may have a key twice. */
static const struct document_row *find_matching_row(const struct document *document, const struct document_row *row,
						    bool *matched)
{
	for (uint32_t i = 0; i < document->count; i++) {
		if (!matched[i] && document_rows_match(&document->rows[i], row)) {
			matched[i] = true;
			return &document->rows[i];
		}
	}
	return NULL;
}

static void add_comparison(struct comparisons *comparisons, const struct document_row *before,
			   const struct document_row *after)
{
	struct comparison *comparison = &comparisons->list[comparisons->count++];

	*comparison = (struct comparison){ .before = before, .after = after };
	if (!after) {
		comparison->verdict = VERDICT_ONLY_BEFORE;
	} else if (!before) {
		comparison->verdict = VERDICT_ONLY_AFTER;
	} else {
		ratio_compute(before->runs, before->run_count, after->runs, after->run_count, &comparison->ratio);
		comparison->verdict = judge_comparison(comparison, comparisons->threshold);
		comparisons->compared++;
	}
	comparisons->verdicts[comparison->verdict]++;
}

static int match_documents(struct comparisons *comparisons, struct pl_error *error)
{
	const struct document *before = &comparisons->documents[0], *after = &comparisons->documents[1];
	bool *matched = calloc(after->count + 1, sizeof(*matched));

	comparisons->list = calloc(before->count + after->count + 1, sizeof(*comparisons->list));
	if (!matched || !comparisons->list) {
		free(matched);
		return cli_fail_errno(error, -ENOMEM, "calloc", NULL);
	}
	for (uint32_t i = 0; i < before->count; i++)
		add_comparison(comparisons, &before->rows[i], find_matching_row(after, &before->rows[i], matched));
	for (uint32_t i = 0; i < after->count; i++)
		if (!matched[i])
			add_comparison(comparisons, NULL, &after->rows[i]);
	free(matched);
	if (!comparisons->compared)
		return cli_fail(error, -ENOENT, "BENCH-COMPARE-NOTHING", comparisons->names[1],
				"use results of the same operation, size, mode, fabric and memory",
				"the files have no result in common");
	return 0;
}

static void warn_incomplete_documents(const struct comparisons *comparisons)
{
	for (int i = 0; i < 2; i++) {
		const struct document *document = &comparisons->documents[i];

		if (document->failed)
			cli_warn("%s: the measurement ended with an error; results may be missing",
				 comparisons->names[i]);
		if (document->pairs)
			cli_warn("%s: the measurement was interrupted: %u of %u pairs are missing",
				 comparisons->names[i], document->pairs_left, document->pairs);
	}
}

/* Reads both documents, which are two runs of `peerlane fleet`, or two sets of results. */
static int read_both_documents(struct comparisons *comparisons, struct pl_error *error)
{
	struct document *documents = comparisons->documents;
	int rc = 0, run;

	for (int i = 0; rc == 0 && i < 2; i++)
		rc = document_read(comparisons->names[i], &documents[i], error);
	if (rc < 0 || document_is_run(&documents[0]) == document_is_run(&documents[1]))
		return rc;
	run = document_is_run(&documents[1]);
	return cli_fail(error, -EINVAL, "BENCH-DOCUMENT", comparisons->names[run],
			"compare runs of peerlane fleet with runs, and results with results",
			"this is a run of peerlane fleet or a document about a machine, and %.60s has results",
			comparisons->names[!run]);
}

/* Compares two runs as `peerlane fleet compare` does.  Returns the exit status. */
static int compare_runs(const struct comparisons *comparisons)
{
	struct changes changes = { .before = &comparisons->documents[0].run, .after = &comparisons->documents[1].run };
	struct pl_error error;
	int status;

	if (comparisons->threshold >= 0) {
		cli_fail(&error, -EINVAL, "OPTION", "--threshold", "leave it out: any difference between runs counts",
			 "runs of peerlane fleet have no threshold");
		cli_report_for(&comparisons->common, &error);
		return CLI_USAGE;
	}
	status = changes_show(&changes, &comparisons->common, comparisons->csv);
	changes_free(&changes);
	return status;
}

static int compare_documents(struct comparisons *comparisons)
{
	struct pl_error error;
	int rc = read_both_documents(comparisons, &error);

	if (rc == 0 && document_is_run(&comparisons->documents[0]))
		return compare_runs(comparisons);
	if (comparisons->threshold < 0)
		comparisons->threshold = THRESHOLD_DEFAULT;
	if (rc == 0)
		rc = compare_matrices(comparisons, &error);
	if (rc == 0 && !comparisons->change_count)
		rc = match_documents(comparisons, &error);
	if (rc < 0) {
		cli_report_for(&comparisons->common, &error);
		return CLI_USAGE;
	}
	warn_incomplete_documents(comparisons);
	if (comparisons->common.json)
		compare_render_json(comparisons);
	else if (comparisons->csv)
		compare_render_csv(comparisons);
	else if (comparisons->change_count)
		compare_render_matrices(comparisons);
	else
		compare_render_table(comparisons);
	return comparisons->verdicts[VERDICT_WORSE] ? CLI_FAILED : CLI_OK;
}

int bench_compare(int argc, char **argv)
{
	struct comparisons comparisons = { .threshold = -1 };
	int status;

	cli_parse(&compare_command, argc, argv, &comparisons.common, &comparisons);
	status = compare_documents(&comparisons);
	document_free(&comparisons.documents[0]);
	document_free(&comparisons.documents[1]);
	compare_free_matrices(&comparisons);
	free(comparisons.list);
	return status;
}
