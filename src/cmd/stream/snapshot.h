/* SPDX-License-Identifier: BSD-2-Clause */
/* File with the latest frame of a stream (--snapshot), replaced as a whole. */
#ifndef PL_CMD_STREAM_SNAPSHOT_H
#define PL_CMD_STREAM_SNAPSHOT_H

#include <stdbool.h>

#include "cmd/stream/frame_bytes.h"

/* Least time between two replacements, in nanoseconds. */
#define SNAPSHOT_INTERVAL 250000000ull

struct snapshot {
	const char *path;              /* NULL: none */
	struct pl_layout layout;       /* of the stream */
	struct frame_bytes *bytes;
	struct pl_stream_frame *frame; /* taken, and not in the file yet; NULL: none */
	uint64_t next;                 /* cli_now() from which the file may be replaced */
	uint64_t written;              /* times that the file was replaced */
};

/* True if the name of the file ends in .png or .npy. */
bool snapshot_path_valid(const char *path);
/* Returns -ENOTSUP if the file cannot have frames of this layout. */
int snapshot_check(const struct snapshot *snapshot, const struct pl_layout *layout, struct pl_error *error);
/*
 * Takes over a frame, releases the one before, and replaces the file if it is time.  Returns 0 or a negative errno; the
 * frame is taken over in any case.
 */
int snapshot_take(struct snapshot *snapshot, struct pl_stream_frame *frame, struct pl_error *error);
/* Replaces the file if there is a frame for it, and it is time or `last`. */
int snapshot_write(struct snapshot *snapshot, bool last, struct pl_error *error);

#endif
