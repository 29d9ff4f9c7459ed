/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames of streams, for tests. */
#ifndef TEST_FRAMES_H
#define TEST_FRAMES_H

#include <peerlane/stream.h>

#include "support/environment.h"

/* Settings of tests of streams. tcp has two lanes with threads, and one with a key or with manual progress. */
extern const struct setting frames_tcp_threads, frames_tcp_key, frames_tcp_manual;
extern const struct setting frames_local_threads, frames_local_manual;

/* Returns a loan, and its description. */
struct pl_stream_frame *loan_frame(struct pl_publisher *publisher, struct pl_frame_info *info);
/* Fills a loan with the pattern of its sequence. */
void frame_fill(const struct pl_frame_info *info, uint64_t length);
/* Opens a stream whose subscribers may hold slots back without limit of time. */
struct pl_publisher *open_blocking_publisher(struct pl_context *context, const char *name, size_t slot_bytes,
					     unsigned slots);
/* Publishes a frame with the pattern of its sequence. */
void publish_filled(struct pl_publisher *publisher, uint64_t length);
/* Returns the accounts of a subscriber, which add up. */
struct pl_accounts exact_accounts(struct pl_subscriber *subscriber);

#endif
