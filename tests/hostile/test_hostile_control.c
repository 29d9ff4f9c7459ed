/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hellos, control messages and counts of messages at their limits: the victim accepts the last allowed value, and
 * refuses the next one.
 */
#include <unistd.h>

#include "support/cases.h"
#include "support/offender.h"
#include "support/socket.h"
#include "support/tls_link.h"

/* Messages that an end keeps before its program consumes one. */
#define WINDOW 1024u

/* -- hellos ------------------------------------------------------------------------------------------- */

/* Sends a hello.  Returns the victim's answer. */
static struct pl_control answer_to_hello(const struct victim *victim, const struct pl_control *hello)
{
	uint8_t header[PL_CONTROL_HEADER], body[PL_CONTROL_BODY_MAX];
	struct bytes bytes = attack_encode(hello);
	struct pl_control answer;
	struct tls_link link;
	uint32_t length;
	uint16_t type;

	check(tls_link_open(&link, socket_connect(victim->address), false));
	check(tls_link_send(&link, bytes.data, bytes.length));
	check(tls_link_receive(&link, header, sizeof(header), AMPLE_MS));
	check_number(pl_control_header_decode(header, &type, &length), 0);
	check(tls_link_receive(&link, body, length, AMPLE_MS));
	check_number(pl_control_decode(type, body, length, &answer), 0);
	tls_link_close(&link);
	return answer;
}

static void expect_accepted(const struct victim *victim, const struct pl_control *hello)
{
	check_number(answer_to_hello(victim, hello).type, PL_CONTROL_HELLO);
}

static void expect_rejected(const struct victim *victim, const struct pl_control *hello, enum pl_wire_status code,
			    const char *id)
{
	struct pl_control answer = answer_to_hello(victim, hello);

	check_number(answer.type, PL_CONTROL_REJECT);
	check_number(answer.reject.code, code);
	check_text(answer.reject.id, id);
}

static void versions(void *argument)
{
	static const struct {
		uint16_t min, max;
		bool fits;
	} ranges[] = {
		{ PL_PROTOCOL_VERSION, PL_PROTOCOL_VERSION, true },
		{ 1, PL_PROTOCOL_VERSION, true },
		{ PL_PROTOCOL_VERSION, UINT16_MAX, true },
		{ 1, PL_PROTOCOL_VERSION - 1, false },
		{ PL_PROTOCOL_VERSION + 1, UINT16_MAX, false },
	};
	struct victim victim;

	(void)argument;
	victim_open(&victim, &offender_setting);
	for (size_t i = 0; i < PL_ARRAY_SIZE(ranges); i++) {
		struct pl_control hello = attack_hello();

		hello.hello.version_min = ranges[i].min;
		hello.hello.version_max = ranges[i].max;
		if (ranges[i].fits)
			expect_accepted(&victim, &hello);
		else
			expect_rejected(&victim, &hello, PL_WIRE_VERSION, "PROTOCOL-VERSION");
	}
	victim_close(&victim);
}

static void limits(void *argument)
{
	struct pl_control hello = attack_hello();
	struct victim victim;

	(void)argument;
	victim_open(&victim, &offender_setting);
	hello.hello.window = hello.hello.lanes = 1;
	expect_accepted(&victim, &hello);
	hello.hello.window = 0;
	expect_rejected(&victim, &hello, PL_WIRE_INTERNAL, "PROTOCOL");
	hello = attack_hello();
	hello.hello.lanes = 0;
	expect_rejected(&victim, &hello, PL_WIRE_INTERNAL, "PROTOCOL");
	hello = attack_hello();
	hello.hello.eager_max = PL_FRAME_SMALL_MAX - 1;
	expect_rejected(&victim, &hello, PL_WIRE_INTERNAL, "PROTOCOL");
	hello.hello.eager_max = UINT32_MAX;
	expect_accepted(&victim, &hello);
	strcpy(hello.hello.fabrics[0].name, "unknown");
	expect_rejected(&victim, &hello, PL_WIRE_NO_FABRIC, "FABRIC-NONE");
	victim_close(&victim);
}

/* -- control messages of a peer that is up ------------------------------------------------------------ */

static void send_control(const struct offender *offender, const struct pl_control *control)
{
	struct bytes bytes = attack_encode(control);

	check(socket_send(offender->control, bytes.data, bytes.length));
}

/* Asks for an unknown grant, whose refusal shows that the victim took all messages before. */
static void expect_served(const struct offender *offender)
{
	struct pl_control message = { .type = PL_CONTROL_IMPORT, .import = { .request = 9, .grant = 12345 } };

	send_control(offender, &message);
	do
		offender_receive_control(offender, PL_CONTROL_IMPORTED, &message);
	while (message.imported.request != 9);
	check_number(message.imported.status, PL_WIRE_UNKNOWN_KEY);
	check(offender_is_connected(offender));
}

static void out_of_order(void *argument)
{
	struct pl_control wrong[3] = { attack_hello(), { .type = PL_CONTROL_REJECT }, { .type = PL_CONTROL_LANES } };
	struct offender offender;

	(void)argument;
	wrong[1].reject.code = PL_WIRE_BUSY;
	wrong[2].lanes = 1;
	victim_open(&offender.victim, &offender_setting);
	for (size_t i = 0; i < PL_ARRAY_SIZE(wrong); i++) {
		offender_connect(&offender);
		expect_served(&offender);
		send_control(&offender, &wrong[i]);
		offender_expect_end(&offender);
		offender_leave(&offender);
	}
	victim_close(&offender.victim);
}

/* An answer to no request brings a key, which the victim gives back.  Refusals and unknown keys change nothing. */
static void answers_to_no_request(void *argument)
{
	struct pl_control message = { .type = PL_CONTROL_IMPORTED,
				      .imported = { .request = 77, .rights = 1, .key_length = 8, .key = { 5 } } };
	struct offender offender;

	(void)argument;
	offender_open(&offender);
	send_control(&offender, &message);
	offender_receive_control(&offender, PL_CONTROL_RELEASE, &message);
	check_number(message.release.key_length, 8);
	check_number(message.release.key[0], 5);
	send_control(&offender, &message);
	message.release.key_length = 7;
	send_control(&offender, &message);
	message.release.key_length = 0;
	send_control(&offender, &message);
	message = (struct pl_control){ .type = PL_CONTROL_IMPORTED,
				       .imported = { .request = 78, .status = PL_WIRE_EXPIRED } };
	send_control(&offender, &message);
	expect_served(&offender);
	offender_close(&offender);
}

/* -- counts of messages ------------------------------------------------------------------------------- */

static void send_message(const struct offender *offender, const struct pl_frame *frame)
{
	uint8_t bytes[PL_FRAME_HEADER + 256] = { 0 };

	uint32_t payload = pl_frame_payload(frame);

	check(payload <= 256);
	pl_frame_encode(frame, bytes);
	check(socket_send(offender->lane, bytes, PL_FRAME_HEADER + payload));
}

/*
 * Asks for an unknown key on the lane, whose refusal shows that the victim took all frames before.  `ack` is the number
 * of its messages.
 */
static void expect_lane_served(const struct offender *offender, uint32_t ack)
{
	struct pl_frame frame = { .type = PL_FRAME_READ, .ack = ack, .key = 12345, .cookie = 7 };
	uint8_t header[PL_FRAME_HEADER];

	send_message(offender, &frame);
	do {
		check(socket_receive(offender->lane, header, sizeof(header), AMPLE_MS));
		check_number(pl_frame_decode(header, &frame), 0);
	} while (frame.type != PL_FRAME_FAIL);
	check_number(frame.cookie, 7);
}

/* The victim keeps a window of messages that its program does not receive. */
static void full_window(void *argument)
{
	static const struct pl_frame kinds[] = {
		{ .type = PL_FRAME_EAGER, .key = 1 },
		{ .type = PL_FRAME_RENDEZVOUS, .key = 1, .offset = 100, .length = PL_KEY_BLOB_MAX },
	};
	struct offender offender;

	(void)argument;
	victim_open(&offender.victim, &offender_setting);
	for (size_t i = 0; i < PL_ARRAY_SIZE(kinds); i++) {
		offender_connect(&offender);
		for (unsigned n = 0; n < WINDOW; n++)
			send_message(&offender, &kinds[i]);
		expect_lane_served(&offender, 0);
		check(offender_is_connected(&offender));
		send_message(&offender, &kinds[i]);
		offender_expect_end(&offender);
		offender_leave(&offender);
	}
	victim_close(&offender.victim);
}

/* Lets the victim send messages, and acknowledges each. */
static void make_victim_send(const struct offender *offender, unsigned count)
{
	struct pl_operation *operation;
	uint8_t header[PL_FRAME_HEADER];
	struct pl_frame frame;
	struct pl_error error;

	for (unsigned i = 1; i <= count; i++) {
		check_ok(pl_notify(offender->peer, i, NULL, 0, NULL, &operation, &error), &error);
		check(socket_receive(offender->lane, header, sizeof(header), AMPLE_MS));
		check_number(pl_frame_decode(header, &frame), 0);
		check_number(frame.type, PL_FRAME_NOTIFY);
		send_message(offender, &(struct pl_frame){ .type = PL_FRAME_ACK, .ack = i });
		check_ok(pl_wait(operation, AMPLE_TIME, NULL, &error), &error);
	}
}

/* Credits neither exceed the messages that were sent nor go back. */
static void credits(void *argument)
{
	static const struct {
		uint64_t first, second;
		bool violation;
	} pairs[] = { { 1, 3, false }, { 3, 3, false }, { 0, 0, false }, { 1, 4, true }, { 4, 4, true }, { 2, 1, true } };
	struct offender offender;

	(void)argument;
	victim_open(&offender.victim, &offender_setting);
	for (size_t i = 0; i < PL_ARRAY_SIZE(pairs); i++) {
		offender_connect(&offender);
		make_victim_send(&offender, 3);
		send_message(&offender, &(struct pl_frame){ .type = PL_FRAME_CREDIT, .ack = 3, .offset = pairs[i].first });
		send_message(&offender, &(struct pl_frame){ .type = PL_FRAME_CREDIT, .ack = 3, .offset = pairs[i].second });
		if (pairs[i].violation) {
			offender_expect_end(&offender);
		} else {
			expect_lane_served(&offender, 3);
			check(offender_is_connected(&offender));
		}
		offender_leave(&offender);
	}
	victim_close(&offender.victim);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "versions", versions, NULL, 60 },
		{ "limits", limits, NULL, 60 },
		{ "out of order", out_of_order, NULL, 60 },
		{ "answers to no request", answers_to_no_request, NULL, 60 },
		{ "full window", full_window, NULL, 60 },
		{ "credits", credits, NULL, 60 },
	};

	return cases_run("hostile-control", cases, PL_ARRAY_SIZE(cases));
}
