/* SPDX-License-Identifier: BSD-2-Clause */
/* What happens in the middle of pl_subscriber_open() and pl_subscriber_attach(): hooks of the allocator. */
#include <peerlane/stream.h>

#include "stream/publisher.h"
#include "stream/subscriber.h"
#include "support/allocation_hook.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"

#define BYTES 64u
#define LARGE 9000u
#define SLOTS 8u
#define QUEUE 4u
#define HELD 2u

static const struct setting setting = {
	.name = "attach", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

struct second_call {
	struct pl_subscriber *subscriber;
	struct pl_peer *peer;
	int status;
	struct pl_error error;
};

static void attach_meanwhile(void *argument)
{
	struct second_call *call = argument;

	call->status = pl_subscriber_attach(call->subscriber, call->peer, AMPLE_TIME, &call->error);
}

static void environment_open_hooked(struct scenario_environment *environment, const struct allocation_hook *hook)
{
	struct pl_options options = setting_options(&setting);

	options.allocator = &hook->allocator;
	*environment = (struct scenario_environment){ .setting = &setting };
	environment->near = context_open_with(&options);
	environment->far = context_open(&setting);
	environment->listener = listener_open(&setting, environment->far, environment->address);
	connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
		     &environment->far_peer);
}

/* The second call comes while the first one allocates room for its answer. */
static void attach_twice_at_once(void *unused)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct pl_stream_frame *frame;
	struct pl_peer *other, *far;
	struct allocation_hook hook;
	struct second_call second;
	struct pl_error error;

	(void)unused;
	allocation_hook_init(&hook);
	environment_open_hooked(&environment, &hook);
	connect_pair(&environment, environment.near, environment.listener, &other, &far);
	options.slot_bytes = BYTES;
	check_ok(pl_publisher_open(environment.far, "cam0", &options, &publisher, &error), &error);
	check_ok(pl_subscriber_open(environment.near_peer, "cam0", NULL, AMPLE_TIME, &second.subscriber, &error),
		 &error);
	second.peer = other;
	allocation_hook_arm(&hook, sizeof(struct pl_stream_message), attach_meanwhile, &second);
	check_ok(pl_subscriber_attach(second.subscriber, environment.near_peer, AMPLE_TIME, &error), &error);
	allocation_hook_check(&hook);
	check_number(second.status, -EBUSY);
	check_text(second.error.id, "STREAM-ATTACHING");
	/* The subscriber has the first connection, and the next call succeeds. */
	publish_filled(publisher, BYTES);
	check_number(pl_subscriber_take(second.subscriber, &frame, 1, AMPLE_TIME, &error), 1);
	pl_frame_release(frame);
	check_ok(pl_subscriber_attach(second.subscriber, other, AMPLE_TIME, &error), &error);
	pl_peer_close(environment.near_peer);
	pl_peer_close(other);
	environment.near_peer = NULL;
	pl_subscriber_close(second.subscriber);
	pl_publisher_close(publisher);
	environment_close(&environment);
}

static struct pl_publisher *open_with_slots(struct pl_context *context, size_t slot_bytes)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_publisher *publisher;
	struct pl_error error;

	options.slot_bytes = slot_bytes;
	check_ok(pl_publisher_open(context, "cam0", &options, &publisher, &error), &error);
	return publisher;
}

static void close_publisher(void *publisher)
{
	pl_publisher_close(publisher);
}

static void await_disconnected(struct pl_subscriber *subscriber)
{
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;

	do {
		sleep_ms(1);
		check_number(pl_subscriber_query(subscriber, &info), 0);
	} while (info.connected);
}

/* Takes two large frames, which must not share memory. */
static void take_large_frames(struct pl_publisher *publisher, struct pl_subscriber *subscriber)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frames[2];
	struct pl_error error;

	for (unsigned i = 0; i < 2; i++)
		publish_filled(publisher, LARGE);
	for (unsigned i = 0; i < 2; i++)
		check_number(pl_subscriber_take(subscriber, &frames[i], 1, AMPLE_TIME, &error), 1);
	for (unsigned i = 0; i < 2; i++) {
		check_number(pl_frame_query(frames[i], &info), 0);
		pattern_check(info.data, LARGE, info.sequence, 0);
		pl_frame_release(frames[i]);
	}
}

/*
 * The subscriber allocates memory for an instance with small slots, whose publisher is closed then. The next one has large slots
 * again, for which that memory is too small.
 */
static void attach_after_failure(void *unused)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct scenario_environment environment;
	struct pl_subscriber *subscriber;
	struct pl_publisher *publisher;
	struct allocation_hook hook;
	struct pl_error error;

	(void)unused;
	allocation_hook_init(&hook);
	environment_open_hooked(&environment, &hook);
	options.queue = QUEUE;
	options.held = HELD;
	publisher = open_with_slots(environment.far, LARGE);
	check_ok(pl_subscriber_open(environment.near_peer, "cam0", &options, AMPLE_TIME, &subscriber, &error), &error);
	pl_publisher_close(publisher);
	await_disconnected(subscriber);
	publisher = open_with_slots(environment.far, BYTES);
	allocation_hook_arm(&hook, (QUEUE + HELD) * sizeof(struct pl_stream_frame), close_publisher, publisher);
	check(pl_subscriber_attach(subscriber, environment.near_peer, AMPLE_TIME, &error) < 0);
	allocation_hook_check(&hook);
	publisher = open_with_slots(environment.far, LARGE);
	check_ok(pl_subscriber_attach(subscriber, environment.near_peer, AMPLE_TIME, &error), &error);
	check_number(pl_subscriber_take(subscriber, &(struct pl_stream_frame *){ NULL }, 1, AMPLE_TIME, &error),
		     -ESTALE);
	take_large_frames(publisher, subscriber);
	pl_subscriber_close(subscriber);
	pl_publisher_close(publisher);
	environment_close(&environment);
}

static void set_slots(struct pl_publisher *publisher, uint32_t slots)
{
	pl_lock_take(&publisher->lock);
	publisher->header.geometry.slots = slots;
	pl_lock_release(&publisher->lock);
}

static void describe_more_slots(void *publisher)
{
	set_slots(publisher, 2 * SLOTS);
}

/* The publisher describes another ring when the subscription begins than when it was prepared, for which memory is allocated. */
static void described_anew(void *unused)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber_options wanted = PL_SUBSCRIBER_OPTIONS_INIT;
	struct scenario_environment environment;
	struct pl_subscriber *subscriber;
	struct pl_publisher *publisher;
	struct allocation_hook hook;
	struct pl_error error;

	(void)unused;
	allocation_hook_init(&hook);
	environment_open_hooked(&environment, &hook);
	options.slot_bytes = BYTES;
	options.slots = SLOTS;
	wanted.queue = QUEUE;
	wanted.held = HELD;
	check_ok(pl_publisher_open(environment.far, "cam0", &options, &publisher, &error), &error);
	allocation_hook_arm(&hook, (QUEUE + HELD) * sizeof(struct pl_stream_frame), describe_more_slots, publisher);
	check_number(pl_subscriber_open(environment.near_peer, "cam0", &wanted, AMPLE_TIME, &subscriber, &error),
		     -EPROTO);
	allocation_hook_check(&hook);
	check_text(error.id, "STREAM-PROTOCOL");
	set_slots(publisher, SLOTS);
	check_ok(pl_subscriber_open(environment.near_peer, "cam0", &wanted, AMPLE_TIME, &subscriber, &error), &error);
	pl_subscriber_close(subscriber);
	pl_publisher_close(publisher);
	environment_close(&environment);
}

static const struct test_case cases[] = {
	{ "attach-after-failure", attach_after_failure, NULL, 30 },
	{ "attach-twice-at-once", attach_twice_at_once, NULL, 30 },
	{ "described-anew", described_anew, NULL, 30 },
};

int main(void)
{
	return cases_run("stream-attach", cases, PL_ARRAY_SIZE(cases));
}
