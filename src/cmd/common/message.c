/* SPDX-License-Identifier: BSD-2-Clause */
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

#include "cmd/common/cli.h"
#include "cmd/common/systemd.h"

static void copy_text(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from ? from : "");
}

int cli_fail(struct pl_error *error, int code, const char *id, const char *object, const char *hint, const char *format,
	     ...)
{
	va_list arguments;

	error->code = code;
	copy_text(error->id, sizeof(error->id), id);
	copy_text(error->call, sizeof(error->call), NULL);
	copy_text(error->object, sizeof(error->object), object);
	copy_text(error->hint, sizeof(error->hint), hint);
	va_start(arguments, format);
	vsnprintf(error->message, sizeof(error->message), format, arguments);
	va_end(arguments);
	return code;
}

static const char *hint_of(int code)
{
	switch (-code) {
	case ENOENT:
		return "check the name";
	case ENOTDIR:
		return "a part of the path is no folder: check the name";
	case EISDIR:
		return "this is a folder: name a file";
	case EEXIST:
		return "remove it, or choose another name";
	case ENAMETOOLONG:
		return "choose a shorter name";
	case ELOOP:
		return "name the file itself, rather than a symbolic link to it";
	case ENXIO:
		return "start the reader of the pipe first, or check that the device exists";
	case EPIPE:
		return "see why the reader of the output ended";
	case EBUSY:
	case ETXTBSY:
		return "end the process that uses it, and repeat the command";
	case ENOMEM:
		return "end other programs, or raise the limit: ulimit -v, or MemoryMax= of the unit";
	case EAGAIN:
		return "raise the limit of processes and threads: ulimit -u, or TasksMax= of the unit";
	case EIO:
		return "check the disk and the kernel log (dmesg)";
	case ESTALE:
		return "check the network file system and its server, and repeat the command";
	case ETIMEDOUT:
		return "repeat the command, or allow more time with --timeout";
	case ENOSYS:
	case EOPNOTSUPP:
		return "use a newer kernel, or another file system";
	case ENOSPC:
	case EDQUOT:
		return "free space there, or choose another place";
	case EFBIG:
		return "raise the limit of file sizes: ulimit -f, or LimitFSIZE= of the unit; or choose another file "
		       "system";
	case EACCES:
	case EPERM:
	case EROFS:
		return "check the permissions, or choose another place";
	case EMFILE:
		return "raise the limit of open files: ulimit -n, or LimitNOFILE= of the unit";
	case ENFILE:
		return "raise the host's limit of open files: sysctl fs.file-max";
	default:
		return "the manual page of the call, in section 2 or 3, names the reasons of this error";
	}
}

const char *cli_hint(const struct pl_error *error)
{
	/* Remedies for errors of the library, whose hints name its options and know no other command. */
	static const struct {
		const char *id, *hint;
	} own[] = {
		{ "INSECURE-ADDRESS",
		  "set a key at both ends (--key FILE), or allow connections without a key (--insecure)" },
		{ "LISTEN-IN-USE", "stop the program that listens there, or give both ends another port, as in "
				   "127.0.0.1:19876: the default, " CLI_DEFAULT_PORT ", is that of all commands" },
		{ "IDENTITY-NEEDED",
		  "make an identity (peerlane key generate FILE), have it admitted, and show it with --identity FILE" },
	};

	if (!error->hint[0] && !strcmp(error->id, "SYSTEM"))
		return hint_of(error->code);
	/* An error of the command's own names no call. */
	for (size_t i = 0; error->call[0] && i < CLI_ARRAY_SIZE(own); i++)
		if (!strcmp(error->id, own[i].id))
			return own[i].hint;
	return error->hint;
}

int cli_fail_errno(struct pl_error *error, int code, const char *call, const char *object)
{
	const bool limited = code == -EMFILE || code == -ENFILE;
	char text[96];

	cli_fail(error, code, limited ? "DESCRIPTOR-LIMIT" : "SYSTEM", object, hint_of(code), "%s",
		 strerror_r(-code, text, sizeof(text)));
	copy_text(error->call, sizeof(error->call), call);
	return code;
}

int cli_fail_new_path(struct pl_error *error, int code, const char *call, const char *path)
{
	cli_fail_errno(error, code, call, path);
	if (code == -ENOENT)
		copy_text(error->hint, sizeof(error->hint), "create the folder first, with mkdir -p");
	return code;
}

int cli_fail_as(struct pl_error *error, const char *id)
{
	copy_text(error->id, sizeof(error->id), id);
	return error->code;
}

/* Levels of syslog(3). */
#define LEVEL_ERROR 3
#define LEVEL_WARNING 4
#define MESSAGE_INDENT 4 /* of the further rows of a line; a hint begins with two spaces */

/*
 * Prints a message of one or more lines to standard error, in one write.  Each line has its level if the lines go to the
 * journal, which makes an entry of each line.
 */
static void print_message(int level, const char *kind, char *text)
{
	char output[3 * sizeof(struct pl_error)], whole[sizeof(output) / 2], prefix[8] = "";
	size_t used = 0;

	if (systemd_journal())
		snprintf(prefix, sizeof(prefix), "<%d>", level);
	cli_printable(text, true);
	/* Leaves room for the newline, and for a byte of the next line. */
	for (char *line = text; line && used + 2 < sizeof(output); kind = "") {
		char *end = strchr(line, '\n');

		if (end)
			*end++ = '\0';
		snprintf(whole, sizeof(whole), "%s%s%s", prefix, kind, line);
		used += wrap_rows(output + used, sizeof(output) - used - 1, whole, stderr, MESSAGE_INDENT);
		output[used++] = '\n';
		output[used] = '\0';
		line = end;
	}
	fputs(output, stderr);
}

int cli_report(const struct pl_error *error)
{
	char text[sizeof(*error) + 32];
	struct pl_error shown = *error;

	cli_escape(shown.object, sizeof(shown.object), error->object);
	copy_text(shown.hint, sizeof(shown.hint), cli_hint(error));
	pl_error_format(&shown, text, sizeof(text));
	print_message(LEVEL_ERROR, "peerlane: ", text);
	return CLI_FAILED;
}

void cli_warn(const char *format, ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	print_message(LEVEL_WARNING, "peerlane: warning: ", text);
}

int cli_finish_output(int status)
{
	int failure = 0;

	if (fflush(stdout))
		failure = errno;
	else if (!ferror(stdout))
		return status;
	/* The write(2) that failed may be long ago; another one fails for the same reason. */
	if (!failure && write(STDOUT_FILENO, "\n", 1) < 0)
		failure = errno;
	if (failure != EPIPE)
		fprintf(stderr, "peerlane: the output is incomplete: %s\n",
			failure ? strerror(failure) : "standard output cannot be written");
	return CLI_OUTPUT;
}

const char *cli_escape(char *buffer, size_t size, const char *text)
{
	size_t used = 0;

	while (*text) {
		/* A backslash before an x is escaped, so that no other name looks alike. */
		bool hidden = (text[0] == '\\' && text[1] == 'x') || iscntrl((unsigned char)*text);
		mbstate_t state = { 0 };
		wchar_t wide;
		size_t length = hidden ? 1 : mbrtowc(&wide, text, MB_CUR_MAX, &state);

		if (!hidden && (length > MB_CUR_MAX || !iswprint((wint_t)wide))) {
			hidden = true;
			length = length > MB_CUR_MAX ? 1 : length;
		}
		if (used + (hidden ? 4 : 1) * length >= size)
			break;
		for (size_t i = 0; i < length; i++)
			used += (size_t)snprintf(buffer + used, size - used, hidden ? "\\x%02x" : "%c",
						 (unsigned char)text[i]);
		text += length;
	}
	buffer[used] = '\0';
	return buffer;
}

void cli_printable(char *text, bool keep_newlines)
{
	for (unsigned char *at = (unsigned char *)text; *at; at++) {
		/* UTF-8 has the second set of control characters as C2 80 to C2 9F. */
		bool second_set = at[0] == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f;

		if (*at == '\n' && keep_newlines)
			continue;
		if (second_set)
			at[1] = '?';
		if (*at < ' ' || *at == 0x7f || second_set)
			*at = '?';
	}
}

uint64_t cli_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * CLI_NS_PER_S + (uint64_t)now.tv_nsec;
}
