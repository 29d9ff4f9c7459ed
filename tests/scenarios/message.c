/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages: sizes, matching, order, truncation. */
#include <stdlib.h>

#include "scenarios/scenario.h"

static const size_t sizes[] = { 0, 1, 7, 8, 4095, 4096, 8192, 8193, 65537, (1 << 20) + 3, 16 << 20 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define EXACT UINT64_MAX

static struct pl_operation *post_tagged_receive(struct scenario_environment *environment, uint64_t tag, uint64_t mask,
						const struct buffer *buffer, uint64_t offset, uint64_t length)
{
	struct pl_operation *operation = NULL;
	struct pl_error error;

	check_ok(pl_receive(environment->far_peer, tag, mask, &(struct pl_buffer){ buffer->region, offset, length },
			    NULL, &operation, &error),
		 &error);
	check(operation);
	return operation;
}

static struct pl_operation *post_send(struct scenario_environment *environment, uint64_t tag,
				      const struct buffer *buffer, uint64_t offset, uint64_t length)
{
	struct pl_operation *operation = NULL;
	struct pl_error error;

	check_ok(pl_send(environment->near_peer, tag, &(struct pl_buffer){ buffer->region, offset, length }, NULL,
			 &operation, &error),
		 &error);
	check(operation);
	return operation;
}

/* Sends a message into a buffer of its size or larger, whose receive is posted before or after the arrival. */
static void one_size(struct scenario_environment *environment, size_t size, bool receive_first, size_t spare)
{
	uint64_t seed = size * 4 + receive_first * 2 + !spare;
	struct buffer from, to;
	struct pl_operation *send, *receive = NULL;
	struct pl_completion receipt;

	buffer_open(&from, environment->near, size + 16, PL_ACCESS_LOCAL);
	buffer_open(&to, environment->far, size + spare + 16, PL_ACCESS_LOCAL);
	pattern_fill(from.bytes, from.length, seed, 0);
	if (receive_first) {
		receive = post_tagged_receive(environment, seed, EXACT, &to, 5, size + spare);
		settle(environment, 1);
	}
	send = post_send(environment, seed, &from, 9, size);
	if (!receive_first) {
		settle(environment, 2);
		value_check(to.bytes, to.length, POISON);
		receive = post_tagged_receive(environment, seed, EXACT, &to, 5, size + spare);
	}
	complete(environment, receive, &receipt);
	receipt_check(environment, &receipt, PL_KIND_RECEIVE, size);
	check_number(receipt.tag, seed);
	value_check(to.bytes, 5, POISON);
	pattern_check(to.bytes + 5, size, seed, 9);
	value_check(to.bytes + 5 + size, spare + 11, POISON);
	complete(environment, send, &receipt);
	receipt_check(environment, &receipt, PL_KIND_SEND, size);
	pattern_check(from.bytes, from.length, seed, 0);
	buffer_close(&from);
	buffer_close(&to);
}

static void message_sizes(struct scenario_environment *environment)
{
	for (size_t i = 0; i < SIZES; i++) {
		one_size(environment, sizes[i], true, 0);
		one_size(environment, sizes[i], true, 100);
		one_size(environment, sizes[i], false, 0);
		one_size(environment, sizes[i], false, 100);
	}
}

static void tag_masks(struct scenario_environment *environment)
{
	/* Messages in the order sent, each with the index of the receive that it must match. */
	static const struct {
		uint64_t tag;
		unsigned receive;
	} messages[] = {
		{ 0x21, 1 }, { 0x10, 0 }, { 0x10, 4 }, { 0xffffffffffffff21ull, 3 }, { 0x7f, 2 },
	};
	static const struct {
		uint64_t tag, mask;
	} receives[] = {
		{ 0x10, EXACT }, { 0x2f, 0xf0 }, { 0x7f, EXACT }, { 0x01, 0x0f }, { 0, 0 },
	};
	enum { COUNT = 5, SLOT = 64 };

	for (int receive_first = 0; receive_first < 2; receive_first++) {
		struct pl_operation *operations[COUNT];
		struct buffer from, to;

		buffer_open(&from, environment->near, COUNT * SLOT, PL_ACCESS_LOCAL);
		buffer_open(&to, environment->far, COUNT * SLOT, PL_ACCESS_LOCAL);
		pattern_fill(from.bytes, from.length, 3, 0);
		for (unsigned i = 0; receive_first && i < COUNT; i++)
			operations[i] = post_tagged_receive(environment, receives[i].tag, receives[i].mask, &to,
							    i * SLOT, SLOT);
		for (unsigned i = 0; i < COUNT; i++)
			complete(environment, post_send(environment, messages[i].tag, &from, i * SLOT, 40 + i), NULL);
		settle(environment, 5);
		for (unsigned i = 0; !receive_first && i < COUNT; i++) {
			unsigned r = messages[i].receive;

			operations[r] = post_tagged_receive(environment, receives[r].tag, receives[r].mask, &to,
							    r * SLOT, SLOT);
		}
		for (unsigned i = 0; i < COUNT; i++) {
			unsigned r = messages[i].receive;
			struct pl_completion receipt;

			complete(environment, operations[r], &receipt);
			check_number(receipt.tag, messages[i].tag);
			check_number(receipt.bytes, 40 + i);
			pattern_check(to.bytes + r * SLOT, 40 + i, 3, i * SLOT);
			value_check(to.bytes + r * SLOT + 40 + i, SLOT - 40 - i, POISON);
		}
		buffer_close(&from);
		buffer_close(&to);
	}
}

#define ORDER_COUNT 1000
#define ORDER_SLOT 20000

static size_t order_length(unsigned i)
{
	static const size_t lengths[] = { 0, 1, 100, 8192, 8193, 20000, 3000 };

	return lengths[i % 7];
}

/* Posts the first half of the receives before the messages are sent, the rest afterwards. */
static void in_order(struct scenario_environment *environment)
{
	struct pl_operation **receives = calloc(ORDER_COUNT, sizeof(*receives));
	struct pl_operation **sends = calloc(ORDER_COUNT, sizeof(*sends));
	struct buffer from, to;

	buffer_open(&from, environment->near, 7 * ORDER_SLOT + ORDER_COUNT, PL_ACCESS_LOCAL);
	buffer_open(&to, environment->far, (size_t)ORDER_COUNT * ORDER_SLOT, PL_ACCESS_LOCAL);
	pattern_fill(from.bytes, from.length, 4, 0);
	for (unsigned i = 0; i < ORDER_COUNT / 2; i++)
		receives[i] = post_tagged_receive(environment, 5, EXACT, &to, i * ORDER_SLOT, ORDER_SLOT);
	for (unsigned i = 0; i < ORDER_COUNT; i++)
		sends[i] = post_send(environment, 5, &from, i, order_length(i));
	settle(environment, 5);
	for (unsigned i = ORDER_COUNT / 2; i < ORDER_COUNT; i++)
		receives[i] = post_tagged_receive(environment, 5, EXACT, &to, i * ORDER_SLOT, ORDER_SLOT);
	for (unsigned i = 0; i < ORDER_COUNT; i++) {
		struct pl_completion receipt;

		complete(environment, receives[i], &receipt);
		receipt_check(environment, &receipt, PL_KIND_RECEIVE, order_length(i));
		pattern_check(to.bytes + (size_t)i * ORDER_SLOT, order_length(i), 4, i);
		complete(environment, sends[i], NULL);
	}
	buffer_close(&from);
	buffer_close(&to);
	free(receives);
	free(sends);
}

/* Interleaves two tags.  Each tag is in order, whichever is received first. */
static void in_order_by_tag(struct scenario_environment *environment)
{
	enum { COUNT = 60 };
	struct buffer to;
	struct pl_error error;

	buffer_open(&to, environment->far, 8, PL_ACCESS_LOCAL);
	for (uint64_t i = 0; i < COUNT; i++)
		check_ok(pl_send_copy(environment->near_peer, i % 2, &i, 8, NULL, NULL, &error), &error);
	for (uint64_t tag = 2; tag-- > 0;) {
		for (uint64_t i = tag; i < COUNT; i += 2) {
			uint64_t got;

			complete(environment, post_tagged_receive(environment, tag, EXACT, &to, 0, 8), NULL);
			bytes_get(to.bytes, &got, 8);
			check_number(got, i);
		}
	}
	for (unsigned i = 0; i < COUNT; i++) {
		struct pl_completion completion;

		collect(environment, environment->near, &completion, 1);
		check_completion(environment->near, &completion, 0);
		check_number(completion.kind, PL_KIND_SEND);
	}
	buffer_close(&to);
}

static void truncate_one(struct scenario_environment *environment, size_t sent, size_t room, bool receive_first)
{
	struct buffer from, to;
	struct pl_operation *send, *receive = NULL;
	struct pl_completion receipt;
	struct pl_error error;
	int status;

	buffer_open(&from, environment->near, sent, PL_ACCESS_LOCAL);
	buffer_open(&to, environment->far, room + 64, PL_ACCESS_LOCAL);
	pattern_fill(from.bytes, sent, 6, 0);
	if (receive_first)
		receive = post_tagged_receive(environment, 8, EXACT, &to, 0, room);
	send = post_send(environment, 8, &from, 0, sent);
	if (!receive_first) {
		settle(environment, 2);
		receive = post_tagged_receive(environment, 8, EXACT, &to, 0, room);
	}
	check_status(await(environment, receive, &receipt, &error), -EMSGSIZE, &error);
	check_number(receipt.status, -EMSGSIZE);
	check_number(receipt.bytes, sent);
	check_number(receipt.tag, 8);
	value_check(to.bytes + room, 64, POISON);
	status = await(environment, send, NULL, &error);
	check_one_of(status, 0, -EMSGSIZE);
	/* The dropped message does not disturb the next one. */
	receive = post_tagged_receive(environment, 8, EXACT, &to, 0, room);
	complete(environment, post_send(environment, 8, &from, 0, room), NULL);
	complete(environment, receive, &receipt);
	check_number(receipt.bytes, room);
	pattern_check(to.bytes, room, 6, 0);
	buffer_close(&from);
	buffer_close(&to);
}

static void truncation(struct scenario_environment *environment)
{
	for (int receive_first = 0; receive_first < 2; receive_first++) {
		truncate_one(environment, 100, 99, receive_first);
		truncate_one(environment, 8192, 1, receive_first);
		truncate_one(environment, 1 << 20, 1000, receive_first);
		truncate_one(environment, 9 << 20, (9 << 20) - 1, receive_first);
	}
}

static void send_copy_limits(struct scenario_environment *environment)
{
	static const size_t lengths[] = { 0, 1, PL_SEND_COPY_MAX - 1, PL_SEND_COPY_MAX };
	uint8_t data[PL_SEND_COPY_MAX + 1];
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;
	struct buffer to;

	buffer_open(&to, environment->far, sizeof(data), PL_ACCESS_LOCAL);
	for (unsigned i = 0; i < 4; i++) {
		pattern_fill(data, sizeof(data), i, 0);
		check_ok(pl_send_copy(environment->near_peer, 1, data, lengths[i], NULL, &operation, &error), &error);
		memset(data, POISON, sizeof(data));
		complete(environment, post_tagged_receive(environment, 1, EXACT, &to, 0, sizeof(data)), &receipt);
		receipt_check(environment, &receipt, PL_KIND_RECEIVE, lengths[i]);
		pattern_check(to.bytes, lengths[i], i, 0);
		complete(environment, operation, &receipt);
		check_number(receipt.kind, PL_KIND_SEND);
		check_number(receipt.bytes, lengths[i]);
	}
	check_status(pl_send_copy(environment->near_peer, 1, data, PL_SEND_COPY_MAX + 1, NULL, &operation, &error),
		     -EMSGSIZE, &error);
	buffer_close(&to);
}

/* Checks that a cancelled receive takes no message: the next receive gets it. */
static void cancelled_receive_takes_nothing(struct scenario_environment *environment)
{
	struct pl_operation *first, *second;
	struct buffer from, to;

	buffer_open(&from, environment->near, 200, PL_ACCESS_LOCAL);
	buffer_open(&to, environment->far, 400, PL_ACCESS_LOCAL);
	pattern_fill(from.bytes, 200, 7, 0);
	first = post_tagged_receive(environment, 0, 0, &to, 0, 200);
	second = post_tagged_receive(environment, 0, 0, &to, 200, 200);
	pl_cancel(first);
	fail_with(environment, first, -ECANCELED);
	complete(environment, post_send(environment, 1, &from, 0, 200), NULL);
	complete(environment, second, NULL);
	value_check(to.bytes, 200, POISON);
	pattern_check(to.bytes + 200, 200, 7, 0);
	buffer_close(&from);
	buffer_close(&to);
}

/* Both ends send large messages to each other before either posts a receive. */
static void crossing_messages(struct scenario_environment *environment)
{
	enum { COUNT = 4, SIZE = 3 << 20 };
	struct pl_peer *peers[2] = { environment->near_peer, environment->far_peer };
	struct pl_context *contexts[2] = { environment->near, environment->far };
	struct pl_operation *sends[2][COUNT], *receives[2][COUNT];
	struct buffer from[2], to[2];
	struct pl_error error;

	for (unsigned e = 0; e < 2; e++) {
		buffer_open(&from[e], contexts[e], COUNT * SIZE, PL_ACCESS_LOCAL);
		buffer_open(&to[e], contexts[e], COUNT * SIZE, PL_ACCESS_LOCAL);
		pattern_fill(from[e].bytes, COUNT * SIZE, 20 + e, 0);
		for (unsigned i = 0; i < COUNT; i++)
			check_ok(pl_send(peers[e], i, &(struct pl_buffer){ from[e].region, i * (uint64_t)SIZE, SIZE },
					 NULL, &sends[e][i], &error),
				 &error);
	}
	for (unsigned e = 0; e < 2; e++) {
		for (unsigned i = COUNT; i-- > 0;)
			check_ok(pl_receive(peers[e], i, EXACT,
					    &(struct pl_buffer){ to[e].region, i * (uint64_t)SIZE, SIZE }, NULL,
					    &receives[e][i], &error),
				 &error);
	}
	for (unsigned e = 0; e < 2; e++) {
		for (unsigned i = 0; i < COUNT; i++) {
			complete(environment, receives[e][i], NULL);
			complete(environment, sends[e][i], NULL);
		}
		pattern_check(to[e].bytes, COUNT * SIZE, 20 + !e, 0);
	}
	for (unsigned e = 0; e < 2; e++) {
		buffer_close(&from[e]);
		buffer_close(&to[e]);
	}
}

const struct scenario message_scenarios[] = {
	{ "message-sizes", message_sizes, 0 },
	{ "tag-masks", tag_masks, SCENARIO_SETTING },
	{ "in-order", in_order, 0 },
	{ "in-order-by-tag", in_order_by_tag, 0 },
	{ "truncation", truncation, 0 },
	{ "send-copy-limits", send_copy_limits, 0 },
	{ "cancelled-receive-takes-nothing", cancelled_receive_takes_nothing, SCENARIO_SETTING },
	{ "crossing-messages", crossing_messages, 0 },
	{ NULL, NULL, 0 },
};
