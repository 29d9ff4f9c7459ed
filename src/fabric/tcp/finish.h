/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * FINISH over the lane that received the last bytes of a large message. Home, which every message passes, has less to do, and READs
 * leave in the same system call.
 */
#ifndef PL_TCP_FINISH_H
#define PL_TCP_FINISH_H

#include "fabric/tcp/tcp.h"

/*
 * State of the FINISH frames that a lane other than 0 has queued. The close of a peer waits until the other end's host has them. Home,
 * which closes the peer, cannot look at the lane: it asks, and the lane's engine looks. Only that engine settles a lane.
 */
enum tcp_finish_state {
	TCP_FINISH_SETTLED, /* no FINISH was queued since the last look, which found that all have arrived */
	TCP_FINISH_OPEN,
	TCP_FINISH_ASKED, /* open, and the lane is to look */
};

/* Ends a pending count of the fetch of a large message, whose request was answered. */
void tcp_lane_end_fetch(struct tcp_lane *lane, struct pl_operation *fetch);
/* Handles FINISH of a lane other than 0. Returns 0 or a negative errno. */
int tcp_finish_arrived(struct tcp_lane *lane, const struct pl_frame *frame);
/* Gives the ends that arrived to the home engine. */
void tcp_lane_hand_finished(struct tcp_lane *lane);
/* Counts the end of a large send. Returns false if none is under way. */
bool tcp_count_finish(struct tcp_endpoint *endpoint);
/*
 * True if the other end's host has FINISH of all messages that bulk lanes received. Asks the lanes that do not know. Called again
 * and again. Home.
 */
bool tcp_has_sent_finish(struct tcp_endpoint *endpoint);
/* Sends and looks, if home has asked. Lane's engine. */
void tcp_lane_answer_finish(struct tcp_lane *lane);
void tcp_init_finished(struct tcp_endpoint *endpoint);
void tcp_free_finished(struct tcp_endpoint *endpoint);

#endif
