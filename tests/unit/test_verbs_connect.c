/* SPDX-License-Identifier: BSD-2-Clause */
/* How an initiator's rail finds the way to the peer, with the connection manager's calls replaced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fabric/verbs/verbs.h"

#define TRIES_MAX 20

/* -- the connection manager ----------------------------------------------------------------------- */

static struct {
	struct rdma_cm_event event; /* what it says next; */
	bool happened;              /* if this is set */
	struct rdma_cm_id id;       /* the only one at a time */
	bool made;
	unsigned tries, routes;
	int limits[TRIES_MAX]; /* what each try to resolve the address was given, in milliseconds */
} manager;

static int create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
		     enum rdma_port_space space)
{
	(void)channel;
	(void)space;
	assert_false(manager.made);
	manager.made = true;
	manager.id = (struct rdma_cm_id){ .context = context };
	*id = &manager.id;
	return 0;
}

static int destroy_id(struct rdma_cm_id *id)
{
	assert_ptr_equal(id, &manager.id);
	assert_true(manager.made);
	manager.made = false;
	return 0;
}

static int resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int limit)
{
	(void)from;
	(void)to;
	assert_ptr_equal(id, &manager.id);
	assert_true(manager.tries < TRIES_MAX);
	manager.limits[manager.tries++] = limit;
	return 0;
}

static int resolve_route(struct rdma_cm_id *id, int limit)
{
	(void)id;
	(void)limit;
	manager.routes++;
	return 0;
}

static int get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	(void)channel;
	if (!manager.happened)
		return -1;
	manager.happened = false;
	*event = &manager.event;
	return 0;
}

static int ack_cm_event(struct rdma_cm_event *event)
{
	(void)event;
	return 0;
}

/* -- a peer that has another rail, which is up ---------------------------------------------------- */

struct rig {
	struct verbs_library library;
	struct pl_context context;
	struct verbs_state state;
	struct verbs_cm cm;
	struct verbs_device device;
	struct pl_peer peer;
	struct verbs_endpoint endpoint;
};

static void never(struct pl_timer *timer)
{
	(void)timer;
}

static struct rig *rig_new(void)
{
	struct rig *rig = pl_zalloc(&pl_system_allocator, sizeof(*rig));
	const struct verbs_library *library = verbs_library_get(NULL);

	assert_non_null(rig);
	if (!library)
		exit(77);
	memset(&manager, 0, sizeof(manager));
	rig->library = *library;
	rig->library.rdma_create_id = create_id;
	rig->library.rdma_destroy_id = destroy_id;
	rig->library.rdma_resolve_addr = resolve_addr;
	rig->library.rdma_resolve_route = resolve_route;
	rig->library.rdma_get_cm_event = get_cm_event;
	rig->library.rdma_ack_cm_event = ack_cm_event;
	rig->context.allocator = pl_system_allocator;
	rig->context.engine_count = 1;
	assert_int_equal(pl_engine_open(&pl_system_allocator, false, 0, &rig->context.engines[0], NULL), 0);
	rig->state.context = &rig->context;
	rig->state.library = &rig->library;
	rig->cm.state = &rig->state;
	rig->peer.context = &rig->context;
	rig->peer.home = rig->context.engines[0];
	rig->peer.initiator = true;
	rig->endpoint.base.peer = &rig->peer;
	rig->endpoint.state = &rig->state;
	rig->endpoint.cm = &rig->cm;
	rig->endpoint.opened = true;
	rig->endpoint.rail_count = 2;
	pl_list_init(&rig->endpoint.waiting);
	pl_list_init(&rig->endpoint.again);
	pl_list_init(&rig->endpoint.early);
	pl_list_init(&rig->endpoint.spare);
	for (unsigned i = 0; i < 2; i++) {
		rig->endpoint.rails[i].endpoint = &rig->endpoint;
		rig->endpoint.rails[i].device = &rig->device;
		rig->endpoint.rails[i].index = (uint8_t)i;
		pl_list_init(&rig->endpoint.rails[i].queue_link);
		pl_list_init(&rig->endpoint.rails[i].starved_link);
		pl_list_init(&rig->endpoint.rails[i].asked);
		pl_list_init(&rig->endpoint.rails[i].held);
		pl_timer_init(&rig->endpoint.rails[i].retry, never);
	}
	rig->endpoint.rails[0].link = VERBS_UP;
	pl_engine_lock(rig->peer.home);
	return rig;
}

static void rig_free(struct rig *rig)
{
	pl_timer_clear(rig->peer.home, &rig->endpoint.rails[1].retry);
	pl_engine_unlock(rig->peer.home);
	pl_engine_stop(rig->peer.home);
	pl_engine_close(rig->peer.home);
	pl_free(&pl_system_allocator, rig);
}

static void happen(struct rig *rig, enum rdma_cm_event_type type, int status)
{
	assert_true(manager.made);
	manager.event = (struct rdma_cm_event){ .id = &manager.id, .event = type, .status = status };
	manager.happened = true;
	assert_true(verbs_cm_ready(&rig->cm.source, EPOLLIN));
}

/* -- addresses ------------------------------------------------------------------------------------ */

/* The kernel may have missed the answer, so it is soon made to look again, and then less and less often. */
static void test_missed(void **state)
{
	struct rig *rig = rig_new();
	struct verbs_rail *rail = &rig->endpoint.rails[1];

	(void)state;
	verbs_dial(rail);
	assert_int_equal(manager.tries, 1);
	assert_in_range(manager.limits[0], 1, 100);
	for (unsigned i = 1; i < 4; i++) {
		happen(rig, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
		assert_int_equal(manager.tries, i + 1);
		assert_int_equal(manager.limits[i], 2 * manager.limits[i - 1]);
		assert_int_equal(rail->link, VERBS_RESOLVING);
	}
	/* All of that is one attempt. */
	assert_int_equal(rail->attempts, 0);
	assert_int_equal(rail->generation, 1);
	happen(rig, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	assert_int_equal(manager.routes, 1);
	verbs_link_drop(rail);
	assert_false(manager.made);
	rig_free(rig);
}

/* Nobody is there: in the end the attempt fails, after as long as one may take; the next one begins anew. */
static void test_unanswered(void **state)
{
	struct rig *rig = rig_new();
	struct verbs_rail *rail = &rig->endpoint.rails[1];
	int first, sum = 0;

	(void)state;
	verbs_dial(rail);
	first = manager.limits[0];
	while (rail->link == VERBS_RESOLVING)
		happen(rig, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
	for (unsigned i = 0; i < manager.tries; i++)
		sum += manager.limits[i];
	assert_in_range(sum, 1000, 2000);
	assert_int_equal(rail->link, VERBS_DOWN);
	assert_int_equal(rail->attempts, 1);
	assert_false(manager.made);
	assert_false(pl_list_empty(&rail->retry.link));
	pl_timer_clear(rig->peer.home, &rail->retry);
	verbs_dial(rail);
	assert_int_equal(manager.limits[manager.tries - 1], first);
	verbs_link_drop(rail);
	rig_free(rig);
}

/* What cannot be resolved, or is not wanted any more, is not tried again at once. */
static void test_refused(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct rig *rig = rig_new();
		struct verbs_rail *rail = &rig->endpoint.rails[1];

		verbs_dial(rail);
		rig->endpoint.closing = i;
		happen(rig, RDMA_CM_EVENT_ADDR_ERROR, i ? -ETIMEDOUT : -ENODEV);
		assert_int_equal(rail->link, VERBS_DOWN);
		assert_int_equal(manager.tries, 1);
		assert_false(manager.made);
		assert_int_equal(rail->attempts, !i);
		rig_free(rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_missed),
		cmocka_unit_test(test_unanswered),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
