/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tasks and sources that other threads hand over to an engine's own thread: only that thread serves them, and no hand-over is
 * missed by a thread that falls asleep.
 */
#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "engine/engine.h"
#include "support/cases.h"
#include "support/check.h"

/* Called by the engine's thread when it is about to sleep in epoll_wait(); NULL: nothing. */
static void (*_Atomic before_sleep)(void);
static atomic_uint sleeps;
static atomic_bool in_sleep; /* true from the end of that call on */

/* Replaces that of the C library in this program. ThreadSanitizer must see the call, which orders threads. */
int epoll_wait(int fd, struct epoll_event *events, int count, int timeout)
{
	static int (*_Atomic next)(int, struct epoll_event *, int, int);
	void (*call)(void) = timeout < 0 ? atomic_exchange(&before_sleep, NULL) : NULL;
	int found;

	if (!next)
		next = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
	if (call)
		call();
	atomic_fetch_add(&sleeps, timeout < 0);
	atomic_store(&in_sleep, timeout < 0);
	found = atomic_load(&next)(fd, events, count, timeout);
	atomic_store(&in_sleep, false);
	return found;
}

struct noted_task {
	struct pl_task task;
	atomic_uint runs;
	atomic_ulong runner; /* thread of the last run */
};

static void note_run(struct pl_task *task)
{
	struct noted_task *noted = pl_container_of(task, struct noted_task, task);

	atomic_store(&noted->runner, (unsigned long)pthread_self());
	atomic_fetch_add(&noted->runs, 1);
}

static void noted_init(struct noted_task *noted)
{
	pl_task_init(&noted->task, note_run);
	atomic_init(&noted->runs, 0);
}

struct noted_source {
	struct pl_source source;
	atomic_uint calls, events, idles;
	atomic_ulong caller;
};

static bool note_ready(struct pl_source *source, uint32_t events)
{
	struct noted_source *noted = pl_container_of(source, struct noted_source, source);

	atomic_store(&noted->caller, (unsigned long)pthread_self());
	atomic_store(&noted->events, events);
	atomic_fetch_add(&noted->calls, 1);
	return false;
}

static void note_idle(struct pl_source *source)
{
	struct noted_source *noted = pl_container_of(source, struct noted_source, source);

	/* After ready(), once for each call. */
	atomic_store(&noted->idles, atomic_load(&noted->calls));
}

static struct pl_engine *engine;

static void engine_open(bool threaded, uint64_t poll_time)
{
	struct pl_error error;

	check_ok(pl_engine_open(&pl_system_allocator, threaded, poll_time, &engine, &error), &error);
}

static void engine_close(void)
{
	pl_engine_stop(engine);
	pl_engine_close(engine);
}

/* An eventfd never becomes readable here, so only a hand-over calls the source. */
static void source_open(struct noted_source *noted)
{
	*noted = (struct noted_source){
		.source = { .fd = eventfd(0, EFD_CLOEXEC), .ready = note_ready, .idle = note_idle }
	};
	check(noted->source.fd >= 0);
	check_number(pl_source_add(engine, &noted->source, EPOLLIN), 0);
}

static void source_close(struct noted_source *noted)
{
	pl_engine_lock(engine);
	pl_source_remove(&noted->source);
	pl_engine_unlock(engine);
	close(noted->source.fd);
}

static void await_count(atomic_uint *counter, unsigned count)
{
	while (atomic_load(counter) < count)
		usleep(100);
}

static void await_sleep(void)
{
	while (!atomic_load(&in_sleep))
		usleep(100);
}

static const uint64_t sleeps_at_once = 0, polls = 20000, polls_for_ever = 3600 * PL_NS_PER_S;

/* A thread that holds the lock at the hand-over runs neither the task nor the source. */
static void only_the_own_thread(void *poll_time)
{
	struct noted_source source;
	struct noted_task task;

	engine_open(true, *(const uint64_t *)poll_time);
	noted_init(&task);
	source_open(&source);
	for (unsigned i = 1; i <= 100; i++) {
		pl_engine_lock(engine);
		pl_engine_hand_over(engine, &task.task);
		pl_source_hand_over(&source.source);
		/* The second one changes nothing. */
		pl_engine_hand_over(engine, &task.task);
		pl_source_hand_over(&source.source);
		pl_engine_unlock(engine);
		await_count(&task.runs, i);
		await_count(&source.calls, i);
		check(atomic_load(&task.runner) == (unsigned long)engine->thread);
		check(atomic_load(&source.caller) == (unsigned long)engine->thread);
		check_number(atomic_load(&source.events), EPOLLOUT);
	}
	check_number(atomic_load(&engine->handed_count), 0);
	source_close(&source);
	engine_close();
}

static void asleep(void *unused)
{
	struct noted_source source;
	struct noted_task task;

	(void)unused;
	engine_open(true, 0);
	noted_init(&task);
	source_open(&source);
	for (unsigned i = 1; i <= 100; i++) {
		await_sleep();
		pl_engine_hand_over(engine, &task.task);
		await_count(&task.runs, i);
		await_sleep();
		pl_engine_lock(engine);
		pl_source_hand_over(&source.source);
		pl_engine_unlock(engine);
		await_count(&source.calls, i);
		await_count(&source.idles, i);
	}
	source_close(&source);
	engine_close();
}

static struct noted_task late_task;
static struct noted_source late_source;

static void hand_over_task(void)
{
	check(atomic_load(&engine->asleep));
	pl_engine_hand_over(engine, &late_task.task);
}

static void hand_over_source(void)
{
	check(atomic_load(&engine->asleep));
	pl_engine_lock(engine);
	pl_source_hand_over(&late_source.source);
	pl_engine_unlock(engine);
}

/* Makes the thread call the function before its next sleep. This wake-up itself ends the sleep before. */
static void wake_before(void (*call)(void))
{
	await_sleep();
	atomic_store(&before_sleep, call);
	pl_engine_wake(engine);
}

/* Work arrives when the thread has looked for it for the last time and is not asleep in the kernel yet. */
static void between_look_and_sleep(void *poll_time)
{
	engine_open(true, *(const uint64_t *)poll_time);
	noted_init(&late_task);
	source_open(&late_source);
	for (unsigned i = 1; i <= 100; i++) {
		wake_before(hand_over_task);
		await_count(&late_task.runs, i);
		wake_before(hand_over_source);
		await_count(&late_source.calls, i);
	}
	source_close(&late_source);
	engine_close();
}

/* Tasks that give work to each other: a posted one hands the next one over, and that one posts the next one again. */
static struct pl_task chain[4];

static bool start_chain(struct pl_source *source, uint32_t events)
{
	(void)source;
	(void)events;
	/* The thread is awake, so no hand-over of the chain wakes it. */
	check(!atomic_load(&engine->asleep));
	pl_engine_post(engine, &chain[0]);
	return false;
}

static void run_chain(struct pl_task *task)
{
	size_t next = (size_t)(task - chain) + 1;

	if (next == sizeof(chain) / sizeof(chain[0]))
		pl_engine_hand_over(engine, &late_task.task);
	else if (next % 2)
		pl_engine_hand_over(engine, &chain[next]);
	else
		pl_engine_post(engine, &chain[next]);
}

/*
 * Work arrives after the thread has served all of it and before it says that it sleeps. Posted tasks run at the unlock, which is
 * the last thing before the sleep in every second step of the chain.
 */
static void between_service_and_look(void *unused)
{
	struct noted_source source;

	(void)unused;
	engine_open(true, 0);
	noted_init(&late_task);
	for (size_t i = 0; i < sizeof(chain) / sizeof(chain[0]); i++)
		pl_task_init(&chain[i], run_chain);
	source_open(&source);
	source.source.ready = start_chain;
	for (unsigned i = 1; i <= 100; i++) {
		await_sleep();
		pl_engine_lock(engine);
		pl_source_hand_over(&source.source);
		pl_engine_unlock(engine);
		await_count(&late_task.runs, i);
	}
	source_close(&source);
	engine_close();
}

/* A polling thread that finds work in its look at the counter makes no system call to wake it. */
static void without_a_call(void *unused)
{
	struct noted_task task;
	uint64_t value;

	(void)unused;
	engine_open(true, polls_for_ever);
	noted_init(&task);
	for (unsigned i = 1; i <= 100; i++) {
		pl_engine_hand_over(engine, &task.task);
		await_count(&task.runs, i);
	}
	check_number(atomic_load(&sleeps), 0);
	check(read(engine->wake_fd, &value, sizeof(value)) < 0);
	engine_close();
}

/* Removed sources and withdrawn tasks are not served. The engine has no thread that could serve them before. */
static void taken_back(void *unused)
{
	struct noted_source source;
	struct noted_task task;

	(void)unused;
	engine_open(false, 0);
	noted_init(&task);
	source_open(&source);
	atomic_store(&engine->threaded, true);
	pl_engine_lock(engine);
	pl_engine_hand_over(engine, &task.task);
	pl_source_hand_over(&source.source);
	check_number(atomic_load(&engine->handed_count), 2);
	pl_engine_withdraw(engine, &task.task);
	pl_source_remove(&source.source);
	check_number(atomic_load(&engine->handed_count), 0);
	pl_engine_serve_handed(engine);
	atomic_store(&engine->threaded, false);
	pl_engine_unlock(engine);
	check_number(atomic_load(&task.runs), 0);
	check_number(atomic_load(&source.calls), 0);
	close(source.source.fd);
	/* The task can be handed over again. */
	pl_engine_hand_over(engine, &task.task);
	check_number(atomic_load(&task.runs), 1);
	engine_close();
}

static unsigned readied; /* calls of another source when the source below was called last */
static struct noted_source *other;

static bool hand_over_again(struct pl_source *source, uint32_t events)
{
	struct noted_source *noted = pl_container_of(source, struct noted_source, source);

	(void)events;
	readied = atomic_load(&other->calls);
	if (atomic_fetch_add(&noted->calls, 1) < 100)
		pl_source_hand_over(source);
	return false;
}

/* A polling engine serves a source that hands itself over each time at most twice before it looks at others. */
static void beside_others(void *unused)
{
	struct noted_source source, ready;
	const uint64_t one = 1;

	(void)unused;
	engine_open(true, polls);
	source_open(&source);
	source_open(&ready);
	source.source.ready = hand_over_again;
	other = &ready;
	check(write(ready.source.fd, &one, sizeof(one)) == sizeof(one));
	await_count(&ready.calls, 1);
	pl_engine_lock(engine);
	atomic_store(&ready.calls, 0);
	pl_source_hand_over(&source.source);
	pl_engine_unlock(engine);
	await_count(&source.calls, 101);
	pl_engine_lock(engine);
	check(readied >= 49);
	check_number(atomic_load(&engine->handed_count), 0);
	pl_engine_unlock(engine);
	source_close(&ready);
	source_close(&source);
	engine_close();
}

/* Tasks of a thread that has ended run all the same. */
static void after_the_thread(void *unused)
{
	struct noted_task tasks[2];

	(void)unused;
	engine_open(false, 0);
	atomic_store(&engine->threaded, true);
	for (int i = 0; i < 2; i++) {
		noted_init(&tasks[i]);
		pl_engine_hand_over(engine, &tasks[i].task);
		check_number(atomic_load(&tasks[i].runs), 0);
	}
	pl_engine_take_over(engine);
	for (int i = 0; i < 2; i++)
		check_number(atomic_load(&tasks[i].runs), 1);
	check_number(atomic_load(&engine->handed_count), 0);
	engine_close();
}

static const struct test_case cases[] = {
	{ "own-thread", only_the_own_thread, &sleeps_at_once, 60 },
	{ "own-thread-polls", only_the_own_thread, &polls, 60 },
	{ "asleep", asleep, NULL, 60 },
	{ "between-look-and-sleep", between_look_and_sleep, &sleeps_at_once, 60 },
	{ "between-look-and-sleep-polls", between_look_and_sleep, &polls, 60 },
	{ "between-service-and-look", between_service_and_look, NULL, 60 },
	{ "without-a-call", without_a_call, NULL, 60 },
	{ "taken-back", taken_back, NULL, 60 },
	{ "beside-others", beside_others, NULL, 60 },
	{ "after-the-thread", after_the_thread, NULL, 60 },
};

int main(void)
{
	return cases_run("engine-handed", cases, sizeof(cases) / sizeof(cases[0]));
}
