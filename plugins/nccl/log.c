/* SPDX-License-Identifier: BSD-2-Clause */
/* Lines of NCCL's log. The plugin writes nowhere else. */
#include <stdarg.h>
#include <stdio.h>

#include "state.h"

static void write_line(enum net_log_level level, unsigned long flags, const char *format, va_list arguments)
{
	char line[768];

	if (!plugin.log)
		return;
	vsnprintf(line, sizeof(line), format, arguments);
	/* NCCL shows a name and a line in front of warnings. */
	plugin.log(level, flags, "peerlane", 0, "NET/Peerlane : %s", line);
}

void plugin_warn(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_line(NET_LOG_WARN, NET_LOG_INIT | NET_LOG_NET, format, arguments);
	va_end(arguments);
}

void plugin_info(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_line(NET_LOG_INFO, NET_LOG_INIT | NET_LOG_NET, format, arguments);
	va_end(arguments);
}

void plugin_format_error(const struct pl_error *error, char *text, size_t size)
{
	pl_error_format(error, text, size);
	/* A line of the log has no line breaks. */
	for (char *at = text; (at = strchr(at, '\n'));)
		*at = ';';
}

void plugin_warn_error(const char *action, const struct pl_error *error)
{
	char text[600];

	plugin_format_error(error, text, sizeof(text));
	plugin_warn("%s: %s", action, text);
}
