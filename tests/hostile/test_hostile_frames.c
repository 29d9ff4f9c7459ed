/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames that violate the protocol: the victim closes the connection at the first of them, and not before. */
#include <unistd.h>

#include "support/attack.h"
#include "support/cases.h"
#include "support/socket.h"
#include "support/victim.h"

#define REQUESTS_MAX 256
/* More than the buffers of both sockets take, so that the first answer does not end. */
#define LARGE PL_FRAME_BULK_MAX

static const struct setting plain = { "plain", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, false, false, false, false };

/* Peer without a library: one control channel and one lane. */
struct offender {
	struct victim victim;
	int control, lane;
	struct pl_peer *peer; /* at the victim */
};

static void offender_open(struct offender *offender)
{
	struct pl_error error;

	victim_open(&offender->victim, &plain);
	offender->lane = attack_first_lane(offender->victim.address, &offender->control);
	check_ok(pl_accept(offender->victim.listener, 5 * SECOND, &offender->peer, &error), &error);
}

static void offender_close(struct offender *offender)
{
	close(offender->lane);
	close(offender->control);
	pl_peer_close(offender->peer);
	victim_check(&offender->victim);
	victim_close(&offender->victim);
}

static bool is_connected(const struct offender *offender)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	check_number(pl_peer_query(offender->peer, &info), 0);
	return info.connected;
}

static void expect_disconnected(const struct offender *offender)
{
	for (uint64_t end = clock_now() + 5 * SECOND; is_connected(offender); sleep_ms(1))
		check(clock_now() < end);
}

/* An atomic that is neither an addition nor a comparison with exchange is no refusal, but a violation. */
static void unknown_atomics(void *argument)
{
	static const uint8_t kinds[] = { 0, PL_ATOMIC_SWAP + 1, UINT8_MAX };

	(void)argument;
	for (size_t i = 0; i < PL_ARRAY_SIZE(kinds); i++) {
		struct pl_frame frame = { .type = PL_FRAME_ATOMIC, .flags = kinds[i], .length = 16, .key = 1 };
		uint8_t bytes[PL_FRAME_HEADER + 16] = { 0 };
		struct offender offender;

		offender_open(&offender);
		pl_frame_encode(&frame, bytes);
		check(socket_send(offender.lane, bytes, sizeof(bytes)));
		expect_disconnected(&offender);
		offender_close(&offender);
	}
}

/* Imports a token over the control channel.  Returns the key. */
static uint64_t offender_import(const struct offender *offender, const uint8_t *bytes, size_t length)
{
	uint8_t header[PL_CONTROL_HEADER], body[PL_CONTROL_BODY_MAX];
	struct pl_control message = { .type = PL_CONTROL_IMPORT };
	struct pl_reader reader;
	struct pl_token token;
	struct bytes encoded;
	uint32_t received;
	uint16_t type;

	check_number(pl_token_decode(bytes, length, &token), 0);
	message.import.grant = token.grant;
	memcpy(message.import.secret, token.secret, sizeof(token.secret));
	encoded = attack_encode(&message);
	check(socket_send(offender->control, encoded.data, encoded.length));
	do {
		check(socket_receive(offender->control, header, sizeof(header), 5000));
		check_number(pl_control_header_decode(header, &type, &received), 0);
		check(socket_receive(offender->control, body, received, 5000));
		check_number(pl_control_decode(type, body, received, &message), 0);
	} while (message.type != PL_CONTROL_IMPORTED);
	check_number(message.imported.status, PL_WIRE_OK);
	pl_reader_init(&reader, message.imported.key, message.imported.key_length);
	return pl_get_u64(&reader);
}

/* A lane has at most 256 READs whose answers have not ended.  Nobody reads the answers here. */
static void most_reads(void *argument)
{
	struct pl_frame frame = { .type = PL_FRAME_READ, .length = LARGE };
	uint8_t token[PL_TOKEN_MAX], bytes[PL_FRAME_HEADER];
	struct pl_error error;
	struct offender offender;
	struct buffer buffer;
	size_t length = PL_TOKEN_MAX;

	(void)argument;
	offender_open(&offender);
	buffer_open(&buffer, offender.victim.context, LARGE, PL_ACCESS_ALL);
	check_ok(pl_region_share(buffer.region, NULL, token, &length, &error), &error);
	frame.key = offender_import(&offender, token, length);
	pl_frame_encode(&frame, bytes);
	for (unsigned i = 0; i < REQUESTS_MAX; i++)
		check(socket_send(offender.lane, bytes, sizeof(bytes)));
	sleep_ms(300);
	check(is_connected(&offender));
	check(socket_send(offender.lane, bytes, sizeof(bytes)));
	expect_disconnected(&offender);
	buffer_close(&buffer);
	offender_close(&offender);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "unknown atomics", unknown_atomics, NULL, 20 },
		{ "most reads", most_reads, NULL, 20 },
	};

	return cases_run("hostile-frames", cases, PL_ARRAY_SIZE(cases));
}
