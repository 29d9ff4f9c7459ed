/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Announcements to subscribers that have enough to read: they wait for reports, for a loan that waits, or for a time. And reports,
 * which come in quarters of the ring unless the publisher asks for them.
 */
#include <string.h>

#include <peerlane/stream.h>

#include "core/peer.h"
#include "stream/publisher.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"
#include "support/full_channel.h"

#define BYTES 64u
#define SLOTS 16u
#define HALF (SLOTS / 2)
/* Rounds of progress in which a report that must not come has time to arrive. */
#define ROUNDS 200u
/* Frames of a test: some more than half a ring. */
#define FRAMES 12u

/* A publisher in `far`, and a subscriber in `near`. Only the test drives them, so nothing is reported before it does. */
struct rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct pl_subscriber *subscriber;
	const struct pl_subscription *subscription; /* at the publisher */
	uint32_t sent;                              /* announcements of it when the test began */
};

static void rig_subscribe(struct rig *rig, const struct pl_subscriber_options *options)
{
	struct scenario_environment *environment = &rig->environment;
	struct pl_error error;
	struct pump pump;

	pump_start(environment, &pump, environment->far);
	check_ok(pl_subscriber_open(environment->near_peer, "cam0", options, AMPLE_TIME, &rig->subscriber, &error),
		 &error);
	pump_stop(&pump);
	rig->subscription = pl_list_first(&rig->publisher->subscriptions, struct pl_subscription, link);
	rig->sent = rig->subscription->sent;
}

static void rig_open(struct rig *rig, const struct setting *setting, unsigned slots, size_t metadata)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;

	memset(rig, 0, sizeof(*rig));
	environment_open(&rig->environment, setting);
	options.slot_bytes = BYTES;
	options.slots = slots;
	options.loans = slots - 1;
	options.metadata_bytes = metadata;
	options.allow_block = true;
	options.patience = UINT64_MAX;
	check_ok(pl_publisher_open(rig->environment.far, "cam0", &options, &rig->publisher, &error), &error);
}

/* Opens a subscriber that holds slots back. */
static void rig_open_blocking(struct rig *rig, unsigned slots, size_t metadata)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;

	rig_open(rig, &frames_tcp_manual, slots, metadata);
	options.overflow = PL_OVERFLOW_BLOCK;
	rig_subscribe(rig, &options);
}

static void rig_close(struct rig *rig)
{
	pl_subscriber_close(rig->subscriber);
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
}

static void publish_many(struct rig *rig, unsigned count)
{
	while (count--)
		publish_filled(rig->publisher, BYTES);
}

/* Checks how many frames the subscription knows, and by how many announcements. */
#define check_told(rig, frames, announcements) \
	do { \
		check_number((rig)->subscription->told, frames); \
		check_number((rig)->subscription->sent - (rig)->sent, announcements); \
	} while (0)

/* Forgets the time after which the publisher tells all, so that a test sees what else makes it tell. */
static void stop_timer(struct rig *rig)
{
	for (unsigned i = 0; i < rig->environment.far->engine_count; i++) {
		struct pl_announcer *announcer = &rig->publisher->announcers[i];

		pl_engine_lock(announcer->engine);
		pl_timer_clear(announcer->engine, &announcer->timer);
		pl_engine_unlock(announcer->engine);
	}
}

static void take_frame(struct rig *rig, uint64_t sequence)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frame;

	progress_until(&rig->environment, pl_subscriber_take(rig->subscriber, &frame, 1, 0, NULL) == 1);
	check(pl_frame_query(frame, &info) == 0 && info.sequence == sequence);
	pl_frame_release(frame);
}

/* Half a ring of frames is told one by one, as soon as each is published. The others wait for the loan that waits. */
static void test_loan(void *argument)
{
	struct pl_stream_frame *frame;
	struct rig rig;

	(void)argument;
	rig_open_blocking(&rig, SLOTS, 0);
	for (unsigned i = 1; i <= HALF; i++) {
		publish_many(&rig, 1);
		check_told(&rig, i, i);
	}
	publish_many(&rig, HALF);
	check_told(&rig, HALF, HALF);
	check_number(pl_publisher_loan(rig.publisher, 0, &frame, NULL), -EAGAIN);
	check_told(&rig, SLOTS, HALF + 1);
	for (unsigned i = 0; i < SLOTS; i++)
		take_frame(&rig, i);
	rig_close(&rig);
}

/* A report tells the publisher that the subscriber knows less than half a ring. */
static void test_report(void *argument)
{
	struct rig rig;

	(void)argument;
	rig_open_blocking(&rig, SLOTS, 0);
	publish_many(&rig, FRAMES);
	check_told(&rig, HALF, HALF);
	stop_timer(&rig);
	progress_until(&rig.environment, rig.subscription->taken > 0);
	check_told(&rig, FRAMES, HALF + 1);
	for (unsigned i = 0; i < FRAMES; i++)
		take_frame(&rig, i);
	rig_close(&rig);
}

/* A subscriber that reports nothing, as its program takes nothing, is told after some time. */
static void test_time(void *argument)
{
	struct pl_completion completion;
	struct rig rig;

	(void)argument;
	rig_open_blocking(&rig, SLOTS, 0);
	publish_many(&rig, FRAMES);
	check_told(&rig, HALF, HALF);
	while (rig.subscription->told < FRAMES)
		check_number(pl_poll(rig.environment.far, &completion, 1), 0);
	check_told(&rig, FRAMES, HALF + 1);
	rig_close(&rig);
}

/* The smallest rings: two frames are told at once. */
static void test_small_rings(void *argument)
{
	static const unsigned told[][2] = { { 2, 2 }, { 3, 2 }, { 4, 2 }, { 6, 3 } };
	struct rig rig;

	(void)argument;
	for (unsigned i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
		rig_open_blocking(&rig, told[i][0], 0);
		publish_many(&rig, told[i][0]);
		check_told(&rig, told[i][1], told[i][1]);
		rig_close(&rig);
	}
}

/* Descriptors that wait fit into one announcement: five of 768 bytes, four of 1,024. One of 3,200 bytes never waits. */
static void test_descriptors(void *argument)
{
	static const struct {
		size_t metadata;
		unsigned stride, fit;
	} rings[] = { { 640, 768, 5 }, { 896, 1024, 4 }, { 3072, 3200, 1 } };
	struct rig rig;

	(void)argument;
	for (unsigned i = 0; i < sizeof(rings) / sizeof(rings[0]); i++) {
		rig_open_blocking(&rig, SLOTS, rings[i].metadata);
		check_number(rig.publisher->header.geometry.descriptor_stride, rings[i].stride);
		publish_many(&rig, HALF + rings[i].fit - 1);
		check_told(&rig, HALF, HALF);
		publish_many(&rig, 1);
		check_told(&rig, HALF + rings[i].fit, HALF + 1);
		rig_close(&rig);
	}
}

/* A subscriber that can be lapped reports nothing, so no frame waits. */
static void test_lappable(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct rig rig;

	(void)argument;
	rig_open(&rig, &frames_tcp_manual, SLOTS, 0);
	rig_subscribe(&rig, &options);
	publish_many(&rig, FRAMES);
	check_told(&rig, FRAMES, FRAMES);
	rig_close(&rig);
}

/* A program may release frames in place only after it has got others. */
static void test_in_place(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct rig rig;

	(void)argument;
	rig_open(&rig, &frames_local_manual, SLOTS, 0);
	options.in_place = true;
	rig_subscribe(&rig, &options);
	publish_many(&rig, FRAMES);
	check_told(&rig, FRAMES, FRAMES);
	rig_close(&rig);
}

/* The end of the stream is told at once, with all frames. */
static void test_end(void *argument)
{
	struct rig rig;

	(void)argument;
	rig_open_blocking(&rig, SLOTS, 0);
	publish_many(&rig, FRAMES);
	check_number(pl_publisher_end(rig.publisher, 0, NULL), 0);
	check_told(&rig, FRAMES, HALF + 1);
	for (unsigned i = 0; i < FRAMES; i++)
		take_frame(&rig, i);
	rig_close(&rig);
}

/* The publisher closes: both ends count the same frames. */
static void test_close(void *argument)
{
	struct pl_accounts accounts;
	struct rig rig;

	(void)argument;
	rig_open_blocking(&rig, SLOTS, 0);
	publish_many(&rig, FRAMES);
	check_told(&rig, HALF, HALF);
	pl_publisher_close(rig.publisher);
	rig.publisher = NULL;
	progress_until(&rig.environment, exact_accounts(rig.subscriber).next == FRAMES);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.missed + accounts.pending == FRAMES);
	rig_close(&rig);
}

static bool engine_has_timer(const struct pl_engine *engine, const struct pl_timer *timer)
{
	for (unsigned i = 0; i < PL_WHEEL_SLOTS; i++)
		pl_list_for_each(at, &engine->wheel.slots[i])
			if (at == &timer->link)
				return true;
	return false;
}

/* The control channel is full, so the rest is not told. The timer of the publisher, which is gone, must not wait for room. */
static void test_close_full(void *argument)
{
	const struct pl_timer *timer;
	struct pl_engine *engine;
	struct rig rig;

	(void)argument;
	rig_open_blocking(&rig, SLOTS, 0);
	publish_many(&rig, FRAMES);
	check_told(&rig, HALF, HALF);
	engine = rig.environment.far_peer->home;
	timer = &pl_announcer_of(rig.publisher, engine)->timer;
	pl_engine_lock(engine);
	full_channel_fill(rig.environment.far_peer);
	check(engine_has_timer(engine, timer));
	pl_engine_unlock(engine);
	pl_publisher_close(rig.publisher);
	check(!engine_has_timer(engine, timer));
	rig.publisher = NULL;
	rig_close(&rig);
}

static void progress_much(struct rig *rig)
{
	for (unsigned i = 0; i < ROUNDS; i++)
		progress(&rig->environment);
}

/* Publishes and takes a frame. Its slot is free then, and `taken` sequences are reported. */
static void pass_frame(struct rig *rig, uint64_t sequence, uint64_t taken)
{
	publish_many(rig, 1);
	take_frame(rig, sequence);
	progress_until(&rig->environment, rig->subscription->taken >= taken);
	progress_much(rig);
	check_number(rig->subscription->taken, taken);
}

/* Slots that nobody needs are reported in quarters of the ring. */
static void test_quarters(void *argument)
{
	struct rig rig;

	(void)argument;
	rig_open_blocking(&rig, SLOTS, 0);
	/* The answer to 8 announcements comes with each second report. */
	for (unsigned i = 0; i < 3 * SLOTS; i++)
		pass_frame(&rig, i, (i + 1) / 4 * 4);
	rig_close(&rig);
}

/* A publisher of an earlier release does not ask. */
static void test_earlier_publisher(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct rig rig;

	(void)argument;
	rig_open(&rig, &frames_tcp_manual, SLOTS, 0);
	rig.environment.near_peer->asked_reports = false;
	options.overflow = PL_OVERFLOW_BLOCK;
	rig_subscribe(&rig, &options);
	for (unsigned i = 0; i < SLOTS; i++)
		pass_frame(&rig, i, i + 1);
	rig_close(&rig);
}

/* A subscriber of an earlier release is not asked: it reports at once. */
static void test_earlier_subscriber(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_stream_frame *frame;
	struct rig rig;

	(void)argument;
	rig_open(&rig, &frames_tcp_manual, SLOTS, 0);
	rig.environment.far_peer->asked_reports = false;
	options.overflow = PL_OVERFLOW_BLOCK;
	rig_subscribe(&rig, &options);
	publish_many(&rig, SLOTS);
	check_number(pl_publisher_loan(rig.publisher, 0, &frame, NULL), -EAGAIN);
	check_told(&rig, SLOTS, HALF + 1);
	check(!rig.subscription->asked);
	rig_close(&rig);
}

/* Half a ring that is not reported: the publisher asks. With a queue of one frame, one slot is free. */
static void test_half(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct rig rig;

	(void)argument;
	rig_open(&rig, &frames_tcp_manual, 8, 0);
	options.overflow = PL_OVERFLOW_BLOCK;
	options.queue = 1;
	rig_subscribe(&rig, &options);
	publish_many(&rig, 3);
	progress_until(&rig.environment, exact_accounts(rig.subscriber).next == 3);
	progress_much(&rig);
	check_number(rig.subscription->taken, 0);
	publish_many(&rig, 1);
	check(rig.subscription->asked);
	progress_until(&rig.environment, rig.subscription->taken == 1);
	/* The publisher asks no more. */
	for (unsigned i = 0; i < 4; i++)
		take_frame(&rig, i);
	progress_until(&rig.environment, rig.subscription->taken == 4);
	publish_many(&rig, 1);
	check(!rig.subscription->asked);
	take_frame(&rig, 4);
	progress_much(&rig);
	check_number(rig.subscription->taken, 4);
	rig_close(&rig);
}

/* Makes loans until a subscriber that has not reported the slots of `taken` frames holds one back. */
static void loan_all(struct rig *rig, struct pl_stream_frame *loans[SLOTS], unsigned published)
{
	struct pl_stream_frame *none;
	struct pl_frame_info info;

	for (unsigned i = published; i < SLOTS; i++)
		loans[i] = loan_frame(rig->publisher, &info);
	check_number(pl_publisher_loan(rig->publisher, 0, &none, NULL), -EAGAIN);
	check(rig->subscription->asked);
}

/* A program with many loans out needs each slot at once, although its subscriber has read all frames: no loan is refused. */
static void test_many_loans(void *argument)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_stream_frame *loans[SLOTS - 1];
	struct pl_frame_info info;
	struct pl_error error;
	struct rig rig;

	(void)argument;
	rig_open_blocking(&rig, SLOTS, 0);
	for (unsigned i = 0; i < SLOTS - 1; i++)
		loans[i] = loan_frame(rig.publisher, &info);
	for (unsigned i = 0; i < SLOTS - 1; i++) {
		check_ok(pl_frame_publish(loans[i], &options, &error), &error);
		take_frame(&rig, i);
		/* The subscriber reports the slot although no loan waits for it. */
		progress_until(&rig.environment, rig.subscription->taken > i);
		check_ok(pl_publisher_loan(rig.publisher, 0, &loans[i], &error), &error);
	}
	rig_close(&rig);
}

static void await_loan(struct rig *rig)
{
	struct pl_stream_frame *frame;

	progress_until(&rig->environment, pl_publisher_loan(rig->publisher, 0, &frame, NULL) == 0);
}

/* A loan waits for slots that are free, and not reported: the publisher asks. */
static void test_loan_asks(void *argument)
{
	struct pl_stream_frame *loans[SLOTS];
	struct rig rig;

	(void)argument;
	rig_open_blocking(&rig, SLOTS, 0);
	pass_frame(&rig, 0, 0);
	pass_frame(&rig, 1, 0);
	loan_all(&rig, loans, 2);
	check_told(&rig, 2, 3);
	await_loan(&rig);
	rig_close(&rig);
}

/* The next frame does not take the question back, as the loan goes on to wait. */
static void test_loan_goes_on(void *argument)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_stream_frame *loans[SLOTS];
	struct pl_error error;
	struct rig rig;

	(void)argument;
	rig_open_blocking(&rig, SLOTS, 0);
	publish_many(&rig, 2);
	loan_all(&rig, loans, 2);
	check_ok(pl_frame_publish(loans[2], &options, &error), &error);
	check(rig.subscription->asked && rig.subscription->told == 3);
	await_loan(&rig);
	rig_close(&rig);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "loan that waits", test_loan, NULL, 60 },
		{ "report", test_report, NULL, 60 },
		{ "time", test_time, NULL, 60 },
		{ "small rings", test_small_rings, NULL, 60 },
		{ "descriptors", test_descriptors, NULL, 60 },
		{ "lappable", test_lappable, NULL, 60 },
		{ "in place", test_in_place, NULL, 60 },
		{ "end", test_end, NULL, 60 },
		{ "close", test_close, NULL, 60 },
		{ "close with a full channel", test_close_full, NULL, 60 },
		{ "quarters", test_quarters, NULL, 60 },
		{ "earlier publisher", test_earlier_publisher, NULL, 60 },
		{ "earlier subscriber", test_earlier_subscriber, NULL, 60 },
		{ "half", test_half, NULL, 60 },
		{ "many loans", test_many_loans, NULL, 60 },
		{ "loan asks", test_loan_asks, NULL, 60 },
		{ "loan goes on", test_loan_goes_on, NULL, 60 },
	};

	return cases_run("stream busy", cases, sizeof(cases) / sizeof(cases[0]));
}
