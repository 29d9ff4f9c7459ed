/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread cancels an operation while another one closes the peer, which waits for a chunk that an engine copies. The endpoint's
 * sockets are gone then: AddressSanitizer reports a use of them. One call that cancels many operations sweeps their peer once. A sweep
 * that waits for the engine's thread ends with the peer. Until then no message of a cancelled operation is sent, but at its end a peer
 * sends all others that wait.
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/fabric.h"
#include "support/cases.h"
#include "support/pair.h"

#define LENGTH ((size_t)16 << 20)

static const struct setting setting = {
	.name = "cancel-closing", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

/* Engine whose copy is held. `held`: it has begun one. */
static struct pl_engine *_Atomic holder;
static atomic_bool held, released;

/* Replaces that of the C library. Other engines copy nothing before the holder has begun, so that they leave it a chunk. */
ssize_t process_vm_writev(pid_t process, const struct iovec *local, unsigned long local_count,
			  const struct iovec *remote, unsigned long remote_count, unsigned long flags)
{
	struct pl_engine *engine = atomic_load(&holder);

	if (engine && pl_engine_held(engine)) {
		atomic_store(&held, true);
		while (!atomic_load(&released))
			usleep(100);
	} else if (engine) {
		while (!atomic_load(&held))
			usleep(100);
	}
	return syscall(SYS_process_vm_writev, process, local, local_count, remote, remote_count, flags);
}

static void *close_peer(void *peer)
{
	pl_peer_close(peer);
	return NULL;
}

static void cancel_while_closing(void *unused)
{
	struct scenario_environment environment;
	struct pl_operation *operation;
	struct pl_engine *engine;
	struct pl_remote *remote;
	struct buffer near, far;
	struct pl_error error;
	pthread_t thread;

	(void)unused;
	environment_open(&environment, &setting);
	buffer_open(&near, environment.near, LENGTH, PL_ACCESS_ALL);
	buffer_open(&far, environment.far, LENGTH, PL_ACCESS_ALL);
	remote = share(&environment, far.region, environment.near_peer, NULL);
	engine = environment.near->engines[environment.near->engines[0] == environment.near_peer->home];
	atomic_store(&holder, engine);
	check_ok(pl_write(environment.near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, LENGTH }, NULL,
			  &operation, &error),
		 &error);
	while (!atomic_load(&held))
		usleep(100);
	check_number(pthread_create(&thread, NULL, close_peer, environment.near_peer), 0);
	/* The sockets are closed once the thread waits for the engine that copies. */
	while (!atomic_load(&engine->waiting))
		usleep(100);
	check_number(atomic_load(&operation->state), PL_RUNNING);
	pl_cancel(operation);
	atomic_store(&released, true);
	check_status(pl_wait(operation, AMPLE_TIME, NULL, &error), -ECANCELED, &error);
	check_number(pthread_join(thread, NULL), 0);
	environment.near_peer = NULL;
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
	environment_close(&environment);
}

#define READS 100

static const struct setting swept = {
	.name = "cancel-sweep", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

static unsigned sweeps;
static void (*sweep)(struct pl_endpoint *endpoint);

static void count_sweep(struct pl_endpoint *endpoint)
{
	sweeps++;
	sweep(endpoint);
}

struct reads {
	struct pair pair;
	const struct pl_fabric_ops *before;
	struct pl_fabric_ops ops;
	struct pl_operation *operations[READS];
};

/* Posts reads, which the far end, that nobody drives, does not answer. Counts sweeps from then on. */
static void reads_post(struct reads *reads, bool handles)
{
	struct pl_error error;
	struct pl_peer *peer;

	pair_open(&reads->pair, &swept, 8);
	peer = reads->pair.environment.near_peer;
	for (unsigned i = 0; i < READS; i++)
		check_ok(pl_read(peer, &(struct pl_transfer){ reads->pair.remote, 0, reads->pair.near.region, 0, 8 },
				 NULL, handles ? &reads->operations[i] : NULL, &error),
			 &error);
	reads->before = peer->ops;
	reads->ops = *reads->before;
	sweep = reads->ops.sweep;
	reads->ops.sweep = count_sweep;
	peer->ops = &reads->ops;
}

/* The fabric has looked through its work once, not once for each read. */
static void reads_check_sweeps(const struct reads *reads)
{
	struct pl_peer *peer = reads->pair.environment.near_peer;

	check_number(sweeps, 1);
	check_number(peer->stopping, 0);
	check(!peer->sweep_due);
	peer->ops = reads->before;
}

static void cancel_many(void *unused)
{
	struct pl_completion completions[READS];
	struct reads reads;

	(void)unused;
	reads_post(&reads, false);
	check_number(pl_cancel_all_posted(reads.pair.environment.near), READS);
	reads_check_sweeps(&reads);
	collect(&reads.pair.environment, reads.pair.environment.near, completions, READS);
	for (unsigned i = 0; i < READS; i++)
		check_completion(reads.pair.environment.near, &completions[i], -ECANCELED);
	pair_close(&reads.pair);
}

/* The engine is busy, and finds all of the cancellations then. */
static void cancel_handles(void *unused)
{
	struct pl_error error;
	struct reads reads;
	struct pl_engine *home;

	(void)unused;
	reads_post(&reads, true);
	home = reads.pair.environment.near_peer->home;
	pl_engine_lock(home);
	for (unsigned i = 0; i < READS; i++)
		pl_cancel(reads.operations[i]);
	pl_engine_unlock(home);
	for (unsigned i = 0; i < READS; i++)
		check_status(pl_wait(reads.operations[i], AMPLE_TIME, NULL, &error), -ECANCELED, &error);
	reads_check_sweeps(&reads);
	pair_close(&reads.pair);
}

/* No sweep follows calls that stopped nothing, and one follows the last one of these calls otherwise. */
static void sweep_if_due(void *unused)
{
	struct pl_completion completions[READS];
	struct reads reads;
	struct pl_peer *peer;

	(void)unused;
	reads_post(&reads, false);
	peer = reads.pair.environment.near_peer;
	pl_engine_lock(peer->home);
	pl_peer_begin_stopping(peer);
	pl_peer_end_stopping(peer);
	pl_peer_begin_stopping(peer);
	pl_peer_end_stopping_one(peer);
	check(!atomic_load(&peer->sweep_task.queued));
	pl_peer_begin_stopping(peer);
	pl_peer_sweep(peer);
	pl_peer_begin_stopping(peer);
	pl_peer_end_stopping_one(peer);
	check(!atomic_load(&peer->sweep_task.queued));
	check(peer->sweep_due);
	check_number(sweeps, 0);
	pl_peer_end_stopping(peer);
	pl_engine_unlock(peer->home);
	reads_check_sweeps(&reads);
	check_number(pl_cancel_all_posted(reads.pair.environment.near), READS);
	collect(&reads.pair.environment, reads.pair.environment.near, completions, READS);
	pair_close(&reads.pair);
}

static const struct setting threaded = {
	.name = "cancel-late", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

static atomic_int late_fd = -1; /* epoll descriptor of an engine whose thread is late; -1: none */
static atomic_bool is_late;

/* Stands in for that of the C library, which ThreadSanitizer must see too. */
int epoll_wait(int fd, struct epoll_event *events, int count, int timeout)
{
	static int (*_Atomic next)(int, struct epoll_event *, int, int);

	if (!next)
		next = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
	while (atomic_load(&late_fd) == fd) {
		atomic_store(&is_late, true);
		usleep(100);
	}
	return atomic_load(&next)(fd, events, count, timeout);
}

/* Returns when the engine's thread is late, until late_fd is -1. */
static void thread_is_late(struct pl_engine *engine)
{
	atomic_store(&late_fd, engine->epoll_fd);
	pl_engine_wake(engine);
	while (!atomic_load(&is_late))
		usleep(100);
}

/* The peer is the last user of its listener, which it releases once it has unlocked its home for the last time. */
struct last_user {
	struct pl_peer *peer;
	struct pl_listener *_Atomic listener; /* set last: other threads release memory meanwhile */
	unsigned queued; /* state of its sweep then */
};

static void release_and_look(void *pointer, void *user)
{
	struct last_user *last = user;

	if (pointer && pointer == atomic_load(&last->listener)) {
		last->queued = atomic_load(&last->peer->sweep_task.queued);
		atomic_store(&last->listener, NULL); /* the address may be used again */
	}
	free(pointer);
}

/* Cancelling an operation that the fabric has does the same. */
static void leave_sweep_to_thread(struct pl_peer *peer)
{
	pl_engine_lock(peer->home);
	pl_peer_begin_stopping(peer);
	pl_peer_sweep(peer);
	pl_peer_end_stopping_one(peer);
	pl_engine_unlock(peer->home);
}

static void close_before_sweep(void *unused)
{
	struct last_user last = { .queued = UINT_MAX };
	const struct pl_allocator allocator = { pl_system_allocator.allocate, pl_system_allocator.reallocate,
						release_and_look, &last };
	struct scenario_environment environment = { .setting = &threaded };
	struct pl_options options = setting_options(&threaded);
	struct pl_engine *home;

	(void)unused;
	environment.near = context_open(&threaded);
	options.allocator = &allocator;
	environment.far = context_open_with(&options);
	environment.listener = listener_open(&threaded, environment.far, environment.address);
	connect_pair(&environment, environment.near, environment.listener, &environment.near_peer,
		     &environment.far_peer);
	last.peer = environment.far_peer;
	atomic_store(&last.listener, environment.listener);
	home = last.peer->home;
	pl_listener_close(environment.listener);
	environment.listener = NULL;
	thread_is_late(home);
	leave_sweep_to_thread(last.peer);
	check(atomic_load(&last.peer->sweep_task.queued));
	pl_peer_close(environment.far_peer);
	environment.far_peer = NULL;
	check_number(last.queued, 0);
	atomic_store(&late_fd, -1);
	environment_close(&environment);
}

/* -- messages that wait ----------------------------------------------------------------------------- */

enum { MESSAGES = 10, MESSAGE = 4 << 10 };

static const struct setting threaded_local = {
	.name = "cancel-late-local", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

/* Messages of the near end, whose engine's thread is late: what a thread of the program does not send waits. */
struct messages {
	struct pair pair;
	struct pl_peer *peer;
	struct pl_operation *operations[MESSAGES];
	int statuses[MESSAGES];
};

static void messages_open(struct messages *messages, const struct setting *from)
{
	pair_open(&messages->pair, from, MESSAGE);
	messages->peer = messages->pair.environment.near_peer;
	thread_is_late(messages->peer->home);
}

static void messages_send(struct messages *messages, unsigned index, size_t length)
{
	static const uint8_t bytes[MESSAGE];
	struct pl_error error;

	check_ok(pl_send_copy(messages->peer, index, bytes, length, NULL, &messages->operations[index], &error),
		 &error);
}

static bool message_waits(const struct messages *messages, unsigned index)
{
	return atomic_load(&messages->operations[index]->state) == PL_RUNNING;
}

/* Receives all messages but one, in their order, and ends the test. */
static void messages_check(struct messages *messages, unsigned missing)
{
	const struct pl_buffer buffer = { messages->pair.far.region, 0, MESSAGE };
	struct scenario_environment *environment = &messages->pair.environment;
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	atomic_store(&late_fd, -1);
	for (unsigned i = 0; i < MESSAGES; i++) {
		if (i == missing)
			continue;
		check_ok(pl_receive(environment->far_peer, 0, 0, &buffer, NULL, &operation, &error), &error);
		complete(environment, operation, &receipt);
		check_number(receipt.tag, i);
	}
	for (unsigned i = 0; i < MESSAGES; i++) {
		error.id[0] = 0;
		messages->statuses[i] = pl_wait(messages->operations[i], AMPLE_TIME, NULL, &error);
		check_number(!strcmp(error.id, "OPERATION-CANCELED"), i == missing);
	}
	pair_close(&messages->pair);
}

/* A message waits behind the first one, which is not acknowledged. Later ones fill the lane, which sends them before the sweep. */
static void cancelled_message_stays(void *argument)
{
	struct messages messages;

	messages_open(&messages, argument);
	for (unsigned i = 0; i < MESSAGES; i++) {
		messages_send(&messages, i, i < 2 ? 8 : MESSAGE);
		if (i != 1)
			continue;
		check(message_waits(&messages, 1));
		pl_cancel(messages.operations[1]);
	}
	check(!message_waits(&messages, 2));
	check(atomic_load(&messages.peer->sweep_task.queued));
	messages_check(&messages, 1);
	for (unsigned i = 0; i < MESSAGES; i++)
		check_number(messages.statuses[i], i == 1 ? -ECANCELED : 0);
}

static void close_near_peer(struct messages *messages)
{
	pl_peer_close(messages->peer);
	messages->pair.environment.near_peer = NULL;
}

/* The end of the peer sends what waits, but not the message of an operation that was cancelled before. */
static void close_sends_messages(void *argument)
{
	struct messages messages;

	messages_open(&messages, argument);
	for (unsigned i = 0; i < MESSAGES; i++)
		messages_send(&messages, i, 8);
	check(message_waits(&messages, 1) && message_waits(&messages, MESSAGES - 1));
	pl_cancel(messages.operations[2]);
	check(atomic_load(&messages.peer->sweep_task.queued));
	close_near_peer(&messages);
	messages_check(&messages, 2);
}

/*
 * Another thread holds the engine's lock, and leaves it when it has looked for operations for the last time. A later look by that thread
 * would find the ones that this thread has posted meanwhile, unless it closes their peer first.
 */
static void close_posts_messages(void *argument)
{
	struct messages messages;
	struct pl_engine *home;

	messages_open(&messages, argument);
	home = messages.peer->home;
	check(pl_lock_try(&home->lock));
	for (unsigned i = 0; i < MESSAGES; i++)
		messages_send(&messages, i, 8);
	check(message_waits(&messages, 0));
	pl_lock_release(&home->lock);
	close_near_peer(&messages);
	messages_check(&messages, MESSAGES);
}

/* The other end has closed the socket before this one, which sends, has read what arrived. */
static void failed_sends_lose_nothing(void *argument)
{
	static const uint8_t bytes[MESSAGE];
	struct messages messages;
	struct pl_error error;

	pair_open(&messages.pair, argument, MESSAGE);
	messages.peer = messages.pair.environment.near_peer;
	thread_is_late(messages.pair.environment.far_peer->home);
	for (unsigned i = 0; i < MESSAGES; i++)
		messages_send(&messages, i, 8);
	close_near_peer(&messages);
	for (unsigned i = 0; i < MESSAGES; i++)
		check_ok(pl_send_copy(messages.pair.environment.far_peer, i, bytes, MESSAGE, NULL, NULL, &error),
			 &error);
	messages_check(&messages, MESSAGES);
}

static const struct test_case cases[] = {
	{ "cancel-while-closing", cancel_while_closing, NULL, 30 },
	{ "cancel-many", cancel_many, NULL, 30 },
	{ "cancel-handles", cancel_handles, NULL, 30 },
	{ "sweep-if-due", sweep_if_due, NULL, 30 },
	{ "close-before-sweep", close_before_sweep, NULL, 30 },
	{ "cancelled-message-stays", cancelled_message_stays, &threaded, 30 },
	{ "cancelled-message-stays-local", cancelled_message_stays, &threaded_local, 30 },
	{ "close-sends-messages", close_sends_messages, &threaded, 30 },
	{ "close-sends-messages-local", close_sends_messages, &threaded_local, 30 },
	{ "close-posts-messages", close_posts_messages, &threaded, 30 },
	{ "failed-sends-lose-nothing", failed_sends_lose_nothing, &threaded, 30 },
	{ "failed-sends-lose-nothing-local", failed_sends_lose_nothing, &threaded_local, 30 },
};

int main(void)
{
	return cases_run("cancel-closing", cases, PL_ARRAY_SIZE(cases));
}
