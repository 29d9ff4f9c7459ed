/* SPDX-License-Identifier: BSD-2-Clause */
/* From an address to a queue pair and back, again and again in the life of a rail. */
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
/* While another rail is up. */
#define PAUSE_SPARE (5 * PL_NS_PER_S)
/* For one attempt to connect again. */
#define ATTEMPT_LIMIT (2 * PL_NS_PER_S)
/* Between two looks at a port that is down. */
#define PORT_PAUSE (50 * PL_NS_PER_MS)

/* What a connection request says: a lane's hello, then the rail. */
#define RAIL_HELLO (PL_LANE_HELLO + 2 + VERBS_RAILS)

struct rail_hello {
	struct pl_lane_hello lane; /* its number is the generation */
	uint8_t index, count;
	uint8_t places[VERBS_RAILS]; /* of each rail at the acceptor's, as it numbered them */
};

/* A connection request on its way to the peer's engine. */
struct verbs_join {
	struct rdma_cm_id *id;
	struct rail_hello hello;
	uint8_t reads; /* that the initiator wants to have under way */
};

static const struct verbs_library *library_of(const struct verbs_rail *rail)
{
	return rail->endpoint->state->library;
}

static struct pl_engine *home_of(const struct verbs_rail *rail)
{
	return rail->endpoint->base.peer->home;
}

static void hello_encode(const struct rail_hello *hello, uint8_t bytes[RAIL_HELLO])
{
	pl_lane_hello_encode(&hello->lane, bytes);
	bytes[PL_LANE_HELLO] = hello->index;
	bytes[PL_LANE_HELLO + 1] = hello->count;
	memcpy(bytes + PL_LANE_HELLO + 2, hello->places, VERBS_RAILS);
}

static int hello_decode(const uint8_t *bytes, size_t length, struct rail_hello *hello)
{
	if (length < RAIL_HELLO || pl_lane_hello_decode(bytes, &hello->lane) < 0)
		return -EPROTO;
	hello->index = bytes[PL_LANE_HELLO];
	hello->count = bytes[PL_LANE_HELLO + 1];
	memcpy(hello->places, bytes + PL_LANE_HELLO + 2, VERBS_RAILS);
	return hello->count > VERBS_RAILS || hello->index >= hello->count ? -EPROTO : 0;
}

/* -- queue pairs ---------------------------------------------------------------------------------- */

static int make_queue_pair(struct verbs_rail *rail)
{
	uint8_t timeout = ACK_TIMEOUT;
	struct ibv_qp_init_attr attributes = {
		.cap = { .max_send_wr = VERBS_SEND_DEPTH, .max_send_sge = 1, .max_inline_data = VERBS_INLINE },
		.qp_type = IBV_QPT_RC,
	};

	/* Keys were given out for the device that the address belonged to. */
	if (rail->id->verbs != rail->device->verbs)
		return -ENODEV;
	rail->queue = verbs_queue_get(rail->endpoint->state, rail->device, home_of(rail));
	if (!rail->queue)
		return -ENOMEM;
	/* Older kernels do not know of it. */
	library_of(rail)->rdma_set_option(rail->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
					  sizeof(timeout));
	attributes.send_cq = attributes.recv_cq = rail->queue->cq;
	attributes.srq = rail->queue->srq;
	if (library_of(rail)->rdma_create_qp(rail->id, rail->device->pd, &attributes))
		return -errno;
	rail->inline_max = attributes.cap.max_inline_data;
	rail->unsignaled = 0;
	pl_list_append(&rail->queue->rails[rail->id->qp->qp_num % PL_ARRAY_SIZE(rail->queue->rails)],
		       &rail->queue_link);
	return 0;
}

static uint8_t reads_of(const struct verbs_device *device)
{
	int most = PL_MIN(device->attributes.max_qp_rd_atom, device->attributes.max_qp_init_rd_atom);

	return (uint8_t)PL_MIN((unsigned)PL_MAX(most, 1), READS_MAX);
}

static void drop_id(struct verbs_rail *rail)
{
	if (!rail->id)
		return;
	pl_list_remove(&rail->queue_link);
	pl_list_remove(&rail->starved_link);
	if (rail->id->qp)
		library_of(rail)->rdma_destroy_qp(rail->id);
	library_of(rail)->rdma_destroy_id(rail->id);
	rail->id = NULL;
	rail->queue = NULL;
}

/* -- both ends ------------------------------------------------------------------------------------ */

/* Whether this rail is no hope any more.  An acceptor waits for the initiator's, as long as that has time. */
static bool hopeless(const struct verbs_rail *rail)
{
	const struct verbs_endpoint *endpoint = rail->endpoint;
	const struct pl_options *options = &endpoint->state->context->options;

	if (!endpoint->base.peer->initiator)
		return false;
	if (!endpoint->opened)
		return rail->attempts >= FIRST_ATTEMPTS;
	return endpoint->down_since && pl_now() - endpoint->down_since >= options->connect_timeout;
}

static bool all_hopeless(const struct verbs_endpoint *endpoint)
{
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		if (!hopeless(&endpoint->rails[i]))
			return false;
	return true;
}

static void dial_later(struct verbs_rail *rail)
{
	uint64_t pause = PAUSE_FIRST << PL_MIN(rail->attempts, 12u);
	uint64_t most = verbs_rails_up(rail->endpoint) ? PAUSE_SPARE : PAUSE_MAX;

	if (verbs_finished(rail->endpoint) || !rail->endpoint->base.peer->initiator)
		return;
	rail->attempts++;
	pl_timer_set(home_of(rail), &rail->retry, pl_now() + PL_MIN(pause, most));
}

/*
 * Frames that arrived before the end, of which the sender knows.  Also before this end was established, as the other
 * may be so before.
 */
static void take_rest(struct verbs_rail *rail)
{
	while (rail->queue && verbs_queue_poll(rail->queue))
		;
}

/* This attempt came to nothing. */
static void connect_failed(struct verbs_rail *rail, int code, const char *call)
{
	struct verbs_endpoint *endpoint = rail->endpoint;
	struct pl_peer *peer = endpoint->base.peer;
	char object[PL_ADDRESS_FORMAT_MAX];
	struct pl_error error;

	take_rest(rail);
	drop_id(rail);
	rail->link = VERBS_DOWN;
	verbs_fence_quiet(rail);
	if (!all_hopeless(endpoint)) {
		dial_later(rail);
		return;
	}
	pl_address_format((struct sockaddr *)&rail->to, object, sizeof(object));
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

static void established(struct verbs_rail *rail)
{
	struct verbs_endpoint *endpoint = rail->endpoint;

	if (rail->link != VERBS_CONNECTING)
		return;
	rail->link = VERBS_UP;
	rail->attempts = 0;
	endpoint->down_since = 0;
	/* The other end dropped its old queue pair before it took part in making this one. */
	verbs_fence_release(rail);
	if (!endpoint->opened && !endpoint->base.peer->initiator)
		open_first(endpoint);
	verbs_fence_ask(endpoint);
	verbs_flush(endpoint);
}

/*
 * With its port down a device can do without being asked for anything; and soft-RoCE (Linux 6.1) makes
 * no connection ever again if a message of the connection manager is sent then, such as the one that
 * ends a connection.
 */
static bool port_is_down(const struct verbs_rail *rail)
{
	struct ibv_port_attr port;

	return verbs_query_port(library_of(rail), rail->id->verbs, rail->id->port_num, &port) == 0 &&
	       (port.state == IBV_PORT_DOWN || port.state == IBV_PORT_INIT);
}

void verbs_fail(struct verbs_rail *rail)
{
	if (rail->link == VERBS_RESOLVING || rail->link == VERBS_CONNECTING) {
		connect_failed(rail, -ETIMEDOUT, "rdma_connect");
		return;
	}
	if (rail->link != VERBS_UP)
		return;
	rail->link = VERBS_DRAINING;
	if (!verbs_rails_up(rail->endpoint))
		rail->endpoint->down_since = pl_now();
	pl_timer_set(home_of(rail), &rail->drain, pl_now() + DRAIN_LIMIT);
	/* This also moves the queue pair into the error state, in which the card gives everything back. */
	if (port_is_down(rail) || library_of(rail)->rdma_disconnect(rail->id)) {
		struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_ERR };

		library_of(rail)->ibv_modify_qp(rail->id->qp, &attributes, IBV_QP_STATE);
	}
	if (pl_list_empty(&rail->posted))
		pl_engine_post(home_of(rail), &rail->drained_task);
}

void verbs_fail_soon(struct verbs_rail *rail)
{
	rail->fail_generation = rail->generation;
	pl_engine_post(home_of(rail), &rail->fail_task);
}

void verbs_fail_run(struct pl_task *task)
{
	struct verbs_rail *rail = pl_container_of(task, struct verbs_rail, fail_task);

	if (rail->generation == rail->fail_generation)
		verbs_fail(rail);
}

static void accept_joined(struct verbs_rail *rail);

void verbs_drained_run(struct pl_task *task)
{
	struct verbs_rail *rail = pl_container_of(task, struct verbs_rail, drained_task);
	struct verbs_endpoint *endpoint = rail->endpoint;

	if (rail->link != VERBS_DRAINING || !pl_list_empty(&rail->posted))
		return;
	take_rest(rail);
	verbs_fence_quiet(rail);
	if (port_is_down(rail) && !verbs_finished(endpoint)) {
		pl_timer_set(home_of(rail), &rail->retry, pl_now() + PORT_PAUSE);
		return;
	}
	rail->link = VERBS_DOWN;
	pl_timer_clear(home_of(rail), &rail->drain);
	drop_id(rail);
	/* The control connection ended before: this was what there was still to come. */
	if (endpoint->base.peer->loss.code)
		pl_peer_ending(endpoint->base.peer);
	if (rail->joined)
		accept_joined(rail);
	else
		dial_later(rail);
}

/*
 * Soft-RoCE can forget a request that it could not send.  Nothing is used any more, either, once the
 * queue pair is destroyed (ibv_destroy_qp(3)).
 */
void verbs_drain_expired(struct pl_timer *timer)
{
	struct verbs_rail *rail = pl_container_of(timer, struct verbs_rail, drain);

	if (rail->link != VERBS_DRAINING)
		return;
	take_rest(rail);
	pl_list_remove(&rail->queue_link);
	if (rail->id->qp)
		library_of(rail)->rdma_destroy_qp(rail->id);
	verbs_take_back(rail);
	pl_engine_post(home_of(rail), &rail->drained_task);
}

/* -- initiator ------------------------------------------------------------------------------------ */

void verbs_dial(struct verbs_rail *rail)
{
	rail->generation++;
	rail->link = VERBS_RESOLVING;
	pl_timer_set(home_of(rail), &rail->retry, pl_now() + ATTEMPT_LIMIT);
	if (library_of(rail)->rdma_create_id(rail->endpoint->cm->channel, &rail->id, rail, RDMA_PS_TCP)) {
		rail->id = NULL;
		connect_failed(rail, -errno, "rdma_create_id");
	} else if (library_of(rail)->rdma_resolve_addr(rail->id, (struct sockaddr *)&rail->from,
						       (struct sockaddr *)&rail->to, RESOLVE_MS)) {
		connect_failed(rail, -errno, "rdma_resolve_addr");
	}
}

static void address_resolved(struct verbs_rail *rail)
{
	if (library_of(rail)->rdma_resolve_route(rail->id, RESOLVE_MS))
		connect_failed(rail, -errno, "rdma_resolve_route");
}

static void route_resolved(struct verbs_rail *rail)
{
	const struct verbs_endpoint *endpoint = rail->endpoint;
	struct rail_hello hello = {
		.lane = { .version = PL_PROTOCOL_VERSION, .lane = rail->generation, .ticket = endpoint->ticket },
		.index = rail->index,
		.count = (uint8_t)endpoint->rail_count,
	};
	uint8_t bytes[RAIL_HELLO];
	struct rdma_conn_param parameters = {
		.private_data = bytes,
		.private_data_len = sizeof(bytes),
		.retry_count = RETRIES,
		.rnr_retry_count = RECEIVER_RETRIES,
	};
	int rc = make_queue_pair(rail);

	if (rc < 0) {
		connect_failed(rail, rc, "rdma_create_qp");
		return;
	}
	memcpy(hello.lane.secret, endpoint->ticket_secret, sizeof(hello.lane.secret));
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		hello.places[i] = endpoint->rails[i].place;
	hello_encode(&hello, bytes);
	parameters.responder_resources = parameters.initiator_depth = reads_of(rail->device);
	rail->link = VERBS_CONNECTING;
	if (library_of(rail)->rdma_connect(rail->id, &parameters))
		connect_failed(rail, -errno, "rdma_connect");
}

/* -- acceptor ------------------------------------------------------------------------------------- */

static void refuse(const struct verbs_library *library, struct rdma_cm_id *id)
{
	library->rdma_reject(id, NULL, 0);
	library->rdma_destroy_id(id);
}

static void join_free(struct verbs_rail *rail, struct verbs_join *join)
{
	if (!join)
		return;
	refuse(library_of(rail), join->id);
	pl_free(&rail->endpoint->state->context->allocator, join);
}

/* On the listener's engine; nothing of it is believed. */
static void requested(struct verbs_cm *cm, struct rdma_cm_id *id, const uint8_t *bytes, uint8_t length, uint8_t reads)
{
	struct pl_context *context = cm->state->context;
	struct verbs_join *join = NULL;
	struct pl_peer *peer = NULL;
	struct rail_hello hello;

	if (hello_decode(bytes, length, &hello) == 0)
		peer = pl_peer_by_ticket(context, hello.lane.ticket, hello.lane.secret);
	if (peer && peer->ops == &pl_verbs_fabric && !peer->initiator)
		join = pl_zalloc(&context->allocator, sizeof(*join));
	if (join) {
		struct verbs_endpoint *endpoint = verbs_endpoint_of(peer->endpoint);
		struct verbs_rail *rail = &endpoint->rails[hello.index];

		*join = (struct verbs_join){ .id = id, .hello = hello, .reads = reads };
		id->context = rail;
		if (endpoint->cm == cm || !cm->state->library->rdma_migrate_id(id, endpoint->cm->channel)) {
			join_free(rail, atomic_exchange(&rail->joining, join));
			pl_engine_post(peer->home, &rail->join_task);
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

static void accept_joined(struct verbs_rail *rail)
{
	struct verbs_join *join = rail->joined;
	struct rdma_conn_param parameters = { .rnr_retry_count = RECEIVER_RETRIES };
	uint8_t wanted = join->reads;
	int rc;

	rail->joined = NULL;
	if (verbs_finished(rail->endpoint)) {
		join_free(rail, join);
		return;
	}
	rail->id = join->id;
	rail->generation = join->hello.lane.lane;
	pl_free(&rail->endpoint->state->context->allocator, join);
	rail->link = VERBS_CONNECTING;
	rc = make_queue_pair(rail);
	if (rc < 0) {
		library_of(rail)->rdma_reject(rail->id, NULL, 0);
		connect_failed(rail, rc, "rdma_create_qp");
		return;
	}
	parameters.responder_resources = parameters.initiator_depth = PL_MIN(reads_of(rail->device), wanted);
	if (library_of(rail)->rdma_accept(rail->id, &parameters))
		connect_failed(rail, -errno, "rdma_accept");
}

/* The first request tells of all rails; later ones must agree.  -EPROTO */
static int lay_rails(struct verbs_endpoint *endpoint, const struct rail_hello *hello)
{
	for (unsigned i = 0; i < hello->count; i++) {
		struct verbs_rail *rail = &endpoint->rails[i];

		if (hello->places[i] >= endpoint->place_count ||
		    (endpoint->rail_count && (i >= endpoint->rail_count || rail->place != hello->places[i])))
			return -EPROTO;
	}
	for (unsigned i = 0; i < hello->count && !endpoint->rail_count; i++) {
		endpoint->rails[i].place = hello->places[i];
		endpoint->rails[i].device = endpoint->places[hello->places[i]]->device;
	}
	endpoint->rail_count = hello->count;
	return 0;
}

void verbs_join_run(struct pl_task *task)
{
	struct verbs_rail *rail = pl_container_of(task, struct verbs_rail, join_task);
	struct verbs_join *join = atomic_exchange(&rail->joining, NULL);
	uint16_t latest = rail->joined ? rail->joined->hello.lane.lane : rail->generation;

	if (!join)
		return;
	/* An attempt that the initiator gave up, overtaken by the next.  The numbers start again at some time. */
	if (verbs_finished(rail->endpoint) || (int16_t)(join->hello.lane.lane - latest) <= 0 ||
	    lay_rails(rail->endpoint, &join->hello) < 0) {
		join_free(rail, join);
		return;
	}
	join_free(rail, rail->joined);
	rail->joined = join;
	if (rail->link == VERBS_CONNECTING) {
		take_rest(rail);
		drop_id(rail);
		rail->link = VERBS_DOWN;
		verbs_fence_quiet(rail);
	}
	if (rail->link == VERBS_DOWN)
		accept_joined(rail);
	else
		verbs_fail(rail);
}

void verbs_joins_drop(struct verbs_rail *rail)
{
	join_free(rail, atomic_exchange(&rail->joining, NULL));
	join_free(rail, rail->joined);
	rail->joined = NULL;
}

void verbs_link_drop(struct verbs_rail *rail)
{
	if (rail->queue)
		rail->queue->posted -= rail->posted_count;
	drop_id(rail);
	rail->link = VERBS_DOWN;
}

/* -- events --------------------------------------------------------------------------------------- */

static void happened(struct verbs_rail *rail, enum rdma_cm_event_type type, int status)
{
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		address_resolved(rail);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		route_resolved(rail);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		established(rail);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		connect_failed(rail, status < 0 ? status : -EHOSTUNREACH, library_of(rail)->rdma_event_str(type));
		break;
	case RDMA_CM_EVENT_REJECTED:
		connect_failed(rail, -ECONNREFUSED, library_of(rail)->rdma_event_str(type));
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		verbs_fail(rail);
		break;
	default:
		break;
	}
}

/* One event; false if there is none. */
static bool take_event(struct verbs_cm *cm)
{
	const struct verbs_library *library = cm->state->library;
	uint8_t bytes[RAIL_HELLO] = { 0 };
	struct verbs_rail *rail;
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
	rail = id->context;
	length = event->param.conn.private_data_len;
	reads = event->param.conn.initiator_depth;
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST && event->param.conn.private_data)
		memcpy(bytes, event->param.conn.private_data, PL_MIN(length, sizeof(bytes)));
	/* Before anything else, as an id is destroyed only when its events are acknowledged. */
	library->rdma_ack_cm_event(event);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		requested(cm, id, bytes, length, reads);
	else if (rail && rail->id == id)
		happened(rail, type, status);
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
