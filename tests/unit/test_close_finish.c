/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A FINISH frame has no number, and follows unacknowledged WRITEs: a close waits until the other host has it. The other end reads
 * nothing, so its host acknowledges no more than its receive buffer takes.
 */
#include <sys/socket.h>

#include "control/socket_io.h"
#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/pair.h"

#define WRITE_BYTES (16u << 10)
/* More than the other host takes once its buffer is small: it has offered at most 64 KiB at the beginning. */
#define UNACKNOWLEDGED (160u << 10)
/* More than sockets take. */
#define LAST_BYTES (256u << 20)

static const struct setting setting = {
	.name = "close-finish", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

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
	/* One system call sends FINISH and the beginning of a WRITE. */
	queue_frame(lane, PL_FRAME_FINISH, 0);
	queue_frame(lane, PL_FRAME_WRITE, LAST_BYTES);
	tcp_lane_flush(lane);
	check(lane->blocked);
	check_number(pl_list_first(&lane->queue, struct tcp_piece, link)->length, LAST_BYTES);
	check(!tcp_lane_has_sent_messages(lane));
	pl_engine_unlock(lane->engine);
	pair_close(&pair);
}

static const bool yes = true;
static const struct test_case cases[] = {
	{ "with-message", finish_behind_writes, &yes, 60 },
	{ "alone", finish_behind_writes, NULL, 60 },
};

int main(void)
{
	return cases_run("close-finish", cases, PL_ARRAY_SIZE(cases));
}
