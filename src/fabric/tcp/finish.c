/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * FINISH over lanes. The lane that receives the last bytes of a large message tells the sender so, if that end has
 * PL_CAPABILITY_FINISH_LANES. The frame leaves with the lane's next READs. Home, the only thread that all messages of a peer pass,
 * queues and sends nothing then. Failed receives, and those whose last bytes lane 0 received or a copy placed, are told by home over
 * lane 0.
 *
 * FINISH makes the message received: the receive can be stopped no more (pl_fetch_decide()).
 */
#include "fabric/tcp/finish.h"
#include "fabric/tcp/operation_done.h"

/* Most FINISH frames of a batch for the home engine. */
#define BATCH_ENDS 60u

/* Ends of large sends that a lane received in one visit. */
struct tcp_finished {
	struct pl_list link;
	unsigned count;
	uint32_t cookies[BATCH_ENDS];
};

/* -- receiver of the message ------------------------------------------------------------------------ */

/* Queues FINISH of a fetched message. Without memory, home tells the sender. */
static void tcp_lane_queue_finish(struct tcp_lane *lane, struct pl_operation *fetch)
{
	const struct pl_frame frame = { .type = PL_FRAME_FINISH, .cookie = fetch->cookie, .offset = PL_WIRE_OK };
	struct tcp_piece *piece = tcp_piece_new(lane, &frame);

	if (!piece)
		return;
	/* Before home sees the end of the receive, after which the program may close the peer. */
	if (atomic_load(&lane->finish) == TCP_FINISH_SETTLED)
		atomic_fetch_add(&lane->endpoint->finish_open, 1);
	atomic_store(&lane->finish, TCP_FINISH_OPEN);
	if (pl_fetch_decide(fetch, PL_FETCH_FINISHED))
		tcp_lane_queue_piece(lane, piece);
	else
		tcp_piece_free(lane, piece);
}

void tcp_lane_end_fetch(struct tcp_lane *lane, struct pl_operation *fetch)
{
	if (!pl_operation_pending_last(fetch))
		return;
	/* If home's thread runs this lane, too, as it does lane 0, home sends FINISH of all such lanes at once. */
	if (lane->engine != fetch->home && lane->endpoint->base.peer->finish_lanes && !atomic_load(&fetch->status))
		tcp_lane_queue_finish(lane, fetch);
	tcp_lane_operation_all_done(lane, fetch);
}

void tcp_lane_answer_finish(struct tcp_lane *lane)
{
	if (atomic_load(&lane->finish) != TCP_FINISH_ASKED)
		return;
	tcp_lane_flush(lane);
	if (lane->state == TCP_LANE_UP && !tcp_lane_has_sent_messages(lane)) {
		atomic_store(&lane->finish, TCP_FINISH_OPEN);
	} else {
		atomic_store(&lane->finish, TCP_FINISH_SETTLED);
		atomic_fetch_sub(&lane->endpoint->finish_open, 1);
	}
}

static void tcp_lane_ask_for_finish(struct tcp_lane *lane)
{
	unsigned open = TCP_FINISH_OPEN;

	if (atomic_compare_exchange_strong(&lane->finish, &open, TCP_FINISH_ASKED))
		tcp_lane_wake(lane);
}

bool tcp_has_sent_finish(struct tcp_endpoint *endpoint)
{
	if (!atomic_load(&endpoint->finish_open))
		return true;
	tcp_for_each_lane(endpoint, tcp_lane_ask_for_finish);
	return false;
}

/* -- sender of the message -------------------------------------------------------------------------- */

bool tcp_count_finish(struct tcp_endpoint *endpoint)
{
	unsigned long long open = atomic_load(&endpoint->rendezvous);

	while (open)
		if (atomic_compare_exchange_weak(&endpoint->rendezvous, &open, open - 1))
			return true;
	return false;
}

int tcp_finish_arrived(struct tcp_lane *lane, const struct pl_frame *frame)
{
	struct tcp_endpoint *endpoint = lane->endpoint;
	struct tcp_finished *finished = lane->finished;

	/* No more wait for home than there are large sends. */
	if (frame->offset != PL_WIRE_OK || !tcp_count_finish(endpoint))
		return -EPROTO;
	if (!finished) {
		finished = pl_alloc(&endpoint->context->allocator, sizeof(*finished));
		if (!finished)
			return -ENOMEM;
		pl_list_init(&finished->link);
		finished->count = 0;
		lane->finished = finished;
		atomic_fetch_add(&endpoint->finished_count, 1);
	}
	finished->cookies[finished->count++] = frame->cookie;
	if (finished->count == BATCH_ENDS)
		tcp_lane_hand_finished(lane);
	return 0;
}

void tcp_lane_hand_finished(struct tcp_lane *lane)
{
	struct tcp_endpoint *endpoint = lane->endpoint;

	if (!lane->finished)
		return;
	pthread_mutex_lock(&endpoint->lock);
	pl_list_append(&endpoint->finished, &lane->finished->link);
	pthread_mutex_unlock(&endpoint->lock);
	lane->finished = NULL;
	pl_engine_post_end(endpoint->base.peer->home, &endpoint->finished_task);
}

/* Takes the first batch; NULL: none. */
static struct tcp_finished *next_finished(struct tcp_endpoint *endpoint)
{
	struct tcp_finished *finished = NULL;

	pthread_mutex_lock(&endpoint->lock);
	if (!pl_list_empty(&endpoint->finished)) {
		finished = pl_list_first(&endpoint->finished, struct tcp_finished, link);
		pl_list_remove(&finished->link);
	}
	pthread_mutex_unlock(&endpoint->lock);
	return finished;
}

static void finished_run(struct pl_task *task)
{
	struct tcp_endpoint *endpoint = pl_container_of(task, struct tcp_endpoint, finished_task);
	struct pl_peer *peer = endpoint->base.peer;
	struct tcp_finished *finished;

	while ((finished = next_finished(endpoint))) {
		for (unsigned i = 0; i < finished->count; i++)
			pl_message_finished(peer, finished->cookies[i], PL_WIRE_OK);
		pl_free(&endpoint->context->allocator, finished);
		atomic_fetch_sub(&endpoint->finished_count, 1);
	}
	/* The end of the connection may have waited for these. */
	if (atomic_load(&peer->ending))
		pl_peer_ending(peer);
}

/* -- life of the endpoint -------------------------------------------------------------------------- */

void tcp_init_finished(struct tcp_endpoint *endpoint)
{
	pl_task_init(&endpoint->finished_task, finished_run);
	pl_list_init(&endpoint->finished);
}

void tcp_free_finished(struct tcp_endpoint *endpoint)
{
	struct tcp_finished *finished;

	while ((finished = next_finished(endpoint)))
		pl_free(&endpoint->context->allocator, finished);
}
