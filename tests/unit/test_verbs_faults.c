/* SPDX-License-Identifier: BSD-2-Clause */
/* Completions with errors, and devices that do nothing: what becomes of operations and rails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fabric/verbs/data/request.h"
#include "support/fault_rig.h"

#define VENDOR 0x81

/* Checks that the newest event of the peer is the loss of the first rail, for this reason. */
static void expect_rail_lost(struct fault_rig *rig, const char *why)
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

static void complete(struct fault_rig *rig, enum ibv_wc_status status)
{
	/* The other rail does not take held work, as nobody answers here. */
	rig->endpoint.flushing = true;
	fault_card.completion =
		(struct ibv_wc){ .wr_id = rig->work->serial << 2, .status = status, .vendor_err = VENDOR, .qp_num = 7 };
	fault_card.completed = true;
	assert_true(verbs_cq_poll(&rig->queue));
	assert_int_equal(rig->queue.posted, 0);
	assert_int_equal(rig->endpoint.rails[0].posted_bytes, 0);
	assert_int_equal(rig->endpoint.rails[0].link, VERBS_DRAINING);
	assert_int_equal(rig->endpoint.rails[1].link, VERBS_UP);
	assert_int_equal(fault_card.failed, 1);
	assert_int_equal(fault_rig_downs(rig), 1);
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
		struct fault_rig *rig = fault_rig_new();
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
		fault_rig_free(rig);
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
		struct fault_rig *rig = fault_rig_new();
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
		fault_rig_free(rig);
	}
}

/* A request that was flushed because one before it failed is not at fault. */
static void test_flushed(void **state)
{
	struct fault_rig *rig = fault_rig_new();
	struct verbs_rail *rail = &rig->endpoint.rails[0];

	(void)state;
	complete(rig, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(atomic_load(&rig->operation.status), 0);
	assert_ptr_equal(rail->held.next, &rig->work->link);
	assert_int_equal(rail->broke.status, IBV_WC_SUCCESS);
	assert_int_equal(rail->pace.limit, VERBS_UNLIMITED);
	fault_rig_free(rig);
}

/* A request that is taken for an invalid one is made once more, and no more. */
static void test_mistaken(void **state)
{
	struct fault_rig *rig = fault_rig_new();

	(void)state;
	complete(rig, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(atomic_load(&rig->operation.status), 0);
	assert_true(rig->work->refused);
	fault_rig_free(rig);
	rig = fault_rig_new();
	rig->work->refused = true;
	complete(rig, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(atomic_load(&rig->operation.status), -EPROTO);
	assert_string_equal(rig->operation.error->id, "RDMA-REMOTE-REQUEST");
	fault_rig_free(rig);
}

static int take_requests(struct ibv_qp *pair, struct ibv_send_wr *list, struct ibv_send_wr **bad)
{
	(void)pair;
	(void)list;
	(void)bad;
	return 0;
}

/* A write that was posted alone, and is posted again in a list, leaves no traces in the memory of later work. */
static void test_again(void **state)
{
	struct fault_rig *rig = fault_rig_new();
	struct verbs_remote_key target = { .present = 3 };
	struct pl_region region = { 0 };
	struct verbs_work *work = rig->work;

	(void)state;
	work->simple = true;
	work->target = &target;
	work->region = &region;
	work->lkey_device = &rig->device;
	rig->endpoint.choices[0].rails = 3;
	rig->device.message_max = VERBS_CHUNK;
	complete(rig, IBV_WC_REM_INV_REQ_ERR);
	assert_true(work->refused);
	pl_list_remove(&work->link);
	pl_list_append(&rig->endpoint.again, &work->link);
	rig->endpoint.flushing = false;
	rig->verbs.ops.post_send = take_requests;
	rig->pairs[1].context = &rig->verbs;
	verbs_flush(&rig->endpoint);
	assert_ptr_equal(rig->endpoint.rails[1].posted.next, &work->link);
	fault_card.completion = (struct ibv_wc){ .wr_id = work->serial << 2, .qp_num = rig->pairs[1].qp_num };
	fault_card.completed = true;
	assert_true(verbs_cq_poll(&rig->queue));
	work = verbs_work_take(&rig->endpoint, VERBS_WRITE, &rig->operation);
	assert_non_null(work);
	assert_false(work->refused);
	verbs_work_free(&rig->endpoint, work);
	fault_rig_free(rig);
}

/* A broken connection leaves open whether an atomic operation was done. */
static void test_atomic(void **state)
{
	struct fault_rig *rig = fault_rig_new();

	(void)state;
	rig->work->kind = VERBS_ATOMIC;
	complete(rig, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(atomic_load(&rig->operation.status), -ECONNRESET);
	assert_string_equal(rig->operation.error->id, "ATOMIC-UNCERTAIN");
	fault_rig_free(rig);
}

/* A link goes down before its port does: the next attempt waits, and the other end is not told. */
static void test_no_route(void **state)
{
	struct fault_rig *rig = fault_rig_new();
	struct verbs_rail *rail = &rig->endpoint.rails[0];
	struct ibv_wc *completion = &fault_card.completion;
	uint64_t before;

	(void)state;
	rig->endpoint.flushing = true;
	rig->peer.initiator = true;
	*completion = (struct ibv_wc){ .wr_id = rig->work->serial << 2, .status = IBV_WC_LOC_QP_OP_ERR, .qp_num = 7 };
	fault_card.completed = true;
	assert_true(verbs_cq_poll(&rig->queue));
	assert_int_equal(rail->link, VERBS_DRAINING);
	assert_int_equal(fault_card.state, IBV_QPS_ERR);
	/* The other end was not told. */
	assert_int_equal(fault_rig_downs(rig), 0);
	before = pl_now();
	verbs_drained_run(&rail->drained_task);
	assert_in_range(rail->retry.deadline, before + 20 * PL_NS_PER_MS, pl_now() + 60 * PL_NS_PER_MS);
	assert_int_equal(rail->link, VERBS_DOWN);
	assert_int_equal(fault_card.destroyed, 1);
	assert_false(rail->broke.here);
	assert_int_equal(rail->attempts, 0);
	assert_ptr_equal(rail->held.next, &rig->work->link);
	fault_rig_free(rig);
}

/* -- order ---------------------------------------------------------------------------------------- */

/* Completions of the test, in order, and the number that are left. */
static struct ibv_wc ordered[3];
static unsigned ordered_left;

/* Takes two completions at first, then the rest. */
static int poll_ordered(struct ibv_cq *cq, int count, struct ibv_wc *completions)
{
	unsigned most = ordered_left == 3 ? 2 : ordered_left, first = 3 - ordered_left;

	(void)cq;
	assert_in_range(most, 0, count);
	memcpy(completions, &ordered[first], most * sizeof(*completions));
	ordered_left -= most;
	return (int)most;
}

/* Polls within the completion that fails the queue pair. */
static int modify_and_poll(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask)
{
	(void)attributes;
	(void)mask;
	assert_int_equal(verbs_cq_poll(pair->send_cq->cq_context), 0);
	return 0;
}

static struct verbs_work *post_write(struct verbs_rail *rail, struct pl_operation *operation)
{
	struct verbs_work *work = pl_zalloc(&pl_system_allocator, sizeof(*work));

	assert_non_null(work);
	work->kind = VERBS_WRITE;
	work->operation = operation;
	work->serial = ++rail->serial;
	pl_list_append(&rail->posted, &work->link);
	rail->posted_count++;
	rail->queue->posted++;
	return work;
}

static struct ibv_wc wc_of(const struct verbs_rail *rail, const struct verbs_work *work, enum ibv_wc_status status)
{
	return (struct ibv_wc){ .wr_id = work->serial << 2, .status = status, .qp_num = rail->qp->qp_num };
}

/* A poll within a completion takes none: they would come before earlier ones, and the refused write would end as done. */
static void test_nested_poll(void **state)
{
	struct fault_rig *rig = fault_rig_new();
	struct pl_operation refused = { .context = &rig->context }, later = { .context = &rig->context };
	struct verbs_rail *rails = rig->endpoint.rails;

	(void)state;
	atomic_init(&refused.pending, 2);
	atomic_init(&later.pending, 2);
	ordered[0] = wc_of(&rails[0], rig->work, IBV_WC_RETRY_EXC_ERR);
	ordered[1] = wc_of(&rails[1], post_write(&rails[1], &refused), IBV_WC_REM_ACCESS_ERR);
	ordered[2] = wc_of(&rails[1], post_write(&rails[1], &later), IBV_WC_WR_FLUSH_ERR);
	ordered_left = 3;
	rig->endpoint.flushing = true;
	rig->verbs.ops.poll_cq = poll_ordered;
	rig->library.ibv_modify_qp = modify_and_poll;
	assert_int_equal(verbs_cq_poll(&rig->queue), 2);
	assert_int_equal(verbs_cq_poll(&rig->queue), 1);
	assert_int_equal(atomic_load(&refused.status), -EACCES);
	assert_int_equal(atomic_load(&later.status), 0);
	assert_int_equal(rig->queue.posted, 0);
	pl_free(&pl_system_allocator, refused.error);
	fault_rig_free(rig);
}

/* Ends a request of the first rail without an error. */
static void succeed(struct fault_rig *rig, uint64_t serial)
{
	fault_card.completion = (struct ibv_wc){ .wr_id = serial << 2, .qp_num = 7 };
	fault_card.completed = true;
	rig->endpoint.flushing = true;
	assert_int_equal(verbs_cq_poll(&rig->queue), 1);
}

/* A completion with the number of a request that the device refused ends those before it, and not those behind. */
static void test_number_between(void **state)
{
	struct fault_rig *rig = fault_rig_new();
	struct pl_operation later = { .context = &rig->context };
	struct verbs_rail *rail = &rig->endpoint.rails[0];
	struct verbs_work *work;

	(void)state;
	atomic_init(&later.pending, 2);
	rail->serial++;
	work = post_write(rail, &later);
	succeed(rig, work->serial - 1);
	assert_int_equal(atomic_load(&rig->operation.pending), 1);
	assert_int_equal(atomic_load(&later.pending), 2);
	assert_ptr_equal(rail->posted.next, &work->link);
	succeed(rig, work->serial);
	assert_int_equal(atomic_load(&later.pending), 1);
	assert_true(pl_list_empty(&rail->posted));
	fault_rig_free(rig);
}

/* Completions of a queue pair that is gone, and with numbers of no posted request, end nothing. */
static void test_unposted_numbers(void **state)
{
	struct fault_rig *rig = fault_rig_new();
	const uint64_t serial = rig->work->serial;

	(void)state;
	fault_card.completion = (struct ibv_wc){ .wr_id = serial << 2, .qp_num = 77 };
	fault_card.completed = true;
	rig->endpoint.flushing = true;
	assert_int_equal(verbs_cq_poll(&rig->queue), 1);
	succeed(rig, serial + 1);
	assert_int_equal(atomic_load(&rig->operation.pending), 2);
	succeed(rig, serial);
	assert_int_equal(atomic_load(&rig->operation.pending), 1);
	succeed(rig, serial);
	assert_int_equal(atomic_load(&rig->operation.pending), 1);
	assert_int_equal(rig->queue.posted, 0);
	fault_rig_free(rig);
}

/* After 256 requests without a failure, requests may be twice as long. */
static void test_growth(void **state)
{
	struct fault_rig *rig = fault_rig_new();
	struct pl_operation operation = { .context = &rig->context };
	struct verbs_rail *rail = &rig->endpoint.rails[0];

	(void)state;
	atomic_init(&operation.pending, 1000);
	succeed(rig, rig->work->serial);
	rail->chunk = VERBS_CHUNK / 4;
	rail->done = 0;
	for (unsigned i = 1; i <= 256 + 255; i++) {
		succeed(rig, post_write(rail, &operation)->serial);
		assert_int_equal(rail->chunk, i < 256         ? VERBS_CHUNK / 4
					      : i < 256 + 255 ? VERBS_CHUNK / 2
							      : VERBS_CHUNK);
	}
	fault_rig_free(rig);
}

/* Completions count for the pace of a rail that has a limit. */
static void test_paced(void **state)
{
	struct fault_rig *rig = fault_rig_new();
	struct pl_operation operation = { .context = &rig->context };
	struct verbs_pace *pace = &rig->endpoint.rails[0].pace;

	(void)state;
	atomic_init(&operation.pending, 2);
	pace->limit = VERBS_UNLIMITED;
	pace->began = 0;
	succeed(rig, rig->work->serial);
	assert_int_equal(pace->began, 0);
	pace->limit = 65536;
	succeed(rig, post_write(&rig->endpoint.rails[0], &operation)->serial);
	/* The measurement that began at 0 is over. */
	assert_int_not_equal(pace->began, 0);
	fault_rig_free(rig);
}

/* A write of the first rail that fails with others, on a device that names the oldest request in any case. */
struct failure {
	enum ibv_wc_status status;
	bool believed; /* the device names the failed request */
	bool signaled;
	bool alone;  /* no other request is posted */
	bool second; /* it is not the oldest */
	unsigned suspects;
};

static void expect_suspects(const struct failure *failure)
{
	struct fault_rig *rig = fault_rig_new();
	struct pl_operation operation = { .context = &rig->context };
	struct verbs_rail *rail = &rig->endpoint.rails[0];
	uint64_t serial = rig->work->serial;

	atomic_init(&operation.pending, 4);
	rig->device.names_oldest = !failure->believed;
	if (failure->second)
		serial = post_write(rail, &operation)->serial;
	if (!failure->alone)
		post_write(rail, &operation);
	rig->endpoint.flushing = true;
	fault_card.completion = (struct ibv_wc){ .wr_id = serial << 2, .status = failure->status, .qp_num = 7 };
	if (!failure->signaled)
		fault_card.completion.wr_id |= VERBS_UNSIGNALED;
	fault_card.completed = true;
	assert_int_equal(verbs_cq_poll(&rig->queue), 1);
	assert_int_equal(rig->endpoint.suspects, failure->suspects);
	verbs_take_back(rail);
	pl_free(&pl_system_allocator, operation.error);
	fault_rig_free(rig);
}

/* Another request than the named one may have failed, unless there is proof that it has not. */
static void test_suspects(void **state)
{
	static const struct failure failures[] = {
		{ .status = IBV_WC_REM_ACCESS_ERR, .suspects = 2 },
		{ .status = IBV_WC_LOC_LEN_ERR, .suspects = 2 },
		{ .status = IBV_WC_GENERAL_ERR, .suspects = 2 },
		{ .status = IBV_WC_RETRY_EXC_ERR },
		{ .status = IBV_WC_WR_FLUSH_ERR },
		{ .status = IBV_WC_REM_ACCESS_ERR, .believed = true },
		{ .status = IBV_WC_REM_ACCESS_ERR, .signaled = true },
		{ .status = IBV_WC_REM_ACCESS_ERR, .alone = true },
		{ .status = IBV_WC_REM_ACCESS_ERR, .second = true },
	};

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(failures); i++)
		expect_suspects(&failures[i]);
}

/* The rest of a request that may have failed may fail, too. */
static void test_cut_suspect(void **state)
{
	struct fault_rig *rig = fault_rig_new();
	struct verbs_work *work = rig->work, *rest;

	(void)state;
	work->suspect = true;
	rig->endpoint.suspects = 1;
	verbs_work_cut(&rig->endpoint, work, 60);
	rest = pl_list_entry(work->link.next, struct verbs_work, link);
	assert_int_equal(rest->length, 40);
	assert_true(rest->suspect);
	assert_int_equal(rig->endpoint.suspects, 2);
	pl_list_remove(&rest->link);
	verbs_work_free(&rig->endpoint, rest);
	assert_int_equal(rig->endpoint.suspects, 1);
	fault_rig_free(rig);
}

/* -- devices that do nothing ---------------------------------------------------------------------- */

/* Looks at the first rail so many times. */
static void look(struct fault_rig *rig, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		/* As the engine does before it calls. */
		pl_timer_clear(rig->peer.home, &rig->endpoint.rails[0].watch);
		verbs_watch_look(&rig->endpoint.rails[0].watch);
	}
}

static bool watched(const struct fault_rig *rig)
{
	return !pl_list_empty(&rig->endpoint.rails[0].watch.link);
}

/* Nothing is done, nothing fails: in the end the connection is broken, and the next one has less under way. */
static void test_stuck(void **state)
{
	struct fault_rig *rig = fault_rig_new();
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
	assert_int_equal(fault_card.failed, 1);
	assert_true(rail->chunk < VERBS_CHUNK);
	assert_true(rail->pace.limit < VERBS_CHUNK);
	/* The operation lives on. */
	assert_int_equal(atomic_load(&rig->operation.status), 0);
	fault_rig_free(rig);
}

/* The card itself may give up after 137 s: four times eight times 4.3 s. */
static void test_long_retries(void **state)
{
	struct fault_rig *rig = fault_rig_new();
	struct verbs_rail *rail = &rig->endpoint.rails[0];

	(void)state;
	rig->context.options.ack_timeout = 20;
	rig->context.options.retries = 7;
	verbs_watch_begin(rail);
	look(rig, 68);
	assert_true(watched(rig));
	assert_int_equal(rail->link, VERBS_UP);
	look(rig, 1);
	assert_int_equal(rail->link, VERBS_DRAINING);
	fault_rig_free(rig);
}

/* A slow completion now and then is enough. */
static void test_slow(void **state)
{
	struct fault_rig *rig = fault_rig_new();
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
	fault_rig_free(rig);
}

/* A message may wait for the receiver, for longer; but not if it can take another way. */
static void test_message_waits(void **state)
{
	struct fault_rig *rig = fault_rig_new();

	(void)state;
	rig->work->kind = VERBS_FRAME;
	rig->endpoint.rails[1].link = VERBS_DOWN;
	verbs_watch_begin(&rig->endpoint.rails[0]);
	look(rig, 7);
	fault_rig_expect_links(rig, VERBS_UP, VERBS_DOWN);
	look(rig, 1);
	fault_rig_expect_links(rig, VERBS_DRAINING, VERBS_DOWN);
	fault_rig_free(rig);
	rig = fault_rig_new();
	rig->work->kind = VERBS_FRAME;
	verbs_watch_begin(&rig->endpoint.rails[0]);
	look(rig, 4);
	fault_rig_expect_links(rig, VERBS_DRAINING, VERBS_UP);
	fault_rig_free(rig);
}

/* No watch looks at a rail that has nothing to do, or has failed already. */
static void test_nothing_to_watch(void **state)
{
	struct fault_rig *rig = fault_rig_new();
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
	assert_int_equal(fault_card.failed, 0);
	fault_rig_free(rig);
}

/* Only vendors whose drivers are known to name the failed request are believed. */
static void test_believed_vendors(void **state)
{
	static const uint32_t exact[] = { 0x02c9, 0x15b3, 0x19e5, 0x1077, 0x1dd8, 0x1414, 0x1ded, 0xffffff };
	/* bnxt_re, irdma, ocrdma, a fork of irdma, and a driver that names no vendor */
	static const uint32_t doubtful[] = { 0x14e4, 0x8086, 0x10df, 0x1cf2, 0 };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(exact); i++)
		assert_false(verbs_names_oldest(&(struct ibv_device_attr){ .vendor_id = exact[i] }));
	for (size_t i = 0; i < PL_ARRAY_SIZE(doubtful); i++)
		assert_true(verbs_names_oldest(&(struct ibv_device_attr){ .vendor_id = doubtful[i] }));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_flushed),
		cmocka_unit_test(test_mistaken),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_atomic),
		cmocka_unit_test(test_nested_poll),
		cmocka_unit_test(test_number_between),
		cmocka_unit_test(test_unposted_numbers),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_paced),
		cmocka_unit_test(test_suspects),
		cmocka_unit_test(test_cut_suspect),
		cmocka_unit_test(test_no_route),
		cmocka_unit_test(test_stuck),
		cmocka_unit_test(test_long_retries),
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_message_waits),
		cmocka_unit_test(test_nothing_to_watch),
		cmocka_unit_test(test_believed_vendors),
	};

	return cmocka_run_group_tests_name("verbs faults", tests, NULL, NULL);
}
