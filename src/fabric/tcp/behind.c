/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Notifications that follow the data of their write on its lane. They save a round trip: otherwise core sends them after
 * the acknowledgement.
 *
 * A notification may overtake neither its data nor an earlier message:
 *
 * - It follows data whose frames are side by side on one lane. It says how many they are, and the receiver drops it if
 *   it refused one of them. Staged bytes are placed later, so no notification follows them.
 *
 * - It says how many messages were sent over lane 0 before it. The receiver holds it until they have arrived. Lane 0
 *   may not omit a counted message then, so one that is cancelled becomes void.
 *
 * - Its operation completes after its acknowledgement, and the receiver lists it before that. So whatever the program
 *   sends after the completion arrives later.
 */
#include "fabric/tcp/finish.h"
#include "fabric/tcp/landing.h"

/* -- sender ---------------------------------------------------------------------------------------- */

bool tcp_take_turn_behind(struct tcp_endpoint *endpoint, struct pl_operation *operation)
{
	struct pl_peer *peer = endpoint->base.peer;

	if (!(operation->attributes.flags & PL_NOTIFY) || operation->completion.kind != PL_KIND_WRITE ||
	    !peer->notify_lanes || atomic_load(&operation->staged))
		return false;
	operation->has_turn = pl_message_take_turn(peer);
	return operation->has_turn;
}

int tcp_queue_notification(struct tcp_lane *lane, struct pl_operation *operation, uint32_t writes, uint32_t messages)
{
	struct pl_frame frame = { .type = PL_FRAME_NOTIFY,
				  .cookie = writes,
				  .key = messages,
				  .offset = operation->attributes.notify,
				  .length = (uint32_t)operation->attributes.notify_length };
	struct tcp_piece *piece = tcp_piece_new(lane, &frame);

	if (!piece)
		return -ENOMEM;
	operation->has_turn = false;
	operation->attributes.flags &= ~(unsigned)PL_NOTIFY;
	tcp_lane_queue_message(lane, piece, operation->copy, operation);
	return 0;
}

bool tcp_piece_make_void(struct tcp_lane *lane, struct tcp_piece *piece)
{
	uint8_t type = piece->frame.type;
	uint32_t ack = piece->frame.ack;

	if (piece->sent || !lane->endpoint->base.peer->notify_lanes || type == PL_FRAME_WRITE ||
	    !tcp_frame_is_counted(type))
		return false;
	lane->queued -= piece->length;
	piece->length = 0;
	piece->payload = NULL;
	piece->operation = NULL;
	piece->frame = (struct pl_frame){ .type = PL_FRAME_NOTIFY, .flags = PL_NOTIFY_VOID, .ack = ack };
	return true;
}

void tcp_void_notification_of(struct tcp_lane *lane, struct pl_operation *operation)
{
	pl_list_for_each(at, &lane->queue) {
		struct tcp_piece *piece = pl_list_entry(at, struct tcp_piece, link);

		if (piece->operation != operation || piece->frame.type != PL_FRAME_NOTIFY)
			continue;
		tcp_piece_make_void(lane, piece);
		pl_operation_pending_done(operation);
		return;
	}
}

/* -- receiver -------------------------------------------------------------------------------------- */

/* Notification of another lane, for the home engine. */
struct tcp_held {
	struct pl_list link;
	struct pl_frame frame;
	uint8_t payload[];
};

static bool may_deliver(const struct tcp_endpoint *endpoint, const struct pl_frame *frame)
{
	return frame->type == PL_FRAME_SKIP || (int32_t)(endpoint->messages_arrived - (uint32_t)frame->key) >= 0;
}

/* Removes the first notification, unless a message must precede it; NULL: none. */
static struct tcp_held *next_held(struct tcp_endpoint *endpoint)
{
	struct tcp_held *held = NULL;

	pthread_mutex_lock(&endpoint->lock);
	if (!pl_list_empty(&endpoint->held))
		held = pl_list_first(&endpoint->held, struct tcp_held, link);
	if (held && may_deliver(endpoint, &held->frame)) {
		pl_list_remove(&held->link);
		atomic_fetch_sub(&endpoint->held_count, 1);
	} else {
		held = NULL;
	}
	pthread_mutex_unlock(&endpoint->lock);
	return held;
}

static int deliver_held(struct tcp_endpoint *endpoint)
{
	struct tcp_held *held;
	int rc = 0;

	while (rc == 0 && atomic_load(&endpoint->held_count) && (held = next_held(endpoint))) {
		rc = pl_message_arrived(endpoint->base.peer, &held->frame, held->payload);
		pl_free(&endpoint->context->allocator, held);
	}
	return rc;
}

int tcp_message_arrived(struct tcp_lane *lane, const struct pl_frame *frame, const uint8_t *payload)
{
	struct tcp_endpoint *endpoint = lane->endpoint;
	int rc = deliver_held(endpoint);

	if (rc < 0)
		return rc;
	if (tcp_frame_is_counted(frame->type) || frame->type == PL_FRAME_SKIP)
		endpoint->messages_arrived++;
	else if (frame->type == PL_FRAME_FINISH)
		tcp_count_finish(endpoint);
	rc = pl_message_arrived(endpoint->base.peer, frame, payload);
	return rc < 0 ? rc : deliver_held(endpoint);
}

static void held_run(struct pl_task *task)
{
	struct tcp_endpoint *endpoint = pl_container_of(task, struct tcp_endpoint, held_task);
	struct pl_peer *peer = endpoint->base.peer;
	int rc;

	if (atomic_load(&peer->state) == PL_PEER_LOST)
		return;
	rc = deliver_held(endpoint);
	if (rc < 0)
		tcp_lane_fail(endpoint->lanes[0], rc);
	/* The end of the connection may have waited for these. */
	else if (atomic_load(&peer->ending))
		pl_peer_ending(peer);
}

/*
 * Returns the place of a notification in the list, which is in the order of the messages that must precede: that of an
 * honest sender is at its end.
 */
static struct pl_list *place_held(struct tcp_endpoint *endpoint, const struct pl_frame *frame)
{
	struct pl_list *at = &endpoint->held;

	if (frame->type == PL_FRAME_SKIP)
		return at->next;
	while (at->prev != &endpoint->held) {
		const struct tcp_held *before = pl_list_entry(at->prev, struct tcp_held, link);

		if (before->frame.type == PL_FRAME_SKIP ||
		    (int32_t)((uint32_t)before->frame.key - (uint32_t)frame->key) <= 0)
			break;
		at = at->prev;
	}
	return at;
}

/* Gives a notification to the home engine. */
static int hold_notification(struct tcp_endpoint *endpoint, const struct pl_frame *frame, const uint8_t *payload)
{
	struct tcp_held *held;

	/* The window of the hello allows no more. */
	if (atomic_load(&endpoint->held_count) >= PL_MESSAGE_WINDOW)
		return -EPROTO;
	held = pl_alloc(&endpoint->context->allocator, sizeof(*held) + frame->length);
	if (!held)
		return -ENOMEM;
	pl_list_init(&held->link);
	held->frame = *frame;
	if (frame->length)
		memcpy(held->payload, payload, frame->length);
	pthread_mutex_lock(&endpoint->lock);
	pl_list_append(place_held(endpoint, frame), &held->link);
	atomic_fetch_add(&endpoint->held_count, 1);
	pthread_mutex_unlock(&endpoint->lock);
	pl_engine_post(endpoint->base.peer->home, &endpoint->held_task);
	return 0;
}

/* True if one of the last `count` WRITEs of the lane has this number. */
static bool is_among_last(const struct tcp_lane *lane, uint64_t number, uint32_t count)
{
	return number && lane->writes - number < count;
}

int tcp_notification_arrived(struct tcp_lane *lane, const struct pl_frame *frame, const uint8_t *payload)
{
	struct tcp_endpoint *endpoint = lane->endpoint;
	struct pl_frame message = *frame;
	int rc;

	if (frame->flags & ~PL_NOTIFY_VOID || frame->cookie > lane->writes)
		return -EPROTO;
	if (frame->flags) {
		message.type = PL_FRAME_SKIP;
	} else {
		if (lane->index && !frame->cookie)
			return -EPROTO;
		if (is_among_last(lane, lane->last_landed, frame->cookie))
			return -EPROTO;
		if (is_among_last(lane, lane->last_refused, frame->cookie))
			message.type = PL_FRAME_SKIP;
	}
	rc = lane->index ? hold_notification(endpoint, &message, payload)
			 : tcp_message_arrived(lane, &message, payload);
	/* Acknowledges what is listed. */
	if (rc == 0)
		tcp_lane_count_received(lane, PL_WIRE_OK);
	return rc;
}

/* -- life of the endpoint -------------------------------------------------------------------------- */

void tcp_init_held(struct tcp_endpoint *endpoint)
{
	pl_task_init(&endpoint->held_task, held_run);
	pl_list_init(&endpoint->held);
}

void tcp_free_held(struct tcp_endpoint *endpoint)
{
	while (!pl_list_empty(&endpoint->held)) {
		struct tcp_held *held = pl_list_first(&endpoint->held, struct tcp_held, link);

		pl_list_remove(&held->link);
		pl_free(&endpoint->context->allocator, held);
	}
}
