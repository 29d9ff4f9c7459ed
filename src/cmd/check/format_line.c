/* SPDX-License-Identifier: BSD-2-Clause */
/* One line a host: HOST STATUS CHECK TEXT | numbers.  Fields are divided by blanks, the text comes last. */
#include <string.h>

#include "cmd/check/check.h"

/* A field has no blanks. */
static void write_field(FILE *file, const char *text)
{
	if (!*text)
		fputc('-', file);
	for (; *text; text++)
		fputc(strchr(" |", *text) ? '_' : *text, file);
	fputc(' ', file);
}

static void write_ids(FILE *file, const struct pl_check_report *report)
{
	const char *before = " ids=";

	for (size_t i = 0; i < report->count; i++) {
		if (report->results[i].status < PL_CHECK_WARN)
			continue;
		fprintf(file, "%s%s", before, report->results[i].row->id);
		before = ",";
	}
}

void check_write_line(FILE *file, const struct check_run *run)
{
	const struct pl_check_counts counts = pl_check_count(&run->report);
	const struct pl_check_result *leading = check_leading_result(&run->report);
	char text[400];

	write_field(file, run->host);
	write_field(file, pl_check_status_name(counts.worst));
	write_field(file, leading ? leading->row->id : "");
	fprintf(file, "%s | fail=%zu warn=%zu unknown=%zu accepted=%zu",
		check_leading_text(text, sizeof(text), &run->report, leading), counts.results[PL_CHECK_FAIL],
		counts.results[PL_CHECK_WARN], counts.results[PL_CHECK_UNKNOWN], counts.accepted);
	write_ids(file, &run->report);
	fputc('\n', file);
}
