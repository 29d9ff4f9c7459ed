/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file under way: it has the name ".NAME.part" until it is whole, and a record behind its last
 * byte that says what it is a copy of and how much of it is there, so that a transfer that was cut
 * can go on.  The record counts only for the same source, and until the host starts anew, as data
 * that the kernel had not yet written is then lost.
 */
#ifndef PL_CLI_PART_H
#define PL_CLI_PART_H

#include <stdbool.h>
#include <stdint.h>

#include <peerlane/peerlane.h>

struct part_source {
	uint64_t size;
	uint64_t modified; /* nanoseconds since 1970 */
	uint64_t identity;
};

struct part {
	int folder, fd;
	char *name, *temporary;
	struct part_source source;
	uint64_t done;   /* bytes from the beginning that are there */
	unsigned faults; /* guard_faults() when it began */
	uint8_t *bytes;  /* the mapping, `source.size` bytes; NULL for an empty file */
};

/*
 * Begins, or goes on with, the copy of a source as `name` in a folder.  The disk space is taken now,
 * so that running out of it is an error here.  The folder's descriptor stays the caller's.
 *
 * @param resume  false: begin anew, whatever is there
 * @return 0; -EBUSY if another transfer writes it; -ENOSPC, -EFBIG, and errors of open(2), mmap(2)
 */
int part_open(struct part *part, int folder, const char *name, const struct part_source *source, bool resume,
	      struct pl_error *error);

/* Notes that the first `done` bytes are there. */
int part_record(struct part *part, uint64_t done);

/* Gives the file its name, in place of an older one.  -ESTALE if bytes were lost meanwhile. */
int part_commit(struct part *part, struct pl_error *error);

/* Ends the use; `discard` removes the file unless it was committed.  The mapping must be unused. */
void part_close(struct part *part, bool discard);

/* Whether a name is one that part_open() makes. */
bool part_is_temporary(const char *name);

#endif
