/* SPDX-License-Identifier: BSD-2-Clause */
/* Losses of streams that the accounts tell apart, limits of one peer, layouts of short frames, and errors by their ids. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <peerlane/stream.h>

#include "stream/subscriber.h"
#include "stream/publisher.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"

#define SLOT 64
#define SLOTS 8u
#define MS 1000000ull

static const struct setting tcp_threads = {
	.name = "thread", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};
static const struct setting local_threads_setting = {
	.name = "thread", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};
/* The publisher writes all frames into slots of the subscriber. */
static const struct setting tcp_push = {
	.name = "push", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

/* A publisher in `far`, and a subscriber in `near`. */
struct rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct pl_subscriber *subscriber;
};

static void rig_open(struct rig *rig, const struct setting *setting, const struct pl_publisher_options *given)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;

	memset(rig, 0, sizeof(*rig));
	environment_open(&rig->environment, setting);
	if (given)
		options = *given;
	options.slot_bytes = SLOT;
	options.slots = SLOTS;
	check_ok(pl_publisher_open(rig->environment.far, "cam0", &options, &rig->publisher, &error), &error);
}

static void rig_close(struct rig *rig)
{
	pl_subscriber_close(rig->subscriber);
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
}

static bool is_pushed(const struct rig *rig)
{
	return !strcmp(rig->environment.setting->name, "push");
}

static int subscribe_at(const struct rig *rig, struct pl_peer *peer, const struct pl_subscriber_options *given,
			struct pl_subscriber **subscriber, struct pl_error *error)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;

	if (given)
		options = *given;
	options.push = is_pushed(rig);
	return pl_subscriber_open(peer, "cam0", &options, AMPLE_TIME, subscriber, error);
}

static void rig_subscribe(struct rig *rig, const struct pl_subscriber_options *options)
{
	struct pl_error error;

	check_ok(subscribe_at(rig, rig->environment.near_peer, options, &rig->subscriber, &error), &error);
}

static void publish_bytes(struct rig *rig, uint64_t length)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info;
	struct pl_stream_frame *frame = loan_frame(rig->publisher, &info);
	struct pl_error error;

	options.length = length;
	check_ok(pl_frame_publish(frame, &options, &error), &error);
}

static void publish_many(struct rig *rig, unsigned count)
{
	while (count--)
		publish_bytes(rig, SLOT);
}

static void discard_one(struct rig *rig)
{
	struct pl_frame_info info;

	pl_frame_discard(loan_frame(rig->publisher, &info));
}

/* Takes the next frame, which must have this sequence. */
static struct pl_frame_info take_one(struct rig *rig, uint64_t sequence)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frame;
	struct pl_error error;
	int rc = pl_subscriber_take(rig->subscriber, &frame, 1, AMPLE_TIME, &error);

	check_ok(rc < 0 ? rc : 0, &error);
	check(pl_frame_query(frame, &info) == 0);
	check_number(info.sequence, sequence);
	pl_frame_release(frame);
	return info;
}

static struct pl_accounts await_counted(struct rig *rig, uint64_t end)
{
	uint64_t limit = clock_now() + AMPLE_TIME;
	struct pl_accounts accounts;

	while ((accounts = exact_accounts(rig->subscriber)).next < end) {
		check(clock_now() < limit);
		settle(&rig->environment, 1);
	}
	return accounts;
}

static struct pl_subscription_info subscription_of(struct pl_publisher *publisher)
{
	struct pl_subscription_info info = PL_SUBSCRIPTION_INFO_INIT;

	check(pl_publisher_subscribers(publisher, &info, 1) == 1);
	return info;
}

/* Returns the accounts of the subscription that ended last. No other one goes on. */
static struct pl_accounts last_ended(struct pl_publisher *publisher)
{
	struct pl_subscription_info infos[8] = { PL_SUBSCRIPTION_INFO_INIT };
	int count = pl_publisher_subscribers(publisher, infos, 8);

	check(count > 0 && count < 8 && infos[count - 1].ended);
	return infos[count - 1].accounts;
}

static void check_sum(const struct pl_accounts *accounts)
{
	check(pl_accounts_exact(accounts));
}

/* -- accounts -------------------------------------------------------------------------------------------------------- */

/* Ends the connection at the publisher, and waits until the subscriber knows. */
static void lose_connection(struct rig *rig)
{
	struct pl_stream_frame *frame;
	struct pl_error error;

	pl_peer_close(rig->environment.far_peer);
	check(pl_subscriber_take(rig->subscriber, &frame, 1, AMPLE_TIME, &error) == -ENOTCONN);
}

static void attach_again(struct rig *rig)
{
	struct pl_peer *near_peer, *far_peer;
	struct pl_error error;

	connect_pair(&rig->environment, rig->environment.near, rig->environment.listener, &near_peer, &far_peer);
	check_ok(pl_subscriber_attach(rig->subscriber, near_peer, AMPLE_TIME, &error), &error);
	pl_peer_close(rig->environment.near_peer);
	rig->environment.near_peer = near_peer;
	rig->environment.far_peer = far_peer;
}

/* Sequences that a cut takes away and that nobody wants are not lost, at both ends, and for a new instance. */
static void test_every_and_cut(void *argument)
{
	struct pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_stream_frame *frame;
	struct pl_accounts accounts;
	struct pl_error error;
	struct rig rig;

	options.every = 3;
	options.queue = 16;
	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, &options);
	publish_many(&rig, 1);
	take_one(&rig, 0);
	lose_connection(&rig);
	/* The ring holds 2 to 9: sequence 1 is gone, and unwanted. */
	publish_many(&rig, 9);
	attach_again(&rig);
	for (uint64_t sequence = 3; sequence <= 9; sequence += 3) {
		struct pl_frame_info info = take_one(&rig, sequence);

		check(info.lost_before == 2 && info.absent_before == 2);
	}
	accounts = exact_accounts(rig.subscriber);
	check(accounts.delivered == 4 && accounts.unwanted == 6 && accounts.missed == 0 && accounts.lapped == 0);
	/* The publisher knows of these sequences, and of no fate of the last ones. */
	publish_many(&rig, 4);
	await_counted(&rig, 14);
	take_one(&rig, 12);
	lose_connection(&rig);
	accounts = last_ended(rig.publisher);
	check_sum(&accounts);
	check(accounts.first == 0 || accounts.first == 2);
	check(accounts.next == 14 && accounts.delivered + accounts.missed + accounts.unwanted == 14 - accounts.first);
	check(accounts.delivered + accounts.missed == (accounts.first ? 4 : 5));
	/* The ring of a new instance loses 0 to 4 before the subscriber tells of the instance: 0 and 3 are wanted. */
	pl_publisher_close(rig.publisher);
	publisher.slot_bytes = SLOT;
	publisher.slots = SLOTS;
	check_ok(pl_publisher_open(rig.environment.far, "cam0", &publisher, &rig.publisher, &error), &error);
	attach_again(&rig);
	publish_many(&rig, 5 + SLOTS);
	attach_again(&rig);
	check(pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, &error) == -ESTALE);
	take_one(&rig, 6);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.missed == 2 && accounts.unwanted >= 4 && accounts.lapped == 0);
	rig_close(&rig);
}

/* A frame tells which of the sequences before it were lost. Frames that are dropped pass on what they would have told. */
static void test_absent(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_frame_info info;
	struct pl_accounts accounts;
	struct rig rig;

	options.queue = 2;
	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, &options);
	publish_many(&rig, 1);
	await_counted(&rig, 1);
	discard_one(&rig);
	publish_many(&rig, 1);
	await_counted(&rig, 3);
	publish_many(&rig, 1);
	/* Frame 0 is dropped. */
	await_counted(&rig, 4);
	info = take_one(&rig, 2);
	check(info.lost_before == 2 && info.absent_before == 1);
	discard_one(&rig);
	discard_one(&rig);
	await_counted(&rig, 6);
	publish_many(&rig, 1);
	await_counted(&rig, 7);
	publish_many(&rig, 1);
	await_counted(&rig, 8);
	/* Frames 3 and then 6 are dropped: 6 would have told of the aborted ones. */
	publish_many(&rig, 1);
	await_counted(&rig, 9);
	info = take_one(&rig, 7);
	check(info.lost_before == 4 && info.absent_before == 2);
	check(take_one(&rig, 8).absent_before == 0);
	discard_one(&rig);
	publish_many(&rig, 1);
	info = take_one(&rig, 10);
	check(info.lost_before == 1 && info.absent_before == 1);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.aborted == 4 && accounts.dropped == 3 && accounts.delivered == 4);
	rig_close(&rig);
}

/* Publishes a loan whose frame was lost. Such a frame has no bytes. */
static void publish_lost(struct rig *rig)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info;
	struct pl_stream_frame *frame = loan_frame(rig->publisher, &info);
	struct pl_error error;

	options.flags = PL_FRAME_LOST;
	options.captured = 1000;
	options.length = 1;
	check(pl_frame_publish(frame, &options, &error) == -EINVAL && !strcmp(error.id, "OPTION"));
	options.length = 0;
	check_ok(pl_frame_publish(frame, &options, &error), &error);
}

/* Gaps of frames that were lost before they came to the publisher count as losses; other gaps do not. */
static void test_skip_lost(void *argument)
{
	struct pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_accounts accounts;
	struct pl_frame_info info;
	struct pl_error error;
	struct rig rig;

	publisher.allow_block = true;
	publisher.patience = UINT64_MAX;
	rig_open(&rig, argument, &publisher);
	options.overflow = PL_OVERFLOW_BLOCK;
	rig_subscribe(&rig, &options);
	publish_many(&rig, 1);
	take_one(&rig, 0);
	check_ok(pl_publisher_skip_lost(rig.publisher, 3, AMPLE_TIME, &error), &error);
	check(pl_publisher_skip_lost(rig.publisher, 2, 0, &error) == -EINVAL && !strcmp(error.id, "OPTION"));
	check_ok(pl_publisher_skip(rig.publisher, 5, AMPLE_TIME, &error), &error);
	publish_many(&rig, 1);
	info = take_one(&rig, 5);
	check(info.lost_before == 4 && info.absent_before == 2);
	accounts = exact_accounts(rig.subscriber);
	check_number(is_pushed(&rig) ? accounts.lapped : accounts.missed, 2);
	check(accounts.aborted == 2 && accounts.delivered == 2 && accounts.next == 6);
	/* Longer than the ring: most of the sequences have no descriptor. */
	check_ok(pl_publisher_skip_lost(rig.publisher, 106, AMPLE_TIME, &error), &error);
	publish_many(&rig, 1);
	info = take_one(&rig, 106);
	check(info.lost_before == 100 && info.absent_before == 0);
	accounts = exact_accounts(rig.subscriber);
	check(accounts.lapped + accounts.missed == 102 && accounts.aborted == 2 && accounts.delivered == 3);
	publish_lost(&rig);
	publish_many(&rig, 1);
	info = take_one(&rig, 108);
	check(info.lost_before == 1 && info.absent_before == 0);
	check_ok(pl_publisher_end(rig.publisher, AMPLE_TIME, &error), &error);
	accounts = subscription_of(rig.publisher).accounts;
	check_sum(&accounts);
	check(accounts.lapped + accounts.missed == 103 && accounts.aborted == 2 && accounts.next == 109);
	rig_close(&rig);
}

/* Takes frames until the stream ends. Returns their number. */
static unsigned take_rest(struct rig *rig)
{
	struct pl_stream_frame *frame;
	struct pl_error error;
	unsigned count = 0;
	int rc;

	while ((rc = pl_subscriber_take(rig->subscriber, &frame, 1, AMPLE_TIME, &error)) == 1) {
		pl_frame_release(frame);
		count++;
	}
	check_status(rc, -ENODATA, &error);
	return count;
}

/* The stream is whole if the publisher ends it before it closes, and all frames were read. */
static void test_end_and_close(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;
	struct pl_error error;
	uint64_t delivered;
	struct rig rig;

	options.start = PL_START_HISTORY;
	options.from = 4;
	for (unsigned i = 0; i < 3; i++) {
		bool ends = i<2, reads = i> 0;

		rig_open(&rig, argument, NULL);
		publish_many(&rig, 4);
		/* History stays in the ring until the queue has room. */
		options.queue = reads ? 4 : 1;
		rig_subscribe(&rig, &options);
		for (unsigned sequence = 0; reads && sequence < 4; sequence++)
			take_one(&rig, sequence);
		if (ends)
			check_ok(pl_publisher_end(rig.publisher, 0, &error), &error);
		pl_publisher_close(rig.publisher);
		rig.publisher = NULL;
		while (pl_subscriber_query(rig.subscriber, &info) == 0 && info.connected)
			sleep_ms(1);
		check_number(info.stream.state, ends && reads ? PL_STREAM_ENDED : PL_STREAM_FAILED);
		check_number(info.accounts.next, 4);
		/* A read under way ends by now. */
		delivered = info.accounts.delivered + take_rest(&rig);
		info.accounts = exact_accounts(rig.subscriber);
		check_number(info.accounts.delivered, delivered);
		check_number(info.accounts.missed, 4 - delivered);
		check((delivered == 4) == reads);
		rig_close(&rig);
	}
}

/* -- layouts --------------------------------------------------------------------------------------------------------- */

/* The elements of a layout are within the frame: behind the end of a short frame are bytes of earlier ones. */
static void test_short_frames(void *argument)
{
	static const struct pl_layout image = { PL_ELEMENT_UINT, 8, 1, 2, { 4, 8 } };
	struct pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_frame_info info = PL_FRAME_INFO_INIT, part = PL_FRAME_INFO_INIT;
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	static const uint64_t lengths[] = { 32, 31, 0, SLOT };
	struct pl_stream_frame *frame;
	struct pl_error error;
	struct rig rig;

	publisher.layout = image;
	rig_open(&rig, argument, &publisher);
	rig_subscribe(&rig, &options);
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		bool fits = lengths[i] >= 32;

		publish_bytes(&rig, lengths[i]);
		check(pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, &error) == 1);
		check(pl_frame_query(frame, &info) == 0 && info.length == lengths[i]);
		check(info.layout.bits == (fits ? 8 : 0) && info.layout.dimensions == (fits ? 2 : 0));
		check_ok(pl_subscriber_read(rig.subscriber, i, 0, 0, NULL, 0, AMPLE_TIME, &part, &error), &error);
		check(!memcmp(&part.layout, &info.layout, sizeof(info.layout)));
		pl_frame_release(frame);
	}
	rig_close(&rig);
}

/* -- limits of one peer ---------------------------------------------------------------------------------------------- */

/* Waits until the publisher has this number of subscribers: another connection may be slower. */
static void await_places(struct pl_publisher *publisher, unsigned count)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	uint64_t limit = clock_now() + AMPLE_TIME;

	while (pl_publisher_query(publisher, &info) == 0 && info.subscribers != count) {
		check(clock_now() < limit);
		sleep_ms(1);
	}
}

/* Adds to the subscriptions that the publisher's end counts for the connection. */
static void count_subscriptions(struct pl_peer *peer, int more)
{
	pl_engine_lock(peer->home);
	peer->subscription_count += (unsigned)more;
	pl_engine_unlock(peer->home);
}

/* A connection has at most PL_SUBSCRIBERS_MAX subscriptions of all publishers. */
static void check_connection_limit(const struct rig *rig)
{
	const int others = PL_SUBSCRIBERS_MAX - 1;
	struct pl_subscriber *last, *refused;
	struct pl_error error;

	count_subscriptions(rig->environment.far_peer, others);
	check_ok(subscribe_at(rig, rig->environment.near_peer, NULL, &last, &error), &error);
	check(subscribe_at(rig, rig->environment.near_peer, NULL, &refused, &error) == -EMLINK);
	check_text(error.id, "STREAM-FULL");
	pl_subscriber_close(last);
	await_places(rig->publisher, 0);
	count_subscriptions(rig->environment.far_peer, -others);
}

/* A connection cannot take all places of a publisher. */
static void test_places(void *argument)
{
	struct pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber *subscribers[4] = { NULL }, *refused;
	struct pl_peer *near_peer, *far_peer;
	struct pl_error error;
	struct rig rig;

	publisher.subscribers = 4;
	rig_open(&rig, argument, &publisher);
	for (unsigned i = 0; i < 3; i++)
		check_ok(subscribe_at(&rig, rig.environment.near_peer, NULL, &subscribers[i], &error), &error);
	check(subscribe_at(&rig, rig.environment.near_peer, NULL, &refused, &error) == -EMLINK);
	check(!strcmp(error.id, "STREAM-PLACES") && error.hint[0]);
	connect_pair(&rig.environment, rig.environment.near, rig.environment.listener, &near_peer, &far_peer);
	check_ok(subscribe_at(&rig, near_peer, NULL, &subscribers[3], &error), &error);
	check(subscribe_at(&rig, near_peer, NULL, &refused, &error) == -EMLINK && !strcmp(error.id, "STREAM-FULL"));
	/* An end of an earlier release does not know the reason. */
	pl_subscriber_close(subscribers[3]);
	await_places(rig.publisher, 3);
	rig.environment.far_peer->stream_limits = false;
	check(subscribe_at(&rig, rig.environment.near_peer, NULL, &refused, &error) == -EMLINK);
	check(!strcmp(error.id, "STREAM-FULL"));
	for (unsigned i = 0; i < 3; i++)
		pl_subscriber_close(subscribers[i]);
	await_places(rig.publisher, 0);
	check_connection_limit(&rig);
	pl_peer_close(near_peer);
	pl_peer_close(far_peer);
	rig_close(&rig);
}

/* Sets what the connection has used, and returns what that was. */
static uint64_t exchange_subscribes(struct pl_peer *peer, uint64_t until)
{
	uint64_t before;

	pl_engine_lock(peer->home);
	before = peer->subscribes_until;
	peer->subscribes_until = until;
	pl_engine_unlock(peer->home);
	return before;
}

/* Each SUBSCRIBE costs a connection 1 ms of what it may save. */
static void test_often(void *argument)
{
	struct pl_subscriber *subscriber;
	struct pl_error error;
	struct pl_peer *peer;
	struct rig rig;
	uint64_t before, used;

	rig_open(&rig, argument, NULL);
	peer = rig.environment.far_peer;
	exchange_subscribes(peer, pl_now() + 2 * AMPLE_TIME);
	check(subscribe_at(&rig, rig.environment.near_peer, NULL, &subscriber, &error) == -EBUSY);
	check(!strcmp(error.id, "STREAM-OFTEN") && error.hint[0]);
	before = pl_now() - 512 * MS;
	exchange_subscribes(peer, before);
	for (unsigned i = 1; i < 4; i++) {
		check_ok(subscribe_at(&rig, rig.environment.near_peer, NULL, &subscriber, &error), &error);
		pl_subscriber_close(subscriber);
		used = exchange_subscribes(peer, before + i * MS);
		check(used >= before + i * MS && used <= pl_now());
	}
	rig_close(&rig);
}

static void await_demotion(struct rig *rig)
{
	struct pl_subscriber_info own = PL_SUBSCRIBER_INFO_INIT;
	uint64_t limit = clock_now() + AMPLE_TIME;

	do {
		check(clock_now() < limit && pl_subscriber_query(rig->subscriber, &own) == 0);
		settle(&rig->environment, 1);
	} while (!own.demoted);
	check(!own.blocks && !own.in_place);
}

/* Sets the end of all demotions that the publisher remembers. Returns their number. */
static unsigned set_demotions(struct pl_publisher *publisher, uint64_t until)
{
	unsigned count = 0;

	pl_lock_take(&publisher->lock);
	for (unsigned i = 0; i < PL_DEMOTIONS_MAX; i++) {
		count += publisher->demotions[i].until != 0;
		if (publisher->demotions[i].until)
			publisher->demotions[i].until = until;
	}
	pl_lock_release(&publisher->lock);
	return count;
}

/* A subscriber that was demoted cannot renew the publisher's patience by a new subscription, nor over a new connection. */
static void test_patience_is_not_renewed(void *argument)
{
	struct pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_subscription_info info;
	struct rig rig;

	publisher.allow_block = true;
	publisher.patience = 30 * MS;
	rig_open(&rig, argument, &publisher);
	options.overflow = PL_OVERFLOW_BLOCK;
	options.queue = 1;
	options.in_place = !strcmp(rig.environment.setting->fabric, "local");
	rig_subscribe(&rig, &options);
	check(subscription_of(rig.publisher).blocks);
	publish_many(&rig, 3 * SLOTS);
	await_demotion(&rig);
	check_number(set_demotions(rig.publisher, UINT64_MAX), 1);
	pl_subscriber_close(rig.subscriber);
	rig_subscribe(&rig, &options);
	await_demotion(&rig);
	info = subscription_of(rig.publisher);
	check(info.demoted && !info.blocks);
	/* The subscriber still gets frames. */
	publish_many(&rig, 1);
	take_one(&rig, 3 * SLOTS);
	lose_connection(&rig);
	attach_again(&rig);
	await_demotion(&rig);
	pl_subscriber_close(rig.subscriber);
	rig.subscriber = NULL;
	check_number(set_demotions(rig.publisher, 1), 1);
	rig_subscribe(&rig, &options);
	info = subscription_of(rig.publisher);
	check(!info.demoted && info.blocks);
	rig_close(&rig);
}

/* -- errors by their ids --------------------------------------------------------------------------------------------- */

/* Has no memory for a subscription once `user`, an atomic_bool, is set. */
static void *allocate_no_subscription(size_t size, void *user)
{
	return size == sizeof(struct pl_subscription) && atomic_load((atomic_bool *)user) ? NULL : malloc(size);
}

static int error_exists(struct rig *rig, struct pl_error *error)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_publisher *publisher;

	options.slot_bytes = 1;
	return pl_publisher_open(rig->environment.far, "cam0", &options, &publisher, error);
}

static int error_limit(struct rig *rig, struct pl_error *error)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_publisher *publisher;
	char name[16];
	int rc = 0;

	options.slot_bytes = 1;
	options.slots = 2;
	for (unsigned i = 0; rc == 0 && i < PL_PUBLISHERS_MAX; i++) {
		snprintf(name, sizeof(name), "cam-%u", i);
		rc = pl_publisher_open(rig->environment.near, name, &options, &publisher, error);
		check_ok(rc, error);
	}
	return pl_publisher_open(rig->environment.near, "cam", &options, &publisher, error);
}

static int error_unreported(struct rig *rig, struct pl_error *error)
{
	publish_many(rig, 1);
	return pl_publisher_end(rig->publisher, 1, error);
}

static int error_empty(struct rig *rig, struct pl_error *error)
{
	struct pl_stream_frame *frame;

	return pl_subscriber_take(rig->subscriber, &frame, 1, 0, error);
}

static int error_frame_limit(struct rig *rig, struct pl_error *error)
{
	struct pl_stream_frame *frames[2];
	int rc;

	publish_many(rig, 2);
	check(pl_subscriber_take(rig->subscriber, &frames[0], 1, AMPLE_TIME, error) == 1);
	while ((rc = pl_subscriber_take(rig->subscriber, &frames[1], 1, AMPLE_TIME, error)) == -ETIMEDOUT)
		;
	pl_frame_release(frames[0]);
	return rc;
}

static int error_aborted(struct rig *rig, struct pl_error *error)
{
	discard_one(rig);
	await_counted(rig, 1);
	return pl_subscriber_read(rig->subscriber, 0, 0, 0, NULL, 0, AMPLE_TIME, NULL, error);
}

static int error_unpublished(struct rig *rig, struct pl_error *error)
{
	return pl_subscriber_read(rig->subscriber, 0, 0, 0, NULL, 0, AMPLE_TIME, NULL, error);
}

/* The publisher's end has no memory for a subscription. */
static int error_refused(struct rig *rig, struct pl_error *error)
{
	atomic_bool full = false;
	struct pl_allocator allocator = { allocate_no_subscription, pl_system_allocator.reallocate,
					  pl_system_allocator.release, &full };
	struct pl_options options = setting_options(rig->environment.setting);
	struct pl_publisher_options publisher_options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_subscriber *subscriber;
	struct pl_publisher *publisher;
	struct pl_listener *listener;
	struct pl_context *context;
	struct pl_peer *peer, *other;
	char address[96];
	int rc;

	options.allocator = &allocator;
	context = context_open_with(&options);
	listener = listener_open(rig->environment.setting, context, address);
	connect_pair(&rig->environment, rig->environment.near, listener, &peer, &other);
	publisher_options.slot_bytes = 1;
	check_ok(pl_publisher_open(context, "cam0", &publisher_options, &publisher, error), error);
	atomic_store(&full, true);
	rc = subscribe_at(rig, peer, NULL, &subscriber, error);
	pl_peer_close(peer);
	pl_peer_close(other);
	pl_listener_close(listener);
	pl_close(context);
	return rc;
}

/* Ends a read of the ring as a fabric does. */
static int error_read(struct rig *rig, struct pl_error *error)
{
	struct pl_subscriber *subscriber = rig->subscriber;
	struct pl_stream_frame *frame;

	pl_engine_lock(subscriber->engine);
	pl_lock_take(&subscriber->lock);
	pl_subscriber_read_failed(subscriber, NULL, -EIO);
	pl_lock_release(&subscriber->lock);
	pl_subscriber_pump(subscriber);
	pl_engine_unlock(subscriber->engine);
	return pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, error);
}

static int error_no_wait(struct rig *rig, struct pl_error *error)
{
	struct pl_stream_frame *frame;

	/* A number of a stream: the memory is looked at first. */
	return pl_subscriber_take_on(rig->subscriber, (void *)(uintptr_t)64, 0, &frame, error);
}

static int error_no_driver(struct rig *rig, struct pl_error *error)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info;
	struct pl_stream_frame *frame = loan_frame(rig->publisher, &info);
	int rc = pl_frame_publish_on(frame, &options, (void *)(uintptr_t)64, error);

	pl_frame_discard(frame);
	return rc;
}

static void test_errors(void *argument)
{
	static const struct {
		const char *id;
		int code;
		int (*cause)(struct rig *rig, struct pl_error *error);
	} errors[] = {
		{ "STREAM-EXISTS", -EEXIST, error_exists },
		{ "STREAM-LIMIT", -ENOSPC, error_limit },
		{ "STREAM-UNREPORTED", -ETIMEDOUT, error_unreported },
		{ "STREAM-EMPTY", -EAGAIN, error_empty },
		{ "STREAM-REFUSED", -EREMOTEIO, error_refused },
		{ "STREAM-READ", -EIO, error_read },
		{ "STREAM-NO-WAIT", -ENOTSUP, error_no_wait },
		{ "STREAM-NO-DRIVER", -ENODEV, error_no_driver },
		{ "FRAME-LIMIT", -EMLINK, error_frame_limit },
		{ "FRAME-ABORTED", -ECANCELED, error_aborted },
		{ "FRAME-UNPUBLISHED", -EAGAIN, error_unpublished },
	};
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;

	options.held = 1;
	for (unsigned i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		struct pl_error error = { 0 };
		struct rig rig;
		int rc;

		rig_open(&rig, argument, NULL);
		rig_subscribe(&rig, &options);
		rc = errors[i].cause(&rig, &error);
		printf("%s: %d %s\n", errors[i].id, rc, error.id);
		check(rc == errors[i].code && error.code == rc && !strcmp(error.id, errors[i].id));
		check(error.message[0]);
		rig_close(&rig);
	}
}

/* Each limit of a publisher has an error of its own, which names the option. */
static void test_limits(void *argument)
{
	static const struct {
		const char *id, *option;
		struct pl_publisher_options options;
	} limits[] = {
		{ "STREAM-SLOTS", "slots", { .slot_bytes = 1, .slots = 1 } },
		{ "STREAM-SLOTS", "slots", { .slot_bytes = 1, .slots = PL_STREAM_SLOTS_MAX + 1 } },
		{ "STREAM-SLOT-BYTES", "slot_bytes", { .slot_bytes = 0 } },
		{ "STREAM-SLOT-BYTES", "slot_bytes", { .slot_bytes = (1ull << 40) + 1 } },
		{ "STREAM-METADATA", "metadata_bytes", { .slot_bytes = 1, .metadata_bytes = 3073 } },
		{ "STREAM-LOANS", "loans", { .slot_bytes = 1, .slots = 4, .loans = 4 } },
		{ "STREAM-SUBSCRIBERS", "subscribers", { .slot_bytes = 1, .subscribers = 257 } },
		{ "STREAM-FIRST", "first", { .slot_bytes = 1, .first = (1ull << 62) + 1 } },
		{ "OPTION", "layout", { .slot_bytes = 1, .layout = { PL_ELEMENT_UINT, 8, 1, 9, { 1 } } } },
	};
	struct rig rig;

	rig_open(&rig, argument, NULL);
	for (unsigned i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		struct pl_publisher_options options = limits[i].options;
		struct pl_publisher *publisher;
		struct pl_error error;

		options.size = sizeof(options);
		check(pl_publisher_open(rig.environment.far, "limit", &options, &publisher, &error) == -EINVAL);
		check(!strcmp(error.id, limits[i].id) && !strcmp(error.object, limits[i].option) && error.message[0]);
	}
	rig_close(&rig);
}

/* A description has the size that the program gives, unless no library has that. */
static void check_query_sizes(struct pl_subscriber *subscriber)
{
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;

	info.size = sizeof(info.size) - 1;
	check_number(pl_subscriber_query(subscriber, &info), -EINVAL);
	info.size = sizeof(info) + 1;
	check_number(pl_subscriber_query(subscriber, &info), -EINVAL);
	info.size = sizeof(info.size);
	check_number(pl_subscriber_query(subscriber, &info), 0);
	check_number(info.size, sizeof(info.size));
	check_number(info.stream.slots, 0);
}

/* The same of a subscriber. Each option is right at its limit. */
static void test_subscriber_limits(void *argument)
{
	static const struct {
		const char *object; /* NULL: right */
		struct pl_subscriber_options options;
	} limits[] = {
		{ "start", { .start = PL_START_SEQUENCE + 1 } },
		{ "start", { .overflow = PL_OVERFLOW_BLOCK + 1 } },
		{ "queue", { .queue = 4097 } },
		{ "queue", { .held = 4097 } },
		{ "from", { .start = PL_START_SEQUENCE, .from = PL_RING_SEQUENCE_MAX + 1 } },
		{ "memory", { .memory = "cuda:12345678901" } },
		{ "in_place", { .in_place = true, .overflow = PL_OVERFLOW_DROP_NEWEST } },
		{ "in_place", { .in_place = true, .memory = "cuda:0" } },
		{ "push", { .in_place = true, .push = true } },
		{ NULL, { .queue = 4096 } },
		{ NULL, { .held = 4096 } },
		{ NULL, { .start = PL_START_SEQUENCE, .from = PL_RING_SEQUENCE_MAX } },
		{ NULL, { .in_place = true, .memory = "host" } },
	};
	struct pl_publisher_options publisher = PL_PUBLISHER_OPTIONS_INIT;
	struct rig rig;

	publisher.allow_block = true;
	rig_open(&rig, argument, &publisher);
	for (unsigned i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		struct pl_subscriber_options options = limits[i].options;
		struct pl_error error;
		int rc;

		options.size = sizeof(options);
		rc = pl_subscriber_open(rig.environment.near_peer, "cam0", &options, AMPLE_TIME, &rig.subscriber,
					&error);
		if (limits[i].object) {
			check_number(rc, -EINVAL);
			check_text(error.id, "OPTION");
			check_text(error.object, limits[i].object);
		} else {
			check_ok(rc, &error);
			check_query_sizes(rig.subscriber);
			pl_subscriber_close(rig.subscriber);
		}
	}
	rig.subscriber = NULL;
	rig_close(&rig);
}

#define BOTH(name, function, seconds) \
	{ name " tcp", function, &tcp_threads, seconds }, \
	{ \
		name " local", function, &local_threads_setting, seconds \
	}
#define ALL(name, function, seconds) \
	BOTH(name, function, seconds), \
	{ \
		name " push", function, &tcp_push, seconds \
	}

/* -- slots that the subscriber revokes ------------------------------------------------------------- */

/* A subscriber that revokes its slots and says nothing gets no frames: its subscription ends, at both ends. */
static void test_slots_revoked(void *argument)
{
	struct pl_subscription_info info;
	struct pl_stream_frame *frame;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, argument, NULL);
	rig_subscribe(&rig, NULL);
	publish_many(&rig, 1);
	take_one(&rig, 0);
	pl_engine_lock(rig.subscriber->engine);
	check(pl_grant_revoke(rig.environment.near, NULL, rig.subscriber->token));
	pl_engine_unlock(rig.subscriber->engine);
	check(!subscription_of(rig.publisher).ended);
	publish_many(&rig, 1);
	check_status(pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, &error), -ENODATA, &error);
	info = subscription_of(rig.publisher);
	check(info.ended);
	check_number(info.accounts.next, 2);
	check(info.accounts.missed > 0);
	rig_close(&rig);
}

int main(void)
{
	static const struct test_case cases[] = {
		ALL("every and cut", test_every_and_cut, 30),
		{ "slots revoked", test_slots_revoked, (void *)&tcp_push, 60 },
		ALL("absent", test_absent, 30),
		ALL("skip lost", test_skip_lost, 30),
		BOTH("short frames", test_short_frames, 30),
		ALL("places", test_places, 30),
		BOTH("often", test_often, 30),
		ALL("patience", test_patience_is_not_renewed, 30),
		BOTH("end and close", test_end_and_close, 30),
		{ "errors", test_errors, &tcp_threads, 60 },
		{ "limits", test_limits, &tcp_threads, 30 },
		{ "limits of subscribers", test_subscriber_limits, (void *)&local_threads_setting, 30 },
	};

	return cases_run("stream_losses", cases, sizeof(cases) / sizeof(cases[0]));
}
