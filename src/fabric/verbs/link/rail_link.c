/* SPDX-License-Identifier: BSD-2-Clause */
/* A rail between two connections: how one fails, is drained and dropped, and when the next one is tried. */
#include <stdio.h>

#include "fabric/verbs/data/signal.h"

#define HINT_CONNECT \
	"see with ib_write_bw (perftest) whether RDMA works between these devices: routes, firewalls (UDP port 4791), " \
	"partitions, cables, versions of RoCE"
#define HINT_CARD "see the abilities of the card with: ibv_devinfo -v; or use the fabric tcp"
/* Connection attempts of a new peer: the network may lose some. */
#define FIRST_ATTEMPTS 5
/* A queue pair in the error state returns all its work at once. */
#define DRAIN_LIMIT PL_NS_PER_S
/*
 * A failed queue pair returns its own receives one by one. Of a shared receive queue, the device tells that the queue
 * pair has returned all: without the event the destroyed queue pair may keep receives. Some drivers never tell.
 */
#define LAST_LIMIT (100 * PL_NS_PER_MS)
#define LASTS_MISSED 4
/* Pause between two attempts to reconnect. */
#define PAUSE_FIRST (2 * PL_NS_PER_MS)
#define PAUSE_MAX (500 * PL_NS_PER_MS)
/* Pause while another rail is up. */
#define PAUSE_SPARE (5 * PL_NS_PER_S)
/* Work that has the rail's card near waits so long for its next connection. */
#define PATIENCE (100 * PL_NS_PER_MS)

static struct pl_engine *home_of(const struct verbs_rail *rail)
{
	return rail->endpoint->base.peer->home;
}

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

/* Counts an attempt that failed, or a connection that broke. Returns the pause before the next attempt. */
static uint64_t count_attempt(struct verbs_rail *rail, bool port_down)
{
	uint64_t pause = PAUSE_FIRST << PL_MIN(rail->attempts, 12u);
	uint64_t most = verbs_rails_up(rail->endpoint) ? PAUSE_SPARE : PAUSE_MAX;

	if (port_down && rail->endpoint->opened)
		return VERBS_PORT_PAUSE;
	rail->attempts++;
	return PL_MIN(pause, most);
}

/* The initiator connects again after the pause. The acceptor tells later that the connection ended, if it could not yet. */
static void dial_later(struct verbs_rail *rail, uint64_t pause)
{
	if (verbs_finished(rail->endpoint))
		return;
	if (rail->endpoint->base.peer->initiator)
		pl_timer_set(home_of(rail), &rail->retry, pl_now() + pause);
	else if (rail->untold)
		pl_timer_set(home_of(rail), &rail->retry, pl_now() + VERBS_PORT_PAUSE);
}

/* Loses the peer, which no rail can reach. */
static void lose_unreachable_peer(struct verbs_rail *rail, int code, const char *call)
{
	const struct verbs_library *library = verbs_library_of(rail);
	const char *name = strerrorname_np(-code) ? strerrorname_np(-code) : "unknown error";
	char object[INET6_ADDRSTRLEN];
	struct pl_error error;

	verbs_gid_format(&rail->far_gid, object);
	if (rail->endpoint->opened && rail->broke.status != IBV_WC_SUCCESS)
		pl_fail(&error, code, "RDMA-CONNECT", call, object, HINT_CONNECT,
			"port %u of %s gave up: %s (vendor error 0x%x), and no connection could be made since (%s)",
			rail->broke.port, verbs_device_name(rail->device),
			library->ibv_wc_status_str(rail->broke.status), rail->broke.vendor_error, name);
	else if (code == -ENETDOWN)
		pl_fail(&error, code, "RDMA-CONNECT", call, verbs_device_name(rail->device),
			"see the port's cable and switch: rdma link", "port %u of %s is down", rail->port->number,
			verbs_device_name(rail->device));
	else if (!strcmp(call, "ibv_modify_qp"))
		pl_fail(&error, code, "RDMA-CONNECT", call, object, HINT_CONNECT,
			"%s:%u finds no way to the other end's device (%s)", verbs_device_name(rail->device),
			rail->port->number, name);
	else if (!strncmp(call, "ibv_", 4))
		pl_fail(&error, code, "RDMA-CONNECT", call, verbs_device_name(rail->device),
			code == -ENOMEM ? VERBS_HINT_MEMORY : HINT_CARD, "the card's driver refuses %s (%s)", call,
			name);
	else
		pl_fail(&error, code, "RDMA-CONNECT", call, object, HINT_CONNECT,
			"the devices do not reach each other (%s)", name);
	pl_peer_lose(rail->endpoint->base.peer, &error);
}

/* True if an attempt fails because no packet, or no question for the neighbour's address, was answered. */
static bool is_unreached(const struct verbs_rail *rail, int code)
{
	if (!rail->endpoint->base.peer->initiator)
		return false;
	if (rail->link == VERBS_PROVING)
		return code == -ETIMEDOUT;
	return rail->link == VERBS_READYING && (code == -ETIMEDOUT || code == -EHOSTUNREACH || code == -ENETUNREACH);
}

/* Changes the link to UP, or from it. */
static void set_link(struct verbs_rail *rail, enum verbs_link link)
{
	rail->link = link;
	atomic_store(&rail->endpoint->lanes, verbs_rails_up(rail->endpoint));
}

/* Moves the queue pair into the error state, in which the card returns all work. The rail is DRAINING. */
static void drain_qp(struct verbs_rail *rail)
{
	pl_timer_set(home_of(rail), &rail->drain, pl_now() + DRAIN_LIMIT);
	rail->awaits_last = false;
	verbs_object_end(rail->device, VERBS_QP_WORK, rail->qp);
	verbs_tell_down(rail);
	if (pl_list_empty(&rail->posted))
		pl_engine_post(home_of(rail), &rail->drained_task);
}

/* Drops the queue pair of an attempt that failed, or of a connection that was drained. */
static void drop_connection(struct verbs_rail *rail)
{
	struct pl_peer *peer = rail->endpoint->base.peer;

	verbs_qp_drop(rail);
	rail->link = VERBS_DOWN;
	verbs_fence_quiet(rail);
	/* The control connection ended earlier; these were the remaining bytes. */
	if (peer->loss.code)
		pl_peer_ending(peer);
}

/* Ends an attempt that failed with the given code and call. */
static void end_attempt(struct verbs_rail *rail, int code, const char *call)
{
	struct verbs_endpoint *endpoint = rail->endpoint;
	uint64_t pause;

	drop_connection(rail);
	rail->wait_until = 0;
	verbs_unpark(endpoint);
	verbs_flush(endpoint);
	pause = count_attempt(rail, code == -ENETDOWN);
	if (rail->joined.step)
		verbs_accept_joined(rail);
	else if (all_hopeless(endpoint))
		lose_unreachable_peer(rail, code, call);
	else
		dial_later(rail, pause);
}

/*
 * True if the other end may have been UP, and sent frames whose completions here come late. It does not send them again.
 * The first attempts of an initiator have little time, and an endpoint that closes before it was open needs no frames:
 * both end at once.
 */
static bool awaits_frames(const struct verbs_rail *rail)
{
	const struct verbs_endpoint *endpoint = rail->endpoint;

	return endpoint->opened || (!endpoint->base.peer->initiator && !endpoint->closing);
}

/* This connection attempt failed. */
void verbs_connect_failed(struct verbs_rail *rail, int code, const char *call)
{
	if (rail->ready.busy) {
		rail->given_up.code = code;
		rail->given_up.call = call;
		return;
	}
	verbs_take_rest(rail);
	/* The proof was among the rest, and work may have been posted since. */
	if (rail->link == VERBS_UP) {
		verbs_fail(rail, "the attempt to connect was given up");
		return;
	}
	/* A request that was posted since has failed the rail. */
	if (rail->link == VERBS_DRAINING)
		return;
	rail->unreached = is_unreached(rail, code);
	if (rail->link == VERBS_PROVING && awaits_frames(rail)) {
		rail->given_up.code = code;
		rail->given_up.call = call;
		set_link(rail, VERBS_DRAINING);
		drain_qp(rail);
		return;
	}
	if (rail->link != VERBS_DOWN)
		verbs_tell_down(rail);
	/* The proof may have taken a receive. */
	if (rail->link == VERBS_PROVING)
		verbs_srq_note_lost(rail->queue);
	end_attempt(rail, code, call);
}

/* The proof of the other end has come. */
static void open_endpoint(struct verbs_rail *rail)
{
	rail->endpoint->opened = true;
	verbs_path_found(rail);
	pl_peer_up(rail->endpoint->base.peer);
}

void verbs_established(struct verbs_rail *rail)
{
	struct verbs_endpoint *endpoint = rail->endpoint;

	/* The attempt was given up meanwhile. Frames behind the proof need an endpoint that is open, and no rail is up. */
	if (rail->link == VERBS_DRAINING && !endpoint->opened && !verbs_is_lost(endpoint)) {
		endpoint->down_since = pl_now();
		open_endpoint(rail);
	}
	if (rail->link != VERBS_PROVING)
		return;
	/* The peer would reach its grants again. */
	if (verbs_is_lost(endpoint)) {
		verbs_fail_soon(rail);
		return;
	}
	set_link(rail, VERBS_UP);
	pl_timer_clear(home_of(rail), &rail->retry);
	verbs_note_rail_up(rail);
	rail->attempts = 0;
	rail->denied = NULL;
	endpoint->down_since = 0;
	/* The other end dropped its old queue pair before it made this connection. */
	verbs_fence_release(rail);
	verbs_mw_rail_up(rail);
	if (!endpoint->opened)
		open_endpoint(rail);
	verbs_fence_ask(endpoint);
	verbs_unpark(endpoint);
	verbs_flush(endpoint);
	verbs_look_at_pair(rail);
}

void verbs_fail(struct verbs_rail *rail, const char *why)
{
	if (rail->link == VERBS_ASKING || rail->link == VERBS_READYING || rail->link == VERBS_PROVING) {
		verbs_connect_failed(rail, -ETIMEDOUT, "connect");
		return;
	}
	if (rail->link != VERBS_UP)
		return;
	verbs_note_rail_lost(rail, why);
	set_link(rail, VERBS_DRAINING);
	rail->wait_until = pl_now() + PATIENCE;
	verbs_ask(rail);
	if (!verbs_rails_up(rail->endpoint))
		rail->endpoint->down_since = pl_now();
	drain_qp(rail);
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

/*
 * True if the queue pair has not returned all receives. Some may have frames, whose completions are lost with the queue
 * pair, although the other end knows that the frames arrived. A device that was given up returns none.
 */
static bool keeps_receives(const struct verbs_rail *rail)
{
	if (!rail->qp || atomic_load(&rail->device->silent))
		return false;
	return rail->queue->srq ? !atomic_load(&rail->last_reached) : rail->receives_posted;
}

static bool tells_last_receive(const struct verbs_rail *rail)
{
	return atomic_load(&rail->device->lasts_missed) < LASTS_MISSED;
}

void verbs_receive_returned(struct verbs_rail *rail)
{
	if (rail->link != VERBS_DRAINING || rail->receives_posted)
		return;
	atomic_store(&rail->device->lasts_missed, 0);
	pl_engine_post(rail->queue->engine, &rail->drained_task);
}

static void miss_last_receive(struct verbs_rail *rail)
{
	if (!keeps_receives(rail))
		return;
	atomic_fetch_add(&rail->device->lasts_missed, 1);
	verbs_srq_note_lost(rail->queue);
}

/* Starts to wait for the event, or for the last receive. Returns false if the rail need not wait. */
static bool wait_for_last_receive(struct verbs_rail *rail)
{
	if (!keeps_receives(rail))
		return false;
	if (!tells_last_receive(rail)) {
		miss_last_receive(rail);
		return false;
	}
	if (!rail->awaits_last)
		pl_timer_set(home_of(rail), &rail->drain, pl_now() + LAST_LIMIT);
	rail->awaits_last = true;
	return true;
}

void verbs_forgo_last_receive(struct verbs_rail *rail)
{
	if (rail->link == VERBS_DRAINING && keeps_receives(rail))
		verbs_srq_note_lost(rail->queue);
}

void verbs_await_last_receive(struct verbs_rail *rail)
{
	struct pl_engine *first = rail->endpoint->state->context->engines[0];
	uint64_t deadline = pl_now() + LAST_LIMIT;

	if (rail->link != VERBS_DRAINING)
		return;
	while (keeps_receives(rail) && tells_last_receive(rail) && pl_now() < deadline) {
		verbs_cq_poll(rail->queue);
		/* Another engine's thread takes the events, unless this engine is the one. */
		if (first == home_of(rail) && rail->device->verbs)
			verbs_async_take(rail->device);
	}
	miss_last_receive(rail);
	verbs_take_rest(rail);
}

void verbs_drained_run(struct pl_task *task)
{
	struct verbs_rail *rail = pl_container_of(task, struct verbs_rail, drained_task);
	/* Failed sends show a link that goes down before its port does. */
	bool port_down = rail->broke.here;
	int code = rail->given_up.code;

	if (rail->link != VERBS_DRAINING || !pl_list_empty(&rail->posted) || wait_for_last_receive(rail))
		return;
	verbs_take_rest(rail);
	rail->broke.here = false;
	rail->ended = pl_now();
	pl_timer_clear(home_of(rail), &rail->drain);
	rail->given_up.code = 0;
	if (code) {
		end_attempt(rail, code, rail->given_up.call);
		return;
	}
	drop_connection(rail);
	if (rail->joined.step)
		verbs_accept_joined(rail);
	else
		dial_later(rail, count_attempt(rail, port_down));
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
	miss_last_receive(rail);
	pl_list_remove(&rail->queue_link);
	verbs_mw_drop_all(rail);
	verbs_qp_destroy(rail);
	verbs_take_back(rail);
	pl_engine_post(home_of(rail), &rail->drained_task);
}

void verbs_link_drop(struct verbs_rail *rail)
{
	if (rail->queue)
		rail->queue->posted -= rail->posted_count;
	verbs_qp_drop(rail);
	rail->link = VERBS_DOWN;
}
