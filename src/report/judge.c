/* SPDX-License-Identifier: BSD-2-Clause */
/* Judgement of matrices of many hosts. */
#include <stdlib.h>

#include "report/fleet.h"

static int compare_order(const void *left, const void *right, void *user)
{
	const struct effects_ranks *ranks = user;
	const size_t a = *(const size_t *)left, b = *(const size_t *)right;

	if (ranks->group[a] != ranks->group[b])
		return ranks->group[a] < ranks->group[b] ? -1 : 1;
	if (ranks->host[a] != ranks->host[b])
		return ranks->host[a] < ranks->host[b] ? -1 : 1;
	return (a > b) - (a < b);
}

int report_order_ranks(struct report_judgement *judgement)
{
	struct effects_ranks *ranks = &judgement->ranks;

	judgement->order = calloc(ranks->count + 1, sizeof(*judgement->order));
	if (!judgement->order)
		return -ENOMEM;
	for (size_t i = 0; i < ranks->count; i++)
		judgement->order[i] = i;
	qsort_r(judgement->order, ranks->count, sizeof(*judgement->order), compare_order, ranks);
	return 0;
}

/* Judges rates or latencies, if enough hosts have them. */
static int judge_unit(struct report_judgement *judgement, const double *values, enum effects_unit unit,
		      struct effects *effects)
{
	double *logarithms = values ? effects_logarithms(values, judgement->ranks.count, unit) : NULL;
	int rc = 0;

	if (values && !logarithms)
		return -ENOMEM;
	if (values && effects_possible(&judgement->ranks, logarithms))
		rc = effects_find(effects, &judgement->ranks, logarithms, false);
	free(logarithms);
	return rc;
}

/* Judges the matrix, which has the worst of all rails, and each rail. */
static int judge_all_values(struct report_judgement *judgement, const struct report_matrix *matrix)
{
	int rc = judge_unit(judgement, matrix->rate, EFFECTS_RATE, &judgement->effects[EFFECTS_RATE]);

	if (rc == 0)
		rc = judge_unit(judgement, matrix->latency, EFFECTS_LATENCY, &judgement->effects[EFFECTS_LATENCY]);
	judgement->rails = calloc(matrix->rail_count + 1, sizeof(*judgement->rails));
	if (rc < 0 || !judgement->rails)
		return -ENOMEM;
	judgement->rail_count = matrix->rail_count;
	for (size_t i = 0; rc == 0 && i < matrix->rail_count; i++) {
		struct effects *effects = judgement->rails[i];

		rc = judge_unit(judgement, matrix->rails[i].rate, EFFECTS_RATE, &effects[EFFECTS_RATE]);
		if (rc == 0)
			rc = judge_unit(judgement, matrix->rails[i].latency, EFFECTS_LATENCY,
					&effects[EFFECTS_LATENCY]);
	}
	return rc < 0 ? rc : report_order_ranks(judgement);
}

static int judge_document_matrix(const struct report *report, struct report_document *document, struct pl_error *error)
{
	struct report_matrix *matrix = &document->matrix;
	struct report_judgement *judgement;
	int rc;

	if (!effects_judge_schedule(cli_json_member_text(document->root, "schedule")))
		return 0;
	judgement = calloc(1, sizeof(*judgement));
	if (!judgement || effects_ranks_make(&judgement->ranks, matrix->labels, matrix->ranks) < 0) {
		free(judgement);
		return report_fail_memory(error);
	}
	rc = report->groups ? effects_ranks_read_groups(&judgement->ranks, report->groups, error) : 0;
	if (rc == 0 && judge_all_values(judgement, matrix) < 0)
		rc = report_fail_memory(error);
	if (rc == 0 && (judgement->effects[0].ranks || judgement->effects[1].ranks))
		matrix->judgement = judgement;
	else
		report_free_judgement(judgement);
	return rc;
}

int report_judge_matrices(struct report *report, struct pl_error *error)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < report->document_count; i++)
		if (report->documents[i].kind == REPORT_MATRIX)
			rc = judge_document_matrix(report, &report->documents[i], error);
	return rc;
}

void report_free_judgement(struct report_judgement *judgement)
{
	if (!judgement)
		return;
	for (int unit = 0; unit < EFFECTS_UNITS; unit++) {
		effects_free(&judgement->effects[unit]);
		for (size_t i = 0; i < judgement->rail_count; i++)
			effects_free(&judgement->rails[i][unit]);
	}
	free(judgement->rails);
	effects_ranks_free(&judgement->ranks);
	free(judgement->order);
	free(judgement);
}

bool report_has_map(const struct report_document *document)
{
	return document->matrix.judgement && document->matrix.ranks >= REPORT_MAP_RANKS_MIN;
}

const struct report_document *report_last_matrix(const struct report *report, const struct report_document **before)
{
	const struct report_document *last = NULL;

	*before = NULL;
	for (size_t i = 0; i < report->document_count; i++)
		if (report->documents[i].matrix.judgement) {
			*before = last;
			last = &report->documents[i];
		}
	return last;
}

const struct report_document *report_last_fleet(const struct report *report, enum fleet_kind kind,
						const struct report_document **before)
{
	const struct report_document *last = NULL;

	*before = NULL;
	for (size_t i = 0; i < report->document_count; i++)
		if (report->documents[i].fleet && report->documents[i].fleet->fleet.kind == kind) {
			*before = last;
			last = &report->documents[i];
		}
	return last;
}
