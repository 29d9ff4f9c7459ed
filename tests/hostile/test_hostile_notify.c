/* SPDX-License-Identifier: BSD-2-Clause */
/* Notifications behind their data, from and to an end that speaks the protocol itself. */
#include <sys/mman.h>
#include <unistd.h>

#include "support/cases.h"
#include "support/offender.h"
#include "support/socket.h"

#define LENGTH 8192u

struct notifier {
	struct offender offender;
	uint64_t key; /* the victim's buffer */
	int lane;     /* number 1 */
};

static void notifier_open(struct notifier *notifier)
{
	struct victim *victim = &notifier->offender.victim;

	offender_open(&notifier->offender);
	notifier->key = offender_import(&notifier->offender, victim->token, victim->token_length);
	notifier->lane = attack_lane(victim->address, &notifier->offender.link.target, 1);
}

static void notifier_close(struct notifier *notifier)
{
	close(notifier->lane);
	offender_close(&notifier->offender);
}

static void send_frame(int lane, const struct pl_frame *frame, const void *payload)
{
	uint8_t bytes[PL_FRAME_HEADER + 64];

	pl_frame_encode(frame, bytes);
	memcpy(bytes + PL_FRAME_HEADER, payload, frame->length);
	check(socket_send(lane, bytes, PL_FRAME_HEADER + frame->length));
}

static void send_write(int lane, uint64_t key, uint64_t value)
{
	send_frame(lane, &(struct pl_frame){ .type = PL_FRAME_WRITE, .key = key, .length = sizeof(value) }, &value);
}

/* Sends a notification behind a number of writes, which a number of messages precede. */
static void send_notification(int lane, uint64_t value, uint32_t writes, uint32_t messages)
{
	send_frame(lane,
		   &(struct pl_frame){ .type = PL_FRAME_NOTIFY, .offset = value, .cookie = writes, .key = messages },
		   "");
}

/* Waits until the victim has acknowledged a number of frames of the lane. */
static void receive_acknowledgement(int lane, uint32_t count)
{
	uint8_t header[PL_FRAME_HEADER];
	struct pl_frame frame;

	do {
		check(socket_receive(lane, header, sizeof(header), AMPLE_MS));
		check_number(pl_frame_decode(header, &frame), 0);
	} while (frame.ack < count);
	check_number(frame.ack, count);
}

/* Waits for the next notification of the victim, and checks its value. */
static void check_next(const struct notifier *notifier, uint64_t value)
{
	struct pl_completion completion;

	for (uint64_t end = clock_now() + AMPLE_TIME; pl_poll(notifier->offender.victim.context, &completion, 1) != 1;
	     sleep_ms(1))
		check(clock_now() < end);
	check_number(completion.kind, PL_KIND_NOTIFIED);
	check_number(completion.value, value);
}

static void behind_data(void *argument)
{
	struct notifier notifier;

	(void)argument;
	notifier_open(&notifier);
	for (uint64_t i = 1; i < 40; i++) {
		int lane = i % 2 ? notifier.lane : notifier.offender.lane;

		send_write(lane, notifier.key, i);
		send_write(lane, notifier.key, ~i);
		send_notification(lane, i, 2, 0);
		check_next(&notifier, i);
		check(bytes_equal(notifier.offender.victim.buffer.bytes, &(uint64_t){ ~i }, sizeof(i)));
	}
	notifier_close(&notifier);
}

/* A refused write has no notification; neither has one that the sender made void. Those of other writes arrive. */
static void not_delivered(void *argument)
{
	static const struct pl_frame void_one = { .type = PL_FRAME_NOTIFY, .flags = PL_NOTIFY_VOID, .offset = 99 };
	struct notifier notifier;

	(void)argument;
	notifier_open(&notifier);
	for (unsigned i = 0; i < 2; i++) {
		int lane = i ? notifier.lane : notifier.offender.lane;

		send_write(lane, 12345, 1);
		send_notification(lane, 99, 1, 0);
		send_write(lane, 12345, 1);
		send_write(lane, notifier.key, 2);
		send_notification(lane, 99, 2, 0);
		send_frame(lane, &void_one, "");
		send_write(lane, notifier.key, 3);
		send_notification(lane, 5, 1, 0);
		check_next(&notifier, 5);
	}
	/* They count as consumed, so they do not close the window. */
	for (unsigned i = 0; i < 3000; i++)
		send_frame(i % 2 ? notifier.lane : notifier.offender.lane, &void_one, "");
	send_notification(notifier.offender.lane, 6, 0, 0);
	check_next(&notifier, 6);
	receive_acknowledgement(notifier.lane, 1508);
	check(offender_is_connected(&notifier.offender));
	notifier_close(&notifier);
}

/* A notification waits for the messages that were sent before it over lane 0. */
static void after_messages(void *argument)
{
	struct notifier notifier;

	(void)argument;
	notifier_open(&notifier);
	send_write(notifier.lane, notifier.key, 1);
	send_notification(notifier.lane, 3, 1, 2);
	send_write(notifier.lane, notifier.key, 1);
	send_notification(notifier.lane, 1, 1, 0);
	/* The victim has listed both. */
	receive_acknowledgement(notifier.lane, 4);
	check_next(&notifier, 1);
	send_notification(notifier.offender.lane, 2, 0, 0);
	check_next(&notifier, 2);
	send_notification(notifier.offender.lane, 22, 0, 0);
	check_next(&notifier, 22);
	check_next(&notifier, 3);
	notifier_close(&notifier);
}

/* Whatever is sent after the acknowledgement of a notification arrives after it. */
static void after_acknowledgement(void *argument)
{
	struct notifier notifier;

	(void)argument;
	notifier_open(&notifier);
	for (uint32_t i = 0; i < 500; i++) {
		send_write(notifier.lane, notifier.key, 1);
		send_notification(notifier.lane, 1, 1, 0);
		receive_acknowledgement(notifier.lane, 2 * i + 2);
		send_notification(notifier.offender.lane, 2, 0, 0);
		check_next(&notifier, 1);
		check_next(&notifier, 2);
	}
	notifier_close(&notifier);
}

static void violations(void *argument)
{
	static const struct pl_frame frames[] = {
		{ .type = PL_FRAME_NOTIFY },                          /* without data on a lane of data */
		{ .type = PL_FRAME_NOTIFY, .cookie = 2 },             /* behind more data than there was */
		{ .type = PL_FRAME_NOTIFY, .cookie = UINT32_MAX },    /* the same */
		{ .type = PL_FRAME_NOTIFY, .flags = 2, .cookie = 1 }, /* unknown flag */
		{ .type = PL_FRAME_SKIP },                            /* of another fabric */
	};
	struct notifier notifier;

	(void)argument;
	for (unsigned i = 0; i < PL_ARRAY_SIZE(frames); i++) {
		notifier_open(&notifier);
		send_write(notifier.lane, notifier.key, 1);
		send_frame(notifier.lane, &frames[i], "");
		offender_expect_end(&notifier.offender);
		notifier_close(&notifier);
	}
}

/* Notifications that wait for a message are held up to the window of the hello. */
static void more_than_the_window(void *argument)
{
	struct notifier notifier;

	(void)argument;
	notifier_open(&notifier);
	send_write(notifier.lane, notifier.key, 1);
	for (unsigned i = 0; i < 1024; i++)
		send_notification(notifier.lane, i, 1, 1);
	receive_acknowledgement(notifier.lane, 1025);
	check(offender_is_connected(&notifier.offender));
	send_notification(notifier.lane, 0, 1, 1);
	offender_expect_end(&notifier.offender);
	notifier_close(&notifier);
}

/* -- the victim sends ------------------------------------------------------------------------------ */

static void receive_frame(const struct offender *offender, struct pl_frame *frame)
{
	uint8_t header[PL_FRAME_HEADER], payload[LENGTH];

	do {
		check(socket_receive(offender->lane, header, sizeof(header), AMPLE_MS));
		check_number(pl_frame_decode(header, frame), 0);
		check(socket_receive(offender->lane, payload, pl_frame_payload(frame), AMPLE_MS));
	} while (frame->type == PL_FRAME_ACK);
}

static void expect_frame(const struct offender *offender, uint8_t type, uint8_t flags, uint32_t cookie, uint64_t offset)
{
	struct pl_frame frame;

	receive_frame(offender, &frame);
	check_number(frame.type, type);
	check_number(frame.flags, flags);
	check_number(frame.cookie, cookie);
	check_number(frame.offset, offset);
}

static struct pl_operation *post_write(const struct offender *offender, struct pl_remote *remote,
				       const struct buffer *buffer, size_t length, uint64_t notify)
{
	const struct pl_transfer transfer = { remote, 0, buffer->region, 0, length };
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_error error;

	attributes.flags = notify ? PL_NOTIFY : 0;
	attributes.notify = notify;
	check_ok(pl_write(offender->peer, &transfer, &attributes, &operation, &error), &error);
	return operation;
}

/*
 * The notification comes behind its data, before any acknowledgement. The victim holds back what follows the first
 * write, so what is cancelled there was not sent: the notification is void, and the data is omitted.
 */
static void sent_and_cancelled(void *argument)
{
	struct pl_operation *operations[3];
	struct pl_completion completion;
	struct offender offender;
	struct pl_remote *remote;
	struct buffer buffer;
	struct pl_error error;

	(void)argument;
	offender_open(&offender);
	remote = offender_share(&offender, LENGTH);
	buffer_open(&buffer, offender.victim.context, LENGTH, PL_ACCESS_LOCAL);
	operations[0] = post_write(&offender, remote, &buffer, LENGTH, 71);
	expect_frame(&offender, PL_FRAME_WRITE, 0, 0, 0);
	expect_frame(&offender, PL_FRAME_NOTIFY, 0, 1, 71);
	operations[1] = post_write(&offender, remote, &buffer, 8, 72);
	pl_cancel(operations[1]);
	check_status(pl_wait(operations[1], AMPLE_TIME, &completion, &error), -ECANCELED, &error);
	operations[2] = post_write(&offender, remote, &buffer, 16, 73);
	/* Acknowledges the first write and its notification, which sends the rest. */
	send_frame(offender.lane, &(struct pl_frame){ .type = PL_FRAME_ACK, .ack = 2 }, "");
	check_ok(pl_wait(operations[0], AMPLE_TIME, &completion, &error), &error);
	expect_frame(&offender, PL_FRAME_NOTIFY, PL_NOTIFY_VOID, 0, 0);
	expect_frame(&offender, PL_FRAME_WRITE, 0, 0, 0);
	expect_frame(&offender, PL_FRAME_NOTIFY, 0, 1, 73);
	send_frame(offender.lane, &(struct pl_frame){ .type = PL_FRAME_ACK, .ack = 5 }, "");
	check_ok(pl_wait(operations[2], AMPLE_TIME, &completion, &error), &error);
	pl_remote_release(remote);
	buffer_close(&buffer);
	offender_close(&offender);
}

/*
 * Writes are cancelled while the socket is full, and their memory gets other bytes. A notification that still comes must
 * have the right bytes before it.
 */
static void cancelled_in_the_middle(void *argument)
{
	enum { WRITES = 60, SIZE = 128 << 10, LAST = 9999 };
	static uint8_t payload[SIZE];
	struct pl_operation *operations[WRITES];
	struct offender offender;
	struct pl_remote *remote;
	struct buffer buffer;
	struct pl_frame frame;
	struct pl_error error;
	bool right = false;

	(void)argument;
	offender_open(&offender);
	remote = offender_share(&offender, SIZE);
	buffer_open(&buffer, offender.victim.context, SIZE, PL_ACCESS_LOCAL);
	pattern_fill(buffer.bytes, SIZE, 1, 0);
	for (unsigned i = 0; i < WRITES; i++)
		operations[i] = post_write(&offender, remote, &buffer, SIZE, 71);
	/* More than both sockets take. */
	sleep_ms(50);
	for (unsigned i = 0; i < WRITES; i++) {
		pl_cancel(operations[i]);
		check_status(pl_wait(operations[i], AMPLE_TIME, NULL, &error), -ECANCELED, &error);
	}
	bytes_set(buffer.bytes, POISON, SIZE);
	check_ok(pl_notify(offender.peer, LAST, NULL, 0, NULL, NULL, &error), &error);
	do {
		uint8_t header[PL_FRAME_HEADER];

		check(socket_receive(offender.lane, header, sizeof(header), AMPLE_MS));
		check_number(pl_frame_decode(header, &frame), 0);
		check(socket_receive(offender.lane, payload, pl_frame_payload(&frame), AMPLE_MS));
		if (frame.type == PL_FRAME_WRITE)
			right = pattern_matches(payload, SIZE, 1, 0);
		else if (frame.type == PL_FRAME_NOTIFY && !frame.flags && frame.offset != LAST)
			check(right);
	} while (frame.offset != LAST);
	pl_remote_release(remote);
	buffer_close(&buffer);
	offender_close(&offender);
}

/* Memory that is gone fails its write. The notification becomes void, and the connection lives. */
static void unreadable(void *argument)
{
	void *memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pl_completion completion;
	struct pl_operation *operation;
	struct offender offender;
	struct pl_remote *remote;
	struct buffer buffer = { 0 };
	struct pl_error error;

	(void)argument;
	check(memory != MAP_FAILED);
	offender_open(&offender);
	remote = offender_share(&offender, LENGTH);
	check_ok(pl_region_register(offender.victim.context, memory, LENGTH, PL_ACCESS_LOCAL, &buffer.region, &error),
		 &error);
	munmap(memory, LENGTH);
	operation = post_write(&offender, remote, &buffer, LENGTH, 71);
	expect_frame(&offender, PL_FRAME_WRITE, 0, 0, 0);
	expect_frame(&offender, PL_FRAME_NOTIFY, PL_NOTIFY_VOID, 0, 0);
	send_frame(offender.lane, &(struct pl_frame){ .type = PL_FRAME_ACK, .ack = 2 }, "");
	check_status(pl_wait(operation, AMPLE_TIME, &completion, &error), -EFAULT, &error);
	check_ok(pl_notify(offender.peer, 72, NULL, 0, NULL, NULL, &error), &error);
	expect_frame(&offender, PL_FRAME_NOTIFY, 0, 0, 72);
	pl_remote_release(remote);
	check_number(pl_region_deregister(buffer.region), 0);
	offender_close(&offender);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "behind data", behind_data, NULL, 20 },
		{ "not delivered", not_delivered, NULL, 20 },
		{ "after messages", after_messages, NULL, 20 },
		{ "after an acknowledgement", after_acknowledgement, NULL, 60 },
		{ "violations", violations, NULL, 60 },
		{ "more than the window", more_than_the_window, NULL, 20 },
		{ "sent and cancelled", sent_and_cancelled, NULL, 20 },
		{ "unreadable", unreadable, NULL, 20 },
		{ "cancelled in the middle", cancelled_in_the_middle, NULL, 20 },
	};

	return cases_run("hostile-notify", cases, PL_ARRAY_SIZE(cases));
}
