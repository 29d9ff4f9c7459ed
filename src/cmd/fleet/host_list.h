/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of hosts, and their compressed form: node[001-200,205]. */
#ifndef PL_CMD_FLEET_HOST_LIST_H
#define PL_CMD_FLEET_HOST_LIST_H

#include "cmd/common/cli.h"

#define FLEET_HOSTS_MAX 16384u /* names in a list */
#define FLEET_NAME_MAX 255u    /* bytes of a name */

struct host_list {
	char **names;
	size_t count, room;
};

/*
 * Adds the hosts of an expression: names, divided by commas or blanks, in which [LOW-HIGH,...] stands for numbers.  The
 * numbers have at least as many digits as LOW.  After an error the list has the names before it.
 */
int host_list_add(struct host_list *list, const char *expression, struct pl_error *error);
/* Adds the hosts of a text of lines, in which # begins a comment.  `file` names it in errors. */
int host_list_add_lines(struct host_list *list, char *text, const char *file, struct pl_error *error);
/* Adds the hosts of a file; "-": standard input. */
int host_list_read(struct host_list *list, const char *file, struct pl_error *error);
/* Removes names that come again, *repeated of them, and the names of `without`.  The order stays. */
int host_list_reduce(struct host_list *list, const struct host_list *without, size_t *repeated, struct pl_error *error);
void host_list_free(struct host_list *list);

/*
 * Returns names in compressed form, to be freed (fold.c); NULL without memory.  host_list_add() makes the same set of
 * names of it.
 */
char *host_list_fold(const char *const *names, size_t count);

#endif
