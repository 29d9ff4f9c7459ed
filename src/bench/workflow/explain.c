/* SPDX-License-Identifier: BSD-2-Clause */
/* What the figures come from, in sentences: made of the phases that were measured, of nothing else. */
#include <math.h>
#include <string.h>

#include "bench/workflow/workflow.h"

static const char *const words[FLOW_PHASES] = {
	[FLOW_RECEIVE] = "receiving",  [FLOW_TO_DEVICE] = "copying to the device",
	[FLOW_COMPUTE] = "computing",  [FLOW_TO_HOST] = "copying to the host",
	[FLOW_INSPECT] = "inspecting", [FLOW_SERVE] = "serving",
	[FLOW_OTHER] = "all else",
};

static double interval_us(const struct flow_result *result)
{
	return result->median > 0 ? 1e6 / result->median : 0;
}

static const char *time_text(char buffer[32], double microseconds)
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

/* The phases that make up most of the difference, the greatest first. */
static void print_causes(const struct flow_result *result, const struct flow_result *over, double saved)
{
	double differences[FLOW_PHASES];
	char text[32];
	unsigned told = 0;

	for (unsigned i = 0; i < FLOW_WHOLE; i++)
		differences[i] = flow_phase_us(over, (enum flow_phase)i) - flow_phase_us(result, (enum flow_phase)i);
	while (told < 3) {
		unsigned most = 0;

		for (unsigned i = 1; i < FLOW_WHOLE; i++)
			if (fabs(differences[i]) > fabs(differences[most]))
				most = i;
		/* What is a tenth of it, or noise, explains nothing. */
		if (fabs(differences[most]) < fabs(saved) / 10 || differences[most] == 0)
			break;
		printf("%s%s takes %s %s", told ? ", " : ": ", words[most], time_text(text, differences[most]),
		       differences[most] > 0 ? "less" : "more");
		differences[most] = 0;
		told++;
	}
}

static void compare_serial(const struct flow_report *report, uint64_t size, const char *name, const char *over_name)
{
	const struct flow_result *result = flow_result_of(report, name, size);
	const struct flow_result *over = flow_result_of(report, over_name, size);
	char first[32], second[32];
	double saved;

	if (!result || !over || !result->rounds || !over->rounds)
		return;
	saved = flow_phase_us(over, FLOW_WHOLE) - flow_phase_us(result, FLOW_WHOLE);
	printf("  A frame takes %s with %s, %s with %s", time_text(first, flow_phase_us(result, FLOW_WHOLE)), name,
	       time_text(second, flow_phase_us(over, FLOW_WHOLE)), over_name);
	print_causes(result, over, saved);
	puts(".");
}

/* With several frames at once, the rate is that of the slowest step. */
static void compare_overlapped(const struct flow_report *report, uint64_t size, const char *name, const char *serial)
{
	const struct flow_result *result = flow_result_of(report, name, size);
	const struct flow_result *alone = flow_result_of(report, serial, size);
	char first[32], second[32];
	unsigned longest = 0;

	if (!result || !result->rounds)
		return;
	printf("  %s has %u frames under way: one is done every %s", name, result->depth,
	       time_text(first, interval_us(result)));
	printf(", though each takes %s.", time_text(second, flow_phase_us(result, FLOW_WHOLE)));
	if (alone && alone->rounds) {
		for (unsigned i = 1; i < FLOW_OTHER; i++)
			if (flow_phase_us(alone, (enum flow_phase)i) > flow_phase_us(alone, (enum flow_phase)longest))
				longest = i;
		printf("  One at a time (%s) needs %s, of which %s, the longest phase, takes", serial,
		       time_text(first, flow_phase_us(alone, FLOW_WHOLE)), words[longest]);
		printf(" %s.", time_text(first, flow_phase_us(alone, (enum flow_phase)longest)));
	}
	putchar('\n');
}

static const struct flow_result *first_of(const struct flow_report *report, uint64_t size, const char *name,
					  const char *otherwise)
{
	const struct flow_result *result = flow_result_of(report, name, size);

	return result ? result : flow_result_of(report, otherwise, size);
}

static void explain_route(const struct flow_report *report, uint64_t size)
{
	const struct flow_result *direct = first_of(report, size, "B", "BO");

	if (!direct || !direct->rounds)
		return;
	if (direct->tally.route == PL_ROUTE_STAGED)
		printf("  Frames for %s did not go directly: %.0f %% of their bytes were staged through host memory "
		       "(%s).\n",
		       direct->arm->name,
		       100.0 * (double)direct->tally.staged /
			       (double)CLI_MAX(direct->tally.staged + direct->tally.direct, 1u),
		       direct->tally.reason);
	else
		printf("  Frames for %s went directly into the %s memory: no byte was staged.\n", direct->arm->name,
		       strcmp(report->compute->name, "simulated") ? "device's" : "simulated device's");
}

void flow_explain(const struct flow_report *report, uint64_t size)
{
	const struct flow_result *serial = first_of(report, size, "B'", "B");

	compare_serial(report, size, "B", "A");
	compare_serial(report, size, "B'", "A'");
	compare_overlapped(report, size, "BO", serial ? serial->arm->name : "B");
	compare_overlapped(report, size, "BP", "");
	explain_route(report, size);
}
