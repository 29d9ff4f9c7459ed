/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbered frames that overtook others: which ones an end keeps, and the looks for a missing one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fabric/verbs/data/request.h"
#include "support/fault_rig.h"

#define RECEIVED 7u

static unsigned polls;

static int count_poll(struct ibv_cq *cq, int count, struct ibv_wc *completions)
{
	(void)cq;
	(void)count;
	(void)completions;
	polls++;
	return 0;
}

static struct fault_rig *rig_new(void)
{
	struct fault_rig *rig = fault_rig_new();

	rig->verbs.ops.poll_cq = count_poll;
	rig->cq.cqe = 16;
	rig->endpoint.received = RECEIVED;
	pl_timer_init(&rig->endpoint.gap.timer, verbs_gap_look);
	polls = 0;
	return rig;
}

static void rig_free(struct fault_rig *rig)
{
	verbs_early_forget(&rig->endpoint);
	fault_rig_free(rig);
}

static int keep(struct fault_rig *rig, uint32_t number)
{
	const struct pl_frame frame = { .type = PL_FRAME_CREDIT, .ack = number };

	return verbs_early_keep(&rig->endpoint, &frame, NULL);
}

static bool is_looking(const struct fault_rig *rig)
{
	return !pl_list_empty(&rig->endpoint.gap.timer.link);
}

/* Looks, as the engine does when the time has come. */
static void look(struct fault_rig *rig)
{
	pl_timer_clear(rig->peer.home, &rig->endpoint.gap.timer);
	verbs_gap_look(&rig->endpoint.gap.timer);
}

/* No frame can overtake another one on a single rail. */
static void test_one_rail(void **state)
{
	struct fault_rig *rig = rig_new();

	(void)state;
	rig->endpoint.rail_count = 1;
	assert_int_equal(keep(rig, RECEIVED + 2), -EBADMSG);
	assert_true(pl_list_empty(&rig->endpoint.early));
	assert_false(is_looking(rig));
	rig->endpoint.rail_count = 2;
	rig_free(rig);
}

/* A peer can make an end keep a limited number of frames. */
static void test_most_frames(void **state)
{
	struct fault_rig *rig = rig_new();

	(void)state;
	for (uint32_t i = 0; i < VERBS_EARLY; i++)
		assert_int_equal(keep(rig, RECEIVED + 2 + i), 0);
	assert_int_equal(keep(rig, RECEIVED + 2 + VERBS_EARLY), -EBADMSG);
	assert_int_equal(rig->endpoint.early_count, VERBS_EARLY);
	rig_free(rig);
}

/* The bytes of a frame are copied: their buffer is posted again. */
static void test_kept_bytes(void **state)
{
	const struct pl_frame frame = { .type = PL_FRAME_EAGER, .ack = RECEIVED + 2, .length = 4 };
	uint8_t payload[] = { 1, 2, 3, 4 };
	struct fault_rig *rig = rig_new();
	const struct verbs_early *early;

	(void)state;
	assert_int_equal(verbs_early_keep(&rig->endpoint, &frame, payload), 0);
	payload[0] = 9;
	early = pl_list_first(&rig->endpoint.early, struct verbs_early, link);
	assert_memory_equal(early->payload, ((const uint8_t[]){ 1, 2, 3, 4 }), sizeof(payload));
	rig_free(rig);
}

/* The next frame is taken, and one that came twice; not one behind a gap. */
static void test_taken_frames(void **state)
{
	struct fault_rig *rig = rig_new();
	struct verbs_early *early;

	(void)state;
	assert_int_equal(keep(rig, RECEIVED + 2), 0);
	assert_null(verbs_early_take(&rig->endpoint));
	assert_int_equal(keep(rig, RECEIVED + 1), 0);
	early = verbs_early_take(&rig->endpoint);
	assert_non_null(early);
	assert_int_equal(early->frame.ack, RECEIVED + 1);
	pl_free(&pl_system_allocator, early);
	rig->endpoint.received = RECEIVED + 2;
	early = verbs_early_take(&rig->endpoint);
	assert_non_null(early);
	pl_free(&pl_system_allocator, early);
	assert_int_equal(rig->endpoint.early_count, 0);
	rig_free(rig);
}

/* The looks begin with the first frame, and anew when another frame is missing. */
static void test_looks(void **state)
{
	struct fault_rig *rig = rig_new();

	(void)state;
	assert_int_equal(keep(rig, RECEIVED + 3), 0);
	assert_true(is_looking(rig));
	for (unsigned i = 1; i <= 3; i++) {
		look(rig);
		assert_true(is_looking(rig));
		assert_int_equal(rig->endpoint.gap.looks, i);
	}
	assert_int_equal(keep(rig, RECEIVED + 4), 0);
	assert_int_equal(rig->endpoint.gap.looks, 3);
	rig->endpoint.received++;
	look(rig);
	assert_true(is_looking(rig));
	assert_int_equal(rig->endpoint.gap.looks, 0);
	assert_true(polls);
	rig_free(rig);
}

/* Nothing is missing: the peer must not count as lost, and no queue is polled. */
static void test_nothing_missing(void **state)
{
	struct fault_rig *rig = rig_new();

	(void)state;
	rig->endpoint.gap.received = RECEIVED;
	look(rig);
	assert_false(is_looking(rig));
	assert_int_equal(rig->endpoint.gap.looks, 0);
	assert_int_equal(polls, 0);
	rig_free(rig);
}

/* An endpoint that closes looks no more. */
static void test_closing(void **state)
{
	struct fault_rig *rig = rig_new();

	(void)state;
	assert_int_equal(keep(rig, RECEIVED + 2), 0);
	rig->endpoint.closing = true;
	look(rig);
	assert_false(is_looking(rig));
	assert_int_equal(rig->endpoint.gap.looks, 0);
	rig_free(rig);
}

/* -- the fence of a failed rail ------------------------------------------------------------------- */

static int fence(struct fault_rig *rig, enum pl_frame_type type, uint32_t rail, uint64_t generation)
{
	const struct pl_frame frame = { .type = (uint8_t)type, .cookie = rail, .offset = generation };

	/* Nothing is posted. */
	rig->endpoint.flushing = true;
	return verbs_fence_arrived(&rig->endpoint, &frame);
}

/* The peer names a rail of this endpoint, and a generation. */
static void test_strange_fences(void **state)
{
	struct fault_rig *rig = rig_new();

	(void)state;
	assert_int_equal(fence(rig, PL_FRAME_FENCE, 2, 3), -EPROTO);
	assert_int_equal(fence(rig, PL_FRAME_FENCED, UINT32_MAX, 3), -EPROTO);
	assert_int_equal(fence(rig, PL_FRAME_FENCE, 0, (uint64_t)UINT16_MAX + 1), -EPROTO);
	assert_int_equal(fence(rig, PL_FRAME_FENCED, 1, UINT16_MAX), 0);
	rig_free(rig);
}

/* Holds the posted work of the first rail, as after a failure. */
static void hold_work(struct fault_rig *rig)
{
	struct verbs_rail *rail = &rig->endpoint.rails[0];

	rail->link = VERBS_DOWN;
	rail->held_generation = 3;
	pl_list_append(&rail->held, &verbs_take_posted(rail)->link);
}

/* Work goes to another rail when the peer has answered for its generation, and the queue pair is quiet. */
static void test_fence_answers(void **state)
{
	struct fault_rig *rig = rig_new();
	struct verbs_rail *rail = &rig->endpoint.rails[0];

	(void)state;
	hold_work(rig);
	assert_int_equal(fence(rig, PL_FRAME_FENCED, 0, 2), 0);
	assert_false(pl_list_empty(&rail->held));
	rail->link = VERBS_UP;
	assert_int_equal(fence(rig, PL_FRAME_FENCED, 0, 3), 0);
	assert_false(pl_list_empty(&rail->held));
	rail->link = VERBS_ASKING;
	assert_int_equal(fence(rig, PL_FRAME_FENCED, 0, 3), 0);
	assert_true(pl_list_empty(&rail->held));
	assert_ptr_equal(rig->endpoint.again.next, &rig->work->link);
	rig_free(rig);
}

/* A draining queue pair is quiet when all its requests are flushed. */
static void test_fence_draining(void **state)
{
	struct fault_rig *rig = rig_new();
	struct verbs_rail *rail = &rig->endpoint.rails[0];
	struct verbs_work *posted;

	(void)state;
	hold_work(rig);
	rail->link = VERBS_DRAINING;
	posted = pl_zalloc(&pl_system_allocator, sizeof(*posted));
	assert_non_null(posted);
	pl_list_append(&rail->posted, &posted->link);
	assert_int_equal(fence(rig, PL_FRAME_FENCED, 0, 3), 0);
	assert_false(pl_list_empty(&rail->held));
	pl_list_remove(&posted->link);
	pl_free(&pl_system_allocator, posted);
	assert_int_equal(fence(rig, PL_FRAME_FENCED, 0, 3), 0);
	assert_true(pl_list_empty(&rail->held));
	rig_free(rig);
}

/* Returns the number of frames of a type that wait to be sent. */
static unsigned messages(const struct fault_rig *rig, enum pl_frame_type type)
{
	unsigned count = 0;

	pl_list_for_each(at, &rig->endpoint.again)
		count += pl_list_entry(at, struct verbs_work, link)->frame.type == type;
	return count;
}

/* A live queue pair of the generation is failed before the answer. Others take nothing more of it. */
static void test_fence_questions(void **state)
{
	struct fault_rig *rig = rig_new();
	struct verbs_rail *rail = &rig->endpoint.rails[0];

	(void)state;
	assert_int_equal(fence(rig, PL_FRAME_FENCE, 0, rail->generation), 0);
	assert_true(rail->cut);
	assert_int_equal(messages(rig, PL_FRAME_FENCED), 0);
	verbs_fence_quiet(rail);
	assert_false(rail->cut);
	assert_int_equal(messages(rig, PL_FRAME_FENCED), 1);
	verbs_fence_quiet(rail);
	assert_int_equal(messages(rig, PL_FRAME_FENCED), 1);
	assert_int_equal(fence(rig, PL_FRAME_FENCE, 0, rail->generation - 1u), 0);
	assert_false(rail->cut);
	assert_int_equal(messages(rig, PL_FRAME_FENCED), 2);
	hold_work(rig);
	assert_int_equal(fence(rig, PL_FRAME_FENCE, 0, rail->generation), 0);
	assert_false(rail->cut);
	assert_int_equal(messages(rig, PL_FRAME_FENCED), 3);
	rig_free(rig);
}

/* An end asks for rails that hold work and are quiet, when a rail can carry the question. */
static void test_fence_asks(void **state)
{
	struct fault_rig *rig = rig_new();
	struct verbs_rail *rails = rig->endpoint.rails;

	(void)state;
	verbs_fence_ask(&rig->endpoint);
	assert_int_equal(messages(rig, PL_FRAME_FENCE), 0);
	hold_work(rig);
	rails[0].link = VERBS_UP;
	verbs_fence_ask(&rig->endpoint);
	assert_int_equal(messages(rig, PL_FRAME_FENCE), 0);
	rails[0].link = rails[1].link = VERBS_DOWN;
	verbs_fence_ask(&rig->endpoint);
	assert_int_equal(messages(rig, PL_FRAME_FENCE), 0);
	rails[1].link = VERBS_UP;
	verbs_fence_ask(&rig->endpoint);
	assert_int_equal(messages(rig, PL_FRAME_FENCE), 1);
	rails[1].link = VERBS_DOWN;
	rails[0].link = VERBS_UP;
	verbs_fence_ask(&rig->endpoint);
	assert_int_equal(messages(rig, PL_FRAME_FENCE), 1);
	rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_rail),        cmocka_unit_test(test_most_frames),
		cmocka_unit_test(test_taken_frames),    cmocka_unit_test(test_looks),
		cmocka_unit_test(test_nothing_missing), cmocka_unit_test(test_closing),
		cmocka_unit_test(test_strange_fences),  cmocka_unit_test(test_fence_answers),
		cmocka_unit_test(test_fence_draining), cmocka_unit_test(test_fence_questions),
		cmocka_unit_test(test_fence_asks), cmocka_unit_test(test_kept_bytes),
	};

	return cmocka_run_group_tests_name("verbs early", tests, NULL, NULL);
}
