/* SPDX-License-Identifier: BSD-2-Clause */
/* Explains the results in sentences, only from the phases that were measured. */
#include "bench/workflow/workflow.h"

#include <math.h>
#include <string.h>

static const char *const phase_texts[WORKFLOW_PHASES] = {
	[WORKFLOW_RECEIVE] = "receiving",  [WORKFLOW_TO_DEVICE] = "copying to the device",
	[WORKFLOW_COMPUTE] = "computing",  [WORKFLOW_TO_HOST] = "copying to the host",
	[WORKFLOW_INSPECT] = "inspecting", [WORKFLOW_SERVE] = "serving",
	[WORKFLOW_OTHER] = "other work",
};

static double frame_interval_us(const struct workflow_result *result)
{
	return result->median > 0 ? 1e6 / result->median : 0;
}

static const char *duration_text(char buffer[32], double microseconds)
{
	microseconds = fabs(microseconds);
	if (microseconds >= 99950)
		snprintf(buffer, 32, "%.1f ms", microseconds / 1000);
	else
		snprintf(buffer, 32,
			 microseconds < 10    ? "%.2f us"
			 : microseconds < 100 ? "%.1f us"
					      : "%.0f us",
			 microseconds);
	return buffer;
}

/* Prints the phases that make up most of a difference, the largest first. */
static void print_phase_differences(const struct workflow_result *result, const struct workflow_result *over,
				    double saved)
{
	double differences[WORKFLOW_PHASES];
	char text[32];
	unsigned printed = 0;

	for (unsigned i = 0; i < WORKFLOW_WHOLE; i++)
		differences[i] = workflow_phase_us(over, (enum workflow_phase)i) -
				 workflow_phase_us(result, (enum workflow_phase)i);
	while (printed < 3) {
		unsigned most = 0;

		for (unsigned i = 1; i < WORKFLOW_WHOLE; i++)
			if (fabs(differences[i]) > fabs(differences[most]))
				most = i;
		/* Phases below a tenth of the difference explain nothing, and may be noise. */
		if (fabs(differences[most]) < fabs(saved) / 10 || differences[most] == 0)
			break;
		printf("%s%s takes %s %s", printed ? ", " : ": ", phase_texts[most],
		       duration_text(text, differences[most]), differences[most] > 0 ? "less" : "more");
		differences[most] = 0;
		printed++;
	}
}

static void explain_serial_pair(const struct workflow_report *report, uint64_t size, const char *name,
				const char *over_name)
{
	const struct workflow_result *result = workflow_result_of(report, name, size);
	const struct workflow_result *over = workflow_result_of(report, over_name, size);
	char first[32], second[32];
	double saved;

	if (!result || !over || !result->rounds || !over->rounds)
		return;
	saved = workflow_phase_us(over, WORKFLOW_WHOLE) - workflow_phase_us(result, WORKFLOW_WHOLE);
	printf("  A frame takes %s with %s, %s with %s",
	       duration_text(first, workflow_phase_us(result, WORKFLOW_WHOLE)), name,
	       duration_text(second, workflow_phase_us(over, WORKFLOW_WHOLE)), over_name);
	print_phase_differences(result, over, saved);
	puts(".");
}

/* Explains a method with several frames in flight: its slowest step decides its rate. */
static void explain_overlap(const struct workflow_report *report, uint64_t size, const char *name, const char *serial)
{
	const struct workflow_result *result = workflow_result_of(report, name, size);
	const struct workflow_result *serial_result = workflow_result_of(report, serial, size);
	char first[32], second[32];
	unsigned longest = 0;

	if (!result || !result->rounds)
		return;
	printf("  %s has %u frames in flight: one completes every %s", name, result->depth,
	       duration_text(first, frame_interval_us(result)));
	printf(", and each takes %s.", duration_text(second, workflow_phase_us(result, WORKFLOW_WHOLE)));
	if (serial_result && serial_result->rounds) {
		for (unsigned i = 1; i < WORKFLOW_OTHER; i++)
			if (workflow_phase_us(serial_result, (enum workflow_phase)i) >
			    workflow_phase_us(serial_result, (enum workflow_phase)longest))
				longest = i;
		printf("  One at a time (%s), a frame takes %s; the longest phase, %s,", serial,
		       duration_text(first, workflow_phase_us(serial_result, WORKFLOW_WHOLE)), phase_texts[longest]);
		printf(" takes %s.",
		       duration_text(first, workflow_phase_us(serial_result, (enum workflow_phase)longest)));
	}
	putchar('\n');
}

static const struct workflow_result *find_method_result(const struct workflow_report *report, uint64_t size,
							const char *name, const char *otherwise)
{
	const struct workflow_result *result = workflow_result_of(report, name, size);

	return result ? result : workflow_result_of(report, otherwise, size);
}

static void explain_method_route(const struct workflow_report *report, uint64_t size)
{
	const struct workflow_result *direct = find_method_result(report, size, "B", "BO");

	if (!direct || !direct->rounds)
		return;
	if (direct->totals.route == PL_ROUTE_STAGED)
		printf("  Frames of %s were not transferred directly: %.0f %% of their bytes were staged through host "
		       "memory "
		       "(%s).\n",
		       direct->method->name,
		       100.0 * (double)direct->totals.staged /
			       (double)CLI_MAX(direct->totals.staged + direct->totals.direct, 1u),
		       direct->totals.reason);
	else
		printf("  Frames of %s were transferred directly into the %s memory: no byte was staged.\n",
		       direct->method->name,
		       strcmp(report->compute->name, "simulated") ? "device's" : "simulated device's");
}

void workflow_explain(const struct workflow_report *report, uint64_t size)
{
	const struct workflow_result *serial = find_method_result(report, size, "B'", "B");

	explain_serial_pair(report, size, "B", "A");
	explain_serial_pair(report, size, "B'", "A'");
	explain_overlap(report, size, "BO", serial ? serial->method->name : "B");
	explain_overlap(report, size, "BP", "");
	explain_overlap(report, size, "S", "");
	explain_method_route(report, size);
}
