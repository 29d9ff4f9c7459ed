/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames in place while both ends are awake: the thread that publishes and the thread that takes make no system call, so they
 * neither send, wake nor sleep. The frames are the publisher's slots, so nothing is copied. The kernel stops a thread that
 * makes a call.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <peerlane/stream.h>

#include "stream/publisher.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"
#include "support/system_call.h"

#define SLOT 64u
/* A quarter of the ring has more frames than the test passes: the subscriber reports free slots in quarters. */
#define SLOTS 40960u
#define FRAMES 10000u
/* Frames after which the publisher has sent all announcements that it may send without an answer. */
#define WARM 40u

static const struct setting awake = {
	.name = "awake", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

/* The system call that a thread was stopped at, plus one. */
static atomic_int trapped;

struct rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct pl_subscriber *subscriber;
	const uint8_t *first; /* address of frame 0 at the subscriber */
	atomic_bool begin;
	atomic_uint ready, done; /* threads */
	bool wakes;              /* mutation: the writer makes a call after each frame */
};

static void trap(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	atomic_store(&trapped, info->si_syscall + 1);
	/* The thread cannot go on: what it asked for did not happen. */
	for (;;)
		;
}

static void rig_open(struct rig *rig)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber_options subscriber = PL_SUBSCRIBER_OPTIONS_INIT;
	struct sigaction action = { .sa_sigaction = trap, .sa_flags = SA_SIGINFO };
	struct pl_error error;

	require_second_mapping();
	memset(rig, 0, sizeof(*rig));
	check(sigaction(SIGSYS, &action, NULL) == 0);
	/* The subscriber looks into the ring itself, also on machines of less than 4 cores. */
	poll_time = SECOND;
	environment_open(&rig->environment, &awake);
	options.slot_bytes = SLOT;
	options.slots = SLOTS;
	options.patience = UINT64_MAX;
	options.allow_block = true;
	check_ok(pl_publisher_open(rig->environment.far, "awake", &options, &rig->publisher, &error), &error);
	subscriber.in_place = true;
	check_ok(pl_subscriber_open(rig->environment.near_peer, "awake", &subscriber, AMPLE_TIME, &rig->subscriber,
				    &error),
		 &error);
}

static void rig_close(struct rig *rig)
{
	pl_subscriber_close(rig->subscriber);
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
}

static void publish(struct rig *rig)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info;
	struct pl_stream_frame *frame = loan_frame(rig->publisher, &info);
	struct pl_error error;

	*(uint64_t *)info.data = ~info.sequence;
	options.length = SLOT;
	check_ok(pl_frame_publish(frame, &options, &error), &error);
}

/* Stays awake however long the other thread does not run. */
static void take(struct rig *rig, uint64_t sequence)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frame;
	int rc;

	do
		rc = pl_subscriber_take(rig->subscriber, &frame, 1, 0, NULL);
	while (rc == -EAGAIN);
	check_number(rc, 1);
	check(pl_frame_query(frame, &info) == 0 && info.sequence == sequence && info.flags == PL_FRAME_IN_PLACE);
	check(*(const uint64_t *)info.data == ~sequence);
	if (sequence == 0)
		rig->first = info.data;
	check((const uint8_t *)info.data == rig->first + sequence * 4096);
	pl_frame_release(frame);
}

/* True once the publisher has nothing to tell any more. */
static bool is_silent(struct rig *rig)
{
	return atomic_load(&pl_announcer_of(rig->publisher, rig->environment.far_peer->home)->silent);
}

/* Both threads begin once both have their filter. */
static void begin_without_calls(struct rig *rig)
{
	/* Clocks are read without a call where the kernel offers that. */
	static const long allowed[] = { SYS_clock_gettime };

	trap_system_calls(allowed, 1);
	atomic_fetch_add(&rig->ready, 1);
	while (!atomic_load(&rig->begin))
		;
}

static void *write_frames(void *argument)
{
	struct rig *rig = argument;

	begin_without_calls(rig);
	for (unsigned i = 0; i < FRAMES; i++) {
		publish(rig);
		if (rig->wakes)
			syscall(SYS_futex, &rig->done, 1 /* FUTEX_WAKE */, 1, NULL, NULL, 0);
	}
	atomic_fetch_add(&rig->done, 1);
	return NULL;
}

static void *take_frames(void *argument)
{
	struct rig *rig = argument;

	begin_without_calls(rig);
	for (unsigned i = 0; i < FRAMES; i++)
		take(rig, WARM + i);
	atomic_fetch_add(&rig->done, 1);
	return NULL;
}

/* Returns the system call that stopped a thread, or -1. */
static long pass_frames(struct rig *rig)
{
	uint64_t limit = clock_now() + 2 * AMPLE_TIME;
	pthread_t threads[2];

	for (uint64_t i = 0; i < WARM; i++) {
		struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
		struct pl_error error;

		publish(rig);
		take(rig, i);
		/* The answer comes behind the announcement: then no engine takes a lock of the stream any more. */
		check_number(pl_peer_publishers(rig->environment.near_peer, &info, 1, AMPLE_TIME, &error), 1);
	}
	check(is_silent(rig));
	check(pthread_create(&threads[0], NULL, write_frames, rig) == 0);
	check(pthread_create(&threads[1], NULL, take_frames, rig) == 0);
	while (atomic_load(&rig->ready) < 2)
		sleep_ms(1);
	atomic_store(&rig->begin, true);
	while (atomic_load(&rig->done) < 2 && !atomic_load(&trapped)) {
		check(clock_now() < limit);
		sleep_ms(1);
	}
	if (atomic_load(&trapped))
		return atomic_load(&trapped) - 1;
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return -1;
}

static void test_no_calls(void *argument)
{
	struct rig rig;

	(void)argument;
	rig_open(&rig);
	check_number(pass_frames(&rig), -1);
	check_number(exact_accounts(rig.subscriber).delivered, WARM + FRAMES);
	rig_close(&rig);
}

/* The filter sees calls: a writer that wakes somebody is stopped. */
static void test_filter(void *argument)
{
	struct rig rig;

	(void)argument;
	rig_open(&rig);
	rig.wakes = true;
	check_number(pass_frames(&rig), SYS_futex);
	/* A thread stands still, and may hold a lock of the library. */
	_exit(0);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "no calls", test_no_calls, NULL, 60 },
		{ "filter", test_filter, NULL, 60 },
	};

	return cases_run("stream_awake", cases, sizeof(cases) / sizeof(cases[0]));
}
