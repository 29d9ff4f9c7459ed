/* SPDX-License-Identifier: BSD-2-Clause */
/* Life cycle of a lane: connecting or joining, hello, frames, end. */
#include <poll.h>
#include <unistd.h>

#include "fabric/tcp/finish.h"
#include "fabric/tcp/landing.h"

/* Most reads of remaining bytes before a close. */
#define DRAIN_READS 64

static bool lane_ready(struct pl_source *source, uint32_t events);
static void lane_lost_patience(struct pl_timer *timer);
static void lane_idle(struct pl_source *source);
static void lane_run(struct pl_task *task);
static void lane_end(struct pl_task *task);

void tcp_lane_init(struct tcp_lane *lane)
{
	lane->stream.fd = lane->accepted.fd = -1;
	lane->source.fd = -1;
	lane->source.ready = lane_ready;
	lane->source.idle = lane_idle;
	lane->source.pollable = true;
	pl_timer_init(&lane->patience, lane_lost_patience);
	tcp_lane_init_retry(lane);
	tcp_lane_init_rate(lane);
	pl_task_init(&lane->task, lane_run);
	pl_task_init(&lane->end_task, lane_end);
	pl_list_init(&lane->batch_end.link);
	lane->batch_end.run = tcp_lane_batch_ended;
	pl_list_init(&lane->queue);
	pl_list_init(&lane->waiting);
	pl_list_init(&lane->copying);
	pl_list_init(&lane->landings);
	pl_list_init(&lane->unacked);
	pl_list_init(&lane->spare);
}

static bool breaks_protocol(int code)
{
	return code == -EPROTO || code == -EMSGSIZE || code == -ENOMEM;
}

/*
 * True if no frame has passed over the lane, so that nothing is lost with it. If the initiator does not confirm lanes, an
 * acceptor's lane is up as soon as it joins, and the initiator may give up before it learns that. If the initiator's lane was up,
 * its end tells the peer.
 */
static bool lane_is_unused(const struct tcp_lane *lane)
{
	return lane->sequence == 0 && lane->received == 0 && !lane->requests && !lane->remaining && !lane->carry &&
	       !lane->head_have && pl_list_empty(&lane->queue) && pl_list_empty(&lane->waiting) &&
	       pl_list_empty(&lane->copying) && pl_list_empty(&lane->landings) && pl_list_empty(&lane->unacked) &&
	       pl_list_empty(&lane->spare);
}

/* True if the peer goes on without the lane that fails: the others carry its bytes. */
static bool lane_is_dispensable(const struct tcp_lane *lane, int code)
{
	if (lane->index == 0)
		return false;
	if (lane->state != TCP_LANE_UP)
		return true;
	return !lane->endpoint->base.peer->initiator && !breaks_protocol(code) && lane_is_unused(lane);
}

void tcp_lane_fail(struct tcp_lane *lane, int code)
{
	struct tcp_endpoint *endpoint = lane->endpoint;
	bool dispensable, news, carried = lane->state == TCP_LANE_UP;

	if (lane->state == TCP_LANE_ENDED)
		return;
	/* Attempts that fail alike make one event, as do all lanes that the other end does not take. */
	news = atomic_exchange(&lane->failure, code) != code;
	if (code == -EUSERS)
		news = tcp_lanes_refused(endpoint);
	if (news)
		pl_peer_note_lane(endpoint->base.peer, PL_EVENT_LANE_LOST, lane->index, code,
				  tcp_lane_loss_reason(code));
	dispensable = lane_is_dispensable(lane, code);
	if (carried) {
		tcp_lane_leaves(lane);
		tcp_lane_ignore_rate(lane);
	}
	lane->state = TCP_LANE_ENDED;
	pl_timer_clear(lane->engine, &lane->patience);
	pl_source_remove(&lane->source);
	atomic_fetch_sub(&endpoint->lanes_open, 1);
	if (dispensable && carried)
		tcp_lane_leave_work(lane);
	if (dispensable)
		tcp_lane_retry_later(lane);
	else if (breaks_protocol(code))
		atomic_store(&endpoint->violated, true);
	/* pl_peer_ending() stores `ending` before it counts open lanes, so that it or this sees the end of the last lane. */
	if (!dispensable || atomic_load(&endpoint->base.peer->ending))
		pl_engine_post(endpoint->base.peer->home, &endpoint->ended_task);
}

void tcp_lane_send_failed(struct tcp_lane *lane, int code)
{
	struct pollfd end = { .fd = lane->stream.fd };

	/* Reads of a socket that has hung up do not wait: one of them ends the lane. */
	if (!lane->stopped && poll(&end, 1, 0) == 1 && end.revents & POLLHUP)
		tcp_lane_block(lane);
	else
		tcp_lane_fail(lane, code);
}

static void lane_up(struct tcp_lane *lane)
{
	lane->state = TCP_LANE_UP;
	atomic_store(&lane->failure, 0);
	atomic_store(&lane->missing, 0);
	lane->retry_pause = 0;
	pl_timer_clear(lane->engine, &lane->patience);
	/* No limit where engines do not poll: few processors run both ends of each lane in turn anyway. */
	tcp_flight_start(&lane->flight, lane->stream.fd, lane->index && lane->engine->poll_time);
	pl_stream_use_spare(&lane->stream, &lane->engine->spare_buffers);
	tcp_lane_joins(lane);
	pl_source_watch(&lane->source, EPOLLIN);
	pl_peer_note_lane(lane->endpoint->base.peer, PL_EVENT_LANE_OPENED, lane->index, 0, "");
	if (lane->index == 0)
		pl_peer_up(lane->endpoint->base.peer);
	tcp_lane_flush(lane);
	/* Frames may have arrived with the welcome, and epoll does not report them again. */
	if (pl_stream_pending(&lane->stream))
		tcp_lane_wake(lane);
}

/* Sends the first bytes of a new socket, which has room for them. */
static int lane_greet(struct tcp_lane *lane, void *bytes, size_t length)
{
	struct iovec vector = { .iov_base = bytes, .iov_len = length };

	return pl_stream_write(&lane->stream, &vector, 1) == (ssize_t)length ? 0 : -ECONNRESET;
}

/* -- initiator ---------------------------------------------------------------------------------- */

void tcp_lane_dial(struct tcp_lane *lane)
{
	int fd = lane->endpoint->dial(lane->endpoint), rc;

	lane->state = TCP_LANE_CONNECTING;
	/* The peer's own timer limits the first lane. A stranger at the address may accept the others, and say nothing. */
	if (lane->index)
		pl_timer_set(lane->engine, &lane->patience,
			     pl_deadline(pl_now(), lane->endpoint->context->options.connect_timeout));
	/* The queue of a local listener is full. Further lanes are tried again after each failure. */
	if (fd == -EAGAIN && lane->index == 0) {
		tcp_lane_dial_again(lane);
		return;
	}
	if (fd < 0) {
		tcp_lane_fail(lane, fd);
		return;
	}
	lane->stream.fd = lane->source.fd = fd;
	rc = pl_source_add(lane->engine, &lane->source, EPOLLOUT);
	if (rc < 0)
		tcp_lane_fail(lane, rc);
}

/* Reads until `length` bytes are there, from the beginning. Returns 1, 0 for not yet, or a negative errno. */
static int lane_read(struct tcp_lane *lane, uint8_t *bytes, size_t length)
{
	struct iovec vector = { .iov_base = bytes + lane->head_have, .iov_len = length - lane->head_have };
	ssize_t got = pl_stream_read(&lane->stream, &vector, 1);

	if (got == -EAGAIN)
		return 0;
	if (got < 0)
		return (int)got;
	lane->head_have += (unsigned)got;
	if (lane->head_have < length)
		return 0;
	lane->head_have = 0;
	return 1;
}

static int lane_connected(struct tcp_lane *lane)
{
	struct tcp_endpoint *endpoint = lane->endpoint;
	int failure = 0, rc;
	socklen_t length = sizeof(failure);

	getsockopt(lane->source.fd, SOL_SOCKET, SO_ERROR, &failure, &length);
	if (failure)
		return -failure;
	lane->auth = pl_zalloc(&endpoint->context->allocator, sizeof(*lane->auth));
	if (!lane->auth)
		return -ENOMEM;
	rc = pl_lane_auth_hello(lane->auth, endpoint->peer_index, (uint16_t)lane->index);
	if (rc == 0)
		rc = lane_greet(lane, lane->auth->hello, sizeof(lane->auth->hello));
	lane->state = TCP_LANE_CHALLENGE;
	lane->head_have = 0;
	pl_source_watch(&lane->source, EPOLLIN);
	return rc;
}

/* Answers the challenge, then seals the stream if both ends agreed to encrypt the data. */
static int lane_prove(struct tcp_lane *lane)
{
	struct pl_peer *peer = lane->endpoint->base.peer;
	uint8_t proof[PL_TAG];
	int rc = lane_read(lane, lane->auth->challenge, sizeof(lane->auth->challenge));

	if (rc <= 0)
		return rc;
	rc = pl_lane_auth_prove(lane->auth, peer, proof);
	if (rc == 0)
		rc = lane_greet(lane, proof, sizeof(proof));
	lane->state = TCP_LANE_WELCOME;
	return rc < 0 || !peer->encrypt ? rc : pl_lane_auth_seal(lane->auth, peer, &lane->stream);
}

/* Queues the first frame of a further lane: the acceptor sends nothing over the lane before that has come. */
static int lane_confirm(struct tcp_lane *lane)
{
	struct tcp_piece *piece = tcp_piece_new(lane, &(struct pl_frame){ .type = PL_FRAME_ACK });

	if (!piece)
		return -ENOMEM;
	tcp_lane_queue_piece(lane, piece);
	return 0;
}

static int lane_read_welcome(struct tcp_lane *lane)
{
	uint32_t status;
	int rc = lane_read(lane, lane->head, PL_LANE_WELCOME);

	if (rc <= 0)
		return rc;
	if (pl_lane_welcome_decode(lane->head, &status) < 0)
		return -EPROTO;
	if (status != PL_WIRE_OK)
		return status == PL_WIRE_BUSY && lane->index ? -EUSERS : -EPROTO;
	pl_free(&lane->endpoint->context->allocator, lane->auth);
	lane->auth = NULL;
	rc = lane->index ? lane_confirm(lane) : 0;
	if (rc == 0)
		lane_up(lane);
	return rc;
}

/* -- acceptor ----------------------------------------------------------------------------------- */

/* Takes the socket that the listener accepted. A lane that failed begins anew. */
static void lane_take_accepted(struct tcp_lane *lane)
{
	if (lane->state == TCP_LANE_ENDED) {
		lane->state = TCP_LANE_CONNECTING;
		lane->unlimited = false;
		atomic_fetch_add(&lane->endpoint->lanes_open, 1);
	}
	pthread_mutex_lock(&lane->endpoint->lock);
	lane->stream = lane->accepted;
	lane->accepted = (struct pl_stream){ .fd = -1 };
	pthread_mutex_unlock(&lane->endpoint->lock);
	lane->source.fd = lane->stream.fd;
}

/* Starts a lane with a socket that the listener accepted. Runs on the lane's engine. */
static int lane_joined(struct tcp_lane *lane)
{
	uint8_t bytes[PL_LANE_WELCOME];
	int rc;

	lane_take_accepted(lane);
	rc = pl_source_add(lane->engine, &lane->source, EPOLLIN);
	if (rc < 0)
		return rc;
	pl_lane_welcome_encode(PL_WIRE_OK, bytes);
	rc = lane_greet(lane, bytes, sizeof(bytes));
	if (rc < 0)
		return rc;
	if (lane->index && lane->endpoint->base.peer->confirms_lanes)
		lane->state = TCP_LANE_CONFIRMATION;
	else
		lane_up(lane);
	return 0;
}

/* The lane is up once the initiator has sent bytes over it, which are read next. */
static int lane_await_confirmation(struct tcp_lane *lane)
{
	uint8_t byte;
	ssize_t got = recv(lane->source.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	if (got > 0)
		lane_up(lane);
	else if (got == 0)
		return -EPIPE;
	else if (errno != EAGAIN && errno != EINTR)
		return -errno;
	return 0;
}

/* -- events ------------------------------------------------------------------------------------- */

static int lane_advance(struct tcp_lane *lane, uint32_t events)
{
	int rc = 0;

	if (lane->state == TCP_LANE_CONNECTING && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)))
		rc = lane_connected(lane);
	else if (lane->state == TCP_LANE_CHALLENGE)
		rc = lane_prove(lane);
	else if (lane->state == TCP_LANE_CONFIRMATION)
		rc = lane_await_confirmation(lane);
	if (rc == 0 && lane->state == TCP_LANE_WELCOME)
		rc = lane_read_welcome(lane);
	return rc;
}

/* Returns false if nothing has arrived: a waiter that drives the engine may sleep then. */
static bool lane_opening_ready(struct tcp_lane *lane, uint32_t events)
{
	enum tcp_lane_state before = lane->state;
	unsigned had = lane->head_have;
	int rc = lane_advance(lane, events);

	if (rc < 0)
		tcp_lane_fail(lane, rc);
	return rc < 0 || lane->state != before || lane->head_have != had;
}

/*
 * Both ends can stop on each other's refusals; so can an end that reads nothing. An end that accepts a lane may not
 * answer.
 */
static void lane_lost_patience(struct pl_timer *timer)
{
	tcp_lane_fail(pl_container_of(timer, struct tcp_lane, patience), -ETIMEDOUT);
}

static bool lane_ready(struct pl_source *source, uint32_t events)
{
	struct tcp_lane *lane = pl_container_of(source, struct tcp_lane, source);
	bool any = false;

	if (lane->state != TCP_LANE_UP)
		return lane_opening_ready(lane, events);
	/* epoll reports the end of a socket always, also during a pause. */
	if (events & (EPOLLERR | EPOLLHUP))
		tcp_lane_ignore_rate(lane);
	/* epoll does not report bytes that the stream has received. Between two bursts, a look costs less than epoll. */
	if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) || lane->paused || pl_stream_pending(&lane->stream))
		any = tcp_lane_receive(lane);
	lane->paused = false;
	if ((events & EPOLLOUT) && lane->blocked)
		tcp_lane_unblock(lane);
	/* Sends answers, held-back pieces, and work for which acknowledgements made room. */
	if (lane->state == TCP_LANE_UP && (any || (events & EPOLLOUT)))
		tcp_lane_flush(lane);
	return any;
}

static void lane_idle(struct pl_source *source)
{
	struct tcp_lane *lane = pl_container_of(source, struct tcp_lane, source);

	if (lane->state != TCP_LANE_UP || lane->paused)
		return;
	if (!pl_list_empty(&lane->queue))
		tcp_lane_flush(lane);
	else
		tcp_lane_ack(lane);
}

/* Reads bytes that a visit left. The engine calls lane_idle() only after events, so this acknowledges at once. */
static void lane_receive_rest(struct tcp_lane *lane)
{
	tcp_lane_receive(lane);
	if (lane->state != TCP_LANE_UP)
		return;
	tcp_lane_flush(lane);
	tcp_lane_ack(lane);
}

/* Runs on the lane's engine after tcp_lane_wake(): joins, connects, sweeps, or takes work. */
static void lane_run(struct pl_task *task)
{
	struct tcp_lane *lane = pl_container_of(task, struct tcp_lane, task);
	bool lost = atomic_load(&lane->endpoint->base.peer->state) == PL_PEER_LOST;

	if (lost) {
		tcp_lane_shut(lane);
		return;
	}
	if (atomic_load(&lane->joining)) {
		int rc;

		atomic_store(&lane->joining, false);
		rc = lane_joined(lane);
		if (rc < 0)
			tcp_lane_fail(lane, rc);
	}
	if (lane->dialing) {
		lane->dialing = false;
		tcp_lane_dial(lane);
	}
	if (atomic_exchange(&lane->sweep, 0)) {
		tcp_lane_sweep_staging(lane, false);
		tcp_lane_sweep_pieces(lane, false);
		tcp_lane_sweep_requests(lane, false);
	}
	if (lane->state == TCP_LANE_UP && !lane->stopped && pl_stream_pending(&lane->stream))
		lane_receive_rest(lane);
	tcp_lane_push(lane);
	tcp_lane_answer_finish(lane);
}

/* Ends a lane of an abandoned endpoint. Nothing posts the other task after that. */
static void lane_end(struct pl_task *task)
{
	struct tcp_lane *lane = pl_container_of(task, struct tcp_lane, end_task);

	pl_engine_withdraw(lane->engine, &lane->task);
	tcp_lane_shut(lane);
	tcp_abandoned_lane_ended(lane->endpoint);
}

/* Reads remaining bytes: closing with unread bytes resets the connection, which can destroy sent bytes. */
static void lane_drain(struct tcp_lane *lane)
{
	struct iovec vector = { .iov_base = lane->engine->scratch, .iov_len = PL_ENGINE_SCRATCH };

	pl_stream_end(&lane->stream);
	for (int i = 0; i < DRAIN_READS; i++)
		if (pl_stream_read(&lane->stream, &vector, 1) < 0)
			break;
}

/* Closes a socket that the lane has not taken. */
static void lane_drop_accepted(struct tcp_lane *lane)
{
	pthread_mutex_lock(&lane->endpoint->lock);
	if (lane->accepted.fd >= 0)
		pl_stream_close(&lane->accepted);
	lane->accepted.fd = -1;
	pthread_mutex_unlock(&lane->endpoint->lock);
}

void tcp_lane_shut(struct tcp_lane *lane)
{
	tcp_lane_ignore_rate(lane);
	tcp_lane_drop_answers(lane);
	/* No later round sends what a pause between two bursts leaves. */
	do {
		lane->paused = false;
		tcp_lane_flush(lane);
	} while (lane->paused);
	if (lane->state == TCP_LANE_UP)
		tcp_lane_ack(lane);
	if (lane->state == TCP_LANE_UP)
		lane_drain(lane);
	if (lane->state != TCP_LANE_ENDED) {
		if (lane->state == TCP_LANE_UP)
			tcp_lane_leaves(lane);
		atomic_fetch_sub(&lane->endpoint->lanes_open, 1);
		lane->state = TCP_LANE_ENDED;
	}
	atomic_store(&lane->missing, 0);
	pl_list_remove(&lane->batch_end.link);
	pl_timer_clear(lane->engine, &lane->patience);
	pl_timer_clear(lane->engine, &lane->retry);
	pl_source_remove(&lane->source);
	tcp_lane_sweep_staging(lane, true);
	tcp_lane_sweep_pieces(lane, true);
	tcp_lane_sweep_requests(lane, true);
	tcp_lane_drop_received(lane);
	while (!pl_list_empty(&lane->queue))
		tcp_piece_free(lane, pl_list_first(&lane->queue, struct tcp_piece, link));
	while (!pl_list_empty(&lane->unacked))
		tcp_piece_free(lane, pl_list_first(&lane->unacked, struct tcp_piece, link));
	while (!pl_list_empty(&lane->spare)) {
		struct tcp_piece *piece = pl_list_first(&lane->spare, struct tcp_piece, link);

		pl_list_remove(&piece->link);
		pl_free(lane->engine->allocator, piece);
	}
	lane->spare_count = 0;
	lane->queued = 0;
	pl_free(&lane->endpoint->context->allocator, lane->auth);
	lane->auth = NULL;
	pl_free(lane->engine->allocator, lane->requests);
	lane->requests = NULL;
	lane->request_count = 0;
	if (lane->stream.fd >= 0)
		pl_stream_close(&lane->stream);
	lane->stream.fd = -1;
	lane_drop_accepted(lane);
}
