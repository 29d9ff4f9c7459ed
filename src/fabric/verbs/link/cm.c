/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections of a rail with rdma_cm: from an address to a queue pair and back, repeatedly in the life of a rail. */
#include <openssl/crypto.h>

#include "core/lane_auth.h"
#include "fabric/verbs/verbs.h"

#define ROUTE_MS 2000
/*
 * The kernel may miss a neighbour's answer (ARP, NDP) that comes before the kernel waits for it (Linux,
 * rdma_resolve_ip()); it then finds the address only at its timeout. So the first attempt is short, each further one
 * takes twice as long, and all together as long as one connection attempt.
 */
#define RESOLVE_MS 30
#define RESOLVES 6
#define HINT_CONNECT \
	"see with rping whether RDMA works between these hosts: routes, firewalls (UDP port 4791), partitions, cables"
#define HINT_MEMORY "raise the limit of locked memory, ulimit -l"
#define HINT_CARD "see the abilities of the card with: ibv_devinfo -v; or use the fabric tcp"
/* Connection attempts of a new peer: a busy listener may refuse some. */
#define FIRST_ATTEMPTS 5
/* soft-RoCE takes 7 as "without end". */
#define RETRIES 6
/* A queue pair in the error state returns all its work at once. */
#define DRAIN_LIMIT PL_NS_PER_S
/* Pause between two attempts to reconnect. */
#define PAUSE_FIRST (2 * PL_NS_PER_MS)
#define PAUSE_MAX (500 * PL_NS_PER_MS)
/* Pause while another rail is up. */
#define PAUSE_SPARE (5 * PL_NS_PER_S)
/* Time of one attempt to reconnect; of a new peer's first attempt, and most of its later ones, which double. */
#define ATTEMPT_LIMIT (2 * PL_NS_PER_S)
#define FIRST_LIMIT PL_NS_PER_S
#define FIRST_LIMIT_MAX (4 * PL_NS_PER_S)
/* Pause between two checks of a port that is down. */
#define PORT_PAUSE (50 * PL_NS_PER_MS)

static struct pl_engine *home_of(const struct verbs_rail *rail)
{
	return rail->endpoint->base.peer->home;
}

/* -- both ends ------------------------------------------------------------------------------------ */

/* True if the rail cannot be connected any more. An acceptor waits for the initiator, as long as that has time. */
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
 * True if this end must not disconnect now. Disconnecting sends a message, and soft-RoCE with its link down never
 * connects again after that; so the rail waits for its port.
 */
static bool must_wait(const struct verbs_rail *rail)
{
	const struct verbs_endpoint *endpoint = rail->endpoint;

	return endpoint->opened && rail->id && rail->id->verbs && verbs_port_is_down(rail) &&
	       !verbs_finished(endpoint) && !all_hopeless(endpoint);
}

/* Loses the peer, which no rail can reach. */
static void lose_unreachable_peer(struct verbs_rail *rail, int code, const char *call)
{
	const struct verbs_library *library = verbs_library_of(rail);
	const char *name = strerrorname_np(-code) ? strerrorname_np(-code) : "unknown error";
	char object[PL_ADDRESS_FORMAT_MAX];
	struct pl_error error;

	pl_address_format((struct sockaddr *)&rail->to, object, sizeof(object));
	if (rail->endpoint->opened && rail->broke.status != IBV_WC_SUCCESS)
		pl_fail(&error, code, "RDMA-CONNECT", call, object, HINT_CONNECT,
			"port %u of %s gave up: %s (vendor error 0x%x), and no connection could be made since (%s)",
			rail->broke.port, rail->device->name, library->ibv_wc_status_str(rail->broke.status),
			rail->broke.vendor_error, name);
	else if (!strncmp(call, "ibv_", 4) || !strcmp(call, "rdma_create_qp"))
		pl_fail(&error, code, "RDMA-CONNECT", call, rail->device->name,
			code == -ENOMEM ? HINT_MEMORY : HINT_CARD, "the card's driver refuses %s (%s)", call, name);
	else
		pl_fail(&error, code, "RDMA-CONNECT", call, object, HINT_CONNECT,
			"the devices do not reach each other (%s)", name);
	pl_peer_lose(rail->endpoint->base.peer, &error);
}

/* This connection attempt failed. */
void verbs_connect_failed(struct verbs_rail *rail, int code, const char *call)
{
	struct verbs_endpoint *endpoint = rail->endpoint;

	if (must_wait(rail)) {
		pl_timer_set(home_of(rail), &rail->retry, pl_now() + PORT_PAUSE);
		return;
	}
	verbs_take_rest(rail);
	verbs_qp_drop(rail);
	rail->link = VERBS_DOWN;
	verbs_fence_quiet(rail);
	if (all_hopeless(endpoint))
		lose_unreachable_peer(rail, code, call);
	else
		dial_later(rail);
}

/*
 * Sends an empty frame: the initiator's end is established first, and must hear from the peer before it uses the
 * acceptor's end.
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
	verbs_note_rail_up(rail);
	verbs_qp_up(rail);
	rail->attempts = 0;
	rail->denied = NULL;
	endpoint->down_since = 0;
	/* The other end dropped its old queue pair before it made this connection. */
	verbs_fence_release(rail);
	verbs_mw_rail_up(rail);
	if (!endpoint->opened && !endpoint->base.peer->initiator)
		open_first(endpoint);
	verbs_fence_ask(endpoint);
	verbs_flush(endpoint);
}

void verbs_fail(struct verbs_rail *rail, const char *why)
{
	if (rail->link == VERBS_RESOLVING || rail->link == VERBS_CONNECTING) {
		verbs_connect_failed(rail, -ETIMEDOUT, "rdma_connect");
		return;
	}
	if (rail->link != VERBS_UP)
		return;
	verbs_note_rail_lost(rail, why);
	rail->link = VERBS_DRAINING;
	if (!verbs_rails_up(rail->endpoint))
		rail->endpoint->down_since = pl_now();
	pl_timer_set(home_of(rail), &rail->drain, pl_now() + DRAIN_LIMIT);
	/* Also moves the queue pair into the error state, in which the card returns all work. */
	if (rail->broke.here || verbs_port_is_down(rail) || verbs_library_of(rail)->rdma_disconnect(rail->id)) {
		struct ibv_qp_attr attributes = { .qp_state = IBV_QPS_ERR };

		verbs_library_of(rail)->ibv_modify_qp(rail->id->qp, &attributes, IBV_QP_STATE);
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
		verbs_fail(rail, "the other end uses this connection no more");
}

void verbs_drained_run(struct pl_task *task)
{
	struct verbs_rail *rail = pl_container_of(task, struct verbs_rail, drained_task);
	struct verbs_endpoint *endpoint = rail->endpoint;

	if (rail->link != VERBS_DRAINING || !pl_list_empty(&rail->posted))
		return;
	verbs_take_rest(rail);
	verbs_fence_quiet(rail);
	/* Failed sends show a link that goes down before its port does. */
	if ((rail->broke.here || verbs_port_is_down(rail)) && !verbs_finished(endpoint)) {
		rail->broke.here = false;
		pl_timer_set(home_of(rail), &rail->retry, pl_now() + PORT_PAUSE);
		return;
	}
	rail->link = VERBS_DOWN;
	pl_timer_clear(home_of(rail), &rail->drain);
	verbs_qp_drop(rail);
	/* The control connection ended earlier; these were the remaining bytes. */
	if (endpoint->base.peer->loss.code)
		pl_peer_ending(endpoint->base.peer);
	if (rail->joined)
		verbs_accept_joined(rail);
	else
		dial_later(rail);
}

/*
 * soft-RoCE may forget a request that it could not send. Destroying the queue pair also ends all use of buffers
 * (ibv_destroy_qp(3)).
 */
void verbs_drain_expired(struct pl_timer *timer)
{
	struct verbs_rail *rail = pl_container_of(timer, struct verbs_rail, drain);

	if (rail->link != VERBS_DRAINING)
		return;
	verbs_take_rest(rail);
	pl_list_remove(&rail->queue_link);
	verbs_mw_drop_all(rail);
	if (rail->id->qp)
		verbs_library_of(rail)->rdma_destroy_qp(rail->id);
	verbs_take_back(rail);
	pl_engine_post(home_of(rail), &rail->drained_task);
}

/* -- initiator ------------------------------------------------------------------------------------ */

/* Sets the traffic class before the route is resolved, which uses it. The other end gets it from the request. */
static void set_route_class(struct verbs_rail *rail)
{
	uint8_t class = (uint8_t)rail->endpoint->base.peer->context->options.traffic_class;

	if (class)
		verbs_library_of(rail)->rdma_set_option(rail->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &class,
							sizeof(class));
}

static void resolve(struct verbs_rail *rail)
{
	int limit = RESOLVE_MS << rail->resolves++;

	if (verbs_library_of(rail)->rdma_create_id(rail->endpoint->cm->channel, &rail->id, rail, RDMA_PS_TCP)) {
		rail->id = NULL;
		verbs_connect_failed(rail, -errno, "rdma_create_id");
	} else if (verbs_library_of(rail)->rdma_resolve_addr(rail->id, (struct sockaddr *)&rail->from,
							     (struct sockaddr *)&rail->to, limit)) {
		verbs_connect_failed(rail, -errno, "rdma_resolve_addr");
	}
}

/* The first attempts are short: with the fabric "auto", tcp replaces verbs after a few seconds. */
static uint64_t attempt_limit(const struct verbs_rail *rail)
{
	if (rail->endpoint->opened)
		return ATTEMPT_LIMIT;
	return PL_MIN(FIRST_LIMIT << PL_MIN(rail->attempts, 8u), FIRST_LIMIT_MAX);
}

void verbs_dial(struct verbs_rail *rail)
{
	rail->generation++;
	rail->resolves = 0;
	rail->link = VERBS_RESOLVING;
	pl_timer_set(home_of(rail), &rail->retry, pl_now() + attempt_limit(rail));
	resolve(rail);
}

/* An id may not resolve twice: before Linux 5.15 its first request could still be under way. */
static void address_failed(struct verbs_rail *rail, int code)
{
	if (code == -ETIMEDOUT && rail->resolves < RESOLVES && !verbs_finished(rail->endpoint)) {
		verbs_qp_drop(rail);
		resolve(rail);
	} else {
		verbs_connect_failed(rail, code, verbs_library_of(rail)->rdma_event_str(RDMA_CM_EVENT_ADDR_ERROR));
	}
}

static void address_resolved(struct verbs_rail *rail)
{
	set_route_class(rail);
	if (verbs_library_of(rail)->rdma_resolve_route(rail->id, ROUTE_MS))
		verbs_connect_failed(rail, -errno, "rdma_resolve_route");
}

static void route_resolved(struct verbs_rail *rail)
{
	const struct verbs_endpoint *endpoint = rail->endpoint;
	struct pl_rail_hello hello = {
		.lane = { .version = PL_PROTOCOL_VERSION,
			  .lane = rail->generation,
			  .peer_index = endpoint->peer_index },
		.index = rail->index,
		.count = (uint8_t)endpoint->rail_count,
	};
	struct rdma_conn_param parameters = {
		.private_data = rail->request,
		.private_data_len = sizeof(rail->request),
		.retry_count = RETRIES,
		.rnr_retry_count = VERBS_RECEIVER_RETRIES,
	};
	const char *call;
	int rc = verbs_qp_make(rail, &call);

	if (rc < 0) {
		verbs_connect_failed(rail, rc, call);
		return;
	}
	hello.renewals = rail->renewals;
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		hello.addresses[i] = endpoint->rails[i].address_index;
	pl_rail_hello_encode(&hello, rail->request);
	if (pl_lane_auth_sign(endpoint->base.peer, PL_LABEL_RAIL, rail->request, sizeof(rail->request)) < 0) {
		verbs_connect_failed(rail, -EIO, "rdma_connect");
		return;
	}
	parameters.responder_resources = parameters.initiator_depth = verbs_qp_reads(rail->device);
	rail->link = VERBS_CONNECTING;
	if (verbs_library_of(rail)->rdma_connect(rail->id, &parameters))
		verbs_connect_failed(rail, -errno, "rdma_connect");
}

void verbs_link_drop(struct verbs_rail *rail)
{
	if (rail->queue)
		rail->queue->posted -= rail->posted_count;
	verbs_qp_drop(rail);
	rail->link = VERBS_DOWN;
}

/* -- events --------------------------------------------------------------------------------------- */

static void device_lost(struct verbs_rail *rail)
{
	if (rail->id->verbs == rail->device->verbs)
		verbs_device_lost(rail->endpoint->state, rail->device);
	verbs_fail(rail, "the device was removed");
}

/* A listener's device was removed. */
static void listener_lost(struct verbs_state *state, const struct rdma_cm_id *id)
{
	struct verbs_device *device = NULL;

	pthread_mutex_lock(&state->lock);
	pl_list_for_each(at, &state->local_addrs) {
		struct verbs_local_addr *addr = pl_list_entry(at, struct verbs_local_addr, link);

		if (addr->listener == id)
			device = addr->device;
	}
	pthread_mutex_unlock(&state->lock);
	if (device)
		verbs_device_lost(state, device);
}

static void happened(struct verbs_rail *rail, enum rdma_cm_event_type type, int status)
{
	int code = status < 0 ? status : -EHOSTUNREACH;

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
		address_failed(rail, code);
		break;
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		verbs_connect_failed(rail, code, verbs_library_of(rail)->rdma_event_str(type));
		break;
	case RDMA_CM_EVENT_REJECTED:
		verbs_connect_failed(rail, -ECONNREFUSED, verbs_library_of(rail)->rdma_event_str(type));
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		device_lost(rail);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		verbs_fail(rail, "the other end disconnected");
		break;
	default:
		break;
	}
}

/* Initiator: true if the answer to the request proves the secret of both ends. */
static bool welcomed(struct verbs_rail *rail, const uint8_t *bytes, size_t length)
{
	struct pl_rail_welcome welcome;
	uint8_t tag[PL_TAG];

	if (pl_rail_welcome_decode(bytes, length, &welcome) < 0 ||
	    pl_lane_auth_answer(rail->endpoint->base.peer, rail->request, sizeof(rail->request), welcome.renewals,
				tag) < 0 ||
	    CRYPTO_memcmp(tag, welcome.tag, PL_TAG))
		return false;
	rail->far_told = welcome.renewals;
	return true;
}

/* Handles one event. Returns false if there is none. */
static bool take_event(struct verbs_cm *cm)
{
	const struct verbs_library *library = cm->state->library;
	uint8_t bytes[PL_RAIL_HELLO] = { 0 };
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
	if ((type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_ESTABLISHED) &&
	    event->param.conn.private_data)
		memcpy(bytes, event->param.conn.private_data, PL_MIN(length, sizeof(bytes)));
	/* First of all: an id can be destroyed only after its events are acknowledged. */
	library->rdma_ack_cm_event(event);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		verbs_requested(cm, id, bytes, length, reads);
	else if (!rail && type == RDMA_CM_EVENT_DEVICE_REMOVAL)
		listener_lost(cm->state, id);
	if (!rail || rail->id != id || type == RDMA_CM_EVENT_CONNECT_REQUEST)
		return true;
	if (type == RDMA_CM_EVENT_ESTABLISHED && rail->endpoint->base.peer->initiator && !welcomed(rail, bytes, length))
		verbs_connect_failed(rail, -EACCES, "rdma_connect");
	else
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
