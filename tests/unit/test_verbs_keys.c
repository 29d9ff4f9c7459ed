/* SPDX-License-Identifier: BSD-2-Clause */
/* Keys of remote regions that another end sends over verbs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fabric/verbs/verbs.h"

#define RAILS 2

struct rig {
	struct pl_context context;
	struct verbs_state state;
	struct pl_peer peer;
	struct verbs_endpoint endpoint;
};

static struct rig *rig_new(void)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	rig->context.allocator = pl_system_allocator;
	rig->state.context = &rig->context;
	pthread_mutex_init(&rig->state.lock, NULL);
	rig->peer.context = &rig->context;
	rig->endpoint.base.peer = &rig->peer;
	rig->endpoint.state = &rig->state;
	rig->endpoint.rail_count = RAILS;
	pl_list_init(&rig->endpoint.targets);
	for (unsigned i = 0; i < RAILS; i++)
		rig->endpoint.rails[i].endpoint = &rig->endpoint;
	return rig;
}

static const struct verbs_remote_key *make_key(struct rig *rig, struct pl_remote *remote, const uint8_t *bytes,
					       size_t length)
{
	const struct verbs_remote_key *key;

	*remote = (struct pl_remote){ .context = &rig->context, .key_length = (uint16_t)length };
	memcpy(remote->key, bytes, length);
	key = verbs_remote_key_make(remote, &rig->endpoint);
	assert_non_null(key);
	return key;
}

/* A truncated key covers the rails whose keys it has; unknown rails and orderings count as the safe ones. */
static void test_keys(void **state)
{
	const size_t first = 8 + 8 + 1 + 1 + 2, windows = first + 4 * RAILS, order = windows + 1, whole = order + 1;
	struct rig *rig = rig_new();
	struct pl_writer writer;
	struct pl_remote remote;
	uint8_t bytes[64];

	(void)state;
	pl_writer_init(&writer, bytes, sizeof(bytes));
	pl_put_u64(&writer, 11);
	pl_put_u64(&writer, 22);
	pl_put_u8(&writer, 0xff);
	pl_put_u8(&writer, RAILS);
	pl_put_u16(&writer, 0xf005);
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
		assert_int_equal(key->near, length >= first ? 5 : 0);
		assert_int_equal(key->rkeys[0], length >= first + 4 ? 33 : 0);
		remote.forget(&remote);
		assert_true(pl_list_empty(&rig->endpoint.targets));
	}
	bytes[8 + 8] = 2;
	bytes[windows] = 0;
	assert_int_equal(make_key(rig, &remote, bytes, whole)->present, 2);
	remote.forget(&remote);
	free(rig);
}

/* A key for more rails than the endpoint has, or can have, sets those that exist. */
static void test_many_rails(void **state)
{
	const unsigned rails = 12;
	struct rig *rig = rig_new();
	const struct verbs_remote_key *key;
	struct pl_writer writer;
	struct pl_remote remote;
	uint8_t bytes[128];

	(void)state;
	pl_writer_init(&writer, bytes, sizeof(bytes));
	pl_put_u64(&writer, 11);
	pl_put_u64(&writer, 22);
	pl_put_u8(&writer, 0xff);
	pl_put_u8(&writer, (uint8_t)rails);
	pl_put_u16(&writer, 0);
	for (unsigned i = 0; i < rails; i++)
		pl_put_u32(&writer, 100 + i);
	pl_put_u8(&writer, 0);
	pl_put_u8(&writer, PL_ORDER_HOST);
	for (unsigned i = 0; i < rails; i++)
		pl_put_u16(&writer, 0);
	key = make_key(rig, &remote, bytes, (size_t)(writer.at - writer.begin));
	assert_int_equal(key->present, 3);
	for (unsigned i = 0; i < VERBS_RAILS; i++)
		assert_int_equal(key->rkeys[i], i < RAILS ? 100 + i : 0);
	assert_int_equal(key->refused, 0);
	assert_int_equal(key->near, 0);
	remote.forget(&remote);
	free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_keys), cmocka_unit_test(test_many_rails) };

	return cmocka_run_group_tests_name("verbs keys", tests, NULL, NULL);
}
