/* SPDX-License-Identifier: BSD-2-Clause */
/* Origin of the frames that `peerlane publish` publishes: the test pattern, a file, or a pipe. */
#ifndef PL_CMD_STREAM_FRAME_SOURCE_H
#define PL_CMD_STREAM_FRAME_SOURCE_H

#include <stdbool.h>

#include <peerlane/stream.h>

/* Bytes that are read before a slot is borrowed, so that the end of the input is known first. */
#define FRAME_SOURCE_AHEAD 512

struct frame_source {
	const char *path;        /* NULL: the test pattern */
	int fd;                  /* -1: the test pattern */
	struct pl_layout layout; /* of a frame; bits 0: bytes */
	uint64_t frame_bytes;
	uint64_t left;        /* frames of a file of known length that are not read yet; else UINT64_MAX */
	uint64_t filled;      /* bytes of the present frame that were read */
	uint64_t ahead_bytes; /* the first of them, which are in `ahead` until the frame has a slot */
	uint8_t ahead[FRAME_SOURCE_AHEAD];
	bool ended;
};

/*
 * Opens the input.  `layout` and `frame_bytes` are those of a frame, 0 if a .npy file gives them.  "-" is standard input.
 * Returns 0 or a negative errno.
 */
int frame_source_open(struct frame_source *source, const char *path, const struct pl_layout *layout,
		      uint64_t frame_bytes, struct pl_error *error);
/*
 * Begins the next frame.  Returns 1 once it has a byte; 0 if source->fd is not readable yet; -ENODATA at the end of the
 * input; or a negative errno with *error filled.
 */
int frame_source_begin(struct frame_source *source, struct pl_error *error);
/*
 * Reads more of the frame into its slot.  Returns 1 once the frame is whole; 0 if source->fd is not readable; or a
 * negative errno with *error filled, also if the input ends within the frame.
 */
int frame_source_fill(struct frame_source *source, void *data, uint64_t sequence, struct pl_error *error);
void frame_source_close(struct frame_source *source);

#endif
