/* SPDX-License-Identifier: BSD-2-Clause */
/* pl_subscriber_read(): which bytes of which frames it gives, and how it fails. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <peerlane/stream.h>

#include "stream/subscriber.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"

#define SLOT 10000
#define SLOTS 4u
#define GUARD 100

static const struct setting part_tcp_threads = {
	.name = "thread", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 2
};
static const struct setting part_local_threads = {
	.name = "thread", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};
static const struct setting part_tcp_manual = {
	.name = "manual", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};
static const struct setting part_local_manual = {
	.name = "manual", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

/* A publisher in `far`, a subscriber in `near`, and memory that parts are read into. */
struct part_rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct pl_subscriber *subscriber;
	struct buffer buffer;
	struct pump pump;
};

static void part_publisher_open(struct part_rig *rig, uint64_t first)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;

	options.slot_bytes = SLOT;
	options.slots = SLOTS;
	options.allow_block = true;
	options.patience = UINT64_MAX;
	options.first = first;
	options.layout = (struct pl_layout){ PL_ELEMENT_UINT, 8, 1, 1, { 100 } };
	check_ok(pl_publisher_open(rig->environment.far, "cam0", &options, &rig->publisher, &error), &error);
}

static void part_rig_open(struct part_rig *rig, const struct setting *setting, uint64_t first,
			  const struct pl_subscriber_options *options)
{
	struct pl_error error;

	memset(rig, 0, sizeof(*rig));
	environment_open(&rig->environment, setting);
	pump_start(&rig->environment, &rig->pump, rig->environment.far);
	part_publisher_open(rig, first);
	check_ok(pl_subscriber_open(rig->environment.near_peer, "cam0", options, AMPLE_TIME, &rig->subscriber, &error),
		 &error);
	buffer_open(&rig->buffer, rig->environment.near, SLOT + GUARD, PL_ACCESS_LOCAL);
}

static void part_rig_close(struct part_rig *rig)
{
	pl_subscriber_close(rig->subscriber);
	buffer_close(&rig->buffer);
	pump_stop(&rig->pump);
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
}

static uint64_t part_frame_length(uint64_t sequence)
{
	return SLOT - sequence % 3;
}

static void part_publish(struct pl_publisher *publisher, unsigned count)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info;
	struct pl_error error;

	while (count--) {
		struct pl_stream_frame *frame = loan_frame(publisher, &info);

		options.length = part_frame_length(info.sequence);
		options.captured = info.sequence + 1;
		frame_fill(&info, options.length);
		check_ok(pl_frame_publish(frame, &options, &error), &error);
	}
}

/* Reads a part to the beginning of the rig's buffer. */
static int part_read(struct part_rig *rig, uint64_t sequence, uint64_t offset, uint64_t length)
{
	return pl_subscriber_read(rig->subscriber, sequence, offset, length, rig->buffer.region, 0, AMPLE_TIME, NULL,
				  NULL);
}

/* Reads a part to another place in the buffer. It and nothing else must be there then. */
static void part_check(struct part_rig *rig, uint64_t sequence, uint64_t offset, uint64_t length)
{
	uint8_t *bytes = rig->buffer.bytes;
	struct pl_error error;

	memset(bytes, POISON, SLOT + GUARD);
	check_ok(pl_subscriber_read(rig->subscriber, sequence, offset, length, rig->buffer.region, GUARD, AMPLE_TIME,
				    NULL, &error),
		 &error);
	value_check(bytes, GUARD, POISON);
	pattern_check(bytes + GUARD, length, sequence, offset);
	value_check(bytes + GUARD + length, SLOT - length, POISON);
}

static void test_parts(void *argument)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct part_rig rig;
	struct pl_error error;

	part_rig_open(&rig, argument, 0, NULL);
	part_publish(rig.publisher, 3);
	for (uint64_t sequence = 0; sequence < 3; sequence++) {
		uint64_t length = part_frame_length(sequence);

		part_check(&rig, sequence, 0, length);
		part_check(&rig, sequence, 0, 1);
		part_check(&rig, sequence, 4097, 4001);
		part_check(&rig, sequence, length - 1, 1);
		part_check(&rig, sequence, length, 0);
	}
	/* A description needs no memory. */
	check_ok(pl_subscriber_read(rig.subscriber, 2, 0, 0, NULL, 0, AMPLE_TIME, &info, &error), &error);
	check(info.sequence == 2 && info.length == SLOT - 2 && info.captured == 3 && info.taken >= info.published);
	check(!info.data && !info.metadata && info.layout.shape[0] == 100 && info.flags == 0);
	/* Parts have no fate: the frames themselves are still to be taken. */
	check_number(exact_accounts(rig.subscriber).delivered, 0);
	part_rig_close(&rig);
}

static void test_paused(void *argument)
{
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;
	struct part_rig rig;

	part_rig_open(&rig, argument, 0, NULL);
	pl_subscriber_pause(rig.subscriber, true);
	part_publish(rig.publisher, SLOTS + 2);
	do {
		progress(&rig.environment);
		check(pl_subscriber_query(rig.subscriber, &info) == 0);
	} while (info.stream.published < SLOTS + 2);
	part_check(&rig, info.stream.published - 1, 5000, 1000);
	part_check(&rig, 2, 0, 1000);
	check(exact_accounts(rig.subscriber).delivered == 0);
	part_rig_close(&rig);
}

/* The publisher claims a slot before it writes there: the frame is gone from the claim on. */
static void test_claimed(void *argument)
{
	struct pl_stream_frame *loan;
	struct pl_frame_info info;
	struct part_rig rig;

	part_rig_open(&rig, argument, 0, NULL);
	part_publish(rig.publisher, SLOTS);
	part_check(&rig, 0, 0, 1000);
	loan = loan_frame(rig.publisher, &info);
	check_number(part_read(&rig, 0, 0, 1000), -ENOENT);
	frame_fill(&info, SLOT);
	check_number(part_read(&rig, 0, 0, 1000), -ENOENT);
	check_number(part_read(&rig, 0, 0, 0), -ENOENT);
	part_check(&rig, 1, 0, 1000);
	/* A loan is no frame yet. */
	check_number(part_read(&rig, SLOTS, 0, 1), -EAGAIN);
	pl_frame_discard(loan);
	check_number(part_read(&rig, SLOTS, 0, 1), -ECANCELED);
	check_number(part_read(&rig, SLOTS + 1, 0, 1), -EAGAIN);
	part_rig_close(&rig);
}

/* Of all sequences only those of the ring can be read, also if the first one is not 0. */
static void test_laps(void *argument)
{
	struct part_rig rig;

	part_rig_open(&rig, argument, 1001, NULL);
	part_publish(rig.publisher, 1);
	check_number(part_read(&rig, 1000, 0, 1), -ENOENT);
	check_number(part_read(&rig, 998, 0, 1), -ENOENT);
	part_publish(rig.publisher, 3 * SLOTS);
	for (uint64_t sequence = 1000; sequence < 1002 + 2 * SLOTS; sequence++)
		check_number(part_read(&rig, sequence, 0, 1), -ENOENT);
	for (uint64_t sequence = 1002 + 2 * SLOTS; sequence < 1002 + 3 * SLOTS; sequence++)
		part_check(&rig, sequence, 100, 9000);
	check_number(part_read(&rig, 1002 + 3 * SLOTS, 0, 1), -EAGAIN);
	check_number(part_read(&rig, UINT64_MAX, 0, 1), -ERANGE);
	part_rig_close(&rig);
}

static void test_ranges(void *argument)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_region *foreign;
	struct part_rig rig;
	struct pl_error error;

	part_rig_open(&rig, argument, 0, NULL);
	part_publish(rig.publisher, 2);
	/* Nothing outside the slot is read. */
	check_number(part_read(&rig, 0, 1, SLOT), -ERANGE);
	check_number(part_read(&rig, 0, UINT64_MAX, 2), -ERANGE);
	value_check(rig.buffer.bytes, SLOT + GUARD, POISON);
	/* Frame 1 has a byte less than the slot. */
	check_number(part_read(&rig, 1, SLOT - 2, 2), -ERANGE);
	check_number(part_read(&rig, 1, SLOT, 0), -ERANGE);
	check_number(pl_subscriber_read(rig.subscriber, 0, 0, 2, rig.buffer.region, SLOT + GUARD - 1, AMPLE_TIME, NULL,
					NULL),
		     -ERANGE);
	check_number(pl_subscriber_read(rig.subscriber, 0, 0, 1, NULL, 0, AMPLE_TIME, NULL, NULL), -EINVAL);
	check_ok(pl_region_allocate(rig.environment.far, SLOT, PL_ACCESS_LOCAL, &foreign, &error), &error);
	check_number(pl_subscriber_read(rig.subscriber, 0, 0, 1, foreign, 0, AMPLE_TIME, NULL, NULL), -EINVAL);
	pl_region_deregister(foreign);
	/* A read that fails describes nothing. */
	info.sequence = 77;
	check_number(pl_subscriber_read(rig.subscriber, 2, 0, 1, rig.buffer.region, 0, AMPLE_TIME, &info, NULL),
		     -EAGAIN);
	check_number(info.sequence, 77);
	for (unsigned i = 0; i < 2; i++) {
		info.size = i ? sizeof(info) + 1 : sizeof(info.size) - 1;
		check_number(pl_subscriber_read(rig.subscriber, 0, 0, 1, rig.buffer.region, 0, AMPLE_TIME, &info, NULL),
			     -EINVAL);
	}
	info.size = sizeof(info.size);
	check_number(pl_subscriber_read(rig.subscriber, 0, 0, 1, rig.buffer.region, 0, AMPLE_TIME, &info, NULL), 0);
	check_number(info.sequence, 77);
	value_check(rig.buffer.bytes + SLOT, GUARD, POISON);
	part_check(&rig, 1, SLOT - 2, 1);
	part_rig_close(&rig);
}

/* Sets the phase of the subscriber's connection. Returns the one before. */
static enum pl_subscriber_phase set_phase(struct pl_subscriber *subscriber, enum pl_subscriber_phase phase)
{
	enum pl_subscriber_phase before;

	pl_lock_take(&subscriber->lock);
	before = subscriber->phase;
	subscriber->phase = phase;
	pl_lock_release(&subscriber->lock);
	return before;
}

/* While another thread attaches the subscriber, the subscriber has a peer and no keys of its ring. */
static void test_attaching(void *argument)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct part_rig rig;
	struct pl_error error;

	part_rig_open(&rig, argument, 0, NULL);
	/* No message of the publisher is under way after this answer. */
	check(pl_peer_publishers(rig.environment.near_peer, &info, 1, AMPLE_TIME, &error) == 1);
	for (unsigned phase = PL_SUBSCRIBER_ASKED; phase <= PL_SUBSCRIBER_ANSWERED; phase++) {
		check(set_phase(rig.subscriber, phase) == PL_SUBSCRIBER_LIVE);
		/* This reason comes before a range that cannot be. */
		check_number(
			pl_subscriber_read(rig.subscriber, 0, 1, SLOT, rig.buffer.region, 0, AMPLE_TIME, NULL, &error),
			-ENOTCONN);
		check_text(error.id, "PEER-LOST");
		set_phase(rig.subscriber, PL_SUBSCRIBER_LIVE);
	}
	part_publish(rig.publisher, 1);
	part_check(&rig, 0, 0, 1000);
	part_rig_close(&rig);
}

/* A part holds no slot back, and a subscriber that does so reads parts of its frames. */
static void test_blocking(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_stream_frame *frame;
	struct part_rig rig;
	struct pl_error error;

	options.overflow = PL_OVERFLOW_BLOCK;
	options.queue = 1;
	part_rig_open(&rig, argument, 0, &options);
	part_publish(rig.publisher, SLOTS);
	part_check(&rig, 1, 7000, 1000);
	part_check(&rig, SLOTS - 1, 7000, 1000);
	for (unsigned i = 0; i < SLOTS; i++) {
		check_ok(pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, &error) == 1 ? 0 : -EIO, &error);
		pl_frame_release(frame);
	}
	part_publish(rig.publisher, SLOTS);
	check_number(part_read(&rig, SLOTS - 1, 0, 1), -ENOENT);
	part_check(&rig, SLOTS, 7000, 1000);
	check(exact_accounts(rig.subscriber).delivered == SLOTS);
	part_rig_close(&rig);
}

/* The connection ends, and another one begins; then the publisher closes, and another instance begins. */
static void test_connections(void *argument)
{
	struct pl_peer *near_peer, *far_peer;
	struct pl_stream_frame *frame;
	struct part_rig rig;
	struct pl_error error;

	part_rig_open(&rig, argument, 0, NULL);
	part_publish(rig.publisher, 2);
	part_check(&rig, 1, 0, 1000);
	pl_peer_close(rig.environment.far_peer);
	while (part_read(&rig, 1, 0, 1000) == 0)
		progress(&rig.environment);
	check_number(part_read(&rig, 1, 0, 1000), -ENOTCONN);
	connect_pair(&rig.environment, rig.environment.near, rig.environment.listener, &near_peer, &far_peer);
	check_ok(pl_subscriber_attach(rig.subscriber, near_peer, AMPLE_TIME, &error), &error);
	part_check(&rig, 1, 0, 1000);
	pl_peer_close(rig.environment.near_peer);
	rig.environment.near_peer = near_peer;
	rig.environment.far_peer = far_peer;
	pl_publisher_close(rig.publisher);
	while (part_read(&rig, 1, 0, 1000) == 0)
		progress(&rig.environment);
	check_number(part_read(&rig, 1, 0, 1000), -ENOTCONN);
	part_publisher_open(&rig, 0);
	part_publish(rig.publisher, 1);
	check_ok(pl_subscriber_attach(rig.subscriber, near_peer, AMPLE_TIME, &error), &error);
	check_number(part_read(&rig, 0, 0, 1000), -ESTALE);
	while (pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, NULL) == 1)
		pl_frame_release(frame);
	part_check(&rig, 0, 0, 1000);
	part_rig_close(&rig);
}

/* The other end makes no progress: the call ends, and so does the subscriber. Over local, a read needs no progress. */
static void test_silence(void *argument)
{
	struct part_rig rig;
	uint64_t begin;

	part_rig_open(&rig, argument, 0, NULL);
	part_publish(rig.publisher, 1);
	part_check(&rig, 0, 0, 1000);
	pump_stop(&rig.pump);
	begin = clock_now();
	check_number(pl_subscriber_read(rig.subscriber, 0, 0, 1000, rig.buffer.region, 0, SECOND / 20, NULL, NULL),
		     -ETIMEDOUT);
	check(clock_now() - begin < SLACK);
	part_rig_close(&rig);
}

/* A subscriber that gives up before the publisher answers costs nobody the connection. */
static void test_impatient(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_subscriber *impatient;
	struct part_rig rig;

	part_rig_open(&rig, argument, 5, NULL);
	pump_stop(&rig.pump);
	for (unsigned i = 0; i < 2; i++) {
		options.push = i;
		check_number(
			pl_subscriber_open(rig.environment.near_peer, "cam0", &options, SECOND / 20, &impatient, NULL),
			-ETIMEDOUT);
	}
	pump_start(&rig.environment, &rig.pump, rig.environment.far);
	part_publish(rig.publisher, 1);
	part_check(&rig, 5, 0, 1000);
	part_rig_close(&rig);
}

static bool is_connected(const struct part_rig *rig)
{
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;

	check(pl_subscriber_query(rig->subscriber, &info) == 0);
	return info.connected;
}

static void part_attach(struct part_rig *rig)
{
	struct scenario_environment *environment = &rig->environment;
	struct pl_peer *old = environment->near_peer;
	struct pl_error error;

	while (is_connected(rig))
		progress(environment);
	connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
		     &environment->far_peer);
	check_ok(pl_subscriber_attach(rig->subscriber, environment->near_peer, AMPLE_TIME, &error), &error);
	pl_peer_close(old);
}

/* The connection is lost twice before the program learns of a new instance, whose ring has gone on meanwhile. */
static void attach_twice(const struct setting *setting, bool push)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_stream_frame *frame;
	struct pl_accounts accounts;
	struct part_rig rig;
	int rc;

	options.push = push;
	part_rig_open(&rig, setting, 0, &options);
	pl_publisher_close(rig.publisher);
	part_publisher_open(&rig, 10);
	pl_peer_close(rig.environment.far_peer);
	part_attach(&rig);
	part_publish(rig.publisher, SLOTS + 3);
	pl_peer_close(rig.environment.far_peer);
	part_attach(&rig);
	check_number(pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, NULL), -ESTALE);
	part_publish(rig.publisher, 1);
	while ((rc = pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, NULL)) == 1) {
		struct pl_frame_info info = PL_FRAME_INFO_INIT;

		check(pl_frame_query(frame, &info) == 0);
		pl_frame_release(frame);
		if (info.sequence == 10 + SLOTS + 3)
			break;
	}
	check_number(rc, 1);
	accounts = exact_accounts(rig.subscriber);
	check_number(accounts.first, 10);
	check(accounts.missed + accounts.lapped + accounts.dropped >= 3 && is_connected(&rig));
	part_rig_close(&rig);
}

/* Waits until the subscriber has all bytes of a frame. One that is still read when the connection ends is missed. */
static void await_whole(struct part_rig *rig)
{
	bool ready = false;

	while (!ready) {
		progress(&rig->environment);
		pl_lock_take(&rig->subscriber->lock);
		ready = pl_subscriber_first_ready(rig->subscriber);
		pl_lock_release(&rig->subscriber->lock);
	}
}

/* The publisher of a new instance closes before the program learns of it: the accounts of the old one stay. */
static void test_unseen_instance(void *argument)
{
	struct pl_accounts accounts;
	struct part_rig rig;

	part_rig_open(&rig, argument, 0, NULL);
	part_publish(rig.publisher, 1);
	part_check(&rig, 0, 0, 1000);
	await_whole(&rig);
	pl_publisher_close(rig.publisher);
	part_publisher_open(&rig, 10);
	pl_peer_close(rig.environment.far_peer);
	part_attach(&rig);
	part_publish(rig.publisher, 3);
	pl_publisher_close(rig.publisher);
	rig.publisher = NULL;
	while (is_connected(&rig))
		progress(&rig.environment);
	accounts = exact_accounts(rig.subscriber);
	check_number(accounts.next, 1);
	check_number(accounts.missed, 0);
	part_rig_close(&rig);
}

static void test_two_attaches(void *argument)
{
	attach_twice(argument, false);
	attach_twice(argument, true);
}

/*
 * A subscriber had frames of an instance whose sequences lie beyond those of the next one, and gives up before the next one
 * answers. The connection must outlive the message by which the subscriber leaves.
 */
static void give_up_attach(const struct setting *setting, bool push)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_stream_frame *frame;
	struct part_rig rig;
	struct pl_error error;

	options.push = push;
	part_rig_open(&rig, setting, 500, &options);
	part_publish(rig.publisher, 2);
	for (unsigned i = 0; i < 2; i++) {
		check_ok(pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, &error) == 1 ? 0 : -EIO, &error);
		pl_frame_release(frame);
	}
	pl_publisher_close(rig.publisher);
	while (is_connected(&rig))
		progress(&rig.environment);
	part_publisher_open(&rig, 0);
	part_publish(rig.publisher, 1);
	pump_stop(&rig.pump);
	check_number(pl_subscriber_attach(rig.subscriber, rig.environment.near_peer, SECOND / 20, &error), -ETIMEDOUT);
	pump_start(&rig.environment, &rig.pump, rig.environment.far);
	check_ok(pl_subscriber_attach(rig.subscriber, rig.environment.near_peer, AMPLE_TIME, &error), &error);
	check_number(pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, NULL), -ESTALE);
	part_rig_close(&rig);
}

static void test_impatient_attach(void *argument)
{
	give_up_attach(argument, false);
	give_up_attach(argument, true);
}

/* The same with an answer that the subscriber cannot accept: it holds a frame, and the next instance has other slots. */
static void test_refused_attach(void *argument)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_stream_frame *frame;
	struct part_rig rig;
	struct pl_error error;

	part_rig_open(&rig, argument, 500, NULL);
	part_publish(rig.publisher, 2);
	check_ok(pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, &error) == 1 ? 0 : -EIO, &error);
	/* The program does not learn of this instance: the subscriber has its restart still to tell. */
	pl_publisher_close(rig.publisher);
	while (is_connected(&rig))
		progress(&rig.environment);
	part_publisher_open(&rig, 400);
	check_ok(pl_subscriber_attach(rig.subscriber, rig.environment.near_peer, AMPLE_TIME, &error), &error);
	pl_publisher_close(rig.publisher);
	while (is_connected(&rig))
		progress(&rig.environment);
	options.slot_bytes = 2 * SLOT;
	check_ok(pl_publisher_open(rig.environment.far, "cam0", &options, &rig.publisher, &error), &error);
	check_number(pl_subscriber_attach(rig.subscriber, rig.environment.near_peer, AMPLE_TIME, &error), -EBUSY);
	check_text(error.id, "STREAM-HELD");
	pl_frame_release(frame);
	while (pl_subscriber_take(rig.subscriber, &frame, 1, 0, NULL) == 1)
		pl_frame_release(frame);
	check_ok(pl_subscriber_attach(rig.subscriber, rig.environment.near_peer, AMPLE_TIME, &error), &error);
	part_rig_close(&rig);
}

/* -- frames that are pushed ------------------------------------------------------------------------------------------ */

static void pushed_rig_open(struct part_rig *rig, const struct setting *setting, unsigned queue)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;

	options.push = true;
	options.overflow = PL_OVERFLOW_BLOCK;
	options.queue = queue;
	options.held = 1;
	part_rig_open(rig, setting, 0, &options);
}

static void await_pushed(struct part_rig *rig, uint64_t next)
{
	while (exact_accounts(rig->subscriber).next < next)
		progress(&rig->environment);
}

static struct pl_stream_frame *take_next(struct part_rig *rig, uint64_t sequence)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frame = NULL;
	struct pl_error error;
	int rc = pl_subscriber_take(rig->subscriber, &frame, 1, AMPLE_TIME, &error);

	check_ok(rc < 0 ? rc : 0, &error);
	check(pl_frame_query(frame, &info) == 0);
	check_number(info.sequence, sequence);
	return frame;
}

/* Parts of frames that are ready, and of one that the program holds. The connection is not needed for them. */
static void test_pushed(void *argument)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frame;
	struct part_rig rig;
	struct pl_error error;

	pushed_rig_open(&rig, argument, SLOTS);
	part_publish(rig.publisher, 3);
	await_pushed(&rig, 3);
	for (uint64_t sequence = 0; sequence < 3; sequence++) {
		uint64_t length = part_frame_length(sequence);

		part_check(&rig, sequence, 0, length);
		part_check(&rig, sequence, 4097, 4001);
		part_check(&rig, sequence, length, 0);
		check_number(part_read(&rig, sequence, length, 1), -ERANGE);
	}
	check_ok(pl_subscriber_read(rig.subscriber, 2, 0, 0, NULL, 0, AMPLE_TIME, &info, &error), &error);
	check(info.sequence == 2 && info.length == SLOT - 2 && info.captured == 3 && info.taken >= info.published);
	check(!info.data && !info.metadata && info.layout.shape[0] == 100 && info.flags == 0);
	check_number(part_read(&rig, 3, 0, 1), -EAGAIN);
	check_number(part_read(&rig, UINT64_MAX, 0, 1), -ERANGE);
	check_number(pl_subscriber_read(rig.subscriber, 0, 0, 1, NULL, 0, AMPLE_TIME, NULL, NULL), -EINVAL);
	check_number(exact_accounts(rig.subscriber).delivered, 0);
	frame = take_next(&rig, 0);
	part_check(&rig, 0, 7000, 1000);
	pl_frame_release(frame);
	check_number(pl_subscriber_read(rig.subscriber, 0, 0, 1, rig.buffer.region, 0, AMPLE_TIME, NULL, &error),
		     -ENOENT);
	check(!strcmp(error.id, "FRAME-GONE"));
	pl_peer_close(rig.environment.far_peer);
	rig.environment.far_peer = NULL;
	while (is_connected(&rig))
		progress(&rig.environment);
	part_check(&rig, 2, 7000, 1000);
	part_rig_close(&rig);
}

#define PAGE 4096
#define PAGES 3

/* Memory whose second page cannot be written until `open`: a copy to it stops there. */
static struct {
	uint8_t *bytes;
	atomic_bool stopped, open;
} barrier;

static void stop_at_barrier(int signal, siginfo_t *info, void *context)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	uint8_t *at = info->si_addr;

	(void)signal;
	(void)context;
	if (at < barrier.bytes + PAGE || at >= barrier.bytes + 2 * PAGE)
		abort();
	atomic_store(&barrier.stopped, true);
	while (!atomic_load(&barrier.open))
		nanosleep(&pause, NULL);
	mprotect(barrier.bytes + PAGE, PAGE, PROT_READ | PROT_WRITE);
}

struct stopped_read {
	struct part_rig *rig;
	struct pl_region *region;
	uint64_t sequence;
};

static void *read_to_barrier(void *argument)
{
	struct stopped_read *read = argument;
	struct pl_error error;

	check_ok(pl_subscriber_read(read->rig->subscriber, read->sequence, 0, part_frame_length(read->sequence),
				    read->region, 0, AMPLE_TIME, NULL, &error),
		 &error);
	return NULL;
}

/* The program releases a frame while another thread reads it: the publisher gets the slot after the read. */
static void test_pushed_slot_is_kept(void *argument)
{
	const struct sigaction action = { .sa_sigaction = stop_at_barrier, .sa_flags = SA_SIGINFO };
	struct stopped_read read;
	struct part_rig rig;
	struct pl_error error;
	uint64_t next = 0;
	pthread_t thread;

	pushed_rig_open(&rig, argument, 1);
	check(sigaction(SIGSEGV, &action, NULL) == 0);
	barrier.bytes = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(barrier.bytes != MAP_FAILED);
	read.rig = &rig;
	check_ok(pl_region_register(rig.environment.near, barrier.bytes, PAGES * PAGE, PL_ACCESS_LOCAL, &read.region,
				    &error),
		 &error);
	/* More often than there are slots, so that a slot that did not come back would be missed. */
	for (unsigned i = 0; i < 5; i++) {
		part_publish(rig.publisher, 1);
		await_pushed(&rig, next + 1);
		check(mprotect(barrier.bytes + PAGE, PAGE, PROT_NONE) == 0);
		atomic_store(&barrier.stopped, false);
		atomic_store(&barrier.open, false);
		read.sequence = next;
		check(pthread_create(&thread, NULL, read_to_barrier, &read) == 0);
		while (!atomic_load(&barrier.stopped))
			progress(&rig.environment);
		pl_frame_release(take_next(&rig, next++));
		for (unsigned j = 0; j < 6; j++) {
			part_publish(rig.publisher, 1);
			pl_frame_release(take_next(&rig, next++));
		}
		atomic_store(&barrier.open, true);
		pthread_join(thread, NULL);
		pattern_check(barrier.bytes, part_frame_length(read.sequence), read.sequence, 0);
	}
	pl_region_deregister(read.region);
	munmap(barrier.bytes, PAGES * PAGE);
	signal(SIGSEGV, SIG_DFL);
	part_rig_close(&rig);
}

/* -- at full speed ------------------------------------------------------------------------------------------------- */

struct part_writer {
	struct part_rig *rig;
	atomic_ullong published;
	atomic_bool stop;
};

static void *part_write(void *argument)
{
	struct part_writer *writer = argument;
	uint64_t random = 1;

	while (!atomic_load(&writer->stop)) {
		struct timespec pause = { .tv_nsec = (long)(random_next(&random) % 100000) };

		part_publish(writer->rig->publisher, 1);
		if (random_next(&random) % 2)
			nanosleep(&pause, NULL);
		atomic_fetch_add(&writer->published, 1);
	}
	return NULL;
}

#define HUNT_TIME (slowness() * SECOND / 4)

/* The publisher overwrites slots all the time: each part that is read is of one frame. */
static void test_part_hunt(void *argument)
{
	struct part_rig rig;
	struct part_writer writer = { .rig = &rig };
	unsigned tries = 0, whole = 0, gone = 0;
	uint64_t end, limit;
	pthread_t thread;

	part_rig_open(&rig, argument, 0, NULL);
	pl_subscriber_pause(rig.subscriber, true);
	check(pthread_create(&thread, NULL, part_write, &writer) == 0);
	end = clock_now() + HUNT_TIME;
	limit = clock_now() + AMPLE_TIME;
	/* One of the threads may stand still all the time on a busy machine. */
	while (clock_now() < (whole && gone ? end : limit)) {
		uint64_t published = atomic_load(&writer.published);
		/* In turn a young frame and an old one, which is probably overwritten. */
		uint64_t age = tries % 2 ? 1 : SLOTS, sequence = published < age ? 0 : published - age;
		int rc = part_read(&rig, sequence, 0, SLOT - 2);

		check(rc == 0 || rc == -ENOENT || rc == -EAGAIN);
		if (rc == 0)
			pattern_check(rig.buffer.bytes, SLOT - 2, sequence, 0);
		whole += rc == 0;
		tries++;
		gone += rc == -ENOENT;
	}
	atomic_store(&writer.stop, true);
	pthread_join(thread, NULL);
	printf("%u tries: %u whole, %u gone\n", tries, whole, gone);
	check(whole > 0 && gone > 0);
	part_rig_close(&rig);
}

#define ALL(name, function, seconds) \
	{ name " tcp", function, &part_tcp_threads, seconds }, \
		{ name " local", function, &part_local_threads, seconds }, \
		{ name " tcp manual", function, &part_tcp_manual, seconds }, \
	{ \
		name " local manual", function, &part_local_manual, seconds \
	}
#define BOTH(name, function, seconds) \
	{ name " tcp", function, &part_tcp_threads, seconds }, \
	{ \
		name " local", function, &part_local_threads, seconds \
	}

struct early_read {
	struct part_rig *rig;
	uint64_t sequence;
	int status;
	atomic_bool done;
};

static void *read_early(void *argument)
{
	struct early_read *read = argument;

	read->status = part_read(read->rig, read->sequence, 0, SLOT - 2);
	atomic_store(&read->done, true);
	return NULL;
}

/*
 * A frame is written and published while a part of it is being read, after each number of steps of the publisher's end.
 * The read may come too early, but must never return bytes from before the publication.
 */
static void publish_while_reading(struct part_rig *rig)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_error error;

	options.length = SLOT;
	for (unsigned steps = 0; steps < 24; steps++) {
		struct pl_frame_info info;
		struct pl_stream_frame *frame = loan_frame(rig->publisher, &info);
		struct early_read read = { .rig = rig, .sequence = info.sequence };
		pthread_t thread;

		check_number(pthread_create(&thread, NULL, read_early, &read), 0);
		for (unsigned i = 0; i < steps; i++) {
			sleep_ms(1);
			pl_poll(rig->environment.far, NULL, 0);
		}
		frame_fill(&info, SLOT);
		check_ok(pl_frame_publish(frame, &options, &error), &error);
		while (!atomic_load(&read.done))
			pl_poll(rig->environment.far, NULL, 0);
		pthread_join(thread, NULL);
		if (read.status == 0)
			pattern_check(rig->buffer.bytes, SLOT - 2, info.sequence, 0);
		else
			check_number(read.status, -EAGAIN);
	}
}

static void test_published_meanwhile(void *argument)
{
	struct part_rig rig;

	part_rig_open(&rig, argument, 0, NULL);
	pump_stop(&rig.pump);
	publish_while_reading(&rig);
	part_rig_close(&rig);
}

/*
 * The same with another instance over another connection, whose subscription has the number of the first one. The subscriber has
 * read a later sequence of the first instance before its announcement came.
 */
static void test_published_after_restart(void *argument)
{
	struct pl_stream_frame *frame;
	struct part_rig rig;
	int rc;

	part_rig_open(&rig, argument, 1000, NULL);
	part_publish(rig.publisher, 1);
	part_check(&rig, 1000, 0, 1000);
	pl_publisher_close(rig.publisher);
	part_publisher_open(&rig, 0);
	part_attach(&rig);
	while ((rc = pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, NULL)) == 1)
		pl_frame_release(frame);
	check_number(rc, -ESTALE);
	pump_stop(&rig.pump);
	publish_while_reading(&rig);
	part_rig_close(&rig);
}

int main(void)
{
	static const struct test_case cases[] = {
		ALL("parts", test_parts, 20),
		ALL("paused", test_paused, 20),
		BOTH("claimed", test_claimed, 20),
		BOTH("laps", test_laps, 20),
		{ "ranges", test_ranges, &part_tcp_threads, 20 },
		{ "blocking", test_blocking, &part_local_threads, 20 },
		BOTH("connections", test_connections, 20),
		{ "published meanwhile", test_published_meanwhile, &part_tcp_manual, 20 },
		{ "published after restart", test_published_after_restart, &part_tcp_manual, 20 },
		{ "impatient tcp", test_impatient, &part_tcp_manual, 20 },
		{ "impatient local", test_impatient, &part_local_manual, 20 },
		{ "impatient attach tcp", test_impatient_attach, &part_tcp_manual, 20 },
		{ "impatient attach local", test_impatient_attach, &part_local_manual, 20 },
		BOTH("refused attach", test_refused_attach, 20),
		{ "silence", test_silence, &part_tcp_manual, 20 },
		ALL("pushed", test_pushed, 20),
		BOTH("pushed slot is kept", test_pushed_slot_is_kept, 30),
		BOTH("two attaches", test_two_attaches, 30),
		BOTH("unseen instance", test_unseen_instance, 20),
		{ "attaching", test_attaching, &part_tcp_threads, 20 },
		BOTH("hunt", test_part_hunt, 60),
	};

	return cases_run("stream_part", cases, sizeof(cases) / sizeof(cases[0]));
}
