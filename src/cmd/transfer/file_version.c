/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/file_version.h"

#include "cmd/transfer/hash.h"

uint64_t file_modified(const struct stat *status)
{
	return (uint64_t)status->st_mtim.tv_sec * 1000000000u + (uint64_t)status->st_mtim.tv_nsec;
}

struct file_version file_version_of(const struct stat *status)
{
	/* The time of the last change of status cannot be set back, as `touch -r` does with that of modification. */
	uint64_t inode[4] = { (uint64_t)status->st_dev, (uint64_t)status->st_ino, (uint64_t)status->st_ctim.tv_sec,
			      (uint64_t)status->st_ctim.tv_nsec };

	return (struct file_version){
		.size = (uint64_t)status->st_size,
		.modified = file_modified(status),
		.identity = hash_small(inode, sizeof(inode)),
		.mode = status->st_mode & FILE_MODE_MAX,
	};
}

bool file_version_equal(const struct file_version *a, const struct file_version *b)
{
	return a->size == b->size && a->modified == b->modified && a->identity == b->identity;
}
