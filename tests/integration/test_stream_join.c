/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Subscribers that come while the publisher runs at full speed: the first sequence is one that the ring's cursors allowed during the
 * call, and all sequences from there on are counted, in the accounts and in `lost_before`.
 */
#include <pthread.h>
#include <stdio.h>

#include <peerlane/stream.h>

#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"

#define BYTES 2000u
#define SLOTS 8u
/* Frames that are taken after each start. */
#define TAKEN 5u
/* Frames that are published before each take. */
#define BURST (3 * SLOTS)
#define ROUNDS 20u
#define START_KINDS 6u

static const struct setting join_tcp = {
	.name = "tcp", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};
static const struct setting join_local = {
	.name = "local", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

struct rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	pthread_t thread;
	atomic_bool stop;
};

struct way {
	const struct setting *setting;
	bool push;
};

static void *write_frames(void *argument)
{
	struct rig *rig = argument;

	while (!atomic_load(&rig->stop))
		publish_filled(rig->publisher, BYTES);
	return NULL;
}

static struct pl_publisher_info cursors(struct rig *rig)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;

	check(pl_publisher_query(rig->publisher, &info) == 0);
	return info;
}

/* Starts the thread that publishes at full speed, and waits until the thread has overwritten the whole ring. */
static void start_writer(struct rig *rig)
{
	uint64_t before = cursors(rig).published;

	atomic_store(&rig->stop, false);
	check(pthread_create(&rig->thread, NULL, write_frames, rig) == 0);
	while (cursors(rig).published < before + 2 * SLOTS)
		sleep_ms(1);
}

static void stop_writer(struct rig *rig)
{
	atomic_store(&rig->stop, true);
	pthread_join(rig->thread, NULL);
}

static void rig_open(struct rig *rig, const struct setting *setting)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;

	memset(rig, 0, sizeof(*rig));
	environment_open(&rig->environment, setting);
	options.slot_bytes = BYTES;
	options.slots = SLOTS;
	check_ok(pl_publisher_open(rig->environment.far, "join", &options, &rig->publisher, &error), &error);
}

static void rig_close(struct rig *rig)
{
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
}

/* Returns the first sequence of a subscriber that comes when the ring has these cursors. */
static uint64_t first_of(const struct pl_subscriber_options *options, const struct pl_publisher_info *info)
{
	uint64_t oldest = info->claimed > SLOTS ? info->claimed - SLOTS : 0, first = info->published;

	switch (options->start) {
	case PL_START_LATEST:
		first = info->published - 1;
		break;
	case PL_START_HISTORY:
		first = info->published - (options->from < info->published ? options->from : info->published);
		break;
	case PL_START_SEQUENCE:
		return options->from > oldest ? options->from : oldest;
	case PL_START_LIVE:
		break;
	}
	return first > oldest ? first : oldest;
}

/*
 * Takes frames, each of which tells the sequences between it and the one before, or the first one. Each take follows a burst that
 * overwrites the ring, perhaps under the subscriber's reads. The last frames of a burst stay in the ring: a publisher that never
 * pauses laps every read of so short a ring, and the take would have no end.
 */
static void take_some(struct rig *rig, struct pl_subscriber *subscriber, uint64_t next)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frame;
	struct pl_error error;

	for (unsigned i = 0; i < TAKEN; i++) {
		int rc;

		for (unsigned written = 0; written < BURST; written++)
			publish_filled(rig->publisher, BYTES);
		rc = pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error);
		check_ok(rc < 0 ? rc : 0, &error);
		check(pl_frame_query(frame, &info) == 0);
		check(info.sequence >= next);
		check_number(info.lost_before, info.sequence - next);
		pattern_check(info.data, BYTES, info.sequence, 0);
		next = info.sequence + 1;
		pl_frame_release(frame);
	}
}

static void join(struct rig *rig, const struct pl_subscriber_options *options)
{
	struct pl_publisher_info before = cursors(rig), after;
	struct pl_subscriber *subscriber;
	struct pl_accounts accounts;
	struct pl_error error;

	check_ok(pl_subscriber_open(rig->environment.near_peer, "join", options, AMPLE_TIME, &subscriber, &error),
		 &error);
	after = cursors(rig);
	accounts = exact_accounts(subscriber);
	check(accounts.first >= first_of(options, &before) && accounts.first <= first_of(options, &after));
	stop_writer(rig);
	take_some(rig, subscriber, accounts.first);
	check_number(exact_accounts(subscriber).first, accounts.first);
	pl_subscriber_close(subscriber);
}

static struct pl_subscriber_options start_of(unsigned kind, uint64_t now)
{
	const struct pl_subscriber_options starts[START_KINDS] = {
		{ .start = PL_START_LIVE },
		{ .start = PL_START_LATEST },
		{ .start = PL_START_HISTORY, .from = SLOTS / 2 },  /* less than the ring holds */
		{ .start = PL_START_HISTORY, .from = 10 * SLOTS }, /* more */
		{ .start = PL_START_SEQUENCE, .from = 1 },         /* gone by */
		{ .start = PL_START_SEQUENCE, .from = now + 20 },  /* perhaps to come; in the first burst then */
	};
	struct pl_subscriber_options options = starts[kind];

	options.size = sizeof(options);
	return options;
}

static void test_joins(void *argument)
{
	const struct way *way = argument;
	struct rig rig;

	rig_open(&rig, way->setting);
	for (unsigned i = 0; i < ROUNDS * START_KINDS; i++) {
		struct pl_subscriber_options options;

		start_writer(&rig);
		options = start_of(i % START_KINDS, cursors(&rig).published);
		options.push = way->push;
		join(&rig, &options);
	}
	rig_close(&rig);
}

#define WAY(...) (&(const struct way){ __VA_ARGS__ })

int main(void)
{
	const struct test_case cases[] = {
		{ "tcp", test_joins, WAY(&join_tcp, false), 30 },
		{ "tcp push", test_joins, WAY(&join_tcp, true), 30 },
		{ "local", test_joins, WAY(&join_local, false), 30 },
		{ "local push", test_joins, WAY(&join_local, true), 30 },
	};

	return cases_run("stream_join", cases, sizeof(cases) / sizeof(cases[0]));
}
