/* SPDX-License-Identifier: BSD-2-Clause */
/* Files of a directory here, and their names at the server. */
#ifndef PL_CMD_TRANSFER_LOCAL_TREE_H
#define PL_CMD_TRANSFER_LOCAL_TREE_H

#include "cmd/transfer/transfer.h"

struct local_tree {
	char **paths; /* of the files; owned */
	char **names; /* at the server; owned */
	size_t count;
	unsigned skipped; /* entries that are neither regular files nor directories */
};

/*
 * Adds the files below a directory as transfers.  Their names begin with `prefix`; NULL: with the directory's own name,
 * which is empty for "." and "/".
 */
int local_tree_add(struct local_tree *tree, struct transfer_command *command, const char *path, const char *prefix,
		   struct pl_error *error);
void local_tree_free(struct local_tree *tree);

#endif
