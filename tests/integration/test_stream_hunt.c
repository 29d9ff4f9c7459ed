/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Streams between two processes: hunt for torn frames while the publisher overwrites its ring at full speed, and accounts
 * after one end was killed. Each frame has its sequence in every word. A reader without the lap rule must see mixed
 * frames, or the hunt proves nothing.
 *
 *   test_stream_hunt [--fabric NAME] [--host ADDRESS] [--kills N]
 *
 * --fabric leaves the cases over the local fabric out, and runs the others over this fabric.
 * --host is the address at which publishers listen.
 * --kills kills so many publishers in each case, at random moments.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <peerlane/stream.h>

#include "stream/subscriber.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"
#include "support/publishing.h"

#define WORDS (64u << 10)
#define BYTES (WORDS * sizeof(uint64_t))
#define SLOTS 3u

static struct setting tcp_threads = {
	.name = "thread", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 2
};
static const struct setting local_threads = {
	.name = "thread", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

static struct setting tcp_push = {
	.name = "push", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 2
};
static const struct setting local_push = {
	.name = "push", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

static void fill(uint64_t *words, uint64_t sequence)
{
	for (unsigned i = 0; i < WORDS; i++)
		__atomic_store_n(&words[i], sequence, __ATOMIC_RELAXED);
}

static bool is_whole(const uint64_t *words, uint64_t sequence)
{
	for (unsigned i = 0; i < WORDS; i++)
		if (words[i] != sequence)
			return false;
	return true;
}

static void publish_next(struct pl_publisher *publisher)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info;
	struct pl_stream_frame *frame = loan_frame(publisher, &info);
	struct pl_error error;

	fill(info.data, info.sequence);
	options.length = BYTES;
	check_ok(pl_frame_publish(frame, &options, &error), &error);
}

/* Publishes without waiting for anybody, with short pauses, until the parent sends a byte. */
static void child_publish(const void *argument, int to, int from)
{
	const struct setting *setting = argument;
	struct pl_context *context = context_open(setting);
	struct pl_publisher *publisher = open_blocking_publisher(context, "hunt", BYTES, SLOTS);
	struct pl_listener *listener;
	uint64_t random = 1;
	struct pl_peer *peer;
	char address[96];

	listener = listener_open(setting, context, address);
	check(write(to, address, sizeof(address)) == sizeof(address));
	check(pl_accept(listener, AMPLE_TIME, &peer, NULL) == 0);
	while (!publishing_child_is_told(from)) {
		struct timespec pause = { .tv_nsec = (long)(random_next(&random) % 2000000) };

		publish_next(publisher);
		if (random_next(&random) % 2)
			nanosleep(&pause, NULL);
	}
	pl_close(context);
	_exit(0);
}

/* Connects to a child that publishes, and subscribes unless `subscriber` is NULL. */
static void connect_child(const struct publishing_child *child, const struct setting *setting,
			  struct pl_context *context, struct pl_peer **peer, struct pl_subscriber **subscriber)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_error error;

	check_ok(pl_connect(context, child->address, AMPLE_TIME, peer, &error), &error);
	options.push = !strcmp(setting->name, "push");
	if (subscriber)
		check_ok(pl_subscriber_open(*peer, "hunt", &options, AMPLE_TIME, subscriber, &error), &error);
}

/* -- the hunt -------------------------------------------------------------------------------------------------------- */

/* What the reader without the lap rule reads. */
struct naive {
	struct pl_peer *peer;
	const struct pl_subscriber *subscriber;
	struct pl_region *region; /* a frame, and the cursors behind it */
};

static void read_words(const struct naive *naive, struct pl_remote *remote, uint64_t from, uint64_t to, uint64_t length)
{
	const struct pl_transfer transfer = { remote, from, naive->region, to, length };
	struct pl_operation *operation;
	struct pl_error error;

	check_ok(pl_read(naive->peer, &transfer, NULL, &operation, &error), &error);
	check_ok(pl_wait(operation, UINT64_MAX, NULL, &error), &error);
}

/* Returns the sequence of the newest frame. */
static uint64_t read_newest(const struct naive *naive)
{
	const uint64_t *words = pl_region_address(naive->region);

	read_words(naive, naive->subscriber->control, PL_RING_HEADER, BYTES, PL_RING_CURSORS);
	return le64toh(words[WORDS + 1]) - 1;
}

/*
 * Reads the newest frame with the subscriber's keys, and checks nothing afterwards. It pauses in the middle until the
 * publisher has used the slot again, because a fast machine reads a frame before that. Returns true if it was mixed.
 */
static bool read_naively(const struct naive *naive)
{
	const struct pl_subscriber *subscriber = naive->subscriber;
	const uint64_t *words = pl_region_address(naive->region);
	uint64_t sequence = read_newest(naive);
	uint64_t offset = pl_ring_slot_offset(&subscriber->geometry, sequence);

	read_words(naive, subscriber->payload, offset, 0, BYTES / 2);
	while (read_newest(naive) <= sequence + SLOTS)
		;
	read_words(naive, subscriber->payload, offset + BYTES / 2, BYTES / 2, BYTES / 2);
	return !is_whole(words, words[0]);
}

static void take_some(struct pl_subscriber *subscriber, uint64_t *last)
{
	struct pl_stream_frame *frames[2];
	int count = pl_subscriber_take(subscriber, frames, 2, 0, NULL);

	check(count > 0 || count == -EAGAIN);
	for (int i = 0; i < count; i++) {
		struct pl_frame_info info = PL_FRAME_INFO_INIT;

		check(pl_frame_query(frames[i], &info) == 0 && info.length == BYTES);
		check(is_whole(info.data, info.sequence));
		check(*last == UINT64_MAX || info.sequence == *last + info.lost_before + 1);
		*last = info.sequence;
		pl_frame_release(frames[i]);
	}
}

/*
 * The lap rule lets the publisher write memory that is being read, and discards the bytes. ThreadSanitizer reports that as a
 * race in the publisher's process, so tests that overwrite are left out there.
 */
static void skip_with_thread_sanitizer(void)
{
#ifdef __SANITIZE_THREAD__
	puts("ThreadSanitizer reports the overwriting, which the test is about");
	exit(SKIPPED);
#endif
}

static void test_hunt(void *argument)
{
	const struct setting *setting = argument;
	uint64_t limit = clock_now() + 2 * AMPLE_TIME, last = UINT64_MAX;
	struct pl_accounts accounts = { 0 };
	struct pl_subscriber *subscriber;
	struct pl_context *context;
	struct pl_error error;
	struct naive naive;
	struct publishing_child child;
	unsigned mixed = 0;

	skip_with_thread_sanitizer();
	publishing_child_start(&child, child_publish, setting);
	context = context_open(setting);
	check_ok(pl_connect(context, child.address, AMPLE_TIME, &naive.peer, &error), &error);
	check_ok(pl_subscriber_open(naive.peer, "hunt", NULL, AMPLE_TIME, &subscriber, &error), &error);
	check_ok(pl_region_allocate(context, BYTES + PL_RING_CURSORS, PL_ACCESS_LOCAL, &naive.region, &error), &error);
	naive.subscriber = subscriber;
	while (mixed < 3 || accounts.delivered < 30 || accounts.lapped < 3) {
		if (clock_now() > limit) {
			fprintf(stderr, "void: %u mixed frames of the naive reader, %llu delivered, %llu lapped\n",
				mixed, (unsigned long long)accounts.delivered, (unsigned long long)accounts.lapped);
			abort();
		}
		mixed += read_naively(&naive);
		take_some(subscriber, &last);
		accounts = exact_accounts(subscriber);
	}
	publishing_child_end(&child);
	pl_close(context);
}

/* The publisher overwrites frames while they are being written into the subscriber's slots: it announces none of these. */
static void test_pushed_hunt(void *argument)
{
	uint64_t limit = clock_now() + 2 * AMPLE_TIME, last = UINT64_MAX;
	struct pl_accounts accounts = { 0 };
	struct pl_subscriber *subscriber;
	struct pl_context *context;
	struct pl_peer *peer;
	struct publishing_child child;

	skip_with_thread_sanitizer();
	publishing_child_start(&child, child_publish, argument);
	context = context_open(argument);
	connect_child(&child, argument, context, &peer, &subscriber);
	while (accounts.delivered < 100 || accounts.lapped < 10) {
		check(clock_now() < limit);
		take_some(subscriber, &last);
		accounts = exact_accounts(subscriber);
	}
	publishing_child_end(&child);
	pl_close(context);
}

/* -- kills ------------------------------------------------------------------------------------------------------------ */

/* Publishers that a case kills. */
static unsigned kills = 20;

/* Takes frames until the connection is lost, which the kernel tells, and which takes no longer than the limit. */
static void take_to_loss(struct pl_subscriber *subscriber, uint64_t *last)
{
	struct pl_stream_frame *frame;
	struct pl_error error;
	int rc;

	while ((rc = pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error)) == 1) {
		struct pl_frame_info taken = PL_FRAME_INFO_INIT;

		check(pl_frame_query(frame, &taken) == 0 && is_whole(taken.data, taken.sequence));
		check(*last == UINT64_MAX || taken.sequence == *last + taken.lost_before + 1);
		*last = taken.sequence;
		pl_frame_release(frame);
	}
	check_number(rc, -ENOTCONN);
}

/* The publisher is killed: all that was fetched is whole, and each sequence that the subscriber knows has a fate. */
static void kill_publisher(const struct setting *setting, uint64_t random)
{
	uint64_t last = UINT64_MAX, limit = clock_now() + AMPLE_TIME, moment;
	uint64_t delivered = 1 + random_next(&random) % 8;
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;
	struct pl_subscriber *subscriber;
	struct pl_context *context;
	struct pl_peer *peer;
	struct publishing_child child;

	publishing_child_start(&child, child_publish, setting);
	context = context_open(setting);
	connect_child(&child, setting, context, &peer, &subscriber);
	while (exact_accounts(subscriber).delivered < delivered) {
		check(clock_now() < limit);
		take_some(subscriber, &last);
	}
	/* Within a frame or between two, of the publisher or of the subscriber. */
	for (moment = clock_now() + random_next(&random) % (2 * MS); clock_now() < moment;)
		;
	process_kill(child.pid, SIGKILL);
	take_to_loss(subscriber, &last);
	check(pl_subscriber_query(subscriber, &info) == 0 && !info.connected);
	check(info.accounts.pending == 0 && info.accounts.next == info.stream.published);
	exact_accounts(subscriber);
	pl_subscriber_close(subscriber);
	pl_close(context);
}

static void test_killed_publisher(void *argument)
{
	skip_with_thread_sanitizer();
	for (unsigned i = 1; i <= kills; i++) {
		/* The libraries of cards do not work in a child of a process that has used them. */
		pid_t pid = process_fork();

		if (pid == 0) {
			kill_publisher(argument, i);
			_exit(0);
		}
		check_number(process_wait(pid), 0);
	}
}

/* Takes and releases all frames that are ready. */
static void take_ready(struct pl_subscriber *subscriber)
{
	struct pl_stream_frame *frame;

	while (pl_subscriber_take(subscriber, &frame, 1, 0, NULL) == 1)
		pl_frame_release(frame);
}

/*
 * The publisher is stopped and cut off, perhaps in the middle of a write, and goes on once the subscriber takes frames from
 * another one. The local fabric has no way to take its mapping of the slots away.
 */
static void test_stopped_publisher(void *argument)
{
	const struct setting *setting = argument;
	bool maps = !strcmp(setting->fabric, "local");
	uint64_t last = UINT64_MAX, limit = clock_now() + AMPLE_TIME;
	struct pl_subscriber *subscriber;
	struct pl_stream_frame *held;
	struct publishing_child child, second;
	struct pl_context *context;
	struct pl_error error;
	struct pl_peer *peer;

	skip_with_thread_sanitizer();
	publishing_child_start(&child, child_publish, setting);
	publishing_child_start(&second, child_publish, setting);
	context = context_open(setting);
	connect_child(&child, setting, context, &peer, &subscriber);
	while (exact_accounts(subscriber).delivered < 5) {
		check(clock_now() < limit);
		take_some(subscriber, &last);
	}
	check(pl_subscriber_take(subscriber, &held, 1, AMPLE_TIME, &error) == 1);
	check(kill(child.pid, SIGSTOP) == 0);
	pl_peer_close(peer);
	connect_child(&second, setting, context, &peer, NULL);
	if (maps) {
		check_number(pl_subscriber_attach(subscriber, peer, AMPLE_TIME, &error), -EBUSY);
		check(!strcmp(error.id, "STREAM-HELD"));
		pl_frame_release(held);
		take_ready(subscriber);
	}
	check_ok(pl_subscriber_attach(subscriber, peer, AMPLE_TIME, &error), &error);
	check(kill(child.pid, SIGCONT) == 0);
	take_ready(subscriber);
	for (last = UINT64_MAX, limit = clock_now() + AMPLE_TIME; exact_accounts(subscriber).delivered < 20;) {
		check(clock_now() < limit);
		take_some(subscriber, &last);
	}
	if (!maps)
		pl_frame_release(held);
	publishing_child_end(&second);
	publishing_child_end(&child);
	pl_close(context);
}

/* Subscribes, tells that, takes some frames, and then holds all others back. */
static void child_subscribe(const void *argument, int to, int from)
{
	const struct setting *setting = argument;
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_context *context = context_open(setting);
	struct pl_subscriber *subscriber;
	char address[96] = "";
	struct pl_peer *peer;

	check(write(to, address, sizeof(address)) == sizeof(address));
	check(read(from, address, sizeof(address)) == sizeof(address));
	check(pl_connect(context, address, AMPLE_TIME, &peer, NULL) == 0);
	options.overflow = PL_OVERFLOW_BLOCK;
	options.queue = 2;
	options.push = !strcmp(setting->name, "push");
	check(pl_subscriber_open(peer, "hunt", &options, AMPLE_TIME, &subscriber, NULL) == 0);
	check(write(to, "", 1) == 1);
	for (;;)
		pause();
}

/* Waits until the publisher has told the subscriber of so many frames. An end that comes before is told of fewer. */
static void await_announced(struct pl_publisher *publisher, uint64_t frames)
{
	struct pl_subscription_info info = PL_SUBSCRIPTION_INFO_INIT;
	uint64_t limit = clock_now() + AMPLE_TIME;

	do {
		check(clock_now() < limit && pl_publisher_subscribers(publisher, &info, 1) == 1);
	} while (info.announced < frames);
}

/* The subscriber is killed: its slots are free again, and the publisher's accounts of it are complete. */
static void test_killed_subscriber(void *argument)
{
	const struct setting *setting = argument;
	struct pl_subscription_info info = PL_SUBSCRIPTION_INFO_INIT;
	const struct pl_accounts *accounts = &info.accounts;
	uint64_t limit = clock_now() + AMPLE_TIME;
	struct pl_stream_frame *frame;
	struct pl_publisher *publisher;
	struct pl_listener *listener;
	struct pl_context *context;
	struct pl_error error;
	struct pl_peer *peer;
	struct publishing_child child;
	char address[96], ready;
	uint64_t known;

	publishing_child_start(&child, child_subscribe, setting);
	context = context_open(setting);
	publisher = open_blocking_publisher(context, "hunt", BYTES, SLOTS);
	listener = listener_open(setting, context, address);
	check(write(child.to, address, sizeof(address)) == sizeof(address));
	check_ok(pl_accept(listener, AMPLE_TIME, &peer, &error), &error);
	check(read(child.from, &ready, 1) == 1);
	/* Two frames are fetched, three wait in the ring, and no slot is free. */
	for (unsigned i = 0; i < SLOTS + 2; i++)
		publish_next(publisher);
	check(pl_publisher_loan(publisher, 0, &frame, &error) == -EAGAIN);
	if (strcmp(setting->name, "push"))
		await_announced(publisher, SLOTS + 2);
	process_kill(child.pid, SIGKILL);
	check_ok(pl_publisher_loan(publisher, AMPLE_TIME, &frame, &error), &error);
	pl_frame_discard(frame);
	do {
		check(clock_now() < limit && pl_publisher_subscribers(publisher, &info, 1) == 1);
	} while (!info.ended);
	check(!info.peer && !info.blocks && accounts->pending == 0 && accounts->first == 0);
	/* The publisher has told how many are published, with one of the first two frames or later. */
	known = strcmp(setting->name, "push") ? SLOTS + 2 : info.announced;
	check(known >= 2 && known <= SLOTS + 2);
	check(accounts->missed == known && accounts->next == known && info.announced == known);
	pl_close(context);
}

int main(int argc, char **argv)
{
	/* The first half over tcp, or the fabric of --fabric, the other one over the local fabric. */
	static const struct test_case cases[] = {
		{ "hunt tcp", test_hunt, &tcp_threads, 30 },
		{ "killed publisher tcp", test_killed_publisher, &tcp_threads, 30 },
		{ "killed subscriber tcp", test_killed_subscriber, &tcp_threads, 30 },
		{ "hunt tcp push", test_pushed_hunt, &tcp_push, 30 },
		{ "killed publisher tcp push", test_killed_publisher, &tcp_push, 30 },
		{ "killed subscriber tcp push", test_killed_subscriber, &tcp_push, 30 },
		{ "stopped publisher tcp push", test_stopped_publisher, &tcp_push, 30 },
		{ "hunt local", test_hunt, &local_threads, 30 },
		{ "killed publisher local", test_killed_publisher, &local_threads, 30 },
		{ "killed subscriber local", test_killed_subscriber, &local_threads, 30 },
		{ "hunt local push", test_pushed_hunt, &local_push, 30 },
		{ "killed publisher local push", test_killed_publisher, &local_push, 30 },
		{ "killed subscriber local push", test_killed_subscriber, &local_push, 30 },
		{ "stopped publisher local push", test_stopped_publisher, &local_push, 30 },
	};
	size_t count = sizeof(cases) / sizeof(cases[0]);

	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--host"))
			tcp_threads.host = tcp_push.host = argv[i + 1];
		if (!strcmp(argv[i], "--kills"))
			kills = (unsigned)atoi(argv[i + 1]);
		if (strcmp(argv[i], "--fabric"))
			continue;
		tcp_threads.fabric = tcp_push.fabric = argv[i + 1];
		count /= 2;
	}
	return cases_run("stream_hunt", cases, count);
}
