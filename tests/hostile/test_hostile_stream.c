/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hostile ends of streams: messages that cannot be, cursors that go back, descriptors out of range, floods.
 *
 *   test_hostile_stream [--fabric NAME]
 */
#include <stdio.h>
#include <unistd.h>

#include "stream/publisher.h"
#include "stream/push.h"
#include "stream/subscriber.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"
#include "support/local.h"
#include "support/process.h"

/* The fabric is tcp, or that of --fabric. */
static struct setting threads = {
	.name = "thread", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};
static struct setting manual = {
	.name = "manual", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

static const struct setting local_manual_end = {
	.name = "manual", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

/* The publisher is in `far`. Tests send messages of their own from both ends. */
struct rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher;
	struct pl_subscriber *subscriber;
	struct pump pump; /* drives `far` with manual progress */
};

static void rig_open_over(struct rig *rig, const struct setting *setting,
			  const struct pl_subscriber_options *subscriber)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;

	memset(rig, 0, sizeof(*rig));
	environment_open(&rig->environment, setting);
	pump_start(&rig->environment, &rig->pump, rig->environment.far);
	options.slot_bytes = 1000;
	options.slots = 4;
	options.metadata_bytes = 64;
	options.allow_block = true;
	check_ok(pl_publisher_open(rig->environment.far, "cam0", &options, &rig->publisher, &error), &error);
	if (subscriber)
		check_ok(pl_subscriber_open(rig->environment.near_peer, "cam0", subscriber, AMPLE_TIME,
					    &rig->subscriber, &error),
			 &error);
}

static void rig_open(struct rig *rig, const struct pl_subscriber_options *subscriber)
{
	rig_open_over(rig, &threads, subscriber);
}

static void rig_close(struct rig *rig)
{
	pl_subscriber_close(rig->subscriber);
	pump_stop(&rig->pump);
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
}

static void publish(struct pl_publisher *publisher, uint64_t length)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_stream_frame *frame;
	struct pl_error error;

	check_ok(pl_publisher_loan(publisher, AMPLE_TIME, &frame, &error), &error);
	options.length = length;
	check_ok(pl_frame_publish(frame, &options, &error), &error);
}

static void send_as(struct pl_peer *peer, const struct pl_stream_message *message)
{
	pl_engine_lock(peer->home);
	check(pl_stream_send(peer, message) == 0);
	pl_engine_unlock(peer->home);
}

static void send_raw(struct pl_peer *peer, const uint8_t *body, uint16_t length)
{
	struct pl_control control = { .type = PL_CONTROL_STREAM };

	control.message.payload = body;
	control.message.length = length;
	pl_engine_lock(peer->home);
	check(pl_channel_send(&peer->channel, &control) == 0);
	pl_engine_unlock(peer->home);
}

static bool is_connected(struct pl_peer *peer)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	check(pl_peer_query(peer, &info) == 0);
	return info.connected;
}

static void await_loss(struct pl_peer *peer)
{
	uint64_t limit = clock_now() + AMPLE_TIME;

	while (is_connected(peer)) {
		check(clock_now() < limit);
		sleep_ms(1);
	}
}

/* A round trip behind all that was sent before: the connection still serves. */
static void check_serves_at(struct pl_peer *peer)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct pl_error error;

	check(pl_peer_publishers(peer, &info, 1, AMPLE_TIME, &error) == 1);
	check(!strcmp(info.name, "cam0"));
}

static void check_serves(struct rig *rig)
{
	check_serves_at(rig->environment.near_peer);
}

static struct pl_stream_message subscribe_message(uint32_t number)
{
	struct pl_stream_message message = { .type = PL_STREAM_SUBSCRIBE, .number = number };

	strcpy(message.subscribe.name, "cam0");
	message.subscribe.every = 1;
	return message;
}

/* -- hostile subscribers ------------------------------------------------------------------------------------------------ */

/* Each of these reports ends the connection. */
static void test_reports(void *argument)
{
	static const struct pl_accounts none, future = { .next = 9, .delivered = 9 }, later = { .first = 1, .next = 1 };
	static const struct {
		uint32_t answered;
		uint64_t taken;
		const struct pl_accounts *accounts;
	} reports[] = {
		{ 50, 0, &none },  /* announcements that were not sent */
		{ 0, 9, &none },   /* frames that do not exist */
		{ 0, 0, &future }, /* the same, in the accounts */
		{ 0, 0, &later },  /* accounts that begin after the subscription */
	};

	(void)argument;
	for (unsigned i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
		struct pl_stream_message message = subscribe_message(77);
		struct rig rig;

		rig_open(&rig, NULL);
		send_as(rig.environment.near_peer, &message);
		check_serves(&rig);
		publish(rig.publisher, 10);
		message = (struct pl_stream_message){ .type = PL_STREAM_TAKEN, .number = 77 };
		message.taken.answered = reports[i].answered;
		message.taken.taken = reports[i].taken;
		message.taken.accounts = *reports[i].accounts;
		send_as(rig.environment.near_peer, &message);
		await_loss(rig.environment.far_peer);
		rig_close(&rig);
	}
}

/* A report that goes back, after one that did not. */
static void test_report_back(void *argument)
{
	struct pl_stream_message message = subscribe_message(77);
	struct rig rig;

	(void)argument;
	rig_open(&rig, NULL);
	send_as(rig.environment.near_peer, &message);
	check_serves(&rig);
	publish(rig.publisher, 10);
	message = (struct pl_stream_message){ .type = PL_STREAM_TAKEN, .number = 77 };
	message.taken.taken = 1;
	message.taken.accounts = (struct pl_accounts){ .next = 1, .delivered = 1 };
	send_as(rig.environment.near_peer, &message);
	check_serves(&rig);
	message.taken.taken = 0;
	send_as(rig.environment.near_peer, &message);
	await_loss(rig.environment.far_peer);
	rig_close(&rig);
}

/* Slots of frames in place stay until their subscriber has answered the announcement that tells of the demotion. */
static void test_report_before_freeze(void *argument)
{
	struct pl_stream_message message = subscribe_message(77);
	struct pl_subscription *subscription;
	struct pl_stream_frame *loan;
	struct pl_error error;
	struct rig rig;

	(void)argument;
	rig_open(&rig, NULL);
	rig.publisher->patience = 1;
	message.subscribe.in_place = true;
	message.subscribe.overflow = PL_OVERFLOW_BLOCK;
	send_as(rig.environment.near_peer, &message);
	check_serves(&rig);
	for (unsigned i = 0; i < 4; i++)
		publish(rig.publisher, 10);
	check(pl_publisher_loan(rig.publisher, 5 * MS, &loan, &error) == -EAGAIN);
	check_serves(&rig);
	subscription = pl_list_first(&rig.publisher->subscriptions, struct pl_subscription, link);
	check(subscription->told_demoted);
	message = (struct pl_stream_message){ .type = PL_STREAM_TAKEN, .number = 77 };
	message.taken.answered = subscription->demotion - 1;
	send_as(rig.environment.near_peer, &message);
	check_serves(&rig);
	check(subscription->blocks);
	check(pl_publisher_loan(rig.publisher, 0, &loan, &error) == -EAGAIN);
	message.taken.answered = subscription->demotion;
	send_as(rig.environment.near_peer, &message);
	check_serves(&rig);
	check(!subscription->blocks);
	publish(rig.publisher, 10);
	rig_close(&rig);
}

static void test_messages(void *argument)
{
	static const uint8_t bodies[][12] = { { 0, 0, 0, 0, 1 },
					      { PL_STREAM_PUSHED + 1, 0, 0, 0, 1 },
					      { PL_STREAM_LIST, 1 },
					      { PL_STREAM_CLOSED, 0, 0, 0, 1, 0, 0, 0, 1 } };
	struct pl_stream_message message;
	struct rig rig;

	(void)argument;
	for (unsigned i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
		rig_open(&rig, NULL);
		send_raw(rig.environment.near_peer, bodies[i], sizeof(bodies[i]));
		await_loss(rig.environment.far_peer);
		rig_close(&rig);
	}
	/* A number that is in use. */
	rig_open(&rig, NULL);
	message = subscribe_message(5);
	send_as(rig.environment.near_peer, &message);
	check_serves(&rig);
	send_as(rig.environment.near_peer, &message);
	await_loss(rig.environment.far_peer);
	rig_close(&rig);
	/* A start that no sequence reaches. */
	rig_open(&rig, NULL);
	message.subscribe.from = UINT64_MAX;
	send_as(rig.environment.near_peer, &message);
	await_loss(rig.environment.far_peer);
	rig_close(&rig);
	/* Messages about subscriptions that do not exist may be late, and are ignored. */
	rig_open(&rig, NULL);
	message = (struct pl_stream_message){ .type = PL_STREAM_TAKEN, .number = 9 };
	send_as(rig.environment.near_peer, &message);
	message.type = PL_STREAM_UNSUBSCRIBE;
	send_as(rig.environment.near_peer, &message);
	message = (struct pl_stream_message){ .type = PL_STREAM_LISTED, .number = 9 };
	send_as(rig.environment.near_peer, &message);
	message = (struct pl_stream_message){ .type = PL_STREAM_CLOSED, .number = 9 };
	send_as(rig.environment.near_peer, &message);
	check_serves(&rig);
	rig_close(&rig);
}

/* Sequences of SUBSCRIBE and UNSUBSCRIBE at their limits. */
static void test_subscribed_sequences(void *argument)
{
	struct pl_stream_message message;
	struct rig rig;

	(void)argument;
	/* A base behind the start, which is the last one that a sequence reaches. */
	rig_open(&rig, NULL);
	message = subscribe_message(5);
	message.subscribe.from = PL_RING_SEQUENCE_MAX;
	message.subscribe.start = PL_START_SEQUENCE;
	send_as(rig.environment.near_peer, &message);
	check_serves(&rig);
	message = subscribe_message(6);
	message.subscribe.base = 1;
	send_as(rig.environment.near_peer, &message);
	await_loss(rig.environment.far_peer);
	rig_close(&rig);
	/* A subscriber that gives up before it has an answer knows no sequences. One that has prepared has none either. */
	rig_open(&rig, NULL);
	publish(rig.publisher, 10);
	for (unsigned i = 0; i < 2; i++) {
		message = subscribe_message(7 + i);
		message.subscribe.prepare = i;
		send_as(rig.environment.near_peer, &message);
		message = (struct pl_stream_message){ .type = PL_STREAM_UNSUBSCRIBE, .number = 7 + i };
		message.taken.accounts.next = message.taken.accounts.delivered = i ? 5 : 0;
		send_as(rig.environment.near_peer, &message);
		check_serves(&rig);
	}
	rig_close(&rig);
}

/* Lists a publisher that tells `told` about itself. The list ends the connection unless that is right. */
static void check_listed(const struct pl_ring_header *told, bool right)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct pl_error error;
	struct rig rig;

	rig_open(&rig, NULL);
	pl_lock_take(&rig.publisher->lock);
	rig.publisher->header.layout = told->layout;
	memcpy(rig.publisher->header.name, told->name, sizeof(told->name));
	memcpy(rig.publisher->header.content_type, told->content_type, sizeof(told->content_type));
	pl_lock_release(&rig.publisher->lock);
	check(pl_peer_publishers(rig.environment.near_peer, &info, 1, AMPLE_TIME, &error) == (right ? 1 : -ENOTCONN));
	if (!right)
		await_loss(rig.environment.near_peer);
	rig_close(&rig);
}

/* Names, content types and layouts that no stream has. */
static void test_listed_entries(void *argument)
{
	static const struct pl_ring_header right = { .name = "cam0",
						     .content_type = "image/raw",
						     .layout = { PL_ELEMENT_UINT, 8, 1, 1, { 9 } } };
	struct pl_ring_header told = right;

	(void)argument;
	check_listed(&told, true);
	told.layout.dimensions = PL_LAYOUT_DIMENSIONS_MAX + 1;
	check_listed(&told, false);
	told.layout.dimensions = 0x200000;
	check_listed(&told, false);
	told = right;
	strcpy(told.name, "cam\x1b[2J");
	check_listed(&told, false);
	told = right;
	strcpy(told.content_type, "image\n");
	check_listed(&told, false);
}

struct list_call {
	struct pl_peer *peer;
	struct pl_publisher_info infos[3];
	int result;
};

static void *list_call_run(void *argument)
{
	struct list_call *call = argument;
	struct pl_error error;

	call->infos[0].size = sizeof(call->infos[0]);
	call->result = pl_peer_publishers(call->peer, call->infos, 3, AMPLE_TIME, &error);
	return NULL;
}

/* Answers the LIST of this number at the asking end. Returns false while the program has not asked. */
static bool answer_list(struct pl_peer *peer, struct pl_stream_message *answer)
{
	bool asked;

	pl_engine_lock(peer->home);
	asked = !pl_list_empty(&peer->listings) && peer->next_stream == answer->number;
	if (asked)
		check(pl_listing_arrived(peer, answer) == 0);
	pl_engine_unlock(peer->home);
	return asked;
}

/* Answers that tell of 1,000 streams and end after one: that one is the list. The far end's engine is stopped. */
static void test_listed_total(void *argument)
{
	struct pl_stream_message answer = { .type = PL_STREAM_LISTED, .number = 1 };
	struct list_call call = { 0 };
	pthread_t thread;
	struct rig rig;

	(void)argument;
	rig_open(&rig, NULL);
	call.peer = rig.environment.near_peer;
	answer.listed.total = 1000;
	answer.listed.count = 1;
	pl_lock_take(&rig.publisher->lock);
	pl_publisher_describe(rig.publisher, &answer.listed.entries[0]);
	pl_lock_release(&rig.publisher->lock);
	pl_engine_lock(rig.environment.far_peer->home);
	check(pthread_create(&thread, NULL, list_call_run, &call) == 0);
	for (; answer.number <= 2; answer.number++, answer.listed.count = 0)
		while (!answer_list(call.peer, &answer))
			sleep_ms(1);
	check(pthread_join(thread, NULL) == 0);
	pl_engine_unlock(rig.environment.far_peer->home);
	check(call.result == 1 && !strcmp(call.infos[0].name, "cam0"));
	rig_close(&rig);
}

/* 10,000 subscriptions of a connection leave nothing behind, and 300 at a time leave places for others. */
static void test_flood(void *argument)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct pl_peer *peers[2], *far_peers[2];
	struct pl_stream_message message;
	struct pl_error error;
	uint64_t before = 0;
	struct rig rig;

	(void)argument;
	rig_open(&rig, NULL);
	for (uint32_t number = 1000; number < 11000; number++) {
		message = subscribe_message(number);
		send_as(rig.environment.near_peer, &message);
		message = (struct pl_stream_message){ .type = PL_STREAM_UNSUBSCRIBE, .number = number };
		send_as(rig.environment.near_peer, &message);
		if (number % 64 == 0)
			check_serves(&rig);
		if (number == 2000)
			before = resident_memory();
	}
	check_serves(&rig);
	check(resident_within(before, 4u << 20));
	check(pl_publisher_query(rig.publisher, &info) == 0 && info.subscribers == 0);
	/* The flood has used up what its connection may subscribe. */
	for (unsigned i = 0; i < 2; i++)
		connect_pair(&rig.environment, rig.environment.near, rig.environment.listener, &peers[i],
			     &far_peers[i]);
	for (uint32_t number = 20000; number < 20300; number++) {
		message = subscribe_message(number);
		send_as(peers[0], &message);
		if (number % 64 == 0)
			check_serves_at(peers[0]);
	}
	check_serves_at(peers[0]);
	check(pl_publisher_query(rig.publisher, &info) == 0 && info.subscribers == 192);
	check_ok(pl_subscriber_open(peers[1], "cam0", NULL, AMPLE_TIME, &rig.subscriber, &error), &error);
	rig_close(&rig);
}

/* The tokens of a subscription are for its connection only, and do not allow writes. */
static void test_tokens(void *argument)
{
	struct pl_peer *second, *second_far;
	struct pl_subscription *subscription;
	uint8_t token[PL_TOKEN_SIZE];
	struct rig rig;

	(void)argument;
	rig_open(&rig, &(struct pl_subscriber_options)PL_SUBSCRIBER_OPTIONS_INIT);
	connect_pair(&rig.environment, rig.environment.near, rig.environment.listener, &second, &second_far);
	subscription = pl_list_first(&rig.publisher->subscriptions, struct pl_subscription, link);
	memcpy(token, subscription->payload, sizeof(token));
	check(import_status(&rig.environment, second, token, sizeof(token)) == -EACCES);
	check(import_status(&rig.environment, rig.environment.near_peer, token, sizeof(token)) == 0);
	check(pl_remote_rights(rig.subscriber->control) == PL_ACCESS_READ);
	check(pl_remote_rights(rig.subscriber->payload) == PL_ACCESS_READ);
	pl_subscriber_close(rig.subscriber);
	rig.subscriber = NULL;
	check_serves(&rig);
	check(import_status(&rig.environment, rig.environment.near_peer, token, sizeof(token)) == -EACCES);
	rig_close(&rig);
}

/* -- hostile publishers -------------------------------------------------------------------------------------------------- */

/* `goes_on`: the connection does, because the subscriber reports nothing that the honest part of the publisher refuses. */
static void check_given_up_by(struct rig *rig, const char *id, bool goes_on)
{
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;
	const struct pl_accounts *accounts = &info.accounts;
	struct pl_stream_frame *frame;
	struct pl_error error;
	int rc;

	while ((rc = pl_subscriber_take(rig->subscriber, &frame, 1, AMPLE_TIME, &error)) == 1)
		pl_frame_release(frame);
	check_number(rc, -EPROTO);
	check(!strcmp(error.id, id));
	check(pl_subscriber_query(rig->subscriber, &info) == 0 && info.stream.state == PL_STREAM_FAILED);
	check(accounts->delivered + accounts->lapped + accounts->dropped + accounts->aborted + accounts->missed ==
	      accounts->next - accounts->first);
	if (!goes_on)
		return;
	check(is_connected(rig->environment.near_peer));
	check_serves(rig);
}

static void check_given_up(struct rig *rig, bool goes_on)
{
	check_given_up_by(rig, "STREAM-PROTOCOL", goes_on);
}

static struct pl_stream_message announcement(const struct rig *rig, uint64_t claimed, uint64_t published)
{
	struct pl_stream_message message = { .type = PL_STREAM_ANNOUNCE, .number = rig->subscriber->number };

	message.announce.claimed = claimed;
	message.announce.published = published;
	message.announce.state = PL_STREAM_LIVE;
	return message;
}

static void test_announcements(void *argument)
{
	uint8_t frame[PL_RING_DESCRIPTOR] = { 1 }; /* length of a slot and more, in another slot */
	struct pl_stream_message message, first;
	struct rig rig;

	(void)argument;
	for (unsigned i = 0; i < 4; i++) {
		rig_open(&rig, &(struct pl_subscriber_options)PL_SUBSCRIBER_OPTIONS_INIT);
		publish(rig.publisher, 0);
		switch (i) {
		case 0: /* goes back; sent together, as the first one makes the other end report sequences that do not exist */
			first = announcement(&rig, 9, 9);
			message = announcement(&rig, 8, 8);
			break;
		case 1: /* more than any ring has */
			message = announcement(&rig, PL_STREAM_SLOTS_MAX + 9, 1);
			break;
		case 2:
			message = announcement(&rig, UINT64_MAX, UINT64_MAX);
			break;
		default:
			message = announcement(&rig, 2, 2);
			message.announce.count = 1;
			message.announce.frames = frame;
			message.announce.frames_length = sizeof(frame);
		}
		pl_engine_lock(rig.environment.far_peer->home);
		check(i != 0 || pl_stream_send(rig.environment.far_peer, &first) == 0);
		check(pl_stream_send(rig.environment.far_peer, &message) == 0);
		pl_engine_unlock(rig.environment.far_peer->home);
		check_given_up(&rig, false);
		rig_close(&rig);
	}
}

static void await_failure(const struct rig *rig)
{
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;
	uint64_t limit = clock_now() + AMPLE_TIME;

	while (pl_subscriber_query(rig->subscriber, &info) == 0 && info.stream.state != PL_STREAM_FAILED) {
		check(clock_now() < limit);
		sleep_ms(1);
	}
}

/* The second of two announcements goes back. All else is right, so nothing but that makes the subscriber fail. */
static void test_announced_back(void *argument)
{
	struct pl_stream_message first, second;
	struct pl_stream_frame *frame;
	struct pl_error error;
	struct rig rig;

	(void)argument;
	for (unsigned i = 0; i < 3; i++) {
		rig_open(&rig, &(struct pl_subscriber_options)PL_SUBSCRIBER_OPTIONS_INIT);
		publish(rig.publisher, 0);
		check(pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, &error) == 1);
		pl_frame_release(frame);
		first = announcement(&rig, 1, 1);
		second = announcement(&rig, i != 0, i != 0);
		if (i == 1)
			first.announce.state = PL_STREAM_ENDED;
		if (i == 2)
			first.announce.skipped = 1;
		pl_engine_lock(rig.environment.far_peer->home);
		check(pl_stream_send(rig.environment.far_peer, &first) == 0);
		check(pl_stream_send(rig.environment.far_peer, &second) == 0);
		pl_engine_unlock(rig.environment.far_peer->home);
		await_failure(&rig);
		check_given_up(&rig, false);
		rig_close(&rig);
	}
}

/* SUBSCRIBED that nobody has asked for ends the connection. */
static void test_second_answer(void *argument)
{
	struct pl_stream_message message = { .type = PL_STREAM_SUBSCRIBED };
	struct rig rig;

	(void)argument;
	rig_open(&rig, &(struct pl_subscriber_options)PL_SUBSCRIBER_OPTIONS_INIT);
	message.number = rig.subscriber->number;
	pl_lock_take(&rig.publisher->lock);
	pl_publisher_describe(rig.publisher, &message.subscribed.entry);
	pl_lock_release(&rig.publisher->lock);
	send_as(rig.environment.far_peer, &message);
	await_loss(rig.environment.near_peer);
	rig_close(&rig);
}

static void store_word(struct rig *rig, uint64_t offset, uint64_t value)
{
	__atomic_store_n((uint64_t *)(void *)(rig->publisher->ring.control + offset), htole64(value), __ATOMIC_RELEASE);
}

/* Makes the subscriber's end read the cursors for each frame, as of a publisher of an earlier release. */
static void forbid_trailing_words(struct pl_peer *peer)
{
	pl_engine_lock(peer->home);
	peer->trailing_words = false;
	pl_engine_unlock(peer->home);
}

/*
 * The ring itself is wrong, and the announcement right. The subscriber begins with the history, so it reads the descriptor
 * from the ring.
 */
static void test_ring(void *argument)
{
	static const struct {
		bool descriptor; /* the offset is that in the descriptor of the first frame */
		bool checked;    /* a read of the cursors finds it */
		uint64_t offset, value;
	} words[] = {
		{ false, false, PL_RING_HEADER, UINT64_MAX },
		{ false, false, PL_RING_HEADER, 0 },
		{ false, true, PL_RING_HEADER, UINT64_MAX },
		{ false, true, PL_RING_HEADER + 24, 0 },
		{ false, true, PL_RING_HEADER + 24, 77 },
		{ false, true, PL_RING_HEADER + 56, 1 },
		{ true, false, 16, 1001 }, /* longer than a slot */
		{ true, false, 8, 3 },     /* another slot */
		{ true, false, 40, 65 },   /* too much metadata */
		{ true, false, 120, 1 },   /* reserved */
	};
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_error error;
	struct rig rig;

	(void)argument;
	options.start = PL_START_HISTORY;
	options.from = 1;
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		/* Without a trailing word, `published` tells what was claimed at least. */
		if (!words[i].checked && !words[i].value && strcmp(threads.fabric, "tcp"))
			continue;
		rig_open(&rig, NULL);
		if (words[i].checked)
			forbid_trailing_words(rig.environment.near_peer);
		publish(rig.publisher, 10);
		store_word(&rig,
			   words[i].offset + (words[i].descriptor
						      ? pl_ring_descriptor_offset(&rig.publisher->header.geometry, 0)
						      : 0),
			   words[i].value);
		check_ok(pl_subscriber_open(rig.environment.near_peer, "cam0", &options, AMPLE_TIME, &rig.subscriber,
					    &error),
			 &error);
		check_given_up(&rig, true);
		rig_close(&rig);
	}
}

/* The cursors go back after a frame was taken. */
static void test_cursors_back(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_stream_message message;
	struct pl_stream_frame *frame;
	struct pl_error error;
	struct rig rig;

	(void)argument;
	rig_open(&rig, &options);
	for (unsigned i = 0; i < 3; i++) {
		publish(rig.publisher, 10);
		check(pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, &error) == 1);
		pl_frame_release(frame);
	}
	store_word(&rig, PL_RING_HEADER, 2);
	store_word(&rig, PL_RING_HEADER + 8, 2);
	message = announcement(&rig, 4, 4);
	send_as(rig.environment.far_peer, &message);
	check_given_up(&rig, false);
	rig_close(&rig);
}

/* -- pushed frames ------------------------------------------------------------------------------------------------------ */

#define PUSH_SLOTS 7u /* of a subscriber with default options */

static struct pl_subscriber_options push_options(void)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;

	options.push = true;
	return options;
}

/* PUSHED of the publisher: `next`, sums of fates, and, unless `slot` is UINT32_MAX, a frame. */
struct false_push {
	const char *id; /* of the error */
	uint64_t next, published;
	struct pl_push_fates fates;
	uint32_t slot;
	uint64_t sequence, length;
	uint16_t metadata;
	enum pl_stream_state state;
};

/* `flags`: of the frame's descriptor. */
static void send_push_flags(struct rig *rig, const struct false_push *push, uint32_t flags)
{
	struct pl_stream_message message = { .type = PL_STREAM_PUSHED, .number = rig->subscriber->number };
	struct pl_ring_descriptor descriptor = {
		.sequence = push->sequence, .length = push->length, .metadata_length = push->metadata, .flags = flags
	};
	uint8_t frame[PL_RING_DESCRIPTOR + 65];

	memset(frame, 0xff, sizeof(frame));

	pl_ring_descriptor_encode(&descriptor, &rig->publisher->header.geometry, frame);
	message.pushed.next = push->next;
	message.pushed.published = push->published;
	message.pushed.state = push->state ? push->state : PL_STREAM_LIVE;
	message.pushed.fates = push->fates;
	if (push->slot != UINT32_MAX) {
		message.pushed.slot = push->slot;
		message.pushed.frame = frame;
		message.pushed.frame_length = PL_RING_DESCRIPTOR + push->metadata;
	}
	send_as(rig->environment.far_peer, &message);
}

static void send_push(struct rig *rig, const struct false_push *push)
{
	send_push_flags(rig, push, 0);
}

/* No message of a frame in the first slot writes behind the memory of its descriptor. */
static void check_next_descriptor(const struct pl_subscriber *subscriber)
{
	const uint8_t *control = pl_region_address(subscriber->memory.control);
	static const uint8_t zeros[PL_RING_DESCRIPTOR];

	check(!memcmp(control + subscriber->memory.frames[1].descriptor_offset, zeros, sizeof(zeros)));
}

/* The publisher announces what cannot be, first, or after it has pushed frame 0 into slot 0. */
static void test_pushes(void *argument)
{
	static const struct false_push first[] = {
		{ "PUSH-CREDIT", 1, 1, { 0 }, PUSH_SLOTS, 0, 10, 0, PL_STREAM_LIVE }, /* no such slot */
		{ "PUSH-CREDIT", 1, 1, { 0 }, UINT32_MAX - 1, 0, 10, 0, PL_STREAM_LIVE },
		{ "PUSH-FRAME", 1, 1, { 0 }, 0, 0, 1001, 0, PL_STREAM_LIVE },           /* longer than a slot */
		{ "PUSH-FRAME", 1, 1, { 0 }, 0, 0, 10, 65, PL_STREAM_LIVE },            /* too much metadata */
		{ "PUSH-FRAME", 1, 1, { 0 }, 0, 5, 10, 0, PL_STREAM_LIVE },             /* another sequence */
		{ "PUSH-SEQUENCE", 3, 3, { 0 }, 0, 2, 10, 0, PL_STREAM_LIVE },          /* without a fate for 0 and 1 */
		{ "PUSH-SEQUENCE", 2, 2, { 1, 1, 0, 0 }, 0, 1, 10, 0, PL_STREAM_LIVE }, /* two fates for 0 */
		{ "PUSH-SEQUENCE", 2, 2, { UINT64_MAX, 2, 0, 0 }, 0, 1, 10, 0, PL_STREAM_LIVE },
		{ "PUSH-SEQUENCE", 1, UINT64_MAX, { 0 }, 0, 0, 10, 0, PL_STREAM_LIVE },
		{ "PUSH-SEQUENCE", 0, 0, { 0 }, UINT32_MAX, 0, 0, 0, PL_STREAM_LIVE }, /* nothing new */
		{ "PUSH-SEQUENCE",
		  1,
		  0,
		  { 1, 0, 0, 0 },
		  UINT32_MAX,
		  0,
		  0,
		  0,
		  PL_STREAM_LIVE }, /* more than is published */
	};
	static const struct false_push second[] = {
		{ "PUSH-CREDIT", 2, 2, { 0 }, 0, 1, 10, 0, PL_STREAM_LIVE }, /* the frame is there, and was not taken */
		{ "PUSH-SEQUENCE", 1, 1, { 0 }, 1, 0, 10, 0, PL_STREAM_LIVE }, /* again */
		{ "PUSH-SEQUENCE", 0, 1, { 0 }, UINT32_MAX, 0, 0, 0, PL_STREAM_LIVE },
		{ "PUSH-SEQUENCE", 1, 1, { 0 }, UINT32_MAX, 0, 0, 0, PL_STREAM_LIVE },
		/* Goes back, with as many fates as the difference has as a number without sign. */
		{ "PUSH-SEQUENCE", 0, 1, { UINT64_MAX, 0, 0, 0 }, UINT32_MAX, 0, 0, 0, PL_STREAM_ENDED },
		{ "PUSH-SEQUENCE", 1, 0, { 0 }, UINT32_MAX, 0, 0, 0, PL_STREAM_ENDED }, /* fewer are published */
	};
	const struct pl_subscriber_options options = push_options();
	struct pl_stream_message message;
	struct rig rig;
	uint64_t limit;

	(void)argument;
	for (unsigned i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
		rig_open(&rig, &options);
		check_serves(&rig);
		send_push(&rig, &first[i]);
		check_given_up_by(&rig, first[i].id, true);
		check_next_descriptor(rig.subscriber);
		rig_close(&rig);
	}
	for (unsigned i = 0; i < sizeof(second) / sizeof(second[0]); i++) {
		rig_open(&rig, &options);
		publish(rig.publisher, 1000);
		for (limit = clock_now() + AMPLE_TIME; exact_accounts(rig.subscriber).pending == 0; sleep_ms(1))
			check(clock_now() < limit);
		send_push(&rig, &second[i]);
		/* A frame that is taken before that returns its credit. */
		await_failure(&rig);
		check_given_up_by(&rig, second[i].id, true);
		rig_close(&rig);
	}
	rig_open(&rig, &options);
	message = announcement(&rig, 1, 1);
	send_as(rig.environment.far_peer, &message);
	await_loss(rig.environment.near_peer);
	rig_close(&rig);
}

/* The stream goes on after its end; the frame was discarded; the subscriber has no slots. */
static void test_pushes_without_sense(void *argument)
{
	/* A frame is missing at the end. */
	static const struct false_push ended = { "", 0, 1, { 0 }, UINT32_MAX, 0, 0, 0, PL_STREAM_ENDED },
				       goes_on = { "", 1, 1, { 0 }, 0, 0, 10, 0, PL_STREAM_LIVE },
				       aborted = { "", 1, 1, { 0 }, 0, 0, 0, 0, PL_STREAM_LIVE };
	const struct pl_subscriber_options options = push_options();
	struct rig rig;

	(void)argument;
	rig_open(&rig, &options);
	check_serves(&rig);
	send_push(&rig, &ended);
	send_push(&rig, &goes_on);
	check_given_up_by(&rig, "PUSH-SEQUENCE", true);
	rig_close(&rig);
	rig_open(&rig, &options);
	check_serves(&rig);
	send_push_flags(&rig, &aborted, PL_DESCRIPTOR_ABORTED);
	check_given_up_by(&rig, "PUSH-FRAME", true);
	rig_close(&rig);
	/* A subscriber that pulls has no slots. */
	rig_open(&rig, &(struct pl_subscriber_options)PL_SUBSCRIBER_OPTIONS_INIT);
	send_push(&rig, &goes_on);
	await_loss(rig.environment.near_peer);
	rig_close(&rig);
}

/* The publisher writes a frame before it knows of a pause: nobody wants it. */
static void test_pushed_after_pause(void *argument)
{
	static const struct false_push late = { "", 1, 1, { 0 }, 0, 0, 10, 0, PL_STREAM_LIVE };
	const struct pl_subscriber_options options = push_options();
	uint64_t limit = clock_now() + AMPLE_TIME;
	struct pl_accounts accounts;
	struct rig rig;

	(void)argument;
	rig_open(&rig, &options);
	check_serves(&rig);
	pl_subscriber_pause(rig.subscriber, true);
	send_push(&rig, &late);
	while ((accounts = exact_accounts(rig.subscriber)).next < 1) {
		check(clock_now() < limit);
		sleep_ms(1);
	}
	check_number(accounts.unwanted, 1);
	check_number(rig.subscriber->window_count, 0);
	check_number(rig.subscriber->absent, 1);
	rig_close(&rig);
}

/* Waits until the publisher has told that it writes no more. */
static void await_answer(struct pl_subscriber *subscriber)
{
	uint64_t limit = clock_now() + AMPLE_TIME;
	bool written;

	do {
		check(clock_now() < limit);
		pl_lock_take(&subscriber->lock);
		written = subscriber->written && !subscriber->peer;
		pl_lock_release(&subscriber->lock);
		sleep_ms(1);
	} while (!written);
}

/* The publisher can write into the slots, and only until the subscription ends. */
static void test_push_key(void *argument)
{
	const struct pl_subscriber_options options = push_options();
	struct pl_subscription *subscription;
	struct pl_stream_message message;
	uint8_t token[PL_TOKEN_SIZE];
	struct pl_remote *remote;
	struct rig rig;

	(void)argument;
	rig_open(&rig, &options);
	check_serves(&rig);
	subscription = pl_list_first(&rig.publisher->subscriptions, struct pl_subscription, link);
	memcpy(token, rig.subscriber->token, sizeof(token));
	remote = import_token(&rig.environment, rig.environment.far_peer, token, sizeof(token));
	check(pl_remote_rights(remote) == PL_ACCESS_WRITE && remote->length == PUSH_SLOTS * 4096);
	pl_remote_release(remote);
	/* No key of the ring was made. */
	memset(token, 0, sizeof(token));
	check(!memcmp(subscription->control, token, sizeof(token)) &&
	      !memcmp(subscription->payload, token, sizeof(token)));
	memcpy(token, rig.subscriber->token, sizeof(token));
	message = (struct pl_stream_message){ .type = PL_STREAM_PUSHED, .number = 5000 };
	message.pushed.state = PL_STREAM_LIVE;
	send_as(rig.environment.far_peer, &message); /* of a subscription that does not exist: may be late */
	pl_pushed_unsubscribe(rig.subscriber, rig.subscriber->engine);
	await_answer(rig.subscriber);
	check_serves(&rig);
	check(import_status(&rig.environment, rig.environment.far_peer, token, sizeof(token)) == -EACCES);
	rig_close(&rig);
}

/* A subscriber that prepares may only begin what it has prepared, or unsubscribe. Each of these messages ends the connection. */
static void test_prepared(void *argument)
{
	struct pl_stream_message message;
	struct rig rig;

	(void)argument;
	for (unsigned i = 0; i < 7; i++) {
		rig_open(&rig, NULL);
		message = subscribe_message(77);
		message.subscribe.prepare = true;
		message.subscribe.push = i == 1 || i == 2;
		send_as(rig.environment.near_peer, &message);
		check_serves(&rig);
		switch (i) {
		case 0:
			message = (struct pl_stream_message){ .type = PL_STREAM_TAKEN, .number = 77 };
			break;
		case 1:
			message = (struct pl_stream_message){ .type = PL_STREAM_SLOTS, .number = 77 };
			message.slots.count = 1;
			message.slots.stride = 4096;
			break;
		case 2:
			message = (struct pl_stream_message){ .type = PL_STREAM_CREDIT, .number = 77 };
			message.credit.count = 1;
			break;
		case 3: /* prepares again */
			break;
		case 4: /* begins frames that are pushed */
			message.subscribe.prepare = false;
			message.subscribe.push = true;
			break;
		case 5: /* begins frames in place */
			message.subscribe.prepare = false;
			message.subscribe.in_place = true;
			message.subscribe.overflow = PL_OVERFLOW_BLOCK;
			break;
		default: /* begins another stream */
			message.subscribe.prepare = false;
			strcpy(message.subscribe.name, "cam1");
		}
		send_as(rig.environment.near_peer, &message);
		await_loss(rig.environment.far_peer);
		rig_close(&rig);
	}
}

static struct pl_subscription *find_subscription(const struct rig *rig, uint32_t number)
{
	struct pl_peer *peer = rig->environment.far_peer;
	struct pl_subscription *subscription;

	pl_engine_lock(peer->home);
	subscription = pl_subscription_find(peer, number);
	pl_engine_unlock(peer->home);
	return subscription;
}

/* Lets the time pass for which a subscription may be prepared. Returns false if it has none. */
static bool end_preparation(const struct rig *rig, uint32_t number)
{
	struct pl_subscription *subscription = find_subscription(rig, number);
	struct pl_engine *home = rig->environment.far_peer->home;
	bool limited;

	check(subscription);
	pl_engine_lock(home);
	limited = !pl_list_empty(&subscription->end_timer.link);
	if (limited)
		pl_timer_set(home, &subscription->end_timer, pl_now());
	pl_engine_unlock(home);
	return limited;
}

static unsigned count_prepared(const struct rig *rig)
{
	unsigned count;

	pl_lock_take(&rig->publisher->lock);
	count = rig->publisher->prepared_count;
	pl_lock_release(&rig->publisher->lock);
	return count;
}

/* A subscription that never begins gives its place back. One that has begun stays. */
static void test_prepares_for_ever(void *argument)
{
	uint64_t limit = clock_now() + AMPLE_TIME;
	struct pl_stream_message message;
	uint8_t token[PL_TOKEN_SIZE];
	struct rig rig;

	(void)argument;
	rig_open(&rig, NULL);
	for (uint32_t number = 77; number < 79; number++) {
		message = subscribe_message(number);
		message.subscribe.prepare = true;
		send_as(rig.environment.near_peer, &message);
	}
	message.subscribe.prepare = false;
	send_as(rig.environment.near_peer, &message);
	check_serves(&rig);
	check_number(count_prepared(&rig), 1);
	memcpy(token, find_subscription(&rig, 77)->payload, sizeof(token));
	check(!end_preparation(&rig, 78));
	check(end_preparation(&rig, 77));
	while (find_subscription(&rig, 77))
		check(clock_now() < limit && usleep(1000) == 0);
	check_number(count_prepared(&rig), 0);
	check(find_subscription(&rig, 78));
	check(import_status(&rig.environment, rig.environment.near_peer, token, sizeof(token)) == -EACCES);
	check_serves(&rig);
	rig_close(&rig);
}

/*
 * The publisher closes, and another one opens under its name, before the request to begin arrives. The new publisher makes a
 * subscription of it, which the subscriber's end leaves.
 */
static void test_begins_anew(void *argument)
{
	struct pl_subscription_info info = PL_SUBSCRIPTION_INFO_INIT;
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_publisher_info publisher = PL_PUBLISHER_INFO_INIT;
	uint64_t limit = clock_now() + AMPLE_TIME;
	struct pl_stream_message message;
	struct pl_error error;
	struct rig rig;

	(void)argument;
	rig_open(&rig, NULL);
	/* The number of a subscriber that has been here. */
	rig.environment.near_peer->next_stream = 77;
	message = subscribe_message(77);
	message.subscribe.prepare = true;
	message.subscribe.overflow = PL_OVERFLOW_BLOCK;
	send_as(rig.environment.near_peer, &message);
	check_serves(&rig);
	pl_publisher_close(rig.publisher);
	options.slot_bytes = 1000;
	options.allow_block = true;
	check_ok(pl_publisher_open(rig.environment.far, "cam0", &options, &rig.publisher, &error), &error);
	message.subscribe.prepare = false;
	send_as(rig.environment.near_peer, &message);
	for (; !info.ended; sleep_ms(1)) {
		check(clock_now() < limit);
		check(pl_publisher_subscribers(rig.publisher, &info, 1) >= 0);
	}
	check(pl_publisher_query(rig.publisher, &publisher) == 0 && publisher.subscribers == 0);
	check_serves(&rig);
	rig_close(&rig);
}

/* Opens a pushed subscription by hand, and shares slots with a token of the region. */
static void share_by_hand_over(struct rig *rig, const struct setting *setting, struct buffer *slots, uint32_t count,
			       unsigned rights)
{
	struct pl_stream_message message = subscribe_message(77);

	rig_open_over(rig, setting, NULL);
	buffer_open(slots, rig->environment.near, 2 * 4096, PL_ACCESS_ALL);
	message.subscribe.push = true;
	send_as(rig->environment.near_peer, &message);
	message = (struct pl_stream_message){ .type = PL_STREAM_SLOTS, .number = 77 };
	message.slots.count = count;
	message.slots.stride = 4096;
	check(pl_grant_bind(slots->region, rights, rig->environment.near_peer, NULL, message.slots.token) == 0);
	send_as(rig->environment.near_peer, &message);
	check_serves(rig);
}

static void share_by_hand(struct rig *rig, struct buffer *slots, uint32_t count)
{
	share_by_hand_over(rig, &threads, slots, count, PL_ACCESS_WRITE);
}

/* Each of these messages of a subscriber ends the connection. */
static void test_credits(void *argument)
{
	struct pl_stream_message message;
	struct buffer slots;
	struct rig rig;

	(void)argument;
	for (unsigned i = 0; i < 6; i++) {
		share_by_hand(&rig, &slots, 2);
		message = (struct pl_stream_message){ .type = PL_STREAM_CREDIT, .number = 77 };
		message.credit.count = 2;
		switch (i) {
		case 0: /* the same slot twice */
			break;
		case 1: /* no such slot */
			message.credit.slots[1] = 2;
			break;
		case 2: /* frames that do not exist */
			message.credit.slots[1] = 1;
			message.credit.accounts = (struct pl_accounts){ .next = 1, .delivered = 1 };
			break;
		case 3: /* other slots */
			message = (struct pl_stream_message){ .type = PL_STREAM_SLOTS, .number = 77 };
			message.slots.count = 1;
			message.slots.stride = 4096;
			break;
		case 4: /* answers announcements, of which there are none */
			message = (struct pl_stream_message){ .type = PL_STREAM_TAKEN, .number = 77 };
			break;
		default: /* slots of a subscription that pulls */
			message = subscribe_message(78);
			send_as(rig.environment.near_peer, &message);
			message = (struct pl_stream_message){ .type = PL_STREAM_SLOTS, .number = 78 };
			message.slots.count = 1;
			message.slots.stride = 4096;
		}
		send_as(rig.environment.near_peer, &message);
		await_loss(rig.environment.far_peer);
		buffer_close(&slots);
		rig_close(&rig);
	}
}

/* Slots that end before the last one, or that may only be read: the subscription ends, the connection goes on. */
static void refuse_slots(const struct setting *setting, uint32_t count, unsigned rights)
{
	struct pl_subscription_info info = PL_SUBSCRIPTION_INFO_INIT;
	struct buffer slots;
	uint64_t limit;
	struct rig rig;

	share_by_hand_over(&rig, setting, &slots, count, rights);
	for (limit = clock_now() + AMPLE_TIME; !info.ended; sleep_ms(1)) {
		check(clock_now() < limit);
		check(pl_publisher_subscribers(rig.publisher, &info, 1) == 1);
	}
	check_serves(&rig);
	buffer_close(&slots);
	rig_close(&rig);
}

static void test_false_slots(void *argument)
{
	(void)argument;
	refuse_slots(&threads, 3, PL_ACCESS_WRITE);
	refuse_slots(&threads, 2, PL_ACCESS_READ);
	refuse_slots(&local_threads, 2, PL_ACCESS_READ);
}

static bool slots_are_imported(const struct rig *rig)
{
	struct pl_engine *engine = rig->environment.far_peer->home;
	const struct pl_subscription *subscription;
	bool imported;

	pl_engine_lock(engine);
	check(!pl_list_empty(&rig->publisher->subscriptions));
	subscription = pl_list_first(&rig->publisher->subscriptions, struct pl_subscription, link);
	imported = subscription->push && subscription->push->remote;
	pl_engine_unlock(engine);
	return imported;
}

static unsigned writes_under_way(struct pl_publisher *publisher)
{
	unsigned writing;

	pl_lock_take(&publisher->lock);
	writing = publisher->writing;
	pl_lock_release(&publisher->lock);
	return writing;
}

/* A publisher that does not answer in time uses the time of all its subscriptions up. Its answer gives later ones the time again. */
static void test_late_answer(void *argument)
{
	const struct pl_subscriber_options options = push_options();
	uint64_t limit = clock_now() + AMPLE_TIME;
	struct rig rig;

	rig_open_over(&rig, argument, &options);
	pump_stop(&rig.pump);
	pl_subscriber_close(rig.subscriber);
	rig.subscriber = NULL;
	check(rig.environment.near_peer->leave_end > 0 && rig.environment.near_peer->leave_end <= clock_now());
	pump_start(&rig.environment, &rig.pump, rig.environment.far);
	while (rig.environment.near_peer->leave_end) {
		check(clock_now() < limit);
		settle(&rig.environment, 1);
	}
	rig_close(&rig);
}

/* The subscriber makes no progress while the publisher closes: the write is cancelled, and the ring's memory is freed. */
static void test_close_while_writing(void *argument)
{
	struct pl_context_info info = PL_CONTEXT_INFO_INIT;
	struct pl_stream_message message = { .type = PL_STREAM_CREDIT, .number = 77 };
	uint64_t limit = clock_now() + AMPLE_TIME;
	struct buffer slots;
	struct rig rig;

	share_by_hand_over(&rig, argument, &slots, 2, PL_ACCESS_WRITE);
	/* The import needs an answer of the subscriber. */
	while (!slots_are_imported(&rig))
		progress(&rig.environment);
	message.credit.count = 1;
	send_as(rig.environment.near_peer, &message);
	publish(rig.publisher, 900);
	while (!writes_under_way(rig.publisher)) {
		check(clock_now() < limit);
		sleep_ms(1);
	}
	pl_publisher_close(rig.publisher);
	rig.publisher = NULL;
	check(clock_now() < limit);
	check(pl_context_query(rig.environment.far, &info, NULL) == 0);
	check_number(info.regions, 0);
	buffer_close(&slots);
	rig_close(&rig);
}

/* -- frames in place ------------------------------------------------------------------------------------------------- */

static unsigned flags_of(const struct pl_stream_frame *frame)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;

	check(pl_frame_query(frame, &info) == 0);
	return info.flags;
}

/* Ends the time that the publisher gives its subscriber to freeze frames. */
static void end_freeze_time(struct pl_publisher *publisher)
{
	pl_lock_take(&publisher->lock);
	check(!pl_list_empty(&publisher->subscriptions));
	pl_list_first(&publisher->subscriptions, struct pl_subscription, link)->freeze_end = 0;
	pl_lock_release(&publisher->lock);
}

/*
 * A subscriber that makes no progress: after its patience and the time to freeze, the publisher goes on. The frame that the
 * program holds is overwritten, which it can see before and after the next progress. The other frames are lapped.
 */
static void test_no_progress(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	uint64_t limit = clock_now() + AMPLE_TIME;
	struct pl_stream_frame *frame, *next, *loan;
	struct pl_accounts accounts;
	struct pl_error error;
	struct rig rig;

	(void)argument;
	require_second_mapping();
	options.in_place = true;
	rig_open_over(&rig, &local_manual_end, &options);
	rig.publisher->patience = 1;
	for (unsigned i = 0; i < 4; i++)
		publish(rig.publisher, 1000);
	check(pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, &error) == 1);
	while ((accounts = exact_accounts(rig.subscriber)).pending < 3) {
		check(clock_now() < limit);
		progress(&rig.environment);
	}
	/* Demoted, but not overwritten before its frames are frozen. */
	check(pl_publisher_loan(rig.publisher, 5 * MS, &loan, &error) == -EAGAIN);
	check(flags_of(frame) == PL_FRAME_IN_PLACE);
	end_freeze_time(rig.publisher);
	for (unsigned i = 0; i < 8; i++)
		publish(rig.publisher, 1000);
	check(flags_of(frame) == (PL_FRAME_IN_PLACE | PL_FRAME_OVERWRITTEN));
	/* Looks at ready frames before it makes progress, which may find more that are lapped. */
	if (pl_subscriber_take(rig.subscriber, &next, 1, 0, &error) == 1) {
		check(flags_of(next) == 0);
		pl_frame_release(next);
	}
	check(exact_accounts(rig.subscriber).lapped >= 3);
	while (!rig.subscriber->demoted) {
		check(clock_now() < limit);
		progress(&rig.environment);
	}
	check(flags_of(frame) == (PL_FRAME_IN_PLACE | PL_FRAME_OVERWRITTEN));
	pl_frame_release(frame);
	check(pl_subscriber_take(rig.subscriber, &frame, 1, AMPLE_TIME, &error) == 1);
	check(flags_of(frame) == 0);
	pl_frame_release(frame);
	exact_accounts(rig.subscriber);
	rig_close(&rig);
}

/* An end of an earlier release, which would refuse the message. */
static void test_old_end(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_subscriber *subscriber;
	struct pl_error error;
	struct rig rig;

	(void)argument;
	rig_open(&rig, NULL);
	options.in_place = true;
	rig.environment.near_peer->frames_in_place = false;
	check_number(pl_subscriber_open(rig.environment.near_peer, "cam0", &options, AMPLE_TIME, &subscriber, &error),
		     -ENOTSUP);
	check(!strcmp(error.id, "STREAM-OLD"));
	options = push_options();
	rig.environment.near_peer->pushed_frames = false;
	check_number(pl_subscriber_open(rig.environment.near_peer, "cam0", &options, AMPLE_TIME, &subscriber, &error),
		     -ENOTSUP);
	check(!strcmp(error.id, "STREAM-OLD"));
	/* Copies need neither. */
	options.push = false;
	check_ok(pl_subscriber_open(rig.environment.near_peer, "cam0", &options, AMPLE_TIME, &subscriber, &error),
		 &error);
	pl_subscriber_close(subscriber);
	check_serves(&rig);
	rig_close(&rig);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "reports", test_reports, NULL, 20 },
		{ "report back", test_report_back, NULL, 10 },
		{ "report before freeze", test_report_before_freeze, NULL, 10 },
		{ "messages", test_messages, NULL, 30 },
		{ "subscribed sequences", test_subscribed_sequences, NULL, 20 },
		{ "listed entries", test_listed_entries, NULL, 20 },
		{ "listed total", test_listed_total, NULL, 10 },
		{ "flood", test_flood, NULL, 30 },
		{ "tokens", test_tokens, NULL, 10 },
		{ "announcements", test_announcements, NULL, 20 },
		{ "announced back", test_announced_back, NULL, 20 },
		{ "second answer", test_second_answer, NULL, 10 },
		{ "ring", test_ring, NULL, 20 },
		{ "cursors back", test_cursors_back, NULL, 10 },
		{ "pushes", test_pushes, NULL, 20 },
		{ "pushes without sense", test_pushes_without_sense, NULL, 20 },
		{ "pushed after a pause", test_pushed_after_pause, NULL, 10 },
		{ "push key", test_push_key, NULL, 10 },
		{ "credits", test_credits, NULL, 20 },
		{ "prepared", test_prepared, NULL, 20 },
		{ "prepares for ever", test_prepares_for_ever, NULL, 20 },
		{ "begins anew", test_begins_anew, NULL, 20 },
		{ "false slots", test_false_slots, NULL, 10 },
		{ "late answer", test_late_answer, &manual, 20 },
		{ "close while writing", test_close_while_writing, &manual, 20 },
		{ "no progress", test_no_progress, NULL, 20 },
		{ "old end", test_old_end, NULL, 10 },
	};

	if (argc > 2 && !strcmp(argv[1], "--fabric"))
		threads.fabric = manual.fabric = argv[2];
	return cases_run("hostile_stream", cases, sizeof(cases) / sizeof(cases[0]));
}
