/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void check_failed(const char *file, int line, const char *format, ...)
{
	char text[768];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fprintf(stderr, "%s:%d: check failed: %s\n", file, line, text);
	fflush(stderr);
	abort();
}

static const char *status_name(int status, char *buffer, size_t size)
{
	const char *name = status < 0 ? strerrorname_np(-status) : NULL;

	if (name)
		snprintf(buffer, size, "-%s", name);
	else
		snprintf(buffer, size, "%d", status);
	return buffer;
}

void check_status_at(const char *file, int line, const char *call, int status, int expected,
		     const struct pl_error *error)
{
	char got[32], wanted[32], text[512] = "";

	if (status != expected) {
		if (status < 0 && error)
			pl_error_format(error, text, sizeof(text));
		check_failed(file, line, "%.160s gave %s, not %s\n%s", call, status_name(status, got, sizeof(got)),
			     status_name(expected, wanted, sizeof(wanted)), text);
	}
	if (status >= 0 || !error)
		return;
	if (error->code != status)
		check_failed(file, line, "%.160s gave %s, but its error has code %d", call,
			     status_name(status, got, sizeof(got)), error->code);
	if (!error->id[0] || !error->message[0])
		check_failed(file, line, "%.160s gave %s without an id or a message", call,
			     status_name(status, got, sizeof(got)));
	if (pl_error_format(error, text, sizeof(text)) <= 0)
		check_failed(file, line, "%.160s: its error formats to nothing", call);
}

void check_one_of_at(const char *file, int line, const char *call, int status, const int *expected, size_t count)
{
	char name[32];

	for (size_t i = 0; i < count; i++) {
		if (status == expected[i])
			return;
	}
	check_failed(file, line, "%.160s gave %s", call, status_name(status, name, sizeof(name)));
}

void check_completion_at(const char *file, int line, struct pl_context *context, const struct pl_completion *completion,
			 int expected)
{
	struct pl_error error = { 0 };

	pl_completion_error(context, completion, &error);
	check_status_at(file, line, "completion", completion->status, expected, &error);
}
