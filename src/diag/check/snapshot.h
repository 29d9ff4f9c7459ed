/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files of a machine in memory: a capture that serves as a root (topology/sysroot.h) elsewhere, and a root that
 * captures all reads.
 */
#ifndef PL_DIAG_CHECK_SNAPSHOT_H
#define PL_DIAG_CHECK_SNAPSHOT_H

#include <stdio.h>

#include "topology/sysroot.h"

#define PL_SNAPSHOT_FILE_MAX (4u << 20)
#define PL_SNAPSHOT_BYTES_MAX (256u << 20)
#define PL_SNAPSHOT_ENTRIES_MAX 200000

struct pl_snapshot;

struct pl_snapshot_entry {
	const char *path; /* without a leading slash */
	enum pl_sysroot_kind kind;
	const char *data; /* content of a file; target of a link */
	size_t length;
	bool unreadable; /* it exists, and this user may not read it */
};

struct pl_snapshot *pl_snapshot_new(void);
void pl_snapshot_free(struct pl_snapshot *snapshot);

/*
 * Adds an entry and the folders above it. An existing entry stays, except that a file of unknown content gets it.
 * Returns -EINVAL for paths that leave the root, -EFBIG beyond the limits above.
 */
int pl_snapshot_add(struct pl_snapshot *snapshot, const struct pl_snapshot_entry *entry);
/* Replaces the content of a file. */
int pl_snapshot_replace(struct pl_snapshot *snapshot, const char *path, const char *data, size_t length);
/* Calls the function for all entries in the order of their paths; folders come before their content. */
void pl_snapshot_each(const struct pl_snapshot *snapshot,
		      void (*visit)(const struct pl_snapshot_entry *entry, void *user), void *user);
size_t pl_snapshot_count(const struct pl_snapshot *snapshot);

/* Returns a root that reads from the snapshot; closing the root frees the snapshot. */
struct pl_sysroot *pl_snapshot_root(struct pl_snapshot *snapshot);

/* Reads files that such a root opened, directly or through another root. */
int pl_snapshot_read(struct pl_sysroot_file *file, void *buffer, size_t size);
void pl_snapshot_shut(struct pl_sysroot_file *file);

/* Returns a root that reads from `inner` and records into the snapshot; it owns neither. NULL without memory. */
struct pl_sysroot *pl_snapshot_recorder(struct pl_snapshot *snapshot, struct pl_sysroot *inner);

/* Returns the root below a recorder, whose reads are not recorded; any other root as it is. */
struct pl_sysroot *pl_snapshot_unrecorded(struct pl_sysroot *root);

/* -- tar files (archive.c) ----------------------------------------------------------------------------- */

/* Writes a tar file with a digest, and flushes it. Returns 0 or a negative errno. */
int pl_archive_write(const struct pl_snapshot *snapshot, FILE *file);
/* Reads a tar file of pl_archive_write(), or of tar(1) without compression. Refuses one without its end mark. */
int pl_archive_read(struct pl_snapshot **ret, const char *path, struct pl_error *error);
/* Reads a tar file in memory. */
int pl_archive_parse(struct pl_snapshot *snapshot, const void *bytes, size_t length, struct pl_error *error);

/* Opens a folder, or a tar file, that stands for a machine; NULL: this machine. */
int pl_archive_open_root(struct pl_sysroot **ret, const char *path, struct pl_error *error);

#endif
