/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/attack.h"

#include "support/check.h"
#include "support/socket.h"

struct bytes attack_encode(const struct pl_control *control)
{
	struct bytes bytes;
	int length = pl_control_encode(control, bytes.data, MESSAGE_MAX);

	check(length > 0);
	bytes.length = (size_t)length;
	return bytes;
}

struct pl_control attack_hello(void)
{
	struct pl_control control = { .type = PL_CONTROL_HELLO };

	control.hello.version_min = control.hello.version_max = PL_PROTOCOL_VERSION;
	memset(control.hello.context_id, 7, sizeof(control.hello.context_id));
	control.hello.lanes = 2;
	control.hello.eager_max = 8192;
	control.hello.window = 64;
	strcpy(control.hello.software, "peerlane 0.1.0");
	control.hello.fabric_count = 1;
	strcpy(control.hello.fabrics[0].name, "tcp");
	return control;
}

int attack_greet(const char *address, struct pl_control *answer)
{
	struct pl_control hello = attack_hello(), unused;
	struct bytes bytes = attack_encode(&hello);
	uint8_t header[PL_CONTROL_HEADER], body[PL_CONTROL_BODY_MAX];
	int fd = socket_connect(address);
	uint16_t type;
	uint32_t length;

	if (!answer)
		answer = &unused;
	check(fd >= 0);
	check(socket_send(fd, bytes.data, bytes.length));
	check(socket_receive(fd, header, sizeof(header), 2000));
	check_number(pl_control_header_decode(header, &type, &length), 0);
	check(socket_receive(fd, body, length, 2000));
	check_number(pl_control_decode(type, body, length, answer), 0);
	check_number(answer->type, PL_CONTROL_HELLO);
	return fd;
}

int attack_lane(const char *address, int *control)
{
	uint8_t bytes[PL_LANE_HELLO], welcome[PL_LANE_WELCOME];
	struct pl_lane_hello hello = { .version = PL_PROTOCOL_VERSION };
	struct pl_control answer;
	struct pl_reader reader;
	uint32_t status;
	int fd;

	*control = attack_greet(address, &answer);
	/* Blob of the tcp fabric: u64 peer index, secret. */
	check_text(answer.hello.fabrics[0].name, "tcp");
	pl_reader_init(&reader, answer.hello.fabrics[0].blob, answer.hello.fabrics[0].blob_length);
	hello.peer_index = pl_get_u64(&reader);
	pl_get_bytes(&reader, hello.secret, sizeof(hello.secret));
	check(!reader.bad);
	pl_lane_hello_encode(&hello, bytes);
	fd = socket_connect(address);
	check(fd >= 0);
	check(socket_send(fd, bytes, sizeof(bytes)));
	check(socket_receive(fd, welcome, sizeof(welcome), 2000));
	check_number(pl_lane_welcome_decode(welcome, &status), 0);
	check_number(status, PL_WIRE_OK);
	return fd;
}
