/* SPDX-License-Identifier: BSD-2-Clause */
/* Paragraphs wrapped at the width of the terminal. */
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cmd/common/cli.h"

#define WIDTH_WITHOUT_TERMINAL 100
#define WIDTH_MIN 40
#define WIDTH_MAX 120

unsigned wrap_width(void)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_col)
		return WIDTH_WITHOUT_TERMINAL;
	return CLI_MAX(CLI_MIN(size.ws_col, WIDTH_MAX), WIDTH_MIN);
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
