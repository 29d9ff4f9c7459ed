/* SPDX-License-Identifier: BSD-2-Clause */
/* Completions of received frames and of work requests. */
#include <endian.h>

#include "core/fastpath.h"
#include "fabric/verbs/data/flush.h"
#include "fabric/verbs/data/request.h"
#include "fabric/verbs/data/signal.h"

#define CHUNKS_UNTIL_GROWTH 256
/* Received buffers return to the shared receive queue in lists of this length. */
#define RECEIVES_TOGETHER 16
/* Polls that fail in turn until a queue is given up. */
#define POLLS_MOST 4

static struct verbs_rail *find_rail(struct verbs_cq *queue, uint32_t number)
{
	pl_list_for_each(at, &queue->rails[number % PL_ARRAY_SIZE(queue->rails)]) {
		struct verbs_rail *rail = pl_list_entry(at, struct verbs_rail, queue_link);

		if (rail->qp->qp_num == number)
			return rail;
	}
	return NULL;
}

/* -- receiving ------------------------------------------------------------------------------------ */

/* Posts spent buffers to the shared receive queue, or to the rail's queue pair. */
static int post_spent(struct verbs_cq *queue, struct verbs_rail *rail)
{
	struct ibv_recv_wr requests[RECEIVES_TOGETHER], *bad = requests;
	struct ibv_sge elements[RECEIVES_TOGETHER];
	struct pl_list *spent = rail ? &rail->spent : &queue->spent;
	unsigned count = 0;
	int rc;

	pl_list_for_each(at, spent) {
		struct verbs_buffer *buffer = pl_list_entry(at, struct verbs_buffer, link);

		elements[count] = (struct ibv_sge){ .addr = (uintptr_t)buffer->bytes,
						    .length = VERBS_BUFFER,
						    .lkey = buffer->pool->mr->lkey };
		requests[count] = (struct ibv_recv_wr){ .wr_id = verbs_receive_id(buffer),
							.sg_list = &elements[count],
							.num_sge = 1 };
		if (count)
			requests[count - 1].next = &requests[count];
		if (++count == RECEIVES_TOGETHER)
			break;
	}
	rc = rail ? ibv_post_recv(rail->qp, requests, &bad) : ibv_post_srq_recv(queue->srq, requests, &bad);
	if (rc)
		count = bad ? (unsigned)(bad - requests) : 0;
	*(rail ? &rail->spent_count : &queue->spent_count) -= count;
	if (rail)
		rail->receives_posted += count;
	for (; count; count--) {
		pl_list_first(spent, struct verbs_buffer, link)->posted = true;
		pl_list_remove(spent->next);
	}
	return -rc;
}

/* A list of receives costs little more than one receive, and there are many. */
int verbs_receive_post(struct verbs_cq *queue, struct verbs_rail *rail, struct verbs_buffer *buffer)
{
	unsigned *count = rail ? &rail->spent_count : &queue->spent_count;

	pl_list_append(rail ? &rail->spent : &queue->spent, &buffer->link);
	return ++*count < RECEIVES_TOGETHER ? 0 : post_spent(queue, rail);
}

int verbs_own_receives_post(struct verbs_rail *rail)
{
	int rc = 0;

	if (rail->queue->srq)
		return 0;
	rail->queue->room -= VERBS_OWN_RECEIVES;
	rail->own_receives = true;
	pl_list_init(&rail->spent);
	rail->spent_count = rail->receives_posted = 0;
	for (unsigned i = 0; rc == 0 && i < rail->receives.count; i++) {
		rail->receives.buffers[i].posted = false;
		rc = verbs_receive_post(rail->queue, rail, &rail->receives.buffers[i]);
	}
	return rc;
}

_Static_assert(VERBS_OWN_RECEIVES % RECEIVES_TOGETHER == 0, "all buffers are posted at first");
_Static_assert(VERBS_RECEIVES % RECEIVES_TOGETHER == 0, "all buffers are posted at first");
_Static_assert(VERBS_SEND_DEPTH % RECEIVES_TOGETHER == 0, "all further buffers are posted, too");

static bool numbered(const struct pl_frame *frame)
{
	switch (frame->type) {
	case PL_FRAME_EAGER:
	case PL_FRAME_RENDEZVOUS:
	case PL_FRAME_FINISH:
	case PL_FRAME_NOTIFY:
	case PL_FRAME_CREDIT:
	case PL_FRAME_FLUSH:
	case PL_FRAME_FLUSHED:
	case PL_FRAME_SKIP:
		return true;
	default:
		return false;
	}
}

PL_ALWAYS_INLINE int next_frame(struct verbs_endpoint *endpoint, const struct pl_frame *frame, const uint8_t *payload)
{
	endpoint->received++;
	if (frame->type == PL_FRAME_FLUSH || frame->type == PL_FRAME_FLUSHED)
		return verbs_flush_arrived(endpoint, frame);
	return pl_message_arrived(endpoint->base.peer, frame, payload);
}

/* Takes kept frames that are next now, or that came twice. */
static int take_early(struct verbs_endpoint *endpoint)
{
	struct verbs_early *early;
	int rc = 0;

	while (rc == 0 && !verbs_is_lost(endpoint) && (early = verbs_early_take(endpoint))) {
		if (early->frame.ack == endpoint->received + 1)
			rc = next_frame(endpoint, &early->frame, early->payload);
		pl_free(&endpoint->state->context->allocator, early);
	}
	return rc;
}

/* Takes a frame of the peer whose payload is at `bytes`. */
static int verbs_take_frame(struct verbs_rail *rail, const struct pl_frame *frame, const uint8_t *bytes)
{
	struct verbs_endpoint *endpoint = rail->endpoint;
	int rc;

	if (frame->type == PL_FRAME_FENCE || frame->type == PL_FRAME_FENCED)
		return verbs_fence_arrived(endpoint, frame);
	if (frame->type == PL_FRAME_ASK_KEY || frame->type == PL_FRAME_KEY)
		return verbs_key_arrived(rail, frame);
	if (!numbered(frame))
		return -EPROTO;
	/* Sent again after a connection broke, although it had arrived. */
	if ((int32_t)(frame->ack - endpoint->received) <= 0)
		return 0;
	if (frame->ack != endpoint->received + 1)
		return verbs_early_keep(endpoint, frame, bytes);
	rc = next_frame(endpoint, frame, bytes);
	return rc == 0 && endpoint->early_count ? take_early(endpoint) : rc;
}

/* Takes one frame or several, each with its header. */
static int take_headed(struct verbs_rail *rail, const uint8_t *bytes, uint32_t left)
{
	struct pl_frame frame;
	int rc;

	do {
		if (left < PL_FRAME_HEADER || pl_frame_decode(bytes, &frame) < 0 ||
		    pl_frame_payload(&frame) > left - PL_FRAME_HEADER)
			return -EPROTO;
		rc = verbs_take_frame(rail, &frame, bytes + PL_FRAME_HEADER);
		left -= PL_FRAME_HEADER + pl_frame_payload(&frame);
		bytes += PL_FRAME_HEADER + pl_frame_payload(&frame);
	} while (rc == 0 && left && !verbs_is_lost(rail->endpoint));
	return rc;
}

static int verbs_take_frames(struct verbs_rail *rail, const struct ibv_wc *completion, const uint8_t *bytes)
{
	struct pl_frame frame;
	int rc;

	if (completion->opcode != IBV_WC_RECV)
		return -EPROTO;
	/* The empty message that proves the path. */
	if (!(completion->wc_flags & IBV_WC_WITH_IMM) && !completion->byte_len)
		return 0;
	if (!(completion->wc_flags & IBV_WC_WITH_IMM))
		return take_headed(rail, bytes, completion->byte_len);
	rc = verbs_bare_decode(be32toh(completion->imm_data), rail->endpoint->received, completion->byte_len, &frame);
	return rc < 0 ? rc : verbs_take_frame(rail, &frame, bytes);
}

/*
 * Takes a notification that came with a write. Its number is shortened, because the value needs the bits: the full
 * number is the one with these bits that is nearest to the last accepted number.
 */
static int take_notification(struct verbs_rail *rail, uint32_t immediate)
{
	const uint32_t numbers = 1u << (32 - VERBS_NOTIFY_BITS);
	uint32_t received = rail->endpoint->received;
	uint32_t ahead = ((immediate >> VERBS_NOTIFY_BITS) - received) % numbers;
	struct pl_frame frame = { .type = PL_FRAME_NOTIFY, .offset = immediate & VERBS_NOTIFY_MAX };

	frame.ack = received + ahead - (ahead > numbers / 2 ? numbers : 0);
	return verbs_take_frame(rail, &frame, NULL);
}

static void broke_protocol(struct verbs_endpoint *endpoint, int rc)
{
	struct pl_error error;

	if (rc == -EBADMSG) {
		verbs_frame_lost(endpoint);
		return;
	}
	pl_fail(&error, rc, "PROTOCOL", "receive", NULL, "check that both ends run the same release of Peerlane",
		"a frame broke the protocol, or there was no memory to serve it");
	pl_peer_lose(endpoint->base.peer, &error);
}

/* True if the rail's queue pair, which has receives of its own, is the one of this completion. */
static bool takes_again(const struct verbs_rail *rail, const struct ibv_wc *completion)
{
	return rail->qp && rail->qp->qp_num == completion->qp_num &&
	       completion->status == IBV_WC_SUCCESS;
}

/*
 * True if frames of the rail count. The receives of a lost peer have failed: a message that is taken afterwards would go to
 * a later receive in place of one of these. All rails of a lost peer are down or draining.
 */
PL_ALWAYS_INLINE bool takes_frames(const struct verbs_rail *rail)
{
	return rail->link == VERBS_UP || !verbs_is_lost(rail->endpoint);
}

PL_ALWAYS_INLINE void received(struct verbs_cq *queue, const struct ibv_wc *completion)
{
	struct verbs_buffer *buffer = verbs_receive_of(completion->wr_id);
	struct verbs_rail *rail = find_rail(queue, completion->qp_num);
	struct verbs_endpoint *endpoint = rail ? rail->endpoint : NULL;
	int rc = 0;

	/* Receives of a queue pair that is gone; or a completion that the device repeats. */
	if ((!queue->srq && !rail) || !buffer->posted || completion->wr_id != verbs_receive_id(buffer))
		return;
	buffer->posted = false;
	buffer->taken++;
	if (!queue->srq)
		rail->receives_posted--;
	if (endpoint && completion->status == IBV_WC_SUCCESS) {
		if (rail->link != VERBS_UP)
			verbs_established(rail);
		if (takes_frames(rail))
			rc = completion->opcode == IBV_WC_RECV_RDMA_WITH_IMM
				     ? take_notification(rail, be32toh(completion->imm_data))
				     : verbs_take_frames(rail, completion, buffer->bytes);
	}
	if (queue->srq)
		verbs_receive_post(queue, NULL, buffer);
	else if (takes_again(rail, completion) && !buffer->posted)
		verbs_receive_post(queue, rail, buffer);
	if (!queue->srq)
		verbs_receive_returned(rail);
	if (rc < 0)
		broke_protocol(endpoint, rc);
}

/* -- completions of this end's requests ----------------------------------------------------------- */

static void chain_done(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	while (work) {
		struct verbs_work *next = work->also;
		struct pl_operation *operation = work->operation;

		verbs_work_free(endpoint, work);
		pl_operation_pending_done(operation);
		work = next;
	}
}

PL_ALWAYS_INLINE void work_done(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	struct pl_operation *operation = work->operation;

	if (work->simple) {
		verbs_work_keep(endpoint, work);
		pl_fast_pending_done(operation);
		return;
	}
	if (work->also) {
		chain_done(endpoint, work);
		return;
	}
	if (operation && work->kind == VERBS_ATOMIC)
		memcpy(&operation->completion.value, work->buffer->bytes, sizeof(operation->completion.value));
	if (operation && work->staged) {
		if (verbs_stage_in(endpoint, work))
			return;
		atomic_fetch_add(&operation->staged, work->length);
	}
	if (work->kind >= VERBS_BIND)
		verbs_mw_work_done(work);
	verbs_work_free(endpoint, work);
	if (operation)
		pl_fast_pending_done(operation);
}

static void count_done(struct verbs_rail *rail)
{
	rail->completed++;
	rail->done++;
	if (rail->chunk == VERBS_CHUNK || rail->done < CHUNKS_UNTIL_GROWTH)
		return;
	rail->chunk = PL_MIN(rail->chunk * 2, VERBS_CHUNK);
	rail->done = 1;
}

static void look_at_pace(struct verbs_rail *rail, uint64_t bytes)
{
	const struct verbs_endpoint *endpoint = rail->endpoint;
	bool idle = !rail->posted_bytes && pl_list_empty(&endpoint->waiting) && pl_list_empty(&endpoint->again);

	verbs_pace_done(&rail->pace, bytes, idle, pl_now());
}

/* True if the completion names a posted request. A device may repeat the completion of an earlier one. */
PL_ALWAYS_INLINE bool names_posted(const struct verbs_rail *rail, uint64_t serial)
{
	return !pl_list_empty(&rail->posted) && serial <= rail->serial &&
	       serial >= pl_list_first(&rail->posted, struct verbs_work, link)->serial;
}

/* Takes the completed request, and all unsignaled ones before it. */
PL_ALWAYS_INLINE void take_done(struct verbs_rail *rail, uint64_t serial)
{
	const uint64_t bytes = rail->posted_bytes;
	bool end;

	do {
		struct verbs_work *work = verbs_take_posted(rail);

		end = work->serial == serial;
		if (end)
			count_done(rail);
		work_done(rail->endpoint, work);
	} while (!end && names_posted(rail, serial));
	if (rail->pace.limit != VERBS_UNLIMITED)
		look_at_pace(rail, bytes - rail->posted_bytes);
}

/* Takes the failed request. All unsignaled ones before it are done. Not inline: this happens once in a connection. */
__attribute__((noinline)) static void take_failed(struct verbs_rail *rail, const struct ibv_wc *completion)
{
	const uint64_t serial = verbs_serial_of(completion->wr_id);
	bool oldest = true;

	do {
		struct verbs_work *work = verbs_take_posted(rail);

		if (work->serial == serial) {
			verbs_work_failed(rail, work, completion, oldest);
			return;
		}
		oldest = false;
		work_done(rail->endpoint, work);
	} while (names_posted(rail, serial));
}

PL_ALWAYS_INLINE void completed(struct verbs_cq *queue, const struct ibv_wc *completion)
{
	const uint64_t serial = verbs_serial_of(completion->wr_id);
	struct verbs_rail *rail = find_rail(queue, completion->qp_num);
	unsigned posted_count;

	if (!rail || !names_posted(rail, serial)) {
		if (rail && completion->wr_id == VERBS_PROOF)
			verbs_proof_done(rail, completion);
		return;
	}
	posted_count = rail->posted_count;
	if (completion->status == IBV_WC_SUCCESS)
		take_done(rail, serial);
	else
		take_failed(rail, completion);
	verbs_note_peak(rail, posted_count);
	if (rail->link == VERBS_DRAINING && pl_list_empty(&rail->posted))
		pl_engine_post(queue->engine, &rail->drained_task);
	else if (!verbs_may_post_now(rail->endpoint))
		verbs_flush(rail->endpoint);
}

void verbs_cq_feed(struct verbs_cq *queue)
{
	struct pl_list starved;

	pl_list_init(&starved);
	pl_list_splice(&starved, &queue->starved);
	while (!pl_list_empty(&starved)) {
		struct verbs_rail *rail = pl_list_first(&starved, struct verbs_rail, starved_link);

		pl_list_remove(&rail->starved_link);
		verbs_flush(rail->endpoint);
	}
}

PL_ALWAYS_INLINE void take(struct verbs_cq *queue, int count)
{
	queue->taking = true;
	for (int i = 0; i < count; i++) {
		struct ibv_wc *completion = &queue->completions[i];

		if (completion->wr_id & VERBS_RECEIVED)
			received(queue, completion);
		else if (completion->wr_id & VERBS_LOOPBACK_READ)
			verbs_loopback_done(queue, completion);
		else
			completed(queue, completion);
		completion->wr_id = VERBS_UNFILLED;
	}
	queue->taking = false;
	if (!pl_list_empty(&queue->starved))
		verbs_cq_feed(queue);
}

/* The completions may all be of other rails, at each poll. */
static void ask_late(struct verbs_cq *queue)
{
	if (!queue->quiet_since)
		queue->quiet_since = queue->taken;
	else if (queue->taken - queue->quiet_since > VERBS_QUIET_TIME)
		verbs_ask_all(queue);
}

/* Returns the number of completions that a poll filled before it failed. */
static int count_filled(const struct ibv_wc completions[VERBS_POLL_BATCH])
{
	int count = 0;

	while (count < VERBS_POLL_BATCH && completions[count].wr_id != VERBS_UNFILLED)
		count++;
	return count;
}

/*
 * Polls again after a failure: a driver may fail at an entry that it does not know, and behind it others may be, which no
 * event tells. Those before it come no more: libmlx5, libmlx4 and libhns have filled them, and leave the wr_id of the one
 * that they do not know. Gives up a queue that always fails and yields nothing. Returns the number of completions.
 */
static int poll_again(struct verbs_cq *queue)
{
	int count = count_filled(queue->completions);

	for (unsigned i = 1; count == 0 && i < POLLS_MOST; i++) {
		int rc = ibv_poll_cq(queue->cq, VERBS_POLL_BATCH, queue->completions);

		if (rc >= 0)
			return rc;
		count = count_filled(queue->completions);
	}
	if (count == 0)
		verbs_cq_break(queue, "ibv_poll_cq of the completion queue failed");
	return count;
}

unsigned verbs_cq_poll(struct verbs_cq *queue)
{
	int count;

	/*
	 * A message may lead to a transfer by a new rail, whose attempt to connect fails at once and polls. Completions of this
	 * poll would come before earlier ones.
	 */
	if (queue->taking)
		return 0;
	count = ibv_poll_cq(queue->cq, VERBS_POLL_BATCH, queue->completions);
	pl_engine_tick(queue->engine);
	if (count < 0)
		count = poll_again(queue);
	if (count > 0) {
		queue->taken = pl_engine_now(queue->engine);
		take(queue, count);
		if (queue->quiet)
			ask_late(queue);
	} else if (queue->quiet) {
		verbs_ask_all(queue);
	}
	return (unsigned)count;
}
