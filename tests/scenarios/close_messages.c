/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages that wait when their end closes the peer: behind the window, a fence, a full socket, a receive or a write. The close sends
 * them while the other end takes them, and ends the others in their order when its time is over.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/fabric.h"
#include "scenarios/silent.h"
#include "support/full_channel.h"

#define MESSAGE PL_SEND_COPY_MAX
/* More than the window, and more bytes than sockets take. */
#define MESSAGES (PL_MESSAGE_WINDOW + 100)
#define LARGE (1u << 20)
#define CHUNK (8u << 10)
/* Messages that fit into the buffer of a socket that sends. */
#define HALF 100u
/* Time in which a close that does not wait ends. Others wait longer, until the other end goes on. */
#define LOOK 20
#define PEERS 40u

/* Thread that closes a peer, which may take long. */
struct closer {
	struct pl_peer *peer;
	pthread_t thread;
	atomic_bool ended;
};

static void *close_amply(void *argument)
{
	struct closer *closer = argument;
	struct pl_error error;

	pl_fail(&error, -ECANCELED, "PEER-CLOSING", "pl_peer_close", NULL, NULL, "closed");
	pl_peer_destroy(closer->peer, pl_now() + AMPLE_TIME, -ECANCELED, &error);
	atomic_store(&closer->ended, true);
	return NULL;
}

static void closer_begin(struct closer *closer, struct pl_peer *peer)
{
	closer->peer = peer;
	atomic_init(&closer->ended, false);
	check_number(pthread_create(&closer->thread, NULL, close_amply, closer), 0);
}

/* Closes the near end. */
static void closer_start(struct closer *closer, struct silent *silent)
{
	closer_begin(closer, silent->near_peer);
	silent->near_peer = NULL;
	sleep_ms(LOOK);
}

/* Drives the other end, whose acknowledgements the close may wait for. */
static void closer_end(struct closer *closer, struct pl_context *other)
{
	while (!atomic_load(&closer->ended))
		pl_poll(other, NULL, 0);
	check_number(pthread_join(closer->thread, NULL), 0);
}

/* Posts a message without a handle. Its completion has the tag as user data. */
static void send_tag(struct pl_peer *peer, uint64_t tag, size_t length, unsigned flags)
{
	static const uint8_t bytes[MESSAGE];
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;

	attributes.user_data = tag;
	attributes.flags = flags;
	check_ok(pl_send_copy(peer, tag, bytes, length, &attributes, NULL, &error), &error);
}

/* Receives messages with tags from `first` on, in their order. */
static void receive_tags(const struct silent *silent, uint64_t first, uint64_t count)
{
	const struct pl_buffer buffer = { silent->target.region, 0, silent->target.length };
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	for (uint64_t i = first; i < first + count; i++) {
		check_ok(pl_receive(silent->peer, 0, 0, &buffer, NULL, &operation, &error), &error);
		check_ok(pl_wait(operation, AMPLE_TIME, &receipt, &error), &error);
		check_number(receipt.tag, i);
	}
}

/* Collects the completions of all operations that a closed peer had, the user data of which count from 0. */
static struct pl_completion *collect_closed(struct scenario_environment *environment, unsigned count)
{
	struct pl_completion *completions = calloc(count + 1, sizeof(*completions));

	check_number(pl_poll(environment->near, completions, (int)count + 1), count);
	for (unsigned i = 0; i < count; i++)
		check(!completions[i].peer);
	return completions;
}

/* All operations have succeeded, messages in their order. */
static void check_sent(struct scenario_environment *environment, unsigned count)
{
	struct pl_completion *completions = collect_closed(environment, count);

	for (unsigned i = 0; i < count; i++)
		check_completion(environment->near, &completions[i], 0);
	free(completions);
}

static void close_behind_window(struct scenario_environment *environment)
{
	struct silent silent;
	struct closer closer;

	silent_open(environment, &silent, MESSAGE);
	for (unsigned i = 0; i < MESSAGES; i++)
		send_tag(silent.near_peer, i, 8, 0);
	closer_start(&closer, &silent);
	receive_tags(&silent, 0, MESSAGES);
	closer_end(&closer, silent.context);
	check_sent(environment, MESSAGES);
	silent_close(&silent);
}

/* The sockets take a part of the messages, the window admits all. */
static void close_full_socket(struct scenario_environment *environment)
{
	struct silent silent;
	struct closer closer;

	silent_open(environment, &silent, MESSAGE);
	for (unsigned i = 0; i < PL_MESSAGE_WINDOW; i++)
		send_tag(silent.near_peer, i, MESSAGE, 0);
	closer_start(&closer, &silent);
	receive_tags(&silent, 0, PL_MESSAGE_WINDOW);
	closer_end(&closer, silent.context);
	check_sent(environment, PL_MESSAGE_WINDOW);
	silent_close(&silent);
}

static void close_behind_fence(struct scenario_environment *environment)
{
	struct pl_operation *read;
	struct silent silent;
	struct closer closer;
	struct pl_error error;

	silent_open(environment, &silent, LARGE);
	bytes_set(silent.target.bytes, 5, LARGE);
	check_ok(pl_read(silent.near_peer, &(struct pl_transfer){ silent.remote, 0, silent.near.region, 0, LARGE },
			 NULL, &read, &error),
		 &error);
	for (unsigned i = 0; i < 3; i++)
		send_tag(silent.near_peer, i, 8, PL_FENCE);
	closer_start(&closer, &silent);
	receive_tags(&silent, 0, 3);
	closer_end(&closer, silent.context);
	check_ok(pl_wait(read, AMPLE_TIME, NULL, &error), &error);
	check_sent(environment, 3);
	silent_close(&silent);
}

/* Large messages wait for their receives. */
static void close_large(struct scenario_environment *environment)
{
	struct silent silent;
	struct closer closer;
	struct pl_error error;

	silent_open(environment, &silent, LARGE);
	bytes_set(silent.near.bytes, 6, LARGE);
	for (unsigned i = 0; i < 3; i++) {
		struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

		attributes.user_data = i;
		check_ok(pl_send(silent.near_peer, i, &(struct pl_buffer){ silent.near.region, 0, LARGE }, &attributes,
				 NULL, &error),
			 &error);
	}
	send_tag(silent.near_peer, 3, 8, 0);
	closer_start(&closer, &silent);
	receive_tags(&silent, 0, 3);
	value_check(silent.target.bytes, LARGE, 6);
	receive_tags(&silent, 3, 1);
	closer_end(&closer, silent.context);
	check_sent(environment, 4);
	silent_close(&silent);
}

/* The kernels take all messages, but that of the other end has no room for the last ones. Then the other end sends something. */
static void close_full_receiver(struct scenario_environment *environment)
{
	struct silent silent;
	struct closer closer;
	struct pl_error error;

	silent_open(environment, &silent, MESSAGE);
	for (unsigned i = 0; i < HALF; i++)
		send_tag(silent.near_peer, i, MESSAGE, 0);
	closer_start(&closer, &silent);
	/* A socket that is closed resets the connection when bytes arrive, and drops its own. */
	check_ok(pl_send_copy(silent.peer, 0, "x", 1, NULL, NULL, &error), &error);
	sleep_ms(LOOK);
	receive_tags(&silent, 0, HALF);
	closer_end(&closer, silent.context);
	check_sent(environment, HALF);
	silent_close(&silent);
}

/* Opens all data sockets. */
static void open_lanes(struct scenario_environment *environment, struct silent *silent)
{
	const struct pl_transfer all = { silent->remote, 0, silent->near.region, 0, LARGE };
	struct pl_operation *write;
	struct pl_error error;

	if (strcmp(environment->setting->fabric, "tcp"))
		return;
	while (peer_information_of(silent->near_peer).lanes < environment->setting->lanes) {
		check_ok(pl_write(silent->near_peer, &all, NULL, &write, &error), &error);
		silent_complete(environment, silent, write, NULL);
	}
}

/* Writes that end with a notification. */
static void close_notifying_writes(struct scenario_environment *environment, size_t length)
{
	struct pl_completion completions[4];
	struct silent silent;
	struct closer closer;
	struct pl_error error;
	int count = 0;

	silent_open(environment, &silent, LARGE);
	open_lanes(environment, &silent);
	bytes_set(silent.near.bytes, 7, LARGE);
	for (unsigned i = 0; i < 4; i++) {
		const struct pl_transfer transfer = { silent.remote, 0, silent.near.region, 0, length };
		struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

		attributes.user_data = i;
		attributes.flags = PL_NOTIFY;
		attributes.notify = i;
		check_ok(pl_write(silent.near_peer, &transfer, &attributes, NULL, &error), &error);
	}
	closer_start(&closer, &silent);
	while (count < 4)
		count += pl_poll(silent.context, completions + count, 4 - count);
	for (unsigned i = 0; i < 4; i++)
		check_number(completions[i].kind, PL_KIND_NOTIFIED);
	value_check(silent.target.bytes, length, 7);
	closer_end(&closer, silent.context);
	check_sent(environment, 4);
	silent_close(&silent);
}

static void close_notifying(struct scenario_environment *environment)
{
	close_notifying_writes(environment, LARGE);
}

/* The kernels have taken all bytes, but the other end has not said that it has placed them. */
static void close_notifying_small(struct scenario_environment *environment)
{
	close_notifying_writes(environment, CHUNK);
}

/* The other end takes nothing: the close ends in time. Messages end in the order of posting, the last ones with a reason. */
static void close_unsent(struct scenario_environment *environment)
{
	struct pl_completion *completions;
	unsigned sent = 0;
	struct silent silent;
	struct pl_error error;
	uint64_t started;

	silent_open(environment, &silent, MESSAGE);
	for (unsigned i = 0; i < MESSAGES; i++)
		send_tag(silent.near_peer, i, MESSAGE, i + 1 == MESSAGES ? PL_FENCE : 0);
	started = clock_now();
	pl_peer_close(silent.near_peer);
	silent.near_peer = NULL;
	check(clock_now() - started < SLACK);
	completions = collect_closed(environment, MESSAGES);
	for (unsigned i = 0; i < MESSAGES; i++) {
		check_number(completions[i].user_data, i);
		sent += !completions[i].status;
		if (i < sent)
			continue;
		check_number(pl_completion_error(environment->near, &completions[i], &error), -ECANCELED);
		check_text(error.id, "PEER-CLOSING");
		check(strstr(error.message, "could not be sent"));
	}
	/* The last ones wait behind the window, and behind the fence. */
	check(sent <= PL_MESSAGE_WINDOW);
	free(completions);
	silent_close(&silent);
}

/* Without messages a close does not wait, although the other end takes nothing: neither writes, nor what the control channel has. */
static void close_without_messages(struct scenario_environment *environment)
{
	struct silent silent;
	struct pl_error error;
	uint64_t limit;

	silent_open(environment, &silent, silent_size(environment));
	for (unsigned i = 0; i < 2; i++) {
		const struct pl_transfer all = { silent.remote, 0, silent.near.region, 0, silent.near.length };

		check_ok(pl_write(silent.near_peer, &all, NULL, NULL, &error), &error);
	}
	pl_engine_lock(silent.near_peer->home);
	full_channel_fill(silent.near_peer);
	pl_engine_unlock(silent.near_peer->home);
	limit = pl_now() + AMPLE_TIME;
	pl_peer_send_last(silent.near_peer, limit);
	/* A wait would have lasted until its limit. */
	check(pl_now() < limit);
	check_number(atomic_load(&silent.near_peer->state), PL_PEER_UP);
	check(!atomic_load(&silent.near_peer->ending));
	silent_close(&silent);
}

/* The other end's host has the message. The writes behind it fill the socket, as the other end reads nothing: no wait for them. */
static void close_before_writes(struct scenario_environment *environment)
{
	struct silent silent;
	struct pl_error error;
	uint64_t limit;

	silent_open(environment, &silent, silent_size(environment));
	send_tag(silent.near_peer, 0, 8, 0);
	for (unsigned i = 0; i < 2; i++) {
		const struct pl_transfer all = { silent.remote, 0, silent.near.region, 0, silent.near.length };

		check_ok(pl_write(silent.near_peer, &all, NULL, NULL, &error), &error);
	}
	limit = pl_now() + AMPLE_TIME;
	pl_peer_send_last(silent.near_peer, limit);
	/* A wait for the writes would have lasted until its limit. */
	check(pl_now() < limit);
	check_number(atomic_load(&silent.near_peer->state), PL_PEER_UP);
	check(!atomic_load(&silent.near_peer->ending));
	receive_tags(&silent, 0, 1);
	silent_close(&silent);
}

/* Both ends have full sockets, and close at the same time: each reads the other one's messages. */
static void close_both_ends(struct scenario_environment *environment)
{
	struct pl_completion *completions;
	struct closer near, far;

	drive_no_more(environment, environment->near);
	drive_no_more(environment, environment->far);
	for (unsigned i = 0; i < PL_MESSAGE_WINDOW; i++) {
		send_tag(environment->near_peer, i, MESSAGE, 0);
		send_tag(environment->far_peer, i, MESSAGE, 0);
	}
	closer_begin(&near, environment->near_peer);
	closer_begin(&far, environment->far_peer);
	environment->near_peer = environment->far_peer = NULL;
	closer_end(&near, environment->far);
	closer_end(&far, environment->near);
	/* The end that closes first has sent everything. */
	completions = calloc(2 * PL_MESSAGE_WINDOW, sizeof(*completions));
	check_number(pl_poll(environment->near, completions, PL_MESSAGE_WINDOW), PL_MESSAGE_WINDOW);
	check_number(pl_poll(environment->far, completions + PL_MESSAGE_WINDOW, PL_MESSAGE_WINDOW), PL_MESSAGE_WINDOW);
	check(!completions[PL_MESSAGE_WINDOW - 1].status || !completions[2 * PL_MESSAGE_WINDOW - 1].status);
	free(completions);
}

/* All peers of a context together have the time of one. */
static void close_many_unsent(struct scenario_environment *environment)
{
	struct pl_peer *near, *far;
	uint64_t started;

	for (unsigned i = 0; i < PEERS; i++) {
		connect_pair(environment, environment->near, environment->listener, &near, &far);
		for (unsigned k = 0; k < MESSAGES; k++)
			send_tag(near, k, 8, 0);
	}
	drive_no_more(environment, environment->near);
	started = clock_now();
	pl_close(environment->near);
	check(clock_now() - started < SLACK);
	environment->near = NULL;
	environment->near_peer = NULL;
}

const struct scenario close_message_scenarios[] = {
	{ "close-behind-window", close_behind_window, 0 },
	{ "close-full-socket", close_full_socket, 0 },
	{ "close-full-receiver", close_full_receiver, 0 },
	{ "close-behind-fence", close_behind_fence, 0 },
	{ "close-large", close_large, 0 },
	{ "close-notifying", close_notifying, 0 },
	{ "close-notifying-small", close_notifying_small, 0 },
	{ "close-unsent", close_unsent, 0 },
	{ "close-without-messages", close_without_messages, 0 },
	{ "close-before-writes", close_before_writes, 0 },
	{ "close-both-ends", close_both_ends, 0 },
	{ "close-many-unsent", close_many_unsent, 0 },
	{ NULL, NULL, 0 },
};
