/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stranger: a client without the library, written from docs/protocol.md with sockets and libibverbs. The stranger
 * imports the grant of raw_server and accesses the memory by plain work requests. Afterwards the stranger posts
 * forbidden accesses, which the server's card must refuse. raw_server then checks its memory.
 *
 * Usage: raw_verbs ADDRESS PORT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "raw_link.h"

enum frame { EAGER = 8, NOTIFY = 11, CREDIT = 12 };

/* Result of an import. */
struct key {
	uint32_t rkey;
	uint64_t address;
};

static struct key import_token(struct stranger *stranger, const uint8_t *token, unsigned rights)
{
	const uint64_t request = 0x7265717565737431;
	uint8_t body[BODY_MAX];
	size_t length;

	if (memcmp(token, "PLT1", 4) || get(token + 48, 8) != PLAN_LENGTH)
		fail("this is no token of the grant");
	put(body, request, 8);
	memcpy(body + 8, token + 24, 24); /* grant id and secret */
	say(stranger, IMPORT, body, 32);
	length = hear(stranger, IMPORTED, body);
	if (length != 26 + 24 || get(body, 8) != request || get(body + 8, 4) != 0 || get(body + 24, 2) != 24)
		fail("import: status %u, %zu bytes", (unsigned)get(body + 8, 4), length);
	if (get(body + 12, 8) != PLAN_LENGTH || get(body + 20, 4) != rights)
		fail("import: another grant than the token's");
	return (struct key){ .rkey = (uint32_t)get(body + 46, 4), .address = get(body + 34, 8) };
}

/* -- frames ---------------------------------------------------------------------------------------- */

/*
 * Waits for the next frame, which must have this type and the next number. Returns the payload's length and leaves the
 * frame in place.
 */
static size_t receive_frame(struct stranger *stranger, enum frame type)
{
	struct ibv_wc done = completion(stranger->receive_cq);
	uint8_t *frame = stranger->frame;

	if (done.status != IBV_WC_SUCCESS || done.opcode != IBV_WC_RECV || done.byte_len < FRAME_HEADER)
		fail("receiving a frame: %s, %u bytes", ibv_wc_status_str(done.status), done.byte_len);
	memcpy(frame, stranger->receives[done.wr_id], done.byte_len);
	post_receive(stranger, done.wr_id);
	if (frame[0] != type || get(frame + 4, 4) != ++stranger->received)
		fail("frame %u of type %u, not %u of type %u", (unsigned)get(frame + 4, 4), frame[0],
		     stranger->received, type);
	if (FRAME_HEADER + (type == EAGER ? get(frame + 8, 4) : 0) != done.byte_len)
		fail("a frame of type %u in %u bytes", type, done.byte_len);
	return done.byte_len - FRAME_HEADER;
}

/* Posts a work request with `length` bytes of scratch memory, or an atomic request. Returns its completion status. */
static enum ibv_wc_status run_work_request(struct stranger *stranger, struct ibv_send_wr request, size_t length)
{
	struct ibv_sge element = { (uintptr_t)stranger->scratch, (uint32_t)length, stranger->mr->lkey };
	struct ibv_send_wr *bad;

	request.sg_list = &element;
	request.num_sge = 1;
	request.send_flags = IBV_SEND_SIGNALED;
	check(!ibv_post_send(stranger->qp, &request, &bad), "ibv_post_send");
	return completion(stranger->send_cq).status;
}

static void expect_wc_status(enum ibv_wc_status status, enum ibv_wc_status wanted, const char *what)
{
	if (status != wanted)
		fail("%s: %s, not %s", what, ibv_wc_status_str(status), ibv_wc_status_str(wanted));
	printf("%s: %s\n", what, ibv_wc_status_str(status));
}

static void send_notification(struct stranger *stranger, uint32_t number, uint64_t value)
{
	struct ibv_send_wr request = { .opcode = IBV_WR_SEND };

	memset(stranger->scratch, 0, FRAME_HEADER);
	stranger->scratch[0] = NOTIFY;
	put(stranger->scratch + 4, number, 4);
	put(stranger->scratch + 24, value, 8);
	expect_wc_status(run_work_request(stranger, request, FRAME_HEADER), IBV_WC_SUCCESS, "a notification");
}

/* -- one-sided ------------------------------------------------------------------------------------- */

static enum ibv_wc_status transfer_bytes(struct stranger *stranger, enum ibv_wr_opcode opcode, const struct key *key,
					 int64_t offset, size_t length)
{
	struct ibv_send_wr request = { .opcode = opcode };

	request.wr.rdma.remote_addr = key->address + (uint64_t)offset;
	request.wr.rdma.rkey = key->rkey;
	return run_work_request(stranger, request, length);
}

static void write_block(struct stranger *stranger, const struct key *key, size_t offset, size_t length)
{
	for (size_t i = 0; i < length; i++)
		stranger->scratch[i] = plan_after(PLAN_GRANT + offset + i);
	expect_wc_status(transfer_bytes(stranger, IBV_WR_RDMA_WRITE, key, (int64_t)offset, length), IBV_WC_SUCCESS,
			 "write");
}

/* Reads the whole grant and compares it.  `done` is true once the blocks were written. */
static void compare_grant(struct stranger *stranger, const struct key *key, int done)
{
	memset(stranger->scratch, 0, sizeof(stranger->scratch));
	expect_wc_status(transfer_bytes(stranger, IBV_WR_RDMA_READ, key, 0, PLAN_LENGTH), IBV_WC_SUCCESS, "read");
	for (size_t i = 0; i < PLAN_LENGTH; i++) {
		int block = i >= PLAN_BLOCK && i < PLAN_BLOCK + PLAN_BLOCK_LENGTH;
		uint8_t wanted =
			done && (block || i >= PLAN_EDGE) ? plan_after(PLAN_GRANT + i) : plan_before(PLAN_GRANT + i);

		if (stranger->scratch[i] != wanted)
			fail("read: byte %zu is %02x, not %02x", i, stranger->scratch[i], wanted);
	}
}

/* Changes the word by an atomic request and checks its old value. */
static void change_word(struct stranger *stranger, const struct key *key, enum ibv_wr_opcode opcode,
			uint64_t compare_add, uint64_t swap, uint64_t old)
{
	struct ibv_send_wr request = { .opcode = opcode };
	uint64_t value;

	request.wr.atomic.remote_addr = key->address + PLAN_WORD;
	request.wr.atomic.rkey = key->rkey;
	request.wr.atomic.compare_add = compare_add;
	request.wr.atomic.swap = swap;
	expect_wc_status(run_work_request(stranger, request, sizeof(value)), IBV_WC_SUCCESS, "atomic");
	memcpy(&value, stranger->scratch, sizeof(value));
	if (value != old)
		fail("the word was %llx, not %llx", (unsigned long long)value, (unsigned long long)old);
}

static void use_grant(struct stranger *stranger, const struct key *key)
{
	uint64_t word, sum;

	compare_grant(stranger, key, 0);
	memcpy(&word, stranger->scratch + PLAN_WORD, sizeof(word));
	sum = word + PLAN_ADDED;
	write_block(stranger, key, PLAN_BLOCK, PLAN_BLOCK_LENGTH);
	write_block(stranger, key, PLAN_EDGE, PLAN_EDGE_LENGTH);
	compare_grant(stranger, key, 1);
	change_word(stranger, key, IBV_WR_ATOMIC_FETCH_AND_ADD, PLAN_ADDED, 0, word);
	change_word(stranger, key, IBV_WR_ATOMIC_CMP_AND_SWP, word, 1, sum); /* compare value does not match */
	change_word(stranger, key, IBV_WR_ATOMIC_CMP_AND_SWP, sum, PLAN_SWAPPED, sum);
}

/* Writes where the server's card must refuse, which ends the queue pair. */
static void write_forbidden(struct stranger *stranger, const struct key *key, int64_t offset, const char *what)
{
	memset(stranger->scratch, 0xee, 8);
	expect_wc_status(transfer_bytes(stranger, IBV_WR_RDMA_WRITE, key, offset, 8), IBV_WC_REM_ACCESS_ERR, what);
	close_link(stranger);
}

/* Sends a CONNECT that the server must ignore. */
static void expect_ignored(struct stranger *stranger, uint16_t generation, const char *what)
{
	ask(stranger, generation, 1, stranger->far_port);
	expect_silence(stranger);
	printf("%s: ignored\n", what);
}

/* Receives the server's first frame: two tokens. */
static void take_tokens(struct stranger *stranger, struct key *all, struct key *read)
{
	uint8_t tokens[2 * PLAN_TOKEN];

	if (receive_frame(stranger, EAGER) != sizeof(tokens) || get(stranger->frame + 16, 8) != PLAN_TAG)
		fail("the first message is not the tokens");
	memcpy(tokens, stranger->frame + FRAME_HEADER, sizeof(tokens));
	*all = import_token(stranger, tokens, 7);
	*read = import_token(stranger, tokens + PLAN_TOKEN, 1);
}

/* Connects peers of their own, with requests that end the peer. */
static void break_rules(const char *address, const char *port)
{
	struct stranger *stranger = greet(address, port);
	uint8_t answer[BODY_MAX];

	make_queue_pair(stranger);
	ask(stranger, 1, 1, stranger->far_port_count);
	expect_end(stranger);
	printf("a port that there is not: the end\n");
	drop_queue_pair(stranger);
	part(stranger);

	stranger = greet(address, port);
	make_queue_pair(stranger);
	stranger->generation = 1;
	ask(stranger, 1, 2, stranger->far_port);
	hear(stranger, RAIL, answer);
	ask(stranger, 2, 1, stranger->far_port);
	expect_end(stranger);
	printf("fewer rails: the end\n");
	drop_queue_pair(stranger);
	part(stranger);
}

/* The first two connections: both ends repeat nothing, and a request or an end of another generation has no effect. */
static void run_first_checks(struct stranger *stranger, struct key *all, struct key *read)
{
	open_link(stranger, 1);
	take_tokens(stranger, all, read);
	use_grant(stranger, all);
	send_notification(stranger, 1, PLAN_FIRST);
	write_forbidden(stranger, all, PLAN_LENGTH - 7, "one byte too far");
	/* A generation may be skipped. */
	open_link(stranger, 30000);
	expect_ignored(stranger, 29999, "an old generation");
	expect_ignored(stranger, 30000, "the same generation");
	expect_ignored(stranger, (uint16_t)(30000 + 32768), "a generation that is too far ahead");
	say_down(stranger, 1);
	say_down(stranger, 30001);
	expect_silence(stranger);
	/* Repeats the notification, as a peer does that cannot know if it arrived. */
	send_notification(stranger, 1, PLAN_FIRST);
	send_notification(stranger, 2, PLAN_SECOND);
	write_forbidden(stranger, all, -1, "one byte too early");
	say_down(stranger, 30000);
	expect_ignored(stranger, 29999, "an old generation, without a connection");
}

static void run_checks(struct stranger *stranger)
{
	struct key all, read;

	run_first_checks(stranger, &all, &read);
	/* The furthest that is allowed. */
	open_link(stranger, 30000 + 32767);
	write_forbidden(stranger, &read, 0, "for reading only");
	/* Generation 0 follows 65535. */
	open_link(stranger, 5000);
	send_notification(stranger, 3, PLAN_REVOKE);
	receive_frame(stranger, NOTIFY);
	write_forbidden(stranger, &all, 0, "revoked");
	/* An attempt that this end gives up. */
	stranger->given_up = 5001;
	make_queue_pair(stranger);
	ask(stranger, 5001, 1, stranger->far_port);
	say_down(stranger, 5001);
	drop_queue_pair(stranger);
	/* A request replaces the one before. */
	make_queue_pair(stranger);
	ask(stranger, 5002, 1, stranger->far_port);
	drop_queue_pair(stranger);
	open_link(stranger, 5003);
	expect_wc_status(transfer_bytes(stranger, IBV_WR_RDMA_READ, &read, 0, PLAN_LENGTH), IBV_WC_SUCCESS,
			 "read with the other key");
	say(stranger, BYE, (const uint8_t *)"", 0);
	close_link(stranger);
}

int main(int argc, char **argv)
{
	struct stranger *stranger;

	if (argc != 3) {
		fprintf(stderr, "usage: raw_verbs ADDRESS PORT\n");
		return 2;
	}
	break_rules(argv[1], argv[2]);
	stranger = greet(argv[1], argv[2]);
	run_checks(stranger);
	part(stranger);
	printf("raw_verbs: all checks passed\n");
	return 0;
}
