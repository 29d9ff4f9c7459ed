/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sleepers in an engine without a thread: woken by a call, by the deadline, and for polling. Threads that want the lock,
 * or post a task, beside others. Sources that the engine reads without epoll.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine/engine.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/process.h"
#include "support/system_call.h"

static struct pl_engine *engine_open(void)
{
	struct pl_engine *engine;
	struct pl_error error;

	check_ok(pl_engine_open(&pl_system_allocator, false, 0, &engine, &error), &error);
	return engine;
}

static void engine_close(struct pl_engine *engine)
{
	pl_engine_stop(engine);
	pl_engine_close(engine);
}

static void until_deadline(void *unused)
{
	struct pl_engine *engine = engine_open();
	uint64_t deadline = pl_now() + 20 * PL_NS_PER_MS;

	(void)unused;
	pl_engine_sleep(engine, atomic_load(&engine->turn), deadline);
	check(pl_now() >= deadline);
	engine_close(engine);
}

/* Makes epoll_pwait2() fail, as an old kernel or the system call filter of a container does. */
static void without_nanoseconds(void *argument)
{
	static const long numbers[] = { SYS_epoll_pwait2 };

	refuse_system_calls(numbers, 1, *(const int *)argument);
	until_deadline(NULL);
}

static void *wake_engine(void *engine)
{
	pl_engine_wake(engine);
	return NULL;
}

static void until_woken(void *unused)
{
	struct pl_engine *engine = engine_open();
	unsigned turn = atomic_load(&engine->turn);
	pthread_t thread;

	(void)unused;
	check_number(pthread_create(&thread, NULL, wake_engine, engine), 0);
	pl_engine_sleep(engine, turn, UINT64_MAX);
	pthread_join(thread, NULL);
	engine_close(engine);
}

/* Checks that each sleep ends at once while the engine polls.  No descriptor signals the end of a GPU copy. */
static void while_polling(void *unused)
{
	struct pl_engine *engine = engine_open();

	(void)unused;
	pl_engine_lock(engine);
	pl_engine_polling(engine, true);
	pl_engine_unlock(engine);
	for (int i = 0; i < 3; i++)
		pl_engine_sleep(engine, atomic_load(&engine->turn), UINT64_MAX);
	pl_engine_polling(engine, false);
	engine_close(engine);
}

static const unsigned missing = ENOSYS, forbidden = EPERM;
/* Keeps the engine's thread busy: there is always work, and it takes a millisecond. */
static bool busy_source(struct pl_source *source, uint32_t events)
{
	uint64_t end = pl_now() + PL_NS_PER_MS;

	(void)source;
	(void)events;
	while (pl_now() < end)
		;
	return true;
}

/* A thread that is always busy lets others have the lock: a flood of one peer must not stop calls of the program. */
static void lock_of_a_busy_engine(void *argument)
{
	enum { ROUNDS = 100 };
	struct pl_source source = { .fd = eventfd(1, EFD_CLOEXEC), .ready = busy_source };
	struct pl_engine *engine;
	struct pl_error error;
	uint64_t begin;

	(void)argument;
	check_ok(pl_engine_open(&pl_system_allocator, true, 20000, &engine, &error), &error);
	pl_engine_lock(engine);
	check_number(pl_source_add(engine, &source, EPOLLIN), 0);
	pl_engine_unlock(engine);
	begin = pl_now();
	for (int i = 0; i < ROUNDS; i++) {
		pl_engine_lock(engine);
		pl_engine_unlock(engine);
		nanosleep(&(struct timespec){ .tv_nsec = PL_NS_PER_MS }, NULL);
	}
	fprintf(stderr, "%d locks in %.1f ms\n", ROUNDS, (double)(pl_now() - begin) / 1e6);
	/* About one visit each.  Without turns, the engine keeps the lock. */
	check(pl_now() - begin < slowness() * ROUNDS * 300 * PL_NS_PER_MS);
	pl_engine_lock(engine);
	pl_source_remove(&source);
	pl_engine_unlock(engine);
	close(source.fd);
	engine_close(engine);
}

struct late_post {
	struct pl_engine *engine;
	struct pl_task task;
	unsigned data, seen;
	atomic_bool posted;
};

static void see_data(struct pl_task *task)
{
	struct late_post *late = pl_container_of(task, struct late_post, task);

	late->seen = late->data;
}

static void *post_with_data(void *argument)
{
	struct late_post *late = argument;

	late->data = 1;
	check(!pl_engine_post(late->engine, &late->task));
	atomic_store_explicit(&late->posted, true, memory_order_relaxed);
	return NULL;
}

/*
 * A task that is queued when a thread posts it must see the data of that thread. Only the task's own word orders them
 * here, so ThreadSanitizer reports a race if the engine takes the task without an acquire operation on the word.
 */
static void post_of_a_queued_task(void *unused)
{
	struct late_post late = { .engine = engine_open() };
	pthread_t thread;

	(void)unused;
	pl_task_init(&late.task, see_data);
	pl_engine_lock(late.engine);
	check(pl_engine_post(late.engine, &late.task));
	check_number(pthread_create(&thread, NULL, post_with_data, &late), 0);
	while (!atomic_load_explicit(&late.posted, memory_order_relaxed))
		sched_yield();
	pl_engine_unlock(late.engine);
	check_number(late.seen, 1);
	pthread_join(thread, NULL);
	engine_close(late.engine);
}

struct counted_task {
	struct pl_task task;
	unsigned runs;
};

static void count_run(struct pl_task *task)
{
	pl_container_of(task, struct counted_task, task)->runs++;
}

/*
 * The poster of a queued task left, because it found the lock taken. The lock is free now, and the engine's thread may sleep: a
 * thread that posts the same task again must run it.
 */
static void post_of_a_task_left_behind(void *unused)
{
	struct counted_task counted = { .runs = 0 };
	struct pl_engine *engine = engine_open();

	(void)unused;
	pl_task_init(&counted.task, count_run);
	/* With a thread, the task is only queued. */
	atomic_store(&engine->threaded, true);
	pl_engine_hand_over(engine, &counted.task);
	atomic_store(&engine->threaded, false);
	check_number(counted.runs, 0);
	check(!pl_engine_post(engine, &counted.task));
	check_number(counted.runs, 1);
	engine_close(engine);
}

/* Source with an eventfd: counts the looks that found something, those that did not, and calls of idle(). */
struct busy_source {
	struct pl_source source;
	unsigned found, missed, idle;
};

static bool busy_source_ready(struct pl_source *source, uint32_t events)
{
	struct busy_source *busy = pl_container_of(source, struct busy_source, source);
	uint64_t value;

	(void)events;
	if (read(source->fd, &value, sizeof(value)) != sizeof(value)) {
		busy->missed++;
		return false;
	}
	busy->found++;
	return true;
}

static void busy_source_idle(struct pl_source *source)
{
	pl_container_of(source, struct busy_source, source)->idle++;
}

#define CROWD (2 * PL_ENGINE_HOT_MAX)

static void make_busy(struct busy_source *sources, unsigned count)
{
	const uint64_t one = 1;

	for (unsigned i = 0; i < count; i++)
		check_number(write(sources[i].source.fd, &one, sizeof(one)), sizeof(one));
}

/* Progress until each of the first `count` sources has found `times` values. */
static void progress_until_found(struct pl_engine *engine, const struct busy_source *sources, unsigned count,
				 unsigned times)
{
	for (unsigned i = 0; i < count; i++)
		while (sources[i].found < times)
			pl_engine_progress(engine);
}

/*
 * Of many busy sources none is read on suspicion: epoll finds them all, and their idle() follows each event. Once few are
 * busy, these are read without epoll again.
 */
static void crowd_of_busy_sources(void *unused)
{
	struct pl_engine *engine = engine_open();
	struct busy_source sources[CROWD] = { 0 };
	unsigned idle;

	(void)unused;
	for (unsigned i = 0; i < CROWD; i++) {
		sources[i].source = (struct pl_source){ .fd = eventfd(0, EFD_NONBLOCK),
							.pollable = true,
							.ready = busy_source_ready,
							.idle = busy_source_idle };
		check_number(pl_source_add(engine, &sources[i].source, EPOLLIN), 0);
	}
	for (unsigned round = 1; round <= 10; round++) {
		make_busy(sources, CROWD);
		progress_until_found(engine, sources, CROWD, round);
		/* The answers of the others are awaited. */
		for (unsigned i = 0; i < 3; i++)
			check(!pl_engine_progress(engine));
	}
	for (unsigned i = 0; i < CROWD; i++) {
		check_number(sources[i].missed, 0);
		check(sources[i].idle >= 10);
	}
	check_number(engine->hot_count, 0);
	make_busy(sources, 1);
	progress_until_found(engine, sources, 1, 11);
	check_number(engine->hot_count, 1);
	idle = sources[0].idle;
	pl_engine_progress(engine);
	check(sources[0].missed && sources[0].idle > idle);
	make_busy(sources, CROWD);
	progress_until_found(engine, sources, CROWD, 11);
	check_number(engine->hot_count, 0);
	for (unsigned i = 0; i < CROWD; i++) {
		pl_engine_lock(engine);
		pl_source_remove(&sources[i].source);
		pl_engine_unlock(engine);
		close(sources[i].source.fd);
	}
	engine_close(engine);
}

/* Source that finds something at each look, and counts calls of idle(). */
static bool steady_source_ready(struct pl_source *source, uint32_t events)
{
	(void)source;
	(void)events;
	return true;
}

/*
 * A thread sleeps on the descriptor as the leader, and another one makes progress: it polls a source without epoll, and may stop
 * after each round. So the source must get idle(), without which its device may report nothing to the leader. The leader itself
 * would race for the events, so only its mark is set.
 */
static void progress_beside_leader(void *argument)
{
	struct busy_source busy = { .source = { .fd = eventfd(1, EFD_NONBLOCK),
						.pollable = true,
						.memory = *(const bool *)argument,
						.ready = steady_source_ready,
						.idle = busy_source_idle } };
	struct pl_engine *engine = engine_open();

	check_number(pl_source_add(engine, &busy.source, EPOLLIN), 0);
	/* The event makes the source hot. */
	check(pl_engine_progress(engine));
	check_number(engine->hot_count, 1);
	check_number(busy.idle, 0);
	atomic_store(&engine->led, true);
	check(pl_engine_progress(engine));
	check(busy.idle);
	/* By an event as well. */
	pl_engine_lock(engine);
	pl_engine_cool_all(engine);
	pl_engine_unlock(engine);
	busy.idle = 0;
	check(pl_engine_progress(engine));
	check(busy.idle);
	check_number(engine->hot_count, 1);
	atomic_store(&engine->led, false);
	pl_engine_lock(engine);
	pl_source_remove(&busy.source);
	pl_engine_unlock(engine);
	close(busy.source.fd);
	engine_close(engine);
}

/* The owner of a task moves to another engine while the task is queued at the first one, and withdraws it there. */
static void withdraw_after_move(void *unused)
{
	struct pl_engine *first = engine_open(), *second = engine_open();
	struct counted_task counted = { .runs = 0 };

	(void)unused;
	pl_task_init(&counted.task, count_run);
	pl_engine_lock(first);
	check(pl_engine_post(first, &counted.task));
	pl_engine_lock(second);
	pl_engine_withdraw(second, &counted.task);
	check_number(atomic_load(&first->task_count), 0);
	check_number(atomic_load(&second->task_count), 0);
	check(pl_engine_post(second, &counted.task));
	pl_engine_unlock(second);
	pl_engine_unlock(first);
	check_number(counted.runs, 1);
	engine_close(first);
	engine_close(second);
}

static const bool of_memory = true, of_sockets = false;

static const struct test_case cases[] = {
	{ "sleep-until-deadline", until_deadline, NULL, 10 },
	{ "sleep-call-missing", without_nanoseconds, &missing, 10 },
	{ "sleep-call-forbidden", without_nanoseconds, &forbidden, 10 },
	{ "sleep-until-woken", until_woken, NULL, 10 },
	{ "sleep-while-polling", while_polling, NULL, 10 },
	{ "lock of a busy engine", lock_of_a_busy_engine, NULL, 30 },
	{ "post-of-a-queued-task", post_of_a_queued_task, NULL, 10 },
	{ "post-of-a-task-left-behind", post_of_a_task_left_behind, NULL, 10 },
	{ "crowd", crowd_of_busy_sources, NULL, 10 },
	{ "progress-beside-leader", progress_beside_leader, &of_sockets, 10 },
	{ "progress-beside-leader-memory", progress_beside_leader, &of_memory, 10 },
	{ "withdraw-after-move", withdraw_after_move, NULL, 10 },
};

int main(void)
{
	return cases_run("engine", cases, sizeof(cases) / sizeof(cases[0]));
}
