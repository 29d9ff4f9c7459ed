/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Partial file: a file named ".NAME.part" during its transfer.  A record behind the last byte of the file says which
 * version of the source it copies and how many bytes it has, so that an interrupted transfer can be resumed
 * (partial_record.h).  The record is valid only for the same version, and until the host reboots, because a reboot loses
 * data that the kernel has not yet written to disk.
 */
#ifndef PL_CMD_TRANSFER_PARTIAL_FILE_H
#define PL_CMD_TRANSFER_PARTIAL_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include <peerlane/peerlane.h>

#include "cmd/transfer/file_version.h"
#include "cmd/transfer/partial_key.h"

struct partial_file {
	int folder, fd;             /* the folder is the caller's */
	char *name, *temporary;     /* final name, and name during the transfer */
	struct file_version source; /* version of the source */
	const struct partial_key *key; /* of the record; NULL: the file cannot be resumed */
	uint64_t done;              /* length of the complete beginning in bytes */
	unsigned removed;           /* files of others that had the temporary name */
	bool streaming;             /* the bytes go to `fd` in order, and are not kept */
	uint64_t data;              /* bytes of the source that are not holes */
	bool whole;                 /* written by partial_file_write(): there is no record and no mapping */
	unsigned faults;            /* sigbus_guard_count() when the file was opened */
	uint8_t *bytes;             /* mapping of source.size bytes; NULL for an empty file */
};

/*
 * Opens, locks and maps the partial file of `name` in a folder.  Allocates its disk space, so that a full disk is an
 * error here and not later.
 *
 * @param data  bytes of the source that are not holes; less than its size: the file gets holes too, and its space is
 *              allocated as bytes arrive
 * @param key  of the record: keep the bytes that an earlier transfer of the same version recorded with this key; NULL:
 *             begin again, and make a file that cannot be resumed
 * @return 0; -EBUSY if another transfer writes the file; -ENOSPC, -EFBIG, or an error of open(2) or mmap(2)
 */
int partial_file_open(struct partial_file *partial, int folder, const char *name, const struct file_version *source,
		      uint64_t data, const struct partial_key *key, struct pl_error *error);

/* Forgets the bytes of the earlier transfer, which are not those of the source.  Returns 0 or an error of ftruncate(2). */
int partial_file_begin_again(struct partial_file *partial, struct pl_error *error);

/*
 * Prepares a pipe, device or open file, which has no name to give and cannot be resumed: memory receives the bytes, and
 * partial_file_record() writes them.  Owns `fd` afterwards, also on failure.
 */
int partial_file_open_stream(struct partial_file *partial, int fd, const char *name, const struct file_version *source,
			     struct pl_error *error);

/*
 * Writes a small file as a whole, with the source's permissions and time.  What remains is partial_file_commit().  The
 * file of an interrupted transfer is overwritten.
 */
int partial_file_write(struct partial_file *partial, int folder, const char *name, const struct file_version *source,
		       const void *bytes, struct pl_error *error);

/*
 * Locks a name, so that no transfer can give a file this name.  Makes an empty temporary file if there is none; its size
 * is 0 then.
 */
int partial_file_lock(struct partial_file *partial, int folder, const char *name, struct pl_error *error);

/* Records that the first `done` bytes are complete.  Returns 0 or a negative errno; -EINTR after a signal. */
int partial_file_record(struct partial_file *partial, uint64_t done);

/*
 * Renames the file to its final name and replaces an older file.  `sync`: first writes the bytes, and then the name, to
 * storage.  Returns -ESTALE if bytes were lost, -EIO if storage refuses them.
 */
int partial_file_commit(struct partial_file *partial, bool sync, struct pl_error *error);

/* For commits of several files without `sync`: waits until storage has the bytes of one, or the names of a folder. */
int partial_file_sync(struct partial_file *partial, struct pl_error *error);
int partial_folder_sync(int folder, const char *name, struct pl_error *error);

/* Closes the file; `discard` removes it unless it was committed.  Nothing may use the mapping any more. */
void partial_file_close(struct partial_file *partial, bool discard);

/* Writes the name of the partial file of a file: ".NAME.part", or a part of a NAME that is too long, and its digest. */
void partial_file_name(char temporary[NAME_MAX + 1], const char *name);
/* True if a path ends in a name that partial_file_open() gives, ".NAME.part". */
bool is_partial_file_name(const char *name);

#endif
