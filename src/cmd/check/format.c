/* SPDX-License-Identifier: BSD-2-Clause */
/* Choice of a format, and texts that several formats have. */
#include <stdlib.h>
#include <string.h>

#include "cmd/check/check.h"

char *check_format_document(struct json_object *object)
{
	const char *text = cli_json_string(object, true);
	char *line = NULL;

	if (text && asprintf(&line, "%s\n", text) < 0)
		line = NULL;
	json_object_put(object);
	return line;
}

char *check_format_run(const struct check_run *run, const struct check *check)
{
	char *text = NULL;
	size_t size;
	FILE *file;

	if (check->format == CHECK_JSON)
		return check_format_document(check_document(run, check));
	file = open_memstream(&text, &size);
	if (!file)
		return NULL;
	if (check->format == CHECK_LINE)
		check_write_line(file, run);
	else if (check->format == CHECK_PROMETHEUS)
		check_write_prometheus(file, run, check);
	else
		check_write_nagios(file, run, check);
	if (fclose(file)) {
		free(text);
		return NULL;
	}
	return text;
}

const struct pl_check_result *check_leading_result(const struct pl_check_report *report)
{
	if (report->first)
		return report->first;
	for (size_t i = 0; i < report->count; i++)
		if (report->results[i].status == PL_CHECK_UNKNOWN)
			return &report->results[i];
	return NULL;
}

char *check_leading_text(char *buffer, size_t size, const struct pl_check_report *report,
			 const struct pl_check_result *result)
{
	const struct pl_check_finding *finding = NULL;

	for (size_t i = 0; result && !finding && i < result->count; i++)
		if (result->findings[i].status == result->status && !result->findings[i].accepted)
			finding = &result->findings[i];
	if (!result)
		snprintf(buffer, size, "%s", report->summary);
	else if (!finding)
		snprintf(buffer, size, "%s", result->row->title);
	else
		snprintf(buffer, size, "%s%s%s", finding->object, *finding->object ? ": " : "", finding->text);
	cli_printable(buffer, false);
	/* The bar divides text and numbers. */
	for (char *at = buffer; (at = strchr(at, '|'));)
		*at = '/';
	return buffer;
}
