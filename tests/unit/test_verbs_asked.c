/* SPDX-License-Identifier: BSD-2-Clause */
/* Keys that an end asks for over a rail, and questions of a peer: which frames count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fabric/verbs/data/request.h"
#include "support/fault_rig.h"

#define KEY 40u
/* Most questions of a peer that wait for their answers. */
#define QUESTIONS 65536u

struct rig {
	struct fault_rig *base;
	struct verbs_endpoint *endpoint;
	struct verbs_rail *rails;
	struct verbs_remote_key target;
};

static void rig_open(struct rig *rig)
{
	*rig = (struct rig){ .base = fault_rig_new() };
	rig->endpoint = &rig->base->endpoint;
	rig->rails = rig->endpoint->rails;
	rig->base->peer.asks = true;
	/* Nothing is posted. */
	rig->endpoint->flushing = true;
	rig->target.id = KEY;
	pl_list_append(&rig->endpoint->targets, &rig->target.link);
}

static void free_works(struct verbs_endpoint *endpoint, struct pl_list *list)
{
	while (!pl_list_empty(list)) {
		struct verbs_work *work = pl_list_first(list, struct verbs_work, link);

		pl_list_remove(&work->link);
		verbs_work_free(endpoint, work);
	}
}

static void rig_close(struct rig *rig)
{
	pl_list_remove(&rig->target.link);
	free_works(rig->endpoint, &rig->endpoint->waiting);
	free_works(rig->endpoint, &rig->endpoint->again);
	fault_rig_free(rig->base);
}

/* Returns the rails over which questions for the key wait in a list. */
static unsigned asked_in(const struct pl_list *list)
{
	unsigned rails = 0;

	pl_list_for_each(at, list) {
		const struct verbs_work *work = pl_list_entry(at, struct verbs_work, link);

		assert_int_equal(work->frame.type, PL_FRAME_ASK_KEY);
		assert_int_equal(work->frame.key, KEY);
		assert_int_equal(work->frame.cookie, work->only->index);
		rails |= 1u << work->only->index;
	}
	return rails;
}

/* -- answers of the owner ------------------------------------------------------------------------- */

static int tell(struct rig *rig, unsigned rail, uint32_t cookie, uint64_t key, uint64_t answer)
{
	const struct pl_frame frame = { .type = PL_FRAME_KEY, .cookie = cookie, .key = key, .offset = answer };

	return verbs_key_arrived(&rig->rails[rail], &frame);
}

static void test_told(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig);
	rig.target.windows = 2;
	assert_int_equal(tell(&rig, 1, 1, KEY, UINT32_MAX), 0);
	assert_int_equal(rig.target.present, 2);
	assert_int_equal(rig.target.windows, 2);
	assert_int_equal(rig.target.rkeys[1], UINT32_MAX);
	assert_int_equal(rig.target.refused, 0);
	rig_close(&rig);
}

/* An answer names the rail that it comes over, a known key, and one that was asked for. */
static void test_told_without_question(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig);
	rig.target.windows = 2;
	assert_int_equal(tell(&rig, 1, 0, KEY, 7), -EPROTO);
	assert_int_equal(tell(&rig, 1, 1, KEY + 1, 7), 0);
	assert_int_equal(tell(&rig, 0, 0, KEY, 7), 0);
	assert_int_equal(rig.target.present, 0);
	assert_int_equal(rig.target.rkeys[0], 0);
	rig_close(&rig);
}

/* The owner has no key for this end over the rail. */
static void test_refused(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig);
	rig.target.windows = 3;
	assert_int_equal(tell(&rig, 1, 1, KEY, (uint64_t)UINT32_MAX + 1), 0);
	assert_int_equal(rig.target.windows, 1);
	assert_int_equal(rig.target.refused, 2);
	assert_int_equal(rig.target.present, 0);
	rig_close(&rig);
}

/* -- questions of this end ------------------------------------------------------------------------ */

static void test_ask_missing(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig);
	assert_false(verbs_ask_missing(rig.endpoint, &rig.target, 0));
	rig.target.refused = 2;
	assert_false(verbs_ask_missing(rig.endpoint, &rig.target, 2));
	rig.target.refused = 0;
	rig.target.windows = 2;
	assert_false(verbs_ask_missing(rig.endpoint, &rig.target, 2));
	rig.target.windows = 0;
	rig.base->peer.asks = false;
	assert_false(verbs_ask_missing(rig.endpoint, &rig.target, 2));
	assert_true(pl_list_empty(&rig.endpoint->waiting));
	rig.base->peer.asks = true;
	assert_true(verbs_ask_missing(rig.endpoint, &rig.target, 2));
	assert_int_equal(asked_in(&rig.endpoint->waiting), 2);
	assert_int_equal(rig.target.windows, 2);
	rig_close(&rig);
}

/* Imports a key of the first rail. Returns the reason of its path, or NULL. */
static const char *import_key(struct rig *rig, uint8_t windows)
{
	struct pl_remote remote = { .context = &rig->base->context };
	struct pl_writer writer;

	pl_writer_init(&writer, remote.key, sizeof(remote.key));
	pl_put_u64(&writer, KEY);
	pl_put_u64(&writer, 4096);
	pl_put_u8(&writer, 1);
	pl_put_u8(&writer, 1);
	pl_put_u16(&writer, 0);
	pl_put_u32(&writer, 77);
	pl_put_u8(&writer, windows);
	remote.key_length = (uint16_t)(writer.at - writer.begin);
	verbs_imported(&rig->endpoint->base, &remote);
	remote.forget(&remote);
	return remote.path_reason;
}

static void test_imported(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig);
	assert_null(import_key(&rig, 0));
	assert_non_null(strstr(import_key(&rig, 1), "memory window"));
	rig_close(&rig);
}

/* A transfer waits for a key that can still come. */
static void test_obtainable(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig);
	assert_true(verbs_obtainable(rig.endpoint, &rig.target));
	rig.base->peer.asks = false;
	assert_false(verbs_obtainable(rig.endpoint, &rig.target));
	rig.target.windows = 1;
	assert_true(verbs_obtainable(rig.endpoint, &rig.target));
	rig.target.windows = 0;
	rig.base->peer.asks = true;
	rig.target.refused = 1;
	assert_true(verbs_obtainable(rig.endpoint, &rig.target));
	rig.rails[1].link = VERBS_DOWN;
	assert_false(verbs_obtainable(rig.endpoint, &rig.target));
	rig.rails[0].link = VERBS_DOWN;
	assert_true(verbs_obtainable(rig.endpoint, &rig.target));
	rig_close(&rig);
}

/* After an import: over rails that are up, and whose windows are not bound. */
static void test_ask(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig);
	rig.target.windows = 3;
	rig.target.present = 2;
	rig.rails[0].link = VERBS_DOWN;
	verbs_mw_ask(rig.endpoint, &rig.target);
	assert_true(pl_list_empty(&rig.endpoint->again));
	rig.rails[0].link = VERBS_UP;
	verbs_mw_ask(rig.endpoint, &rig.target);
	assert_int_equal(asked_in(&rig.endpoint->again), 1);
	rig_close(&rig);
}

/* Brings the second rail up; the owner's port of it has the number 5. Returns true if it asks for the key. */
static bool asks_when_up(uint8_t windows, uint8_t present, uint16_t near, bool renewed, bool peer_asks)
{
	struct rig rig;
	bool asks;

	rig_open(&rig);
	rig.base->peer.asks = peer_asks;
	rig.target.windows = windows;
	rig.target.present = present;
	rig.target.near = near;
	rig.rails[1].far_port = 5;
	rig.rails[1].far_told = renewed;
	verbs_mw_rail_up(&rig.rails[1]);
	assert_int_equal(rig.rails[1].far_renewals, renewed);
	asks = asked_in(&rig.endpoint->again) == 2;
	assert_true(asks || pl_list_empty(&rig.endpoint->again));
	rig_close(&rig);
	return asks;
}

static void test_ask_when_up(void **state)
{
	(void)state;
	/* A window belongs to one connection. */
	assert_true(asks_when_up(2, 2, 0, false, true));
	assert_false(asks_when_up(1, 1, 0, false, true));
	/* A rail between devices near the memory that has no key. */
	assert_true(asks_when_up(0, 0, 1u << 5, false, true));
	assert_false(asks_when_up(0, 2, 1u << 5, false, true));
	assert_false(asks_when_up(0, 0, 1u << 4, false, true));
	/* The owner has another device there. */
	assert_true(asks_when_up(0, 2, 0, true, true));
	assert_false(asks_when_up(0, 2, 0, true, false));
}

/* -- questions of the peer ------------------------------------------------------------------------ */

static int ask(struct rig *rig)
{
	const struct pl_frame frame = { .type = PL_FRAME_ASK_KEY, .cookie = 0, .key = KEY };

	return verbs_key_arrived(&rig->rails[0], &frame);
}

/* A peer can leave a limited number of questions unanswered. */
static void test_most_questions(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig);
	rig.endpoint->questions = QUESTIONS - 1;
	assert_int_equal(ask(&rig), 0);
	assert_int_equal(rig.endpoint->questions, QUESTIONS);
	assert_int_equal(ask(&rig), -EPROTO);
	assert_int_equal(rig.endpoint->questions, QUESTIONS);
	rig_close(&rig);
}

/* The peer asks again over the next connection. */
static void test_question_of_down_rail(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig);
	rig.rails[0].link = VERBS_DRAINING;
	assert_int_equal(ask(&rig), 0);
	assert_int_equal(rig.endpoint->questions, 0);
	assert_true(pl_list_empty(&rig.endpoint->again));
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_told),
		cmocka_unit_test(test_told_without_question),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_ask_missing),
		cmocka_unit_test(test_obtainable),
		cmocka_unit_test(test_imported),
		cmocka_unit_test(test_ask),
		cmocka_unit_test(test_ask_when_up),
		cmocka_unit_test(test_most_questions),
		cmocka_unit_test(test_question_of_down_rail),
	};

	return cmocka_run_group_tests_name("verbs asked", tests, NULL, NULL);
}
