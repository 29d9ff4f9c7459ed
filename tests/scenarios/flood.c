/* SPDX-License-Identifier: BSD-2-Clause */
/* Floods: more data than the other end takes.  Memory use stays bounded, and all data arrives in the end. */
#include <stdlib.h>

#include "scenarios/scenario.h"

#define MESSAGES 50000
#define MESSAGES_SLOW 6000
#define MESSAGE 4096

/* Collects the available completions and returns their number. */
static unsigned collect_available(struct pl_context *context)
{
	struct pl_completion completions[64];
	unsigned count = 0;
	int got;

	do {
		got = pl_poll(context, completions, 64);
		for (int i = 0; i < got; i++)
			check_completion(context, &completions[i], 0);
		count += (unsigned)got;
	} while (got == 64);
	return count;
}

/* Checks that messages without a receive stay at their sender, and are later received in order. */
static void message_flood(struct scenario_environment *environment)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct buffer near, far;
	struct pl_error error;
	const unsigned count = environment->setting->slow ? MESSAGES_SLOW : MESSAGES;
	uint64_t before;
	unsigned sent = 0, received = 0;

	attributes.timeout = UINT64_MAX;
	buffer_open(&near, environment->near, 64 * MESSAGE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, MESSAGE, PL_ACCESS_LOCAL);
	pattern_fill(near.bytes, near.length, 1, 0);
	before = resident_memory();
	for (unsigned i = 0; i < count; i++) {
		check_ok(pl_send(environment->near_peer, i,
				 &(struct pl_buffer){ near.region, i % 64 * MESSAGE, MESSAGE }, &attributes, NULL,
				 &error),
			 &error);
		if (i % 1000 == 0)
			progress(environment);
	}
	settle(environment, 200);
	/* All messages together have 200 MB.  The sender's own records take some hundred bytes each. */
	check(resident_within(before, 80u << 20));
	sent = collect_available(environment->near);
	check(sent < count / 4);
	while (received < count) {
		struct pl_operation *operation;
		struct pl_completion receipt;

		check_ok(pl_receive(environment->far_peer, 0, 0, &(struct pl_buffer){ far.region, 0, MESSAGE }, NULL,
				    &operation, &error),
			 &error);
		complete(environment, operation, &receipt);
		check_number(receipt.tag, received);
		check_number(receipt.bytes, MESSAGE);
		if (received % 97 == 0)
			pattern_check(far.bytes, MESSAGE, 1, received % 64 * MESSAGE);
		if (++received % 1000 == 0)
			sent += collect_available(environment->near);
	}
	while (sent < count) {
		sent += collect_available(environment->near);
		progress(environment);
	}
	buffer_close(&near);
	buffer_close(&far);
}

/* Checks that large messages without a receive take no memory at the receiver, either. */
static void large_message_flood(struct scenario_environment *environment)
{
	enum { SIZE = 1 << 20 };
	const unsigned count = environment->setting->slow ? 100 : 400;
	struct buffer near, far;
	struct pl_error error;
	uint64_t before;
	unsigned sent = 0;

	buffer_open(&near, environment->near, SIZE, PL_ACCESS_LOCAL);
	buffer_open(&far, environment->far, SIZE, PL_ACCESS_LOCAL);
	pattern_fill(near.bytes, SIZE, 2, 0);
	before = resident_memory();
	for (unsigned i = 0; i < count; i++)
		check_ok(pl_send(environment->near_peer, i, &(struct pl_buffer){ near.region, 0, SIZE }, NULL, NULL,
				 &error),
			 &error);
	settle(environment, 100);
	check(resident_within(before, 64u << 20));
	check_number(collect_available(environment->near), 0);
	for (unsigned i = 0; i < count; i++) {
		struct pl_operation *operation;
		struct pl_completion receipt;

		check_ok(pl_receive(environment->far_peer, 0, 0, &(struct pl_buffer){ far.region, 0, SIZE }, NULL,
				    &operation, &error),
			 &error);
		complete(environment, operation, &receipt);
		check_number(receipt.tag, i);
		check_number(receipt.bytes, SIZE);
	}
	pattern_check(far.bytes, SIZE, 2, 0);
	while (sent < count) {
		sent += collect_available(environment->near);
		progress(environment);
	}
	buffer_close(&near);
	buffer_close(&far);
}

/* Posts thousands of reads at once and checks that the answers do not accumulate in memory. */
static void read_flood(struct scenario_environment *environment)
{
	enum { SIZE = 64 << 10, SLOTS = 64 };
	const bool checked = slowness() > 2;
	const unsigned count = environment->setting->slow || checked ? 1100 : 5000;
	/* ThreadSanitizer would report lanes that write the same bytes. */
	const unsigned targets = checked ? count : SLOTS;
	struct buffer near, far;
	struct pl_remote *remote;
	struct pl_error error;
	uint64_t before;
	unsigned done = 0;

	buffer_open(&near, environment->near, (size_t)targets * SIZE, PL_ACCESS_LOCAL);
	bytes_set(near.bytes, 0, near.length);
	buffer_open(&far, environment->far, (size_t)SLOTS * SIZE, PL_ACCESS_READ);
	pattern_fill(far.bytes, far.length, 3, 0);
	remote = share(environment, far.region, environment->near_peer, NULL);
	before = resident_memory();
	for (unsigned i = 0; i < count; i++) {
		const struct pl_transfer transfer = { remote, i % SLOTS * (uint64_t)SIZE, near.region,
						      i % targets * (uint64_t)SIZE, SIZE };

		check_ok(pl_read(environment->near_peer, &transfer, NULL, NULL, &error), &error);
	}
	while (done < count) {
		check(resident_within(before, 64u << 20));
		done += collect_available(environment->near);
		progress(environment);
	}
	pattern_check(near.bytes, SLOTS * SIZE, 3, 0);
	pl_remote_release(remote);
	buffer_close(&near);
	buffer_close(&far);
}

const struct scenario flood_scenarios[] = {
	{ "message-flood", message_flood, SCENARIO_HEAVY },
	{ "large-message-flood", large_message_flood, SCENARIO_HEAVY },
	{ "read-flood", read_flood, SCENARIO_HEAVY },
	{ NULL, NULL, 0 },
};
