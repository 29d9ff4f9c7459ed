/* SPDX-License-Identifier: BSD-2-Clause */
/* Receives of data messages, and the tags of messages. */
#ifndef PL_BENCH_PERF_RECEIVES_H
#define PL_BENCH_PERF_RECEIVES_H

#include "bench/perf/plan.h"

/*
 * Tags of messages.  A data message has BENCH_MESSAGE_DATA or BENCH_MESSAGE_LAST, and in a ping-pong the low bits of
 * its round above that.  Tags of at most 16 bits go without a header over verbs.
 */
#define BENCH_MESSAGE_CONTROL 1ull
#define BENCH_MESSAGE_DATA 2ull
#define BENCH_MESSAGE_LAST 3ull /* last message of a ping-pong */
#define BENCH_MESSAGE_SHIFT 8
#define BENCH_MESSAGE_ROUND(round) ((round) << BENCH_MESSAGE_SHIFT & 0xff00ull)
#define BENCH_MESSAGE_MASK 0xfeull /* matches both data tags, and not the control tag */

/* Returns how many receives of a peer have a number: with turns, one for each slot. */
uint32_t bench_receive_places(const struct bench_endpoint *ep);
/* All return 0 or a negative errno. */
int bench_receives_post(struct bench_endpoint *ep);
/* Ping-pong: posts the receive of the last message again, after its answer was sent. */
int bench_receives_repost(struct bench_endpoint *ep);
/* Handles the completion of a receive. */
int bench_receives_complete(struct bench_endpoint *ep, uint32_t number, const struct pl_completion *receipt);
/* Completes the receives of ep->peer with messages of 0 bytes. */
int bench_receives_flush(struct bench_endpoint *ep);

#endif
