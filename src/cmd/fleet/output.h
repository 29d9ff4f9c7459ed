/* SPDX-License-Identifier: BSD-2-Clause */
/* Outputs of `peerlane fleet`. */
#ifndef PL_CMD_FLEET_OUTPUT_H
#define PL_CMD_FLEET_OUTPUT_H

#include "cmd/fleet/judge.h"

/* Returns hosts of a fleet in compressed form, to be freed; NULL without memory. */
char *fleet_fold_hosts(const struct fleet *fleet, const size_t *hosts, size_t count);
/*
 * Divides names in compressed form into lines behind commas, if standard output is a terminal; else each group is one line,
 * for grep(1).  The column then does not shrink for the others.
 */
void fleet_break_hosts(char *folded);
/* Lets a column of a table show the lines of fleet_break_hosts(). */
void fleet_set_hosts_column(struct libscols_table *table, size_t column);
/* Size of a text of fleet_format_items(). */
#define FLEET_ITEMS_TEXT 1600
/* Writes the first items of a row as one text; with HOST for the host's name in the reason of a silence if `several`. */
void fleet_format_items(char *buffer, size_t size, const struct fleet *fleet, const struct fleet_row *row,
			bool several);
/* Prints the table and the summary (table.c).  Returns 0 or -ENOMEM. */
int fleet_print(const struct fleet *fleet, bool quiet);
/* Returns the JSON document (document.c); docs/fleet.schema.json describes it. */
struct json_object *fleet_document(const struct fleet *fleet);

#endif
