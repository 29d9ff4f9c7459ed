/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/compare/compare.h"

#include <stdlib.h>
#include <string.h>

#include "bench/perf/endpoint.h"
#include "cmd/common/output.h"

#define THRESHOLD_DEFAULT 3.0
#define THRESHOLD_MAX 1000.0

enum {
	OPTION_THRESHOLD = 0x200,
};

static const struct argp_option compare_options[] = {
	{ "threshold", OPTION_THRESHOLD, "PERCENT", 0, "Differences of the medians up to this are none (default: 3)",
	  1 },
	{ 0 },
};

static void parse_threshold(struct comparisons *comparisons, const char *text, struct argp_state *state)
{
	char *end;

	comparisons->threshold = strtod(text, &end);
	/* So written, it refuses what is no number, too. */
	if (end == text || *end || !(comparisons->threshold >= 0 && comparisons->threshold <= THRESHOLD_MAX))
		argp_error(state, "--threshold takes a percentage from 0 to 1000, not '%s'", text);
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
	struct comparisons *comparisons = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &comparisons->common;
		return 0;
	case ARGP_KEY_ARG:
		if (state->arg_num > 1)
			argp_error(state, "two files only, not '%s' too", argument);
		comparisons->names[state->arg_num] = argument;
		return 0;
	case ARGP_KEY_END:
		if (state->arg_num < 2)
			argp_error(state, "give it two files: the results before, and those after");
		if (!strcmp(comparisons->names[0], "-") && !strcmp(comparisons->names[1], "-"))
			argp_error(state, "only one of the files can be standard input");
		return 0;
	case OPTION_THRESHOLD:
		parse_threshold(comparisons, argument, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_child children[] = {
	{ &cli_output_argp, 0, NULL, 0 },
	{ 0 },
};

static const struct argp arguments = {
	compare_options,
	parse,
	"BEFORE.json AFTER.json",
	"Tell what changed from one set of results to another, beyond noise."
	"\v"
	"Results that have operation, size, mode, fabric and memory in common are compared by "
	"the medians of their runs.  A difference counts if it is more than the threshold and "
	"the 95 % interval of the ratio does not reach 1.  That takes 5 runs of each or more "
	"(--repeat); with fewer, each run of one side has to beat each of the other.\n"
	"\n"
	"The exit status is 0 if nothing got worse, 1 if something did, 2 if the files cannot "
	"be read or have nothing in common.\n"
	"\n"
	"Examples:\n"
	"  peerlane bench --repeat 7 --json >before.json\n"
	"  peerlane bench --repeat 7 --json >after.json\n"
	"  peerlane bench compare before.json after.json\n"
	"  peerlane bench compare --threshold 10 --quiet before.json after.json\n",
	children,
	cli_help_filter,
	NULL
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

static enum verdict judge(const struct comparison *comparison, double threshold)
{
	const struct ratio *ratio = &comparison->ratio;
	double least = 1 + threshold / 100;
	bool more = ratio->ratio > least && ratio->low > 1;
	/* As much the other way: from 2 to 1 is as far as from 1 to 2. */
	bool less = ratio->ratio * least < 1 && ratio->high < 1;

	if (comparison->after->wrong)
		return VERDICT_WORSE;
	if (!more && !less)
		return VERDICT_SAME;
	return more == comparison->after->less ? VERDICT_WORSE : VERDICT_BETTER;
}

/* The first row of the same which has no partner yet, as a document can have one twice. */
static const struct document_row *partner(const struct document *document, const struct document_row *row, bool *taken)
{
	for (uint32_t i = 0; i < document->count; i++) {
		if (!taken[i] && document_same(&document->rows[i], row)) {
			taken[i] = true;
			return &document->rows[i];
		}
	}
	return NULL;
}

static void add(struct comparisons *comparisons, const struct document_row *before, const struct document_row *after)
{
	struct comparison *comparison = &comparisons->list[comparisons->count++];

	*comparison = (struct comparison){ .before = before, .after = after };
	if (!after) {
		comparison->verdict = VERDICT_ONLY_BEFORE;
	} else if (!before) {
		comparison->verdict = VERDICT_ONLY_AFTER;
	} else {
		ratio_of(before->runs, before->run_count, after->runs, after->run_count, &comparison->ratio);
		comparison->verdict = judge(comparison, comparisons->threshold);
		comparisons->compared++;
	}
	comparisons->verdicts[comparison->verdict]++;
}

static int match(struct comparisons *comparisons, struct pl_error *error)
{
	const struct document *before = &comparisons->documents[0], *after = &comparisons->documents[1];
	bool *taken = calloc(after->count + 1, sizeof(*taken));

	comparisons->list = calloc(before->count + after->count + 1, sizeof(*comparisons->list));
	if (!taken || !comparisons->list) {
		free(taken);
		return cli_fail_errno(error, -ENOMEM, "calloc", NULL);
	}
	for (uint32_t i = 0; i < before->count; i++)
		add(comparisons, &before->rows[i], partner(after, &before->rows[i], taken));
	for (uint32_t i = 0; i < after->count; i++)
		if (!taken[i])
			add(comparisons, NULL, &after->rows[i]);
	free(taken);
	if (!comparisons->compared)
		return cli_fail(error, -ENOENT, "BENCH-COMPARE-NOTHING", comparisons->names[1],
				"compare results of the same operation, size, mode, fabric and memory",
				"the two files have no result in common");
	return 0;
}

static void warn(const struct comparisons *comparisons)
{
	for (int i = 0; i < 2; i++)
		if (comparisons->documents[i].failed)
			cli_warn("%s: the measurement ended with an error: it may lack results", comparisons->names[i]);
}

static int compare(struct comparisons *comparisons)
{
	struct pl_error error;
	int rc = 0;

	for (int i = 0; rc == 0 && i < 2; i++)
		rc = document_read(comparisons->names[i], &comparisons->documents[i], &error);
	if (rc == 0)
		rc = match(comparisons, &error);
	if (rc < 0) {
		cli_report_for(&comparisons->common, &error);
		return CLI_USAGE;
	}
	warn(comparisons);
	if (comparisons->common.json)
		compare_render_json(comparisons);
	else
		compare_render_table(comparisons);
	return comparisons->verdicts[VERDICT_WORSE] ? CLI_FAILED : CLI_OK;
}

int bench_compare(int argc, char **argv)
{
	struct comparisons comparisons = { .threshold = THRESHOLD_DEFAULT };
	int status;

	cli_parse(&arguments, argc, argv, &comparisons);
	status = compare(&comparisons);
	document_free(&comparisons.documents[0]);
	document_free(&comparisons.documents[1]);
	free(comparisons.list);
	return status;
}
