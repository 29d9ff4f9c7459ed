/* SPDX-License-Identifier: BSD-2-Clause */
/* Checks of a subscriber: which frames each judges, whatever the order in which they end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "stream/subscriber.h"

#define SLOTS 4u
#define FRAMES (PL_CHECKS_MAX + 2)

/* A subscriber without a connection. The test stands for the publisher: it writes the cursors that a check has read. */
struct rig {
	struct pl_context *context;
	struct pl_subscriber subscriber;
	struct pl_stream_frame frames[FRAMES];
};

static int rig_open(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_subscriber *subscriber = &rig->subscriber;
	struct pl_list *const lists[] = { &subscriber->window, &subscriber->spare, &subscriber->promises };
	struct pl_error error;

	assert_int_equal(pl_open(&rig->context, &options, &error), 0);
	assert_int_equal(pl_region_allocate(rig->context, PL_CHECKS_SIZE, PL_ACCESS_LOCAL, &subscriber->memory.control, &error),
			 0);
	subscriber->context = rig->context;
	subscriber->geometry.slots = SLOTS;
	subscriber->phase = PL_SUBSCRIBER_LIVE;
	subscriber->state = PL_STREAM_LIVE;
	subscriber->event_fd = -1;
	for (unsigned i = 0; i < PL_ARRAY_SIZE(lists); i++)
		pl_list_init(lists[i]);
	pl_checks_init(subscriber);
	*state = rig;
	return 0;
}

static int rig_close(void **state)
{
	struct rig *rig = *state;

	pl_region_deregister(rig->subscriber.memory.control);
	pl_close(rig->context);
	free(rig);
	return 0;
}

/* Puts the next frame into the window. All its reads have ended. */
static struct pl_stream_frame *read_frame(struct rig *rig)
{
	struct pl_subscriber *subscriber = &rig->subscriber;
	struct pl_stream_frame *frame = &rig->frames[subscriber->window_count++];

	frame->subscriber = subscriber;
	frame->sequence = subscriber->accounts.next++;
	frame->described = true;
	frame->state = PL_FRAME_UNCHECKED;
	subscriber->accounts.pending++;
	pl_list_append(&subscriber->window, &frame->link);
	return frame;
}

static struct pl_stream_check *begin_check(struct rig *rig)
{
	struct pl_stream_check *check = pl_check_begin(&rig->subscriber);

	assert_non_null(check);
	return check;
}

/* Ends a check that has read these cursors. */
static void end_check_with(struct rig *rig, struct pl_stream_check *check, uint64_t claimed, uint64_t published)
{
	struct pl_ring ring = { .control = (uint8_t *)pl_region_address(rig->subscriber.memory.control) +
					   pl_check_offset(check) - PL_RING_HEADER };

	memset(ring.control + PL_RING_HEADER, 0, PL_RING_CURSORS);
	pl_ring_set_state(&ring, PL_STREAM_LIVE);
	pl_ring_publish(&ring, published);
	pl_ring_claim_below(&ring, claimed);
	pl_check_end(check, 0);
}

static void end_check(struct rig *rig, struct pl_stream_check *check, uint64_t claimed)
{
	end_check_with(rig, check, claimed, claimed);
}

static void test_later_frames_have_their_own_check(void **state)
{
	struct rig *rig = *state;
	struct pl_stream_frame *first = read_frame(rig), *second;
	struct pl_stream_check *early = begin_check(rig), *late;

	second = read_frame(rig);
	late = begin_check(rig);
	assert_ptr_not_equal(early, late);
	assert_int_not_equal(pl_check_offset(early), pl_check_offset(late));
	end_check(rig, early, SLOTS);
	assert_int_equal(first->state, PL_FRAME_READY);
	assert_int_equal(second->state, PL_FRAME_CHECKING);
	/* Since then the publisher has claimed the slots of both. */
	end_check(rig, late, SLOTS + 2);
	assert_int_equal(first->state, PL_FRAME_READY);
	assert_int_equal(second->state, PL_FRAME_FREE);
	assert_int_equal(rig->subscriber.accounts.lapped, 1);
	assert_int_equal(rig->subscriber.check_count, 2);
}

/* A frame whose reads end while a check is under way waits for the next one. */
static void test_check_ignores_frames_read_after_it(void **state)
{
	struct rig *rig = *state;
	struct pl_stream_frame *first = read_frame(rig), *second;
	struct pl_stream_check *check = begin_check(rig);

	second = read_frame(rig);
	end_check(rig, check, SLOTS);
	assert_int_equal(first->state, PL_FRAME_READY);
	assert_int_equal(second->state, PL_FRAME_UNCHECKED);
}

static void test_checks_end_in_any_order(void **state)
{
	struct rig *rig = *state;
	struct pl_stream_frame *first = read_frame(rig), *second;
	struct pl_stream_check *early = begin_check(rig), *late;

	second = read_frame(rig);
	late = begin_check(rig);
	end_check(rig, late, SLOTS + 1);
	assert_int_equal(second->state, PL_FRAME_READY);
	assert_int_equal(first->state, PL_FRAME_CHECKING);
	/* The publisher answered the first check before it claimed that slot. */
	end_check(rig, early, SLOTS);
	assert_int_equal(first->state, PL_FRAME_READY);
	assert_int_equal(rig->subscriber.phase, PL_SUBSCRIBER_LIVE);
	assert_int_equal(rig->subscriber.claimed, SLOTS + 1);
}

static void test_cursors_that_go_back_end_the_subscriber(void **state)
{
	struct rig *rig = *state;

	read_frame(rig);
	end_check(rig, begin_check(rig), 3);
	read_frame(rig);
	end_check(rig, begin_check(rig), 2);
	assert_int_equal(rig->subscriber.phase, PL_SUBSCRIBER_OVER);
	assert_string_equal(rig->subscriber.failure.id, "STREAM-PROTOCOL");
	assert_int_equal(rig->subscriber.accounts.missed, 1);
}

static void test_one_cursor_that_goes_back_ends_the_subscriber(void **state)
{
	struct rig *rig = *state;

	for (unsigned i = 0; i < 2; i++) {
		if (i == 1) {
			rig_close(state);
			rig_open(state);
			rig = *state;
		}
		read_frame(rig);
		end_check_with(rig, begin_check(rig), 4, 2);
		assert_int_equal(rig->subscriber.phase, PL_SUBSCRIBER_LIVE);
		read_frame(rig);
		end_check_with(rig, begin_check(rig), i == 0 ? 3 : 4, i == 0 ? 2 : 1);
		assert_int_equal(rig->subscriber.phase, PL_SUBSCRIBER_OVER);
		assert_string_equal(rig->subscriber.failure.id, "STREAM-PROTOCOL");
	}
}

static void test_number_of_checks_is_limited(void **state)
{
	struct rig *rig = *state;
	struct pl_stream_check *checks[PL_CHECKS_MAX];
	struct pl_stream_frame *last;

	assert_null(pl_check_begin(&rig->subscriber));
	for (unsigned i = 0; i < PL_CHECKS_MAX; i++) {
		read_frame(rig);
		checks[i] = begin_check(rig);
	}
	last = read_frame(rig);
	assert_null(pl_check_begin(&rig->subscriber));
	assert_int_equal(last->state, PL_FRAME_UNCHECKED);
	end_check(rig, checks[1], SLOTS);
	assert_ptr_equal(begin_check(rig), checks[1]);
	assert_int_equal(last->state, PL_FRAME_CHECKING);
}

/* Frames of a check that failed are missed, and those of other checks are not. */
static void test_failure_concerns_one_check(void **state)
{
	struct rig *rig = *state;
	struct pl_stream_frame *first = read_frame(rig), *second;
	struct pl_stream_check *early = begin_check(rig), *late;

	second = read_frame(rig);
	late = begin_check(rig);
	pl_check_end(early, -EACCES);
	assert_int_equal(first->state, PL_FRAME_FREE);
	assert_int_equal(second->state, PL_FRAME_CHECKING);
	assert_int_equal(rig->subscriber.accounts.missed, 1);
	end_check(rig, late, SLOTS);
	assert_int_equal(second->state, PL_FRAME_READY);
}

/* The next frame uses the memory of the last free one. */
static void test_last_free_memory_is_next(void **state)
{
	struct rig *rig = *state;
	struct pl_stream_frame *first = read_frame(rig), *second = read_frame(rig);

	end_check(rig, begin_check(rig), SLOTS + 2);
	assert_int_equal(rig->subscriber.accounts.lapped, 2);
	assert_ptr_equal(pl_list_first(&rig->subscriber.spare, struct pl_stream_frame, link), second);
	assert_ptr_equal(second->link.next, &first->link);
}

/* A check leaves the wake-up to its caller, which has released the lock by then. */
static void test_check_wakes_nobody(void **state)
{
	struct rig *rig = *state;
	struct pl_stream_frame *frame = read_frame(rig);
	unsigned seen = pl_turn_read(&rig->subscriber.turn);

	end_check(rig, begin_check(rig), SLOTS);
	assert_int_equal(frame->state, PL_FRAME_READY);
	assert_int_equal(pl_turn_read(&rig->subscriber.turn), seen);
}

/* The trailing word of a frame judges it, and no other. */
static void test_trailing_word_judges_its_frame(void **state)
{
	struct rig *rig = *state;
	struct pl_stream_frame *first = read_frame(rig), *second = read_frame(rig), *third = read_frame(rig);

	first->state = second->state = third->state = PL_FRAME_READING;
	pl_check_trailing(second, SLOTS + 1, rig->context->engines[0]);
	assert_int_equal(second->state, PL_FRAME_READY);
	assert_int_equal(rig->subscriber.claimed, SLOTS + 1);
	pl_check_trailing(first, SLOTS + 1, rig->context->engines[0]);
	assert_int_equal(first->state, PL_FRAME_FREE);
	assert_int_equal(rig->subscriber.accounts.lapped, 1);
	assert_int_equal(third->state, PL_FRAME_READING);
	/* The server of this frame answered before the others. */
	pl_check_trailing(third, SLOTS, rig->context->engines[0]);
	assert_int_equal(third->state, PL_FRAME_READY);
	assert_int_equal(rig->subscriber.claimed, SLOTS + 1);
	assert_int_equal(rig->subscriber.phase, PL_SUBSCRIBER_LIVE);
	assert_int_equal(rig->subscriber.check_count, 0);
}

/* The program is woken once for all frames of a batch. */
static void test_batch_wakes_once(void **state)
{
	struct rig *rig = *state;
	struct pl_engine *engine = rig->context->engines[0];
	struct pl_turn *turn = &rig->subscriber.turn;
	unsigned seen = pl_turn_read(turn);

	pl_engine_lock(engine);
	engine->batching = true;
	for (unsigned i = 0; i < 2; i++) {
		read_frame(rig)->state = PL_FRAME_READING;
		pl_check_trailing(&rig->frames[i], SLOTS, engine);
		assert_int_equal(rig->frames[i].state, PL_FRAME_READY);
		assert_int_equal(pl_turn_read(turn), seen);
	}
	pl_engine_end_batch(engine, false);
	assert_int_equal(pl_turn_read(turn), seen + 1);
	read_frame(rig)->state = PL_FRAME_READING;
	pl_check_trailing(&rig->frames[2], SLOTS, engine);
	assert_int_equal(pl_turn_read(turn), seen + 2);
	pl_engine_unlock(engine);
}

/* Nothing was claimed between two reads of the cursors. */
static void test_same_cursors(void **state)
{
	struct rig *rig = *state;
	struct pl_stream_frame *frame;

	for (unsigned i = 0; i < 3; i++) {
		read_frame(rig);
		end_check(rig, begin_check(rig), SLOTS);
	}
	frame = read_frame(rig);
	frame->state = PL_FRAME_READING;
	frame->claimed = SLOTS;
	pl_check_trailing(frame, SLOTS, rig->context->engines[0]);
	assert_int_equal(frame->state, PL_FRAME_READY);
	assert_int_equal(rig->subscriber.phase, PL_SUBSCRIBER_LIVE);
}

/* Later reads and checks are not older than a value that was known when they were posted. */
static void test_trailing_words_that_cannot_be(void **state)
{
	static const uint64_t values[] = { 0, 1, 2, PL_RING_SEQUENCE_MAX + 1, UINT64_MAX };
	struct rig *rig = *state;

	for (unsigned i = 0; i < PL_ARRAY_SIZE(values); i++) {
		struct pl_stream_frame *frame;

		if (i) {
			rig_close(state);
			rig_open(state);
			rig = *state;
		}
		read_frame(rig)->state = PL_FRAME_READING;
		pl_check_trailing(&rig->frames[0], 3, rig->context->engines[0]);
		assert_int_equal(rig->subscriber.phase, PL_SUBSCRIBER_LIVE);
		frame = read_frame(rig);
		frame->state = PL_FRAME_READING;
		frame->claimed = rig->subscriber.read_claimed;
		pl_check_trailing(frame, values[i], rig->context->engines[0]);
		assert_int_equal(rig->subscriber.phase, PL_SUBSCRIBER_OVER);
		assert_string_equal(rig->subscriber.failure.id, "STREAM-PROTOCOL");
		assert_int_equal(rig->subscriber.accounts.missed, 1);
	}
	rig_close(state);
	rig_open(state);
	rig = *state;
	/* A frame that was published had been claimed. */
	read_frame(rig)->state = PL_FRAME_READING;
	pl_check_trailing(&rig->frames[0], 0, rig->context->engines[0]);
	assert_int_equal(rig->subscriber.phase, PL_SUBSCRIBER_OVER);
	rig_close(state);
	rig_open(state);
	rig = *state;
	read_frame(rig)->state = PL_FRAME_READING;
	rig->frames[0].sequence = PL_RING_SEQUENCE_MAX - 1;
	pl_check_trailing(&rig->frames[0], PL_RING_SEQUENCE_MAX, rig->context->engines[0]);
	assert_int_equal(rig->frames[0].state, PL_FRAME_READY);
	/* A check must not find older cursors, either. */
	rig->frames[1].sequence = 0;
	end_check(rig, (read_frame(rig), begin_check(rig)), 3);
	assert_int_equal(rig->subscriber.phase, PL_SUBSCRIBER_OVER);
}

/* A wrong descriptor ends the subscriber, which keeps the promise of the next frame while the check walks through the window. */
static void test_wrong_descriptor_before_a_promise(void **state)
{
	struct rig *rig = *state;
	struct pl_frame_status status = { 0 };
	struct pl_stream_frame *first = read_frame(rig), *second;
	struct pl_stream_check *early = begin_check(rig), *late;

	first->described = false;
	second = read_frame(rig);
	second->promised = second->on_stream = true;
	second->status = &status;
	rig->subscriber.held++;
	late = begin_check(rig);
	end_check(rig, late, SLOTS + 1);
	assert_int_equal(second->state, PL_FRAME_READY);
	end_check(rig, early, SLOTS);
	assert_int_equal(first->state, PL_FRAME_FREE);
	assert_int_equal(second->state, PL_FRAME_HELD);
}

/* -- looks for a frame for which a stream waits -------------------------------------------------------------------------- */

/* Makes a stream wait. The caller holds the engine: the thread of the context polls nothing meanwhile. */
static struct pl_engine *promise_open(struct rig *rig)
{
	struct pl_subscriber *subscriber = &rig->subscriber;
	struct pl_engine *engine = rig->context->engines[0];

	subscriber->engine = engine;
	pl_promises_poll_init(subscriber);
	pl_list_append(&subscriber->promises, &rig->frames[0].link);
	rig->context->options.poll_time = PL_NS_PER_S;
	pl_engine_lock(engine);
	return engine;
}

static void promise_close(struct rig *rig, struct pl_engine *engine)
{
	pl_watch_remove(&rig->subscriber.promise_watch);
	pl_list_remove(&rig->frames[0].link);
	pl_engine_unlock(engine);
}

static bool polls_now(struct rig *rig)
{
	bool polls;

	pl_promises_poll(&rig->subscriber);
	polls = !pl_list_empty(&rig->subscriber.promise_watch.link);
	pl_watch_remove(&rig->subscriber.promise_watch);
	return polls;
}

/* The engine polls for a stream that waits for a frame that may come, unless the program's threads poll, or nothing may. */
static void test_polls_for_promises(void **state)
{
	struct rig *rig = *state;
	struct pl_engine *engine = promise_open(rig);
	struct pl_options *options = &rig->context->options;
	const enum pl_progress progress = options->progress;

	assert_true(polls_now(rig));
	options->poll_time = PL_NO_POLLING;
	assert_false(polls_now(rig));
	options->poll_time = 0;
	assert_true(polls_now(rig));
	options->progress = PL_PROGRESS_MANUAL;
	assert_false(polls_now(rig));
	options->progress = progress;
	rig->subscriber.phase = PL_SUBSCRIBER_AWAY;
	assert_false(polls_now(rig));
	rig->subscriber.phase = PL_SUBSCRIBER_LIVE;
	pl_list_remove(&rig->frames[0].link);
	assert_false(polls_now(rig));
	promise_close(rig, engine);
}

/* Reads cursors of two published frames. */
static bool read_cursors(struct pl_endpoint *endpoint, struct pl_sync_op *read)
{
	struct pl_ring ring = { .control = (uint8_t *)pl_region_address(read->segment.region) + read->segment.offset -
					   PL_RING_HEADER };

	(void)endpoint;
	pl_ring_set_state(&ring, PL_STREAM_LIVE);
	pl_ring_claim_below(&ring, 2);
	pl_ring_publish(&ring, 2);
	return true;
}

/* A look that finds frames gives them their fates, and the polling ends once no stream waits. */
static void test_look_admits_frames(void **state)
{
	static const struct pl_fabric_ops ops = { .name = "none", .sync_try = read_cursors };
	struct rig *rig = *state;
	struct pl_engine *engine = promise_open(rig);
	struct pl_subscriber *subscriber = &rig->subscriber;
	struct pl_endpoint endpoint = { 0 };
	struct pl_remote control = { 0 };
	struct pl_peer *peer = calloc(1, sizeof(*peer));

	assert_non_null(peer);
	peer->ops = &ops;
	peer->endpoint = &endpoint;
	subscriber->peer = peer;
	subscriber->control = &control;
	/* A paused subscriber wants no frame, so that none is read. */
	subscriber->paused = true;
	subscriber->every = 1;
	pl_promises_poll(subscriber);
	assert_true(subscriber->promise_watch.poll(&subscriber->promise_watch));
	assert_int_equal(subscriber->accounts.next, 2);
	assert_false(pl_list_empty(&subscriber->promise_watch.link));
	/* The same cursors are no news. */
	assert_false(subscriber->promise_watch.poll(&subscriber->promise_watch));
	assert_false(pl_list_empty(&subscriber->promise_watch.link));
	pl_list_remove(&rig->frames[0].link);
	subscriber->promise_watch.poll(&subscriber->promise_watch);
	assert_true(pl_list_empty(&subscriber->promise_watch.link));
	subscriber->peer = NULL;
	free(peer);
	promise_close(rig, engine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_later_frames_have_their_own_check, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_check_ignores_frames_read_after_it, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_checks_end_in_any_order, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_cursors_that_go_back_end_the_subscriber, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_one_cursor_that_goes_back_ends_the_subscriber, rig_open,
						rig_close),
		cmocka_unit_test_setup_teardown(test_number_of_checks_is_limited, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_failure_concerns_one_check, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_last_free_memory_is_next, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_check_wakes_nobody, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_trailing_word_judges_its_frame, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_batch_wakes_once, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_same_cursors, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_wrong_descriptor_before_a_promise, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_polls_for_promises, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_look_admits_frames, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_trailing_words_that_cannot_be, rig_open, rig_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
