/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations that wait in the queue of an engine while pl_peer_close() runs, or while they end; the user data of events; a message
 * for a dead peer; completions of a closed one.
 */
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/fabric.h"
#include "support/cases.h"
#include "support/environment.h"

/*
 * Releases the engine without serving its task queue.  This state arises if another thread posts a task after the
 * holder's last look at the queue and before the release.
 */
static void engine_release_unserved(struct pl_engine *engine)
{
	atomic_store(&engine->owner, 0);
	pl_lock_release(&engine->lock);
}

/*
 * Posts one operation of each kind while the engine is held, and closes the peer. The close begins all of them: the message is sent. No
 * other one succeeds, as the far end, which nobody drives, answers nothing.
 */
static void close_with_queued_operations(void *argument)
{
	const struct setting setting = {
		.name = "queue",
		.fabric = "tcp",
		.host = "127.0.0.1",
		.progress = PL_PROGRESS_MANUAL,
		.lanes = 1,
	};
	struct pl_operation *operations[4];
	struct scenario_environment environment;
	struct buffer near, far;
	struct pl_remote *remote;
	struct pl_engine *engine;
	struct pl_error error;

	(void)argument;
	environment_open(&environment, &setting);
	buffer_open(&near, environment.near, 64, PL_ACCESS_ALL);
	buffer_open(&far, environment.far, 64, PL_ACCESS_ALL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	engine = environment.near_peer->home;
	pl_engine_lock(engine);
	check_ok(pl_receive(environment.near_peer, 1, 0, &(struct pl_buffer){ near.region, 0, 64 }, NULL,
			    &operations[0], &error),
		 &error);
	check_ok(pl_send_copy(environment.near_peer, 1, "x", 1, NULL, &operations[1], &error), &error);
	check_ok(pl_write(environment.near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, 64 }, NULL,
			  &operations[2], &error),
		 &error);
	check_ok(pl_read(environment.near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, 64 }, NULL,
			 &operations[3], &error),
		 &error);
	check_number(atomic_load(&engine->task_count), 4);
	engine_release_unserved(engine);
	pl_peer_close(environment.near_peer);
	environment.near_peer = NULL;
	for (unsigned i = 0; i < 4; i++)
		check_status(await(&environment, operations[i], NULL, &error), i == 1 ? 0 : -ECANCELED, &error);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
}

/* A connect that ends before the engine has begun it leaves the queue, since its owner may free it then. */
static void stop_queued_connect(void *argument)
{
	const struct setting setting = {
		.name = "queue",
		.fabric = "tcp",
		.host = "127.0.0.1",
		.progress = PL_PROGRESS_MANUAL,
		.lanes = 1,
	};
	struct pl_options options = setting_options(&setting);
	struct pl_context *context = context_open_with(&options);
	struct pl_engine *engine = context->engines[0];
	struct pl_operation *operation;
	struct pl_error error;

	(void)argument;
	pl_engine_lock(engine);
	check_ok(pl_connect_start(context, "127.0.0.1:1", AMPLE_TIME, 0, &operation, &error), &error);
	check(atomic_load(&operation->task.queued));
	pl_operation_stop(operation, -ECANCELED, NULL);
	check(!atomic_load(&operation->task.queued));
	pl_engine_unlock(engine);
	check_number(pl_wait(operation, AMPLE_TIME, NULL, &error), -ECANCELED);
	pl_close(context);
}

/* Calls that wait for the queue's lock, and what they do with the user data of a peer. */
struct queue_user {
	struct pl_peer *near_peer, *far_peer;
	pthread_t thread;
	bool notify;
	atomic_bool ended;
};

static void *use_queue(void *argument)
{
	struct queue_user *user = argument;
	struct pl_error error;

	if (user->notify)
		check_ok(pl_notify(user->near_peer, 1, NULL, 0, NULL, NULL, &error), &error);
	else
		pl_peer_set_user_data(user->far_peer, 8);
	atomic_store(&user->ended, true);
	return NULL;
}

/*
 * Takes the lock of the far end's queue, begins the call, and waits until a thread waits for the lock: that of the far end's
 * engine for a notification, else the calling one.
 */
static void begin_queue_user(struct queue_user *user)
{
	struct pl_lock *lock = &user->far_peer->context->queue_lock;

	pl_lock_take(lock);
	check_number(pthread_create(&user->thread, NULL, use_queue, user), 0);
	while (atomic_load(&lock->word) != 2) {
		check(user->notify || !atomic_load(&user->ended));
		sched_yield();
	}
}

/*
 * Checks that the user data of a peer changes under the lock of the queue of events, and that an event reads them under this
 * lock: so no event with the old value appears once the change and a pl_poll() have returned.
 */
static void user_data_of_events(void *argument)
{
	const struct setting setting = {
		.name = "queue",
		.fabric = "tcp",
		.host = "127.0.0.1",
		.progress = PL_PROGRESS_THREAD,
		.lanes = 1,
	};
	struct scenario_environment environment;
	struct pl_completion completion;
	struct queue_user user;

	(void)argument;
	environment_open(&environment, &setting);
	user = (struct queue_user){ environment.near_peer, environment.far_peer, .notify = true };
	begin_queue_user(&user);
	atomic_store(&environment.far_peer->user_data, 7);
	pl_lock_release(&environment.far->queue_lock);
	pthread_join(user.thread, NULL);
	collect(&environment, environment.far, &completion, 1);
	check_number(completion.kind, PL_KIND_NOTIFIED);
	check_number(completion.user_data, 7);
	user = (struct queue_user){ environment.near_peer, environment.far_peer, .notify = false };
	begin_queue_user(&user);
	check_number(pl_peer_user_data(environment.far_peer), 7);
	pl_lock_release(&environment.far->queue_lock);
	pthread_join(user.thread, NULL);
	check_number(pl_peer_user_data(environment.far_peer), 8);
	environment_close(&environment);
}

static bool endpoint_is_up(struct pl_endpoint *endpoint)
{
	(void)endpoint;
	return true;
}

/*
 * A control message shows that an accepted peer is up, as over verbs, whose listener has been closed meanwhile. The peer is dead then,
 * and must not handle the message. The test gives an accepted peer of tcp the state and the function of such a peer.
 */
static void message_after_listener(void *argument)
{
	const struct setting setting = {
		.name = "dead", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
	};
	const struct pl_control bye = { .type = PL_CONTROL_BYE };
	struct scenario_environment environment;
	struct pl_fabric_ops fabric;
	struct pl_peer *peer;

	(void)argument;
	environment_open(&environment, &setting);
	peer = environment.far_peer;
	environment.far_peer = NULL;
	pl_listener_close(environment.listener);
	environment.listener = NULL;
	pl_engine_lock(peer->home);
	fabric = *peer->ops;
	fabric.up = endpoint_is_up;
	peer->ops = &fabric;
	atomic_store(&peer->state, PL_PEER_OPENING);
	pl_peer_control(&peer->channel, &bye);
	check(peer->dead);
	check(!peer->leaving);
	pl_engine_unlock(peer->home);
	environment_close(&environment);
}

/* Checks that a notification for a peer whose opening failed, which another thread keeps alive, causes no event. */
static void notification_for_dead_peer(void *argument)
{
	const struct setting setting = {
		.name = "dead", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
	};
	const struct pl_frame frame = { .type = PL_FRAME_NOTIFY, .offset = 5 };
	struct scenario_environment environment;
	struct pl_completion completion;
	struct pl_peer *peer;

	(void)argument;
	environment_open(&environment, &setting);
	peer = environment.near_peer;
	pl_engine_lock(peer->home);
	peer->dead = true;
	check_number(pl_message_arrived(peer, &frame, NULL), 0);
	peer->dead = false;
	pl_engine_unlock(peer->home);
	check_number(pl_poll(environment.near, &completion, 1), 0);
	environment_close(&environment);
}

/* Allocator that gives the memory of a released peer to the next one. */
struct reuse {
	void *_Atomic peer; /* the memory */
	atomic_bool released;
};

static void *reuse_allocate(size_t size, void *user)
{
	struct reuse *reuse = user;
	void *memory;

	if (size == sizeof(struct pl_peer) && atomic_exchange(&reuse->released, false))
		return atomic_load(&reuse->peer);
	memory = malloc(size);
	if (size == sizeof(struct pl_peer) && !atomic_load(&reuse->peer))
		atomic_store(&reuse->peer, memory);
	return memory;
}

static void *reuse_reallocate(void *memory, size_t size, void *user)
{
	(void)user;
	return realloc(memory, size);
}

static void reuse_release(void *memory, void *user)
{
	struct reuse *reuse = user;

	if (memory && memory == atomic_load(&reuse->peer))
		atomic_store(&reuse->released, true);
	else
		free(memory);
}

static struct pl_peer *connect_both(struct pl_context *near, const char *address, struct pl_listener *listener)
{
	struct pl_peer *peer, *other;
	struct pl_error error;

	check_ok(pl_connect(near, address, AMPLE_TIME, &peer, &error), &error);
	check_ok(pl_accept(listener, AMPLE_TIME, &other, &error), &error);
	return peer;
}

/* The completion of a write names no peer if its own was closed, although another one has that memory now. */
static void completion_of_closed_peer(void *argument)
{
	const struct setting setting = {
		.name = "reuse", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
	};
	struct reuse reuse;
	const struct pl_allocator allocator = { reuse_allocate, reuse_reallocate, reuse_release, &reuse };
	struct pl_options options = setting_options(&setting);
	struct pl_context *near, *far = context_open_with(&options);
	struct pl_completion completion;
	struct pl_operation *operation;
	struct buffer source, target;
	struct pl_listener *listener;
	uint8_t token[PL_TOKEN_MAX];
	size_t length = sizeof(token);
	struct pl_remote *remote;
	struct pl_error error;
	struct pl_peer *peer;
	char address[96];

	(void)argument;
	atomic_init(&reuse.peer, NULL);
	atomic_init(&reuse.released, false);
	options.allocator = &allocator;
	near = context_open_with(&options);
	listener = listener_open(&setting, far, address);
	buffer_open(&source, near, 8, PL_ACCESS_LOCAL);
	buffer_open(&target, far, 8, PL_ACCESS_ALL);
	check_ok(pl_region_share(target.region, NULL, token, &length, &error), &error);
	peer = connect_both(near, address, listener);
	check_ok(pl_remote_import(peer, token, length, AMPLE_TIME, &remote, &error), &error);
	check_ok(pl_write(peer, &(struct pl_transfer){ remote, 0, source.region, 0, 8 }, NULL, &operation, &error),
		 &error);
	pl_remote_release(remote);
	pl_peer_close(peer);
	check(connect_both(near, address, listener) == peer);
	check_ok(pl_wait(operation, AMPLE_TIME, &completion, &error), &error);
	check(!completion.peer);
	/* The new peer's own completion names it, also if another one was closed meanwhile. */
	check_ok(pl_remote_import(peer, token, length, AMPLE_TIME, &remote, &error), &error);
	check_ok(pl_write(peer, &(struct pl_transfer){ remote, 0, source.region, 0, 8 }, NULL, &operation, &error),
		 &error);
	pl_peer_close(connect_both(near, address, listener));
	check_ok(pl_wait(operation, AMPLE_TIME, &completion, &error), &error);
	check(completion.peer == peer);
	pl_remote_release(remote);
	buffer_close(&source);
	pl_close(near);
	pl_listener_close(listener);
	pl_close(far);
	buffer_close_bare(&target);
	free(atomic_load(&reuse.peer));
}

#define NOTIFICATIONS (PL_MESSAGE_WINDOW / 4) /* the last one is worth a credit */

/* Close of a peer whose notifications another thread collects meanwhile. */
static struct {
	struct scenario_environment environment;
	struct pl_fabric_ops ops;
	struct pl_completion collected[NOTIFICATIONS + 1];
	pthread_t collector;
	atomic_bool pinned;
	struct pl_peer *_Atomic peer; /* that is closed */
	unsigned pins;                /* when it was freed */
} meanwhile;

static void note_pins(void *pointer, void *user)
{
	struct pl_peer *peer = atomic_load(&meanwhile.peer);

	(void)user;
	if (pointer && pointer == peer) {
		meanwhile.pins = atomic_load(&peer->pins);
		atomic_store(&meanwhile.peer, NULL); /* the address may be used again */
	}
	free(pointer);
}

static void *collect_all(void *unused)
{
	(void)unused;
	check_number(pl_poll(meanwhile.environment.far, meanwhile.collected, NOTIFICATIONS + 1), NOTIFICATIONS + 1);
	return NULL;
}

/* By now no thread can find the peer but in the queue of completions. */
static void collect_and_close(struct pl_endpoint *endpoint)
{
	check_number(pthread_create(&meanwhile.collector, NULL, collect_all, NULL), 0);
	while (!atomic_load(&meanwhile.environment.far_peer->pins))
		usleep(100);
	atomic_store(&meanwhile.pinned, true);
	pl_tcp_fabric.close(endpoint);
}

static unsigned arrived_at(struct pl_peer *peer)
{
	unsigned arrived;

	pl_engine_lock(peer->home);
	arrived = (unsigned)peer->arrived;
	pl_engine_unlock(peer->home);
	return arrived;
}

static void *close_far_peer(void *unused)
{
	(void)unused;
	pl_peer_close(meanwhile.environment.far_peer);
	return NULL;
}

/* The first completion has failed: its collector waits for the log of errors, and has counted all notifications before. */
static void queue_completions(struct scenario_environment *environment)
{
	struct pl_operation *operation;
	struct pl_error error;
	struct buffer buffer;

	buffer_open(&buffer, environment->far, 64, PL_ACCESS_LOCAL);
	check_ok(pl_receive(environment->far_peer, 1, 0, &(struct pl_buffer){ buffer.region, 0, 64 }, NULL, NULL,
			    &error),
		 &error);
	check_number(pl_cancel_all_posted(environment->far), 1);
	buffer_close(&buffer);
	for (unsigned i = 0; i < NOTIFICATIONS; i++) {
		check_ok(pl_notify(environment->near_peer, i, NULL, 0, NULL, &operation, &error), &error);
		complete(environment, operation, NULL);
	}
	while (arrived_at(environment->far_peer) < NOTIFICATIONS)
		usleep(100);
}

static void collect_while_closing(void *unused)
{
	static const struct setting setting = {
		.name = "collect", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
	};
	const struct pl_allocator allocator = { pl_system_allocator.allocate, pl_system_allocator.reallocate, note_pins,
						NULL };
	struct scenario_environment *environment = &meanwhile.environment;
	struct pl_options options = setting_options(&setting);
	pthread_t closer;

	(void)unused;
	*environment = (struct scenario_environment){ .setting = &setting };
	environment->near = context_open(&setting);
	options.allocator = &allocator;
	environment->far = context_open_with(&options);
	environment->listener = listener_open(&setting, environment->far, environment->address);
	connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
		     &environment->far_peer);
	queue_completions(environment);
	meanwhile.ops = pl_tcp_fabric;
	meanwhile.ops.close = collect_and_close;
	environment->far_peer->ops = &meanwhile.ops;
	meanwhile.pins = UINT_MAX;
	atomic_store(&meanwhile.peer, environment->far_peer);
	pthread_mutex_lock(&environment->far->errors.lock);
	check_number(pthread_create(&closer, NULL, close_far_peer, NULL), 0);
	while (!atomic_load(&meanwhile.pinned))
		usleep(100);
	/* Time in which a close that does not wait for the collector frees the peer. */
	usleep(100 * 1000);
	pthread_mutex_unlock(&environment->far->errors.lock);
	check_number(pthread_join(closer, NULL), 0);
	check_number(pthread_join(meanwhile.collector, NULL), 0);
	check_number(meanwhile.pins, 0);
	environment->far_peer = NULL;
	environment_close(environment);
}

static const struct test_case cases[] = {
	{ "close-with-queued-operations", close_with_queued_operations, NULL, 20 },
	{ "stop-queued-connect", stop_queued_connect, NULL, 20 },
	{ "user-data-of-events", user_data_of_events, NULL, 60 },
	{ "message-after-listener", message_after_listener, NULL, 20 },
	{ "notification-for-dead-peer", notification_for_dead_peer, NULL, 20 },
	{ "completion-of-closed-peer", completion_of_closed_peer, NULL, 60 },
	{ "collect-while-closing", collect_while_closing, NULL, 60 },
};

int main(void)
{
	return cases_run("peer-close", cases, sizeof(cases) / sizeof(cases[0]));
}
