/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads of a subscriber: descriptor, payload, and then the cursors, for a check. */
#include "core/fastpath.h"
#include "stream/subscriber.h"

/* Returns the count of absent sequences before the next frame of the window, or behind the window. */
static uint64_t *absent_behind(struct pl_subscriber *subscriber, struct pl_stream_frame *frame)
{
	struct pl_list *next = frame->link.next;

	return next == &subscriber->window ? &subscriber->absent
					   : &pl_list_entry(next, struct pl_stream_frame, link)->absent_before;
}

void pl_subscriber_free_frame(struct pl_subscriber *subscriber, struct pl_stream_frame *frame)
{
	*absent_behind(subscriber, frame) += frame->absent_before;
	pl_list_remove(&frame->link);
	subscriber->window_count--;
	subscriber->accounts.pending--;
	pl_frame_unplace(frame);
	frame->state = PL_FRAME_FREE;
	if (frame->promised)
		pl_promise_miss(subscriber, frame);
	else
		pl_subscriber_add_spare(subscriber, frame);
}

void pl_subscriber_give_up(struct pl_subscriber *subscriber, struct pl_stream_frame *frame)
{
	pl_subscriber_free_frame(subscriber, frame);
	subscriber->accounts.missed++;
}

int pl_subscriber_reject(struct pl_subscriber *subscriber, struct pl_stream_frame *frame)
{
	if (!frame->described) {
		pl_subscriber_give_up(subscriber, frame);
		return -EPROTO;
	}
	if (!(frame->descriptor.flags & PL_DESCRIPTOR_ABORTED))
		return 0;
	if (pl_ring_descriptor_lost(&frame->descriptor)) {
		pl_subscriber_give_up(subscriber, frame);
		return 1;
	}
	frame->absent_before++;
	pl_subscriber_free_frame(subscriber, frame);
	subscriber->accounts.aborted++;
	return 1;
}

/*
 * Fewest bytes of a frame in GPU memory whose copy the engine does not wait for. The engine starts the copies of other frames
 * meanwhile, and handles messages. A wait for a shorter copy ends sooner than a look at its event.
 */
#define NO_WAIT_MIN (256u << 10)

/* -- reads ------------------------------------------------------------------------------------------------------- */

struct read_request {
	struct pl_stream_frame *frame; /* NULL: the cursors, for a check */
	struct pl_stream_check *check;
	struct pl_remote *remote;
	struct pl_region *region;
	uint64_t remote_offset, offset, length;
};

static void frame_read_finished(struct pl_operation *operation);
static void check_finished(struct pl_operation *operation);

void pl_subscriber_read_failed(struct pl_subscriber *subscriber, struct pl_stream_frame *frame, int status)
{
	if (frame)
		pl_subscriber_give_up(subscriber, frame);
	/* The message about the end, or the loss of the connection, gives the reason. */
	if (subscriber->phase == PL_SUBSCRIBER_LIVE && status == -ETIMEDOUT)
		pl_subscriber_fail(subscriber, status, "STREAM-READ", "a read of the ring did not end in time");
	else if (subscriber->phase == PL_SUBSCRIBER_LIVE && status != -EACCES && status != -ECONNRESET)
		pl_subscriber_fail(subscriber, status, "STREAM-READ", "a read of the ring failed");
	pl_subscriber_wake(subscriber);
}

bool pl_subscriber_reads_without_wait(const struct pl_segment *segment)
{
	return pl_memory_staged(&segment->region->memory) && segment->length >= NO_WAIT_MIN;
}

struct pl_operation *pl_subscriber_new_read(struct pl_peer *peer, const struct pl_segment *segment, void *user,
					    void (*finished)(struct pl_operation *operation))
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;

	attributes.user_data = (uint64_t)(uintptr_t)user;
	if (pl_memory_staged(&segment->region->memory))
		attributes.visible = PL_VISIBLE_GPU_VISIBLE;
	if (pl_subscriber_reads_without_wait(segment))
		attributes.flags |= PL_NO_WAIT;
	operation = pl_operation_new(peer->context, peer, PL_KIND_READ, &attributes, NULL);
	if (!operation)
		return NULL;
	pl_fast_segment(operation, segment);
	operation->internal = true;
	operation->finished = finished;
	operation->completion.posted = pl_engine_now(peer->home);
	operation->deadline = pl_deadline(operation->completion.posted, operation->attributes.timeout);
	return operation;
}

static void post_read(struct pl_subscriber *subscriber, struct pl_peer *peer, const struct read_request *request)
{
	const struct pl_segment segment = { request->remote, request->region, request->remote_offset, request->offset,
					    request->length };
	struct pl_operation *operation =
		pl_subscriber_new_read(peer, &segment, request->frame ? (void *)request->frame : (void *)request->check,
				       request->frame ? frame_read_finished : check_finished);

	if (!operation) {
		pl_lock_take(&subscriber->lock);
		subscriber->reading--;
		if (request->frame)
			pl_subscriber_read_failed(subscriber, request->frame, -ENOMEM);
		else
			pl_check_end(request->check, -ENOMEM);
		pl_subscriber_leave_turn(subscriber);
		return;
	}
	if (request->frame)
		request->frame->operation = operation;
	else
		request->check->operation = operation;
	pl_subscriber_post_read(peer, operation);
}

static void *object_of_read(const struct pl_operation *operation)
{
	return (void *)(uintptr_t)operation->attributes.user_data;
}

/* Decodes the descriptor that was read. A wrong one may be a lap: the check decides. */
static void describe_from_memory(struct pl_subscriber *subscriber, struct pl_stream_frame *frame)
{
	const uint8_t *at = (uint8_t *)pl_region_address(subscriber->memory.control) + frame->descriptor_offset;

	frame->described =
		pl_ring_descriptor_decode(at, &subscriber->geometry, frame->sequence, &frame->descriptor) == 0;
	frame->state = frame->described && frame->descriptor.length ? PL_FRAME_WANT_PAYLOAD : PL_FRAME_UNCHECKED;
}

static void payload_arrived(struct pl_subscriber *subscriber, struct pl_stream_frame *frame,
			    const struct pl_operation *operation)
{
	frame->state = PL_FRAME_UNCHECKED;
	subscriber->route = operation->completion.route;
	subscriber->reason = operation->completion.reason;
	if (subscriber->payload->trailing)
		pl_check_trailing(frame, operation->completion.value, operation->home);
}

static void frame_read_finished(struct pl_operation *operation)
{
	struct pl_stream_frame *frame = object_of_read(operation);
	struct pl_subscriber *subscriber = frame->subscriber;
	int status = operation->completion.status;

	pl_lock_take(&subscriber->lock);
	frame->operation = NULL;
	subscriber->reading--;
	/* Without a connection no check can follow. */
	if (status < 0 || subscriber->phase != PL_SUBSCRIBER_LIVE)
		pl_subscriber_read_failed(subscriber, frame, status);
	else if (!frame->described)
		describe_from_memory(subscriber, frame);
	else
		payload_arrived(subscriber, frame, operation);
	pl_lock_release(&subscriber->lock);
	pl_operation_free(operation);
	pl_subscriber_pump(subscriber);
}

static void check_finished(struct pl_operation *operation)
{
	struct pl_stream_check *check = object_of_read(operation);
	struct pl_subscriber *subscriber = check->subscriber;

	pl_lock_take(&subscriber->lock);
	subscriber->reading--;
	pl_check_end(check, operation->completion.status);
	pl_subscriber_leave_turn(subscriber);
	pl_operation_free(operation);
	pl_subscriber_pump(subscriber);
}

/* -- admission ------------------------------------------------------------------------------------------------------ */

/* Copies the descriptor from the announcement that is being handled. Returns false if it has none. */
static bool describe_from_announcement(struct pl_subscriber *subscriber, struct pl_stream_frame *frame,
				       const struct pl_stream_message *message)
{
	uint8_t *to = (uint8_t *)pl_region_address(subscriber->memory.control) + frame->descriptor_offset;
	const uint8_t *at;
	size_t left, bytes;
	uint64_t first;

	if (!message || frame->sequence >= message->announce.published)
		return false;
	first = message->announce.published - message->announce.count;
	if (frame->sequence < first)
		return false;
	at = message->announce.frames;
	left = message->announce.frames_length;
	while (first++ < frame->sequence) {
		bytes = pl_stream_frame_bytes(at, left);
		at += bytes;
		left -= bytes;
	}
	bytes = pl_stream_frame_bytes(at, left);
	if (bytes > subscriber->geometry.descriptor_stride)
		return false;
	memcpy(to, at, bytes);
	frame->described =
		pl_ring_descriptor_decode(to, &subscriber->geometry, frame->sequence, &frame->descriptor) == 0;
	return true;
}

/* Begins a frame in a free place of the window. */
static void admit_frame(struct pl_subscriber *subscriber, const struct pl_stream_message *announcement)
{
	struct pl_list *places = pl_list_empty(&subscriber->promises) ? &subscriber->spare : &subscriber->promises;
	struct pl_stream_frame *frame = pl_list_first(places, struct pl_stream_frame, link);
	int rejected;

	pl_list_remove(&frame->link);
	pl_list_append(&subscriber->window, &frame->link);
	subscriber->window_count++;
	subscriber->accounts.pending++;
	frame->sequence = subscriber->accounts.next++;
	frame->described = false;
	frame->lost_before = 0;
	frame->absent_before = subscriber->absent;
	subscriber->absent = 0;
	frame->stream_layout = subscriber->entry.layout;
	frame->stream_layout_bytes = subscriber->layout_bytes;
	if (!describe_from_announcement(subscriber, frame, announcement) &&
	    !pl_frame_describe_in_place(subscriber, frame)) {
		frame->state = PL_FRAME_WANT_DESCRIPTOR;
		return;
	}
	rejected = pl_subscriber_reject(subscriber, frame);
	/* The publisher copied the descriptor while the slot was its own, so a wrong one is no lap. */
	if (rejected < 0)
		pl_subscriber_fail_protocol(subscriber);
	if (rejected)
		return;
	if (frame->descriptor.length && !pl_frame_place(subscriber, frame)) {
		frame->state = PL_FRAME_WANT_PAYLOAD;
	} else {
		frame->state = PL_FRAME_READY;
		/* Threads of a quiet subscriber look for frames themselves. */
		if (frame->promised || !pl_subscriber_is_quiet(subscriber))
			pl_subscriber_wake(subscriber);
	}
}

bool pl_subscriber_drop_oldest(struct pl_subscriber *subscriber)
{
	struct pl_stream_frame *frame;

	if (pl_list_empty(&subscriber->window))
		return false;
	frame = pl_list_first(&subscriber->window, struct pl_stream_frame, link);
	if (frame->state != PL_FRAME_READY || frame->promised)
		return false;
	pl_subscriber_free_frame(subscriber, frame);
	subscriber->accounts.dropped++;
	return true;
}

/* Returns the number of wanted sequences before `end`, counted from the first one. */
static uint64_t count_wanted(const struct pl_subscriber *subscriber, uint64_t end)
{
	return pl_stream_wanted(end - subscriber->accounts.first, subscriber->every);
}

/*
 * Gives all sequences before `end` their fates: the ring does not hold them any more. Skipped sequences without a
 * descriptor lie before the oldest sequence of the ring, so all that the publisher has told of are among them.
 */
static void lap_sequences(struct pl_subscriber *subscriber, uint64_t end)
{
	struct pl_accounts *accounts = &subscriber->accounts;
	uint64_t wanted =
		subscriber->paused ? 0 : count_wanted(subscriber, end) - count_wanted(subscriber, accounts->next);
	uint64_t skipped = PL_MIN(subscriber->announced_skipped - subscriber->counted_skipped, wanted);

	subscriber->counted_skipped = subscriber->announced_skipped;
	accounts->aborted += skipped;
	accounts->lapped += wanted - skipped;
	accounts->unwanted += end - accounts->next - wanted;
	subscriber->absent += end - accounts->next - wanted + skipped;
	accounts->next = end;
}

/* True if a frame of the window is not whole yet. */
static bool is_fetching(const struct pl_subscriber *subscriber)
{
	pl_list_for_each(at, &subscriber->window)
		if (pl_list_entry(at, struct pl_stream_frame, link)->state != PL_FRAME_READY)
			return true;
	return false;
}

/* True if the next frame is the newest one, alone. A stream that has ended overwrites nothing more. */
static bool follows_newest(const struct pl_subscriber *subscriber)
{
	bool rejects = subscriber->overflow == PL_OVERFLOW_DROP_NEWEST &&
		       subscriber->window_count >= pl_subscriber_window_limit(subscriber);

	return subscriber->laps.left && !subscriber->blocks && !rejects && subscriber->state == PL_STREAM_LIVE;
}

bool pl_subscriber_admit(struct pl_subscriber *subscriber, const struct pl_stream_message *announcement)
{
	struct pl_accounts *accounts = &subscriber->accounts;
	uint64_t oldest = pl_ring_oldest(subscriber->claimed, subscriber->geometry.slots), begin = oldest;

	if (subscriber->phase != PL_SUBSCRIBER_LIVE || subscriber->restarted || accounts->next >= subscriber->published)
		return false;
	if (follows_newest(subscriber)) {
		if (is_fetching(subscriber))
			return false;
		begin = PL_MAX(oldest,
			       pl_stream_newest_wanted(subscriber->published, accounts->first, subscriber->every));
	}
	if (accounts->next < begin) {
		/* The publisher may have skipped more than a ring. The announcement of that tells their number. */
		if (accounts->next < oldest &&
		    subscriber->claimed - subscriber->announced_claimed > subscriber->geometry.slots)
			return false;
		lap_sequences(subscriber, PL_MIN(begin, subscriber->published));
	} else if (subscriber->paused || (accounts->next - accounts->first) % subscriber->every) {
		accounts->unwanted++;
		subscriber->absent++;
		accounts->next++;
	} else if (!pl_list_empty(&subscriber->promises) ||
		   (subscriber->window_count < pl_subscriber_window_limit(subscriber) &&
		    !pl_list_empty(&subscriber->spare))) {
		admit_frame(subscriber, announcement);
	} else if (subscriber->overflow == PL_OVERFLOW_DROP_NEWEST && !pl_subscriber_reads_history(subscriber)) {
		accounts->rejected++;
		accounts->next++;
	} else if (pl_subscriber_drops_oldest(subscriber)) {
		return pl_subscriber_drop_oldest(subscriber);
	} else {
		return false;
	}
	return true;
}

/* -- steps ---------------------------------------------------------------------------------------------------------- */

static uint64_t bytes_to_read(const struct pl_subscriber *subscriber, uint64_t length)
{
	return pl_ring_bytes_to_move(pl_memory_staged(&subscriber->memory.payloads->memory), length);
}

static bool begin_frame_read(struct pl_subscriber *subscriber, struct read_request *request)
{
	pl_list_for_each(at, &subscriber->window) {
		struct pl_stream_frame *frame = pl_list_entry(at, struct pl_stream_frame, link);
		const struct pl_ring_geometry *geometry = &subscriber->geometry;

		if (frame->state == PL_FRAME_WANT_DESCRIPTOR)
			*request = (struct read_request){ .frame = frame,
							  .remote = subscriber->control,
							  .region = subscriber->memory.control,
							  .remote_offset =
								  pl_ring_descriptor_offset(geometry, frame->sequence),
							  .offset = frame->descriptor_offset,
							  .length = geometry->descriptor_stride };
		else if (frame->state == PL_FRAME_WANT_PAYLOAD)
			*request =
				(struct read_request){ .frame = frame,
						       .remote = subscriber->payload,
						       .region = subscriber->memory.payloads,
						       .remote_offset = pl_ring_slot_offset(geometry, frame->sequence),
						       .offset = frame->offset,
						       .length = bytes_to_read(subscriber, frame->descriptor.length) };
		else
			continue;
		frame->state = PL_FRAME_READING;
		frame->claimed = subscriber->read_claimed;
		return true;
	}
	return false;
}

/* Begins a check of all frames whose reads have ended. */
static bool begin_check(struct pl_subscriber *subscriber, struct read_request *request)
{
	struct pl_stream_check *check = pl_check_begin(subscriber);

	if (check)
		*request = (struct read_request){ .check = check,
						  .remote = subscriber->control,
						  .region = subscriber->memory.control,
						  .remote_offset = PL_RING_HEADER,
						  .offset = pl_check_offset(check),
						  .length = PL_RING_CURSORS };
	return check != NULL;
}

void pl_subscriber_stop_reading(struct pl_subscriber *subscriber)
{
	bool any = false;

	pl_list_for_each_safe(at, next, &subscriber->window) {
		struct pl_stream_frame *frame = pl_list_entry(at, struct pl_stream_frame, link);

		if (frame->state != PL_FRAME_WANT_DESCRIPTOR && frame->state != PL_FRAME_WANT_PAYLOAD &&
		    frame->state != PL_FRAME_UNCHECKED)
			continue;
		pl_subscriber_give_up(subscriber, frame);
		any = true;
	}
	if (any)
		pl_subscriber_wake(subscriber);
}

/* Does one step. Returns false if nothing can be done now. */
static bool subscriber_step(struct pl_subscriber *subscriber)
{
	struct read_request request;
	struct pl_peer *peer;
	bool read, stepped;

	if (subscriber->push)
		return pl_pushed_step(subscriber);
	pl_lock_take(&subscriber->lock);
	peer = subscriber->peer;
	if (subscriber->phase == PL_SUBSCRIBER_OVER)
		pl_subscriber_stop_reading(subscriber);
	read = subscriber->phase == PL_SUBSCRIBER_LIVE && peer &&
	       (begin_frame_read(subscriber, &request) || begin_check(subscriber, &request));
	subscriber->reading += read;
	stepped = read || pl_subscriber_admit(subscriber, subscriber->announcement);
	/* The last sequences may have got their fates without a frame. */
	if (stepped && subscriber->state != PL_STREAM_LIVE)
		pl_subscriber_wake(subscriber);
	pl_lock_release(&subscriber->lock);
	if (read)
		post_read(subscriber, peer, &request);
	return stepped || pl_subscriber_report(subscriber);
}

/* A subscriber that failed must not hold slots back. */
static void leave_after_failure(struct pl_subscriber *subscriber)
{
	struct pl_peer *peer;

	pl_lock_take(&subscriber->lock);
	peer = subscriber->phase == PL_SUBSCRIBER_OVER && !subscriber->leaving ? subscriber->peer : NULL;
	pl_lock_release(&subscriber->lock);
	if (!peer)
		return;
	pl_subscriber_unsubscribe(subscriber, peer);
	pl_subscriber_leave(subscriber);
}

void pl_subscriber_pump(struct pl_subscriber *subscriber)
{
	subscriber->pump_again = true;
	if (subscriber->pumping)
		return;
	subscriber->pumping = true;
	while (subscriber->pump_again) {
		subscriber->pump_again = false;
		while (subscriber_step(subscriber))
			;
	}
	subscriber->pumping = false;
	leave_after_failure(subscriber);
}

void pl_subscriber_task(struct pl_task *task)
{
	struct pl_subscriber *subscriber = pl_container_of(task, struct pl_subscriber, task);

	if (pl_subscriber_task_at_home(subscriber, task))
		pl_subscriber_pump(subscriber);
}
