/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams of frames over each fabric: whole frames in order, history, exact accounts at both ends. */
#include <peerlane/stream.h>

#include "scenarios/scenario.h"
#include "support/frames.h"

#define SLOT 300000
#define SLOTS 4u
#define FRAMES 12u
/* Frames that a publisher publishes without a pause. */
#define OVERRUN 300u

/* The publisher is at the far end, and a thread drives that end if no thread of the library does. */
struct ends {
	struct pl_publisher *publisher;
	struct pl_subscriber *subscriber;
	struct pump pump;
};

static void ends_open(struct scenario_environment *environment, struct ends *ends)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;

	pump_start(environment, &ends->pump, environment->far);
	options.slot_bytes = SLOT;
	options.slots = SLOTS;
	options.metadata_bytes = 8;
	options.allow_block = true;
	options.patience = UINT64_MAX;
	check_ok(pl_publisher_open(environment->far, "frames", &options, &ends->publisher, &error), &error);
}

static void ends_subscribe(struct scenario_environment *environment, struct ends *ends,
			   const struct pl_subscriber_options *options)
{
	struct pl_error error;

	check_ok(pl_subscriber_open(environment->near_peer, "frames", options, AMPLE_TIME, &ends->subscriber, &error),
		 &error);
}

static void ends_close(struct ends *ends)
{
	pl_subscriber_close(ends->subscriber);
	pump_stop(&ends->pump);
	pl_publisher_close(ends->publisher);
}

static uint64_t frame_length(uint64_t sequence)
{
	return sequence % 3 ? sequence * 91019 % SLOT : sequence * 5;
}

static void publish_frame(struct pl_publisher *publisher)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info;
	struct pl_stream_frame *frame = loan_frame(publisher, &info);
	struct pl_error error;

	options.length = frame_length(info.sequence);
	options.metadata = &info.sequence;
	options.metadata_length = sizeof(info.sequence);
	frame_fill(&info, options.length);
	check_ok(pl_frame_publish(frame, &options, &error), &error);
}

static void take_sequence(struct pl_subscriber *subscriber, uint64_t sequence)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frame;
	struct pl_error error;
	int rc = pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error);

	check_ok(rc < 0 ? rc : 0, &error);
	check(pl_frame_query(frame, &info) == 0 && info.sequence == sequence && info.length == frame_length(sequence));
	pattern_check(info.data, info.length, sequence, 0);
	check(info.metadata_length == sizeof(sequence) && !memcmp(info.metadata, &sequence, sizeof(sequence)));
	pl_frame_release(frame);
}

/* Frames go around once, and both ends agree on the accounts. */
static void pass_frames(struct scenario_environment *environment, bool push)
{
	struct pl_subscription_info there = PL_SUBSCRIPTION_INFO_INIT;
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_subscriber_info here = PL_SUBSCRIBER_INFO_INIT;
	struct pl_stream_frame *frame;
	struct pl_error error;
	struct ends ends;

	options.overflow = PL_OVERFLOW_BLOCK;
	options.push = push;
	ends_open(environment, &ends);
	ends_subscribe(environment, &ends, &options);
	for (uint64_t sequence = 0; sequence < FRAMES; sequence++) {
		publish_frame(ends.publisher);
		take_sequence(ends.subscriber, sequence);
	}
	check_ok(pl_publisher_end(ends.publisher, 0, &error), &error);
	check(pl_subscriber_take(ends.subscriber, &frame, 1, AMPLE_TIME, &error) == -ENODATA);
	check_ok(pl_publisher_end(ends.publisher, AMPLE_TIME, &error), &error);
	check(pl_subscriber_query(ends.subscriber, &here) == 0);
	check(pl_publisher_subscribers(ends.publisher, &there, 1) == 1);
	check(here.accounts.delivered == FRAMES && here.accounts.next == FRAMES);
	check(!memcmp(&here.accounts, &there.accounts, sizeof(here.accounts)));
	ends_close(&ends);
}

static void stream_order(struct scenario_environment *environment)
{
	pass_frames(environment, false);
}

static void stream_push(struct scenario_environment *environment)
{
	pass_frames(environment, true);
}

/* The ring has overwritten the first frames when the subscriber begins. */
static void stream_history(struct scenario_environment *environment)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;
	struct ends ends;

	ends_open(environment, &ends);
	for (unsigned i = 0; i < FRAMES; i++)
		publish_frame(ends.publisher);
	options.start = PL_START_SEQUENCE;
	options.from = 1;
	options.queue = SLOTS;
	ends_subscribe(environment, &ends, &options);
	for (uint64_t sequence = FRAMES - SLOTS; sequence < FRAMES; sequence++)
		take_sequence(ends.subscriber, sequence);
	check(pl_subscriber_query(ends.subscriber, &info) == 0);
	check(info.accounts.first == FRAMES - SLOTS && info.accounts.delivered == SLOTS && !info.accounts.lapped);
	ends_close(&ends);
}

/* Takes all frames that are ready. Returns the sequence after the last one, or `next` if there was none. */
static uint64_t take_ready(struct pl_subscriber *subscriber, uint64_t next)
{
	struct pl_stream_frame *frame;

	while (pl_subscriber_take(subscriber, &frame, 1, 0, NULL) == 1) {
		struct pl_frame_info info = PL_FRAME_INFO_INIT;

		check(pl_frame_query(frame, &info) == 0 && info.sequence >= next && info.length == SLOT);
		pattern_check(info.data, SLOT, info.sequence, 0);
		next = info.sequence + 1;
		pl_frame_release(frame);
	}
	return next;
}

/* The publisher overwrites its ring while frames are being moved. All frames that come are whole, and the last one comes. */
static void overrun(struct scenario_environment *environment, bool push)
{
	struct pl_subscription_info there = PL_SUBSCRIPTION_INFO_INIT;
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	unsigned frames = environment->setting->slow ? OVERRUN / 10 : OVERRUN;
	struct pl_stream_frame *frame;
	struct pl_accounts accounts;
	struct pl_error error;
	struct ends ends;
	uint64_t next = 0;

	options.push = push;
	ends_open(environment, &ends);
	ends_subscribe(environment, &ends, &options);
	for (unsigned i = 0; i < frames; i++) {
		struct pl_frame_options frame_options = PL_FRAME_OPTIONS_INIT;
		struct pl_frame_info info;

		frame = loan_frame(ends.publisher, &info);
		frame_fill(&info, SLOT);
		frame_options.length = SLOT;
		check_ok(pl_frame_publish(frame, &frame_options, &error), &error);
		next = take_ready(ends.subscriber, next);
	}
	check_ok(pl_publisher_end(ends.publisher, 0, &error), &error);
	while (next < frames) {
		next = take_ready(ends.subscriber, next);
		progress(environment);
	}
	check(pl_subscriber_take(ends.subscriber, &frame, 1, AMPLE_TIME, &error) == -ENODATA);
	check_ok(pl_publisher_end(ends.publisher, AMPLE_TIME, &error), &error);
	accounts = exact_accounts(ends.subscriber);
	check(pl_publisher_subscribers(ends.publisher, &there, 1) == 1);
	check(accounts.next == frames && accounts.missed == 0 && accounts.pending == 0);
	check(!memcmp(&accounts, &there.accounts, sizeof(accounts)));
	ends_close(&ends);
}

static void stream_overrun(struct scenario_environment *environment)
{
	overrun(environment, false);
}

static void stream_overrun_push(struct scenario_environment *environment)
{
	overrun(environment, true);
}

const struct scenario stream_scenarios[] = {
	{ "stream-order", stream_order, 0 },
	{ "stream-push", stream_push, 0 },
	{ "stream-history", stream_history, 0 },
	{ "stream-overrun", stream_overrun, 0 },
	{ "stream-overrun-push", stream_overrun_push, 0 },
	{ NULL, NULL, 0 },
};
