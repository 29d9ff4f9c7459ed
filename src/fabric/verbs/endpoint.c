/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations table of the verbs fabric. */
#include "fabric/verbs/data/flush.h"
#include "fabric/verbs/data/request.h"
#include "fabric/verbs/memory/near.h"

static const char reason[] = "verbs: the network card reads and writes the region itself";

static const char visibility[] = "verbs: the receiving device acknowledged them";

#define HINT_NETWORKS "see the devices of both hosts with: rdma link; or use the fabric tcp"
#define HINT_LOST "try again after a minute, or name the fabric verbs, which tries at once"
/* A queue pair in the error state returns its work without waiting for the peer. */
#define FLUSH_LIMIT (5 * PL_NS_PER_S)

static void retry(struct pl_timer *timer)
{
	struct verbs_rail *rail = pl_container_of(timer, struct verbs_rail, retry);

	switch (rail->link) {
	case VERBS_DOWN:
		if (verbs_finished(rail->endpoint))
			break;
		if (rail->endpoint->base.peer->initiator)
			verbs_dial(rail);
		else
			verbs_tell_down_later(rail);
		break;
	case VERBS_ASKING:
	case VERBS_READYING:
	case VERBS_PROVING:
		verbs_attempt_look(rail);
		break;
	case VERBS_DRAINING:
	case VERBS_UP:
		break;
	}
}

static void init_rail(struct verbs_endpoint *endpoint, unsigned index)
{
	struct verbs_rail *rail = &endpoint->rails[index];

	rail->endpoint = endpoint;
	rail->index = (uint8_t)index;
	rail->chunk = VERBS_CHUNK;
	verbs_pace_open(&rail->pace);
	pl_list_init(&rail->queue_link);
	pl_list_init(&rail->starved_link);
	pl_list_init(&rail->spent);
	pl_list_init(&rail->windows);
	pl_list_init(&rail->posted);
	pl_list_init(&rail->held);
	pl_list_init(&rail->ready.base.link);
	pl_task_init(&rail->ready.done, verbs_ready_ended);
	pl_task_init(&rail->drained_task, verbs_drained_run);
	pl_task_init(&rail->fail_task, verbs_fail_run);
	pl_timer_init(&rail->retry, retry);
	pl_timer_init(&rail->drain, verbs_drain_expired);
	pl_timer_init(&rail->watch, verbs_watch_look);
}

/* The operation announced with PL_MORE did not come. */
static void nothing_followed(struct pl_timer *timer)
{
	verbs_flush(pl_container_of(timer, struct verbs_endpoint, patience));
}

static int verbs_create(struct pl_peer *peer, struct pl_endpoint **result, struct pl_error *error)
{
	struct verbs_state *state = verbs_state_get(peer->context, error);
	struct verbs_endpoint *endpoint;
	int rc = 0;

	if (!state)
		return -ENODEV;
	endpoint = pl_zalloc(&peer->context->allocator, sizeof(*endpoint));
	if (!endpoint)
		return pl_fail_memory(error, "connect");
	endpoint->base.peer = peer;
	endpoint->state = state;
	endpoint->notified = (uint32_t)-VERBS_EARLY;
	pl_timer_init(&endpoint->patience, nothing_followed);
	pl_timer_init(&endpoint->parking, verbs_parking_ended);
	pl_timer_init(&endpoint->gap.timer, verbs_gap_look);
	pl_list_init(&endpoint->waiting);
	pl_list_init(&endpoint->parked);
	pl_list_init(&endpoint->again);
	pl_list_init(&endpoint->early);
	pl_list_init(&endpoint->settling);
	pl_list_init(&endpoint->flushes);
	pl_list_init(&endpoint->targets);
	pl_list_init(&endpoint->registering);
	pl_list_init(&endpoint->copying);
	pl_list_init(&endpoint->waiter_link);
	for (unsigned i = 0; i < VERBS_RAILS; i++)
		init_rail(endpoint, i);
	if (!peer->initiator)
		rc = verbs_list_ports(endpoint);
	if (rc < 0) {
		pl_free(&peer->context->allocator, endpoint);
		return pl_fail_errno(error, rc, "RDMA-NO-DEVICE", "ibv_query_port", NULL);
	}
	*result = &endpoint->base;
	return 0;
}

static int verbs_describe(struct pl_endpoint *base, uint8_t blob[PL_FABRIC_BLOB_MAX])
{
	struct pl_writer writer;

	pl_writer_init(&writer, blob, PL_FABRIC_BLOB_MAX);
	verbs_advert_write(verbs_endpoint_of(base), &writer);
	return (int)(writer.at - writer.begin);
}

static int verbs_connect(struct pl_endpoint *base, const uint8_t *blob, size_t length, struct pl_error *error)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
	struct pl_reader reader;
	int rc;

	pl_reader_init(&reader, blob, length);
	rc = verbs_advert_read(endpoint, &reader);
	if (rc == -EPROTO)
		return pl_fail(error, rc, "PROTOCOL", "hello", NULL, NULL,
			       "the other end's description of the verbs fabric is malformed");
	if (rc < 0)
		return pl_fail(error, rc, "RDMA-CONNECT", "connect", NULL, HINT_NETWORKS,
			       "no RDMA device of this host fits a device of the peer: InfiniBand or RoCE, IPv4 or IPv6");
	if (pl_peer_is_replaceable(base->peer) && verbs_paths_are_lost(endpoint))
		return pl_fail(error, -EHOSTUNREACH, "RDMA-CONNECT", "connect", NULL, HINT_LOST,
			       "the devices did not reach each other at a connection of the last minute");
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		verbs_dial(&endpoint->rails[i]);
	return 0;
}

/* The other end knows that a connection is up, but this end may not have its completion yet. */
static bool verbs_is_up(struct pl_endpoint *base)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);

	for (unsigned i = 0; i < endpoint->rail_count && !endpoint->opened; i++) {
		if (endpoint->rails[i].link != VERBS_UP && endpoint->rails[i].link != VERBS_PROVING)
			continue;
		endpoint->opened = true;
		/* The proof may still fail. */
		endpoint->down_since = pl_now();
	}
	return endpoint->opened;
}

/* The fabric uses no sockets. */
static int verbs_join(struct pl_endpoint *base, struct pl_stream *stream, const uint8_t *hello)
{
	(void)base;
	(void)hello;
	pl_stream_close(stream);
	return -EPROTO;
}

static bool verbs_devices(struct pl_context *context)
{
	return verbs_state_get(context, NULL);
}

/*
 * Registers the region with the devices near it, or those of the first rails, or has threads do so. A refusal shows in
 * the first transfer.
 */
static unsigned verbs_prepare(struct pl_endpoint *base, struct pl_region *region)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
	uint16_t near = verbs_port_numbers(endpoint, verbs_near(endpoint->state, region));
	uint8_t rails = endpoint->choices[0].rails;
	uint32_t lkey;

	for (unsigned i = 0; i < endpoint->port_count; i++)
		if (near & 1u << i)
			verbs_local_key(endpoint->state, endpoint->ports[i]->device, region, false, &lkey);
	for (unsigned i = 0; i < endpoint->rail_count && !near; i++)
		if (rails & 1u << i && endpoint->rails[i].device)
			verbs_local_key(endpoint->state, endpoint->rails[i].device, region, false, &lkey);
	return 0;
}

static void verbs_widen(struct pl_endpoint *base, unsigned lanes)
{
	(void)base;
	(void)lanes;
}

/* -- cancellation --------------------------------------------------------------------------------- */

/* The invalidation of a window ends soon by itself. */
static bool canceled(const struct verbs_work *work)
{
	return work->operation && work->kind != VERBS_INVALIDATE && atomic_load(&work->operation->canceled);
}

void verbs_work_drop(struct verbs_endpoint *endpoint, struct verbs_work *work, bool last)
{
	struct pl_operation *operation = work->operation;

	if (last || !verbs_work_skip(work)) {
		uint8_t type = work->kind == VERBS_FRAME ? work->frame.type : 0;

		pl_list_remove(&work->link);
		verbs_work_free(endpoint, work);
		if (!last)
			pl_message_dropped(endpoint->base.peer, type);
	}
	if (operation)
		pl_operation_pending_done(operation);
}

static void drop_list(struct verbs_endpoint *endpoint, struct pl_list *list, bool all)
{
	pl_list_for_each_safe(at, next, list) {
		struct verbs_work *work = pl_list_entry(at, struct verbs_work, link);

		if (all || (canceled(work) && !verbs_work_outlives(endpoint, work)))
			verbs_work_drop(endpoint, work, all);
	}
}

/* True if a list has cancelled work, in chains or not. */
static bool any_canceled(const struct pl_list *list)
{
	pl_list_for_each(at, list)
		for (const struct verbs_work *work = pl_list_entry(at, struct verbs_work, link); work;
		     work = work->also)
			if (canceled(work))
				return true;
	return false;
}

static void verbs_sweep(struct pl_endpoint *base)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
	bool flushing = endpoint->flushing;

	/* Ending operations may post at once, into the lists that are walked here. */
	endpoint->flushing = true;
	drop_list(endpoint, &endpoint->waiting, false);
	drop_list(endpoint, &endpoint->again, false);
	drop_list(endpoint, &endpoint->parked, false);
	drop_list(endpoint, &endpoint->registering, false);
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		drop_list(endpoint, &endpoint->rails[i].held, false);
	endpoint->flushing = flushing;
	/* Only the card knows when it no longer uses a buffer. A close sends the last messages first: end_link(). */
	for (unsigned i = 0; i < endpoint->rail_count && !verbs_is_lost(endpoint); i++)
		if (any_canceled(&endpoint->rails[i].posted))
			verbs_fail(&endpoint->rails[i], "a cancelled operation needs its buffer back");
	verbs_flush(endpoint);
}

/* Rails in an attempt to connect fail later: completions may be taken now. */
static void verbs_lost(struct pl_endpoint *base)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);

	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		struct verbs_rail *rail = &endpoint->rails[i];

		if (rail->link == VERBS_UP)
			verbs_fail(rail, "the peer is lost");
		else if (rail->link != VERBS_DOWN && rail->link != VERBS_DRAINING)
			verbs_fail_soon(rail);
	}
}

static void verbs_take_arrived(struct pl_endpoint *base)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);

	for (unsigned i = 0; i < endpoint->rail_count; i++)
		verbs_take_rest(&endpoint->rails[i]);
}

static bool verbs_is_drained(struct pl_endpoint *base)
{
	const struct verbs_endpoint *endpoint = verbs_endpoint_of(base);

	/* The other end may have proved the path, and sent, although this end has not polled the completions yet. */
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		if (endpoint->rails[i].link >= VERBS_PROVING)
			return false;
	return true;
}

static unsigned verbs_lanes(struct pl_endpoint *base)
{
	return atomic_load(&verbs_endpoint_of(base)->lanes);
}

/* -- the end -------------------------------------------------------------------------------------- */

static bool verbs_send_last(struct pl_endpoint *base)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
	bool sent = true;

	verbs_flush(endpoint);
	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		struct verbs_rail *rail = &endpoint->rails[i];

		if (rail->link == VERBS_UP)
			verbs_cq_poll(rail->queue);
		sent &= rail->link != VERBS_UP || !rail->frames;
	}
	return sent;
}

/* Ends a rail of a peer that was never up, whose caller must not wait. */
static void end_link_at_once(struct verbs_rail *rail)
{
	rail->endpoint->closing = true;
	verbs_fail(rail, "the connection was closed");
	verbs_forgo_last_receive(rail);
}

static void end_link(struct verbs_rail *rail)
{
	uint64_t deadline = rail->endpoint->base.peer->close_end;
	bool late = false;

	while (rail->link == VERBS_UP && rail->frames && !late) {
		verbs_cq_poll(rail->queue);
		late = pl_now() >= deadline;
	}
	rail->endpoint->closing = true;
	verbs_fail(rail, "the connection was closed");
	deadline = pl_now() + FLUSH_LIMIT;
	while (rail->link == VERBS_DRAINING && !pl_list_empty(&rail->posted) && !atomic_load(&rail->device->silent) &&
	       pl_now() < deadline)
		verbs_cq_poll(rail->queue);
	verbs_await_last_receive(rail);
}

/* True if a connector uses a rail. Takes back jobs that have not begun. */
static bool is_connecting(struct verbs_endpoint *endpoint)
{
	bool busy = false;

	for (unsigned i = 0; i < endpoint->rail_count; i++) {
		struct verbs_ready_job *job = &endpoint->rails[i].ready;

		if (job->busy && verbs_helpers_withdraw(&endpoint->state->connectors, &job->base))
			job->busy = false;
		busy |= job->busy;
	}
	return busy;
}

/* Apart from connectors, the endpoint lives on the home engine only. */
static void verbs_abandon(struct pl_endpoint *base, struct pl_task *task)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);

	endpoint->closing = true;
	if (is_connecting(endpoint))
		endpoint->abandoned = task;
	else
		pl_engine_post(base->peer->home, task);
}

/* Waits for connectors, and returns with the home engine's lock. */
static void end_connecting(struct verbs_endpoint *endpoint)
{
	struct pl_engine *home = endpoint->base.peer->home;

	pl_engine_lock(home);
	while (is_connecting(endpoint)) {
		endpoint->closing = true;
		pl_engine_unlock(home);
		verbs_helpers_wait(&endpoint->state->connectors);
		pl_engine_lock(home);
	}
}

static void close_rail(struct verbs_rail *rail, struct pl_engine *home)
{
	pl_timer_clear(home, &rail->retry);
	pl_timer_clear(home, &rail->drain);
	pl_timer_clear(home, &rail->watch);
	pl_engine_withdraw(home, &rail->drained_task);
	pl_engine_withdraw(home, &rail->fail_task);
	verbs_link_drop(rail);
	verbs_buffer_pool_close(&rail->receives, rail->endpoint->state);
	verbs_unpack(&rail->posted);
	drop_list(rail->endpoint, &rail->posted, true);
	drop_list(rail->endpoint, &rail->held, true);
}

/* The program may still hold remote regions. */
static void forget_targets(struct verbs_endpoint *endpoint)
{
	pthread_mutex_lock(&endpoint->state->lock);
	while (!pl_list_empty(&endpoint->targets))
		pl_list_remove(endpoint->targets.next);
	pthread_mutex_unlock(&endpoint->state->lock);
}

static void verbs_close(struct pl_endpoint *base)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
	struct pl_engine *home = base->peer->home;
	bool held = pl_engine_held(home);

	/* A held lock means that abandon() has waited. */
	if (!held)
		end_connecting(endpoint);
	for (unsigned i = 0; i < endpoint->rail_count; i++)
		if (held)
			end_link_at_once(&endpoint->rails[i]);
		else
			end_link(&endpoint->rails[i]);
	pl_timer_clear(home, &endpoint->patience);
	pl_timer_clear(home, &endpoint->parking);
	for (unsigned i = 0; i < VERBS_RAILS; i++)
		close_rail(&endpoint->rails[i], home);
	verbs_stages_drain(endpoint);
	pl_list_remove(&endpoint->waiter_link);
	drop_list(endpoint, &endpoint->registering, true);
	drop_list(endpoint, &endpoint->again, true);
	drop_list(endpoint, &endpoint->waiting, true);
	drop_list(endpoint, &endpoint->parked, true);
	pl_pool_drain(&endpoint->spare, &endpoint->state->context->allocator);
	forget_targets(endpoint);
	verbs_flushes_forget(endpoint);
	verbs_early_forget(endpoint);
	if (!held)
		pl_engine_unlock(home);
	pl_free(&endpoint->state->context->allocator, endpoint);
}

const struct pl_fabric_ops pl_verbs_fabric = {
	.name = "verbs",
	.serves = verbs_serves,
	.reason = reason,
	.visible = PL_VISIBLE_ACKNOWLEDGED,
	.visibility = visibility,
	.uncertain = true,
	.clear = true,
	.create = verbs_create,
	.describe = verbs_describe,
	.connect = verbs_connect,
	.replaced = verbs_paths_remember,
	.rail = verbs_rail_message,
	.rails = verbs_rails_message,
	.up = verbs_is_up,
	.join = verbs_join,
	.widen = verbs_widen,
	.post = verbs_post,
	.prepare = verbs_prepare,
	.message = verbs_message,
	.gathers = verbs_gathers,
	.settle = verbs_settle,
	.sweep = verbs_sweep,
	.send_last = verbs_send_last,
	.lost = verbs_lost,
	.take_arrived = verbs_take_arrived,
	.drained = verbs_is_drained,
	.lanes = verbs_lanes,
	.abandon = verbs_abandon,
	.close = verbs_close,
	.export_key = verbs_export_key,
	.hold_answer = verbs_hold_answer,
	.imported = verbs_imported,
	.devices = verbs_devices,
	.count = verbs_mr_shared_count,
	.freed = verbs_mr_shared_freed,
	.close_state = verbs_state_close,
};
