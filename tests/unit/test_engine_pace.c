/* SPDX-License-Identifier: BSD-2-Clause */
/* Polling rests while other threads wait for cores: in an engine's own thread, and in threads that wait. */
#include <dlfcn.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/fabric.h"
#include "stream/turn.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/pair.h"

#define LENGTH 64u
#define FOR_EVER (3600 * PL_NS_PER_S)

static atomic_bool cores_are_short; /* then each look of an engine's thread loses the core */
static atomic_uint losses, sleeps, polls;
static atomic_bool in_sleep;

/* Functions of the C library, replaced in this program. */
int sched_yield(void)
{
	atomic_fetch_add(&losses, atomic_load(&cores_are_short));
	return 0;
}

int getrusage(__rusage_who_t who, struct rusage *usage)
{
	check_number(who, RUSAGE_THREAD);
	*usage = (struct rusage){ .ru_nivcsw = (long)atomic_load(&losses) };
	return 0;
}

int epoll_wait(int fd, struct epoll_event *events, int count, int timeout)
{
	static int (*_Atomic next)(int, struct epoll_event *, int, int);
	int found;

	if (!next)
		next = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
	atomic_fetch_add(timeout < 0 ? &sleeps : &polls, 1);
	atomic_store(&in_sleep, timeout < 0);
	found = atomic_load(&next)(fd, events, count, timeout);
	atomic_store(&in_sleep, false);
	return found;
}

static struct pl_engine *engine;

static void engine_open(bool adapts)
{
	struct pl_error error;

	check_ok(pl_engine_open(&pl_system_allocator, true, FOR_EVER, &engine, &error), &error);
	atomic_store(&engine->pace.adapts, adapts);
}

static void engine_close(void)
{
	pl_engine_stop(engine);
	pl_engine_close(engine);
}

/* Gives the thread an event, after which it begins to poll anew. */
static void await_sleep(void)
{
	while (!atomic_load(&in_sleep)) {
		pl_engine_wake(engine);
		usleep(1000);
	}
}

static void await_polls(void)
{
	unsigned slept;

	do {
		pl_engine_wake(engine);
		slept = atomic_load(&sleeps);
		atomic_store(&polls, 0);
		usleep(1000);
	} while (atomic_load(&in_sleep) || atomic_load(&sleeps) != slept || atomic_load(&polls) < 10);
}

static void engine_rests(void *unused)
{
	(void)unused;
	engine_open(true);
	for (unsigned i = 0; i < 3; i++) {
		atomic_store(&cores_are_short, true);
		await_sleep();
		check(pl_engine_asleep(engine));
		/* The rest is over at some time. */
		atomic_store(&cores_are_short, false);
		await_polls();
	}
	engine_close();
}

/* The program has set the time. */
static void given_time(void *unused)
{
	(void)unused;
	engine_open(false);
	atomic_store(&cores_are_short, true);
	for (unsigned i = 0; i < 20; i++)
		await_polls();
	check_number(atomic_load(&sleeps), 0);
	engine_close();
}

/* True if a look at the present time finds that the core went to another thread. */
static bool look_finds_loss(uint64_t rest_end)
{
	engine->pace = (struct pl_pace){ .adapts = true, .rest_end = rest_end };
	pl_engine_keep_pace(engine);
	return engine->pace.doublings;
}

/* A thread works, polls or sleeps between two looks. A loss tells nothing about polling if all that was a rest. */
static void losses_between_looks(void *unused)
{
	struct pl_error error;

	(void)unused;
	check_ok(pl_engine_open(&pl_system_allocator, false, 0, &engine, &error), &error);
	check(!look_finds_loss(1));
	atomic_fetch_add(&losses, 1);
	check(look_finds_loss(1));
	check(!look_finds_loss(1));
	atomic_fetch_add(&losses, 1);
	check(!look_finds_loss(0)); /* the rest ended at the time of the look */
	check(!look_finds_loss(1));
	atomic_store(&cores_are_short, true);
	check(look_finds_loss(0));
	check(look_finds_loss(1));
	engine_close();
}

static atomic_bool news;

static bool hot_ready(struct pl_source *source, uint32_t events)
{
	(void)source;
	(void)events;
	return atomic_exchange(&news, false);
}

/* A completion queue that is polled goes back to its descriptor, and the thread sleeps. */
static void hot_source(void *unused)
{
	struct pl_source source = {
		.fd = eventfd(1, EFD_CLOEXEC), .pollable = true, .memory = true, .ready = hot_ready
	};
	uint64_t value;

	(void)unused;
	check(source.fd >= 0);
	engine_open(true);
	atomic_store(&news, true);
	pl_engine_lock(engine);
	check_number(pl_source_add(engine, &source, EPOLLIN), 0);
	pl_engine_unlock(engine);
	while (atomic_load(&news))
		usleep(100);
	check(read(source.fd, &value, sizeof(value)) == sizeof(value));
	atomic_store(&cores_are_short, true);
	await_sleep();
	pl_engine_stop(engine);
	check_number(engine->hot_count, 0);
	pl_source_remove(&source);
	close(source.fd);
	pl_engine_close(engine);
}

static const struct setting setting = {
	.name = "tcp", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

static void *wait_for(void *operation)
{
	struct pl_error error;

	check_ok(pl_wait(operation, FOR_EVER, NULL, &error), &error);
	return NULL;
}

/* A thread that waits for an operation sleeps at once while its engine rests. */
static void waiter_rests(void *unused)
{
	struct pl_operation *receive;
	const char message[LENGTH] = "";
	struct pl_buffer buffer;
	struct pl_error error;
	struct pair pair;
	pthread_t waiter;

	(void)unused;
	pair_open(&pair, &setting, LENGTH);
	buffer = (struct pl_buffer){ pair.near.region, 0, LENGTH };
	pair.environment.near->options.poll_time = FOR_EVER;
	atomic_store(&pair.environment.near_peer->home->pace.rest_end, UINT64_MAX);
	check_ok(pl_receive(pair.environment.near_peer, 1, UINT64_MAX, &buffer, NULL, &receive, &error), &error);
	check_number(pthread_create(&waiter, NULL, wait_for, receive), 0);
	while (atomic_load(&receive->state) != PL_AWAITED)
		usleep(100);
	check_ok(pl_send_copy(pair.environment.far_peer, 1, message, LENGTH, NULL, NULL, &error), &error);
	pthread_join(waiter, NULL);
	pair_close(&pair);
}

/* A thread that waits for a change of a stream also sleeps at once. */
static void turn_rests(void *unused)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_turn turn = { 0 };
	struct pl_context *context;
	struct pl_error error;

	(void)unused;
	options.insecure = PL_ON;
	options.workers = 3;
	check_ok(pl_open(&context, &options, &error), &error);
	context->options.poll_time = FOR_EVER;
	atomic_store(&context->engines[2]->pace.rest_end, UINT64_MAX);
	check(!pl_turn_poll(context, &turn, pl_turn_read(&turn), NULL, 0, UINT64_MAX));
	pl_close(context);
}

static const struct test_case cases[] = {
	{ "engine-rests", engine_rests, NULL, 60 },
	{ "given-time", given_time, NULL, 60 },
	{ "losses-between-looks", losses_between_looks, NULL, 60 },
	{ "hot-source", hot_source, NULL, 60 },
	{ "waiter-rests", waiter_rests, NULL, 60 },
	{ "turn-rests", turn_rests, NULL, 60 },
};

int main(void)
{
	return cases_run("engine-pace", cases, sizeof(cases) / sizeof(cases[0]));
}
