/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/common/csv.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/cli.h"

static void begin_csv_field(struct csv *csv)
{
	if (csv->begun)
		fputc(',', csv->file);
	csv->begun = true;
}

void csv_text(struct csv *csv, const char *text)
{
	char *copy = text ? strdup(text) : NULL;
	bool quoted;

	begin_csv_field(csv);
	if (!copy)
		return;
	cli_printable(copy, false);
	quoted = copy[strcspn(copy, ",\"")];
	if (quoted)
		fputc('"', csv->file);
	/* A spreadsheet would evaluate a text of another host that looks like a formula. */
	if (*copy && copy[1] && strchr("=+-@", *copy))
		fputc('\'', csv->file);
	for (const char *at = copy; *at; at++) {
		if (*at == '"')
			fputc('"', csv->file);
		fputc(*at, csv->file);
	}
	if (quoted)
		fputc('"', csv->file);
	free(copy);
}

void csv_number(struct csv *csv, double value)
{
	begin_csv_field(csv);
	if (!isnan(value))
		fprintf(csv->file, "%.15g", value);
}

void csv_integer(struct csv *csv, uint64_t value)
{
	begin_csv_field(csv);
	fprintf(csv->file, "%" PRIu64, value);
}

void csv_end(struct csv *csv)
{
	fputs("\r\n", csv->file);
	csv->begun = false;
}

void csv_names(struct csv *csv, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		csv_text(csv, names[i]);
	csv_end(csv);
}
