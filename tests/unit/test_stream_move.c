/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread reads the engine of a subscriber and posts the subscriber's task there, after another thread has attached the subscriber
 * to a peer of another engine.
 */
#include <pthread.h>
#include <unistd.h>

#include "core/fabric.h"
#include "stream/subscriber.h"
#include "support/cases.h"
#include "support/environment.h"

#define STREAM "cam0"
#define PEERS 4u

static const struct setting setting = {
	.name = "move", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

struct late_post {
	struct pl_engine *engine;
	struct pl_task *task;
};

static void *post_task(void *argument)
{
	const struct late_post *late = argument;

	check(pl_engine_post(late->engine, late->task));
	return NULL;
}

/* A post at the new engine found the task queued at the old one, and left. */
static void task_follows_subscriber(void *unused)
{
	struct pl_subscriber subscriber = { .earlier_homes = 0 };
	struct pl_engine *old, *home;
	struct late_post late;
	struct pl_error error;
	pthread_t thread;

	(void)unused;
	check_ok(pl_engine_open(&pl_system_allocator, false, 0, &old, &error), &error);
	check_ok(pl_engine_open(&pl_system_allocator, false, 0, &home, &error), &error);
	pl_lock_init(&subscriber.lock);
	pl_task_init(&subscriber.task, pl_subscriber_task);
	subscriber.engine = home;
	late = (struct late_post){ old, &subscriber.task };
	pl_engine_lock(home);
	check_number(pthread_create(&thread, NULL, post_task, &late), 0);
	check_number(pthread_join(thread, NULL), 0);
	check_number(atomic_load(&old->task_count), 0);
	check_number(atomic_load(&home->task_count), 1);
	pl_engine_withdraw(home, &subscriber.task);
	pl_engine_unlock(home);
	pl_engine_close(old);
	pl_engine_close(home);
}

struct busy_engine {
	struct pl_engine *engine;
	atomic_bool held;
};

/* Holds the engine until a thread waits for it, and leaves queued tasks to that thread. */
static void *hold_engine(void *argument)
{
	struct busy_engine *busy = argument;

	pl_engine_lock(busy->engine);
	atomic_store(&busy->held, true);
	while (!atomic_load(&busy->engine->waiting))
		usleep(100);
	atomic_store(&busy->engine->owner, 0);
	pl_lock_release(&busy->engine->lock);
	return NULL;
}

static struct pl_peer *connect_elsewhere(struct scenario_environment *environment, const struct pl_engine *engine)
{
	struct pl_peer *peer = NULL, *far;

	for (unsigned i = 0; i < PEERS && (!peer || peer->home == engine); i++)
		connect_pair(environment, environment->near, environment->listener, &peer, &far);
	check(peer->home != engine);
	return peer;
}

/* The old engine is busy, so that the task is still queued there when the program closes the subscriber. */
static void close_with_late_task(void *unused)
{
	struct scenario_environment environment;
	struct pl_publisher_options published = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber *subscriber;
	struct busy_engine busy = { 0 };
	struct pl_publisher *publisher;
	struct pl_error error;
	struct pl_peer *peer;
	pthread_t thread;

	(void)unused;
	environment_open(&environment, &setting);
	published.slot_bytes = 100;
	check_ok(pl_publisher_open(environment.far, STREAM, &published, &publisher, &error), &error);
	busy.engine = environment.near_peer->home;
	check_ok(pl_subscriber_open(environment.near_peer, STREAM, NULL, AMPLE_TIME, &subscriber, &error), &error);
	peer = connect_elsewhere(&environment, busy.engine);
	check_ok(pl_subscriber_attach(subscriber, peer, AMPLE_TIME, &error), &error);
	check_number(pthread_create(&thread, NULL, hold_engine, &busy), 0);
	while (!atomic_load(&busy.held))
		usleep(100);
	pl_engine_post(busy.engine, &subscriber->task);
	pl_subscriber_close(subscriber);
	check_number(pthread_join(thread, NULL), 0);
	/* Both engines serve calls. */
	pl_peer_close(environment.near_peer);
	pl_peer_close(peer);
	environment.near_peer = NULL;
	pl_publisher_close(publisher);
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "task-follows-subscriber", task_follows_subscriber, NULL, 30 },
	{ "close-with-late-task", close_with_late_task, NULL, 30 },
};

int main(void)
{
	return cases_run("stream-move", cases, PL_ARRAY_SIZE(cases));
}
