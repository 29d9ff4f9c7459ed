/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The result of an operation arrives when its cancellation waits at its home already. The program must get the result: a message
 * would be lost, and nobody could release an object. The test holds the lock of the home, which keeps the cancellation waiting.
 */
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "core/fabric.h"
#include "core/listener.h"
#include "support/cases.h"
#include "support/pair.h"

static const struct setting setting = {
	.name = "late-result", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

/* Thread in pl_wait() with a time limit of 1 ms, which passes while the test holds the lock of the operation's home. */
struct waiter {
	pthread_t thread;
	struct pl_operation *operation;
	struct pl_completion completion;
	struct pl_error error;
	int status;
};

static void *wait_briefly(void *argument)
{
	struct waiter *waiter = argument;

	waiter->status = pl_wait(waiter->operation, MS, &waiter->completion, &waiter->error);
	return NULL;
}

/* Returns when the waiter has requested the cancellation. */
static void waiter_start(struct waiter *waiter, struct pl_operation *operation)
{
	waiter->operation = operation;
	check(pl_engine_held(operation->home));
	check_number(pthread_create(&waiter->thread, NULL, wait_briefly, waiter), 0);
	while (!atomic_load(&operation->cancel_task.queued))
		usleep(100);
}

static void waiter_end(struct waiter *waiter)
{
	check_number(pthread_join(waiter->thread, NULL), 0);
	check_ok(waiter->status, &waiter->error);
	check_number(waiter->completion.status, 0);
}

/* Waits until a list that the lock of an engine protects has an element. */
static void await_element(struct pl_engine *engine, const struct pl_list *list)
{
	for (bool empty = true; empty; usleep(100)) {
		pl_engine_lock(engine);
		empty = pl_list_empty(list);
		pl_engine_unlock(engine);
	}
}

/* A receive finds a message that came before it. */
static void late_receive(void *unused)
{
	struct scenario_environment environment;
	struct pl_operation *operation;
	struct waiter waiter;
	struct buffer buffer;
	struct pl_error error;
	struct pl_peer *peer;

	(void)unused;
	environment_open(&environment, &setting);
	buffer_open(&buffer, environment.far, 64, PL_ACCESS_LOCAL);
	peer = environment.far_peer;
	check_ok(pl_send_copy(environment.near_peer, 7, "message", 8, NULL, NULL, &error), &error);
	await_element(peer->home, &peer->unexpected);
	pl_engine_lock(peer->home);
	check_ok(pl_receive(peer, 7, UINT64_MAX, &(struct pl_buffer){ buffer.region, 0, 64 }, NULL, &operation, &error),
		 &error);
	waiter_start(&waiter, operation);
	pl_engine_unlock(peer->home);
	waiter_end(&waiter);
	check_number(waiter.completion.bytes, 8);
	check_text((char *)buffer.bytes, "message");
	buffer_close(&buffer);
	environment_close(&environment);
}

/* An import's answer comes. */
static void late_import(void *unused)
{
	struct pl_operation *operation;
	struct pl_peer *peer, *owner;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct waiter waiter;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	pair_open(&pair, &setting, 64);
	peer = pair.environment.near_peer;
	owner = pair.environment.far_peer;
	check_ok(pl_region_share(pair.far.region, NULL, token, &length, &error), &error);
	pl_engine_lock(owner->home);
	check_ok(pl_remote_import_start(peer, token, length, 0, &operation, &error), &error);
	await_element(peer->home, &peer->imports);
	pl_engine_lock(peer->home);
	waiter_start(&waiter, operation);
	pl_engine_unlock(owner->home);
	while (atomic_load(&operation->state) != PL_DONE) {
		struct pollfd readable = { .fd = peer->channel.source.fd, .events = POLLIN };

		check_number(poll(&readable, 1, -1), 1);
		peer->channel.source.ready(&peer->channel.source, EPOLLIN);
	}
	pl_engine_unlock(peer->home);
	waiter_end(&waiter);
	check(waiter.completion.remote);
	pl_remote_release(waiter.completion.remote);
	pair_close(&pair);
}

static void *deliver_peer(void *argument)
{
	struct scenario_environment *environment = argument;

	check(pl_listener_deliver(environment->listener, environment->far_peer));
	return NULL;
}

/* The engine of a new peer gives that to an accept whose cancellation waits. */
static void late_accept(void *unused)
{
	struct scenario_environment environment;
	struct pl_completion completion;
	struct pl_operation *operation;
	struct pl_engine *engine;
	struct pl_error error;
	pthread_t thread;

	(void)unused;
	environment_open(&environment, &setting);
	engine = environment.listener->engine;
	check_ok(pl_accept_start(environment.listener, 0, &operation, &error), &error);
	await_element(engine, &environment.listener->accepts);
	pl_engine_lock(engine);
	pl_cancel(operation);
	check_number(pthread_create(&thread, NULL, deliver_peer, &environment), 0);
	check_number(pthread_join(thread, NULL), 0);
	pl_engine_unlock(engine);
	check_ok(pl_wait(operation, AMPLE_TIME, &completion, &error), &error);
	check(completion.peer == environment.far_peer);
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "late-receive", late_receive, NULL, 30 },
	{ "late-import", late_import, NULL, 30 },
	{ "late-accept", late_accept, NULL, 30 },
};

int main(void)
{
	return cases_run("late-result", cases, PL_ARRAY_SIZE(cases));
}
