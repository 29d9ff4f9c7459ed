/* SPDX-License-Identifier: BSD-2-Clause */
#include "engine/engine.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Most time that the engine's thread waits for other threads to take its lock. */
#define GIVE_WAY_TIME PL_NS_PER_MS
/* A hot source that found nothing this often goes back to epoll. A thread goes by time: poll_before_wait(). */
#define HOT_IDLE_ROUNDS 4096
/* With hot sources, epoll and the clock are polled once in this many rounds. */
#define ROUNDS_BETWEEN_EPOLL 32
/*
 * The same if all hot sources only read memory: this many rounds take less time than 32 of the others, and a system
 * call costs more of it.
 */
#define ROUNDS_OF_MEMORY 256
/* Tries of a polling thread to take the lock, before it sleeps until it is free. */
#define TRIES 1000

void pl_engine_lock(struct pl_engine *engine)
{
	if (!pl_lock_try(&engine->lock)) {
		atomic_fetch_add(&engine->waiting, 1);
		pl_lock_take(&engine->lock);
		atomic_fetch_sub(&engine->waiting, 1);
		atomic_fetch_add(&engine->handed, 1);
	}
	atomic_store_explicit(&engine->owner, pl_thread_self(), memory_order_relaxed);
	pl_engine_tick(engine);
}

/*
 * Lets one of the threads that wait for the lock take it. The engine's own thread, if it is always busy, would take the
 * lock again before the kernel has woken them.
 */
static void give_way(struct pl_engine *engine)
{
	unsigned handed = atomic_load(&engine->handed);
	uint64_t end;

	if (!atomic_load(&engine->waiting))
		return;
	end = pl_now() + GIVE_WAY_TIME;
	while (atomic_load(&engine->waiting) && atomic_load(&engine->handed) == handed && pl_now() < end)
		sched_yield();
}

static void release_lock(struct pl_engine *engine)
{
	atomic_store_explicit(&engine->owner, 0, memory_order_relaxed);
	pl_lock_release(&engine->lock);
}

void pl_engine_unlock(struct pl_engine *engine)
{
	if (atomic_load(&engine->task_count))
		pl_engine_run_tasks(engine, NULL);
	release_lock(engine);
	pl_engine_serve(engine);
}

/*
 * No other thread runs a task that was posted after pl_engine_run_tasks() and before the unlock: its poster saw the lock taken
 * and left.
 */
void pl_engine_serve(struct pl_engine *engine)
{
	while (atomic_load(&engine->task_count) && pl_engine_try(engine)) {
		pl_engine_run_tasks(engine, NULL);
		release_lock(engine);
	}
}

void pl_engine_finish_batch(struct pl_engine *engine)
{
	struct pl_batch_end *announcement;

	while (!pl_list_empty(&engine->batch_ends)) {
		struct pl_batch_end *end = pl_list_first(&engine->batch_ends, struct pl_batch_end, link);

		pl_list_remove(&end->link);
		end->run(end);
	}
	announcement = engine->announcement;
	engine->announcement = NULL;
	if (announcement)
		announcement->run(announcement);
}

void pl_engine_arm(struct pl_engine *engine, uint64_t when)
{
	struct itimerspec at = {
		.it_value = { .tv_sec = (time_t)(when / PL_NS_PER_S), .tv_nsec = (long)(when % PL_NS_PER_S) },
	};

	engine->armed = when;
	timerfd_settime(engine->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

/* Serves a batch of events. Stops early if a source was removed: later events may point to it. */
static bool dispatch_events(struct pl_engine *engine, int count)
{
	uint64_t removals = engine->removals;
	bool any = false;

	engine->computations = 0;
	for (int i = 0; i < count && engine->removals == removals; i++) {
		struct pl_source *source = engine->events[i].data.ptr;
		bool did;

		if (!source) {
			pl_timers_serve(engine);
			continue;
		}
		if (engine->events[i].data.ptr == engine) {
			/* Wakes a sleeper; the wake-up is late if no thread sleeps. */
			if (!atomic_load(&engine->led) && !(atomic_load(&engine->polling) && !engine->threaded))
				pl_engine_forget_wake(engine);
			continue;
		}
		pl_engine_tick(engine);
		did = source->ready(source, engine->events[i].events);
		if (engine->removals != removals)
			return true;
		if (did) {
			any = true;
			pl_engine_heat(engine, source);
		}
		if (source->idle && (!did || pl_list_empty(&source->hot) || pl_engine_eager(engine)))
			source->idle(source);
	}
	return any;
}

static bool poll_hot(struct pl_engine *engine)
{
	uint64_t removals = engine->removals, replacements = engine->replacements;
	bool any = false;

	pl_list_for_each_safe(at, next, &engine->hot) {
		struct pl_source *source = pl_list_entry(at, struct pl_source, hot);
		unsigned idle_rounds = source->idle_rounds;
		bool did;

		pl_engine_tick(engine);
		/* It is not replaced while it is being served. */
		source->idle_rounds = 0;
		did = source->ready(source, EPOLLIN);
		if (engine->removals != removals)
			return true;
		if (!did)
			source->idle_rounds = idle_rounds + 1;
		any |= did;
		if (engine->replacements != replacements)
			return true;
		if (!engine->threaded && source->idle_rounds > HOT_IDLE_ROUNDS)
			pl_engine_cool(engine, source);
		if (source->idle &&
		    ((!did && (!source->memory || pl_list_empty(&source->hot))) || pl_engine_eager(engine)))
			source->idle(source);
	}
	return any;
}

void pl_engine_polling(struct pl_engine *engine, bool polling)
{
	uint64_t one = 1;

	/* Wakes threads that sleep on the descriptors: a poller became active, and threads poll until it is idle. */
	if (atomic_exchange(&engine->polling, polling) != polling && polling &&
	    !(engine->threaded && pthread_equal(engine->thread, pthread_self())))
		(void)!write(engine->wake_fd, &one, sizeof(one));
}

static bool poll_device(struct pl_engine *engine)
{
	return atomic_load_explicit(&engine->polling, memory_order_relaxed) && engine->poller->poll(engine->poller);
}

/*
 * True if it is time to call epoll. A thread that sleeps on its descriptor between two rounds must not be woken in
 * vain.
 */
PL_ALWAYS_INLINE bool epoll_due(struct pl_engine *engine)
{
	unsigned rounds = engine->round++;

	/* No socket is hot in a crowded engine. */
	if (!engine->hot_count)
		return true;
	if (engine->hot_memory == engine->hot_count && !atomic_load_explicit(&engine->eager_idle, memory_order_relaxed))
		return rounds % ROUNDS_OF_MEMORY == 0;
	if (rounds - engine->last_look < engine->look_pause)
		return false;
	engine->last_look = rounds;
	return true;
}

bool pl_engine_progress_held(struct pl_engine *engine)
{
	bool any = atomic_load_explicit(&engine->task_count, memory_order_relaxed) && pl_engine_run_tasks(engine, NULL);

	any |= poll_device(engine);
	if (engine->hot_count)
		any |= poll_hot(engine);
	if (epoll_due(engine)) {
		int events = pl_engine_look(engine);
		uint64_t removals = engine->removals;
		bool found;

		pl_engine_note_crowd(engine, events);
		found = engine->removals != removals || dispatch_events(engine, events);
		/* Many sources may be busy, of which few are hot. */
		engine->look_pause = found ? 1 : PL_MIN(2 * engine->look_pause + 1, ROUNDS_BETWEEN_EPOLL);
		any |= found;
	}
	return any;
}

bool pl_engine_progress(struct pl_engine *engine)
{
	bool any;

	if (!pl_engine_try(engine))
		return false; /* another thread makes progress */
	any = pl_engine_progress_held(engine);
	pl_engine_leave(engine);
	return any;
}

/*
 * Polls the hot sources in place of waiting for events of their devices, which cost an interrupt and a wake-up each.
 * Returns true if the thread must not wait yet.
 */
static bool poll_before_wait(struct pl_engine *engine)
{
	uint64_t now;

	if (!engine->hot_count)
		return false;
	now = pl_clock_now(&engine->clock);
	if (poll_hot(engine))
		engine->hot_end = now + engine->poll_time;
	else if (now >= engine->hot_end || pl_pace_rests(&engine->pace, now))
		pl_engine_cool_all(engine);
	return engine->hot_count && !epoll_due(engine) && !atomic_load(&engine->polling);
}

/* Locks for the engine's thread. While it polls, it does not sleep for a lock that others hold for a moment. */
static void lock_between_polls(struct pl_engine *engine, bool polls)
{
	for (unsigned i = 0; polls && i < TRIES; i++) {
		if (pl_engine_try(engine))
			return;
		pl_relax();
	}
	pl_engine_lock(engine);
}

static void *engine_thread(void *argument)
{
	struct pl_engine *engine = argument;
	bool hot = false;

	pthread_setname_np(pthread_self(), "peerlane");
	while (!atomic_load(&engine->stopping)) {
		uint64_t removals;
		bool again;
		int count;

		lock_between_polls(engine, hot);
		again = poll_before_wait(engine);
		pl_engine_serve_handed(engine);
		hot = engine->hot_count;
		removals = engine->removals;
		pl_engine_unlock(engine);
		give_way(engine);
		if (again) {
			pl_relax(); /* a posting thread may find the lock free */
			continue;
		}

		if (hot)
			pl_engine_keep_pace(engine);
		count = hot ? pl_engine_look(engine) : pl_engine_wait(engine);

		lock_between_polls(engine, hot);
		/* Events fetched without the lock may name sources removed since. */
		if (engine->removals == removals)
			dispatch_events(engine, count);
		pl_engine_serve_handed(engine);
		poll_device(engine);
		pl_engine_unlock(engine);
		if (!engine->poll_time && atomic_load(&engine->polling))
			sched_yield(); /* other threads need the core more */
	}
	return NULL;
}

/* Watches a descriptor of the engine itself; a mark stands in place of a source. */
static int watch_descriptor(struct pl_engine *engine, int fd, void *mark, const char *call, struct pl_error *error)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = mark };

	if (fd < 0)
		return pl_fail_errno(error, -errno, "SYSTEM", call, NULL);
	if (epoll_ctl(engine->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return pl_fail_errno(error, -errno, "SYSTEM", "epoll_ctl", NULL);
	return 0;
}

static int engine_set_up(struct pl_engine *engine, struct pl_error *error)
{
	int rc;

	engine->scratch = pl_alloc(engine->allocator, PL_ENGINE_SCRATCH);
	if (!engine->scratch)
		return pl_fail_memory(error, "pl_open");
	engine->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (engine->epoll_fd < 0)
		return pl_fail_errno(error, -errno, "SYSTEM", "epoll_create1", NULL);
	engine->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = watch_descriptor(engine, engine->wake_fd, engine, "eventfd", error);
	if (rc < 0)
		return rc;
	engine->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return watch_descriptor(engine, engine->timer_fd, NULL, "timerfd_create", error);
}

int pl_engine_open(const struct pl_allocator *allocator, bool threaded, uint64_t poll_time, struct pl_engine **result,
		   struct pl_error *error)
{
	struct pl_engine *engine = pl_zalloc(allocator, sizeof(*engine));
	int rc;

	if (!engine)
		return pl_fail_memory(error, "pl_open");
	engine->allocator = allocator;
	engine->epoll_fd = engine->wake_fd = engine->timer_fd = -1;
	engine->armed = UINT64_MAX;
	engine->poll_time = poll_time;
	pl_lock_init(&engine->lock);
	pl_lock_init(&engine->task_lock);
	pl_list_init(&engine->tasks);
	pl_list_init(&engine->submitted);
	pl_list_init(&engine->taken);
	pl_list_init(&engine->due_tasks);
	pl_list_init(&engine->gathered);
	pl_list_init(&engine->handed_tasks);
	pl_list_init(&engine->due);
	pl_list_init(&engine->hot);
	pl_list_init(&engine->batch_ends);
	pl_list_init(&engine->operations.handles);
	pl_clock_open(&engine->clock);
	engine->operations.clock = engine->clock;
	pl_wheel_init(&engine->wheel, pl_now());
	rc = engine_set_up(engine, error);
	if (rc == 0 && threaded) {
		engine->threaded = true;
		rc = -pthread_create(&engine->thread, NULL, engine_thread, engine);
		if (rc < 0) {
			engine->threaded = false;
			pl_fail_errno(error, rc, "SYSTEM", "pthread_create", NULL);
		}
	}
	if (rc < 0) {
		pl_engine_close(engine);
		return rc;
	}
	*result = engine;
	return 0;
}

void pl_engine_stop(struct pl_engine *engine)
{
	if (!engine->threaded)
		return;
	atomic_store(&engine->stopping, true);
	pl_engine_wake(engine);
	pthread_join(engine->thread, NULL);
	pl_engine_take_over(engine);
}

void pl_engine_close(struct pl_engine *engine)
{
	if (!engine)
		return;
	pl_engine_stop(engine);
	if (engine->epoll_fd >= 0)
		close(engine->epoll_fd);
	if (engine->wake_fd >= 0)
		close(engine->wake_fd);
	if (engine->timer_fd >= 0)
		close(engine->timer_fd);
	pl_pool_drain(&engine->operations.pool, engine->allocator);
	pl_pool_drain(&engine->spare_operations, engine->allocator);
	pl_pool_drain(&engine->spare_sources, engine->allocator);
	pl_spare_drain(&engine->spare_buffers, engine->allocator);
	pl_free(engine->allocator, engine->scratch);
	pl_free(engine->allocator, engine);
}
