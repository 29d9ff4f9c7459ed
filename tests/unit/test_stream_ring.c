/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of a stream's ring: golden bytes, refusals of decoders, offsets, and the words that the publisher stores. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "stream/push_credit.h"
#include "stream/ring.h"

#define IMAGE \
	{ \
		.code = PL_ELEMENT_UINT, .bits = 16, .lanes = 1, .dimensions = 2, .shape = { 3, 5 } \
	}
static const struct pl_layout image = IMAGE;

static struct pl_ring_header example(void)
{
	struct pl_ring_header header = {
		.instance = { 1, 2, 3, [15] = 16 },
		.created = 0x1122334455667788,
		.gpu = true,
		.geometry = { .slots = 4, .metadata_bytes = 100, .slot_bytes = 5000 },
		.layout = image,
		.content_type = "image/raw",
		.name = "cam-0.left_A",
	};

	assert_int_equal(pl_ring_geometry_init(&header.geometry), 0);
	return header;
}

static void test_header(void **state)
{
	static const uint8_t golden[80] = {
		'P',  'L',  'S',  'T',  'R',  'E',  'A',  'M',  1, 0,    0, 0, 0, 0x10, 0, 0,
		1,    2,    3,    0,    0,    0,    0,    0,    0, 0,    0, 0, 0, 0,    0, 16,
		0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 4, 0,    0, 0, 0, 1,    0, 0,
		0x88, 0x13, 0,    0,    0,    0,    0,    0,    0, 0x20, 0, 0, 0, 0,    0, 0,
		100,  0,    0,    0,    1,    0,    0,    0,    1, 16,   1, 0, 2, 0,    0, 0,
	};
	struct pl_ring_header header = example(), decoded;
	uint8_t buffer[PL_RING_HEADER], again[PL_RING_HEADER];

	(void)state;
	pl_ring_header_encode(&header, buffer);
	assert_memory_equal(buffer, golden, sizeof(golden));
	assert_string_equal((char *)buffer + 152, "image/raw");
	assert_string_equal((char *)buffer + 216, "cam-0.left_A");
	assert_int_equal(pl_ring_header_decode(buffer, &decoded), 0);
	/* Compares encoded bytes: a structure's padding has no defined value. */
	pl_ring_header_encode(&decoded, again);
	assert_memory_equal(again, buffer, sizeof(buffer));
}

/* The decoder refuses a change of any byte outside the fields that can have other values. */
static void test_header_refusals(void **state)
{
	struct pl_ring_header header = example(), decoded;
	uint8_t good[PL_RING_HEADER], bad[PL_RING_HEADER];

	(void)state;
	pl_ring_header_encode(&header, good);
	for (size_t i = 0; i < sizeof(good); i++) {
		bool is_free = (i >= 16 && i < 42) || i == 48 || (i >= 72 && i < 144);

		memcpy(bad, good, sizeof(bad));
		bad[i] ^= 0x80;
		if (!is_free)
			assert_int_equal(pl_ring_header_decode(bad, &decoded), -EPROTO);
	}
	header.geometry.slots = 1;
	pl_ring_header_encode(&header, bad);
	assert_int_equal(pl_ring_header_decode(bad, &decoded), -EPROTO);
	header = example();
	header.layout.shape[0] = UINT64_MAX;
	pl_ring_header_encode(&header, bad);
	assert_int_equal(pl_ring_header_decode(bad, &decoded), -EPROTO);
	header = example();
	header.layout.code = 3;
	pl_ring_header_encode(&header, bad);
	assert_int_equal(pl_ring_header_decode(bad, &decoded), -EPROTO);
	header = example();
	header.geometry.slot_stride = UINT64_MAX / 2;
	pl_ring_header_encode(&header, bad);
	assert_int_equal(pl_ring_header_decode(bad, &decoded), -EPROTO);
	/* A text without a NUL. */
	memcpy(bad, good, sizeof(bad));
	memset(bad + 152, 'x', PL_CONTENT_TYPE_SIZE);
	assert_int_equal(pl_ring_header_decode(bad, &decoded), -EPROTO);
}

/* The largest values that are possible. */
static void test_header_limits(void **state)
{
	struct pl_ring_header header = example(), decoded;
	uint8_t buffer[PL_RING_HEADER];

	(void)state;
	header.geometry.slot_bytes = pl_layout_bytes(&header.layout);
	assert_int_equal(pl_ring_geometry_init(&header.geometry), 0);
	pl_ring_header_encode(&header, buffer);
	assert_int_equal(pl_ring_header_decode(buffer, &decoded), 0);
	memset(header.content_type, '~', PL_CONTENT_TYPE_SIZE - 1);
	memset(header.name, 'z', PL_STREAM_NAME_SIZE - 1);
	pl_ring_header_encode(&header, buffer);
	assert_int_equal(pl_ring_header_decode(buffer, &decoded), 0);
	assert_string_equal(decoded.content_type, header.content_type);
	assert_string_equal(decoded.name, header.name);
}

static void test_geometry(void **state)
{
	struct pl_ring_geometry geometry = { .slots = 3, .metadata_bytes = 1, .slot_bytes = 4097 };

	(void)state;
	assert_int_equal(pl_ring_geometry_init(&geometry), 0);
	assert_int_equal(geometry.descriptor_stride, 192);
	assert_int_equal(geometry.slot_stride, 8192);
	assert_int_equal(pl_ring_control_size(&geometry), 4160 + 3 * 192);
	assert_int_equal(pl_ring_payload_size(&geometry), 3 * 8192);
	assert_int_equal(pl_ring_descriptor_offset(&geometry, 7), 4160 + 192);
	assert_int_equal(pl_ring_slot_offset(&geometry, 8), 2 * 8192);
	geometry.slots = PL_STREAM_SLOTS_MAX + 1;
	assert_int_equal(pl_ring_geometry_init(&geometry), -EINVAL);
	geometry = (struct pl_ring_geometry){ .slots = 2, .slot_bytes = PL_RING_SLOT_MAX + 1 };
	assert_int_equal(pl_ring_geometry_init(&geometry), -EINVAL);
	geometry =
		(struct pl_ring_geometry){ .slots = 2, .slot_bytes = 1, .metadata_bytes = PL_STREAM_METADATA_MAX + 1 };
	assert_int_equal(pl_ring_geometry_init(&geometry), -EINVAL);
	geometry = (struct pl_ring_geometry){ .slots = 2 };
	assert_int_equal(pl_ring_geometry_init(&geometry), -EINVAL);
	geometry = (struct pl_ring_geometry){ .slots = 2, .slot_bytes = 1 };
	assert_int_equal(pl_ring_geometry_init(&geometry), 0);
	geometry = (struct pl_ring_geometry){ .slots = PL_STREAM_SLOTS_MAX,
					      .slot_bytes = PL_RING_SLOT_MAX,
					      .metadata_bytes = PL_STREAM_METADATA_MAX };
	assert_int_equal(pl_ring_geometry_init(&geometry), 0);
	assert_int_equal(pl_ring_bytes_to_move(false, 65), 65);
	assert_int_equal(pl_ring_bytes_to_move(true, 65), 128);
}

/* Each character alone. */
static void test_characters(void **state)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

	(void)state;
	for (int i = 1; i < 256; i++) {
		char name[PL_STREAM_NAME_SIZE] = { (char)i }, content_type[PL_CONTENT_TYPE_SIZE] = { (char)i };

		assert_int_equal(pl_stream_name_valid(name), strchr(allowed, i) != NULL);
		assert_int_equal(pl_content_type_valid(content_type), i >= ' ' && i <= '~');
	}
	assert_false(pl_stream_name_valid(""));
	assert_false(pl_stream_name_valid(NULL));
}

static void test_names_and_layouts(void **state)
{
	struct pl_layout layout = image;
	char longest[PL_STREAM_NAME_SIZE + 1];

	(void)state;
	memset(longest, 'a', sizeof(longest));
	longest[63] = 0;
	assert_true(pl_stream_name_valid(longest));
	longest[63] = 'a';
	longest[64] = 0;
	assert_false(pl_stream_name_valid(longest));
	assert_false(pl_stream_name_valid(""));
	assert_false(pl_stream_name_valid("a/b"));
	assert_false(pl_content_type_valid("a\n"));
	longest[63] = 0;
	assert_true(pl_content_type_valid(longest));
	longest[63] = 'a';
	assert_false(pl_content_type_valid(longest));
	assert_int_equal(pl_layout_bytes(&layout), 30);
	layout.bits = 1;
	assert_int_equal(pl_layout_bytes(&layout), 2);
	layout.shape[1] = 0;
	assert_int_equal(pl_layout_bytes(&layout), 0);
	layout = image;
	layout.shape[0] = 1ull << 63;
	assert_int_equal(pl_layout_bytes(&layout), UINT64_MAX);
	layout = image;
	layout.dimensions = 9;
	assert_false(pl_layout_valid(&layout));
	layout = image;
	layout.code = 3;
	assert_false(pl_layout_valid(&layout));
	layout = (struct pl_layout){ .lanes = 1 };
	assert_false(pl_layout_valid(&layout));
	layout = image;
	layout.lanes = 0;
	assert_false(pl_layout_valid(&layout));
	layout = image;
	layout.shape[2] = 1; /* behind the last dimension */
	assert_false(pl_layout_valid(&layout));
	layout = image;
	layout.code = PL_ELEMENT_BOOL;
	layout.dimensions = PL_LAYOUT_DIMENSIONS_MAX;
	assert_true(pl_layout_valid(&layout));
	layout.code = PL_ELEMENT_BOOL + 1;
	assert_false(pl_layout_valid(&layout));
}

/* A frame has its own layout, or that of the stream if it is as long. */
static void test_frame_layout(void **state)
{
	struct pl_ring_descriptor descriptor = { .length = 30 };
	const struct pl_layout none = { 0 };

	(void)state;
	assert_ptr_equal(pl_frame_layout(&descriptor, &image, 30), &image);
	assert_memory_equal(pl_frame_layout(&descriptor, &image, 31), &none, sizeof(none));
	descriptor.layout = image;
	assert_ptr_equal(pl_frame_layout(&descriptor, &image, 31), &descriptor.layout);
}

static uint64_t word_of(const struct pl_ring *ring, uint64_t offset)
{
	uint64_t word;

	memcpy(&word, ring->control + offset, sizeof(word));
	return le64toh(word);
}

static void test_publisher(void **state)
{
	struct pl_ring_header header = example();
	static const struct pl_ring_descriptor descriptor = { .sequence = 6,
							      .flags = PL_DESCRIPTOR_LAYOUT | PL_DESCRIPTOR_REPLAY,
							      .length = 30,
							      .captured = 77,
							      .published = 78,
							      .metadata_length = 3,
							      .layout = IMAGE };
	struct pl_ring_descriptor decoded;
	struct pl_ring_cursors cursors;
	struct pl_ring ring;
	uint8_t *control = aligned_alloc(64, (pl_ring_control_size(&header.geometry) + 63) / 64 * 64);
	uint64_t offset = pl_ring_descriptor_offset(&header.geometry, 6);
	uint8_t again[PL_RING_DESCRIPTOR];

	(void)state;
	memset(control, 0, pl_ring_control_size(&header.geometry));
	pl_ring_init(&ring, control, &header);
	pl_ring_claim(&ring, 6);
	assert_int_equal(word_of(&ring, PL_RING_HEADER), 7);
	assert_int_equal(word_of(&ring, PL_RING_HEADER + 8), 0);
	pl_ring_describe(&ring, &descriptor, "abc");
	assert_int_equal(word_of(&ring, offset), 7);
	pl_ring_describe(&ring, &descriptor, NULL);
	assert_memory_equal(control + offset + PL_RING_DESCRIPTOR, "abc", 3);
	assert_ptr_equal(pl_ring_claimed(&ring), control + PL_RING_HEADER);
	assert_int_equal(pl_ring_descriptor_decode(control + offset, &header.geometry, 6, &decoded), 0);
	pl_ring_descriptor_encode(&decoded, &header.geometry, again);
	assert_memory_equal(again, control + offset, sizeof(again));
	assert_memory_equal(&decoded.layout, &image, sizeof(image));
	assert_int_equal(pl_ring_descriptor_decode(control + offset, &header.geometry, 2, &decoded), -EPROTO);
	pl_ring_publish(&ring, 7);
	pl_ring_set_state(&ring, PL_STREAM_ENDED);
	assert_int_equal(pl_ring_cursors_decode(control + PL_RING_HEADER, &cursors), 0);
	assert_int_equal(cursors.claimed, 7);
	assert_int_equal(cursors.published, 7);
	assert_int_equal(cursors.state, PL_STREAM_ENDED);
	assert_true(pl_ring_marks_claims(control + PL_RING_HEADER));
	/* Earlier releases wrote a time there. */
	control[PL_RING_HEADER + 16] = 5;
	assert_int_equal(pl_ring_cursors_decode(control + PL_RING_HEADER, &cursors), 0);
	assert_false(pl_ring_marks_claims(control + PL_RING_HEADER));
	free(control);
}

/* Publishes a frame with a layout of its own, or without. */
static void publish_layout(struct pl_ring *ring, uint64_t sequence, bool own)
{
	struct pl_ring_descriptor descriptor = { .sequence = sequence, .length = 30 };

	if (own) {
		descriptor.flags = PL_DESCRIPTOR_LAYOUT;
		descriptor.layout = image;
	}
	pl_ring_claim(ring, sequence);
	pl_ring_describe(ring, &descriptor, NULL);
}

/*
 * The second cache line of a descriptor has only a layout. The publisher clears it after a frame with a layout of its own, and writes
 * nothing there otherwise.
 */
static void test_layout_line(void **state)
{
	struct pl_ring_header header = example();
	struct pl_ring_descriptor decoded;
	struct pl_ring ring;
	size_t size = (pl_ring_control_size(&header.geometry) + 63) / 64 * 64;
	uint8_t *control = aligned_alloc(64, size);
	unsigned slots = header.geometry.slots;

	(void)state;
	memset(control, 0, size);
	pl_ring_init(&ring, control, &header);
	for (uint64_t sequence = 0; sequence < 6 * slots; sequence++) {
		uint64_t offset = pl_ring_descriptor_offset(&header.geometry, sequence);

		/* A byte there tells if the publisher wrote the line. */
		if (sequence >= 4 * slots)
			control[offset + 64] = 9;
		publish_layout(&ring, sequence, sequence == slots + 1 || sequence == 2 * slots + 2);
		if (sequence >= 4 * slots)
			assert_int_equal(control[offset + 64], 9);
		else
			assert_int_equal(
				pl_ring_descriptor_decode(control + offset, &header.geometry, sequence, &decoded), 0);
	}
	free(control);
}

/* A skip claims and publishes all its sequences, and writes a descriptor for each slot at most. */
static void test_skip(void **state)
{
	static const uint64_t ends[] = { 8, 10, 11, 1ull << 40 };
	struct pl_ring_header header = example();
	struct pl_ring_descriptor decoded;
	struct pl_ring_cursors cursors;
	struct pl_ring ring;
	size_t size = (pl_ring_control_size(&header.geometry) + 63) / 64 * 64;
	uint8_t *control = aligned_alloc(64, size);

	(void)state;
	for (unsigned i = 0; i < PL_ARRAY_SIZE(ends); i++) {
		uint64_t described = ends[i] - PL_MIN(ends[i] - 7, 4);

		memset(control, 0, size);
		pl_ring_init(&ring, control, &header);
		assert_int_equal(pl_ring_skip(&ring, 7, ends[i], i % 2), described);
		assert_int_equal(pl_ring_cursors_decode(control + PL_RING_HEADER, &cursors), 0);
		assert_true(cursors.claimed == ends[i] && cursors.published == ends[i]);
		for (uint64_t sequence = ends[i] - 4; sequence < ends[i]; sequence++) {
			uint64_t offset = pl_ring_descriptor_offset(&header.geometry, sequence);

			if (sequence < described) {
				assert_int_equal(word_of(&ring, offset), 0);
				continue;
			}
			assert_int_equal(
				pl_ring_descriptor_decode(control + offset, &header.geometry, sequence, &decoded), 0);
			assert_int_equal(decoded.flags, PL_DESCRIPTOR_ABORTED);
			assert_int_equal(pl_ring_descriptor_lost(&decoded), i % 2);
		}
	}
	assert_int_equal(pl_stream_wanted(0, 3), 0);
	assert_int_equal(pl_stream_wanted(3, 3), 1);
	assert_int_equal(pl_stream_wanted(4, 3), 2);
	free(control);
}

/* A skip of any number of sequences clears the layout of the last frame of each slot, and so do the frames after it. */
static void test_skip_behind_layouts(void **state)
{
	struct pl_ring_header header = example();
	const unsigned slots = header.geometry.slots, most = 4 * slots;
	size_t size = (pl_ring_control_size(&header.geometry) + 63) / 64 * 64;
	uint8_t *control = aligned_alloc(64, size);
	struct pl_ring_descriptor decoded;
	struct pl_ring ring;

	(void)state;
	for (unsigned skipped = 1; skipped <= most; skipped++) {
		uint64_t sequence = 0, end = slots + skipped;

		memset(control, 0, size);
		pl_ring_init(&ring, control, &header);
		for (; sequence < slots; sequence++)
			publish_layout(&ring, sequence, true);
		pl_ring_skip(&ring, sequence, end, false);
		for (sequence = end; sequence < end + 2 * slots; sequence++) {
			for (uint64_t held = PL_MAX(sequence - slots, (uint64_t)slots); held < sequence; held++)
				assert_int_equal(pl_ring_descriptor_decode(
							 control + pl_ring_descriptor_offset(&header.geometry, held),
							 &header.geometry, held, &decoded),
						 0);
			publish_layout(&ring, sequence, false);
		}
	}
	free(control);
}

static void refuse_descriptor(const struct pl_ring_header *header, struct pl_ring_descriptor descriptor)
{
	struct pl_ring_descriptor decoded;
	uint8_t buffer[PL_RING_DESCRIPTOR];

	pl_ring_descriptor_encode(&descriptor, &header->geometry, buffer);
	assert_int_equal(pl_ring_descriptor_decode(buffer, &header->geometry, descriptor.sequence, &decoded), -EPROTO);
}

static void test_hostile_descriptors(void **state)
{
	const struct pl_ring_header header = example();
	const struct pl_ring_descriptor good = { .sequence = 5, .length = 5000, .metadata_length = 100 };
	struct pl_ring_descriptor bad, decoded;
	uint8_t buffer[PL_RING_DESCRIPTOR];

	(void)state;
	pl_ring_descriptor_encode(&good, &header.geometry, buffer);
	assert_int_equal(pl_ring_descriptor_decode(buffer, &header.geometry, 5, &decoded), 0);
	buffer[7] = 0x80; /* the publisher is writing */
	assert_int_equal(pl_ring_descriptor_decode(buffer, &header.geometry, 5, &decoded), -EPROTO);
	pl_ring_descriptor_encode(&good, &header.geometry, buffer);
	buffer[8]++; /* another slot */
	assert_int_equal(pl_ring_descriptor_decode(buffer, &header.geometry, 5, &decoded), -EPROTO);
	pl_ring_descriptor_encode(&good, &header.geometry, buffer);
	buffer[42] = 1;
	assert_int_equal(pl_ring_descriptor_decode(buffer, &header.geometry, 5, &decoded), -EPROTO);
	pl_ring_descriptor_encode(&good, &header.geometry, buffer);
	buffer[127] = 1;
	assert_int_equal(pl_ring_descriptor_decode(buffer, &header.geometry, 5, &decoded), -EPROTO);
	bad = good;
	bad.length = 5001;
	refuse_descriptor(&header, bad);
	bad = good;
	bad.metadata_length = 101;
	refuse_descriptor(&header, bad);
	bad = good;
	bad.flags = 8;
	refuse_descriptor(&header, bad);
	bad = good;
	bad.flags = PL_DESCRIPTOR_LAYOUT;
	refuse_descriptor(&header, bad);
	bad = good;
	bad.flags = PL_DESCRIPTOR_ABORTED;
	refuse_descriptor(&header, bad);
	bad.length = 0;
	refuse_descriptor(&header, bad);
	bad.length = 1;
	bad.metadata_length = 0;
	refuse_descriptor(&header, bad);
	bad.length = 0;
	bad.flags = PL_DESCRIPTOR_ABORTED | PL_DESCRIPTOR_REPLAY;
	refuse_descriptor(&header, bad);
	bad = good;
	bad.layout = image; /* without its flag */
	refuse_descriptor(&header, bad);
	bad.flags = PL_DESCRIPTOR_LAYOUT;
	bad.layout.code = 3;
	refuse_descriptor(&header, bad);
	bad.layout = image;
	bad.layout.bits = 0;
	pl_ring_descriptor_encode(&bad, &header.geometry, buffer);
	buffer[48] = 1; /* a layout of elements without bits */
	assert_int_equal(pl_ring_descriptor_decode(buffer, &header.geometry, 5, &decoded), -EPROTO);
	assert_false(pl_ring_descriptor_lost(&good));
	bad = good;
	bad.flags = PL_DESCRIPTOR_LAYOUT;
	bad.layout = image;
	bad.length = 29; /* shorter than its layout */
	refuse_descriptor(&header, bad);
}

static void test_hostile_cursors(void **state)
{
	uint8_t buffer[PL_RING_CURSORS] = { [24] = PL_STREAM_LIVE };
	struct pl_ring_cursors cursors;

	(void)state;
	assert_int_equal(pl_ring_cursors_decode(buffer, &cursors), 0);
	buffer[8] = 9; /* published later than `claimed` was read */
	assert_int_equal(pl_ring_cursors_decode(buffer, &cursors), 0);
	assert_int_equal(cursors.claimed, 9);
	buffer[7] = 0x80;
	assert_int_equal(pl_ring_cursors_decode(buffer, &cursors), -EPROTO);
	buffer[7] = 0;
	buffer[24] = 0;
	assert_int_equal(pl_ring_cursors_decode(buffer, &cursors), -EPROTO);
	buffer[24] = PL_STREAM_FAILED + 1;
	assert_int_equal(pl_ring_cursors_decode(buffer, &cursors), -EPROTO);
	buffer[24] = PL_STREAM_FAILED;
	assert_int_equal(pl_ring_cursors_decode(buffer, &cursors), 0);
	buffer[24] = PL_STREAM_ENDED;
	memset(buffer, 0, 8);
	buffer[7] = PL_RING_SEQUENCE_MAX >> 56;
	assert_int_equal(pl_ring_cursors_decode(buffer, &cursors), 0);
	buffer[0] = 1;
	assert_int_equal(pl_ring_cursors_decode(buffer, &cursors), -EPROTO);
	buffer[7] = 0;
	buffer[63] = 1;
	assert_int_equal(pl_ring_cursors_decode(buffer, &cursors), -EPROTO);
}

/* After `most` laps in a row, the next frames are moved one at a time, until some were whole. */
static void test_laps(void **state)
{
	struct pl_laps laps = { 0 };

	(void)state;
	pl_laps_count(&laps, false, 3);
	pl_laps_count(&laps, false, 3);
	pl_laps_count(&laps, true, 3);
	pl_laps_count(&laps, false, 3);
	pl_laps_count(&laps, false, 3);
	assert_int_equal(laps.left, 0);
	pl_laps_count(&laps, false, 3);
	assert_int_equal(laps.left, PL_FRAMES_AFTER_LAPS);
	pl_laps_count(&laps, true, 3);
	assert_int_equal(laps.left, PL_FRAMES_AFTER_LAPS - 1);
	/* Another lap begins again. */
	pl_laps_count(&laps, false, 3);
	assert_int_equal(laps.left, PL_FRAMES_AFTER_LAPS);
	for (unsigned i = 0; i < PL_FRAMES_AFTER_LAPS; i++)
		pl_laps_count(&laps, true, 3);
	assert_int_equal(laps.left, 0);
	pl_laps_count(&laps, true, 3);
	assert_int_equal(laps.left, 0);
}

/* -- credits ---------------------------------------------------------------------------------------------------------- */

#define CREDIT_SLOTS 5u

/* Each slot goes around: with the subscriber, free here, written into. A model says where each one is, and in which order. */
static void test_credits(void **state)
{
	enum { WITH_SUBSCRIBER, FREE_HERE, WRITTEN } place[CREDIT_SLOTS] = { 0 };
	uint32_t free_slots[CREDIT_SLOTS] = { 0 }, queue[CREDIT_SLOTS], slot, random = 1;
	bool owned[CREDIT_SLOTS] = { 0 };
	struct pl_push_credits credits;
	unsigned queued = 0;

	(void)state;
	pl_push_credits_init(&credits, CREDIT_SLOTS, free_slots, owned);
	assert_int_equal(pl_push_credit_add(&credits, CREDIT_SLOTS), -EPROTO);
	assert_int_equal(pl_push_credit_add(&credits, UINT32_MAX), -EPROTO);
	for (unsigned i = 0; i < 20000; i++) {
		random = random * 1664525 + 1013904223;
		slot = (random >> 16) % CREDIT_SLOTS;
		switch (random >> 30) {
		case 0:
			assert_int_equal(pl_push_credit_add(&credits, slot),
					 place[slot] == WITH_SUBSCRIBER ? 0 : -EPROTO);
			if (place[slot] != WITH_SUBSCRIBER)
				break;
			place[slot] = FREE_HERE;
			queue[queued++] = slot;
			break;
		case 1:
			assert_int_equal(pl_push_credit_take(&credits, &slot), queued > 0);
			if (queued == 0)
				break;
			assert_int_equal(slot, queue[0]);
			place[slot] = WRITTEN;
			memmove(queue, queue + 1, --queued * sizeof(queue[0]));
			break;
		default: /* the write ends: the frame was lapped, or goes to the subscriber */
			if (place[slot] != WRITTEN)
				break;
			if (random >> 30 == 2) {
				pl_push_credit_give(&credits, slot);
				place[slot] = WITH_SUBSCRIBER;
			} else {
				pl_push_credit_free(&credits, slot);
				place[slot] = FREE_HERE;
				queue[queued++] = slot;
			}
		}
		assert_int_equal(credits.count, queued);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_header_refusals),
		cmocka_unit_test(test_geometry),
		cmocka_unit_test(test_names_and_layouts),
		cmocka_unit_test(test_publisher),
		cmocka_unit_test(test_hostile_descriptors),
		cmocka_unit_test(test_hostile_cursors),
		cmocka_unit_test(test_skip),
		cmocka_unit_test(test_skip_behind_layouts),
		cmocka_unit_test(test_layout_line),
		cmocka_unit_test(test_credits),
		cmocka_unit_test(test_laps),
		cmocka_unit_test(test_characters),
		cmocka_unit_test(test_frame_layout),
		cmocka_unit_test(test_header_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
