/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A close waits until the other host has the last message, and for no byte behind that. A FINISH frame has no number, and follows
 * unacknowledged WRITEs. Answers follow a message. The other end reads nothing, so its host acknowledges no more than its receive
 * buffer takes.
 */
#include <sys/socket.h>

#include "control/socket_io.h"
#include "core/remote.h"
#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/pair.h"

#define WRITE_BYTES (16u << 10)
/* More than the other host takes once its buffer is small: it has offered at most 64 KiB at the beginning. */
#define UNACKNOWLEDGED (160u << 10)
/* More than sockets take. */
#define LAST_BYTES (256u << 20)
#define READS 200u

static const struct setting setting = {
	.name = "close-finish", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};
static const struct setting encrypted = { .name = "close-finish-encrypted",
					  .fabric = "tcp",
					  .host = "127.0.0.1",
					  .progress = PL_PROGRESS_MANUAL,
					  .lanes = 1,
					  .key = true,
					  .encrypted = true };

static struct tcp_lane *first_lane(struct pl_peer *peer)
{
	return tcp_endpoint_of(peer->endpoint)->lanes[0];
}

/* Queues a frame whose payload is zeros. */
static void queue_frame(struct tcp_lane *lane, uint8_t type, uint32_t length)
{
	const struct pl_frame frame = { .type = type, .length = length, .offset = PL_WIRE_OK };
	struct tcp_piece *piece = tcp_piece_new(lane, &frame);

	check(piece);
	piece->length = length;
	tcp_lane_queue_piece(lane, piece);
}

/* Sends WRITEs until many bytes are unacknowledged, all of them given to the socket. The other host has some. */
static void send_writes(struct tcp_lane *lane)
{
	size_t sent = 0, unacknowledged = 0;

	do {
		if (unacknowledged < UNACKNOWLEDGED) {
			queue_frame(lane, PL_FRAME_WRITE, WRITE_BYTES);
			tcp_lane_flush(lane);
			check(pl_list_empty(&lane->queue));
			sent += WRITE_BYTES;
		}
		unacknowledged = pl_socket_unacknowledged(lane->stream.fd);
	} while (unacknowledged < UNACKNOWLEDGED || unacknowledged >= sent);
}

static void finish_behind_writes(void *with_message)
{
	const int small = 1;
	struct tcp_lane *lane;
	struct pl_error error;
	struct pair pair;

	pair_open(&pair, &setting, WRITE_BYTES);
	lane = first_lane(pair.environment.near_peer);
	drive_no_more(&pair.environment, pair.environment.far);
	check_number(setsockopt(first_lane(pair.environment.far_peer)->stream.fd, SOL_SOCKET, SO_RCVBUF, &small,
				sizeof(small)),
		     0);
	if (with_message)
		check_ok(pl_send_copy(pair.environment.near_peer, 0, &small, sizeof(small), NULL, NULL, &error),
			 &error);
	pl_engine_lock(lane->engine);
	send_writes(lane);
	/* A system call sends FINISH and the beginning of a WRITE. */
	queue_frame(lane, PL_FRAME_FINISH, 0);
	queue_frame(lane, PL_FRAME_WRITE, LAST_BYTES);
	tcp_lane_flush(lane);
	check(lane->blocked);
	check_number(pl_list_first(&lane->queue, struct tcp_piece, link)->length, LAST_BYTES);
	check(!tcp_lane_has_sent_messages(lane));
	pl_engine_unlock(lane->engine);
	pair_close(&pair);
}

/* Has the near end request many answers, and read none. */
static void request_answers(struct pair *pair)
{
	struct tcp_lane *lane = first_lane(pair->environment.near_peer);
	struct pl_frame read = { .type = PL_FRAME_READ, .key = pl_remote_key_id(pair->remote), .length = WRITE_BYTES };

	drive_no_more(&pair->environment, pair->environment.near);
	pl_engine_lock(lane->engine);
	for (; read.cookie < READS; read.cookie++) {
		struct tcp_piece *piece = tcp_piece_new(lane, &read);

		check(piece);
		tcp_lane_queue_piece(lane, piece);
	}
	tcp_lane_flush(lane);
	pl_engine_unlock(lane->engine);
}

/* Answers that were sent behind a message stay in the socket, and hold no close. */
static void answers_behind_message(void *with_encryption)
{
	const int small = 1;
	struct tcp_lane *lane;
	struct pl_error error;
	struct pair pair;
	uint64_t limit;
	int fd;

	pair_open(&pair, with_encryption ? &encrypted : &setting, WRITE_BYTES);
	lane = first_lane(pair.environment.far_peer);
	fd = lane->stream.fd;
	check_ok(pl_send_copy(pair.environment.far_peer, 0, &small, sizeof(small), NULL, NULL, &error), &error);
	progress_until(&pair.environment, lane->message_end && pl_socket_unacknowledged(fd) == 0);
	check_number(setsockopt(first_lane(pair.environment.near_peer)->stream.fd, SOL_SOCKET, SO_RCVBUF, &small,
				sizeof(small)),
		     0);
	request_answers(&pair);
	progress_until(&pair.environment, pl_socket_unacknowledged(fd) >= UNACKNOWLEDGED);
	limit = pl_now() + AMPLE_TIME;
	pl_peer_send_last(pair.environment.far_peer, limit);
	/* A wait for the answers would have lasted until its limit. */
	check(pl_now() < limit);
	check_number(atomic_load(&pair.environment.far_peer->state), PL_PEER_UP);
	pair_close(&pair);
}

static const bool yes = true;
static const struct test_case cases[] = {
	{ "with-message", finish_behind_writes, &yes, 60 },
	{ "alone", finish_behind_writes, NULL, 60 },
	{ "answers", answers_behind_message, NULL, 60 },
	{ "answers-encrypted", answers_behind_message, &yes, 60 },
};

int main(void)
{
	return cases_run("close-finish", cases, PL_ARRAY_SIZE(cases));
}
