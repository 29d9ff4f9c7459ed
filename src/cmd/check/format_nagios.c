/* SPDX-License-Identifier: BSD-2-Clause */
/* Output of a plugin of Nagios or Icinga: a line of less than 80 characters, performance data, then one line a problem. */
#include <string.h>

#include "cmd/check/check.h"

#define LINE_MAX_BYTES 79u
#define PROBLEMS_SHOWN 10 /* NRPE cuts the output at 1 KB or 64 KB, by its version */

static const char *const names[] = { "OK", "WARNING", "CRITICAL", "UNKNOWN" };

enum check_nagios check_nagios_status(const struct check_run *run, const struct check *check)
{
	enum pl_check_status worst = pl_check_count(&run->report).worst;

	if (worst < (check->fail_on ? check->fail_on : PL_CHECK_UNKNOWN))
		return NAGIOS_OK;
	switch (worst) {
	case PL_CHECK_FAIL:
		return NAGIOS_CRITICAL;
	case PL_CHECK_WARN:
		return NAGIOS_WARNING;
	case PL_CHECK_UNKNOWN:
		/* Agents run as a user without rights, who cannot find out everything. */
		return check->strict || check->fail_on ? NAGIOS_UNKNOWN : NAGIOS_OK;
	default:
		return NAGIOS_OK;
	}
}

/* Cuts a text to at most `room` bytes, at the beginning of a character. */
static void cut_text(char *text, size_t room)
{
	if (strlen(text) <= room)
		return;
	while (room && ((unsigned char)text[room] & 0xc0) == 0x80)
		room--;
	text[room] = '\0';
}

static void write_problems(FILE *file, const struct pl_check_report *report)
{
	char text[400];
	size_t shown = 0;

	for (size_t i = 0; i < report->count && shown < PROBLEMS_SHOWN; i++) {
		const struct pl_check_result *result = &report->results[i];

		if (result->status < PL_CHECK_WARN)
			continue;
		fprintf(file, "%s %s: %s\n", pl_check_status_name(result->status), result->row->id,
			check_leading_text(text, sizeof(text), report, result));
		shown++;
	}
}

void check_write_nagios(FILE *file, const struct check_run *run, const struct check *check)
{
	const struct pl_check_counts counts = pl_check_count(&run->report);
	const size_t fail = counts.results[PL_CHECK_FAIL], warn = counts.results[PL_CHECK_WARN];
	const struct pl_check_result *leading = run->report.first;
	enum check_nagios status = check_nagios_status(run, check);
	char head[24], text[400], tail[48];

	if (status == NAGIOS_UNKNOWN)
		leading = check_leading_result(&run->report);
	snprintf(head, sizeof(head), "PEERLANE %s - ", names[status]);
	tail[0] = '\0';
	if (status != NAGIOS_OK)
		snprintf(tail, sizeof(tail), " (%zu fail, %zu warn)", fail, warn);
	check_leading_text(text, sizeof(text), &run->report, leading);
	cut_text(text, LINE_MAX_BYTES - strlen(head) - strlen(tail));
	fprintf(file, "%s%s%s | fail=%zu;;0;0 warn=%zu;0;;0 unknown=%zu;;;0", head, text, tail, fail, warn,
		counts.results[PL_CHECK_UNKNOWN]);
	fprintf(file, " gpus=%zu;;", run->inventory->gpu_count);
	if (check->policy.expected.gpus)
		fprintf(file, "%u:", check->policy.expected.gpus);
	fprintf(file, ";0 cards=%zu;;", run->inventory->card_count);
	if (check->policy.expected.cards)
		fprintf(file, "%u:", check->policy.expected.cards);
	fprintf(file, ";0 duration=%.3fs;;;0\n", (double)run->duration / CLI_NS_PER_S);
	write_problems(file, &run->report);
}

int check_report_nagios(const struct pl_error *error)
{
	char text[sizeof(error->object) + sizeof(error->message) + 4], *bar;

	snprintf(text, sizeof(text), "%s%s%s", error->message, *error->object ? ": " : "", error->object);
	cli_printable(text, false);
	while ((bar = strchr(text, '|')))
		*bar = '/';
	cut_text(text, LINE_MAX_BYTES - strlen("PEERLANE UNKNOWN - "));
	printf("PEERLANE UNKNOWN - %s\n", text);
	return NAGIOS_UNKNOWN;
}
