/* SPDX-License-Identifier: BSD-2-Clause */
/* Cancellation: operations end soon, their buffers return to the caller, and later operations stay undisturbed. */
#include <stdlib.h>

#include "scenarios/silent.h"

/* Cancels a write, a read, a large send and a receive that cannot proceed. */
static void cancel_running(struct scenario_environment *environment)
{
	const size_t size = silent_size(environment);
	struct pl_operation *operations[5];
	struct silent silent;
	struct pl_error error;
	uint64_t started;

	silent_open(environment, &silent, size);
	bytes_set(silent.near.bytes, 1, size);
	bytes_set(silent.target.bytes, 0, size);
	check_ok(pl_receive(silent.near_peer, 1, 0, &(struct pl_buffer){ silent.near.region, 0, 64 }, NULL,
			    &operations[0], &error),
		 &error);
	check_ok(pl_send(silent.near_peer, 1, &(struct pl_buffer){ silent.near.region, 0, size }, NULL, &operations[1],
			 &error),
		 &error);
	check_ok(pl_write(silent.near_peer, &(struct pl_transfer){ silent.remote, 0, silent.near.region, 0, size / 2 },
			  NULL, &operations[2], &error),
		 &error);
	check_ok(pl_read(silent.near_peer,
			 &(struct pl_transfer){ silent.remote, size / 2, silent.near.region, size / 2, size / 2 }, NULL,
			 &operations[3], &error),
		 &error);
	check_ok(pl_remote_import_start(silent.near_peer, silent.token, silent.token_length, 0, &operations[4], &error),
		 &error);
	settle(environment, 5);
	started = clock_now();
	for (unsigned i = 0; i < 5; i++)
		pl_cancel(operations[i]);
	for (unsigned i = 0; i < 5; i++) {
		bool may_be_done = environment->setting->one_sided && (i == 2 || i == 3);
		int status = await(environment, operations[i], NULL, &error);

		check_one_of(status, -ECANCELED, may_be_done ? 0 : -ECANCELED);
	}
	check(clock_now() - started < SLACK);
	bytes_set(silent.near.bytes, POISON, size);
	silent_awake(environment, &silent, 150);
	value_check(silent.near.bytes, size, POISON);
	check(!bytes_contain(silent.target.bytes, size, POISON));
	silent_close(&silent);
}

static struct pl_operation *post_any(struct scenario_environment *environment, struct pl_remote *remote,
				     const struct buffer *near, unsigned kind, uint64_t length)
{
	struct pl_operation *operation = NULL;
	struct pl_error error;

	if (kind == 0)
		check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, near->region, 0, length },
				  NULL, &operation, &error),
			 &error);
	else if (kind == 1)
		check_ok(pl_read(environment->near_peer, &(struct pl_transfer){ remote, 0, near->region, 0, length },
				 NULL, &operation, &error),
			 &error);
	else
		check_ok(pl_fetch_add(environment->near_peer,
				      &(struct pl_atomic){ .remote = remote, .remote_offset = 0, .operand = 0 }, NULL,
				      &operation, &error),
			 &error);
	return operation;
}

/* Cancels at several times after posting: at once, a little later, after the end. */
static void cancel_any_time(struct scenario_environment *environment)
{
	enum { ROUNDS = 150, SIZE = 512 << 10 };
	uint64_t state = 1;
	struct buffer near, far;
	struct pl_remote *remote;
	struct pl_error error;

	buffer_open(&near, environment->near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, SIZE, PL_ACCESS_ALL);
	remote = share(environment, far.region, environment->near_peer, NULL);
	bytes_set(far.bytes, 1, SIZE);
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t length = random_next(&state) % (i % 5 ? 5000 : SIZE + 1);
		struct pl_operation *operation;
		uint64_t delay = random_next(&state) % 300000;
		uint64_t until;
		int status;

		bytes_set(near.bytes, 1, SIZE);
		operation = post_any(environment, remote, &near, i % 3, length);
		until = clock_now() + (i % 4 ? delay : 0);
		progress_until(environment, clock_now() >= until);
		pl_cancel(operation);
		status = await(environment, operation, NULL, &error);
		check_one_of(status, 0, -ECANCELED);
		if (status)
			check_status(status, -ECANCELED, &error);
		/* After the end of the operation, the library must neither read nor write the buffer. */
		bytes_set(near.bytes, POISON, SIZE);
		if (i % 10 == 9) {
			settle(environment, 2);
			value_check(near.bytes, SIZE, POISON);
		}
		check(!bytes_contain(far.bytes, SIZE, POISON));
	}
	/* The connection still works. */
	pattern_fill(near.bytes, SIZE, 5, 0);
	complete(environment, post_any(environment, remote, &near, 0, SIZE), NULL);
	pattern_check(far.bytes, SIZE, 5, 0);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
}

/* Checks that a cancelled send either arrives whole or is invisible to later receives. */
static void cancel_send(struct scenario_environment *environment)
{
	enum { SIZE = 1 << 20 };
	struct buffer near, far;
	struct pl_operation *send, *receive;
	struct pl_completion receipt;
	struct pl_error error;

	buffer_open(&near, environment->near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, SIZE, PL_ACCESS_LOCAL);
	pattern_fill(near.bytes, SIZE, 6, 0);
	check_ok(pl_send(environment->near_peer, 1, &(struct pl_buffer){ near.region, 0, SIZE }, NULL, &send, &error),
		 &error);
	settle(environment, 5);
	pl_cancel(send);
	fail_with(environment, send, -ECANCELED);
	bytes_set(near.bytes, POISON, SIZE);
	check_ok(pl_send_copy(environment->near_peer, 1, "next", 4, NULL, &send, &error), &error);
	check_ok(pl_receive(environment->far_peer, 1, UINT64_MAX, &(struct pl_buffer){ far.region, 0, SIZE }, NULL,
			    &receive, &error),
		 &error);
	if (await(environment, receive, &receipt, &error) == -ECANCELED) {
		/* The receive had matched the rendezvous request before the sender withdrew it. */
		check_ok(pl_receive(environment->far_peer, 1, UINT64_MAX, &(struct pl_buffer){ far.region, 0, SIZE },
				    NULL, &receive, &error),
			 &error);
		complete(environment, receive, &receipt);
	}
	check_number(receipt.bytes, 4);
	check(bytes_equal(far.bytes, "next", 4));
	value_check(far.bytes + 4, SIZE - 4, POISON);
	complete(environment, send, NULL);
	buffer_close(&near);
	buffer_close(&far);
}

/* Checks that the data of a cancelled write does not arrive after a later write, on any lane. */
static void cancel_then_write(struct scenario_environment *environment)
{
	const unsigned rounds = environment->setting->slow ? 10 : 60;
	const size_t size = environment->setting->slow ? 1u << 20 : 8u << 20;
	uint64_t state = 2;
	struct buffer near, far;
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct pl_error error;

	buffer_open(&near, environment->near, 2 * size, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, size, PL_ACCESS_ALL);
	remote = share(environment, far.region, environment->near_peer, NULL);
	bytes_set(near.bytes, 1, size);
	bytes_set(near.bytes + size, 2, size);
	for (unsigned i = 0; i < rounds; i++) {
		uint64_t length = 1 + random_next(&state) % (i % 2 ? 5000 : size);
		uint64_t at = random_next(&state) % (size - length + 1);
		uint64_t until = clock_now() + random_next(&state) % (3 * MS);
		int status;

		check_ok(pl_write(environment->near_peer, &(struct pl_transfer){ remote, 0, near.region, 0, size },
				  NULL, &operation, &error),
			 &error);
		progress_until(environment, clock_now() >= until);
		pl_cancel(operation);
		status = await(environment, operation, NULL, &error);
		check_one_of(status, 0, -ECANCELED);
		check_ok(pl_write(environment->near_peer,
				  &(struct pl_transfer){ remote, at, near.region, size, length }, NULL, &operation,
				  &error),
			 &error);
		complete(environment, operation, NULL);
		settle(environment, 2);
		value_check(far.bytes + at, length, 2);
	}
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
}

enum { MESSAGE = 8192 };

/* Collects the receives that are done, sets their handles to NULL, and returns their number. */
static unsigned whole_messages(struct pl_operation **receives, unsigned count, const uint8_t *bytes)
{
	struct pl_completion receipt;
	unsigned done = 0;

	for (unsigned i = 0; i < count; i++) {
		if (!receives[i] || pl_test(receives[i], &receipt, NULL) == -EINPROGRESS)
			continue;
		receives[i] = NULL;
		check_number(receipt.status, 0);
		check_number(receipt.bytes, MESSAGE);
		pattern_check(bytes + i * MESSAGE, MESSAGE, i, 0);
		done++;
	}
	return done;
}

/* Checks that the message window has its full size: `count` sends complete without a receive. */
static void check_window(struct scenario_environment *environment, struct silent *silent)
{
	/* A card has one buffer for each unexpected message.  The receiver may report its last 255 receives late. */
	const unsigned count = environment->setting->one_sided ? 200 : 700;
	struct pl_operation *sends[700];
	struct pl_error error;

	for (unsigned i = 0; i < count; i++)
		check_ok(pl_send_copy(silent->near_peer, 1, "", 0, NULL, &sends[i], &error), &error);
	for (unsigned i = 0; i < count; i++)
		silent_complete(environment, silent, sends[i], NULL);
}

/*
 * Checks that small messages arrive whole or not at all.  The test cancels them after the first bytes of some were
 * sent.
 */
static void cancel_messages(struct scenario_environment *environment)
{
	enum { COUNT = 1000, FILLERS = 64, FILLER = 8 * MESSAGE };
	struct pl_operation *fillers[FILLERS], *sends[COUNT], *receives[COUNT];
	unsigned delivered = 0, arrived = 0;
	struct buffer received;
	struct silent silent;
	struct pl_error error;
	uint64_t until;

	silent_open(environment, &silent, MESSAGE * COUNT + FILLER);
	buffer_open(&received, silent.context, MESSAGE * COUNT, PL_ACCESS_LOCAL);
	for (unsigned i = 0; i < COUNT; i++)
		pattern_fill(silent.near.bytes + i * MESSAGE, MESSAGE, i, 0);
	/* The filler writes fill the sockets' buffers. */
	for (unsigned i = 0; i < FILLERS; i++)
		check_ok(
			pl_write(silent.near_peer,
				 &(struct pl_transfer){ silent.remote, 0, silent.near.region, MESSAGE * COUNT, FILLER },
				 NULL, &fillers[i], &error),
			&error);
	for (unsigned i = 0; i < COUNT; i++)
		check_ok(pl_send(silent.near_peer, i, &(struct pl_buffer){ silent.near.region, i * MESSAGE, MESSAGE },
				 NULL, &sends[i], &error),
			 &error);
	settle(environment, 5);
	for (unsigned i = 0; i < COUNT; i++)
		pl_cancel(sends[i]);
	for (unsigned i = 0; i < COUNT; i++) {
		int status = await(environment, sends[i], NULL, &error);

		check_one_of(status, 0, -ECANCELED);
		delivered += status == 0;
	}
	bytes_set(silent.near.bytes, POISON, MESSAGE * COUNT);
	for (unsigned i = 0; i < COUNT; i++)
		check_ok(pl_receive(silent.peer, i, UINT64_MAX,
				    &(struct pl_buffer){ received.region, i * MESSAGE, MESSAGE }, NULL, &receives[i],
				    &error),
			 &error);
	until = clock_now() + 2 * AMPLE_TIME;
	while (arrived < delivered && clock_now() < until) {
		silent_awake(environment, &silent, 10);
		arrived += whole_messages(receives, COUNT, received.bytes);
	}
	check(arrived >= delivered);
	for (unsigned i = 0; i < FILLERS; i++)
		silent_complete(environment, &silent, fillers[i], NULL);
	/* Cancelled messages may still arrive. */
	silent_awake(environment, &silent, 100);
	whole_messages(receives, COUNT, received.bytes);
	for (unsigned i = 0; i < COUNT; i++) {
		if (!receives[i])
			continue;
		pl_cancel(receives[i]);
		pl_wait(receives[i], UINT64_MAX, NULL, NULL);
	}
	check_window(environment, &silent);
	buffer_close(&received);
	silent_close(&silent);
}

enum { SMALL_COUNT = 64, SMALL = 24 };

/* Sends SMALL_COUNT messages and cancels the first of each three.  Stores in `sent` which messages were sent. */
static void send_and_cancel(struct scenario_environment *environment, struct buffer *near, uint64_t tag,
			    bool sent[SMALL_COUNT])
{
	struct pl_operation *sends[SMALL_COUNT];
	struct pl_error error;

	for (unsigned i = 0; i < SMALL_COUNT; i++)
		check_ok(pl_send(environment->near_peer, tag + i, &(struct pl_buffer){ near->region, i * SMALL, SMALL },
				 NULL, &sends[i], &error),
			 &error);
	for (unsigned i = 0; i < SMALL_COUNT; i += 3)
		pl_cancel(sends[i]);
	for (unsigned i = 0; i < SMALL_COUNT; i++) {
		int status = await(environment, sends[i], NULL, &error);

		check_one_of(status, 0, i % 3 ? 0 : -ECANCELED);
		sent[i] = status == 0;
	}
}

/* Cancels some of several messages that may share a packet.  The others must arrive, each once. */
static void cancel_some(struct scenario_environment *environment)
{
	enum { ROUNDS = 12 };
	bool sent[SMALL_COUNT];
	struct buffer near, far;
	struct pl_error error;

	buffer_open(&near, environment->near, SMALL_COUNT * SMALL, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, SMALL_COUNT * SMALL, PL_ACCESS_LOCAL);
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t tag = round * SMALL_COUNT;

		pattern_fill(near.bytes, SMALL_COUNT * SMALL, round, 0);
		send_and_cancel(environment, &near, tag, sent);
		bytes_set(near.bytes, POISON, SMALL_COUNT * SMALL);
		for (unsigned i = 0; i < SMALL_COUNT; i++) {
			struct pl_operation *receive;

			if (!sent[i])
				continue;
			check_ok(pl_receive(environment->far_peer, tag + i, UINT64_MAX,
					    &(struct pl_buffer){ far.region, i * SMALL, SMALL }, NULL, &receive,
					    &error),
				 &error);
			complete(environment, receive, NULL);
			pattern_check(far.bytes + i * SMALL, SMALL, round, i * SMALL);
		}
	}
	buffer_close(&near);
	buffer_close(&far);
}

const struct scenario cancel_scenarios[] = {
	{ "cancel-running", cancel_running, 0 },
	{ "cancel-any-time", cancel_any_time, 0 },
	{ "cancel-send", cancel_send, 0 },
	{ "cancel-then-write", cancel_then_write, 0 },
	{ "cancel-messages", cancel_messages, 0 },
	{ "cancel-some", cancel_some, 0 },
	{ NULL, NULL, 0 },
};
