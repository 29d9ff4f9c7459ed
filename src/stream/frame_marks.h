/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames that wait for CUDA streams: each has a mark on its stream, which the context's first engine polls. The owner's lock
 * protects the list and the frames.
 */
#ifndef PL_STREAM_FRAME_MARKS_H
#define PL_STREAM_FRAME_MARKS_H

#include "core/context.h"
#include "staging/staging.h"
#include "stream/frame.h"

struct pl_frame_marks {
	struct pl_context *context;
	struct pl_lock *lock;
	/*
	 * Called once a stream has passed a frame's mark; status: -EFAULT if the stream's work failed. Calls
	 * pl_frame_unmark(). The lock is not held.
	 */
	void (*passed)(struct pl_stream_frame *frame, int status);
	struct pl_watch watch;
	struct pl_list frames; /* mark_link */
	bool passing;          /* passed() runs for a frame that is not in the list any more */
};

void pl_frame_marks_init(struct pl_frame_marks *marks, struct pl_context *context, struct pl_lock *lock,
			 void (*passed)(struct pl_stream_frame *frame, int status));
/* Adds a mark on the stream to a frame. Neither the lock nor an engine's lock is held. */
int pl_frame_marks_add(struct pl_frame_marks *marks, struct pl_stream_frame *frame, void *stream,
		       struct pl_error *error);
/* True if streams have yet to pass marks, or passed() has yet to return. The lock is held. */
bool pl_frame_marks_any(const struct pl_frame_marks *marks);
void pl_frame_unmark(struct pl_stream_frame *frame);
/* Forgets all frames. No lock is held. */
void pl_frame_marks_close(struct pl_frame_marks *marks);

#endif
