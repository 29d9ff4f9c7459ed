/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames in a mapped ring: the lap rule in place, freezing, and what threads that look into the ring find there. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/context.h"
#include "core/peer.h"
#include "stream/subscriber.h"

#define SLOTS 4u
#define FRAMES 6u
#define LENGTH 5000u
#define MS ((uint64_t)1000000)

/* A subscriber that maps a ring, without a connection. The test is the publisher. */
struct rig {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_remote remotes[2]; /* of the control part, and of the slots */
	int files[2];                /* their memory */
	size_t lengths[2];           /* bytes that can be mapped */
	bool refuses[2];             /* the fabric does not map it */
	struct pl_ring ring;
	uint8_t *slots;
	struct pl_subscriber subscriber;
	struct pl_stream_frame frames[FRAMES];
};

static struct rig *current;

/* Failures of the kernel after it unmapped the old pages: none, of the move of pages, and of other pages, too. */
static enum { HAS_ALL, LACKS_MOVE, LACKS_PAGES } kernel;

/* Functions of the C library that this program replaces. */
void *mremap(void *old, size_t old_size, size_t new_size, int flags, ...)
{
	void *(*next)(void *, size_t, size_t, int, ...);
	void *found = dlsym(RTLD_NEXT, "mremap"), *at;
	va_list arguments;

	va_start(arguments, flags);
	at = va_arg(arguments, void *);
	va_end(arguments);
	if (kernel != HAS_ALL && (flags & MREMAP_FIXED)) {
		assert_int_equal(munmap(at, new_size), 0);
		errno = ENOMEM;
		return MAP_FAILED;
	}
	memcpy(&next, &found, sizeof(next));
	return next(old, old_size, new_size, flags, at);
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	void *(*next)(void *, size_t, int, int, int, off_t);
	void *found = dlsym(RTLD_NEXT, "mmap");

	if (kernel == LACKS_PAGES && address) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	memcpy(&next, &found, sizeof(next));
	return next(address, length, protection, flags, fd, offset);
}

static void *map_memory(struct pl_endpoint *endpoint, struct pl_remote *remote, size_t *length)
{
	unsigned index = (unsigned)(remote - current->remotes);
	void *memory;

	(void)endpoint;
	*length = current->lengths[index];
	if (current->refuses[index])
		return NULL;
	memory = mmap(NULL, *length, PROT_READ, MAP_SHARED, current->files[index], 0);
	return memory == MAP_FAILED ? NULL : memory;
}

static const struct pl_fabric_ops mapping_fabric = { .name = "test", .map = map_memory };
static const struct pl_fabric_ops other_fabric = { .name = "test" };

static void *share_memory(struct rig *rig, unsigned index, size_t length)
{
	void *memory;

	rig->lengths[index] = length;
	rig->files[index] = memfd_create("ring", MFD_CLOEXEC);
	assert_int_equal(ftruncate(rig->files[index], (off_t)length), 0);
	memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, rig->files[index], 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	return memory;
}

static int open_view(struct rig *rig, struct pl_error *error)
{
	return pl_ring_view_open(rig->peer, &rig->remotes[0], &rig->remotes[1], &rig->ring.geometry, "cam0",
				 &rig->subscriber.view, error);
}

static void prepare_subscriber(struct rig *rig)
{
	struct pl_subscriber *subscriber = &rig->subscriber;
	struct pl_list *const lists[] = { &subscriber->window, &subscriber->spare, &subscriber->promises,
					  &subscriber->placed };
	struct pl_error error;

	subscriber->context = rig->context;
	subscriber->engine = rig->context->engines[0];
	subscriber->geometry = rig->ring.geometry;
	subscriber->phase = PL_SUBSCRIBER_LIVE;
	subscriber->state = PL_STREAM_LIVE;
	subscriber->overflow = PL_OVERFLOW_BLOCK;
	subscriber->blocks = subscriber->may_be_quiet = true;
	subscriber->event_fd = -1;
	subscriber->queue = FRAMES;
	subscriber->every = 1;
	for (unsigned i = 0; i < PL_ARRAY_SIZE(lists); i++)
		pl_list_init(lists[i]);
	pl_checks_init(subscriber);
	assert_int_equal(pl_region_allocate(rig->context, 4096, PL_ACCESS_LOCAL, &subscriber->memory.control, &error),
			 0);
	assert_int_equal(
		pl_region_allocate(rig->context, FRAMES * 8192, PL_ACCESS_LOCAL, &subscriber->memory.payloads, &error),
		0);
	for (unsigned i = 0; i < FRAMES; i++) {
		struct pl_stream_frame *frame = &rig->frames[i];

		frame->subscriber = subscriber;
		frame->offset = i * 8192;
		frame->descriptor_offset = PL_CHECKS_SIZE + i * rig->ring.geometry.descriptor_stride;
		frame->data = (char *)pl_region_address(subscriber->memory.payloads) + frame->offset;
		pl_list_init(&frame->mark_link);
		pl_list_append(&subscriber->spare, &frame->link);
	}
}

static int rig_open(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_ring_header header = { .geometry = { .slots = SLOTS, .slot_bytes = LENGTH }, .name = "cam0" };
	struct pl_error error;

	current = rig;
	options.poll_time = MS;
	assert_int_equal(pl_open(&rig->context, &options, &error), 0);
	rig->peer = calloc(1, sizeof(*rig->peer));
	rig->peer->context = rig->context;
	rig->peer->ops = &mapping_fabric;
	assert_int_equal(pl_ring_geometry_init(&header.geometry), 0);
	pl_ring_init(&rig->ring, share_memory(rig, 0, pl_ring_control_size(&header.geometry)), &header);
	rig->slots = share_memory(rig, 1, pl_ring_payload_size(&header.geometry));
	assert_int_equal(open_view(rig, &error), 0);
	prepare_subscriber(rig);
	*state = rig;
	return 0;
}

static int rig_close(void **state)
{
	struct rig *rig = *state;

	pl_ring_view_put(rig->subscriber.view);
	pl_region_deregister(rig->subscriber.memory.control);
	pl_region_deregister(rig->subscriber.memory.payloads);
	munmap(rig->ring.control, pl_ring_control_size(&rig->ring.geometry));
	munmap(rig->slots, pl_ring_payload_size(&rig->ring.geometry));
	close(rig->files[0]);
	close(rig->files[1]);
	pl_close(rig->context);
	free(rig->peer);
	free(rig);
	return 0;
}

/* Publishes a frame of equal bytes, or of none. */
static void publish(struct rig *rig, uint64_t sequence, uint64_t length, uint32_t flags)
{
	const struct pl_ring_descriptor descriptor = {
		.sequence = sequence, .flags = flags, .length = length, .captured = 1
	};

	pl_ring_claim(&rig->ring, sequence);
	memset(rig->slots + pl_ring_slot_offset(&rig->ring.geometry, sequence), (int)sequence + 1, LENGTH);
	pl_ring_describe(&rig->ring, &descriptor, NULL);
	pl_ring_publish(&rig->ring, sequence + 1);
}

static void store_cursors(struct rig *rig, uint64_t claimed, uint64_t published)
{
	pl_ring_claim(&rig->ring, claimed - 1);
	pl_ring_publish(&rig->ring, published);
}

static struct pl_stream_frame *last_frame(struct rig *rig)
{
	return pl_list_entry(rig->subscriber.window.prev, struct pl_stream_frame, link);
}

static bool is_mapped(const void *address)
{
	return msync((void *)((uintptr_t)address & ~(uintptr_t)4095), 4096, MS_ASYNC) == 0;
}

/* -- the view ------------------------------------------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
	struct rig *rig = *state;
	struct pl_ring_view *right = rig->subscriber.view;
	size_t lengths[2] = { rig->lengths[0], rig->lengths[1] };
	struct pl_error error;

	for (unsigned i = 0; i < 4; i++) {
		rig->lengths[i % 2] -= i / 2;
		rig->refuses[i % 2] = i < 2;
		assert_int_equal(open_view(rig, &error), -ENOTSUP);
		assert_string_equal(error.id, "STREAM-PLACE");
		rig->lengths[i % 2] = lengths[i % 2];
		rig->refuses[i % 2] = false;
	}
	rig->ring.geometry.slot_stride -= 64;
	assert_int_equal(open_view(rig, &error), -ENOTSUP);
	rig->ring.geometry.slot_stride += 64;
	rig->peer->ops = &other_fabric;
	assert_int_equal(open_view(rig, &error), -ENOTSUP);
	rig->subscriber.view = right;
}

/* Makes the ring that of an earlier release, whose publisher does not mark what it claims, and maps it again. */
static void become_earlier_release(struct rig *rig)
{
	struct pl_error error;

	memset(rig->ring.control + PL_RING_HEADER + 16, 0, 8);
	pl_ring_view_put(rig->subscriber.view);
	assert_int_equal(open_view(rig, &error), 0);
}

/* A frame in the ring is unchanged until its slot is claimed again. A frame in memory of its own always is. */
static void test_lap_rule(void **state)
{
	struct rig *rig = *state;
	struct pl_stream_frame *frame = &rig->frames[0], *other = &rig->frames[1];
	struct pl_ring_look look = { 0 };

	become_earlier_release(rig);
	frame->sequence = 3;
	other->sequence = 4;
	store_cursors(rig, 3 + SLOTS + 1, 3);
	assert_true(pl_frame_unchanged(frame));
	assert_true(pl_frame_unchanged_at(frame, &look));
	assert_null(look.view);
	assert_true(pl_frame_place(&rig->subscriber, frame) && pl_frame_place(&rig->subscriber, other));
	assert_false(pl_frame_unchanged(frame));
	assert_true(pl_frame_unchanged(other));
	assert_false(pl_frame_unchanged_at(frame, &look));
	assert_true(pl_frame_unchanged_at(other, &look));
	/* A look serves all frames of a call. */
	store_cursors(rig, 3 + SLOTS, 3);
	assert_false(pl_frame_unchanged_at(frame, &look));
	assert_true(pl_frame_unchanged(frame));
	look.view = NULL;
	assert_true(pl_frame_unchanged_at(frame, &look));
	pl_frame_unplace(frame);
	pl_frame_unplace(other);
	assert_null(frame->view);
	assert_ptr_equal(frame->data, pl_region_address(rig->subscriber.memory.payloads));
	/* Later frames use the view. */
	assert_true(is_mapped(pl_ring_view_published(rig->subscriber.view)));
}

/*
 * A publisher that marks what it claims: the stamp alone judges a frame, before and after the descriptor of the next frame of its slot.
 * The cursors, which the publisher writes for each frame, are not read.
 */
static void test_marks(void **state)
{
	struct rig *rig = *state;
	struct pl_stream_frame *frame = &rig->frames[0];
	struct pl_ring_look look = { 0 };

	publish(rig, 3, LENGTH, 0);
	frame->sequence = 3;
	assert_true(pl_frame_place(&rig->subscriber, frame));
	pl_ring_claim_below(&rig->ring, 3 + SLOTS + 1);
	assert_true(pl_frame_unchanged(frame) && pl_frame_unchanged_at(frame, &look));
	assert_null(look.view);
	pl_ring_claim(&rig->ring, 2 + SLOTS);
	assert_true(pl_frame_unchanged(frame));
	pl_ring_claim(&rig->ring, 3 + SLOTS);
	assert_false(pl_frame_unchanged(frame) || pl_frame_unchanged_at(frame, &look));
	publish(rig, 3 + SLOTS, LENGTH, 0);
	assert_false(pl_frame_unchanged(frame) || pl_frame_unchanged_at(frame, &look));
	pl_frame_unplace(frame);
	assert_true(pl_frame_unchanged(frame));
}

/* Stores cursors, of any value, and looks at them as after the loss of the publisher. */
static void lose_publisher(struct rig *rig, uint64_t claimed, uint64_t published)
{
	pl_ring_claim_below(&rig->ring, claimed);
	pl_ring_publish(&rig->ring, published);
	pl_subscriber_follow_lost(&rig->subscriber);
}

/* The last cursors of a lost publisher count, unless they cannot be, go back, or cannot be read. */
static void test_lost_publisher(void **state)
{
	static const uint64_t most = PL_RING_SEQUENCE_MAX;
	struct rig *rig = *state;
	struct pl_subscriber *subscriber = &rig->subscriber;

	subscriber->peer = rig->peer;
	lose_publisher(rig, 3, 2);
	assert_int_equal(subscriber->published, 0); /* without a key */
	subscriber->control = &rig->remotes[0];
	subscriber->phase = PL_SUBSCRIBER_AWAY;
	pl_subscriber_follow_lost(subscriber);
	subscriber->phase = PL_SUBSCRIBER_LIVE;
	rig->refuses[0] = true;
	pl_subscriber_follow_lost(subscriber);
	rig->refuses[0] = false;
	rig->peer->ops = &other_fabric;
	pl_subscriber_follow_lost(subscriber);
	rig->peer->ops = &mapping_fabric;
	assert_int_equal(subscriber->published, 0);
	pl_subscriber_follow_lost(subscriber);
	assert_true(subscriber->claimed == 3 && subscriber->published == 2);
	lose_publisher(rig, 2, 1);
	lose_publisher(rig, most + 1, 4);
	lose_publisher(rig, 4, most + 1);
	lose_publisher(rig, UINT64_MAX, UINT64_MAX);
	assert_true(subscriber->claimed == 3 && subscriber->published == 2);
	/* The publisher stored `published` after `claimed` was read. */
	lose_publisher(rig, 4, 5);
	assert_true(subscriber->claimed == 5 && subscriber->published == 5);
	lose_publisher(rig, most, most);
	assert_true(subscriber->claimed == most && subscriber->published == most);
	assert_int_equal(subscriber->phase, PL_SUBSCRIBER_LIVE);
	subscriber->control = NULL;
	subscriber->peer = NULL;
}

static bool describe(struct rig *rig, uint64_t sequence)
{
	rig->frames[0].sequence = sequence;
	return pl_frame_describe_in_place(&rig->subscriber, &rig->frames[0]);
}

static void test_descriptors(void **state)
{
	struct rig *rig = *state;
	struct pl_ring_view *view = rig->subscriber.view;

	publish(rig, 0, LENGTH, 0);
	publish(rig, 1, 0, 0);
	publish(rig, 2, 0, PL_DESCRIPTOR_ABORTED);
	assert_true(describe(rig, 0) && rig->frames[0].descriptor.length == LENGTH);
	assert_true(describe(rig, 1) && describe(rig, 2));
	assert_false(describe(rig, 4)); /* of another sequence */
	/* A frame with a payload is judged when it is taken, others at once. */
	store_cursors(rig, 2 + SLOTS, 3);
	assert_true(describe(rig, 0));
	assert_false(describe(rig, 1));
	assert_true(describe(rig, 2));
	rig->subscriber.view = NULL;
	assert_false(describe(rig, 2));
	assert_false(pl_frame_place(&rig->subscriber, &rig->frames[0]));
	rig->subscriber.view = view;
}

/* The frame that leaves the view last gives it up. */
static void test_last_frame(void **state)
{
	struct rig *rig = *state;
	const uint64_t *published = pl_ring_view_published(rig->subscriber.view);
	const void *data;

	rig->subscriber.closing = true; /* nothing is frozen */
	for (unsigned i = 0; i < 2; i++) {
		rig->frames[i].sequence = i;
		assert_true(pl_frame_place(&rig->subscriber, &rig->frames[i]));
		assert_ptr_equal(rig->frames[i].view, rig->subscriber.view);
		pl_list_append(&rig->subscriber.placed, &rig->frames[i].link);
	}
	pl_frame_unplace(&rig->frames[0]);
	assert_true(pl_frame_place(&rig->subscriber, &rig->frames[0]));
	pl_subscriber_freeze(&rig->subscriber);
	assert_null(rig->subscriber.view);
	assert_int_equal(atomic_load(&rig->frames[0].place), PL_PLACE_RING);
	data = rig->frames[0].data;
	pl_frame_unplace(&rig->frames[0]);
	assert_true(is_mapped(published) && is_mapped(data));
	pl_frame_unplace(&rig->frames[1]);
	assert_false(is_mapped(published) || is_mapped(data));
	pl_frame_unplace(&rig->frames[1]);
}

static void test_freeze(void **state)
{
	struct rig *rig = *state;
	struct pl_subscriber *subscriber = &rig->subscriber;
	struct pl_ring_view *view = subscriber->view;
	const uint64_t *published = pl_ring_view_published(view);
	uint8_t *data[3];
	int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	assert_int_equal(pl_subscriber_first_placed(subscriber, 9), 9);
	for (unsigned i = 0; i < 3; i++) {
		struct pl_stream_frame *frame = &rig->frames[i];

		publish(rig, i, LENGTH, 0);
		frame->sequence = i;
		frame->descriptor.length = LENGTH;
		assert_true(pl_frame_place(subscriber, frame));
		data[i] = frame->data;
		pl_list_remove(&frame->link);
		pl_list_append(i == 2 ? &subscriber->window : &subscriber->placed, &frame->link);
		assert_int_equal(pl_subscriber_first_placed(subscriber, 9), 0);
	}
	pl_list_remove(&rig->frames[0].link);
	assert_int_equal(pl_subscriber_first_placed(subscriber, 9), 1);
	rig->frames[1].view = NULL; /* as of an earlier view */
	assert_int_equal(pl_subscriber_first_placed(subscriber, 9), 2);
	assert_int_equal(pl_subscriber_first_placed(subscriber, 1), 1);
	rig->frames[1].view = view;
	pl_list_append(&subscriber->placed, &rig->frames[0].link);
	/* The slot of frame 0 has been claimed. */
	publish(rig, SLOTS, LENGTH, 0);
	pl_subscriber_freeze(subscriber);
	pl_subscriber_freeze(subscriber);
	assert_null(subscriber->view);
	assert_int_equal(atomic_load(&rig->frames[0].place), PL_PLACE_RING);
	assert_int_equal(pl_subscriber_first_placed(subscriber, 9), 9);
	publish(rig, SLOTS + 1, LENGTH, 0);
	publish(rig, SLOTS + 2, LENGTH, 0);
	for (unsigned i = 1; i < 3; i++) {
		assert_int_equal(atomic_load(&rig->frames[i].place), PL_PLACE_FROZEN);
		assert_true(data[i][0] == i + 1 && data[i][LENGTH - 1] == i + 1);
		assert_true(pl_frame_unchanged(&rig->frames[i]));
		/* The program must not write them. */
		assert_int_equal(read(zeros, data[i], 1), -1);
	}
	close(zeros);
	assert_int_equal(data[0][0], SLOTS + 1);
	for (unsigned i = 0; i < 3; i++)
		pl_frame_unplace(&rig->frames[i]);
	assert_false(is_mapped(published));
}

/* Places a frame, and freezes it. Returns its address. */
static uint8_t *freeze_one(struct rig *rig)
{
	struct pl_stream_frame *frame = &rig->frames[0];

	publish(rig, 0, LENGTH, 0);
	frame->sequence = 0;
	frame->descriptor.length = LENGTH;
	assert_true(pl_frame_place(&rig->subscriber, frame));
	pl_list_remove(&frame->link);
	pl_list_append(&rig->subscriber.placed, &frame->link);
	pl_subscriber_freeze(&rig->subscriber);
	return frame->data;
}

static void test_freeze_leaves_no_hole(void **state)
{
	struct rig *rig = *state;
	uint8_t *data;

	kernel = LACKS_MOVE;
	data = freeze_one(rig);
	kernel = HAS_ALL;
	assert_int_equal(atomic_load(&rig->frames[0].place), PL_PLACE_FROZEN);
	publish(rig, SLOTS, LENGTH, 0);
	assert_true(data[0] == 1 && data[LENGTH - 1] == 1);
	pl_frame_unplace(&rig->frames[0]);
	assert_false(is_mapped(data));
}

/* Other memory of the process gets the address of a hole, and keeps it. */
static void test_torn_view_is_not_unmapped(void **state)
{
	struct rig *rig = *state;
	uint8_t *data, *other;

	kernel = LACKS_PAGES;
	data = freeze_one(rig);
	kernel = HAS_ALL;
	assert_int_equal(atomic_load(&rig->frames[0].place), PL_PLACE_RING);
	assert_false(is_mapped(data));
	other = mmap(data, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_equal(other, data);
	other[0] = 1;
	pl_frame_unplace(&rig->frames[0]);
	assert_true(is_mapped(other));
	assert_int_equal(other[0], 1);
	munmap(other, LENGTH);
}

static void test_freeze_without_frames(void **state)
{
	struct rig *rig = *state;
	const uint64_t *published = pl_ring_view_published(rig->subscriber.view);
	struct pl_ring_view *kept = pl_ring_view_get(rig->subscriber.view);

	pl_subscriber_freeze(&rig->subscriber);
	assert_true(is_mapped(published));
	pl_ring_view_put(kept);
	assert_false(is_mapped(published));
	assert_null(pl_ring_view_get(NULL));
	pl_ring_view_put(NULL);
}

/* -- threads that look into the ring -------------------------------------------------------------------------------- */

static void test_follow(void **state)
{
	struct rig *rig = *state;
	struct pl_subscriber *subscriber = &rig->subscriber;
	struct pl_ring_view *view = subscriber->view;

	subscriber->published = 2;
	store_cursors(rig, 1, 1);
	assert_true(pl_subscriber_follow_ring(subscriber));
	assert_true(subscriber->published == 2 && subscriber->view_published == 1);
	store_cursors(rig, 3, 5); /* published later than `claimed` was read */
	assert_true(pl_subscriber_follow_ring(subscriber));
	assert_true(subscriber->claimed == 5 && subscriber->published == 5 && subscriber->view_claimed == 3);
	subscriber->phase = PL_SUBSCRIBER_AWAY;
	store_cursors(rig, 1, 1);
	assert_true(pl_subscriber_follow_ring(subscriber));
	subscriber->phase = PL_SUBSCRIBER_LIVE;
	subscriber->view = NULL;
	assert_true(pl_subscriber_follow_ring(subscriber));
	subscriber->view = view;
	assert_int_equal(subscriber->view_published, 5);
	store_cursors(rig, PL_RING_SEQUENCE_MAX, PL_RING_SEQUENCE_MAX);
	assert_true(pl_subscriber_follow_ring(subscriber));
}

static void test_cursors_that_cannot_be(void **state)
{
	static const uint64_t cursors[][2] = {
		{ 6, 8 },
		{ 8, 6 },
		{ PL_RING_SEQUENCE_MAX + 1, 8 },
		{ 8, PL_RING_SEQUENCE_MAX + 1 },
	};

	for (unsigned i = 0; i < PL_ARRAY_SIZE(cursors); i++) {
		struct rig *rig = *state;
		struct pl_subscriber *subscriber = &rig->subscriber;

		subscriber->accounts.next = 7;
		store_cursors(rig, 7, 7);
		assert_true(pl_subscriber_follow_ring(subscriber));
		store_cursors(rig, cursors[i][0], cursors[i][1]);
		if (i % 2)
			assert_true(pl_subscriber_poll_ring(subscriber));
		else
			assert_false(pl_subscriber_follow_ring(subscriber));
		assert_int_equal(subscriber->phase, PL_SUBSCRIBER_OVER);
		assert_string_equal(subscriber->failure.id, "STREAM-PROTOCOL");
		assert_true(subscriber->view_claimed == 7 && subscriber->view_published == 7);
		assert_int_equal(subscriber->accounts.next, 7);
		rig_close(state);
		rig_open(state);
	}
}

static void test_quiet(void **state)
{
	struct rig *rig = *state;
	struct pl_subscriber *subscriber = &rig->subscriber;
	struct pl_ring_view *view = subscriber->view;

	assert_false(pl_subscriber_is_quiet(subscriber));
	subscriber->polls = true;
	assert_true(pl_subscriber_is_quiet(subscriber));
	subscriber->view = NULL;
	assert_false(pl_subscriber_is_quiet(subscriber));
	subscriber->view = view;
	subscriber->sleeping = 1;
	assert_false(pl_subscriber_is_quiet(subscriber));
	subscriber->sleeping = 0;
	subscriber->event_fd = 0;
	assert_false(pl_subscriber_is_quiet(subscriber));
	subscriber->event_fd = -1;
	subscriber->paused = true;
	assert_false(pl_subscriber_is_quiet(subscriber));
	subscriber->paused = false;
	subscriber->phase = PL_SUBSCRIBER_OVER;
	assert_false(pl_subscriber_is_quiet(subscriber));
	subscriber->phase = PL_SUBSCRIBER_LIVE;
	subscriber->state = PL_STREAM_ENDED;
	assert_false(pl_subscriber_is_quiet(subscriber));
}

static void test_poll(void **state)
{
	struct rig *rig = *state;
	struct pl_subscriber *subscriber = &rig->subscriber;
	struct pl_ring_view *view = subscriber->view;

	publish(rig, 0, 0, PL_DESCRIPTOR_ABORTED);
	publish(rig, 1, LENGTH, 0);
	subscriber->phase = PL_SUBSCRIBER_AWAY;
	assert_false(pl_subscriber_poll_ring(subscriber));
	subscriber->phase = PL_SUBSCRIBER_LIVE;
	subscriber->view = NULL;
	assert_false(pl_subscriber_poll_ring(subscriber));
	assert_false(subscriber->polls);
	subscriber->view = view;
	subscriber->paused = true;
	assert_false(pl_subscriber_poll_ring(subscriber));
	assert_true(subscriber->polls);
	assert_int_equal(subscriber->view_published, 0);
	subscriber->paused = false;
	subscriber->published = 1;
	pl_ring_publish(&rig->ring, 1);
	/* An aborted frame leaves the window empty. */
	assert_false(pl_subscriber_poll_ring(subscriber));
	assert_true(subscriber->accounts.aborted == 1 && subscriber->window_count == 0);
	pl_ring_publish(&rig->ring, 2);
	assert_false(pl_subscriber_poll_ring(subscriber));
	assert_int_equal(last_frame(rig)->state, PL_FRAME_READY);
	assert_int_equal(atomic_load(&last_frame(rig)->place), PL_PLACE_RING);
	/* A descriptor that the view does not show must be read. */
	store_cursors(rig, 3, 3);
	assert_true(pl_subscriber_poll_ring(subscriber));
	assert_int_equal(last_frame(rig)->state, PL_FRAME_WANT_DESCRIPTOR);
	assert_false(pl_subscriber_poll_ring(subscriber));
}

/* Threads wait for a turn, and for a frame in the ring while the subscriber may find one there. */
static void test_await(void **state)
{
	struct rig *rig = *state;
	struct pl_subscriber *subscriber = &rig->subscriber;
	const uint64_t *published = pl_ring_view_published(subscriber->view);
	unsigned seen = pl_turn_read(&subscriber->turn);
	bool ready;

	/* A thread without time to wait does not sleep, which would end the quiet. */
	subscriber->polls = true;
	assert_false(pl_subscriber_await(subscriber, seen, 0));
	/* `view_published` is 0. */
	pl_ring_publish(&rig->ring, 1);
	assert_true(pl_subscriber_await(subscriber, seen, UINT64_MAX));
	subscriber->paused = true;
	assert_false(pl_subscriber_await(subscriber, seen, pl_now() + 3 * MS));
	subscriber->paused = false;
	subscriber->phase = PL_SUBSCRIBER_OVER;
	assert_false(pl_subscriber_await(subscriber, seen, pl_now() + 3 * MS));
	subscriber->phase = PL_SUBSCRIBER_LIVE;
	assert_int_equal(subscriber->sleeping, 0);
	pl_list_remove(&rig->frames[0].link);
	pl_list_append(&subscriber->window, &rig->frames[0].link);
	rig->frames[0].state = PL_FRAME_READY;
	assert_true(pl_subscriber_await(subscriber, seen, UINT64_MAX));
	subscriber->polls = false;
	ready = pl_subscriber_await(subscriber, seen, pl_now() + 3 * MS);
	assert_false(ready);
	rig->frames[0].state = PL_FRAME_READING;
	assert_false(pl_subscriber_await(subscriber, seen, pl_now() + 3 * MS));
	/* No call has kept the view. */
	pl_ring_view_put(subscriber->view);
	subscriber->view = NULL;
	assert_false(is_mapped(published));
}

/* -- what a take would return ------------------------------------------------------------------------------------------ */

static void make_ready(struct rig *rig, unsigned index)
{
	pl_list_remove(&rig->frames[index].link);
	pl_list_append(&rig->subscriber.window, &rig->frames[index].link);
	rig->frames[index].state = PL_FRAME_READY;
	pl_lock_take(&rig->subscriber.lock);
	pl_subscriber_wake(&rig->subscriber);
	pl_lock_release(&rig->subscriber.lock);
}

static bool is_readable(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	return poll(&poll_fd, 1, 0) == 1;
}

/* The descriptor is readable while a frame is ready, also if that was so before the program asked for it, and if it is 0. */
static void test_descriptor(void **state)
{
	struct rig *rig = *state;
	struct pl_subscriber *subscriber = &rig->subscriber;
	int input = dup(0), fd;

	make_ready(rig, 0);
	close(0);
	fd = pl_subscriber_fd(subscriber);
	assert_int_equal(fd, 0);
	assert_int_equal(pl_subscriber_fd(subscriber), fd);
	assert_true(is_readable(fd));
	rig->frames[0].state = PL_FRAME_READING;
	make_ready(rig, 1);
	assert_false(is_readable(fd));
	rig->frames[0].state = PL_FRAME_READY;
	make_ready(rig, 2);
	assert_true(is_readable(fd));
	close(fd);
	assert_int_equal(dup2(input, 0), 0);
	close(input);
}

/* A program that asks for events gets one when frames are ready, and programs that do not ask get none. */
static void test_events(void **state)
{
	struct rig *rig = *state;
	struct pl_subscriber *subscriber = &rig->subscriber;
	struct pl_completion completion;

	make_ready(rig, 0);
	assert_int_equal(pl_poll(rig->context, &completion, 1), 0);
	subscriber->events = true;
	make_ready(rig, 1);
	make_ready(rig, 2);
	assert_int_equal(pl_poll(rig->context, &completion, 1), 1);
	assert_int_equal(completion.kind, PL_KIND_FRAME);
	assert_int_equal(pl_poll(rig->context, &completion, 1), 0);
}

static void test_end_of_frames(void **state)
{
	struct rig *rig = *state;
	struct pl_subscriber *subscriber = &rig->subscriber;

	subscriber->published = 2;
	subscriber->accounts.next = 2;
	assert_int_equal(pl_subscriber_end_of_frames(subscriber), 0);
	subscriber->state = PL_STREAM_ENDED;
	assert_int_equal(pl_subscriber_end_of_frames(subscriber), -ENODATA);
	subscriber->accounts.next = 1;
	assert_int_equal(pl_subscriber_end_of_frames(subscriber), 0);
	subscriber->phase = PL_SUBSCRIBER_AWAY;
	assert_int_equal(pl_subscriber_end_of_frames(subscriber), -ENOTCONN);
	subscriber->phase = PL_SUBSCRIBER_OVER;
	assert_int_equal(pl_subscriber_end_of_frames(subscriber), -ENODATA);
	subscriber->failure.code = -EPROTO;
	assert_int_equal(pl_subscriber_end_of_frames(subscriber), -EPROTO);
	subscriber->restarted = true;
	assert_int_equal(pl_subscriber_end_of_frames(subscriber), -ESTALE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_refusals, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_lap_rule, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_marks, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_lost_publisher, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_descriptors, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_last_frame, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_freeze, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_freeze_leaves_no_hole, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_torn_view_is_not_unmapped, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_freeze_without_frames, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_follow, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_cursors_that_cannot_be, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_quiet, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_poll, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_await, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_descriptor, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_events, rig_open, rig_close),
		cmocka_unit_test_setup_teardown(test_end_of_frames, rig_open, rig_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
