/* SPDX-License-Identifier: BSD-2-Clause */
/* Bytes of frames for the processor, which cannot reach GPU memory (--memory). */
#ifndef PL_CMD_STREAM_FRAME_BYTES_H
#define PL_CMD_STREAM_FRAME_BYTES_H

#include <stdbool.h>

#include <peerlane/stream.h>

struct frame_bytes {
	bool gpu;      /* the frames are in GPU memory */
	void *copy;    /* of one frame, in host memory; NULL: none yet */
	uint64_t size; /* of `copy` */
};

/* True for kinds of memory such as "cuda:1", false for "host" and NULL. */
bool frame_memory_is_gpu(const char *memory);
/* Begins a zeroed structure for frames in a kind of memory; NULL: host memory. */
void frame_bytes_begin(struct frame_bytes *bytes, const char *memory);
/* Returns a buffer of the size in place of a frame's memory.  NULL: no memory. */
void *frame_bytes_buffer(struct frame_bytes *bytes, uint64_t size);
/*
 * Describes a frame that was taken.  In `info`, `data` is an address that the processor can read, until the next call.
 * Returns 0 or a negative errno.
 */
int frame_bytes_read(struct frame_bytes *bytes, const struct pl_stream_frame *frame, struct pl_frame_info *info,
		     struct pl_error *error);
void frame_bytes_free(struct frame_bytes *bytes);

#endif
