/* SPDX-License-Identifier: BSD-2-Clause */
/* Loans of a publisher: the gate of blocking subscribers, the end of its patience, skips, and publication. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "core/peer.h"
#include "stream/publisher.h"

#define SLOTS 4u
#define LENGTH 100u
#define METADATA 16u
#define PEERS (PL_DEMOTIONS_MAX + 3)

/* A publisher with subscriptions that have no connection. */
struct rig {
	struct pl_context *context;
	struct pl_publisher *publisher;
	struct pl_peer *peers[PEERS];
	struct pl_subscription subscriptions[2];
};

static int rig_open(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_publisher_options stream = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;

	assert_int_equal(pl_open(&rig->context, &options, &error), 0);
	stream.slots = SLOTS;
	stream.loans = SLOTS - 1;
	stream.slot_bytes = LENGTH;
	stream.metadata_bytes = METADATA;
	stream.allow_block = true;
	stream.patience = 10 * PL_NS_PER_S;
	assert_int_equal(pl_publisher_open(rig->context, "cam0", &stream, &rig->publisher, &error), 0);
	for (unsigned i = 0; i < PEERS; i++) {
		rig->peers[i] = calloc(1, sizeof(*rig->peers[i]));
		rig->peers[i]->context_id[0] = (uint8_t)(i + 1);
	}
	*state = rig;
	return 0;
}

static int rig_close(void **state)
{
	struct rig *rig = *state;

	pl_list_init(&rig->publisher->subscriptions);
	pl_publisher_close(rig->publisher);
	pl_close(rig->context);
	for (unsigned i = 0; i < PEERS; i++)
		free(rig->peers[i]);
	free(rig);
	return 0;
}

static struct pl_subscription *subscribe(struct rig *rig, unsigned index, unsigned peer)
{
	struct pl_subscription *subscription = &rig->subscriptions[index];

	*subscription = (struct pl_subscription){ .publisher = rig->publisher, .peer = rig->peers[peer], .every = 1 };
	subscription->blocks = true;
	subscription->first = subscription->base = subscription->taken = rig->publisher->published;
	pl_list_append(&rig->publisher->subscriptions, &subscription->link);
	pl_publisher_set_gate(rig->publisher);
	return subscription;
}

static void unsubscribe(struct rig *rig, struct pl_subscription *subscription)
{
	pl_list_remove(&subscription->link);
	pl_publisher_set_gate(rig->publisher);
}

static struct pl_stream_frame *loan(struct rig *rig)
{
	struct pl_stream_frame *frame;
	struct pl_error error;

	assert_int_equal(pl_publisher_loan(rig->publisher, 0, &frame, &error), 0);
	return frame;
}

static void refuse_loan(struct rig *rig, int code, const char *id)
{
	struct pl_stream_frame *frame;
	struct pl_error error;

	assert_int_equal(pl_publisher_loan(rig->publisher, 0, &frame, &error), code);
	assert_string_equal(error.id, id);
	assert_null(frame);
}

static void publish_many(struct rig *rig, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(pl_frame_publish(loan(rig), NULL, NULL), 0);
}

/* The time of the publisher's patience is over. */
static void end_patience(struct rig *rig)
{
	rig->publisher->blocked_since = 1;
}

static void test_gate(void **state)
{
	struct rig *rig = *state;
	struct pl_publisher *publisher = rig->publisher;
	struct pl_subscription *first = subscribe(rig, 0, 0), *second = subscribe(rig, 1, 1);

	assert_true(publisher->gate == SLOTS);
	second->taken = 1;
	publish_many(rig, SLOTS);
	refuse_loan(rig, -EAGAIN, "STREAM-BUSY");
	assert_true(publisher->refused == 1 && publisher->blocked_since && publisher->awaited == SLOTS + 1);
	/* Still shut: the time goes on. */
	pl_publisher_set_gate(publisher);
	assert_true(publisher->blocked_since != 0);
	first->taken = 1;
	pl_publisher_set_gate(publisher);
	assert_true(publisher->gate == SLOTS + 1 && publisher->blocked_since == 0);
	publish_many(rig, 1);
	first->blocks = second->blocks = false;
	pl_publisher_set_gate(publisher);
	assert_true(publisher->gate == PL_RING_SEQUENCE_MAX);
}

/* Only subscribers that hold the awaited slots back are demoted. */
static void test_patience(void **state)
{
	struct rig *rig = *state;
	struct pl_subscription *holder = subscribe(rig, 0, 0), *other = subscribe(rig, 1, 1);

	publish_many(rig, SLOTS);
	other->taken = 2;
	end_patience(rig);
	publish_many(rig, 1);
	assert_true(holder->demoted && !holder->blocks);
	assert_true(!other->demoted && other->blocks);
	assert_true(pl_publisher_has_demoted(rig->publisher, rig->peers[0]));
	assert_false(pl_publisher_has_demoted(rig->publisher, rig->peers[1]));
	assert_true(rig->publisher->gate == 2 + SLOTS);
}

/* Frames in place hold their slots until they are frozen, or until the time for that is over. */
static void test_freeze_time(void **state)
{
	struct rig *rig = *state;
	struct pl_subscription *holder = subscribe(rig, 0, 0);
	struct pl_stream_frame *frame;
	uint64_t end;

	holder->in_place = true;
	publish_many(rig, SLOTS);
	end_patience(rig);
	refuse_loan(rig, -EAGAIN, "STREAM-BUSY");
	end = holder->freeze_end;
	assert_true(holder->demoted && holder->blocks && end > pl_now());
	end_patience(rig);
	refuse_loan(rig, -EAGAIN, "STREAM-BUSY");
	assert_true(holder->freeze_end == end);
	/* A loan waits until then, and no longer. */
	assert_int_equal(pl_publisher_loan(rig->publisher, 10 * PL_NS_PER_MS, &frame, NULL), -EAGAIN);
	holder->freeze_end = pl_now() + 10 * PL_NS_PER_MS;
	end_patience(rig);
	assert_int_equal(pl_publisher_loan(rig->publisher, UINT64_MAX, &frame, NULL), 0);
	assert_false(holder->blocks);
	pl_frame_discard(frame);
}

/* Demotes a subscriber of this peer. */
static void demote(struct rig *rig, unsigned peer)
{
	struct pl_subscription *holder = subscribe(rig, 0, peer);

	publish_many(rig, SLOTS);
	end_patience(rig);
	publish_many(rig, 1);
	assert_true(holder->demoted);
	unsubscribe(rig, holder);
}

/* The publisher knows the contexts that were demoted last. */
static void test_demotions(void **state)
{
	struct rig *rig = *state;
	struct pl_publisher *publisher = rig->publisher;

	for (unsigned i = 0; i < PL_DEMOTIONS_MAX; i++)
		demote(rig, i);
	for (unsigned i = 0; i < PEERS; i++)
		assert_int_equal(pl_publisher_has_demoted(publisher, rig->peers[i]), i < PL_DEMOTIONS_MAX);
	/* Takes no place of another one. */
	demote(rig, 1);
	assert_true(pl_publisher_has_demoted(publisher, rig->peers[0]));
	/* Two new ones take the places of the oldest. */
	demote(rig, PL_DEMOTIONS_MAX);
	assert_false(pl_publisher_has_demoted(publisher, rig->peers[0]));
	demote(rig, PL_DEMOTIONS_MAX + 1);
	assert_true(pl_publisher_has_demoted(publisher, rig->peers[1]));
	for (unsigned i = 2; i < PEERS; i++)
		assert_int_equal(pl_publisher_has_demoted(publisher, rig->peers[i]), i > 2 && i < PEERS - 1);
	for (unsigned i = 0; i < PL_DEMOTIONS_MAX; i++)
		publisher->demotions[i].until = 1;
	assert_false(pl_publisher_has_demoted(publisher, rig->peers[1]));
}

/* A peer that claims the context of another one, with an identity of its own, has only itself demoted. */
static void test_claimed_context(void **state)
{
	struct pl_admission thief = { .identity.fingerprint = "SHA256:thief" },
			    owner = { .identity.fingerprint = "SHA256:owner" };
	struct rig *rig = *state;
	struct pl_subscription *holder;

	rig->peers[0]->admission = &thief;
	rig->peers[1]->admission = &owner;
	memcpy(rig->peers[0]->context_id, rig->peers[1]->context_id, sizeof(rig->peers[0]->context_id));
	holder = subscribe(rig, 0, 0);
	snprintf(holder->fingerprint, sizeof(holder->fingerprint), "%s", pl_peer_fingerprint(rig->peers[0]));
	publish_many(rig, SLOTS);
	end_patience(rig);
	publish_many(rig, 1);
	assert_true(holder->demoted);
	assert_true(pl_publisher_has_demoted(rig->publisher, rig->peers[0]));
	assert_false(pl_publisher_has_demoted(rig->publisher, rig->peers[1]));
	rig->peers[1]->admission = &thief;
	assert_true(pl_publisher_has_demoted(rig->publisher, rig->peers[1]));
}

/* Quiet subscribers are asked for slots once for each end that the publisher awaits. */
static void test_questions(void **state)
{
	struct rig *rig = *state;
	struct pl_subscription *quiet = subscribe(rig, 0, 0), *other = subscribe(rig, 1, 1);
	struct pl_error error;

	quiet->quiet = true;
	publish_many(rig, SLOTS);
	refuse_loan(rig, -EAGAIN, "STREAM-BUSY");
	assert_true(quiet->awaited && !other->awaited);
	quiet->awaited = false;
	refuse_loan(rig, -EAGAIN, "STREAM-BUSY");
	assert_false(quiet->awaited);
	/* A skip awaits more. */
	assert_int_equal(pl_publisher_skip(rig->publisher, SLOTS + 3, 0, &error), -EAGAIN);
	assert_true(quiet->awaited);
	quiet->awaited = false;
	/* The gate was open meanwhile. */
	rig->publisher->blocked_since = 0;
	assert_int_equal(pl_publisher_skip(rig->publisher, SLOTS + 3, 0, &error), -EAGAIN);
	assert_true(quiet->awaited);
	/* The publisher asks only subscribers that hold slots back. */
	quiet->awaited = false;
	quiet->taken = SLOTS;
	rig->publisher->blocked_since = 0;
	refuse_loan(rig, -EAGAIN, "STREAM-BUSY");
	assert_false(quiet->awaited);
}

static void refuse_skip(struct rig *rig, uint64_t end, int code, const char *id)
{
	struct pl_error error;

	assert_int_equal(pl_publisher_skip(rig->publisher, end, 0, &error), code);
	assert_string_equal(error.id, id);
}

static void test_skips(void **state)
{
	struct rig *rig = *state;
	struct pl_publisher *publisher = rig->publisher;
	struct pl_subscription *third = subscribe(rig, 0, 0);
	struct pl_stream_frame *frame;
	struct pl_error error;

	third->blocks = false;
	third->every = 3;
	pl_publisher_set_gate(publisher);
	publish_many(rig, 2);
	refuse_skip(rig, 1, -EINVAL, "OPTION");
	refuse_skip(rig, PL_RING_SEQUENCE_MAX + 1, -EINVAL, "OPTION");
	assert_int_equal(pl_publisher_skip(publisher, 2, 0, &error), 0);
	assert_true(publisher->claimed == 2);
	/* 2 to 9 are skipped, of which the ring has 6 to 9. */
	assert_int_equal(pl_publisher_skip(publisher, 10, 0, &error), 0);
	assert_int_equal(third->skipped, 1);
	/* Lost ones count as lapped. */
	assert_int_equal(pl_publisher_skip_lost(publisher, 30, 0, &error), 0);
	assert_int_equal(third->skipped, 1);
	third->first = 60;
	assert_int_equal(pl_publisher_skip(publisher, 50, 0, &error), 0);
	assert_int_equal(third->skipped, 1);
	frame = loan(rig);
	refuse_skip(rig, 60, -EBUSY, "STREAM-LOANED");
	pl_frame_discard(frame);
	assert_int_equal(pl_publisher_skip(publisher, PL_RING_SEQUENCE_MAX, 0, &error), 0);
	assert_int_equal(pl_publisher_end(publisher, 0, &error), 0);
	refuse_skip(rig, PL_RING_SEQUENCE_MAX, -ENODATA, "STREAM-ENDED");
	refuse_loan(rig, -ENODATA, "STREAM-ENDED");
}

/* Returns a descriptor of the ring. */
static struct pl_ring_descriptor describe(const struct rig *rig, uint64_t sequence)
{
	const struct pl_ring *ring = &rig->publisher->ring;
	struct pl_ring_descriptor descriptor;

	assert_int_equal(pl_ring_descriptor_decode(ring->control + pl_ring_descriptor_offset(&ring->geometry, sequence),
						   &ring->geometry, sequence, &descriptor),
			 0);
	return descriptor;
}

static void check_published(const struct pl_publisher *publisher, uint64_t published)
{
	struct pl_ring_cursors cursors;

	assert_int_equal(pl_ring_cursors_decode(publisher->ring.control + PL_RING_HEADER, &cursors), 0);
	assert_true(cursors.published == published && publisher->published == published);
}

/* Frames are published in the order of their loans. */
static void test_order(void **state)
{
	struct rig *rig = *state;
	struct pl_publisher *publisher = rig->publisher;
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frames[SLOTS - 1];
	struct pl_error error;

	for (unsigned i = 0; i < SLOTS - 1; i++)
		frames[i] = loan(rig);
	refuse_loan(rig, -EMLINK, "LOAN-LIMIT");
	info.size = sizeof(info.size) - 1;
	assert_int_equal(pl_frame_query(frames[2], &info), -EINVAL);
	info.size = sizeof(info) + 1;
	assert_int_equal(pl_frame_query(frames[2], &info), -EINVAL);
	info.size = sizeof(info.size);
	info.sequence = 77;
	assert_int_equal(pl_frame_query(frames[2], &info), 0);
	assert_true(info.sequence == 77);
	info.size = sizeof(info);
	assert_int_equal(pl_frame_query(frames[2], &info), 0);
	assert_true(info.sequence == 2 && info.length == LENGTH && !info.status);
	assert_int_equal(pl_frame_publish(frames[1], NULL, &error), 0);
	check_published(publisher, 0);
	/* Not on loan any more. */
	assert_int_equal(pl_frame_publish(frames[1], NULL, &error), -EINVAL);
	assert_string_equal(error.id, "FRAME-FOREIGN");
	pl_frame_discard(frames[1]);
	pl_frame_discard(NULL);
	assert_int_equal(pl_publisher_end(publisher, 0, &error), -EBUSY);
	/* The program has the oldest loan, and no CUDA stream. */
	assert_false(pl_publisher_returns(publisher));
	frames[0]->state = PL_FRAME_MARKED;
	assert_true(pl_publisher_returns(publisher));
	frames[0]->state = PL_FRAME_LOANED;
	pl_frame_discard(frames[0]);
	check_published(publisher, 2);
	assert_int_equal(describe(rig, 1).flags, 0);
	pl_frame_discard(frames[2]);
	check_published(publisher, 3);
	publisher->loans[0].state = PL_FRAME_MARKED;
	assert_false(pl_publisher_returns(publisher));
	publisher->loans[0].state = PL_FRAME_FREE;
}

static void refuse_publication(struct pl_stream_frame *frame, const struct pl_frame_options *options, int code,
			       const char *id)
{
	struct pl_error error;

	assert_int_equal(pl_frame_publish(frame, options, &error), code);
	assert_string_equal(error.id, id);
}

static void test_bad_publications(void **state)
{
	static const struct pl_layout image = {
		.code = PL_ELEMENT_UINT, .bits = 8, .lanes = 1, .dimensions = 1, .shape = { 10 }
	};
	const struct pl_frame_options usual = PL_FRAME_OPTIONS_INIT;
	struct rig *rig = *state;
	struct pl_stream_frame *frame = loan(rig);
	struct pl_layout layout = image;
	struct pl_frame_options options = usual;
	struct pl_error error;

	options.size = 1;
	refuse_publication(frame, &options, -EINVAL, "OPTION");
	options = usual;
	options.length = LENGTH + 1;
	refuse_publication(frame, &options, -EMSGSIZE, "FRAME-LONG");
	options = usual;
	options.metadata = "0123456789abcdef+";
	options.metadata_length = METADATA + 1;
	refuse_publication(frame, &options, -EMSGSIZE, "FRAME-LONG");
	options.metadata = NULL;
	options.metadata_length = 1;
	refuse_publication(frame, &options, -EINVAL, "OPTION");
	options = usual;
	options.flags = PL_FRAME_REPLAY | PL_FRAME_LOST;
	refuse_publication(frame, &options, -EINVAL, "OPTION");
	for (unsigned i = 0; i < 3; i++) {
		options = usual;
		options.flags = PL_FRAME_LOST;
		options.length = i == 0;
		options.metadata_length = i == 1;
		options.metadata = "m";
		options.layout = i == 2 ? &layout : NULL;
		refuse_publication(frame, &options, -EINVAL, "OPTION");
	}
	options = usual;
	options.length = 9;
	options.layout = &layout;
	refuse_publication(frame, &options, -EINVAL, "FRAME-LAYOUT");
	options.length = 10;
	layout.code = 3;
	refuse_publication(frame, &options, -EINVAL, "FRAME-LAYOUT");
	layout = image;
	options.length = LENGTH;
	options.metadata = "0123456789abcdef";
	options.metadata_length = METADATA;
	assert_int_equal(pl_frame_publish(frame, &options, &error), 0);
}

static void test_descriptors(void **state)
{
	static const struct pl_layout none,
		bytes = { .code = PL_ELEMENT_UINT, .bits = 8, .lanes = 1, .dimensions = 1, .shape = { 10 } };
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_ring_descriptor descriptor;
	struct rig *rig = *state;

	options.length = 10;
	options.layout = &none;
	assert_int_equal(pl_frame_publish(loan(rig), &options, NULL), 0);
	descriptor = describe(rig, rig->publisher->published - 1);
	assert_true(descriptor.flags == 0 && descriptor.captured == descriptor.published);
	options.layout = &bytes;
	options.captured = 5;
	options.flags = PL_FRAME_REPLAY;
	assert_int_equal(pl_frame_publish(loan(rig), &options, NULL), 0);
	descriptor = describe(rig, rig->publisher->published - 1);
	assert_true(descriptor.flags == (PL_DESCRIPTOR_REPLAY | PL_DESCRIPTOR_LAYOUT) && descriptor.captured == 5);
	options = (struct pl_frame_options)PL_FRAME_OPTIONS_INIT;
	options.flags = PL_FRAME_LOST;
	assert_int_equal(pl_frame_publish(loan(rig), &options, NULL), 0);
	descriptor = describe(rig, rig->publisher->published - 1);
	assert_true(pl_ring_descriptor_lost(&descriptor));
	pl_frame_discard(loan(rig));
	descriptor = describe(rig, rig->publisher->published - 1);
	assert_true(descriptor.flags == PL_DESCRIPTOR_ABORTED && !pl_ring_descriptor_lost(&descriptor));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_gate, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_patience, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_freeze_time, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_demotions, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_claimed_context, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_questions, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_skips, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_order, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_bad_publications, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_descriptors, rig_open, rig_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
