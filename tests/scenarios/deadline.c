/* SPDX-License-Identifier: BSD-2-Clause */
/* Every operation ends: by its deadline, by pl_wait()'s, by pl_cancel(); and its buffer is the caller's again. */
#include <stdlib.h>

#include "scenarios/silent.h"

/* What an operation may take longer than its time-out on a busy machine. */
#define SLACK (2 * SECOND)

/* More than sockets hold; and a card takes its time. */
static size_t large(const struct scenario_environment *environment)
{
	return environment->setting->slow ? 16u << 20 : 64u << 20;
}

static struct pl_attributes within(uint64_t timeout)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

	attributes.timeout = timeout;
	return attributes;
}

/* A card does without the target's processor, so it gets the time that it needs. */
static struct pl_attributes within_or_done(const struct scenario_environment *environment, uint64_t timeout)
{
	return within(environment->setting->one_sided ? 30 * SECOND : timeout);
}

/* Fails with -ETIMEDOUT, not before the time and not long after it. */
static void check_times_out(struct scenario_environment *environment, struct pl_operation *operation, uint64_t posted,
			    uint64_t timeout)
{
	uint64_t took;

	fail_with(environment, operation, -ETIMEDOUT);
	took = clock_now() - posted;
	check(took >= timeout - 10 * MS);
	check(took < timeout + SLACK);
}

/* The source of a write that ended by its deadline is not read again: nothing of POISON arrives. */
static void deadline_write(struct scenario_environment *environment)
{
	const size_t size = large(environment);
	struct pl_attributes attributes = within_or_done(environment, 150 * MS);
	struct pl_operation *operation;
	struct silent silent;
	struct pl_error error;
	uint64_t posted;

	silent_open(environment, &silent, size);
	bytes_set(silent.near.bytes, 1, size);
	bytes_set(silent.target.bytes, 0, size);
	posted = clock_now();
	check_ok(pl_write(silent.near_peer, silent.remote, 0, silent.near.region, 0, size, &attributes, &operation,
			  &error),
		 &error);
	if (environment->setting->one_sided)
		complete(environment, operation, NULL);
	else
		check_times_out(environment, operation, posted, 150 * MS);
	bytes_set(silent.near.bytes, POISON, size);
	silent_awake(environment, &silent, 150);
	check(!bytes_contain(silent.target.bytes, size, POISON));
	silent_close(&silent);
}

/* The destination of a read that ended by its deadline is not written again. */
static void deadline_read(struct scenario_environment *environment)
{
	const size_t size = large(environment);
	struct pl_attributes attributes = within_or_done(environment, 150 * MS);
	struct pl_operation *operations[2];
	struct silent silent;
	struct pl_error error;
	uint64_t posted;

	silent_open(environment, &silent, size);
	bytes_set(silent.target.bytes, 1, size);
	posted = clock_now();
	check_ok(pl_read(silent.near_peer, silent.remote, 0, silent.near.region, 0, size / 2, &attributes,
			 &operations[0], &error),
		 &error);
	check_ok(pl_read(silent.near_peer, silent.remote, 0, silent.near.region, size / 2, 100, &attributes,
			 &operations[1], &error),
		 &error);
	for (unsigned i = 0; i < 2; i++) {
		if (environment->setting->one_sided)
			complete(environment, operations[i], NULL);
		else
			check_times_out(environment, operations[i], posted, 150 * MS);
	}
	bytes_set(silent.near.bytes, POISON, size);
	silent_awake(environment, &silent, 150);
	value_check(silent.near.bytes, size, POISON);
	silent_close(&silent);
}

static void deadline_others(struct scenario_environment *environment)
{
	struct pl_attributes attributes = within(120 * MS);
	struct pl_operation *send, *receive, *add;
	struct pl_remote *remote = NULL;
	struct silent silent;
	struct pl_error error;
	uint64_t posted, old = 5;

	silent_open(environment, &silent, 1 << 20);
	posted = clock_now();
	check_ok(pl_send(silent.near_peer, 1, silent.near.region, 0, 1 << 20, &attributes, &send, &error), &error);
	check_ok(pl_receive(silent.near_peer, 1, 0, silent.near.region, 0, 9, &attributes, &receive, &error), &error);
	check_ok(pl_fetch_add(silent.near_peer, silent.remote, 0, 1, &old, &attributes, &add, &error), &error);
	check_times_out(environment, send, posted, 120 * MS);
	check_times_out(environment, receive, posted, 120 * MS);
	if (atomics_one_sided(environment))
		complete(environment, add, NULL);
	else
		check_times_out(environment, add, posted, 120 * MS);
	old = 5;
	posted = clock_now();
	check_status(pl_remote_import(silent.near_peer, silent.token, silent.token_length, 120 * MS, &remote, &error),
		     -ETIMEDOUT, &error);
	check(clock_now() - posted >= 110 * MS && clock_now() - posted < 120 * MS + SLACK);
	silent_awake(environment, &silent, 100);
	check_number(old, 5);
	value_check(silent.near.bytes, 1 << 20, POISON);
	silent_close(&silent);
}

/* Each has a time of its own, whatever the order they come in and what of them completes before. */
static void deadline_order(struct scenario_environment *environment)
{
	static const uint64_t timeouts[] = { 450 * MS, 150 * MS, 30 * SECOND, 300 * MS, UINT64_MAX, 100 * MS };
	enum { COUNT = sizeof(timeouts) / sizeof(timeouts[0]) };
	static const unsigned order[] = { 1, 3, 0 };
	struct pl_operation *receives[COUNT], *send;
	struct pl_error error;
	struct buffer near;
	uint64_t posted = clock_now();

	buffer_open(&near, environment->near, 64 * COUNT, PL_ACCESS_LOCAL);
	for (unsigned i = 0; i < COUNT; i++) {
		struct pl_attributes attributes = within(timeouts[i]);

		check_ok(pl_receive(environment->near_peer, i, UINT64_MAX, near.region, 64 * i, 64, &attributes,
				    &receives[i], &error),
			 &error);
	}
	/* The first to be due ends before. */
	pl_cancel(receives[COUNT - 1]);
	fail_with(environment, receives[COUNT - 1], -ECANCELED);
	for (unsigned i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		check(pl_test(receives[2], NULL, NULL) == -EINPROGRESS);
		check(pl_test(receives[4], NULL, NULL) == -EINPROGRESS);
		check_times_out(environment, receives[order[i]], posted, timeouts[order[i]]);
	}
	for (unsigned tag = 2; tag <= 4; tag += 2) {
		check_ok(pl_send_copy(environment->far_peer, tag, "late", 4, NULL, &send, &error), &error);
		complete(environment, receives[tag], NULL);
		complete(environment, send, NULL);
	}
	buffer_close(&near);
}

static void wait_timeout(struct scenario_environment *environment)
{
	static const uint64_t timeouts[] = { 0, 1, 30 * MS };
	struct buffer near;
	struct pl_error error;

	buffer_open(&near, environment->near, 64, PL_ACCESS_LOCAL);
	for (unsigned i = 0; i < 3; i++) {
		struct pl_operation *operation;
		struct pl_receipt receipt;
		uint64_t posted = clock_now();

		check_ok(pl_receive(environment->near_peer, 1, 0, near.region, 0, 64, NULL, &operation, &error),
			 &error);
		check_status(pl_wait(operation, timeouts[i], &receipt, &error), -ETIMEDOUT, &error);
		check_number(receipt.status, -ETIMEDOUT);
		check(clock_now() - posted >= timeouts[i]);
		check(clock_now() - posted < timeouts[i] + SLACK);
	}
	buffer_close(&near);
}

/* Write, read, large send and receive that cannot go on, cancelled. */
static void cancel_running(struct scenario_environment *environment)
{
	const size_t size = large(environment);
	struct pl_operation *operations[5];
	struct silent silent;
	struct pl_error error;
	uint64_t started;

	silent_open(environment, &silent, size);
	bytes_set(silent.near.bytes, 1, size);
	bytes_set(silent.target.bytes, 0, size);
	check_ok(pl_receive(silent.near_peer, 1, 0, silent.near.region, 0, 64, NULL, &operations[0], &error), &error);
	check_ok(pl_send(silent.near_peer, 1, silent.near.region, 0, size, NULL, &operations[1], &error), &error);
	check_ok(pl_write(silent.near_peer, silent.remote, 0, silent.near.region, 0, size / 2, NULL, &operations[2],
			  &error),
		 &error);
	check_ok(pl_read(silent.near_peer, silent.remote, size / 2, silent.near.region, size / 2, size / 2, NULL,
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
		check_ok(pl_write(environment->near_peer, remote, 0, near->region, 0, length, NULL, &operation, &error),
			 &error);
	else if (kind == 1)
		check_ok(pl_read(environment->near_peer, remote, 0, near->region, 0, length, NULL, &operation, &error),
			 &error);
	else
		check_ok(pl_fetch_add(environment->near_peer, remote, 0, 0, NULL, NULL, &operation, &error), &error);
	return operation;
}

/* Cancels at any time after posting: at once, a little later, after the end. */
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
		/* From here on nobody may read or write the buffer. */
		bytes_set(near.bytes, POISON, SIZE);
		if (i % 10 == 9) {
			settle(environment, 2);
			value_check(near.bytes, SIZE, POISON);
		}
		check(!bytes_contain(far.bytes, SIZE, POISON));
	}
	/* The connection is as good as before. */
	pattern_fill(near.bytes, SIZE, 5, 0);
	complete(environment, post_any(environment, remote, &near, 0, SIZE), NULL);
	pattern_check(far.bytes, SIZE, 5, 0);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
}

/* A cancelled send leaves nothing that a later receive could meet, or is delivered whole. */
static void cancel_send(struct scenario_environment *environment)
{
	enum { SIZE = 1 << 20 };
	struct buffer near, far;
	struct pl_operation *send, *receive;
	struct pl_receipt receipt;
	struct pl_error error;

	buffer_open(&near, environment->near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, SIZE, PL_ACCESS_LOCAL);
	pattern_fill(near.bytes, SIZE, 6, 0);
	check_ok(pl_send(environment->near_peer, 1, near.region, 0, SIZE, NULL, &send, &error), &error);
	settle(environment, 5);
	pl_cancel(send);
	fail_with(environment, send, -ECANCELED);
	bytes_set(near.bytes, POISON, SIZE);
	check_ok(pl_send_copy(environment->near_peer, 1, "next", 4, NULL, &send, &error), &error);
	check_ok(pl_receive(environment->far_peer, 1, UINT64_MAX, far.region, 0, SIZE, NULL, &receive, &error), &error);
	if (await(environment, receive, &receipt, &error) == -ECANCELED) {
		/* The offer had been taken before it was withdrawn. */
		check_ok(pl_receive(environment->far_peer, 1, UINT64_MAX, far.region, 0, SIZE, NULL, &receive, &error),
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

const struct scenario deadline_scenarios[] = {
	{ "deadline-write", deadline_write, 0 },
	{ "deadline-read", deadline_read, 0 },
	{ "deadline-others", deadline_others, 0 },
	{ "deadline-order", deadline_order, 0 },
	{ "wait-timeout", wait_timeout, SCENARIO_SETTING },
	{ "cancel-running", cancel_running, 0 },
	{ "cancel-any-time", cancel_any_time, 0 },
	{ "cancel-send", cancel_send, 0 },
	{ NULL, NULL, 0 },
};
