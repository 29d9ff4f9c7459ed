/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a device says has gone wrong, and what becomes of it: completions with each status, and asynchronous events.
 * Soft-RoCE brings about only some of them (tests/vm); here the device's calls are replaced, and the fabric is the real
 * one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "fabric/verbs/verbs.h"

#define VENDOR 0x81

/* -- the device ----------------------------------------------------------------------------------- */

static struct {
	struct ibv_wc completion; /* what it says next; */
	bool completed;           /* if this is set */
	enum ibv_event_type event;
	bool happened;
	enum ibv_qp_state state; /* of all queue pairs */
	unsigned failed, destroyed;
} device_said;

static int poll_completions(struct ibv_cq *cq, int count, struct ibv_wc *completions)
{
	(void)cq;
	if (!device_said.completed || count < 1)
		return 0;
	device_said.completed = false;
	completions[0] = device_said.completion;
	return 1;
}

/* The queue pair is in the error state then. */
static int disconnect(struct rdma_cm_id *id)
{
	(void)id;
	device_said.failed++;
	return 0;
}

static int modify_pair(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask)
{
	(void)pair;
	assert_int_equal(mask, IBV_QP_STATE);
	device_said.state = attributes->qp_state;
	return 0;
}

static int query_pair(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask, struct ibv_qp_init_attr *init)
{
	(void)pair;
	(void)mask;
	(void)init;
	attributes->qp_state = device_said.state;
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attributes)
{
	(void)context;
	(void)port;
	((struct ibv_port_attr *)attributes)->state = IBV_PORT_ACTIVE;
	return 0;
}

static void destroy_pair(struct rdma_cm_id *id)
{
	device_said.destroyed++;
	id->qp = NULL;
}

static int get_event(struct ibv_context *context, struct ibv_async_event *event)
{
	(void)context;
	if (!device_said.happened)
		return -1;
	device_said.happened = false;
	*event = (struct ibv_async_event){ .event_type = device_said.event };
	event->element.port_num = 1;
	return 0;
}

static void ack_event(struct ibv_async_event *event)
{
	(void)event;
}

/* -- a peer with two rails ------------------------------------------------------------------------ */

struct rig {
	struct verbs_library library;
	struct pl_context context;
	struct verbs_state state;
	struct verbs_device device;
	struct ibv_context verbs;
	struct ibv_cq cq;
	struct verbs_cq queue;
	struct pl_peer peer;
	struct verbs_endpoint endpoint;
	struct rdma_cm_id ids[2];
	struct ibv_qp pairs[2];
	struct pl_operation operation;
	struct verbs_work *work;
};

static void nothing(struct pl_task *task)
{
	(void)task;
}

static void never(struct pl_timer *timer)
{
	(void)timer;
}

static void add_rail(struct rig *rig, unsigned index)
{
	struct verbs_rail *rail = &rig->endpoint.rails[index];

	rig->pairs[index].qp_num = 7 + index;
	rig->ids[index].qp = &rig->pairs[index];
	rig->ids[index].port_num = (uint8_t)(1 + index);
	rig->ids[index].verbs = &rig->verbs;
	*rail = (struct verbs_rail){
		.endpoint = &rig->endpoint,
		.device = &rig->device,
		.queue = &rig->queue,
		.id = &rig->ids[index],
		.link = VERBS_UP,
		.index = (uint8_t)index,
		.generation = 3,
		.chunk = VERBS_CHUNK,
	};
	verbs_pace_open(&rail->pace);
	pl_list_init(&rail->starved_link);
	pl_list_init(&rail->posted);
	pl_list_init(&rail->held);
	pl_list_init(&rail->asked);
	/* What follows is not looked at: the queue pair's end has tests of its own, in the machines of tests/vm. */
	pl_task_init(&rail->drained_task, nothing);
	pl_task_init(&rail->fail_task, nothing);
	pl_timer_init(&rail->drain, never);
	pl_timer_init(&rail->watch, never);
	pl_timer_init(&rail->retry, never);
	pl_list_append(&rig->queue.rails[7 + index], &rail->queue_link);
	rig->queue.rail_count++;
}

/* A write that the first rail has posted. */
static void add_work(struct rig *rig)
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

static struct rig *rig_new(void)
{
	struct rig *rig = pl_zalloc(&pl_system_allocator, sizeof(*rig));
	const struct verbs_library *library = verbs_library_get(NULL);

	assert_non_null(rig);
	if (!library)
		exit(77);
	memset(&device_said, 0, sizeof(device_said));
	rig->library = *library;
	rig->library.rdma_disconnect = disconnect;
	rig->library.ibv_query_qp = query_pair;
	rig->library.ibv_query_port = query_port;
	rig->library.rdma_destroy_qp = destroy_pair;
	rig->library.ibv_get_async_event = get_event;
	rig->library.ibv_ack_async_event = ack_event;
	rig->context.allocator = pl_system_allocator;
	rig->context.engine_count = 1;
	assert_int_equal(pl_engine_open(&pl_system_allocator, false, 0, &rig->context.engines[0], NULL), 0);
	pthread_mutex_init(&rig->context.grant_lock, NULL);
	rig->state.context = &rig->context;
	rig->state.library = &rig->library;
	pthread_mutex_init(&rig->state.lock, NULL);
	pl_list_init(&rig->state.devices);
	pl_list_init(&rig->state.queues);
	pl_list_init(&rig->state.local_addrs);
	verbs_removal_open(&rig->state);
	strcpy(rig->device.name, "card0");
	rig->device.verbs = &rig->verbs;
	rig->verbs.ops.poll_cq = poll_completions;
	rig->cq.context = &rig->verbs;
	rig->queue.state = &rig->state;
	rig->queue.device = &rig->device;
	rig->queue.engine = rig->context.engines[0];
	rig->queue.cq = &rig->cq;
	rig->queue.room = 100;
	pl_list_init(&rig->queue.starved);
	for (size_t i = 0; i < PL_ARRAY_SIZE(rig->queue.rails); i++)
		pl_list_init(&rig->queue.rails[i]);
	pl_list_append(&rig->state.queues, &rig->queue.link);
	rig->peer.context = &rig->context;
	pl_event_log_init(&rig->peer.events, &pl_system_allocator);
	rig->peer.home = rig->context.engines[0];
	rig->endpoint.base.peer = &rig->peer;
	rig->endpoint.state = &rig->state;
	rig->endpoint.opened = true;
	rig->endpoint.rail_count = 2;
	pl_list_init(&rig->endpoint.waiting);
	pl_list_init(&rig->endpoint.again);
	pl_list_init(&rig->endpoint.spare);
	pl_list_init(&rig->endpoint.early);
	pl_list_init(&rig->endpoint.targets);
	add_rail(rig, 0);
	add_rail(rig, 1);
	pl_engine_lock(rig->peer.home);
	add_work(rig);
	return rig;
}

static void rig_free(struct rig *rig)
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
	}
	/* The other rail may have been asked about the one that failed. */
	while (!pl_list_empty(&rig->endpoint.again)) {
		struct verbs_work *work = pl_list_first(&rig->endpoint.again, struct verbs_work, link);

		pl_list_remove(&work->link);
		verbs_work_free(&rig->endpoint, work);
	}
	if (!pl_list_empty(&rails[0].posted))
		pl_free(&pl_system_allocator, rig->work);
	verbs_spare_drop(&rig->endpoint);
	pl_free(&pl_system_allocator, rig->operation.error);
	pl_event_log_destroy(&rig->peer.events);
	verbs_removal_close(&rig->state);
	pl_engine_unlock(rig->peer.home);
	pl_engine_stop(rig->peer.home);
	pl_engine_close(rig->peer.home);
	pl_free(&pl_system_allocator, rig);
}

static void expect_links(const struct rig *rig, enum verbs_link first, enum verbs_link second)
{
	assert_int_equal(rig->endpoint.rails[0].link, first);
	assert_int_equal(rig->endpoint.rails[1].link, second);
}

/* Checks that the newest event of the peer is the loss of the first rail, for this reason. */
static void expect_rail_lost(struct rig *rig, const char *why)
{
	struct pl_event_record records[PL_EVENTS_MAX];
	size_t count = pl_event_log_read(&rig->peer.events, 0, sizeof(records[0]), records, PL_EVENTS_MAX);

	assert_int_equal(count, 1);
	assert_int_equal(records[0].event, PL_EVENT_RAIL_LOST);
	assert_int_equal(records[0].lane, 0);
	assert_non_null(strstr(records[0].text, "card0:1: "));
	assert_non_null(strstr(records[0].text, why));
}

/* -- completions ---------------------------------------------------------------------------------- */

static void complete(struct rig *rig, enum ibv_wc_status status)
{
	/* What is held is not for the other rail, as nobody answers here. */
	rig->endpoint.flushing = true;
	device_said.completion =
		(struct ibv_wc){ .wr_id = rig->work->serial << 2, .status = status, .vendor_err = VENDOR, .qp_num = 7 };
	device_said.completed = true;
	assert_true(verbs_cq_poll(&rig->queue));
	assert_int_equal(rig->queue.posted, 0);
	assert_int_equal(rig->endpoint.rails[0].posted_bytes, 0);
	assert_int_equal(rig->endpoint.rails[0].link, VERBS_DRAINING);
	assert_int_equal(rig->endpoint.rails[1].link, VERBS_UP);
	assert_int_equal(device_said.failed, 1);
}

/* The operation's fault: it ends with all that the device said, and with a remedy. */
static void test_refused(void **state)
{
	static const struct {
		enum ibv_wc_status status;
		int code;
		const char *id, *hint;
	} kinds[] = {
		{ IBV_WC_REM_ACCESS_ERR, -EACCES, "RDMA-REMOTE-ACCESS", "import a new token" },
		{ IBV_WC_REM_OP_ERR, -EIO, "RDMA-REMOTE-OPERATION", "kernel log of the peer" },
		{ IBV_WC_LOC_PROT_ERR, -EFAULT, "RDMA-LOCAL-PROTECTION", "keep the region mapped" },
		{ IBV_WC_LOC_LEN_ERR, -EIO, "RDMA-LOCAL", "kernel log" },
		{ IBV_WC_LOC_ACCESS_ERR, -EIO, "RDMA-LOCAL", "kernel log" },
		{ IBV_WC_MW_BIND_ERR, -EIO, "RDMA-LOCAL", "kernel log" },
	};

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(kinds); i++) {
		struct rig *rig = rig_new();
		const struct pl_error *error;

		complete(rig, kinds[i].status);
		assert_int_equal(atomic_load(&rig->operation.status), kinds[i].code);
		error = rig->operation.error;
		assert_non_null(error);
		assert_int_equal(error->code, kinds[i].code);
		assert_string_equal(error->id, kinds[i].id);
		assert_string_equal(error->call, "ibv_poll_cq");
		assert_string_equal(error->object, "card0:1");
		assert_non_null(strstr(error->message, rig->library.ibv_wc_status_str(kinds[i].status)));
		assert_non_null(strstr(error->message, "(vendor error 0x81)"));
		assert_non_null(strstr(error->hint, kinds[i].hint));
		assert_true(pl_list_empty(&rig->endpoint.rails[0].held));
		rig_free(rig);
	}
}

/* The connection's: the work is kept for the next one, and why that was needed is remembered. */
static void test_broken(void **state)
{
	static const enum ibv_wc_status statuses[] = { IBV_WC_RETRY_EXC_ERR,    IBV_WC_RNR_RETRY_EXC_ERR,
						       IBV_WC_RESP_TIMEOUT_ERR, IBV_WC_REM_ABORT_ERR,
						       IBV_WC_GENERAL_ERR,      IBV_WC_FATAL_ERR };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(statuses); i++) {
		struct rig *rig = rig_new();
		struct verbs_rail *rail = &rig->endpoint.rails[0];

		complete(rig, statuses[i]);
		assert_int_equal(atomic_load(&rig->operation.status), 0);
		assert_int_equal(atomic_load(&rig->operation.pending), 2);
		assert_ptr_equal(rail->held.next, &rig->work->link);
		assert_int_equal(rail->held_generation, 3);
		assert_int_equal(rail->broke.status, statuses[i]);
		assert_int_equal(rail->broke.vendor_error, VENDOR);
		expect_rail_lost(rig, rig->library.ibv_wc_status_str(statuses[i]));
		assert_int_equal(rail->broke.port, 1);
		/* Nothing was done before: less is asked for at a time, and altogether. */
		assert_true(rail->chunk < VERBS_CHUNK);
		assert_true(rail->pace.limit < VERBS_CHUNK);
		rig_free(rig);
	}
}

/* What is flushed because something before it failed is nobody's fault. */
static void test_flushed(void **state)
{
	struct rig *rig = rig_new();
	struct verbs_rail *rail = &rig->endpoint.rails[0];

	(void)state;
	complete(rig, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(atomic_load(&rig->operation.status), 0);
	assert_ptr_equal(rail->held.next, &rig->work->link);
	assert_int_equal(rail->broke.status, IBV_WC_SUCCESS);
	assert_int_equal(rail->pace.limit, VERBS_UNLIMITED);
	rig_free(rig);
}

/* A request that is taken for an invalid one is made once more, and no more. */
static void test_mistaken(void **state)
{
	struct rig *rig = rig_new();

	(void)state;
	complete(rig, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(atomic_load(&rig->operation.status), 0);
	assert_true(rig->work->refused);
	rig_free(rig);
	rig = rig_new();
	rig->work->refused = true;
	complete(rig, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(atomic_load(&rig->operation.status), -EPROTO);
	assert_string_equal(rig->operation.error->id, "RDMA-REMOTE-REQUEST");
	rig_free(rig);
}

/* It may have been done. */
static void test_atomic(void **state)
{
	struct rig *rig = rig_new();

	(void)state;
	rig->work->kind = VERBS_ATOMIC;
	complete(rig, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(atomic_load(&rig->operation.status), -ECONNRESET);
	assert_string_equal(rig->operation.error->id, "ATOMIC-UNCERTAIN");
	rig_free(rig);
}

/* With no port's fault: one more look at the link, after a while, before anything is said over it. */
static void test_no_route(void **state)
{
	struct rig *rig = rig_new();
	struct verbs_rail *rail = &rig->endpoint.rails[0];
	struct ibv_wc *completion = &device_said.completion;

	(void)state;
	rig->endpoint.flushing = true;
	rig->library.ibv_modify_qp = modify_pair;
	*completion = (struct ibv_wc){ .wr_id = rig->work->serial << 2, .status = IBV_WC_LOC_QP_OP_ERR, .qp_num = 7 };
	device_said.completed = true;
	assert_true(verbs_cq_poll(&rig->queue));
	assert_int_equal(rail->link, VERBS_DRAINING);
	assert_int_equal(device_said.state, IBV_QPS_ERR);
	/* The other end was not told. */
	assert_int_equal(device_said.failed, 0);
	verbs_drained_run(&rail->drained_task);
	assert_int_equal(rail->link, VERBS_DRAINING);
	assert_int_equal(device_said.destroyed, 0);
	assert_false(pl_list_empty(&rail->retry.link));
	assert_ptr_equal(rail->held.next, &rig->work->link);
	rig_free(rig);
}

/* -- devices that do nothing ---------------------------------------------------------------------- */

/* So many looks at the first rail. */
static void look(struct rig *rig, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		/* As the engine does before it calls. */
		pl_timer_clear(rig->peer.home, &rig->endpoint.rails[0].watch);
		verbs_watch_look(&rig->endpoint.rails[0].watch);
	}
}

static bool watched(const struct rig *rig)
{
	return !pl_list_empty(&rig->endpoint.rails[0].watch.link);
}

/* Nothing is done, nothing fails: in the end the connection is broken, and the next one has less under way. */
static void test_stuck(void **state)
{
	struct rig *rig = rig_new();
	struct verbs_rail *rail = &rig->endpoint.rails[0];

	(void)state;
	verbs_watch_begin(rail);
	look(rig, 3);
	assert_true(watched(rig));
	assert_int_equal(rail->link, VERBS_UP);
	look(rig, 1);
	assert_false(watched(rig));
	assert_int_equal(rail->link, VERBS_DRAINING);
	assert_int_equal(rig->endpoint.rails[1].link, VERBS_UP);
	assert_int_equal(device_said.failed, 1);
	assert_true(rail->chunk < VERBS_CHUNK);
	assert_true(rail->pace.limit < VERBS_CHUNK);
	/* The operation lives on. */
	assert_int_equal(atomic_load(&rig->operation.status), 0);
	rig_free(rig);
}

/* One completion in a while is enough. */
static void test_slow(void **state)
{
	struct rig *rig = rig_new();
	struct verbs_rail *rail = &rig->endpoint.rails[0];

	(void)state;
	verbs_watch_begin(rail);
	for (unsigned i = 0; i < 10; i++) {
		look(rig, 3);
		rail->completed++;
	}
	assert_true(watched(rig));
	assert_int_equal(rail->link, VERBS_UP);
	assert_int_equal(rail->pace.limit, VERBS_UNLIMITED);
	rig_free(rig);
}

/* A message may wait for the receiver, for longer; but not if it can take another way. */
static void test_message_waits(void **state)
{
	struct rig *rig = rig_new();

	(void)state;
	rig->work->kind = VERBS_FRAME;
	rig->endpoint.rails[1].link = VERBS_DOWN;
	verbs_watch_begin(&rig->endpoint.rails[0]);
	look(rig, 7);
	expect_links(rig, VERBS_UP, VERBS_DOWN);
	look(rig, 1);
	expect_links(rig, VERBS_DRAINING, VERBS_DOWN);
	rig_free(rig);
	rig = rig_new();
	rig->work->kind = VERBS_FRAME;
	verbs_watch_begin(&rig->endpoint.rails[0]);
	look(rig, 4);
	expect_links(rig, VERBS_DRAINING, VERBS_UP);
	rig_free(rig);
}

/* Nobody looks at a rail that has nothing to do, or has failed already. */
static void test_nothing_to_watch(void **state)
{
	struct rig *rig = rig_new();
	struct verbs_rail *rail = &rig->endpoint.rails[0];

	(void)state;
	verbs_watch_begin(rail);
	rail->link = VERBS_DRAINING;
	look(rig, 1);
	assert_false(watched(rig));
	rail->link = VERBS_UP;
	verbs_watch_begin(rail);
	pl_list_remove(&rig->work->link);
	look(rig, 1);
	assert_false(watched(rig));
	rig->work->serial = ++rail->serial;
	pl_list_append(&rail->posted, &rig->work->link);
	assert_int_equal(device_said.failed, 0);
	rig_free(rig);
}

/* -- events --------------------------------------------------------------------------------------- */

static void happen(struct rig *rig, enum ibv_event_type event)
{
	int fd = eventfd(0, 0);

	assert_true(fd >= 0);
	rig->endpoint.flushing = true;
	rig->verbs.async_fd = fd;
	assert_int_equal(verbs_async_open(&rig->queue), 0);
	device_said.event = event;
	device_said.happened = true;
	assert_true(rig->queue.async.ready(&rig->queue.async, EPOLLIN));
	assert_false(rig->queue.async.ready(&rig->queue.async, EPOLLIN));
	/* As the engine would, if its lock were not held here. */
	pl_engine_withdraw(rig->peer.home, &rig->queue.events_task);
	rig->queue.events_task.run(&rig->queue.events_task);
	verbs_async_close(&rig->queue);
	close(fd);
}

/* A port that is down is left to the other rail; the only one there is waits. */
static void test_port(void **state)
{
	struct rig *rig = rig_new();

	(void)state;
	happen(rig, IBV_EVENT_PORT_ERR);
	expect_links(rig, VERBS_DRAINING, VERBS_UP);
	rig_free(rig);
	rig = rig_new();
	rig->endpoint.rails[1].link = VERBS_DOWN;
	happen(rig, IBV_EVENT_PORT_ERR);
	expect_links(rig, VERBS_UP, VERBS_DOWN);
	rig_free(rig);
}

static void test_pair(void **state)
{
	static const enum ibv_event_type events[] = { IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR,
						      IBV_EVENT_QP_ACCESS_ERR };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(events); i++) {
		struct rig *rig = rig_new();

		device_said.state = IBV_QPS_ERR;
		happen(rig, events[i]);
		expect_links(rig, VERBS_DRAINING, VERBS_DRAINING);
		rig_free(rig);
		/* Another program's, or another peer's. */
		rig = rig_new();
		device_said.state = IBV_QPS_RTS;
		happen(rig, events[i]);
		expect_links(rig, VERBS_UP, VERBS_UP);
		rig_free(rig);
	}
}

/* A queue that overran, say: nothing will be heard of what is posted, so it is taken back without. */
static void test_queue(void **state)
{
	static const enum ibv_event_type events[] = { IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_ERR };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(events); i++) {
		struct rig *rig = rig_new();

		happen(rig, events[i]);
		expect_links(rig, VERBS_DRAINING, VERBS_DRAINING);
		assert_true(rig->queue.broken);
		assert_false(rig->queue.shut);
		assert_false(atomic_load(&rig->device.gone));
		assert_int_equal(device_said.destroyed, 2);
		assert_int_equal(atomic_load(&rig->operation.status), 0);
		assert_ptr_equal(rig->endpoint.rails[0].held.next, &rig->work->link);
		rig_free(rig);
	}
}

static void test_device(void **state)
{
	struct rig *rig = rig_new();

	(void)state;
	happen(rig, IBV_EVENT_DEVICE_FATAL);
	expect_links(rig, VERBS_DRAINING, VERBS_DRAINING);
	assert_true(atomic_load(&rig->device.gone));
	assert_int_equal(device_said.destroyed, 2);
	assert_ptr_equal(rig->endpoint.rails[0].held.next, &rig->work->link);
	rig_free(rig);
}

/* What is of no concern, or is found out by the next attempt. */
static void test_others(void **state)
{
	static const enum ibv_event_type events[] = { IBV_EVENT_PORT_ACTIVE, IBV_EVENT_LID_CHANGE, IBV_EVENT_GID_CHANGE,
						      IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE,  IBV_EVENT_COMM_EST };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(events); i++) {
		struct rig *rig = rig_new();

		happen(rig, events[i]);
		expect_links(rig, VERBS_UP, VERBS_UP);
		assert_int_equal(device_said.failed, 0);
		rig_free(rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_flushed),
		cmocka_unit_test(test_mistaken),
		cmocka_unit_test(test_atomic),
		cmocka_unit_test(test_port),
		cmocka_unit_test(test_pair),
		cmocka_unit_test(test_queue),
		cmocka_unit_test(test_device),
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_no_route),
		cmocka_unit_test(test_stuck),
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_message_waits),
		cmocka_unit_test(test_nothing_to_watch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
