/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that accept from one listener, cancel accepts and let them expire, while engines deliver peers to it; threads
 * that open and close other listeners, to which strangers connect. ThreadSanitizer reports an access without the lock
 * of the listener.
 */
#include <pthread.h>
#include <unistd.h>

#include "core/context.h"
#include "core/listener.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/socket.h"

#define WORKERS 3
#define PEERS 3
#define LISTENERS 100
#define CANCELLED 7
#define LATE 9

static const struct setting setting = {
	.name = "listeners",
	.fabric = "tcp",
	.host = "127.0.0.1",
	.progress = PL_PROGRESS_THREAD,
	.lanes = 1,
};

struct rig {
	struct pl_context *near, *far;
	struct pl_listener *listener;
	char address[96];
	atomic_bool done;
};

/* Delivers an accepted peer again, as its engine does when the peer is new. */
static void deliver_again(struct rig *rig, struct pl_peer *peer)
{
	pl_engine_lock(peer->home);
	check(pl_listener_deliver(rig->listener, peer));
	pl_engine_unlock(peer->home);
}

static void *accept_and_deliver(void *argument)
{
	struct rig *rig = argument;
	struct pl_error error;
	struct pl_peer *peer;

	while (!atomic_load(&rig->done)) {
		check_ok(pl_accept(rig->listener, AMPLE_TIME, &peer, &error), &error);
		deliver_again(rig, peer);
	}
	return NULL;
}

/* Accepts for 1 us, which seldom suffices. */
static void *accept_shortly(void *argument)
{
	struct rig *rig = argument;
	struct pl_peer *peer;

	while (!atomic_load(&rig->done)) {
		pl_accept(rig->listener, 1000, &peer, NULL);
		if (peer)
			deliver_again(rig, peer);
	}
	return NULL;
}

/* Takes the next completion of an accept without a handle. A peer goes back to the listener. */
static void take_completion(struct rig *rig)
{
	struct pl_completion completion;

	while (pl_poll(rig->far, &completion, 1) != 1)
		usleep(100);
	if (completion.peer)
		deliver_again(rig, completion.peer);
}

static void *accept_and_cancel(void *argument)
{
	struct rig *rig = argument;
	struct pl_error error;

	while (!atomic_load(&rig->done)) {
		check_ok(pl_accept_start(rig->listener, CANCELLED, NULL, &error), &error);
		check(pl_cancel_posted(rig->far, CANCELLED) <= 1);
		take_completion(rig);
	}
	return NULL;
}

/* A thread that has a listener's reference, as peers have, and does not know that the listener is closed. */
static void *accept_late(void *argument)
{
	struct pl_listener *listener = argument;
	struct pl_operation *operations[10];
	struct pl_error error;

	for (unsigned i = 0; i < PL_ARRAY_SIZE(operations); i++)
		check_ok(pl_accept_start(listener, LATE, &operations[i], &error), &error);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(operations); i++)
		check_status(pl_wait(operations[i], AMPLE_TIME, NULL, &error), -ECANCELED, &error);
	pl_listener_put(listener);
	return NULL;
}

/* Opens listeners, and closes each while strangers connect and another thread accepts. */
static void *open_and_close(void *argument)
{
	struct rig *rig = argument;

	for (unsigned i = 0; i < LISTENERS; i++) {
		char address[96];
		struct pl_listener *listener = listener_open(&setting, rig->far, address);
		int fds[5];
		pthread_t thread;

		atomic_fetch_add(&listener->references, 1);
		check_number(pthread_create(&thread, NULL, accept_late, listener), 0);
		for (unsigned j = 0; j < PL_ARRAY_SIZE(fds); j++) {
			fds[j] = socket_connect(address);
			check(fds[j] >= 0);
		}
		pl_listener_close(listener);
		for (unsigned j = 0; j < PL_ARRAY_SIZE(fds); j++)
			close(fds[j]);
		check_number(pthread_join(thread, NULL), 0);
	}
	return NULL;
}

static void rig_open(struct rig *rig)
{
	struct pl_options options = setting_options(&setting);
	struct pl_error error;

	options.workers = WORKERS;
	rig->near = context_open_with(&options);
	rig->far = context_open_with(&options);
	rig->listener = listener_open(&setting, rig->far, rig->address);
	for (unsigned i = 0; i < PEERS; i++) {
		struct pl_peer *peer;

		/* The peers of the other end wait in the listener until a thread accepts them. */
		check_ok(pl_connect(rig->near, rig->address, AMPLE_TIME, &peer, &error), &error);
	}
}

static void use_listeners_in_threads(void *argument)
{
	static void *(*const work[])(void *) = { accept_and_deliver, accept_and_deliver, accept_shortly,
						 accept_and_cancel };
	pthread_t threads[PL_ARRAY_SIZE(work)], opener;
	struct rig rig = { 0 };

	(void)argument;
	rig_open(&rig);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(work); i++)
		check_number(pthread_create(&threads[i], NULL, work[i], &rig), 0);
	check_number(pthread_create(&opener, NULL, open_and_close, &rig), 0);
	open_and_close(&rig);
	check_number(pthread_join(opener, NULL), 0);
	atomic_store(&rig.done, true);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(work); i++)
		check_number(pthread_join(threads[i], NULL), 0);
	pl_listener_close(rig.listener);
	pl_close(rig.near);
	pl_close(rig.far);
}

/* -- an accept that its engine ends late ----------------------------------------------------------------------------- */

static void *deliver_held(void *peer)
{
	struct pl_peer *delivered = peer;

	pl_engine_lock(delivered->home);
	check(pl_listener_deliver(delivered->listener, delivered));
	pl_engine_unlock(delivered->home);
	return NULL;
}

static void *close_peer(void *peer)
{
	pl_peer_close(peer);
	return NULL;
}

static bool peer_is_listed(struct pl_context *context, const struct pl_peer *peer)
{
	bool listed = false;

	pthread_mutex_lock(&context->lock);
	pl_list_for_each(at, &context->peers)
		listed |= pl_list_entry(at, struct pl_peer, link) == peer;
	pthread_mutex_unlock(&context->lock);
	return listed;
}

/* A peer that pl_close() destroys stays until the listener's engine has ended the accept that got the peer. */
static void close_before_delivery(void *argument)
{
	struct pl_completion completion;
	struct pl_engine *engine;
	struct rig rig = { 0 };
	struct pl_error error;
	struct pl_peer *peer = NULL;
	pthread_t thread;

	(void)argument;
	rig_open(&rig);
	engine = rig.listener->engine;
	for (unsigned i = 0; i < PEERS; i++) {
		struct pl_peer *accepted;

		check_ok(pl_accept(rig.listener, AMPLE_TIME, &accepted, &error), &error);
		if (accepted->home != engine)
			peer = accepted;
	}
	check(peer);
	check_ok(pl_accept_start(rig.listener, 1, NULL, &error), &error);
	pl_engine_lock(engine);
	check_number(pthread_create(&thread, NULL, deliver_held, peer), 0);
	check_number(pthread_join(thread, NULL), 0);
	check_number(atomic_load(&peer->pins), 1);
	check_number(pthread_create(&thread, NULL, close_peer, peer), 0);
	while (peer_is_listed(rig.far, peer))
		usleep(100);
	pl_engine_unlock(engine);
	check_number(pthread_join(thread, NULL), 0);
	check_number(pl_poll(rig.far, &completion, 1), 1);
	check_number(completion.kind, PL_KIND_ACCEPT);
	check_number(completion.status, 0);
	check(!completion.peer);
	pl_listener_close(rig.listener);
	pl_close(rig.near);
	pl_close(rig.far);
}

static const struct test_case cases[] = {
	{ "tcp", use_listeners_in_threads, NULL, 60 },
	{ "close-before-delivery", close_before_delivery, NULL, 20 },
};

int main(void)
{
	return cases_run("listener-threads", cases, PL_ARRAY_SIZE(cases));
}
