/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that announce a frame. The publishing thread tells a single subscriber itself. An engine's thread tells several, and an
 * engine that is stuck holds up no subscriber of another one. A publisher that is closed tells of its last frames.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include <peerlane/stream.h>

#include "stream/publisher.h"
#include "stream/subscriber.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"

#define ENGINES 3u
#define SUBSCRIBERS (2 * ENGINES)
#define FRAMES 200u
#define ROUNDS 30u
#define BYTES 64u

static const struct setting setting = {
	.name = "announce", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

/* Functions of the tasks of announcers, which the wrappers below call. */
static void (*run_announcer)(struct pl_task *task), (*run_spread)(struct pl_task *task);
static pthread_t program;
static atomic_uint runs_of_program;

static void count_run(void)
{
	if (pthread_equal(pthread_self(), program))
		atomic_fetch_add(&runs_of_program, 1);
}

static void counted_announcer(struct pl_task *task)
{
	count_run();
	run_announcer(task);
}

static void counted_spread(struct pl_task *task)
{
	count_run();
	run_spread(task);
}

struct rig {
	struct pl_context *near, *far;
	struct pl_listener *listener;
	char address[96];
	struct pl_publisher *publisher;
	struct pl_peer *peers[SUBSCRIBERS], *far_peers[SUBSCRIBERS];
	struct pl_subscriber *subscribers[SUBSCRIBERS];
	uint64_t published;
};

/* Notes which thread runs the announcers. */
static void watch_announcers(struct pl_publisher *publisher)
{
	program = pthread_self();
	atomic_store(&runs_of_program, 0);
	run_announcer = publisher->announcers[0].task.run;
	run_spread = publisher->announcers[0].spread_task.run;
	for (unsigned i = 0; i < ENGINES; i++) {
		pl_engine_lock(publisher->announcers[i].engine);
		publisher->announcers[i].task.run = counted_announcer;
		publisher->announcers[i].spread_task.run = counted_spread;
		pl_engine_unlock(publisher->announcers[i].engine);
	}
}

static void open_publisher(struct rig *rig)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;

	options.slot_bytes = BYTES;
	check_ok(pl_publisher_open(rig->far, "cam0", &options, &rig->publisher, &error), &error);
	rig->published = 0;
}

/* Subscribes `count` times. The homes of the publisher's peers are its engines in turn. */
static void subscribe(struct rig *rig, unsigned count)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_error error;

	options.queue = FRAMES;
	for (unsigned i = 0; i < count; i++)
		check_ok(pl_subscriber_open(rig->peers[i], "cam0", &options, AMPLE_TIME, &rig->subscribers[i], &error),
			 &error);
}

static void rig_open(struct rig *rig)
{
	struct pl_options options = setting_options(&setting);
	struct pl_error error;

	memset(rig, 0, sizeof(*rig));
	rig->near = context_open_with(&options);
	options.workers = ENGINES;
	rig->far = context_open_with(&options);
	rig->listener = listener_open(&setting, rig->far, rig->address);
	for (unsigned i = 0; i < SUBSCRIBERS; i++) {
		check_ok(pl_connect(rig->near, rig->address, AMPLE_TIME, &rig->peers[i], &error), &error);
		check_ok(pl_accept(rig->listener, AMPLE_TIME, &rig->far_peers[i], &error), &error);
	}
	open_publisher(rig);
}

static void rig_close(struct rig *rig)
{
	pl_close(rig->near);
	pl_close(rig->far);
}

static void publish_one(struct rig *rig)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info;
	struct pl_stream_frame *frame = loan_frame(rig->publisher, &info);
	struct pl_error error;

	frame_fill(&info, BYTES);
	options.length = BYTES;
	check_ok(pl_frame_publish(frame, &options, &error), &error);
	rig->published++;
}

/* Waits for the last frame. */
static void await_frame(struct rig *rig, struct pl_subscriber *subscriber)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;

	do {
		struct pl_stream_frame *frame;
		struct pl_error error;

		check_number(pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error), 1);
		check_ok(pl_frame_query(frame, &info), NULL);
		pl_frame_release(frame);
	} while (info.sequence + 1 < rig->published);
}

static void several_subscribers(void *argument)
{
	struct rig rig;

	(void)argument;
	rig_open(&rig);
	subscribe(&rig, SUBSCRIBERS);
	watch_announcers(rig.publisher);
	for (unsigned i = 0; i < FRAMES; i++) {
		publish_one(&rig);
		check_number(atomic_load(&runs_of_program), 0);
		/* The engines are idle again then, so that the next publication finds their locks free. */
		for (unsigned j = 0; j < SUBSCRIBERS; j++)
			await_frame(&rig, rig.subscribers[j]);
	}
	for (unsigned i = 0; i < SUBSCRIBERS; i++) {
		struct pl_accounts accounts = exact_accounts(rig.subscribers[i]);

		check_number(accounts.delivered, FRAMES);
	}
	rig_close(&rig);
}

static void one_subscriber(void *argument)
{
	struct rig rig;

	(void)argument;
	rig_open(&rig);
	subscribe(&rig, 1);
	watch_announcers(rig.publisher);
	/* An engine's thread that holds the lock for another reason does it in place of the caller. */
	while (atomic_load(&runs_of_program) < FRAMES) {
		publish_one(&rig);
		await_frame(&rig, rig.subscribers[0]);
	}
	rig_close(&rig);
}

/* The first engine is stuck, as it is in a callback of the program that does not return. */
static void stuck_engine(void *argument)
{
	unsigned others = 0;
	struct rig rig;

	(void)argument;
	rig_open(&rig);
	subscribe(&rig, SUBSCRIBERS);
	pl_engine_lock(rig.far->engines[0]);
	publish_one(&rig);
	for (unsigned i = 0; i < SUBSCRIBERS; i++) {
		if (rig.far_peers[i]->home == rig.far->engines[0])
			continue;
		await_frame(&rig, rig.subscribers[i]);
		others++;
	}
	check_number(others, SUBSCRIBERS - SUBSCRIBERS / ENGINES);
	pl_engine_unlock(rig.far->engines[0]);
	for (unsigned i = 0; i < SUBSCRIBERS; i++)
		if (rig.far_peers[i]->home == rig.far->engines[0])
			await_frame(&rig, rig.subscribers[i]);
	rig_close(&rig);
}

/*
 * A pass that has not begun tells of the next frames, too, so the publishing thread looks at no engine. After 1 ms another engine gets
 * a pass. The test calls with times of its own.
 */
static void pass_not_begun(void *argument)
{
	const uint64_t ms = 1000000, begin = 1000 * ms;
	struct pl_announcer *announcers;
	struct rig rig;

	(void)argument;
	rig_open(&rig);
	subscribe(&rig, SUBSCRIBERS);
	announcers = rig.publisher->announcers;
	/* No pass begins, and all engines are busy: the first one that can tell somebody is chosen. */
	for (unsigned i = 0; i < ENGINES; i++)
		pl_engine_lock(rig.far->engines[i]);
	pl_publisher_announce_frames(rig.publisher, begin);
	check_number(atomic_load(&rig.publisher->handed), begin);
	check(atomic_load(&announcers[0].spread_task.queued));
	atomic_store(&announcers[0].silent, true);
	pl_publisher_announce_frames(rig.publisher, begin + ms - 1);
	check(!atomic_load(&announcers[1].spread_task.queued));
	check_number(atomic_load(&rig.publisher->handed), begin);
	pl_publisher_announce_frames(rig.publisher, begin + ms);
	check(atomic_load(&announcers[1].spread_task.queued));
	check_number(atomic_load(&rig.publisher->handed), begin + ms);
	atomic_store(&announcers[0].silent, false);
	for (unsigned i = 0; i < ENGINES; i++)
		pl_engine_unlock(rig.far->engines[i]);
	/* The passes that begin now make room for others. */
	while (atomic_load(&rig.publisher->handed))
		sched_yield();
	publish_one(&rig);
	for (unsigned i = 0; i < SUBSCRIBERS; i++)
		await_frame(&rig, rig.subscribers[i]);
	rig_close(&rig);
}

/* The publisher is closed while engines announce its last frame. */
static void close_at_once(void *argument)
{
	struct rig rig;

	(void)argument;
	rig_open(&rig);
	for (unsigned round = 0; round < ROUNDS; round++) {
		subscribe(&rig, SUBSCRIBERS);
		for (unsigned i = 0; i < round % 4 + 1; i++)
			publish_one(&rig);
		pl_publisher_close(rig.publisher);
		for (unsigned i = 0; i < SUBSCRIBERS; i++)
			pl_subscriber_close(rig.subscribers[i]);
		open_publisher(&rig);
	}
	rig_close(&rig);
}

/* True if the only subscription gets no announcement before its subscriber has answered. */
static bool answer_is_awaited(struct rig *rig)
{
	struct pl_announcer *announcer = pl_announcer_of(rig->publisher, rig->far_peers[0]->home);
	const struct pl_subscription *subscription;
	bool awaited;

	pl_engine_lock(announcer->engine);
	subscription = pl_list_first(&announcer->subscriptions, struct pl_subscription, home_link);
	awaited = subscription->sent - subscription->answered >= PL_UNANSWERED_MAX;
	pl_engine_unlock(announcer->engine);
	return awaited;
}

/* The publisher is closed while its subscriber has not answered for so long that it was told of no more frames. */
static void last_sequences_are_told(void *argument)
{
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;
	struct pl_subscriber *subscriber;
	struct pl_stream_frame *frame;
	struct pl_error error;
	struct rig rig;

	(void)argument;
	rig_open(&rig);
	subscribe(&rig, 1);
	subscriber = rig.subscribers[0];
	pl_engine_lock(subscriber->engine);
	while (!answer_is_awaited(&rig))
		publish_one(&rig);
	for (unsigned i = 0; i < 5; i++)
		publish_one(&rig);
	pl_publisher_close(rig.publisher);
	pl_engine_unlock(subscriber->engine);
	while (pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error) == 1)
		pl_frame_release(frame);
	check(!strcmp(error.id, "STREAM-ENDED"));
	check_ok(pl_subscriber_query(subscriber, &info), NULL);
	check_number(info.stream.state, PL_STREAM_FAILED);
	check_number(info.stream.published, rig.published);
	check_number(info.accounts.next, rig.published);
	rig_close(&rig);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "several subscribers", several_subscribers, NULL, 120 },
		{ "one subscriber", one_subscriber, NULL, 120 },
		{ "stuck engine", stuck_engine, NULL, 120 },
		{ "pass not begun", pass_not_begun, NULL, 120 },
		{ "close at once", close_at_once, NULL, 120 },
		{ "last sequences are told", last_sequences_are_told, NULL, 120 },
	};

	return cases_run("stream announcements", cases, sizeof(cases) / sizeof(cases[0]));
}
