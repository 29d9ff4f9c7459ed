/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of pairs of ports whose devices did not reach each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/verbs_rig.h"

#define LIFETIME (60 * PL_NS_PER_S)

static struct verbs_rail *rail_of(struct verbs_rig *rig, unsigned index)
{
	return &rig->endpoint->rails[index];
}

/* As the core does when another fabric replaces this one. */
static void replace_fabric(struct verbs_rig *rig)
{
	pl_verbs_fabric.replaced(&rig->endpoint->base);
}

static bool are_lost(const struct verbs_rig *rig)
{
	return verbs_paths_are_lost(rig->endpoint);
}

/* The attempt under way fails with this state of the device's resolution, or of the empty message. */
static void fail_attempt(struct verbs_rig *rig, unsigned rail, int no_receive, enum ibv_wc_status status)
{
	rig->card.no_receive = no_receive;
	verbs_rig_send(rig, PL_RAIL_ACCEPT, rail, rail_of(rig, rail)->generation);
	rig->card.no_receive = 0;
	if (!no_receive) {
		verbs_rig_complete(rig, rail, status);
		verbs_rig_poll(rig);
	}
	assert_int_equal(rail_of(rig, rail)->link, VERBS_DOWN);
}

/* Makes the rig's only pair a remembered one. */
static struct verbs_rig *new_lost_rig(void)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);

	fail_attempt(rig, 0, 0, IBV_WC_RETRY_EXC_ERR);
	assert_false(are_lost(rig));
	replace_fabric(rig);
	assert_true(are_lost(rig));
	return rig;
}

/* -- failures that show that no packet arrived ---------------------------------------------------- */

static void test_causes(void **state)
{
	static const struct {
		int no_receive;
		bool lost;
	} causes[] = { { 0, true }, { ETIMEDOUT, true }, { EHOSTUNREACH, true }, { ENETUNREACH, true }, { EINVAL, false } };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(causes); i++) {
		struct verbs_rig *rig = verbs_rig_new(true, false, 1);

		fail_attempt(rig, 0, causes[i].no_receive, IBV_WC_RETRY_EXC_ERR);
		replace_fabric(rig);
		assert_int_equal(are_lost(rig), causes[i].lost);
		verbs_rig_free(rig);
	}
}

/* No answer came, or a refusal: the devices may reach each other. */
static void test_other_causes(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 1);

	(void)state;
	verbs_rig_expire_attempt(rig, 0);
	replace_fabric(rig);
	assert_false(are_lost(rig));
	verbs_rig_free(rig);
	rig = verbs_rig_new(true, false, 1);
	verbs_rig_bring_to(rig, VERBS_PROVING);
	verbs_rig_send(rig, PL_RAIL_DOWN, 0, 1);
	replace_fabric(rig);
	assert_false(are_lost(rig));
	verbs_rig_free(rig);
	/* The last attempt counts. */
	rig = verbs_rig_new(true, false, 1);
	fail_attempt(rig, 0, 0, IBV_WC_RETRY_EXC_ERR);
	verbs_rig_expire(rig, &rail_of(rig, 0)->retry);
	verbs_rig_expire_attempt(rig, 0);
	replace_fabric(rig);
	assert_false(are_lost(rig));
	verbs_rig_free(rig);
}

/* A connection tries while one of its pairs may work. */
static void test_several_rails(void **state)
{
	struct verbs_rig *rig = verbs_rig_new(true, false, 2);

	(void)state;
	fail_attempt(rig, 0, 0, IBV_WC_RETRY_EXC_ERR);
	replace_fabric(rig);
	assert_false(are_lost(rig));
	fail_attempt(rig, 1, 0, IBV_WC_RETRY_EXC_ERR);
	replace_fabric(rig);
	assert_true(are_lost(rig));
	/* Other addresses are another pair. */
	rail_of(rig, 1)->far_gid.raw[15]++;
	assert_false(are_lost(rig));
	rail_of(rig, 1)->far_gid.raw[15]--;
	rail_of(rig, 1)->gid.raw[15]++;
	assert_false(are_lost(rig));
	verbs_rig_free(rig);
}

/* -- the end of the memory ------------------------------------------------------------------------ */

static void test_lifetime(void **state)
{
	struct verbs_rig *rig = new_lost_rig();

	(void)state;
	assert_true(rig->state.lost_paths[0].until <= pl_now() + LIFETIME);
	rig->state.lost_paths[0].until = pl_now();
	assert_false(are_lost(rig));
	/* The same entry again. */
	replace_fabric(rig);
	assert_true(are_lost(rig));
	assert_int_equal(rig->state.next_lost_path, 1);
	verbs_rig_free(rig);
}

static void test_success(void **state)
{
	struct verbs_rig *rig = new_lost_rig();

	(void)state;
	verbs_rig_expire(rig, &rail_of(rig, 0)->retry);
	verbs_rig_send(rig, PL_RAIL_ACCEPT, 0, 2);
	verbs_rig_complete(rig, 0, IBV_WC_SUCCESS);
	verbs_rig_poll(rig);
	assert_int_equal(rail_of(rig, 0)->link, VERBS_UP);
	assert_false(are_lost(rig));
	verbs_rig_free(rig);
}

static enum ibv_event_type next_event;

static int get_event(struct ibv_context *context, struct ibv_async_event *event)
{
	(void)context;
	*event = (struct ibv_async_event){ .event_type = next_event, .element.port_num = 9 };
	return 0;
}

static void ack_event(struct ibv_async_event *event)
{
	(void)event;
}

/* A port that changes may reach others. */
static void test_events(void **state)
{
	static const struct {
		enum ibv_event_type event;
		bool forgets;
	} events[] = { { IBV_EVENT_PORT_ACTIVE, true }, { IBV_EVENT_GID_CHANGE, true }, { IBV_EVENT_COMM_EST, false } };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(events); i++) {
		struct verbs_rig *rig = new_lost_rig();

		rig->library.ibv_get_async_event = get_event;
		rig->library.ibv_ack_async_event = ack_event;
		rig->verbs.async_fd = eventfd(0, 0);
		rig->device.async.fd = -1;
		verbs_async_watch(&rig->state);
		next_event = events[i].event;
		assert_true(rig->device.async.ready(&rig->device.async, EPOLLIN));
		assert_int_equal(are_lost(rig), !events[i].forgets);
		verbs_async_close(&rig->device);
		close(rig->verbs.async_fd);
		verbs_rig_free(rig);
	}
}

/* A new pair takes the place of the oldest one. */
static void test_room(void **state)
{
	struct verbs_rig *rig = new_lost_rig();
	struct verbs_rail *rail = rail_of(rig, 0);

	(void)state;
	for (unsigned i = 1; i < VERBS_LOST_PATHS; i++) {
		rail->far_gid.raw[3] = (uint8_t)i;
		replace_fabric(rig);
	}
	rail->far_gid.raw[3] = 0;
	assert_true(are_lost(rig));
	rail->far_gid.raw[3] = VERBS_LOST_PATHS;
	replace_fabric(rig);
	assert_true(are_lost(rig));
	rail->far_gid.raw[3] = 0;
	assert_false(are_lost(rig));
	rail->far_gid.raw[3] = 1;
	assert_true(are_lost(rig));
	verbs_rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_causes),   cmocka_unit_test(test_other_causes), cmocka_unit_test(test_several_rails),
		cmocka_unit_test(test_lifetime), cmocka_unit_test(test_success),      cmocka_unit_test(test_events),
		cmocka_unit_test(test_room),
	};

	return cmocka_run_group_tests_name("verbs path memory", tests, NULL, NULL);
}
