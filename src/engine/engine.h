/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Engine: drives sockets, tasks and timers. One thread at a time runs an engine, under the engine's lock: the engine's
 * own thread, or a thread that calls pl_engine_progress(). The lock protects the engine's sources and their owners.
 *
 * Other threads queue tasks without waiting for the lock. The holder of the lock runs a queued task, or its poster does
 * if the lock is free.
 */
#ifndef PL_ENGINE_H
#define PL_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/pool.h"
#include "base/spare_buffers.h"
#include "engine/pace.h"

struct pl_engine;
struct pl_operation;
struct pl_context;

/* File descriptor that an engine watches. Embedded in its owner. */
struct pl_source {
	int fd;
	uint32_t events; /* EPOLLIN, EPOLLOUT */
	/* True if a busy source is polled without epoll, to save time. A thread polls only sources in memory. */
	bool pollable;
	/*
	 * True if ready() makes no system call when it finds nothing. While such a source is hot, the engine skips
	 * idle(), unless a thread sleeps on the descriptor: pl_engine_eager().
	 */
	bool memory;
	unsigned idle_rounds; /* rounds in a row in which ready() found nothing */
	struct pl_list hot;
	struct pl_list due; /* in the engine's `due` */
	struct pl_engine *engine;
	/* Handles possible events. Returns true if there were any. Under the lock. */
	bool (*ready)(struct pl_source *source, uint32_t events);
	/* Sends held-back data when the engine has nothing more to do. Optional. */
	void (*idle)(struct pl_source *source);
};

/* Bits of `queued` of a task: it was posted, or handed over, since it ran the last time. */
#define PL_TASK_POSTED 1u
#define PL_TASK_HANDED_OVER 2u

/* Work for an engine. Embedded in its owner, which must live until the task ran. */
struct pl_task {
	struct pl_list link;
	atomic_uint queued;               /* bits; 0 unless the task is in a list, or about to be */
	struct pl_engine *_Atomic engine; /* whose list has the task; NULL: none. Changes under its task_lock */
	bool handed;                      /* in `handed_tasks`; protected by the same lock */
	void (*run)(struct pl_task *task);
};

/*
 * Work that no descriptor reports the end of, for example copies by a device. While pl_engine_polling() reports work,
 * the engine polls and does not sleep. Embedded in its owner.
 */
struct pl_poller {
	/* Polls. Returns true if anything happened. Under the lock. */
	bool (*poll)(struct pl_poller *poller);
	/* Waits until all work that began is done. Under the lock. */
	void (*drain)(struct pl_poller *poller);
};

/*
 * Work for the end of a batch of completions or frames, because it costs a system call each time. Embedded in its owner.
 */
struct pl_batch_end {
	struct pl_list link;
	void (*run)(struct pl_batch_end *end);
};

/* Deadline. Embedded in its owner. Expires up to 10 ms late, never early. */
struct pl_timer {
	struct pl_list link;
	uint64_t deadline;
	void (*expire)(struct pl_timer *timer);
};

#define PL_WHEEL_SLOTS 512

struct pl_wheel {
	uint64_t tick; /* all slots up to this tick were served */
	size_t count;
	uint64_t occupied[PL_WHEEL_SLOTS / 64];
	struct pl_list slots[PL_WHEEL_SLOTS];
};

/* Most engines of a context. */
#define PL_ENGINES_MAX 64
#define PL_ENGINE_SCRATCH (128u << 10)
/* Bytes of control messages that an engine stores for one channel: a message of the largest size, and its header. */
#define PL_ENGINE_MESSAGES 8448u
#define PL_ENGINE_EVENTS 64
/* Most long computations, such as steps of TLS handshakes, in a batch of events: other sources get their turn. */
#define PL_ENGINE_COMPUTATIONS 4
/* Most hot sources. */
#define PL_ENGINE_HOT_MAX 4

/*
 * Memory of the operations of an engine's peers, and those with a handle of the program. Each engine has one: threads that use
 * peers with different homes write no common cache line. The pool's latch protects all members.
 */
struct pl_operation_store {
	struct pl_pool pool;    /* freed operations */
	struct pl_list handles; /* operations with a handle */
	struct pl_clock clock;  /* of synchronous operations of threads without a state */
};

struct pl_engine {
	const struct pl_allocator *allocator;
	struct pl_lock lock;
	atomic_ulong owner; /* pl_thread_self() of the lock's holder, 0 if free */
	atomic_uint waiting, handed; /* threads that wait for the lock, and number of those that waited and got it */
	/* Stands here so that what other threads write for each task has a cache line of its own. */
	struct pl_clock clock;

	struct pl_lock task_lock;
	struct pl_list tasks;
	atomic_uint task_count;   /* of `tasks`, `submitted`, `due_tasks` and `taken` */
	struct pl_list submitted; /* tasks of pl_engine_submit(), which are taken together */
	unsigned submitted_count;
	struct pl_list handed_tasks; /* for the engine's own thread */
	struct pl_list due;       /* sources to which that thread reports EPOLLOUT; the engine's lock protects them */
	atomic_uint handed_count; /* number of both */

	uint64_t armed;     /* time at which timer_fd fires; UINT64_MAX: never */
	uint64_t hot_end;   /* the thread polls hot sources until then; each success sets it anew */

	struct pl_list hot;
	unsigned hot_count, hot_memory; /* number of hot sources, and of those that only read memory */
	unsigned round;
	unsigned last_look, look_pause; /* round of the last call of epoll, and rounds until the next one */
	bool crowded; /* true if more sources are busy than can be hot: epoll finds them all, and no socket is hot */
	uint64_t now; /* time read after pl_engine_tick(); 0: not read yet */
	bool batching;                     /* true during a batch */
	struct pl_list batch_ends;         /* work for its end */
	struct pl_batch_end *announcement; /* of the batch's completions, after all other work; NULL: none is due */
	uint64_t removals; /* number of removed sources: a change makes fetched events stale */
	uint64_t replacements; /* number of hot sources that were cooled for others */
	struct epoll_event events[PL_ENGINE_EVENTS];
	unsigned computations; /* long computations in this batch of events */
	struct pl_wheel wheel;
	atomic_bool eager_idle; /* true if threads of the program may sleep on the descriptor: pl_fd() */

	atomic_bool led;  /* true while a waiting thread sleeps on epoll_fd: the leader */
	atomic_uint turn; /* futex of the other waiting threads; a change makes them check for work again */

	struct pl_poller *poller; /* NULL: none */
	atomic_bool polling;      /* true while the poller has unfinished work */

	uint8_t *scratch; /* PL_ENGINE_SCRATCH bytes for the thread that runs the engine */
	/* Unsent bytes of the control channel `messages_owner`, so that a message needs no allocation; NULL: of none. */
	const void *messages_owner;
	/* Threads that give work to this one read these. Here they are in no cache line that the engine's rounds write. */
	int epoll_fd;
	int wake_fd;  /* ends the thread's sleep */
	int timer_fd; /* fires when a timer may be due, so that epoll_fd reports all work */
	/* True if the engine has a thread. When engines stop one after the other, threads of later ones may still look. */
	atomic_bool threaded;
	atomic_bool stopping;
	atomic_bool asleep; /* true while the thread sleeps, or is about to */
	pthread_t thread;
	uint64_t poll_time; /* nanoseconds that the thread polls before it sleeps, unless polling rests */
	struct pl_pace pace;
	long core_losses; /* how often the core had gone from the thread to another one at its last look */
	uint8_t messages[PL_ENGINE_MESSAGES];
	/* Operations of the core. The program's threads write this for each one: in no cache line with what the engine writes. */
	struct pl_operation_store operations;
	uint8_t apart[PL_CACHE_LINE];
	/* Submitted tasks that the lock's holder runs next. They count in task_count until the last one begins. */
	struct pl_list taken;
	unsigned taken_count;
	struct pl_list due_tasks; /* posted tasks that run behind those, before later submitted ones; task_lock */
	/* Completions of the batch that are not queued yet; of the core. */
	struct pl_list gathered;
	unsigned gathered_count;
	struct pl_context *gathered_context;
	struct pl_batch_end gathered_end; /* its announcement */
	/* Operations that threads of other engines finished, the last one first, and the task that completes them; of the core. */
	struct pl_operation *_Atomic finished;
	struct pl_task finish_task;
	struct pl_pool spare_operations; /* of the core; the engine's lock protects it */
	struct pl_pool spare_sources;    /* likewise, of sources of large messages */
	struct pl_spare_buffers spare_buffers; /* of encrypted sockets */
};

/*
 * Opens an engine. threaded: starts a thread that drives it. poll_time: nanoseconds that the thread polls before it sleeps.
 */
int pl_engine_open(const struct pl_allocator *allocator, bool threaded, uint64_t poll_time, struct pl_engine **engine,
		   struct pl_error *error);

/* Ends the thread, if there is one. All sources must be removed. */
void pl_engine_stop(struct pl_engine *engine);
void pl_engine_close(struct pl_engine *engine);

void pl_engine_lock(struct pl_engine *engine);
/* Runs tasks that were queued meanwhile, then unlocks. */
void pl_engine_unlock(struct pl_engine *engine);
/* Runs tasks that other threads queued while the lock was held. Does nothing if another thread holds the lock now. */
void pl_engine_serve(struct pl_engine *engine);

/* Returns a nonzero number that no other thread has: pthread_self(), without a call where possible. */
static inline unsigned long pl_thread_self(void)
{
#ifdef __has_builtin
#if __has_builtin(__builtin_thread_pointer)
#define PL_THREAD_POINTER 1
#endif
#endif
#ifdef PL_THREAD_POINTER
	return (unsigned long)__builtin_thread_pointer();
#else
	return (unsigned long)pthread_self();
#endif
}

static inline bool pl_engine_held(const struct pl_engine *engine)
{
	return atomic_load_explicit(&engine->owner, memory_order_relaxed) == pl_thread_self();
}

/*
 * True if a thread may sleep on the descriptor. The engine then calls idle() of hot sources, too: the thread that reads them
 * without epoll may stop at any time, and only events wake the sleeper. A leader sets `led` before its last look at the sources
 * under the lock, so a later holder of the lock sees it. Under the lock.
 */
PL_ALWAYS_INLINE bool pl_engine_eager(const struct pl_engine *engine)
{
	return atomic_load_explicit(&engine->eager_idle, memory_order_relaxed) ||
	       atomic_load_explicit(&engine->led, memory_order_relaxed);
}

/* Drops the cached time: later events get a new one. Under the lock. */
static inline void pl_engine_tick(struct pl_engine *engine)
{
	engine->now = 0;
}

/* Returns the time, read once for all events of one look at a socket or queue. Under the lock. */
PL_ALWAYS_INLINE uint64_t pl_engine_now(struct pl_engine *engine)
{
	if (!engine->now)
		engine->now = pl_clock_now(&engine->clock);
	return engine->now;
}

/*
 * Begin and end a batch, for example the frames of one look at a socket. The first function returns true if a batch had begun,
 * which the second one then leaves open. Under the lock.
 */
static inline bool pl_engine_begin_batch(struct pl_engine *engine)
{
	bool outer = engine->batching;

	engine->batching = true;
	return outer;
}

void pl_engine_finish_batch(struct pl_engine *engine);
static inline void pl_engine_end_batch(struct pl_engine *engine, bool outer)
{
	if (outer)
		return;
	if (engine->announcement || !pl_list_empty(&engine->batch_ends))
		pl_engine_finish_batch(engine);
	engine->batching = false;
}

/*
 * Counts a long computation. Returns false if this batch of events has had enough of them: the source leaves its event, which
 * epoll reports again behind those of other sources. Under the lock.
 */
static inline bool pl_engine_may_compute(struct pl_engine *engine)
{
	return engine->computations < PL_ENGINE_COMPUTATIONS && ++engine->computations;
}

/*
 * Locks the engine and returns true if the lock is free; returns false otherwise. pl_engine_leave() unlocks the engine.
 * Both are inline and call no function if no other thread uses the engine: every operation runs both.
 */
PL_ALWAYS_INLINE bool pl_engine_try(struct pl_engine *engine)
{
	if (!pl_lock_try(&engine->lock))
		return false;
	atomic_store_explicit(&engine->owner, pl_thread_self(), memory_order_relaxed);
	pl_engine_tick(engine);
	return true;
}

PL_ALWAYS_INLINE void pl_engine_leave(struct pl_engine *engine)
{
	if (atomic_load_explicit(&engine->task_count, memory_order_relaxed)) {
		pl_engine_unlock(engine);
		return;
	}
	atomic_store_explicit(&engine->owner, 0, memory_order_relaxed);
	pl_lock_release(&engine->lock);
	if (atomic_load(&engine->task_count))
		pl_engine_serve(engine);
}

/*
 * Runs the task under the lock: now if the lock is free, else soon, by its holder. Returns false if the task was queued
 * already.
 */
bool pl_engine_post(struct pl_engine *engine, struct pl_task *task);
/*
 * Queues the task for the engine's own thread, so that no other thread does its work, and wakes that thread if it sleeps.
 * pl_engine_post() of the task gives it to any thread. An engine without a thread runs it as pl_engine_post() does.
 */
void pl_engine_hand_over(struct pl_engine *engine, struct pl_task *task);
/*
 * Queues the task in its turn among the posted ones and leaves it to the engine's own thread, which it wakes if that sleeps. The
 * caller never runs it, but another thread that uses the engine may. Returns false if the task was queued already.
 */
bool pl_engine_post_to_thread(struct pl_engine *engine, struct pl_task *task);
/*
 * As pl_engine_post() and pl_engine_post_to_thread(), for a task that is not queued and that nobody takes back: the engine takes all
 * such tasks at once, and runs them in their order, before any task that was posted after them.
 */
void pl_engine_submit(struct pl_engine *engine, struct pl_task *task);
void pl_engine_submit_to_thread(struct pl_engine *engine, struct pl_task *task);
/* True if pl_engine_hand_over() would have to wake a thread, which costs the caller a system call. */
static inline bool pl_engine_asleep(const struct pl_engine *engine)
{
	return atomic_load_explicit(&engine->asleep, memory_order_relaxed);
}
/*
 * Queues a task that ends operations. An engine that polls runs it in its own thread, which has the peer's lists in its cache; a
 * thread that sleeps would take longer to wake up.
 */
static inline void pl_engine_post_end(struct pl_engine *engine, struct pl_task *task)
{
	if (engine->poll_time && !pl_engine_asleep(engine))
		pl_engine_post_to_thread(engine, task);
	else
		pl_engine_post(engine, task);
}
/*
 * task.c: runs queued tasks; with `kind` only those whose function that is, before all others. Returns true if it ran any. Under
 * the lock. Where engines poll, some tasks are one batch, whose frames are sent together: others post further tasks meanwhile.
 */
bool pl_engine_run_tasks(struct pl_engine *engine, void (*kind)(struct pl_task *));
/* Runs the tasks and serves the sources that other threads left to the engine's own thread, which calls this under the lock. */
void pl_engine_serve_handed(struct pl_engine *engine);
/* Gives all tasks of the engine's thread, which has ended, to other threads. */
void pl_engine_take_over(struct pl_engine *engine);
/*
 * Takes back a queued task that did not begin. Under the lock. If the task's owner has moved to this engine, the task may still be
 * queued at another one, which may be running it.
 */
void pl_engine_withdraw(struct pl_engine *engine, struct pl_task *task);

/* Does one round of work without sleeping, for engines without a thread. Returns true if anything happened. */
bool pl_engine_progress(struct pl_engine *engine);
/* Does one round of work, as pl_engine_progress() does, for a caller that holds the lock. */
bool pl_engine_progress_held(struct pl_engine *engine);

/*
 * Waits for work in an engine without a thread. Returns when work may exist, or at `deadline` (time of pl_now()). The
 * caller reads `turn` from engine->turn. A pl_engine_wake() after that reading ends the wait too.
 */
void pl_engine_sleep(struct pl_engine *engine, unsigned turn, uint64_t deadline);

/* Ends the sleep of all threads in pl_engine_sleep(), or of the engine's thread. */
void pl_engine_wake(struct pl_engine *engine);
/* sleep.c: fetches the events that are there, as pl_engine_wait() does. */
int pl_engine_look(struct pl_engine *engine);
/* sleep.c: looks at the scheduler if it is time. Returns the present time. The engine's own thread, without locks. */
uint64_t pl_engine_keep_pace(struct pl_engine *engine);
/* sleep.c: the engine's own thread polls for a while, then sleeps. Returns the number of events in engine->events. */
int pl_engine_wait(struct pl_engine *engine);
/* sleep.c: reads wake_fd, so that earlier calls of pl_engine_wake() end no later sleep. */
void pl_engine_forget_wake(struct pl_engine *engine);

/* Reports that the poller has unfinished work (true), or has none (false). Under the lock. */
void pl_engine_polling(struct pl_engine *engine, bool polling);

/* Needs no lock: the engine learns of the source from the kernel, and may call it at once. */
int pl_source_add(struct pl_engine *engine, struct pl_source *source, uint32_t events);
/* Sources and timers: the caller holds the engine's lock. */
int pl_source_watch(struct pl_source *source, uint32_t events);
void pl_source_remove(struct pl_source *source);
/*
 * Makes the engine's own thread report EPOLLOUT to the source, which it need not watch: without a system call if that thread is
 * awake. For engines with a thread.
 */
void pl_source_hand_over(struct pl_source *source);
void pl_timer_set(struct pl_engine *engine, struct pl_timer *timer, uint64_t deadline);
void pl_timer_clear(struct pl_engine *engine, struct pl_timer *timer);
static inline void pl_timer_init(struct pl_timer *timer, void (*expire)(struct pl_timer *))
{
	pl_list_init(&timer->link);
	timer->deadline = 0;
	timer->expire = expire;
}
static inline void pl_task_init(struct pl_task *task, void (*run)(struct pl_task *))
{
	pl_list_init(&task->link);
	atomic_init(&task->queued, 0);
	atomic_init(&task->engine, NULL);
	task->run = run;
}

/*
 * source.c, under the lock. heat: the engine polls a busy source, if it is pollable; no call if it is hot. cool: epoll watches
 * it again. cool_all: cools all hot sources, and calls their idle().
 */
void pl_engine_make_hot(struct pl_engine *engine, struct pl_source *source);
PL_ALWAYS_INLINE void pl_engine_heat(struct pl_engine *engine, struct pl_source *source)
{
	source->idle_rounds = 0;
	if (pl_list_empty(&source->hot))
		pl_engine_make_hot(engine, source);
}
void pl_engine_cool(struct pl_engine *engine, struct pl_source *source);
void pl_engine_cool_all(struct pl_engine *engine);
/*
 * Decides, by the number of events that epoll found, whether hot sources are worth their system calls. Without events the
 * decision stays: the answers of many sources may be on their way. For engines without a thread.
 */
void pl_engine_note_crowd(struct pl_engine *engine, int events);
/* Makes timer_fd fire at `when`. Under the lock. */
void pl_engine_arm(struct pl_engine *engine, uint64_t when);

/* timer.c */
void pl_wheel_init(struct pl_wheel *wheel, uint64_t now);
void pl_wheel_advance(struct pl_wheel *wheel, uint64_t now);
/* Returns the time of the next slot with timers; UINT64_MAX if there is none. */
uint64_t pl_wheel_next(const struct pl_wheel *wheel);
/* Runs the timers that are due, after timer_fd has fired. Under the lock. */
void pl_timers_serve(struct pl_engine *engine);

#endif
