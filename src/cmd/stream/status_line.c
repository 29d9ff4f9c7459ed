/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/status_line.h"

#include <stdio.h>
#include <unistd.h>

#include "cmd/common/cli.h"
#include "cmd/common/units.h"

void status_line_begin(struct status_line *line, bool wanted)
{
	*line = (struct status_line){ .shown = wanted && isatty(STDERR_FILENO), .at = cli_now() };
}

bool status_line_due(const struct status_line *line)
{
	return line->shown && cli_now() - line->at >= STATUS_LINE_INTERVAL;
}

void status_line_draw(struct status_line *line, uint64_t frames, uint64_t bytes, const char *text)
{
	uint64_t now = cli_now(), span = now - line->at;
	char rate[CLI_UNIT_MAX];

	if (!span)
		return;
	fprintf(stderr, "\r%.1f frames/s  %s  %s\033[K", (double)(frames - line->frames) * 1e9 / (double)span,
		cli_format_rate(rate, bytes - line->bytes, span), text);
	fflush(stderr);
	line->drawn = true;
	line->at = now;
	line->frames = frames;
	line->bytes = bytes;
}

void status_line_tell(struct status_line *line, const char *text)
{
	if (!line->shown)
		return;
	fprintf(stderr, "\r%s\033[K", text);
	fflush(stderr);
	line->drawn = true;
	line->at = cli_now();
}

void status_line_end(struct status_line *line)
{
	if (line->drawn)
		fputs("\r\033[K", stderr);
	line->drawn = false;
}
