/* SPDX-License-Identifier: BSD-2-Clause */
/* Last sequences of a publisher whose process dies before it can tell of them. */
#include <signal.h>
#include <unistd.h>

#include <peerlane/stream.h>

#include "stream/subscriber.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"
#include "support/process.h"
#include "support/publishing.h"

#define BYTES 64u
#define SLOTS 4u
#define FRAMES 10u

static const struct setting local_threads = {
	.name = "thread", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

/* Publishes all frames once it is told to, and waits for its end. It announces none of them: its engine is held up. */
static void child_publish(const void *argument, int to, int from)
{
	struct pl_context *context = context_open(argument);
	struct pl_publisher *publisher = open_blocking_publisher(context, "cam0", BYTES, SLOTS);
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_listener *listener;
	struct pl_error error;
	struct pl_peer *peer;
	char address[96], told;

	listener = listener_open(argument, context, address);
	options.length = BYTES;
	check(write(to, address, sizeof(address)) == sizeof(address));
	check_ok(pl_accept(listener, AMPLE_TIME, &peer, &error), &error);
	check(read(from, &told, 1) == 1);
	pl_engine_lock(peer->home);
	for (unsigned i = 0; i < FRAMES; i++) {
		struct pl_frame_info info;
		struct pl_stream_frame *frame = loan_frame(publisher, &info);

		check_ok(pl_frame_publish(frame, &options, &error), &error);
	}
	check(write(to, "p", 1) == 1);
	for (;;)
		pause();
}

static void ring_tells_last_sequences(void *argument)
{
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;
	struct publishing_child child;
	struct pl_subscriber *subscriber;
	struct pl_stream_frame *frame;
	struct pl_context *context;
	struct pl_error error;
	struct pl_peer *peer;
	char told;

	require_second_mapping();
	publishing_child_start(&child, child_publish, argument);
	context = context_open(argument);
	check_ok(pl_connect(context, child.address, AMPLE_TIME, &peer, &error), &error);
	check_ok(pl_subscriber_open(peer, "cam0", NULL, AMPLE_TIME, &subscriber, &error), &error);
	check(write(child.to, "p", 1) == 1);
	check(read(child.from, &told, 1) == 1);
	process_kill(child.pid, SIGKILL);
	check_number(pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error), -ENOTCONN);
	check_ok(pl_subscriber_query(subscriber, &info), NULL);
	check(!info.connected);
	check_number(info.stream.published, FRAMES);
	check_number(info.accounts.next, FRAMES);
	check_number(info.accounts.missed, FRAMES);
	exact_accounts(subscriber);
	pl_subscriber_close(subscriber);
	pl_close(context);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "ring tells last sequences", ring_tells_last_sequences, (void *)&local_threads, 120 },
	};

	return cases_run("lost streams", cases, sizeof(cases) / sizeof(cases[0]));
}
