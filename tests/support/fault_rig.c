/* SPDX-License-Identifier: BSD-2-Clause */
#ifdef PL_HAVE_VERBS

#include "support/fault_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

struct fault_card fault_card;

/* -- the device ----------------------------------------------------------------------------------- */

static int poll_completions(struct ibv_cq *cq, int count, struct ibv_wc *completions)
{
	(void)cq;
	if (!fault_card.completed || count < 1)
		return 0;
	fault_card.completed = false;
	completions[0] = fault_card.completion;
	return 1;
}

static int modify_pair(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask)
{
	(void)pair;
	assert_int_equal(mask, IBV_QP_STATE);
	assert_int_equal(attributes->qp_state, IBV_QPS_ERR);
	fault_card.state = IBV_QPS_ERR;
	fault_card.failed++;
	return 0;
}

static int query_pair(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask, struct ibv_qp_init_attr *init)
{
	(void)pair;
	(void)mask;
	(void)init;
	fault_card.queried_pairs++;
	attributes->qp_state = fault_card.state;
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attributes)
{
	(void)context;
	(void)port;
	if (fault_card.unheld) {
		assert_int_equal(pthread_mutex_trylock(fault_card.unheld), 0);
		pthread_mutex_unlock(fault_card.unheld);
		fault_card.queried++;
	}
	((struct ibv_port_attr *)attributes)->state = IBV_PORT_ACTIVE;
	return 0;
}

static int destroy_pair(struct ibv_qp *pair)
{
	(void)pair;
	fault_card.destroyed++;
	return 0;
}

static int get_event(struct ibv_context *context, struct ibv_async_event *event)
{
	(void)context;
	if (!fault_card.happened)
		return -1;
	fault_card.happened = false;
	*event = (struct ibv_async_event){ .event_type = fault_card.event };
	switch (fault_card.event) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		event->element.qp = fault_card.pair;
		break;
	case IBV_EVENT_CQ_ERR:
		event->element.cq = fault_card.pair->send_cq;
		break;
	case IBV_EVENT_SRQ_ERR:
		event->element.srq = fault_card.pair->srq;
		break;
	default:
		event->element.port_num = 1;
	}
	return 0;
}

static void ack_event(struct ibv_async_event *event)
{
	(void)event;
}

/* -- a peer with two rails ------------------------------------------------------------------------ */

static void nothing(struct pl_task *task)
{
	(void)task;
}

static void never(struct pl_timer *timer)
{
	(void)timer;
}

static void add_rail(struct fault_rig *rig, unsigned index)
{
	struct verbs_rail *rail = &rig->endpoint.rails[index];

	rig->pairs[index].qp_num = 7 + index;
	rig->pairs[index].context = &rig->verbs;
	rig->ports[index].device = &rig->device;
	rig->ports[index].number = (uint8_t)(1 + index);
	*rail = (struct verbs_rail){
		.endpoint = &rig->endpoint,
		.device = &rig->device,
		.queue = &rig->queue,
		.port = &rig->ports[index],
		.qp = &rig->pairs[index],
		.link = VERBS_UP,
		.index = (uint8_t)index,
		.generation = 3,
		.chunk = VERBS_CHUNK,
	};
	verbs_pace_open(&rail->pace);
	pl_list_init(&rail->starved_link);
	pl_list_init(&rail->posted);
	pl_list_init(&rail->held);
	/* What follows is not looked at: the queue pair's end has tests of its own, in the machines of tests/vm. */
	pl_task_init(&rail->drained_task, nothing);
	pl_task_init(&rail->fail_task, nothing);
	pl_timer_init(&rail->drain, never);
	pl_timer_init(&rail->watch, never);
	pl_timer_init(&rail->retry, never);
	rig->pairs[index].qp_context = rail;
	rig->pairs[index].send_cq = &rig->cq;
	rig->pairs[index].srq = &rig->srq;
	pl_list_append(&rig->queue.rails[7 + index], &rail->queue_link);
	rig->queue.rail_count++;
}

/* A write that the first rail has posted. */
static void add_work(struct fault_rig *rig)
{
	struct verbs_rail *rail = &rig->endpoint.rails[0];

	rig->work = pl_zalloc(&pl_system_allocator, sizeof(*rig->work));
	assert_non_null(rig->work);
	rig->work->kind = VERBS_WRITE;
	rig->work->operation = &rig->operation;
	rig->work->length = 100;
	/* One more than there are, so that it does not complete. */
	atomic_init(&rig->operation.pending, 2);
	rig->operation.context = &rig->context;
	rig->work->serial = ++rail->serial;
	pl_list_append(&rail->posted, &rig->work->link);
	rail->posted_count = rig->queue.posted = 1;
	rail->posted_bytes = 100;
}

struct fault_rig *fault_rig_new(void)
{
	struct fault_rig *rig = pl_zalloc(&pl_system_allocator, sizeof(*rig));
	const struct verbs_library *library = verbs_library_get(NULL);

	assert_non_null(rig);
	if (!library)
		exit(77);
	memset(&fault_card, 0, sizeof(fault_card));
	rig->library = *library;
	rig->library.ibv_modify_qp = modify_pair;
	rig->library.ibv_query_qp = query_pair;
	rig->library.ibv_query_port = query_port;
	rig->library.ibv_destroy_qp = destroy_pair;
	rig->library.ibv_get_async_event = get_event;
	rig->library.ibv_ack_async_event = ack_event;
	rig->context.allocator = pl_system_allocator;
	rig->context.engine_count = 1;
	assert_int_equal(pl_engine_open(&pl_system_allocator, false, 0, &rig->context.engines[0], NULL), 0);
	pthread_mutex_init(&rig->context.grant_lock, NULL);
	verbs_state_init(&rig->state, &rig->context, &rig->library);
	strcpy(rig->device.name, "card0");
	rig->device.verbs = &rig->verbs;
	rig->device.state = &rig->state;
	rig->device.async.fd = -1;
	pl_list_append(&rig->state.devices, &rig->device.link);
	rig->verbs.ops.poll_cq = poll_completions;
	rig->cq.context = &rig->verbs;
	verbs_cq_init(&rig->queue, &rig->state, &rig->device, rig->context.engines[0]);
	rig->queue.cq = &rig->cq;
	rig->cq.cq_context = rig->srq.srq_context = &rig->queue;
	fault_card.pair = &rig->pairs[0];
	rig->queue.room = 100;
	pl_list_append(&rig->state.queues, &rig->queue.link);
	rig->peer.context = &rig->context;
	pl_event_log_init(&rig->peer.events, &pl_system_allocator);
	rig->peer.home = rig->context.engines[0];
	rig->peer.channel.allocator = &pl_system_allocator;
	rig->peer.channel.source.engine = rig->peer.home;
	rig->peer.channel.open = true;
	rig->peer.channel.gone = &rig->handling;
	rig->endpoint.base.peer = &rig->peer;
	rig->endpoint.state = &rig->state;
	rig->endpoint.opened = true;
	rig->endpoint.rail_count = 2;
	pl_list_init(&rig->endpoint.waiting);
	pl_list_init(&rig->endpoint.again);
	pl_list_init(&rig->endpoint.early);
	pl_list_init(&rig->endpoint.targets);
	add_rail(rig, 0);
	add_rail(rig, 1);
	pl_engine_lock(rig->peer.home);
	add_work(rig);
	return rig;
}

void fault_rig_free(struct fault_rig *rig)
{
	struct verbs_rail *rails = rig->endpoint.rails;

	for (unsigned i = 0; i < 2; i++) {
		while (!pl_list_empty(&rails[i].held)) {
			struct verbs_work *work = pl_list_first(&rails[i].held, struct verbs_work, link);

			pl_list_remove(&work->link);
			verbs_work_free(&rig->endpoint, work);
		}
		pl_timer_clear(rig->peer.home, &rails[i].drain);
		pl_timer_clear(rig->peer.home, &rails[i].retry);
		pl_timer_clear(rig->peer.home, &rails[i].watch);
		pl_engine_withdraw(rig->peer.home, &rails[i].drained_task);
		pl_engine_withdraw(rig->peer.home, &rails[i].fail_task);
	}
	/* The other rail may have been asked about the one that failed. */
	while (!pl_list_empty(&rig->endpoint.again)) {
		struct verbs_work *work = pl_list_first(&rig->endpoint.again, struct verbs_work, link);

		pl_list_remove(&work->link);
		verbs_work_free(&rig->endpoint, work);
	}
	if (!pl_list_empty(&rails[0].posted))
		pl_free(&pl_system_allocator, rig->work);
	pl_pool_drain(&rig->endpoint.spare, &pl_system_allocator);
	pl_free(&pl_system_allocator, rig->operation.error);
	if (rig->peer.channel.unsent != rig->peer.home->messages)
		pl_free(&pl_system_allocator, rig->peer.channel.unsent);
	pl_event_log_destroy(&rig->peer.events);
	verbs_helpers_close(&rig->state.connectors);
	verbs_registrar_close(&rig->state);
	verbs_removal_close(&rig->state);
	pl_engine_unlock(rig->peer.home);
	pl_engine_stop(rig->peer.home);
	pl_engine_close(rig->peer.home);
	pl_free(&pl_system_allocator, rig);
}

size_t fault_rig_downs(const struct fault_rig *rig)
{
	const struct pl_control down = { .type = PL_CONTROL_RAIL, .rail = { .step = PL_RAIL_DOWN, .generation = 3 } };
	uint8_t bytes[PL_CONTROL_HEADER + PL_CONTROL_BODY_MAX];
	size_t length = (size_t)pl_control_encode(&down, bytes, sizeof(bytes));

	assert_int_equal(rig->peer.channel.unsent_length % length, 0);
	return rig->peer.channel.unsent_length / length;
}

void fault_rig_expect_links(const struct fault_rig *rig, enum verbs_link first, enum verbs_link second)
{
	assert_int_equal(rig->endpoint.rails[0].link, first);
	assert_int_equal(rig->endpoint.rails[1].link, second);
}

#endif
