/* SPDX-License-Identifier: BSD-2-Clause */
/* Deadlines: every operation ends by its own deadline or by pl_wait()'s, and its buffer returns to the caller. */

#include "scenarios/silent.h"

static struct pl_attributes attributes_within(uint64_t timeout)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

	attributes.timeout = timeout;
	return attributes;
}

/* Returns attributes with this timeout, or 30 s for a card, which completes without the target's processor. */
static struct pl_attributes within_or_done(const struct scenario_environment *environment, uint64_t timeout)
{
	return attributes_within(environment->setting->one_sided ? AMPLE_TIME : timeout);
}

/* Checks that the operation fails with -ETIMEDOUT, not before the deadline and within SLACK after it. */
static void check_times_out(struct scenario_environment *environment, struct pl_operation *operation, uint64_t posted,
			    uint64_t timeout)
{
	uint64_t took;

	fail_with(environment, operation, -ETIMEDOUT);
	took = clock_now() - posted;
	check(took >= timeout - 10 * MS);
	check(took < timeout + SLACK);
}

/* Checks that a write that timed out does not read its source again: no POISON arrives. */
static void deadline_write(struct scenario_environment *environment)
{
	const size_t size = silent_size(environment);
	struct pl_attributes attributes = within_or_done(environment, 150 * MS);
	struct pl_operation *operation;
	struct silent silent;
	struct pl_error error;
	uint64_t posted;

	silent_open(environment, &silent, size);
	bytes_set(silent.near.bytes, 1, size);
	bytes_set(silent.target.bytes, 0, size);
	posted = clock_now();
	check_ok(pl_write(silent.near_peer, &(struct pl_transfer){ silent.remote, 0, silent.near.region, 0, size },
			  &attributes, &operation, &error),
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

/* Checks that a read that timed out does not write its destination again. */
static void deadline_read(struct scenario_environment *environment)
{
	const size_t size = silent_size(environment);
	struct pl_attributes attributes = within_or_done(environment, 150 * MS);
	struct pl_operation *operations[2];
	struct silent silent;
	struct pl_error error;
	uint64_t posted;

	silent_open(environment, &silent, size);
	bytes_set(silent.target.bytes, 1, size);
	posted = clock_now();
	check_ok(pl_read(silent.near_peer, &(struct pl_transfer){ silent.remote, 0, silent.near.region, 0, size / 2 },
			 &attributes, &operations[0], &error),
		 &error);
	check_ok(pl_read(silent.near_peer, &(struct pl_transfer){ silent.remote, 0, silent.near.region, size / 2, 100 },
			 &attributes, &operations[1], &error),
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

/* Checks that thousands of operations that end together do not take quadratic time. */
static void deadline_many(struct scenario_environment *environment)
{
	enum { SIZE = 1 << 20, READ = 16 };
	const unsigned count = environment->setting->slow ? 2000 : slowness() > 2 ? 10000 : 80000;
	struct pl_attributes attributes = within_or_done(environment, 300 * MS);
	struct pl_completion completion;
	struct silent silent;
	struct pl_error error;
	unsigned done = 0;

	silent_open(environment, &silent, SIZE);
	for (unsigned i = 0; i < count; i++) {
		const uint64_t offset = i * (uint64_t)READ % SIZE;

		check_ok(pl_read(silent.near_peer,
				 &(struct pl_transfer){ silent.remote, offset, silent.near.region, offset, READ },
				 &attributes, NULL, &error),
			 &error);
	}
	while (done < count) {
		while (pl_poll(environment->near, &completion, 1) == 1) {
			check_number(completion.status, environment->setting->one_sided ? 0 : -ETIMEDOUT);
			done++;
		}
		progress(environment);
	}
	silent_close(&silent);
}

static void deadline_others(struct scenario_environment *environment)
{
	struct pl_attributes attributes = attributes_within(120 * MS);
	struct pl_operation *send, *receive, *add;
	struct pl_remote *remote = NULL;
	struct silent silent;
	struct pl_error error;
	uint64_t posted, old = 5;

	silent_open(environment, &silent, 1 << 20);
	posted = clock_now();
	check_ok(pl_send(silent.near_peer, 1, &(struct pl_buffer){ silent.near.region, 0, 1 << 20 }, &attributes, &send,
			 &error),
		 &error);
	check_ok(pl_receive(silent.near_peer, 1, 0, &(struct pl_buffer){ silent.near.region, 0, 9 }, &attributes,
			    &receive, &error),
		 &error);
	check_ok(pl_fetch_add(
			 silent.near_peer,
			 &(struct pl_atomic){ .remote = silent.remote, .remote_offset = 0, .operand = 1, .old = &old },
			 &attributes, &add, &error),
		 &error);
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

/* Returns false if the operation with the earliest deadline ended by it, as the thread stood still before pl_cancel(). */
static bool ends_in_order(struct scenario_environment *environment, unsigned factor)
{
	const uint64_t timeouts[] = { factor * 450 * MS, factor * 150 * MS, factor * 30 * SECOND,
				      factor * 300 * MS, UINT64_MAX,        factor * 100 * MS };
	enum { COUNT = sizeof(timeouts) / sizeof(timeouts[0]) };
	static const unsigned order[] = { 1, 3, 0 };
	struct pl_operation *receives[COUNT], *send;
	struct pl_error error;
	struct buffer near;
	uint64_t posted = clock_now();
	int status;

	buffer_open(&near, environment->near, 64 * COUNT, PL_ACCESS_LOCAL);
	for (unsigned i = 0; i < COUNT; i++) {
		struct pl_attributes attributes = attributes_within(timeouts[i]);

		check_ok(pl_receive(environment->near_peer, i, UINT64_MAX,
				    &(struct pl_buffer){ near.region, 64 * i, 64 }, &attributes, &receives[i], &error),
			 &error);
	}
	pl_cancel(receives[COUNT - 1]);
	status = await(environment, receives[COUNT - 1], NULL, &error);
	check_status(status, clock_now() - posted < timeouts[COUNT - 1] ? -ECANCELED : status, &error);
	check_one_of(status, -ECANCELED, -ETIMEDOUT);
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
	return status == -ECANCELED;
}

/* Checks that each operation has its own deadline, in any posting order and with any completions before. */
static void deadline_order(struct scenario_environment *environment)
{
	unsigned factor = 1;

	while (!ends_in_order(environment, factor)) {
		factor *= 2;
		check(factor <= 32);
	}
}

static void wait_timeout(struct scenario_environment *environment)
{
	static const uint64_t timeouts[] = { 0, 1, 30 * MS };
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	struct buffer near;
	struct pl_error error;

	check(pl_peer_query(environment->near_peer, &info) == 0);
	buffer_open(&near, environment->near, 64, PL_ACCESS_LOCAL);
	for (unsigned i = 0; i < 3; i++) {
		struct pl_operation *operation;
		struct pl_completion receipt;
		uint64_t posted = clock_now();

		check_ok(pl_receive(environment->near_peer, 1, 0, &(struct pl_buffer){ near.region, 0, 64 }, NULL,
				    &operation, &error),
			 &error);
		check_status(pl_wait(operation, timeouts[i], &receipt, &error), -ETIMEDOUT, &error);
		check_number(receipt.status, -ETIMEDOUT);
		check(strstr(error.message, "; the peer is ") && strstr(error.message, info.address));
		check(clock_now() - posted >= timeouts[i]);
		check(clock_now() - posted < timeouts[i] + SLACK);
	}
	buffer_close(&near);
}

const struct scenario deadline_scenarios[] = {
	{ "deadline-write", deadline_write, 0 },
	{ "deadline-read", deadline_read, 0 },
	{ "deadline-many", deadline_many, 0 },
	{ "deadline-others", deadline_others, 0 },
	{ "deadline-order", deadline_order, 0 },
	{ "wait-timeout", wait_timeout, SCENARIO_SETTING },
	{ NULL, NULL, 0 },
};
