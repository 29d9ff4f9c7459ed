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

/* Returns the number of bytes that fit into a row, up to a space, or those of the first word. */
static size_t fitting_bytes(const char *text, size_t columns)
{
	size_t fit = strcspn(text, " "), next = fit;

	while (text[fit] && (next = fit + 1 + strcspn(text + fit + 1, " ")) <= columns)
		fit = next;
	return fit;
}

void wrap_line_print(struct wrap_line *line, FILE *to)
{
	const unsigned width = terminal_width(fileno(to));
	const char *text = line->text;
	size_t fit = width ? fitting_bytes(text, width) : line->length;

	fprintf(to, "%.*s", (int)fit, text);
	for (text += fit; *text; text += fit) {
		fit = fitting_bytes(++text, width - WRAP_INDENT);
		fprintf(to, "\n%*s%.*s", WRAP_INDENT, "", (int)fit, text);
	}
	fputc('\n', to);
	line->length = 0;
}
