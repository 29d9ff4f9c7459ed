/* SPDX-License-Identifier: BSD-2-Clause */
/* pl_subscriber_attach() in two threads at once. The second call comes while the first one allocates room for its answer. */
#include <peerlane/stream.h>

#include "stream/subscriber.h"
#include "support/allocation_hook.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"

#define BYTES 64u

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

static const struct test_case cases[] = {
	{ "attach-twice-at-once", attach_twice_at_once, NULL, 30 },
};

int main(void)
{
	return cases_run("stream-attach", cases, PL_ARRAY_SIZE(cases));
}
