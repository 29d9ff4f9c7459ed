/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

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

/* Counts the open descriptors without opening one: since Linux 6.2 they are the size of this folder. 0: unknown. */
static unsigned long long count_descriptors(void)
{
	struct stat status;

	return stat("/proc/self/fd", &status) == 0 ? (unsigned long long)status.st_size : 0;
}

/* Names the limit of descriptors that a system call met: of this process, or of the host. */
static int fail_descriptor_limit(struct pl_error *error, int code, const char *call, const char *object)
{
	unsigned long long open = count_descriptors();
	struct rlimit limit = { 0 };
	char text[48] = "";

	if (code == -ENFILE)
		return pl_fail(error, code, "DESCRIPTOR-LIMIT", call, object,
			       "raise the limit of the host: sysctl -w fs.file-max=NUMBER",
			       "this host has no free file descriptor (fs.file-max)");
	getrlimit(RLIMIT_NOFILE, &limit);
	if (open)
		snprintf(text, sizeof(text), ", and %llu are open", open);
	return pl_fail(error, code, "DESCRIPTOR-LIMIT", call, object,
		       "raise it: ulimit -n NUMBER in the shell, LimitNOFILE=NUMBER in the unit of systemd",
		       "this process has no free file descriptor: its limit is %llu (RLIMIT_NOFILE)%s",
		       (unsigned long long)limit.rlim_cur, text);
}

int pl_fail_errno(struct pl_error *error, int code, const char *id, const char *call, const char *object)
{
	char text[96];

	if (pl_lacks_descriptor(code))
		return fail_descriptor_limit(error, code, call, object);
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
