/* SPDX-License-Identifier: BSD-2-Clause */
/* Closing of peers, listeners and contexts that are in use. */
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/listener.h"
#include "scenarios/silent.h"

#define LARGE (32u << 20)
/* Number of completions, of operations without a handle, that closing the peer must produce. */
#define POSTED 12

/* Time in which the openings of several peers take all their steps, in microseconds. */
#define OPENING_TIME 4000

static void post_unending(struct silent *silent)
{
	struct pl_error error;

	for (unsigned i = 0; i < POSTED; i++) {
		struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

		attributes.user_data = i;
		if (i % 2)
			check_ok(pl_send(silent->near_peer, i, &(struct pl_buffer){ silent->near.region, 0, LARGE },
					 &attributes, NULL, &error),
				 &error);
		else
			check_ok(pl_receive(silent->near_peer, i, UINT64_MAX,
					    &(struct pl_buffer){ silent->near.region, 0, 100 }, &attributes, NULL,
					    &error),
				 &error);
	}
}

static void peer_close_running(struct scenario_environment *environment)
{
	struct pl_operation *operations[3];
	struct pl_completion completions[POSTED];
	struct silent silent;
	struct pl_completion receipt;
	struct pl_error error;
	uint64_t started;

	silent_open(environment, &silent, LARGE);
	bytes_set(silent.target.bytes, 0, LARGE);
	bytes_set(silent.near.bytes, 1, LARGE);
	post_unending(&silent);
	check_ok(pl_write(silent.near_peer, &(struct pl_transfer){ silent.remote, 0, silent.near.region, 0, LARGE },
			  NULL, &operations[0], &error),
		 &error);
	check_ok(pl_read(silent.near_peer, &(struct pl_transfer){ silent.remote, 0, silent.near.region, 0, LARGE },
			 NULL, &operations[1], &error),
		 &error);
	check_ok(pl_remote_import_start(silent.near_peer, silent.token, silent.token_length, 0, &operations[2], &error),
		 &error);
	settle(environment, 5);
	started = clock_now();
	pl_peer_close(silent.near_peer);
	silent.near_peer = NULL;
	check(clock_now() - started < SLACK);
	/* The library uses no buffer any more, although no completion was collected yet. */
	bytes_set(silent.near.bytes, POISON, LARGE);
	collect(environment, environment->near, completions, POSTED);
	for (unsigned i = 0; i < POSTED; i++) {
		check_completion(environment->near, &completions[i], -ECANCELED);
		check(!completions[i].peer);
		check(completions[i].user_data < POSTED);
	}
	for (unsigned i = 0; i < 3; i++) {
		int status = pl_test(operations[i], &receipt, &error);

		check_one_of(status, -ECANCELED, environment->setting->one_sided ? 0 : -ECANCELED);
		check(!receipt.peer);
	}
	check_number(pl_poll(environment->near, completions, POSTED), 0);
	check_number(pl_remote_length(silent.remote), LARGE);
	silent_awake(environment, &silent, 50);
	value_check(silent.near.bytes, LARGE, POISON);
	check(!bytes_contain(silent.target.bytes, LARGE, POISON));
	silent_close(&silent);
}

/* Checks that the other end of a closed connection learns the closing at once. */
static void other_end_closes(struct scenario_environment *environment)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct pl_operation *receive, *send;
	struct pl_completion completion;
	struct pl_error error;
	struct buffer near, far;
	struct pl_remote *remote;
	int status;

	buffer_open(&near, environment->near, 1 << 20, PL_ACCESS_ALL);
	buffer_open(&far, environment->far, 1 << 20, PL_ACCESS_ALL);
	remote = share(environment, far.region, environment->near_peer, NULL);
	check_ok(pl_receive(environment->near_peer, 1, 0, &(struct pl_buffer){ near.region, 0, 64 }, NULL, &receive,
			    &error),
		 &error);
	check_ok(
		pl_send(environment->near_peer, 1, &(struct pl_buffer){ near.region, 0, 1 << 20 }, NULL, &send, &error),
		&error);
	check_ok(
		pl_receive(environment->near_peer, 2, 0, &(struct pl_buffer){ near.region, 0, 64 }, NULL, NULL, &error),
		&error);
	settle(environment, 5);
	pl_peer_close(environment->far_peer);
	environment->far_peer = NULL;
	fail_with(environment, receive, -ECONNRESET);
	fail_with(environment, send, -ECONNRESET);
	collect(environment, environment->near, &completion, 1);
	check_completion(environment->near, &completion, -ECONNRESET);
	check(completion.peer == environment->near_peer);
	check_number(pl_peer_query(environment->near_peer, &info), 0);
	check(!info.connected);
	check_status(pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, 8 }, NULL,
			      &send, &error),
		     -ENOTCONN, &error);
	check_status(pl_read(environment->near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, 8 }, NULL, &send,
			     &error),
		     -ENOTCONN, &error);
	check_status(pl_send_copy(environment->near_peer, 1, "x", 1, NULL, &send, &error), -ENOTCONN, &error);
	/*
	 * A program may post a receive after the end, as a message may have arrived before.  No message arrived here.
	 */
	status = pl_receive(environment->near_peer, 1, 0, &(struct pl_buffer){ near.region, 0, 8 }, NULL, &receive,
			    &error);
	if (!status)
		status = await(environment, receive, NULL, &error);
	check_one_of(status, -ENOTCONN, -ECONNRESET);
	status = import_status(environment, environment->near_peer, (uint8_t[PL_TOKEN_MAX]){ 0 }, 68);
	check_one_of(status, -ENOTCONN, -ECONNRESET, -EINVAL);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
}

struct waiting {
	struct pl_operation *operation;
	struct pl_completion receipt;
	atomic_bool started;
	int status;
};

static void *wait_for_operation(void *argument)
{
	struct waiting *waiting = argument;
	struct pl_error error;

	atomic_store(&waiting->started, true);
	waiting->status = pl_wait(waiting->operation, UINT64_MAX, &waiting->receipt, &error);
	return NULL;
}

/* Checks that a waiter gets the whole receipt while another thread closes the peer, and afterwards. */
static void close_while_waiting(struct scenario_environment *environment)
{
	struct buffer near;

	buffer_open(&near, environment->near, 64, PL_ACCESS_LOCAL);
	for (unsigned round = 0; round < 12; round++) {
		struct waiting waiting[3] = { 0 };
		struct pl_peer *near_end, *far_end;
		pthread_t threads[3];
		struct pl_error error;

		connect_pair(environment, environment->near, environment->listener, &near_end, &far_end);
		for (unsigned i = 0; i < 3; i++) {
			struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

			attributes.user_data = i;
			check_ok(pl_receive(near_end, i, 0, &(struct pl_buffer){ near.region, 0, 64 }, &attributes,
					    &waiting[i].operation, &error),
				 &error);
			check(!pthread_create(&threads[i], NULL, wait_for_operation, &waiting[i]));
		}
		while (round % 2 && !atomic_load(&waiting[2].started))
			sched_yield();
		pl_peer_close(near_end);
		for (unsigned i = 0; i < 3; i++) {
			check(!pthread_join(threads[i], NULL));
			check_number(waiting[i].status, -ECANCELED);
			check_number(waiting[i].receipt.status, -ECANCELED);
			check_number(waiting[i].receipt.kind, PL_KIND_RECEIVE);
			check_number(waiting[i].receipt.user_data, i);
			check(waiting[i].receipt.completed >= waiting[i].receipt.posted);
			check(waiting[i].receipt.peer == near_end || !waiting[i].receipt.peer);
		}
		pl_peer_close(far_end);
	}
	buffer_close(&near);
}

struct posting {
	struct pl_peer *peer;
	struct pl_remote *remote;
	struct pl_region *region;
};

static void *post_two(void *argument)
{
	struct posting *posting = argument;
	struct pl_error error;

	check_ok(pl_send_copy(posting->peer, 1, "x", 1, NULL, NULL, &error), &error);
	check_ok(pl_write(posting->peer, &(struct pl_transfer){ posting->remote, 0, posting->region, 0, 64 }, NULL,
			  NULL, &error),
		 &error);
	return NULL;
}

/* Closes the peer after its completions, although the calls that posted the operations may not have returned yet. */
static void close_by_completion(struct scenario_environment *environment)
{
	struct posting posting;
	struct buffer near, far;

	buffer_open(&near, environment->near, 64, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, 64, PL_ACCESS_ALL);
	for (unsigned round = 0; round < 12; round++) {
		struct pl_completion completions[2];
		struct pl_peer *far_end;
		pthread_t thread;

		connect_pair(environment, environment->near, environment->listener, &posting.peer, &far_end);
		posting.remote = share(environment, far.region, posting.peer, NULL);
		posting.region = near.region;
		check(!pthread_create(&thread, NULL, post_two, &posting));
		collect(environment, environment->near, completions, 2);
		check_number(completions[0].status, 0);
		check_number(completions[1].status, 0);
		pl_peer_close(posting.peer);
		check(!pthread_join(thread, NULL));
		pl_remote_release(posting.remote);
		pl_peer_close(far_end);
	}
	buffer_close(&near);
	buffer_close(&far);
}

/* Checks that messages sent before an orderly end can be received after it. */
static void close_after_send(struct scenario_environment *environment)
{
	struct pl_operation *send, *receive;
	struct pl_error error;
	struct buffer far;

	buffer_open(&far, environment->far, 64, PL_ACCESS_LOCAL);
	check_ok(pl_receive(environment->far_peer, 1, 0, &(struct pl_buffer){ far.region, 0, 64 }, NULL, &receive,
			    &error),
		 &error);
	check_ok(pl_send_copy(environment->near_peer, 1, "farewell", 8, NULL, &send, &error), &error);
	complete(environment, send, NULL);
	settle(environment, 20);
	pl_peer_close(environment->near_peer);
	environment->near_peer = NULL;
	complete(environment, receive, NULL);
	check(bytes_equal(far.bytes, "farewell", 8));
	buffer_close(&far);
}

static void *blocked_accept(void *argument)
{
	struct pl_peer *peer = NULL;
	struct pl_error error;

	check_status(pl_accept(argument, UINT64_MAX, &peer, &error), -ECANCELED, &error);
	return NULL;
}

static void listener_close(struct scenario_environment *environment)
{
	struct pl_operation *operations[3];
	struct pl_listener *listener;
	struct pl_completion completion;
	struct pl_error error;
	pthread_t thread;
	unsigned references;
	char address[96];

	listener = listener_open(environment->setting, environment->far, address);
	for (unsigned i = 0; i < 3; i++)
		check_ok(pl_accept_start(listener, i, &operations[i], &error), &error);
	check_ok(pl_accept_start(listener, 44, NULL, &error), &error);
	pl_cancel(operations[1]);
	fail_with(environment, operations[1], -ECANCELED);
	references = atomic_load(&listener->references);
	check_number(pthread_create(&thread, NULL, blocked_accept, listener), 0);
	/* Programs must not call pl_accept() after pl_listener_close(): waits until the thread is in the call. */
	while (atomic_load(&listener->references) == references)
		sleep_ms(1);
	pl_listener_close(listener);
	pthread_join(thread, NULL);
	fail_with(environment, operations[0], -ECANCELED);
	fail_with(environment, operations[2], -ECANCELED);
	collect(environment, environment->far, &completion, 1);
	check_number(pl_completion_error(environment->far, &completion, &error), -ECANCELED);
	check_text(error.id, "LISTENER-CLOSED");
	check_number(completion.kind, PL_KIND_ACCEPT);
	check_number(completion.user_data, 44);
	/* Accepted peers survive the listener. */
	pl_listener_close(environment->listener);
	environment->listener = NULL;
	check_ok(pl_send_copy(environment->near_peer, 1, "x", 1, NULL, &operations[0], &error), &error);
	complete(environment, operations[0], NULL);
}

static void accept_timeouts(struct scenario_environment *environment)
{
	struct pl_peer *peer = NULL;
	struct pl_error error;
	uint64_t started = clock_now();

	check_status(pl_accept(environment->listener, 0, &peer, &error), -ETIMEDOUT, &error);
	check(clock_now() - started < SLACK);
	started = clock_now();
	check_status(pl_accept(environment->listener, 40 * MS, &peer, &error), -ETIMEDOUT, &error);
	check(clock_now() - started >= 40 * MS && clock_now() - started < 40 * MS + SLACK);
	check(!peer);
}

/*
 * Checks that pl_close() ends all open and busy objects: sockets, threads, use of buffers. No other context is open
 * while it counts: lanes that still open elsewhere would start helper threads.
 */
static void close_everything(struct scenario_environment *environment)
{
	const struct setting *setting = environment->setting;
	unsigned descriptors, threads;
	struct pl_listener *listener;
	struct pl_operation *operations[4];
	struct silent silent;
	struct pl_error error;
	char address[96];

	environment_close(environment);
	descriptors = open_descriptors();
	threads = running_threads();
	environment_listen(environment, setting);
	silent_open(environment, &silent, LARGE);
	bytes_set(silent.near.bytes, 1, LARGE);
	bytes_set(silent.target.bytes, 0, LARGE);
	listener = listener_open(setting, environment->near, address);
	check_ok(pl_accept_start(listener, 0, &operations[0], &error), &error);
	check_ok(pl_accept_start(listener, 0, NULL, &error), &error);
	check_ok(pl_connect_start(environment->near, environment->address, 0, 0, NULL, &error), &error);
	post_unending(&silent);
	check_ok(pl_write(silent.near_peer, &(struct pl_transfer){ silent.remote, 0, silent.near.region, 0, LARGE },
			  NULL, &operations[1], &error),
		 &error);
	check_ok(pl_read(silent.near_peer, &(struct pl_transfer){ silent.remote, 0, silent.near.region, 0, LARGE },
			 NULL, &operations[2], &error),
		 &error);
	check_ok(pl_remote_import_start(silent.near_peer, silent.token, silent.token_length, 0, &operations[3], &error),
		 &error);
	settle(environment, 3);
	drive_no_more(environment, environment->near);
	pl_close(environment->near);
	environment->near = NULL;
	bytes_set(silent.near.bytes, POISON, LARGE);
	silent_awake(environment, &silent, 50);
	check(!bytes_contain(silent.target.bytes, LARGE, POISON));
	value_check(silent.near.bytes, LARGE, POISON);
	buffer_close_bare(&silent.near);
	pl_close(silent.context);
	buffer_close_bare(&silent.target);
	environment_close(environment);
	check_threads(threads);
	check_number(open_descriptors(), descriptors);
}

static void connect_and_close(struct scenario_environment *environment)
{
	struct pl_peer *near, *far;
	unsigned descriptors;

	/* After one connection for each engine, all resources that a fabric keeps for an engine exist. */
	for (unsigned i = 0; i < 2; i++) {
		connect_pair(environment, environment->near, environment->listener, &near, &far);
		pl_peer_close(near);
		pl_peer_close(far);
	}
	settle(environment, 20);
	descriptors = open_descriptors();
	for (unsigned i = 0; i < 40; i++) {
		connect_pair(environment, environment->near, environment->listener, &near, &far);
		if (i % 2)
			pl_peer_close(far);
		if (i % 3 == 0)
			settle(environment, 1);
		pl_peer_close(near);
		if (i % 2 == 0)
			pl_peer_close(far);
	}
	progress_until(environment, open_descriptors() <= descriptors);
}

/* Contexts are closed at each instant of an opening, with lanes that just begin or break. */
static void close_while_connecting(struct scenario_environment *environment)
{
	const unsigned rounds = environment->setting->slow ? 6 : 40;
	struct pl_context *context;
	struct pl_error error;
	struct pl_peer *peer;

	for (unsigned i = 0; i < rounds; i++) {
		context = context_open(environment->setting);
		drive(environment, context);
		for (unsigned k = 0; k < 4; k++)
			check_ok(pl_connect_start(context, environment->address, 0, 0, NULL, &error), &error);
		usleep(i * OPENING_TIME / rounds);
		drive_no_more(environment, context);
		pl_close(context);
	}
	while (!pl_accept(environment->listener, 50 * MS, &peer, NULL))
		pl_peer_close(peer);
}

static void close_while_accepting(struct scenario_environment *environment)
{
	const unsigned rounds = environment->setting->slow ? 6 : 40;
	struct pl_completion completions[4];
	struct pl_listener *listener;
	struct pl_context *context;
	struct pl_error error;
	char address[96];

	for (unsigned i = 0; i < rounds; i++) {
		context = context_open(environment->setting);
		listener = listener_open(environment->setting, context, address);
		check_ok(pl_accept_start(listener, 0, NULL, &error), &error);
		drive(environment, context);
		for (unsigned k = 0; k < 4; k++)
			check_ok(pl_connect_start(environment->near, address, 0, 0, NULL, &error), &error);
		usleep(i * OPENING_TIME / rounds);
		drive_no_more(environment, context);
		pl_close(context);
		collect(environment, environment->near, completions, 4);
		for (unsigned k = 0; k < 4; k++)
			if (completions[k].status == 0)
				pl_peer_close(completions[k].peer);
	}
}

static void open_and_close(struct scenario_environment *environment)
{
	unsigned descriptors = open_descriptors(), threads = running_threads();

	for (unsigned i = 0; i < 30; i++)
		pl_close(context_open(environment->setting));
	pl_close(NULL);
	check_number(open_descriptors(), descriptors);
	check_threads(threads);
}

const struct scenario close_scenarios[] = {
	{ "peer-close-running", peer_close_running, 0 },
	{ "other-end-closes", other_end_closes, 0 },
	{ "close-while-waiting", close_while_waiting, SCENARIO_SETTING },
	{ "close-by-completion", close_by_completion, SCENARIO_SETTING },
	{ "close-after-send", close_after_send, SCENARIO_SETTING },
	{ "listener-close", listener_close, SCENARIO_SETTING },
	{ "accept-timeouts", accept_timeouts, SCENARIO_SETTING },
	{ "close-everything", close_everything, SCENARIO_OUTLIVES },
	{ "connect-and-close", connect_and_close, 0 },
	{ "close-while-connecting", close_while_connecting, 0 },
	{ "close-while-accepting", close_while_accepting, 0 },
	{ "open-and-close", open_and_close, SCENARIO_SETTING },
	{ NULL, NULL, 0 },
};
