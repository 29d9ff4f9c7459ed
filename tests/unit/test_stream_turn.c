/* SPDX-License-Identifier: BSD-2-Clause */
/* Turns: threads that poll, and waiters that make progress themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/context.h"
#include "stream/turn.h"

#define MS ((uint64_t)1000000)

struct rig {
	struct pl_context *context;
	struct pl_turn turn;
	struct pl_task task;
};

static void rig_open(struct rig *rig, enum pl_progress progress, uint64_t poll_time)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_error error;

	*rig = (struct rig){ 0 };
	options.progress = progress;
	options.poll_time = poll_time;
	assert_int_equal(pl_open(&rig->context, &options, &error), 0);
}

/* A thread that polls sees a turn, or another value of the word. */
static void test_poll(void **state)
{
	uint64_t word = 5;
	struct rig rig;

	(void)state;
	rig_open(&rig, PL_PROGRESS_THREAD, MS);
	assert_false(pl_turn_poll(rig.context, &rig.turn, 0, NULL, 0, UINT64_MAX));
	assert_false(pl_turn_poll(rig.context, &rig.turn, 0, &word, 5, UINT64_MAX));
	assert_true(pl_turn_poll(rig.context, &rig.turn, 0, &word, 4, UINT64_MAX));
	pl_turn_next(rig.context, &rig.turn);
	assert_true(pl_turn_poll(rig.context, &rig.turn, 0, NULL, 0, UINT64_MAX));
	assert_true(pl_turn_poll(rig.context, &rig.turn, 0, &word, 5, UINT64_MAX));
	assert_true(pl_turn_wait(rig.context, &rig.turn, 0, UINT64_MAX));
	assert_false(pl_turn_wait(rig.context, &rig.turn, 1, pl_now() + 2 * MS));
	pl_close(rig.context);
	rig_open(&rig, PL_PROGRESS_THREAD, PL_NO_POLLING);
	pl_turn_next(rig.context, &rig.turn);
	assert_false(pl_turn_poll(rig.context, &rig.turn, 0, NULL, 0, UINT64_MAX));
	assert_true(pl_turn_wait(rig.context, &rig.turn, 0, UINT64_MAX));
	pl_close(rig.context);
}

static void next_turn(struct pl_task *task)
{
	struct rig *rig = pl_container_of(task, struct rig, task);

	pl_turn_next(rig->context, &rig->turn);
}

/* A turn that the waiter's own progress brings counts, also after the time is over. */
static void test_progress(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig, PL_PROGRESS_MANUAL, 0);
	pl_task_init(&rig.task, next_turn);
	assert_false(pl_turn_wait(rig.context, &rig.turn, 0, 1));
	assert_false(pl_turn_wait(rig.context, &rig.turn, 0, pl_now() + 20 * MS));
	pl_engine_post_to_thread(rig.context->engines[0], &rig.task);
	assert_true(pl_turn_wait(rig.context, &rig.turn, 0, 1));
	assert_true(pl_turn_wait(rig.context, &rig.turn, 0, 1));
	assert_int_equal(atomic_load(&rig.turn.sleepers), 0);
	pl_close(rig.context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_poll),
		cmocka_unit_test(test_progress),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
