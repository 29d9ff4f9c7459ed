/* SPDX-License-Identifier: BSD-2-Clause */
/* Version of a file: tells whether a file is still the one that a transfer began with. */
#ifndef PL_CMD_TRANSFER_FILE_VERSION_H
#define PL_CMD_TRANSFER_FILE_VERSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* Permissions that copies keep.  The bits above them would give a program the rights of its file's owner. */
#define FILE_MODE_MAX 0777u

struct file_version {
	uint64_t size;
	uint64_t modified; /* nanoseconds since 1970 */
	uint64_t identity; /* differs between files */
	uint32_t mode;     /* permissions, at most FILE_MODE_MAX; 0: unknown.  No part of the version. */
};

/* Returns the time of modification in nanoseconds since 1970. */
uint64_t file_modified(const struct stat *status);
/* Returns the version of a file.  Its identity is a hash of device and inode. */
struct file_version file_version_of(const struct stat *status);
bool file_version_equal(const struct file_version *a, const struct file_version *b);

#endif
