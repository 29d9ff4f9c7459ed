/* SPDX-License-Identifier: BSD-2-Clause */
/* File, pipe or standard output that receives frames: raw bytes, or a .npy file of equal frames. */
#ifndef PL_CMD_STREAM_FRAME_SINK_H
#define PL_CMD_STREAM_FRAME_SINK_H

#include <stdbool.h>

#include <peerlane/stream.h>

struct frame_sink {
	const char *path; /* NULL: frames are not written */
	int fd;
	bool npy, regular;
	bool failed;             /* a write failed */
	bool begun;              /* a .npy file has its header, or will have it without a frame */
	bool refused;            /* a .npy file cannot have the first frame, and keeps what it had before */
	uint64_t frames, bytes;  /* whole frames that were written, and their payload */
	uint64_t counted;        /* frames that the header of a .npy file counts */
	uint64_t header_time;    /* cli_now() when that header was written */
	struct pl_layout layout; /* of all frames in a .npy file */
};

/*
 * Opens the file for frames of this layout and truncates it; "-" is standard output.  Returns 0 or a negative errno.
 * Without a layout, the first frame gives that of a .npy file, which is truncated then, or at its close.  A .npy file that
 * cannot have the layout keeps its bytes.
 */
int frame_sink_open(struct frame_sink *sink, const char *path, const struct pl_layout *layout, struct pl_error *error);
/*
 * Appends a frame.  After a failure the file ends with the frame before, unless other bytes follow that frame.  The file
 * keeps the bytes that it had before this sink.  Returns 0; -EINTR once a signal is pending, before the frame; -ECANCELED within a
 * frame, of which a part stays in a pipe; -ENOTSUP for a frame that the
 * format cannot have; or a negative errno.
 */
int frame_sink_write(struct frame_sink *sink, const struct pl_frame_info *frame, struct pl_error *error);
/*
 * Lets the header of a .npy file count all frames, so that a process that is killed leaves an array.  Called while no frame
 * waits; frame_sink_write() does it after the first frame that ends a second after the last count.  Returns 0 or a negative
 * errno.
 */
int frame_sink_update(struct frame_sink *sink, struct pl_error *error);
/* Completes the header, and closes the file.  Returns 0 or a negative errno. */
int frame_sink_close(struct frame_sink *sink, struct pl_error *error);

#endif
