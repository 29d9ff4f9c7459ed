/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages about streams: golden bytes, and the refusals of the decoder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/stream_message.h"

#define BODY_MAX 8192

static int encode(const struct pl_stream_message *message, uint8_t buffer[BODY_MAX])
{
	return pl_stream_message_encode(message, buffer, BODY_MAX);
}

/* Encodes a message, compares its beginning, decodes it, and encodes the result again. */
static struct pl_stream_message round_trip(const struct pl_stream_message *message, const uint8_t *golden,
					   size_t length, int total)
{
	static uint8_t buffer[BODY_MAX];
	struct pl_stream_message decoded;
	uint8_t again[BODY_MAX];
	int bytes = encode(message, buffer);

	assert_int_equal(bytes, total);
	assert_memory_equal(buffer, golden, length);
	assert_int_equal(pl_stream_message_decode(buffer, (size_t)bytes, &decoded), 0);
	assert_int_equal(encode(&decoded, again), bytes);
	assert_memory_equal(again, buffer, (size_t)bytes);
	/* Neither a part of a message nor a longer one is accepted. */
	for (int i = 0; i < bytes; i++)
		if ((message->type != PL_STREAM_ANNOUNCE || i < 38) && (message->type != PL_STREAM_PUSHED || i != 62))
			assert_int_equal(pl_stream_message_decode(buffer, (size_t)i, &decoded), -EPROTO);
	assert_int_equal(pl_stream_message_decode(buffer, (size_t)bytes + 1, &decoded), -EPROTO);
	assert_int_equal(pl_stream_message_decode(buffer, (size_t)bytes, &decoded), 0);
	return decoded;
}

static struct pl_stream_entry sample_entry(void)
{
	return (struct pl_stream_entry){ .name = "cam0",
					 .content_type = "raw",
					 .instance = { 1, [15] = 2 },
					 .created = 3,
					 .slots = 16,
					 .metadata_bytes = 100,
					 .slot_bytes = 5000,
					 .layout = { PL_ELEMENT_UINT, 16, 1, 1, { 9 } },
					 .claimed = 8,
					 .published = 7,
					 .subscribers = 2,
					 .blocking = 1,
					 .allow_block = true,
					 .state = PL_STREAM_LIVE,
					 .gpu = true };
}

static void test_golden(void **state)
{
	static const uint8_t list[] = { 1, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0 };
	static const uint8_t subscribe[] = { 3, 0, 0, 0, 5, 0, 0, 0, 3, 2, 77, 0, 0,   0,   0,   0,  0, 0,
					     1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0, 0,   0,   0,   0,  6, 0,
					     0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 4,  0, 'c', 'a', 'm', '0' };
	static const uint8_t in_place[] = { 3, 0, 0, 0, 5, 0, 0, 0, 3, 3, 77 };
	static const uint8_t subscribed[] = { 4, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 4, 0, 'c', 'a', 'm', '0', 3, 0, 'r' };
	static const uint8_t refused[] = { 4, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0 };
	static const uint8_t taken[] = { 7, 0, 0, 0, 5, 0,  0, 0, 6, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0,
					 0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0,  1, 0, 0, 0, 0, 0, 0, 0,  1 };
	static const uint8_t closed[] = { 8, 0, 0, 0, 5, 0, 0, 0 };
	struct pl_stream_message message = { .type = PL_STREAM_LIST, .number = 5, .from = 9 };

	(void)state;
	round_trip(&message, list, sizeof(list), sizeof(list));
	message = (struct pl_stream_message){ .type = PL_STREAM_SUBSCRIBE, .number = 5 };
	strcpy(message.subscribe.name, "cam0");
	message.subscribe.start = PL_START_SEQUENCE;
	message.subscribe.overflow = PL_OVERFLOW_BLOCK;
	message.subscribe.from = 77;
	message.subscribe.instance[0] = 1;
	message.subscribe.every = 6;
	message.subscribe.base = 7;
	round_trip(&message, subscribe, sizeof(subscribe), sizeof(subscribe));
	message.subscribe.in_place = true;
	message = round_trip(&message, in_place, sizeof(in_place), sizeof(subscribe));
	assert_true(message.subscribe.in_place && message.subscribe.overflow == PL_OVERFLOW_BLOCK);
	message = (struct pl_stream_message){ .type = PL_STREAM_SUBSCRIBED, .number = 5 };
	message.subscribed.entry = sample_entry();
	message = round_trip(&message, subscribed, sizeof(subscribed), 12 + 150 + 16 + 2 * PL_TOKEN_SIZE);
	assert_int_equal(message.subscribed.entry.layout.shape[0], 9);
	assert_true(message.subscribed.entry.gpu);
	message = (struct pl_stream_message){ .type = PL_STREAM_SUBSCRIBED, .number = 5 };
	message.subscribed.status = PL_SUBSCRIBE_NO_BLOCK;
	round_trip(&message, refused, sizeof(refused), sizeof(refused));
	message = (struct pl_stream_message){ .type = PL_STREAM_TAKEN, .number = 5 };
	message.taken.answered = 6;
	message.taken.taken = 12;
	message.taken.accounts = (struct pl_accounts){ .first = 10, .next = 12, .delivered = 1, .lapped = 1 };
	round_trip(&message, taken, sizeof(taken), 20 + 80);
	message = (struct pl_stream_message){ .type = PL_STREAM_CLOSED, .number = 5 };
	round_trip(&message, closed, sizeof(closed), sizeof(closed));
}

static void test_listed(void **state)
{
	static const uint8_t golden[] = { 2, 0, 0, 0, 5, 0, 0, 0, 40, 0, 0, 0, 16, 0, 0, 0, 4, 0, 'c' };
	struct pl_stream_message message = { .type = PL_STREAM_LISTED, .number = 5 };
	uint8_t buffer[BODY_MAX];

	(void)state;
	message.listed.total = 40;
	message.listed.count = PL_STREAM_LISTED_MAX;
	for (unsigned i = 0; i < PL_STREAM_LISTED_MAX; i++)
		message.listed.entries[i] = sample_entry();
	round_trip(&message, golden, sizeof(golden), 16 + 16 * 150);
	message.listed.count = PL_STREAM_LISTED_MAX + 1;
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message.listed.count = 1;
	message.listed.entries[0].claimed = 7;
	assert_int_equal(encode(&message, buffer), 16 + 150);
	message.listed.entries[0].claimed = 6; /* less than published */
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message.listed.entries[0] = sample_entry();
	message.listed.entries[0].state = (enum pl_stream_state)4;
	assert_int_equal(encode(&message, buffer), -EINVAL);
}

static void test_announce(void **state)
{
	static const uint8_t golden[] = { 6, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0,
					  0, 0, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0 };
	uint8_t frames[2 * 128 + 3] = { [128 + 40] = 3 }, buffer[BODY_MAX];
	struct pl_stream_message message = { .type = PL_STREAM_ANNOUNCE, .number = 5 }, decoded;
	int bytes;

	(void)state;
	message.announce.claimed = 8;
	message.announce.published = 7;
	message.announce.state = PL_STREAM_LIVE;
	message.announce.skipped = 3;
	message.announce.count = 2;
	message.announce.frames = frames;
	message.announce.frames_length = sizeof(frames);
	round_trip(&message, golden, sizeof(golden), (int)(sizeof(golden) + sizeof(frames)));
	bytes = encode(&message, buffer);
	assert_int_equal(buffer[25], 0);
	buffer[25] = 3;
	assert_int_equal(pl_stream_message_decode(buffer, (size_t)bytes, &decoded), 0);
	assert_true(decoded.announce.demoted && decoded.announce.waits);
	buffer[25] = 4; /* an unknown bit */
	assert_int_equal(pl_stream_message_decode(buffer, (size_t)bytes, &decoded), -EPROTO);
	message.announce.waits = true;
	assert_int_equal(encode(&message, buffer), bytes);
	assert_int_equal(buffer[25], 2);
	buffer[38 + 128 + 40] = 4; /* longer than the rest */
	assert_int_equal(pl_stream_message_decode(buffer, (size_t)bytes, &decoded), -EPROTO);
	buffer[38 + 128 + 40] = 2; /* leaves a byte */
	assert_int_equal(pl_stream_message_decode(buffer, (size_t)bytes, &decoded), -EPROTO);
	message.announce.count = 3;
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message.announce.count = 2;
	message.announce.published = 1; /* fewer sequences than descriptors */
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message.announce.published = 9; /* more than claimed */
	assert_int_equal(encode(&message, buffer), -EINVAL);
}

static void test_prepare(void **state)
{
	static const uint8_t pull[] = { 3, 0, 0, 0, 5, 0, 0, 0, 0, 8 }, push[] = { 3, 0, 0, 0, 5, 0, 0, 0, 0, 14 };
	struct pl_stream_message message = { .type = PL_STREAM_SUBSCRIBE, .number = 5 };

	(void)state;
	message.subscribe.every = 1;
	message.subscribe.prepare = true;
	assert_true(round_trip(&message, pull, sizeof(pull), 48).subscribe.prepare);
	message.subscribe.overflow = PL_OVERFLOW_BLOCK;
	message.subscribe.push = true;
	assert_true(round_trip(&message, push, sizeof(push), 48).subscribe.prepare);
}

static void test_push(void **state)
{
	static const uint8_t subscribe[] = { 3, 0, 0, 0, 5, 0, 0, 0, 0, 6 };
	static const uint8_t slots[] = { 9, 0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 1, 3 };
	static const uint8_t credit[] = { 10, 0, 0, 0, 5, 0, 0, 0, 10, [16] = 12, [24] = 2, [88] = 1,
					  2,  0, 0, 0, 6, 0, 0, 0, 4,  0,         0,        0 };
	static const uint8_t pushed[] = { 11, 0, 0,  0,        5, 0, 0,        0,        9,        0,        0, 0, 0, 0,
					  0,  0, 12, [24] = 1, 1, 1, [34] = 2, [42] = 3, [50] = 4, [58] = 5, 0, 0, 0 };
	uint8_t frame[128 + 3] = { [40] = 3 }, buffer[BODY_MAX];
	struct pl_stream_message message = { .type = PL_STREAM_SUBSCRIBE, .number = 5 };

	(void)state;
	message.subscribe.every = 1;
	message.subscribe.overflow = PL_OVERFLOW_BLOCK;
	message.subscribe.push = true;
	assert_true(round_trip(&message, subscribe, sizeof(subscribe), 48).subscribe.push);
	message.subscribe.in_place = true;
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message = (struct pl_stream_message){ .type = PL_STREAM_SLOTS, .number = 5 };
	message.slots.count = 7;
	message.slots.stride = 4096;
	message.slots.gpu = true;
	message.slots.token[0] = 3;
	round_trip(&message, slots, sizeof(slots), 21 + PL_TOKEN_SIZE);
	message.slots.count = 0;
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message.slots.count = PL_STREAM_PUSH_SLOTS_MAX + 1;
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message = (struct pl_stream_message){ .type = PL_STREAM_CREDIT, .number = 5 };
	message.credit.accounts = (struct pl_accounts){ .first = 10, .next = 12, .delivered = 2 };
	message.credit.paused = true;
	message.credit.count = 2;
	message.credit.slots[0] = 6;
	message.credit.slots[1] = 4;
	round_trip(&message, credit, sizeof(credit), sizeof(credit));
	message.credit.count = PL_STREAM_CREDIT_MAX + 1;
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message.credit.count = 2;
	message.credit.accounts.next++;
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message = (struct pl_stream_message){ .type = PL_STREAM_PUSHED, .number = 5 };
	message.pushed.next = 9;
	message.pushed.published = 12;
	message.pushed.state = PL_STREAM_LIVE;
	message.pushed.demoted = true;
	message.pushed.fates = (struct pl_push_fates){ 1, 2, 3, 4 };
	message.pushed.slot = 5;
	message.pushed.frame = frame;
	message.pushed.frame_length = sizeof(frame);
	round_trip(&message, pushed, sizeof(pushed), (int)(sizeof(pushed) + sizeof(frame)));
	message.pushed.next = 13; /* not published */
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message.pushed.next = 9;
	message.pushed.frame_length--; /* the metadata lack a byte */
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message.pushed.frame = NULL; /* a slot without a frame */
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message.pushed.slot = 0;
	assert_int_equal(encode(&message, buffer), sizeof(pushed));
	/* A subscription can begin with a later sequence. */
	message.pushed.next = 13;
	assert_int_equal(encode(&message, buffer), sizeof(pushed));
}

/* Checks that bodies of these lengths are valid, and no others up to `most`. */
static void check_lengths(const uint8_t *body, size_t most, size_t first, size_t second)
{
	struct pl_stream_message decoded;

	for (size_t length = 0; length <= most; length++)
		assert_int_equal(pl_stream_message_decode(body, length, &decoded),
				 length == first || length == second ? 0 : -EPROTO);
}

static void check_token(const struct pl_stream_token *token, const struct pl_stream_token *expected)
{
	assert_true(token->given && token->id == expected->id);
	assert_memory_equal(token->secret, expected->secret, sizeof(token->secret));
}

/* LIST and SUBSCRIBE with a token, and their refusals. Without a token, the bytes are those of earlier releases. */
static void test_tokens(void **state)
{
	static const uint8_t list[] = { 1, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, 8, 7, 6, 5, 4, 3,
					2, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3 };
	static const uint8_t tail[] = { 4, 0, 'c', 'a', 'm', '0', 8, 7, 6, 5, 4, 3, 2, 1, 1,
					2, 0, 0,   0,   0,   0,   0, 0, 0, 0, 0, 0, 0, 0, 3 };
	static const uint8_t listed[] = { 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0 };
	static const uint8_t closed[] = { 8, 0, 0, 0, 5, 0, 0, 0, 2 };
	const struct pl_stream_token token = { true, 0x0102030405060708, { 1, 2, [15] = 3 } };
	struct pl_stream_message message = { .type = PL_STREAM_LIST, .number = 5, .token = token, .from = 9 }, decoded;
	uint8_t buffer[BODY_MAX] = { 0 };

	(void)state;
	assert_int_equal(encode(&message, buffer), sizeof(list));
	assert_memory_equal(buffer, list, sizeof(list));
	check_lengths(list, sizeof(list), 12, 36);
	assert_int_equal(pl_stream_message_decode(list, sizeof(list), &decoded), 0);
	check_token(&decoded.token, &token);
	assert_int_equal(pl_stream_message_decode(list, 12, &decoded), 0);
	assert_false(decoded.token.given);
	message = (struct pl_stream_message){ .type = PL_STREAM_SUBSCRIBE, .number = 5, .token = token };
	strcpy(message.subscribe.name, "cam0");
	message.subscribe.every = 1;
	assert_int_equal(encode(&message, buffer), 52 + 24);
	assert_memory_equal(buffer + 46, tail, sizeof(tail));
	check_lengths(buffer, 52 + 25, 52, 52 + 24);
	assert_int_equal(pl_stream_message_decode(buffer, 52 + 24, &decoded), 0);
	check_token(&decoded.token, &token);
	message = (struct pl_stream_message){ .type = PL_STREAM_LISTED, .number = 5 };
	message.listed.status = PL_SUBSCRIBE_WRONG_TOKEN;
	memset(buffer, 0, sizeof(buffer));
	assert_int_equal(encode(&message, buffer), sizeof(listed));
	assert_memory_equal(buffer, listed, sizeof(listed));
	check_lengths(buffer, sizeof(listed) + 1, 16, sizeof(listed));
	buffer[16] = PL_SUBSCRIBE_OK; /* is told by the entries */
	assert_int_equal(pl_stream_message_decode(buffer, sizeof(listed), &decoded), -EPROTO);
	buffer[16] = PL_SUBSCRIBE_END;
	assert_int_equal(pl_stream_message_decode(buffer, sizeof(listed), &decoded), -EPROTO);
	message.listed.count = 1; /* with a refusal */
	message.listed.entries[0] = sample_entry();
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message = (struct pl_stream_message){ .type = PL_STREAM_CLOSED, .number = 5, .closed = PL_CLOSED_EXPIRED };
	memset(buffer, 0, sizeof(buffer));
	assert_int_equal(encode(&message, buffer), sizeof(closed));
	assert_memory_equal(buffer, closed, sizeof(closed));
	check_lengths(buffer, sizeof(closed) + 1, 8, sizeof(closed));
	buffer[8] = PL_CLOSED_PUBLISHER; /* is no byte */
	assert_int_equal(pl_stream_message_decode(buffer, sizeof(closed), &decoded), -EPROTO);
	message.closed = PL_CLOSED_END;
	assert_int_equal(encode(&message, buffer), -EINVAL);
}

/* The byte that told of allow_block tells of the need for a token, too. */
static void test_entry_bits(void **state)
{
	struct pl_stream_message message = { .type = PL_STREAM_LISTED, .number = 5 }, decoded;
	uint8_t buffer[BODY_MAX];
	int bytes;

	(void)state;
	message.listed.total = message.listed.count = 1;
	message.listed.entries[0] = sample_entry();
	bytes = encode(&message, buffer);
	assert_int_equal(buffer[bytes - 3], 1);
	message.listed.entries[0].needs_token = true;
	assert_int_equal(encode(&message, buffer), bytes);
	assert_int_equal(buffer[bytes - 3], 3);
	assert_int_equal(pl_stream_message_decode(buffer, (size_t)bytes, &decoded), 0);
	assert_true(decoded.listed.entries[0].needs_token && decoded.listed.entries[0].allow_block);
	buffer[bytes - 3] = 4;
	assert_int_equal(pl_stream_message_decode(buffer, (size_t)bytes, &decoded), -EPROTO);
}

static void test_accounts(void **state)
{
	struct pl_accounts accounts = { .first = 5,
					.next = 13,
					.delivered = 1,
					.lapped = 1,
					.dropped = 1,
					.rejected = 1,
					.aborted = 1,
					.missed = 1,
					.unwanted = 1,
					.pending = 1 };

	(void)state;
	assert_true(pl_accounts_exact(&accounts));
	accounts.next++;
	assert_false(pl_accounts_exact(&accounts));
	accounts = (struct pl_accounts){ .first = UINT64_MAX, .delivered = 1 };
	assert_false(pl_accounts_exact(&accounts));
}

static void test_refusals(void **state)
{
	uint8_t body[64] = { PL_STREAM_PUSHED + 1 };
	struct pl_stream_message message = { .type = PL_STREAM_SUBSCRIBE };
	uint8_t buffer[BODY_MAX];
	int length;

	(void)state;
	assert_int_equal(pl_stream_message_decode(body, 8, &message), -EPROTO);
	body[0] = 0;
	assert_int_equal(pl_stream_message_decode(body, 8, &message), -EPROTO);
	body[0] = PL_STREAM_CLOSED;
	body[1] = 1; /* reserved */
	assert_int_equal(pl_stream_message_decode(body, 8, &message), -EPROTO);
	message = (struct pl_stream_message){ .type = PL_STREAM_SUBSCRIBE };
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message.subscribe.every = 1;
	message.subscribe.start = (enum pl_start)4;
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message.subscribe.start = PL_START_LIVE;
	message.subscribe.overflow = (enum pl_overflow)3;
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message.subscribe.overflow = PL_OVERFLOW_BLOCK;
	assert_int_equal(pl_stream_message_encode(&message, buffer, 20), -ENOBUFS);
	length = encode(&message, buffer);
	buffer[9] = 7; /* overflow */
	assert_true(length > 0);
	assert_int_equal(pl_stream_message_decode(buffer, (size_t)length, &message), -EPROTO);
	message = (struct pl_stream_message){ .type = PL_STREAM_SUBSCRIBE };
	message.subscribe.every = 1;
	message.subscribe.in_place = true;
	message.subscribe.overflow = PL_OVERFLOW_DROP_OLDEST;
	assert_int_equal(encode(&message, buffer), -EINVAL);
}

/* States, counts and lengths at their limits, and just beyond them. */
static void test_announce_limits(void **state)
{
	static uint8_t frames[PL_STREAM_ANNOUNCE_MAX + 1];
	struct pl_stream_message message = { .type = PL_STREAM_ANNOUNCE }, decoded;
	uint8_t buffer[BODY_MAX];

	(void)state;
	message.announce.claimed = message.announce.published = 1;
	message.announce.count = 1;
	message.announce.frames = frames;
	message.announce.frames_length = 128;
	for (unsigned value = 0; value <= PL_STREAM_FAILED + 1; value++) {
		message.announce.state = (enum pl_stream_state)value;
		assert_int_equal(encode(&message, buffer),
				 value >= PL_STREAM_LIVE && value <= PL_STREAM_FAILED ? 38 + 128 : -EINVAL);
	}
	message.announce.state = PL_STREAM_LIVE;
	assert_int_equal(encode(&message, buffer), 38 + 128);
	assert_int_equal(pl_stream_message_decode(buffer, 38 + 128, &decoded), 0);
	assert_int_equal(pl_stream_message_decode(buffer, 38 + 127, &decoded), -EPROTO);
	/* Metadata of 3,968 bytes. */
	frames[40] = 0x80;
	frames[41] = 0x0f;
	message.announce.frames_length = PL_STREAM_ANNOUNCE_MAX;
	assert_int_equal(encode(&message, buffer), 38 + PL_STREAM_ANNOUNCE_MAX);
	frames[40]++;
	message.announce.frames_length++;
	assert_int_equal(encode(&message, buffer), -EINVAL);
}

static void test_push_limits(void **state)
{
	static uint8_t frame[PL_STREAM_ANNOUNCE_MAX + 1];
	struct pl_stream_message message = { .type = PL_STREAM_PUSHED }, decoded;
	uint8_t buffer[BODY_MAX];

	(void)state;
	message.pushed.next = message.pushed.published = 1;
	message.pushed.frame = frame;
	message.pushed.frame_length = 128;
	assert_int_equal(encode(&message, buffer), -EINVAL); /* no state */
	message.pushed.state = PL_STREAM_FAILED;
	assert_int_equal(encode(&message, buffer), 62 + 128);
	message.pushed.next = 0; /* there is no sequence before it */
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message.pushed.next = 1;
	frame[40] = 0x80;
	frame[41] = 0x0f;
	message.pushed.frame_length = PL_STREAM_ANNOUNCE_MAX;
	assert_int_equal(encode(&message, buffer), 62 + PL_STREAM_ANNOUNCE_MAX);
	frame[40]++;
	message.pushed.frame_length++;
	assert_int_equal(encode(&message, buffer), -EINVAL);
	message = (struct pl_stream_message){ .type = PL_STREAM_SLOTS };
	message.slots.count = PL_STREAM_PUSH_SLOTS_MAX;
	assert_int_equal(encode(&message, buffer), 21 + PL_TOKEN_SIZE);
	message = (struct pl_stream_message){ .type = PL_STREAM_CREDIT };
	message.credit.count = PL_STREAM_CREDIT_MAX;
	assert_int_equal(encode(&message, buffer), 93 + 4 * PL_STREAM_CREDIT_MAX);
	assert_int_equal(pl_stream_message_decode(buffer, 93 + 4 * PL_STREAM_CREDIT_MAX, &decoded), 0);
	message = (struct pl_stream_message){ .type = PL_STREAM_SUBSCRIBE };
	message.subscribe.every = 1;
	message.subscribe.push = true;
	assert_int_equal(encode(&message, buffer), 48);
	assert_int_equal(pl_stream_message_decode(buffer, 48, &decoded), 0);
	assert_true(decoded.subscribe.push && decoded.subscribe.overflow == PL_OVERFLOW_DROP_OLDEST);
	message = (struct pl_stream_message){ .type = PL_STREAM_SUBSCRIBED };
	message.subscribed.status = PL_SUBSCRIBE_END;
	assert_int_equal(encode(&message, buffer), -EINVAL);
}

/* A body without one of its reserved zeros, and one that ends within the fields of all messages. */
static void test_beginnings(void **state)
{
	struct pl_stream_message decoded;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		uint8_t body[8] = { PL_STREAM_CLOSED };

		body[i] += i != 0;
		assert_int_equal(pl_stream_message_decode(body, sizeof(body), &decoded), i ? -EPROTO : 0);
		assert_int_equal(pl_stream_message_decode(body, sizeof(body) - 1 - i, &decoded), -EPROTO);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),      cmocka_unit_test(test_listed),
		cmocka_unit_test(test_announce),    cmocka_unit_test(test_accounts),
		cmocka_unit_test(test_refusals),    cmocka_unit_test(test_prepare),
		cmocka_unit_test(test_push),        cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_entry_bits),  cmocka_unit_test(test_announce_limits),
		cmocka_unit_test(test_push_limits), cmocka_unit_test(test_beginnings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
