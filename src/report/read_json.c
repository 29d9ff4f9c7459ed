/* SPDX-License-Identifier: BSD-2-Clause */
/* Values of documents, whose content is not trusted. */
#include "report/report.h"

#include <stdarg.h>
#include <string.h>

#define NUMBER_MAX 1e18

int report_number_of(struct json_object *object, double *value)
{
	*value = NAN;
	if (!object)
		return 0;
	if (!json_object_is_type(object, json_type_int) && !json_object_is_type(object, json_type_double))
		return -EPROTO;
	*value = json_object_get_double(object);
	if (isfinite(*value) && *value >= 0 && *value <= NUMBER_MAX)
		return 0;
	*value = NAN;
	return -EPROTO;
}

int report_number(struct json_object *object, const char *name, double *value)
{
	struct json_object *member = NULL;

	if (json_object_is_type(object, json_type_object))
		json_object_object_get_ex(object, name, &member);
	return report_number_of(member, value);
}

int report_fail_content(struct pl_error *error, const char *path, const char *format, ...)
{
	char message[160];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	return cli_fail(error, -EPROTO, "REPORT-CONTENT", path,
			"use files of peerlane bench --json or of the scripts in benchmarks/", "%s", message);
}

bool report_is_repeated(const struct report *report, size_t document, const char *name)
{
	struct json_object *own = cli_json_member(report->documents[document].root, name, json_type_object), *other;

	for (size_t i = 0; i < document && own; i++) {
		other = cli_json_member(report->documents[i].root, name, json_type_object);
		if (other && json_object_equal(own, other))
			return true;
	}
	return false;
}

int report_fail_memory(struct pl_error *error)
{
	return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
}
