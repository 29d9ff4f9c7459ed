/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connection requests, answers and keys that another end sends over verbs.  The connection manager's calls are replaced;
 * the decoders are the real ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/lane_auth.h"
#include "fabric/verbs/verbs.h"

#define RAILS 2
#define GENERATION 5

/* -- the connection manager ----------------------------------------------------------------------- */

static struct {
	unsigned rejected, destroyed, migrated;
	int migration;               /* result of the next ones */
	struct rdma_cm_id *ids[100]; /* that were rejected */
} manager;

static int reject_id(struct rdma_cm_id *id, const void *bytes, uint8_t length)
{
	(void)bytes;
	(void)length;
	manager.ids[manager.rejected++] = id;
	return 0;
}

static int destroy_id(struct rdma_cm_id *id)
{
	(void)id;
	manager.destroyed++;
	return 0;
}

static int migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	(void)id;
	(void)channel;
	manager.migrated++;
	return manager.migration;
}

/* -- an acceptor with two rails, which drain ------------------------------------------------------ */

struct rig {
	struct verbs_library library;
	struct pl_context context;
	struct verbs_state state;
	struct verbs_cm cm, other;
	struct verbs_device device;
	struct verbs_local_addr addrs[RAILS];
	struct pl_peer peer;
	uint8_t secret[PL_SECRET];
	struct verbs_endpoint endpoint;
	struct rdma_cm_id ids[10]; /* of requests, in their order */
	unsigned asked;
	size_t index; /* of the peer */
};

static void open_endpoint(struct rig *rig)
{
	rig->endpoint.base.peer = &rig->peer;
	rig->endpoint.state = &rig->state;
	rig->endpoint.cm = &rig->cm;
	rig->endpoint.opened = true;
	rig->endpoint.local_addr_count = RAILS;
	pl_list_init(&rig->endpoint.targets);
	for (unsigned i = 0; i < RAILS; i++) {
		struct verbs_rail *rail = &rig->endpoint.rails[i];

		rig->addrs[i].device = &rig->device;
		rig->endpoint.local_addrs[i] = &rig->addrs[i];
		rail->endpoint = &rig->endpoint;
		rail->index = (uint8_t)i;
		rail->link = VERBS_DRAINING;
		rail->generation = GENERATION;
		pl_task_init(&rail->join_task, verbs_join_run);
	}
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
	rig->library.rdma_reject = reject_id;
	rig->library.rdma_destroy_id = destroy_id;
	rig->library.rdma_migrate_id = migrate_id;
	rig->context.allocator = pl_system_allocator;
	rig->context.engine_count = 1;
	assert_int_equal(pl_engine_open(&pl_system_allocator, false, 0, &rig->context.engines[0], NULL), 0);
	pthread_mutex_init(&rig->context.lock, NULL);
	pthread_mutex_init(&rig->state.lock, NULL);
	rig->state.context = &rig->context;
	rig->state.library = &rig->library;
	rig->cm.state = rig->other.state = &rig->state;
	rig->peer.context = &rig->context;
	rig->peer.home = rig->context.engines[0];
	rig->peer.joinable = true;
	rig->peer.ops = &pl_verbs_fabric;
	rig->peer.endpoint = &rig->endpoint.base;
	memset(rig->secret, 3, sizeof(rig->secret));
	rig->peer.secret = rig->secret;
	rig->index = (size_t)pl_index_table_add(&pl_system_allocator, &rig->context.peer_table, &rig->peer);
	open_endpoint(rig);
	pl_engine_lock(rig->peer.home);
	return rig;
}

static void rig_free(struct rig *rig)
{
	assert_int_equal(atomic_load(&rig->peer.pins), 0);
	for (unsigned i = 0; i < RAILS; i++) {
		verbs_joins_drop(&rig->endpoint.rails[i]);
		pl_engine_withdraw(rig->peer.home, &rig->endpoint.rails[i].join_task);
	}
	pl_index_table_free(&pl_system_allocator, &rig->context.peer_table);
	pl_engine_unlock(rig->peer.home);
	pl_engine_stop(rig->peer.home);
	pl_engine_close(rig->peer.home);
	pl_free(&pl_system_allocator, rig);
}

static struct pl_rail_hello good_hello(const struct rig *rig)
{
	return (struct pl_rail_hello){
		.lane = { .version = PL_PROTOCOL_VERSION, .lane = GENERATION + 1, .peer_index = rig->index },
		.index = 1,
		.count = RAILS,
		.addresses = { 1, 0 },
	};
}

static void sign_hello(const struct rig *rig, const struct pl_rail_hello *hello, uint8_t bytes[PL_RAIL_HELLO])
{
	pl_rail_hello_encode(hello, bytes);
	assert_int_equal(pl_lane_auth_sign(&rig->peer, PL_LABEL_RAIL, bytes, PL_RAIL_HELLO), 0);
}

static bool was_rejected(const struct rdma_cm_id *id)
{
	for (unsigned i = 0; i < manager.rejected; i++)
		if (manager.ids[i] == id)
			return true;
	return false;
}

/* Sends a signed request.  Returns true if it was passed on to its rail. */
static bool request(struct rig *rig, const struct pl_rail_hello *hello)
{
	struct rdma_cm_id *id = &rig->ids[rig->asked++];
	uint8_t bytes[PL_RAIL_HELLO];

	sign_hello(rig, hello, bytes);
	verbs_requested(&rig->cm, id, bytes, sizeof(bytes), 1);
	assert_int_equal(manager.rejected, manager.destroyed);
	return !was_rejected(id);
}

static void expect_refused(struct rig *rig, const struct pl_rail_hello *hello)
{
	assert_false(request(rig, hello));
	for (unsigned i = 0; i < RAILS; i++)
		assert_null(atomic_load(&rig->endpoint.rails[i].joining));
	rig_free(rig);
}

/* Sends a request and runs it.  Returns true if the rail keeps it. */
static bool join(struct rig *rig, const struct pl_rail_hello *hello)
{
	struct verbs_rail *rail = &rig->endpoint.rails[hello->index];

	assert_true(request(rig, hello));
	verbs_join_run(&rail->join_task);
	assert_null(atomic_load(&rail->joining));
	return rail->joined && !was_rejected(&rig->ids[rig->asked - 1]);
}

/* -- requests ------------------------------------------------------------------------------------- */

static void test_good(void **state)
{
	struct rig *rig = rig_new();
	struct pl_rail_hello hello = good_hello(rig);

	(void)state;
	assert_true(join(rig, &hello));
	assert_ptr_equal(rig->ids[0].context, &rig->endpoint.rails[1]);
	assert_int_equal(manager.migrated, 0);
	assert_int_equal(rig->endpoint.rail_count, RAILS);
	assert_int_equal(rig->endpoint.rails[0].address_index, 1);
	assert_int_equal(rig->endpoint.rails[1].address_index, 0);
	assert_ptr_equal(rig->endpoint.rails[0].device, &rig->device);
	rig_free(rig);
	/* The end drops the kept request. */
	assert_int_equal(manager.rejected, 1);
}

static void test_strangers(void **state)
{
	struct rig *rig = rig_new();
	struct pl_rail_hello hello = good_hello(rig);
	uint8_t bytes[PL_RAIL_HELLO], bad[PL_RAIL_HELLO];

	(void)state;
	sign_hello(rig, &hello, bytes);
	for (unsigned i = 0; i < PL_RAIL_HELLO; i++) {
		memcpy(bad, bytes, sizeof(bad));
		bad[i] ^= 1;
		verbs_requested(&rig->cm, &rig->ids[0], bad, sizeof(bad), 1);
		assert_int_equal(manager.rejected, i + 1);
	}
	verbs_requested(&rig->cm, &rig->ids[0], bytes, PL_RAIL_HELLO - 1, 1);
	assert_int_equal(manager.rejected, PL_RAIL_HELLO + 1);
	rig_free(rig);
	rig = rig_new();
	hello.lane.version++;
	expect_refused(rig, &hello);
	rig = rig_new();
	hello = good_hello(rig);
	hello.lane.peer_index++;
	expect_refused(rig, &hello);
	rig = rig_new();
	hello = good_hello(rig);
	rig->peer.joinable = false;
	expect_refused(rig, &hello);
	rig = rig_new();
	rig->peer.ops = NULL;
	expect_refused(rig, &hello);
}

/* The peer may live on another engine than the listener. */
static void test_other_engine(void **state)
{
	struct rig *rig = rig_new();
	struct pl_rail_hello hello = good_hello(rig);

	(void)state;
	rig->endpoint.cm = &rig->other;
	assert_true(request(rig, &hello));
	assert_int_equal(manager.migrated, 1);
	rig_free(rig);
	rig = rig_new();
	rig->endpoint.cm = &rig->other;
	manager.migration = -1;
	expect_refused(rig, &hello);
}

/* Runs a request with another generation. */
static bool join_generation(struct rig *rig, uint16_t generation)
{
	struct pl_rail_hello hello = good_hello(rig);

	hello.lane.lane = generation;
	return join(rig, &hello);
}

/* Generations grow, and wrap around. */
static void test_generations(void **state)
{
	struct rig *rig = rig_new();

	(void)state;
	assert_false(join_generation(rig, GENERATION));
	assert_false(join_generation(rig, GENERATION - 1));
	assert_false(join_generation(rig, (uint16_t)(GENERATION + 32768)));
	assert_int_equal(manager.rejected, 3);
	assert_true(join_generation(rig, GENERATION + 1));
	/* The kept request is not repeated, and gives way to the next. */
	assert_false(join_generation(rig, GENERATION + 1));
	assert_int_equal(manager.rejected, 4);
	assert_true(join_generation(rig, GENERATION + 2));
	assert_int_equal(manager.rejected, 5);
	assert_true(was_rejected(&rig->ids[3]));
	assert_false(join_generation(rig, GENERATION + 1));
	rig_free(rig);
	rig = rig_new();
	rig->endpoint.rails[1].generation = UINT16_MAX;
	assert_true(join_generation(rig, 0));
	rig_free(rig);
}

/* A request that has not run gives way to the next. */
static void test_overtaken(void **state)
{
	struct rig *rig = rig_new();
	struct pl_rail_hello hello = good_hello(rig);

	(void)state;
	assert_true(request(rig, &hello));
	hello.lane.lane++;
	assert_true(request(rig, &hello));
	assert_int_equal(manager.rejected, 1);
	assert_true(was_rejected(&rig->ids[0]));
	verbs_join_run(&rig->endpoint.rails[1].join_task);
	assert_non_null(rig->endpoint.rails[1].joined);
	/* Nothing more to run. */
	verbs_join_run(&rig->endpoint.rails[1].join_task);
	assert_int_equal(manager.rejected, 1);
	rig_free(rig);
}

/* The first request describes all rails; later ones must agree. */
static void test_descriptions(void **state)
{
	struct rig *rig = rig_new();
	struct pl_rail_hello hello = good_hello(rig);

	(void)state;
	hello.addresses[0] = RAILS;
	assert_false(join(rig, &hello));
	assert_int_equal(rig->endpoint.rail_count, 0);
	hello = good_hello(rig);
	assert_true(join(rig, &hello));
	hello.lane.lane++;
	hello.count++;
	assert_false(join(rig, &hello));
	assert_int_equal(rig->endpoint.rail_count, RAILS);
	assert_int_equal(manager.rejected, 2);
	hello.count--;
	hello.addresses[0] = 0;
	assert_false(join(rig, &hello));
	assert_int_equal(manager.rejected, 3);
	assert_int_equal(rig->endpoint.rails[0].address_index, 1);
	rig_free(rig);
}

static void test_finished(void **state)
{
	struct rig *rig = rig_new();

	(void)state;
	rig->endpoint.closing = true;
	assert_false(join_generation(rig, GENERATION + 1));
	assert_null(rig->endpoint.rails[1].joined);
	rig_free(rig);
}

/* -- remote keys ---------------------------------------------------------------------------------- */

static const struct verbs_remote_key *make_key(struct rig *rig, struct pl_remote *remote, const uint8_t *bytes,
					       size_t length)
{
	const struct verbs_remote_key *key;

	*remote = (struct pl_remote){ .context = &rig->context, .key_length = (uint16_t)length };
	memcpy(remote->key, bytes, length);
	rig->endpoint.rail_count = RAILS;
	key = verbs_remote_key_make(remote, &rig->endpoint);
	assert_non_null(key);
	return key;
}

/* A truncated key covers the rails whose keys it has; unknown rails and orderings count as the safe ones. */
static void test_keys(void **state)
{
	const size_t first = 8 + 8 + 1, windows = first + 4 * RAILS, order = windows + 1, whole = order + 1;
	struct rig *rig = rig_new();
	struct pl_writer writer;
	struct pl_remote remote;
	uint8_t bytes[64];

	(void)state;
	pl_writer_init(&writer, bytes, sizeof(bytes));
	pl_put_u64(&writer, 11);
	pl_put_u64(&writer, 22);
	pl_put_u8(&writer, 0xff);
	pl_put_u32(&writer, 33);
	pl_put_u32(&writer, 44);
	pl_put_u8(&writer, 0xfe);
	pl_put_u8(&writer, UINT8_MAX);
	for (size_t length = 0; length <= whole; length++) {
		const struct verbs_remote_key *key = make_key(rig, &remote, bytes, length);
		uint8_t rails = length >= first + 8 ? 3 : length >= first + 4 ? 1 : 0;

		assert_int_equal(key->windows, length > windows ? 2 : 0);
		assert_int_equal(key->present, rails & (length > windows ? 1 : 3));
		assert_int_equal(key->order, length > order ? PL_ORDER_READ : PL_ORDER_HOST);
		assert_int_equal(key->rkeys[0], length >= first + 4 ? 33 : 0);
		remote.forget(&remote);
		assert_true(pl_list_empty(&rig->endpoint.targets));
	}
	bytes[8 + 8] = 2;
	bytes[windows] = 0;
	assert_int_equal(make_key(rig, &remote, bytes, whole)->present, 2);
	remote.forget(&remote);
	rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_strangers),
		cmocka_unit_test(test_other_engine),
		cmocka_unit_test(test_generations),
		cmocka_unit_test(test_overtaken),
		cmocka_unit_test(test_descriptions),
		cmocka_unit_test(test_finished),
		cmocka_unit_test(test_keys),
	};

	return cmocka_run_group_tests_name("verbs requests", tests, NULL, NULL);
}
