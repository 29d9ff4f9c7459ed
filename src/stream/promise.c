/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames that CUDA streams take. Each call promises a frame to a stream, which waits for a word of the frame's status. The
 * engine writes the rest of the status and then that word, after the frame's bytes are visible to the GPU and the lap rule
 * has accepted them. No card writes the word, so the order of a card's writes does not matter.
 *
 * The oldest frame of the window that is not promised becomes the promised one. If there is none, a free place is, which the
 * next frame takes. Promises are kept in the order of their sequences.
 *
 * The driver may refuse the wait of a stream. So a promise is kept only after the stream waits, and one call at a time is between
 * the two: a frame that is refused has no later one behind it that is promised, and the next take gets it.
 */
#include "stream/subscriber.h"

/* Ends the wait for a frame, whose place the program holds from now on, unless it has released it already. */
static void end_promise(struct pl_subscriber *subscriber, struct pl_stream_frame *frame, enum pl_take_result result,
			int code)
{
	const struct pl_ring_descriptor *descriptor = &frame->descriptor;
	struct pl_frame_status *status = frame->status;
	bool is_frame = result == PL_TAKE_FRAME;

	status->result = result;
	status->code = code;
	status->sequence = result == PL_TAKE_NONE ? 0 : frame->sequence;
	status->length = is_frame ? descriptor->length : 0;
	status->captured = is_frame ? descriptor->captured : 0;
	status->published = is_frame ? descriptor->published : 0;
	status->lost_before = is_frame ? frame->lost_before : 0;
	frame->state = PL_FRAME_HELD;
	frame->promised = false;
	__atomic_store_n(&status->ready, frame->round, __ATOMIC_RELEASE);
	if (frame->abandoned)
		pl_subscriber_unhold(subscriber, frame);
}

void pl_promise_miss(struct pl_subscriber *subscriber, struct pl_stream_frame *frame)
{
	end_promise(subscriber, frame, PL_TAKE_GAP, 0);
}

/* Ends the waits for which no frame is under way, and whose time is over at `now`. */
static void end_unmet(struct pl_subscriber *subscriber, uint64_t now, int code)
{
	pl_list_for_each_safe(at, next, &subscriber->promises) {
		struct pl_stream_frame *frame = pl_list_entry(at, struct pl_stream_frame, link);

		if (frame->promise_end > now)
			continue;
		pl_list_remove(&frame->link);
		end_promise(subscriber, frame, PL_TAKE_NONE, code);
	}
}

void pl_promises_keep(struct pl_subscriber *subscriber)
{
	int end;

	while (!pl_list_empty(&subscriber->window)) {
		struct pl_stream_frame *frame = pl_list_first(&subscriber->window, struct pl_stream_frame, link);

		if (!frame->promised || frame->state != PL_FRAME_READY || frame == subscriber->arming)
			return;
		pl_subscriber_hold(subscriber, frame, pl_wall_clock());
		pl_promise_kept(subscriber, frame);
		end_promise(subscriber, frame, PL_TAKE_FRAME, 0);
	}
	end = pl_list_empty(&subscriber->promises) ? 0 : pl_subscriber_end_of_frames(subscriber);
	if (end)
		end_unmet(subscriber, UINT64_MAX, end);
}

/* -- times ------------------------------------------------------------------------------------------------------------ */

/* Ends waits whose time is over, and sets the timer for the next one. Home. */
static void watch_times(struct pl_subscriber *subscriber)
{
	uint64_t now = pl_now(), next_end = UINT64_MAX;
	struct pl_engine *engine;

	pl_lock_take(&subscriber->lock);
	engine = subscriber->engine;
	end_unmet(subscriber, now, -ETIMEDOUT);
	pl_list_for_each(at, &subscriber->promises)
		next_end = PL_MIN(next_end, pl_list_entry(at, struct pl_stream_frame, link)->promise_end);
	pl_lock_release(&subscriber->lock);
	if (next_end == UINT64_MAX)
		pl_timer_clear(engine, &subscriber->promise_timer);
	else
		pl_timer_set(engine, &subscriber->promise_timer, next_end);
}

static void times_changed(struct pl_task *task)
{
	struct pl_subscriber *subscriber = pl_container_of(task, struct pl_subscriber, promise_task);

	if (!pl_subscriber_task_at_home(subscriber, task))
		return;
	watch_times(subscriber);
	pl_subscriber_pump(subscriber);
	pl_promises_poll(subscriber);
}

static void time_over(struct pl_timer *timer)
{
	watch_times(pl_container_of(timer, struct pl_subscriber, promise_timer));
}

void pl_promises_forget(struct pl_subscriber *subscriber, struct pl_engine *engine)
{
	pl_engine_withdraw(engine, &subscriber->promise_task);
	pl_timer_clear(engine, &subscriber->promise_timer);
	pl_watch_remove(&subscriber->promise_watch);
}

void pl_promises_cancel(struct pl_subscriber *subscriber)
{
	pl_lock_take(&subscriber->lock);
	end_unmet(subscriber, UINT64_MAX, -ECANCELED);
	while (!pl_list_empty(&subscriber->window)) {
		struct pl_stream_frame *frame = pl_list_first(&subscriber->window, struct pl_stream_frame, link);

		pl_subscriber_free_frame(subscriber, frame);
		subscriber->accounts.dropped++;
	}
	pl_lock_release(&subscriber->lock);
}

/* -- the program's side ------------------------------------------------------------------------------------------------- */

enum pl_take_result pl_promise_result(const struct pl_stream_frame *frame)
{
	if (__atomic_load_n(&frame->status->ready, __ATOMIC_ACQUIRE) < frame->round)
		return PL_TAKE_WAITS;
	return (enum pl_take_result)frame->status->result;
}

/* Puts the frame of a released place back. subscriber->lock is held. */
static void break_promise(struct pl_subscriber *subscriber, struct pl_stream_frame *frame)
{
	/* pl_frame_release_on() has released the frame. */
	if (frame->mark)
		return;
	if (frame->state == PL_FRAME_PROMISED) {
		pl_list_remove(&frame->link);
		frame->abandoned = true;
		end_promise(subscriber, frame, PL_TAKE_NONE, -ECANCELED);
	} else if (frame->promised) {
		frame->abandoned = true;
	} else if (frame->state == PL_FRAME_HELD) {
		pl_subscriber_unhold(subscriber, frame);
	}
}

void pl_frame_release(struct pl_stream_frame *frame)
{
	struct pl_subscriber *subscriber = frame ? frame->subscriber : NULL;
	struct pl_engine *engine;
	bool placed;

	if (!subscriber || pl_context_forked(subscriber->context))
		return;
	pl_lock_take(&subscriber->lock);
	placed = subscriber->push || (frame->view && frame->view == subscriber->view);
	/* A quiet subscriber tells of several slots at a time, unless the publisher waits. */
	if (placed && ++subscriber->released < pl_slots_of_report(subscriber) && !subscriber->awaited)
		placed = !pl_subscriber_is_quiet(subscriber);
	engine = subscriber->engine;
	break_promise(subscriber, frame);
	pl_lock_release(&subscriber->lock);
	/* The publisher may wait for the slot. */
	if (placed)
		pl_engine_post(engine, &subscriber->task);
}

int pl_frame_release_on(struct pl_stream_frame *frame, void *stream, struct pl_error *error)
{
	struct pl_subscriber *subscriber = frame->subscriber;
	bool held = false;

	if (subscriber) {
		pl_lock_take(&subscriber->lock);
		held = (frame->state == PL_FRAME_HELD || frame->promised) && !frame->mark && !frame->abandoned;
		pl_lock_release(&subscriber->lock);
	}
	if (!held)
		return pl_fail(error, -EINVAL, "FRAME-FOREIGN", "pl_frame_release_on", NULL,
			       "release a frame of pl_subscriber_take() or pl_subscriber_take_on(), once",
			       "the program does not hold the frame");
	return pl_frame_marks_add(&subscriber->marks, frame, stream, error);
}

/* Gives a frame back after the work of its stream. */
static void frame_left(struct pl_stream_frame *frame, int status)
{
	struct pl_subscriber *subscriber = frame->subscriber;
	struct pl_engine *engine;

	(void)status; /* work that failed does not use the frame any more either */
	pl_lock_take(&subscriber->lock);
	pl_frame_unmark(frame);
	pl_subscriber_unhold(subscriber, frame);
	pl_subscriber_wake(subscriber);
	engine = subscriber->view || subscriber->push ? subscriber->engine : NULL;
	pl_lock_release(&subscriber->lock);
	/* The publisher may wait for the slot. */
	if (engine)
		pl_engine_post(engine, &subscriber->task);
}

void pl_promises_init(struct pl_subscriber *subscriber)
{
	pl_list_init(&subscriber->promises);
	pl_task_init(&subscriber->promise_task, times_changed);
	pl_timer_init(&subscriber->promise_timer, time_over);
	pl_promises_poll_init(subscriber);
	pl_frame_marks_init(&subscriber->marks, subscriber->context, &subscriber->lock, frame_left);
}

/* Returns the oldest frame of the window that is not promised; NULL: there is none. */
static struct pl_stream_frame *first_unpromised(const struct pl_subscriber *subscriber)
{
	pl_list_for_each(at, &subscriber->window) {
		struct pl_stream_frame *frame = pl_list_entry(at, struct pl_stream_frame, link);

		if (!frame->promised)
			return frame;
	}
	return NULL;
}

/* Promises a frame, or returns the reason; -EBUSY: another call arms its promise. subscriber->lock is held. */
static int promise_frame(struct pl_subscriber *subscriber, uint64_t deadline, struct pl_stream_frame **result)
{
	struct pl_stream_frame *frame;
	int rc;

	if (subscriber->arming)
		return -EBUSY;
	frame = first_unpromised(subscriber);
	rc = frame ? 0 : pl_subscriber_end_of_frames(subscriber);
	if (rc == -ESTALE)
		pl_subscriber_begin_instance(subscriber);
	if (rc)
		return rc;
	if (subscriber->held >= subscriber->held_limit)
		return -EMLINK;
	if (!frame) {
		frame = pl_list_first(&subscriber->spare, struct pl_stream_frame, link);
		pl_list_remove(&frame->link);
		pl_list_append(&subscriber->promises, &frame->link);
		frame->state = PL_FRAME_PROMISED;
	}
	subscriber->held++;
	frame->promised = frame->on_stream = true;
	frame->abandoned = false;
	frame->promised_at = pl_now();
	frame->promise_end = deadline;
	frame->round++;
	frame->status->result = PL_TAKE_WAITS;
	subscriber->arming = *result = frame;
	return 0;
}

/*
 * Promises a frame, and waits for a place among those that the program holds. A call of the driver by another thread has no time
 * limit, as that of this thread has none.
 */
static int await_promise(struct pl_subscriber *subscriber, uint64_t deadline, struct pl_stream_frame **frame,
			 struct pl_engine **engine, struct pl_error *error)
{
	const char *call = "pl_subscriber_take_on";
	bool waited = true;
	int rc;

	for (;;) {
		unsigned seen = pl_turn_read(&subscriber->turn);
		bool leaving;

		pl_lock_take(&subscriber->lock);
		rc = promise_frame(subscriber, deadline, frame);
		leaving = (rc == -EMLINK && waited && pl_frame_marks_any(&subscriber->marks)) || rc == -EBUSY;
		if (rc < 0 && !leaving)
			pl_subscriber_fail_take(subscriber, call, rc, error);
		*engine = subscriber->engine;
		pl_lock_release(&subscriber->lock);
		if (!leaving)
			return rc;
		if (rc == -EBUSY)
			pl_turn_wait(subscriber->context, &subscriber->turn, seen, UINT64_MAX);
		else
			waited = pl_turn_wait(subscriber->context, &subscriber->turn, seen, deadline);
	}
}

/* Takes a promise back. A frame of the window is the next one to be taken again. subscriber->lock is held. */
static void withdraw_promise(struct pl_subscriber *subscriber, struct pl_stream_frame *frame)
{
	if (frame->state == PL_FRAME_PROMISED || frame->state == PL_FRAME_HELD) {
		break_promise(subscriber, frame);
	} else {
		frame->promised = frame->on_stream = false;
		subscriber->held--;
	}
}

/* Ends the arming of a promise. `waits`: true if the stream waits for it. */
static void settle_promise(struct pl_subscriber *subscriber, struct pl_stream_frame *frame, bool waits)
{
	pl_lock_take(&subscriber->lock);
	subscriber->arming = NULL;
	if (!waits)
		withdraw_promise(subscriber, frame);
	pl_subscriber_tell(subscriber);
	pl_subscriber_leave_turn(subscriber);
}

/* Returns the memory of the frames, which pl_subscriber_attach() does not replace until unuse_memory(). */
static const struct pl_frame_memory *use_memory(struct pl_subscriber *subscriber)
{
	pl_lock_take(&subscriber->lock);
	subscriber->memory_users++;
	pl_lock_release(&subscriber->lock);
	return &subscriber->memory;
}

static void unuse_memory(struct pl_subscriber *subscriber)
{
	pl_lock_take(&subscriber->lock);
	subscriber->memory_users--;
	pl_lock_release(&subscriber->lock);
}

/* Takes a frame of `frames` for a stream that may be used. */
static int take_for_stream(struct pl_subscriber *subscriber, const struct pl_frame_memory *frames, void *stream,
			   uint64_t timeout, struct pl_stream_frame **frame, struct pl_error *error)
{
	const struct pl_memory *memory = &frames->payloads->memory;
	struct pl_engine *engine;
	int rc = pl_memory_stream_wait(memory, stream, NULL, 0, error);

	if (rc < 0)
		return rc;
	if (!frames->statuses)
		return pl_fail(error, -ENOTSUP, "STREAM-NO-WAIT", "pl_subscriber_take_on", subscriber->name,
			       "raise the limit of locked memory (ulimit -l)",
			       "the driver could not lock memory for the GPU");
	rc = await_promise(subscriber, pl_deadline(pl_now(), timeout), frame, &engine, error);
	if (rc < 0)
		return rc;
	/* Not under a lock: the driver waits for the GPU if its queue is full. */
	rc = pl_memory_stream_wait(memory, stream, &(*frame)->status->ready, (*frame)->round, error);
	settle_promise(subscriber, *frame, rc == 0);
	if (rc < 0)
		*frame = NULL;
	pl_engine_post(engine, &subscriber->promise_task);
	return rc;
}

int pl_subscriber_take_on(struct pl_subscriber *subscriber, void *stream, uint64_t timeout,
			  struct pl_stream_frame **frame, struct pl_error *error)
{
	int rc;

	*frame = NULL;
	if (subscriber->push)
		return pl_fail(error, -ENOTSUP, "STREAM-PUSHED", "pl_subscriber_take_on", subscriber->name,
			       "take the frame, then launch the work that uses it",
			       "the publisher chooses the memory of a frame that it pushes");
	if (pl_stream_is_default(stream))
		return pl_fail(error, -EINVAL, "STREAM-DEFAULT", "pl_subscriber_take_on", NULL,
			       "create a stream by cuStreamCreate()",
			       "the legacy default stream waits for all other streams of the program");
	rc = take_for_stream(subscriber, use_memory(subscriber), stream, timeout, frame, error);
	unuse_memory(subscriber);
	return rc;
}
