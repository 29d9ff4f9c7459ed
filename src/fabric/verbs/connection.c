/* SPDX-License-Identifier: BSD-2-Clause */
/* From an address to a queue pair and back, again and again in the life of an endpoint. */
#include "fabric/verbs/verbs.h"

#define RESOLVE_MS 2000
#define HINT_CONNECT \
	"see with rping whether RDMA works between these hosts: routes, firewalls (UDP port 4791), partitions, cables"
/* Of a new peer: a listener with many requests before it may refuse some. */
#define FIRST_ATTEMPTS 5
/* Soft-RoCE takes 7 for "for ever". */
#define RETRIES 6
/* For ever: the receiver may be busy, and every operation has its own time-out. */
#define RECEIVER_RETRIES 7
#define READS_MAX 128u
/* 4.096 us times 2 to this: 67 ms.  The connection manager's own choice is around a second. */
#define ACK_TIMEOUT 14
/* A queue pair in the error state gives everything back at once. */
#define DRAIN_LIMIT PL_NS_PER_S
/* Between two attempts to connect again. */
#define PAUSE_FIRST (2 * PL_NS_PER_MS)
#define PAUSE_MAX (500 * PL_NS_PER_MS)
/* For one attempt to connect again. */
#define ATTEMPT_LIMIT (2 * PL_NS_PER_S)
/* Between two looks at a port that is down. */
#define PORT_PAUSE (50 * PL_NS_PER_MS)

/* What a connection request said, on its way to the peer's engine. */
struct verbs_join {
	struct rdma_cm_id *id;
	uint16_t generation;
	uint8_t reads; /* that the initiator wants to have under way */
};

static const struct verbs_library *library_of(const struct verbs_endpoint *endpoint)
{
	return endpoint->state->library;
}

static bool finished(const struct verbs_endpoint *endpoint)
{
	return endpoint->closing || endpoint->base.peer->leaving ||
	       atomic_load(&endpoint->base.peer->state) == PL_PEER_LOST;
}

/* -- queue pairs ---------------------------------------------------------------------------------- */

static int make_queue_pair(struct verbs_endpoint *endpoint)
{
	uint8_t timeout = ACK_TIMEOUT;
	struct verbs_device *device = verbs_device_get(endpoint->state, endpoint->id->verbs);
	struct ibv_qp_init_attr attributes = {
		.cap = { .max_send_wr = VERBS_SEND_DEPTH, .max_send_sge = 1, .max_inline_data = VERBS_INLINE },
		.qp_type = IBV_QPT_RC,
	};

	endpoint->device = device;
	endpoint->queue = device ? verbs_queue_get(endpoint->state, device, endpoint->base.peer->home) : NULL;
	if (!endpoint->queue)
		return -ENOMEM;
	/* Older kernels do not know of it. */
	library_of(endpoint)->rdma_set_option(endpoint->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
					      sizeof(timeout));
	attributes.send_cq = attributes.recv_cq = endpoint->queue->cq;
	attributes.srq = endpoint->queue->srq;
	if (library_of(endpoint)->rdma_create_qp(endpoint->id, device->pd, &attributes))
		return -errno;
	endpoint->inline_max = attributes.cap.max_inline_data;
	endpoint->unsignaled = 0;
	pl_list_append(
		&endpoint->queue->endpoints[endpoint->id->qp->qp_num % PL_ARRAY_SIZE(endpoint->queue->endpoints)],
		&endpoint->queue_link);
	return 0;
}

static uint8_t reads_of(const struct verbs_device *device)
{
	int most = PL_MIN(device->attributes.max_qp_rd_atom, device->attributes.max_qp_init_rd_atom);

	return (uint8_t)PL_MIN((unsigned)PL_MAX(most, 1), READS_MAX);
}

static void drop_id(struct verbs_endpoint *endpoint)
{
	if (!endpoint->id)
		return;
	pl_list_remove(&endpoint->queue_link);
	pl_list_remove(&endpoint->starved_link);
	if (endpoint->id->qp)
		library_of(endpoint)->rdma_destroy_qp(endpoint->id);
	library_of(endpoint)->rdma_destroy_id(endpoint->id);
	endpoint->id = NULL;
	endpoint->queue = NULL;
}

/* -- both ends ------------------------------------------------------------------------------------ */

static void dial_later(struct verbs_endpoint *endpoint)
{
	uint64_t pause = PAUSE_FIRST << PL_MIN(endpoint->attempts, 10u);

	if (finished(endpoint) || !endpoint->base.peer->initiator)
		return;
	if (endpoint->attempts++ == 0)
		endpoint->down_since = pl_now();
	pl_timer_set(endpoint->base.peer->home, &endpoint->retry, pl_now() + PL_MIN(pause, PAUSE_MAX));
}

/* Whether no further attempt is made.  An acceptor waits for the initiator's, as long as that has time. */
static bool given_up(const struct verbs_endpoint *endpoint)
{
	const struct pl_options *options = &endpoint->state->context->options;

	if (!endpoint->opened)
		return endpoint->base.peer->initiator && endpoint->attempts >= FIRST_ATTEMPTS;
	return endpoint->attempts && pl_now() - endpoint->down_since >= options->connect_timeout;
}

/*
 * Frames that arrived before the end, of which the sender knows.  Also before this end was established, as the other
 * may be so before.
 */
static void take_rest(struct verbs_endpoint *endpoint)
{
	while (endpoint->queue && verbs_queue_poll(endpoint->queue))
		;
}

/* This attempt came to nothing. */
static void connect_failed(struct verbs_endpoint *endpoint, int code, const char *call)
{
	struct pl_peer *peer = endpoint->base.peer;
	char object[PL_ADDRESS_FORMAT_MAX];
	struct pl_error error;

	take_rest(endpoint);
	drop_id(endpoint);
	endpoint->link = VERBS_DOWN;
	if (!given_up(endpoint)) {
		dial_later(endpoint);
		return;
	}
	pl_address_format((struct sockaddr *)&peer->address, object, sizeof(object));
	pl_fail(&error, code, "RDMA-CONNECT", call, object, HINT_CONNECT, "the devices do not reach each other (%s)",
		strerrorname_np(-code) ? strerrorname_np(-code) : "unknown error");
	pl_peer_lose(peer, &error);
}

/*
 * The initiator's end is established first.  It must not speak of the peer before the acceptor's end
 * is, so that one begins, with a frame that says nothing.
 */
static void open_first(struct verbs_endpoint *endpoint)
{
	struct pl_peer *peer = endpoint->base.peer;
	const struct pl_frame frame = { .type = PL_FRAME_CREDIT };
	struct pl_error error;

	endpoint->opened = true;
	if (verbs_message(&endpoint->base, &frame, NULL, NULL) == 0) {
		pl_peer_up(peer);
	} else {
		pl_fail_memory(&error, "connect");
		pl_peer_lose(peer, &error);
	}
}

static void established(struct verbs_endpoint *endpoint)
{
	if (endpoint->link != VERBS_CONNECTING)
		return;
	endpoint->link = VERBS_UP;
	endpoint->attempts = 0;
	if (!endpoint->opened && !endpoint->base.peer->initiator)
		open_first(endpoint);
	verbs_flush(endpoint);
}

/*
 * With its port down a device can do without being asked for anything; and soft-RoCE (Linux 6.1) makes
 * no connection ever again if a message of the connection manager is sent then, such as the one that
 * ends a connection.
 */
static bool port_is_down(const struct verbs_endpoint *endpoint)
{
	struct ibv_port_attr port;

	return verbs_query_port(library_of(endpoint), endpoint->id->verbs, endpoint->id->port_num, &port) == 0 &&
	       (port.state == IBV_PORT_DOWN || port.state == IBV_PORT_INIT);
}

void verbs_fail(struct verbs_endpoint *endpoint)
{
	if (endpoint->link == VERBS_RESOLVING || endpoint->link == VERBS_CONNECTING) {
		connect_failed(endpoint, -ETIMEDOUT, "rdma_connect");
		return;
	}
	if (endpoint->link != VERBS_UP)
		return;
	endpoint->link = VERBS_DRAINING;
	pl_timer_set(endpoint->base.peer->home, &endpoint->drain, pl_now() + DRAIN_LIMIT);
	/* This also moves the queue pair into the error state, in which the card gives everything back. */
	if (port_is_down(endpoint) || library_of(endpoint)->rdma_disconnect(endpoint->id)) {
		struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_ERR };

		library_of(endpoint)->ibv_modify_qp(endpoint->id->qp, &attributes, IBV_QP_STATE);
	}
	if (pl_list_empty(&endpoint->posted))
		pl_engine_post(endpoint->base.peer->home, &endpoint->drained_task);
}

static void accept_joined(struct verbs_endpoint *endpoint);

void verbs_drained_run(struct pl_task *task)
{
	struct verbs_endpoint *endpoint = pl_container_of(task, struct verbs_endpoint, drained_task);

	if (endpoint->link != VERBS_DRAINING || !pl_list_empty(&endpoint->posted))
		return;
	if (port_is_down(endpoint) && !finished(endpoint)) {
		pl_timer_set(endpoint->base.peer->home, &endpoint->retry, pl_now() + PORT_PAUSE);
		return;
	}
	endpoint->link = VERBS_DOWN;
	pl_timer_clear(endpoint->base.peer->home, &endpoint->drain);
	take_rest(endpoint);
	drop_id(endpoint);
	/* The control connection ended before: this was what there was still to come. */
	if (endpoint->base.peer->loss.code)
		pl_peer_ending(endpoint->base.peer);
	if (endpoint->joined)
		accept_joined(endpoint);
	else
		dial_later(endpoint);
}

/*
 * Soft-RoCE can forget a request that it could not send.  Nothing is used any more, either, once the
 * queue pair is destroyed (ibv_destroy_qp(3)).
 */
void verbs_drain_expired(struct pl_timer *timer)
{
	struct verbs_endpoint *endpoint = pl_container_of(timer, struct verbs_endpoint, drain);

	if (endpoint->link != VERBS_DRAINING)
		return;
	take_rest(endpoint);
	pl_list_remove(&endpoint->queue_link);
	library_of(endpoint)->rdma_destroy_qp(endpoint->id);
	verbs_take_back(endpoint);
	pl_engine_post(endpoint->base.peer->home, &endpoint->drained_task);
}

/* -- initiator ------------------------------------------------------------------------------------ */

void verbs_dial(struct verbs_endpoint *endpoint)
{
	struct pl_peer *peer = endpoint->base.peer;
	struct sockaddr_storage from = verbs_address(&peer->local_address, 0);
	struct sockaddr_storage to = verbs_address(&peer->address, endpoint->port);

	endpoint->generation++;
	endpoint->link = VERBS_RESOLVING;
	pl_timer_set(peer->home, &endpoint->retry, pl_now() + ATTEMPT_LIMIT);
	if (library_of(endpoint)->rdma_create_id(endpoint->cm->channel, &endpoint->id, endpoint, RDMA_PS_TCP)) {
		endpoint->id = NULL;
		connect_failed(endpoint, -errno, "rdma_create_id");
	} else if (library_of(endpoint)->rdma_resolve_addr(endpoint->id, (struct sockaddr *)&from,
							   (struct sockaddr *)&to, RESOLVE_MS)) {
		connect_failed(endpoint, -errno, "rdma_resolve_addr");
	}
}

static void address_resolved(struct verbs_endpoint *endpoint)
{
	if (library_of(endpoint)->rdma_resolve_route(endpoint->id, RESOLVE_MS))
		connect_failed(endpoint, -errno, "rdma_resolve_route");
}

static void route_resolved(struct verbs_endpoint *endpoint)
{
	struct pl_lane_hello hello = { .version = PL_PROTOCOL_VERSION,
				       .lane = endpoint->generation,
				       .ticket = endpoint->ticket };
	uint8_t bytes[PL_LANE_HELLO];
	struct rdma_conn_param parameters = {
		.private_data = bytes,
		.private_data_len = sizeof(bytes),
		.retry_count = RETRIES,
		.rnr_retry_count = RECEIVER_RETRIES,
	};
	int rc = make_queue_pair(endpoint);

	if (rc < 0) {
		connect_failed(endpoint, rc, "rdma_create_qp");
		return;
	}
	memcpy(hello.secret, endpoint->ticket_secret, sizeof(hello.secret));
	pl_lane_hello_encode(&hello, bytes);
	parameters.responder_resources = parameters.initiator_depth = reads_of(endpoint->queue->device);
	endpoint->link = VERBS_CONNECTING;
	if (library_of(endpoint)->rdma_connect(endpoint->id, &parameters))
		connect_failed(endpoint, -errno, "rdma_connect");
}

/* -- acceptor ------------------------------------------------------------------------------------- */

static void refuse(const struct verbs_library *library, struct rdma_cm_id *id)
{
	library->rdma_reject(id, NULL, 0);
	library->rdma_destroy_id(id);
}

static void join_free(struct verbs_endpoint *endpoint, struct verbs_join *join)
{
	if (!join)
		return;
	refuse(library_of(endpoint), join->id);
	pl_free(&endpoint->state->context->allocator, join);
}

/* On the listener's engine; nothing of it is believed. */
static void requested(struct verbs_cm *cm, struct rdma_cm_id *id, const uint8_t *bytes, uint8_t length, uint8_t reads)
{
	struct pl_context *context = cm->state->context;
	struct verbs_join *join = NULL;
	struct pl_lane_hello hello;
	struct pl_peer *peer = NULL;

	if (length >= PL_LANE_HELLO && pl_lane_hello_decode(bytes, &hello) == 0)
		peer = pl_peer_by_ticket(context, hello.ticket, hello.secret);
	if (peer && peer->ops == &pl_verbs_fabric)
		join = pl_zalloc(&context->allocator, sizeof(*join));
	if (join) {
		struct verbs_endpoint *endpoint = verbs_endpoint_of(peer->endpoint);

		*join = (struct verbs_join){ .id = id, .generation = hello.lane, .reads = reads };
		id->context = endpoint;
		if (endpoint->cm == cm || !cm->state->library->rdma_migrate_id(id, endpoint->cm->channel)) {
			join_free(endpoint, atomic_exchange(&endpoint->joining, join));
			pl_engine_post(peer->home, &endpoint->join_task);
			id = NULL;
		} else {
			pl_free(&context->allocator, join);
		}
	}
	if (peer)
		pl_peer_unpin(peer);
	if (id)
		refuse(cm->state->library, id);
}

static void accept_joined(struct verbs_endpoint *endpoint)
{
	struct verbs_join *join = endpoint->joined;
	struct rdma_conn_param parameters = { .rnr_retry_count = RECEIVER_RETRIES };
	uint8_t wanted = join->reads;
	int rc;

	endpoint->joined = NULL;
	if (finished(endpoint)) {
		join_free(endpoint, join);
		return;
	}
	endpoint->id = join->id;
	pl_free(&endpoint->state->context->allocator, join);
	endpoint->link = VERBS_CONNECTING;
	rc = make_queue_pair(endpoint);
	if (rc < 0) {
		library_of(endpoint)->rdma_reject(endpoint->id, NULL, 0);
		connect_failed(endpoint, rc, "rdma_create_qp");
		return;
	}
	parameters.responder_resources = parameters.initiator_depth = PL_MIN(reads_of(endpoint->queue->device), wanted);
	if (library_of(endpoint)->rdma_accept(endpoint->id, &parameters))
		connect_failed(endpoint, -errno, "rdma_accept");
}

void verbs_join_run(struct pl_task *task)
{
	struct verbs_endpoint *endpoint = pl_container_of(task, struct verbs_endpoint, join_task);
	struct verbs_join *join = atomic_exchange(&endpoint->joining, NULL);

	if (!join)
		return;
	/* An attempt that the initiator gave up, overtaken by the next.  The numbers start again at some time. */
	if (finished(endpoint) || (int16_t)(join->generation - endpoint->generation) <= 0) {
		join_free(endpoint, join);
		return;
	}
	endpoint->generation = join->generation;
	join_free(endpoint, endpoint->joined);
	endpoint->joined = join;
	if (endpoint->link == VERBS_DOWN)
		accept_joined(endpoint);
	else if (endpoint->link == VERBS_UP)
		verbs_fail(endpoint);
	else if (endpoint->link == VERBS_CONNECTING) {
		take_rest(endpoint);
		drop_id(endpoint);
		endpoint->link = VERBS_DOWN;
		accept_joined(endpoint);
	}
}

void verbs_joins_drop(struct verbs_endpoint *endpoint)
{
	join_free(endpoint, atomic_exchange(&endpoint->joining, NULL));
	join_free(endpoint, endpoint->joined);
	endpoint->joined = NULL;
}

void verbs_links_drop(struct verbs_endpoint *endpoint)
{
	drop_id(endpoint);
	endpoint->link = VERBS_DOWN;
}

/* -- events --------------------------------------------------------------------------------------- */

static void happened(struct verbs_endpoint *endpoint, enum rdma_cm_event_type type, int status)
{
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		address_resolved(endpoint);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		route_resolved(endpoint);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		established(endpoint);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		connect_failed(endpoint, status < 0 ? status : -EHOSTUNREACH,
			       library_of(endpoint)->rdma_event_str(type));
		break;
	case RDMA_CM_EVENT_REJECTED:
		connect_failed(endpoint, -ECONNREFUSED, library_of(endpoint)->rdma_event_str(type));
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		verbs_fail(endpoint);
		break;
	default:
		break;
	}
}

/* One event; false if there is none. */
static bool take_event(struct verbs_cm *cm)
{
	const struct verbs_library *library = cm->state->library;
	uint8_t bytes[PL_LANE_HELLO] = { 0 };
	struct verbs_endpoint *endpoint;
	enum rdma_cm_event_type type;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	uint8_t length, reads;
	int status;

	if (library->rdma_get_cm_event(cm->channel, &event))
		return false;
	type = event->event;
	id = event->id;
	status = event->status;
	endpoint = id->context;
	length = event->param.conn.private_data_len;
	reads = event->param.conn.initiator_depth;
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST && event->param.conn.private_data)
		memcpy(bytes, event->param.conn.private_data, PL_MIN(length, sizeof(bytes)));
	/* Before anything else, as an id is destroyed only when its events are acknowledged. */
	library->rdma_ack_cm_event(event);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		requested(cm, id, bytes, length, reads);
	else if (endpoint && endpoint->id == id)
		happened(endpoint, type, status);
	return true;
}

bool verbs_cm_ready(struct pl_source *source, uint32_t events)
{
	struct verbs_cm *cm = pl_container_of(source, struct verbs_cm, source);
	bool any = false;

	(void)events;
	while (take_event(cm))
		any = true;
	return any;
}
