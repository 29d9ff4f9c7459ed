/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables of comma-separated values (RFC 4180): a line of names first, and each line ends with CR LF. */
#ifndef PL_CMD_COMMON_CSV_H
#define PL_CMD_COMMON_CSV_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Table that is written to a file, which the caller opens and closes. */
struct csv {
	FILE *file;
	bool begun; /* the line has a field */
};

/*
 * Adds a text, quoted if it has to be, with control characters replaced by '?', and with an apostrophe before one that looks
 * like a formula; NULL, or without memory: an empty field.
 */
void csv_text(struct csv *csv, const char *text);
/* Adds a number with 15 significant digits; NAN: an empty field. */
void csv_number(struct csv *csv, double value);
void csv_integer(struct csv *csv, uint64_t value);
/* Ends a line. */
void csv_end(struct csv *csv);
/* Writes a line of `count` names. */
void csv_names(struct csv *csv, const char *const *names, size_t count);

#endif
