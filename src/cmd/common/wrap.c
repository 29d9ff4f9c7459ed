/* SPDX-License-Identifier: BSD-2-Clause */
/* Paragraphs wrapped at the width of the terminal. */
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cmd/common/cli.h"

#define WIDTH_WITHOUT_TERMINAL 100
#define WIDTH_MIN 40
#define WIDTH_MAX 120
#define WRAP_INDENT 2 /* of the further rows of a line */

/* Returns the columns of a terminal, at least 40, or 0 if the descriptor is no terminal. */
static unsigned terminal_width(int fd)
{
	struct winsize size;

	if (ioctl(fd, TIOCGWINSZ, &size) < 0 || !size.ws_col)
		return 0;
	return CLI_MAX(size.ws_col, WIDTH_MIN);
}

unsigned wrap_width(void)
{
	unsigned width = terminal_width(STDOUT_FILENO);

	return width ? CLI_MIN(width, WIDTH_MAX) : WIDTH_WITHOUT_TERMINAL;
}

void wrap_print(const char *words, unsigned at, unsigned indent)
{
	unsigned width = wrap_width(), column = at;
	char copy[1024], *text = copy;
	bool first = true;

	snprintf(copy, sizeof(copy), "%s", words);
	cli_printable(copy, false);

	while (*(text += strspn(text, " "))) {
		unsigned length = (unsigned)strcspn(text, " ");

		if (!first && column + 1 + length > width) {
			printf("\n%*s", (int)indent, "");
			column = indent;
		} else if (!first) {
			putchar(' ');
			column++;
		}
		printf("%.*s", (int)length, text);
		column += length;
		text += length;
		first = false;
	}
	putchar('\n');
}

void wrap_line_add(struct wrap_line *line, const char *format, ...)
{
	size_t left = sizeof(line->text) - line->length;
	va_list arguments;
	int added;

	va_start(arguments, format);
	added = vsnprintf(line->text + line->length, left, format, arguments);
	va_end(arguments);
	if (added > 0)
		line->length += CLI_MIN((size_t)added, left - 1);
}

/*
 * Returns the bytes of the first word.  A command between backticks is one word, so that it can be copied as a whole.  A
 * single backtick, such as of a file's name, begins no command.
 */
static size_t word_bytes(const char *text)
{
	size_t bytes = 0;

	while (text[bytes] && text[bytes] != ' ') {
		const char *end = text[bytes] == '`' ? strchr(text + bytes + 1, '`') : NULL;

		bytes = end ? (size_t)(end - text) + 1 : bytes + 1;
	}
	return bytes;
}

/* Returns the number of bytes that fit into a row, up to a space, or those of the first word. */
static size_t fitting_bytes(const char *text, size_t columns)
{
	size_t fit = word_bytes(text), next = fit;

	while (text[fit] && (next = fit + 1 + word_bytes(text + fit + 1)) <= columns)
		fit = next;
	return fit;
}

size_t wrap_rows(char *to, size_t size, const char *text, FILE *for_file, unsigned indent)
{
	const unsigned width = terminal_width(fileno(for_file));
	size_t fit = width ? fitting_bytes(text, width) : strlen(text), used;

	used = (size_t)snprintf(to, size, "%.*s", (int)fit, text);
	for (text += fit; *text && used < size; text += fit) {
		fit = fitting_bytes(++text, width - indent);
		used += (size_t)snprintf(to + used, size - used, "\n%*s%.*s", (int)indent, "", (int)fit, text);
	}
	return used < size ? used : size - 1;
}

void wrap_line_print(struct wrap_line *line, FILE *to)
{
	char rows[2 * sizeof(line->text)];

	wrap_rows(rows, sizeof(rows), line->text, to, WRAP_INDENT);
	fprintf(to, "%s\n", rows);
	line->length = 0;
}
