/* SPDX-License-Identifier: BSD-2-Clause */
/* Line of statistics on a terminal, which is drawn over itself. */
#ifndef PL_CMD_STREAM_STATUS_LINE_H
#define PL_CMD_STREAM_STATUS_LINE_H

#include <stdbool.h>
#include <stdint.h>

/* Time between two lines, over which rates are measured, in nanoseconds. */
#define STATUS_LINE_INTERVAL 500000000ull

struct status_line {
	bool shown; /* standard error is a terminal, and lines are wanted */
	bool drawn;
	uint64_t at;            /* time of the last line */
	uint64_t frames, bytes; /* then */
};

void status_line_begin(struct status_line *line, bool wanted);
/* True if it is time for another line. */
bool status_line_due(const struct status_line *line);
/* Draws frames a second and bytes a second since the last line, and a text. */
void status_line_draw(struct status_line *line, uint64_t frames, uint64_t bytes, const char *text);
/* Draws a text alone.  Rates begin anew. */
void status_line_tell(struct status_line *line, const char *text);
/* Clears the line. */
void status_line_end(struct status_line *line);

#endif
