/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames that are used in the publisher's ring: where they are, what holds them, and how that ends. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <peerlane/stream.h>

#include "support/cases.h"
#include "support/check.h"
#include "support/environment.h"
#include "support/frames.h"
#include "support/process.h"

#define SLOT 10000
#define STRIDE 12288
#define SLOTS 8u
#define HELD 4u

static const struct setting place_threads = {
	.name = "thread", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};
static const struct setting place_manual = {
	.name = "manual", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};
/* Waiting threads poll, so that the subscriber looks into the ring itself, also on two cores. */
static const struct setting place_polling = {
	.name = "polling", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};
static const struct setting place_tcp = {
	.name = "thread", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

/* A publisher in `far`, and a subscriber in `near`. With manual progress threads drive both. */
struct place_rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct pl_subscriber *subscriber;
	struct pump pumps[2];
};

static struct pl_publisher *place_publisher(struct pl_context *context, uint64_t patience)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_publisher *publisher;
	struct pl_error error;

	options.slot_bytes = SLOT;
	options.slots = SLOTS;
	options.metadata_bytes = 16;
	options.patience = patience;
	options.allow_block = true;
	check_ok(pl_publisher_open(context, "cam0", &options, &publisher, &error), &error);
	return publisher;
}

static struct pl_subscriber *place_subscriber(struct pl_peer *peer)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_subscriber *subscriber;
	struct pl_error error;

	options.in_place = true;
	options.held = HELD;
	check_ok(pl_subscriber_open(peer, "cam0", &options, AMPLE_TIME, &subscriber, &error), &error);
	return subscriber;
}

static void place_rig_open(struct place_rig *rig, const struct setting *setting, uint64_t patience)
{
	if (setting == &place_polling && !poll_time)
		poll_time = SECOND / 200;
	require_second_mapping();
	memset(rig, 0, sizeof(*rig));
	environment_open(&rig->environment, setting);
	pump_start(&rig->environment, &rig->pumps[0], rig->environment.far);
	rig->publisher = place_publisher(rig->environment.far, patience);
	rig->subscriber = place_subscriber(rig->environment.near_peer);
	/* Threads of the test wait for slots, and do not drive the subscriber meanwhile. */
	pump_start(&rig->environment, &rig->pumps[1], rig->environment.near);
}

static void place_rig_close(struct place_rig *rig)
{
	pump_stop(&rig->pumps[1]);
	pl_subscriber_close(rig->subscriber);
	pump_stop(&rig->pumps[0]);
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
}

static uint64_t place_length(uint64_t sequence)
{
	return SLOT - sequence % 3;
}

/* Publishes frames, and returns the address of the last one at the publisher. */
static unsigned char *place_publish(struct pl_publisher *publisher, unsigned count)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_error error;

	options.metadata = &info.sequence;
	options.metadata_length = sizeof(info.sequence);
	while (count--) {
		struct pl_stream_frame *frame = loan_frame(publisher, &info);

		options.length = place_length(info.sequence);
		frame_fill(&info, options.length);
		check_ok(pl_frame_publish(frame, &options, &error), &error);
	}
	return info.data;
}

/* Checks a frame that the program holds. */
static struct pl_frame_info check_placed(const struct pl_stream_frame *frame, uint64_t sequence, unsigned flags)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_error error;
	char bytes[SLOT];

	check(pl_frame_query(frame, &info) == 0);
	check_number(info.sequence, sequence);
	check_number(info.length, place_length(sequence));
	check_number(info.flags, flags);
	check(info.metadata_length == sizeof(sequence) && !memcmp(info.metadata, &sequence, sizeof(sequence)));
	pattern_check(info.data, info.length, sequence, 0);
	check_ok(pl_frame_copy_out(frame, 0, bytes, info.length, &error), &error);
	check(!memcmp(bytes, info.data, info.length));
	return info;
}

/* Takes a frame, which has these flags then. Returns its address. */
static unsigned char *place_take(struct pl_subscriber *subscriber, uint64_t sequence, unsigned flags,
				 struct pl_stream_frame **frame)
{
	struct pl_error error;
	int rc = pl_subscriber_take(subscriber, frame, 1, AMPLE_TIME, &error);

	check_ok(rc < 0 ? rc : 0, &error);
	return check_placed(*frame, sequence, flags).data;
}

static void place_take_release(struct pl_subscriber *subscriber, uint64_t sequence)
{
	struct pl_stream_frame *frame;

	place_take(subscriber, sequence, PL_FRAME_IN_PLACE, &frame);
	pl_frame_release(frame);
}

static int place_loan(struct pl_publisher *publisher, uint64_t timeout)
{
	struct pl_stream_frame *frame;
	struct pl_error error;
	int rc = pl_publisher_loan(publisher, timeout, &frame, &error);

	if (rc == 0)
		pl_frame_discard(frame);
	return rc;
}

static struct pl_subscriber_info place_info(struct pl_subscriber *subscriber)
{
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;

	check(pl_subscriber_query(subscriber, &info) == 0);
	exact_accounts(subscriber);
	return info;
}

/* Waits until the subscriber has frames that can be taken. */
static void await_pending(struct place_rig *rig, uint64_t count)
{
	uint64_t limit = clock_now() + AMPLE_TIME;

	while (place_info(rig->subscriber).accounts.pending < count) {
		check(clock_now() < limit);
		sleep_ms(1);
	}
}

static void await_unconnected(struct place_rig *rig)
{
	uint64_t limit = clock_now() + AMPLE_TIME;

	while (place_info(rig->subscriber).connected) {
		check(clock_now() < limit);
		sleep_ms(1);
	}
}

/* -- one process ---------------------------------------------------------------------------------------------------------- */

/* The frames are the slots themselves: what the publisher's program writes there is seen at the subscriber. */
static void test_same_memory(void *argument)
{
	struct pl_stream_frame *frame, *next;
	unsigned char *slot, *first, *second;
	struct place_rig rig;

	place_rig_open(&rig, argument, UINT64_MAX);
	check(place_info(rig.subscriber).in_place && place_info(rig.subscriber).blocks);
	slot = place_publish(rig.publisher, 1);
	place_publish(rig.publisher, 1);
	first = place_take(rig.subscriber, 0, PL_FRAME_IN_PLACE, &frame);
	second = place_take(rig.subscriber, 1, PL_FRAME_IN_PLACE, &next);
	check(first != slot && second - first == STRIDE);
	slot[7] ^= 0xff;
	check(first[7] == slot[7]);
	slot[7] ^= 0xff;
	pl_frame_release(frame);
	pl_frame_release(next);
	for (uint64_t sequence = 2; sequence < 50 * SLOTS; sequence++) {
		place_publish(rig.publisher, 1);
		check(place_take(rig.subscriber, sequence, PL_FRAME_IN_PLACE, &frame) ==
		      first + sequence % SLOTS * STRIDE);
		pl_frame_release(frame);
	}
	check_number(exact_accounts(rig.subscriber).delivered, 50 * SLOTS);
	place_rig_close(&rig);
}

/* The publisher waits for the oldest frame that the program holds, and for no other. */
static void test_held(void *argument)
{
	struct pl_stream_frame *frames[3];
	struct place_rig rig;

	place_rig_open(&rig, argument, UINT64_MAX);
	place_publish(rig.publisher, SLOTS);
	for (unsigned i = 0; i < 3; i++)
		place_take(rig.subscriber, i, PL_FRAME_IN_PLACE, &frames[i]);
	pl_frame_release(frames[2]);
	pl_frame_release(frames[1]);
	for (uint64_t sequence = 3; sequence < SLOTS; sequence++)
		place_take_release(rig.subscriber, sequence);
	check_number(place_loan(rig.publisher, 20 * MS), -EAGAIN);
	check_placed(frames[0], 0, PL_FRAME_IN_PLACE);
	pl_frame_release(frames[0]);
	check_number(place_loan(rig.publisher, AMPLE_TIME), 0);
	place_publish(rig.publisher, SLOTS - 1);
	check_number(place_info(rig.subscriber).accounts.lapped, 0);
	place_rig_close(&rig);
}

/* Frames that are ready hold their slots back as well. */
static void test_ready(void *argument)
{
	struct place_rig rig;

	place_rig_open(&rig, argument, UINT64_MAX);
	place_publish(rig.publisher, SLOTS);
	check_number(place_loan(rig.publisher, 20 * MS), -EAGAIN);
	for (uint64_t sequence = 0; sequence < SLOTS; sequence++)
		place_take_release(rig.subscriber, sequence);
	check_number(place_loan(rig.publisher, AMPLE_TIME), 0);
	place_rig_close(&rig);
}

/* The publisher's patience ends: held and ready frames keep their bytes, and later ones are copies. */
static void test_demoted(void *argument)
{
	struct pl_publisher_info publisher = PL_PUBLISHER_INFO_INIT;
	struct pl_stream_frame *frames[2], *frame;
	struct pl_subscriber_info info;
	struct pl_error error;
	struct place_rig rig;
	uint64_t sequence = 1;
	int rc;

	place_rig_open(&rig, argument, 30 * MS);
	place_publish(rig.publisher, 3);
	for (unsigned i = 0; i < 2; i++)
		place_take(rig.subscriber, i, PL_FRAME_IN_PLACE, &frames[i]);
	place_publish(rig.publisher, 3 * SLOTS);
	/* The publisher went on only after the frames were frozen. */
	info = place_info(rig.subscriber);
	check(info.demoted && !info.blocks && !info.in_place);
	check(pl_publisher_query(rig.publisher, &publisher) == 0 && publisher.blocking == 0);
	check_placed(frames[0], 0, 0);
	check_placed(frames[1], 1, 0);
	check_ok(pl_publisher_end(rig.publisher, 0, &error), &error);
	while ((rc = pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, &error)) == 1) {
		struct pl_frame_info taken = PL_FRAME_INFO_INIT;

		check(pl_frame_query(frame, &taken) == 0 && taken.sequence > sequence);
		sequence = taken.sequence;
		check_placed(frame, sequence, 0);
		pl_frame_release(frame);
	}
	check_number(rc, -ENODATA);
	info = place_info(rig.subscriber);
	check_number(info.accounts.next, 3 * SLOTS + 3);
	check_number(info.accounts.pending, 0);
	for (unsigned i = 0; i < 2; i++) {
		check_placed(frames[i], i, 0);
		pl_frame_release(frames[i]);
	}
	place_rig_close(&rig);
}

/* A pause holds back only what was ready before it, and what the program holds. */
static void test_paused(void *argument)
{
	struct pl_stream_frame *frame;
	struct place_rig rig;
	uint64_t limit = clock_now() + AMPLE_TIME;

	place_rig_open(&rig, argument, UINT64_MAX);
	place_publish(rig.publisher, 1);
	place_take(rig.subscriber, 0, PL_FRAME_IN_PLACE, &frame);
	pl_subscriber_pause(rig.subscriber, true);
	place_publish(rig.publisher, SLOTS - 1);
	check_number(place_loan(rig.publisher, 20 * MS), -EAGAIN);
	pl_frame_release(frame);
	place_publish(rig.publisher, 2 * SLOTS);
	while (place_info(rig.subscriber).accounts.unwanted < 3 * SLOTS - 1) {
		check(clock_now() < limit);
		sleep_ms(1);
	}
	pl_subscriber_pause(rig.subscriber, false);
	place_publish(rig.publisher, 1);
	place_take_release(rig.subscriber, 3 * SLOTS);
	place_rig_close(&rig);
}

/* A lost connection: the frames keep their bytes while the publisher goes on, and the next connection has frames in place. */
static void test_attached(void *argument)
{
	struct pl_stream_frame *frames[2];
	struct pl_peer *near_peer, *far_peer;
	struct pl_error error;
	struct place_rig rig;
	unsigned char *address;

	place_rig_open(&rig, argument, UINT64_MAX);
	place_publish(rig.publisher, 2);
	address = place_take(rig.subscriber, 0, PL_FRAME_IN_PLACE, &frames[0]);
	await_pending(&rig, 1);
	pl_peer_close(rig.environment.far_peer);
	await_unconnected(&rig);
	place_publish(rig.publisher, 3 * SLOTS);
	check(check_placed(frames[0], 0, 0).data == address);
	check(place_take(rig.subscriber, 1, 0, &frames[1]) == address + STRIDE);
	check_number(pl_subscriber_take(rig.subscriber, &frames[1], 1, AMPLE_TIME, &error), -ENOTCONN);
	pump_stop(&rig.pumps[1]);
	connect_pair(&rig.environment, rig.environment.near, rig.environment.listener, &near_peer, &far_peer);
	check_ok(pl_subscriber_attach(rig.subscriber, near_peer, AMPLE_TIME, &error), &error);
	pump_start(&rig.environment, &rig.pumps[1], rig.environment.near);
	for (uint64_t sequence = 2 * SLOTS + 2; sequence < 3 * SLOTS + 2; sequence++)
		place_take_release(rig.subscriber, sequence);
	place_publish(rig.publisher, SLOTS);
	check(check_placed(frames[0], 0, 0).data == address);
	check_number(place_info(rig.subscriber).accounts.missed, 2 * SLOTS);
	pl_frame_release(frames[0]);
	pl_peer_close(rig.environment.near_peer);
	rig.environment.near_peer = near_peer;
	rig.environment.far_peer = far_peer;
	place_rig_close(&rig);
}

/* The publisher is closed: its published frames can still be taken, if they were ready, and read. */
static void test_publisher_closed(void *argument)
{
	struct pl_stream_frame *frames[2], *none;
	struct pl_error error;
	struct place_rig rig;

	place_rig_open(&rig, argument, UINT64_MAX);
	place_publish(rig.publisher, 2);
	place_take(rig.subscriber, 0, PL_FRAME_IN_PLACE, &frames[0]);
	await_pending(&rig, 1);
	pl_publisher_close(rig.publisher);
	rig.publisher = NULL;
	await_unconnected(&rig);
	place_take(rig.subscriber, 1, 0, &frames[1]);
	check_placed(frames[0], 0, 0);
	check_number(pl_subscriber_take(rig.subscriber, &none, 1, AMPLE_TIME, &error), -ENODATA);
	place_rig_close(&rig);
}

/* Closes in each order, with frames ready and held. */
static void test_place_closes(void *argument)
{
	struct pl_stream_frame *frame;
	struct place_rig rig;

	for (unsigned order = 0; order < 4; order++) {
		place_rig_open(&rig, argument, UINT64_MAX);
		place_publish(rig.publisher, 3);
		place_take(rig.subscriber, 0, PL_FRAME_IN_PLACE, &frame);
		if (order == 0)
			pl_publisher_close(rig.publisher);
		if (order == 1) {
			pl_peer_close(rig.environment.near_peer);
			rig.environment.near_peer = NULL;
		}
		if (order < 2) {
			await_unconnected(&rig);
			check_placed(frame, 0, 0);
		}
		if (order == 2)
			pl_subscriber_close(rig.subscriber);
		pump_stop(&rig.pumps[0]);
		pump_stop(&rig.pumps[1]);
		/* Closes the rest. */
		environment_close(&rig.environment);
	}
}

static void check_refused(struct pl_peer *peer, const struct pl_subscriber_options *options, int code, const char *id)
{
	struct pl_subscriber *subscriber;
	struct pl_error error;

	check_number(pl_subscriber_open(peer, "cam0", options, AMPLE_TIME, &subscriber, &error), code);
	check(!strcmp(error.id, id) && !subscriber);
}

static void test_place_refused(void *argument)
{
	struct pl_publisher_options publisher_options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct pl_error error;

	environment_open(&environment, argument);
	publisher_options.slot_bytes = SLOT;
	check_ok(pl_publisher_open(environment.far, "cam0", &publisher_options, &publisher, &error), &error);
	options.in_place = true;
	check_refused(environment.near_peer, &options, -EPERM, "STREAM-NO-BLOCK");
	pl_publisher_close(publisher);
	publisher = place_publisher(environment.far, 0);
	options.overflow = PL_OVERFLOW_DROP_NEWEST;
	check_refused(environment.near_peer, &options, -EINVAL, "OPTION");
	options.overflow = PL_OVERFLOW_BLOCK;
	options.memory = "cuda";
	check_refused(environment.near_peer, &options, -EINVAL, "OPTION");
	options.memory = NULL;
	if (argument == &place_tcp)
		check_refused(environment.near_peer, &options, -ENOTSUP, "STREAM-PLACE");
	pl_publisher_close(publisher);
	environment_close(&environment);
}

/* -- quiet subscribers ------------------------------------------------------------------------------------------------------ */

/* The publisher has sent as many announcements without an answer as it may: the subscriber looks for frames itself. */
#define QUIET_FRAMES 40

static uint64_t quiet_frames(struct place_rig *rig, uint64_t sequence)
{
	for (unsigned i = 0; i < QUIET_FRAMES; i++) {
		place_publish(rig->publisher, 1);
		place_take_release(rig->subscriber, sequence++);
	}
	/* The subscriber's engine gets the announcements meanwhile. */
	sleep_ms(20);
	return sequence;
}

static void quiet_rig_open(struct place_rig *rig, uint64_t patience)
{
	place_rig_open(rig, &place_polling, patience);
	quiet_frames(rig, 0);
}

/* Skips two sequences. */
static void *quiet_skip(void *argument)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct place_rig *rig = argument;
	struct pl_error error;

	check(pl_publisher_query(rig->publisher, &info) == 0);
	check_ok(pl_publisher_skip(rig->publisher, info.published + 2, AMPLE_TIME, &error), &error);
	return NULL;
}

/* The publisher needs slots of which the subscriber did not tell: it asks for them, and demotes nobody. */
static void test_quiet_slots(void *argument)
{
	struct place_rig rig;
	uint64_t taken = QUIET_FRAMES, published = QUIET_FRAMES;
	pthread_t thread;

	(void)argument;
	quiet_rig_open(&rig, AMPLE_TIME / 2);
	for (unsigned round = 0; round < 50; round++) {
		while (published < taken + SLOTS) {
			place_publish(rig.publisher, 1);
			published++;
		}
		for (unsigned i = 0; i <= round % 3; i++)
			place_take_release(rig.subscriber, taken++);
	}
	check(!place_info(rig.subscriber).demoted && place_info(rig.subscriber).in_place);
	/* A skip waits for two slots, of which the subscriber tells one by one. */
	while (published++ < taken + SLOTS)
		place_publish(rig.publisher, 1);
	check(pthread_create(&thread, NULL, quiet_skip, &rig) == 0);
	for (unsigned i = 0; i < 2; i++) {
		sleep_ms(20);
		place_take_release(rig.subscriber, taken++);
	}
	pthread_join(thread, NULL);
	check(!place_info(rig.subscriber).demoted);
	place_rig_close(&rig);
}

struct quiet_writer {
	struct place_rig *rig;
	uint64_t count;
};

/* Pauses for about the time after which a thread that waits for a frame sleeps. */
static void *quiet_write(void *argument)
{
	struct quiet_writer *writer = argument;
	uint64_t random = 7;

	for (uint64_t i = 0; i < writer->count; i++) {
		struct timespec pause = { .tv_nsec = (long)(random_next(&random) % (3 * poll_time / 2)) };

		/* In bursts longer than the number of announcements without an answer. */
		if (i % 25 == 0)
			nanosleep(&pause, NULL);
		place_publish(writer->rig->publisher, 1);
	}
	return NULL;
}

/* Takes a frame, for which an announcement wakes the caller: a take that nothing wakes finds the frame only at its deadline. */
static void quiet_take(struct pl_subscriber *subscriber, uint64_t sequence)
{
	uint64_t begin = clock_now();

	place_take_release(subscriber, sequence);
	check(clock_now() - begin < AMPLE_TIME / 2);
}

static void *quiet_reader(void *argument)
{
	quiet_take(((struct place_rig *)argument)->subscriber, QUIET_FRAMES);
	return NULL;
}

/* A thread that has polled in vain sleeps, and relies on announcements again. */
static void test_quiet_announcement(void *argument)
{
	struct place_rig rig;
	pthread_t thread;

	(void)argument;
	quiet_rig_open(&rig, UINT64_MAX);
	check(pthread_create(&thread, NULL, quiet_reader, &rig) == 0);
	sleep_ms(50);
	place_publish(rig.publisher, 1);
	pthread_join(thread, NULL);
	place_rig_close(&rig);
}

/* No frame is slept through, whenever it comes. */
static void test_quiet_sleep(void *argument)
{
	struct place_rig rig;
	struct quiet_writer writer = { .rig = &rig, .count = 1000 };
	pthread_t thread;

	(void)argument;
	poll_time = SECOND / 4000;
	place_rig_open(&rig, &place_polling, UINT64_MAX);
	check(pthread_create(&thread, NULL, quiet_write, &writer) == 0);
	for (uint64_t sequence = 0; sequence < writer.count; sequence++)
		quiet_take(rig.subscriber, sequence);
	pthread_join(thread, NULL);
	check(place_info(rig.subscriber).accounts.delivered == writer.count);
	place_rig_close(&rig);
}

/* Of two threads that take frames, neither sleeps through one, whichever found it in the ring. */
static void *quiet_share(void *argument)
{
	struct place_rig *rig = argument;
	struct pl_stream_frame *frame;
	int rc;

	do {
		uint64_t begin = clock_now();

		rc = pl_subscriber_take(rig->subscriber, &frame, 1, AMPLE_TIME, NULL);
		check(clock_now() - begin < AMPLE_TIME / 2);
		if (rc == 1)
			pl_frame_release(frame);
	} while (rc == 1);
	check_number(rc, -ENODATA);
	return NULL;
}

static void test_quiet_readers(void *argument)
{
	struct place_rig rig;
	struct quiet_writer writer = { .rig = &rig, .count = 1000 };
	pthread_t threads[2];
	struct pl_error error;

	(void)argument;
	poll_time = SECOND / 4000;
	place_rig_open(&rig, &place_polling, UINT64_MAX);
	for (unsigned i = 0; i < 2; i++)
		check(pthread_create(&threads[i], NULL, quiet_share, &rig) == 0);
	quiet_write(&writer);
	check_ok(pl_publisher_end(rig.publisher, AMPLE_TIME, &error), &error);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	check(place_info(rig.subscriber).accounts.delivered == writer.count);
	place_rig_close(&rig);
}

/* A program that looked into the ring turns to the event descriptor, to a pause, and to the end of the stream. */
static void test_quiet_changes(void *argument)
{
	struct pollfd event = { .events = POLLIN };
	struct pl_subscription_info at_publisher = PL_SUBSCRIPTION_INFO_INIT;
	struct pl_stream_frame *none;
	struct pl_accounts accounts;
	struct place_rig rig;
	struct pl_error error;
	uint64_t next;

	(void)argument;
	quiet_rig_open(&rig, UINT64_MAX);
	/* Calls that do not wait see the ring, too. */
	check_number(pl_subscriber_take(rig.subscriber, &none, 1, 0, NULL), -EAGAIN);
	place_publish(rig.publisher, 1);
	check(place_info(rig.subscriber).stream.published == QUIET_FRAMES + 1);
	check_number(pl_subscriber_take(rig.subscriber, &none, 1, 0, NULL), 1);
	pl_frame_release(none);
	/*
	 * Only an announcement tells how many sequences of a gap longer than the ring were skipped. The loan after it asks for slots,
	 * and so brings one.
	 */
	check_ok(pl_publisher_skip(rig.publisher, QUIET_FRAMES + 1 + 5 * SLOTS, AMPLE_TIME, &error), &error);
	place_publish(rig.publisher, 1);
	for (uint64_t end = clock_now() + AMPLE_TIME; pl_subscriber_take(rig.subscriber, &none, 1, 0, NULL) != 1;)
		check(clock_now() < end);
	pl_frame_release(none);
	check_number(exact_accounts(rig.subscriber).aborted, 5 * SLOTS);
	pl_subscriber_pause(rig.subscriber, true);
	place_publish(rig.publisher, 3 * SLOTS);
	for (uint64_t end = clock_now() + AMPLE_TIME; place_info(rig.subscriber).accounts.unwanted < 3 * SLOTS;)
		check(clock_now() < end);
	pl_subscriber_pause(rig.subscriber, false);
	next = quiet_frames(&rig, QUIET_FRAMES + 2 + 8 * SLOTS);
	event.fd = pl_subscriber_fd(rig.subscriber);
	place_publish(rig.publisher, 1);
	check_number(poll(&event, 1, (int)(AMPLE_TIME / MS)), 1);
	place_take_release(rig.subscriber, next);
	check_ok(pl_publisher_end(rig.publisher, AMPLE_TIME, &error), &error);
	check(pl_publisher_subscribers(rig.publisher, &at_publisher, 1) == 1);
	accounts = exact_accounts(rig.subscriber);
	check(!memcmp(&at_publisher.accounts, &accounts, sizeof(accounts)));
	place_rig_close(&rig);
}

/* The end of the stream and of the publisher reach a program that takes nothing meanwhile. Frames of the ring are counted. */
static void test_quiet_end(void *argument)
{
	struct pl_subscription_info at_publisher = PL_SUBSCRIPTION_INFO_INIT;
	struct place_rig rig;
	struct pl_error error;

	(void)argument;
	quiet_rig_open(&rig, UINT64_MAX);
	place_publish(rig.publisher, 5);
	check_ok(pl_publisher_end(rig.publisher, 0, &error), &error);
	for (uint64_t end = clock_now() + AMPLE_TIME; place_info(rig.subscriber).stream.state == PL_STREAM_LIVE;)
		check(clock_now() < end);
	for (uint64_t sequence = 0; sequence < 5; sequence++)
		place_take_release(rig.subscriber, QUIET_FRAMES + sequence);
	check_ok(pl_publisher_end(rig.publisher, AMPLE_TIME, &error), &error);
	check(pl_publisher_subscribers(rig.publisher, &at_publisher, 1) == 1);
	check_number(at_publisher.accounts.delivered, QUIET_FRAMES + 5);
	place_rig_close(&rig);
	quiet_rig_open(&rig, UINT64_MAX);
	place_publish(rig.publisher, 7);
	pl_peer_close(rig.environment.far_peer);
	rig.environment.far_peer = NULL;
	/* The loss comes before the first look at the subscriber. */
	sleep_ms(50);
	await_unconnected(&rig);
	check(pl_publisher_subscribers(rig.publisher, &at_publisher, 1) == 1 && at_publisher.ended);
	check_number(at_publisher.accounts.next, QUIET_FRAMES + 7);
	check_number(place_info(rig.subscriber).accounts.next, QUIET_FRAMES + 7);
	place_rig_close(&rig);
}

/* -- two processes -------------------------------------------------------------------------------------------------------- */

/* Starts a child with an end of a socket pair. */
static pid_t place_child(int *fd, void (*run)(int fd))
{
	int pair[2];
	pid_t pid;

	check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	pid = process_fork();
	if (pid == 0) {
		run(pair[1]);
		_exit(0);
	}
	close(pair[1]);
	*fd = pair[0];
	return pid;
}

/* A child that connects to the address that it is told, takes the first frame, reports that, and holds the frame. */
static void child_holds(int fd)
{
	struct pl_context *context = context_open(&place_threads);
	struct pl_subscriber *subscriber;
	struct pl_stream_frame *frame;
	struct pl_error error;
	struct pl_peer *peer;
	char address[96];

	check(read(fd, address, sizeof(address)) == sizeof(address));
	check_ok(pl_connect(context, address, 0, &peer, &error), &error);
	subscriber = place_subscriber(peer);
	check(write(fd, "s", 1) == 1);
	place_take(subscriber, 0, PL_FRAME_IN_PLACE, &frame);
	check(write(fd, "t", 1) == 1);
	for (;;)
		pause();
}

static void await_child(int fd)
{
	char step;

	check(read(fd, &step, 1) == 1);
}

/* The death of a subscriber gives its slots back. */
static void test_subscriber_killed(void *argument)
{
	char address[96] = "";
	struct pl_publisher *publisher;
	struct pl_listener *listener;
	struct pl_context *context;
	pid_t child;
	int fd;

	require_second_mapping();
	child = place_child(&fd, child_holds);
	context = context_open(argument);
	listener = listener_open(argument, context, address);
	publisher = place_publisher(context, UINT64_MAX);
	check(write(fd, address, sizeof(address)) == sizeof(address));
	await_child(fd);
	place_publish(publisher, SLOTS);
	await_child(fd);
	check_number(place_loan(publisher, 20 * MS), -EAGAIN);
	process_kill(child, SIGKILL);
	check_number(place_loan(publisher, AMPLE_TIME), 0);
	pl_publisher_close(publisher);
	pl_listener_close(listener);
	pl_close(context);
	close(fd);
}

/* A child that tells its address, publishes all slots once it is told to, and waits. */
static void child_publishes(int fd)
{
	char address[96] = "";
	struct pl_context *context = context_open(&place_threads);
	struct pl_publisher *publisher;

	listener_open(&place_threads, context, address);
	publisher = place_publisher(context, UINT64_MAX);
	check(write(fd, address, sizeof(address)) == sizeof(address));
	await_child(fd);
	place_publish(publisher, SLOTS);
	for (;;)
		pause();
}

/* After the death of a publisher, held frames and ready ones can be read. */
static void test_publisher_killed(void *argument)
{
	struct pl_stream_frame *frames[2], *none;
	struct place_rig rig = { 0 };
	struct pl_context *context;
	struct pl_error error;
	struct pl_peer *peer;
	char address[96];
	uint64_t taken;
	pid_t child;
	int fd, rc;

	require_second_mapping();
	child = place_child(&fd, child_publishes);
	context = context_open(argument);
	check(read(fd, address, sizeof(address)) == sizeof(address));
	check_ok(pl_connect(context, address, 0, &peer, &error), &error);
	rig.subscriber = place_subscriber(peer);
	check(write(fd, "p", 1) == 1);
	place_take(rig.subscriber, 0, PL_FRAME_IN_PLACE, &frames[0]);
	await_pending(&rig, 1);
	process_kill(child, SIGKILL);
	await_unconnected(&rig);
	check_placed(frames[0], 0, 0);
	place_take(rig.subscriber, 1, 0, &frames[1]);
	for (taken = 2; (rc = pl_subscriber_take(rig.subscriber, &none, 1, AMPLE_TIME, &error)) == 1; taken++) {
		check_placed(none, taken, 0);
		pl_frame_release(none);
	}
	check_number(rc, -ENOTCONN);
	check(place_info(rig.subscriber).accounts.delivered == taken);
	check_placed(frames[0], 0, 0);
	check_placed(frames[1], 1, 0);
	pl_subscriber_close(rig.subscriber);
	pl_close(context);
	close(fd);
}

#define PLACED(name, function, seconds) \
	{ name " thread", function, &place_threads, seconds }, { name " polling", function, &place_polling, seconds }, \
	{ \
		name " manual", function, &place_manual, seconds \
	}

int main(void)
{
	static const struct test_case cases[] = {
		PLACED("same memory", test_same_memory, 20),
		PLACED("held", test_held, 20),
		PLACED("ready", test_ready, 20),
		PLACED("demoted", test_demoted, 20),
		PLACED("paused", test_paused, 20),
		PLACED("attached", test_attached, 20),
		PLACED("publisher closed", test_publisher_closed, 20),
		PLACED("closes", test_place_closes, 20),
		{ "quiet slots", test_quiet_slots, NULL, 20 },
		{ "quiet announcement", test_quiet_announcement, NULL, 20 },
		{ "quiet sleep", test_quiet_sleep, NULL, 20 },
		{ "quiet readers", test_quiet_readers, NULL, 20 },
		{ "quiet changes", test_quiet_changes, NULL, 20 },
		{ "quiet end", test_quiet_end, NULL, 20 },
		{ "refused", test_place_refused, &place_threads, 20 },
		{ "refused tcp", test_place_refused, &place_tcp, 20 },
		{ "subscriber killed", test_subscriber_killed, &place_threads, 20 },
		{ "publisher killed", test_publisher_killed, &place_threads, 20 },
	};

	return cases_run("stream_place", cases, sizeof(cases) / sizeof(cases[0]));
}
