/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames that violate the protocol: the victim closes the connection at the first of them, and not before. */
#include <stdlib.h>
#include <unistd.h>

#include "support/cases.h"
#include "support/offender.h"
#include "support/socket.h"

#define REQUESTS_MAX 256
#define LENGTH 8192u
/* More than the buffers of both sockets take, so that the first answer does not end. */
#define LARGE PL_FRAME_BULK_MAX

/* An atomic that is neither an addition nor a comparison with exchange is no refusal, but a violation. */
static void unknown_atomics(void *argument)
{
	static const uint8_t kinds[] = { 0, PL_ATOMIC_SWAP + 1, UINT8_MAX };

	for (size_t i = 0; i < PL_ARRAY_SIZE(kinds); i++) {
		struct pl_frame frame = { .type = PL_FRAME_ATOMIC, .flags = kinds[i], .length = 16, .key = 1 };
		uint8_t bytes[PL_FRAME_HEADER + 16] = { 0 };
		struct offender offender;

		offender_open_as(&offender, argument);
		pl_frame_encode(&frame, bytes);
		check(socket_send(offender.lane, bytes, sizeof(bytes)));
		offender_expect_end(&offender);
		offender_close(&offender);
	}
}

/* Opens an offender, a buffer of the victim, and a READ of all its bytes. */
static void open_reader(struct offender *offender, void *argument, struct buffer *buffer, struct pl_frame *read)
{
	uint8_t token[PL_TOKEN_MAX];
	size_t length = PL_TOKEN_MAX;
	struct pl_error error;

	offender_open_as(offender, argument);
	buffer_open(buffer, offender->victim.context, LARGE, PL_ACCESS_ALL);
	check_ok(pl_region_share(buffer->region, NULL, token, &length, &error), &error);
	*read = (struct pl_frame){ .type = PL_FRAME_READ, .length = LARGE };
	read->key = offender_import(offender, token, length);
}

/* Receives a frame of the lane, with its payload. */
static void receive_frame(const struct offender *offender, struct pl_frame *frame, uint8_t *payload)
{
	uint8_t bytes[PL_FRAME_HEADER];

	check(socket_receive(offender->lane, bytes, sizeof(bytes), AMPLE_MS));
	check_number(pl_frame_decode(bytes, frame), 0);
	check(socket_receive(offender->lane, payload, pl_frame_payload(frame), AMPLE_MS));
}

/* A lane has at most 256 READs whose answers have not ended.  Nobody reads the answers here. */
static void most_reads(void *argument)
{
	uint8_t bytes[PL_FRAME_HEADER];
	struct offender offender;
	struct pl_frame frame;
	struct buffer buffer;

	open_reader(&offender, argument, &buffer, &frame);
	pl_frame_encode(&frame, bytes);
	for (unsigned i = 0; i < REQUESTS_MAX; i++)
		check(socket_send(offender.lane, bytes, sizeof(bytes)));
	sleep_ms(300);
	check(offender_is_connected(&offender));
	check(socket_send(offender.lane, bytes, sizeof(bytes)));
	offender_expect_end(&offender);
	buffer_close(&buffer);
	offender_close(&offender);
}

/* Frames of other fabrics, answers before any request, and messages on a lane that carries none. */
static void frames_out_of_place(void *argument)
{
	static const struct pl_frame frames[] = {
		{ .type = PL_FRAME_VALUE },
		{ .type = PL_FRAME_DATA, .length = 8 },
		{ .type = PL_FRAME_FAIL, .flags = PL_FRAME_READ },
		{ .type = PL_FRAME_CREDIT, .offset = 1 },
		{ .type = PL_FRAME_RENDEZVOUS, .length = PL_KEY_BLOB_MAX + 1, .offset = LENGTH },
	};
	struct offender offender;

	(void)argument;
	victim_open(&offender.victim, &offender_setting);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(frames) + PL_FRAME_TYPE_END - PL_FRAME_FENCE; i++) {
		uint8_t bytes[PL_FRAME_HEADER + 256] = { 0 };
		struct pl_frame frame = { .type = (uint8_t)(PL_FRAME_FENCE + i - PL_ARRAY_SIZE(frames)) };

		if (i < PL_ARRAY_SIZE(frames))
			frame = frames[i];
		offender_connect(&offender);
		pl_frame_encode(&frame, bytes);
		check(socket_send(offender.lane, bytes, PL_FRAME_HEADER + frame.length));
		offender_expect_end(&offender);
		offender_leave(&offender);
	}
	victim_close(&offender.victim);
}

static void messages_on_a_bulk_lane(void *argument)
{
	static const struct pl_frame frame = { .type = PL_FRAME_EAGER, .key = 1 };
	uint8_t bytes[PL_FRAME_HEADER];
	struct offender offender;
	int lane;

	(void)argument;
	offender_open(&offender);
	lane = attack_lane(offender.victim.address, &offender.link.target, 1);
	pl_frame_encode(&frame, bytes);
	/* Lane 0 carries messages. */
	check(socket_send(offender.lane, bytes, sizeof(bytes)));
	sleep_ms(50);
	check(offender_is_connected(&offender));
	check(socket_send(lane, bytes, sizeof(bytes)));
	offender_expect_end(&offender);
	close(lane);
	offender_close(&offender);
}

/*
 * The refusal of a WRITE overtakes answers that wait, because a frame that acknowledges the WRITE would report it as
 * placed.
 */
static void refusal_before_acknowledgement(void *argument)
{
	const struct pl_frame refused = { .type = PL_FRAME_WRITE, .key = 12345 };
	uint8_t bytes[PL_FRAME_HEADER], *payload = malloc(LARGE);
	struct offender offender;
	struct pl_frame frame;
	struct buffer buffer;

	open_reader(&offender, argument, &buffer, &frame);
	pl_frame_encode(&frame, bytes);
	for (unsigned i = 0; i < 2; i++)
		check(socket_send(offender.lane, bytes, sizeof(bytes)));
	pl_frame_encode(&refused, bytes);
	check(socket_send(offender.lane, bytes, sizeof(bytes)));
	do
		receive_frame(&offender, &frame, payload);
	while (frame.ack == 0);
	check_number(frame.type, PL_FRAME_FAIL);
	check_number(frame.flags, PL_FRAME_WRITE);
	check_number(frame.cookie, 1);
	check_number(frame.offset, PL_WIRE_UNKNOWN_KEY);
	buffer_close(&buffer);
	offender_close(&offender);
	free(payload);
}

/* Sends the start of a WRITE, which the victim stages, then its rest with two more WRITEs, of which one is refused. */
static void send_three_writes(const struct offender *offender, uint64_t key)
{
	enum { STAGED = 5000, SENT = 1000, SMALL = 64 };
	const struct pl_frame writes[] = {
		{ .type = PL_FRAME_WRITE, .key = key, .length = STAGED },
		{ .type = PL_FRAME_WRITE, .key = 12345 },
		{ .type = PL_FRAME_WRITE, .key = key, .offset = LENGTH, .length = SMALL },
	};
	uint8_t bytes[3 * PL_FRAME_HEADER + STAGED + SMALL] = { 0 };

	pl_frame_encode(&writes[0], bytes);
	pl_frame_encode(&writes[1], bytes + PL_FRAME_HEADER + STAGED);
	pl_frame_encode(&writes[2], bytes + 2 * PL_FRAME_HEADER + STAGED);
	check(socket_send(offender->lane, bytes, SENT));
	sleep_ms(50);
	check(socket_send(offender->lane, bytes + SENT, sizeof(bytes) - SENT));
}

/*
 * A WRITE behind a refused one is acknowledged, although the refusal waits for an earlier WRITE that is copied to a GPU, and
 * nothing comes after it.
 */
static void acknowledgement_behind_refusal(void *argument)
{
	uint8_t token[PL_TOKEN_MAX], payload[64];
	size_t length = PL_TOKEN_MAX;
	struct offender offender;
	struct pl_region *region;
	struct pl_frame frame;
	struct pl_error error;

	offender_open_as(&offender, argument);
	check_ok(pl_region_allocate_in(offender.victim.context, "cuda", 2 * LENGTH, PL_ACCESS_ALL, &region, &error),
		 &error);
	check_ok(pl_region_share(region, NULL, token, &length, &error), &error);
	send_three_writes(&offender, offender_import(&offender, token, length));
	do
		receive_frame(&offender, &frame, payload);
	while (frame.type == PL_FRAME_ACK);
	check_number(frame.type, PL_FRAME_FAIL);
	check_number(frame.offset, PL_WIRE_UNKNOWN_KEY);
	check_number(frame.cookie, 2);
	while (frame.ack < 3)
		receive_frame(&offender, &frame, payload);
	check_number(pl_region_deregister(region), 0);
	offender_close(&offender);
}

/*
 * The end of an answer overtakes answers that wait, so that the peer sends its next request while they are sent. One
 * answer may be on its way with the end of the first.
 */
static void end_of_answer_first(void *argument)
{
	uint8_t bytes[PL_FRAME_HEADER], *payload = malloc(LARGE);
	struct offender offender;
	struct pl_frame frame;
	struct buffer buffer;
	unsigned answers = 0;

	open_reader(&offender, argument, &buffer, &frame);
	for (frame.cookie = 1; frame.cookie <= 3; frame.cookie++) {
		pl_frame_encode(&frame, bytes);
		check(socket_send(offender.lane, bytes, sizeof(bytes)));
	}
	for (receive_frame(&offender, &frame, payload); frame.type == PL_FRAME_DATA; answers++)
		receive_frame(&offender, &frame, payload);
	check_number(frame.type, PL_FRAME_VALUE);
	check_number(frame.cookie, 1);
	check(answers == 1 || answers == 2);
	buffer_close(&buffer);
	offender_close(&offender);
	free(payload);
}

/* Headers that no frame has: a reserved byte, an unknown type, a length over its type's limit. */
static void malformed_headers(void *argument)
{
	static const struct pl_frame frames[] = {
		{ .type = PL_FRAME_ACK },
		{ .type = PL_FRAME_ACK },
		{ .type = 0 },
		{ .type = PL_FRAME_TYPE_END },
		{ .type = UINT8_MAX },
		{ .type = PL_FRAME_ACK, .length = 1 },
		{ .type = PL_FRAME_READ, .length = PL_FRAME_BULK_MAX + 1, .key = 12345 },
		{ .type = PL_FRAME_WRITE, .length = PL_FRAME_BULK_MAX + 1, .key = 12345 },
		{ .type = PL_FRAME_ATOMIC, .flags = PL_ATOMIC_ADD, .length = 15, .key = 12345 },
		{ .type = PL_FRAME_EAGER, .length = PL_FRAME_SMALL_MAX + 1 },
		{ .type = PL_FRAME_NOTIFY, .length = PL_FRAME_NOTIFY_MAX + 1 },
	};
	struct offender offender;

	(void)argument;
	victim_open(&offender.victim, &offender_setting);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(frames); i++) {
		uint8_t bytes[PL_FRAME_HEADER];

		offender_connect(&offender);
		pl_frame_encode(&frames[i], bytes);
		if (i < 2)
			bytes[2 + i] = 1;
		check(socket_send(offender.lane, bytes, sizeof(bytes)));
		offender_expect_end(&offender);
		offender_leave(&offender);
	}
	victim_close(&offender.victim);
}

int main(void)
{
	static const bool connects = true;
	static const struct test_case cases[] = {
		{ "unknown atomics", unknown_atomics, NULL, 20 },
		{ "unknown atomics, victim connects", unknown_atomics, &connects, 20 },
		{ "most reads", most_reads, NULL, 20 },
		{ "most reads, victim connects", most_reads, &connects, 20 },
		{ "malformed headers", malformed_headers, NULL, 60 },
		{ "frames out of place", frames_out_of_place, NULL, 20 },
		{ "messages on a bulk lane", messages_on_a_bulk_lane, NULL, 20 },
		{ "refusal before acknowledgement", refusal_before_acknowledgement, NULL, 30 },
		{ "end of answer first", end_of_answer_first, NULL, 30 },
		{ "acknowledgement behind a refusal", acknowledgement_behind_refusal, NULL, 30 },
	};

	return cases_run("hostile-frames", cases, PL_ARRAY_SIZE(cases));
}
