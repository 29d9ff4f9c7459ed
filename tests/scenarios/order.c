/* SPDX-License-Identifier: BSD-2-Clause */
/* Order: fences and notifications. */
#include "scenarios/scenario.h"

#define SIZE (5 << 20)
#define ROUNDS 6

struct pair {
	struct buffer near, far;
	struct pl_remote *remote;
};

static void order_pair_open(struct scenario_environment *environment, struct pair *pair)
{
	buffer_open(&pair->near, environment->near, SIZE, PL_ACCESS_ALL);
	buffer_open(&pair->far, environment->far, SIZE, PL_ACCESS_ALL);
	pair->remote = share(environment, pair->far.region, environment->near_peer, NULL);
}

static void order_pair_close(struct pair *pair)
{
	pl_remote_release(pair->remote);
	buffer_close(&pair->near);
	buffer_close(&pair->far);
}

static struct pl_attributes fenced_attributes(void)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

	attributes.flags = PL_FENCE;
	return attributes;
}

static void fence_write_send(struct scenario_environment *environment)
{
	struct pl_attributes attributes = fenced_attributes();
	struct buffer message;
	struct pair pair;
	struct pl_error error;

	order_pair_open(environment, &pair);
	buffer_open(&message, environment->far, 8, PL_ACCESS_LOCAL);
	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct pl_operation *write, *send, *receive;
		struct pl_completion receipt;

		pattern_fill(pair.near.bytes, SIZE, 100 + round, 0);
		check_ok(pl_receive(environment->far_peer, round, UINT64_MAX,
				    &(struct pl_buffer){ message.region, 0, 8 }, NULL, &receive, &error),
			 &error);
		check_ok(pl_write(environment->near_peer,
				  &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, SIZE }, NULL, &write,
				  &error),
			 &error);
		check_ok(pl_send_copy(environment->near_peer, round, &round, 8, &attributes, &send, &error), &error);
		complete(environment, receive, &receipt);
		pattern_check(pair.far.bytes, SIZE, 100 + round, 0);
		check_number(receipt.tag, round);
		check(bytes_equal(message.bytes, &round, 8));
		complete(environment, send, NULL);
		complete(environment, write, NULL);
	}
	buffer_close(&message);
	order_pair_close(&pair);
}

/* Waits for the next notification at `far`. */
static void check_notified(struct scenario_environment *environment, uint64_t value)
{
	struct pl_completion completion;

	collect(environment, environment->far, &completion, 1);
	check_number(completion.kind, PL_KIND_NOTIFIED);
	check_number(completion.status, 0);
	check_number(completion.value, value);
	check(completion.peer == environment->far_peer);
}

/* Two notifications without an order between them. */
static void check_notified_pair(struct scenario_environment *environment, uint64_t first)
{
	struct pl_completion completions[2];

	collect(environment, environment->far, completions, 2);
	check_number(completions[0].kind, PL_KIND_NOTIFIED);
	check_number(completions[1].kind, PL_KIND_NOTIFIED);
	check_number(completions[0].value + completions[1].value, 2 * first + 1);
}

static void fence_write_notify(struct scenario_environment *environment)
{
	struct pl_attributes attributes = fenced_attributes();
	struct pair pair;
	struct pl_error error;

	order_pair_open(environment, &pair);
	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct pl_operation *write, *notify;
		struct pl_completion receipt;

		pattern_fill(pair.near.bytes, SIZE, 200 + round, 0);
		check_ok(pl_write(environment->near_peer,
				  &(struct pl_transfer){ pair.remote, 0, pair.near.region, 0, SIZE }, NULL, &write,
				  &error),
			 &error);
		check_ok(pl_notify(environment->near_peer, ~round, NULL, 0, &attributes, &notify, &error), &error);
		check_notified(environment, ~round);
		pattern_check(pair.far.bytes, SIZE, 200 + round, 0);
		complete(environment, write, NULL);
		complete(environment, notify, &receipt);
		check_number(receipt.kind, PL_KIND_NOTIFY);
	}
	order_pair_close(&pair);
}

/* Checks that a write with PL_NOTIFY notifies once, with any number of elements and streams. */
static void write_with_notification(struct scenario_environment *environment)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_completion spare;
	struct pair pair;
	struct pl_error error;

	attributes.flags = PL_NOTIFY;
	order_pair_open(environment, &pair);
	for (uint64_t round = 0; round < ROUNDS; round++) {
		size_t half = SIZE >> (3 * round);
		struct pl_transfer transfers[2];
		struct pl_operation *operation;

		half /= 2;
		transfers[0] = (struct pl_transfer){ pair.remote, 0, pair.near.region, 0, half };
		transfers[1] = (struct pl_transfer){ pair.remote, half, pair.near.region, half, half };
		pattern_fill(pair.near.bytes, SIZE, 300 + round, 0);
		attributes.notify = 7000 + round;
		/* The notification comes after the bytes, at any level of visibility that the writer asks for. */
		attributes.visible = round % 2 ? PL_VISIBLE_ON_WIRE : PL_VISIBLE_PLACED;
		check_ok(pl_writev(environment->near_peer, transfers, 2, &attributes, &operation, &error), &error);
		check_notified(environment, 7000 + round);
		pattern_check(pair.far.bytes, 2 * half, 300 + round, 0);
		complete(environment, operation, NULL);
	}
	settle(environment, 10);
	check_number(pl_poll(environment->far, &spare, 1), 0);
	check_number(pl_poll(environment->near, &spare, 1), 0);
	order_pair_close(&pair);
}

/*
 * Notifications of writes of each size, and messages between them. A message that was posted before a write arrives
 * before its notification; one that was posted after the write's completion arrives after it.
 */
static void notifications_keep_order(struct scenario_environment *environment)
{
	enum { SIZES = 5 };
	static const size_t sizes[SIZES] = { 8, 20000, 128 << 10, 100 << 10, 300 << 10 };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pair pair;
	struct pl_error error;

	attributes.flags = PL_NOTIFY;
	order_pair_open(environment, &pair);
	for (uint64_t round = 0; round < 10 * SIZES; round++) {
		size_t size = sizes[round % SIZES];
		struct pl_operation *before, *writes[2], *after;

		pattern_fill(pair.near.bytes, SIZE, 500 + round, 0);
		check_ok(pl_notify(environment->near_peer, 1000, NULL, 0, NULL, &before, &error), &error);
		for (uint64_t i = 0; i < 2; i++) {
			const struct pl_transfer transfer = { pair.remote, i * size, pair.near.region, i * size, size };

			attributes.notify = 2000 + i;
			check_ok(pl_write(environment->near_peer, &transfer, &attributes, &writes[i], &error), &error);
		}
		complete(environment, writes[0], NULL);
		complete(environment, writes[1], NULL);
		check_ok(pl_notify(environment->near_peer, 3000, NULL, 0, NULL, &after, &error), &error);
		check_notified(environment, 1000);
		check_notified_pair(environment, 2000);
		pattern_check(pair.far.bytes, 2 * size, 500 + round, 0);
		check_notified(environment, 3000);
		complete(environment, before, NULL);
		complete(environment, after, NULL);
	}
	order_pair_close(&pair);
}

/* Posts a write, a fenced write to the same range, and a fenced read, which must return the second data. */
static void fence_writes_and_read(struct scenario_environment *environment)
{
	enum { COUNT = 40, LENGTH = 70000 };
	struct pl_attributes attributes = fenced_attributes();
	struct buffer back;
	struct pair pair;
	struct pl_error error;

	order_pair_open(environment, &pair);
	buffer_open(&back, environment->near, LENGTH, PL_ACCESS_LOCAL);
	for (uint64_t i = 0; i < COUNT; i++) {
		struct pl_operation *operations[3];

		pattern_fill(pair.near.bytes, LENGTH, 400 + 2 * i, 0);
		pattern_fill(pair.near.bytes + LENGTH, LENGTH, 401 + 2 * i, 0);
		check_ok(pl_write(environment->near_peer,
				  &(struct pl_transfer){ pair.remote, 5, pair.near.region, 0, LENGTH }, NULL,
				  &operations[0], &error),
			 &error);
		check_ok(pl_write(environment->near_peer,
				  &(struct pl_transfer){ pair.remote, 5, pair.near.region, LENGTH, LENGTH },
				  &attributes, &operations[1], &error),
			 &error);
		check_ok(pl_read(environment->near_peer,
				 &(struct pl_transfer){ pair.remote, 5, back.region, 0, LENGTH }, &attributes,
				 &operations[2], &error),
			 &error);
		for (unsigned o = 0; o < 3; o++)
			complete(environment, operations[o], NULL);
		pattern_check(back.bytes, LENGTH, 401 + 2 * i, 0);
		pattern_check(pair.far.bytes + 5, LENGTH, 401 + 2 * i, 0);
	}
	buffer_close(&back);
	order_pair_close(&pair);
}

/* Checks that messages and notifications of one peer arrive in the order posted. */
static void notify_among_messages(struct scenario_environment *environment)
{
	enum { COUNT = 300 };
	struct buffer messages;
	struct pl_error error;

	buffer_open(&messages, environment->far, COUNT * 8, PL_ACCESS_LOCAL);
	for (uint64_t i = 0; i < COUNT; i++) {
		struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

		attributes.user_data = i;
		check_ok(pl_receive(environment->far_peer, 0, 0, &(struct pl_buffer){ messages.region, i * 8, 8 },
				    &attributes, NULL, &error),
			 &error);
	}
	for (uint64_t i = 0; i < COUNT; i++) {
		check_ok(pl_send_copy(environment->near_peer, i, &i, 8, NULL, NULL, &error), &error);
		check_ok(pl_notify(environment->near_peer, i, NULL, 0, NULL, NULL, &error), &error);
	}
	for (uint64_t i = 0; i < COUNT; i++) {
		struct pl_completion completions[2];

		collect(environment, environment->far, completions, 2);
		check_number(completions[0].kind, PL_KIND_RECEIVE);
		check_number(completions[0].status, 0);
		check_number(completions[0].user_data, i);
		check_number(completions[0].tag, i);
		check_number(completions[0].bytes, 8);
		check(bytes_equal(messages.bytes + i * 8, &i, 8));
		check_number(completions[1].kind, PL_KIND_NOTIFIED);
		check_number(completions[1].value, i);
	}
	for (uint64_t i = 0; i < 2 * COUNT; i++) {
		struct pl_completion completion;

		collect(environment, environment->near, &completion, 1);
		check_completion(environment->near, &completion, 0);
	}
	buffer_close(&messages);
}

/*
 * Posts `count` writes that notify, and returns the sum of their values.  Some values exceed the immediate data of a
 * request.
 */
static uint64_t post_notifying(struct scenario_environment *environment, struct pair *pair, uint64_t first,
			       unsigned count)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;
	uint64_t sum = 0;

	attributes.flags = PL_NOTIFY;
	for (unsigned i = 0; i < count; i++) {
		attributes.notify = first + i + (i % 7 ? 0 : (uint64_t)1 << 40);
		sum += attributes.notify;
		check_ok(pl_write(environment->near_peer,
				  &(struct pl_transfer){ pair->remote, i, pair->near.region, i, i % 5 * 1000 },
				  &attributes, NULL, &error),
			 &error);
	}
	return sum;
}

/*
 * Posts writes that notify and fail.  The target gets no notification of them, other writes arrive, and the message
 * window keeps its size.
 */
static void notifications_that_fail(struct scenario_environment *environment)
{
	enum { ROUNDS_HERE = 3, BEFORE = 10, GONE = 5, AFTER = 400 };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_completion completion;
	struct pair pair;
	struct pl_error error;

	attributes.flags = PL_NOTIFY;
	attributes.notify = 77;
	order_pair_open(environment, &pair);
	for (unsigned round = 0; round < ROUNDS_HERE; round++) {
		struct buffer revoked;
		uint64_t sum, heard = 0, denied = 0;
		struct pl_remote *remote;

		buffer_open(&revoked, environment->far, 4096, PL_ACCESS_ALL);
		remote = share(environment, revoked.region, environment->near_peer, NULL);
		sum = post_notifying(environment, &pair, 100, BEFORE);
		buffer_close(&revoked);
		for (unsigned i = 0; i < GONE; i++)
			check_ok(pl_write(environment->near_peer,
					  &(struct pl_transfer){ remote, 0, pair.near.region, 0, 1000 }, &attributes,
					  NULL, &error),
				 &error);
		sum += post_notifying(environment, &pair, 100000, AFTER);
		for (unsigned i = 0; i < BEFORE + AFTER; i++) {
			collect(environment, environment->far, &completion, 1);
			check_number(completion.kind, PL_KIND_NOTIFIED);
			heard += completion.value;
		}
		for (unsigned i = 0; i < BEFORE + GONE + AFTER; i++) {
			collect(environment, environment->near, &completion, 1);
			denied += completion.status == -EACCES;
		}
		check_number(heard, sum);
		check_number(denied, GONE);
		pl_remote_release(remote);
	}
	check_number(pl_poll(environment->far, &completion, 1), 0);
	order_pair_close(&pair);
}

/* Checks that all operations complete with PL_MORE set on the last one as well. */
static void more_may_follow(struct scenario_environment *environment)
{
	enum { COUNT = 150, LENGTH = 100 };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation, *receive;
	struct pl_completion receipt;
	struct pl_error error;
	struct pair pair;
	uint64_t old;

	attributes.flags = PL_MORE;
	order_pair_open(environment, &pair);
	pattern_fill(pair.near.bytes, COUNT * LENGTH, 500, 0);
	for (uint64_t i = 0; i < COUNT; i++) {
		attributes.user_data = i;
		check_ok(
			pl_write(environment->near_peer,
				 &(struct pl_transfer){ pair.remote, i * LENGTH, pair.near.region, i * LENGTH, LENGTH },
				 &attributes, NULL, &error),
			&error);
	}
	for (uint64_t seen = 0; seen < COUNT; seen++) {
		struct pl_completion completion;

		collect(environment, environment->near, &completion, 1);
		check_completion(environment->near, &completion, 0);
		check_number(completion.bytes, LENGTH);
	}
	pattern_check(pair.far.bytes, COUNT * LENGTH, 500, 0);
	check_ok(pl_receive(environment->far_peer, 9, UINT64_MAX, &(struct pl_buffer){ pair.far.region, 0, 8 }, NULL,
			    &receive, &error),
		 &error);
	check_ok(pl_send_copy(environment->near_peer, 9, "message", 8, &attributes, &operation, &error), &error);
	complete(environment, receive, &receipt);
	check(bytes_equal(pair.far.bytes, "message", 8));
	complete(environment, operation, NULL);
	check_ok(pl_fetch_add(
			 environment->near_peer,
			 &(struct pl_atomic){ .remote = pair.remote, .remote_offset = 8, .operand = 5, .old = &old },
			 &attributes, &operation, &error),
		 &error);
	complete(environment, operation, NULL);
	order_pair_close(&pair);
}

const struct scenario order_scenarios[] = {
	{ "fence-write-send", fence_write_send, 0 },
	{ "fence-write-notify", fence_write_notify, 0 },
	{ "write-with-notification", write_with_notification, 0 },
	{ "notifications-that-fail", notifications_that_fail, 0 },
	{ "fence-writes-and-read", fence_writes_and_read, 0 },
	{ "notifications-keep-order", notifications_keep_order, 0 },
	{ "notify-among-messages", notify_among_messages, 0 },
	{ "more-may-follow", more_may_follow, 0 },
	{ NULL, NULL, 0 },
};
