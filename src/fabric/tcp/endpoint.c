/* SPDX-License-Identifier: BSD-2-Clause */
#include "control/socket_io.h"
#include "fabric/tcp/finish.h"

static const char visibility[] =
	"tcp: the receiving process copied the bytes to their memory before it acknowledged them";
static const char reason[] = "tcp: the socket reads and writes the region itself; no RDMA device is used";

/* Reports the end of a lane to the peer: a violated protocol, a refused connection, or an orderly end. Home. */
static void lane_ended_run(struct pl_task *task)
{
	struct tcp_endpoint *endpoint = pl_container_of(task, struct tcp_endpoint, ended_task);
	struct pl_peer *peer = endpoint->base.peer;
	int failure = endpoint->lanes[0] ? atomic_load(&endpoint->lanes[0]->failure) : 0;
	struct pl_error error;

	if (atomic_load(&endpoint->violated)) {
		pl_fail(&error, -EPROTO, "PROTOCOL", "receive", NULL,
			"check that both ends run the same release of Peerlane",
			"a data socket broke the protocol, or there was no memory to serve it");
		pl_peer_lose(peer, &error);
	} else if (atomic_load(&peer->state) == PL_PEER_OPENING && failure == -EADDRNOTAVAIL) {
		pl_fail(&error, failure, "CONNECT-PORTS", "connect", NULL,
			"widen net.ipv4.ip_local_port_range, or close other connections to this address",
			"this host has no free port for a connection to the other end");
		pl_peer_lose(peer, &error);
	} else if (atomic_load(&peer->state) == PL_PEER_OPENING && pl_lacks_descriptor(failure)) {
		pl_fail_errno(&error, failure, "PEER-LOST", "connect", NULL);
		pl_peer_lose(peer, &error);
	} else if (atomic_load(&peer->state) == PL_PEER_OPENING) {
		pl_fail(&error, -ECONNRESET, "PEER-LOST", "connect", NULL, NULL, "the data socket was not accepted");
		pl_peer_lose(peer, &error);
	} else {
		/* A stopped lane does not read, because the other end takes no refusals: it ends by its own time limit. */
		if (peer->loss.code == 0 && !peer->leaving && endpoint->lanes[0] && !endpoint->lanes[0]->stopped &&
		    pl_socket_is_silence(failure))
			pl_socket_explain_silence(&peer->loss);
		pl_peer_ending(peer);
	}
}

/* Wakes all lanes for work that waited until no late frame was left. Home. */
static void late_placed_run(struct pl_task *task)
{
	struct tcp_endpoint *endpoint = pl_container_of(task, struct tcp_endpoint, late_placed_task);

	if (endpoint->closed)
		return;
	tcp_for_each_lane(endpoint, tcp_lane_wake);
	if (endpoint->late_placed)
		endpoint->late_placed(endpoint->base.peer);
}

void tcp_late_frame_placed(struct tcp_endpoint *endpoint)
{
	if (atomic_fetch_sub(&endpoint->late, 1) == 1)
		pl_engine_post(endpoint->base.peer->home, &endpoint->late_placed_task);
}

static struct pl_engine *tcp_engine_of_lane(const struct tcp_endpoint *endpoint, unsigned index)
{
	struct pl_context *context = endpoint->context;
	unsigned home = pl_context_engine_index(context, endpoint->base.peer->home);

	return context->engines[(home + index) % context->engine_count];
}

struct tcp_lane *tcp_lane_new(struct tcp_endpoint *endpoint, unsigned index)
{
	struct tcp_lane *lane = pl_zalloc(&endpoint->context->allocator, sizeof(*lane));

	if (!lane)
		return NULL;
	lane->endpoint = endpoint;
	lane->index = index;
	lane->engine = tcp_engine_of_lane(endpoint, index);
	tcp_lane_init(lane);
	return lane;
}

static int tcp_dial_listener(struct tcp_endpoint *endpoint)
{
	int fd = pl_socket_connect((struct sockaddr *)&endpoint->base.peer->address, &endpoint->context->options);

	/* Of a local socket, EAGAIN means a full queue, and another attempt helps. An IP socket has no free port or route. */
	return fd == -EAGAIN ? -EADDRNOTAVAIL : fd;
}

static int tcp_create(struct pl_peer *peer, struct pl_endpoint **result, struct pl_error *error)
{
	struct tcp_endpoint *endpoint = pl_zalloc(&peer->context->allocator, sizeof(*endpoint));

	if (!endpoint)
		return pl_fail_memory(error, "connect");
	endpoint->base.peer = peer;
	endpoint->context = peer->context;
	endpoint->lanes_requested = 1;
	endpoint->dial = tcp_dial_listener;
	pl_task_init(&endpoint->ended_task, lane_ended_run);
	pl_task_init(&endpoint->late_placed_task, late_placed_run);
	pl_mutex_init_short(&endpoint->lock);
	pl_list_init(&endpoint->work);
	pl_list_init(&endpoint->small_work);
	tcp_init_gathered(endpoint);
	tcp_init_held(endpoint);
	tcp_init_finished(endpoint);
	*result = &endpoint->base;
	return 0;
}

static int tcp_describe(struct pl_endpoint *base, uint8_t blob[PL_FABRIC_BLOB_MAX])
{
	struct pl_writer writer;

	pl_writer_init(&writer, blob, PL_FABRIC_BLOB_MAX);
	pl_put_u64(&writer, base->peer->peer_index);
	return (int)(writer.at - writer.begin);
}

/* Adds a lane. Returns false if the index is taken. */
static bool tcp_endpoint_add_lane(struct tcp_endpoint *endpoint, struct tcp_lane *lane)
{
	bool placed = false;

	pthread_mutex_lock(&endpoint->lock);
	if (!endpoint->lanes[lane->index] && !endpoint->closed) {
		endpoint->lanes[lane->index] = lane;
		placed = true;
	}
	pthread_mutex_unlock(&endpoint->lock);
	if (placed)
		atomic_fetch_add(&endpoint->lanes_open, 1);
	return placed;
}

static int tcp_connect(struct pl_endpoint *base, const uint8_t *blob, size_t length, struct pl_error *error)
{
	struct tcp_endpoint *endpoint = tcp_endpoint_of(base);
	struct pl_reader reader;
	struct tcp_lane *lane;

	pl_reader_init(&reader, blob, length);
	endpoint->peer_index = pl_get_u64(&reader);
	if (reader.bad)
		return pl_fail(error, -EPROTO, "PROTOCOL", "hello", NULL, NULL,
			       "the other end's description of the tcp fabric is malformed");
	lane = tcp_lane_new(endpoint, 0);
	if (!lane)
		return pl_fail_memory(error, "connect");
	if (!tcp_endpoint_add_lane(endpoint, lane)) {
		pl_free(&endpoint->context->allocator, lane);
		return pl_fail_errno(error, -ECANCELED, "CONNECT-FAILED", "connect", NULL);
	}
	tcp_lane_dial(lane);
	return 0;
}

/* Gives the socket to a lane that failed. Returns false if there is none with that index. */
static bool tcp_endpoint_join_again(struct tcp_endpoint *endpoint, unsigned index, const struct pl_stream *stream)
{
	struct tcp_lane *lane;
	bool joins;

	pthread_mutex_lock(&endpoint->lock);
	lane = endpoint->lanes[index];
	joins = lane && lane->vacant && !endpoint->closed;
	if (joins) {
		lane->vacant = false;
		lane->accepted = *stream;
	}
	pthread_mutex_unlock(&endpoint->lock);
	if (!joins)
		return false;
	atomic_store(&lane->joining, true);
	pl_engine_post(lane->engine, &lane->task);
	return true;
}

static int tcp_join(struct pl_endpoint *base, struct pl_stream *stream, const uint8_t *bytes)
{
	struct tcp_endpoint *endpoint = tcp_endpoint_of(base);
	struct pl_lane_hello hello;
	struct tcp_lane *lane = NULL;

	if (pl_lane_hello_decode(bytes, &hello) == 0 && hello.version == PL_PROTOCOL_VERSION &&
	    hello.lane < tcp_sockets(base->peer->lanes)) {
		if (tcp_refuses_lane(endpoint, hello.lane, stream))
			return 0;
		if (tcp_endpoint_join_again(endpoint, hello.lane, stream))
			return 0;
		lane = tcp_lane_new(endpoint, hello.lane);
	}
	if (!lane) {
		pl_stream_close(stream);
		return -EPROTO;
	}
	lane->accepted = *stream;
	atomic_store(&lane->joining, true);
	if (!tcp_endpoint_add_lane(endpoint, lane)) {
		pl_stream_close(stream);
		pl_free(&endpoint->context->allocator, lane);
		return -EPROTO;
	}
	pl_engine_post(lane->engine, &lane->task);
	return 0;
}

void tcp_lane_wake(struct tcp_lane *lane)
{
	pl_engine_post(lane->engine, &lane->task);
}

void tcp_widen(struct pl_endpoint *base, unsigned lanes)
{
	struct tcp_endpoint *endpoint = tcp_endpoint_of(base);

	lanes = PL_MIN(lanes, base->peer->lanes);
	/* The other end gets what it asks for: it would wait for lanes, and cannot learn of a refusal. */
	if (lanes > TCP_LANES_OF_OTHERS)
		tcp_count_wide_peer(endpoint);
	lanes = tcp_sockets(lanes);
	while (endpoint->lanes_requested < lanes) {
		struct tcp_lane *lane = tcp_lane_new(endpoint, endpoint->lanes_requested);

		if (!lane)
			return; /* the existing lanes carry all bytes */
		lane->dialing = true;
		if (!tcp_endpoint_add_lane(endpoint, lane)) {
			pl_free(&endpoint->context->allocator, lane);
			return;
		}
		endpoint->lanes_requested++;
		tcp_lane_wake(lane);
	}
}

void tcp_lane_queue_message(struct tcp_lane *lane, struct tcp_piece *piece, const void *payload,
			    struct pl_operation *operation)
{
	piece->length = piece->frame.length;
	piece->payload = payload;
	if (piece->length <= sizeof(piece->copy)) {
		if (piece->length)
			memcpy(piece->copy, payload, piece->length);
		piece->payload = piece->copy;
	}
	piece->operation = operation;
	if (operation)
		atomic_fetch_add(&operation->pending, 1);
	if (lane->index == 0 && tcp_frame_is_counted(piece->frame.type))
		lane->endpoint->messages++;
	tcp_lane_queue_piece(lane, piece);
}

/* The answer to a COPY frame, which ends its owner, may arrive before the frame was sent: the lane keeps the bytes. */
static int piece_keep_copy_request(struct tcp_lane *lane, struct tcp_piece *piece, const void **payload)
{
	const struct pl_frame *frame = &piece->frame;

	if (frame->type != PL_FRAME_COPY || frame->length <= sizeof(piece->copy))
		return 0;
	piece->payload_copy = pl_alloc(lane->engine->allocator, frame->length);
	if (!piece->payload_copy)
		return -ENOMEM;
	memcpy(piece->payload_copy, *payload, frame->length);
	*payload = piece->payload_copy;
	return 0;
}

/* Sends a frame of core over lane 0, whose engine is the peer's home. */
static int tcp_message(struct pl_endpoint *base, const struct pl_frame *frame, const void *payload,
		       struct pl_operation *operation)
{
	struct tcp_lane *lane = tcp_endpoint_of(base)->lanes[0];
	struct tcp_piece *piece = tcp_piece_new(lane, frame);

	if (!piece)
		return -ENOMEM;
	if (piece_keep_copy_request(lane, piece, &payload) < 0) {
		tcp_piece_free(lane, piece);
		return -ENOMEM;
	}
	if (frame->type == PL_FRAME_RENDEZVOUS)
		atomic_fetch_add(&tcp_endpoint_of(base)->rendezvous, 1);
	tcp_lane_queue_message(lane, piece, payload, operation);
	tcp_lane_push(lane);
	return 0;
}

void tcp_for_each_lane(struct tcp_endpoint *endpoint, void (*visit)(struct tcp_lane *))
{
	for (unsigned i = 0; i < TCP_SOCKETS_MAX; i++) {
		struct tcp_lane *lane;

		pthread_mutex_lock(&endpoint->lock);
		lane = endpoint->lanes[i];
		pthread_mutex_unlock(&endpoint->lock);
		if (lane)
			visit(lane);
	}
}

static void tcp_stopped(struct pl_endpoint *base)
{
	tcp_endpoint_of(base)->lanes[0]->unswept = true;
}

/* Notifications of other lanes end once they are acknowledged. */
static bool tcp_send_last(struct pl_endpoint *base)
{
	struct tcp_lane *lane = tcp_endpoint_of(base)->lanes[0];

	tcp_lane_flush(lane);
	if (lane->state == TCP_LANE_UP && !tcp_lane_has_sent_messages(lane))
		return false;
	return tcp_has_sent_finish(tcp_endpoint_of(base));
}

static void tcp_lane_request_sweep(struct tcp_lane *lane)
{
	atomic_store(&lane->sweep, 1);
	tcp_lane_wake(lane);
}

static void tcp_sweep(struct pl_endpoint *base)
{
	struct tcp_endpoint *endpoint = tcp_endpoint_of(base);

	if (atomic_load(&base->peer->state) == PL_PEER_LOST)
		tcp_give_wide_place(endpoint);
	tcp_work_sweep(endpoint);
	tcp_for_each_lane(endpoint, tcp_lane_request_sweep);
}

static bool tcp_drained(struct pl_endpoint *base)
{
	struct tcp_endpoint *endpoint = tcp_endpoint_of(base);

	return atomic_load(&endpoint->lanes_open) == 0 && atomic_load(&endpoint->held_count) == 0 &&
	       atomic_load(&endpoint->finished_count) == 0;
}

/* Lane 0 counts if it is the only one. */
static unsigned tcp_lanes(struct pl_endpoint *base)
{
	unsigned bulk = (unsigned)__builtin_popcount(atomic_load(&tcp_endpoint_of(base)->bulk_lanes));

	return PL_MAX(bulk, 1u);
}

/* Refuses lanes that are added later. */
static void tcp_endpoint_refuse_lanes(struct tcp_endpoint *endpoint)
{
	pthread_mutex_lock(&endpoint->lock);
	endpoint->closed = true;
	pthread_mutex_unlock(&endpoint->lock);
}

void tcp_abandoned_lane_ended(struct tcp_endpoint *endpoint)
{
	struct pl_engine *home = endpoint->base.peer->home;
	struct pl_task *task = endpoint->ended;

	if (atomic_fetch_sub(&endpoint->ending, 1) == 1)
		pl_engine_post(home, task);
}

static void tcp_lane_abandon(struct tcp_lane *lane)
{
	atomic_fetch_add(&lane->endpoint->ending, 1);
	pl_engine_post(lane->engine, &lane->end_task);
}

static void tcp_abandon(struct pl_endpoint *base, struct pl_task *task)
{
	struct tcp_endpoint *endpoint = tcp_endpoint_of(base);

	tcp_endpoint_refuse_lanes(endpoint);
	endpoint->ended = task;
	atomic_store(&endpoint->ending, 1);
	tcp_for_each_lane(endpoint, tcp_lane_abandon);
	tcp_abandoned_lane_ended(endpoint);
}

static void tcp_lane_close(struct tcp_lane *lane)
{
	pl_engine_lock(lane->engine);
	pl_engine_withdraw(lane->engine, &lane->task);
	pl_engine_withdraw(lane->engine, &lane->end_task);
	tcp_lane_shut(lane);
	pl_engine_unlock(lane->engine);
}

static void tcp_close(struct pl_endpoint *base)
{
	struct tcp_endpoint *endpoint = tcp_endpoint_of(base);
	struct pl_engine *home = base->peer->home;
	bool held = pl_engine_held(home);

	tcp_endpoint_refuse_lanes(endpoint);
	if (!held) {
		tcp_for_each_lane(endpoint, tcp_lane_close);
		pl_engine_lock(home);
	}
	/* Tasks that the lanes posted. */
	pl_engine_withdraw(home, &endpoint->ended_task);
	pl_engine_withdraw(home, &endpoint->late_placed_task);
	pl_engine_withdraw(home, &endpoint->held_task);
	pl_engine_withdraw(home, &endpoint->finished_task);
	pl_list_remove(&endpoint->gathering_end.link);
	if (!held)
		pl_engine_unlock(home);
	tcp_free_held(endpoint);
	tcp_free_finished(endpoint);
	tcp_give_wide_place(endpoint);
	for (unsigned i = 0; i < TCP_SOCKETS_MAX; i++)
		pl_free(&endpoint->context->allocator, endpoint->lanes[i]);
	pthread_mutex_destroy(&endpoint->lock);
	pl_free(&endpoint->context->allocator, endpoint);
}

static int tcp_export_key(struct pl_endpoint *base, struct pl_grant *grant, struct pl_key *key,
			  uint8_t blob[PL_KEY_BLOB_MAX])
{
	struct pl_writer writer;

	(void)base;
	(void)grant;
	pl_writer_init(&writer, blob, PL_KEY_BLOB_MAX);
	pl_put_u64(&writer, key->id);
	if (pl_memory_staged(key->memory))
		pl_put_u8(&writer, TCP_KEY_STAGED);
	return (int)(writer.at - writer.begin);
}

const struct pl_fabric_ops pl_tcp_fabric = {
	.name = "tcp",
	.reason = reason,
	.visible = PL_VISIBLE_GPU_VISIBLE,
	.visibility = visibility,
	.posts_bulk_at_home = true,
	.limits_rate = true,
	.trailing_words = true,
	.staging_reason = "tcp has no direct path to GPU memory: its bytes go through locked host memory",
	.create = tcp_create,
	.describe = tcp_describe,
	.connect = tcp_connect,
	.join = tcp_join,
	.widen = tcp_widen,
	.post = tcp_post,
	.prepare = tcp_prepare,
	.message = tcp_message,
	.sweep = tcp_sweep,
	.stopped = tcp_stopped,
	.send_last = tcp_send_last,
	.drained = tcp_drained,
	.lanes = tcp_lanes,
	.lanes_missing = tcp_lanes_missing,
	.lanes_most = tcp_lanes_most,
	.abandon = tcp_abandon,
	.close = tcp_close,
	.export_key = tcp_export_key,
	.exports_ids = true,
};
