/* SPDX-License-Identifier: BSD-2-Clause */
#include "diag/check/policy.h"

uint32_t pl_check_generation_speed(unsigned generation)
{
	static const uint32_t speeds[] = { 0, 2500, 5000, 8000, 16000, 32000, 64000, 128000 };

	return generation < PL_ARRAY_SIZE(speeds) ? speeds[generation] : 0;
}

/* Returns the worst status of the findings that count. */
static enum pl_check_status counted_status(const struct pl_check_result *result)
{
	enum pl_check_status status = PL_CHECK_OK;

	for (size_t i = 0; i < result->count; i++)
		if (!result->findings[i].accepted)
			status = PL_MAX(status, result->findings[i].status);
	return status;
}

static void accept_findings(struct pl_check_result *result, const struct pl_check_acceptance *acceptance)
{
	for (size_t i = 0; i < result->count; i++) {
		struct pl_check_finding *finding = &result->findings[i];

		if (finding->status > PL_CHECK_OK && !finding->accepted &&
		    (!*acceptance->object || !strcmp(acceptance->object, finding->object)))
			finding->accepted = acceptance;
	}
	/* A finding for which memory lacked has no object, so nobody accepted it. */
	if (!result->left_out && result->status > PL_CHECK_OK)
		result->status = counted_status(result);
}

void pl_check_accept(struct pl_check_report *report, const struct pl_check_policy *policy)
{
	for (size_t i = 0; i < policy->accepted_count; i++)
		for (size_t j = 0; j < report->count; j++)
			if (report->results[j].row == policy->accepted[i].row)
				accept_findings(&report->results[j], &policy->accepted[i]);
}

bool pl_check_acceptance_used(const struct pl_check_report *report, const struct pl_check_acceptance *acceptance)
{
	for (size_t i = 0; i < report->count; i++)
		for (size_t j = 0; j < report->results[i].count; j++)
			if (report->results[i].findings[j].accepted == acceptance)
				return true;
	return false;
}
