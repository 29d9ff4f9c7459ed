/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads of a subscriber: what their failure does, and how they are posted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "stream/subscriber.h"

#define SLOTS 4u
#define FRAME_BYTES 100u

/* A live subscriber of a peer that has no connection. */
struct rig {
	struct pl_context *context;
	struct pl_allocator allocator; /* of the context */
	struct pl_peer *peer;
	struct pl_subscriber subscriber;
	struct pl_stream_frame frame;
	struct pl_remote control, payload;
	struct pl_region *slots;
};

/* Read that was posted last, and is under way. */
static struct pl_operation *posted;

static void keep_operation(struct pl_endpoint *endpoint, struct pl_operation *operation)
{
	(void)endpoint;
	posted = operation;
}

static const struct pl_fabric_ops no_fabric = { .name = "none", .post = keep_operation };

static int rig_open(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_subscriber *subscriber = &rig->subscriber;
	struct pl_list *const lists[] = { &subscriber->window, &subscriber->spare, &subscriber->promises };
	struct pl_error error;

	options.progress = PL_PROGRESS_MANUAL;
	assert_int_equal(pl_open(&rig->context, &options, &error), 0);
	assert_int_equal(pl_region_allocate(rig->context, 4096, PL_ACCESS_LOCAL, &rig->slots, &error), 0);
	rig->allocator = rig->context->allocator;
	rig->peer = calloc(1, sizeof(*rig->peer));
	assert_non_null(rig->peer);
	rig->peer->ops = &no_fabric;
	pl_list_init(&rig->peer->operations);
	pl_list_init(&rig->peer->fenced);
	atomic_store(&rig->peer->state, PL_PEER_UP);
	rig->control.references = rig->payload.references = 1;
	rig->peer->context = subscriber->context = rig->context;
	rig->peer->home = subscriber->engine = rig->context->engines[0];
	subscriber->peer = rig->peer;
	subscriber->geometry = (struct pl_ring_geometry){ .slots = SLOTS, .slot_bytes = FRAME_BYTES };
	assert_int_equal(pl_ring_geometry_init(&subscriber->geometry), 0);
	subscriber->memory.control = subscriber->memory.payloads = rig->slots;
	subscriber->control = &rig->control;
	subscriber->payload = &rig->payload;
	subscriber->phase = PL_SUBSCRIBER_LIVE;
	subscriber->state = PL_STREAM_LIVE;
	subscriber->queue = subscriber->every = 1;
	subscriber->event_fd = -1;
	for (unsigned i = 0; i < PL_ARRAY_SIZE(lists); i++)
		pl_list_init(lists[i]);
	pl_checks_init(subscriber);
	pl_engine_lock(subscriber->engine);
	*state = rig;
	return 0;
}

static int rig_close(void **state)
{
	struct rig *rig = *state;

	pl_engine_unlock(rig->subscriber.engine);
	pl_region_deregister(rig->slots);
	pl_close(rig->context);
	free(rig->peer);
	free(rig);
	return 0;
}

/* Puts a frame of which nothing was read, or only the descriptor, into the window. */
static void add_frame(struct rig *rig, enum pl_frame_state frame_state)
{
	struct pl_subscriber *subscriber = &rig->subscriber;

	rig->frame.subscriber = subscriber;
	rig->frame.state = frame_state;
	rig->frame.described = frame_state == PL_FRAME_WANT_PAYLOAD;
	rig->frame.descriptor.length = FRAME_BYTES;
	rig->frame.sequence = subscriber->accounts.next++;
	subscriber->accounts.pending++;
	subscriber->window_count++;
	pl_list_append(&subscriber->window, &rig->frame.link);
}

/* The reason of the end, or of the loss, comes with a message: only other failures are the subscriber's. */
static void test_failures(void **state)
{
	static const struct {
		int status;
		enum pl_subscriber_phase phase;
		const char *message; /* NULL: the subscriber does not fail */
	} cases[] = {
		{ -ETIMEDOUT, PL_SUBSCRIBER_LIVE, "a read of the ring did not end in time" },
		{ -EIO, PL_SUBSCRIBER_LIVE, "a read of the ring failed" },
		{ -EACCES, PL_SUBSCRIBER_LIVE, NULL },
		{ -ECONNRESET, PL_SUBSCRIBER_LIVE, NULL },
		{ -ETIMEDOUT, PL_SUBSCRIBER_AWAY, NULL },
		{ -EIO, PL_SUBSCRIBER_AWAY, NULL },
	};
	struct rig *rig = *state;
	struct pl_subscriber *subscriber = &rig->subscriber;

	for (unsigned i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		subscriber->phase = cases[i].phase;
		subscriber->state = PL_STREAM_LIVE;
		add_frame(rig, PL_FRAME_READING);
		pl_subscriber_read_failed(subscriber, &rig->frame, cases[i].status);
		assert_int_equal(subscriber->accounts.missed, i + 1);
		assert_int_equal(subscriber->phase, cases[i].message ? PL_SUBSCRIBER_OVER : cases[i].phase);
		if (cases[i].message) {
			assert_int_equal(subscriber->failure.code, cases[i].status);
			assert_string_equal(subscriber->failure.message, cases[i].message);
		}
		pl_list_remove(&rig->frame.link);
	}
}

static void *allocate_nothing(size_t size, void *user)
{
	(void)size;
	(void)user;
	return NULL;
}

static void lack_memory(struct rig *rig, bool lacks)
{
	if (lacks)
		rig->context->allocator.allocate = allocate_nothing;
	else
		rig->context->allocator = rig->allocator;
}

/* Without memory for a read of a frame, or of the cursors, the frame is missed and the subscriber fails. */
static void test_no_memory(void **state)
{
	static const enum pl_frame_state states[] = { PL_FRAME_WANT_DESCRIPTOR, PL_FRAME_WANT_PAYLOAD,
						      PL_FRAME_UNCHECKED };

	for (unsigned i = 0; i < PL_ARRAY_SIZE(states); i++) {
		struct rig *rig = *state;

		add_frame(rig, states[i]);
		lack_memory(rig, true);
		/* The subscriber takes leave of its publisher after a failure, which needs a connection. */
		rig->subscriber.leaving = true;
		pl_subscriber_pump(&rig->subscriber);
		lack_memory(rig, false);
		assert_int_equal(rig->frame.state, PL_FRAME_FREE);
		assert_int_equal(rig->subscriber.accounts.missed, 1);
		assert_int_equal(rig->subscriber.reading, 0);
		assert_int_equal(rig->subscriber.failure.code, -ENOMEM);
		assert_string_equal(rig->subscriber.failure.id, "STREAM-READ");
		rig_close(state);
		rig_open(state);
	}
}

static void never_finished(struct pl_operation *operation)
{
	(void)operation;
	fail();
}

/* Returns the read of a segment that the device of `ops` has, which counts as an operation of the library. */
static struct pl_attributes attributes_of_read(struct rig *rig, const struct pl_memory_ops *ops, uint64_t length)
{
	const struct pl_memory_ops *own = rig->slots->memory.ops;
	const struct pl_segment segment = { &rig->payload, rig->slots, 0, 0, length };
	struct pl_attributes attributes;
	struct pl_operation *operation;

	rig->slots->memory.ops = ops;
	operation = pl_subscriber_new_read(rig->peer, &segment, rig, never_finished);
	rig->slots->memory.ops = own;
	assert_non_null(operation);
	assert_true(operation->internal && operation->finished == never_finished);
	assert_true(operation->deadline > operation->completion.posted);
	attributes = operation->attributes;
	pl_operation_free(operation);
	return attributes;
}

/* Only long reads into memory of a GPU do without a wait for their copy, and all those are made visible to it. */
static void test_gpu_reads(void **state)
{
	static const struct pl_memory_ops gpu = { .name = "gpu" };
	struct rig *rig = *state;
	const struct pl_memory_ops *host = rig->slots->memory.ops;

	for (uint64_t length = (256u << 10) - 1; length <= 256u << 10; length++) {
		const struct pl_attributes on_host = attributes_of_read(rig, host, length),
					   on_gpu = attributes_of_read(rig, &gpu, length);
		const unsigned no_wait = length < 256u << 10 ? 0 : PL_NO_WAIT;

		assert_int_equal(on_host.flags, 0);
		assert_int_not_equal(on_host.visible, PL_VISIBLE_GPU_VISIBLE);
		assert_int_equal(on_gpu.flags, no_wait);
		assert_int_equal(on_gpu.visible, PL_VISIBLE_GPU_VISIBLE);
	}
}

/* Admits sequence `sequence` by an announcement of two frames, an empty one and one of a byte, whose second one has metadata. */
static void admit_announced(struct rig *rig, uint64_t sequence, uint16_t metadata)
{
	struct pl_subscriber *subscriber = &rig->subscriber;
	uint8_t frames[2 * PL_RING_DESCRIPTOR + 64] = { 0 };
	struct pl_stream_message message = { .type = PL_STREAM_ANNOUNCE,
					     .announce = { .claimed = 2, .published = 2, .count = 2, .frames = frames } };

	for (uint64_t i = 0; i < 2; i++) {
		const struct pl_ring_descriptor descriptor = { .sequence = i,
							       .length = i,
							       .metadata_length = i ? metadata : 0 };

		pl_ring_descriptor_encode(&descriptor, &subscriber->geometry, frames + i * PL_RING_DESCRIPTOR);
	}
	memset(frames + 2 * PL_RING_DESCRIPTOR, 0x55, 64);
	message.announce.frames_length = 2 * PL_RING_DESCRIPTOR + metadata;
	memset(pl_region_address(rig->slots), 0, 4096);
	rig->frame.subscriber = subscriber;
	pl_list_append(&subscriber->spare, &rig->frame.link);
	subscriber->accounts.next = sequence;
	subscriber->claimed = subscriber->published = 2;
	assert_true(pl_subscriber_admit(subscriber, &message));
}

/* A frame takes the descriptor of its announcement, unless that is longer than its place: the ring tells what it really is. */
static void test_announced_descriptors(void **state)
{
	static const struct {
		uint64_t sequence;
		uint16_t metadata;
		enum pl_frame_state state;
	} cases[] = {
		{ 0, 0, PL_FRAME_READY }, /* an empty frame is not read */
		{ 1, 0, PL_FRAME_WANT_PAYLOAD },
		{ 1, 1, PL_FRAME_WANT_DESCRIPTOR },
		{ 1, 64, PL_FRAME_WANT_DESCRIPTOR },
	};

	for (unsigned i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct rig *rig = *state;
		const uint8_t *behind = (uint8_t *)pl_region_address(rig->slots) + PL_RING_DESCRIPTOR;
		static const uint8_t zeros[64];

		admit_announced(rig, cases[i].sequence, cases[i].metadata);
		assert_int_equal(rig->frame.state, cases[i].state);
		assert_int_equal(rig->frame.described, cases[i].state != PL_FRAME_WANT_DESCRIPTOR);
		if (rig->frame.described)
			assert_int_equal(rig->frame.descriptor.length, cases[i].sequence);
		assert_memory_equal(behind, zeros, sizeof(zeros));
		rig_close(state);
		rig_open(state);
	}
}

/* Ends the read that is under way. */
static void end_read(int status)
{
	struct pl_operation *operation = posted;

	assert_non_null(operation);
	posted = NULL;
	pl_list_remove(&operation->peer_link);
	operation->completion.status = status;
	operation->finished(operation);
}

/* A read that failed, or ended without a connection, gives nothing: its frame is missed. */
static void test_ends_of_reads(void **state)
{
	static const struct {
		int status;
		enum pl_subscriber_phase phase;
	} cases[] = { { -EACCES, PL_SUBSCRIBER_LIVE }, { 0, PL_SUBSCRIBER_AWAY } };

	for (unsigned i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct rig *rig = *state;

		add_frame(rig, PL_FRAME_WANT_PAYLOAD);
		pl_subscriber_pump(&rig->subscriber);
		assert_int_equal(rig->frame.state, PL_FRAME_READING);
		rig->subscriber.phase = cases[i].phase;
		end_read(cases[i].status);
		assert_int_equal(rig->frame.state, PL_FRAME_FREE);
		assert_int_equal(rig->subscriber.accounts.missed, 1);
		assert_int_equal(rig->subscriber.phase, cases[i].phase);
		assert_null(posted);
		rig_close(state);
		rig_open(state);
	}
}

/* A frame that is being read, or that a stream takes, keeps its place. */
static void test_dropped_frames(void **state)
{
	struct rig *rig = *state;
	struct pl_subscriber *subscriber = &rig->subscriber;

	assert_false(pl_subscriber_drop_oldest(subscriber));
	add_frame(rig, PL_FRAME_READING);
	assert_false(pl_subscriber_drop_oldest(subscriber));
	rig->frame.state = PL_FRAME_READY;
	rig->frame.promised = true;
	assert_false(pl_subscriber_drop_oldest(subscriber));
	assert_int_equal(subscriber->accounts.dropped, 0);
	rig->frame.promised = false;
	assert_true(pl_subscriber_drop_oldest(subscriber));
	assert_int_equal(subscriber->accounts.dropped, 1);
	assert_int_equal(subscriber->window_count, 0);
}

/* Frames have no fate without a connection, before the program knows their instance, and before they are published. */
static void test_frames_to_admit(void **state)
{
	struct rig *rig = *state;
	struct pl_subscriber *subscriber = &rig->subscriber;

	rig->frame.subscriber = subscriber;
	pl_list_append(&subscriber->spare, &rig->frame.link);
	assert_false(pl_subscriber_admit(subscriber, NULL));
	subscriber->claimed = subscriber->published = 1;
	subscriber->phase = PL_SUBSCRIBER_AWAY;
	assert_false(pl_subscriber_admit(subscriber, NULL));
	subscriber->phase = PL_SUBSCRIBER_LIVE;
	subscriber->restarted = true;
	assert_false(pl_subscriber_admit(subscriber, NULL));
	subscriber->restarted = false;
	assert_int_equal(subscriber->accounts.next, 0);
	assert_true(pl_subscriber_admit(subscriber, NULL));
	assert_int_equal(subscriber->accounts.next, 1);
	assert_int_equal(rig->frame.state, PL_FRAME_WANT_DESCRIPTOR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_failures, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_no_memory, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_gpu_reads, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_dropped_frames, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_frames_to_admit, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_ends_of_reads, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_announced_descriptors, rig_open, rig_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
