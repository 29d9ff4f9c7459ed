/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that decide about trust: other users must not be able to change them. */
#ifndef PL_TRUSTED_FILE_H
#define PL_TRUSTED_FILE_H

#include <limits.h>

#include "base/base.h"

/* Largest file, in bytes. */
#define PL_TRUSTED_FILE_MAX (4u << 20)

/*
 * Reads a file and appends a NUL. The file must be a regular one of root or of this user, that no other user can write
 * (as the folder that it is in), and if it is `secret`, that no other user can read: "FILE-UNSAFE" otherwise. A group may
 * read a secret of root: services get their keys that way. A file with a byte 0 is refused: "FILE-TEXT".
 *
 * `text` receives memory of the allocator, which the caller frees. Returns 0, -EACCES, -EFBIG, -EINVAL, -ENOMEM, or an
 * error of open(2).
 */
int pl_trusted_file_read(const struct pl_allocator *allocator, const char *path, bool secret, char **text,
			 size_t *length, struct pl_error *error);

/* Writes "PATH:LINE", the object of an error in a file. pl_fail() keeps its end. */
#define PL_FILE_LINE_MAX (PATH_MAX + sizeof(":4294967295"))
const char *pl_file_line(char text[PL_FILE_LINE_MAX], const char *path, unsigned line);

#endif
