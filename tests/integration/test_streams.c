/* SPDX-License-Identifier: BSD-2-Clause */
/* Streams between two contexts of one process: each function, with known order and exact accounts. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include <peerlane/stream.h>

#include "stream/publisher.h"
#include "stream/subscriber.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"

#define SLOT 10000
#define SLOTS 8u

/* The publisher writes all frames into slots of the subscriber. */
static const struct setting tcp_push = {
	.name = "push", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 2
};
static const struct setting local_push = {
	.name = "push", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};
static const struct setting tcp_push_manual = {
	.name = "push", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};
static const struct setting local_push_manual = {
	.name = "push", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

/* A publisher in `far`, and a subscriber in `near`. With manual progress a thread drives `far`. */
struct rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct pl_subscriber *subscriber;
	struct pump pump;
	pthread_t thread; /* of the test */
};

static void rig_open(struct rig *rig, const struct setting *setting, const struct pl_publisher_options *given)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;

	memset(rig, 0, sizeof(*rig));
	environment_open(&rig->environment, setting);
	pump_start(&rig->environment, &rig->pump, rig->environment.far);
	if (given)
		options = *given;
	options.slot_bytes = SLOT;
	options.slots = SLOTS;
	check_ok(pl_publisher_open(rig->environment.far, "cam0", &options, &rig->publisher, &error), &error);
}

static int rig_try_subscribe(const struct rig *rig, struct pl_peer *peer, const char *name,
			     const struct pl_subscriber_options *given, struct pl_subscriber **subscriber,
			     struct pl_error *error)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;

	if (given)
		options = *given;
	options.push = !strcmp(rig->environment.setting->name, "push");
	return pl_subscriber_open(peer, name, &options, AMPLE_TIME, subscriber, error);
}

static void rig_subscribe(struct rig *rig, const struct pl_subscriber_options *options)
{
	struct pl_error error;

	check_ok(rig_try_subscribe(rig, rig->environment.near_peer, "cam0", options, &rig->subscriber, &error), &error);
}

/* Opens a rig with a subscriber that holds slots back. */
static void rig_open_blocking(struct rig *rig, const struct setting *setting, uint64_t patience, unsigned queue)
{
	struct pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;

	publisher.allow_block = true;
	publisher.patience = patience;
	rig_open(rig, setting, &publisher);
	options.overflow = PL_OVERFLOW_BLOCK;
	options.queue = queue;
	rig_subscribe(rig, &options);
}

static void rig_close(struct rig *rig)
{
	pl_subscriber_close(rig->subscriber);
	pump_stop(&rig->pump);
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
}

/* Each frame has the length and the bytes that its sequence gives. */
static uint64_t length_of(uint64_t sequence)
{
	return sequence * 2467 % (SLOT + 1);
}

static void publish_one(struct pl_publisher *publisher)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info;
	struct pl_stream_frame *frame = loan_frame(publisher, &info);
	struct pl_error error;

	check((uintptr_t)info.data % 4096 == 0 && info.length == SLOT);
	options.length = length_of(info.sequence);
	options.captured = 1000 + info.sequence;
	frame_fill(&info, options.length);
	check_ok(pl_frame_publish(frame, &options, &error), &error);
}

static void publish_many(struct pl_publisher *publisher, unsigned count)
{
	while (count--)
		publish_one(publisher);
}

static struct pl_frame_info take_frame(struct pl_subscriber *subscriber, struct pl_stream_frame **frame)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_error error;
	int rc = pl_subscriber_take(subscriber, frame, 1, AMPLE_TIME, &error);

	check_ok(rc < 0 ? rc : 0, &error);
	check(rc == 1 && pl_frame_query(*frame, &info) == 0);
	return info;
}

/* Takes one frame, which must have this sequence and its bytes. Returns `lost_before`. */
static uint64_t take_one(struct pl_subscriber *subscriber, uint64_t sequence)
{
	struct pl_stream_frame *frame;
	struct pl_frame_info info = take_frame(subscriber, &frame);

	check(info.sequence == sequence && info.length == length_of(sequence) && info.captured == 1000 + sequence);
	check(info.published > 0 && info.taken >= info.published);
	pattern_check(info.data, info.length, sequence, 0);
	pl_frame_release(frame);
	return info.lost_before;
}

static int take_status(struct pl_subscriber *subscriber, uint64_t timeout)
{
	struct pl_stream_frame *frame;
	struct pl_error error;
	int rc = pl_subscriber_take(subscriber, &frame, 1, timeout, &error);

	check(rc > 0 || error.code == rc);
	return rc;
}

static struct pl_subscription_info subscription_of(struct pl_publisher *publisher)
{
	struct pl_subscription_info info = PL_SUBSCRIPTION_INFO_INIT;

	check(pl_publisher_subscribers(publisher, &info, 1) == 1);
	return info;
}

/* Waits until the subscriber has a fate for all sequences before `next`, and reads none. */
static void await_ready(struct rig *rig, uint64_t next, uint64_t pending)
{
	uint64_t limit = clock_now() + AMPLE_TIME;

	for (;;) {
		struct pl_accounts accounts = exact_accounts(rig->subscriber);

		if (accounts.next == next && accounts.pending == pending)
			return;
		check(clock_now() < limit);
		settle(&rig->environment, 1);
	}
}

/* -- cases --------------------------------------------------------------------------------------------------------- */

static void test_order(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscription_info subscription;
	struct pl_accounts accounts;
	struct pl_error error;
	struct rig rig;

	publisher.allow_block = true;
	publisher.patience = UINT64_MAX;
	rig_open(&rig, argument, &publisher);
	options.overflow = PL_OVERFLOW_BLOCK;
	rig_subscribe(&rig, &options);
	check(take_status(rig.subscriber, 0) == -EAGAIN);
	check(take_status(rig.subscriber, MS) == -ETIMEDOUT);
	for (uint64_t sequence = 0; sequence < 40; sequence++) {
		publish_one(rig.publisher);
		check(take_one(rig.subscriber, sequence) == 0);
	}
	check_ok(pl_publisher_end(rig.publisher, 0, &error), &error);
	check(take_status(rig.subscriber, AMPLE_TIME) == -ENODATA);
	check_ok(pl_publisher_end(rig.publisher, AMPLE_TIME, &error), &error);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.first == 0 && accounts.next == 40 && accounts.delivered == 40);
	subscription = subscription_of(rig.publisher);
	check(!memcmp(&subscription.accounts, &accounts, sizeof(accounts)) && subscription.announced == 40);
	check(subscription.peer == rig.environment.far_peer && subscription.blocks);
	rig_close(&rig);
}

static int open_status(struct rig *rig, const char *name, const struct pl_subscriber_options *options, const char *id)
{
	struct pl_subscriber *subscriber;
	struct pl_error error;
	int rc = rig_try_subscribe(rig, rig->environment.near_peer, name, options, &subscriber, &error);

	check(rc < 0 && !subscriber && !strcmp(error.id, id));
	return rc;
}

static void test_starts(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_subscriber *subscriber;
	struct pl_error error;
	static const struct {
		enum pl_start start;
		uint64_t from, first;
	} starts[] = {
		{ PL_START_LIVE, 0, 20 },      { PL_START_LATEST, 0, 19 },    { PL_START_HISTORY, 3, 17 },
		{ PL_START_HISTORY, 99, 12 },  { PL_START_SEQUENCE, 15, 15 }, { PL_START_SEQUENCE, 2, 12 },
		{ PL_START_SEQUENCE, 22, 22 },
	};
	struct rig rig;

	rig_open(&rig, argument, NULL);
	/* All begin with frame 0 while there is none. */
	for (unsigned i = 0; i < 4; i++) {
		options.start = starts[i].start;
		options.from = starts[i].from;
		check_ok(rig_try_subscribe(&rig, rig.environment.near_peer, "cam0", &options, &subscriber, &error),
			 &error);
		check_number(exact_accounts(subscriber).first, 0);
		pl_subscriber_close(subscriber);
	}
	publish_many(rig.publisher, 20);
	options.queue = SLOTS;
	for (unsigned i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
		options.start = starts[i].start;
		options.from = starts[i].from;
		check_ok(rig_try_subscribe(&rig, rig.environment.near_peer, "cam0", &options, &subscriber, &error),
			 &error);
		check(exact_accounts(subscriber).first == starts[i].first);
		for (uint64_t sequence = starts[i].first; sequence < 20; sequence++)
			check(take_one(subscriber, sequence) == 0);
		check(take_status(subscriber, 0) == -EAGAIN);
		pl_subscriber_close(subscriber);
	}
	/* The ring of a stream that has ended still has its frames. */
	check_ok(pl_publisher_end(rig.publisher, AMPLE_TIME, &error), &error);
	options.start = PL_START_LATEST;
	rig_subscribe(&rig, &options);
	check(take_one(rig.subscriber, 19) == 0);
	check(take_status(rig.subscriber, AMPLE_TIME) == -ENODATA);
	options.start = PL_START_LIVE;
	check(open_status(&rig, "cam0", &options, "STREAM-ENDED") == -ENODATA);
	rig_close(&rig);
}

/* The ring holds more frames than the queue when the subscriber comes: all of them arrive, whatever the subscriber drops. */
static void test_history_exceeds_queue(void *argument)
{
	static const enum pl_overflow choices[] = { PL_OVERFLOW_DROP_OLDEST, PL_OVERFLOW_DROP_NEWEST };
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_accounts accounts;
	struct rig rig;

	options.start = PL_START_HISTORY;
	options.from = SLOTS;
	options.queue = 2;
	rig_open(&rig, argument, NULL);
	publish_many(rig.publisher, SLOTS);
	for (unsigned i = 0; i < PL_ARRAY_SIZE(choices); i++) {
		options.overflow = choices[i];
		rig_subscribe(&rig, &options);
		await_ready(&rig, options.queue, options.queue);
		for (uint64_t sequence = 0; sequence < SLOTS; sequence++)
			check(take_one(rig.subscriber, sequence) == 0);
		accounts = exact_accounts(rig.subscriber);
		check(accounts.delivered == SLOTS && accounts.next == SLOTS);
		pl_subscriber_close(rig.subscriber);
	}
	rig.subscriber = NULL;
	rig_close(&rig);
}

/* The program takes nothing while 10 frames are published, 6 more than the queue holds. */
static void test_overflow(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_accounts accounts;
	struct rig rig;

	options.queue = 4;
	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, &options);
	for (uint64_t sequence = 0; sequence < 10; sequence++) {
		publish_one(rig.publisher);
		await_ready(&rig, sequence + 1, sequence < 4 ? sequence + 1 : 4);
	}
	check(take_one(rig.subscriber, 6) == 6);
	for (uint64_t sequence = 7; sequence < 10; sequence++)
		check(take_one(rig.subscriber, sequence) == 0);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.delivered == 4 && accounts.dropped == 6 && accounts.next == 10);
	pl_subscriber_close(rig.subscriber);
	options.overflow = PL_OVERFLOW_DROP_NEWEST;
	rig_subscribe(&rig, &options);
	for (uint64_t sequence = 10; sequence < 20; sequence++) {
		publish_one(rig.publisher);
		await_ready(&rig, sequence + 1, sequence < 14 ? sequence - 9 : 4);
	}
	for (uint64_t sequence = 10; sequence < 14; sequence++)
		check(take_one(rig.subscriber, sequence) == 0);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.delivered == 4 && accounts.rejected == 6 && accounts.first == 10 && accounts.next == 20);
	rig_close(&rig);
}

static void test_every_and_aborted(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_stream_frame *frame;
	struct pl_accounts accounts;
	struct pl_error error;
	struct rig rig;

	options.every = 3;
	options.queue = 8;
	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, &options);
	for (unsigned i = 0; i < 7; i++) {
		if (i == 3) {
			check_ok(pl_publisher_loan(rig.publisher, 0, &frame, &error), &error);
			pl_frame_discard(frame);
		} else {
			publish_one(rig.publisher);
		}
	}
	check(take_one(rig.subscriber, 0) == 0);
	check(take_one(rig.subscriber, 6) == 5);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.delivered == 2 && accounts.unwanted == 4 && accounts.aborted == 1 && accounts.next == 7);
	rig_close(&rig);
}

/* A subscriber that blocks holds its slots back; a loan waits, and ends its patience. */
static void test_block(void *argument)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct pl_subscriber_info own = PL_SUBSCRIBER_INFO_INIT;
	struct pl_stream_frame *frame;
	struct pl_accounts accounts;
	struct pl_error error;
	struct pump pump;
	struct rig rig;

	rig_open_blocking(&rig, argument, UINT64_MAX, 2);
	/* This thread waits for slots, and does not drive the subscriber meanwhile. */
	pump_start(&rig.environment, &pump, rig.environment.near);
	/* Two frames are fetched, and release their slots; eight wait in the ring. */
	publish_many(rig.publisher, SLOTS + 2);
	check(pl_publisher_loan(rig.publisher, 0, &frame, &error) == -EAGAIN && !strcmp(error.id, "STREAM-BUSY"));
	check(pl_publisher_loan(rig.publisher, 20 * MS, &frame, &error) == -EAGAIN);
	check(pl_publisher_query(rig.publisher, &info) == 0);
	check(info.refused == 2 && info.blocking == 1 && info.published == SLOTS + 2);
	check(take_one(rig.subscriber, 0) == 0);
	publish_one(rig.publisher);
	for (uint64_t sequence = 1; sequence < SLOTS + 3; sequence++)
		check(take_one(rig.subscriber, sequence) == 0);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.delivered == SLOTS + 3 && accounts.next == SLOTS + 3);
	check(pl_subscriber_query(rig.subscriber, &own) == 0 && own.blocks && !own.demoted);
	pump_stop(&pump);
	rig_close(&rig);
}

/* Waits until the subscriber knows all sequences before `end` and has counted them. */
static struct pl_accounts await_counted(struct rig *rig, uint64_t end)
{
	uint64_t limit = clock_now() + AMPLE_TIME;
	struct pl_accounts accounts;

	while ((accounts = exact_accounts(rig->subscriber)).next < end) {
		check(clock_now() < limit);
		settle(&rig->environment, 1);
	}
	return accounts;
}

/* Publishes from a sequence on until a frame is wanted again. Returns its sequence. A publisher that pushes learns of that later. */
static uint64_t rig_await_resumption(struct rig *rig, uint64_t sequence)
{
	for (;; sequence++) {
		publish_one(rig->publisher);
		if (await_counted(rig, sequence + 1).pending)
			return sequence;
		check(!strcmp(rig->environment.setting->name, "push"));
	}
}

/* Frames of a pause are unwanted, also those that are overwritten or skipped meanwhile, and nobody waits for them. */
static void test_pause(void *argument)
{
	struct pl_subscriber_info own = PL_SUBSCRIBER_INFO_INIT;
	const uint64_t after_gap = 100 * SLOTS, end = 3 * SLOTS + 2;
	uint64_t resumed;
	struct pl_accounts accounts;
	struct pl_error error;
	struct pump pump;
	struct rig rig;

	rig_open_blocking(&rig, argument, UINT64_MAX, 2);
	publish_many(rig.publisher, 2);
	await_counted(&rig, 2);
	pl_subscriber_pause(rig.subscriber, true);
	/* This thread waits for slots, and does not drive the subscriber meanwhile. */
	pump_start(&rig.environment, &pump, rig.environment.near);
	publish_many(rig.publisher, 3 * SLOTS);
	accounts = await_counted(&rig, end);
	check(accounts.unwanted == 3 * SLOTS && accounts.pending == 2);
	check(take_one(rig.subscriber, 0) == 0 && take_one(rig.subscriber, 1) == 0);
	check_ok(pl_publisher_skip(rig.publisher, after_gap, AMPLE_TIME, &error), &error);
	publish_one(rig.publisher);
	accounts = await_counted(&rig, after_gap + 1);
	check(accounts.unwanted == after_gap + 1 - 2 && accounts.delivered == 2 && accounts.aborted == 0);
	check(pl_subscriber_query(rig.subscriber, &own) == 0 && own.paused && own.blocks);
	pl_subscriber_pause(rig.subscriber, false);
	resumed = rig_await_resumption(&rig, after_gap + 1);
	check(take_one(rig.subscriber, resumed) == resumed - 2);
	check_ok(pl_publisher_skip(rig.publisher, 2 * after_gap, AMPLE_TIME, &error), &error);
	publish_one(rig.publisher);
	check(take_one(rig.subscriber, 2 * after_gap) == 2 * after_gap - resumed - 1);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.delivered == 4 && accounts.aborted == 2 * after_gap - resumed - 1);
	pump_stop(&pump);
	rig_close(&rig);
}

static void test_patience(void *argument)
{
	struct pl_subscriber_info own = PL_SUBSCRIBER_INFO_INIT;
	uint64_t limit = clock_now() + AMPLE_TIME;
	struct rig rig;

	rig_open_blocking(&rig, argument, 30 * MS, 1);
	publish_many(rig.publisher, 3 * SLOTS);
	check(subscription_of(rig.publisher).demoted && !subscription_of(rig.publisher).blocks);
	do {
		check(clock_now() < limit && pl_subscriber_query(rig.subscriber, &own) == 0);
		settle(&rig.environment, 1);
	} while (!own.demoted);
	check(!own.blocks);
	exact_accounts(rig.subscriber);
	rig_close(&rig);
}

static void test_metadata_and_layout(void *argument)
{
	struct pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;
	const struct pl_layout image = { PL_ELEMENT_UINT, 16, 1, 2, { 10, 20 } };
	const struct pl_layout other = { PL_ELEMENT_FLOAT, 32, 1, 1, { 5 } };
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_subscriber_options start = PL_SUBSCRIBER_OPTIONS_INIT;
	uint8_t metadata[PL_STREAM_METADATA_MAX + 1];
	struct pl_stream_frame *frame;
	struct pl_frame_info info;
	struct pl_error error;
	struct rig rig;

	pattern_fill(metadata, sizeof(metadata), 7, 0);
	publisher.metadata_bytes = PL_STREAM_METADATA_MAX;
	publisher.layout = image;
	rig_open(&rig, argument, &publisher);
	check_ok(pl_publisher_loan(rig.publisher, 0, &frame, &error), &error);
	options.length = SLOT + 1;
	check(pl_frame_publish(frame, &options, &error) == -EMSGSIZE && !strcmp(error.id, "FRAME-LONG"));
	options.length = SLOT;
	options.metadata = metadata;
	options.metadata_length = sizeof(metadata);
	check(pl_frame_publish(frame, &options, &error) == -EMSGSIZE);
	options.metadata_length--;
	check_ok(pl_frame_publish(frame, &options, &error), &error);
	check(pl_frame_publish(frame, &options, &error) == -EINVAL && !strcmp(error.id, "FRAME-FOREIGN"));
	check_ok(pl_publisher_loan(rig.publisher, 0, &frame, &error), &error);
	options = (struct pl_frame_options)PL_FRAME_OPTIONS_INIT;
	options.length = 19;
	options.layout = &other;
	check(pl_frame_publish(frame, &options, &error) == -EINVAL && !strcmp(error.id, "FRAME-LAYOUT"));
	options.length = 20;
	check_ok(pl_frame_publish(frame, &options, &error), &error);
	/* The first frame is read from the ring with its descriptor, as no announcement has it any more. */
	start.start = PL_START_HISTORY;
	start.from = 2;
	rig_subscribe(&rig, &start);
	info = take_frame(rig.subscriber, &frame);
	check(info.length == SLOT && info.metadata_length == PL_STREAM_METADATA_MAX);
	pattern_check(info.metadata, info.metadata_length, 7, 0);
	check(!memcmp(&info.layout, &image, sizeof(image)));
	pl_frame_release(frame);
	info = take_frame(rig.subscriber, &frame);
	check(!info.metadata && !memcmp(&info.layout, &other, sizeof(other)));
	pl_frame_release(frame);
	rig_close(&rig);
}

static unsigned count_events(struct pl_context *context, uint64_t user_data)
{
	struct pl_completion completions[8];
	int count = pl_poll(context, completions, 8);

	for (int i = 0; i < count; i++)
		check(completions[i].kind == PL_KIND_FRAME && completions[i].user_data == user_data &&
		      completions[i].status == 0);
	return (unsigned)count;
}

static void await_event(struct pl_context *context, uint64_t user_data)
{
	uint64_t limit = clock_now() + AMPLE_TIME;

	while (count_events(context, user_data) == 0)
		check(clock_now() < limit);
}

/* pl_poll() tells once of frames, and again after a take that found none; and of the end. */
static void test_poll_events(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_context *near;
	struct pl_stream_frame *frame;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument, NULL);
	options.events = true;
	options.user_data = 4711;
	rig_subscribe(&rig, &options);
	near = rig.environment.near;
	for (uint64_t round = 0; round < 3; round++) {
		check(count_events(near, 4711) == 0);
		publish_many(rig.publisher, 2);
		await_event(near, 4711);
		await_counted(&rig, 2 * round + 2);
		check(take_one(rig.subscriber, 2 * round) == 0 && take_one(rig.subscriber, 2 * round + 1) == 0);
		check(pl_subscriber_take(rig.subscriber, &frame, 1, 0, NULL) == -EAGAIN);
		/* The second frame may have come after the first one was taken. */
		count_events(near, 4711);
	}
	check_ok(pl_publisher_end(rig.publisher, 0, &error), &error);
	await_event(near, 4711);
	check(pl_subscriber_take(rig.subscriber, &frame, 1, 0, NULL) == -ENODATA);
	rig_close(&rig);
}

/* Loans are published in another order, and become visible in the order of the loans. */
static void test_loans(void *argument)
{
	struct pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_frame_options length = PL_FRAME_OPTIONS_INIT;
	struct pl_stream_frame *frames[3], *more;
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct pl_error error;
	struct rig rig;

	publisher.loans = 3;
	options.held = 2;
	rig_open(&rig, argument, &publisher);
	rig_subscribe(&rig, &options);
	for (unsigned i = 0; i < 3; i++)
		check_ok(pl_publisher_loan(rig.publisher, 0, &frames[i], &error), &error);
	check(pl_publisher_loan(rig.publisher, 0, &more, &error) == -EMLINK && !strcmp(error.id, "LOAN-LIMIT"));
	check(pl_publisher_end(rig.publisher, 0, &error) == -EBUSY && !strcmp(error.id, "STREAM-LOANED"));
	check_ok(pl_frame_publish(frames[2], &length, &error), &error);
	check_ok(pl_frame_publish(frames[1], &length, &error), &error);
	check(pl_publisher_query(rig.publisher, &info) == 0 && info.published == 0 && info.claimed == 3);
	check_ok(pl_frame_publish(frames[0], &length, &error), &error);
	check(take_frame(rig.subscriber, &frames[0]).sequence == 0);
	check(take_frame(rig.subscriber, &frames[1]).sequence == 1);
	await_ready(&rig, 3, 1);
	check(take_status(rig.subscriber, 0) == -EMLINK);
	pl_frame_release(frames[0]);
	pl_frame_release(frames[0]);
	check(take_frame(rig.subscriber, &frames[2]).sequence == 2);
	pl_frame_release(NULL);
	pl_frame_discard(NULL);
	rig_close(&rig);
}

static void test_descriptor(void *argument)
{
	struct pollfd poll_fd = { .events = POLLIN };
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, NULL);
	poll_fd.fd = pl_subscriber_fd(rig.subscriber);
	check(poll_fd.fd >= 0 && poll_fd.fd == pl_subscriber_fd(rig.subscriber));
	check(poll(&poll_fd, 1, 0) == 0);
	publish_one(rig.publisher);
	check(poll(&poll_fd, 1, (int)(AMPLE_TIME / MS)) == 1);
	check(take_one(rig.subscriber, 0) == 0);
	check(poll(&poll_fd, 1, 0) == 0);
	check_ok(pl_publisher_end(rig.publisher, 0, &error), &error);
	check(poll(&poll_fd, 1, (int)(AMPLE_TIME / MS)) == 1);
	check(take_status(rig.subscriber, 0) == -ENODATA);
	rig_close(&rig);
}

static void test_refusals(void *argument)
{
	struct pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_publisher *second;
	struct pl_error error;
	struct rig rig;

	publisher.subscribers = 1;
	rig_open(&rig, argument, &publisher);
	check(open_status(&rig, "cam1", NULL, "STREAM-UNKNOWN") == -ENOENT);
	check(open_status(&rig, "a b", NULL, "STREAM-NAME") == -EINVAL);
	options.overflow = PL_OVERFLOW_BLOCK;
	check(open_status(&rig, "cam0", &options, "STREAM-NO-BLOCK") == -EPERM);
	options.overflow = (enum pl_overflow)9;
	check(open_status(&rig, "cam0", &options, "OPTION") == -EINVAL);
	options.overflow = PL_OVERFLOW_DROP_OLDEST;
	options.memory_bytes = 4096;
	check(open_status(&rig, "cam0", &options, "STREAM-MEMORY") == -EMSGSIZE);
	rig_subscribe(&rig, NULL);
	check(open_status(&rig, "cam0", NULL, "STREAM-FULL") == -EMLINK);
	/* No later place allows that. */
	options.memory_bytes = 0;
	options.overflow = PL_OVERFLOW_BLOCK;
	check(open_status(&rig, "cam0", &options, "STREAM-NO-BLOCK") == -EPERM);
	check(pl_publisher_open(rig.environment.far, "cam0", &publisher, &second, &error) == -EINVAL);
	publisher.slot_bytes = 1;
	check(pl_publisher_open(rig.environment.far, "cam0", &publisher, &second, &error) == -EEXIST);
	check(pl_publisher_open(rig.environment.far, "", &publisher, &second, &error) == -EINVAL);
	check_ok(pl_publisher_end(rig.publisher, 0, &error), &error);
	pl_subscriber_close(rig.subscriber);
	rig.subscriber = NULL;
	check(open_status(&rig, "cam0", NULL, "STREAM-ENDED") == -ENODATA);
	rig_close(&rig);
}

static void test_list(void *argument)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_publisher_info infos[40] = { PL_PUBLISHER_INFO_INIT };
	struct pl_publisher *publishers[20];
	struct pl_error error;
	struct rig rig;
	char name[16];

	rig_open(&rig, argument, NULL);
	publish_many(rig.publisher, 3);
	options.slot_bytes = 100;
	options.content_type = "image/raw";
	for (unsigned i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "stream%u", i);
		check_ok(pl_publisher_open(rig.environment.far, name, &options, &publishers[i], &error), &error);
	}
	check(pl_peer_publishers(rig.environment.near_peer, NULL, 0, AMPLE_TIME, &error) == 21);
	check(pl_peer_publishers(rig.environment.near_peer, infos, 40, AMPLE_TIME, &error) == 21);
	check(!strcmp(infos[0].name, "cam0") && infos[0].published == 3 && infos[0].slots == SLOTS);
	check(!strcmp(infos[20].name, "stream19") && !strcmp(infos[20].content_type, "image/raw"));
	check(pl_peer_publishers(rig.environment.near_peer, infos, 2, AMPLE_TIME, &error) == 21);
	check(pl_peer_publishers(rig.environment.far_peer, infos, 40, AMPLE_TIME, &error) == 0);
	rig_close(&rig);
}

/* The publisher closes before the subscriber has read all: the rest is missed, at both ends. */
static void test_closed_publisher(void *argument)
{
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;
	struct pl_stream_frame *frame;
	unsigned taken = 1;
	struct rig rig;

	rig_open_blocking(&rig, argument, 0, 2);
	publish_many(rig.publisher, 6);
	check(take_one(rig.subscriber, 0) == 0);
	pl_publisher_close(rig.publisher);
	rig.publisher = NULL;
	/* Some frames more have been read, or were being read. */
	while (pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, NULL) > 0) {
		taken++;
		pl_frame_release(frame);
	}
	check(take_status(rig.subscriber, AMPLE_TIME) == -ENODATA);
	check(pl_subscriber_query(rig.subscriber, &info) == 0 && info.stream.state == PL_STREAM_FAILED);
	check(info.accounts.missed == 6 - taken && info.accounts.delivered == taken && info.accounts.next == 6);
	rig_close(&rig);
}

/* The publisher closes while frames wait for a credit, of which it has told nothing before. */
static void test_closed_without_credit(void *argument)
{
	struct pl_accounts accounts;
	struct rig rig;

	rig_open_blocking(&rig, argument, UINT64_MAX, 1);
	publish_one(rig.publisher);
	await_ready(&rig, 1, 1);
	publish_many(rig.publisher, 3);
	pl_publisher_close(rig.publisher);
	rig.publisher = NULL;
	check(take_one(rig.subscriber, 0) == 0);
	check(take_status(rig.subscriber, AMPLE_TIME) == -ENODATA);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.missed == 3 && accounts.delivered == 1 && accounts.next == 4);
	rig_close(&rig);
}

/* The stream ends before the first sequence that the subscriber wants. */
static void test_end_before_start(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument, NULL);
	options.start = PL_START_SEQUENCE;
	options.from = 9;
	rig_subscribe(&rig, &options);
	publish_many(rig.publisher, 3);
	check_ok(pl_publisher_end(rig.publisher, 0, &error), &error);
	check(take_status(rig.subscriber, AMPLE_TIME) == -ENODATA);
	check_number(exact_accounts(rig.subscriber).next, 9);
	rig_close(&rig);
}

/* Closes the publisher at the first allocation of the subscribing thread after the publisher's answer. */
static void *allocate_and_close(size_t size, void *user)
{
	struct rig *rig = user;

	if (pthread_equal(pthread_self(), rig->thread) && rig->publisher) {
		unsigned prepared;

		pl_lock_take(&rig->publisher->lock);
		prepared = rig->publisher->prepared_count;
		pl_lock_release(&rig->publisher->lock);
		if (prepared == 1) {
			pl_publisher_close(rig->publisher);
			rig->publisher = NULL;
		}
	}
	return malloc(size);
}

/* The publisher closes between its answer and the import of its keys, which are revoked then. */
static void test_closed_before_import(void *argument)
{
	struct pl_options options = setting_options(argument);
	struct pl_peer *peer, *other;
	struct pl_context *context;
	struct pl_error error;
	struct rig rig;
	struct pl_allocator allocator = { allocate_and_close, pl_system_allocator.reallocate,
					  pl_system_allocator.release, &rig };

	rig_open(&rig, argument, NULL);
	rig.thread = pthread_self();
	options.allocator = &allocator;
	context = context_open_with(&options);
	connect_pair(&rig.environment, context, rig.environment.listener, &peer, &other);
	check(pl_subscriber_open(peer, "cam0", NULL, AMPLE_TIME, &rig.subscriber, &error) == -ENODATA);
	check(!rig.publisher && !rig.subscriber && !strcmp(error.id, "STREAM-ENDED"));
	pl_peer_close(other);
	pl_close(context);
	rig_close(&rig);
}

/* The connection ends and another one begins: no frame comes twice, and each has a fate. */
static void test_attach(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_peer *near_peer, *far_peer;
	struct pl_accounts accounts;
	struct pl_error error;
	struct rig rig;

	options.queue = 16;
	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, &options);
	publish_many(rig.publisher, 4);
	for (uint64_t sequence = 0; sequence < 4; sequence++)
		check(take_one(rig.subscriber, sequence) == 0);
	pl_peer_close(rig.environment.far_peer);
	check(take_status(rig.subscriber, AMPLE_TIME) == -ENOTCONN);
	check(subscription_of(rig.publisher).ended);
	/* The ring holds 8 frames: 4 of these 12 are gone. */
	publish_many(rig.publisher, 12);
	/* As after laps, which say nothing of the next connection. */
	rig.subscriber->laps.left = PL_FRAMES_AFTER_LAPS;
	connect_pair(&rig.environment, rig.environment.near, rig.environment.listener, &near_peer, &far_peer);
	check_ok(pl_subscriber_attach(rig.subscriber, near_peer, AMPLE_TIME, &error), &error);
	check(take_one(rig.subscriber, 8) == 4);
	for (uint64_t sequence = 9; sequence < 16; sequence++)
		check(take_one(rig.subscriber, sequence) == 0);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.missed == 4 && accounts.delivered == 12 && accounts.next == 16);
	pl_peer_close(rig.environment.near_peer);
	rig.environment.near_peer = near_peer;
	rig.environment.far_peer = far_peer;
	/* Another instance: told once, before its first frame. */
	pl_publisher_close(rig.publisher);
	check(take_status(rig.subscriber, AMPLE_TIME) == -ENODATA);
	{
		struct pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;

		publisher.slot_bytes = SLOT;
		publisher.slots = SLOTS;
		check_ok(pl_publisher_open(rig.environment.far, "cam0", &publisher, &rig.publisher, &error), &error);
	}
	publish_many(rig.publisher, 2);
	check_ok(pl_subscriber_attach(rig.subscriber, near_peer, AMPLE_TIME, &error), &error);
	check(exact_accounts(rig.subscriber).next == 16);
	check(take_status(rig.subscriber, AMPLE_TIME) == -ESTALE);
	check(take_one(rig.subscriber, 0) == 0);
	check(take_one(rig.subscriber, 1) == 0);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.delivered == 2 && accounts.next == 2);
	rig_close(&rig);
}

/* A publisher of given sequences, with gaps shorter and longer than the ring. */
static void test_skip(void *argument)
{
	struct pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	static const uint64_t ends[] = { 1003, 1004 + SLOTS, 1005 + 2 * SLOTS, 1ull << 40, (1ull << 40) + 2 };
	struct pl_stream_frame *frame;
	struct pl_accounts accounts;
	uint64_t expected = 1001;
	struct pl_error error;
	struct pump pump;
	struct rig rig;

	publisher.allow_block = true;
	publisher.patience = UINT64_MAX;
	publisher.first = 1000;
	rig_open(&rig, argument, &publisher);
	/* This thread waits for slots, and does not drive the subscriber meanwhile. */
	pump_start(&rig.environment, &pump, rig.environment.near);
	options.overflow = PL_OVERFLOW_BLOCK;
	options.start = PL_START_HISTORY;
	options.from = SLOTS;
	rig_subscribe(&rig, &options);
	check(exact_accounts(rig.subscriber).first == 1000);
	publish_one(rig.publisher);
	check(take_one(rig.subscriber, 1000) == 0);
	for (unsigned i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		check_ok(pl_publisher_skip(rig.publisher, ends[i], AMPLE_TIME, &error), &error);
		check_ok(pl_publisher_loan(rig.publisher, AMPLE_TIME, &frame, &error), &error);
		check(pl_publisher_skip(rig.publisher, ends[i] + 9, 0, &error) == -EBUSY);
		check_ok(pl_frame_publish(frame, &(struct pl_frame_options)PL_FRAME_OPTIONS_INIT, &error), &error);
		check(pl_publisher_skip(rig.publisher, ends[i], 0, &error) == -EINVAL && !strcmp(error.id, "OPTION"));
		check(take_frame(rig.subscriber, &frame).sequence == ends[i]);
		pl_frame_release(frame);
		accounts = exact_accounts(rig.subscriber);
		check(accounts.delivered == i + 2 && accounts.aborted == ends[i] - 1000 - i - 1);
		expected = ends[i] + 1;
	}
	check(exact_accounts(rig.subscriber).next == expected);
	check(pl_publisher_skip(rig.publisher, (1ull << 62) + 1, 0, &error) == -EINVAL);
	check_ok(pl_publisher_end(rig.publisher, 0, &error), &error);
	check(pl_publisher_skip(rig.publisher, 1ull << 41, 0, &error) == -ENODATA);
	pump_stop(&pump);
	rig_close(&rig);
}

/* Frames that a blocking subscriber has not read hold a skip back, and no gap laps them. */
static void test_skip_blocked(void *argument)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct pl_accounts accounts;
	struct pl_error error;
	struct pump pump;
	struct rig rig;

	rig_open_blocking(&rig, argument, UINT64_MAX, 1);
	pump_start(&rig.environment, &pump, rig.environment.near);
	publish_many(rig.publisher, 3);
	/* The queue holds one frame, so at most the slot of the first one is free. */
	check(pl_publisher_skip(rig.publisher, 100, 0, &error) == -EAGAIN && !strcmp(error.id, "STREAM-BUSY"));
	check(pl_publisher_query(rig.publisher, &info) == 0 && info.refused == 1 && info.published == 3);
	check_ok(pl_publisher_skip(rig.publisher, SLOTS, 0, &error), &error);
	for (uint64_t sequence = 0; sequence < 3; sequence++)
		check(take_one(rig.subscriber, sequence) == 0);
	await_ready(&rig, SLOTS, 0);
	check_ok(pl_publisher_skip(rig.publisher, 100, AMPLE_TIME, &error), &error);
	await_ready(&rig, 100, 0);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.delivered == 3 && accounts.aborted == 97);
	pump_stop(&pump);
	rig_close(&rig);
}

/* A skip waits for a blocking subscriber no longer than the publisher's patience. */
static void test_skip_patience(void *argument)
{
	/* Frames are pushed into the queue alone, and fetched beyond it. */
	uint64_t fetched = argument == &tcp_push || argument == &local_push ? 1 : 3;
	struct pl_accounts accounts;
	struct pl_error error;
	struct rig rig;

	rig_open_blocking(&rig, argument, 30 * MS, 1);
	publish_many(rig.publisher, 3);
	await_ready(&rig, fetched, fetched);
	check_ok(pl_publisher_skip(rig.publisher, 100, AMPLE_TIME, &error), &error);
	check(subscription_of(rig.publisher).demoted && !subscription_of(rig.publisher).blocks);
	publish_one(rig.publisher);
	while (exact_accounts(rig.subscriber).next < 101)
		settle(&rig.environment, 1);
	accounts = exact_accounts(rig.subscriber);
	/* Frames that were fetched, in the queue or beyond it, are dropped once a later one takes their place. */
	check(accounts.aborted == 97 && accounts.dropped + accounts.pending == fetched + 1);
	check(accounts.lapped == 3 - fetched);
	rig_close(&rig);
}

/* Several gaps are published before a subscriber of each third sequence learns of any. */
static void test_skip_unwanted(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_accounts accounts;
	struct pl_error error;
	struct rig rig;

	options.every = 3;
	options.queue = SLOTS;
	rig_open(&rig, argument, NULL);
	/* Frame 0 has no payload, and an announcement alone would deliver it. */
	publish_one(rig.publisher);
	rig_subscribe(&rig, &options);
	/* Nothing drives the subscriber until it takes a frame: all frames before the last one are overwritten by then. */
	for (uint64_t gap = 0; gap < 5; gap++) {
		publish_many(rig.publisher, 3);
		check_ok(pl_publisher_skip(rig.publisher, 300 * (gap + 1) + 1, 0, &error), &error);
	}
	publish_one(rig.publisher);
	check(take_one(rig.subscriber, 1501) == 1500);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.delivered == 1 && accounts.unwanted == 1000);
	/* Later gaps overwrite the descriptors of up to a ring of each earlier one. */
	check(accounts.lapped + accounts.aborted == 500 && accounts.lapped >= 5 && accounts.lapped <= 5 + 4 * 3);
	rig_close(&rig);
}

static void test_replay_flag(void *argument)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info;
	struct pl_stream_frame *frame;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, NULL);
	for (unsigned flags = 0; flags <= PL_FRAME_REPLAY; flags++) {
		check_ok(pl_publisher_loan(rig.publisher, 0, &frame, &error), &error);
		options.length = 1;
		options.captured = 5;
		options.flags = 2;
		check(pl_frame_publish(frame, &options, &error) == -EINVAL && !strcmp(error.id, "OPTION"));
		options.flags = flags;
		check_ok(pl_frame_publish(frame, &options, &error), &error);
		info = take_frame(rig.subscriber, &frame);
		check(info.flags == flags && info.captured == 5);
		pl_frame_release(frame);
	}
	rig_close(&rig);
}

/* A subscriber that did not report before tells its accounts when it is closed. */
static void test_accounts_at_close(void *argument)
{
	uint64_t limit = clock_now() + AMPLE_TIME;
	struct pl_subscription_info info;
	struct rig rig;

	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, NULL);
	publish_many(rig.publisher, 3);
	for (uint64_t sequence = 0; sequence < 3; sequence++)
		check(take_one(rig.subscriber, sequence) == 0);
	pl_subscriber_close(rig.subscriber);
	rig.subscriber = NULL;
	do {
		check(clock_now() < limit);
		settle(&rig.environment, 1);
		info = subscription_of(rig.publisher);
	} while (!info.ended);
	check_number(info.accounts.delivered, 3);
	check_number(info.accounts.next, 3);
	check_number(info.accounts.missed, 0);
	rig_close(&rig);
}

/* Closes in each order, with frames under way, ready, held and on loan. */
static void test_closes(void *argument)
{
	struct pl_stream_frame *frame, *loan;
	struct pl_error error;
	struct rig rig;

	for (unsigned order = 0; order < 6; order++) {
		rig_open(&rig, argument, NULL);
		rig_subscribe(&rig, NULL);
		publish_many(rig.publisher, 3);
		take_frame(rig.subscriber, &frame);
		check_ok(pl_publisher_loan(rig.publisher, 0, &loan, &error), &error);
		if (order == 0) {
			pl_peer_close(rig.environment.near_peer);
			rig.environment.near_peer = NULL;
		}
		if (order == 1) {
			pl_peer_close(rig.environment.far_peer);
			rig.environment.far_peer = NULL;
		}
		if (order == 2 || order == 3)
			pl_publisher_close(rig.publisher);
		if (order == 3 || order == 4)
			pl_subscriber_close(rig.subscriber);
		pump_stop(&rig.pump);
		if (order < 5)
			environment_close(&rig.environment);
		else
			rig_close(&rig);
	}
}

/* The event descriptor tells of the end, also if one announcement tells of it and of the last frame, a discarded one. */
static void test_discarded_at_end(void *argument)
{
	struct pollfd event = { .events = POLLIN };
	struct pl_accounts accounts;
	struct pl_frame_info info;
	struct pl_error error;
	struct rig rig;
	uint64_t end;

	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, NULL);
	event.fd = pl_subscriber_fd(rig.subscriber);
	/* Without an answer the publisher sends 16 announcements. So the next one tells of the last frame and of the end. */
	for (unsigned i = 0; i < 17; i++)
		pl_frame_discard(loan_frame(rig.publisher, &info));
	check_ok(pl_publisher_end(rig.publisher, 0, &error), &error);
	for (end = clock_now() + AMPLE_TIME; poll(&event, 1, 0) == 0 && clock_now() < end;)
		progress(&rig.environment);
	check_number(poll(&event, 1, 0), 1);
	check_number(take_status(rig.subscriber, 0), -ENODATA);
	/* One announcement may tell of several frames, of which the ring holds the descriptors of the last ones. */
	accounts = exact_accounts(rig.subscriber);
	check_number(accounts.aborted + accounts.lapped, 17);
	rig_close(&rig);
}

#define BOTH_PUSH(name, function, seconds) \
	{ name " tcp push", function, &tcp_push, seconds }, \
	{ \
		name " local push", function, &local_push, seconds \
	}
#define ALL(name, function, seconds) \
	{ name " tcp", function, &frames_tcp_threads, seconds }, \
		{ name " local", function, &frames_local_threads, seconds }, \
		{ name " tcp manual", function, &frames_tcp_manual, seconds }, \
		{ name " local manual", function, &frames_local_manual, seconds }, \
		{ name " tcp push manual", function, &tcp_push_manual, seconds }, \
		{ name " local push manual", function, &local_push_manual, seconds }, \
		BOTH_PUSH(name, function, seconds)
#define BOTH(name, function, seconds) \
	{ name " tcp", function, &frames_tcp_threads, seconds }, \
		{ name " local", function, &frames_local_threads, seconds }, BOTH_PUSH(name, function, seconds)

int main(void)
{
	static const struct test_case cases[] = {
		ALL("order", test_order, 10),
		{ "order key", test_order, &frames_tcp_key, 10 },
		ALL("starts", test_starts, 10),
		ALL("history exceeds the queue", test_history_exceeds_queue, 10),
		ALL("overflow", test_overflow, 10),
		BOTH("every", test_every_and_aborted, 10),
		ALL("block", test_block, 10),
		ALL("pause", test_pause, 20),
		ALL("poll events", test_poll_events, 20),
		BOTH("patience", test_patience, 10),
		ALL("metadata", test_metadata_and_layout, 10),
		ALL("loans", test_loans, 10),
		BOTH("descriptor", test_descriptor, 10),
		BOTH("refusals", test_refusals, 10),
		{ "list", test_list, &frames_tcp_threads, 10 },
		ALL("closed publisher", test_closed_publisher, 10),
		{ "closed before import tcp", test_closed_before_import, &frames_tcp_threads, 10 },
		{ "closed before import local", test_closed_before_import, &frames_local_threads, 10 },
		BOTH_PUSH("closed without credit", test_closed_without_credit, 10),
		BOTH("end before start", test_end_before_start, 10),
		ALL("attach", test_attach, 10),
		ALL("accounts at the close", test_accounts_at_close, 10),
		BOTH("closes", test_closes, 20),
		ALL("skip", test_skip, 10),
		ALL("skip blocked", test_skip_blocked, 10),
		BOTH("skip patience", test_skip_patience, 10),
		{ "skip unwanted tcp manual", test_skip_unwanted, &frames_tcp_manual, 10 },
		{ "skip unwanted local manual", test_skip_unwanted, &frames_local_manual, 10 },
		BOTH("replay flag", test_replay_flag, 10),
		{ "discarded at the end tcp manual", test_discarded_at_end, &frames_tcp_manual, 10 },
	};

	return cases_run("streams", cases, sizeof(cases) / sizeof(cases[0]));
}
