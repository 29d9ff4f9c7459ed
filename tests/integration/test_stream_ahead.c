/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames that a blocking subscriber fetches beyond its queue: how many, what they hold back, and what becomes of them. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <peerlane/stream.h>

#include "base/base.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"

#define SLOT 10000u
#define SLOTS 4u
#define QUEUE 1u
#define AHEAD 64u /* most frames beyond the queue */
#define LARGE_SLOT (1u << 20)
#define LARGE_AHEAD 7u /* most of these: 8 MiB, with their descriptors */
#define MS 1000000ull

/* A publisher in `far`, and a subscriber in `near`. With manual progress a thread drives `far`. */
struct rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct pl_subscriber *subscriber;
	struct pump pump;
};

static void rig_open_ring(struct rig *rig, const struct setting *setting, uint64_t patience, unsigned slots,
			  size_t slot_bytes)
{
	struct pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;

	memset(rig, 0, sizeof(*rig));
	environment_open(&rig->environment, setting);
	pump_start(&rig->environment, &rig->pump, rig->environment.far);
	publisher.slot_bytes = slot_bytes;
	publisher.slots = slots;
	publisher.allow_block = true;
	publisher.patience = patience;
	check_ok(pl_publisher_open(rig->environment.far, "cam0", &publisher, &rig->publisher, &error), &error);
}

static void rig_open_publisher(struct rig *rig, const struct setting *setting, uint64_t patience, unsigned slots)
{
	rig_open_ring(rig, setting, patience, slots, SLOT);
}

static void rig_subscribe(struct rig *rig, struct pl_peer *peer, const struct pl_subscriber_options *given)
{
	struct pl_subscriber_options options = *given;
	struct pl_error error;

	options.queue = QUEUE;
	check_ok(pl_subscriber_open(peer, "cam0", &options, AMPLE_TIME, &rig->subscriber, &error), &error);
}

static void rig_open(struct rig *rig, const struct setting *setting, uint64_t patience,
		     const struct pl_subscriber_options *options)
{
	rig_open_publisher(rig, setting, patience, SLOTS);
	rig_subscribe(rig, rig->environment.near_peer, options);
}

static void rig_close(struct rig *rig)
{
	pl_subscriber_close(rig->subscriber);
	pump_stop(&rig->pump);
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
}

/* Publishes a frame, unless subscribers hold its slot back. */
static int try_publish(struct rig *rig)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frame;
	struct pl_error error;
	int rc = pl_publisher_loan(rig->publisher, 0, &frame, &error);

	if (rc < 0)
		return rc;
	check(pl_frame_query(frame, &info) == 0);
	options.length = SLOT;
	frame_fill(&info, SLOT);
	check_ok(pl_frame_publish(frame, &options, &error), &error);
	return 0;
}

static void publish_many(struct rig *rig, unsigned count)
{
	uint64_t limit = clock_now() + AMPLE_TIME;

	while (count) {
		int rc = try_publish(rig);

		check((rc == 0 || rc == -EAGAIN) && clock_now() < limit);
		count -= rc == 0;
		if (rc < 0)
			settle(&rig->environment, 1);
	}
}

static void take_one(struct rig *rig, uint64_t sequence, uint64_t lost_before)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frame;
	struct pl_error error;
	int rc = pl_subscriber_take(rig->subscriber, &frame, 1, AMPLE_TIME, &error);

	check_ok(rc < 0 ? rc : 0, &error);
	check(pl_frame_query(frame, &info) == 0 && info.sequence == sequence && info.lost_before == lost_before);
	pattern_check(info.data, info.length, sequence, 0);
	pl_frame_release(frame);
}

static void take_in_order(struct rig *rig, uint64_t first, uint64_t end)
{
	for (; first < end; first++)
		take_one(rig, first, 0);
}

/* Waits until the subscriber has begun to fetch the sequences before `next`. Returns the accounts. */
static struct pl_accounts await_fetched(struct rig *rig, uint64_t next)
{
	uint64_t limit = clock_now() + AMPLE_TIME;

	for (;;) {
		struct pl_accounts accounts = exact_accounts(rig->subscriber);

		if (accounts.next >= next)
			return accounts;
		check(clock_now() < limit);
		settle(&rig->environment, 1);
	}
}

/*
 * Publishes SLOTS frames, which the subscriber fetches, and as many during a pause. A paused subscriber holds only the slots of
 * frames that are not ready, so all fetched frames are ready in the end.
 */
static void publish_around_pause(struct rig *rig)
{
	struct pl_accounts accounts;

	publish_many(rig, SLOTS);
	await_fetched(rig, SLOTS);
	pl_subscriber_pause(rig->subscriber, true);
	publish_many(rig, SLOTS);
	accounts = await_fetched(rig, 2 * SLOTS);
	check(accounts.pending == SLOTS && accounts.unwanted == SLOTS);
	pl_subscriber_pause(rig->subscriber, false);
}

/*
 * The subscriber fetches all frames of the ring, although its queue holds one. The publisher gets no further than without that:
 * only the slot of the frame in the queue is free.
 */
static void test_ahead_keeps_slots(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct rig rig;

	options.overflow = PL_OVERFLOW_BLOCK;
	rig_open(&rig, argument, UINT64_MAX, &options);
	publish_many(&rig, SLOTS);
	check(await_fetched(&rig, SLOTS).pending == SLOTS);
	publish_many(&rig, QUEUE);
	check(await_fetched(&rig, SLOTS + QUEUE).pending == SLOTS + QUEUE);
	check(try_publish(&rig) == -EAGAIN);
	settle(&rig.environment, 1);
	check(try_publish(&rig) == -EAGAIN);
	take_in_order(&rig, 0, 1);
	publish_many(&rig, 1);
	check(try_publish(&rig) == -EAGAIN);
	take_in_order(&rig, 1, SLOTS + QUEUE + 1);
	check(exact_accounts(rig.subscriber).delivered == SLOTS + QUEUE + 1);
	rig_close(&rig);
}

/* Frames beyond the queue use no more memory than `memory_bytes`: with the least that is possible there are none. */
static void test_ahead_fits_memory(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct rig rig;

	options.overflow = PL_OVERFLOW_BLOCK;
	options.held = 1;
	/* Slots are whole pages. Cursors and descriptors have a page. */
	options.memory_bytes = (QUEUE + 1) * 12288 + 4096;
	rig_open(&rig, argument, UINT64_MAX, &options);
	publish_many(&rig, SLOTS);
	check(await_fetched(&rig, QUEUE).pending == QUEUE);
	settle(&rig.environment, 1);
	check(exact_accounts(rig.subscriber).next == QUEUE);
	take_in_order(&rig, 0, SLOTS);
	rig_close(&rig);
}

/* The window holds at most `ahead` frames beyond the queue, also of a larger ring. */
static void check_limit(const struct setting *setting, unsigned ahead, size_t slot_bytes)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	unsigned slots = ahead + QUEUE + 10;
	struct rig rig;

	options.overflow = PL_OVERFLOW_BLOCK;
	rig_open_ring(&rig, setting, UINT64_MAX, slots, slot_bytes);
	rig_subscribe(&rig, rig.environment.near_peer, &options);
	publish_many(&rig, slots);
	await_fetched(&rig, ahead + QUEUE);
	settle(&rig.environment, 1);
	check(exact_accounts(rig.subscriber).pending == ahead + QUEUE);
	for (uint64_t sequence = 0; sequence < slots; sequence++) {
		take_one(&rig, sequence, 0);
		check(exact_accounts(rig.subscriber).pending <= ahead + QUEUE);
	}
	rig_close(&rig);
}

static void test_ahead_limit(void *argument)
{
	check_limit(argument, AHEAD, SLOT);
}

static void test_ahead_bytes(void *argument)
{
	check_limit(argument, LARGE_AHEAD, LARGE_SLOT);
}

/* An allocator that refuses large blocks to one thread. */
struct refusal {
	pthread_t thread;
	size_t least; /* bytes of the smallest refused block */
	atomic_uint count;
};

static void *allocate_or_refuse(size_t size, void *user)
{
	struct refusal *refusal = user;

	if (!pthread_equal(pthread_self(), refusal->thread) || size < refusal->least)
		return malloc(size);
	atomic_fetch_add(&refusal->count, 1);
	return NULL;
}

/* Without memory for frames beyond the queue the subscriber has a queue alone. */
static void test_ahead_without_memory(void *argument)
{
	struct refusal refusal = { .thread = pthread_self(), .least = SIZE_MAX };
	struct pl_allocator allocator = { allocate_or_refuse, pl_system_allocator.reallocate,
					  pl_system_allocator.release, &refusal };
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_options given = setting_options(argument);
	struct pl_peer *peer, *other;
	struct pl_context *context;
	struct rig rig;

	rig_open_publisher(&rig, argument, UINT64_MAX, AHEAD);
	given.allocator = &allocator;
	context = context_open_with(&given);
	connect_pair(&rig.environment, context, rig.environment.listener, &peer, &other);
	options.overflow = PL_OVERFLOW_BLOCK;
	/* The states of 67 frames have more bytes, and those of the queue alone have fewer. */
	refusal.least = 8192;
	rig_subscribe(&rig, peer, &options);
	check(refusal.count == 1);
	publish_many(&rig, AHEAD);
	check(await_fetched(&rig, QUEUE).pending == QUEUE);
	take_in_order(&rig, 0, AHEAD);
	pl_subscriber_close(rig.subscriber);
	rig.subscriber = NULL;
	pl_peer_close(other);
	pl_close(context);
	rig_close(&rig);
}

/* A subscriber that cannot block fetches no frame beyond its queue. */
static void test_no_ahead_without_block(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_accounts accounts;
	struct rig rig;

	options.overflow = PL_OVERFLOW_DROP_NEWEST;
	rig_open(&rig, argument, UINT64_MAX, &options);
	publish_many(&rig, SLOTS);
	accounts = await_fetched(&rig, SLOTS);
	check(accounts.pending == QUEUE && accounts.rejected == SLOTS - QUEUE);
	rig_close(&rig);
}

/* After the publisher's patience, frames beyond the queue make room for newer ones as those of the queue do. */
static void test_ahead_after_demotion(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_accounts accounts;
	struct pl_stream_frame *frame;
	uint64_t published = 3 * SLOTS, limit = clock_now() + AMPLE_TIME;
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;
	struct rig rig;

	options.overflow = PL_OVERFLOW_BLOCK;
	rig_open(&rig, argument, 10 * MS, &options);
	publish_many(&rig, (unsigned)published);
	do {
		check(clock_now() < limit && pl_subscriber_query(rig.subscriber, &info) == 0);
		settle(&rig.environment, 1);
	} while (!info.demoted);
	/* The subscriber drops frames once a newer one needs room. */
	publish_many(&rig, 1);
	accounts = await_fetched(&rig, ++published);
	check(accounts.pending == QUEUE && accounts.dropped + accounts.lapped == published - QUEUE);
	check(pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, NULL) == 1);
	rig_close(&rig);
}

/* A paused subscriber holds no slots back, also not those of frames beyond its queue. */
static void test_ahead_paused(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct rig rig;

	options.overflow = PL_OVERFLOW_BLOCK;
	rig_open(&rig, argument, UINT64_MAX, &options);
	publish_around_pause(&rig);
	take_in_order(&rig, 0, SLOTS);
	publish_many(&rig, 1);
	take_one(&rig, 2 * SLOTS, SLOTS);
	rig_close(&rig);
}

/* More frames than the queue holds are ready when another subscription begins. Its reports are right, and no frame is lost. */
static void test_ahead_attach(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct pl_accounts accounts;
	struct pl_error error;
	struct rig rig;

	options.overflow = PL_OVERFLOW_BLOCK;
	rig_open(&rig, argument, UINT64_MAX, &options);
	publish_around_pause(&rig);
	check_ok(pl_subscriber_attach(rig.subscriber, rig.environment.near_peer, AMPLE_TIME, &error), &error);
	take_in_order(&rig, 0, SLOTS);
	publish_many(&rig, 1);
	take_one(&rig, 2 * SLOTS, SLOTS);
	/* Each lap of the ring needs reports of the new subscription. */
	for (uint64_t sequence = 2 * SLOTS + 1; sequence < 5 * SLOTS; sequence++) {
		publish_many(&rig, 1);
		take_one(&rig, sequence, 0);
	}
	accounts = exact_accounts(rig.subscriber);
	check(accounts.delivered == 4 * SLOTS && accounts.unwanted == SLOTS && accounts.missed == 0);
	check(pl_publisher_query(rig.publisher, &info) == 0 && info.blocking == 1);
	rig_close(&rig);
}

/* The publisher closes while more frames are ready than the queue holds: these can be taken, and the rest is missed. */
static void test_ahead_closed_publisher(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_accounts accounts;
	struct pl_stream_frame *frame;
	uint64_t delivered = SLOTS, limit = clock_now() + AMPLE_TIME;
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;
	struct pl_error error;
	struct rig rig;
	int rc;

	options.overflow = PL_OVERFLOW_BLOCK;
	rig_open(&rig, argument, UINT64_MAX, &options);
	publish_around_pause(&rig);
	publish_many(&rig, SLOTS);
	pl_publisher_close(rig.publisher);
	rig.publisher = NULL;
	do {
		check(clock_now() < limit && pl_subscriber_query(rig.subscriber, &info) == 0);
		settle(&rig.environment, 1);
	} while (info.stream.state != PL_STREAM_FAILED);
	take_in_order(&rig, 0, SLOTS);
	/* The window had room for `QUEUE` frames more, which may have been read. */
	while ((rc = pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, &error)) == 1) {
		delivered++;
		pl_frame_release(frame);
	}
	check(rc == -ENODATA);
	accounts = exact_accounts(rig.subscriber);
	check(delivered <= SLOTS + QUEUE && accounts.delivered == delivered && accounts.unwanted == SLOTS);
	check(accounts.missed == 2 * SLOTS - delivered && accounts.pending == 0 && accounts.next == 3 * SLOTS);
	rig_close(&rig);
}

#define ALL(name, function) \
	{ name " tcp", function, &frames_tcp_threads, 20 }, { name " local", function, &frames_local_threads, 20 }, \
	{ \
		name " tcp manual", function, &frames_tcp_manual, 20 \
	}

int main(void)
{
	static const struct test_case cases[] = {
		ALL("slots", test_ahead_keeps_slots),
		ALL("memory", test_ahead_fits_memory),
		ALL("limit", test_ahead_limit),
		ALL("bytes", test_ahead_bytes),
		{ "without memory tcp", test_ahead_without_memory, &frames_tcp_threads, 20 },
		{ "without memory local", test_ahead_without_memory, &frames_local_threads, 20 },
		ALL("no block", test_no_ahead_without_block),
		ALL("demotion", test_ahead_after_demotion),
		ALL("paused", test_ahead_paused),
		ALL("attach", test_ahead_attach),
		ALL("closed publisher", test_ahead_closed_publisher),
	};

	return cases_run("stream ahead", cases, sizeof(cases) / sizeof(cases[0]));
}
