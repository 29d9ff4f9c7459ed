/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * File with the latest frame of a stream (--snapshot), replaced as a whole.  A thread of its own copies the frame from a GPU and
 * writes the file, so that a slow disk delays no frame.
 */
#ifndef PL_CMD_STREAM_SNAPSHOT_H
#define PL_CMD_STREAM_SNAPSHOT_H

#include <pthread.h>
#include <stdbool.h>

#include "cmd/stream/frame_bytes.h"

/* Least time between two replacements, in nanoseconds. */
#define SNAPSHOT_INTERVAL 250000000ull
/* Frames that a snapshot keeps: one that waits, and one that is being written. */
#define SNAPSHOT_FRAMES 2u

struct snapshot {
	const char *path;         /* NULL: none */
	struct pl_layout layout;  /* of the stream */
	struct frame_bytes bytes; /* the thread's */
	pthread_t thread;
	bool running;
	pthread_mutex_t lock; /* all below */
	pthread_cond_t changed;
	struct pl_stream_frame *frame; /* waits to be written; NULL: none */
	bool writing, flush, stop;
	uint64_t next;    /* cli_now() from which the file may be replaced */
	uint64_t written; /* times that the file was replaced */
	int rc;           /* of the first failure; 0: none */
	struct pl_error error;
};

/* True if the name of the file ends in .png or .npy. */
bool snapshot_path_valid(const char *path);
/* Returns -ENOTSUP if the file cannot have frames of this layout. */
int snapshot_check(const struct snapshot *snapshot, const struct pl_layout *layout, struct pl_error *error);
/* Begins to keep frames, which are in a kind of memory.  Returns 0 or a negative errno. */
int snapshot_open(struct snapshot *snapshot, const char *path, const struct pl_layout *layout, const char *memory,
		  struct pl_error *error);
/*
 * Takes over a frame, releases the one that waits, and returns 0 or the errno of an earlier failure; the frame is taken over in
 * any case.
 */
int snapshot_take(struct snapshot *snapshot, struct pl_stream_frame *frame, struct pl_error *error);
/* Returns 0, or the errno of an earlier failure.  `pending`: true while a frame is being written, or waits for that. */
int snapshot_look(struct snapshot *snapshot, bool *pending, struct pl_error *error);
/* Writes the frame that waits, and returns once no frame is held: 0, or the errno of the first failure. */
int snapshot_flush(struct snapshot *snapshot, struct pl_error *error);
/* Ends the thread, and releases its frames.  Before the subscriber is closed. */
void snapshot_close(struct snapshot *snapshot);

#endif
