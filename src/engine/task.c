/* SPDX-License-Identifier: BSD-2-Clause */
/* Tasks of an engine: any thread queues them, and the holder of the engine's lock runs them. */
#include <limits.h>
#include <unistd.h>

#include "engine/engine.h"

/* Most tasks of a batch. */
#define TASKS_OF_A_BATCH 16u

/* The caller holds engine->task_lock. */
static void remove_task(struct pl_engine *engine, struct pl_task *task)
{
	pl_list_remove(&task->link);
	atomic_store_explicit(&task->engine, NULL, memory_order_relaxed);
	atomic_fetch_sub(&engine->task_count, 1);
}

/* Takes the first task, or the first one with that function. */
static struct pl_task *take_task(struct pl_engine *engine, void (*kind)(struct pl_task *))
{
	struct pl_task *found = NULL;

	pl_lock_take(&engine->task_lock);
	pl_list_for_each(at, &engine->tasks) {
		struct pl_task *task = pl_list_entry(at, struct pl_task, link);

		if (kind && task->run != kind)
			continue;
		remove_task(engine, task);
		found = task;
		break;
	}
	pl_lock_release(&engine->task_lock);
	return found;
}

/* Runs at most `most` queued tasks. Returns true if it ran any. */
static bool run_some_tasks(struct pl_engine *engine, void (*kind)(struct pl_task *), unsigned most)
{
	struct pl_task *task;
	bool any = false;

	while (most-- && atomic_load(&engine->task_count) && (task = take_task(engine, kind))) {
		/*
		 * From here on the task may be posted again, or its function may free it. The exchange synchronizes
		 * with posters that found the task queued, so its function sees their data. A store would not.
		 */
		atomic_exchange(&task->queued, false);
		pl_engine_tick(engine);
		task->run(task);
		any = true;
	}
	return any;
}

bool pl_engine_run_tasks(struct pl_engine *engine, void (*kind)(struct pl_task *))
{
	bool any = false, more = true;

	if (!engine->poll_time)
		return run_some_tasks(engine, kind, UINT_MAX);
	while (more && atomic_load(&engine->task_count)) {
		bool outer = pl_engine_begin_batch(engine);

		more = run_some_tasks(engine, kind, TASKS_OF_A_BATCH);
		any |= more;
		pl_engine_end_batch(engine, outer);
	}
	return any;
}

/* Returns false if the task was queued already. */
static bool queue_task(struct pl_engine *engine, struct pl_task *task)
{
	if (atomic_exchange(&task->queued, true))
		return false;
	pl_lock_take(&engine->task_lock);
	pl_list_append(&engine->tasks, &task->link);
	atomic_store_explicit(&task->engine, engine, memory_order_relaxed);
	atomic_fetch_add(&engine->task_count, 1);
	pl_lock_release(&engine->task_lock);
	return true;
}

bool pl_engine_post(struct pl_engine *engine, struct pl_task *task)
{
	bool held = pl_engine_held(engine);
	bool queued, locked = !held && pl_engine_try(engine);

	/* The lock is free and no task is queued: runs the task directly. */
	if (locked && atomic_load(&engine->task_count) == 0) {
		task->run(task);
		pl_engine_leave(engine);
		return true;
	}
	/* The unlock runs queued tasks, too: their posters, perhaps of this one, found the lock taken and left. */
	queued = queue_task(engine, task);
	if (locked || (queued && !held && pl_engine_try(engine)))
		pl_engine_unlock(engine);
	return queued;
}

void pl_engine_hand_over(struct pl_engine *engine, struct pl_task *task)
{
	uint64_t one = 1;

	if (!engine->threaded)
		pl_engine_post(engine, task);
	else if (queue_task(engine, task) && atomic_load(&engine->asleep) && atomic_exchange(&engine->asleep, false))
		(void)!write(engine->wake_fd, &one, sizeof(one));
}

void pl_engine_withdraw(struct pl_engine *engine, struct pl_task *task)
{
	struct pl_engine *at = atomic_load_explicit(&task->engine, memory_order_relaxed);

	if (at)
		engine = at;
	pl_lock_take(&engine->task_lock);
	if (atomic_load_explicit(&task->engine, memory_order_relaxed) == engine) {
		remove_task(engine, task);
		atomic_store(&task->queued, false);
	}
	pl_lock_release(&engine->task_lock);
}
