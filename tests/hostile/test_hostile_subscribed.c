/* SPDX-License-Identifier: BSD-2-Clause */
/* False answers to SUBSCRIBE: each makes the call fail, and the connection serves on. */
#include <pthread.h>

#include "stream/connect.h"
#include "stream/publisher.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"

#define SLOTS 4u

static const struct setting threads = {
	.name = "thread", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

struct rig {
	struct scenario_environment environment;
	struct pl_publisher *publisher; /* in `far` */
	struct pl_subscriber *subscriber;
};

/* A call of the program that awaits the answer. */
struct call {
	struct rig *rig;
	bool attach, push;
	struct pl_subscriber *opened;
	struct pl_error error;
	int result;
};

static void *call_run(void *argument)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct call *call = argument;
	struct pl_peer *peer = call->rig->environment.near_peer;

	options.push = call->push;
	if (call->attach)
		call->result = pl_subscriber_attach(call->rig->subscriber, peer, AMPLE_TIME, &call->error);
	else
		call->result = pl_subscriber_open(peer, "cam0", &options, AMPLE_TIME, &call->opened, &call->error);
	return NULL;
}

/* Gives the asking end this answer. Returns false while the program has not asked. */
static bool answer_question(struct pl_peer *peer, struct pl_stream_message *answer)
{
	bool asked = false;

	pl_engine_lock(peer->home);
	pl_list_for_each(at, &peer->subscribers) {
		struct pl_subscriber *subscriber = pl_list_entry(at, struct pl_subscriber, peer_link);

		pl_lock_take(&subscriber->lock);
		asked = subscriber->phase == PL_SUBSCRIBER_ASKED;
		pl_lock_release(&subscriber->lock);
		answer->number = subscriber->number;
		if (asked)
			break;
	}
	if (asked)
		check(pl_subscriber_subscribed(peer, answer) == 0);
	pl_engine_unlock(peer->home);
	return asked;
}

/* Makes one value of a right answer wrong. Returns false without such a value. From `ATTACHED` on, an attach goes on with sequence 2. */
#define ATTACHED 8u
static bool spoil(struct pl_stream_message *answer, unsigned value)
{
	struct pl_stream_entry *entry = &answer->subscribed.entry;

	switch (value) {
	case 0:
		strcpy(entry->name, "cam1");
		return true;
	case 1:
		entry->slots = 1;
		return true;
	case 2:
		entry->layout = (struct pl_layout){ PL_ELEMENT_UINT, 8, 1, PL_LAYOUT_DIMENSIONS_MAX + 1, { 1 } };
		return true;
	case 3:
		strcpy(entry->content_type, "image\n");
		return true;
	case 4:
		entry->claimed = entry->published = PL_RING_SEQUENCE_MAX + 1;
		return true;
	case 5: /* all slots are loans */
		entry->claimed = entry->published + SLOTS;
		return true;
	case 6:
		answer->subscribed.first = PL_RING_SEQUENCE_MAX + 1;
		return true;
	case 7: /* a byte longer than a slot */
		entry->layout = (struct pl_layout){ PL_ELEMENT_UINT, 8, 1, 1, { entry->slot_bytes + 1 } };
		return true;
	case ATTACHED: /* again */
		answer->subscribed.first = 1;
		return true;
	case ATTACHED + 1: /* another ring of the same instance */
		entry->slots = 2 * SLOTS;
		return true;
	case ATTACHED + 2: /* fewer than were there */
		entry->published = entry->claimed = 1;
		return true;
	default:
		return false;
	}
}

static void await_subscribers(struct pl_publisher *publisher, unsigned count)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	uint64_t limit = clock_now() + AMPLE_TIME;

	while (pl_publisher_query(publisher, &info) == 0 && info.subscribers != count) {
		check(clock_now() < limit);
		sleep_ms(1);
	}
}

/*
 * The publisher's end stands still while the program asks, so its own answer comes when the call has failed. `second`: answers the
 * question of a subscriber that has prepared; or NULL.
 */
static void answer_falsely(struct rig *rig, struct pl_stream_message *first, struct pl_stream_message *second,
			   struct call call)
{
	struct pl_engine *far = rig->environment.far_peer->home;
	pthread_t thread;

	pl_engine_lock(far);
	check(pthread_create(&thread, NULL, call_run, &call) == 0);
	while (!answer_question(rig->environment.near_peer, first))
		sleep_ms(1);
	while (second && !answer_question(rig->environment.near_peer, second))
		sleep_ms(1);
	check(pthread_join(thread, NULL) == 0);
	pl_engine_unlock(far);
	check_status(call.result, -EPROTO, &call.error);
	check_text(call.error.id, "STREAM-PROTOCOL");
	check(!call.opened);
	/* The subscription of that answer has no subscriber, and ends. */
	await_subscribers(rig->publisher, 0);
}

static void rig_open(struct rig *rig)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;

	environment_open(&rig->environment, &threads);
	options.slot_bytes = 100;
	options.slots = SLOTS;
	check_ok(pl_publisher_open(rig->environment.far, "cam0", &options, &rig->publisher, &error), &error);
	rig->subscriber = NULL;
}

static void rig_close(struct rig *rig)
{
	pl_subscriber_close(rig->subscriber);
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
}

static void publish_and_take(struct rig *rig)
{
	struct pl_stream_frame *frame;
	struct pl_error error;

	publish_filled(rig->publisher, 10);
	check(pl_subscriber_take(rig->subscriber, &frame, 1, AMPLE_TIME, &error) == 1);
	pl_frame_release(frame);
}

static void test_false_answers(void *argument)
{
	struct pl_stream_message answer = { .type = PL_STREAM_SUBSCRIBED };
	struct pl_error error;
	struct rig rig;

	(void)argument;
	rig_open(&rig);
	check_ok(pl_subscriber_open(rig.environment.near_peer, "cam0", NULL, AMPLE_TIME, &rig.subscriber, &error),
		 &error);
	publish_and_take(&rig);
	publish_and_take(&rig);
	for (unsigned value = 0;; value++) {
		pl_lock_take(&rig.publisher->lock);
		pl_publisher_describe(rig.publisher, &answer.subscribed.entry);
		pl_lock_release(&rig.publisher->lock);
		answer.subscribed.first = 2;
		if (!spoil(&answer, value))
			break;
		if (value < ATTACHED)
			pl_subscriber_detach(rig.subscriber);
		answer_falsely(&rig, &answer, NULL, (struct call){ .rig = &rig, .attach = value >= ATTACHED });
		check_ok(pl_subscriber_attach(rig.subscriber, rig.environment.near_peer, AMPLE_TIME, &error), &error);
		await_subscribers(rig.publisher, 1);
	}
	check_number(exact_accounts(rig.subscriber).next, 2);
	publish_and_take(&rig);
	rig_close(&rig);
}

/* Makes the publisher describe slots or descriptors that are larger than those of its ring. */
static void describe_larger(struct pl_publisher *publisher, uint64_t slot_bytes, uint32_t metadata_bytes)
{
	pl_lock_take(&publisher->lock);
	publisher->header.geometry.slot_bytes = slot_bytes;
	publisher->header.geometry.metadata_bytes = metadata_bytes;
	pl_lock_release(&publisher->lock);
}

/* Each key of the ring covers all of what the answer describes. */
static void test_short_keys(void *argument)
{
	struct pl_subscriber *subscriber;
	struct pl_error error;
	struct rig rig;

	(void)argument;
	rig_open(&rig);
	for (unsigned i = 0; i < 2; i++) {
		describe_larger(rig.publisher, i ? 100 : 1 << 20, i ? 3000 : 0);
		check_status(
			pl_subscriber_open(rig.environment.near_peer, "cam0", NULL, AMPLE_TIME, &subscriber, &error),
			-EPROTO, &error);
		check_text(error.id, "STREAM-PROTOCOL");
	}
	describe_larger(rig.publisher, 100, 0);
	check_ok(pl_subscriber_open(rig.environment.near_peer, "cam0", NULL, AMPLE_TIME, &rig.subscriber, &error),
		 &error);
	rig_close(&rig);
}

/* The memory of the frames is that of the first answer, so the second one describes the same ring. */
static void test_second_geometry(void *argument)
{
	struct pl_stream_message first = { .type = PL_STREAM_SUBSCRIBED }, second;
	struct rig rig;

	(void)argument;
	rig_open(&rig);
	pl_publisher_describe(rig.publisher, &first.subscribed.entry);
	for (unsigned i = 0; i < 3; i++) {
		second = first;
		second.subscribed.entry.slots += i == 0;
		second.subscribed.entry.slot_bytes += i == 1;
		second.subscribed.entry.metadata_bytes += i == 2;
		answer_falsely(&rig, &first, &second, (struct call){ .rig = &rig, .push = true });
	}
	rig_close(&rig);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "false answers", test_false_answers, NULL, 60 },
		{ "short keys", test_short_keys, NULL, 20 },
		{ "second geometry", test_second_geometry, NULL, 30 },
	};

	return cases_run("hostile_subscribed", cases, sizeof(cases) / sizeof(cases[0]));
}
