/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Exchange of control messages with ep->peer.  All functions return 0, or a negative errno with the error in ep->error.
 */
#ifndef PL_BENCH_PERF_CONTROL_H
#define PL_BENCH_PERF_CONTROL_H

#include "bench/perf/endpoint.h"

/* Posts the receive of a control message.  `number` is BENCH_POSTED_CONTROLS for each peer. */
int bench_control_post(struct bench_endpoint *ep, uint32_t number);
struct bench_peer *bench_control_peer(const struct bench_endpoint *ep, uint32_t number);
/* Handles a control message that has arrived. */
int bench_control_complete(struct bench_endpoint *ep, uint32_t number, uint64_t length);

int bench_control_send(struct bench_endpoint *ep, const struct bench_message *message);
int bench_control_send_type(struct bench_endpoint *ep, enum bench_message_type type);
/* Waits until *flag, a member of *ep that control messages set; for `timeout` nanoseconds (0: for ever). */
int bench_wait_flag(struct bench_endpoint *ep, const bool *flag, uint64_t timeout);
/* Waits for the next message, in ep->peer->inbox; for `timeout` nanoseconds (0: for ever). */
int bench_control_receive(struct bench_endpoint *ep, uint64_t timeout);
/* Waits for the next message, which must be of this type. */
int bench_control_expect(struct bench_endpoint *ep, enum bench_message_type type, uint64_t timeout);
/* Sends ep->error to all peers that are still connected. */
void bench_control_send_failure(struct bench_endpoint *ep);
/* Waits at most 2 s for the peer to close the connection, so that it reads the last message. */
void bench_wait_peer_close(struct bench_endpoint *ep);

#endif
