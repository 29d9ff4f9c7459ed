/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connection of a rail. Both ends exchange the data of their queue pairs through the control channel, which is
 * authenticated and encrypted; so InfiniBand needs no addresses of IPoIB, and RoCE no common subnet.
 *
 *     initiator                                   acceptor
 *     queue pair INIT    -- CONNECT -->           waits until its old queue pair of the rail is gone
 *                                                 queue pair INIT, RTR, RTS
 *     RTR, RTS           <-- ACCEPT --
 *     sends an empty message over the queue pair, which proves the path
 *     up at its completion                        up at its arrival
 *
 * DOWN ends an attempt, or a connection, early. Each attempt has a number, the generation; messages of earlier ones are
 * ignored.
 */
#include "fabric/verbs/verbs.h"

/* Time of an attempt to reconnect. A new peer's first proof has FIRST_LIMIT; the later ones double it, up to FIRST_LIMIT_MAX. */
#define ATTEMPT_LIMIT (2 * PL_NS_PER_S)
#define FIRST_LIMIT PL_NS_PER_S
#define FIRST_LIMIT_MAX (4 * PL_NS_PER_S)
/* Checks of an attempt are counted, not time: after a stop of the program its answer may be there, and not read yet. */
#define ATTEMPT_LOOKS 4

static struct pl_peer *peer_of(const struct verbs_rail *rail)
{
	return rail->endpoint->base.peer;
}

static int send_message(struct verbs_rail *rail, struct pl_rail_message *message)
{
	struct pl_control control = { .type = PL_CONTROL_RAIL };

	message->index = rail->index;
	message->generation = rail->generation;
	control.rail = *message;
	return pl_channel_send(&peer_of(rail)->channel, &control);
}

/*
 * A message that the control connection's own link cannot carry would only delay later ones. An acceptor sends it when its port is up
 * again: the other end's device may have lost its requests, and give them up after many seconds. An initiator connects again.
 */
void verbs_tell_down(struct verbs_rail *rail)
{
	struct pl_rail_message message = { .step = PL_RAIL_DOWN };

	/* The other end's next request replaces this connection, or the end of the control channel does. */
	if (rail->joined.step || verbs_finished(rail->endpoint))
		return;
	if (rail->broke.here || verbs_port_is_down(rail))
		rail->untold = !peer_of(rail)->initiator;
	else
		send_message(rail, &message);
}

void verbs_tell_down_later(struct verbs_rail *rail)
{
	struct pl_rail_message message = { .step = PL_RAIL_DOWN };

	if (!rail->untold)
		return;
	if (verbs_port_is_down(rail)) {
		pl_timer_set(peer_of(rail)->home, &rail->retry, pl_now() + VERBS_PORT_PAUSE);
		return;
	}
	rail->untold = false;
	send_message(rail, &message);
}

/*
 * The first proofs are short: with the fabric "auto", tcp replaces verbs after a few seconds. The answer before the proof
 * comes over the control channel, which loses nothing, but a busy host may run its helper thread seconds later.
 */
static uint64_t attempt_limit(const struct verbs_rail *rail)
{
	if (rail->endpoint->opened)
		return ATTEMPT_LIMIT;
	if (rail->link != VERBS_PROVING)
		return FIRST_LIMIT_MAX;
	return PL_MIN(FIRST_LIMIT << PL_MIN(rail->attempts, 8u), FIRST_LIMIT_MAX);
}

static void look_later(struct verbs_rail *rail)
{
	pl_timer_set(peer_of(rail)->home, &rail->retry, pl_now() + attempt_limit(rail) / ATTEMPT_LOOKS);
}

/* Begins the checks of an attempt, or of its proof. */
static void look_anew(struct verbs_rail *rail)
{
	rail->attempt_looks = 0;
	look_later(rail);
}

void verbs_attempt_look(struct verbs_rail *rail)
{
	/* The proof may be among completions that nobody polled yet. */
	verbs_take_rest(rail);
	if (rail->link == VERBS_UP)
		return;
	if (++rail->attempt_looks < ATTEMPT_LOOKS)
		look_later(rail);
	else
		verbs_fail(rail, "the connection attempt got no answer");
}

/* Returns the time until which work waits for the first attempt to connect the rail. */
static uint64_t first_wait(const struct verbs_rail *rail)
{
	return pl_now() + (rail->endpoint->opened ? ATTEMPT_LIMIT : FIRST_LIMIT);
}

/* -- both ends ------------------------------------------------------------------------------------ */

/* True if this host may not know the neighbour yet: the control connection does not use the other end's address. */
static bool may_lack_neighbour(const struct verbs_rail *rail, const struct pl_rail_message *far)
{
	const union ibv_gid known = verbs_gid_of(&peer_of(rail)->address);

	return rail->port->link_layer == IBV_LINK_LAYER_ETHERNET && memcmp(known.raw, far->gid, sizeof(far->gid));
}

/* The other end told its queue pair. */
static void make_ready(struct verbs_rail *rail, const struct pl_rail_message *far)
{
	struct verbs_ready_job *job = &rail->ready;

	rail->link = VERBS_READYING;
	rail->far_told = far->renewals;
	verbs_qp_route(rail, far);
	job->qp = rail->qp;
	job->asks = may_lack_neighbour(rail, far);
	job->from = rail->gid;
	job->engine = peer_of(rail)->home;
	/* Only Ethernet has addresses that must be resolved. */
	if (rail->port->link_layer == IBV_LINK_LAYER_ETHERNET) {
		verbs_connector_start(rail->endpoint->state, job);
	} else {
		verbs_connector_run(verbs_library_of(rail), job);
		verbs_ready_ended(&job->done);
	}
}

/* Sends an empty message. Its completion takes a place in the queue, as those of all requests do. */
static int post_proof(struct verbs_rail *rail)
{
	struct ibv_send_wr *bad, proof = { .wr_id = VERBS_PROOF, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	int rc;

	if (rail->queue->posted == rail->queue->room)
		return -ENOBUFS;
	rc = verbs_result(ibv_post_send(rail->qp, &proof, &bad));
	if (rc == 0) {
		rail->queue->posted++;
		rail->proof_posted = true;
	}
	return rc;
}

void verbs_proof_done(struct verbs_rail *rail, const struct ibv_wc *completion)
{
	if (!rail->proof_posted)
		return;
	rail->proof_posted = false;
	rail->queue->posted--;
	if (completion->status == IBV_WC_SUCCESS)
		verbs_established(rail);
	else
		verbs_fail_soon(rail);
}

static int send_accept(struct verbs_rail *rail)
{
	struct pl_rail_message message = { .step = PL_RAIL_ACCEPT };

	verbs_qp_describe(rail, &message);
	return send_message(rail, &message);
}

/* A connector no longer uses the endpoint. */
static void continue_abandoning(struct verbs_endpoint *endpoint)
{
	struct pl_task *task = endpoint->abandoned;

	for (unsigned i = 0; i < endpoint->rail_count; i++)
		if (endpoint->rails[i].ready.busy)
			return;
	endpoint->abandoned = NULL;
	if (task)
		pl_engine_post(endpoint->base.peer->home, task);
}

void verbs_ready_ended(struct pl_task *task)
{
	struct verbs_rail *rail = pl_container_of(task, struct verbs_rail, ready.done);
	int rc = rail->ready.rc;

	rail->ready.busy = false;
	if (rail->endpoint->closing) {
		continue_abandoning(rail->endpoint);
		return;
	}
	if (rail->given_up.code) {
		rc = rail->given_up.code;
		rail->given_up.code = 0;
		verbs_connect_failed(rail, rc, rail->given_up.call);
		return;
	}
	if (rc < 0) {
		verbs_connect_failed(rail, rc, "ibv_modify_qp");
		return;
	}
	rail->link = VERBS_PROVING;
	if (peer_of(rail)->initiator) {
		look_anew(rail);
		rc = post_proof(rail);
	} else {
		rc = send_accept(rail);
	}
	if (rc < 0)
		verbs_connect_failed(rail, rc, "ibv_post_send");
}

/* -- initiator ------------------------------------------------------------------------------------ */

/* Work waits for the first attempt to connect the rail. */
static void wait_for_first(struct verbs_rail *rail)
{
	if (!rail->was_up && rail->attempts == 0)
		rail->wait_until = first_wait(rail);
}

void verbs_dial(struct verbs_rail *rail)
{
	struct verbs_endpoint *endpoint = rail->endpoint;
	struct pl_rail_message message = { .step = PL_RAIL_CONNECT, .count = (uint8_t)endpoint->rail_count };
	const char *call;
	int rc;

	rail->generation++;
	if (verbs_port_is_down(rail)) {
		verbs_connect_failed(rail, -ENETDOWN, "ibv_query_port");
		return;
	}
	rc = verbs_qp_make(rail, &call);
	if (rc < 0) {
		verbs_connect_failed(rail, rc, call);
		return;
	}
	rail->link = VERBS_ASKING;
	wait_for_first(rail);
	rail->own.traffic_class = (uint8_t)peer_of(rail)->context->options.traffic_class;
	rail->own.service_level = (uint8_t)peer_of(rail)->context->options.service_level;
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		message.ports[i] = (uint8_t)(endpoint->rails[i].far_port | endpoint->rails[i].near_port << 4);
	verbs_qp_describe(rail, &message);
	rc = send_message(rail, &message);
	if (rc < 0)
		verbs_connect_failed(rail, rc, "send");
	else
		look_anew(rail);
}

static int accepted(struct verbs_rail *rail, const struct pl_rail_message *message)
{
	if (message->generation == rail->generation && rail->link == VERBS_ASKING)
		make_ready(rail, message);
	return 0;
}

/* -- acceptor ------------------------------------------------------------------------------------- */

void verbs_accept_joined(struct verbs_rail *rail)
{
	struct pl_rail_message message = rail->joined;
	const char *call = NULL;
	int rc;

	rail->joined.step = 0;
	rail->untold = false;
	pl_timer_clear(peer_of(rail)->home, &rail->retry);
	if (verbs_finished(rail->endpoint))
		return;
	rail->generation = message.generation;
	rail->own.traffic_class = message.traffic_class;
	rail->own.service_level = message.service_level;
	rc = verbs_qp_make(rail, &call);
	if (rc < 0) {
		verbs_tell_down(rail);
		verbs_connect_failed(rail, rc, call);
	} else {
		make_ready(rail, &message);
	}
}

/* Each request describes all rails of its time; later ones add rails. -EPROTO */
static int read_rails(struct verbs_endpoint *endpoint, const struct pl_rail_message *message)
{
	unsigned most = endpoint->state->context->options.rails, before = endpoint->rail_count;

	if (message->count < before || (most && message->count > most))
		return -EPROTO;
	for (unsigned i = 0; i < message->count; i++) {
		uint8_t near = message->ports[i] & 15, far = message->ports[i] >> 4;

		if (near >= endpoint->port_count || far >= VERBS_PORTS_MAX)
			return -EPROTO;
		if (i < before && (endpoint->rails[i].near_port != near || endpoint->rails[i].far_port != far))
			return -EPROTO;
	}
	pthread_mutex_lock(&endpoint->state->lock);
	for (unsigned i = before; i < message->count; i++) {
		struct verbs_rail *rail = &endpoint->rails[i];

		rail->near_port = message->ports[i] & 15;
		rail->far_port = message->ports[i] >> 4;
		rail->port = endpoint->ports[rail->near_port];
		rail->gid = rail->chosen_gid = endpoint->gids[rail->near_port];
		rail->device = rail->port->device;
		rail->wait_until = first_wait(rail);
	}
	pthread_mutex_unlock(&endpoint->state->lock);
	endpoint->rail_count = message->count;
	if (!before)
		verbs_choices_open(endpoint);
	return 0;
}

static int requested(struct verbs_endpoint *endpoint, const struct pl_rail_message *message)
{
	struct verbs_rail *rail = &endpoint->rails[message->index];
	uint16_t latest = rail->joined.step ? rail->joined.generation : rail->generation;

	if (read_rails(endpoint, message) < 0)
		return -EPROTO;
	/* Numbers wrap around. */
	if (verbs_finished(endpoint) || (int16_t)(message->generation - latest) <= 0)
		return 0;
	rail->joined = *message;
	if (rail->link == VERBS_DOWN)
		verbs_accept_joined(rail);
	else
		verbs_fail(rail, "the other end connects again");
	return 0;
}

/* -- messages ------------------------------------------------------------------------------------- */

static int ended(struct verbs_rail *rail, const struct pl_rail_message *message)
{
	if (rail->joined.step && message->generation == rail->joined.generation)
		rail->joined.step = 0;
	if (message->generation == rail->generation)
		rail->untold = false;
	if (message->generation != rail->generation || rail->link == VERBS_DOWN)
		return 0;
	if (rail->link == VERBS_UP)
		verbs_fail(rail, "the other end disconnected");
	else if (rail->link != VERBS_DRAINING)
		verbs_connect_failed(rail, -ECONNREFUSED, "connect");
	return 0;
}

int verbs_rail_message(struct pl_endpoint *base, const struct pl_rail_message *message)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
	bool initiator = base->peer->initiator;

	if (endpoint->closing)
		return 0;
	if (message->step == PL_RAIL_CONNECT)
		return initiator ? -EPROTO : requested(endpoint, message);
	if (message->index >= endpoint->rail_count)
		return -EPROTO;
	if (message->step == PL_RAIL_DOWN)
		return ended(&endpoint->rails[message->index], message);
	return initiator ? accepted(&endpoint->rails[message->index], message) : -EPROTO;
}
