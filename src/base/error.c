/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>

static void copy_error_text(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from ? from : "");
}

/* Copies an object. Of a long one, such as a path, it keeps the end, which tells more: the file and the line. */
static void copy_object(char *to, size_t size, const char *from)
{
	size_t length = from ? strlen(from) : 0;
	const char *tail;

	if (length < size) {
		copy_error_text(to, size, from);
		return;
	}
	tail = from + length - (size - sizeof("..."));
	/* Not within a character of UTF-8. */
	while ((*tail & 0xc0) == 0x80)
		tail++;
	snprintf(to, size, "...%s", tail);
}

int pl_fail(struct pl_error *error, int code, const char *id, const char *call, const char *object, const char *hint,
	    const char *format, ...)
{
	va_list arguments;

	if (!error)
		return code;
	error->code = code;
	copy_error_text(error->id, sizeof(error->id), id);
	copy_error_text(error->call, sizeof(error->call), call);
	copy_object(error->object, sizeof(error->object), object);
	copy_error_text(error->hint, sizeof(error->hint), hint);
	va_start(arguments, format);
	vsnprintf(error->message, sizeof(error->message), format, arguments);
	va_end(arguments);
	return code;
}

int pl_fail_errno(struct pl_error *error, int code, const char *id, const char *call, const char *object)
{
	char text[96];

	return pl_fail(error, code, id, call, object, NULL, "%s", strerror_r(-code, text, sizeof(text)));
}

int pl_fail_memory(struct pl_error *error, const char *call)
{
	return pl_fail(error, -ENOMEM, "NO-MEMORY", call, NULL, NULL, "out of memory");
}

int pl_error_format(const struct pl_error *error, char *buffer, size_t size)
{
	const char *separator_object = error->object[0] ? ": " : "";
	const char *separator_call = error->call[0] ? ": " : "";
	const char *before_hint = error->hint[0] ? "\n  hint: " : "";

	return snprintf(buffer, size, "%s%s%s%s%s [%s]%s%s", error->object, separator_object, error->call,
			separator_call, error->message, error->id, before_hint, error->hint);
}
