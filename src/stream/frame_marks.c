/* SPDX-License-Identifier: BSD-2-Clause */
#include "stream/frame_marks.h"

/* Returns the first frame whose stream has passed its mark. */
static struct pl_stream_frame *first_passed(struct pl_frame_marks *marks, int *status)
{
	pl_list_for_each(at, &marks->frames) {
		struct pl_stream_frame *frame = pl_list_entry(at, struct pl_stream_frame, mark_link);

		/* The stream of a promised frame waits for the frame itself. */
		*status = frame->promised ? 0 : pl_stream_mark_done(frame->mark);
		if (*status)
			return frame;
	}
	return NULL;
}

static bool poll_marks(struct pl_watch *watch)
{
	struct pl_frame_marks *marks = pl_container_of(watch, struct pl_frame_marks, watch);
	struct pl_stream_frame *frame;
	bool any = false, idle;
	int status;

	for (;;) {
		pl_lock_take(marks->lock);
		frame = first_passed(marks, &status);
		if (frame)
			pl_list_remove(&frame->mark_link);
		marks->passing = frame != NULL;
		idle = pl_list_empty(&marks->frames);
		pl_lock_release(marks->lock);
		if (!frame)
			break;
		marks->passed(frame, PL_MIN(status, 0));
		any = true;
	}
	if (idle)
		pl_watch_remove(watch);
	return any;
}

void pl_frame_marks_init(struct pl_frame_marks *marks, struct pl_context *context, struct pl_lock *lock,
			 void (*passed)(struct pl_stream_frame *frame, int status))
{
	marks->context = context;
	marks->lock = lock;
	marks->passed = passed;
	pl_watch_init(&marks->watch, poll_marks);
	pl_list_init(&marks->frames);
}

int pl_frame_marks_add(struct pl_frame_marks *marks, struct pl_stream_frame *frame, void *stream,
		       struct pl_error *error)
{
	struct pl_engine *engine = marks->context->engines[0];
	struct pl_stream_mark *mark;
	struct pl_copier *copier;
	int rc;

	if (pl_stream_is_default(stream))
		return pl_fail(error, -EINVAL, "STREAM-DEFAULT", "stream", NULL, "create a stream by cuStreamCreate()",
			       "the legacy default stream waits for all other streams of the program");
	rc = pl_stream_mark_new(stream, &mark, error);
	if (rc < 0)
		return rc;
	pl_engine_lock(engine);
	copier = pl_context_copier(marks->context, engine);
	if (copier) {
		pl_lock_take(marks->lock);
		frame->mark = mark;
		pl_list_append(&marks->frames, &frame->mark_link);
		pl_lock_release(marks->lock);
		pl_watch_add(copier, &marks->watch);
	}
	pl_engine_unlock(engine);
	if (copier)
		return 0;
	pl_stream_mark_free(mark);
	return pl_fail_memory(error, "stream");
}

bool pl_frame_marks_any(const struct pl_frame_marks *marks)
{
	return marks->passing || !pl_list_empty(&marks->frames);
}

void pl_frame_unmark(struct pl_stream_frame *frame)
{
	pl_stream_mark_free(frame->mark);
	frame->mark = NULL;
}

void pl_frame_marks_close(struct pl_frame_marks *marks)
{
	struct pl_engine *engine = marks->context->engines[0];

	pl_engine_lock(engine);
	pl_watch_remove(&marks->watch);
	pl_lock_take(marks->lock);
	while (!pl_list_empty(&marks->frames)) {
		struct pl_stream_frame *frame = pl_list_first(&marks->frames, struct pl_stream_frame, mark_link);

		pl_list_remove(&frame->mark_link);
		pl_frame_unmark(frame);
	}
	pl_lock_release(marks->lock);
	pl_engine_unlock(engine);
}
