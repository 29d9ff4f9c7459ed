/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/frames.h"

#include "support/buffer.h"
#include "support/check.h"

/*
 * The lap rule lets the publisher write memory that a subscriber is reading, and makes the subscriber discard the bytes.
 * ThreadSanitizer must not report these writes of the ring's words and descriptors.  It does not see those of a loan's bytes.
 */
const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
	return "race:ring_store\nrace:pl_ring_describe\n";
}

const struct setting frames_tcp_threads = {
	.name = "thread", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 2
};
const struct setting frames_tcp_key = { .name = "thread-key",
					.fabric = "tcp",
					.host = "127.0.0.1",
					.progress = PL_PROGRESS_THREAD,
					.lanes = 1,
					.key = true,
					.encrypted = true };
const struct setting frames_tcp_manual = {
	.name = "manual", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};
const struct setting frames_local_threads = {
	.name = "thread", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};
const struct setting frames_local_manual = {
	.name = "manual", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

void frame_fill(const struct pl_frame_info *info, uint64_t length)
{
	pattern_fill_shared(info->data, length, info->sequence);
}

struct pl_stream_frame *loan_frame(struct pl_publisher *publisher, struct pl_frame_info *info)
{
	struct pl_stream_frame *frame;
	struct pl_error error;

	*info = (struct pl_frame_info)PL_FRAME_INFO_INIT;
	check_ok(pl_publisher_loan(publisher, AMPLE_TIME, &frame, &error), &error);
	check(pl_frame_query(frame, info) == 0);
	return frame;
}

struct pl_publisher *open_blocking_publisher(struct pl_context *context, const char *name, size_t slot_bytes,
					     unsigned slots)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_publisher *publisher;
	struct pl_error error;

	options.slot_bytes = slot_bytes;
	options.slots = slots;
	options.allow_block = true;
	options.patience = UINT64_MAX;
	check_ok(pl_publisher_open(context, name, &options, &publisher, &error), &error);
	return publisher;
}

void publish_filled(struct pl_publisher *publisher, uint64_t length)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info;
	struct pl_stream_frame *frame = loan_frame(publisher, &info);
	struct pl_error error;

	options.length = length;
	frame_fill(&info, length);
	check_ok(pl_frame_publish(frame, &options, &error), &error);
}

struct pl_accounts exact_accounts(struct pl_subscriber *subscriber)
{
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;
	const struct pl_accounts *accounts = &info.accounts;

	check(pl_subscriber_query(subscriber, &info) == 0);
	check(accounts->delivered + accounts->lapped + accounts->dropped + accounts->rejected + accounts->aborted +
		      accounts->missed + accounts->unwanted + accounts->pending ==
	      accounts->next - accounts->first);
	return info.accounts;
}
