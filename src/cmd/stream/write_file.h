/* SPDX-License-Identifier: BSD-2-Clause */
/* Writing of frames into files. */
#ifndef PL_CMD_STREAM_WRITE_FILE_H
#define PL_CMD_STREAM_WRITE_FILE_H

#include <stdbool.h>
#include <stdint.h>

/* Writes all bytes into a regular file.  Returns 0 or a negative errno. */
int stream_write_file(int fd, const void *bytes, uint64_t length);
/* Writes as stream_write_file() does, and sets *count to the number of bytes written, also after a failure. */
int stream_write_counted(int fd, const void *bytes, uint64_t length, uint64_t *count);
/* True if a path ends so, with a name before. */
bool stream_name_ends(const char *path, const char *end);

#endif
