/* SPDX-License-Identifier: BSD-2-Clause */
/* Folders of files that are stored together, below one folder. */
#ifndef PL_CMD_TRANSFER_FOLDER_SET_H
#define PL_CMD_TRANSFER_FOLDER_SET_H

#include <stdbool.h>
#include <stddef.h>

#include <peerlane/peerlane.h>

/*
 * Opens the folder of a name below `base`.  No component may be a symbolic link.  `make`: makes the folders that are
 * missing.  Returns a descriptor and sets *last to the last component of the name.
 */
int folder_open(int base, const char *name, bool make, const char **last, struct pl_error *error);

/* Fails with -EISDIR "NOT-A-FILE" if a folder has a folder under the last component of a name, where a file shall be. */
int folder_check_target(int folder, const char *name, const char *last, struct pl_error *error);

/* Open folders.  Files with the same parent as the file before them share one. */
struct folder_set {
	int base;
	bool make;
	int *folders;
	size_t count;
	const char *name; /* of the last file, whose folder is the last one; kept by the caller */
	size_t length;    /* of the folder's part of it */
};

/* Returns the folder of a file, which belongs to the set, or a negative errno. */
int folder_set_find(struct folder_set *set, const char *name, const char **last, struct pl_error *error);
void folder_set_close(struct folder_set *set);

#endif
