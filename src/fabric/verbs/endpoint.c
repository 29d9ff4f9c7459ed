/* SPDX-License-Identifier: BSD-2-Clause */
/* The fabric as core sees it. */
#include "fabric/verbs/verbs.h"

static const char reason[] = "verbs: the network card reads and writes the region itself";

/* At the end, what was said last is given so long to arrive. */
#define FAREWELL (500 * PL_NS_PER_MS)
/* A queue pair in the error state gives back what it has; it waits for nobody. */
#define FLUSH_LIMIT (5 * PL_NS_PER_S)

static void retry(struct pl_timer *timer)
{
	struct verbs_endpoint *endpoint = pl_container_of(timer, struct verbs_endpoint, retry);

	switch (endpoint->link) {
	case VERBS_DOWN:
		if (!endpoint->closing)
			verbs_dial(endpoint);
		break;
	case VERBS_RESOLVING:
	case VERBS_CONNECTING:
		/* The peer may have lost the request; the connection manager would ask again after seconds. */
		if (endpoint->opened)
			verbs_fail(endpoint);
		break;
	case VERBS_DRAINING:
		verbs_drained_run(&endpoint->drained_task);
		break;
	case VERBS_UP:
		break;
	}
}

static int verbs_create(struct pl_peer *peer, struct pl_endpoint **result, struct pl_error *error)
{
	struct verbs_state *state = verbs_state_get(peer->context, error);
	struct verbs_endpoint *endpoint;
	int port = 0;

	if (!state)
		return -ENODEV;
	if (!peer->initiator)
		port = verbs_listen(state, &peer->local_address);
	if (port < 0)
		return pl_fail_errno(error, port, "RDMA-LISTEN", "rdma_listen", NULL);
	endpoint = pl_zalloc(&peer->context->allocator, sizeof(*endpoint));
	if (!endpoint)
		return pl_fail_memory(error, "connect");
	endpoint->base.peer = peer;
	endpoint->state = state;
	endpoint->cm = verbs_cm_of(state, peer->home);
	endpoint->chunk = VERBS_CHUNK;
	endpoint->port = (uint16_t)port;
	pl_list_init(&endpoint->queue_link);
	pl_list_init(&endpoint->starved_link);
	pl_list_init(&endpoint->waiting);
	pl_list_init(&endpoint->posted);
	pl_list_init(&endpoint->again);
	pl_list_init(&endpoint->spare);
	pl_task_init(&endpoint->join_task, verbs_join_run);
	pl_task_init(&endpoint->drained_task, verbs_drained_run);
	pl_timer_init(&endpoint->retry, retry);
	pl_timer_init(&endpoint->drain, verbs_drain_expired);
	*result = &endpoint->base;
	return 0;
}

static int verbs_describe(struct pl_endpoint *base, uint8_t blob[PL_FABRIC_BLOB_MAX])
{
	struct pl_writer writer;

	pl_writer_init(&writer, blob, PL_FABRIC_BLOB_MAX);
	pl_put_u16(&writer, verbs_endpoint_of(base)->port);
	pl_put_u64(&writer, base->peer->ticket);
	pl_put_bytes(&writer, base->peer->ticket_secret, sizeof(base->peer->ticket_secret));
	return (int)(writer.at - writer.begin);
}

static int verbs_connect(struct pl_endpoint *base, const uint8_t *blob, size_t length, struct pl_error *error)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
	struct pl_reader reader;

	pl_reader_init(&reader, blob, length);
	endpoint->port = pl_get_u16(&reader);
	endpoint->ticket = pl_get_u64(&reader);
	pl_get_bytes(&reader, endpoint->ticket_secret, sizeof(endpoint->ticket_secret));
	if (reader.bad)
		return pl_fail(error, -EPROTO, "PROTOCOL", "hello", NULL, NULL,
			       "the other end's description of the verbs fabric is malformed");
	verbs_dial(endpoint);
	return 0;
}

/* Sockets have no part in this. */
static int verbs_join(struct pl_endpoint *base, struct pl_stream *stream, const uint8_t *hello)
{
	(void)base;
	(void)hello;
	pl_stream_close(stream);
	return -EPROTO;
}

static void verbs_widen(struct pl_endpoint *base, unsigned streams)
{
	(void)base;
	(void)streams;
}

/* -- cancellation --------------------------------------------------------------------------------- */

static bool canceled(const struct verbs_work *work)
{
	return work->operation && atomic_load(&work->operation->canceled);
}

static void drop(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	struct pl_operation *operation = work->operation;

	pl_list_remove(&work->link);
	verbs_work_free(endpoint, work);
	if (operation)
		pl_operation_part_done(operation);
}

static void drop_list(struct verbs_endpoint *endpoint, struct pl_list *list, bool all)
{
	pl_list_for_each_safe(at, next, list) {
		struct verbs_work *work = pl_list_entry(at, struct verbs_work, link);

		if (all || canceled(work))
			drop(endpoint, work);
	}
}

static void verbs_sweep(struct pl_endpoint *base)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
	bool flushing = endpoint->flushing;

	/* What ends here may want to post at once, into the lists that are gone through. */
	endpoint->flushing = true;
	drop_list(endpoint, &endpoint->waiting, false);
	drop_list(endpoint, &endpoint->again, false);
	endpoint->flushing = flushing;
	pl_list_for_each(at, &endpoint->posted) {
		if (canceled(pl_list_entry(at, struct verbs_work, link))) {
			/* Only the card can say when it does not use a buffer any more. */
			verbs_fail(endpoint);
			break;
		}
	}
	verbs_flush(endpoint);
}

static bool verbs_is_drained(struct pl_endpoint *base)
{
	enum verbs_state_of_link link = verbs_endpoint_of(base)->link;

	return link != VERBS_UP && link != VERBS_DRAINING;
}

static unsigned verbs_streams(struct pl_endpoint *base)
{
	return verbs_endpoint_of(base)->link == VERBS_UP ? 1 : 0;
}

/* -- the end -------------------------------------------------------------------------------------- */

static bool frames_under_way(const struct verbs_endpoint *endpoint)
{
	pl_list_for_each(at, &endpoint->posted)
		if (pl_list_entry(at, struct verbs_work, link)->kind == VERBS_FRAME)
			return true;
	return false;
}

static void end_link(struct verbs_endpoint *endpoint)
{
	uint64_t deadline = pl_now() + FAREWELL;

	while (endpoint->link == VERBS_UP && frames_under_way(endpoint) && pl_now() < deadline)
		verbs_queue_poll(endpoint->queue);
	endpoint->closing = true;
	verbs_fail(endpoint);
	deadline = pl_now() + FLUSH_LIMIT;
	while (endpoint->link == VERBS_DRAINING && !pl_list_empty(&endpoint->posted) && pl_now() < deadline)
		verbs_queue_poll(endpoint->queue);
}

static void verbs_abandon(struct pl_endpoint *base, struct pl_task *task)
{
	/* All of it lives on the home engine. */
	pl_engine_post(base->peer->home, task);
}

static void verbs_close(struct pl_endpoint *base)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
	struct pl_engine *home = base->peer->home;
	bool held = pl_engine_held(home);

	if (!held)
		pl_engine_lock(home);
	end_link(endpoint);
	pl_timer_clear(home, &endpoint->retry);
	pl_timer_clear(home, &endpoint->drain);
	pl_engine_withdraw(home, &endpoint->join_task);
	pl_engine_withdraw(home, &endpoint->drained_task);
	verbs_joins_drop(endpoint);
	verbs_links_drop(endpoint);
	drop_list(endpoint, &endpoint->posted, true);
	drop_list(endpoint, &endpoint->again, true);
	drop_list(endpoint, &endpoint->waiting, true);
	verbs_spare_drop(endpoint);
	if (!held)
		pl_engine_unlock(home);
	pl_free(&endpoint->state->context->allocator, endpoint);
}

const struct pl_fabric_ops pl_verbs_fabric = {
	.name = "verbs",
	.serves = verbs_serves,
	.reason = reason,
	.create = verbs_create,
	.describe = verbs_describe,
	.connect = verbs_connect,
	.join = verbs_join,
	.widen = verbs_widen,
	.post = verbs_post,
	.message = verbs_message,
	.sweep = verbs_sweep,
	.drained = verbs_is_drained,
	.streams = verbs_streams,
	.abandon = verbs_abandon,
	.close = verbs_close,
	.export_key = verbs_export_key,
	.close_state = verbs_state_close,
};
