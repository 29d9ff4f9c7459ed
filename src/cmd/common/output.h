/* SPDX-License-Identifier: BSD-2-Clause */
/* JSON and tables on standard output, and files. */
#ifndef PL_CLI_OUTPUT_H
#define PL_CLI_OUTPUT_H

#include <json-c/json.h>
#include <libsmartcols.h>

#include "cmd/common/cli.h"

/* Any bytes as a JSON string: what is no UTF-8 becomes U+FFFD.  NULL becomes null. */
struct json_object *cli_json_text(const char *text);
/* { "code", "id", "call", "object", "message", "hint" } */
struct json_object *cli_json_error(const struct pl_error *error);
/* Adds a member; the object takes the value over. */
void cli_json_add(struct json_object *object, const char *name, struct json_object *value);
/* Prints on standard output and flushes: `pretty` over several lines, else as one. Takes it over. */
void cli_json_print(struct json_object *object, bool pretty);

/* An error that ends the command: on standard error, and with --json as { "error" } too.  CLI_FAILED. */
int cli_report_for(const struct cli_options *options, const struct pl_error *error);

/* A file to write anew, or, with "-", standard output; NULL after an error. */
FILE *cli_file_open(const char *path, struct pl_error *error);
/* Its end: `status` is what came of writing so far; returned, with an error, is what came of all of it. */
int cli_file_close(FILE *file, const char *path, int status, struct pl_error *error);

/* "direct", "staged", "none". */
const char *cli_route_name(enum pl_route route);

struct cli_column {
	const char *name;
	int flags; /* SCOLS_FL_* */
};

/* A table for people; NULL if there is no memory. */
struct libscols_table *cli_table(const struct cli_column *columns, size_t count);
struct libscols_line *cli_table_line(struct libscols_table *table);
void cli_table_set(struct libscols_line *line, size_t column, const char *text);
/* Prints on standard output and releases it. */
void cli_table_print(struct libscols_table *table);

#endif
