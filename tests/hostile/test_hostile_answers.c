/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers to the requests of a victim, right and wrong.  A wrong answer ends the connection; a right one ends its
 * operation, with its bytes, value or status.
 */
#include <sys/mman.h>

#include "core/remote.h"
#include "support/cases.h"
#include "support/offender.h"
#include "support/socket.h"

#define LENGTH 8192u
#define ANSWERS_MAX 3
/* The victim sends the first WRITE at once, and the others when their bytes are worth a system call. */
#define WRITES 3
#define REQUESTS_MAX 256
#define VALUE 0x1122334455667788u
/* Flag of a DATA frame that ends its answer. */
#define LAST 1u

/* Frame of an answer, whose cookie and acknowledgement are relative to those that the victim expects. */
struct answer {
	uint8_t type, flags;
	uint32_t length, cookie, ack;
	uint64_t offset;
};

struct exchange {
	enum pl_kind kind; /* operation of the victim */
	unsigned count;    /* operations posted; the frames answer the last one */
	bool cancel;       /* the victim cancels before the answer */
	bool trailing;     /* reads ask for a trailing word */
	bool violation;    /* the victim must close the connection */
	int status;        /* of the operation if it must not */
	struct answer answers[ANSWERS_MAX];
};

/* Operations of the victim on memory that the offender pretends to have. */
struct accomplice {
	struct offender *offender;
	struct buffer buffer;
	struct pl_remote *remote;
	uint64_t old;
};

static struct pl_operation *post_operation(struct accomplice *accomplice, enum pl_kind kind)
{
	const struct pl_transfer transfer = { accomplice->remote, 0, accomplice->buffer.region, 0, LENGTH };
	const struct pl_atomic atomic = { .remote = accomplice->remote, .operand = 1, .old = &accomplice->old };
	struct pl_peer *peer = accomplice->offender->peer;
	struct pl_operation *operation;
	struct pl_error error;
	int rc;

	if (kind == PL_KIND_READ)
		rc = pl_read(peer, &transfer, NULL, &operation, &error);
	else if (kind == PL_KIND_WRITE)
		rc = pl_write(peer, &transfer, NULL, &operation, &error);
	else
		rc = pl_fetch_add(peer, &atomic, NULL, &operation, &error);
	check_ok(rc, &error);
	return operation;
}

/* Receives the frame of an operation, with its payload. */
static void receive_request(const struct offender *offender, struct pl_frame *frame)
{
	static uint8_t payload[LENGTH];
	uint8_t header[PL_FRAME_HEADER];

	do {
		check(socket_receive(offender->lane, header, sizeof(header), AMPLE_MS));
		check_number(pl_frame_decode(header, frame), 0);
		check(socket_receive(offender->lane, payload, pl_frame_payload(frame), AMPLE_MS));
	} while (frame->type > PL_FRAME_ATOMIC);
}

static void send_answers(const struct offender *offender, const struct answer *answers, uint32_t cookie, uint32_t ack)
{
	static uint8_t bytes[PL_FRAME_HEADER + LENGTH + 1];
	uint32_t position = 0;

	for (unsigned i = 0; i < ANSWERS_MAX && answers[i].type; i++) {
		struct pl_frame frame = { .type = answers[i].type,
					  .flags = answers[i].flags,
					  .length = answers[i].length,
					  .cookie = cookie ^ answers[i].cookie,
					  .ack = ack + answers[i].ack,
					  .offset = answers[i].offset };

		pl_frame_encode(&frame, bytes);
		pattern_fill(bytes + PL_FRAME_HEADER, frame.length, 1, position);
		position += frame.length;
		/* The victim may close the connection before it takes all bytes. */
		socket_send(offender->lane, bytes, PL_FRAME_HEADER + frame.length);
	}
}

/* Checks that the connection still works, after a number of writes. */
static void check_lane(struct accomplice *accomplice, uint32_t writes)
{
	static const struct answer value[ANSWERS_MAX] = { { .type = PL_FRAME_VALUE, .offset = 5 } };
	struct pl_operation *operation = post_operation(accomplice, PL_KIND_FETCH_ADD);
	struct pl_completion completion;
	struct pl_error error;
	struct pl_frame frame;

	receive_request(accomplice->offender, &frame);
	check_number(frame.type, PL_FRAME_ATOMIC);
	send_answers(accomplice->offender, value, frame.cookie, writes);
	check_ok(pl_wait(operation, AMPLE_TIME, &completion, &error), &error);
	check_number(completion.value, 5);
	check(offender_is_connected(accomplice->offender));
}

/* Checks the operation that the answers ended (NULL: it was cancelled), and the connection. */
static void check_exchange(struct accomplice *accomplice, const struct exchange *exchange, struct pl_operation *operation)
{
	struct pl_completion completion = { 0 };
	struct pl_error error;
	int rc = operation ? pl_wait(operation, AMPLE_TIME, &completion, &error) : -ECANCELED;

	/* It ends with the connection, not with the time. */
	check(rc != -ETIMEDOUT);
	if (exchange->violation) {
		offender_expect_end(accomplice->offender);
		return;
	}
	check_number(rc, operation ? exchange->status : -ECANCELED);
	if (rc == 0 && exchange->kind == PL_KIND_READ)
		pattern_check(accomplice->buffer.bytes, LENGTH, 1, 0);
	check_number(completion.value,
		     rc == 0 && (exchange->kind == PL_KIND_FETCH_ADD || exchange->trailing) ? VALUE : 0);
	check_lane(accomplice, exchange->kind == PL_KIND_WRITE ? exchange->count : 0);
}

static void run_exchange(struct offender *offender, const struct exchange *exchange)
{
	struct accomplice accomplice = { .offender = offender };
	struct pl_operation *operations[WRITES];
	struct pl_frame frame = { 0 };
	struct pl_error error;
	uint32_t cookie;

	offender_connect(offender);
	accomplice.remote = offender_share(offender, LENGTH);
	accomplice.remote->trailing = exchange->trailing;
	buffer_open(&accomplice.buffer, offender->victim.context, LENGTH, PL_ACCESS_LOCAL);
	for (unsigned i = 0; i < exchange->count; i++)
		operations[i] = post_operation(&accomplice, exchange->kind);
	for (unsigned i = 0; i < exchange->count; i++)
		receive_request(offender, &frame);
	check_number(frame.flags, exchange->trailing              ? PL_READ_TRAILING
				  : frame.type == PL_FRAME_ATOMIC ? PL_ATOMIC_ADD
								  : 0);
	/* The number of the last WRITE, or the cookie of the last request. */
	cookie = exchange->kind == PL_KIND_WRITE ? exchange->count : frame.cookie;
	if (exchange->cancel) {
		pl_cancel(operations[0]);
		check_number(pl_wait(operations[0], AMPLE_TIME, NULL, &error), -ECANCELED);
		operations[0] = NULL;
	}
	send_answers(offender, exchange->answers, cookie, exchange->kind == PL_KIND_WRITE ? exchange->count : 0);
	check_exchange(&accomplice, exchange, operations[exchange->count - 1]);
	for (unsigned i = 0; i + 1 < exchange->count; i++)
		check_number(pl_wait(operations[i], AMPLE_TIME, NULL, &error) < 0, exchange->violation);
	pl_remote_release(accomplice.remote);
	offender_leave(offender);
	buffer_close(&accomplice.buffer);
}

static void run_exchanges(const struct exchange *exchanges, size_t count)
{
	struct offender offender;

	victim_open(&offender.victim, &offender_setting);
	for (size_t i = 0; i < count; i++)
		run_exchange(&offender, &exchanges[i]);
	victim_close(&offender.victim);
}

#define DATA(bytes, end) { .type = PL_FRAME_DATA, .length = (bytes), .flags = (end) }
#define WRONG_GENERATION (1u << 16)

static void answers_to_reads(void *argument)
{
	static const struct exchange exchanges[] = {
		{ PL_KIND_READ, 1, .answers = { DATA(LENGTH, LAST) } },
		{ PL_KIND_READ, 1, .answers = { DATA(LENGTH, 0), { .type = PL_FRAME_VALUE, .offset = 77 } } },
		{ PL_KIND_READ, 1, .answers = { DATA(4096, 0), DATA(4096, LAST) } },
		{ PL_KIND_READ, 1, .answers = { DATA(0, 0), DATA(4095, 0), DATA(4097, LAST) } },
		{ PL_KIND_READ, 1, .status = -EACCES,
		  .answers = { { PL_FRAME_FAIL, PL_FRAME_READ, .offset = PL_WIRE_RANGE } } },
		{ PL_KIND_READ, 1, .cancel = true, .answers = { DATA(LENGTH, LAST) } },
		{ PL_KIND_READ, 1, .cancel = true, .answers = { DATA(LENGTH, 0), { .type = PL_FRAME_VALUE } } },
		{ PL_KIND_READ, 1, .trailing = true,
		  .answers = { DATA(LENGTH, 0), { .type = PL_FRAME_VALUE, .offset = VALUE } } },
		{ PL_KIND_READ, 1, .trailing = true, .cancel = true,
		  .answers = { DATA(LENGTH, 0), { .type = PL_FRAME_VALUE, .offset = VALUE } } },
		{ PL_KIND_READ, 1, .trailing = true, .status = -EACCES,
		  .answers = { { PL_FRAME_FAIL, PL_FRAME_READ, .offset = PL_WIRE_RANGE } } },
		/* Without the word. */
		{ PL_KIND_READ, 1, .trailing = true, .violation = true, .answers = { DATA(LENGTH, LAST) } },
		/* Too many bytes, and too few. */
		{ PL_KIND_READ, 1, .violation = true, .answers = { DATA(LENGTH + 1, LAST) } },
		{ PL_KIND_READ, 1, .violation = true, .answers = { DATA(4096, 0), DATA(4097, LAST) } },
		{ PL_KIND_READ, 1, .violation = true, .answers = { DATA(LENGTH - 1, LAST) } },
		{ PL_KIND_READ, 1, .violation = true, .answers = { DATA(0, LAST) } },
		{ PL_KIND_READ, 1, .violation = true, .answers = { DATA(4096, 0), { .type = PL_FRAME_VALUE } } },
		{ PL_KIND_READ, 1, .violation = true, .answers = { { .type = PL_FRAME_VALUE } } },
		/* Answers to a request of another generation, to none, and a second answer. */
		{ PL_KIND_READ, 1, .violation = true,
		  .answers = { { .type = PL_FRAME_DATA,
				 .length = LENGTH,
				 .flags = LAST,
				 .cookie = WRONG_GENERATION } } },
		{ PL_KIND_READ, 1, .violation = true,
		  .answers = { DATA(LENGTH, 0), { .type = PL_FRAME_VALUE, .cookie = WRONG_GENERATION } } },
		{ PL_KIND_READ, 1, .violation = true,
		  .answers = { { PL_FRAME_FAIL, PL_FRAME_READ, .cookie = WRONG_GENERATION,
				 .offset = PL_WIRE_RANGE } } },
		{ PL_KIND_READ, 1, .violation = true, .answers = { { .type = PL_FRAME_VALUE, .cookie = 1 } } },
		{ PL_KIND_READ, 1, .violation = true,
		  .answers = { { .type = PL_FRAME_VALUE, .cookie = REQUESTS_MAX } } },
		{ PL_KIND_READ, 1, .violation = true, .answers = { { .type = PL_FRAME_VALUE, .cookie = 0xffff } } },
		{ PL_KIND_READ, 1, .violation = true, .answers = { DATA(LENGTH, LAST), { .type = PL_FRAME_VALUE } } },
		/* The answer to another kind of request. */
		{ PL_KIND_READ, 1, .violation = true,
		  .answers = { { PL_FRAME_FAIL, PL_FRAME_WRITE, .offset = PL_WIRE_RANGE } } },
	};

	(void)argument;
	run_exchanges(exchanges, PL_ARRAY_SIZE(exchanges));
}

static void answers_to_atomics(void *argument)
{
	static const struct exchange exchanges[] = {
		{ PL_KIND_FETCH_ADD, 1, .answers = { { .type = PL_FRAME_VALUE, .offset = VALUE } } },
		{ PL_KIND_FETCH_ADD, 1, .cancel = true, .answers = { { .type = PL_FRAME_VALUE, .offset = VALUE } } },
		{ PL_KIND_FETCH_ADD, 1, .cancel = true,
		  .answers = { { PL_FRAME_FAIL, PL_FRAME_ATOMIC, .offset = PL_WIRE_RIGHTS } } },
		{ PL_KIND_FETCH_ADD, 1, .status = -EACCES,
		  .answers = { { PL_FRAME_FAIL, PL_FRAME_ATOMIC, .offset = PL_WIRE_RIGHTS } } },
		{ PL_KIND_FETCH_ADD, 1, .violation = true, .answers = { DATA(8, LAST) } },
		{ PL_KIND_FETCH_ADD, 1, .violation = true, .answers = { DATA(0, LAST) } },
		{ PL_KIND_FETCH_ADD, 1, .violation = true,
		  .answers = { { .type = PL_FRAME_VALUE, .cookie = WRONG_GENERATION } } },
	};

	(void)argument;
	run_exchanges(exchanges, PL_ARRAY_SIZE(exchanges));
}

static void answers_to_writes(void *argument)
{
	static const struct exchange exchanges[] = {
		{ PL_KIND_WRITE, 1, .answers = { { .type = PL_FRAME_ACK } } },
		{ PL_KIND_WRITE, WRITES, .answers = { { .type = PL_FRAME_ACK } } },
		/* The refusal of the last one of several, and of one whose operation has ended. */
		{ PL_KIND_WRITE, WRITES, .status = -EACCES,
		  .answers = { { PL_FRAME_FAIL, PL_FRAME_WRITE, .offset = PL_WIRE_RANGE } } },
		{ PL_KIND_WRITE, 1, .cancel = true,
		  .answers = { { PL_FRAME_FAIL, PL_FRAME_WRITE, .offset = PL_WIRE_RANGE } } },
		/* It does not acknowledge its own WRITE; or it refuses none, or one that was acknowledged. */
		{ PL_KIND_WRITE, 1, .violation = true,
		  .answers = { { PL_FRAME_FAIL, PL_FRAME_WRITE, .ack = UINT32_MAX, .offset = PL_WIRE_RANGE } } },
		{ PL_KIND_WRITE, 1, .violation = true,
		  .answers = { { PL_FRAME_FAIL, PL_FRAME_WRITE, .cookie = 3, .ack = 1, .offset = PL_WIRE_RANGE } } },
		{ PL_KIND_WRITE, 1, .violation = true,
		  .answers = { { .type = PL_FRAME_ACK },
			       { PL_FRAME_FAIL, PL_FRAME_WRITE, .offset = PL_WIRE_RANGE } } },
		/* Acknowledgements of frames that were not sent, and one that goes back. */
		{ PL_KIND_WRITE, 1, .violation = true, .answers = { { .type = PL_FRAME_ACK, .ack = 1 } } },
		{ PL_KIND_WRITE, 1, .violation = true, .answers = { { .type = PL_FRAME_ACK, .ack = UINT32_MAX - 1 } } },
		{ PL_KIND_WRITE, 1, .violation = true,
		  .answers = { { .type = PL_FRAME_ACK }, { .type = PL_FRAME_ACK, .ack = UINT32_MAX } } },
		{ PL_KIND_WRITE, 1, .violation = true, .answers = { { .type = PL_FRAME_FAIL, .flags = PL_FRAME_READ } } },
	};

	(void)argument;
	run_exchanges(exchanges, PL_ARRAY_SIZE(exchanges));
}

/* Opens a connection, posts an operation that the offender gets, and cancels it.  Returns the request's cookie. */
static uint32_t cancel_request(struct accomplice *accomplice, enum pl_kind kind, struct pl_operation **other)
{
	struct pl_operation *operation;
	struct pl_frame frame;
	struct pl_error error;

	offender_connect(accomplice->offender);
	accomplice->remote = offender_share(accomplice->offender, LENGTH);
	buffer_open(&accomplice->buffer, accomplice->offender->victim.context, LENGTH, PL_ACCESS_LOCAL);
	operation = post_operation(accomplice, kind);
	receive_request(accomplice->offender, &frame);
	if (other)
		*other = post_operation(accomplice, kind);
	pl_cancel(operation);
	check_number(pl_wait(operation, AMPLE_TIME, NULL, &error), -ECANCELED);
	return frame.cookie;
}

static void accomplice_leave(struct accomplice *accomplice)
{
	pl_remote_release(accomplice->remote);
	offender_leave(accomplice->offender);
	buffer_close(&accomplice->buffer);
}

/* The end of one READ does not end another. */
static void a_cancelled_neighbour(void *argument)
{
	static const struct answer whole[ANSWERS_MAX] = { DATA(LENGTH, LAST) };
	struct offender offender;
	struct accomplice accomplice = { .offender = &offender };
	struct pl_operation *other;
	struct pl_frame frame;
	struct pl_error error;
	uint32_t cookie;

	(void)argument;
	victim_open(&offender.victim, &offender_setting);
	cookie = cancel_request(&accomplice, PL_KIND_READ, &other);
	check_number(pl_try_wait(other, 50 * MS, NULL, &error), -EINPROGRESS);
	send_answers(&offender, whole, cookie, 0);
	receive_request(&offender, &frame);
	check_number(frame.type, PL_FRAME_READ);
	send_answers(&offender, whole, frame.cookie, 0);
	check_ok(pl_wait(other, AMPLE_TIME, NULL, &error), &error);
	pattern_check(accomplice.buffer.bytes, LENGTH, 1, 0);
	accomplice_leave(&accomplice);
	victim_close(&offender.victim);
}

/* A cancelled atomic may still change the memory, so later work waits for its answer.  A cancelled READ changes none. */
static void work_after_a_cancelled_request(void *argument)
{
	static const struct answer value[ANSWERS_MAX] = { { .type = PL_FRAME_VALUE } };
	static const struct answer acknowledged[ANSWERS_MAX] = { { .type = PL_FRAME_ACK } };
	struct offender offender;
	struct accomplice accomplice = { .offender = &offender };

	(void)argument;
	victim_open(&offender.victim, &offender_setting);
	for (unsigned atomic = 0; atomic < 2; atomic++) {
		uint32_t cookie = cancel_request(&accomplice, atomic ? PL_KIND_FETCH_ADD : PL_KIND_READ, NULL);
		struct pl_operation *writes[WRITES];
		struct pl_frame frame;
		struct pl_error error;
		uint8_t byte;

		for (unsigned i = 0; i < WRITES; i++)
			writes[i] = post_operation(&accomplice, PL_KIND_WRITE);
		if (atomic) {
			check(!socket_receive(offender.lane, &byte, 1, 100));
			send_answers(&offender, value, cookie, 0);
		}
		for (unsigned i = 0; i < WRITES; i++) {
			receive_request(&offender, &frame);
			check_number(frame.type, PL_FRAME_WRITE);
			send_answers(&offender, acknowledged, 0, i + 1);
			check_ok(pl_wait(writes[i], AMPLE_TIME, NULL, &error), &error);
		}
		accomplice_leave(&accomplice);
	}
	victim_close(&offender.victim);
}

/*
 * Checks that a READ whose destination cannot be written does not look at its region again: the second frame of the
 * answer comes when the region is freed. AddressSanitizer sees a look at it.
 */
static void frame_after_failed_read(void *argument)
{
	static const struct answer first[ANSWERS_MAX] = { DATA(LENGTH / 2, 0) };
	static const struct answer second[ANSWERS_MAX] = { DATA(LENGTH / 2, LAST) };
	struct offender offender;
	struct accomplice accomplice = { .offender = &offender };
	struct pl_operation *operation;
	struct pl_region *region;
	struct pl_frame frame;
	struct pl_error error;
	void *memory;

	(void)argument;
	victim_open(&offender.victim, &offender_setting);
	offender_connect(&offender);
	accomplice.remote = offender_share(&offender, LENGTH);
	buffer_open(&accomplice.buffer, offender.victim.context, LENGTH, PL_ACCESS_LOCAL);
	memory = mmap(NULL, LENGTH, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(memory != MAP_FAILED);
	check_ok(pl_region_register(offender.victim.context, memory, LENGTH, PL_ACCESS_LOCAL, &region, &error), &error);
	check_ok(pl_read(offender.peer, &(struct pl_transfer){ accomplice.remote, 0, region, 0, LENGTH }, NULL,
			 &operation, &error),
		 &error);
	receive_request(&offender, &frame);
	send_answers(&offender, first, frame.cookie, 0);
	check_status(pl_wait(operation, AMPLE_TIME, NULL, &error), -EFAULT, &error);
	check_number(pl_region_deregister(region), 0);
	check(!munmap(memory, LENGTH));
	send_answers(&offender, second, frame.cookie, 0);
	check_lane(&accomplice, 0);
	accomplice_leave(&accomplice);
	victim_close(&offender.victim);
}

/* Announces a large message whose key has `length` bytes, refuses the victim's READ, and returns the key of that. */
static uint64_t announce_message(struct accomplice *accomplice, uint32_t cookie, uint32_t length)
{
	static const struct answer refusal[ANSWERS_MAX] = { { PL_FRAME_FAIL, PL_FRAME_READ,
							      .offset = PL_WIRE_UNKNOWN_KEY } };
	const struct pl_buffer buffer = { accomplice->buffer.region, 0, LENGTH };
	struct offender *offender = accomplice->offender;
	struct pl_frame frame = { .type = PL_FRAME_RENDEZVOUS, .length = length, .cookie = cookie, .offset = LENGTH };
	uint8_t bytes[PL_FRAME_HEADER + sizeof(uint64_t)];
	struct pl_operation *receive;
	struct pl_error error;

	check_ok(pl_receive(offender->peer, 0, 0, &buffer, NULL, &receive, &error), &error);
	pl_frame_encode(&frame, bytes);
	memset(bytes + PL_FRAME_HEADER, 0xa5, length);
	check(socket_send(offender->lane, bytes, PL_FRAME_HEADER + length));
	receive_request(offender, &frame);
	check_number(frame.type, PL_FRAME_READ);
	send_answers(offender, refusal, frame.cookie, 0);
	check_number(pl_wait(receive, AMPLE_TIME, NULL, &error), -ECANCELED);
	return frame.key;
}

/* The READ of a large message whose key is too short has no bytes of other keys, nor of freed memory. */
static void short_key_of_message(void *argument)
{
	struct offender offender;
	struct accomplice accomplice = { .offender = &offender };

	(void)argument;
	victim_open(&offender.victim, &offender_setting);
	offender_connect(&offender);
	accomplice.remote = offender_share(&offender, LENGTH);
	buffer_open(&accomplice.buffer, offender.victim.context, LENGTH, PL_ACCESS_LOCAL);
	check_number(announce_message(&accomplice, 1, sizeof(uint64_t)), 0xa5a5a5a5a5a5a5a5u);
	check_number(announce_message(&accomplice, 2, 0), 0);
	check_number(announce_message(&accomplice, 3, sizeof(uint64_t) - 1), 0);
	check_number(announce_message(&accomplice, 4, sizeof(uint64_t)), 0xa5a5a5a5a5a5a5a5u);
	check(offender_is_connected(&offender));
	accomplice_leave(&accomplice);
	victim_close(&offender.victim);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "answers to reads", answers_to_reads, NULL, 60 },
		{ "answers to atomics", answers_to_atomics, NULL, 60 },
		{ "answers to writes", answers_to_writes, NULL, 60 },
		{ "a cancelled neighbour", a_cancelled_neighbour, NULL, 60 },
		{ "work after a cancelled request", work_after_a_cancelled_request, NULL, 60 },
		{ "frame after a failed read", frame_after_failed_read, NULL, 60 },
		{ "short key of a message", short_key_of_message, NULL, 60 },
	};

	return cases_run("hostile-answers", cases, PL_ARRAY_SIZE(cases));
}
