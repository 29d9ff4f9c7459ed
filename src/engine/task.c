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
	atomic_fetch_sub(task->handed ? &engine->handed_count : &engine->task_count, 1);
}

/* Returns the first task of a list, or the first one with that function; NULL: none. */
static struct pl_task *find_task(const struct pl_list *tasks, void (*kind)(struct pl_task *))
{
	pl_list_for_each(at, tasks) {
		struct pl_task *task = pl_list_entry(at, struct pl_task, link);

		if (!kind || task->run == kind)
			return task;
	}
	return NULL;
}

static void run_task(struct pl_engine *engine, struct pl_task *task)
{
	/*
	 * From here on the task may be posted again, or its function may free it. The exchange synchronizes with posters
	 * that found the task queued, so its function sees their data. A store would not.
	 */
	atomic_exchange(&task->queued, 0);
	pl_engine_tick(engine);
	task->run(task);
}

/* -- submitted tasks ------------------------------------------------------------------------------- */

/* Runs a task of `taken`. */
static void run_submitted(struct pl_engine *engine, struct pl_task *task)
{
	pl_list_remove(&task->link);
	if (pl_list_empty(&engine->taken)) {
		atomic_fetch_sub(&engine->task_count, engine->taken_count);
		engine->taken_count = 0;
	}
	pl_engine_tick(engine);
	task->run(task);
}

static void list_submitted(struct pl_engine *engine, struct pl_task *task)
{
	pl_lock_take(&engine->task_lock);
	pl_list_append(&engine->submitted, &task->link);
	engine->submitted_count++;
	atomic_fetch_add(&engine->task_count, 1);
	pl_lock_release(&engine->task_lock);
}

void pl_engine_submit(struct pl_engine *engine, struct pl_task *task)
{
	bool held = pl_engine_held(engine);
	bool locked = !held && pl_engine_try(engine);

	/* As pl_engine_post() does. */
	if (locked && atomic_load(&engine->task_count) == 0) {
		task->run(task);
		pl_engine_leave(engine);
		return;
	}
	list_submitted(engine, task);
	if (locked || (!held && pl_engine_try(engine)))
		pl_engine_unlock(engine);
}

/* -- running --------------------------------------------------------------------------------------- */

/*
 * Takes the next posted task that is due, or the next one with that function. If there is none, takes all submitted tasks, so that
 * the lock is taken once for them, and makes all posted ones due behind them. Later submitted ones wait for those: an endless stream
 * of them would hold up posted tasks for ever. Returns NULL if no posted task is next.
 */
static struct pl_task *take_posted(struct pl_engine *engine, void (*kind)(struct pl_task *))
{
	struct pl_task *found;

	pl_lock_take(&engine->task_lock);
	found = find_task(&engine->due_tasks, kind);
	if (!found) {
		pl_list_splice(&engine->taken, &engine->submitted);
		engine->taken_count += engine->submitted_count;
		engine->submitted_count = 0;
		pl_list_splice(&engine->due_tasks, &engine->tasks);
		if (!find_task(&engine->taken, kind))
			found = find_task(&engine->due_tasks, kind);
	}
	if (found)
		remove_task(engine, found);
	pl_lock_release(&engine->task_lock);
	return found;
}

/* Runs the next task, or the next one with that function. Returns false if there is none. */
static bool run_next_task(struct pl_engine *engine, void (*kind)(struct pl_task *))
{
	struct pl_task *submitted = find_task(&engine->taken, kind), *posted = NULL;

	if (!submitted) {
		posted = take_posted(engine, kind);
		submitted = posted ? NULL : find_task(&engine->taken, kind);
	}
	if (posted)
		run_task(engine, posted);
	else if (submitted)
		run_submitted(engine, submitted);
	return posted || submitted;
}

/* Runs at most `most` queued tasks. Returns true if it ran any. */
static bool run_some_tasks(struct pl_engine *engine, void (*kind)(struct pl_task *), unsigned most)
{
	bool any = false;

	while (most-- && atomic_load(&engine->task_count) && run_next_task(engine, kind))
		any = true;
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

/* Adds a task to a list. The caller holds engine->task_lock. */
static void list_task(struct pl_engine *engine, struct pl_task *task, bool hand)
{
	task->handed = hand;
	pl_list_append(hand ? &engine->handed_tasks : &engine->tasks, &task->link);
	atomic_store_explicit(&task->engine, engine, memory_order_relaxed);
	atomic_fetch_add(hand ? &engine->handed_count : &engine->task_count, 1);
}

/* Gives a queued task to any thread, if it was handed over. The caller holds engine->task_lock. */
static void release_task(struct pl_engine *engine, struct pl_task *task)
{
	if (atomic_load_explicit(&task->engine, memory_order_relaxed) != engine || !task->handed)
		return;
	remove_task(engine, task);
	list_task(engine, task, false);
}

/* Returns false if the task was queued already; any thread may run it then. */
static bool queue_task(struct pl_engine *engine, struct pl_task *task)
{
	unsigned before = atomic_fetch_or(&task->queued, PL_TASK_POSTED);

	/* The owner of a task that is posted already may end at any time. */
	if (before & PL_TASK_POSTED)
		return false;
	pl_lock_take(&engine->task_lock);
	if (!before)
		list_task(engine, task, false);
	else
		release_task(engine, task);
	pl_lock_release(&engine->task_lock);
	return !before;
}

bool pl_engine_post(struct pl_engine *engine, struct pl_task *task)
{
	bool held = pl_engine_held(engine);
	bool queued, locked = !held && pl_engine_try(engine);

	/* The lock is free and no task is queued, nor is this one handed over: runs the task directly. */
	if (locked && atomic_load(&engine->task_count) == 0 &&
	    !atomic_load_explicit(&task->queued, memory_order_relaxed)) {
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

/*
 * Ends the sleep of the engine's thread, after work was counted for it: an increment of handed_count or task_count. That thread
 * stores `asleep` before it reads both counts for the last time. So it sees the work, or this function sees it asleep. One waker
 * of several makes the system call.
 */
static void wake_thread(struct pl_engine *engine)
{
	uint64_t one = 1;

	if (atomic_load(&engine->asleep) && atomic_exchange(&engine->asleep, false))
		(void)!write(engine->wake_fd, &one, sizeof(one));
}

bool pl_engine_post_to_thread(struct pl_engine *engine, struct pl_task *task)
{
	bool queued;

	if (!engine->threaded)
		return pl_engine_post(engine, task);
	queued = queue_task(engine, task);
	wake_thread(engine);
	/* The thread ended meanwhile. */
	if (!engine->threaded)
		pl_engine_serve(engine);
	return queued;
}

void pl_engine_submit_to_thread(struct pl_engine *engine, struct pl_task *task)
{
	if (!engine->threaded) {
		pl_engine_submit(engine, task);
		return;
	}
	list_submitted(engine, task);
	wake_thread(engine);
	/* The thread ended meanwhile. */
	if (!engine->threaded)
		pl_engine_serve(engine);
}

void pl_engine_hand_over(struct pl_engine *engine, struct pl_task *task)
{
	bool threaded;

	if (!engine->threaded) {
		pl_engine_post(engine, task);
		return;
	}
	if (atomic_fetch_or(&task->queued, PL_TASK_HANDED_OVER))
		return;
	pl_lock_take(&engine->task_lock);
	threaded = engine->threaded;
	list_task(engine, task, threaded);
	pl_lock_release(&engine->task_lock);
	if (threaded)
		wake_thread(engine);
	else
		pl_engine_serve(engine);
}

void pl_source_hand_over(struct pl_source *source)
{
	struct pl_engine *engine = source->engine;

	if (!pl_list_empty(&source->due))
		return;
	pl_list_append(&engine->due, &source->due);
	atomic_fetch_add(&engine->handed_count, 1);
	wake_thread(engine);
}

static struct pl_task *take_handed_task(struct pl_engine *engine)
{
	struct pl_task *task;

	pl_lock_take(&engine->task_lock);
	task = find_task(&engine->handed_tasks, NULL);
	if (task)
		remove_task(engine, task);
	pl_lock_release(&engine->task_lock);
	return task;
}

static void run_handed_tasks(struct pl_engine *engine)
{
	bool outer = !engine->poll_time || pl_engine_begin_batch(engine);
	struct pl_task *task;

	for (unsigned most = TASKS_OF_A_BATCH; most && (task = take_handed_task(engine)); most--)
		run_task(engine, task);
	pl_engine_end_batch(engine, outer);
}

void pl_engine_serve_handed(struct pl_engine *engine)
{
	struct pl_list due;
	uint64_t removals;

	if (!atomic_load(&engine->handed_count))
		return;
	run_handed_tasks(engine);
	/* ready() may remove other sources. A source that hands itself over again waits for the next round. */
	pl_list_init(&due);
	pl_list_splice(&due, &engine->due);
	while (!pl_list_empty(&due)) {
		struct pl_source *source = pl_list_first(&due, struct pl_source, due);

		pl_list_remove(&source->due);
		atomic_fetch_sub(&engine->handed_count, 1);
		removals = engine->removals;
		pl_engine_tick(engine);
		source->ready(source, EPOLLOUT);
		/* A source may have read, too, as a TLS stream does: idle() acknowledges. */
		if (engine->removals == removals && source->idle)
			source->idle(source);
	}
}

void pl_engine_take_over(struct pl_engine *engine)
{
	pl_lock_take(&engine->task_lock);
	engine->threaded = false;
	while (!pl_list_empty(&engine->handed_tasks))
		release_task(engine, pl_list_first(&engine->handed_tasks, struct pl_task, link));
	pl_lock_release(&engine->task_lock);
	pl_engine_serve(engine);
}

void pl_engine_withdraw(struct pl_engine *engine, struct pl_task *task)
{
	struct pl_engine *at = atomic_load_explicit(&task->engine, memory_order_relaxed);

	if (at)
		engine = at;
	pl_lock_take(&engine->task_lock);
	if (atomic_load_explicit(&task->engine, memory_order_relaxed) == engine) {
		remove_task(engine, task);
		atomic_store(&task->queued, 0);
	}
	pl_lock_release(&engine->task_lock);
}
