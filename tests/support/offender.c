/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/offender.h"

#include "support/socket.h"

const struct setting offender_setting = { "plain", "tcp", "127.0.0.1", PL_PROGRESS_THREAD, 2, false, false, false, false };

static void offender_link(struct offender *offender, bool connects)
{
	attack_open(&offender->link, &offender->victim, connects);
	offender->control = offender->link.control;
	offender->lane = offender->link.lane;
	offender->peer = offender->link.peer;
}

void offender_connect(struct offender *offender)
{
	offender_link(offender, false);
}

void offender_open_as(struct offender *offender, bool connects)
{
	victim_open(&offender->victim, &offender_setting);
	offender_link(offender, connects);
}

void offender_open(struct offender *offender)
{
	offender_open_as(offender, false);
}

void offender_leave(struct offender *offender)
{
	attack_close(&offender->link);
}

void offender_close(struct offender *offender)
{
	offender_leave(offender);
	victim_check(&offender->victim);
	victim_close(&offender->victim);
}

bool offender_is_connected(const struct offender *offender)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	check_number(pl_peer_query(offender->peer, &info), 0);
	return info.connected;
}

void offender_expect_end(const struct offender *offender)
{
	for (uint64_t end = clock_now() + AMPLE_TIME; offender_is_connected(offender); sleep_ms(1))
		check(clock_now() < end);
}

void offender_receive_control(const struct offender *offender, enum pl_control_type type, struct pl_control *message)
{
	uint8_t header[PL_CONTROL_HEADER], body[PL_CONTROL_BODY_MAX];
	uint32_t length;
	uint16_t received;

	do {
		check(socket_receive(offender->control, header, sizeof(header), AMPLE_MS));
		check_number(pl_control_header_decode(header, &received, &length), 0);
		check(socket_receive(offender->control, body, length, AMPLE_MS));
		check_number(pl_control_decode(received, body, length, message), 0);
	} while (message->type != type);
}

uint64_t offender_import(const struct offender *offender, const uint8_t *bytes, size_t length)
{
	struct pl_control message = { .type = PL_CONTROL_IMPORT };
	struct pl_reader reader;
	struct pl_token token;
	struct bytes encoded;

	check_number(pl_token_decode(bytes, length, &token), 0);
	message.import.grant = token.grant;
	memcpy(message.import.secret, token.secret, sizeof(token.secret));
	encoded = attack_encode(&message);
	check(socket_send(offender->control, encoded.data, encoded.length));
	offender_receive_control(offender, PL_CONTROL_IMPORTED, &message);
	check_number(message.imported.status, PL_WIRE_OK);
	pl_reader_init(&reader, message.imported.key, message.imported.key_length);
	return pl_get_u64(&reader);
}

struct pl_remote *offender_share(const struct offender *offender, uint64_t length)
{
	struct pl_token token = { .rights = PL_ACCESS_ALL, .grant = 1, .length = length };
	struct pl_control hello = attack_hello(), message;
	uint8_t bytes[PL_TOKEN_SIZE];
	struct pl_operation *operation;
	struct pl_completion completion;
	struct pl_writer writer;
	struct pl_error error;
	struct bytes encoded;

	memcpy(token.context_id, hello.hello.context_id, sizeof(token.context_id));
	pl_token_encode(&token, bytes);
	check_ok(pl_remote_import_start(offender->peer, bytes, sizeof(bytes), 0, &operation, &error), &error);
	offender_receive_control(offender, PL_CONTROL_IMPORT, &message);
	message = (struct pl_control){
		.type = PL_CONTROL_IMPORTED,
		.imported = { .request = message.import.request,
			      .length = length,
			      .rights = PL_ACCESS_ALL,
			      .key_length = 8 },
	};
	pl_writer_init(&writer, message.imported.key, sizeof(message.imported.key));
	pl_put_u64(&writer, 1);
	encoded = attack_encode(&message);
	check(socket_send(offender->control, encoded.data, encoded.length));
	check_ok(pl_wait(operation, AMPLE_TIME, &completion, &error), &error);
	return completion.remote;
}
