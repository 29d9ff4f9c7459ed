/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files of a machine in memory: what was captured there, as a root (topology/sysroot.h) elsewhere; and a root that
 * captures what is read through it.
 */
#ifndef PL_DIAG_CHECK_SNAPSHOT_H
#define PL_DIAG_CHECK_SNAPSHOT_H

#include "topology/sysroot.h"

#define PL_SNAPSHOT_FILE_MAX (4u << 20)
#define PL_SNAPSHOT_BYTES_MAX (256u << 20)
#define PL_SNAPSHOT_ENTRIES_MAX 200000

struct pl_snapshot;

struct pl_snapshot_entry {
	const char *path; /* without a slash in front */
	enum pl_sysroot_kind kind;
	const char *data; /* of a file; where a link points to */
	size_t length;
	bool unreadable; /* it is there, and this user may not read it */
};

struct pl_snapshot *pl_snapshot_new(void);
void pl_snapshot_free(struct pl_snapshot *snapshot);

/*
 * Adds an entry and the folders above it.  What is there already stays, but a file whose content was not known gets
 * it.  Paths that leave the root are -EINVAL; beyond the limits above -EFBIG.
 */
int pl_snapshot_add(struct pl_snapshot *snapshot, const struct pl_snapshot_entry *entry);
/* Gives a file this content, whatever it had. */
int pl_snapshot_replace(struct pl_snapshot *snapshot, const char *path, const char *data, size_t length);
/* All entries, in the order of their paths, folders before what is in them. */
void pl_snapshot_each(const struct pl_snapshot *snapshot,
		      void (*visit)(const struct pl_snapshot_entry *entry, void *user), void *user);
size_t pl_snapshot_count(const struct pl_snapshot *snapshot);

/* A root that reads from it; closing the root frees the snapshot. */
struct pl_sysroot *pl_snapshot_root(struct pl_snapshot *snapshot);

/* Of files that such a root opened, whichever root gave them out. */
int pl_snapshot_read(struct pl_sysroot_file *file, void *buffer, size_t size);
void pl_snapshot_shut(struct pl_sysroot_file *file);

/* A root that reads from `inner` and puts all that was read into the snapshot; it owns neither.  NULL without memory. */
struct pl_sysroot *pl_snapshot_recorder(struct pl_snapshot *snapshot, struct pl_sysroot *inner);

/* -- as a file (archive.c) ----------------------------------------------------------------------------- */

/* Writes a tar file.  0, or a negative errno. */
int pl_archive_write(const struct pl_snapshot *snapshot, const char *path, struct pl_error *error);
/* Reads one that was written so, or by tar(1) without compression. */
int pl_archive_read(struct pl_snapshot **ret, const char *path, struct pl_error *error);
/* The same from memory. */
int pl_archive_parse(struct pl_snapshot *snapshot, const void *bytes, size_t length, struct pl_error *error);

/* A folder, or a tar file, that stands for a machine; NULL is this machine. */
int pl_archive_open_root(struct pl_sysroot **ret, const char *path, struct pl_error *error);

#endif
