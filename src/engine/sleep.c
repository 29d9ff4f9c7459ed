/* SPDX-License-Identifier: BSD-2-Clause */
/* Sleep of an engine's own thread, and of threads that wait on an engine without one. */
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/engine.h"

void pl_engine_forget_wake(struct pl_engine *engine)
{
	uint64_t value;

	(void)!read(engine->wake_fd, &value, sizeof(value));
}

static struct timespec to_timespec(uint64_t time)
{
	return (struct timespec){ .tv_sec = (time_t)(time / PL_NS_PER_S), .tv_nsec = (long)(time % PL_NS_PER_S) };
}

/* Waits for events and leaves them to the next progress, which fetches and serves them. */
static void sleep_on_epoll(struct pl_engine *engine, uint64_t left)
{
	struct epoll_event event;
	struct timespec timeout;

	pl_engine_lock(engine);
	pl_engine_cool_all(engine);
	if (atomic_load(&engine->polling))
		left = 0;
	pl_engine_unlock(engine);
	timeout = to_timespec(left);
	/*
	 * glibc has the function from 2.35, RHEL 9 has 2.34. Kernels before 5.11, and older seccomp filters of containers,
	 * lack the call.
	 */
	if (syscall(SYS_epoll_pwait2, engine->epoll_fd, &event, 1, left == UINT64_MAX ? NULL : &timeout, NULL, 0) < 0 &&
	    (errno == ENOSYS || errno == EPERM))
		epoll_wait(engine->epoll_fd, &event, 1, (int)PL_MIN(left / PL_NS_PER_MS + 1, (uint64_t)1000));
	/* No other thread reads the eventfd, so no wake-up of the sleeper is lost. */
	pl_engine_forget_wake(engine);
}

static void begin_next_turn(struct pl_engine *engine)
{
	atomic_fetch_add(&engine->turn, 1);
	syscall(SYS_futex, &engine->turn, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void pl_engine_sleep(struct pl_engine *engine, unsigned turn, uint64_t deadline)
{
	uint64_t now = pl_now();
	uint64_t left = deadline == UINT64_MAX ? UINT64_MAX : deadline > now ? deadline - now : 0;
	struct timespec timeout = to_timespec(left);

	if (atomic_exchange(&engine->led, true)) {
		syscall(SYS_futex, &engine->turn, FUTEX_WAIT_PRIVATE, turn, left == UINT64_MAX ? NULL : &timeout, NULL,
			0);
		return;
	}
	if (atomic_load(&engine->turn) == turn)
		sleep_on_epoll(engine, left);
	atomic_store(&engine->led, false);
	begin_next_turn(engine); /* another waiter becomes the leader */
}

void pl_engine_wake(struct pl_engine *engine)
{
	uint64_t one = 1;

	begin_next_turn(engine);
	(void)!write(engine->wake_fd, &one, sizeof(one));
}

/* Sleeps until there are events, or tasks and sources that other threads hand over. */
static int sleep_until_events(struct pl_engine *engine)
{
	int count = 0;

	atomic_store(&engine->asleep, true);
	if (!atomic_load(&engine->handed_count) && !atomic_load(&engine->task_count))
		count = epoll_wait(engine->epoll_fd, engine->events, PL_ENGINE_EVENTS, -1);
	atomic_store(&engine->asleep, false);
	return count;
}

int pl_engine_look(struct pl_engine *engine)
{
	return epoll_wait(engine->epoll_fd, engine->events, PL_ENGINE_EVENTS, 0);
}

/* Returns how often the core went from the calling thread, which could have run on, to another one. */
static long count_core_losses(void)
{
	struct rusage usage = { 0 };

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nivcsw;
}

uint64_t pl_engine_keep_pace(struct pl_engine *engine)
{
	uint64_t now = pl_now();
	long count;

	if (!pl_pace_is_due(&engine->pace, now))
		return now;
	/* The thread did not poll in a rest, so what it lost then tells nothing about polling. */
	if (pl_pace_rested(&engine->pace))
		engine->core_losses = count_core_losses();
	/* A thread that waits for the core gets it, and the kernel counts that as a loss. */
	sched_yield();
	count = count_core_losses();
	now = pl_now();
	pl_pace_note(&engine->pace, now, count != engine->core_losses);
	engine->core_losses = count;
	return now;
}

int pl_engine_wait(struct pl_engine *engine)
{
	uint64_t now, end;
	int count;

	if (atomic_load(&engine->polling))
		return pl_engine_look(engine);
	if (engine->poll_time == 0)
		return sleep_until_events(engine);
	now = pl_engine_keep_pace(engine);
	if (pl_pace_rests(&engine->pace, now))
		return sleep_until_events(engine);
	end = now + engine->poll_time;
	do {
		count = pl_engine_look(engine);
		if (count != 0 || atomic_load(&engine->polling) || atomic_load(&engine->handed_count) ||
		    atomic_load(&engine->task_count))
			return count;
	} while (pl_now() < end);
	return sleep_until_events(engine);
}
